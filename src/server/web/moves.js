/**
 * Moving about in the open session's tree, and what waits in its queue.
 *
 * What always holds:
 * - a session only moves while nothing is at work in it: what is, is stopped first, and what waited comes back as text;
 * - nothing of a person's own words is lost on the way: what could not be sent is handed to `onText`.
 *
 * @typedef {import("reseed-protocol").Part} Part
 * @typedef {import("reseed-protocol").QueueItem} QueueItem
 * @typedef {import("reseed-protocol").Navigated} Navigated
 * @typedef {import("./client.js").LeafId} LeafId
 *
 * @typedef {object} Leaving How to leave a branch.
 * @property {boolean} [summarize] whether a summary of it should stand where the session goes on
 * @property {string} [instructions] what the summary should dwell on
 *
 * @typedef {"at" | "tip"} Position
 */

import { CommandError, textOf } from "./client.js";
import { isBusy } from "./snapshot.js";

/** Milliseconds that what is at work may take to stop. */
const STOP_MS = 20_000;

export class Moves {
  /**
   * @param {object} options
   * @param {import("./app.js").App} options.app
   * @param {(text: string) => void} options.onText a text that goes back to where one writes
   */
  constructor({ app, onText }) {
    this.app = app;
    this.onText = onText;
    /** Whether a move is on its way, whose failure is told by its reply. */
    this.isMoving = false;
  }

  get session() {
    return this.app.theSession;
  }

  /** Whether something is at work that has to stop before the session can move. */
  get busy() {
    const { snapshot } = this.app;
    return snapshot !== null && isBusy(snapshot);
  }

  /** How many inputs wait that would have to be taken back. */
  get waiting() {
    return this.app.snapshot?.queue.filter((item) => !item.custom).length ?? 0;
  }

  /** Stops what is at work. What waits is taken back first, so that nothing begins after it. */
  async stopAll() {
    const { app } = this;
    if (!this.busy) return;
    const waiting = app.snapshot?.queue.filter((item) => !item.custom) ?? [];
    if (waiting.length > 0) {
      await this.session.editQueue({ remove: waiting.map((item) => item.commandId) });
      this.onText(waiting.map((item) => textOf(item.content)).join("\n\n"));
    }
    if (this.busy) await app.stop();
    const stopped = await app.until((snapshot) => !isBusy(snapshot), STOP_MS);
    if (!stopped) throw new Error("what is at work did not stop; try again when it is over");
  }

  /**
   * Goes on from another entry, or from before the first.
   * @param {LeafId} entryId
   * @param {Position | "before"} position
   * @param {Leaving} [leaving]
   * @param {import("./client.js").Session} [session] the one that moves, whatever is looked at meanwhile
   * @returns {Promise<Navigated | null>} null when the session stands where it stood; the reason was shown
   */
  async go(entryId, position, { summarize, instructions } = {}, session = this.session) {
    const about = summarize ? { summarize, ...(instructions ? { instructions } : {}) } : {};
    this.isMoving = true;
    try {
      if (session === this.app.session) await this.stopAll();
      return await session.navigate(entryId, { position, ...about });
    } catch (error) {
      if (error instanceof CommandError && error.code === "navigation_cancelled") {
        this.app.listeners.onNotice({ kind: "info", message: "The summary was stopped. The chat is where it was." });
      } else {
        this.app.fail(error);
      }
      return null;
    } finally {
      this.isMoving = false;
    }
  }

  /**
   * Asks from where an entry stands, beside it: it and what came of it stay on their branch.
   * @param {{ entryId: string, parentId: string | null }} entry
   * @param {Part[]} content
   * @param {Leaving} [leaving]
   * @returns {Promise<boolean>} whether the server took it
   */
  async askInstead({ entryId, parentId }, content, leaving = {}) {
    const { session } = this;
    const { sending } = this.app;
    const input = inputOf(content);
    try {
      if (!leaving.summarize) {
        await this.stopAll();
        return await sending.send(input, textOf(content), { parentId: parentId ?? "root" }, session);
      }
      const moved = await this.go(entryId, "before", leaving, session);
      return moved !== null && (await sending.send(input, textOf(content), {}, session));
    } catch (error) {
      this.app.fail(error);
      return false;
    }
  }

  /**
   * Asks a question that has no answer once more, at the end of the chat.
   * @param {{ content: Part[] }} question
   */
  async askAgain({ content }) {
    await this.app.sending.send(inputOf(content), textOf(content));
  }

  /**
   * Puts a summary of a branch that was left earlier where the session continues now: goes back to that branch and
   * leaves it again.
   * @param {LeafId} leftId
   * @param {LeafId} hereId
   * @param {Leaving} leaving
   */
  async bringSummary(leftId, hereId, leaving) {
    const { session } = this;
    if (!(await this.go(leftId, "at", {}, session))) return;
    const moved = await this.go(hereId, "at", leaving, session);
    if (!moved) await this.go(hereId, "at", {}, session);
  }

  /**
   * Makes a new session of the path to an entry, and shows it.
   * @param {string} entryId
   * @param {"before" | "at"} position `before` an input: it comes back as text, to be asked differently
   */
  async fork(entryId, position) {
    const forked = await this.app.quietly(this.session.fork(entryId, position));
    if (!forked) return;
    this.app.listChanged();
    this.app.show(forked.sessionId);
    if (forked.input) this.onText(textOf(forked.input));
    this.app.listeners.onNotice({ kind: "info", message: "This is a new chat. The one it came from is as it was." });
  }

  /**
   * Names an entry; an empty name takes its name away.
   * @param {string} entryId
   * @param {string} label
   */
  async label(entryId, label) {
    await this.app.quietly(this.session.setLabel(entryId, label || undefined));
  }

  // What waits

  /** @param {QueueItem} item */
  async remove(item) {
    const removed = await this.app.quietly(this.session.editQueue({ remove: [item.commandId] }));
    if (removed) this.onText(textOf(item.content));
  }

  /**
   * Puts an input one place nearer to its turn, or one further from it.
   * @param {QueueItem} item
   * @param {-1 | 1} by
   */
  async shift(item, by) {
    const order = this.app.snapshot?.queue.map((other) => other.commandId) ?? [];
    const at = order.indexOf(item.commandId);
    const to = at + by;
    if (at < 0 || to < 0 || to >= order.length) return;
    [order[at], order[to]] = [order[to], order[at]];
    await this.app.quietly(this.session.editQueue({ order }));
  }

  /**
   * Tells an input that waits to the running turn.
   * @param {QueueItem} item
   */
  async steer(item) {
    const { session } = this;
    const removed = await this.app.quietly(session.editQueue({ remove: [item.commandId] }));
    if (!removed) return;
    const text = textOf(item.content);
    const isSent = await this.app.sending.send(inputOf(item.content), text, { whenBusy: "steer" }, session);
    if (!isSent) this.onText(text);
  }
}

/**
 * Parts as input of the user's.
 * @param {Part[]} content
 * @returns {import("reseed-protocol").Input}
 */
export function inputOf(content) {
  if (content.every((part) => part.type === "text")) return textOf(content);
  return [{ role: "user", content: content.filter((part) => part.type === "text" || part.type === "image") }];
}
