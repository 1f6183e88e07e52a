/**
 * The page's state and actions: one client, at most one displayed session, and the list of all sessions.
 *
 * Invariants:
 * - the displayed state of a session is the client's snapshot of it; the page never changes that snapshot;
 * - every change calls `onChange`; everything a person must know calls `onNotice`.
 *
 * @typedef {import("./client.js").Session} Session
 * @typedef {import("./client.js").SessionSnapshot} Snapshot
 *
 * @typedef {object} Notice
 * @property {"error" | "info"} kind
 * @property {string} message in plain language
 * @property {string} [details] code and message, shown when the reader unfolds them
 * @property {{ label: string, run: () => void }} [action] what the reader can do about it
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
import { LoggedSocket } from "./wire-log.js";

/** The close code that means a connection needs a token. */
const UNAUTHENTICATED = 4401;

/** The tree used when no session is displayed. */
const NO_TREE = new SessionTree();

export class App {
  /**
   * @param {object} listeners
   * @param {() => void} listeners.onChange
   * @param {(notice: Notice) => void} listeners.onNotice
   * @param {(text: string) => void} listeners.onAnnounce text for a screen reader to announce
   * @param {(content: import("reseed-protocol").Part[]) => void} listeners.onContent a message to put back
   * @param {(sessionId: string | null) => void} listeners.onShow called when another session is displayed; null: one
   * that will be created with its first input
   * @param {(sessionId: string) => void} listeners.onMade called when the first input has created its session, which is
   * now displayed
   * @param {(sessionId: string | null) => void} listeners.onTarget called with the session that the address should name
   */
  constructor(listeners) {
    this.listeners = listeners;
    /** @type {string | null} the session to display; null: one that will be created with its first input */
    this.target = null;
    /** @type {OpenSession | null} the displayed session */
    this.open = null;
    /** @type {Promise<Session> | null} */
    this.creating = null;
    /** @type {import("reseed-protocol").Models | null} the models a chat may use, as far as they are known */
    this.models = null;
    /** @type {unknown} the connection on which the models were requested */
    this.modelsOf = null;
    /** @type {Set<() => void>} callbacks that run on every change of the displayed state */
    this.watchers = new Set();
    this.client = connect(new URL("ws", location.href), { ticket, client: { name: CLIENT_NAME, version: "1" }, WebSocket: LoggedSocket });
    this.approvals = new Approving(this);
    this.context = new Context(this);
    this.moves = new Moves({ app: this, onContent: listeners.onContent });
    this.notices = new Notices(this);
    this.sending = new Sending(this);
    this.client.subscribe(() => this.changed());
    this.client.sessions.subscribe(() => this.changed());
  }

  // State

  /** Returns the displayed client session, if there is one. */
  get session() {
    return this.open?.session ?? null;
  }

  /** Returns the displayed session. Actions that need a session are only available while one is displayed. */
  get theSession() {
    if (!this.session) throw new Error("no chat is open");
    return this.session;
  }

  /** Returns the newest snapshot of the displayed session, or null before its first open. */
  get snapshot() {
    return this.session?.snapshot ?? null;
  }

  /** Returns the connection status. */
  get status() {
    return this.client.status;
  }

  /** Returns true if the server requires a token to connect. */
  get asksForToken() {
    return this.status.phase === "stopped" && this.status.code === UNAUTHENTICATED;
  }

  /** Returns true while the session to display has not loaded yet. */
  get loading() {
    return this.target !== null && this.snapshot === null && this.status.phase !== "stopped";
  }

  /** Returns what is known of the displayed session's tree. */
  get tree() {
    return this.open?.treeSource.tree ?? NO_TREE;
  }

  /** Returns true if the displayed session is read-only, as a damaged one is. */
  get readOnly() {
    return this.snapshot?.role === "observer";
  }

  /**
   * Returns true if the server supports the feature.
   * @param {string} feature one of `welcome.features`
   */
  can(feature) {
    return this.client.welcome?.features.includes(feature) ?? false;
  }

  /** Requests the model list once per connection: the start screen names the model that will answer. */
  async lookAtModels() {
    const { welcome } = this.client;
    if (this.status.phase !== "open" || !welcome || this.modelsOf === welcome || !this.can("models")) return;
    this.modelsOf = welcome;
    this.models = (await this.quietly(this.client.listModels())) ?? this.models;
    this.listeners.onChange();
  }

  /** Notifies everyone of a change. */
  changed() {
    void this.lookAtModels();
    this.listeners.onChange();
    for (const look of this.watchers) look();
  }

  /**
   * Waits until the displayed session passes the test.
   * @param {(snapshot: Snapshot) => boolean} test
   * @param {number} millis timeout
   * @returns {Promise<boolean>} false on timeout or when another session is displayed
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

  // Displayed session

  /**
   * Displays a session; null: a new one, created with its first input.
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
   * Creates the session for the first input and displays it.
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
        // The user has opened another chat meanwhile and stays there. Close this one once its input has arrived.
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
   * Handles a displayed session that cannot be opened or no longer exists.
   * @param {Extract<import("./client.js").SessionStatus, { phase: "ended" }>} status
   */
  ended({ code, reason, error }) {
    this.show(null);
    if (code === "deleted") this.listeners.onNotice({ kind: "info", message: "This chat was deleted." });
    else this.fail(error ?? new Error(reason));
  }

  // Session list

  /** Refreshes the list after a change. Servers with the `watch` feature send list changes themselves. */
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

  /** Stops the running turn, or else the compaction that a turn would wait for. */
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
   * Returns the displayed session. Before the first message it creates one, so that a setting has somewhere to go.
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

  // Errors

  /**
   * Loads a part of the page that is rarely used. Returns null if it cannot be loaded; the reason was shown.
   * @template T
   * @param {() => Promise<T>} load imports the part
   * @returns {Promise<T | null>}
   */
  async part(load) {
    try {
      return await load();
    } catch (error) {
      const message = "This part of the page could not be loaded. Check the connection and try again; if it happens again, reload the page.";
      this.listeners.onNotice({ kind: "error", message, details: String(error) });
      return null;
    }
  }

  /**
   * Returns the result, or shows the error and returns null.
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
