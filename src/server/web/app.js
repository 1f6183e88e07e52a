/**
 * What the page knows and what can be done: one connection, at most one open session, the list of the others.
 *
 * What always holds:
 * - `state` is only ever made by `fold.js`; this file decides when, the fold decides what;
 * - opening and closing sessions happens one after the other, and ends at the session that was asked for last;
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

import { CommandError, Connection, ConnectionLost, explainError, newId } from "./connection.js";
import { Context } from "./context.js";
import { clientId, credentials, keepToken } from "./credentials.js";
import { Directory } from "./directory.js";
import { fromOpened, fromSnapshot, isHeldUp, isRunning, needsPath, reduce, resumePoint, withPage } from "./fold.js";
import { Moves } from "./moves.js";
import { TreeSource } from "./tree-source.js";

/** Entries that come with a session and with each older page: a few screens. */
const PAGE_ENTRIES = 50;
/** Milliseconds within which a second loss of step asks for a snapshot: the resume did not mend it. */
const RESYNC_MS = 2000;
/** Milliseconds until a session that could not be opened just now is tried again, where the server names no time. */
const REOPEN_MS = 3000;

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
    /** @type {string | null} the session to show; null: one that is made with the first input */
    this.target = null;
    /** @type {string | null} the session that the connection has open */
    this.opened = null;
    this.takeover = false;
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
    this.resyncedAt = 0;
    /** @type {Promise<unknown>} */
    this.chain = Promise.resolve();
    /** @type {Promise<string> | null} */
    this.creating = null;
    const url = new URL("ws", location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    url.hash = "";
    this.connection = new Connection({
      url: url.href,
      clientId: clientId(),
      credentials,
      onWelcome: (welcome) => this.greeted(welcome),
      onEvent: (event) => this.receive(event),
      onStatus: (status) => this.statusChanged(status),
      session: () => this.target,
      place: () => (this.state && this.opened === this.state.sessionId ? { session: this.opened, seq: this.state.seq } : null),
      onOutOfSync: () => this.resync("resume"),
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
    this.target = sessionId;
    void this.connection.connect();
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
  async show(sessionId) {
    if (sessionId === this.target) return;
    this.connection.forgetWaiting();
    this.connection.hold();
    this.aim(sessionId);
    await this.inTurn(() => this.settle());
  }

  /** @param {string | null} sessionId */
  aim(sessionId) {
    this.target = sessionId;
    this.state = null;
    this.listeners.onLeave();
    this.listeners.onTarget(sessionId);
    this.changed();
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

  /** Brings the connection to the session that was asked for; then what waited for it goes out. */
  async settle() {
    if (this.connection.status.phase !== "open") return;
    try {
      if (this.opened !== this.target) await this.leave();
      if (this.target !== null && this.opened !== this.target) await this.open(this.target);
    } catch (error) {
      if (!(error instanceof CommandError)) return;
      if (error.retriable) {
        setTimeout(() => void this.inTurn(() => this.settle()), error.retryAfterMs ?? REOPEN_MS);
        return this.fail(error);
      }
      if (this.target !== null) this.aim(null);
      this.fail(error);
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
    const takeover = this.takeover;
    this.takeover = false;
    const from = this.state?.sessionId === sessionId && this.state.outOfSync !== "snapshot" ? this.state : null;
    const resume = from ? { resume: resumePoint(from) } : {};
    const ask = { entries: PAGE_ENTRIES, ...resume };
    const session = sessionId;
    let opened;
    try {
      opened = await this.connection.request("open_session", takeover ? { ...ask, takeover } : ask, { session });
    } catch (error) {
      if (!(error instanceof CommandError) || error.code !== "session_owned") throw error;
      opened = await this.connection.request("open_session", { ...ask, role: "observer" }, { session });
    }
    if (this.target !== sessionId) {
      this.opened = sessionId;
      return;
    }
    const replays = from !== null && opened.resumed === "replay" && from.epoch === opened.epoch;
    if (!replays) this.treeSource.forget();
    this.adopt(fromOpened(from, opened), opened.asOfSeq);
  }

  /**
   * @param {State} state
   * @param {number} asOfSeq
   */
  adopt(state, asOfSeq) {
    this.opened = state.sessionId;
    this.quietUntil = asOfSeq;
    this.state = state;
    this.tree.addPath(state.entries);
    this.completePath();
    void this.treeSource.complete();
    this.changed();
  }

  /**
   * Makes the session that the first input goes to.
   * @returns {Promise<string>} its id
   */
  create() {
    this.creating ??= this.inTurn(async () => {
      if (this.target !== null) return this.target;
      const opened = await this.connection.request("open_session", { entries: PAGE_ENTRIES });
      this.opened = opened.sessionId;
      if (this.target !== null) return opened.sessionId;
      this.target = opened.sessionId;
      this.listeners.onTarget(opened.sessionId);
      this.treeSource.forget();
      this.adopt(fromSnapshot(opened), opened.asOfSeq);
      this.sessions.maybeChanged();
      return opened.sessionId;
    }).finally(() => (this.creating = null));
    return this.creating;
  }

  /** Makes this window the session's owner again. */
  takeOver() {
    this.takeover = true;
    if (this.status.phase !== "open") return void this.connection.connect();
    void this.reopen();
  }

  /**
   * Gets what was missed.
   * @param {"resume" | "snapshot"} how
   */
  resync(how) {
    const again = Date.now() - this.resyncedAt < RESYNC_MS;
    this.resyncedAt = Date.now();
    if (this.state) this.state = { ...this.state, outOfSync: again ? "snapshot" : how };
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
    // What cannot be read is asked for once: a resume would need it again, a snapshot may not.
    if (Date.now() - this.resyncedAt > RESYNC_MS) return this.resync(retriable ? "resume" : "snapshot");
    setTimeout(() => this.opened === null && this.target === target && this.resync("snapshot"), REOPEN_MS);
  }

  /** The session that is shown does not exist any more. */
  deleted() {
    this.connection.forgetWaiting();
    this.aim(null);
    this.listeners.onNotice({ kind: "info", message: "This chat was deleted." });
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
   * @param {{ parentId?: string | null, whenBusy?: "steer" }} [wishes]
   * @returns {Promise<boolean>} whether the server took it
   */
  async sendInput(input, text, wishes = {}) {
    const id = newId();
    this.sending = [...this.sending, { id, text }];
    this.listeners.onChange();
    try {
      // Named once: whoever looks at another chat meanwhile does not send it there.
      const session = this.target ?? (await this.create());
      await this.connection.request("user_input", { input, ...wishes }, { id, session });
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
    if (status.phase !== "open") this.opened = null;
    this.changed();
  }

  /** @param {import("reseed-protocol").Welcome} welcome */
  async greeted(welcome) {
    this.welcome = welcome;
    void this.sessions.list();
    await this.inTurn(() => this.settle());
  }

  /** @param {EventFrame} event */
  receive(event) {
    if (event.type === "session_changed") return this.sessions.changed(event.payload);
    if (event.sessionId !== this.opened) return;
    if (!this.state || this.opened !== this.state.sessionId) return;
    if (event.type === "session_closed") return this.ended(event.payload);
    const { seq } = this.state;
    this.state = reduce(this.state, event);
    if (event.type === "entry_appended" && this.state.seq > seq) this.tree.append(event.payload.entry, this.state.seq);
    this.completePath();
    if (event.type === "session_updated") void this.treeSource.complete();
    this.changed();
    if (this.state.outOfSync && Date.now() - this.resyncedAt > RESYNC_MS) this.resync(this.state.outOfSync);
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
