/**
 * What the page knows and what can be done: one client, at most one session that is shown, the list of all.
 *
 * What always holds:
 * - what is shown of a session is the client's snapshot of it; the page changes nothing in it;
 * - every change is told by `onChange`, everything a person must know by `onNotice`.
 *
 * @typedef {import("./client.js").Session} Session
 * @typedef {import("./client.js").SessionSnapshot} Snapshot
 *
 * @typedef {object} Notice
 * @property {"error" | "info"} kind
 * @property {string} message in people's words
 * @property {string} [details] code and message, for those who unfold them
 * @property {{ label: string, run: () => void }} [action] what may be done about it
 */

import { Approving } from "./approving.js";
import { connect } from "./client.js";
import { Context } from "./context.js";
import { keepToken, ticket } from "./credentials.js";
import { explainError, isTold } from "./errors.js";
import { Moves } from "./moves.js";
import { Notices } from "./notices.js";
import { OpenSession } from "./open-session.js";
import { CLIENT_NAME } from "./presence.js";
import { Sending } from "./sending.js";
import { isHeldUp } from "./snapshot.js";
import { SessionTree } from "./tree.js";

/** The close code after which there is no connection without a token. */
const UNAUTHENTICATED = 4401;

/** The tree of no session. */
const NO_TREE = new SessionTree();

export class App {
  /**
   * @param {object} listeners
   * @param {() => void} listeners.onChange
   * @param {(notice: Notice) => void} listeners.onNotice
   * @param {(text: string) => void} listeners.onAnnounce what a screen reader should say
   * @param {(text: string) => void} listeners.onText a text that goes back to where one writes
   * @param {(sessionId: string | null) => void} listeners.onShow another session is shown from here on; null: one that
   * is made with its first input
   * @param {(sessionId: string) => void} listeners.onMade the session of the first input was made, and is shown
   * @param {(sessionId: string | null) => void} listeners.onTarget the session that the address should name
   */
  constructor(listeners) {
    this.listeners = listeners;
    /** @type {string | null} the session to show; null: one that is made with the first input */
    this.target = null;
    /** @type {OpenSession | null} the session that is shown */
    this.open = null;
    /** @type {Promise<Session> | null} */
    this.creating = null;
    /** @type {import("reseed-protocol").Models | null} the models that a chat may use, as far as they are known */
    this.models = null;
    /** @type {unknown} the connection that was asked for them */
    this.modelsOf = null;
    /** @type {Set<() => void>} looks at what is shown that wait for it to change */
    this.watchers = new Set();
    this.client = connect(new URL("ws", location.href), { ticket, client: { name: CLIENT_NAME, version: "1" } });
    this.approvals = new Approving(this);
    this.context = new Context(this);
    this.moves = new Moves({ app: this, onText: listeners.onText });
    this.notices = new Notices(this);
    this.sending = new Sending(this);
    this.client.subscribe(() => this.changed());
    this.client.sessions.subscribe(() => this.changed());
  }

  // What is known

  /** The client's session that is shown, if there is one. */
  get session() {
    return this.open?.session ?? null;
  }

  /** The session that is shown, where there is one for sure: what needs one is offered nowhere else. */
  get theSession() {
    if (!this.session) throw new Error("no chat is open");
    return this.session;
  }

  /** The newest state of the session that is shown; null before it was opened for the first time. */
  get snapshot() {
    return this.session?.snapshot ?? null;
  }

  /** The connection's status. */
  get status() {
    return this.client.status;
  }

  /** Whether there is no connection without a token. */
  get asksForToken() {
    return this.status.phase === "stopped" && this.status.code === UNAUTHENTICATED;
  }

  /** Whether the session that should be shown is not there yet. */
  get loading() {
    return this.target !== null && this.snapshot === null && this.status.phase !== "stopped";
  }

  /** What is known of the tree of the session that is shown. */
  get tree() {
    return this.open?.treeSource.tree ?? NO_TREE;
  }

  /** Whether a person can only read the session that is shown: a damaged one. */
  get readOnly() {
    return this.snapshot?.role === "observer";
  }

  /**
   * Whether the server can do this.
   * @param {string} feature as in `welcome.features`
   */
  can(feature) {
    return this.client.welcome?.features.includes(feature) ?? false;
  }

  /** Asks each server once which models there are: the start screen names the one that will answer. */
  async lookAtModels() {
    const { welcome } = this.client;
    if (this.status.phase !== "open" || !welcome || this.modelsOf === welcome || !this.can("models")) return;
    this.modelsOf = welcome;
    this.models = (await this.quietly(this.client.listModels())) ?? this.models;
    this.listeners.onChange();
  }

  /** Tells of a change. */
  changed() {
    void this.lookAtModels();
    this.listeners.onChange();
    for (const look of this.watchers) look();
  }

  /**
   * Waits until the session that is shown is so.
   * @param {(snapshot: Snapshot) => boolean} test
   * @param {number} millis at most this long
   * @returns {Promise<boolean>} false when the time is over, or another session is shown
   */
  until(test, millis) {
    const { open } = this;
    return new Promise((resolve) => {
      const end = (/** @type {boolean} */ reached) => {
        clearTimeout(timer);
        this.watchers.delete(look);
        resolve(reached);
      };
      const look = () => {
        if (this.open !== open) end(false);
        else if (this.snapshot && test(this.snapshot)) end(true);
      };
      const timer = setTimeout(() => end(false), millis);
      this.watchers.add(look);
      look();
    });
  }

  // Which session is shown

  /**
   * Shows a session; null: a new one, which is made with its first input.
   * @param {string | null} sessionId
   */
  show(sessionId) {
    if (sessionId === this.target) return;
    this.open?.end();
    this.open = null;
    this.target = sessionId;
    this.listeners.onShow(sessionId);
    this.listeners.onTarget(sessionId);
    if (sessionId !== null) this.enter(this.client.session(sessionId));
    this.changed();
  }

  /** @param {Session} session */
  enter(session) {
    this.open = new OpenSession(this, session);
    this.open.start();
  }

  /**
   * Makes the session that the first input goes to, and shows it.
   * @returns {Promise<Session>}
   */
  create() {
    this.creating ??= this.client.createSession().then((session) => {
      this.creating = null;
      if (this.target === null) {
        this.target = session.id;
        this.listeners.onMade(session.id);
        this.listeners.onTarget(session.id);
        this.enter(session);
      } else {
        // A person who has opened another chat by now stays there. This one is closed when its input has arrived.
        session.hold()();
      }
      this.listChanged();
      return session;
    }, (error) => {
      this.creating = null;
      throw error;
    });
    return this.creating;
  }

  /**
   * The session that is shown cannot be opened, or does not exist any more.
   * @param {Extract<import("./client.js").SessionStatus, { phase: "ended" }>} status
   */
  ended({ code, reason, error }) {
    this.show(null);
    if (code === "deleted") this.listeners.onNotice({ kind: "info", message: "This chat was deleted." });
    else this.fail(error ?? new Error(reason));
  }

  // Sessions

  /** The list has changed. Servers of today tell of that by themselves. */
  listChanged() {
    if (!this.can("watch")) this.client.sessions.refresh();
  }

  /**
   * @param {string} sessionId
   * @param {string} name
   */
  async rename(sessionId, name) {
    await this.quietly(this.client.session(sessionId).rename(name));
    this.listChanged();
  }

  /** @param {string} sessionId */
  async remove(sessionId) {
    if (this.target === sessionId) this.show(null);
    await this.quietly(this.client.session(sessionId).delete());
    this.listChanged();
  }

  // Turns

  /** Stops what is going on: the turn, or else the compaction that it would wait for. */
  async stop() {
    const { session, snapshot } = this;
    if (!session || !snapshot) return;
    if (snapshot.turn) await this.quietly(session.cancelTurn());
    else if (isHeldUp(snapshot)) await this.context.cancel();
  }

  async retry() {
    if (this.session) await this.quietly(this.session.retryTurn().accepted);
  }

  /**
   * The session that is shown; before the first message the one that is made for what is chosen now.
   * @returns {Promise<Session>}
   */
  async madeSession() {
    return this.session ?? (await this.create());
  }

  /** @param {string} model */
  async setModel(model) {
    await this.quietly(this.madeSession().then((session) => session.setModel(model)));
  }

  /** @param {string} token */
  login(token) {
    keepToken(token);
    this.client.reconnect();
  }

  // What went wrong

  /**
   * The result, or null after its error was shown.
   * @template T
   * @param {Promise<T>} promise
   * @returns {Promise<T | null>}
   */
  async quietly(promise) {
    try {
      return await promise;
    } catch (error) {
      this.fail(error);
      return null;
    }
  }

  /** @param {unknown} error */
  fail(error) {
    if (isTold(error, this.status.phase === "open")) return;
    const { text, details } = explainError(error);
    this.listeners.onNotice({ kind: "error", message: text, details });
  }
}
