/** The fold against a randomly playing world: the result of events equals a fresh snapshot at the same moment. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { fold, fromOpened, reopened, resumePoint, withEntries } from "reseed-client";
import { nameOf, seeded, World } from "../browser/world.mjs";

const SEEDS = 120;
const STEPS = 90;
const WORDS = ["so ", "the ", "seed 🌱 ", "grows\n", "**not** ", "über ", "日本 ", "1. "];

/**
 * What a reader sees. It leaves out the progress of a compaction, delays of the model server, void answers, counts that
 * move while a turn is running, the host, and what is known of other branches.
 */
function view({ contextInfo, compaction, items, pending, warning, delayed, entries, path, host, ...rest }) {
  const { tokenCount, breakdown, compactions } = contextInfo;
  return {
    ...rest,
    path: path.entries,
    more: path.more,
    info: rest.turn || compaction ? null : { tokenCount, breakdown, compactions },
    compacting: compaction ? [compaction.jobId, compaction.background ?? false] : null,
    items: items.filter((item) => !item.aborted),
    pending: pending.map(({ message, deadline, ...call }) => call),
  };
}

/** Context sizes reported before a pin was added or removed: the client then asks again. */
const stale = new WeakSet();

/** Applies one event. */
function apply(snapshot, frame) {
  const next = fold(snapshot, frame);
  assert.notEqual(next, "gap", JSON.stringify(frame));
  if (next !== snapshot && frame.type === "session_updated" && frame.payload.pins) stale.add(next.contextInfo);
  return next;
}

/**
 * Compares a snapshot with a fresh one. The context size is left out if the session has moved, or something was pinned,
 * since it was reported.
 */
function same(snapshot, world, message) {
  const told = view(snapshot);
  const now = view(fromOpened(world.snapshot({ entries: 1000 })));
  if (snapshot.contextInfo.leafId !== snapshot.leafId || stale.has(snapshot.contextInfo)) told.info = now.info;
  assert.deepEqual(told, now, message);
}

/** Fetches the missing part of the path. */
function complete(snapshot, world) {
  let whole = snapshot;
  while (whole.path.more) {
    const before = whole.path.entries[0]?.entryId;
    whole = withEntries(whole, world.page({ ...(before ? { before } : {}), limit: 4 }), true);
  }
  return whole;
}

/** Plays one randomly chosen possible step. */
function step(world, random) {
  const pick = (list) => list[Math.floor(random() * list.length)];
  const text = () => Array.from({ length: 1 + Math.floor(random() * 4) }, () => pick(WORDS)).join("");
  const item = world.turn?.items.at(-1);
  const call = world.pending[0];
  const moves = [
    () => world.update({ name: text().trim() || "name" }),
    () => world.update({ model: pick(["mock-1", "mock-2"]) }),
    () => world.ephemeral("no_such_event", { leafId: "root" }),
    () => world.ephemeral("host_changed", { host: { connectionId: "c1" } }),
    () => world.join({ connectionId: pick(["c1", "c2", "c3"]), role: pick(["writer", "observer"]), ...(random() < 0.5 ? { offers: true } : {}) }),
    () => world.part(pick(["c1", "c2", "c3"])),
    () => world.ephemeral("context_warning", { usageRatio: 0.91, message: "nearly full" }),
    () => world.ephemeral("request_delayed", { turnId: world.turn?.turnId ?? "t", attempt: 2, waitMs: 12000, reason: "upstream_overloaded" }),
  ];
  if (world.tree.size > 0) {
    const entryId = pick([...world.tree.keys()]);
    if (world.mayPin(entryId)) moves.push(() => world.pin(entryId));
    if (world.pins.length > 0) moves.push(() => world.unpin(pick(world.pins).entryId));
    // Progress of somebody's preview, which no event announced.
    moves.push(() => world.progress(1, 3, world.id("j")));
    if (!world.compaction) moves.push(() => world.startCompaction("threshold", true));
    if (!world.busy && world.inEffect()) moves.push(() => world.undo(world.id("c")));
  }
  if (!world.turn && !world.heldUp) {
    moves.push(() => { world.say(text(), world.id("c")); world.startTurn(); });
    moves.push(() => { world.say(text(), world.id("c")); world.startTurn(); });
    if (world.lastTurn) moves.push(() => world.startTurn());
    if (world.queue.length > 0) moves.push(() => { world.dequeue(); world.startTurn(); });
    if (world.entries.length > 3) moves.push(() => { world.voidRunning(); world.startCompaction("manual"); });
    const anywhere = () => pick([null, ...world.tree.keys()]);
    if (world.tree.size > 0) {
      moves.push(() => world.move(anywhere()), () => { world.voidRunning(); world.startLeaving(); });
      moves.push(() => world.append({ type: "label", targetId: pick([...world.tree.keys()]), label: text() }));
      moves.push(() => { world.move(anywhere()); world.say(text(), world.id("c")); world.startTurn(); });
    }
  }
  if (world.compaction?.phase === "summarising_branch") {
    moves.push(() => world.failCompaction("navigation_cancelled", "no"));
    moves.push(() => world.move(pick([null, ...world.tree.keys()]), { summary: text(), ...(random() < 0.5 ? { label: "left" } : {}) }));
  } else if (world.compaction && !item && !call) {
    moves.push(() => world.progress(1, 3), () => world.commitCompaction(`## Goal\n${text()}`));
    moves.push(() => world.failCompaction("compaction_failed", "no"));
  }
  if (world.turn) {
    moves.push(() => world.enqueue(text(), world.id("c"), random() < 0.3, random() < 0.2 ? world.id("c") : undefined));
    if (world.queue.length > 1) {
      moves.push(() => world.unqueue(pick(world.queue), "cancelled"), () => world.release());
      moves.push(() => world.reorder(world.queue.map((item) => item.commandId).reverse()));
    }
    if (!item && !call) {
      moves.push(() => world.startItem(), () => world.startItem(), () => world.finishTurn("completed"));
      moves.push(() => world.finishTurn("interrupted"), () => { world.voidRunning(); world.startCompaction("threshold"); });
    }
    if (item && !call) {
      const last = item.parts.at(-1);
      const writes = last?.type === "tool_call" && !last.finished;
      const goesOn = last && last.type !== "tool_call" && (item.parts.length > 1 || random() < 0.7);
      const at = item.parts.length - (goesOn || writes ? 1 : 0);
      for (let more = 0; more < 6; more += 1) moves.push(() => (writes ? world.callDelta(item, at, text()) : world.delta(item, at, text())));
      moves.push(() => (writes ? world.finishCall(item, at) : world.startCall(item, item.parts.length, "look")));
      if (item.parts.length === 0) moves.push(() => world.delta(item, 0, text(), "reasoning"));
      moves.push(() => world.finishItem(item), () => world.finishItem(item, { stopReason: "cancelled", incomplete: true }));
      moves.push(() => { world.finishItem(item, { incomplete: true }); world.finishTurn("failed", { code: "upstream_truncated", message: "cut", retriable: true }); });
      moves.push(() => {
        const part = { type: "tool_call", toolCallId: world.id("k"), name: "look", arguments: "{}" };
        const { content } = world.finishItem(item, { stopReason: "tool_calls", calls: [part] });
        for (const called of content) if (called.type === "tool_call") world.call(called);
      });
    }
    if (call) {
      moves.push(() => world.ephemeral("call_progressed", { toolCallId: call.toolCallId, message: "still", deadline: call.deadline }));
      moves.push(() => world.resolve(call.toolCallId, text()), () => world.resolve(call.toolCallId, text(), true));
    }
  }
  pick(moves)();
}

/** Plays one seed; `at` is called after every step with the frames so far and the world. */
function play(seed, at) {
  const random = seeded(seed);
  const frames = [];
  const world = new World({ emit: (frame) => frames.push(structuredClone(frame)) });
  const first = world.snapshot();
  for (let count = 0; count < STEPS; count += 1) {
    step(world, random);
    at({ frames, world, first, count, random });
  }
}

test("a snapshot reached by events equals a fresh one at every moment", () => {
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    let state = null;
    let applied = 0;
    play(seed, ({ frames, world, first, count }) => {
      state ??= fromOpened(first);
      for (; applied < frames.length; applied += 1) state = apply(state, frames[applied]);
      assert.equal(state.path.more, false, "what came by events is known");
      same(state, world, `seed ${seed}, step ${count}`);
    });
  }
});

test("a reload at any moment continues seamlessly", () => {
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    /** @type {{ state: unknown, applied: number }[]} */
    const reloads = [];
    play(seed, ({ frames, world, count }) => {
      for (const reload of reloads) {
        for (; reload.applied < frames.length; reload.applied += 1) reload.state = apply(reload.state, frames[reload.applied]);
      }
      if (count % 9 === seed % 9) reloads.push({ state: fromOpened(world.snapshot({ entries: 3 })), applied: frames.length });
      // Only now and then, so that events also arrive while part of the path is unknown.
      if (count % 4 !== 0) return;
      for (const reload of reloads) reload.state = complete(reload.state, world);
      for (const { state } of reloads) same(state, world, `seed ${seed}, step ${count}`);
    });
  }
});

test("a resume at any moment misses nothing and duplicates nothing", () => {
  let voided = 0;
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    let state = null;
    let applied = 0;
    let away = 0;
    play(seed, ({ frames, world, first, count, random }) => {
      state ??= fromOpened(first);
      if (away > 0) {
        away -= 1;
        if (away > 0) return;
        const shown = state.items.filter((item) => !item.aborted && item.parts.length > 0);
        const { opened, frames: missed } = world.after(resumePoint(state));
        state = reopened(state, opened);
        for (const { itemId } of shown) voided += missed.some((frame) => frame.type === "item_aborted" && frame.payload.itemId === itemId) ? 1 : 0;
        // The first frames arrive twice: an applied event is not applied again.
        for (const frame of [...missed, ...missed.slice(0, 2)]) state = apply(state, frame);
        applied = frames.length;
      }
      for (; applied < frames.length; applied += 1) state = apply(state, frames[applied]);
      same(state, world, `seed ${seed}, step ${count}`);
      if (random() < 0.15) away = 1 + Math.floor(random() * 12);
    });
  }
  assert.ok(voided > 0, "some answers came to nothing while the reader was away");
});

test("text in progress stays when the server is killed, and as the chat continues", () => {
  for (const how of ["replay", "snapshot", "another epoch"]) {
    const world = new World({ emit: () => {} });
    world.say("question", world.id("c"));
    world.startTurn();
    const item = world.startItem();
    world.delta(item, 0, "half of it");
    const state = fromOpened(world.snapshot());
    const after = state.leafId;
    world.turn.items = [];
    world.finishTurn("interrupted", { code: "interrupted", message: "cut", retriable: true });
    world.say("the next", world.id("c"));
    world.startTurn();
    const next = world.startItem();
    world.delta(next, 0, "the answer");
    const replay = world.after(resumePoint(state));
    const opened = how === "replay" ? replay.opened : { ...world.snapshot(), ...(how === "another epoch" ? { epoch: "other" } : {}) };
    const back = (how === "replay" ? replay.frames : []).reduce(apply, reopened(state, opened));
    const shown = back.items.map(({ aborted, after, parts }) => [aborted, after, parts[0].text]);
    assert.deepEqual(shown, [["interrupted", after, "half of it"], [undefined, undefined, "the answer"]], how);
    const [twice] = reopened(back, world.snapshot()).items;
    assert.deepEqual([twice.after, twice.parts[0].text], [after, "half of it"]);
  }
});

test("an answer that became an entry out of sight is not treated as lost", () => {
  const world = new World({ emit: () => {} });
  world.say("question", world.id("c"));
  world.startTurn();
  const item = world.startItem();
  world.delta(item, 0, "half of it");
  const state = fromOpened(world.snapshot());
  world.finishItem(item);
  world.finishTurn("completed");
  for (let more = 0; more < 9; more += 1) world.say(`more ${more}`, world.id("c"));
  for (const entries of [2, 1000]) assert.deepEqual(reopened(state, world.snapshot({ entries })).items, [], String(entries));
});

test("an answer that failed while the reader was disconnected is shown as not stored", () => {
  for (const how of ["failed", "killed"]) {
    const world = new World({ emit: () => {} });
    world.say("question", world.id("c"));
    world.startTurn();
    const item = world.startItem();
    world.delta(item, 0, "half of it");
    const state = fromOpened(world.snapshot());
    if (how === "failed") world.abortItem(item, "upstream_truncated");
    else world.turn.items = [];
    world.finishTurn(how === "failed" ? "failed" : "interrupted", { code: "interrupted", message: "cut", retriable: true });
    const { opened, frames } = world.after(resumePoint(state));
    const back = frames.reduce(apply, reopened(state, opened));
    assert.deepEqual(back.items.map(({ aborted, parts }) => [aborted, parts[0].text]), [["interrupted", "half of it"]], how);
    assert.deepEqual([back.turn, back.lastTurn.status], [null, how === "failed" ? "failed" : "interrupted"]);
  }
});

test("an answer that had only begun before the disconnect is listed in the resume, and gone afterwards", () => {
  const world = new World({ emit: () => {} });
  world.say("question", world.id("c"));
  world.startTurn();
  const { itemId } = world.startItem();
  const state = fromOpened(world.snapshot());
  world.turn.items = [];
  const resume = resumePoint(state);
  assert.deepEqual(resume.items, [{ itemId, part: 0, offset: 0 }]);
  const { opened, frames } = world.after(resume);
  assert.deepEqual(frames.map(({ type }) => type), ["item_aborted"]);
  assert.deepEqual(frames.reduce(apply, reopened(state, opened)).items, []);
});

test("a delay of the model server lasts until the answer starts or the turn is over", () => {
  const wait = { attempt: 2, waitMs: 12000, reason: "upstream_rate_limited" };
  for (const [end, ends] of Object.entries({
    "the answer starts": (world) => world.startItem(),
    "a whole answer": (world) => world.append({ type: "message", role: "assistant", content: [] }),
    "a failure": (world) => world.finishTurn("failed", { code: "upstream_overloaded", message: "busy", retriable: true }),
    "a resume": null,
  })) {
    const frames = [];
    const world = new World({ emit: (frame) => frames.push(frame) });
    const first = fromOpened(world.snapshot());
    world.say("question", world.id("c"));
    world.startTurn();
    world.ephemeral("request_delayed", { turnId: "another", ...wait });
    const before = frames.reduce(apply, first);
    assert.equal(before.delayed, null);
    const { turnId } = world.turn;
    const delayed = apply(before, { sessionId: world.sessionId, type: "request_delayed", payload: { turnId, ...wait } });
    assert.deepEqual(delayed.delayed, { turnId, ...wait });
    ends?.(world);
    const after = ends ? frames.reduce(apply, delayed) : reopened(delayed, world.after(resumePoint(delayed)).opened);
    assert.equal(after.delayed, null, end);
  }
});

test("a compaction is undone, and a preview's progress belongs to no compaction", () => {
  const frames = [];
  const world = new World({ emit: (frame) => frames.push(frame) });
  for (const text of ["one", "two"]) world.say(text, world.id("c"));
  const first = fromOpened(world.snapshot());
  world.progress(1, 3, "preview-0001");
  assert.equal(frames.reduce(apply, first).compaction, null);
  world.startCompaction("manual");
  const { entryId } = world.commitCompaction("## Goal\nx", "command-00000001");
  const made = frames.reduce(apply, first);
  assert.deepEqual([made.compaction, made.path.entries.at(-1).entryId, made.undone], [null, entryId, []]);
  world.undo();
  const back = frames.reduce(apply, first);
  assert.deepEqual([back.undone, back.contextInfo.tokenCount], [[entryId], world.contextInfo().tokenCount]);
});

test("a held summary is known on arrival, after a reload and after a resume, until it is used or dropped", () => {
  const world = new World({ emit: () => {} });
  world.say("one", world.id("c"));
  const snapshot = world.snapshot();
  const held = (jobId) => ({ jobId, trigger: "threshold", rung: "model_summary", tokensBefore: 900, tokensAfter: 300, compactAtTokens: 1000, durationMs: 5 });
  const event = (type, payload) => ({ sessionId: world.sessionId, type, payload });
  const ends = (seq, type, jobId) => ({ sessionId: world.sessionId, seq, type, payload: { jobId, trigger: "threshold", background: true, durationMs: 5, pausedMs: 0, error: { code: "compaction_void", message: "void", retriable: false }, entryId: "e", tokensAfter: 300, generation: 2, breakdown: { after: {} } } });
  const live = apply(fromOpened(snapshot), event("compaction_prepared", held("j1")));
  const reloaded = fromOpened({ ...snapshot, held: held("j1") });
  const resumed = reopened(fromOpened(snapshot), { ...snapshot, resumed: "replay", held: held("j1") });
  for (const state of [live, reloaded, resumed]) {
    assert.deepEqual([state.held, state.compaction], [held("j1"), null]);
    assert.equal(apply(state, event("compaction_prepared", held("j2"))).held.jobId, "j2", "made again, merging it");
    assert.equal(apply(state, ends(state.seq + 1, "compaction_failed", "j0")).held.jobId, "j1", "another failed");
    // Committing any compaction makes the server drop the held one.
    assert.equal(apply(state, ends(state.seq + 1, "context_compacted", "j0")).held, null, "another was committed");
    for (const type of ["compaction_failed", "context_compacted"]) {
      assert.equal(apply(state, ends(state.seq + 1, type, "j1")).held, null, type);
    }
  }
  assert.equal(fromOpened(snapshot).held, null);
  assert.equal(reopened(live, { ...snapshot, resumed: "replay" }).held, null, "dropped while the reader was away");
});

test("older pages added to a snapshot give the whole path", () => {
  play(7, ({ world, count }) => {
    if (count % 10 !== 0) return;
    for (const entries of [0, 3]) assert.deepEqual(complete(fromOpened(world.snapshot({ entries })), world).path.entries, world.entries);
  });
});

/** Returns a state with one running item of this text. */
function streaming(text) {
  const world = new World();
  world.say("hello", "command-00000001");
  world.startTurn();
  const item = world.startItem();
  world.delta(item, 0, text);
  return { state: fromOpened(world.snapshot()), itemId: item.itemId };
}

test("deltas go where they belong", () => {
  const table = [
    ["at the end", 5, " you", "hello you"],
    ["the same again", 0, "hello", "hello"],
    ["an older piece", 1, "el", "hello"],
    ["overlapping", 3, "lo there", "hello there"],
    ["behind a hole: it waits for the whole entry", 9, "x", "hello"],
  ];
  for (const [name, offset, text, expected] of table) {
    const { state, itemId } = streaming("hello");
    const next = apply(state, { type: "item_delta", payload: { itemId, part: 0, offset, text } });
    assert.equal(next.items[0].parts[0].text, expected, name);
    assert.equal(state.items[0].parts[0].text, "hello", "the snapshot before is as it was");
  }
});

test("a tool call grows with its name, however often its start is reported", () => {
  const { state, itemId } = streaming("hello");
  const start = { type: "item_started", payload: { itemId, turnId: state.turn.turnId, kind: "tool_call", part: 1, name: "look" } };
  const piece = (offset, text) => ({ type: "item_delta", payload: { itemId, part: 1, offset, kind: "arguments", text } });
  const end = { type: "item_finished", payload: { itemId, part: 1 } };
  const call = (text, more = {}) => ({ type: "tool_call", name: "look", arguments: text, ...more });
  const table = [
    ["its beginning", [start], call("")],
    ["pieces", [start, piece(0, "{\"a\""), piece(4, ":1}")], call("{\"a\":1}")],
    ["its beginning again", [start, piece(0, "{}"), start, piece(0, "{}")], call("{}")],
    ["its end", [start, piece(0, "{}"), end, end], call("{}", { finished: true })],
    ["pieces without a beginning", [piece(0, "{}")], call("{}", { name: "" })],
    ["an end without a beginning", [end], undefined],
  ];
  for (const [name, frames, expected] of table) {
    const next = frames.reduce(apply, state);
    assert.deepEqual(next.items[0].parts, [{ type: "text", text: "hello" }, ...(expected ? [expected] : [])], name);
    const places = resumePoint(next).items.map(({ part, offset }) => [part, offset]);
    assert.deepEqual(places, [[0, 5], ...(expected ? [[1, expected.arguments.length]] : [])], name);
  }
});

test("whatever moves the leaf moves the view", () => {
  const world = new World();
  for (const text of ["a", "b", "c"]) world.say(text, world.id("c"));
  const [a, b, c] = world.entries.map((entry) => entry.entryId);
  const state = fromOpened(world.snapshot());
  const short = fromOpened(world.snapshot({ entries: 1 }));
  const entry = (parentId) => ({ entryId: "other", parentId, timestamp: world.createdAt, type: "message", role: "user", content: [] });
  const grown = (from, parentId) => apply(from, { type: "entry_appended", seq: from.seq + 1, payload: { entry: entry(parentId) } });
  const moved = (from, leafId) => apply(from, { type: "session_updated", seq: from.seq + 1, payload: { leafId } });
  const table = [
    ["an entry below another", grown(state, a), [a, "other"], false],
    ["an entry that is a root", grown(state, null), ["other"], false],
    ["an entry below one that is not known", grown(state, "elsewhere"), ["other"], true],
    ["a move up", moved(state, b), [a, b], false],
    ["a move before the first", moved(state, "root"), [], false],
    ["a move before the first, as older servers stored it", moved(state, null), [], false],
    ["a move to what is not known", moved(state, "elsewhere"), [], true],
    ["a move away and back", moved(moved(state, "elsewhere"), c), [a, b, c], false],
    ["a move to what is above the first that is known", moved(short, b), [], true],
    ["an entry where nothing is shown", grown(moved(state, "root"), null), ["other"], false],
  ];
  for (const [name, next, path, more] of table) {
    assert.deepEqual([next.path.entries.map((one) => one.entryId), next.path.more], [path, more], name);
  }
  assert.deepEqual(state.path.entries.map((one) => one.entryId), [a, b, c], "the snapshot before is as it was");
});

test("connections join, change and leave, each once", () => {
  const page = { connectionId: "c1", clientId: "tab-1", client: { name: "reseed-web", version: "1" }, role: "writer" };
  const other = { ...page, connectionId: "c2", clientId: "tab-2" };
  const bot = { connectionId: "c3", client: { name: "ferry-bot", version: "1.2" }, role: "observer", offers: true };
  const table = [
    ["one comes", { connection: bot }, [page, other, bot]],
    ["one changes in its place", { connection: { ...page, role: "observer" } }, [{ ...page, role: "observer" }, other]],
    ["one leaves", { connection: { ...other, offers: true }, left: true }, [page]],
    ["one leaves that was not known", { connection: bot, left: true }, [page, other]],
  ];
  const snapshot = { ...fromOpened(new World().snapshot()), presence: Object.freeze([page, other]) };
  for (const [name, payload, expected] of table) {
    assert.deepEqual(fold(snapshot, { type: "presence_changed", payload }).presence, expected, name);
  }
});
