/** The connection: when and with what it is re-established, and what happens to commands in flight. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { JSDOM } from "jsdom";
import { CLOSE_CODES, closeCode, CommandError, connect, ConnectionLost, NoCredentials } from "reseed-client";
import { FakeServer } from "reseed-client/testing";
import { bench, Hands, opened, quiet, types } from "./bench.mjs";

const THEN = { stop: "stopped", reconnect: "waiting", renew: "open" };

for (const [code, { meaning, then }] of Object.entries(CLOSE_CODES)) {
  test(`after close code ${code} (${meaning}): ${then}`, async () => {
    const { client, server } = await bench();
    assert.equal(client.status.phase, "open");
    server.drop(Number(code));
    await quiet();
    assert.equal(client.status.phase, THEN[then]);
  });
}

test("unknown codes: 44xx are final, others are not", () => {
  assert.deepEqual(
    [4499, 4402, 4599, 3000, 1015].map((code) => closeCode(code).then),
    ["stop", "stop", "reconnect", "reconnect", "reconnect"],
  );
});

test("delays grow to a limit, and are anywhere below it", async () => {
  const { client, server, hands } = await bench();
  server.refuse(100);
  server.drop();
  const waits = [];
  for (let attempt = 0; attempt < 9; attempt += 1) {
    await quiet();
    assert.equal(client.status.phase, "waiting");
    waits.push(client.status.retryAt - hands.time);
    await hands.pass(waits.at(-1));
  }
  assert.deepEqual(waits, [250, 500, 1000, 2000, 4000, 8000, 15000, 15000, 15000]);
  hands.chance = 0.1;
  await hands.pass(15_000);
  assert.equal(client.status.retryAt - hands.time, 3_000);
});

test("commands issued while the connection is being lost go out on the next one", async () => {
  const { client, server, hands, session } = await opened();
  server.drop();
  assert.equal(client.status.phase, "open", "the client does not know yet");
  const asked = [session.rename("The way by bus"), client.listSessions(), session.send("And by bike?").accepted];
  const lost = assert.rejects(session.previewCompaction(), ConnectionLost);
  await hands.pass(1_000);
  await Promise.all([...asked, lost]);
  const arrived = types(server);
  for (const type of ["rename_session", "list_sessions", "user_input"])
    assert.equal(arrived.filter((name) => name === type).length, 1, type);
});

test("the client waits after far exceeding a rate limit", async () => {
  const { client, server, hands } = await bench();
  server.drop(4429);
  await quiet();
  assert.equal(client.status.retryAt - hands.time, 60_000);
});

test("credentials are requested before each attempt; refused ones are renewed once", async () => {
  const tickets = [];
  const ticket = async () => {
    tickets.push(`ticket-${tickets.length}`);
    return tickets.at(-1);
  };
  const { client, server, hands } = await bench({ ticket });
  server.drop();
  await hands.pass(1_000);
  server.drop(4401);
  await quiet();
  const sent = server.commands.filter((command) => command.type === "hello").map((command) => command.payload.ticket);
  assert.deepEqual(sent, ["ticket-0", "ticket-1", "ticket-2"]);
  assert.equal(client.status.phase, "open");

  const error = { code: "unauthenticated", message: "wrong ticket", retriable: false };
  server.on("hello", () => ({ error }));
  await hands.pass(15_000);
  server.drop();
  await hands.pass(1_000);
  assert.deepEqual([client.status.phase, client.status.code], ["stopped", 4401]);
  assert.equal(tickets.length, 5, "one more attempt, and no third");
});

test("expiring credentials are renewed in place if there may be others", async () => {
  let asked = 0;
  const next = (name) => async () => `${name}-${++asked}`;
  const table = [
    [{ ticket: next("ticket") }, [{ ticket: "ticket-2" }]],
    [{ token: next("token") }, [{ token: "token-2" }]],
    [{ token: "fixed" }, []],
    [{ token: () => undefined }, []],
    [{}, []],
  ];
  for (const [options, expected] of table) {
    asked = 0;
    const { client, server } = await bench(options);
    server.send({ type: "token_expiring", payload: { expiresInMs: 60_000 } });
    await quiet();
    const sent = server.commands.filter(({ type }) => type === "authenticate").map(({ payload }) => payload);
    assert.deepEqual(sent, expected);
    assert.deepEqual([client.status.phase, server.sockets.length], ["open", 1]);
  }
});

test("a failed renewal leaves the connection open until the server closes it", async () => {
  const { client, server } = await bench({ ticket: async () => "ticket" });
  server.on("authenticate", () => ({ error: { code: "unauthenticated", message: "used", retriable: false } }));
  server.send({ type: "token_expiring", payload: { expiresInMs: 60_000 } });
  await quiet();
  assert.equal(client.status.phase, "open");
  server.drop(4401);
  await quiet();
  assert.equal(client.status.phase, "open");
  assert.equal(types(server).filter((type) => type === "hello").length, 2);
});

test("without a token or a ticket, hello carries neither", async () => {
  for (const options of [{ ticket: () => undefined }, { token: async () => undefined }, {}]) {
    const { client, server } = await bench(options);
    assert.equal(client.status.phase, "open");
    const { payload } = server.commands.find((command) => command.type === "hello");
    assert.deepEqual([payload.ticket, payload.token], [undefined, undefined]);
  }
});

test("what the server announced stays known while the connection is down", async () => {
  const { client, server, hands } = await bench();
  const { welcome } = client.status;
  assert.equal(client.welcome, welcome);
  server.drop();
  await quiet();
  assert.deepEqual([client.status.phase, client.welcome], ["waiting", welcome]);
  await hands.pass(1_000);
  assert.deepEqual([client.welcome === client.status.welcome, client.welcome === welcome], [true, false]);
});

test("waiting and later commands reject with the reason why the connection has stopped", async () => {
  const unauthenticated = { code: "unauthenticated", message: "wrong token", retriable: false };
  const table = [
    [({ server }) => server.on("hello", () => ({ error: unauthenticated })), { name: "CredentialsRefused" }],
    [({ server }) => server.on("hello", (_, socket) => socket.drop(4400)), { name: "ConnectionStopped", code: 4400 }],
    [({ server }) => server.on("hello", (_, socket) => socket.drop(1000)), { name: "ConnectionStopped", code: 1000 }],
    [({ client }) => client.close(), { name: "ClientClosed" }],
  ];
  for (const [stop, error] of table) {
    const { client, server, hands } = await bench();
    server.drop();
    await quiet();
    const asked = assert.rejects(client.listSessions(), error);
    stop({ client, server });
    await hands.pass(1_000);
    assert.equal(client.status.phase, "stopped");
    assert.equal(client.status.error.name, error.name);
    await asked;
    await assert.rejects(client.listSessions(), error);
  }
});

test("a session being waited for rejects when the connection stops", async () => {
  const { client, server, hands } = await bench();
  server.drop();
  await quiet();
  server.on("hello", (_, socket) => socket.drop(4400));
  const session = client.session(server.session().id);
  const waited = assert.rejects(session.opened(), { name: "ConnectionStopped" });
  await hands.pass(1_000);
  await waited;
  await assert.rejects(session.opened(), { name: "ConnectionStopped" });
});

test("a failing callback is called again, unless it throws NoCredentials", async () => {
  let error = new Error("offline");
  const { client, hands } = await bench({
    token: () => {
      throw error;
    },
  });
  assert.deepEqual([client.status.phase, client.status.reason], ["waiting", "offline"]);
  error = new SyntaxError("the answer is no JSON");
  await hands.pass(1_000);
  assert.deepEqual([client.status.phase, client.status.reason], ["waiting", "the answer is no JSON"]);
  error = new NoCredentials("logged out");
  await hands.pass(1_000);
  assert.deepEqual([client.status.phase, client.status.reason], ["stopped", "logged out"]);
  await assert.rejects(client.listSessions(), error);
  error = undefined;
});

test("commands issued while the connection is down go out later, in order, under the same ids", async () => {
  const { server, session, hands } = await opened();
  server.on("rename_session", () => undefined);
  server.on("set_label", () => undefined);
  const renamed = session.rename("Ferry");
  const labelled = session.setLabel("entry", "label");
  await quiet();
  server.drop();
  await quiet();
  const said = session.send("while away");
  const info = session.getContextInfo();
  const first = server.commands.filter((command) => ["rename_session", "set_label"].includes(command.type));
  server.commands.length = 0;
  server.on("rename_session", () => ({}));
  server.on("set_label", () => ({}));
  await hands.pass(1_000);
  await Promise.all([renamed, labelled, said.finished(), info]);
  assert.deepEqual(types(server), [
    "hello",
    "open_session",
    "rename_session",
    "set_label",
    "user_input",
    "get_context_info",
  ]);
  const again = server.commands.filter((command) => ["rename_session", "set_label"].includes(command.type));
  assert.deepEqual(again, first);
});

test("a command that cannot be sent twice fails with the connection", async () => {
  const { server, session } = await opened();
  server.on("preview_compaction", () => undefined);
  const preview = session.previewCompaction();
  await quiet();
  server.drop();
  await assert.rejects(preview, { name: "ConnectionLost" });
});

test("a session being created is created once", async () => {
  const { client, server, hands } = await bench();
  let lost = true;
  server.on("open_session", (command) => {
    if (lost) return void (lost = false);
    const fake = server.sessions.get(command.sessionId) ?? server.session();
    return fake.open(server.sockets[0], undefined).opened;
  });
  const created = client.createSession();
  await quiet();
  server.drop();
  await hands.pass(1_000);
  const session = await created;
  const ids = server.commands.filter((command) => command.type === "open_session").map((command) => command.id);
  assert.deepEqual(ids, [ids[0], ids[0]]);
  assert.ok(ids[0].length >= 16);
  assert.equal(session.status.phase, "open");
});

test("the outbox is bounded", async () => {
  const { client, server, session } = await opened({ outboxMax: 2 });
  server.drop();
  await quiet();
  const given = [1, 2, 3].map((number) => session.rename(`${number}`));
  await assert.rejects(given[2], {
    name: "OutboxFull",
    message: "2 commands wait for a reply already; wait for some of them",
  });
  client.close();
  for (const waiting of given.slice(0, 2)) await assert.rejects(waiting, { name: "ClientClosed" });
  await assert.rejects(session.rename("4"), { name: "ClientClosed" });
});

test("a command beyond the server's size limit is not sent", async () => {
  const { session } = await opened();
  await assert.rejects(session.send("ü".repeat(600_000)).finished(), { name: "CommandTooLarge" });
});

test("after a silence the client pings, and treats a silent server as gone", async () => {
  const { client, server, session, hands } = await opened();
  await hands.pass(21_000);
  const ping = server.commands.findLast((command) => command.type === "ping");
  assert.deepEqual([ping.sessionId, ping.payload], [session.id, { seq: 0 }]);
  server.on("ping", () => undefined);
  const greetings = () => types(server).filter((type) => type === "hello").length;
  await hands.pass(28_000);
  assert.equal(greetings(), 1);
  await hands.pass(2_000);
  assert.equal(greetings(), 2);
  assert.equal(client.status.phase, "open");
});

test("a pong that knows of more events reopens the session where it was", async () => {
  const { fake, server, session, hands } = await opened();
  const show = fake.append.bind(fake);
  // An event that is lost in transit.
  const [socket] = server.sockets;
  fake.leave(socket);
  show({ type: "session_updated", payload: { name: "missed" } });
  await hands.pass(21_000);
  assert.equal(session.snapshot.name, "missed");
  const { payload } = server.commands.findLast((command) => command.type === "open_session");
  assert.equal(payload.resume.seq, 0);
});

test("a gap reopens the session where it was", async () => {
  const { fake, server, session } = await opened();
  const [socket] = server.sockets;
  fake.leave(socket);
  fake.append({ type: "session_updated", payload: { name: "missed" } });
  fake.open(socket, undefined);
  fake.append({ type: "session_updated", payload: { model: "other" } });
  await quiet();
  assert.deepEqual([session.snapshot.name, session.snapshot.model, session.snapshot.seq], ["missed", "other", 2]);
  assert.deepEqual(types(server).slice(-3), ["close_session", "open_session", "get_context_info"]);
});

test("a second gap right after the first requests a fresh snapshot", async () => {
  const { fake, server, session } = await opened();
  server.on("open_session", (_, socket) => ({ ...fake.open(socket, undefined).opened, asOfSeq: fake.log.length }));
  const resumes = () =>
    server.commands.flatMap(({ type, payload }) => (type === "open_session" ? [payload.resume !== undefined] : []));
  const gap = () =>
    server.send({ sessionId: fake.id, seq: session.snapshot.seq + 2, type: "queue_released", payload: {} });
  gap();
  await quiet();
  gap();
  await quiet();
  assert.deepEqual(resumes(), [false, true, false]);
  assert.equal(session.status.phase, "open");
});

test("credentials that are alternately accepted and refused are not renewed indefinitely", async () => {
  let asked = 0;
  const { client, server, hands } = await bench({ token: () => `token-${(asked += 1)}` });
  server.drop(4401);
  await quiet();
  server.drop(4401);
  await quiet();
  assert.deepEqual([client.status.phase, asked], ["stopped", 2]);
  client.reconnect();
  await hands.pass(15_000);
  server.drop(4401);
  await quiet();
  assert.deepEqual([client.status.phase, asked], ["open", 4]);
});

test("when the network is back the client does not wait", async () => {
  const { client, server, hands } = await bench();
  server.refuse(3);
  server.drop();
  await hands.pass(2_000);
  assert.equal(client.status.phase, "waiting");
  await hands.wake();
  assert.equal(client.status.phase, "open");
  server.commands.length = 0;
  await hands.wake();
  assert.deepEqual(types(server), ["ping"], "one that seems open is asked");
});

test("a network that swallows everything does not block the client", async () => {
  const hands = new Hands();
  class Silent {
    readyState = 0;
    close() {}
  }
  const client = connect("http://fake.invalid", { WebSocket: Silent, environment: hands.environment, clientId: "tab" });
  await hands.pass(20_000);
  assert.equal(client.status.phase, "waiting");
});

test("addresses: http becomes ws, and the path is /ws unless one is given", async () => {
  const asked = [];
  for (const url of ["http://host:1/", "https://host#top", "wss://host/base/ws", new URL("ws://host/other")]) {
    const Socket = class {
      constructor(address, protocol) {
        asked.push([address, protocol]);
      }
      close() {}
    };
    const client = connect(url, { WebSocket: Socket, environment: new Hands().environment, clientId: "tab" });
    await quiet();
    client.close();
  }
  assert.deepEqual(
    asked.map(([address]) => address),
    ["ws://host:1/ws", "wss://host/ws", "wss://host/base/ws", "ws://host/other"],
  );
  assert.equal(asked[0][1], "reseed.v2");
});

test("an invalid server address is refused at once, with the value and the expected form", () => {
  const { WebSocket } = new FakeServer();
  for (const url of ["127.0.0.1:18943", "localhost:18943", "host", "", "/ws", "ftp://host", "ws://"])
    assert.throws(() => connect(url, { WebSocket }), {
      name: "TypeError",
      message:
        `\`${url}\` is not the address of a server: it must begin with ws://, wss://, http:// or https://, ` +
        "for instance ws://127.0.0.1:8080",
    });
});

test("a runtime that refuses to create the socket stops the client with the reason", async () => {
  class Refusing {
    constructor() {
      throw new SyntaxError("an insecure connection from a secure page");
    }
  }
  const client = connect("ws://host", { WebSocket: Refusing, environment: new Hands().environment, clientId: "tab" });
  const asked = assert.rejects(client.listSessions(), { name: "ConnectionStopped", code: 1006 });
  await quiet();
  const { phase, code, reason } = client.status;
  const words = "cannot connect to ws://host/ws: an insecure connection from a secure page";
  assert.deepEqual([phase, code, reason], ["stopped", 1006, words]);
  await asked;
});

test("a hello that is refused for good stops the client with the server's message", async () => {
  const hands = new Hands();
  const server = new FakeServer();
  server.on("hello", () => ({ error: { code: "unsupported_version", message: "speak version 3", retriable: false } }));
  const client = connect(server.url, { WebSocket: server.WebSocket, environment: hands.environment, clientId: "tab" });
  await quiet();
  assert.deepEqual([client.status.phase, client.status.reason], ["stopped", "speak version 3"]);
  assert.ok(client.status.error instanceof CommandError);
});

test("in a browser, `online` and a page that becomes visible again wake the client", async (context) => {
  const { window } = new JSDOM("");
  const globals = { window, document: window.document };
  for (const [name, value] of Object.entries(globals))
    Object.defineProperty(globalThis, name, { value, configurable: true });
  context.after(() => {
    for (const name of Object.keys(globals)) delete globalThis[name];
  });
  const server = new FakeServer();
  const client = connect(server.url, { WebSocket: server.WebSocket, clientId: "tab" });
  await quiet();
  for (const wake of [
    () => window.dispatchEvent(new window.Event("online")),
    () => window.document.dispatchEvent(new window.Event("visibilitychange")),
  ]) {
    // jsdom's page counts as visible unless it says otherwise.
    Object.defineProperty(window.document, "visibilityState", { value: "visible", configurable: true });
    server.commands.length = 0;
    wake();
    await quiet();
    assert.deepEqual(types(server), ["ping"]);
  }
  Object.defineProperty(window.document, "visibilityState", { value: "hidden", configurable: true });
  server.commands.length = 0;
  window.document.dispatchEvent(new window.Event("visibilitychange"));
  await quiet();
  assert.deepEqual(types(server), [], "a page that is hidden asks nothing");
  client.close();
});

test("without a WebSocket in the runtime, the error says what to do", () => {
  const had = Object.getOwnPropertyDescriptor(globalThis, "WebSocket");
  delete globalThis.WebSocket;
  try {
    assert.throws(() => connect("ws://127.0.0.1"), {
      message: /pass one as `WebSocket`, for instance that of npm's `ws`/,
    });
  } finally {
    if (had) Object.defineProperty(globalThis, "WebSocket", had);
  }
});

test("a page of another origin that never connected is told what the server may lack", async () => {
  const hands = new Hands();
  hands.environment.origin = "http://shop.example:3000";
  const server = new FakeServer();
  server.refuse(3);
  const client = connect(server.url, { WebSocket: server.WebSocket, environment: hands.environment });
  await quiet();
  const { phase, reason } = client.status;
  assert.equal(phase, "waiting");
  assert.match(reason, /Add http:\/\/shop\.example:3000 to ALLOWED_ORIGINS/);
  await hands.pass(2_000);
  assert.equal(hands.warned.length, 1, "once");
  assert.ok(hands.warned[0].includes(reason));
  await hands.pass(60_000);
  assert.equal(client.status.phase, "open");
  server.refuse(1);
  server.drop();
  await hands.pass(100);
  assert.doesNotMatch(client.status.reason, /ALLOWED_ORIGINS/, "it was admitted before");
  client.close();
});
