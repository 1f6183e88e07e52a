/**
 * What can be done about what the model sees of the open session: compacting it, looking at that first, taking it back,
 * keeping messages, choosing how room is made.
 *
 * What always holds: a method whose refusal belongs to a form throws it; every other one shows it as a notice.
 *
 * @typedef {import("reseed-protocol").CompactionPreview} CompactionPreview
 * @typedef {import("reseed-protocol").PreviewCompaction} Wishes How to compact, this once.
 */

import { CommandError } from "./connection.js";
import { explain } from "./errors.js";
import { SUMMARISING_BRANCH, isHeldUp, withContextInfo } from "./fold.js";
import { failedText } from "./report.js";

export class Context {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    /**
     * @type {((progress: import("reseed-protocol").CompactionProgress) => void) | null} looks at how far a preview is
     */
    this.onPreviewProgress = null;
  }

  get connection() {
    return this.app.connection;
  }

  /** Whether a person may compact here now: one in the background gives way. */
  get mayCompact() {
    const { state, readOnly } = this.app;
    return state !== null && !readOnly && !isHeldUp(state);
  }

  /** @param {Wishes} [wishes] */
  async compact(wishes = {}) {
    await this.app.quietly(this.order(wishes));
  }

  /**
   * Orders a compaction; what it comes to is an event.
   * @param {import("reseed-protocol").StartCompaction} wishes
   */
  order(wishes) {
    return this.connection.request("start_compaction", wishes);
  }

  /**
   * Makes a compaction without putting it in place, and gets what the model sees now to compare it with.
   * @param {Wishes} wishes
   */
  async preview(wishes) {
    const preview = await this.connection.request("preview_compaction", wishes);
    // Without it the rest can still be shown.
    const now = await this.connection.request("get_context", { format: "envelope" }).catch(() => null);
    return { preview, messages: now?.envelope?.messages.cached ?? null };
  }

  /** @param {string} [jobId] absent for the one at work */
  async cancel(jobId) {
    try {
      await this.connection.request("cancel_compaction", jobId ? { jobId } : {});
    } catch (error) {
      // It was over before it could be stopped.
      if (!(error instanceof CommandError && error.code === "no_compaction")) this.app.fail(error);
    }
  }

  /** @param {string} [entryId] absent for the one in effect */
  async undo(entryId) {
    await this.app.quietly(this.connection.request("undo_compaction", entryId ? { entryId } : {}));
  }

  /**
   * @param {string} entryId
   * @param {boolean} keep whether every compaction should keep it, or no longer
   */
  async pin(entryId, keep) {
    await this.app.quietly(this.connection.request(keep ? "pin_entry" : "unpin_entry", { entryId }));
  }

  /**
   * @param {string} strategy
   * @param {import("reseed-protocol").StrategySettings} [settings] absent for the deployment's
   */
  setStrategy(strategy, settings) {
    return this.connection.request("set_context_strategy", settings ? { strategy, settings } : { strategy });
  }

  /**
   * What the next request would send.
   * @param {"envelope" | "markdown"} format
   * @param {boolean} ephemeral whether with what hooks last added for one request alone
   */
  nextRequest(format, ephemeral) {
    return this.connection.request("get_context", ephemeral ? { format, ephemeral } : { format });
  }

  /** Asks how full the window is. */
  async refresh() {
    const { app } = this;
    const { state } = app;
    if (!state) return;
    const info = await app.quietly(this.connection.request("get_context_info", {}));
    if (!info || app.state?.sessionId !== state.sessionId) return;
    app.state = withContextInfo(app.state, info);
    app.listeners.onChange();
  }

  /**
   * Tells what an event means for a person.
   * @param {import("./fold.js").EventFrame} event
   */
  notify(event) {
    const { listeners, moves, sessions, state } = this.app;
    switch (event.type) {
      case "hook_failed": {
        // What it means for the turn, if anything, stands in the chat.
        const { hook, error } = event.payload;
        listeners.onNotice({ kind: "info", details: `${hook}, ${error.code}: ${error.message}`, message: `The extension “${hook}” failed.` });
        break;
      }
      case "compaction_started":
        if (!event.payload.background) listeners.onAnnounce("The context is being compacted.");
        break;
      case "context_compacted": {
        const percent = Math.round(event.payload.reductionPercent);
        listeners.onAnnounce(`The context was compacted, by ${percent} percent${event.payload.background ? ", while you talked" : ""}.`);
        void this.refresh();
        sessions.maybeChanged();
        break;
      }
      case "compaction_undone":
        listeners.onAnnounce("The compaction was undone: the model sees again what was said before it.");
        void this.refresh();
        sessions.maybeChanged();
        break;
      case "compaction_progress":
        if (event.payload.phase !== SUMMARISING_BRANCH && state?.compaction?.jobId !== event.payload.jobId) this.onPreviewProgress?.(event.payload);
        break;
      case "compaction_failed": {
        const { commandId, error, background, trigger, failedRungs = [] } = event.payload;
        const { code } = error;
        // Whoever asked is told by the reply; what was only prepared is made again when it is due.
        if (code === "compaction_void" || (commandId && moves.asked.has(commandId))) break;
        // That there was nothing to gain is told to whoever asked for it.
        const isNothing = code === "nothing_to_compact";
        if (isNothing && trigger !== "manual") break;
        const tried = failedRungs.length > 0 ? ` Tried: ${failedRungs.map(failedText).join("; ")}.` : "";
        const { text, details = "" } = explain(error);
        // What failed while somebody waited stands in the chat.
        if (isNothing || background || code === "compaction_cancelled") listeners.onNotice({ kind: "info", message: text, details: details + tried });
        else listeners.onAnnounce(text);
        void this.refresh();
        break;
      }
      default:
    }
  }
}
