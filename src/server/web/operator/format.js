/** Numbers, states and outcomes in words. Pure. */

const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

const DOLLAR = 1e9;
/** Nanodollars below which an amount is only called small. */
const SMALL = 100_000;

/**
 * Formats a count in little space: `1.2M`.
 * @param {number} count
 */
export function count(count) {
  return COMPACT.format(count);
}

/**
 * Formats an amount of money.
 * @param {number} nanoUsd
 */
export function money(nanoUsd) {
  if (nanoUsd === 0) return "$0";
  if (nanoUsd < SMALL) return "<$0.0001";
  const digits = nanoUsd < DOLLAR ? { minimumFractionDigits: 2, maximumFractionDigits: 4 } : { minimumFractionDigits: 2, maximumFractionDigits: 2 };
  return `$${(nanoUsd / DOLLAR).toLocaleString("en", digits)}`;
}

/**
 * Returns what requests cost, in nanodollars.
 * @param {{ costNanoUsd?: number, estimatedCostNanoUsd?: number }} sum
 */
export function costOf({ costNanoUsd = 0, estimatedCostNanoUsd = 0 }) {
  return costNanoUsd + estimatedCostNanoUsd;
}

/**
 * Formats a day and a time.
 * @param {string} time RFC 3339
 */
export function when(time) {
  return new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/**
 * Says what a session is doing.
 * @param {{ state: string, open: boolean }} item
 */
export function stateText({ state, open }) {
  return state === "running" ? "answering" : state === "compacting" ? "compacting" : open ? "idle" : "stored";
}

/** @type {Record<string, string>} */
const OUTCOMES = { failed: "failed", no_gain: "saved too little", cancelled: "cancelled", void: "void: the context changed" };

/**
 * Says how a compaction ended.
 * @param {import("./session-store.js").LastCompaction} last
 */
export function outcomeText({ outcome, reductionPercent, code }) {
  if (outcome === "committed") return reductionPercent === undefined ? "done" : `−${Math.round(reductionPercent)} %`;
  return `${OUTCOMES[outcome] ?? outcome}${code && outcome === "failed" ? ` (${code})` : ""}`;
}

/** @type {Record<string, string>} */
const BREAKERS = { failures: "compactions failed", no_gain: "compactions saved too little", undone: "a compaction was undone" };

/**
 * Says why a circuit breaker is open.
 * @param {string} reason
 */
export function breakerReason(reason) {
  return BREAKERS[reason] ?? reason;
}
