/**
 * Keeps what is known of a session's tree, and asks for what is missing of it.
 *
 * What always holds: the same part is not asked for twice by itself; one question is on its way at a time.
 */

import { SessionTree } from "./tree.js";

/** Levels of the tree that are asked for below an entry. */
const DEPTH = 60;

/** Entries of a page on the way to an entry that is far from what is known: as many as the server gives. */
const REACH_ENTRIES = 500;
/** Pages on that way. Behind them the entry is shown without what leads to it. */
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
    /** The number of the snapshot's entries that the tree has. */
    this.taken = 0;
    /** @type {Set<string | null>} entries below which was asked; null: from the beginning */
    this.asked = new Set();
  }

  /** The session has a new beginning: nothing that was known is sure to hold. */
  forget() {
    this.tree = new SessionTree();
    this.taken = 0;
    this.asked.clear();
  }

  /**
   * Takes in the entries that have become known.
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
   * Takes in an event.
   * @param {import("./client.js").EventFrame} event
   */
  follow(event) {
    if (event.type === "entry_appended") this.tree.append(event.payload.entry, event.seq ?? 0);
    if (event.type === "session_updated") void this.complete();
  }

  /** Asks what else hangs from the entries that are shown, where that is not known. */
  async complete() {
    const { app } = this;
    const { snapshot, status } = this.session;
    if (app.open?.treeSource !== this || !app.can("tree")) return;
    if (!snapshot || status.phase !== "open" || this.loading) return;
    const missing = this.tree.unknownOn(snapshot.path.entries);
    if (!missing || this.asked.has(missing.rootId)) return;
    await this.loadBelow(missing.rootId);
    await this.complete();
  }

  /**
   * Makes an entry known, with what leads to it and what is below it, whatever branch it is on. A person waits for it,
   * so an error is theirs to hear.
   * @param {string} entryId
   * @returns {Promise<boolean>} false if this session has no such entry
   */
  async reach(entryId) {
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
      // It may be on the path, above what is known of that.
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
   * Asks for a part of the tree.
   * @param {string | null} rootId null: from its beginning
   */
  async loadBelow(rootId) {
    const { app, session, tree } = this;
    if (this.loading) return;
    this.loading = true;
    this.asked.add(rootId);
    // From the beginning as far as the chat is shown, so that one answer covers it.
    const shown = session.snapshot?.path.entries.length ?? 0;
    const ask = rootId === null ? { depth: Math.max(DEPTH, shown + 2) } : { rootId, depth: DEPTH };
    const page = await app.quietly(session.tree(ask));
    this.loading = false;
    if (page) tree.addPage(page, rootId === null);
    else this.asked.delete(rootId);
    app.changed();
  }
}
