/**
 * One session as a server sees it: the reference for the client's fold. It speaks version 2 of the protocol: every
 * change is a frame, `snapshot` returns the whole state, `after` replays missed events.
 */

import { contextRules, tokens } from "./world-context.mjs";

/** A seeded number generator, the same on every machine. */
export function seeded(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** Names a place in the tree as on the wire: null is before the first entry. */
export const nameOf = (leafId) => leafId ?? "root";

/** Returns the parts of an input. */
const partsOf = (input) => (typeof input === "string" ? [{ type: "text", text: input }] : input);

export class World {
  constructor({ sessionId = "session-0001", windowTokens = 8000, background = 1, emit = () => undefined } = {}) {
    this.sessionId = sessionId;
    this.windowTokens = windowTokens;
    /** The share of the trigger from which a compaction is prepared; 1 for never. */
    this.background = background;
    this.emit = emit;
    this.epoch = `epoch-${sessionId}`;
    this.seq = 0;
    this.log = [];
    /** Every entry, in order of arrival. */
    this.tree = new Map();
    this.leafId = null;
    /** The connections that have the session open. */
    this.presence = [];
    this.queue = [];
    this.pending = [];
    this.turn = null;
    this.lastTurn = null;
    this.unanswered = [];
    this.failed = [];
    this.compaction = null;
    /** The move that waits for its summary, and how to reply to it. */
    this.leaving = null;
    this.strategy = "threshold";
    this.settings = {};
    this.pins = [];
    this.undone = [];
    /** Why automatic compaction is paused. */
    this.breaker = null;
    /** The compaction that was previewed and may be applied. */
    this.preview = null;
    this.model = "mock-1";
    this.tools = [];
    /** Calls that need approval, and standing approvals. */
    this.approvals = [];
    this.standing = [];
    /** Options of a request. */
    this.options = {};
    this.name = "";
    this.generation = 1;
    this.compactions = 0;
    this.ids = 0;
    this.createdAt = this.updatedAt = new Date(Date.UTC(2026, 10, 21, 6, 45)).toISOString();
  }

  id(kind) {
    this.ids += 1;
    return `${kind}${String(this.ids).padStart(8, "0")}`;
  }

  get state() {
    return this.turn ? "running" : this.heldUp ? "compacting" : "idle";
  }

  /** Returns the path to an entry, oldest first. */
  path(leafId = this.leafId) {
    const path = [];
    for (let entry = this.tree.get(leafId); entry; entry = this.tree.get(entry.parentId)) path.push(entry);
    return path.reverse();
  }

  get entries() {
    return this.path();
  }

  durable(type, payload) {
    this.seq += 1;
    const frame = { sessionId: this.sessionId, seq: this.seq, type, payload };
    this.log.push(frame);
    this.emit(frame);
  }

  ephemeral(type, payload) {
    this.emit({ sessionId: this.sessionId, type, payload });
  }

  /** Adds or updates a connection that has the session open. */
  join(connection) {
    const same = (one) => one.connectionId === connection.connectionId;
    this.presence = this.presence.some(same) ? this.presence.map((one) => (same(one) ? connection : one)) : [...this.presence, connection];
    this.ephemeral("presence_changed", { connection });
  }

  /** Removes a connection. */
  part(connectionId) {
    const connection = this.presence.find((one) => one.connectionId === connectionId);
    this.presence = this.presence.filter((one) => one !== connection);
    if (connection) this.ephemeral("presence_changed", { connection, left: true });
  }

  /** Appends the next entry, which is announced last: `finish` may first set what depends on the entry's existence. */
  append(data, { entryId, ...more } = {}, finish = () => undefined) {
    const timestamp = new Date(Date.UTC(2026, 10, 21, 6, 45, this.tree.size)).toISOString();
    const entry = { entryId: entryId ?? this.id("e"), parentId: this.leafId, timestamp, ...data };
    this.tree.set(entry.entryId, entry);
    this.leafId = entry.entryId;
    this.updatedAt = timestamp;
    finish(entry);
    this.durable("entry_appended", { entry, ...more });
    return entry;
  }

  /** Appends a user message: a text, or parts. */
  say(input, commandId) {
    this.lastTurn = null;
    return this.append({ type: "message", role: "user", content: partsOf(input) }, { commandId });
  }

  /** Queues an input, which may wait for the move `after`; steering inputs come before the others. */
  enqueue(input, commandId, steer = false, after = undefined) {
    const position = steer ? this.queue.filter((item) => item.steer).length : this.queue.length;
    const item = { commandId, content: partsOf(input), ...(steer ? { steer } : {}), ...(after ? { after } : {}) };
    this.queue = this.queue.toSpliced(position, 0, item);
    this.durable("queue_item_added", { position, item });
  }

  /** Removes an input from the queue: `started`, `steered` or `cancelled`. */
  unqueue(item, reason) {
    this.queue = this.queue.filter((other) => other !== item);
    const turnId = reason === "steered" ? { turnId: this.turn.turnId } : {};
    this.durable("queue_item_removed", { commandId: item.commandId, reason, ...turnId });
  }

  /** Releases the inputs that waited for a move. */
  release() {
    if (!this.queue.some((item) => item.after)) return;
    this.queue = this.queue.map(({ after: _, ...item }) => item);
    this.durable("queue_released", {});
  }

  reorder(order) {
    if (order.join() === this.queue.map((item) => item.commandId).join()) return;
    this.queue = order.map((id) => this.queue.find((item) => item.commandId === id));
    this.durable("queue_reordered", { order });
  }

  /** Takes the first queued input into the history. */
  dequeue() {
    const [first] = this.queue;
    this.unqueue(first, "started");
    this.say(first.content, first.commandId);
    return first;
  }

  startTurn(commandIds = []) {
    this.turn = { turnId: this.id("t"), items: [] };
    this.lastTurn = null;
    this.durable("turn_started", { turnId: this.turn.turnId, commandIds, generation: this.generation });
  }

  startItem() {
    const item = { itemId: this.id("e"), parts: [] };
    this.turn.items.push(item);
    this.ephemeral("item_started", { itemId: item.itemId, turnId: this.turn.turnId, kind: "message" });
    return item;
  }

  delta(item, part, text, kind) {
    item.parts[part] ??= { type: kind ?? "text", text: "" };
    const offset = item.parts[part].text.length;
    item.parts[part].text += text;
    this.ephemeral("item_delta", { itemId: item.itemId, part, offset, text, ...(kind ? { kind } : {}) });
  }

  /** Starts a tool call of the answer. */
  startCall(item, part, name) {
    item.parts[part] = { type: "tool_call", name, arguments: "" };
    this.ephemeral("item_started", { itemId: item.itemId, turnId: this.turn.turnId, kind: "tool_call", part, name });
  }

  callDelta(item, part, text) {
    const offset = item.parts[part].arguments.length;
    item.parts[part].arguments += text;
    this.ephemeral("item_delta", { itemId: item.itemId, part, offset, kind: "arguments", text });
  }

  finishCall(item, part) {
    item.parts[part].finished = true;
    this.ephemeral("item_finished", { itemId: item.itemId, part });
  }

  abortItem(item, reason) {
    this.turn.items = this.turn.items.filter((other) => other !== item);
    this.ephemeral("item_aborted", { itemId: item.itemId, reason });
  }

  /**
   * Turns the item into an entry: its streamed calls get ids, and `calls` come after them. An incomplete one without a
   * reason broke off.
   */
  finishItem(item, { incomplete, stopReason = incomplete ? undefined : "stop", calls = [] } = {}) {
    this.turn.items = this.turn.items.filter((other) => other !== item);
    if (item.parts.length > 0) this.ephemeral("item_finished", { itemId: item.itemId });
    const called = item.parts.map((part) => {
      if (part.type !== "tool_call") return part;
      const { finished: _, ...call } = part;
      return { ...call, toolCallId: this.id("c") };
    });
    const content = [...called.filter((part) => !incomplete || part.type !== "tool_call"), ...calls];
    const outputTokens = content.reduce((sum, part) => sum + tokens(part.text ?? part.arguments), 0);
    const usage = { inputTokens: this.contextInfo().tokenCount, cachedTokens: 0, outputTokens, source: "reported" };
    const message = { role: "assistant", content, model: this.model, usage, ...(stopReason ? { stopReason } : {}), ...(incomplete ? { incomplete } : {}) };
    return this.append({ type: "message", ...message }, { entryId: item.itemId, turnId: this.turn.turnId });
  }

  call(part) {
    const deadline = new Date(Date.UTC(2026, 10, 21, 7)).toISOString();
    const call = { toolCallId: part.toolCallId, turnId: this.turn.turnId, name: part.name, arguments: part.arguments, deadline, ...(part.place ? { place: part.place } : {}) };
    this.pending = [...this.pending, call];
    this.durable("tool_call", call);
  }

  resolve(toolCallId, output, isError = false) {
    this.pending = this.pending.filter((call) => call.toolCallId !== toolCallId);
    this.durable("call_resolved", { toolCallId, outcome: isError ? "failed" : "answered" });
    const part = { type: "tool_result", toolCallId, output, ...(isError ? { isError } : {}) };
    this.append({ type: "message", role: "tool", content: [part] }, { turnId: this.turn.turnId });
  }

  finishTurn(status = "completed", error) {
    const { turnId } = this.turn;
    this.turn = null;
    this.pending = [];
    this.approvals = [];
    this.lastTurn = status === "completed" ? null : { turnId, status, ...(error ? { error } : {}) };
    if (this.lastTurn) this.unanswered = [...this.unanswered, { ...this.lastTurn, leafId: nameOf(this.leafId) }].slice(-16);
    this.durable("turn_finished", { turnId, status, ...(error ? { error } : {}), contextInfo: this.contextInfo() });
  }

  update(fields) {
    Object.assign(this, fields);
    this.durable("session_updated", fields);
  }

  /** Returns what `session_opened` says now. */
  snapshot({ entries = 50, role = "writer" } = {}) {
    return structuredClone({
      sessionId: this.sessionId, role, presence: this.presence, epoch: this.epoch, asOfSeq: this.seq, leafId: nameOf(this.leafId), state: this.state,
      generation: this.generation, ...(this.name ? { name: this.name } : {}), model: this.model, strategy: this.strategy,
      settings: this.settings, contextInfo: this.contextInfo(),
      entries: entries === 0 ? [] : this.entries.slice(-entries), more: this.entries.length > entries,
      ...(this.turn ? { turn: this.turn } : {}), ...(this.lastTurn ? { lastTurn: this.lastTurn } : {}),
      ...(this.unanswered.length > 0 ? { unansweredTurns: this.unanswered } : {}),
      ...(this.failed.length > 0 ? { failedCompactions: this.failed } : {}),
      ...(this.compaction ? { compaction: { jobId: this.compaction.jobId, phase: this.compaction.phase, ...(this.compaction.background ? { background: true } : {}) } } : {}),
      ...(this.approvals.length > 0 ? { approvals: this.approvals } : {}),
      ...(this.standing.length > 0 ? { standingApprovals: this.standing } : {}),
      queue: this.queue, pending: this.pending,
      ...(this.pins.length > 0 ? { pins: this.pins } : {}), ...(this.undone.length > 0 ? { undone: this.undone } : {}),
    });
  }

  /**
   * Returns what `session_opened` says to a resume from `seq`, and the frames that follow it: first those that void the
   * answers that were aborted meanwhile.
   */
  after({ seq, items = [] }) {
    const { sessionId } = this;
    const { entries, more, ...opened } = this.snapshot();
    const missed = this.log.slice(seq);
    const known = new Set([...this.entries.map((entry) => entry.entryId), ...(this.turn?.items ?? []).map((item) => item.itemId)]);
    const ended = [...new Set(items.map((seen) => seen.itemId))].filter((itemId) => !known.has(itemId));
    const aborted = ended.map((itemId) => ({ sessionId, type: "item_aborted", payload: { itemId, reason: "interrupted" } }));
    const catchUp = (this.turn?.items ?? []).flatMap(({ itemId, parts }) => parts.flatMap((part, index) => {
      const offset = items.find((seen) => seen.itemId === itemId && seen.part === index)?.offset ?? 0;
      const isCall = part.type === "tool_call";
      const text = (isCall ? part.arguments : part.text).slice(offset);
      const kind = { text: {}, reasoning: { kind: "reasoning" }, tool_call: { kind: "arguments" } }[part.type];
      const started = { itemId, turnId: this.turn.turnId, kind: "tool_call", part: index, name: part.name };
      return [
        ...(isCall && offset === 0 ? [{ sessionId, type: "item_started", payload: started }] : []),
        ...(text ? [{ sessionId, type: "item_delta", payload: { itemId, part: index, offset, text, ...kind } }] : []),
        ...(part.finished ? [{ sessionId, type: "item_finished", payload: { itemId, part: index } }] : []),
      ];
    }));
    return { opened: { ...opened, resumed: "replay" }, frames: structuredClone([...aborted, ...missed, ...catchUp]) };
  }

  /** Returns a page of `get_entries`. */
  page({ entryId, before, limit = 100, path: onPath = true }) {
    if (entryId !== undefined) return structuredClone({ items: [this.tree.get(entryId)], leafId: nameOf(this.leafId), asOfSeq: this.seq, more: false });
    const all = [...this.tree.values()];
    const older = before === undefined ? all : all.slice(0, all.findIndex((entry) => entry.entryId === before));
    const path = !onPath ? older : before === undefined ? this.path() : this.path(before).slice(0, -1);
    const start = Math.max(0, path.length - limit);
    return structuredClone({ items: path.slice(start), leafId: nameOf(this.leafId), asOfSeq: this.seq, more: start > 0 });
  }

  /** Continues the session from another entry, which gets a summary of the abandoned branch and a name. */
  move(leafId, { summary, label, named, commandId } = {}) {
    const left = this.leafId;
    this.voidRunning();
    this.compaction = null;
    if (leafId !== left) this.lastTurn = null;
    this.generation += 1;
    this.leafId = leafId;
    this.durable("session_updated", { leafId: nameOf(leafId), generation: this.generation, ...(commandId ? { commandId } : {}) });
    const about = summary === undefined
      ? null
      : this.append({ type: "branch_summary", fromId: leafId, ...(left ? { leftLeafId: left } : {}), summary }, { commandId });
    if (label !== undefined) this.append({ type: "label", targetId: about?.entryId ?? named, label }, { commandId });
    return about;
  }

  /** Returns the newest leaf below an entry. */
  tip(entryId) {
    const below = [...this.tree.values()].filter((entry) => this.path(entry.entryId).some((one) => one.entryId === entryId));
    const parents = new Set([...this.tree.values()].map((entry) => entry.parentId));
    return below.findLast((entry) => !parents.has(entry.entryId)).entryId;
  }

  startLeaving() {
    this.compaction = { jobId: this.id("j"), phase: "summarising_branch" };
    this.ephemeral("compaction_progress", { ...this.compaction, done: 0, total: 2 });
  }

  children(parentId) {
    return [...this.tree.values()].filter((entry) => entry.parentId === parentId);
  }

  /** Returns the reply to `get_tree`: level by level, as many nodes as fit. */
  nodes({ rootId, depth = Infinity } = {}, nodesMax = 2000) {
    const nodes = [];
    let level = rootId === undefined ? this.children(null) : [this.tree.get(rootId)];
    let cut = false;
    for (let count = 0; count < depth && level.length > 0; count += 1) {
      for (const entry of level) {
        if (nodes.length < nodesMax) nodes.push(this.node(entry));
        else cut = true;
      }
      level = cut ? [] : level.flatMap((entry) => this.children(entry.entryId));
    }
    return { nodes, leafId: nameOf(this.leafId), asOfSeq: this.seq, more: cut || level.length > 0 };
  }

  node(entry) {
    const { entryId, parentId, timestamp } = entry;
    const text = entry.content?.map((part) => part.text ?? part.output ?? part.name).join(" ") ?? entry.summary ?? entry.label ?? "";
    const type = entry.type === "message" ? `message:${entry.role}` : entry.type;
    const named = [...this.tree.values()].findLast((one) => one.type === "label" && one.targetId === entryId);
    const label = named?.label === undefined ? {} : { label: named.label };
    return { entryId, parentId, type, preview: text.replace(/\s+/g, " ").trim().slice(0, 80), ...label, timestamp, childCount: this.children(entryId).length };
  }

  item() {
    const { sessionId, name, createdAt, updatedAt, state } = this;
    const { tokenCount, usageRatio } = this.contextInfo();
    return { sessionId, name, createdAt, updatedAt, entries: this.tree.size, tokenCount, usageRatio, state };
  }
}

Object.defineProperties(World.prototype, Object.getOwnPropertyDescriptors(contextRules));
