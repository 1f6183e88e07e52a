/**
 * What the page knows and what can be done: one connection, at most one open session, the list of the others.
 *
 * What always holds:
 * - `state` is only ever made by `fold.js`; this file and `opening.js` decide when, the fold decides what;
 * - events of a session that was left change nothing;
 * - every change is told by `onChange`, everything a person must know by `onNotice`.
 *
 * @typedef {import("./fold.js").State} State
 * @typedef {import("./fold.js").EventFrame} EventFrame
 *
 * @typedef {object} Notice
 * @property {"error" | "info"} kind
 * @property {string} message in people's words
 * @property {string} [details] code and message, for those who unfold them
 * @property {{ label: string, run: () => void }} [action] what may be done about it
 *
 * @typedef {{ id: string, text: string }} Sending An input that the server has not taken yet.
 */

import { Connection, ConnectionLost, explainError, newId } from "./connection.js";
import { Context } from "./context.js";
import { credentials, keepToken, takeClientId } from "./credentials.js";
import { Directory } from "./directory.js";
import { isHeldUp, isRunning, needsPath, reduce, withPage } from "./fold.js";
import { nameOf } from "./leaf.js";
import { Moves } from "./moves.js";
import { Opening, PAGE_ENTRIES } from "./opening.js";
import { TreeSource } from "./tree-source.js";

export class App {
  /**
   * @param {object} listeners
   * @param {() => void} listeners.onChange
   * @param {(notice: Notice) => void} listeners.onNotice
   * @param {(text: string) => void} listeners.onAnnounce what a screen reader should say
   * @param {(text: string) => void} listeners.onText a text that goes back to where one writes
   * @param {() => void} listeners.onLeave another session is shown from here on
   * @param {(sessionId: string | null) => void} listeners.onTarget the session that the address should name
   */
  constructor(listeners) {
    this.listeners = listeners;
    /** @type {State | null} */
    this.state = null;
    /** @type {import("reseed-protocol").Welcome | null} */
    this.welcome = null;
    /** @type {Sending[]} */
    this.sending = [];
    this.loadingOlder = false;
    this.treeSource = new TreeSource(this);
    /** @type {Set<() => void>} looks at the state that wait for it to change */
    this.watchers = new Set();
    /** Events up to here are replayed: they are shown, but nobody is called because of them. */
    this.quietUntil = 0;
    this.opening = new Opening(this);
    const clientId = takeClientId();
    const url = new URL("ws", location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    url.hash = "";
    this.connection = new Connection({
      url: url.href,
      identity: async () => ({ clientId: await clientId, ...(await credentials()) }),
      onWelcome: (welcome) => this.greeted(welcome),
      onEvent: (event) => this.receive(event),
      onStatus: (status) => this.statusChanged(status),
      session: () => this.target,
      place: () => (this.state && this.opened === this.state.sessionId ? { session: this.opened, seq: this.state.seq } : null),
      onOutOfSync: () => this.opening.resync("resume"),
    });
    this.context = new Context(this);
    this.moves = new Moves({ app: this, onText: listeners.onText });
    this.sessions = new Directory({
      ask: async (payload) => (this.status.phase === "open" ? this.quietly(this.connection.request("list_sessions", payload)) : null),
      canWatch: () => this.can("watch"),
      onChange: listeners.onChange,
    });
  }

  /** @param {string | null} sessionId */
  start(sessionId) {
    this.opening.target = sessionId;
    void this.connection.connect();
  }

  /** The session to show; null: one that is made with the first input. */
  get target() {
    return this.opening.target;
  }

  /** The session that the connection has open, if any. */
  get opened() {
    return this.opening.opened;
  }

  get status() {
    return this.connection.status;
  }

  /** Whether the session that should be shown is not there yet. */
  get loading() {
    return this.target !== null && this.state === null && this.status.phase !== "stopped";
  }

  /** What is known of the open session's tree. */
  get tree() {
    return this.treeSource.tree;
  }

  /** Whether a person can only read the open session: a damaged one. */
  get readOnly() {
    return this.state?.role === "observer";
  }

  /**
   * Whether the server can do this.
   * @param {string} feature as in `welcome.features`
   */
  can(feature) {
    return this.welcome?.features.includes(feature) ?? false;
  }

  /** Tells of a change. */
  changed() {
    this.listeners.onChange();
    for (const look of this.watchers) look();
  }

  /**
   * Waits until the open session is so.
   * @param {(state: State) => boolean} test
   * @param {number} millis at most this long
   * @returns {Promise<boolean>} false when the time is over, or another session is shown
   */
  until(test, millis) {
    const sessionId = this.state?.sessionId;
    return new Promise((resolve) => {
      const end = (/** @type {boolean} */ reached) => {
        clearTimeout(timer);
        this.watchers.delete(look);
        resolve(reached);
      };
      const look = () => {
        if (this.state?.sessionId !== sessionId) end(false);
        else if (this.state && test(this.state)) end(true);
      };
      const timer = setTimeout(() => end(false), millis);
      this.watchers.add(look);
      look();
    });
  }

  // Sessions

  /**
   * Shows a session; null: a new one, which is made with its first input.
   * @param {string | null} sessionId
   */
  show(sessionId) {
    return this.opening.show(sessionId);
  }

  /**
   * Shows what a session that was just opened holds.
   * @param {State} state
   * @param {number} asOfSeq up to here events are replayed
   */
  adopt(state, asOfSeq) {
    this.quietUntil = asOfSeq;
    this.state = state;
    this.tree.addPath(state.entries);
    this.completePath();
    void this.treeSource.complete();
    this.changed();
  }

  /**
   * @param {string} sessionId
   * @param {string} name
   */
  async rename(sessionId, name) {
    await this.quietly(this.connection.request("rename_session", { name }, { session: sessionId }));
    this.sessions.maybeChanged();
  }

  /** @param {string} sessionId */
  async remove(sessionId) {
    if (this.target === sessionId) await this.show(null);
    await this.quietly(this.connection.request("delete_session", {}, { session: sessionId }));
    this.sessions.forget(sessionId);
  }

  /** Asks for more of the path: what comes before the first entry that is known of it. */
  async loadOlder() {
    const { state } = this;
    if (!state?.more || this.loadingOlder || this.opened !== state.sessionId) return;
    this.loadingOlder = true;
    const first = state.entries[0];
    const ask = { ...(first ? { before: first.entryId } : {}), limit: PAGE_ENTRIES, path: true };
    const page = await this.quietly(this.connection.request("get_entries", ask));
    this.loadingOlder = false;
    if (page && this.state?.sessionId === state.sessionId) {
      this.state = withPage(this.state, page);
      this.tree.addPath(page.items);
      void this.treeSource.complete();
      // Nothing new means that the leaf has moved meanwhile: the event that says so is on its way.
      if (page.items.some((entry) => !state.known.has(entry.entryId))) this.completePath();
    }
    this.listeners.onChange();
  }

  completePath() {
    if (this.state && needsPath(this.state)) void this.loadOlder();
  }

  // Turns and context

  /**
   * Says something to the model.
   * @param {string} text
   * @param {"steer"} [whenBusy] `steer`: with the next request of the running turn; otherwise it waits its turn
   * @returns {Promise<boolean>} whether the server took it
   */
  send(text, whenBusy) {
    return this.sendInput(text, text, whenBusy ? { whenBusy } : {});
  }

  /**
   * @param {import("reseed-protocol").Input} input
   * @param {string} text the input as it is shown on its way
   * @param {{ parentId?: string | null, whenBusy?: "steer" }} [wishes] `parentId`: where to go on from; null for before
   * the first entry
   * @returns {Promise<boolean>} whether the server took it
   */
  async sendInput(input, text, { parentId, ...wishes } = {}) {
    const id = newId();
    const from = parentId === undefined ? {} : { parentId: nameOf(parentId) };
    this.sending = [...this.sending, { id, text }];
    this.listeners.onChange();
    try {
      // Named once: whoever looks at another chat meanwhile does not send it there.
      const session = this.target ?? (await this.opening.create());
      await this.connection.request("user_input", { input, ...from, ...wishes }, { id, session });
      return true;
    } catch (error) {
      this.fail(error);
      return false;
    } finally {
      this.sending = this.sending.filter((waiting) => waiting.id !== id);
      this.listeners.onChange();
    }
  }

  /** Stops what is going on: the turn, or else the compaction that it would wait for. */
  async stop() {
    if (this.state && isRunning(this.state)) await this.quietly(this.connection.request("cancel_turn", {}));
    else if (this.state && isHeldUp(this.state)) await this.context.cancel();
  }

  async retry() {
    await this.quietly(this.connection.request("retry_turn", {}));
  }

  /** @param {string} model */
  async setModel(model) {
    await this.quietly(this.connection.request("set_model", { model }));
  }

  /** @param {string} token */
  login(token) {
    keepToken(token);
    void this.connection.connect();
  }

  // What the connection says

  /** @param {import("./connection.js").Status} status */
  statusChanged(status) {
    if (status.phase !== "open") this.opening.opened = null;
    this.changed();
  }

  /** @param {import("reseed-protocol").Welcome} welcome */
  async greeted(welcome) {
    this.welcome = welcome;
    void this.sessions.list();
    await this.opening.settleInTurn();
  }

  /** @param {EventFrame} event */
  receive(event) {
    if (event.type === "session_changed") return this.sessions.changed(event.payload);
    if (event.sessionId !== this.opened) return;
    if (!this.state || this.opened !== this.state.sessionId) return;
    if (event.type === "session_closed") return this.opening.ended(event.payload);
    const { seq } = this.state;
    this.state = reduce(this.state, event);
    if (event.type === "entry_appended" && this.state.seq > seq) this.tree.append(event.payload.entry, this.state.seq);
    this.completePath();
    if (event.type === "session_updated") void this.treeSource.complete();
    this.changed();
    if (this.state.outOfSync && !this.opening.resynced) this.opening.resync(this.state.outOfSync);
    else if (event.seq === undefined || event.seq > this.quietUntil) this.notify(event);
  }

  /** @param {EventFrame} event */
  notify(event) {
    const { onNotice, onAnnounce } = this.listeners;
    switch (event.type) {
      case "entry_appended": {
        const { entry } = event.payload;
        if (entry.type === "message" && entry.role === "assistant") onAnnounce(entry.content.map(spoken).join("\n"));
        // Between turns nothing else tells what the window holds now.
        if (!this.state?.turnId && (entry.type === "custom_message" || entry.type === "branch_summary")) void this.context.refresh();
        break;
      }
      case "turn_finished":
        // How it ended stands in the chat, as an alert.
        this.sessions.maybeChanged();
        break;
      case "session_updated":
        void this.context.refresh();
        this.sessions.maybeChanged();
        break;
      default: this.context.notify(event);
    }
  }

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
    // The line about the connection says so already.
    if (error instanceof ConnectionLost && this.status.phase !== "open") return;
    const { text, details } = explainError(error);
    this.listeners.onNotice({ kind: "error", message: text, details });
  }
}

/**
 * What a screen reader is told of a part of an answer.
 * @param {import("./fold.js").Part} part
 */
function spoken(part) {
  return part.type === "text" || part.type === "reasoning" ? part.text : "";
}
