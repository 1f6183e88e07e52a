/**
 * The search dialog: finds what was said, in the displayed chat or in all chats of the user.
 *
 * Invariants:
 * - everything found enters the page as text;
 * - the list shows the newest search: a late response to an older one is dropped;
 * - `onChoose` gets a hit only if it still exists.
 *
 * @typedef {import("reseed-protocol").HistoryHit} Hit
 * @typedef {"chat" | "all"} Scope
 * @typedef {{ query: string, scope: Scope }} Search
 */

import { CommandError } from "./client.js";
import { ago, el, iconButton } from "./dom.js";
import { explainError } from "./errors.js";
import { found, termsOf } from "./found-words.js";

/** Milliseconds without a key press after which the search starts. */
const PAUSE_MS = 200;
/** Maximum hits of a search: more than a person reads through. The server accepts at most 100. */
const HITS_MAX = 50;
/** Maximum length of a search in characters, as on the server. */
const QUERY_CHARS_MAX = 1000;

/** @type {Record<string, string>} */
const WHO = { user: "You", assistant: "Answer", tool: "Tool result", summary: "Summary" };

const TIP = "“Quotes” keep words together, and a star stands for the rest of a word: harb*";

export class SearchDialog {
  /**
   * @param {import("./app.js").App} app
   * @param {object} options
   * @param {Search} options.search the initial search
   * @param {(hit: Hit) => void} options.onChoose called with the chosen hit once the dialog is closed
   * @param {(search: Search) => void} options.onSearch
   */
  constructor(app, { search, onChoose, onSearch }) {
    this.app = app;
    this.onChoose = onChoose;
    this.onSearch = onSearch;
    /** @type {Scope} the chosen scope, here or in the last search */
    this.chosen = search.scope;
    /** @type {readonly Hit[]} */
    this.hits = [];
    /** The hit that Enter chooses. */
    this.current = 0;
    /** Counts the searches: only the newest one counts. */
    this.asked = 0;
    /** Whether the hits match the current content of the field. */
    this.isCurrent = false;
    /** Whether to choose the first hit as soon as the search has responded. */
    this.isWanted = false;
    this.timer = 0;
    this.field = el("input", {
      type: "search", class: "field", role: "combobox", "aria-label": "Search what was said", "aria-expanded": "false", "aria-autocomplete": "list", "aria-controls": "search-hits",
      placeholder: "Search what was said", autocomplete: "off", spellcheck: "false", maxlength: QUERY_CHARS_MAX, enterkeyhint: "search", dir: "auto", autofocus: true,
    });
    this.field.value = search.query;
    this.scopes = new Map([this.segment("chat", "This chat"), this.segment("all", "All chats")]);
    this.said = el("p", { class: "said", role: "status" });
    this.list = el("ul", { class: "hits", id: "search-hits", role: "listbox", "aria-label": "What was found" });
    this.dialog = el("dialog", { class: "search", "aria-label": "Search" },
      el("div", { class: "search-head" }, this.field, iconButton("close", "Close the search", () => this.dialog.close())),
      el("div", { class: "segments", role: "group", "aria-label": "Where to search" }, ...this.scopes.values()),
      this.said, this.list);
    this.field.addEventListener("input", () => this.later());
    this.field.addEventListener("keydown", (event) => this.key(event));
    this.list.addEventListener("click", (event) => {
      const item = event.target instanceof Element ? event.target.closest("[role=option]") : null;
      if (item instanceof HTMLElement) void this.choose(Number(item.dataset.at));
    });
    // A click outside the dialog's content hits its backdrop, which belongs to the dialog.
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
    this.dialog.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.isComposing) return;
      // Otherwise Escape would only clear the field.
      event.preventDefault();
      this.dialog.close();
    });
    this.dialog.addEventListener("close", () => {
      clearTimeout(this.timer);
      this.asked += 1;
      this.dialog.remove();
    });
  }

  /**
   * Returns where to search: a chat that has not begun contains nothing.
   * @returns {Scope}
   */
  get scope() {
    return this.app.session ? this.chosen : "all";
  }

  show() {
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.field.select();
    void this.search();
  }

  /**
   * @param {Scope} scope
   * @param {string} name
   * @returns {[Scope, HTMLButtonElement]}
   */
  segment(scope, name) {
    const choose = () => {
      this.chosen = scope;
      this.field.focus();
      void this.search();
    };
    return [scope, el("button", { type: "button", class: "button small", disabled: scope === "chat" && !this.app.session, onclick: choose }, name)];
  }

  /** Searches once typing has paused. */
  later() {
    this.isCurrent = false;
    this.isWanted = false;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => void this.search(), PAUSE_MS);
  }

  async search() {
    const { app, scope } = this;
    clearTimeout(this.timer);
    this.asked += 1;
    this.isCurrent = false;
    const mine = this.asked;
    const query = this.field.value.trim();
    for (const [of, button] of this.scopes) button.setAttribute("aria-pressed", String(of === scope));
    this.onSearch({ query, scope: this.chosen });
    const terms = termsOf(query);
    if (terms.length === 0) {
      this.draw([], terms);
      return this.say(query === "" ? TIP : "Type a word: letters or digits.");
    }
    this.say(app.status.phase === "open" ? "Searching…" : "There is no connection. The search goes on when it is back.");
    try {
      const options = { limit: HITS_MAX };
      const { items, more } = await (scope === "chat" && app.session ? app.session.searchHistory(query, options) : app.client.searchHistory(query, options));
      if (mine !== this.asked) return;
      this.draw(items, terms);
      this.say(resultText(items, more, scope));
      if (this.isWanted) await this.choose(0);
    } catch (error) {
      if (mine !== this.asked) return;
      this.isWanted = false;
      this.draw([], terms);
      this.say(explainError(error).text, true);
    }
  }

  /**
   * @param {string} text
   * @param {boolean} [wrong]
   */
  say(text, wrong = false) {
    this.said.textContent = text;
    this.said.classList.toggle("wrong", wrong);
  }

  /**
   * @param {readonly Hit[]} hits
   * @param {ReturnType<typeof termsOf>} terms
   */
  draw(hits, terms) {
    this.hits = hits;
    this.isCurrent = true;
    const now = Date.now();
    this.list.replaceChildren(...hits.map((hit, at) => this.row(hit, at, terms, now)));
    this.field.setAttribute("aria-expanded", String(hits.length > 0));
    this.list.scrollTop = 0;
    this.mark(0);
  }

  /**
   * @param {Hit} hit
   * @param {number} at
   * @param {ReturnType<typeof termsOf>} terms
   * @param {number} now
   */
  row(hit, at, terms, now) {
    const { sessionId, name, role, timestamp, snippet } = hit;
    const excerpt = found(snippet, terms).map(({ text, isFound }) => (isFound ? el("mark", {}, text) : text));
    const where = this.scope === "all" && el("span", { class: "where", dir: "auto" }, name || "Untitled");
    return el("li", { role: "option", id: `search-hit-${at}`, "data-at": at, "data-session": sessionId, "data-entry": hit.entryId },
      el("div", { class: "about" },
        el("b", {}, WHO[role] ?? role), where,
        this.isElsewhere(hit) && el("span", {}, "on another branch"),
        el("time", { datetime: timestamp, title: new Date(timestamp).toLocaleString() }, ago(timestamp, now))),
      el("p", { dir: "auto" }, ...excerpt));
  }

  /**
   * Returns true if a hit is known to be on another branch of the displayed chat.
   * @param {Hit} hit
   */
  isElsewhere({ sessionId, entryId }) {
    const { snapshot } = this.app;
    if (!snapshot || snapshot.sessionId !== sessionId || snapshot.path.more) return false;
    return !snapshot.path.entries.some((entry) => entry.entryId === entryId);
  }

  /**
   * Makes a hit the one that Enter chooses.
   * @param {number} at
   */
  mark(at) {
    this.current = Math.max(0, Math.min(this.hits.length - 1, at));
    [...this.list.children].forEach((item, index) => {
      item.setAttribute("aria-selected", String(index === this.current));
      if (index === this.current) item.scrollIntoView({ block: "nearest" });
    });
    if (this.hits.length > 0) this.field.setAttribute("aria-activedescendant", `search-hit-${this.current}`);
    else this.field.removeAttribute("aria-activedescendant");
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = { ArrowDown: this.current + 1, ArrowUp: this.current - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      this.mark(to);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (this.isCurrent) return void this.choose(this.current);
      // The listed hits match an earlier search.
      void this.search();
      this.isWanted = true;
    }
  }

  /** @param {number} at */
  async choose(at) {
    this.isWanted = false;
    const hit = this.hits[at];
    if (!hit) return;
    this.mark(at);
    const mine = this.asked;
    const { sessionId, entryId } = hit;
    try {
      // The hit's chat may have been deleted since, and the user must not lose the displayed chat over that.
      await this.app.client.request("get_entries", { entryId }, { session: sessionId });
    } catch (error) {
      if (mine !== this.asked) return;
      const isGone = error instanceof CommandError && error.code === "session_not_found";
      return this.say(isGone ? "This chat was deleted meanwhile." : explainError(error).text, true);
    }
    if (mine !== this.asked) return;
    this.dialog.close();
    this.onChoose(hit);
  }
}

/**
 * @param {readonly Hit[]} items
 * @param {boolean} more
 * @param {Scope} scope
 */
function resultText(items, more, scope) {
  const where = scope === "chat" ? "in this chat" : "in your chats";
  if (items.length === 0 && more) return `Nothing was found so far ${where}, and not everything could be searched. Add a word.`;
  if (items.length === 0) return `Nothing was found ${where}.`;
  const count = items.length === 1 ? "1 place" : `${items.length} places`;
  return more ? `${count}, and there may be more. Add a word to find fewer.` : `${count} ${where}.`;
}
