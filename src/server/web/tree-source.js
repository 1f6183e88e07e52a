/**
 * Keeps what is known of the open session's tree, and asks for what is missing of it.
 *
 * What always holds: the same part is not asked for twice by itself; one question is on its way at a time.
 */

import { SessionTree } from "./tree.js";

/** Levels of the tree that are asked for below an entry. */
const DEPTH = 60;

export class TreeSource {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    this.tree = new SessionTree();
    this.loading = false;
    /** @type {Set<string | null>} entries below which was asked; null: from the beginning */
    this.asked = new Set();
  }

  /** Another session is shown, or this one from a new beginning. */
  forget() {
    this.tree = new SessionTree();
    this.asked.clear();
  }

  /** Asks what else hangs from the entries that are shown, where that is not known. */
  async complete() {
    const { state, opened } = this.app;
    if (!state || !this.app.can("tree") || this.loading || opened !== state.sessionId) return;
    const missing = this.tree.unknownOn(state.entries);
    if (!missing || this.asked.has(missing.rootId)) return;
    await this.loadBelow(missing.rootId);
    if (this.app.state?.sessionId === state.sessionId) await this.complete();
  }

  /**
   * Asks for a part of the tree.
   * @param {string | null} rootId null: from its beginning
   */
  async loadBelow(rootId) {
    const { app, tree } = this;
    if (!app.state || this.loading) return;
    this.loading = true;
    this.asked.add(rootId);
    // From the beginning as far as the chat is shown, so that one answer covers it.
    const depth = Math.max(DEPTH, rootId === null ? app.state.entries.length + 2 : 0);
    const ask = { ...(rootId === null ? {} : { rootId }), depth };
    const page = await app.quietly(app.connection.request("get_tree", ask));
    this.loading = false;
    if (page) tree.addPage(page, rootId === null);
    else this.asked.delete(rootId);
    app.changed();
  }
}
