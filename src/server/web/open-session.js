/**
 * The displayed session: the client's session, plus what the page knows beyond its snapshot.
 *
 * Invariants:
 * - it is open on the server while it is displayed, and until everything sent in it has a reply;
 * - a session that is no longer displayed reports nothing.
 *
 * @typedef {import("./client.js").Session} Session
 * @typedef {import("./client.js").SessionSnapshot} Snapshot
 * @typedef {import("./client.js").EventFrame} EventFrame
 */

import { TreeSource } from "./tree-source.js";

/** Entries fetched per older page: a few screens. */
const PAGE_ENTRIES = 50;

/** Entries per page when the whole path is fetched: the server's maximum. */
const ALL_ENTRIES = 500;

/** On a path with fewer entries, older ones are fetched without waiting for the reader to scroll. */
const PATH_ENTRIES_MIN = 20;

export class OpenSession {
  /**
   * @param {import("./app.js").App} app
   * @param {Session} session
   */
  constructor(app, session) {
    this.app = app;
    this.session = session;
    /** What is known of its tree. */
    this.treeSource = new TreeSource(app, session);
    /** @type {Map<string, import("reseed-protocol").ContextCompacted>} reports of the compactions that this page saw */
    this.reports = new Map();
    /** @type {Map<string, number>} when a person allowed a call, as far as this page saw it */
    this.allowed = new Map();
    /** @type {Map<string, number>} how many milliseconds those calls ran, by `toolCallId` */
    this.took = new Map();
    this.loadingOlder = false;
    /** @type {string | null} the entry above which older entries were last fetched automatically */
    this.completed = null;
    /** @type {unknown} the last error of opening it that was shown */
    this.refusal = null;
    /** @type {(() => void)[]} */
    this.ends = [];
  }

  /** Opens the session and starts reporting on it. */
  start() {
    const { session } = this;
    this.ends = [
      session.onEvent((event, snapshot, missed) => this.take(event, snapshot, missed)),
      session.hold(),
      session.subscribe(() => this.look()),
    ];
    this.look();
    // A chat displayed a moment ago is still open.
    if (session.status.phase === "open") void this.treeSource.complete();
  }

  /** Stops displaying the session. A turn continues without it, and messages in flight still arrive. */
  end() {
    for (const end of this.ends) end();
    this.ends = [];
  }

  /** Handles a change. */
  look() {
    const { app, session } = this;
    const { status, snapshot } = session;
    if (status.phase === "ended") return app.ended(status);
    const refusal = status.phase === "opening" ? status.error : undefined;
    // Opening is retried; the user should know why it takes so long.
    if (refusal && refusal !== this.refusal) app.fail(refusal);
    this.refusal = refusal;
    if (snapshot) {
      this.treeSource.take(snapshot);
      this.completePath(snapshot);
    }
    app.changed();
  }

  /**
   * @param {EventFrame | "opened" | "replaying"} event
   * @param {Snapshot} snapshot
   * @param {boolean} missed whether it happened while the connection was down: then it is shown but not announced
   */
  take(event, snapshot, missed) {
    if (event === "opened") this.treeSource.forget();
    if (typeof event === "string") {
      this.treeSource.take(snapshot);
      void this.treeSource.complete();
      return;
    }
    if (event.type === "context_compacted") this.reports.set(event.payload.entryId, event.payload);
    this.treeSource.follow(event);
    if (missed) return;
    this.time(event);
    this.app.notices.tell(event);
  }

  /**
   * Measures how long a call ran after a person allowed it: its entries' times include the wait.
   * @param {EventFrame} event
   */
  time({ type, payload }) {
    if (type === "call_resolved" && payload.approvalId !== undefined) this.allowed.set(payload.toolCallId, Date.now());
    if (type !== "entry_appended" || payload.entry.type !== "message") return;
    for (const part of payload.entry.content) {
      const since = part.type === "tool_result" ? this.allowed.get(part.toolCallId) : undefined;
      if (since !== undefined && part.type === "tool_result") this.took.set(part.toolCallId, Date.now() - since);
    }
  }

  /** Fetches the whole path. Returns false if that failed; the reason was shown. */
  async loadAll() {
    while (this.session.snapshot?.path.more) {
      if ((await this.app.quietly(this.session.loadOlder(ALL_ENTRIES))) === null) return false;
    }
    this.look();
    return true;
  }

  /** Fetches more of the path: the entries before the first known one. */
  async loadOlder() {
    if (this.loadingOlder || !this.session.snapshot?.path.more) return;
    this.loadingOlder = true;
    await this.app.quietly(this.session.loadOlder(PAGE_ENTRIES));
    this.loadingOlder = false;
    this.look();
  }

  /**
   * Fetches more of a path that is mostly unknown, once above each entry.
   * @param {Snapshot} snapshot
   */
  completePath({ path }) {
    const place = path.entries[0]?.entryId ?? path.leafId;
    if (!path.more || path.entries.length >= PATH_ENTRIES_MIN || this.loadingOlder || place === this.completed) return;
    this.completed = place;
    void this.loadOlder();
  }
}
