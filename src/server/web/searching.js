/**
 * Opens the search by button or keyboard, and leads from a hit to its place in the tree.
 *
 * A hit in another chat is shown once that chat is open; a user who has moved on meanwhile is left alone.
 *
 * @typedef {import("./search-dialog.js").Search} Search
 * @typedef {import("reseed-protocol").HistoryHit} Hit
 */

import { SEARCH_KEYS, byId } from "./dom.js";
import { SearchDialog } from "./search-dialog.js";

/** Milliseconds within which another chat should have opened. */
const OPEN_MS = 15_000;

export class Searching {
  /**
   * @param {import("./app.js").App} app
   * @param {object} listeners
   * @param {(entryId: string) => Promise<"here" | "elsewhere" | null>} listeners.reveal shows an entry in the tree
   * @param {(entryId: string) => void} listeners.onFound called when an entry of the current branch is shown in the
   * tree
   */
  constructor(app, { reveal, onFound }) {
    this.app = app;
    this.reveal = reveal;
    this.onFound = onFound;
    /** @type {Search} the last search, from which the next one starts */
    this.last = { query: "", scope: "chat" };
    this.opener = byId("search-open", HTMLButtonElement);
    this.opener.title = `Search what was said (${SEARCH_KEYS})`;
    this.opener.addEventListener("click", () => this.open());
  }

  render() {
    this.opener.hidden = !this.app.can("search_history");
  }

  /** @param {Partial<Search>} [search] overrides parts of the last search */
  open(search = {}) {
    const { app } = this;
    if (!app.can("search_history")) return app.listeners.onNotice({ kind: "info", message: "This server cannot search." });
    new SearchDialog(app, {
      search: { ...this.last, ...search },
      onChoose: (hit) => void this.go(hit),
      onSearch: (last) => (this.last = last),
    }).show();
  }

  /** @param {Pick<Hit, "sessionId" | "entryId">} hit */
  async go({ sessionId, entryId }) {
    const { app } = this;
    app.show(sessionId);
    if (!(await app.until(() => true, OPEN_MS))) {
      const message = "The chat did not open in time. Check the connection, then choose it again.";
      if (app.target === sessionId) app.listeners.onNotice({ kind: "error", message });
      return;
    }
    if (!app.can("tree")) return this.onFound(entryId);
    const place = await app.quietly(this.reveal(entryId));
    if (place === null || app.target !== sessionId) return;
    if (place === "here") this.onFound(entryId);
    app.listeners.onAnnounce(place === "here" ? "Shown in the tree." : "Shown in the tree, on another branch.");
  }
}
