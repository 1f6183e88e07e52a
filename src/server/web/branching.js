/**
 * Moves in the tree as a person wants them: asks how to go to a message, what must stop for it, and which name or model
 * it gets. `moves.js` does the moving.
 */

import { NAME_CHARS_MAX, askToGo, confirm, prompt } from "./dialogs.js";
import { toast } from "./toasts.js";

/** Milliseconds to wait until a move shows in the chat. */
const SHOWN_MS = 5000;

export class Branching {
  /**
   * @param {import("./app.js").App} app
   * @param {object} listeners
   * @param {() => void} listeners.onGo called when the chat should be seen: the tree may cover it
   * @param {() => void} listeners.onEnd shows the end of the chat
   * @param {(entryId: string) => void} listeners.onReveal brings a message into view
   * @param {() => void} listeners.onWrite focuses the message field
   */
  constructor(app, listeners) {
    this.app = app;
    this.listeners = listeners;
  }

  /** Says what must stop before the session can move. */
  stopping() {
    const { app } = this;
    if (!app.moves.busy) return [];
    const { waiting } = app.moves;
    const back = waiting === 0 ? "" : waiting === 1 ? " The message that waits comes back to the message field." : ` The ${waiting} messages that wait come back to the message field.`;
    return [`${app.snapshot?.turn ? "An answer is being written" : "A summary is being written"}: going there stops it.${back}`];
  }

  /**
   * Asks how to continue from a message on the path, and goes there.
   * @param {string} entryId
   */
  async goOnFrom(entryId) {
    const { app, listeners } = this;
    const text = ["What was said after it stays on its own branch; what you say next begins another."];
    const chosen = await askToGo({ title: "Continue from here", text: [...text, ...this.stopping()], leaves: true, action: "Continue from here" });
    if (!chosen) return;
    // The end of the chat shows the progress of a summary.
    listeners.onEnd();
    if (await app.moves.go(entryId, "at", chosen.leaving)) listeners.onWrite();
  }

  /**
   * Asks how to go to an entry of the tree, and goes there.
   * @param {string} entryId
   */
  async goTo(entryId) {
    const { app, listeners } = this;
    const { snapshot } = app;
    if (!snapshot) return;
    const onPath = snapshot.path.entries.some((entry) => entry.entryId === entryId);
    if (app.readOnly || entryId === snapshot.leafId) {
      listeners.onGo();
      if (onPath) listeners.onReveal(entryId);
      return;
    }
    const preview = app.tree.nodes.get(entryId)?.preview ?? "";
    const tip = { value: /** @type {const} */ ("tip"), name: "Read on to the newest message below it" };
    const at = { value: /** @type {const} */ ("at"), name: "Continue right after it, on a new branch" };
    const show = { value: /** @type {const} */ ("show"), name: "Only show it in the chat" };
    const places = onPath ? [show, at] : [tip, at];
    const chosen = await askToGo({ title: "Go to this message", text: [preview && `“${preview}”`, ...this.stopping()].filter(Boolean), places, leaves: true, action: "Go there" });
    if (!chosen) return;
    listeners.onGo();
    if (chosen.place === "show") return listeners.onReveal(entryId);
    listeners.onEnd();
    await app.moves.go(entryId, chosen.place ?? "at", chosen.leaving);
  }

  /**
   * Switches to another version of a message, and offers to bring along a summary of the abandoned one.
   * @param {string} entryId
   * @param {number} index
   * @param {number} count
   */
  async switchTo(entryId, index, count) {
    const { app, listeners } = this;
    const left = app.snapshot?.leafId;
    const about = this.stopping();
    if (about.length > 0 && !(await confirm("Go to the other version?", about.join(" "), "Stop and go there"))) return;
    const moved = await app.moves.go(entryId, "tip");
    if (!moved) return;
    // The reply arrives before the events that move the view.
    await app.until((snapshot) => snapshot.path.entries.some((entry) => entry.entryId === entryId), SHOWN_MS);
    requestAnimationFrame(() => listeners.onReveal(entryId));
    const here = moved.leafId;
    if (left === undefined || left === "root" || here === "root") return;
    const bring = async () => {
      const text = "A summary of the branch that you left is put where you are now, so that the model knows of it.";
      const about = "What should the summary focus on? (optional)";
      const instructions = await prompt({ title: "Bring a summary along", text, label: about, action: "Bring it along", instructs: true, mayBeEmpty: true });
      if (instructions !== null) await app.moves.bringSummary(left, here, { summarize: true, instructions });
    };
    toast({ kind: "info", message: `Version ${index + 1} of ${count}.`, action: { label: "Bring a summary along", run: () => void bring() } });
  }

  /** @param {string} entryId */
  async label(entryId) {
    const { app } = this;
    const value = app.tree.labelOf(entryId) ?? "";
    const text = "A name for this message, to find it in the tree. Leave it empty to take the name away.";
    const name = await prompt({ title: "Label", text, label: "Label", action: "Save", value, charsMax: NAME_CHARS_MAX, mayBeEmpty: true });
    if (name !== null && name !== value) await app.moves.label(entryId, name);
  }

  /**
   * Regenerates an answer.
   * @param {string} entryId
   * @param {boolean} asksModel whether to ask which model should answer
   * @param {string} [model] the model that should answer; absent: as it is
   */
  async regenerate(entryId, asksModel, model) {
    const { app, listeners } = this;
    const about = this.stopping();
    if (asksModel) {
      const part = await app.part(async () => await import("./model-dialog.js"));
      const chosen = part && (await part.askModel(app, about));
      if (!chosen) return;
      model = chosen;
    } else if (about.length > 0 && !(await confirm("Regenerate this answer?", about.join(" "), "Stop and regenerate"))) return;
    listeners.onEnd();
    await app.moves.regenerate(entryId, model);
  }
}
