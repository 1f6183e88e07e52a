/**
 * Searching what was said, in the chat that is shown or in all chats of the user.
 *
 * What always holds:
 * - what is found enters the page as text;
 * - the list answers the newest search: an older answer that comes late is dropped;
 * - a hit is left to `onChoose`, and only if it is still there.
 *
 * @typedef {import("reseed-protocol").HistoryHit} Hit
 * @typedef {"chat" | "all"} Scope
 * @typedef {{ query: string, scope: Scope }} Search
 */

import { CommandError } from "./client.js";
import { ago, el, iconButton } from "./dom.js";
import { explainError } from "./errors.js";
import { found, termsOf } from "./found-words.js";

/** Milliseconds without a key after which is searched. */
const PAUSE_MS = 200;
/** Hits of one search: more than a person reads through. The server takes 100 at most. */
const HITS_MAX = 50;
/** Characters of a search, as the server has it. */
const QUERY_CHARS_MAX = 1000;

/** @type {Record<string, string>} */
const WHO = { user: "You", assistant: "Answer", tool: "Tool result", summary: "Summary" };

const TIP = "“Quotes” keep words together, and a star stands for the rest of a word: harb*";

export class SearchDialog {
  /**
   * @param {import("./app.js").App} app
   * @param {object} options
   * @param {Search} options.search what to begin with
   * @param {(hit: Hit) => void} options.onChoose a hit was chosen, and the dialog is closed
   * @param {(search: Search) => void} options.onSearch
   */
  constructor(app, { search, onChoose, onSearch }) {
    this.app = app;
    this.onChoose = onChoose;
    this.onSearch = onSearch;
    /** @type {Scope} what was chosen, here or in the last search */
    this.chosen = search.scope;
    /** @type {readonly Hit[]} */
    this.hits = [];
    /** The hit that Enter chooses. */
    this.current = 0;
    /** Counts the searches: only the newest counts. */
    this.asked = 0;
    /** Whether the hits are those of what is in the field now. */
    this.isCurrent = false;
    /** Whether the first hit is to be chosen as soon as the search has answered. */
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
    // A click beside the dialog is one on its backdrop.
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
    this.dialog.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.isComposing) return;
      // Without this the key would only empty the field.
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
   * Where is searched: a chat that is not begun has nothing in it.
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

  /** Searches when nothing more is typed for a moment. */
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
   * Returns true if a hit is known to be on a branch of the chat that is shown other than the one that is read.
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
      // What is listed answers an earlier search.
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
      // Its chat may have been deleted since. A person should not lose the chat that is shown over that.
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
