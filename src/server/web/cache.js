/**
 * Describes in words what the last request resent, what it cost and why its prefix broke. Pure.
 *
 * @typedef {import("reseed-protocol").PrefixBreak} PrefixBreak
 * @typedef {import("reseed-protocol").BreakReason} BreakReason
 * @typedef {import("reseed-protocol").Usage} Usage
 * @typedef {import("reseed-protocol").Entry & { type: "message" }} MessageEntry
 */

import { number } from "./dom.js";

/** Nanodollars per cent. */
const CENT = 10_000_000;

/** @type {Record<BreakReason, string>} */
const REASONS = {
  patch: "a patch changed it",
  compaction: "older messages were summarised",
  compaction_undone: "a compaction was undone",
  navigation: "the chat went on elsewhere",
  model: "another model is asked",
  tools: "other tools are on offer",
  instructions: "the instructions have changed",
  uncached: "what was added for one request is gone",
  strategy: "another strategy was chosen",
  pins: "what is pinned has changed",
  unknown: "something in it changes by itself",
};

/**
 * Formats an amount of money.
 * @param {number} nanoUsd
 */
export function dollars(nanoUsd) {
  return `$${(nanoUsd / 1e9).toFixed(nanoUsd < CENT ? 6 : 4)}`;
}

/**
 * Returns what a session has cost as far as known, or null if no cost is known.
 * @param {{ costNanoUsd?: number, unpricedRequests?: number }} session
 */
export function paidText({ costNanoUsd, unpricedRequests = 0 }) {
  if (costNanoUsd === undefined) return null;
  return unpricedRequests === 0 ? dollars(costNanoUsd) : `${dollars(costNanoUsd)} and ${number(unpricedRequests)} requests of unknown cost`;
}

/**
 * Returns the newest answer whose request is known, or null.
 * @param {readonly import("reseed-protocol").Entry[]} entries
 * @returns {(MessageEntry & { usage: Usage }) | null}
 */
export function lastAsked(entries) {
  const found = entries.findLast((entry) => entry.type === "message" && entry.role === "assistant" && entry.usage?.prefixTokens !== undefined);
  return found?.type === "message" && found.usage ? { ...found, usage: found.usage } : null;
}

/**
 * Says how much of a request had been sent before.
 * @param {Usage} usage
 */
export function sharedText({ inputTokens, prefixTokens = 0, cachedTokens }) {
  const cached = cachedTokens > 0 ? `, ${number(cachedTokens)} came from the provider’s cache` : "";
  return `Of ${number(inputTokens)} tokens sent, ${number(prefixTokens)} were as in the request before${cached}.`;
}

/**
 * Splits a request into cached, shared and fresh parts, each as a percentage of it.
 * @param {Usage} usage
 * @returns {{ kind: "cached" | "shared" | "fresh", share: number }[]}
 */
export function sharesOf({ inputTokens, prefixTokens = 0, cachedTokens }) {
  const sent = Math.max(1, inputTokens);
  const cached = Math.min(cachedTokens, sent);
  const shared = Math.max(0, Math.min(prefixTokens, sent) - cached);
  /** @type {{ kind: "cached" | "shared" | "fresh", share: number }[]} */
  const parts = [{ kind: "cached", share: cached }, { kind: "shared", share: shared }, { kind: "fresh", share: sent - cached - shared }];
  return parts.filter(({ share }) => share > 0).map(({ kind, share }) => ({ kind, share: (share / sent) * 100 }));
}

/** @type {Record<string, string>} */
const PARTS = { model: "the model", tools: "the tools", system: "the system prompt", messages: "the messages", input: "the system prompt or the messages", options: "an option" };

/**
 * Says what the provider found when it compared a request with the previous one.
 * @param {import("reseed-protocol").ProviderVerdict} provider
 */
export function verdictText({ verdict, part = "", agrees }) {
  if (verdict === "unknown") return "The provider could not compare them.";
  const found = verdict === "hit" ? "that nothing has changed" : `that ${PARTS[part] ?? part} changed`;
  return agrees === false ? `The provider disagrees: it says ${found}.` : `The provider says ${found}.`;
}

/**
 * Says where a request diverges from the previous one, and why.
 * @param {PrefixBreak} broke
 */
export function breakText({ part, reason, detail, lostTokens }) {
  const [kind, name] = part.split(/:(.*)/s);
  const where = kind === "system" ? `the system prompt’s part “${name}”` : kind === "model" ? "the model" : kind === "tools" ? "the tools" : "a message";
  const why = `${REASONS[reason] ?? reason}${detail ? ` (${detail})` : ""}`;
  return `It parts from that at ${where}: ${why}. ${number(lostTokens)} of its tokens are not sent again.`;
}
