/** What every client may rely on in `context_info` and `context_compacted`, in both dialects. */

/** Numbers of `context_info` that a client may format without looking at them first. */
const NUMBERS = [
  "tokenCount", "usagePercent", "transcriptLength", "maxTokens", "usageRatio", "usageTokens", "trailingTokens",
  "errorBoundTokens", "reservedTokens", "cachedTokens", "generation", "compactions",
];

/** Checks a `context_info` payload, whose strategy has this name. */
export function checkInfo(wire, info, strategy) {
  for (const name of NUMBERS) wire.expect(Number.isFinite(info[name]), `\`${name}\` should be a number, is ${info[name]}`);
  wire.expect(info.usagePercent >= 0 && info.usagePercent <= 100, `usagePercent is ${info.usagePercent}`);
  wire.same(info.strategy, strategy, "the strategy");
  const parts = Object.values(info.breakdown).reduce((sum, tokens) => sum + tokens, 0);
  wire.same(parts, info.tokenCount, "the sum of the breakdown");
}

/** Checks a `context_compacted` payload. */
export function checkCompacted(wire, compacted, trigger, strategy) {
  const { oldTokenCount, newTokenCount, reductionPercent } = compacted;
  wire.expect(newTokenCount > 0 && newTokenCount < oldTokenCount, `${oldTokenCount} tokens became ${newTokenCount}`);
  const reduction = 100 * (1 - newTokenCount / oldTokenCount);
  wire.expect(Math.abs(reductionPercent - reduction) < 0.1, `reductionPercent is ${reductionPercent}, not ${reduction}`);
  wire.same([compacted.trigger, compacted.strategy], [trigger, strategy], "trigger and strategy");
  wire.expect(compacted.summary.includes("## Goal"), "the summary has its sections");
}
