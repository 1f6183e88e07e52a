/**
 * Generates more conformance data, from other seeds: `node cases.mjs PI OUT SEED COUNT`. The arguments are the folder
 * into which npm's `@mariozechner/pi-coding-agent` was installed, the folder to write to, and which sessions to
 * generate.
 *
 * OUT gets the data of tests/fixtures/pi and, beside it, COUNT random sessions with what pi makes of them: groups d, e,
 * i, k and l. `PI_CONFORMANCE_DIR=OUT cargo test --test pi_conformance` runs all of it. The sessions are deliberately
 * odd: nothing but user commands, missing parents, labels of labels, failed answers, compactions and branch summaries
 * of every kind on one path.
 */

import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, out, firstSeed, count] = process.argv.slice(2);
const dist = join(folder, "node_modules/@mariozechner/pi-coding-agent/dist");
const load = (file) => import(pathToFileURL(join(dist, file)).href);
const { SessionManager, convertToLlm } = await load("index.js");
const { computeFileLists, formatFileOperations, prepareCompaction } = await load("core/compaction/index.js");

/** Recent tokens that a compaction keeps, from next to nothing to more than any of these sessions has. */
const KEEP = [1, 40, 300, 2_000, 100_000];

/** Returns a seeded number generator (mulberry32). */
const numbers = (seed) => () => {
  seed = (seed + 0x6d2b79f5) | 0;
  let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
  t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
  return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
};

const session = (seed) => {
  const next = numbers(seed);
  const below = (n) => Math.floor(next() * n);
  const pick = (list) => list[below(list.length)];
  const words = (most) =>
    Array.from({ length: 1 + below(most) }, () => pick(["tide", "harbour", "gull", "ferry", "rope", "船", "🚢"])).join(" ");
  const file = () => pick(["src/a.rs", "src/b.rs", "README.md", "docs/船.md", "b c.txt", ""]);
  const files = () => Array.from({ length: below(3) }, file).filter(Boolean);
  const details = () => pick([undefined, { readFiles: files(), modifiedFiles: files() }, { mine: true }]);
  // Some sessions have only one kind of entry.
  const kinds = pick([["bash"], ["bash", "settings"], ["user", "assistant"], undefined, undefined, undefined]);
  const lines = [
    { type: "session", version: 3, id: `seed-${seed}`, timestamp: "2026-01-05T09:00:00.000Z", cwd: "/home/user/project" },
  ];
  const ids = [];
  let leaf = null;
  let open = [];
  let clock = Date.parse("2026-01-05T09:00:00.000Z");
  const append = (fields) => {
    const id = (0x10000000 + below(0xe0000000)).toString(16);
    const parentId = below(40) === 0 ? pick([null, "ffffffff"]) : leaf;
    clock += 1_000 + below(60_000);
    lines.push({ type: fields.type, id, parentId, timestamp: new Date(clock).toISOString(), ...fields });
    ids.push(id);
    leaf = id;
  };
  const message = (fields) => append({ type: "message", message: { ...fields, timestamp: clock } });
  const text = (most) => [{ type: "text", text: words(most) }];
  const make = {
    user: () => message({ role: "user", content: pick([words(60), text(60)]) }),
    assistant: () => {
      const calls = Array.from({ length: below(3) }, () => ({
        type: "toolCall",
        id: `call-${ids.length}-${below(1e6)}`,
        name: pick(["read", "write", "edit", "bash"]),
        arguments: { path: file() },
      }));
      const stopReason = below(6) === 0 ? pick(["error", "aborted"]) : calls.length ? "toolUse" : "stop";
      const input = 10 + below(9_000);
      const usage = { input, output: 5, cacheRead: 0, cacheWrite: 0, totalTokens: input + 5 };
      message({
        role: "assistant",
        content: [...(below(4) ? text(80) : []), ...calls],
        api: "demo-api",
        provider: "demo",
        model: pick(["m-small", "m-large"]),
        usage: { ...usage, cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 } },
        stopReason,
      });
      open = stopReason === "toolUse" ? calls : [];
    },
    result: () => {
      const call = open.shift();
      if (!call) return make.user();
      const content = text(120);
      message({ role: "toolResult", toolCallId: call.id, toolName: call.name, content, isError: below(5) === 0 });
    },
    bash: () => {
      const fields = { role: "bashExecution", command: words(4), output: pick(["", words(100)]), exitCode: below(2) };
      message({ ...fields, cancelled: false, truncated: false, ...(below(3) ? {} : { excludeFromContext: true }) });
    },
    custom: () => append({ type: "custom_message", customType: "note", content: words(40), display: true }),
    data: () => append({ type: "custom", customType: "note", data: { n: below(9) } }),
    settings: () => append({ type: "thinking_level_change", thinkingLevel: pick(["off", "high"]) }),
    label: () => {
      if (ids.length === 0) return make.settings();
      append({ type: "label", targetId: pick(ids), label: pick([words(2), words(2), ""]) });
    },
    compaction: () => {
      if (ids.length === 0) return make.settings();
      const kept = below(8) === 0 ? "ffffffff" : ids[Math.max(0, ids.length - 1 - below(8))];
      const hook = pick([{}, {}, { fromHook: false }, { fromHook: true }]);
      append({ type: "compaction", summary: words(30), firstKeptEntryId: kept, tokensBefore: below(9_000), details: details(), ...hook });
    },
    branch: () => {
      if (ids.length === 0) return make.settings();
      leaf = pick([null, ...ids]);
      open = [];
      if (below(2)) {
        const hook = pick([{}, {}, { fromHook: true }]);
        append({ type: "branch_summary", fromId: leaf ?? "root", summary: words(20), details: details(), ...hook });
      }
    },
  };
  const all = ["user", "assistant", "assistant", "result", "result", "bash", "custom", "data", "settings", "label", "label", "compaction", "branch"];
  const entries = 4 + below(40);
  for (let at = 0; at < entries; at++) make[pick(kinds ?? all)]();
  return lines;
};

/** Records what pi makes of a session, in the form of the conformance data. */
const cases = async (name, path, lines) => {
  const open = () => SessionManager.open(path, join(out, "forks"));
  const manager = open();
  const line = new Map(lines.map(({ id }, at) => [id, at]));
  const number = (id) => line.get(id) ?? null;
  const made = { d: [], e: [], i: [], k: [], l: [] };
  const all = manager.getEntries();
  const leaves = all.map((entry) => entry.id).filter((_, at) => at % 5 === 0 || at === all.length - 1);
  const context = (branch) => {
    const one = open();
    one.branch(branch);
    return one.buildSessionContext();
  };
  for (const leaf of leaves) {
    const branch = manager.getBranch(leaf);
    const built = context(leaf);
    const of = (message) => branch.find((entry) => entry.type === "message" && JSON.stringify(entry.message) === JSON.stringify(message));
    const verbatim = built.messages.every(of);
    if (verbatim) {
      // A message created by another entry does not reveal its line: those cases are in the original data.
      const messages = built.messages.map((message) => number(of(message).id));
      made.d.push({ session: name, leaf: number(leaf), thinkingLevel: built.thinkingLevel, model: built.model, messages });
    }
    for (const keepRecentTokens of KEEP) {
      const prepared = prepareCompaction(branch, { enabled: true, reserveTokens: 16384, keepRecentTokens });
      const common = { session: name, leaf: number(leaf), keepRecentTokens };
      if (!prepared) {
        made.e.push({ ...common, expected: null });
        continue;
      }
      const { readFiles, modifiedFiles } = computeFileLists(prepared.fileOps);
      const { messagesToSummarize: history, turnPrefixMessages: prefix, isSplitTurn, previousSummary } = prepared;
      const parted = isSplitTurn && prefix.length > 0;
      const asked = history.length > 0 || !parted;
      made.i.push({
        ...common,
        reserveTokens: 16384,
        customInstructions: null,
        calls: [{ kind: "history", previousSummaryIncluded: asked && Boolean(previousSummary) }],
        result: {
          firstKeptLine: number(prepared.firstKeptEntryId),
          tokensBefore: prepared.tokensBefore,
          details: { readFiles, modifiedFiles },
        },
        appended: formatFileOperations(readFiles, modifiedFiles),
      });
    }
  }
  const roots = manager.getTree();
  const children = {};
  let nodes = 0;
  const walk = (node) => {
    nodes += 1;
    const below = node.children.map((child) => number(child.entry.id));
    const at = number(node.entry.id);
    if (below.length > 1 || (below.length === 1 && below[0] !== at + 1)) children[at] = below;
    node.children.forEach(walk);
  };
  roots.forEach(walk);
  const labels = {};
  for (const { id } of all) {
    const label = manager.getLabel(id);
    if (label) labels[number(id)] = label;
  }
  const forks = leaves.map((leaf) => {
    const one = open();
    const before = context(leaf).messages.length;
    one.createBranchedSession(leaf);
    const copied = one.getEntries();
    const contextMessages = one.buildSessionContext().messages.length;
    return {
      leaf: number(leaf),
      entries: copied.filter((entry) => entry.type !== "label").map((entry) => number(entry.id)),
      labels: copied.filter((entry) => entry.type === "label").map(({ targetId, label }) => ({ targetLine: number(targetId), label })),
      contextMessages,
      originalContextMessages: before,
      brokenChain: contextMessages !== before,
    };
  });
  made.k.push({ session: name, leaf: number(manager.getLeafId()), name: null, labels, roots: roots.map((node) => number(node.entry.id)), treeNodes: nodes, children, forks });
  for (const target of leaves) {
    const oldLeaf = manager.getLeafId();
    if (target === oldLeaf) continue;
    const entry = manager.getEntry(target);
    const spoken = (entry.type === "message" && entry.message.role === "user") || entry.type === "custom_message";
    const content = entry.type === "message" ? entry.message.content : entry.content;
    const said = () => (typeof content === "string" ? content : content.map((block) => block.text).join(""));
    const one = open();
    let expected;
    try {
      const leaf = spoken ? entry.parentId : target;
      if (leaf === null) one.resetLeaf();
      else one.branch(leaf);
      const contextRoles = one.buildSessionContext().messages.map((message) => message.role);
      expected = { cancelled: false, editorText: spoken ? said() : null, newLeaf: leaf && number(leaf), appended: [], contextRoles };
    } catch (error) {
      expected = { error: String(error.message) };
    }
    made.l.push({ session: name, oldLeaf: number(oldLeaf), target: number(target), options: { summarize: false }, calls: [], expected });
  }
  return made;
};

const data = new URL("../../fixtures/pi/", import.meta.url).pathname;
await mkdir(out, { recursive: true });
await cp(data, out, { recursive: true });
const names = { d: "d-built-context", e: "e-compaction-preparation", i: "i-compaction-result", k: "k-tree", l: "l-navigation", index: "index" };
const groups = {};
for (const [key, name] of Object.entries(names)) groups[key] = JSON.parse(await readFile(join(out, `${name}.json`), "utf8"));
for (let seed = Number(firstSeed); seed < Number(firstSeed) + Number(count); seed++) {
  const name = `seed-${seed}.jsonl`;
  const path = join(out, "sessions", name);
  const lines = session(seed).map((line) => JSON.parse(JSON.stringify(line)));
  await writeFile(path, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  const made = await cases(name, path, lines);
  for (const [key, list] of Object.entries(made)) groups[key].cases.push(...list);
  groups.index.cases.push({ session: name, version: "v3", physicalLines: lines.length, skippedLines: [], entries: lines.length - 1 });
}
for (const [key, name] of Object.entries(names)) await writeFile(join(out, `${name}.json`), JSON.stringify(groups[key]));
const total = Object.values(groups).reduce((sum, group) => sum + group.cases.length, 0);
console.log(`${total} cases in these groups, of ${count} more sessions, in ${out}`);
