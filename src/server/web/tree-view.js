/**
 * The panel that draws the tree: a row per entry, with lanes as in the graph of a version history.
 *
 * Invariants:
 * - for the keyboard it is one tree: one row has the focus, arrow keys move it, Enter goes there;
 * - choosing a row only asks; `onChoose` does the moving;
 * - only the rows near the visible ones are in the page, however long the chat is;
 * - the row that a search led to stays marked until the panel is closed or another chat is displayed.
 *
 * @typedef {import("./tree-rows.js").Row} Row
 * @typedef {import("./app.js").App} App
 */

import { byId, el, icon, number, styled } from "./dom.js";
import { treeRows } from "./tree-rows.js";

/** Pixels between two lanes, and the height of a drawn row in pixels; the style sheet repeats both. */
const LANE_PIXELS = 16;
const ROW_PIXELS = matchMedia("(pointer: coarse)").matches ? 42 : 34;
/** Maximum lanes drawn; branches nested deeper share the last one. */
const LANES_MAX = 9;
/** Rows that a page key moves by. */
const PAGE_ROWS = 10;
/** Rows drawn above and below the visible ones. */
const MARGIN_ROWS = 20;

const SVG = "http://www.w3.org/2000/svg";

/** @type {Record<string, string>} */
const KINDS = {
  "message:user": "You",
  "message:assistant": "Answer",
  "message:tool": "Tool result",
  custom_message: "Note",
  compaction: "Compaction",
  branch_summary: "Branch summary",
};

export class TreeView {
  /**
   * @param {App} app
   * @param {{ onChoose: (entryId: string) => void, onShow: () => void }} listeners
   */
  constructor(app, { onChoose, onShow }) {
    this.app = app;
    this.onChoose = onChoose;
    this.onShow = onShow;
    this.panel = byId("tree", HTMLElement);
    this.list = byId("tree-rows", HTMLElement);
    this.hint = byId("tree-hint", HTMLElement);
    this.older = byId("tree-older", HTMLButtonElement);
    this.opener = byId("tree-open", HTMLButtonElement);
    this.closer = byId("tree-close", HTMLButtonElement);
    /** @type {Row[]} */
    this.rows = [];
    /** The drawn rows, as indexes. */
    this.drawn = { from: 0, to: 0 };
    /** @type {Set<string>} */
    this.unfolded = new Set();
    /** @type {string | null} the row that has the focus, or would get it */
    this.current = null;
    /** @type {string | null} the entry that a search led to */
    this.found = null;
    /** @type {import("./tree.js").SessionTree | null} */
    this.tree = null;
    this.shown = "";
    this.narrow = matchMedia("(max-width: 760px)");
    this.narrow.addEventListener("change", () => this.cover());
    this.opener.addEventListener("click", () => this.toggle());
    this.closer.addEventListener("click", () => this.close());
    this.older.addEventListener("click", () => void app.open?.loadOlder());
    this.list.addEventListener("click", (event) => {
      const item = event.target instanceof Element ? event.target.closest("[role=treeitem]") : null;
      if (item instanceof HTMLElement) this.choose(item.dataset.key ?? "");
    });
    this.list.addEventListener("keydown", (event) => this.key(event));
    this.panel.addEventListener("scroll", () => this.scrolled(), { passive: true });
    new ResizeObserver(() => this.scrolled()).observe(this.panel);
    this.panel.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      this.close();
    });
  }

  get open() {
    return !this.panel.hidden;
  }

  toggle() {
    if (this.open) this.close();
    else this.show();
  }

  show() {
    if (!this.app.snapshot) return;
    this.onShow();
    this.panel.hidden = false;
    this.cover();
    document.body.classList.add("with-tree");
    this.opener.setAttribute("aria-expanded", "true");
    this.current = null;
    this.render();
    this.center(this.rows.findIndex((row) => row.isLeaf));
    this.focusRow(this.current);
  }

  /**
   * Opens the panel at an entry that a search has found, on any branch.
   * @param {string} entryId
   * @returns {Promise<"here" | "elsewhere" | null>} whether it is on the current branch; null if it is not shown
   */
  async reveal(entryId) {
    const { open } = this.app;
    if (!open || !(await open.treeSource.reach(entryId)) || this.app.open !== open || !this.app.snapshot) return null;
    if (!this.open) this.show();
    this.found = entryId;
    this.render();
    const folded = this.rows.find((row) => row.kind === "folded" && row.entryIds.includes(entryId));
    if (folded) {
      this.unfolded.add(folded.key);
      this.render();
    }
    const at = this.rows.findIndex((one) => one.key === entryId);
    const row = this.rows[at];
    if (!row) return null;
    this.center(at);
    this.focusRow(entryId);
    return row.onPath ? "here" : "elsewhere";
  }

  close() {
    if (!this.open) return;
    this.found = null;
    const focused = this.panel.contains(document.activeElement);
    this.panel.hidden = true;
    this.cover();
    document.body.classList.remove("with-tree");
    this.opener.setAttribute("aria-expanded", "false");
    if (focused) this.opener.focus();
  }

  /** Where the panel fills the screen, nothing behind it may take the focus. */
  cover() {
    byId("page", HTMLElement).inert = this.open && this.narrow.matches;
  }

  render() {
    const { app } = this;
    const { snapshot, tree } = app;
    this.opener.hidden = !snapshot || !app.can("tree") || snapshot.leafId === "root" && tree.nodes.size === 0;
    if (!snapshot) this.close();
    if (!snapshot || !this.open) return;
    if (this.tree !== tree) {
      this.tree = tree;
      this.unfolded.clear();
      this.found = null;
      this.shown = "";
    }
    const key = `${tree.version} ${snapshot.leafId} ${this.unfolded.size} ${snapshot.path.more} ${app.readOnly} ${app.open?.treeSource.loading} ${this.found}`;
    if (key === this.shown) return;
    this.shown = key;
    this.rows = treeRows(tree, snapshot.leafId, this.unfolded);
    const leaf = this.rows.find((row) => row.isLeaf) ?? this.rows.at(-1);
    if (!this.rows.some((row) => row.key === this.current)) this.current = leaf?.key ?? null;
    const focused = this.list.contains(document.activeElement);
    this.draw();
    if (focused) this.focusRow(this.current);
    this.older.hidden = !snapshot.path.more;
    const found = this.rows.find((row) => row.key === this.found);
    const isElsewhere = found !== undefined && !found.onPath;
    this.hint.classList.toggle("elsewhere-found", isElsewhere);
    this.hint.textContent = isElsewhere ? `What you searched for is on another branch.${app.readOnly ? "" : " Choose it to go there."}`
      : app.readOnly ? "You have read-only access: choose a message to see it." : "Choose a message to go there.";
  }

  /** Returns the visible rows, as indexes. */
  visible() {
    const above = this.panel.scrollTop - this.list.offsetTop;
    const from = Math.max(0, Math.min(this.rows.length - 1, Math.floor(above / ROW_PIXELS)));
    return { from, to: Math.min(this.rows.length, from + Math.ceil(this.panel.clientHeight / ROW_PIXELS) + 1) };
  }

  /** Draws the rows near the visible ones; room is left for all others. */
  draw() {
    const { scrollTop } = this.panel;
    const { from, to } = this.visible();
    this.drawn = { from: Math.max(0, from - MARGIN_ROWS), to: Math.min(this.rows.length, to + MARGIN_ROWS) };
    const rows = this.rows.slice(this.drawn.from, this.drawn.to);
    const rest = this.rows.length - this.drawn.to;
    const focused = this.list.contains(document.activeElement);
    this.list.replaceChildren(...rows.map((row, index) => this.item(row, this.drawn.from + index)));
    styled(this.list, { "--above": `${this.drawn.from * ROW_PIXELS}px`, "--below": `${rest * ROW_PIXELS}px` });
    this.panel.scrollTop = scrollTop;
    if (!focused) return;
    // The list keeps the focus, and with it the keys, for a row that is scrolled away.
    const row = this.list.querySelector("[tabindex='0']");
    (row instanceof HTMLElement ? row : this.list).focus({ preventScroll: true });
  }

  scrolled() {
    if (!this.open) return;
    const { from, to } = this.visible();
    if (from < this.drawn.from || to > this.drawn.to) this.draw();
  }

  /**
   * Scrolls a row to the middle of the panel.
   * @param {number} at
   */
  center(at) {
    if (at < 0) return;
    this.panel.scrollTop = this.list.offsetTop + at * ROW_PIXELS - this.panel.clientHeight / 2;
    this.scrolled();
  }

  /**
   * @param {Row} row
   * @param {number} index
   */
  item(row, index) {
    const { tree } = this.app;
    const label = row.kind === "entry" ? tree.labelOf(row.node.entryId) : undefined;
    const kind = KINDS[row.node.type] ?? row.node.type;
    const text = row.kind === "folded" ? `${number(row.count)} more messages`
      : row.kind === "more" ? `Load what is below (${number(row.count)})`
        : row.node.preview || "(nothing said)";
    const type = row.kind === "entry" ? row.node.type.replace(/^message:/, "") : row.kind;
    return el("li", {
      role: "treeitem", class: `tree-row ${type}${row.onPath ? " on-path" : ""}${row.key === this.found ? " found" : ""}`, "data-key": row.key, "data-entry": row.kind === "entry" ? row.node.entryId : null,
      "aria-level": row.lane + 1, "aria-posinset": index + 1, "aria-setsize": this.rows.length, "aria-current": row.isLeaf ? "true" : null, "aria-expanded": row.kind === "entry" ? null : "false",
      "aria-selected": String(row.key === this.current), tabindex: row.key === this.current ? 0 : -1,
      title: row.kind === "entry" ? `${kind}, ${new Date(row.node.timestamp).toLocaleString()}` : null,
    },
    graph(row),
    row.kind === "entry" && el("span", { class: "visually-hidden" }, `${kind}: `),
    label !== undefined && el("span", { class: "label-chip" }, icon("label"), label),
    el("span", { class: "what" }, row.kind === "entry" && (type === "compaction" || type === "branch_summary" || type === "tool") ? el("i", {}, `${kind} · `) : null, text),
    row.isLeaf && el("span", { class: "leaf-mark" }, "you are here"));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.rows.findIndex((row) => row.key === this.current);
    /** @type {Record<string, number>} */
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + PAGE_ROWS, PageUp: at - PAGE_ROWS, Home: 0, End: this.rows.length - 1 };
    if (event.key in to) {
      event.preventDefault();
      const row = this.rows[Math.max(0, Math.min(this.rows.length - 1, to[event.key]))];
      if (row) this.focusRow(row.key);
    } else if (event.key === "ArrowLeft") {
      event.preventDefault();
      const parent = this.rows.slice(0, Math.max(0, at)).findLast((row) => row.kind === "entry" && row.lane < (this.rows[at]?.lane ?? 0));
      if (parent) this.focusRow(parent.key);
    } else if (event.key === "Enter" || event.key === " " || (event.key === "ArrowRight" && this.rows[at]?.kind !== "entry")) {
      event.preventDefault();
      if (this.current) this.choose(this.current);
    }
  }

  /** @param {string | null} key */
  focusRow(key) {
    this.current = key;
    const at = this.rows.findIndex((row) => row.key === key);
    if (at >= 0 && (at < this.drawn.from || at >= this.drawn.to)) this.center(at);
    for (const item of this.list.children) {
      if (!(item instanceof HTMLElement)) continue;
      const mine = item.dataset.key === key;
      item.tabIndex = mine ? 0 : -1;
      item.setAttribute("aria-selected", String(mine));
      if (mine) {
        item.focus({ preventScroll: true });
        item.scrollIntoView({ block: "nearest" });
      }
    }
  }

  /** @param {string} key */
  choose(key) {
    const at = this.rows.findIndex((row) => row.key === key);
    const row = this.rows[at];
    if (!row) return;
    this.current = key;
    if (row.kind === "folded") {
      this.unfolded.add(key);
      this.current = row.entryIds[0];
      this.render();
      this.focusRow(this.current);
    } else if (row.kind === "more") {
      this.current = row.node.entryId;
      void this.app.open?.treeSource.loadBelow(row.node.entryId);
    } else {
      this.focusRow(key);
      this.onChoose(row.node.entryId);
    }
  }
}

/**
 * Draws the lanes of a row: passing lines, the row's own line, and its symbol.
 * @param {Row} row
 */
function graph(row) {
  const lanes = Math.min(LANES_MAX, row.lane + 1);
  const x = (/** @type {number} */ lane) => Math.min(lane, LANES_MAX - 1) * LANE_PIXELS + LANE_PIXELS / 2;
  const middle = ROW_PIXELS / 2;
  const svg = document.createElementNS(SVG, "svg");
  for (const [name, value] of [["class", "graph"], ["aria-hidden", "true"], ["width", lanes * LANE_PIXELS], ["height", ROW_PIXELS], ["viewBox", `0 0 ${lanes * LANE_PIXELS} ${ROW_PIXELS}`]]) {
    svg.setAttribute(String(name), String(value));
  }
  const draw = (/** @type {string} */ d, /** @type {string} */ kind) => {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", d);
    path.setAttribute("class", kind);
    svg.append(path);
  };
  const line = (/** @type {boolean} */ onPath) => (onPath ? "line on-path" : "line");
  row.passing.forEach((onPath, lane) => lane < LANES_MAX && draw(`M${x(lane)} 0V${ROW_PIXELS}`, line(onPath)));
  const own = x(row.lane);
  if (row.begins) draw(`M${x(row.lane - 1)} 0C${x(row.lane - 1)} ${middle} ${own} 2 ${own} ${middle}`, line(row.onPath));
  if (row.above) draw(`M${own} 0V${middle}`, line(row.onPath));
  if (row.below) draw(`M${own} ${middle}V${ROW_PIXELS}`, line(row.onPath && !row.isLeaf));
  const sign = `sign ${row.kind === "entry" ? row.node.type.replace(/^message:/, "") : row.kind}${row.onPath ? " on-path" : ""}`;
  if (row.kind !== "entry") draw([-5, 0, 5].map((dy) => `M${own - 0.1} ${middle + dy}h.2`).join(""), `dots ${sign}`);
  else if (row.node.type === "compaction" || row.node.type === "branch_summary") draw(`M${own} ${middle - 5.5}l5.5 5.5-5.5 5.5-5.5-5.5z`, sign);
  else draw(`M${own - 4.5} ${middle}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z`, sign);
  return svg;
}
