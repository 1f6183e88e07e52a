/**
 * The session that is shown: the client's session, and what the page knows of it beyond the snapshot.
 *
 * What always holds:
 * - it is open on the server while it is shown, and until what was said in it has a reply;
 * - nothing is told of a session that is shown no more.
 *
 * @typedef {import("./client.js").Session} Session
 * @typedef {import("./client.js").SessionSnapshot} Snapshot
 * @typedef {import("./client.js").EventFrame} EventFrame
 */

import { TreeSource } from "./tree-source.js";

/** Entries of an older page: a few screens. */
const PAGE_ENTRIES = 50;

/** Entries of a path below which older ones are asked for without waiting for a reader to scroll there. */
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
    /** @type {Map<string, import("reseed-protocol").ContextCompacted>} how the compactions went that were seen */
    this.reports = new Map();
    /** @type {Map<string, number>} when calls were allowed that a person was asked about, as far as that was seen */
    this.allowed = new Map();
    /** @type {Map<string, number>} how many milliseconds those calls ran, by `toolCallId` */
    this.took = new Map();
    this.loadingOlder = false;
    /** @type {string | null} the place above which older entries were asked for by themselves */
    this.completed = null;
    /** @type {unknown} why it could not be opened so far, which was shown */
    this.refusal = null;
    /** @type {(() => void)[]} */
    this.ends = [];
  }

  /** Opens it, and tells of it from now on. */
  start() {
    const { session } = this;
    this.ends = [
      session.onEvent((event, snapshot, missed) => this.take(event, snapshot, missed)),
      session.hold(),
      session.subscribe(() => this.look()),
    ];
    this.look();
    // A chat that was shown a moment ago is open still.
    if (session.status.phase === "open") void this.treeSource.complete();
  }

  /** Shows it no more. A turn goes on without it, and what was said in it still gets there. */
  end() {
    for (const end of this.ends) end();
    this.ends = [];
  }

  /** Something has changed. */
  look() {
    const { app, session } = this;
    const { status, snapshot } = session;
    if (status.phase === "ended") return app.ended(status);
    const refusal = status.phase === "opening" ? status.error : undefined;
    // It is tried again; a person should know why it takes so long.
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
   * @param {boolean} missed whether it happened while the connection was away: then it is shown, but not told
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
   * Measures how long a call runs that waited for a person: the times of its entries say how long both took.
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

  /** Fetches more of the path: what comes before the first entry that is known of it. */
  async loadOlder() {
    if (this.loadingOlder || !this.session.snapshot?.path.more) return;
    this.loadingOlder = true;
    await this.app.quietly(this.session.loadOlder(PAGE_ENTRIES));
    this.loadingOlder = false;
    this.look();
  }

  /**
   * Fetches more of a path of which little is known, once above each place.
   * @param {Snapshot} snapshot
   */
  completePath({ path }) {
    const place = path.entries[0]?.entryId ?? path.leafId;
    if (!path.more || path.entries.length >= PATH_ENTRIES_MIN || this.loadingOlder || place === this.completed) return;
    this.completed = place;
    void this.loadOlder();
  }
}
