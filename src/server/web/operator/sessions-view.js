/**
 * The list of sessions. Only the rows near the view are in the page, all of one height; a row keeps its element while
 * it is drawn, and with it the focus.
 *
 * @typedef {import("./session-store.js").Item} Item
 */

import { ago, el, number, styled } from "../dom.js";
import { count, money, outcomeText, stateText } from "./format.js";
import { put } from "./parts.js";
import { COLUMNS, STATES, arranged, countsOf, isFailed, rowsInView, valuesOf } from "./session-list.js";

/** Shares of the window from which a session counts as nearly full, and as full. */
const HIGH_RATIO = 0.75;
const FULL_RATIO = 0.9;

/** Pixels of a row: in a table, and as a card on a narrow screen. */
const ROW_PIXELS = { wide: 42, narrow: 92 };

/** @type {import("./session-list.js").Filter} kept while another view is shown */
const filter = { text: "", user: "", model: "", state: "" };
const order = { by: "updated", isDown: true };

export class SessionsView {
  /**
   * @param {import("./main.js").App} app
   * @param {string} [user] lists only this user's sessions
   */
  constructor(app, user = filter.user) {
    this.app = app;
    filter.user = user;
    /** @type {Item[]} */
    this.rows = [];
    /** @type {Map<string, { node: HTMLElement, key: string }>} */
    this.drawn = new Map();
    this.shown = "";
    /** The tiles: the values, and the buttons that show only the sessions in a state. */
    this.states = Object.entries(STATES).map(([state, { title }]) => /** @type {const} */ ([state, el("button", {
      type: "button", class: `tile ${state}`, title: "List only these", onclick: () => this.filter("state", filter.state === state ? "" : state),
    }, el("b", {}), el("span", {}, title))]));
    const tiles = [el("p", { class: "tile" }, el("b", {}), el("span", {}, "Sessions")), ...this.states.map(([, button]) => button), el("p", { class: "tile", title: "Since midnight UTC" }, el("b", {}), el("span", {}, "Cost today"))];
    this.values = tiles.map((tile) => /** @type {HTMLElement} */ (tile.firstElementChild));
    this.tiles = el("div", { class: "tiles" }, tiles);
    this.said = el("p", { class: "said", role: "status" });
    this.body = el("div", { class: "rows", role: "rowgroup" });
    this.heads = COLUMNS.map(({ key, title, isDown }) => el("div", { role: "columnheader", class: `c-${key}` },
      el("button", { type: "button", onclick: () => this.sort(key, isDown === true) }, title)));
    this.table = el("div", { class: "sessions", role: "table", "aria-label": "Sessions" },
      el("div", { class: "row head", role: "row" }, this.heads), this.body);
    this.selects = { user: this.select("user", "All users"), model: this.select("model", "All models") };
    const search = el("input", { class: "field", type: "search", value: filter.text, placeholder: "Find by id, user, model…", "aria-label": "Find sessions", autocomplete: "off" });
    search.addEventListener("input", () => this.filter("text", search.value));
    const filters = el("search", { class: "filters" }, search, this.selects.user, this.selects.model);
    this.node = el("section", { class: "view", "aria-label": "Sessions" }, el("h1", { class: "visually-hidden" }, "Sessions"), this.tiles, filters, this.said, this.table);
    this.narrow = matchMedia("(max-width: 760px)");
    this.onScroll = () => (this.frame ??= requestAnimationFrame(() => ((this.frame = null), this.draw())));
    /** @type {number | null} */
    this.frame = null;
    app.main.addEventListener("scroll", this.onScroll, { passive: true });
    addEventListener("resize", this.onScroll);
    this.body.addEventListener("keydown", (event) => this.key(event));
    // The whole row can be clicked, and its text be selected.
    this.body.addEventListener("click", ({ target }) => {
      if (!(target instanceof Element) || target.closest("a") || getSelection()?.isCollapsed === false) return;
      target.closest(".row")?.querySelector("a")?.click();
    });
  }

  close() {
    this.app.main.removeEventListener("scroll", this.onScroll);
    removeEventListener("resize", this.onScroll);
  }

  /**
   * @param {"user" | "model"} name
   * @param {string} all
   */
  select(name, all) {
    const select = el("select", { class: "field", name, "aria-label": `Filter by ${name}` }, el("option", { value: "" }, all));
    select.addEventListener("change", () => this.filter(name, select.value));
    return select;
  }

  /**
   * @param {keyof typeof filter} name
   * @param {string} value
   */
  filter(name, value) {
    filter[name] = value;
    this.app.main.scrollTop = 0;
    this.update();
  }

  /**
   * Sorts by a column, or the other way round if it is sorted by it.
   * @param {string} key
   * @param {boolean} isDown
   */
  sort(key, isDown) {
    order.isDown = order.by === key ? !order.isDown : isDown;
    order.by = key;
    this.update();
  }

  /** Draws the list if the sessions, the filters or the order have changed, and its rows in any case: times pass. */
  update() {
    const { store, today } = this.app;
    const key = JSON.stringify([store.version, filter, order, today]);
    if (key !== this.shown) {
      this.shown = key;
      const items = [...store.items.values()];
      this.rows = arranged(items, filter, order);
      this.options("user", valuesOf(items, "owner"));
      this.options("model", valuesOf(items, "model"));
      COLUMNS.forEach((column, at) => this.heads[at].setAttribute("aria-sort", column.key !== order.by ? "none" : order.isDown ? "descending" : "ascending"));
      this.head(items, today);
    }
    this.draw();
  }

  /**
   * @param {Item[]} items
   * @param {number | null} today
   */
  head(items, today) {
    const { store } = this.app;
    const counts = countsOf(items);
    const cost = today === null ? "–" : money(today);
    const values = [number(counts.sessions) + (store.isCut ? "+" : ""), ...Object.keys(STATES).map((state) => number(counts[state])), cost];
    values.forEach((value, at) => (this.values[at].textContent = value));
    for (const [state, button] of this.states) button.setAttribute("aria-pressed", String(filter.state === state));
    const part = this.rows.length === items.length ? "" : `${number(this.rows.length)} of ${number(items.length)} sessions`;
    const cut = store.isCut ? `Only the newest ${number(items.length)} sessions are listed.` : "";
    const loading = store.isComplete ? "" : `Loading: ${number(items.length)} so far.`;
    this.said.textContent = [part, cut, loading].filter(Boolean).join(" · ") || (items.length === 0 ? "There are no sessions yet." : "");
    this.table.setAttribute("aria-rowcount", String(this.rows.length + 1));
  }

  /**
   * Updates the choices of a filter, and keeps the chosen one.
   * @param {"user" | "model"} name
   * @param {string[]} values
   */
  options(name, values) {
    const select = this.selects[name];
    const chosen = filter[name];
    const choices = [...new Set([...(chosen ? [chosen] : []), ...values.slice(0, CHOICES_MAX)])];
    put(select, el("option", { value: "" }, select.options[0].text), choices.map((value) => el("option", { value }, value)));
    select.value = chosen;
  }

  /** Draws the rows near the view. */
  draw() {
    const row = ROW_PIXELS[this.narrow.matches ? "narrow" : "wide"];
    const { main } = this.app;
    const top = main.getBoundingClientRect().top - this.body.getBoundingClientRect().top;
    const { from, to } = rowsInView({ top, height: main.clientHeight, row, count: this.rows.length });
    styled(this.body, { "--row": `${row}px`, height: `${row * this.rows.length}px` });
    const now = Date.now();
    const rows = this.rows.slice(from, to);
    const wanted = new Set(rows.map(({ sessionId }) => sessionId));
    for (const [id, { node }] of this.drawn) {
      // The row with the focus stays, wherever it is: removing it would lose the place of the keyboard.
      if (wanted.has(id) || (node.contains(document.activeElement) && this.app.store.items.has(id))) continue;
      node.remove();
      this.drawn.delete(id);
    }
    rows.forEach((item, index) => {
      const known = this.drawn.get(item.sessionId);
      const cells = cellsOf(item, now);
      const key = JSON.stringify([cells, item.usageRatio]);
      const node = known?.node ?? newRow(item);
      if (known?.key !== key) fill(node, item, cells);
      this.drawn.set(item.sessionId, { node, key });
      node.setAttribute("aria-rowindex", String(from + index + 2));
      styled(node, { "--top": `${(from + index) * row}px` });
    });
    this.place(rows.map(({ sessionId }) => /** @type {HTMLElement} */ (this.drawn.get(sessionId)?.node)), from);
  }

  /**
   * Puts the rows in order, for the Tab key and for screen readers. The row with the focus is not moved, because it
   * would lose it.
   * @param {HTMLElement[]} nodes
   * @param {number} from the place of the first one in the list
   */
  place(nodes, from) {
    const focused = /** @type {HTMLElement | undefined} */ ([...this.body.children].find((node) => node.contains(document.activeElement)));
    // It may be out of view.
    if (focused && !nodes.includes(focused)) Number(focused.getAttribute("aria-rowindex")) < from + 2 ? nodes.unshift(focused) : nodes.push(focused);
    if (nodes.length === this.body.children.length && nodes.every((node, at) => node === this.body.children[at])) return;
    if (!focused) return this.body.replaceChildren(...nodes);
    const at = nodes.indexOf(focused);
    focused.before(...nodes.slice(0, at));
    focused.after(...nodes.slice(at + 1));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }[event.key];
    const id = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.session : undefined;
    if (step === undefined || id === undefined) return;
    event.preventDefault();
    const at = this.rows.findIndex(({ sessionId }) => sessionId === id);
    const to = Math.max(0, Math.min(this.rows.length - 1, at + step));
    const row = ROW_PIXELS[this.narrow.matches ? "narrow" : "wide"];
    const y = this.body.offsetTop + to * row - this.app.main.scrollTop;
    if (y < row || y > this.app.main.clientHeight - 2 * row) this.app.main.scrollTop += y - this.app.main.clientHeight / 2;
    this.draw();
    const link = this.drawn.get(this.rows[to].sessionId)?.node.querySelector("a");
    if (link instanceof HTMLElement) link.focus({ preventScroll: true });
    this.draw();
  }
}

/** Maximum names in a filter; the text field finds the others. */
const CHOICES_MAX = 200;

/** Explains a missing value. */
const UNKNOWN = "Only known while the session is in memory";

/**
 * Returns the texts of a row.
 * @param {Item} item
 * @param {number} now
 * @returns {{ key: string, text: string, hint?: string, level?: string }[]}
 */
function cellsOf(item, now) {
  const { compaction, unpricedRequests = 0, costNanoUsd } = item;
  const last = compaction?.last;
  const isFull = item.usageRatio >= FULL_RATIO;
  return [
    { key: "name", text: item.name || item.sessionId.slice(0, 12), hint: item.sessionId },
    { key: "fullness", text: `${Math.round(item.usageRatio * 100)} %`, hint: `${number(item.tokenCount)} of ${number(item.windowTokens)} tokens`, level: isFull ? "full" : item.usageRatio >= HIGH_RATIO ? "high" : "low" },
    { key: "state", text: stateText(item), level: item.state === "idle" ? (item.open ? "open" : "stored") : "busy" },
    { key: "user", text: item.owner || "(nobody)", hint: item.owner },
    { key: "model", text: item.model ?? "–", hint: item.model ?? UNKNOWN },
    { key: "strategy", text: item.strategy ?? "–", hint: item.strategy ?? UNKNOWN },
    {
      key: "compaction",
      text: compaction?.rests ? "breaker open" : last ? `${outcomeText(last)} · ${ago(last.at, now)}` : compaction?.count ? `${count(compaction.count)} earlier` : "–",
      hint: compaction ? undefined : UNKNOWN,
      level: compaction?.rests || isFailed(last?.outcome) ? "bad" : "",
    },
    { key: "cost", text: costNanoUsd === undefined ? "–" : money(costNanoUsd) + (unpricedRequests > 0 ? "+" : ""), hint: unpricedRequests > 0 ? `and ${number(unpricedRequests)} requests of unknown cost` : undefined },
    { key: "updated", text: ago(item.updatedAt, now), hint: item.updatedAt },
  ];
}

/**
 * Builds a row with empty cells.
 * @param {Item} item
 */
function newRow({ sessionId }) {
  const cells = COLUMNS.map(({ key }) => el("div", { role: "cell", class: `c-${key}` }));
  cells[0].append(el("a", { href: `#session=${encodeURIComponent(sessionId)}`, "data-session": sessionId }));
  cells[1].append(el("span", { class: "fill", "aria-hidden": "true" }), el("span", {}));
  return el("div", { class: "row", role: "row" }, cells);
}

/**
 * Writes a row's texts. Its elements stay.
 * @param {HTMLElement} node
 * @param {Item} item
 * @param {ReturnType<typeof cellsOf>} cells
 */
function fill(node, item, cells) {
  cells.forEach(({ text, hint, level }, at) => {
    const cell = /** @type {HTMLElement} */ (node.children[at]);
    const target = cell.lastElementChild ?? cell;
    target.textContent = text;
    cell.title = hint ?? "";
    cell.dataset.level = level ?? "";
  });
  styled(node, { "--used": `${Math.min(100, item.usageRatio * 100)}%` });
}
