/**
 * Several v2 clients in one session: `node hosts.mjs ws://HOST:PORT npm|builtin`. All of them write. One hosts the
 * tools and is told to run them, others stand by and take over. All know who is present. The place before the first
 * entry has a name.
 */

import { randomUUID } from "node:crypto";
import { Wire, run } from "./wire.mjs";

const [address, implementation] = process.argv.slice(2);

const parameters = { type: "object" };
/** This tool may be run twice. */
const LOOK = { name: "look", description: "Looks at the sea.", parameters, idempotent: true };
/** This one may not. */
const BOOK = { name: "book", description: "Books a berth.", parameters };
const TOOLS = [LOOK, BOOK];

let sessionId;

/** One connection of a client, in one session. */
class Peer {
  clientId = randomUUID();
  /** Frames received, and how many of them `event` has read. */
  seen = [];
  read = 0;

  /** Connects, says hello, and opens or creates the session. */
  async open(payload = {}) {
    this.wire = await Wire.open(implementation, `${address}/ws`, ["reseed.v2"]);
    this.seen = [];
    this.read = 0;
    const hello = { protocolVersion: 2, clientId: this.clientId, client: { name: "hosts.mjs", version: "1" } };
    const welcome = await this.reply("welcome", "hello", hello, null);
    this.connectionId = welcome.connectionId;
    this.limits = welcome.limits;
    const opened = await this.reply("session_opened", "open_session", payload);
    sessionId ??= opened.sessionId;
    return opened;
  }

  /** Receives one frame. */
  async next() {
    const frame = await this.wire.next();
    this.seen.push(frame);
    return frame;
  }

  /** Sends a command about the session and returns the payload of its reply, which must have this type. */
  async reply(expected, type, payload, about = sessionId) {
    const id = randomUUID();
    this.wire.send({ id, ...(about ? { sessionId: about } : {}), type, payload });
    for (;;) {
      const frame = await this.next();
      if (frame.re !== id) continue;
      this.wire.same(frame.type, expected, `the reply to ${type}`);
      return frame.payload;
    }
  }

  async refused(code, type, payload) {
    const error = await this.reply("error", type, payload);
    this.wire.same(error.code, code, `the code of ${type}'s error`);
    return error;
  }

  /** Returns the payload of the next event of this type after the last one read. */
  async event(type) {
    for (;;) {
      while (this.read === this.seen.length) await this.next();
      const frame = this.seen[this.read];
      this.read += 1;
      if (frame.type === type) return frame.payload;
    }
  }

  /** Returns how often it was told to run a call. */
  runs(toolCallId) {
    return this.seen.filter((frame) => frame.type === "run_tool" && frame.payload.toolCallId === toolCallId).length;
  }

  /** Returns the `host` of a session hosted by this peer. */
  get host() {
    return { connectionId: this.connectionId, clientId: this.clientId };
  }

  /** Sends an input that calls a tool. Returns the call's id once this peer has seen it. */
  async call(name) {
    await this.reply("accepted", "user_input", { input: `Please use ${name}.` });
    return (await this.event("tool_call")).toolCallId;
  }

  /** Answers a call, and waits until these peers have seen the end of the turn. */
  async answer(toolCallId, ...peers) {
    await this.reply("ok", "tool_result", { toolCallId, output: "calm" });
    await completed(...peers);
  }
}

/** Waits until these peers have seen a turn complete. */
const completed = async (...peers) => {
  for (const peer of peers) {
    peer.wire.same((await peer.event("turn_finished")).status, "completed", "how the turn ended");
  }
};

const [first, second, reader] = [new Peer(), new Peer(), new Peer()];

/** Checks that both writers learn about the new host. */
const toldHost = async (host) => {
  for (const peer of [first, second]) peer.wire.same((await peer.event("host_changed")).host, host, "the host");
};

await run({
  "the first that offers tools hosts, and knows who is there": async () => {
    const opened = await first.open({ tools: TOOLS, resume: null, hooks: null });
    const { wire } = first;
    wire.same([opened.role, opened.host], ["writer", first.host], "role and host");
    const self = { ...first.host, client: { name: "hosts.mjs", version: "1" }, role: "writer", offers: true };
    wire.same(opened.presence, [self], "who is there");
    const { presenceMax, hostAwaySecs } = first.limits;
    wire.same([typeof presenceMax, typeof hostAwaySecs], ["number", "number"], "the limits");
    const joined = await second.open();
    second.wire.same([joined.role, joined.host], ["writer", first.host], "role and host of the second");
    wire.expect(first.connectionId !== second.connectionId, "connections have ids of their own");
    const other = { ...second.host, client: { name: "hosts.mjs", version: "1" }, role: "writer" };
    second.wire.same(joined.presence, [self, other], "who is there then");
    wire.same(await first.event("presence_changed"), { connection: other }, "who has come");
  },
  "a new session is at the root, and a field that is null is absent": async () => {
    const context = await second.reply("context_info", "get_context_info", null);
    second.wire.same(context.leafId, "root", "the leaf before the first entry");
    const nothing = { whenBusy: null, parentId: null, ifLeaf: null, summarize: null };
    await second.reply("accepted", "user_input", { input: "Count to 3.", ...nothing });
    await completed(first, second);
    const needed = await second.refused("invalid_field", "navigate", { entryId: null });
    second.wire.same(needed.details.field, "entryId", "the field that has to be there");
  },
  "other clients that offer tools stand by": async () => {
    await second.refused("nothing_offered", "take_over_host", {});
    const later = await second.reply("ok", "register_tools", { tools: TOOLS });
    second.wire.same(later.standby, true, "standby of the second");
    first.wire.same((await first.event("presence_changed")).connection.offers, true, "that the second offers some");
    const again = await first.reply("ok", "register_tools", { tools: TOOLS });
    first.wire.same(again.standby, undefined, "standby of the host");
  },
  "everyone sees a call, the host runs it, and any writer may answer it": async () => {
    const toolCallId = await second.call("look");
    first.wire.same((await first.event("tool_call")).toolCallId, toolCallId, "the call that the host is told of");
    first.wire.same(await first.event("run_tool"), { toolCallId }, "what the host is told to run, behind it");
    await second.answer(toolCallId, first, second);
    first.wire.same([first.runs(toolCallId), second.runs(toolCallId)], [1, 0], "how often each is told to run it");
  },
  "the host is taken over, and nobody's subscription ends": async () => {
    await second.reply("ok", "take_over_host", {});
    await toldHost(second.host);
    const toolCallId = await first.call("look");
    second.wire.same(await second.event("run_tool"), { toolCallId }, "what the new host is told to run");
    await second.answer(toolCallId, first, second);
    first.wire.same(first.runs(toolCallId), 0, "how often the former host is told to run it");
  },
  "an open call passes to a new host if it may be run twice": async () => {
    const toolCallId = await first.call("look");
    await second.event("run_tool");
    await first.reply("ok", "take_over_host", {});
    first.wire.same(await first.event("run_tool"), { toolCallId }, "what passes to it");
    await toldHost(first.host);
    await first.answer(toolCallId, first, second);
  },
  "and otherwise waits for the client that runs it": async () => {
    const toolCallId = await second.call("book");
    await first.event("run_tool");
    await second.reply("ok", "take_over_host", {});
    await toldHost(second.host);
    // Anything caused by the takeover precedes the reply to a later command.
    await second.reply("context_info", "get_context_info", {});
    second.wire.same(second.runs(toolCallId), 0, "how often the new host is told to run it");
    await first.answer(toolCallId, first, second);
  },
  "a returning host is told again to run its calls": async () => {
    const toolCallId = await first.call("book");
    await second.event("run_tool");
    second.wire.drop();
    first.wire.same((await first.event("host_changed")).host, { ...second.host, away: true }, "the host that is away");
    const opened = await second.open({ tools: TOOLS });
    second.wire.same(opened.host, second.host, "who hosts");
    second.wire.same(opened.pending.map((call) => call.toolCallId), [toolCallId], "the open call");
    second.wire.same(await second.event("run_tool"), { toolCallId, again: true }, "what it is told again");
    first.wire.same((await first.event("host_changed")).host, second.host, "the host that is back");
    await second.answer(toolCallId, first, second);
  },
  "a standby client becomes the host when the host closes the session": async () => {
    await second.reply("ok", "close_session", {});
    let changed;
    do changed = await first.event("presence_changed");
    while (!changed.left || changed.connection.connectionId !== second.connectionId);
    first.wire.same((await first.event("host_changed")).host, first.host, "the host");
    const toolCallId = await first.call("look");
    await first.event("run_tool");
    await first.answer(toolCallId, first);
  },
  "tools without a host are withdrawn": async () => {
    await second.wire.close();
    second.wire.same((await second.open()).host, first.host, "the host");
    await first.reply("ok", "register_tools", { tools: [] });
    await toldHost(undefined);
    const { envelope } = await first.reply("context", "get_context", {});
    first.wire.same(envelope.tools, [], "the tools of the next request");
  },
  "an observer reads, and is seen": async () => {
    const opened = await reader.open({ role: "observer" });
    reader.wire.same([opened.role, opened.host, opened.presence.length], ["observer", undefined, 3], "what it is told");
    let changed;
    do changed = await first.event("presence_changed");
    while (changed.connection.connectionId !== reader.connectionId);
    first.wire.same(changed.connection.role, "observer", "its role");
    const named = { rename_session: { name: "x" }, user_input: { input: "x" } };
    const writes = { ...named, register_tools: { tools: TOOLS }, take_over_host: {} };
    for (const [type, payload] of Object.entries(writes)) await reader.refused("read_only", type, payload);
  },
  "the root has a name": async () => {
    const { wire } = first;
    wire.same((await first.reply("navigated", "navigate", { entryId: "root" })).leafId, "root", "where it stands");
    for (const peer of [first, second, reader]) {
      let updated;
      do updated = await peer.event("session_updated");
      while (updated.leafId === undefined);
      peer.wire.same(updated.leafId, "root", "what everyone is told");
    }
    const page = await first.reply("entries", "get_entries", { path: true });
    wire.same([page.items, page.leafId], [[], "root"], "the path");
    wire.same((await first.reply("tree", "get_tree", {})).leafId, "root", "the leaf of the tree");
    const { entryId } = await first.reply("accepted", "user_input", { input: "Count to 4.", ifLeaf: "root" });
    await first.event("turn_finished");
    const late = await second.refused("leaf_moved", "user_input", { input: "x", ifLeaf: "root" });
    second.wire.expect(late.retriable === false, "the same again does not help");
    await first.reply("accepted", "user_input", { input: "Count to 5.", parentId: "root" });
    const { entry } = await reader.event("entry_appended");
    reader.wire.same([entry.entryId, entry.parentId], [entryId, null], "the first entry of a branch of its own");
    await first.event("turn_finished");
    const { nodes } = await first.reply("tree", "get_tree", { depth: 1 });
    wire.same(nodes.map((node) => node.parentId), [null, null, null], "the branches from the root");
  },
  "all clients leave, and the session is deleted": async () => {
    await reader.wire.close();
    await first.reply("ok", "delete_session", {});
    second.wire.same((await second.event("session_closed")).code, "deleted", "how it ended for the other");
    for (const peer of [first, second]) peer.wire.same(await peer.wire.close(), 1000, "the code of closing");
  },
});
