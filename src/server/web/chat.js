/**
 * The conversation: its entries, and below them the current activity.
 *
 * Invariants:
 * - only a stretch of a long chat is drawn (`stretch.js`); an entry's row is kept while the entry is in the stretch, or
 *   while it is being edited;
 * - the row of an answer in progress becomes the row of its entry, so that a selection in it survives;
 * - `follow.js` keeps the reader's place; here, only `reveal` and `page` scroll.
 *
 * @typedef {import("./client.js").SessionSnapshot} Snapshot
 * @typedef {import("./client.js").Entry} Entry
 * @typedef {import("./app.js").App} App
 */

import { ApprovalCard } from "./approvals.js";
import { CodeColours } from "./code-colours.js";
import { CompactionRow, compactionLine, heldLine } from "./compaction.js";
import { byId, dayOf, el, pulse } from "./dom.js";
import { messageEditor } from "./edit.js";
import { delayRow, endedRow, openQuestion, traceRow, tracesOf } from "./endings.js";
import { Follow } from "./follow.js";
import { ItemView, cost, entryRow, hasRow, userMessage } from "./message.js";
import { keepSelection, patch } from "./patch.js";
import { isShown, queueRow } from "./queue.js";
import { RowTools } from "./row-tools.js";
import { isHeldUp } from "./snapshot.js";
import { Stretch } from "./stretch.js";
import { callsOf, showStates } from "./tool-calls.js";

/** Milliseconds for which a message that was searched for stays highlighted. */
const FOUND_MS = 1600;

/** Distance in pixels from the first or last drawn row at which more rows are drawn. */
const NEAR_PIXELS = 600;
/** @typedef {{ showTree: () => void, write: () => void, asks: (card: ApprovalCard) => void }} ChatActions */

/** Fraction of the view's height by which a page key scrolls. */
const PAGE_SHARE = 0.85;

export class ChatView {
  /**
   * @param {App} app
   * @param {import("./row-tools.js").RowActions & ChatActions} actions `write` focuses the message field, `asks` is
   * called with a new card
   */
  constructor(app, actions) {
    this.app = app;
    this.actions = actions;
    this.scroller = byId("chat", HTMLElement);
    this.log = byId("log", HTMLElement);
    this.tail = byId("tail", HTMLElement);
    this.older = byId("older", HTMLButtonElement);
    this.newer = byId("newer", HTMLButtonElement);
    this.jump = byId("jump", HTMLButtonElement);
    this.jumpText = document.createTextNode("Newest");
    this.jump.append(this.jumpText);
    this.welcome = byId("welcome", HTMLElement);
    this.stretch = new Stretch();
    this.colours = new CodeColours(this.log);
    this.follow = new Follow(this.scroller, byId("column", HTMLElement), {
      isEnd: () => this.drawn.to === this.entries.length,
      onChange: () => (this.jump.hidden = this.follow.on),
    });
    /** @type {string | null} */
    this.sessionId = null;
    /** @type {readonly Entry[]} the displayed path */
    this.path = [];
    /** @type {readonly Entry[]} those entries of the path that have rows; a stretch of them is drawn */
    this.entries = [];
    /** The drawn stretch, as indexes. */
    this.drawn = { from: 0, to: 0 };
    /** @type {Map<string, HTMLElement | null>} rows by `entryId` */
    this.rows = new Map();
    /**
     * @type {Map<string, { row: HTMLElement, line?: RowTools | CompactionRow }>} rows outside the stretch that are
     * being edited, by `entryId`
     */
    this.edited = new Map();
    /** @type {Map<string, HTMLElement>} the lines that begin a new day, by the `entryId` after them */
    this.days = new Map();
    /** @type {Map<string, RowTools | CompactionRow>} the changeable parts of rows, by `entryId` */
    this.lines = new Map();
    /** @type {unknown[]} inputs of the last render of these parts */
    this.known = [];
    /** @type {unknown[]} inputs of the last render of failure traces */
    this.traced = [];
    /** The tool calls on the path. */
    this.calls = callsOf([]);
    /** @type {unknown[]} inputs of the last render of call states */
    this.stated = [];
    /** @type {Map<string, ApprovalCard>} approval cards, by `approvalId` */
    this.cards = new Map();
    /** @type {Map<string, ItemView>} */
    this.items = new Map();
    /**
     * @type {Map<string, { of: unknown, node: HTMLElement }>} the other rows of the tail, by key, each with the value
     * it shows
     */
    this.made = new Map();

    this.jump.addEventListener("click", () => this.toEnd());
    this.older.addEventListener("click", () => this.loadOlder());
    this.newer.addEventListener("click", () => this.loadNewer());
    for (const [button, load] of /** @type {const} */ ([[this.older, () => this.nearTop()], [this.newer, () => this.loadNewer()]])) {
      new IntersectionObserver(([seen]) => seen.isIntersecting && load(), { root: this.scroller, rootMargin: `${NEAR_PIXELS}px 0px` }).observe(button);
    }
  }

  render() {
    const { snapshot } = this.app;
    const fresh = (snapshot?.sessionId ?? null) !== this.sessionId;
    if (fresh) this.clear(snapshot?.sessionId ?? null);
    // While the path to a new leaf is loading, keep the old one: an empty page would only flicker.
    const moving = snapshot !== null && snapshot.path.entries.length === 0 && snapshot.leafId !== "root" && this.path.length > 0;
    if (!moving) this.renderEntries(snapshot?.path.entries ?? []);
    const known = [
      this.app.tree, this.app.tree.version, snapshot?.sessionId, snapshot?.leafId, snapshot?.role, this.app.client.welcome,
      snapshot?.pins, snapshot?.undone, this.app.open?.reports.size, this.app.moves.busy,
    ];
    if (known.some((part, index) => part !== this.known[index])) for (const line of this.lines.values()) line.render();
    this.known = known;
    this.renderTraces(snapshot);
    this.renderTail(snapshot);
    this.renderCalls(snapshot);
    this.showEnds();
    this.welcome.hidden = this.app.target !== null && (snapshot === null || snapshot.path.more || snapshot.turn !== null || this.path.some((entry) => entry.type === "message"))
      || this.app.sending.shown.length > 0;
    this.follow.hold();
  }

  /** Shows whether there is more above or below the drawn rows. */
  showEnds() {
    const { from, to } = this.drawn;
    const isEnd = to === this.entries.length;
    this.older.hidden = from === 0 && !this.app.snapshot?.path.more;
    this.newer.hidden = isEnd;
    this.tail.hidden = !isEnd;
  }

  /** Shows older messages: known ones first, otherwise the server is asked. */
  loadOlder() {
    if (this.stretch.older(this.entries)) this.redraw();
    else void this.app.open?.loadOlder();
  }

  loadNewer() {
    if (this.stretch.newer(this.entries)) this.redraw();
  }

  /** Redraws after the stretch has changed. */
  redraw() {
    this.renderRows();
    this.renderTraces(this.app.snapshot);
    this.showEnds();
    this.follow.hold();
    this.loadMore();
  }

  /** Loads more for a reader who is still at the top or the bottom: no further intersection change would trigger it. */
  loadMore() {
    requestAnimationFrame(() => {
      const { top, bottom } = this.scroller.getBoundingClientRect();
      const older = !this.older.hidden && this.older.getBoundingClientRect().bottom > top - NEAR_PIXELS;
      const newer = !this.newer.hidden && this.newer.getBoundingClientRect().top < bottom;
      if (older) this.nearTop();
      else if (newer) this.loadNewer();
    });
  }

  /** Handles a reader near the top. If the end is visible too, the drawn rows suffice. */
  nearTop() {
    if (!this.follow.on || this.drawn.from === 0) this.loadOlder();
  }

  /** @param {string | null} sessionId */
  clear(sessionId) {
    this.sessionId = sessionId;
    this.path = [];
    this.entries = [];
    this.rows.clear();
    this.edited.clear();
    this.days.clear();
    this.lines.clear();
    this.calls = callsOf([]);
    this.stated = [];
    this.cards.clear();
    this.items.clear();
    this.made.clear();
    this.traced = [];
    this.log.replaceChildren();
    this.tail.replaceChildren();
    this.stretch.reset();
    this.follow.on = true;
  }

  /** @param {readonly Entry[]} entries */
  renderEntries(entries) {
    if (entries === this.path) return;
    const prepended = this.path.length > 0 && entries[0] !== this.path[0];
    this.path = entries;
    this.entries = entries.filter(hasRow);
    this.calls = callsOf(entries);
    this.renderRows();
    if (prepended) this.loadMore();
  }

  renderRows() {
    this.stretch.fit(this.scroller.clientHeight);
    const reads = this.follow.on ? null : this.follow.entryId;
    this.drawn = this.stretch.range(this.entries, reads);
    const entries = this.entries.slice(this.drawn.from, this.drawn.to);
    const kept = new Set(entries.map((entry) => entry.entryId));
    const selected = keepSelection(this.tail);
    for (const [entryId, row] of this.rows) {
      if (kept.has(entryId)) continue;
      if (row?.classList.contains("editing")) this.edited.set(entryId, { row, line: this.lines.get(entryId) });
      row?.remove();
      this.days.get(entryId)?.remove();
      this.rows.delete(entryId);
      this.days.delete(entryId);
      this.lines.delete(entryId);
    }
    let after = this.log.firstElementChild;
    const put = (/** @type {HTMLElement} */ row) => {
      while (after?.hasAttribute("data-trace")) after = after.nextElementSibling;
      if (row === after) after = after.nextElementSibling;
      else this.log.insertBefore(row, after);
    };
    entries.forEach((entry, index) => {
      const row = this.row(entry);
      if (!row) return;
      const before = this.entries[this.drawn.from + index - 1];
      if (before && dayOf(before.timestamp) !== dayOf(entry.timestamp)) put(this.day(entry));
      put(row);
    });
    this.renderCalls(this.app.snapshot);
    this.colours.look();
    selected?.();
  }

  /**
   * Shows failures at the place where they happened.
   * @param {Snapshot | null} snapshot
   */
  renderTraces(snapshot) {
    const lost = snapshot?.items.filter((item) => item.aborted) ?? [];
    const of = [
      snapshot?.unansweredTurns, snapshot?.failedCompactions, snapshot?.lastTurn, snapshot?.turn, this.path, this.drawn.from, this.drawn.to,
      this.app.readOnly, lost.map((item) => item.itemId).join(),
    ];
    if (of.every((part, index) => part === this.traced[index]) && this.traced.length > 0) return;
    this.traced = of;
    for (const row of this.log.querySelectorAll("[data-trace]")) row.remove();
    const traces = tracesOf(snapshot);
    if (traces.size === 0 && lost.length === 0) return;
    const rows = (/** @type {string} */ entryId) => [
      ...lost.filter(({ after }) => after === entryId).map((item) => lostRow(this.items.get(item.itemId) ?? new ItemView(item), item)),
      ...(traces.get(entryId) ?? []).map(({ explained, times, isTurn }) => {
        const question = isTurn && !this.app.readOnly ? openQuestion(this.path, entryId) : null;
        return traceRow(explained, times, question && (() => void this.app.moves.askAgain(question)));
      }),
    ];
    if (this.drawn.from === 0 && !snapshot?.path.more) this.log.prepend(...rows("root"));
    // A failure at an entry without a row is shown after the nearest row above it.
    let row = null;
    for (const entry of this.path) {
      row = this.rows.get(entry.entryId) ?? row;
      let last = row;
      while (last?.nextElementSibling?.hasAttribute("data-trace")) last = /** @type {HTMLElement} */ (last.nextElementSibling);
      if (last?.isConnected) last.after(...rows(entry.entryId));
    }
  }

  /**
   * Shows the state of the calls that have no result yet.
   * @param {Snapshot | null} snapshot
   */
  renderCalls(snapshot) {
    const of = [snapshot?.pending, snapshot?.approvals, this.path, this.drawn.from, this.drawn.to];
    if (of.every((part, index) => part === this.stated[index]) && this.stated.length > 0) return;
    this.stated = of;
    showStates(this.log, snapshot, this.calls.answered);
  }

  /**
   * Returns the line above the first entry of a day.
   * @param {Entry} entry
   */
  day({ entryId, timestamp }) {
    const known = this.days.get(entryId);
    if (known) return known;
    const text = new Date(timestamp).toLocaleDateString(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });
    const line = el("li", { class: "day" }, el("time", { datetime: timestamp }, text));
    this.days.set(entryId, line);
    return line;
  }

  /** @param {Entry} entry */
  row(entry) {
    const known = this.rows.get(entry.entryId);
    if (known !== undefined) return known;
    const edited = this.edited.get(entry.entryId);
    if (edited) {
      this.edited.delete(entry.entryId);
      this.rows.set(entry.entryId, edited.row);
      if (edited.line) this.lines.set(entry.entryId, edited.line);
      edited.line?.render();
      return edited.row;
    }
    if (entry.type === "compaction") {
      const view = new CompactionRow(this.app, entry, (entryId) => void this.reveal(entryId));
      this.lines.set(entry.entryId, view);
      this.rows.set(entry.entryId, view.node);
      view.render();
      return view.node;
    }
    const calls = { made: this.calls.made, took: (/** @type {string} */ callId) => this.app.open?.took.get(callId) };
    const fresh = entryRow(entry, calls, (entryId) => this.app.tree.nodes.get(entryId)?.preview ?? "");
    const written = this.items.get(entry.entryId)?.node;
    if (written && fresh) patch(written, fresh);
    const row = written && fresh ? written : fresh;
    this.rows.set(entry.entryId, row);
    if (row && (entry.type === "message" || entry.type === "custom_message")) {
      const whole = isWhole(entry);
      const facts = whole && entry.type === "message" ? cost(entry) : "";
      const line = new RowTools(this.app, entry, { ...this.actions, edit: (mine) => this.edit(mine) }, facts, whole);
      this.lines.set(entry.entryId, line);
      line.render();
      row.append(line.node);
    }
    return row;
  }

  /**
   * Replaces a message with an edit field.
   * @param {import("./message.js").MessageEntry} entry
   */
  edit(entry) {
    const row = this.rows.get(entry.entryId);
    if (!row || row.querySelector(".editor")) return;
    const { app } = this;
    const bubble = row.querySelector(".bubble");
    const end = () => {
      row.classList.remove("editing");
      this.edited.delete(entry.entryId);
      editor.node.replaceWith(...(bubble ? [bubble] : []));
      /** @type {HTMLElement | null} */ (row.querySelector(".row-actions button"))?.focus();
    };
    const editor = messageEditor({
      entry,
      stops: app.moves.busy,
      waiting: app.moves.waiting,
      leaves: app.snapshot?.leafId !== entry.entryId,
      onAsk: (content, leaving) => {
        this.toEnd();
        return app.moves.askInstead(entry, content, leaving);
      },
      onEnd: end,
    });
    bubble?.replaceWith(editor.node);
    row.classList.add("editing");
    editor.focus();
  }

  /** Edits the last message of the user's, if there is one and this window may. */
  editLast() {
    const last = this.entries.findLast((entry) => entry.type === "message" && entry.role === "user");
    if (last?.type !== "message" || this.app.readOnly || !this.app.can("navigate")) return;
    if (!this.rows.has(last.entryId)) this.reveal(last.entryId);
    this.edit(last);
  }

  /** @param {Snapshot | null} snapshot */
  renderTail(snapshot) {
    const { app } = this;
    /** @type {HTMLElement[]} */
    const rows = [];
    /** @type {Map<string, ItemView>} */
    const items = new Map();
    for (const item of snapshot?.items.filter((item) => !item.aborted) ?? []) {
      const view = this.items.get(item.itemId) ?? new ItemView(item);
      view.update(item);
      items.set(item.itemId, view);
      rows.push(view.node);
    }
    this.items = items;
    /** @type {typeof this.made} */
    const made = new Map();
    const keep = (/** @type {string} */ key, /** @type {unknown} */ of, /** @type {() => HTMLElement} */ make) => {
      const known = this.made.get(key);
      const row = known && known.of === of ? known : { of, node: make() };
      made.set(key, row);
      rows.push(row.node);
    };
    const approvals = snapshot?.approvals ?? [];
    const parked = approvals.length > 0 && snapshot?.pending.length === 0;
    const quiet = snapshot?.turn && !parked && !isHeldUp(snapshot) && !snapshot.items.some((item) => !item.aborted && item.parts.length > 0);
    const delayed = snapshot?.delayed;
    if (quiet && delayed) keep("delayed", delayed, () => delayRow(delayed));
    else if (quiet) keep("activity", snapshot.pending, () => activity(snapshot.pending));
    const asking = new Map(approvals.map((approval) =>
      [approval.approvalId, this.cards.get(approval.approvalId) ?? new ApprovalCard(app, approval, this.actions.write)]));
    const fresh = [...asking.values()].filter((card) => !this.cards.has(card.approval.approvalId));
    for (const { approval } of fresh) app.approvals.names.set(approval.approvalId, approval.name);
    this.cards = asking;
    rows.push(...[...asking.values()].map((card) => card.node));
    this.jumpText.data = approvals.length > 0 ? "A tool waits for you" : "Newest";
    if (app.loading) keep("loading", null, () => activity([]));
    const compaction = snapshot?.compaction;
    if (compaction) {
      const cancel = app.readOnly ? null : () => void app.context.cancel(compaction.jobId);
      keep("compaction", compaction, () => compactionLine(compaction, cancel));
    }
    const held = compaction ? null : snapshot?.held;
    if (held) {
      const discard = app.readOnly ? null : () => void app.context.cancel(held.jobId);
      keep("held", JSON.stringify([held.jobId, held.compactAtTokens, app.readOnly]), () => heldLine(held, discard));
    }
    const ended = snapshot?.turn ? null : snapshot?.lastTurn;
    if (ended) keep("ended", ended, () => endedRow(ended, app.readOnly ? null : () => void app.retry()));
    const sending = app.sending.shown;
    const elsewhere = snapshot && !app.moves.busy && sending.length === 0 ? app.tree.continuations(snapshot.leafId) : [];
    if (snapshot && elsewhere.length > 0) {
      const key = JSON.stringify([elsewhere, app.readOnly]);
      keep("elsewhere", key, () => this.elsewhereRow(elsewhere));
    }
    const queue = snapshot?.queue ?? [];
    for (const item of queue) {
      const mayEdit = !app.readOnly && app.can("edit_queue");
      const maySteer = app.can("steer") && Boolean(snapshot?.turn);
      const row = JSON.stringify([queue.map((other) => other.commandId), item.steer, mayEdit, maySteer]);
      if (isShown(item)) keep(item.commandId, row, () => queueRow(item, queue, { moves: app.moves, mayEdit, maySteer }));
    }
    for (const { number, content } of sending) {
      keep(`sending-${number}`, content, () => waiting(userMessage(content), "Sending…"));
    }
    this.made = made;
    const focused = document.activeElement?.closest("#tail > li");
    const wasAsked = focused?.hasAttribute("data-approval") ?? false;
    const wanted = new Set(rows);
    for (const row of [...this.tail.children]) if (!wanted.has(/** @type {HTMLElement} */ (row))) row.remove();
    // Do not touch a row that is already in place: moving it would end a selection in it.
    rows.forEach((row, index) => {
      const there = this.tail.children[index] ?? null;
      if (there !== row) this.tail.insertBefore(row, there);
    });
    if (focused && !focused.isConnected) {
      const [next] = asking.values();
      if (next) next.node.focus();
      else if (wasAsked) this.actions.write();
      else this.scroller.focus({ preventScroll: true });
    } else if (fresh.length > 0) this.actions.asks(fresh[0]);
  }

  /**
   * Says that the chat was continued from here before.
   * @param {string[]} heads the first message of each of those branches, newest last
   */
  elsewhereRow(heads) {
    const { app, actions } = this;
    const newest = heads[heads.length - 1];
    const text = heads.length === 1 ? "The chat went on from here before." : `The chat went on from here in ${heads.length} ways before.`;
    return el("li", { class: "note elsewhere" },
      el("span", {}, `${text} What you say now begins another branch.`),
      el("span", { class: "row-actions" },
        !app.readOnly && el("button", { type: "button", class: "button small", onclick: () => actions.switchTo(newest, heads.length - 1, heads.length) }, heads.length > 1 ? "Go back to the newest" : "Go back to it"),
        heads.length > 1 && el("button", { type: "button", class: "button small", onclick: () => actions.showTree() }, "Show the tree")));
  }

  /**
   * Brings an entry into view if it is on the path.
   * @param {string} entryId
   */
  reveal(entryId) {
    const isNear = this.rows.has(entryId);
    if (!this.stretch.include(this.entries, entryId)) return false;
    this.follow.on = false;
    this.renderRows();
    this.showEnds();
    const row = this.rows.get(entryId);
    if (!row) return false;
    // A long way would take a second or more.
    const isSmooth = isNear && !matchMedia("(prefers-reduced-motion: reduce)").matches;
    row.scrollIntoView({ block: "center", behavior: isSmooth ? "smooth" : "auto" });
    row.classList.add("found");
    setTimeout(() => row.classList.remove("found"), FOUND_MS);
    return true;
  }

  /**
   * Draws all known rows, for printing, or a stretch of them again.
   * @param {boolean} isAll
   */
  drawAll(isAll) {
    this.stretch.isAll = isAll;
    if (isAll) this.stretch.reset();
    // What has just been loaded may not be drawn yet.
    this.render();
    this.renderRows();
    this.renderTraces(this.app.snapshot);
    this.showEnds();
  }

  /**
   * Scrolls by most of the view's height.
   * @param {-1 | 1} by
   */
  page(by) {
    if (by < 0) this.follow.stop();
    this.scroller.scrollBy({ top: by * this.scroller.clientHeight * PAGE_SHARE });
  }

  toEnd() {
    this.stretch.reset();
    this.follow.on = true;
    this.renderRows();
    this.showEnds();
    this.follow.start();
  }
}

/**
 * Renders what had arrived of an aborted answer.
 * @param {ItemView} view
 * @param {import("./client.js").Item} item
 */
function lostRow(view, item) {
  view.update(item);
  view.node.setAttribute("data-trace", "true");
  return view.node;
}

/**
 * Renders the activity indicator with the names of the awaited tools.
 * @param {Snapshot["pending"]} pending
 */
function activity(pending) {
  const names = pending.map((call) => (call.message ? `${call.name} (${call.message})` : call.name)).join(", ");
  return el("li", { class: "activity" }, pulse(), el("span", {}, names ? `Waiting for ${names}` : "Working…"));
}

/**
 * Returns true if the chat can continue from the entry, that is, no tool call is open there.
 * @param {import("./message.js").MessageEntry | import("./message.js").CustomEntry} entry
 */
function isWhole(entry) {
  return entry.type === "custom_message" || (entry.role !== "tool" && !entry.content.some((part) => part.type === "tool_call"));
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
