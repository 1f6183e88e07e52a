/**
 * What became of each message in a compaction: kept word for word, quoted, shortened, or part of the summary. Each is a
 * link to the message, which stays in the chat in any case.
 *
 * @typedef {import("reseed-protocol").Entry} Entry
 * @typedef {import("./compaction.js").CompactionEntry} CompactionEntry
 *
 * @typedef {object} Outcome
 * @property {string[]} summarised entries that the model sees only as part of the summary
 * @property {string[]} quoted messages of the user's that the summary quotes word for word
 * @property {string[]} kept entries that it still sees word for word
 * @property {string[]} shortened those of them whose tool results were cut to their beginning
 * @property {boolean} isWhole whether everything that the model had seen is known
 */

import { el, number } from "./dom.js";

/** Messages listed at once, the newest ones. */
const SHOWN_MAX = 30;

/** @type {Record<string, string>} */
const WHO = { "message:user": "You", "message:assistant": "Answer", "message:tool": "Tool result", compaction: "Earlier summary", branch_summary: "Branch summary" };

/**
 * Says what became of the entries that the model saw before a compaction.
 * @param {CompactionEntry} compaction
 * @param {readonly Entry[]} path the known part of the path, oldest first
 * @param {object} known
 * @param {readonly string[]} known.undone compactions that were undone
 * @param {boolean} known.more whether the path has entries before these
 * @returns {Outcome}
 */
export function outcomeOf(compaction, path, { undone, more }) {
  const at = path.findIndex((entry) => entry.entryId === compaction.entryId);
  const before = path.slice(0, Math.max(0, at));
  const base = before.findLast((entry) => entry.type === "compaction" && !undone.includes(entry.entryId));
  const last = base?.type === "compaction" ? base : null;
  const seen = before.filter(tailOf(last, before)).filter(speaks);
  const stays = tailOf(compaction, before);
  const isSummarised = compaction.summary !== "";
  const kept = seen.filter((entry) => !isSummarised || stays(entry)).map((entry) => entry.entryId);
  const gone = seen.filter((entry) => isSummarised && !stays(entry)).map((entry) => entry.entryId);
  const shortened = new Set(compaction.clearedEntryIds ?? []);
  const quoted = new Set(compaction.segments?.flatMap(({ said = [] }) => said.map(({ entryId }) => entryId)));
  return {
    summarised: [...(last && isSummarised ? [last.entryId] : []), ...gone.filter((entryId) => !quoted.has(entryId))],
    quoted: gone.filter((entryId) => quoted.has(entryId)),
    kept: kept.filter((entryId) => !shortened.has(entryId)),
    shortened: kept.filter((entryId) => shortened.has(entryId)),
    isWhole: !more || last !== null,
  };
}

/**
 * Returns a test for the entries that are visible word for word after a compaction.
 * @param {CompactionEntry | null} compaction
 * @param {readonly Entry[]} path
 */
function tailOf(compaction, path) {
  const single = new Set(compaction?.keptEntryIds ?? []);
  const first = compaction?.firstKeptEntryId === undefined ? -1 : path.findIndex((entry) => entry.entryId === compaction.firstKeptEntryId);
  // Without a first kept entry, what follows the compaction is visible.
  const from = first >= 0 ? first : compaction ? path.findIndex((entry) => entry.entryId === compaction.entryId) : 0;
  const start = from < 0 ? path.length : from;
  const places = new Map(path.map((entry, index) => [entry.entryId, index]));
  return (/** @type {Entry} */ { entryId }) => single.has(entryId) || (places.get(entryId) ?? -1) >= start;
}

/** @param {Entry} entry */
function speaks({ type }) {
  return type === "message" || type === "custom_message" || type === "branch_summary";
}

/**
 * Builds the lists below a summary.
 * @param {import("./app.js").App} app
 * @param {CompactionEntry} compaction
 * @param {(entryId: string) => void} onReveal brings a message into view
 */
export function becameView(app, compaction, onReveal) {
  const root = el("div", { class: "became" });
  const link = (/** @type {string} */ entryId) => {
    const node = app.tree.nodes.get(entryId);
    return el("li", {}, el("button", { type: "button", class: "button quiet small", onclick: () => onReveal(entryId) },
      el("b", {}, WHO[node?.type ?? ""] ?? "Note"), el("span", { class: "what", dir: "auto" }, node?.preview ?? "")));
  };
  const list = (/** @type {string} */ title, /** @type {string[]} */ entryIds) => {
    if (entryIds.length === 0) return [];
    const rest = entryIds.length - SHOWN_MAX;
    const items = el("ul", {}, entryIds.slice(-SHOWN_MAX).map(link));
    const all = rest > 0 && el("button", { type: "button", class: "button small", onclick: () => {
      items.replaceChildren(...entryIds.map(link));
      items.querySelector("button")?.focus();
      if (all) all.remove();
    } }, `Show ${number(rest)} earlier ones`);
    return [el("h3", {}, `${title}: ${number(entryIds.length)}`), all, items];
  };
  const render = () => {
    const { snapshot } = app;
    if (!snapshot) return;
    const { summarised, quoted, kept, shortened, isWhole } = outcomeOf(compaction, snapshot.path.entries, { undone: snapshot.undone, more: snapshot.path.more });
    const more = el("button", { type: "button", class: "button small", onclick: async () => {
      more.disabled = true;
      await app.open?.loadOlder();
      render();
    } }, "Load earlier messages");
    root.replaceChildren(...[
      ...list("Kept word for word", kept), ...list("Tool results shortened", shortened),
      ...list("Quoted word for word in the summary", quoted), ...list("Summarised", summarised),
      !isWhole && el("p", { class: "hint" }, "Earlier messages are not loaded. ", more),
    ].filter((node) => node instanceof HTMLElement));
  };
  render();
  return root;
}
