/**
 * Moves in the open session's tree and edits its queue.
 *
 * Invariants:
 * - a session only moves while it is idle: whatever runs is stopped first, and queued inputs come back to the message
 *   field;
 * - none of the user's own words are lost: what could not be sent is handed to `onContent`.
 *
 * @typedef {import("reseed-protocol").Part} Part
 * @typedef {import("reseed-protocol").QueueItem} QueueItem
 * @typedef {import("reseed-protocol").Navigated} Navigated
 * @typedef {import("./client.js").LeafId} LeafId
 *
 * @typedef {object} Leaving How to leave a branch.
 * @property {boolean} [summarize] whether to add a summary of it at the new place
 * @property {string} [instructions] what the summary should focus on
 *
 * @typedef {"at" | "tip"} Position
 */

import { joined, split } from "./attached.js";
import { CommandError } from "./client.js";
import { isBusy } from "./snapshot.js";

/** Pages and entries per page that are searched for the question of an answer with many tool calls. */
const QUESTION_PAGES_MAX = 10;
const QUESTION_ENTRIES = 100;

/** Maximum milliseconds to wait until running work has stopped. */
const STOP_MS = 20_000;

export class Moves {
  /**
   * @param {object} options
   * @param {import("./app.js").App} options.app
   * @param {(content: Part[]) => void} options.onContent called with a message to put back into the message field
   */
  constructor({ app, onContent }) {
    this.app = app;
    this.onContent = onContent;
    /** True while a move is in progress; its reply reports a failure. */
    this.isMoving = false;
  }

  get session() {
    return this.app.theSession;
  }

  /** Returns true if something is running that must stop before the session can move. */
  get busy() {
    const { snapshot } = this.app;
    return snapshot !== null && isBusy(snapshot);
  }

  /** Returns the number of queued inputs that would have to be taken back. */
  get waiting() {
    return this.app.snapshot?.queue.filter((item) => !item.custom).length ?? 0;
  }

  /** Stops whatever is running. Queued inputs are taken back first, so that none of them starts afterwards. */
  async stopAll() {
    const { app } = this;
    if (!this.busy) return;
    const waiting = app.snapshot?.queue.filter((item) => !item.custom) ?? [];
    if (waiting.length > 0) {
      await this.session.editQueue({ remove: waiting.map((item) => item.commandId) });
      const text = waiting.map((item) => split(item.content).text).filter(Boolean).join("\n\n");
      this.onContent(joined({ text, attached: waiting.flatMap((item) => split(item.content).attached) }));
    }
    if (this.busy) await app.stop();
    const stopped = await app.until((snapshot) => !isBusy(snapshot), STOP_MS);
    if (!stopped) throw new Error("what is running did not stop; try again when it has finished");
  }

  /**
   * Continues from another entry, or from before the first.
   * @param {LeafId} entryId
   * @param {Position | "before"} position
   * @param {Leaving} [leaving]
   * @param {import("./client.js").Session} [session] the session to move, whichever one is displayed meanwhile
   * @returns {Promise<Navigated | null>} null if the session did not move; the reason was shown
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
   * Asks a question in place of an entry: the entry and what followed it stay on their own branch.
   * @param {{ entryId: string, parentId: string | null }} entry
   * @param {Part[]} content
   * @param {Leaving} [leaving]
   * @returns {Promise<boolean>} true if the server accepted it
   */
  async askInstead({ entryId, parentId }, content, leaving = {}) {
    const { session } = this;
    const { sending } = this.app;
    try {
      if (!leaving.summarize) {
        await this.stopAll();
        return await sending.send(content, { parentId: parentId ?? "root" }, session);
      }
      const moved = await this.go(entryId, "before", leaving, session);
      return moved !== null && (await sending.send(content, {}, session));
    } catch (error) {
      this.app.fail(error);
      return false;
    }
  }

  /**
   * Asks the question of an answer again. The new answer is another version of it; what followed the old one stays on
   * its own branch.
   * @param {string} answerId
   * @param {string} [model] the model of the chat from here on; absent: as it is
   */
  async regenerate(answerId, model) {
    const { app, session } = this;
    const questionId = await this.questionOf(answerId);
    if (questionId === null) return app.listeners.onNotice({ kind: "info", message: "The message that this answers is too far up. Scroll up to it and ask it again." });
    const moved = await this.go(questionId, "at", {}, session);
    if (!moved) return;
    // After the move, so that the record of the change is on the new branch.
    if (model && model !== session.snapshot?.model && !(await app.quietly(session.setModel(model)))) {
      await this.go(answerId, "tip", {}, session);
      return;
    }
    await app.quietly(session.retryTurn().accepted);
  }

  /**
   * Returns what an answer on the path answers, or null if that cannot be found.
   * @param {string} answerId
   * @returns {Promise<string | null>}
   */
  async questionOf(answerId) {
    const { app, session } = this;
    for (let page = 0; page < QUESTION_PAGES_MAX; page += 1) {
      const { entries = [], more = false } = session.snapshot?.path ?? {};
      const at = entries.findIndex((entry) => entry.entryId === answerId);
      const question = entries.findLast((entry, index) => index < at && entry.type === "message" && entry.role === "user");
      if (question) return question.entryId;
      // `loadOlder` returns false after the last page, which is searched too.
      if (!more || (await app.quietly(session.loadOlder(QUESTION_ENTRIES))) === null) break;
    }
    return null;
  }

  /**
   * Asks an unanswered question again, at the end of the chat.
   * @param {{ content: Part[] }} question
   */
  async askAgain({ content }) {
    await this.app.sending.send(content);
  }

  /**
   * Adds a summary of a branch left earlier at the session's current place: it goes back to that branch and leaves it
   * again.
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
   * Creates a new session from the path to an entry and displays it.
   * @param {string} entryId
   * @param {"before" | "at"} position `before` an input: the input comes back as text, to be asked differently
   */
  async fork(entryId, position) {
    const forked = await this.app.quietly(this.session.fork(entryId, position));
    if (!forked) return;
    this.app.listChanged();
    this.app.show(forked.sessionId);
    if (forked.input) this.onContent(forked.input);
    this.app.listeners.onNotice({ kind: "info", message: "This is a new chat. The one it came from is as it was." });
  }

  /**
   * Names an entry; an empty name removes its name.
   * @param {string} entryId
   * @param {string} label
   */
  async label(entryId, label) {
    await this.app.quietly(this.session.setLabel(entryId, label || undefined));
  }

  // Queue

  /** @param {QueueItem} item */
  async remove(item) {
    const removed = await this.app.quietly(this.session.editQueue({ remove: [item.commandId] }));
    if (removed) this.onContent(item.content);
  }

  /**
   * Moves a queued input one place forward or back.
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
   * Sends a queued input into the running turn.
   * @param {QueueItem} item
   */
  async steer(item) {
    const { session } = this;
    const removed = await this.app.quietly(session.editQueue({ remove: [item.commandId] }));
    if (!removed) return;
    const isSent = await this.app.sending.send(item.content, { whenBusy: "steer" }, session);
    if (!isSent) this.onContent(item.content);
  }
}
