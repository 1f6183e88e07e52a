/**
 * Brings the connection to the session that should be shown, and keeps it there.
 *
 * What always holds:
 * - opening and closing sessions happens one after the other, and ends at the session that was asked for last;
 * - what waits for a session goes out once it is open, and not to another one;
 * - a session that keeps failing is not opened again and again.
 *
 * @typedef {import("./fold.js").State} State
 */

import { CommandError } from "./connection.js";
import { fromOpened, fromSnapshot, resumePoint } from "./fold.js";

/** Entries that come with a session and with each older page: a few screens. */
export const PAGE_ENTRIES = 50;
/** Milliseconds within which a second loss of step asks for a snapshot: the resume did not mend it. */
const RESYNC_MS = 2000;
/** Milliseconds until a session that could not be opened just now is tried again, where the server names no time. */
const REOPEN_MS = 3000;

export class Opening {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    /** @type {string | null} the session to show; null: one that is made with the first input */
    this.target = null;
    /** @type {string | null} the session that the connection has open */
    this.opened = null;
    this.resyncedAt = 0;
    /** @type {Promise<unknown>} */
    this.chain = Promise.resolve();
    /** @type {Promise<string> | null} */
    this.creating = null;
  }

  get connection() {
    return this.app.connection;
  }

  /** Returns true if the view was caught up a moment ago, so that doing it again is of no use. */
  get resynced() {
    return Date.now() - this.resyncedAt <= RESYNC_MS;
  }

  /**
   * Shows a session; null: a new one, which is made with its first input.
   * @param {string | null} sessionId
   */
  async show(sessionId) {
    if (sessionId === this.target) return;
    this.connection.forgetWaiting();
    this.connection.hold();
    this.aim(sessionId);
    await this.settleInTurn();
  }

  /** @param {string | null} sessionId */
  aim(sessionId) {
    const { app } = this;
    this.target = sessionId;
    app.state = null;
    app.listeners.onLeave();
    app.listeners.onTarget(sessionId);
    app.changed();
  }

  /**
   * Opening and closing sessions: one after the other.
   * @template T
   * @param {() => Promise<T>} task
   * @returns {Promise<T>}
   */
  inTurn(task) {
    const done = this.chain.then(task);
    this.chain = done.catch(() => undefined);
    return done;
  }

  /** Brings the connection to the session that was asked for, after whatever is being opened already. */
  settleInTurn() {
    return this.inTurn(() => this.settle());
  }

  /** Brings the connection to the session that was asked for; then what waited for it goes out. */
  async settle() {
    const { app } = this;
    if (app.status.phase !== "open") return;
    try {
      if (this.opened !== this.target) await this.leave();
      if (this.target !== null && this.opened !== this.target) await this.open(this.target);
    } catch (error) {
      if (!(error instanceof CommandError)) return;
      if (error.retriable) {
        setTimeout(() => void this.settleInTurn(), error.retryAfterMs ?? REOPEN_MS);
        return app.fail(error);
      }
      if (this.target !== null) this.aim(null);
      app.fail(error);
    }
    this.connection.ready();
  }

  /** Ends the subscription to the open session, if there is one. */
  async leave() {
    const left = this.opened;
    this.opened = null;
    // It may have ended by itself meanwhile, or with the connection.
    if (left !== null) await this.connection.request("close_session", {}, { session: left }).catch(() => undefined);
  }

  /** @param {string} sessionId */
  async open(sessionId) {
    const { state, treeSource } = this.app;
    const from = state?.sessionId === sessionId && state.outOfSync !== "snapshot" ? state : null;
    const opened = await this.ask(sessionId, from);
    if (this.target !== sessionId) {
      this.opened = sessionId;
      return;
    }
    const replays = from !== null && opened.resumed === "replay" && from.epoch === opened.epoch;
    if (!replays) treeSource.forget();
    this.adopt(fromOpened(from, opened), opened.asOfSeq);
  }

  /**
   * Asks for a session, to go on from this state of it. What is left of a damaged session can be read.
   * @param {string} sessionId
   * @param {State | null} from
   */
  async ask(sessionId, from) {
    const ask = { entries: PAGE_ENTRIES, ...(from ? { resume: resumePoint(from) } : {}) };
    const session = sessionId;
    try {
      return await this.connection.request("open_session", ask, { session });
    } catch (error) {
      if (!(error instanceof CommandError) || error.code !== "session_damaged") throw error;
      return await this.connection.request("open_session", { entries: PAGE_ENTRIES, role: "observer" }, { session });
    }
  }

  /**
   * @param {State} state
   * @param {number} asOfSeq
   */
  adopt(state, asOfSeq) {
    this.opened = state.sessionId;
    this.app.adopt(state, asOfSeq);
  }

  /**
   * Makes the session that the first input goes to.
   * @returns {Promise<string>} its id
   */
  create() {
    const { app } = this;
    this.creating ??= this.inTurn(async () => {
      if (this.target !== null) return this.target;
      const opened = await this.connection.request("open_session", { entries: PAGE_ENTRIES });
      this.opened = opened.sessionId;
      if (this.target !== null) return opened.sessionId;
      this.target = opened.sessionId;
      app.listeners.onTarget(opened.sessionId);
      app.treeSource.forget();
      this.adopt(fromSnapshot(opened), opened.asOfSeq);
      app.sessions.maybeChanged();
      return opened.sessionId;
    }).finally(() => (this.creating = null));
    return this.creating;
  }

  /**
   * Gets what was missed.
   * @param {"resume" | "snapshot"} how
   */
  resync(how) {
    const { app } = this;
    const again = this.resynced;
    this.resyncedAt = Date.now();
    if (app.state) app.state = { ...app.state, outOfSync: again ? "snapshot" : how };
    void this.reopen();
  }

  async reopen() {
    this.connection.hold();
    await this.inTurn(async () => {
      await this.leave();
      await this.settle();
    });
  }

  /**
   * The server has ended the subscription to the open session; the connection stays.
   * @param {import("reseed-protocol").SessionClosed} closed
   */
  ended({ code, retriable }) {
    const { target } = this;
    this.opened = null;
    if (code === "deleted") return this.deleted();
    this.connection.hold();
    // A record that cannot be read is requested once: a resume would need it again, a snapshot may not.
    if (!this.resynced) return this.resync(retriable ? "resume" : "snapshot");
    setTimeout(() => this.opened === null && this.target === target && this.resync("snapshot"), REOPEN_MS);
  }

  /** The session that is shown does not exist any more. */
  deleted() {
    this.connection.forgetWaiting();
    this.aim(null);
    this.app.listeners.onNotice({ kind: "info", message: "This chat was deleted." });
  }
}
