/** What every client may rely on in `context_info` and `context_compacted`, in both dialects. */

/** Numbers of `context_info` that a client may format without checking them first. */
const NUMBERS = [
  "tokenCount", "transcriptLength", "maxTokens", "usageRatio", "usageTokens", "trailingTokens",
  "errorBoundTokens", "reservedTokens", "cachedTokens", "generation", "compactions",
];

/** v1 has its own names for strategies and for a few fields. */
const isV1 = (strategy) => strategy.endsWith("ContextManager");

/** Checks a `context_info` payload for a strategy with this name. */
export function checkInfo(wire, info, strategy) {
  for (const name of NUMBERS) wire.expect(Number.isFinite(info[name]), `\`${name}\` should be a number, is ${info[name]}`);
  wire.expect(info.usageRatio >= 0, `usageRatio is ${info.usageRatio}`);
  const percent = isV1(strategy) ? Math.min(100, info.usageRatio * 100) : undefined;
  const isRight = percent === undefined ? !("usagePercent" in info) : Math.abs(info.usagePercent - percent) < 0.01;
  wire.expect(isRight, `usagePercent is ${info.usagePercent} where the ratio is ${info.usageRatio}`);
  wire.same(info.strategy, strategy, "the strategy");
  const parts = Object.values(info.breakdown).reduce((sum, tokens) => sum + tokens, 0);
  wire.same(parts, info.tokenCount, "the sum of the breakdown");
}

/** Checks a `context_compacted` payload. */
export function checkCompacted(wire, compacted, trigger, strategy) {
  const [before, after] = isV1(strategy) ? ["oldTokenCount", "newTokenCount"] : ["tokensBefore", "tokensAfter"];
  const { [before]: tokensBefore, [after]: tokensAfter, reductionPercent } = compacted;
  wire.expect(tokensAfter > 0 && tokensAfter < tokensBefore, `${tokensBefore} tokens became ${tokensAfter}`);
  const reduction = 100 * (1 - tokensAfter / tokensBefore);
  wire.expect(Math.abs(reductionPercent - reduction) < 0.1, `reductionPercent is ${reductionPercent}, not ${reduction}`);
  wire.same([compacted.trigger, compacted.strategy], [trigger, strategy], "trigger and strategy");
  wire.expect(compacted.summary.startsWith("What the user said, word for word:\n"), "the summary begins with the user's words");
  wire.expect(compacted.summary.includes("\nWhat was answered and done:\n"), "the summary says what was done");
}
