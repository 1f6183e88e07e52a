/** Turns events into messages for people: notices, and announcements for screen readers. */

import { explain, explainDelay } from "./errors.js";
import { failedText } from "./report.js";

export class Notices {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
  }

  /**
   * Reports a new event. The chat itself shows how a turn ended, as an alert.
   * @param {import("./client.js").EventFrame} event
   */
  tell(event) {
    const { onNotice, onAnnounce } = this.app.listeners;
    switch (event.type) {
      case "entry_appended": {
        const { entry } = event.payload;
        if (entry.type === "message" && entry.role === "assistant") onAnnounce(entry.content.map(spoken).join("\n"));
        break;
      }
      case "turn_finished":
      case "session_updated":
        this.app.listChanged();
        break;
      case "approval_request": {
        const { name, reason } = event.payload;
        this.app.approvals.names.set(event.payload.approvalId, name);
        onAnnounce(`The tool ${name} waits for your approval. ${reason}`);
        break;
      }
      case "call_resolved": {
        const message = this.app.approvals.told(event.payload);
        if (message) onNotice({ kind: "info", message });
        break;
      }
      case "hook_failed": {
        // The chat shows what the failure means for the turn, if anything.
        const { hook, error } = event.payload;
        onNotice({ kind: "info", details: `${hook}, ${error.code}: ${error.message}`, message: `The extension “${hook}” failed.` });
        break;
      }
      case "budget_notice": {
        const { budget, percent } = event.payload;
        const whose = budget === "user" ? "your budget" : budget === "session" ? "this chat’s budget" : "the server’s budget";
        onNotice({ kind: "info", message: percent < 100 ? `${percent} % of ${whose} is used.` : `All of ${whose} is used.` });
        break;
      }
      case "request_delayed": {
        // Announce the wait once, not every second.
        const { reason, waitMs } = event.payload;
        onAnnounce(`${explainDelay(reason)} Trying again in ${Math.ceil(waitMs / 1000)} seconds.`);
        break;
      }
      case "compaction_started":
        if (!event.payload.background) onAnnounce("The context is being compacted.");
        break;
      case "context_compacted": {
        const percent = Math.round(event.payload.reductionPercent);
        onAnnounce(`The context was compacted, by ${percent} percent${event.payload.background ? ", while you talked" : ""}.`);
        break;
      }
      case "compaction_undone":
        onAnnounce("The compaction was undone: the model sees again what was said before it.");
        break;
      case "compaction_failed": this.compactionFailed(event.payload); break;
      default:
    }
  }

  /** @param {import("reseed-protocol").CompactionFailed} failed */
  compactionFailed({ error, background, trigger, failedRungs = [] }) {
    const { listeners, moves } = this.app;
    const { code } = error;
    // A compaction that was only prepared runs again when it is due. A summary of a branch has no trigger, and the
    // reply to the move reports its failure.
    if (code === "compaction_void" || (trigger === undefined && moves.isMoving)) return;
    // Only a user who asked for a compaction needs to know that there was nothing to gain.
    const isNothing = code === "nothing_to_compact";
    if (isNothing && trigger !== "manual") return;
    const tried = failedRungs.length > 0 ? ` Tried: ${failedRungs.map(failedText).join("; ")}.` : "";
    const { text, details = "" } = explain(error);
    const isQuiet = isNothing || background || code === "compaction_cancelled";
    // The chat shows failures that kept somebody waiting.
    if (isQuiet) listeners.onNotice({ kind: "info", message: text, details: details + tried });
    else listeners.onAnnounce(text);
  }
}

/**
 * Returns what a screen reader announces for a part of an answer.
 * @param {import("reseed-protocol").Part} part
 */
function spoken(part) {
  return part.type === "text" || part.type === "reasoning" ? part.text : "";
}
