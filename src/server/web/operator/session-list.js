/**
 * The columns of the list of sessions, its filters and its order. Pure.
 *
 * @typedef {import("./session-store.js").Item} Item
 *
 * @typedef {object} Column
 * @property {string} key
 * @property {string} title
 * @property {(item: Item) => number | string} of what it is sorted by
 * @property {boolean} [isDown] whether it begins with the largest
 *
 * @typedef {object} Filter
 * @property {string} text part of an id, a name, a user, a model or a node
 * @property {string} user
 * @property {string} model
 * @property {string} state a key of `STATES`, or empty
 */

/** @type {Column[]} */
export const COLUMNS = [
  { key: "name", title: "Session", of: (item) => (item.name || item.sessionId).toLowerCase() },
  { key: "fullness", title: "Context", of: (item) => item.usageRatio, isDown: true },
  { key: "state", title: "State", of: (item) => stateRank(item), isDown: true },
  { key: "user", title: "User", of: (item) => item.owner.toLowerCase() },
  { key: "model", title: "Model", of: (item) => (item.model ?? LAST).toLowerCase() },
  { key: "strategy", title: "Strategy", of: (item) => item.strategy ?? LAST },
  { key: "compaction", title: "Last compaction", of: (item) => item.compaction?.last?.at ?? "", isDown: true },
  { key: "cost", title: "Cost", of: (item) => item.costNanoUsd ?? -1, isDown: true },
  { key: "updated", title: "Changed", of: (item) => item.updatedAt, isDown: true },
];

/** A text that sorts after every name. */
const LAST = "\uffff";

/** @type {Record<string, { title: string, has: (item: Item) => boolean }>} */
export const STATES = {
  open: { title: "In memory", has: (item) => item.open },
  running: { title: "Answering", has: (item) => item.state === "running" },
  compacting: { title: "Compacting", has: (item) => item.state === "compacting" },
  rests: { title: "Breaker open (in memory)", has: (item) => item.compaction?.rests !== undefined },
  failed: { title: "Compaction failed (in memory)", has: (item) => isFailed(item.compaction?.last?.outcome) },
};

/** @param {string | undefined} outcome of a compaction */
export function isFailed(outcome) {
  return outcome === "failed" || outcome === "no_gain";
}

/** @param {Item} item */
function stateRank(item) {
  return item.state === "compacting" ? 4 : item.state === "running" ? 3 : item.compaction?.rests ? 2 : item.open ? 1 : 0;
}

/**
 * Returns the sessions to list, in order.
 * @param {Iterable<Item>} items
 * @param {Filter} filter
 * @param {{ by: string, isDown: boolean }} order
 */
export function arranged(items, { text, user, model, state }, { by, isDown }) {
  const words = text.trim().toLowerCase();
  const column = COLUMNS.find(({ key }) => key === by) ?? COLUMNS[COLUMNS.length - 1];
  const has = STATES[state]?.has;
  /** @type {{ item: Item, value: number | string }[]} */
  const rows = [];
  for (const item of items) {
    if ((user !== "" && item.owner !== user) || (model !== "" && item.model !== model) || (has && !has(item))) continue;
    if (words !== "" && !`${item.sessionId} ${item.name} ${item.owner} ${item.model ?? ""} ${item.node ?? ""}`.toLowerCase().includes(words)) continue;
    // The value is computed once, because a comparison needs it a dozen times.
    rows.push({ item, value: column.of(item) });
  }
  const up = isDown ? -1 : 1;
  rows.sort((one, other) => {
    if (one.value !== other.value) return one.value < other.value ? -up : up;
    return one.item.updatedAt < other.item.updatedAt ? 1 : one.item.updatedAt > other.item.updatedAt ? -1 : 0;
  });
  return rows.map(({ item }) => item);
}

/**
 * Returns the values of a field, sorted.
 * @param {Iterable<Item>} items
 * @param {"owner" | "model"} field
 */
export function valuesOf(items, field) {
  const values = new Set();
  for (const item of items) if (item[field]) values.add(item[field]);
  return /** @type {string[]} */ ([...values].sort());
}

/**
 * Returns which rows of equal height have an element: those in view, and some on either side.
 * @param {{ top: number, height: number, row: number, count: number }} view `top` is how far the list is scrolled up
 */
export function rowsInView({ top, height, row, count }) {
  const from = Math.max(0, Math.floor(top / row) - ROWS_AROUND);
  const to = Math.min(count, Math.ceil((top + height) / row) + ROWS_AROUND);
  return { from: Math.min(from, Math.max(0, to)), to: Math.max(0, to) };
}

/** Rows drawn above and below the view, so that scrolling and the Tab key find the next one. */
const ROWS_AROUND = 8;

/**
 * Counts the sessions, and those in each of `STATES`.
 * @param {Iterable<Item>} items
 */
export function countsOf(items) {
  /** @type {Record<string, number>} */
  const counts = { sessions: 0, ...Object.fromEntries(Object.keys(STATES).map((state) => [state, 0])) };
  for (const item of items) {
    counts.sessions += 1;
    for (const [state, { has }] of Object.entries(STATES)) if (has(item)) counts[state] += 1;
  }
  return counts;
}
