/** What the page says about the last request: how much of it had been sent before, and what it cost. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { breakText, dollars, lastAsked, paidText, sharedText, sharesOf, verdictText } from "../../src/server/web/cache.js";

test("small amounts have more decimals", () => {
  assert.deepEqual([0, 1_500, 9_999_999, 10_000_000, 12_345_678_901].map(dollars), ["$0.000000", "$0.000002", "$0.010000", "$0.0100", "$12.3457"]);
  assert.equal(paidText({}), null);
  assert.equal(paidText({ costNanoUsd: 20_000_000 }), "$0.0200");
  assert.equal(paidText({ costNanoUsd: 20_000_000, unpricedRequests: 3 }), "$0.0200 and 3 requests of unknown cost");
});

test("a request is split by what had been sent before", () => {
  const usage = { inputTokens: 1_000, prefixTokens: 800, cachedTokens: 500, outputTokens: 1, source: "reported" };
  assert.equal(sharedText(usage), "Of 1,000 tokens sent, 800 were as in the request before, 500 came from the provider’s cache.");
  assert.equal(sharedText({ ...usage, cachedTokens: 0 }), "Of 1,000 tokens sent, 800 were as in the request before.");
  const shares = (change) => sharesOf({ ...usage, ...change }).map(({ kind, share }) => `${kind} ${share}`);
  assert.deepEqual(shares({}), ["cached 50", "shared 30", "fresh 20"]);
  assert.deepEqual(shares({ prefixTokens: undefined, cachedTokens: 0 }), ["fresh 100"]);
  // A provider may have more cached than this session ever sent, and counts differently.
  assert.deepEqual(shares({ prefixTokens: 100 }), ["cached 50", "fresh 50"]);
  assert.deepEqual(shares({ prefixTokens: 2_000, cachedTokens: 3_000 }), ["cached 100"]);
});

test("words say where and why requests diverge", () => {
  const broke = (part, reason, detail) => breakText({ part, reason, detail, lostTokens: 1_200 });
  assert.equal(broke("system:base", "instructions"), "It parts from that at the system prompt’s part “base”: the instructions have changed. 1,200 of its tokens are not sent again.");
  assert.match(broke("system:a:b", "patch", "clock: time flies"), /part “a:b”: a patch changed it \(clock: time flies\)\./);
  assert.match(broke("model", "model", "small"), /at the model: another model is asked \(small\)\./);
  assert.match(broke("tools", "tools"), /at the tools: other tools/);
  assert.match(broke("message:e1", "compaction"), /at a message: older messages were summarised/);
  assert.match(broke("message", "a word of a newer server"), /at a message: a word of a newer server\./);
});

test("the provider's verdict is said in words", () => {
  assert.equal(verdictText({ verdict: "unknown", reason: "unavailable" }), "The provider could not compare them.");
  assert.equal(verdictText({ verdict: "hit", agrees: true }), "The provider says that nothing has changed.");
  assert.equal(verdictText({ verdict: "miss", reason: "tools_changed", part: "tools", agrees: false }), "The provider disagrees: it says that the tools changed.");
});

test("the newest answer whose request is known is the last request", () => {
  const entry = (entryId, role, usage) => ({ entryId, parentId: null, timestamp: "", type: "message", role, content: [], ...(usage ? { usage } : {}) });
  const usage = { inputTokens: 1, cachedTokens: 0, outputTokens: 1, source: "reported", prefixTokens: 0 };
  const { prefixTokens, ...older } = usage;
  assert.equal(lastAsked([]), null);
  assert.equal(lastAsked([entry("a", "assistant", usage), entry("b", "assistant", older), entry("c", "user")])?.entryId, "a");
});
