/**
 * Compactions in the chat: the row that reports one and offers to undo it, and the line shown while one runs.
 *
 * @typedef {import("reseed-protocol").Entry} Entry
 * @typedef {Extract<Entry, { type: "compaction" }>} CompactionEntry
 */

import { SUMMARISING_BRANCH } from "./client.js";
import { el, icon, number, span } from "./dom.js";
import { markdown } from "./markdown.js";
import { changeText, toldFacts } from "./report.js";
import { inEffect } from "./snapshot.js";
import { untagged } from "./tree.js";

/** @type {Record<string, string>} */
const TRIGGERS = {
  manual: "asked for",
  threshold: "the window was nearly full",
  overflow: "the provider refused the request as too large",
  strategy: "chosen by the strategy",
};

/** The row of a finished compaction. Its entry never changes, its state does. */
export class CompactionRow {
  /**
   * @param {import("./app.js").App} app
   * @param {CompactionEntry} entry
   * @param {(entryId: string) => void} onReveal brings a message into view
   */
  constructor(app, entry, onReveal) {
    this.app = app;
    this.entry = entry;
    /** @type {unknown[]} inputs of the last render */
    this.shown = [];
    this.facts = el("div", { class: "facts" });
    this.foot = el("div", { class: "undo-row" });
    const inside = el("div", { class: "inside" }, this.facts, entry.summary === "" ? null : markdown(untagged(entry.summary)));
    const details = el("details", {}, el("summary", {}, headline(entry)), inside);
    details.addEventListener("toggle", async () => {
      if (!details.open || inside.querySelector(".became")) return;
      const part = await app.part(async () => await import("./became.js"));
      if (part && !inside.querySelector(".became")) inside.append(part.becameView(app, entry, onReveal));
    });
    this.node = el("li", { class: "compaction", "data-entry": entry.entryId }, details, this.foot);
  }

  render() {
    const { app, entry } = this;
    const { snapshot } = app;
    if (!snapshot) return;
    const report = app.open?.reports.get(entry.entryId);
    const isUndone = snapshot.undone.includes(entry.entryId);
    const mayUndo = !isUndone && !app.readOnly && app.can("undo") && inEffect(snapshot)?.entryId === entry.entryId;
    const of = [report, isUndone, mayUndo, app.moves.busy];
    if (of.every((part, index) => part === this.shown[index]) && this.shown.length > 0) return;
    this.shown = of;
    this.facts.replaceChildren(...facts(entry, report).map((fact) => el("span", {}, fact)));
    this.node.classList.toggle("undone", isUndone);
    const hadFocus = this.foot.contains(document.activeElement);
    const undo = el("button", { type: "button", class: "button quiet small", onclick: () => void app.context.undo(entry.entryId) }, icon("undo"), "Undo");
    undo.disabled = app.moves.busy;
    undo.title = app.moves.busy ? "It can be undone when nothing is at work" : "The model sees again what was said before; what was said since stays";
    this.foot.replaceChildren(...(isUndone ? [el("span", { class: "mark" }, "Undone: the model sees what was said before it")] : mayUndo ? [undo] : []));
    if (hadFocus) (mayUndo ? undo : this.node.querySelector("summary"))?.focus();
  }
}

/** @param {CompactionEntry} entry */
function headline({ tokensBefore: before, tokensAfter: after, summary, clearedEntryIds = [], hook }) {
  const cleared = summary === "" && clearedEntryIds.length > 0;
  return el("span", { class: "said" },
    cleared ? "Old tool results cleared · " : `Older messages summarised${hook ? ` with the hook “${hook}”` : ""} · `,
    el("b", {}, number(before)),
    after === undefined ? " tokens before" : " → ",
    after !== undefined && el("b", {}, number(after)),
    after !== undefined && " tokens",
    changeText(before, after),
    " · ",
    el("u", {}, cleared ? "details" : "summary"));
}

/**
 * @param {CompactionEntry} entry
 * @param {import("reseed-protocol").ContextCompacted | undefined} report how it went, if this page saw it happen
 * @returns {string[]}
 */
function facts(entry, report) {
  const { trigger, durationMs, timestamp, details, keptEntryIds = [], clearedEntryIds = [], rung } = entry;
  const list = [];
  if (trigger) list.push(`Why: ${TRIGGERS[trigger] ?? trigger}`);
  // The entry stores the same facts as the report, so they survive a reload.
  if (report) list.push(...toldFacts(report));
  else if (rung) list.push(...toldFacts({ ...entry, rung }));
  if (durationMs !== undefined) list.push(`Took ${span(durationMs)}`);
  if (report) list.push(report.pausedMs > 0 ? `You waited ${span(report.pausedMs)}` : "Nobody waited");
  if (report?.background) list.push("Made while you talked");
  if (report && report.cachedTokensLost > 0) list.push(`To be read anew by the provider: ${number(report.cachedTokensLost)} tokens`);
  if (keptEntryIds.length > 0) list.push(`Kept word for word among the older: ${keptEntryIds.length}`);
  if (clearedEntryIds.length > 0) list.push(`Tool results cleared: ${clearedEntryIds.length}`);
  list.push(`At ${new Date(timestamp).toLocaleString()}`);
  if (details && details.readFiles.length > 0) list.push(`Files read: ${details.readFiles.join(", ")}`);
  if (details && details.modifiedFiles.length > 0) list.push(`Files changed: ${details.modifiedFiles.join(", ")}`);
  return list;
}

/**
 * Renders the line for a summary that is ready but not yet due.
 * @param {import("reseed-protocol").CompactionPrepared} held
 * @param {(() => void) | null} discard null if this window may not discard it
 */
export function heldLine({ compactAtTokens }, discard) {
  const when = compactAtTokens === undefined ? "when room is needed" : `above ${number(compactAtTokens)} tokens`;
  return el("li", { class: "activity aside", "data-held": "" },
    el("span", { class: "grow" }, `A summary of older messages is ready. It is used ${when}.`),
    discard && el("button", { type: "button", class: "button quiet small", onclick: discard }, "Discard"));
}

/**
 * Renders the line for a running compaction: unobtrusive while turns continue beside it.
 * @param {import("./client.js").CompactionJob} compaction
 * @param {(() => void) | null} cancel null if this window may not cancel it
 */
export function compactionLine({ phase, done, total, background }, cancel) {
  const steps = done !== undefined && total !== undefined && total > 1 ? { done, total } : null;
  const what = background
    ? phase === "ready" ? "A summary is ready for when the answer is done" : "Preparing a summary while you talk"
    : phase === SUMMARISING_BRANCH ? "Summarising the branch that is left" : "Summarising older messages";
  return el("li", { class: `activity ${background ? "aside" : "wide"}`, "data-running": background ? "background" : "compaction" },
    el("span", { class: "grow" }, steps ? `${what}, ${steps.done} of ${steps.total}…` : `${what}…`),
    !background && el("progress", { "aria-label": "Summarising", value: steps?.done, max: steps?.total }),
    cancel && el("button", { type: "button", class: background ? "button quiet small" : "button small", onclick: cancel }, "Cancel"));
}
