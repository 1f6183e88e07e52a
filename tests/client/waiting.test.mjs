/** Commands and answers that wait: for a connection, for their session, for the server. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { connect, tool } from "reseed-client";
import { FakeServer, payload } from "reseed-client/testing";
import { bench, opened, quiet, types } from "./bench.mjs";

const PARAMETERS = { type: "object", properties: {} };
const LARGE = "y".repeat(1_100_000);
const ID = "0123456789abcdef";

/** Returns how many commands of a type have arrived. */
const count = (server, type) => types(server).filter((sent) => sent === type).length;

test("a command issued before the limit is known fails if it exceeds it, and the others go out", async () => {
  const server = new FakeServer();
  const fake = server.session();
  // Issued before the first packet, so that the limit is unknown.
  const client = connect(server.url, { WebSocket: server.WebSocket, clientId: "tab" });
  const session = client.session(fake.id);
  const [large, small] = [session.send(LARGE), session.send("small")];
  await assert.rejects(large.accepted, { name: "CommandTooLarge" });
  await small.finished();
  assert.deepEqual([count(server, "hello"), count(server, "user_input")], [1, 1]);
  client.close();
});

test("an oversized offer ends the session with the reason", async () => {
  const { client, server } = await bench();
  const large = tool({ description: LARGE, parameters: PARAMETERS, run: () => "" });
  const session = client.session(server.session().id, { tools: { large } });
  await assert.rejects(session.opened(), { name: "CommandTooLarge" });
  assert.deepEqual([session.status.phase, count(server, "open_session")], ["ended", 0]);
});

test("a view that disappears while the network is down loses nothing that was said", async () => {
  const { client, server, hands } = await bench();
  const fake = server.session();
  const session = client.session(fake.id);
  const release = session.hold();
  await session.opened();
  server.refuse(3);
  server.drop();
  await quiet();
  const answer = session.send("typed offline");
  release();
  await hands.pass(60_000);
  assert.equal((await answer.accepted).queued, false);
  assert.deepEqual([count(server, "user_input"), session.status.phase, fake.followers], [1, "closed", 0]);
});

test("the same command under one id gets one reply, and a different one under it is refused", async () => {
  const { server, session } = await opened({ outboxMax: 2 });
  server.on("user_input", () => undefined);
  const [one, same] = [session.send("hi", { commandId: ID }), session.send("hi", { commandId: ID })];
  await assert.rejects(session.send("other", { commandId: ID }).accepted, { name: "OutboxFull" });
  await quiet();
  const [socket] = server.sockets;
  const reply = { entryId: "e1", turnId: "t1", queued: false, asOfSeq: 0 };
  socket.deliver({ re: ID, sessionId: session.id, type: "accepted", payload: reply });
  assert.deepEqual([await one.accepted, await same.accepted], [reply, reply]);
  assert.equal(count(server, "user_input"), 1);
  const first = session.send("first", { commandId: ID });
  await assert.rejects(session.send("other", { commandId: ID }).accepted, { name: "TypeError" });
  socket.deliver({ re: ID, sessionId: session.id, type: "accepted", payload: reply });
  await first.accepted;
});

/** Loses the connection during a command, so that it is resent, and answers it with `handle`. */
async function sentAgain(code, more = {}) {
  const made = await opened();
  const { server, session, hands } = made;
  server.on("set_label", () => undefined);
  const first = session.setLabel("entry", "first");
  const second = session.setLabel("entry", "second");
  await quiet();
  server.drop();
  const error = { code, message: "no", retriable: true, ...more };
  const seen = [];
  made.refusals = Number.POSITIVE_INFINITY;
  server.on("set_label", ({ id, payload: { label } }) => {
    seen.push([id, label]);
    made.refusals -= 1;
    return made.refusals >= 0 ? { error } : {};
  });
  return { made, first, second, seen, hands };
}

test("a resent command that is temporarily refused stays, in its order", async () => {
  for (const code of ["rate_limited", "store_failed", "overloaded", "shutting_down"]) {
    const { made, first, second, seen, hands } = await sentAgain(code, { retryAfterMs: 4_000 });
    made.refusals = 2;
    await hands.pass(1_000);
    assert.deepEqual(
      seen.map(([, label]) => label),
      ["first", "second"],
    );
    await hands.pass(30_000);
    await Promise.all([first, second]);
    assert.deepEqual(
      seen.map(([, label]) => label),
      ["first", "second", "first", "second"],
      code,
    );
    assert.deepEqual(new Set(seen.map(([id]) => id)).size, 2, "under the same ids");
  }
});

test("a command that is temporarily refused too often is refused in the end", async () => {
  const { first, second, seen, hands } = await sentAgain("overloaded");
  const refused = Promise.all([first, second].map((sent) => assert.rejects(sent, { code: "overloaded" })));
  await hands.pass(600_000);
  await refused;
  assert.equal(seen.length, 12);
});

const label = ({ session }) => session.setLabel("entry", "label");
const rename = ({ session }) => session.rename("name");

/** Refuses the first command of this type, and records the ids of all of them. */
function refuseFirst(server, type, error, reply = {}) {
  const ids = [];
  server.on(type, ({ id }) => {
    ids.push(id);
    return ids.length === 1 ? { error: { message: "no", retriable: true, ...error } } : reply;
  });
  return ids;
}

test("a first temporary refusal goes to the caller, unless the command may have been stored anyway", async () => {
  const created = { ...payload("replies/session_opened", "session_opened"), sessionId: "created" };
  const create = ({ client }) => client.createSession();
  const result = ({ session }) => session.sendToolResult("c1", "done");
  const hookResult = ({ session }) => session.sendHookResult("h1", {});
  const table = [
    // Each row holds the command, its refusal, whether that is retriable, and whether the command stays.
    ["set_label", label, "store_failed", true, true],
    ["set_label", label, "shutting_down", true, true],
    ["set_label", label, "rate_limited", true, false],
    ["set_label", label, "overloaded", true, false],
    ["set_label", label, "queue_full", true, false],
    ["set_label", label, "store_failed", false, false],
    ["set_label", label, "shutting_down", false, false],
    ["rename_session", rename, "store_failed", true, true],
    ["tool_result", result, "store_failed", true, true],
    ["open_session", create, "store_failed", true, true, created],
    // These store nothing.
    ["get_tree", ({ session }) => session.tree(), "store_failed", true, false],
    ["get_context", ({ session }) => session.getContext(), "shutting_down", true, false],
    ["preview_compaction", ({ session }) => session.previewCompaction(), "store_failed", true, false],
    ["hook_result", hookResult, "shutting_down", true, false],
    ["delete_session", ({ session }) => session.delete(), "store_failed", true, false],
  ];
  for (const [type, ask, code, retriable, stays, reply] of table) {
    const made = await opened();
    const ids = refuseFirst(made.server, type, { code, retriable }, reply);
    const asked = ask(made);
    if (!stays) await assert.rejects(asked, { name: "CommandError", code, retriable }, type);
    await made.hands.pass(1_000);
    if (stays) await asked;
    assert.deepEqual([ids.length, new Set(ids).size], [stays ? 2 : 1, 1], `${type} ${code}`);
  }
});

test("a command that may be stored waits as long as the server says, and counts as waiting", async () => {
  const { server, session, hands } = await opened({ outboxMax: 1 });
  const ids = refuseFirst(server, "set_label", { code: "store_failed", retryAfterMs: 4_000 });
  const labelled = label({ session });
  await hands.pass(3_999);
  assert.equal(ids.length, 1);
  await assert.rejects(session.setLabel("another"), { name: "OutboxFull" });
  await hands.pass(1);
  await labelled;
  assert.equal(ids.length, 2);
});

test("a command that may be stored waits for the next connection, and for its session on it", async () => {
  // The delay ends before the session has reopened, or after.
  for (const retryAfterMs of [0, 4_000]) {
    const { server, session, hands } = await opened();
    const ids = refuseFirst(server, "set_label", { code: "shutting_down", retryAfterMs });
    const labelled = label({ session });
    await quiet();
    server.refuse(1);
    server.drop(1012);
    await hands.pass(5_000);
    await labelled;
    assert.deepEqual(types(server).slice(-2), ["open_session", "set_label"], `${retryAfterMs}`);
    assert.deepEqual([ids.length, new Set(ids).size], [2, 1]);
  }
});

test("a command that may be stored waits for its session, and others of that session wait behind it", async () => {
  for (const closesFirst of [false, true]) {
    const { client, server, session, fake, hands } = await opened();
    const [seen, waiting] = [[], []];
    for (const type of ["set_label", "rename_session", "list_sessions"]) {
      server.on(type, (command, socket) => {
        seen.push(type);
        if (seen.length > 1) return type === "list_sessions" ? { items: [] } : {};
        waiting.push({ command, socket });
        return undefined;
      });
    }
    const asked = [label({ session })];
    await quiet();
    const [{ command, socket }] = waiting;
    const error = { code: "store_failed", message: "no", retriable: true };
    const frames = [
      () => socket.deliver({ re: command.id, sessionId: fake.id, type: "error", payload: error }),
      () => fake.show({ type: "session_closed", payload: { code: "failed", message: "why", retriable: true } }),
    ];
    for (const deliver of closesFirst ? frames.reverse() : frames) deliver();
    await quiet();
    assert.equal(session.status.phase, "opening");
    asked.push(rename({ session }), label({ session }), client.listSessions());
    await quiet();
    assert.deepEqual(seen, ["set_label", "list_sessions"], "the list is about no session");
    await hands.pass(1_000);
    await Promise.all(asked);
    assert.deepEqual(seen, ["set_label", "list_sessions", "set_label", "rename_session", "set_label"]);
  }
});

test("an older name does not replace a newer one", async () => {
  const { server, session, hands } = await opened();
  const names = [];
  server.on("rename_session", ({ payload: { name } }) => {
    names.push(name);
    return names.length === 1 ? { error: { code: "store_failed", message: "no", retriable: true } } : {};
  });
  const older = session.rename("older");
  await quiet();
  const newer = session.rename("newer");
  await hands.pass(1_000);
  await Promise.all([older, newer]);
  assert.deepEqual(names, ["older", "older", "newer"]);
});

test("the last refusal of a command that may be stored goes to the caller", async () => {
  const { server, session, hands } = await opened();
  const codes = ["store_failed", "overloaded", "store_failed", "rate_limited", "store_failed", "shutting_down"];
  let refusals = 0;
  server.on("set_label", () => {
    const code = codes[refusals];
    refusals += 1;
    return code === undefined ? {} : { error: { code, message: `refusal ${refusals}`, retriable: true } };
  });
  const last = { name: "CommandError", code: "shutting_down", message: "refusal 6" };
  const refused = assert.rejects(label({ session }), last);
  await hands.pass(600_000);
  await refused;
  assert.equal(refusals, 6);
});

test("a command that may be stored is rejected once nothing will resend it", async () => {
  const deleted = { type: "session_closed", payload: { code: "deleted", message: "why", retriable: false } };
  const table = [
    ["set_label", label, ({ session }) => session.close(), { name: "SessionEnded" }],
    ["set_label", label, ({ client }) => client.close(), { name: "SessionEnded" }],
    ["rename_session", rename, ({ client }) => client.close(), { name: "ClientClosed" }],
    ["set_label", label, ({ server }) => server.drop(4400), { name: "ConnectionStopped" }],
    ["set_label", label, ({ fake }) => fake.show(deleted), { name: "SessionEnded" }],
  ];
  for (const [type, ask, end, error] of table) {
    const made = await opened();
    const ids = refuseFirst(made.server, type, { code: "store_failed" });
    const rejected = assert.rejects(ask(made), error);
    await quiet();
    end(made);
    await made.hands.pass(60_000);
    await rejected;
    assert.equal(ids.length, 1);
  }
});

test("a command that came too late for a session being reopened waits for it", async () => {
  const { server, session, fake, hands } = await opened();
  let [late, ended] = [true, false];
  server.on("set_label", () => {
    if (!late) return {};
    late = false;
    return { error: { code: "no_session", message: "not open", retriable: false } };
  });
  const labelled = session.setLabel("entry", "label");
  fake.show({ type: "session_closed", payload: { code: "failed", message: "why", retriable: true } });
  void labelled.finally(() => (ended = true));
  await quiet();
  assert.deepEqual([session.status.phase, ended], ["opening", false]);
  await hands.pass(1_000);
  await labelled;
  assert.equal(count(server, "set_label"), 2);
});

test("an answer rejects when the connection has stopped for good", async () => {
  const { client, server, session } = await opened();
  server.on("user_input", () => ({ entryId: "e1", turnId: "t1", queued: false, asOfSeq: 0 }));
  const answer = session.send("x");
  await answer.accepted;
  server.drop(4400);
  await assert.rejects(answer.finished(), { name: "ConnectionStopped" });
  await assert.rejects(client.session("another").opened(), { name: "ConnectionStopped" });
});

test("a command that needs no subscription opens none", async () => {
  const { client, server } = await bench();
  const session = client.session(server.session().id);
  await Promise.all([session.rename("x"), session.tree(), session.getEntries(), session.delete()]);
  assert.equal(count(server, "open_session"), 0);
  assert.equal(session.status.phase, "ended", "it was deleted");
});

test("the context size is fetched once at a time, and once more if it changed meanwhile", async () => {
  const { server, fake, session, hands } = await opened();
  const waiting = [];
  server.on("get_context_info", (command, socket) => void waiting.push({ command, socket }));
  const answer = async () => {
    const { command, socket } = waiting.at(-1);
    const info = payload("replies/context_info", "context_info");
    socket.deliver({ re: command.id, sessionId: fake.id, type: "context_info", payload: info });
    await quiet();
  };
  for (let change = 0; change < 20; change += 1) {
    fake.append({ type: "session_updated", payload: { model: `m${change}` } });
    await quiet();
  }
  assert.equal(waiting.length, 1);
  await answer();
  assert.equal(waiting.length, 2);
  await answer();
  assert.equal(waiting.length, 2);
  server.drop();
  for (let change = 0; change < 20; change += 1)
    fake.append({ type: "session_updated", payload: { model: `n${change}` } });
  await hands.pass(1_000);
  assert.equal(session.snapshot.model, "n19");
  assert.equal(waiting.length, 3, "once, behind the replay");
});

test("a failed compaction causes a fetch of the context size; a failed branch summary does not", async () => {
  const { server, fake } = await opened();
  const failed = payload("events/compaction_failed", "compaction_failed");
  const { trigger, ...branch } = failed;
  assert.ok(trigger);
  for (const [event, count] of [
    [branch, 0],
    [failed, 1],
  ]) {
    fake.append({ type: "compaction_failed", payload: event });
    await quiet();
    assert.equal(types(server).filter((type) => type === "get_context_info").length, count);
  }
});

/** Returns a snapshot in which nothing runs, with these entries on its path. */
const idle = (fake, entries = [], more = {}) => ({
  ...payload("replies/session_opened", "session_opened"),
  sessionId: fake.id,
  role: "writer",
  state: "idle",
  queue: [],
  leafId: entries.at(-1)?.entryId ?? "root",
  entries,
  resumed: "snapshot",
  ...more,
});
const entry = (entryId, parentId, role, text = entryId) => ({
  entryId,
  parentId,
  timestamp: "",
  type: "message",
  role,
  content: [{ type: "text", text }],
});

test("a snapshot without a place for an answer ends it with an error, unless it says how the turn ended", async () => {
  const failed = { turnId: "t9", status: "failed", leafId: "root" };
  const retry = { turnId: "t9", queued: false, asOfSeq: 0 };
  const lost = { name: "ConnectionLost" };
  const table = [
    [(session) => session.retryTurn(), retry, {}, lost],
    [(session) => session.send("x"), { queued: true, asOfSeq: 0 }, {}, lost],
    [(session) => session.send("x"), { entryId: "e9", turnId: "t9", queued: false, asOfSeq: 0 }, {}, lost],
    [(session) => session.retryTurn(), retry, { unansweredTurns: [failed] }, "failed"],
  ];
  for (const [ask, reply, more, end] of table) {
    const { server, session, fake, hands } = await opened();
    server.on("retry_turn", () => reply);
    server.on("user_input", () => reply);
    const answer = ask(session);
    await answer.accepted;
    const over = typeof end === "string" ? answer.finished() : assert.rejects(answer.finished(), end);
    server.on("open_session", () => idle(fake, [], more));
    server.drop();
    await hands.pass(1_000);
    const result = await over;
    if (typeof end === "string") assert.equal(result.status, end);
  }
});

test("a repeated reply from before its turn began does not end the answer", async () => {
  const { server, session, fake, hands } = await opened();
  server.on("user_input", () => undefined);
  const answer = session.send("x");
  await quiet();
  server.drop();
  const reply = { entryId: "e1", turnId: "t1", queued: false, asOfSeq: 0 };
  server.on("user_input", () => ({ ...reply, duplicate: true }));
  await hands.pass(1_000);
  assert.equal((await answer.accepted).duplicate, true);
  fake.ask("x", answer.commandId, reply);
  fake.answer("t1", ["said ", "later"]);
  assert.equal((await answer.finished()).text, "said later");
});

test("the answer of a retry is found after the turn that it repeats", async () => {
  const { client, server, hands } = await bench();
  const fake = server.session();
  const asked = entry("e1", null, "user");
  const ended = { turnId: "t1", status: "failed", leafId: "e1" };
  server.on("open_session", () => idle(fake, [asked], { unansweredTurns: [ended], lastTurn: ended }));
  server.on("retry_turn", () => ({ turnId: "t2", queued: false, asOfSeq: 0 }));
  const session = client.session(fake.id);
  await session.opened();
  const answer = session.retryTurn();
  await answer.accepted;
  const later = [entry("e3", "e2", "user"), entry("e4", "e3", "assistant")];
  const path = [asked, entry("e2", "e1", "assistant", "at last"), ...later];
  server.on("open_session", () => idle(fake, path));
  server.drop();
  await hands.pass(1_000);
  const { status, text } = await answer.finished();
  assert.deepEqual([status, text], ["completed", "at last"]);
});

test("unused sessions are forgotten, and others are not", async () => {
  setFlagsFromString("--expose-gc");
  const gc = runInNewContext("gc");
  const { client, server } = await bench();
  const fake = server.session();
  const open = new WeakRef(client.session(fake.id));
  await open.deref().opened();
  const heard = server.session();
  const seen = new WeakRef(client.session(heard.id));
  const end = seen.deref().subscribe(() => undefined);
  await seen.deref().opened();
  await seen.deref().close();
  const left = [];
  for (let number = 0; number < 20; number += 1) left.push(await visited());
  await quiet();
  gc();
  await quiet();
  assert.ok(left.filter((session) => session.deref()).length <= 1);
  assert.equal(client.session(fake.id), open.deref());
  assert.equal(client.session(heard.id), seen.deref());
  end();

  async function visited() {
    const session = client.session(server.session().id);
    await session.opened();
    await session.close();
    assert.equal(client.session(session.id), session, "one object as long as somebody has it");
    return new WeakRef(session);
  }
});
