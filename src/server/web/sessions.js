/** The session list at the side. Each session is a link, so that it can be opened in another tab and gone back to. */

import { dollars } from "./cache.js";
import { ago, byId, el, iconButton, percentOf } from "./dom.js";
import { explainError } from "./errors.js";

/** @typedef {import("reseed-protocol").SessionItem} SessionItem */

/**
 * Returns the address of a session within this page.
 * @param {string} sessionId
 */
export function sessionHash(sessionId) {
  return `#session=${encodeURIComponent(sessionId)}`;
}

/**
 * Returns the session that an address names; null: a new one.
 * @param {string} hash
 */
export function sessionOfHash(hash) {
  const found = /^#session=([A-Za-z0-9._:%-]{1,200})$/.exec(hash);
  return found ? decodeURIComponent(found[1]) : null;
}

export class SessionsView {
  /**
   * @param {import("./app.js").App} app
   * @param {{
   *   onRename: (item: SessionItem) => void, onDelete: (item: SessionItem) => void,
   *   onChosen: (sessionId: string | null) => void, onSearch: (words: string) => void,
   * }} listeners
   */
  constructor(app, listeners) {
    this.app = app;
    this.listeners = listeners;
    this.list = byId("sessions", HTMLElement);
    this.empty = byId("sessions-empty", HTMLElement);
    this.more = byId("sessions-more", HTMLButtonElement);
    this.said = byId("search-said", HTMLButtonElement);
    this.said.addEventListener("click", () => listeners.onSearch(this.app.client.sessions.view.search));
    this.shown = "";
    this.more.addEventListener("click", () => void app.quietly(app.client.sessions.loadMore()));
    byId("search", HTMLInputElement).addEventListener("input", (event) => {
      app.client.sessions.search(/** @type {HTMLInputElement} */ (event.target).value);
    });
    this.list.addEventListener("click", (event) => {
      const link = event.target instanceof Element && event.target.closest("a");
      // With one of these modifiers the browser opens the link elsewhere.
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      // Show the session now, not after the address change: the next key press already belongs to it.
      event.preventDefault();
      listeners.onChosen(sessionOfHash(link.hash));
    });
  }

  render() {
    const { items, search, more, error, loading } = this.app.client.sessions.view;
    const now = Date.now();
    const shown = items.map((item) => this.current(item));
    // The list is short and changes rarely: rebuild it, but only if something in it is different.
    const key = JSON.stringify([shown, this.app.target, search, more, error?.message, loading, Math.floor(now / 60_000)]);
    if (key === this.shown) return;
    this.shown = key;
    const focused = document.activeElement;
    const focus = focused instanceof HTMLElement && this.list.contains(focused) ? focused.dataset.focus : undefined;
    this.list.replaceChildren(...shown.map((item) => this.row(item, now)));
    if (focus) this.list.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.dispatchEvent(new Event("refocus"));
    const nothing = search ? "No chat has this in its name." : "No chats yet.";
    this.empty.hidden = items.length > 0 || (loading && !error);
    this.empty.textContent = error ? explainError(error).text : nothing;
    this.more.hidden = !more;
    // The field above finds chats by name only; this button searches what was said in them.
    this.said.hidden = !search || !this.app.can("search_history");
  }

  /**
   * Applies the open session's own state, which is newer than the list's.
   * @param {SessionItem} item
   * @returns {SessionItem}
   */
  current(item) {
    const { snapshot } = this.app;
    if (snapshot?.sessionId !== item.sessionId) return item;
    const { name, turn, compaction, contextInfo } = snapshot;
    const state = turn ? "running" : compaction ? "compacting" : "idle";
    return { ...item, name, state, usageRatio: contextInfo.usageRatio };
  }

  /**
   * @param {SessionItem} item
   * @param {number} now
   */
  row(item, now) {
    const name = item.name || "Untitled";
    const current = item.sessionId === this.app.target;
    const busy = item.state !== "idle";
    const focusable = (/** @type {HTMLElement} */ element, /** @type {string} */ what) => {
      element.dataset.focus = `${what}-${item.sessionId}`;
      element.addEventListener("refocus", () => element.focus());
      return element;
    };
    const link = el("a", { href: sessionHash(item.sessionId), "aria-current": current ? "page" : null, title: name },
      el("span", { class: "name" }, name),
      el("span", { class: "meta" },
        busy && el("span", { class: "dot busy", "aria-hidden": "true" }),
        busy ? (item.state === "running" ? "answering" : "summarising") : ago(item.updatedAt, now),
        ` · ${Math.round(percentOf(item))} %`,
        item.costNanoUsd !== undefined && ` · ${dollars(item.costNanoUsd)}${item.unpricedRequests ? "+" : ""}`));
    return el("li", { class: `session${current ? " current" : ""}`, "data-session": item.sessionId },
      focusable(link, "open"),
      el("div", { class: "actions" },
        focusable(iconButton("edit", `Rename ${name}`, () => this.listeners.onRename(item)), "rename"),
        focusable(iconButton("delete", `Delete ${name}`, () => this.listeners.onDelete(item)), "delete")));
  }
}
