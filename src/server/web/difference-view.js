/** Renders a compaction preview for review: how much smaller, what goes, what stays, and the summary. */

import { difference, ends } from "./difference.js";
import { el, icon, number, styled } from "./dom.js";
import { markdown } from "./markdown.js";
import { changeText, toldFacts } from "./report.js";
import { inEffect, pinOf } from "./snapshot.js";
import { untagged } from "./tree.js";

/**
 * @typedef {import("./difference.js").Row} Row
 * @typedef {import("./difference.js").Gap} Gap
 * @typedef {import("reseed-protocol").CompactionPreview} CompactionPreview
 */

/** @type {Record<Row["who"], string>} */
const WHO = { summary: "Summary", user: "You", assistant: "Answer", tool: "Tool" };

/** @type {Record<Row["fate"], string>} */
const FATES = { goes: "goes", stays: "stays", shortened: "shortened" };

/**
 * @param {CompactionPreview} preview
 * @param {import("reseed-protocol").ContextMessage[] | null} messages what the model sees now; null if it could not be
 * loaded
 * @param {import("./app.js").App} app
 */
export function previewView(preview, messages, app) {
  const { snapshot } = app;
  const { tokensBefore: before, tokensAfter: after, dropped, kept } = preview;
  const isSummary = (/** @type {string} */ id) => snapshot?.entries.get(id)?.type === "compaction" || app.tree.nodes.get(id)?.type === "compaction";
  const compared = messages && snapshot && difference(messages, preview, {
    isSummary,
    isPinned: (id) => pinOf(snapshot, id) !== null,
    cleared: inEffect(snapshot)?.clearedEntryIds ?? [],
  });
  const shortened = compared ? compared.then.filter(({ fate }) => fate === "shortened").length : 0;
  const facts = [
    `Goes: ${count(dropped)}`, `Stays: ${count(kept)}`, ...(shortened > 0 ? [`Shortened: ${number(shortened)} of them`] : []), ...toldFacts(preview),
  ];
  const head = [
    el("p", { class: "sum" }, el("b", {}, number(before)), " → ", el("b", {}, number(after)), ` tokens${changeText(before, after)}`),
    bars(before, after),
    el("div", { class: "facts" }, ...facts.map((fact) => el("span", {}, fact))),
  ];
  if (!compared) {
    return [...head, el("p", { class: "hint" }, "What the model sees now could not be shown."), column("Then", preview.summary, [])];
  }
  const summary = preview.rung === "clear_tool_results" ? "" : preview.summary;
  return [
    ...head,
    el("div", { class: "difference" }, column("The model sees now", "", ends(compared.now)), column("It would see", summary, ends(compared.then.map(asThen)))),
  ];
}

/** @param {import("reseed-protocol").Stretch} stretch */
function count({ count: messages, tokens }) {
  return `${number(messages)} ${messages === 1 ? "message" : "messages"}, ${number(tokens)} tokens`;
}

/**
 * @param {Row} row
 * @returns {Row}
 */
function asThen(row) {
  return row.fate === "shortened" ? { ...row, text: "Only its beginning, and a note that it was cut" } : row;
}

/**
 * Shows at a glance how much smaller the context would be.
 * @param {number} before
 * @param {number} after
 */
function bars(before, after) {
  const whole = Math.max(before, after, 1);
  const bar = (/** @type {string} */ kind, /** @type {number} */ tokens) => styled(el("span", { class: kind }), { "--share": `${(tokens / whole) * 100}%` });
  return el("div", { class: "now-then", "aria-hidden": "true" }, bar("now", before), bar("then", after));
}

/**
 * @param {string} title
 * @param {string} summary the new summary, shown first; empty if there is none
 * @param {(Row | Gap)[]} rows
 */
function column(title, summary, rows) {
  const first = summary !== "" && el("li", { class: "new" },
    el("span", { class: "who" }, "New summary", el("span", { class: "fate" }, "new")), el("div", { class: "text" }, markdown(untagged(summary))));
  return el("section", { class: "side", "aria-label": title },
    el("h4", {}, title),
    el("ol", { tabindex: 0, "aria-label": title }, first, ...rows.map(rowView)));
}

/** @param {Row | Gap} row */
function rowView(row) {
  if ("skipped" in row) return el("li", { class: "gap" }, `${number(row.skipped)} more between these`);
  const { who, text, fate, pinned } = row;
  return el("li", { class: fate },
    el("span", { class: "who" }, WHO[who], pinned && icon("pin"), pinned && el("span", { class: "visually-hidden" }, "pinned"), el("span", { class: "fate" }, FATES[fate])),
    el("div", { class: "text", dir: "auto" }, text));
}
