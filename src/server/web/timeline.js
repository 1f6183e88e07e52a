/**
 * The requests of a branch in order, as its entries report them: how large each was, how much of it came from the
 * provider's cache, what it cost, and which compactions lay between. Pure.
 *
 * @typedef {import("reseed-protocol").Entry} Entry
 * @typedef {import("./message.js").MessageEntry} MessageEntry
 *
 * @typedef {object} Request
 * @property {MessageEntry} answer
 * @property {number} sent tokens
 * @property {number} cached those of them that came from the provider's cache
 * @property {number} shared those that were as in the request before, but not in the cache
 *
 * @typedef {object} Timeline
 * @property {Request[]} requests
 * @property {{ at: number, entry: import("./compaction.js").CompactionEntry }[]} compactions each with the number of
 * requests before it
 * @property {number} costNanoUsd the known cost
 * @property {number} unpriced requests of unknown cost
 */

/**
 * @param {readonly Entry[]} entries a branch, oldest first
 * @returns {Timeline}
 */
export function timelineOf(entries) {
  /** @type {Timeline} */
  const timeline = { requests: [], compactions: [], costNanoUsd: 0, unpriced: 0 };
  for (const entry of entries) {
    if (entry.type === "compaction") timeline.compactions.push({ at: timeline.requests.length, entry });
    if (entry.type !== "message" || entry.role !== "assistant" || !entry.usage) continue;
    const { inputTokens: sent, cachedTokens, prefixTokens = 0, costNanoUsd } = entry.usage;
    const cached = Math.min(sent, cachedTokens);
    timeline.requests.push({ answer: entry, sent, cached, shared: Math.max(0, Math.min(prefixTokens, sent) - cached) });
    if (costNanoUsd === undefined) timeline.unpriced += 1;
    else timeline.costNanoUsd += costNanoUsd;
  }
  return timeline;
}
