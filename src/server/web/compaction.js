/**
 * A compaction in the chat: the row that says what it did, and the line while it is running.
 *
 * @typedef {import("reseed-protocol").Entry} Entry
 * @typedef {Extract<Entry, { type: "compaction" }>} CompactionEntry
 */

import { el, number, span } from "./dom.js";
import { SUMMARISING_BRANCH } from "./fold.js";
import { markdown } from "./markdown.js";

/** @type {Record<string, string>} */
const TRIGGERS = {
  manual: "asked for",
  threshold: "the window was nearly full",
  overflow: "the provider refused the request as too large",
  strategy: "chosen by the strategy",
};

/**
 * The row of a compaction that was done.
 * @param {CompactionEntry} entry
 */
export function compactionRow(entry) {
  const { tokensBefore: before, tokensAfter: after, trigger, durationMs, details } = entry;
  const reduction = after === undefined || before === 0 ? null : Math.round((1 - after / before) * 100);
  const said = el("span", { class: "said" },
    "Older messages summarised · ",
    el("b", {}, number(before)),
    after === undefined ? " tokens before" : " → ",
    after !== undefined && el("b", {}, number(after)),
    after !== undefined && " tokens",
    reduction !== null && ` (−${reduction} %)`,
    " · ",
    el("u", {}, "summary"));
  const facts = [
    trigger && `Why: ${TRIGGERS[trigger] ?? trigger}`,
    durationMs !== undefined && `Took ${span(durationMs)}`,
    `At ${new Date(entry.timestamp).toLocaleString()}`,
    details && details.readFiles.length > 0 && `Files read: ${details.readFiles.join(", ")}`,
    details && details.modifiedFiles.length > 0 && `Files changed: ${details.modifiedFiles.join(", ")}`,
  ];
  const inside = el("div", { class: "inside" },
    el("div", { class: "facts" }, ...facts.filter(Boolean).map((fact) => el("span", {}, String(fact)))),
    markdown(entry.summary));
  return el("li", { class: "compaction", "data-entry": entry.entryId }, el("details", {}, el("summary", {}, said), inside));
}

/**
 * The line while one is running.
 * @param {import("./fold.js").RunningCompaction} compaction
 * @param {(() => void) | null} cancel null where this window may not
 */
export function compactionLine({ phase, done, total }, cancel) {
  const steps = done !== undefined && total !== undefined && total > 1 ? { done, total } : null;
  const what = phase === SUMMARISING_BRANCH ? "Summarising the branch that is left" : "Summarising older messages";
  return el("li", { class: "activity wide", "data-running": "compaction" },
    el("span", { class: "grow" }, steps ? `${what}, ${steps.done} of ${steps.total}…` : `${what}…`),
    el("progress", { "aria-label": "Summarising", value: steps?.done, max: steps?.total }),
    cancel && el("button", { type: "button", class: "button small", onclick: cancel }, "Cancel"));
}
