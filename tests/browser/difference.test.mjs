/** What a compaction would change, message by message; descriptions of how one went; settings and their fields. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ROWS_MAX, difference, ends } from "../../src/server/web/difference.js";
import { levelOf } from "../../src/server/web/gauge.js";
import { breakerText, changeText, failedText, toldFacts } from "../../src/server/web/report.js";
import { STRATEGIES } from "../../src/server/web/offered-strategies.js";
import { fieldOf, unitOf, withFields } from "../../src/server/web/strategies.js";
import { SETTINGS } from "../../src/server/web/strategy-settings.js";

/** Builds messages from `id:role`; an id of `-` means a message without an entry. */
function messages(lines) {
  return lines.map((line) => {
    const [id, role] = line.split(":");
    return { ...(id === "-" ? {} : { entryId: id }), message: { role, content: [{ type: "text", text: id }] } };
  });
}

const NONE = { isSummary: () => false, isPinned: () => false, cleared: [] };

test("what goes, what stays and what is shortened", () => {
  const table = [
    ["the tail stays", ["a:user", "b:assistant", "c:user"], { firstKeptEntryId: "c" }, "a goes, b goes, c stays"],
    ["what is kept one by one", ["a:user", "b:assistant", "c:user"], { firstKeptEntryId: "c", keptEntryIds: ["a"] }, "a stays, b goes, c stays"],
    ["no tail", ["a:user", "b:assistant"], { keptEntryIds: ["b"] }, "a goes, b stays"],
    ["a summary gives way to the new one", ["s:user", "a:user", "b:user"], { firstKeptEntryId: "b" }, "s goes, a goes, b stays"],
    ["a summary stays where nothing is summarised", ["s:user", "a:user", "t:tool"], { firstKeptEntryId: "a", rung: "clear_tool_results", clearedEntryIds: ["t"] }, "s stays, a stays, t shortened"],
    ["cleared before", ["a:user", "old:tool", "t:tool"], { firstKeptEntryId: "a", rung: "clear_tool_results", clearedEntryIds: ["old", "t"] }, "a stays, old stays, t shortened"],
    ["a missing answer goes with its call", ["a:assistant", "-:tool", "b:user", "-:tool"], { firstKeptEntryId: "b" }, "a goes, - goes, b stays, - stays"],
    ["cleared, and gone", ["t:tool", "b:user"], { firstKeptEntryId: "b", clearedEntryIds: ["t"] }, "t goes, b stays"],
    ["nothing", [], { firstKeptEntryId: "b" }, ""],
  ];
  for (const [name, lines, preview, expected] of table) {
    const known = { ...NONE, isSummary: (id) => id === "s", cleared: ["old"] };
    const { now, then } = difference(messages(lines), { rung: "model_summary", keptEntryIds: [], ...preview }, known);
    assert.equal(now.map(({ text, fate }) => `${text === "" ? "-" : text} ${fate}`).join(", ").replaceAll("undefined", "-"), expected, name);
    assert.deepEqual(then, now.filter(({ fate }) => fate !== "goes"), name);
  }
});

test("a long message is shortened to one line, a long column to its two ends", () => {
  const content = [{ type: "reasoning", text: "hidden" }, { type: "text", text: `a\n\n  b ${"x".repeat(9000)}` }, { type: "tool_call", toolCallId: "k", name: "look", arguments: "{}" }];
  const [row] = difference([{ entryId: "a", message: { role: "assistant", content } }], { rung: "extract", keptEntryIds: [] }, { ...NONE, isPinned: () => true }).now;
  assert.match(row.text, /^a b x{150,160}…$/);
  assert.equal(row.pinned, true);
  const rows = (count) => Array.from({ length: count }, (_, index) => ({ text: String(index) }));
  assert.equal(ends(rows(ROWS_MAX)).length, ROWS_MAX);
  const cut = ends(rows(ROWS_MAX + 7));
  assert.deepEqual([cut.length, cut[ROWS_MAX / 2], cut.at(-1).text], [ROWS_MAX + 1, { skipped: 7 }, String(ROWS_MAX + 6)]);
});

test("a summary is shown without its markup and its introduction", () => {
  const isSummary = () => true;
  for (const [text, expected] of [
    ["This is a record, not a request.\n\n<summary>\n## Goal\nFeed #1 first\n\n### Done\n- none\n</summary>", "Goal: Feed #1 first Done: - none"],
    ["## Goal\nx", "Goal: x"],
    ["plain", "plain"],
  ]) {
    const [row] = difference([{ entryId: "s", message: { role: "user", content: [{ type: "text", text }] } }], { rung: "extract", keptEntryIds: [] }, { ...NONE, isSummary }).now;
    assert.deepEqual([row.who, row.text], ["summary", expected]);
  }
});

test("words describe how a compaction went", () => {
  assert.deepEqual(toldFacts({ rung: "clear_tool_results" }), ["How: old tool results were cut to their beginning"]);
  assert.equal(failedText({ rung: "model_summary", reason: "upstream_overloaded" }), "a summary by the model (upstream_overloaded)");
  assert.deepEqual([changeText(100, 25), changeText(100, 130), changeText(0, 5), changeText(5, undefined)], [" (−75 %)", " (+30 %)", "", ""]);
  const rest = (breaker) => breakerText({ failures: 3, message: "as it is", ...breaker }, () => "14:05");
  assert.deepEqual([rest({ reason: "failures", retryAt: "2026-01-01T00:00:00Z" }), rest({ reason: "no_gain" }), rest({ reason: "something_new" })], [
    "Automatic compaction rests: the last 3 failed. It is tried again at 14:05.", "Automatic compaction rests: the last 3 made too little room.", "as it is",
  ]);
});

test("settings and their fields match", () => {
  const table = [
    ["threshold", 0.8, "80"], ["threshold", 0.075, "7.5"], ["background", 1, "100"], ["keepTurns", 8, "8"], ["reserveTokens", 0, "0"],
    ["summarise", true, "yes"], ["summarise", false, "no"], ["steps", ["tool_results", "threshold"], "tool_results, threshold"],
  ];
  for (const [name, value, field] of table) {
    assert.equal(fieldOf(name, { [name]: value }), field);
    assert.deepEqual(withFields({}, [[name, field]]), { [name]: value });
  }
  assert.equal(fieldOf("target", {}), "");
  assert.deepEqual([unitOf("minGain").min, unitOf("minGain").max], [0, 90]);
  for (const [name, { kind, label }] of Object.entries(SETTINGS)) assert.equal(/\bshare of\b/.test(label), kind === "share", name);
  assert.equal(unitOf("threshold").label, "Compact above, % of the window");
  assert.equal(unitOf("keepTurns").min, 1);
  assert.deepEqual(withFields({ target: 0.5, keepTurns: 3 }, [["target", " "], ["steps", " a  b,"]]), { keepTurns: 3, steps: ["a", "b"] });
  for (const { name, settings } of STRATEGIES) for (const setting of settings) assert.ok(SETTINGS[setting], `${name}: ${setting}`);
});

test("the gauge is full above the count at which the server compacts, or from the count at which it warns", () => {
  const warning = "nearly full";
  for (const [tokenCount, more, expected] of [
    [0, { compactAtTokens: 6400 }, "low"],
    [4799, { compactAtTokens: 6400 }, "low"],
    [4800, { compactAtTokens: 6400 }, "high"],
    [6400, { compactAtTokens: 6400 }, "high"],
    [6401, { compactAtTokens: 6400 }, "full"],
    [7300, { compactAtTokens: 7600, warning }, "high"],
    [5999, {}, "low"],
    [7199, {}, "high"],
    [7200, { warning }, "full"],
  ]) assert.equal(levelOf({ tokenCount, maxTokens: 8000, ...more }), expected, `${tokenCount} ${JSON.stringify(more)}`);
});
