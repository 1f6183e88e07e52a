/** The page's tree compared with the world's, and the rows in which it is drawn. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { treeRows } from "../../src/server/web/tree-rows.js";
import { SessionTree } from "../../src/server/web/tree.js";
import { World, seeded } from "./world.mjs";

const SEEDS = 60;

/** Returns a tree as data: parents and children in order, and the names. */
function shape(tree) {
  const nodes = [...tree.nodes.values()].map((node) => [node.entryId, node.parentId, node.type, node.children, node.childCount, tree.labelOf(node.entryId)]);
  return { roots: tree.roots, nodes: nodes.sort(([a], [b]) => (a < b ? -1 : 1)) };
}

function wholeTree(world) {
  const tree = new SessionTree();
  tree.addPage(world.nodes(), true);
  return tree;
}

/** Adds a message anywhere, or a name. */
function grow(world, random) {
  const pick = (list) => list[Math.floor(random() * list.length)];
  const ids = [...world.tree.keys()];
  if (random() < 0.3) world.move(pick([null, ...ids]));
  const kind = random();
  if (kind < 0.2 && ids.length > 0) world.append({ type: "label", targetId: pick(ids), ...(random() < 0.7 ? { label: `n${ids.length}` } : {}) });
  else if (kind < 0.3) world.append({ type: "custom", customType: "x" });
  else if (kind < 0.4) world.append({ type: "branch_summary", fromId: world.leafId, summary: "left" });
  else if (kind < 0.7) world.say("question", world.id("c"));
  else world.append({ type: "message", role: "assistant", content: [{ type: "text", text: "answer" }] });
}

test("a tree assembled from pages, paths and events, in any order, is the whole tree", () => {
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    const random = seeded(seed);
    const pick = (list) => list[Math.floor(random() * list.length)];
    const frames = [];
    const world = new World({ emit: (frame) => frames.push(structuredClone(frame)) });
    const tree = new SessionTree();
    let applied = 0;
    /** Responses that events overtake. */
    const late = [];
    const catchUp = (until) => {
      for (; applied < until; applied += 1) if (frames[applied].type === "entry_appended") tree.append(frames[applied].payload.entry, frames[applied].seq);
    };
    for (let count = 0; count < 50; count += 1) {
      grow(world, random);
      const ids = [...world.tree.keys()];
      if (random() < 0.2) late.push({ page: structuredClone(world.nodes({ rootId: pick(ids), depth: 1 + Math.floor(random() * 4) }, 6)), roots: false });
      if (random() < 0.1) tree.addPath(world.page({ before: pick(ids), limit: 5 }).items);
      if (random() < 0.5) catchUp(frames.length);
      if (random() < 0.2 && late.length > 0) tree.addPage(late.shift().page, false);
    }
    catchUp(frames.length);
    for (const { page } of late) tree.addPage(page, false);
    for (const node of tree.nodes.values()) assert.ok(node.childCount >= node.children.length && node.childCount <= world.children(node.entryId).length, `seed ${seed}`);
    tree.addPage(world.nodes(), true);
    assert.deepEqual(shape(tree), shape(wholeTree(world)), `seed ${seed}`);
    assert.equal(tree.unknownOn(world.entries), null);
    for (const node of tree.nodes.values()) {
      const { label } = world.node(world.tree.get(node.entryId));
      assert.equal(tree.labelOf(node.entryId), label, `the name of ${node.entryId}, seed ${seed}`);
    }
  }
});

test("what came only by events is known; what a path brought is fetched", () => {
  const world = new World({ emit: (frame) => frame.type === "entry_appended" && tree.append(frame.payload.entry, frame.seq) });
  const tree = new SessionTree();
  tree.addPage(world.nodes(), true);
  const [a, b] = ["a", "b"].map((text) => world.say(text, world.id("c")).entryId);
  world.move(a);
  const c = world.say("c", world.id("c")).entryId;
  assert.deepEqual([tree.unknownOn(world.entries), tree.alternatives(b), tree.alternatives(a)], [null, [b, c], [a]]);
  const other = new SessionTree();
  other.addPath(world.entries.slice(1));
  assert.deepEqual([other.unknownOn(world.entries.slice(1)), other.alternatives(c)], [{ rootId: c }, [c]]);
  other.addPage(world.nodes({ rootId: a, depth: 2 }), false);
  assert.deepEqual(other.alternatives(c), [b, c]);
});

test("names, summaries and a client's data do not separate alternatives", () => {
  const world = new World();
  const question = world.say("q", world.id("c")).entryId;
  const first = world.say("first", world.id("c")).entryId;
  world.move(question, { summary: "left", label: "here" });
  const second = world.say("second", world.id("c")).entryId;
  world.move(question);
  const tree = wholeTree(world);
  assert.deepEqual(tree.alternatives(first), [first, second]);
  assert.deepEqual(tree.alternatives(second), [first, second]);
  assert.deepEqual(tree.continuations(world.leafId), [first, second]);
  world.append({ type: "label", targetId: question, label: "again" });
  assert.deepEqual(wholeTree(world).continuations(world.leafId), [first, second]);
  world.move(first);
  assert.deepEqual(wholeTree(world).continuations(world.leafId), []);
});

/** Writes rows as text: lanes, symbols and content. `*` is on the path, `<` the leaf, `n more` the unknown entries. */
function draw(world, { tree = wholeTree(world), unfolded = new Set() } = {}) {
  return treeRows(tree, world.leafId, unfolded).map((row) => {
    const lanes = row.passing.map((onPath) => (onPath ? "┃" : "│")).join("");
    const turn = row.begins ? "╰" : "";
    const what = row.kind === "folded" ? `… ${row.count}` : row.kind === "more" ? `${row.count} more` : row.node.preview;
    const line = `${row.above ? "'" : " "}${row.below ? "," : " "}`;
    return `${lanes.slice(0, row.begins ? -1 : undefined)}${turn}${row.onPath ? "*" : "-"}${line} ${what}${row.isLeaf ? " <" : ""}`;
  });
}

test("rows: the path in its lane, branches beside it, folded stretches, unknown entries", () => {
  const world = new World();
  const say = (text) => world.say(text, world.id("c")).entryId;
  const [one, two] = ["one", "two"].map(say);
  say("three");
  world.move(two);
  say("3b");
  world.append({ type: "label", targetId: one, label: "x" });
  say("4b");
  world.move(one);
  say("two'");
  assert.deepEqual(draw(world), [
    "* , one",
    "╰- , two",
    "┃╰-   three",
    "┃-', 3b",
    "┃-'  4b",
    "*'  two' <",
  ]);
  world.move(two);
  assert.deepEqual(draw(world), [
    "* , one",
    "╰-   two'",
    "*', two <",
    "╰-   three",
    "-', 3b",
    "-'  4b",
  ]);
  world.move(null);
  say("another beginning");
  assert.deepEqual(draw(world).slice(-2), ["-'  two'", "*   another beginning <"]);
});

test("rows: stretches are folded and unfolded, and unknown entries are counted", () => {
  const world = new World();
  const ids = Array.from({ length: 20 }, (_, count) => world.say(`m${count}`, world.id("c")).entryId);
  const rows = treeRows(wholeTree(world), world.leafId, new Set());
  assert.deepEqual(draw(world).map((line) => line.slice(4)), ["m0", "m1", "m2", "m3", "… 12", "m16", "m17", "m18", "m19 <"]);
  assert.equal(draw(world, { unfolded: new Set([rows[4].key]) }).length, 20);
  assert.deepEqual(rows[4].entryIds, ids.slice(4, 16));
  world.move(ids[10]);
  world.append({ type: "label", targetId: ids[14], label: "x" });
  assert.deepEqual(draw(world).map((line) => line.slice(4)), [
    "m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9", "m10 <", "m11", "m12", "m13", "m14", "m15", "m16", "m17", "m18", "m19",
  ]);
  const tree = new SessionTree();
  tree.addPage(world.nodes({ rootId: ids[17], depth: 2 }), false);
  assert.deepEqual(draw(world, { tree }), ["- , m17", "-', m18", "-'  1 more"]);
});
