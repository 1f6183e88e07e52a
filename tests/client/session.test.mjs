/** Sessions: how they end, what an answer is, hosting, and the session list. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { fold, fromOpened, hook, tool } from "reseed-client";
import { FakeSession, payload } from "reseed-client/testing";
import { bench, opened, quiet, types } from "./bench.mjs";

const CALL = {
  toolCallId: "n9x4w7ck2mze",
  turnId: "turn",
  name: "weather",
  arguments: '{"place":"harbour"}',
  deadline: new Date(60_000).toISOString(),
};
const PARAMETERS = { type: "object", properties: { place: { type: "string" } } };

const closed = (code, retriable) => ({ type: "session_closed", payload: { code, message: "why", retriable } });

test("an answer can be read while it is written", async () => {
  const { session, server } = await opened();
  server.reply = () => ["Start ", "at ", "16:50."];
  const answer = session.send("When?");
  const pieces = [];
  for await (const piece of answer.text()) pieces.push(piece);
  assert.deepEqual(pieces, ["Start ", "at ", "16:50."]);
  const { status, finishReason, entries } = await answer.finished();
  assert.deepEqual([status, finishReason], ["completed", "stop"]);
  assert.deepEqual([entries.length, session.snapshot.path.entries.length], [1, 2]);
  assert.equal((await answer.accepted).queued, false);
});

test("a late reader gets all of it, and two readers get the same", async () => {
  const { session } = await opened();
  const answer = session.send("When?");
  const { text } = await answer.finished();
  for (let reader = 0; reader < 2; reader += 1) {
    let read = "";
    for await (const piece of answer.text()) read += piece;
    assert.equal(read, text);
  }
});

test("an answer reports that the output limit has cut it off", async () => {
  const { session, server, fake } = await opened();
  server.on("user_input", () => ({ entryId: "e1", turnId: "t1", queued: false, asOfSeq: 0 }));
  const answer = session.send("x");
  await answer.accepted;
  fake.finish("t1", { finishReason: "length" });
  const { status, finishReason } = await answer.finished();
  assert.deepEqual([status, finishReason], ["completed", "length"]);
});

test("reading less does not cancel; cancelling does", async () => {
  const { session, server, fake } = await opened();
  server.on("user_input", (command) => {
    queueMicrotask(() => {
      fake.ask("x", command.id, { entryId: "e1", turnId: "t1" });
      fake.show({ type: "item_started", payload: { itemId: "i1", turnId: "t1", kind: "message" } });
      fake.show({ type: "item_delta", payload: { itemId: "i1", part: 0, offset: 0, text: "Start" } });
    });
    return { entryId: "e1", turnId: "t1", queued: false, asOfSeq: 0 };
  });
  const answer = session.send("x");
  for await (const piece of answer.text()) if (piece) break;
  assert.ok(!types(server).includes("cancel_turn"));
  await answer.cancel();
  assert.deepEqual(server.commands.at(-1).payload, { turnId: "t1" });
  fake.finish("t1", { status: "cancelled" });
  const { status, finishReason } = await answer.finished();
  assert.deepEqual([status, finishReason], ["cancelled", undefined]);
  assert.equal(session.snapshot.lastTurn.turnId, "t1");
});

test("a failed answer throws from text, and pieces report what was void", async () => {
  const { session, server, fake } = await opened();
  server.on("user_input", () => ({ entryId: "e1", turnId: "t1", queued: false, asOfSeq: 0 }));
  const answer = session.send("x");
  await answer.accepted;
  fake.show({ type: "item_started", payload: { itemId: "i1", turnId: "t1", kind: "message" } });
  fake.show({ type: "item_delta", payload: { itemId: "i1", part: 0, offset: 0, text: "Start" } });
  const pieces = answer.pieces();
  assert.equal((await pieces.next()).value.text, "Start");
  fake.show({ type: "item_aborted", payload: { itemId: "i1", reason: "upstream_error" } });
  assert.deepEqual((await pieces.next()).value, { type: "void", itemId: "i1" });
  const error = { code: "upstream_error", message: "the model's server failed", retriable: true };
  fake.finish("t1", { status: "failed", error });
  assert.equal((await pieces.next()).done, true);
  await assert.rejects(
    (async () => {
      for await (const _ of answer.text());
    })(),
    { name: "TurnFailed", message: error.message },
  );
});

test("a refused input rejects everywhere, and causes no unhandled rejection", async () => {
  const { session, server } = await opened();
  server.on("user_input", () => ({
    error: { code: "queue_full", message: "the queue is full (32 inputs)", retriable: true },
  }));
  const answer = session.send("x");
  await assert.rejects(answer.accepted, { code: "queue_full" });
  await assert.rejects(answer.finished(), { code: "queue_full" });
  await assert.rejects(answer.text().next(), { code: "queue_full" });
});

test("an input removed from the queue has no answer", async () => {
  const { session, server, fake } = await opened();
  server.on("user_input", () => ({ queued: true, asOfSeq: 0 }));
  const answer = session.send("x");
  await answer.accepted;
  fake.append({
    type: "queue_item_added",
    payload: { position: 0, item: { commandId: answer.commandId, content: [], entryId: "e1" } },
  });
  await answer.cancel();
  assert.deepEqual(server.commands.at(-1).payload, { remove: [answer.commandId] });
  fake.append({ type: "queue_item_removed", payload: { commandId: answer.commandId, reason: "cancelled" } });
  assert.equal((await answer.finished()).status, "removed");
});

test("a turn that ended before a snapshot is found in it", async () => {
  const { session, server, fake, hands } = await opened();
  server.on("user_input", () => ({ entryId: "e1", turnId: "t1", queued: false, asOfSeq: 0 }));
  const answer = session.send("x");
  await answer.accepted;
  server.drop();
  const message = (entryId, parentId, role, text) => ({
    entryId,
    parentId,
    timestamp: "",
    type: "message",
    role,
    content: [{ type: "text", text }],
  });
  const snapshot = {
    ...payload("replies/session_opened", "session_opened"),
    sessionId: fake.id,
    role: "writer",
    leafId: "e2",
    state: "idle",
  };
  server.on("open_session", () => ({
    ...snapshot,
    resumed: "snapshot",
    entries: [message("e1", null, "user", "x"), { ...message("e2", "e1", "assistant", "done"), stopReason: "length" }],
  }));
  await hands.pass(1_000);
  let text = "";
  for await (const piece of answer.text()) text += piece;
  const { status, finishReason } = await answer.finished();
  assert.deepEqual([text, status, finishReason], ["done", "completed", "length"]);
});

test("a session ends as the server says", async () => {
  const table = [
    [closed("deleted", false), "ended"],
    [closed("failed", true), "opening"],
    [closed("failed", false), "opening"],
    [closed("draining", true), "opening"],
  ];
  for (const [event, phase] of table) {
    const { session, fake, server, hands } = await opened();
    fake.append({ type: "session_updated", payload: { name: "kept" } });
    fake.show(event);
    await quiet();
    assert.equal(session.status.phase, phase, event.payload.code);
    if (phase === "ended") {
      await assert.rejects(session.rename("x"), { name: "SessionEnded" });
      continue;
    }
    await hands.pass(1_000);
    assert.equal(session.status.phase, "open");
    const { payload: opening } = server.commands.findLast((command) => command.type === "open_session");
    assert.equal(opening.resume?.seq, event.payload.retriable ? 1 : undefined);
  }
});

test("a session deleted by this client has ended, and is not requested again", async () => {
  const { session, server, client, hands } = await opened();
  await session.delete();
  assert.deepEqual([session.status.phase, session.status.code], ["ended", "deleted"]);
  const opens = () => server.commands.filter((command) => command.type === "open_session").length;
  const before = opens();
  client.reconnect();
  await hands.pass(60_000);
  assert.equal(opens(), before);
});

test("a session that fails again at once is opened from a snapshot, after a delay", async () => {
  const { fake, server, hands, session } = await opened();
  const openings = () => server.commands.filter((command) => command.type === "open_session");
  await hands.pass(10_000);
  for (const [ms, count, resumes] of [
    [1_000, 2, true],
    [2_000, 2, true],
    [1_000, 3, false],
    [2_000, 3, false],
    [1_000, 4, false],
  ]) {
    if (session.status.phase === "open") fake.show(closed("failed", true));
    await hands.pass(ms);
    const { payload: opening } = openings().at(-1);
    assert.deepEqual([openings().length, "resume" in opening], [count, resumes]);
  }
  // A session that was stable is opened where it was, as after a first failure.
  await hands.pass(10_000);
  fake.show(closed("failed", true));
  await hands.pass(1_000);
  assert.deepEqual([openings().length, "resume" in openings().at(-1).payload], [5, true]);
});

test("a temporarily refused session says why, and opens once it can", async () => {
  const { client, server, hands } = await bench();
  const fake = server.session();
  let refused = 0;
  server.on("open_session", (command, socket) => {
    refused += 1;
    if (refused > 2) return fake.open(socket, undefined).opened;
    return { error: { code: "overloaded", message: "too much to do", retriable: true, retryAfterMs: 4_000 } };
  });
  const session = client.session(fake.id);
  session.open();
  await quiet();
  assert.deepEqual([session.status.phase, session.status.error.code], ["opening", "overloaded"]);
  await hands.pass(8_000);
  assert.deepEqual(session.status, { phase: "open" });
});

test("events that happened while the client was disconnected are reported as missed", async () => {
  const { fake, server, hands, session } = await opened();
  const told = [];
  session.onEvent((event, snapshot, missed) => told.push([event.payload?.name ?? event, snapshot.name, missed]));
  const rename = (name) => fake.append({ type: "session_updated", payload: { name } });
  rename("a");
  await quiet();
  server.drop();
  for (const name of ["b", "c"]) rename(name);
  await hands.pass(1_000);
  rename("d");
  await quiet();
  assert.deepEqual(told, [
    ["a", "a", false],
    ["replaying", "a", false],
    ["b", "b", true],
    ["c", "c", true],
    ["d", "d", false],
  ]);
});

test("a session that cannot be opened says why; a damaged one can be read", async () => {
  const { client, server } = await bench();
  await assert.rejects(client.session("nowhere").opened(), { code: "session_not_found" });
  const fake = server.session();
  server.on("open_session", (command, socket) => {
    if (command.payload.role === "observer") return { ...fake.open(socket, undefined).opened, role: "observer" };
    return { error: { code: "session_damaged", message: "a record is damaged", retriable: false } };
  });
  const session = client.session(fake.id, { tools: {} });
  assert.equal((await session.opened()).role, "observer");
});

test("a tool runs when the host is told to, once per call; its result is resent on request", async () => {
  const runs = [];
  const weather = tool({
    description: "The weather.",
    parameters: PARAMETERS,
    run: async ({ place }, call) => {
      runs.push([place, call.toolCallId]);
      call.progress("looking");
      return { wind: "SW 5" };
    },
  });
  const { session, server, fake, hands } = await opened({}, { tools: { weather } });
  const offered = server.commands.findLast((command) => command.type === "open_session").payload.tools;
  assert.deepEqual(offered, [{ name: "weather", description: "The weather.", parameters: PARAMETERS }]);
  fake.append({ type: "tool_call", payload: CALL });
  await quiet();
  assert.deepEqual(runs, [], "that there is a call concerns everybody");
  fake.show({ type: "run_tool", payload: { toolCallId: CALL.toolCallId } });
  await quiet();
  const results = () =>
    server.commands.filter((command) => command.type === "tool_result").map((command) => command.payload);
  assert.deepEqual(runs, [["harbour", CALL.toolCallId]]);
  assert.deepEqual(results(), [{ toolCallId: CALL.toolCallId, output: '{"wind":"SW 5"}' }]);
  assert.deepEqual(server.commands.find((command) => command.type === "call_progress").payload, {
    toolCallId: CALL.toolCallId,
    message: "looking",
  });
  server.drop();
  await hands.pass(1_000);
  fake.show({ type: "run_tool", payload: { toolCallId: CALL.toolCallId, again: true } });
  await quiet();
  assert.deepEqual([runs.length, results().length], [1, 2]);
  assert.equal(
    server.commands.findLast((command) => command.type === "open_session").payload.tools.length,
    1,
    "offered again",
  );
  fake.append({ type: "call_resolved", payload: { toolCallId: CALL.toolCallId, outcome: "answered" } });
  await quiet();
  assert.equal(session.snapshot.pending.length, 0);
});

test("a tool that throws has failed; one whose result is no longer awaited is aborted", async () => {
  const aborted = [];
  const endless = (_, { signal }) =>
    new Promise((resolve) => signal.addEventListener("abort", () => resolve(aborted.push(signal.reason.name))));
  const tools = {
    weather: tool({
      description: "",
      parameters: PARAMETERS,
      run: () => {
        throw new Error("out of order");
      },
    }),
    endless: tool({ description: "", parameters: PARAMETERS, run: endless }),
  };
  const { server, fake, hands } = await opened({}, { tools });
  const call = (toolCallId, name) => {
    fake.append({ type: "tool_call", payload: { ...CALL, toolCallId, name } });
    fake.show({ type: "run_tool", payload: { toolCallId } });
  };
  call("failing", "weather");
  call("unknown", "parking");
  call("cancelled", "endless");
  call("late", "endless");
  await quiet();
  fake.show({
    type: "tool_cancelled",
    payload: { toolCallId: "cancelled", name: "endless", turnId: "turn", outcome: "dropped" },
  });
  await quiet();
  assert.deepEqual(aborted, ["AbortError"]);
  await hands.pass(60_000);
  assert.deepEqual(aborted, ["AbortError", "TimeoutError"]);
  const results = server.commands.filter((command) => command.type === "tool_result").map(({ payload }) => payload);
  assert.deepEqual(results, [
    { toolCallId: "failing", output: "out of order", isError: true },
    { toolCallId: "unknown", output: "this client does not offer the tool parking", isError: true },
    // Only the server decides whether this is too late.
    { toolCallId: "late", output: "2" },
  ]);
});

test("hooks are called at their point, once per call; one that only observes does not answer", async () => {
  const asked = [];
  const hooks = [
    hook({ point: "message", name: "redact" }, ({ message }) => {
      asked.push("redact");
      return { message };
    }),
    hook({ point: "tool_result", name: "watch", observe: true }, () => void asked.push("watch")),
    hook({ point: "before_navigate", name: "moody" }, () => {
      throw new Error("not today");
    }),
  ];
  const { server, fake } = await opened({}, { hooks });
  const ask = (name) => {
    const call = payload(`events/hook_call.${name}`, "hook_call");
    fake.show({
      type: "hook_call",
      payload: { ...call, ...(call.deadline ? { deadline: new Date(9_000).toISOString() } : {}) },
    });
    return call;
  };
  const message = ask("message");
  ask("message");
  ask("tool_result.observe");
  fake.show({
    type: "hook_call",
    payload: {
      hookCallId: "h2",
      hook: "moody",
      sessionId: fake.id,
      point: "before_navigate",
      deadline: new Date(9_000).toISOString(),
    },
  });
  await quiet();
  assert.deepEqual(asked, ["redact", "watch"]);
  const results = server.commands.filter((command) => command.type === "hook_result").map((command) => command.payload);
  assert.deepEqual(results.reverse(), [
    { hookCallId: message.hookCallId, message: message.message },
    { hookCallId: "h2", error: "not today" },
  ]);
});

test("tools offered later replace earlier ones", async () => {
  const { session, server } = await opened();
  server.on("register_tools", () => ({ standby: true }));
  const weather = tool({ description: "", parameters: PARAMETERS, run: () => "" });
  assert.deepEqual(await session.host({ tools: { weather } }), { standby: true });
  assert.deepEqual(
    server.commands.at(-1).payload.tools.map(({ name }) => name),
    ["weather"],
  );
});

test("a session stays open while it is held, and a moment longer", async () => {
  const { client, server, hands } = await bench();
  const fake = server.session();
  const session = client.session(fake.id);
  assert.equal(client.session(fake.id), session);
  await quiet();
  assert.equal(fake.followers, 0, "nobody has asked for it yet");
  const [one, other] = [session.hold(), session.hold()];
  await quiet();
  assert.equal(fake.followers, 1);
  one();
  other();
  const back = session.hold();
  await hands.pass(5_000);
  assert.equal(fake.followers, 1, "it came back at once");
  back();
  await hands.pass(5_000);
  assert.deepEqual([fake.followers, session.status.phase], [0, "closed"]);
  await session.setLabel("entry", "asking opens it");
  assert.equal(fake.followers, 1);
});

test("the list of sessions stays up to date", async () => {
  const { client, server, hands } = await bench();
  const item = (sessionId, updatedAt, more = {}) => ({
    sessionId,
    name: sessionId,
    createdAt: "",
    updatedAt,
    entries: 0,
    tokenCount: 0,
    usageRatio: 0,
    state: "idle",
    ...more,
  });
  server.on("list_sessions", ({ payload: { cursor } }) =>
    cursor
      ? { items: [item("b", "1"), item("c", "0")] }
      : { items: [item("a", "3"), item("b", "1")], nextCursor: "more" },
  );
  const names = () => client.sessions.view.items.map(({ name }) => name);
  client.sessions.subscribe(() => undefined);
  await quiet();
  assert.deepEqual([names(), client.sessions.view.more], [["a", "b"], true]);
  await client.sessions.loadMore();
  assert.deepEqual([names(), client.sessions.view.more], [["a", "b", "c"], false]);
  server.send({ type: "session_changed", payload: item("c", "4") });
  server.send({ type: "session_changed", payload: item("a", "3", { name: "renamed" }) });
  server.send({ type: "session_changed", payload: item("b", "1", { deleted: true }) });
  await quiet();
  assert.deepEqual(names(), ["c", "renamed"]);
  server.drop();
  await hands.pass(1_000);
  assert.deepEqual(names(), ["a", "b"], "fetched and watched anew");
  assert.equal(server.commands.at(-1).payload.watch, true);
});

/** Builds list items from `[sessionId, updatedAt]`. */
const listed = (...pairs) =>
  pairs.map(([sessionId, updatedAt, more]) => ({
    sessionId,
    name: sessionId,
    createdAt: "",
    updatedAt,
    entries: 0,
    tokenCount: 0,
    usageRatio: 0,
    state: "idle",
    ...more,
  }));

test("a changed session is placed by its time, unless that place is beyond the known part", async () => {
  const { client, server } = await bench();
  let page = { items: listed(["a", "5"], ["b", "3"]), nextCursor: "more" };
  server.on("list_sessions", () => page);
  client.sessions.subscribe(() => undefined);
  await quiet();
  const names = () => client.sessions.view.items.map(({ name }) => name).join();
  const table = [
    [["c", "4"], "a,c,b"],
    [["d", "1"], "a,c,b"],
    [["b", "1"], "a,c,b"],
    [["b", "9"], "b,a,c"],
    [["a", "5", { deleted: true }], "b,c"],
  ];
  for (const [changed, expected] of table) {
    server.send({ type: "session_changed", payload: listed(changed)[0] });
    await quiet();
    assert.equal(names(), expected, changed.join());
  }
  page = { items: listed(["b", "9"]) };
  client.sessions.refresh();
  await quiet();
  server.send({ type: "session_changed", payload: listed(["d", "1"])[0] });
  await quiet();
  assert.equal(names(), "b,d", "the whole list is known");
});

test("the list is searched by the server, one request at a time", async () => {
  const { client, server, hands } = await bench();
  const asked = [];
  const answers = [];
  server.on("list_sessions", (command, socket) => {
    asked.push(command.payload.search ?? "");
    answers.push((items) => socket.deliver({ re: command.id, type: "sessions", payload: { items } }));
  });
  const { sessions } = client;
  const view = () => [sessions.view.search, sessions.view.items.map(({ name }) => name).join()];
  sessions.subscribe(() => undefined);
  await quiet();
  answers.shift()(listed(["apples", "2"], ["pears", "1"]));
  await quiet();
  for (const words of ["p", "pe", " pea "]) sessions.search(words);
  await quiet();
  assert.deepEqual([asked, view()], [["", "p"], ["pea", "apples,pears"]]);
  answers.shift()(listed(["apples", "2"], ["pears", "1"]));
  await quiet();
  assert.deepEqual([asked, view()], [["", "p", "pea"], ["pea", "apples,pears"]], "the answer to other words is of no use");
  answers.shift()(listed(["pears", "1"]));
  await quiet();
  assert.deepEqual(view(), ["pea", "pears"]);
  // The server knows whether a changed session still matches. It is not asked after each change.
  for (const time of ["3", "4", "5"]) server.send({ type: "session_changed", payload: listed(["peas", time])[0] });
  await quiet();
  assert.equal(asked.length, 3);
  await hands.pass(1_000);
  assert.deepEqual([asked.length, view()], [4, ["pea", "pears"]]);
  answers.shift()(listed(["peas", "3"], ["pears", "1"]));
  await quiet();
  assert.deepEqual(view(), ["pea", "peas,pears"]);
});

test("after a lost connection the list is fetched to its former length; a server without watch is not asked to watch", async () => {
  const { client, server, hands } = await bench();
  const many = (count) => listed(...Array.from({ length: count }, (_, index) => [`s${index}`, "1"]));
  server.on("list_sessions", ({ payload: { cursor } }) =>
    cursor ? { items: many(120).slice(50) } : { items: many(50), nextCursor: "more" },
  );
  client.sessions.subscribe(() => undefined);
  await quiet();
  await client.sessions.loadMore();
  const welcome = payload("replies/welcome", "welcome");
  server.on("hello", () => ({ ...welcome, features: [] }));
  server.drop();
  await hands.pass(1_000);
  const asked = server.commands.filter((command) => command.type === "list_sessions").map((command) => command.payload);
  assert.deepEqual(asked, [{ limit: 50, watch: true }, { limit: 50, cursor: "more" }, { limit: 120 }]);
});

test("what an event does not touch is the same object, and a long history costs no more", () => {
  const start = fromOpened({
    ...payload("replies/session_opened", "session_opened"),
    entries: [],
    leafId: "root",
    asOfSeq: 0,
    state: "idle",
  });
  let snapshot = start;
  const { sessionId } = start;
  // If each event copied the history, this would take minutes.
  for (let seq = 1; seq <= 100_000; seq += 1) {
    const entry = {
      entryId: `e${seq}`,
      parentId: seq === 1 ? null : `e${seq - 1}`,
      timestamp: "",
      type: "custom",
      customType: "x",
    };
    snapshot = fold(snapshot, { sessionId, seq, type: "entry_appended", payload: { entry } });
  }
  const next = fold(snapshot, {
    sessionId,
    type: "item_delta",
    payload: { itemId: "i", part: 0, offset: 0, text: "x" },
  });
  for (const field of ["entries", "path", "contextInfo", "queue", "pending", "pins"])
    assert.equal(next[field], snapshot[field], field);
  assert.equal(next.path.entries.length, 100_000);
  assert.equal(next.path.entries, snapshot.path.entries);
  assert.equal(start.entries.size, 0);
  // Two futures of one snapshot do not affect each other.
  const append = (id) =>
    fold(snapshot, {
      sessionId,
      seq: 100_001,
      type: "entry_appended",
      payload: { entry: { entryId: id, parentId: "e100000", timestamp: "", type: "custom", customType: "x" } },
    });
  const [one, other] = [append("one"), append("other")];
  assert.deepEqual(
    [one.entries.has("one"), one.entries.has("other"), other.entries.has("one"), other.entries.has("other")],
    [true, false, false, true],
  );
});

test("an answer that will get no more events ends with the session", async () => {
  const ends = [
    [({ session }) => session.close(), "the session was closed"],
    [({ client }) => client.close(), "the session was closed"],
    [({ fake }) => fake.show(closed("deleted", false)), "why"],
  ];
  for (const [end, message] of ends) {
    const made = await opened();
    made.server.on("user_input", () => ({ entryId: "e1", turnId: "t1", queued: false, asOfSeq: 0 }));
    const answer = made.session.send("x");
    await answer.accepted;
    const read = answer.text().next();
    await end(made);
    await assert.rejects(read, { name: "SessionEnded", message });
    await assert.rejects(answer.finished(), { name: "SessionEnded", message });
    assert.ok(!types(made.server).includes("cancel_turn"));
  }
});

const said = (entryId, parentId) => ({
  entryId,
  parentId,
  timestamp: "",
  type: "message",
  role: "user",
  content: [{ type: "text", text: entryId }],
});

test("older entries are fetched page by page until the server has no more", async () => {
  const { client, server } = await bench();
  const fake = server.session(new FakeSession("paged", { entries: [said("e3", "e2")], leafId: "e3", more: true }));
  const pages = { e3: { items: [said("e1", "lost"), said("e2", "e1")], more: false } };
  server.on("get_entries", ({ payload: { before } }) => ({ ...pages[before], leafId: "e3", asOfSeq: 0 }));
  const session = client.session(fake.id);
  await session.opened();
  const path = () => session.snapshot.path.entries.map((entry) => entry.entryId);
  assert.deepEqual([path(), session.snapshot.path.more], [["e3"], true]);
  assert.equal(await session.loadOlder(), false);
  assert.deepEqual(
    [path(), session.snapshot.path.more],
    [["e1", "e2", "e3"], false],
    "whatever the parent of the first",
  );
  fake.append({ type: "entry_appended", payload: { entry: said("e4", "e3") } });
  await quiet();
  assert.deepEqual([path(), session.snapshot.path.more], [["e1", "e2", "e3", "e4"], false]);
});

test("the same page of older entries is only fetched once at a time", async () => {
  const { client, server } = await bench();
  const entries = [said("e3", "e2")];
  const fake = server.session(new FakeSession("paged", { entries, leafId: "e3", more: true }));
  const asked = [];
  server.on("get_entries", (command, socket) => void asked.push([command, socket]));
  const session = client.session(fake.id);
  await session.opened();
  const both = [session.loadOlder(), session.loadOlder(5)];
  await quiet();
  assert.deepEqual(
    asked.map(([command]) => command.payload.before),
    ["e3"],
  );
  const [[{ id }, socket]] = asked;
  const page = { items: [said("e2", "e1")], more: true, leafId: "e3", asOfSeq: 0 };
  socket.deliver({ re: id, sessionId: fake.id, type: "entries", payload: page });
  assert.deepEqual(await Promise.all(both), [true, true]);
  void session.loadOlder();
  await quiet();
  assert.equal(asked.at(-1)[0].payload.before, "e2", "and then the one before it");
});

test("if the session moves to an unknown entry, its past is fetched", async () => {
  const { client, server } = await bench();
  const fake = server.session(new FakeSession("moved", { entries: [said("e3", "e2")], leafId: "e3", more: true }));
  server.on("get_entries", () => ({
    items: [said("o1", null), said("o2", "o1")],
    more: false,
    leafId: "o2",
    asOfSeq: 1,
  }));
  const session = client.session(fake.id);
  await session.opened();
  fake.append({ type: "session_updated", payload: { leafId: "o2" } });
  await quiet();
  assert.deepEqual(
    session.snapshot.path.entries.map((entry) => entry.entryId),
    ["o1", "o2"],
  );
  assert.equal(session.snapshot.path.more, false);
});
