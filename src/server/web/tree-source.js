/**
 * Maintains what is known of a session's tree, and fetches the missing parts.
 *
 * The same part is never fetched twice automatically, and one fetch is in flight at a time.
 */

import { SessionTree } from "./tree.js";

/** Tree levels fetched below an entry, and on a long known path. */
const DEPTH = 60;
const DEPTH_MAX = 500;

/** Entries per page on the way to an entry far from the known part: the server's maximum. */
const REACH_ENTRIES = 500;
/** Maximum pages on that way. Beyond them the entry is shown without what leads to it. */
const REACH_PAGES_MAX = 40;

export class TreeSource {
  /**
   * @param {import("./app.js").App} app
   * @param {import("./client.js").Session} session
   */
  constructor(app, session) {
    this.app = app;
    this.session = session;
    this.tree = new SessionTree();
    this.loading = false;
    /** How many entries are being reached. A person waits for them, so nothing else is fetched meanwhile. */
    this.reaching = 0;
    /** Number of the snapshot's entries already added to the tree. */
    this.taken = 0;
    /** @type {Set<string | null>} entries whose descendants were fetched; null: from the beginning */
    this.asked = new Set();
  }

  /** Resets after the session was opened afresh: nothing known before is certain to hold. */
  forget() {
    this.tree = new SessionTree();
    this.taken = 0;
    this.asked.clear();
  }

  /**
   * Adds newly known entries.
   * @param {import("./client.js").SessionSnapshot} snapshot
   */
  take({ entries }) {
    if (entries.size === this.taken) return;
    const fresh = [...entries].slice(this.taken);
    const isNews = fresh.some((entry) => !this.tree.nodes.has(entry.entryId));
    this.taken = entries.size;
    this.tree.addPath(fresh);
    if (isNews) void this.complete();
  }

  /**
   * Adds what an event reports.
   * @param {import("./client.js").EventFrame} event
   */
  follow(event) {
    if (event.type === "entry_appended") this.tree.append(event.payload.entry, event.seq ?? 0);
    if (event.type === "session_updated") void this.complete();
  }

  /** Fetches unknown children of the displayed entries. */
  async complete() {
    const { app } = this;
    const { snapshot, status } = this.session;
    if (app.open?.treeSource !== this || !app.can("tree")) return;
    if (!snapshot || status.phase !== "open" || this.loading || this.reaching > 0) return;
    const missing = this.tree.unknownOn(snapshot.path.entries);
    if (!missing || this.asked.has(missing.rootId)) return;
    await this.loadBelow(missing.rootId);
    await this.complete();
  }

  /**
   * Makes an entry known, with what leads to it and what is below it, on any branch. A person waits for it, so errors
   * are thrown for the caller to show.
   * @param {string} entryId
   * @returns {Promise<boolean>} false if this session has no such entry
   */
  async reach(entryId) {
    this.reaching += 1;
    try {
      return await this.reached(entryId);
    } finally {
      this.reaching -= 1;
      void this.complete();
    }
  }

  /** @param {string} entryId */
  async reached(entryId) {
    const { app, session } = this;
    if (!this.tree.nodes.has(entryId)) {
      const { items } = await session.getEntries({ entryId });
      this.tree.addPath(items);
    }
    for (let page = 0; page < REACH_PAGES_MAX; page += 1) {
      const { snapshot } = session;
      const top = snapshot && this.tree.topOf(entryId, new Set(snapshot.path.entries.map((entry) => entry.entryId)));
      if (!top) break;
      const { entries, more } = snapshot.path;
      // It may be on the path, above the known part.
      if (more && entries.length > 0 && entries[0].timestamp >= top.timestamp) {
        await session.loadOlder(REACH_ENTRIES);
      } else {
        const { items } = await session.getEntries({ before: top.entryId, path: true, limit: REACH_ENTRIES });
        if (items.length === 0) break;
        this.tree.addPath(items);
      }
      if (session.snapshot) this.take(session.snapshot);
    }
    const node = this.tree.nodes.get(entryId);
    if (node && !this.tree.isComplete(node)) this.tree.addPage(await session.tree({ rootId: entryId, depth: DEPTH }), false);
    app.changed();
    return node !== undefined;
  }

  /**
   * Fetches a part of the tree.
   * @param {string | null} rootId null: from its beginning
   */
  async loadBelow(rootId) {
    const { app, session, tree } = this;
    if (this.loading) return;
    this.loading = true;
    this.asked.add(rootId);
    // Reach as deep as the known path, so that few responses cover it.
    const path = session.snapshot?.path.entries ?? [];
    const from = rootId === null ? 0 : path.findIndex((entry) => entry.entryId === rootId);
    const depth = Math.max(DEPTH, Math.min(DEPTH_MAX, from < 0 ? 0 : path.length - from + 2));
    const ask = rootId === null ? { depth } : { rootId, depth };
    const page = await app.quietly(session.tree(ask));
    this.loading = false;
    if (page) tree.addPage(page, rootId === null);
    else this.asked.delete(rootId);
    app.changed();
  }
}
