/**
 * Describes in words how a compaction went. Pure.
 *
 * @typedef {import("reseed-protocol").CompactionRung} Rung
 * @typedef {import("reseed-protocol").FailedRung} FailedRung
 *
 * @typedef {object} Told What a report and a preview have in common.
 * @property {Rung} rung
 * @property {FailedRung[]} [failedRungs]
 * @property {import("reseed-protocol").Usage} [summaryUsage]
 */

import { dollars } from "./cache.js";
import { number } from "./dom.js";

/** @type {Record<Rung, string>} */
const RUNGS = {
  clear_tool_results: "old tool results were cut to their beginning",
  model_summary: "a summary by the model",
  chunked_summary: "a summary by the model, piece by piece",
  extract: "an extract by rule, without the model",
  truncate: "the oldest messages were left out",
  hook_summary: "a summary by a hook",
  provider_native: "the model provider's own compaction, and a summary",
};

/** @type {Record<string, string>} */
const REASONS = {
  too_little: "it would have made too little room",
  not_smaller: "it would have been no smaller",
  empty: "it came back empty",
  truncated: "it broke off",
  refused: "the model refused",
  malformed: "it lacked what a summary must have",
  timeout: "it took too long",
  context_overflow: "it was too much for the model at once",
};

/**
 * Describes the compaction step that was used.
 * @param {Rung} rung
 */
export function rungText(rung) {
  return RUNGS[rung] ?? rung;
}

/**
 * Describes a compaction step that failed or saved too little, and why.
 * @param {FailedRung} failed
 */
export function failedText({ rung, reason }) {
  return `${rungText(rung)} (${REASONS[reason] ?? reason})`;
}

/**
 * Returns the facts that a report and a preview have in common.
 * @param {Told} told
 * @returns {string[]}
 */
export function toldFacts({ rung, failedRungs = [], summaryUsage }) {
  const facts = [`How: ${rungText(rung)}`];
  if (failedRungs.length > 0) facts.push(`Tried before: ${failedRungs.map(failedText).join("; ")}`);
  if (summaryUsage) {
    const { inputTokens, outputTokens, costNanoUsd } = summaryUsage;
    const paid = costNanoUsd === undefined ? "" : `, ${dollars(costNanoUsd)}`;
    facts.push(`Cost: ${number(inputTokens)} tokens in, ${number(outputTokens)} out${paid}`);
  }
  return facts;
}

/**
 * Says by what percentage something shrank; empty if that is meaningless.
 * @param {number} before
 * @param {number | undefined} after
 */
export function changeText(before, after) {
  if (after === undefined || before === 0) return "";
  const percent = Math.round((1 - after / before) * 100);
  return percent < 0 ? ` (+${-percent} %)` : ` (−${percent} %)`;
}

/**
 * Says why automatic compaction is paused and what resumes it.
 * @param {import("reseed-protocol").Breaker} breaker
 * @param {(time: string) => string} clock formats a time of day
 */
export function breakerText({ reason, failures, retryAt, retryAboveTokens, message }, clock) {
  const again = retryAt !== undefined
    ? `It is tried again at ${clock(retryAt)}.`
    : retryAboveTokens === undefined ? "" : `It is tried again above ${number(retryAboveTokens)} tokens.`;
  switch (reason) {
    case "failures": return `Automatic compaction rests: the last ${failures} failed. ${again}`.trim();
    case "no_gain": return `Automatic compaction rests: the last ${failures} made too little room. ${again}`.trim();
    case "undone": return `A compaction was undone, so what came back is left alone. ${again}`.trim();
    default: return message;
  }
}
