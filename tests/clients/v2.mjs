/**
 * A v2 client: `node v2.mjs ws://HOST:PORT npm|builtin`. Streams a turn, repeats a command, loses its connection in the
 * middle of an answer and at the end of one, and recovers everything.
 */

import { randomUUID } from "node:crypto";
import { checkCompacted, checkInfo } from "./meter.mjs";
import { Wire, run } from "./wire.mjs";

const [address, implementation] = process.argv.slice(2);
const STRATEGY = "threshold";

/** Fills an eighth of the window, so that there is something to compact soon. */
const BALLAST = `Ballast: ${"sand gravel stone ".repeat(200)}`;

/** Pings to wait for: with two unanswered ones the server closes, so before the third they must have been answered. */
const PINGS = 3;

const clientId = randomUUID();

/** The id of the command that creates the session. */
const opening = randomUUID();

let wire;
let place; // sessionId, epoch and the last seq seen
let frame; // the frame of user_input, kept for resending
let accepted;
const durable = []; // every frame with a seq, in order of first arrival
const shown = new Map(); // the text of each part streamed for an item, or the arguments of a call
const ended = []; // the items and calls reported as complete
const entries = [];

/**
 * Applies one event and checks it: seq without a gap, pieces without a hole, an entry that starts with its streamed
 * text.
 */
const fold = (event) => {
  const { type, payload, seq } = event;
  wire.same([event.id, event.re], [undefined, undefined], "the ids of an event");
  wire.same(event.sessionId, place.sessionId, "the session of an event");
  if (seq !== undefined) {
    wire.same(seq, place.seq + 1, "seq");
    place.seq = seq;
    durable.push(event);
  }
  if (type === "item_started") {
    const { itemId, kind, part, name } = payload;
    if (!shown.has(itemId)) shown.set(itemId, []);
    if (kind === "tool_call") shown.get(itemId)[part] ??= "";
    wire.same(typeof name, kind === "tool_call" ? "string" : "undefined", "the type of a call's name");
  }
  if (type === "item_delta") {
    const parts = shown.get(payload.itemId);
    const text = parts[payload.part] ?? "";
    wire.same(payload.offset, text.length, "the offset of a piece");
    parts[payload.part] = text + payload.text;
  }
  if (type === "item_finished") {
    wire.expect(shown.has(payload.itemId), "what is complete was streamed");
    ended.push([payload.itemId, payload.part]);
  }
  if (type === "entry_appended") {
    const { entry } = payload;
    entries.push(entry);
    if (entry.role === "assistant") {
      for (const [part, text] of (shown.get(entry.entryId) ?? []).entries()) {
        const whole = entry.content[part].text ?? entry.content[part].arguments;
        wire.expect(whole.startsWith(text), "what was streamed is the beginning of the entry");
      }
    }
  }
  return event;
};

/** Applies events until one of this type, which it returns. */
const until = async (type) => {
  for (;;) {
    const event = fold(await wire.next());
    if (event.type === type) return event;
  }
};

/** Commands that address no session. */
const UNADDRESSED = ["hello", "list_sessions", "open_session"];

/** Sends a command and returns its reply; events on the way are applied. `sessionId` is null for none. */
const ask = async (type, payload, id = randomUUID(), sessionId = UNADDRESSED.includes(type) ? undefined : place.sessionId) => {
  wire.send({ id, ...(sessionId ? { sessionId } : {}), type, payload });
  for (;;) {
    const received = await wire.next();
    if (received.re === id) {
      wire.same(received.id, undefined, "the id of a reply");
      return received;
    }
    fold(received);
  }
};

const expectReply = async (expected, type, payload, id, sessionId) => {
  const reply = await ask(type, payload, id, sessionId);
  wire.same(reply.type, expected, `the reply to ${type}`);
  wire.same(reply.seq, undefined, "the seq of a reply");
  return reply.payload;
};

const expectError = async (code, type, payload, id, sessionId) => {
  const error = await expectReply("error", type, payload, id, sessionId);
  wire.same(error.code, code, `the code of ${type}'s error`);
  return error;
};

/** Connects, says hello, and opens the session where this client was, if it had one. */
const connect = async (items) => {
  wire = await Wire.open(implementation, `${address}/ws`, ["reseed.v2"]);
  wire.same(wire.protocol, "reseed.v2", "the subprotocol");
  const welcome = await expectReply("welcome", "hello", {
    protocolVersion: 2,
    clientId,
    client: { name: "v2.mjs", version: "1" },
  });
  wire.same([welcome.protocolVersion, welcome.server.name], [2, "reseed"], "the server");
  wire.expect(welcome.features.includes("resume"), `the features are ${welcome.features}`);
  if (!place) return expectReply("session_opened", "open_session", {}, opening);
  const { sessionId, epoch, seq } = place;
  const opened = await expectReply("session_opened", "open_session", { resume: { epoch, seq, items } }, randomUUID(), sessionId);
  wire.same([opened.resumed, opened.epoch, opened.role], ["replay", epoch, "writer"], "how it was resumed");
  wire.expect(opened.asOfSeq >= seq, `the session is at ${opened.asOfSeq}, this client had seen ${seq}`);
  return opened;
};

await run({
  "hello and a new session": async () => {
    const opened = await connect();
    wire.same([opened.state, opened.role, opened.entries], ["idle", "writer", []], "a new session");
    checkInfo(wire, opened.contextInfo, STRATEGY);
    place = { sessionId: opened.sessionId, epoch: opened.epoch, seq: opened.asOfSeq };
  },
  "a session is created once per command": async () => {
    await expectError("session_already_open", "open_session", {}, opening);
    wire.drop();
    wire = undefined;
    const { sessionId, epoch } = place;
    place = undefined;
    const again = await connect();
    wire.same([again.sessionId, again.epoch, again.role], [sessionId, epoch, "writer"], "the session of the same command");
    place = { sessionId, epoch, seq: again.asOfSeq };
  },
  "a turn is streamed, stored and finished": async () => {
    const said = "The harbour code is K7-tango-42. Repeat after me: naïve ferries 🚢 sail, 你好.";
    frame = { id: randomUUID(), payload: { input: said } };
    accepted = await expectReply("accepted", "user_input", frame.payload, frame.id);
    wire.same(accepted.queued, false, "whether it waits");
    const { entry, commandId } = (await until("entry_appended")).payload;
    wire.same([entry.entryId, commandId, entry.role], [accepted.entryId, frame.id, "user"], "the user's entry");
    wire.same(entry.content, [{ type: "text", text: said }], "what the user said");
    const finished = (await until("turn_finished")).payload;
    wire.same([finished.turnId, finished.status], [accepted.turnId, "completed"], "the turn");
    checkInfo(wire, finished.contextInfo, STRATEGY);
    const answer = entries.at(-1);
    wire.same(answer.content, [{ type: "text", text: "naïve ferries 🚢 sail, 你好." }], "the answer");
    wire.expect(shown.get(answer.entryId)?.[0]?.length > 0, "something was streamed");
    wire.same(answer.parentId, accepted.entryId, "the answer's parent");
  },
  "a resent command is not executed again": async () => {
    const again = await expectReply("accepted", "user_input", frame.payload, frame.id);
    wire.same(again.duplicate, true, "whether it is a duplicate");
    wire.same([again.entryId, again.turnId], [accepted.entryId, accepted.turnId], "the first answer");
    await expectError("idempotency_conflict", "user_input", { input: "something else" }, frame.id);
    const pong = await expectReply("pong", "ping", { seq: place.seq });
    wire.same([pong.inSync, pong.seq], [true, place.seq], "nothing has happened");
  },
  "a tool call is streamed before it is made": async () => {
    const parameters = { type: "object", required: ["text"], properties: { text: { type: "string" } } };
    await expectReply("ok", "register_tools", { tools: [{ name: "echo", description: "Repeats a text.", parameters }] });
    await expectReply("accepted", "user_input", { input: "Use the tool echo with text=fair winds." });
    const call = (await until("tool_call")).payload;
    const { entryId } = entries.at(-1);
    wire.same(shown.get(entryId), ["I call `echo`.", call.arguments], "what was streamed of the answer");
    wire.same(ended.slice(-2), [[entryId, 1], [entryId, undefined]], "what was complete, in order");
    await expectReply("ok", "tool_result", { toolCallId: call.toolCallId, output: "fair winds" });
    wire.same((await until("turn_finished")).payload.status, "completed", "how the turn ended");
    await expectReply("ok", "register_tools", { tools: [] });
  },
  "unknown commands and fields are refused by name": async () => {
    const error = await expectError("unknown_field", "user_input", { input: "x", parentID: null });
    wire.same(error.details.field, "parentID", "the field");
    await expectError("unknown_command", "undo_everything", {});
    await expectError("invalid_id", "user_input", { input: "x" }, "short");
    await expectError("no_pending_approval", "approval_response", { approvalId: "none", review: "yes" });
  },
  "a command names its session, which must be open on this connection": async () => {
    const nameless = await expectError("missing_field", "user_input", { input: "x" }, randomUUID(), null);
    wire.same(nameless.details.field, "sessionId", "the field");
    await expectError("unknown_field", "list_sessions", {}, randomUUID(), place.sessionId);
    await expectError("missing_field", "ping", { seq: place.seq }, randomUUID(), null);
    await expectError("no_session", "user_input", { input: "x" }, randomUUID(), "nosuchsession000");
    const pong = await expectReply("pong", "ping", {}, randomUUID(), null);
    wire.same([pong.seq, pong.inSync], [undefined, undefined], "a place without a session");
  },
  "one connection has two sessions, each with its own events": async () => {
    const other = await expectReply("session_opened", "open_session", {});
    wire.expect(other.sessionId !== place.sessionId, "it is another session");
    const id = randomUUID();
    wire.send({ id, sessionId: other.sessionId, type: "user_input", payload: { input: "Count to 3." } });
    let theirs = other.asOfSeq;
    for (let type; type !== "turn_finished"; ) {
      const received = await wire.next();
      wire.same(received.sessionId, other.sessionId, "whose frame it is");
      if (received.seq !== undefined) theirs += 1;
      wire.same(received.seq, received.seq && theirs, "the other session's seq");
      wire.same(received.re, received.type === "accepted" ? id : undefined, "what it answers");
      type = received.type;
    }
    wire.same((await expectReply("pong", "ping", { seq: place.seq })).inSync, true, "nothing has happened here");
    await expectReply("ok", "close_session", {}, randomUUID(), other.sessionId);
    await expectError("no_session", "user_input", { input: "x" }, randomUUID(), other.sessionId);
    await expectReply("ok", "delete_session", {}, randomUUID(), other.sessionId);
  },
  "a session that others write to and delete does not affect the connection": async () => {
    const { sessionId } = await expectReply("session_opened", "open_session", {});
    const other = await Wire.open(implementation, `${address}/ws`, ["reseed.v2"]);
    const order = (type, payload, named) => other.send({ id: randomUUID(), sessionId: named, type, payload });
    order("hello", { protocolVersion: 2, clientId: randomUUID() });
    const { connectionId } = await other.nextOf("welcome");
    order("open_session", {}, sessionId);
    wire.same((await other.nextOf("session_opened")).role, "writer", "the role of the second");
    const joined = await wire.next();
    wire.same([joined.type, joined.sessionId], ["presence_changed", sessionId], "what the first is told");
    wire.same(joined.payload.connection.connectionId, connectionId, "who has come");
    for (const [name, writer] of [["theirs", other], ["mine", wire]]) {
      writer.send({ id: randomUUID(), sessionId, type: "rename_session", payload: { name } });
      for (const type of ["entry_appended", "session_updated"]) {
        let seen = await wire.next();
        if (seen.re) seen = await wire.next();
        wire.same([seen.type, seen.sessionId, seen.payload.name ?? name], [type, sessionId, name], "what both see");
      }
    }
    order("delete_session", {}, sessionId);
    const closed = await wire.next();
    wire.same([closed.type, closed.sessionId, closed.payload.code, closed.payload.retriable], ["session_closed", sessionId, "deleted", false], "how it ended");
    wire.same(await other.close(), 1000, "the code of the other's closing");
    await expectError("session_not_found", "open_session", {}, randomUUID(), sessionId);
    wire.same((await expectReply("pong", "ping", { seq: place.seq })).inSync, true, "nothing has happened here");
  },
  "a connection lost in the middle of an answer loses nothing": async () => {
    await expectReply("accepted", "user_input", { input: "Write 400 words." });
    const { itemId } = (await until("item_delta")).payload;
    wire.same((await until("item_delta")).payload.itemId, itemId, "the item of the second piece");
    wire.drop();
    const opened = await connect([{ itemId, part: 0, offset: shown.get(itemId)[0].length }]);
    wire.expect(["idle", "running"].includes(opened.state), `the session is ${opened.state}`);
    const finished = (await until("turn_finished")).payload;
    wire.same(finished.status, "completed", "how the turn ended");
    const text = entries.at(-1).content[0].text;
    wire.same([entries.at(-1).entryId, text.split(" ").length], [itemId, 400], "the answer");
  },
  "a replay equals the live events": async () => {
    wire.same(await wire.close(), 1000, "the code of closing");
    const live = durable.splice(0);
    const first = live[0].seq;
    place.seq = first - 1;
    entries.length = 0;
    const opened = await connect();
    wire.same(opened.asOfSeq, live.at(-1).seq, "where the session is");
    while (durable.length < live.length) fold(await wire.next());
    wire.same(durable, live, "the replay");
    wire.same((await expectReply("pong", "ping", { seq: place.seq })).inSync, true, "whether anything is missing");
  },
  "the stored entries equal the reported ones": async () => {
    const stored = await expectReply("entries", "get_entries", { path: true });
    wire.same(stored.items, entries, "the entries");
    wire.same([stored.leafId, stored.more], [entries.at(-1).entryId, false], "the leaf");
    const listed = await expectReply("sessions", "list_sessions", {});
    const own = listed.items.find((session) => session.sessionId === place.sessionId);
    wire.same(own?.entries, entries.length, "the number of entries in the list");
  },
  "a requested compaction is reported": async () => {
    for (let round = 0; round < 4; round += 1) {
      await expectReply("accepted", "user_input", { input: BALLAST });
      await until("turn_finished");
    }
    const id = randomUUID();
    const { jobId } = await expectReply("ok", "start_compaction", { instructions: "Keep the harbour code." }, id);
    const compacted = (await until("context_compacted")).payload;
    wire.same([compacted.jobId, compacted.commandId], [jobId, id], "whose compaction it was");
    checkCompacted(wire, compacted, "manual", STRATEGY);
    const info = await expectReply("context_info", "get_context_info", {});
    checkInfo(wire, info, STRATEGY);
    // What another session learns of the model's tokenizer moves the estimate, within its reported error bound.
    const moved = Math.abs(info.tokenCount - compacted.tokensAfter);
    wire.expect(moved <= info.errorBoundTokens, `${compacted.tokensAfter} tokens became ${info.tokenCount}`);
    await expectReply("accepted", "user_input", { input: "What is the harbour code?" });
    await until("turn_finished");
    const { text } = entries.at(-1).content[0];
    wire.expect(text.includes("K7-tango-42"), `the answer after the compaction is ${text}`);
  },
  ...(implementation === "npm" && {
    "the pings of the server are answered": async () => {
      await wire.pings(PINGS);
      wire.same((await expectReply("pong", "ping", { seq: place.seq })).inSync, true, "whether anything is missing");
    },
  }),
  "the socket is closed properly": async () => {
    await expectReply("ok", "close_session", {});
    wire.same(await wire.close(), 1000, "the code of closing");
  },
});
