/** Hosting: limits of calls, results that cannot be sent, and memory use of calls. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { hook, tool } from "reseed-client";
import { FakeSession } from "reseed-client/testing";
import { bench, opened, quiet, types } from "./bench.mjs";

const PARAMETERS = { type: "object", properties: {} };
const at = (ms) => new Date(ms).toISOString();
const toolOf = (run, more = {}) => tool({ description: "", parameters: PARAMETERS, run, ...more });

/** Returns the payloads of the commands of one type. */
const sent = (server, type) => server.commands.filter((command) => command.type === type).map(({ payload }) => payload);

/** Makes the model call the tool `work`. */
function call(fake, { toolCallId = "c1", deadline = 60_000, again } = {}) {
  const payload = { toolCallId, turnId: "t1", name: "work", arguments: "{}", deadline: at(deadline) };
  if (!again) fake.append({ type: "tool_call", payload });
  fake.show({ type: "run_tool", payload: { toolCallId, ...(again ? { again } : {}) } });
}

/** Calls the hook `watch`. */
function ask(fake, { hookCallId = "h1", deadline = 60_000 } = {}) {
  const message = { role: "user", content: [{ type: "text", text: "x" }] };
  const payload = { hookCallId, hook: "watch", sessionId: fake.id, point: "message", entryId: "e1", message };
  fake.show({ type: "hook_call", payload: { ...payload, deadline: at(deadline) } });
}

/** Returns a handler, and its calls that have not ended. */
function pending() {
  const runs = [];
  const run = (_, about) => new Promise((end) => runs.push({ ...about, end }));
  return { runs, run };
}

test("tools offered while the session is opening are registered afterwards", async () => {
  const { client, server } = await bench();
  const fake = server.session();
  let opening;
  server.on("open_session", (command, socket) => void (opening = { command, socket }));
  const session = client.session(fake.id);
  session.open();
  await quiet();
  const hosted = session.host({ tools: { work: toolOf(() => "") }, hooks: [] });
  await quiet();
  assert.ok(!types(server).includes("register_tools"));
  const { command, socket } = opening;
  assert.equal(command.payload.tools, undefined);
  const { opened: reply } = fake.open(socket, undefined);
  socket.deliver({ re: command.id, sessionId: fake.id, type: "session_opened", payload: reply });
  await hosted;
  assert.deepEqual(types(server).slice(-2), ["register_tools", "register_hooks"]);
});

test("a clock that runs ahead does not shorten a call", async () => {
  for (const [timeoutMs, limit] of [
    [30_000, 30_000],
    [undefined, 60_000],
  ]) {
    const { runs, run } = pending();
    const { fake, hands } = await opened({}, { tools: { work: toolOf(run, { timeoutMs }) } });
    hands.time = 3_600_000;
    call(fake, { deadline: 30_000 });
    await hands.pass(limit - 1);
    assert.equal(runs[0].signal.aborted, false);
    await hands.pass(1);
    assert.equal(runs[0].signal.reason.name, "TimeoutError");
  }
});

test("a later deadline renews a call's limit, however it is reported", async () => {
  const ways = {
    progress: ({ fake }) =>
      fake.show({ type: "call_progressed", payload: { toolCallId: "c1", deadline: at(90_000) } }),
    delivery: async ({ fake, server, hands }) => {
      server.drop();
      await hands.pass(1_000);
      const open = { toolCallId: "c1", turnId: "t1", name: "work", arguments: "{}", deadline: at(90_000) };
      fake.append({ type: "tool_call", payload: open });
      call(fake, { again: true });
    },
    reopening: async ({ fake, server, hands }) => {
      const open = { toolCallId: "c1", turnId: "t1", name: "work", arguments: "{}", deadline: at(90_000) };
      server.on("open_session", (command, socket) => ({
        ...fake.open(socket, command.payload.resume).opened,
        pending: [open],
      }));
      server.drop();
      await hands.pass(1_000);
    },
  };
  for (const [way, tell] of Object.entries(ways)) {
    const { runs, run } = pending();
    const made = await opened({}, { tools: { work: toolOf(run, { timeoutMs: 30_000 }) } });
    call(made.fake, { deadline: 30_000 });
    await made.hands.pass(20_000);
    await tell(made);
    await made.hands.pass(29_000);
    assert.equal(runs[0].signal.aborted, false, way);
    assert.equal(runs.length, 1, way);
    await made.hands.pass(60_000);
    assert.equal(runs[0].signal.aborted, true, way);
  }
});

test("a hook called again with a later deadline runs once and has the longer limit", async () => {
  const { runs, run } = pending();
  const hooks = [hook({ point: "message", name: "watch" }, run)];
  const { server, fake, hands } = await opened({}, { hooks });
  ask(fake, { deadline: 60_000 });
  await hands.pass(10_000);
  ask(fake, { deadline: 600_000 });
  await hands.pass(100_000);
  assert.deepEqual([runs.length, runs[0].signal.aborted], [1, false]);
  runs[0].end({ block: true });
  await quiet();
  assert.deepEqual(sent(server, "hook_result"), [{ hookCallId: "h1", block: true }]);
});

test("a result after the local limit is sent; one that is no longer awaited is not", async () => {
  const { runs, run } = pending();
  const { server, fake, hands, session } = await opened({}, { tools: { work: toolOf(run) } });
  call(fake, { toolCallId: "late" });
  call(fake, { toolCallId: "closed" });
  await hands.pass(60_000);
  assert.ok(runs.every(({ signal }) => signal.aborted));
  runs[0].end("after all");
  await quiet();
  await session.close();
  runs[1].end("for nobody");
  await quiet();
  assert.deepEqual(sent(server, "tool_result"), [{ toolCallId: "late", output: "after all" }]);
  assert.equal(session.status.phase, "closed");
});

const refusal = (code) => ({ error: { code, message: "no", retriable: false } });
const cyclic = {};
cyclic.self = cyclic;

test("a result that cannot be sent becomes a failure with the reason", async () => {
  const words = "the result could not be sent: ";
  const table = [
    ["y".repeat(1_100_000), undefined, `${words}tool_result has `],
    ["fine", refusal("invalid_field"), `${words}no`],
    ["fine", refusal("too_deep"), `${words}no`],
  ];
  for (const [output, refused, reason] of table) {
    const { server, fake } = await opened({}, { tools: { work: toolOf(() => output) } });
    server.on("tool_result", ({ payload }) => (payload.isError ? {} : (refused ?? {})));
    call(fake);
    await quiet();
    const last = sent(server, "tool_result").at(-1);
    assert.deepEqual([last.isError, last.output.slice(0, reason.length)], [true, reason]);
  }
  for (const answer of [{ systemPrompt: "y".repeat(1_100_000) }, { details: cyclic }, { details: 1n }]) {
    const { server, fake } = await opened({}, { hooks: [hook({ point: "message", name: "watch" }, () => answer)] });
    ask(fake);
    await quiet();
    assert.deepEqual(Object.keys(sent(server, "hook_result").at(-1)), ["hookCallId", "error"]);
    assert.ok(sent(server, "hook_result").at(-1).error.startsWith(words));
  }
});

test("a temporarily refused result is resent a few times", async () => {
  const { server, fake, hands } = await opened({}, { tools: { work: toolOf(() => "done") } });
  const error = { code: "overloaded", message: "no", retriable: true, retryAfterMs: 3_000 };
  server.on("tool_result", () => ({ error }));
  call(fake, { deadline: 900_000 });
  await hands.pass(2_999);
  assert.equal(sent(server, "tool_result").length, 1);
  await hands.pass(1);
  assert.equal(sent(server, "tool_result").length, 2);
  await hands.pass(600_000);
  assert.equal(sent(server, "tool_result").length, 6);
});

test("a lone surrogate is replaced, and everything around it stays", async () => {
  const whole = 'a "\\ud83d" 😀 \\\\';
  const { server, fake, session } = await opened({}, { tools: { work: toolOf(() => `${whole}\ud83d|\ude00`) } });
  call(fake);
  await session.send("cut \ud83d").accepted;
  await quiet();
  assert.deepEqual(sent(server, "tool_result"), [{ toolCallId: "c1", output: `${whole}\ufffd|\ufffd` }]);
  assert.deepEqual(sent(server, "user_input"), [{ input: "cut \ufffd" }]);
});

test("nothing large is kept of an answered hook call", async (context) => {
  const { setFlagsFromString } = await import("node:v8");
  const { runInNewContext } = await import("node:vm");
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc");
  const calls = [];
  const hooks = [
    hook({ point: "message", name: "watch" }, (asked) => {
      const answer = { message: asked.message };
      calls.push(new WeakRef(asked), new WeakRef(answer));
      return answer;
    }),
  ];
  const { fake, server } = await opened({}, { hooks });
  for (let number = 0; number < 20; number += 1) ask(fake, { hookCallId: `h${number}` });
  await quiet();
  assert.equal(sent(server, "hook_result").length, 20);
  // A fresh weak reference keeps its target until the current job ends.
  await quiet();
  gc();
  await quiet();
  gc();
  context.diagnostic(`${calls.filter((kept) => kept.deref()).length} of ${calls.length} are kept`);
  assert.ok(calls.filter((kept) => kept.deref()).length <= 2);
});

test("progress is reported only while the session is open, and does not open it", async () => {
  const { runs, run } = pending();
  const { server, client, fake, hands, session } = await opened({ outboxMax: 2 }, { tools: { work: toolOf(run) } });
  call(fake, { deadline: 600_000 });
  await quiet();
  runs[0].progress("begun");
  await quiet();
  assert.deepEqual(sent(server, "call_progress"), [{ toolCallId: "c1", message: "begun" }]);
  server.drop();
  await quiet();
  for (let step = 0; step < 10; step += 1) runs[0].progress(`step ${step}`);
  const said = session.send("there is room");
  await hands.pass(1_000);
  await said.finished();
  assert.equal(sent(server, "call_progress").length, 1);
  await session.close();
  runs[0].progress("still");
  await quiet();
  assert.deepEqual([runs[0].signal.aborted, session.status.phase, client.status.phase], [true, "closed", "open"]);
  assert.equal(sent(server, "call_progress").length, 1);
});

test("deleting a session aborts its calls", async () => {
  const { runs, run } = pending();
  const { fake } = await opened({}, { tools: { work: toolOf(run) } });
  call(fake);
  await quiet();
  fake.show({ type: "session_closed", payload: { code: "deleted", message: "why", retriable: false } });
  await quiet();
  assert.equal(runs[0].signal.reason.name, "AbortError");
});

test("a call missing from a new snapshot is aborted", async () => {
  const { runs, run } = pending();
  const { server, fake, hands } = await opened({}, { tools: { work: toolOf(run) } });
  call(fake);
  await quiet();
  const { opened: fresh } = new FakeSession(fake.id).open({}, undefined);
  server.on("open_session", () => ({ ...fresh, resumed: "snapshot" }));
  server.drop();
  await hands.pass(1_000);
  assert.equal(runs[0].signal.reason.name, "AbortError");
});
