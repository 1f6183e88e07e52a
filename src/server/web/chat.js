/**
 * The conversation: the entries, and below them what is going on.
 *
 * What always holds:
 * - an entry is drawn once and its row is kept as long as it is on the path;
 * - the view follows the end only while the reader is at the end; older messages come in without moving what is read.
 *
 * @typedef {import("./fold.js").State} State
 * @typedef {import("./app.js").App} App
 */

import { compactionLine } from "./compaction.js";
import { byId, el } from "./dom.js";
import { ItemView, entryRow, userMessage } from "./message.js";

/** Pixels from the end within which the reader counts as being there. */
const END_PIXELS = 60;

/** @type {Record<string, string>} */
const ENDINGS = {
  failed: "The turn failed",
  cancelled: "You stopped this turn",
  interrupted: "The server stopped in the middle of this turn",
};

export class ChatView {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.scroller = byId("chat", HTMLElement);
    this.log = byId("log", HTMLElement);
    this.tail = byId("tail", HTMLElement);
    this.older = byId("older", HTMLButtonElement);
    this.jump = byId("jump", HTMLButtonElement);
    this.welcome = byId("welcome", HTMLElement);
    this.atEnd = true;
    /** @type {string | null} */
    this.sessionId = null;
    /** @type {State["entries"]} */
    this.entries = [];
    /** @type {Map<string, HTMLElement | null>} rows by `entryId` */
    this.rows = new Map();
    /** @type {Map<string, string>} names of tools by `callId` */
    this.tools = new Map();
    /** @type {Map<string, ItemView>} */
    this.items = new Map();
    /** @type {Map<string, { of: unknown, node: HTMLElement }>} the other rows of the tail, by what they show */
    this.made = new Map();

    this.scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.jump.addEventListener("click", () => this.toEnd());
    this.older.addEventListener("click", () => void app.loadOlder());
    new IntersectionObserver(([seen]) => seen.isIntersecting && void app.loadOlder(), { root: this.scroller }).observe(this.older);
    // What unfolds or wraps anew at the end must not push the end out of sight.
    new ResizeObserver(() => this.follow()).observe(this.log);
    new ResizeObserver(() => this.follow()).observe(this.scroller);
  }

  render() {
    const { state } = this.app;
    const fresh = (state?.sessionId ?? null) !== this.sessionId;
    if (fresh) this.clear(state?.sessionId ?? null);
    const fromEnd = this.scroller.scrollHeight - this.scroller.scrollTop;
    const first = this.entries[0];
    this.renderEntries(state?.entries ?? []);
    this.renderTail(state);
    this.older.hidden = !state?.more;
    this.welcome.hidden = this.app.target !== null && (state === null || state.entries.length > 0 || state.turnId !== null)
      || this.app.sending.length > 0;
    const prepended = first !== undefined && this.entries[0] !== first;
    if (prepended && !this.atEnd) this.scroller.scrollTop = this.scroller.scrollHeight - fromEnd;
    this.follow();
  }

  /** @param {string | null} sessionId */
  clear(sessionId) {
    this.sessionId = sessionId;
    this.entries = [];
    this.rows.clear();
    this.tools.clear();
    this.items.clear();
    this.made.clear();
    this.log.replaceChildren();
    this.tail.replaceChildren();
    this.atEnd = true;
  }

  /** @param {State["entries"]} entries */
  renderEntries(entries) {
    if (entries === this.entries) return;
    const kept = new Set(entries.map((entry) => entry.entryId));
    for (const [entryId, row] of this.rows) {
      if (kept.has(entryId)) continue;
      row?.remove();
      this.rows.delete(entryId);
    }
    let after = this.log.firstElementChild;
    for (const entry of entries) {
      const row = this.row(entry);
      if (!row) continue;
      if (row === after) after = after.nextElementSibling;
      else this.log.insertBefore(row, after);
    }
    this.entries = entries;
  }

  /** @param {State["entries"][number]} entry */
  row(entry) {
    const known = this.rows.get(entry.entryId);
    if (known !== undefined) return known;
    if (entry.type === "message") {
      for (const part of entry.content) if (part.type === "tool_call") this.tools.set(part.callId, part.name);
    }
    const row = entryRow(entry, this.tools);
    this.rows.set(entry.entryId, row);
    return row;
  }

  /** @param {State | null} state */
  renderTail(state) {
    const { app } = this;
    /** @type {HTMLElement[]} */
    const rows = [];
    /** @type {Map<string, ItemView>} */
    const items = new Map();
    for (const item of state?.items ?? []) {
      const view = this.items.get(item.itemId) ?? new ItemView(item);
      view.update(item);
      items.set(item.itemId, view);
      rows.push(view.node);
    }
    this.items = items;
    const keep = (/** @type {string} */ key, /** @type {unknown} */ of, /** @type {() => HTMLElement} */ make) => {
      const known = this.made.get(key);
      const row = known && known.of === of ? known : { of, node: make() };
      made.set(key, row);
      rows.push(row.node);
    };
    /** @type {typeof this.made} */
    const made = new Map();
    const quiet = state?.turnId && !state.compaction && !state.items.some((item) => item.parts.length > 0);
    if (quiet) keep("activity", state.pending, () => activity(state.pending));
    if (app.loading) keep("loading", null, () => activity([]));
    const compaction = state?.compaction;
    if (compaction) {
      const cancel = app.readOnly ? null : () => void app.cancelCompaction();
      keep("compaction", compaction, () => compactionLine(compaction, cancel));
    }
    const ended = state?.turnId ? null : state?.lastTurn;
    if (ended) keep("ended", ended, () => endedRow(ended, app.readOnly ? null : () => void app.retry()));
    for (const item of state?.queue ?? []) {
      keep(item.commandId, item.commandId, () => waiting(userMessage(item.content), "Waits for its turn"));
    }
    for (const { id, text } of app.sending) {
      keep(`sending-${id}`, text, () => waiting(userMessage([{ type: "text", text }]), "Sending…"));
    }
    this.made = made;
    if (rows.length !== this.tail.children.length || rows.some((row, index) => this.tail.children[index] !== row)) {
      this.tail.replaceChildren(...rows);
    }
  }

  scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    this.atEnd = scrollHeight - scrollTop - clientHeight < END_PIXELS;
    this.jump.hidden = this.atEnd;
  }

  /** Stays at the end when the reader is there. */
  follow() {
    if (this.atEnd) this.scroller.scrollTop = this.scroller.scrollHeight;
    else this.scrolled();
  }

  toEnd() {
    this.atEnd = true;
    this.jump.hidden = true;
    this.follow();
  }
}

/**
 * That something is going on, and which tools are awaited.
 * @param {State["pending"]} pending
 */
function activity(pending) {
  const dots = el("span", { class: "pulse", "aria-hidden": "true" }, el("i"), el("i"), el("i"));
  const names = pending.map((call) => (call.message ? `${call.name} (${call.message})` : call.name)).join(", ");
  return el("li", { class: "activity" }, dots, el("span", {}, names ? `Waiting for ${names}` : "Working…"));
}

/**
 * @param {NonNullable<State["lastTurn"]>} turn
 * @param {(() => void) | null} retry
 */
function endedRow({ status, error }, retry) {
  const text = ENDINGS[status] ?? `The turn was ${status}`;
  const hint = error && el("small", {}, el("code", {}, error.code), error.retriable ? " · trying again may help" : "");
  return el("li", { class: `ended ${status}`, role: "alert", "data-ended": status },
    el("span", {}, error ? `${text}: ${error.message}` : `${text}.`, hint),
    retry && el("button", { type: "button", class: "button small", onclick: retry }, "Retry"));
}

/**
 * @param {HTMLElement} row
 * @param {string} mark
 */
function waiting(row, mark) {
  row.classList.add("waiting");
  row.append(el("span", { class: "mark" }, mark));
  return row;
}
