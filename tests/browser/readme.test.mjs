/** Runs the fold that protocol/README.md gives to client authors, as printed there, against a changing world. */

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { World, nameOf, seeded } from "./world.mjs";

const readme = await readFile(new URL("../../protocol/README.md", import.meta.url), "utf8");
const [, source] = /\n## The fold\n[\s\S]*?\n```ts\n([\s\S]*?)\n```\n/.exec(readme);
const { outputText } = ts.transpileModule(source, { compilerOptions: { module: "esnext", target: "es2024" } });
const { fold, path } = await import(`data:text/javascript,${encodeURIComponent(outputText)}`);

const reply = (type, payload) => ({ re: "1", sessionId: payload.sessionId, type, payload });

/** Returns a freshly opened view. */
function opened(world, entries) {
  const view = { epoch: "", seq: 0, entries: new Map(), leafId: "root", items: new Map(), queue: [] };
  assert.equal(fold(view, reply("session_opened", world.snapshot({ entries }))), true);
  return view;
}

/** Fetches the missing part of the path, as the text says. */
function complete(view, world) {
  for (let [first] = path(view); first ? first.parentId !== null : view.leafId !== "root"; [first] = path(view)) {
    fold(view, reply("entries", world.page({ ...(first ? { before: first.entryId } : {}), limit: 3 })));
  }
}

test("it compiles against the types", async () => {
  const folder = await mkdtemp(join(tmpdir(), "reseed-readme-"));
  const file = join(folder, "fold.ts");
  try {
    await writeFile(file, source.replace("./typescript/index.js", fileURLToPath(new URL("../../protocol/typescript/index.ts", import.meta.url))));
    const options = { noEmit: true, strict: true, allowImportingTsExtensions: true, target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, moduleResolution: ts.ModuleResolutionKind.Bundler, types: [] };
    const wrong = ts.getPreEmitDiagnostics(ts.createProgram([file], options));
    assert.deepEqual(wrong.map((one) => ts.flattenDiagnosticMessageText(one.messageText, "\n")), []);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test("it shows the path to the leaf, whatever moves it", () => {
  for (let seed = 1; seed <= 40; seed += 1) {
    const random = seeded(seed);
    const pick = (list) => list[Math.floor(random() * list.length)];
    const frames = [];
    const world = new World({ emit: (frame) => frames.push(structuredClone(frame)) });
    for (const text of ["a", "b", "c"]) world.say(text, world.id("c"));
    const views = [0, 2, 50].map((entries) => ({ view: opened(world, entries), applied: frames.length }));
    for (let count = 0; count < 60; count += 1) {
      const moves = [
        () => world.say("more", world.id("c")),
        () => world.move(pick([null, ...world.tree.keys()])),
        () => world.move(pick([...world.tree.keys()]), { summary: "what was left", label: "here" }),
        () => {
          world.startTurn();
          const item = world.startItem();
          for (const text of ["so ", "🌱 ", "it"]) world.delta(item, 0, text);
          world.finishItem(item);
          world.finishTurn();
        },
      ];
      pick(moves)();
      for (const one of views) {
        for (; one.applied < frames.length; one.applied += 1) assert.equal(fold(one.view, frames[one.applied]), true);
        if (count % 5 === 0) complete(one.view, world);
        const shown = path(one.view);
        assert.deepEqual(shown, shown.length === 0 ? [] : world.entries.slice(-shown.length), `seed ${seed}, step ${count}`);
        assert.equal(one.view.leafId, nameOf(world.leafId));
        if (count % 5 === 0) assert.deepEqual(shown, world.entries, `seed ${seed}, step ${count}`);
        assert.equal(one.view.items.size, 0);
      }
    }
  }
});

test("the queue matches the server's, whatever happens to it", () => {
  for (let seed = 1; seed <= 40; seed += 1) {
    const random = seeded(seed);
    const pick = (list) => list[Math.floor(random() * list.length)];
    const frames = [];
    const world = new World({ emit: (frame) => frames.push(structuredClone(frame)) });
    world.startTurn();
    world.enqueue("first", world.id("c"));
    const view = opened(world, 50);
    let applied = frames.length;
    for (let count = 0; count < 60; count += 1) {
      const ids = world.queue.map((item) => item.commandId);
      const moves = [
        () => world.enqueue("more", world.id("c"), random() < 0.3, random() < 0.3 ? world.id("c") : undefined),
        () => world.release(),
        ...(ids.length > 0 ? [() => world.unqueue(pick(world.queue), "cancelled"), () => world.dequeue(), () => world.reorder(ids.reverse())] : []),
      ];
      pick(moves)();
      for (; applied < frames.length; applied += 1) assert.equal(fold(view, frames[applied]), true);
      assert.deepEqual(view.queue, world.queue, `seed ${seed}, step ${count}`);
      assert.deepEqual(opened(world, 0).queue, world.queue);
    }
  }
});

test("pieces of an answer are joined, known ones once, and a missing event is noticed", () => {
  const world = new World();
  world.say("hello", "command-00000001");
  world.startTurn();
  const view = opened(world, 50);
  const item = world.startItem();
  const delta = (offset, text) => fold(view, { sessionId: world.sessionId, type: "item_delta", payload: { itemId: item.itemId, part: 0, offset, text } });
  for (const [offset, text, shown] of [[0, "hel", "hel"], [2, "llo", "hello"], [0, "he", "hello"], [9, "x", "hello"]]) {
    delta(offset, text);
    assert.deepEqual(view.items.get(item.itemId)[0], { type: "text", text: shown });
  }
  for (const frame of [
    { type: "item_started", payload: { itemId: item.itemId, turnId: world.turn.turnId, kind: "tool_call", part: 1, name: "look" } },
    { type: "item_delta", payload: { itemId: item.itemId, part: 1, offset: 0, kind: "arguments", text: "{}" } },
    { type: "item_started", payload: { itemId: item.itemId, turnId: world.turn.turnId, kind: "tool_call", part: 1, name: "look" } },
    { type: "item_finished", payload: { itemId: item.itemId, part: 1 } },
  ]) fold(view, { sessionId: world.sessionId, ...frame });
  const parts = [{ type: "text", text: "hello" }, { type: "tool_call", name: "look", arguments: "{}", finished: true }];
  assert.deepEqual(view.items.get(item.itemId), parts);
  assert.equal(fold(view, { sessionId: world.sessionId, seq: view.seq + 2, type: "queue_released", payload: {} }), false);
});

test("the root has a name, except in events stored by older servers", () => {
  const world = new World();
  world.say("hello", "command-00000001");
  for (const leafId of ["root", null]) {
    const view = opened(world, 50);
    assert.equal(fold(view, { sessionId: world.sessionId, seq: view.seq + 1, type: "session_updated", payload: { leafId } }), true);
    assert.deepEqual([view.leafId, path(view)], ["root", []]);
  }
});
