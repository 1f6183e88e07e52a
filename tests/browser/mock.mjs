/**
 * A mock server that speaks version 2, for tests of the page alone. It serves `src/server/web/` under the same
 * Content-Security-Policy and answers from one `World` per session. Words in the question decide the answer, so a test
 * can ask for a failure, a tool, a long answer or hostile text. Run directly, it listens on a free port.
 */

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname } from "node:path";
import { WebSocketServer } from "ws";
import * as client from "../../src/server/web/client.js";
import { CONTEXT_FEATURES, contextCommands } from "./mock-context.mjs";
import { approvalRules, askingTool, toolCommands } from "./mock-tools.mjs";
import { SEARCH_FEATURES, searchCommands } from "./mock-search.mjs";
import { TREE_FEATURES, treeCommands } from "./mock-tree.mjs";
import { World } from "./world.mjs";

const WRITING_COMMANDS = new Set(client.WRITING_COMMANDS);
const WEB = new URL("../../src/server/web/", import.meta.url);
const TYPES = { ".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml" };
export const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

export const HOSTILE = [
  "<img src=x onerror=\"window.hacked = 1\"><script>window.hacked = 2</script>",
  "[click](javascript:window.hacked=3) [data](data:text/html,<script>window.hacked=4</script>) ![p](https://evil.example/p.png)",
  "<svg onload=window.hacked=5> <a href=\"javascript:window.hacked=6\">x</a> [ok](https://example.com/)",
].join("\n\n");

const MARKDOWN = [
  "## A plan\n\nThree steps, **in order**:\n\n1. Read the *whole* text\n2. Write `fold.js`\n   - with tests\n   - and without tricks\n3. Look at it\n\n",
  "```js\nfunction fold(state, event) {\n  return reduce(state, event);\n}\n```\n\n",
  "| kind | tokens |\n| --- | ---: |\n| system | 60 |\n| user | 1,204 |\n\n> Nothing is deleted: the history stays.\n\nSee [the protocol](https://example.com/protocol).",
].join("");

/** Returns the model's answer to a text. */
function answerTo(text, world) {
  if (/\bhtml\b/.test(text)) return HOSTILE;
  if (/\bmarkdown\b/.test(text)) return MARKDOWN;
  // A slow answer continues until it is cancelled, however slow the browser is.
  if (/\blong\b/.test(text)) return Array.from({ length: /\bslowly\b/.test(text) ? 2000 : 120 }, (_, index) => `Sentence ${index + 1} of a long answer.`).join(" ");
  if (/\bbig\b/.test(text)) return "This answer fills the window. ".repeat(160);
  const said = world.entries.filter((entry) => entry.role === "user").length;
  return `You said: “${text.slice(0, 200)}”. That was message ${said}.`;
}

/** Acts as hooks before a request: one changes what is sent from now on, one adds to this request only, one fails. */
function hooks(world) {
  const policy = { op: "system_part_set", partName: "policy", text: "Be kind.", invalidateCacheReason: "the policy has changed" };
  const transform = { type: "context_transform", schemaVersion: 1, transformerName: "policy", patch: [policy] };
  world.append(transform);
  world.append({ ...transform, patch: [], display: { title: "Masked", summary: "2 names", markdown: "- **Ann**\n- Bob", showInChat: true } });
  world.append({ type: "context_transform", schemaVersion: 9, ops: [] });
  const said = { role: "user", content: [{ type: "text", text: "It is noon." }] };
  world.append({ type: "ephemeral", transformerName: "clock", patch: [{ op: "messages_uncached_append", messages: [said] }] });
  world.ephemeral("hook_failed", { hook: "redact", point: "message", error: { code: "hook_timeout", message: "it took longer than 5 s", retriable: true } });
}

const REFUSED = Symbol("refused");

/** Whether a command's frame names a session; for commands not listed it must. */
const ADDRESSES = { hello: "none", list_sessions: "none", list_models: "none", open_session: "optional", search_history: "optional", ping: "optional" };

/** Commands about a session that need no subscription to it. */
const FROM_OUTSIDE = new Set(["open_session", "rename_session", "delete_session", "get_entries", "get_tree", "search_history", "ping"]);

/** Maximum subscriptions of one connection. */
const SUBSCRIPTIONS_MAX = 64;

export class MockServer {
  constructor({ wordMillis = 3, windowTokens = 8000, token = null, features = [...TREE_FEATURES, ...CONTEXT_FEATURES, ...SEARCH_FEATURES, "models"], nodesMax = 2000, background = 1, pinsMax = 200 } = {}) {
    Object.assign(this, { wordMillis, windowTokens, token, features, nodesMax, background, pinsMax });
    /** Whether the envelope is refused as too large. */
    this.hidesContext = false;
    /** How often the next request was fetched. */
    this.looks = 0;
    this.watchers = new Set();
    this.worlds = new Map();
    /** The subscriptions of each connection: its role in each session, by session id. */
    this.subscriptions = new Map();
    /** Ids of sessions of which a part cannot be read: they only open read-only. */
    this.damaged = new Set();
    /** Sessions by the id of the command that created them. */
    this.created = new Map();
    /** Violations of the wire protocol by clients; they fail a test of the page. */
    this.faults = [];
    /** The command whose reply gets lost with its connection, once. */
    this.losesReplyTo = null;
    /** Number of connections so far. */
    this.connections = 0;
    /** Whether it refuses connections: see `goAway`. */
    this.away = false;
    this.tickets = new Set();
    /** Replies to writing commands by id: a repeated command is executed once. */
    this.done = new Map();
    this.cancels = new Map();
    /** Whether steps wait: see `holdSteps`. */
    this.holdsSteps = false;
    /** What `release` continues, and whether it was called. */
    this.held = new Set();
    /** What waits for the decision on an approval, by its id. */
    this.asked = new Map();
    /** The tools in the `list_tools` reply. */
    this.tools = [];
    /** The MCP servers in that reply. */
    this.toolServers = [];
    this.released = false;
    this.http = createServer((request, response) => void this.serve(request, response));
    this.ws = new WebSocketServer({ noServer: true, handleProtocols: (all) => (all.has("reseed.v2") ? "reseed.v2" : false) });
    this.http.on("upgrade", (request, socket, head) => {
      if (this.away) return void socket.destroy();
      this.ws.handleUpgrade(request, socket, head, (client) => this.accept(client));
    });
  }

  async listen(port = 0) {
    await new Promise((resolve) => this.http.listen(port, "127.0.0.1", resolve));
    this.port = this.http.address().port;
    return `http://127.0.0.1:${this.port}/`;
  }

  async close() {
    for (const cancel of this.cancels.values()) cancel();
    this.dropAll(1012);
    this.ws.close();
    this.http.closeAllConnections();
    await new Promise((resolve) => this.http.close(resolve));
  }

  /** Makes steps of compactions, previews and branch summaries wait for `release` from now on. */
  holdSteps() {
    this.holdsSteps = true;
    this.released = false;
  }

  /** Continues everything held, now and in future; words come at this pace. */
  release(wordMillis = 1) {
    this.wordMillis = wordMillis;
    this.holdsSteps = false;
    this.released = true;
    for (const goOn of this.held) goOn();
  }

  /** Ends every connection: with a close code, or without a close frame. */
  dropAll(code) {
    for (const client of this.ws.clients) if (code) client.close(code); else client.terminate();
  }

  /** Ends all connections and refuses new ones until `comeBack`, so that a page has the time to show it. */
  goAway() {
    this.away = true;
    this.dropAll();
  }

  comeBack() {
    this.away = false;
  }

  async serve(request, response) {
    const { pathname } = new URL(request.url, "http://mock");
    if (request.method === "POST" && pathname === "/api/tickets") {
      const good = request.headers.authorization === `Bearer ${this.token}`;
      const ticket = `ticket-${this.tickets.size}`;
      if (good) this.tickets.add(ticket);
      response.writeHead(good ? 200 : 401, { "content-type": "application/json" }).end(JSON.stringify(good ? { ticket } : {}));
      return;
    }
    const name = pathname === "/" ? "index.html" : /^\/assets\/([a-z-]+\.[a-z]+)$/.exec(pathname)?.[1];
    const body = name ? await readFile(new URL(name, WEB)).catch(() => null) : null;
    if (body === null) return void response.writeHead(404).end();
    response.writeHead(200, { "content-type": TYPES[extname(name)], "content-security-policy": CSP }).end(body);
  }

  /** Returns what is wrong with a command frame, if anything. */
  fault({ id, sessionId, type, payload = {}, ...unknown }) {
    const address = ADDRESSES[type] ?? "required";
    const about = (code, message) => ({ code, message: `${type}: ${message}` });
    if (Object.keys(unknown).length > 0) return about("unknown_field", `the frame has ${Object.keys(unknown)}`);
    if (address === "required" && sessionId === undefined) return about("missing_field", "it names no session");
    if (address === "none" && sessionId !== undefined) return about("unknown_field", "it names a session");
    if ("sessionId" in payload) return about("unknown_field", "the session is named in the payload");
    // Null would count as absent, which is never what the page means.
    const empty = Object.keys(payload).find((field) => payload[field] === null);
    if (empty) return about("missing_field", `\`${empty}\` is null`);
    if (type === "ping" && payload.seq !== undefined && sessionId === undefined) return about("missing_field", "it has `seq` and names no session");
    const short = (WRITING_COMMANDS.has(type) || (type === "open_session" && sessionId === undefined)) && id.length < 16;
    return short ? about("invalid_id", `its id is ${id}`) : null;
  }

  accept(client) {
    this.connections += 1;
    const subscribed = new Map();
    this.subscriptions.set(client, subscribed);
    client.connectionId = `mock-${this.connections}`;
    client.on("message", (data) => {
      const frame = JSON.parse(data.toString());
      const { id, sessionId, type, payload = {} } = frame;
      const reply = (kind, body) => {
        if (this.losesReplyTo === type) {
          this.losesReplyTo = null;
          return client.terminate();
        }
        const named = sessionId ?? (kind === "session_opened" ? body.sessionId : undefined);
        if (client.readyState === client.OPEN) client.send(JSON.stringify({ re: id, sessionId: named, type: kind, payload: body }));
      };
      const refuse = (code, message, retriable = false, details) => {
        reply("error", { code, message, retriable, ...(details ? { details } : {}) });
        return REFUSED;
      };
      const handler = this[`on_${type}`];
      if (!handler) return refuse("unknown_command", `there is no command ${type}`);
      const fault = this.fault(frame);
      if (fault) {
        this.faults.push(fault.message);
        return refuse(fault.code, fault.message);
      }
      if (sessionId !== undefined && !this.worlds.has(sessionId)) return refuse("session_not_found", "there is no such session among yours");
      if (sessionId !== undefined && !FROM_OUTSIDE.has(type) && !subscribed.has(sessionId)) return refuse("no_session", `this connection is not subscribed to ${sessionId}`);
      const role = subscribed.get(sessionId);
      if (role === "observer" && WRITING_COMMANDS.has(type)) return refuse("read_only", "observers may only read");
      const known = this.done.get(id);
      if (known) return reply(known.kind, { ...known.body, duplicate: true });
      const keep = (kind, body) => {
        if (WRITING_COMMANDS.has(type)) this.done.set(id, { kind, body });
        reply(kind, body);
      };
      handler.call(this, { client, id, payload, reply: keep, refuse, world: this.worlds.get(sessionId) });
    });
    client.on("close", () => {
      this.subscriptions.delete(client);
      for (const sessionId of subscribed.keys()) this.worlds.get(sessionId)?.part(client.connectionId);
      this.watchers.delete(client);
    });
  }

  on_hello({ client, payload, reply, refuse }) {
    if (this.token !== null && !this.tickets.delete(payload.ticket)) {
      refuse("unauthenticated", "the credentials are missing, wrong or used up");
      return client.close(4401);
    }
    client.about = { clientId: payload.clientId, client: payload.client };
    reply("welcome", {
      protocolVersion: 2,
      server: {
        name: "reseed", version: "0.1.0", instance: "mock", provider: "offline",
        notice: "No model is configured: the built-in offline model answers. Set OPENAI_API_KEY to talk to a real one.",
      },
      features: this.features, scopes: ["sessions"], connectionId: client.connectionId, heartbeatMs: 30_000,
      limits: {
        messageBytesMax: 1_048_576, depthMax: 32, queueItemsMax: 8, toolsMax: 64, hooksMax: 32, subscriptionsMax: SUBSCRIPTIONS_MAX,
        presenceMax: 100, pageEntriesMax: 500, replayEventsMax: 5000, badFramesMax: 50, previewSecs: 600, hostAwaySecs: 30,
      },
    });
  }

  on_open_session({ client, id, payload, reply, refuse, world: named }) {
    const world = named ?? this.worlds.get(this.created.get(id)) ?? this.make();
    const { sessionId } = world;
    if (!named) this.created.set(id, sessionId);
    const subscribed = this.subscriptions.get(client);
    if (subscribed.has(sessionId)) return refuse("session_already_open", `this connection is subscribed to ${sessionId}`);
    if (subscribed.size >= SUBSCRIPTIONS_MAX) return refuse("too_many_subscriptions", "close one of them first");
    const { resume, role = "writer" } = payload;
    if (role === "writer" && this.damaged.has(sessionId)) return refuse("session_damaged", "the record of event 3 is damaged");
    world.join({ connectionId: client.connectionId, ...client.about, role });
    subscribed.set(sessionId, role);
    if (!resume || resume.epoch !== world.epoch || resume.seq > world.seq) {
      return reply("session_opened", { ...world.snapshot({ ...payload, role }), ...(resume ? { resumed: "snapshot" } : {}) });
    }
    const { opened, frames } = world.after(resume);
    reply("session_opened", { ...opened, role });
    for (const frame of frames) client.send(JSON.stringify(frame));
  }

  /** Ends the subscriptions to a session; the connections stay open. */
  end(sessionId, code) {
    const payload = code === "deleted"
      ? { code, message: "the session was deleted", retriable: false }
      : { code, message: "the server closed the session; open it again with `resume`", retriable: true };
    for (const [client, subscribed] of this.subscriptions) {
      if (!subscribed.delete(sessionId)) continue;
      client.send(JSON.stringify({ sessionId, type: "session_closed", payload }));
      this.worlds.get(sessionId)?.part(client.connectionId);
    }
  }

  make() {
    const sessionId = `mock${String(this.worlds.size + 1).padStart(8, "0")}`;
    const emit = (frame) => {
      for (const [client, subscribed] of this.subscriptions) if (subscribed.has(sessionId)) client.send(JSON.stringify(frame));
      if (frame.seq !== undefined && this.worlds.has(sessionId)) this.tellWatchers(this.worlds.get(sessionId));
    };
    const world = new World({ sessionId, windowTokens: this.windowTokens, background: this.background, emit });
    this.worlds.set(sessionId, world);
    return world;
  }

  on_close_session({ client, world, reply }) {
    this.subscriptions.get(client).delete(world.sessionId);
    world.part(client.connectionId);
    reply("ok", {});
  }

  on_list_models({ reply }) {
    const price = { inputNanoUsd: 400_000_000, cachedNanoUsd: 100_000_000, cacheWriteNanoUsd: 400_000_000, outputNanoUsd: 1_600_000_000 };
    const items = [{ id: "mock-1", windowTokens: this.windowTokens }, { id: "other", windowTokens: 32_000, price, tools: false, images: false }];
    reply("models", { model: "mock-1", others: false, items });
  }

  on_list_sessions({ client, payload, reply, refuse }) {
    if (payload.watch && !this.features.includes("watch")) return refuse("unknown_field", "list_sessions at `watch`: unknown field `watch`");
    if (payload.watch) this.watchers.add(client);
    const items = [...this.worlds.values()].reverse().map((world) => world.item());
    reply("sessions", { items: items.filter((item) => item.name.toLowerCase().includes((payload.search ?? "").toLowerCase())) });
  }

  on_rename_session({ payload, world, reply }) {
    reply("ok", { asOfSeq: world.seq });
    world.update({ name: payload.name });
  }

  on_delete_session({ client, world, reply }) {
    this.subscriptions.get(client).delete(world.sessionId);
    this.worlds.delete(world.sessionId);
    reply("ok", {});
    this.end(world.sessionId, "deleted");
    this.tellWatchers(world, { deleted: true });
  }

  on_get_entries({ payload, world, reply, refuse }) {
    const { entryId, before } = payload;
    if (![entryId, before].every((id) => id === undefined || world.tree.has(id))) return refuse("entry_not_found", "there is no such entry");
    reply("entries", world.page({ ...payload, path: payload.path ?? false }));
  }

  on_ping({ payload, world, reply }) {
    const place = world ? { seq: world.seq, inSync: (payload.seq ?? world.seq) >= world.seq } : {};
    reply("pong", { ...place, serverTime: new Date().toISOString() });
  }

  on_user_input({ id, payload, world, reply, refuse }) {
    // A list of one message, or a text.
    const input = Array.isArray(payload.input) ? payload.input[0].content : payload.input;
    const text = Array.isArray(input) ? input.map((part) => part.text ?? "").join("\n") : input;
    if (text.trim() === "" && !Array.isArray(input)) return refuse("empty_input", "say something");
    if (/\btoo much\b/.test(text)) return refuse("input_too_large", "the input has about 89004 tokens, the window 8000");
    if (world.turn || world.heldUp) {
      if (payload.parentId !== undefined) return refuse("turn_running", "the session is busy");
      reply("accepted", { queued: true, asOfSeq: world.seq });
      return world.enqueue(input, id, payload.whenBusy === "steer");
    }
    reply("accepted", { queued: false, asOfSeq: world.seq });
    if (payload.parentId !== undefined) world.move(payload.parentId === "root" ? null : payload.parentId, { commandId: id });
    world.say(input, id);
    // As on the server, a session is named after its first words.
    if (!world.name) world.update({ name: text.trim().split("\n")[0].slice(0, 60) });
    void this.turn(world, [id]);
  }

  on_retry_turn({ id, world, reply, refuse }) {
    if (!world.lastTurn && world.entries.findLast((entry) => entry.type === "message")?.role !== "user") return refuse("nothing_to_retry", "the last turn ended with an answer");
    reply("accepted", { queued: false, asOfSeq: world.seq });
    void this.turn(world, [id], true);
  }

  on_cancel_turn({ world, reply, refuse }) {
    if (!world.turn) return refuse("no_turn", "no turn is running");
    reply("ok", { asOfSeq: world.seq });
    if (world.heldUp) this.cancels.get(world.compaction.jobId)?.();
    this.cancels.get(world)?.();
  }

  on_set_model({ payload, world, reply }) {
    reply("ok", { asOfSeq: world.seq });
    world.update({ model: payload.model });
  }

  on_set_instructions({ payload, world, reply }) {
    reply("ok", { asOfSeq: world.seq });
    const { instructions: _, ...settings } = world.settings;
    world.update({ settings: { ...settings, ...payload } });
  }

  on_set_options({ payload, world, reply }) {
    reply("ok", { asOfSeq: world.seq });
    world.update({ settings: { ...world.settings, ...payload } });
  }

  /**
   * Waits. Returns true if it was cancelled meanwhile.
   * @param work what may be cancelled: a world for its turn, a job by its name
   */
  pause(work, millis) {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), millis);
      this.cancels.set(work, () => {
        clearTimeout(timer);
        resolve(true);
      });
    });
  }

  /** Runs one step of a compaction, a preview or a summary. Returns true if it was cancelled meanwhile. */
  step(work) {
    return this.holdsSteps ? this.hold(work) : this.pause(work, this.wordMillis * 20);
  }

  /**
   * Waits for `release`, however slow the browser is. Returns true if it was cancelled meanwhile. A question with the
   * word "held" has an answer that waits this way before its last word, and a tool that waits before its result.
   */
  hold(work) {
    if (this.released) return this.pause(work, 0);
    return new Promise((resolve) => {
      const end = (cancelled) => {
        this.held.delete(goOn);
        resolve(cancelled);
      };
      const goOn = () => end(false);
      this.held.add(goOn);
      this.cancels.set(work, () => end(true));
    });
  }

  /** Runs one turn, and then the queued ones. */
  async turn(world, commandIds, again = false) {
    const text = this.saidLast(world);
    world.startTurn(commandIds);
    const { tokenCount, compactAtTokens } = world.contextInfo();
    if (compactAtTokens !== undefined && tokenCount > compactAtTokens && !world.breaker) {
      world.voidRunning();
      world.startCompaction("threshold");
      await this.compact(world);
    }
    if (/\bhooks\b/.test(text)) hooks(world);
    if (/\btool\b/.test(text)) await this.tool(world);
    if (/\bapprove\b/.test(text) && !(await askingTool(this, world, text))) return this.next(world);
    this.deliverSteered(world);
    if (/\bcrowded\b/.test(text)) {
      world.ephemeral("request_delayed", { turnId: world.turn.turnId, attempt: 2, waitMs: 60_000, reason: "upstream_rate_limited" });
      await this.hold(world);
    }
    const item = world.startItem();
    if (/\bthink\b/.test(text)) {
      for (const word of "The user wants me to think first, so I do.".split(/(?<= )/)) {
        world.delta(item, 0, word, "reasoning");
        await this.pause(world, this.wordMillis);
      }
    }
    const part = item.parts.length;
    const words = answerTo(this.saidLast(world), world).split(/(?<=\s)/);
    for (const [index, word] of words.entries()) {
      const isHeld = /\bheld\b/.test(text) && index === words.length - 1;
      if (isHeld ? await this.hold(world) : index > 0 && (await this.pause(world, this.wordMillis))) {
        world.finishItem(item, { stopReason: "cancelled", incomplete: true });
        world.finishTurn("cancelled");
        return this.next(world);
      }
      world.delta(item, part, word);
      if (/\bfail\b/.test(text) && !again && index === 4) {
        world.finishItem(item, { incomplete: true });
        world.finishTurn("failed", { code: "upstream_truncated", message: "the answer stopped in the middle", retriable: true });
        return this.next(world);
      }
    }
    world.finishItem(item, { stopReason: /\bcut\b/.test(text) ? "length" : "stop" });
    world.finishTurn("completed");
    this.next(world);
  }

  async tool(world) {
    const item = world.startItem();
    world.delta(item, 0, "Let me look that up.");
    world.startCall(item, 1, "look_up");
    for (const piece of ["{\"query\":", "\"reseed\"", ",\"limit\":3}"]) {
      await this.pause(world, this.wordMillis);
      world.callDelta(item, 1, piece);
    }
    world.finishCall(item, 1);
    const { content: [, part] } = world.finishItem(item, { stopReason: "tool_calls" });
    const { toolCallId } = part;
    world.call(part);
    await (/\bheld\b/.test(this.saidLast(world)) ? this.hold(world) : this.step(world));
    world.resolve(toolCallId, "no such tool: `look_up`", true);
  }

  next(world) {
    if (world.queue.length > 0) void this.turn(world, [world.dequeue().commandId]);
    else this.prepare(world);
  }
}

Object.assign(World.prototype, approvalRules);
Object.assign(MockServer.prototype, treeCommands, contextCommands, toolCommands, searchCommands);

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const server = new MockServer({ wordMillis: 25, token: process.env.MOCK_TOKEN ?? null });
  console.log(`mock server at ${await server.listen(Number(process.env.PORT ?? 0))}`);
}
