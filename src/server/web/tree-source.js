/**
 * Keeps what is known of a session's tree, and asks for what is missing of it.
 *
 * What always holds: the same part is not asked for twice by itself; one question is on its way at a time.
 */

import { SessionTree } from "./tree.js";

/** Levels of the tree that are asked for below an entry. */
const DEPTH = 60;

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
