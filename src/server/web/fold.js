/**
 * The page's state as a pure fold: `fromSnapshot` takes what `session_opened` says, `reduce` applies one event.
 *
 * What always holds:
 * - nothing here touches the page, the clock or the network, and no argument is ever changed;
 * - a state that was reached by events equals the one that a reload at the same moment gives (ephemeral decoration,
 *   such as how far a compaction is, may be missing after a reload);
 * - a durable event is applied once and in order; one that would leave a hole sets `outOfSync` instead;
 * - what is shown is the path to the leaf, as far as its entries are known: whatever moves the leaf moves the view;
 * - unknown events, entries and fields change nothing.
 *
 * What is about the window and what the model sees of the session is in `fold-context.js`, the queue in
 * `fold-queue.js`.
 *
 * @typedef {import("reseed-protocol").SessionOpened} SessionOpened
 * @typedef {import("reseed-protocol").ContextInfo} ContextInfo
 * @typedef {import("reseed-protocol").Entry} Entry
 * @typedef {import("reseed-protocol").Part} Part
 * @typedef {import("reseed-protocol").RunningPart} RunningPart
 * @typedef {import("reseed-protocol").Event} DurableEvent
 * @typedef {import("reseed-protocol").EphemeralEvent} EphemeralEvent
 * @typedef {(DurableEvent | EphemeralEvent) & { seq?: number, sessionId?: string }} EventFrame
 *
 * @typedef {object} Item An answer that is not an entry yet.
 * @property {string} itemId the id that its entry will have
 * @property {string} turnId
 * @property {RunningPart[]} parts
 * @property {string} [aborted] why what was shown is void
 *
 * @typedef {object} Call A tool call without an answer.
 * @property {string} toolCallId
 * @property {string} turnId
 * @property {string} name
 * @property {string} arguments
 * @property {string} deadline
 * @property {string} [message] what the tool says it is doing
 *
 * @typedef {object} RunningCompaction
 * @property {string} jobId
 * @property {string} phase
 * @property {string} [trigger]
 * @property {boolean} [background] whether turns go on meanwhile
 * @property {number} [done]
 * @property {number} [total]
 * @property {number} [asOfSeq] up to which event this speaks, where the session was opened while it ran
 *
 * @typedef {object} State
 * @property {string} sessionId
 * @property {SessionOpened["role"]} role
 * @property {import("reseed-protocol").Participant[]} presence the connections that have the session open
 * @property {string} epoch names the log that `seq` is a place in
 * @property {number} seq the last durable event that was applied
 * @property {"resume" | "snapshot" | null} outOfSync what would mend the view, when something was missed
 * @property {string | null} leafId where the session goes on; null: before the first entry
 * @property {string} name empty where the session has none
 * @property {string} model
 * @property {string} strategy
 * @property {SessionOpened["settings"]} settings
 * @property {number} generation
 * @property {ContextInfo} contextInfo
 * @property {string | null} warning
 * @property {ReadonlyMap<string, Entry>} known every entry that was seen, on whatever branch, by id
 * @property {Entry[]} entries the path to the leaf, oldest first, from some point on
 * @property {boolean} more whether entries of the path are not known yet: those before the first of `entries`
 * @property {string | null} top an entry of which the server has said that nothing is before it
 * @property {string | null} turnId the running turn
 * @property {Item[]} items
 * @property {NonNullable<SessionOpened["lastTurn"]> | null} lastTurn the last turn, where it has no answer
 * @property {import("./leaf.js").Unanswered[]} unanswered the newest turns without an answer, oldest first
 * @property {import("./leaf.js").Failure[]} failures the newest compactions that failed, oldest first
 * @property {RunningCompaction | null} compaction
 * @property {import("reseed-protocol").CompactionPrepared | null} held the compaction that is made and waits until it
 * is due
 * @property {import("reseed-protocol").Pin[]} pins the entries that every compaction keeps
 * @property {string[]} undone the compactions that building the context passes over
 * @property {ReadonlyMap<string, import("reseed-protocol").ContextCompacted>} reports how compactions went, of those
 * that were seen being made
 * @property {SessionOpened["queue"]} queue
 * @property {Call[]} pending
 */

import { SUMMARISING_BRANCH, compacted, compactionPrepared, compactionProgressed, compactionStarted, compactionUndone, contextOf, heldWithout, resumedCompaction, withoutJob } from "./fold-context.js";
import { changeQueue } from "./fold-queue.js";
import { placeOf, placed } from "./leaf.js";
import { changePresence } from "./presence.js";

export { SUMMARISING_BRANCH, inEffect, isHeldUp, pinOf } from "./fold-context.js";

/** Entries of a path below which the others are asked for without waiting for a reader to scroll there. */
const PATH_ENTRIES_MIN = 20;

/** Codes of compactions that ended without being made, and did not fail. */
const NOT_FAILED = new Set(["compaction_cancelled", "compaction_void", "nothing_to_compact"]);

/** Failures of each kind that are remembered: as many as the server tells of. */
const FAILURES_MAX = 16;

/**
 * The state that a snapshot speaks of.
 * @param {SessionOpened} opened
 * @returns {State}
 */
export function fromSnapshot(opened) {
  const turnId = opened.turn?.turnId ?? null;
  const entries = opened.entries ?? [];
  const known = new Map(entries.map((entry) => [entry.entryId, entry]));
  const top = opened.more === false ? entries[0]?.entryId ?? null : null;
  return {
    sessionId: opened.sessionId,
    role: opened.role,
    presence: opened.presence,
    epoch: opened.epoch,
    seq: opened.asOfSeq,
    outOfSync: null,
    known,
    ...pathTo(known, placeOf(opened.leafId), top),
    name: opened.name ?? "",
    model: opened.model,
    strategy: opened.strategy,
    settings: opened.settings,
    generation: opened.generation,
    ...contextOf(opened),
    turnId,
    items: (opened.turn?.items ?? []).map((item) => ({ ...item, turnId: turnId ?? "" })),
    lastTurn: opened.lastTurn ?? null,
    unanswered: placed(opened.unansweredTurns),
    failures: placed(opened.failedCompactions),
    queue: opened.queue,
    pending: opened.pending,
  };
}

/**
 * The state after `session_opened` answered a resume: a replay goes on from `state` and the missed events follow,
 * anything else is a new snapshot.
 * @param {State | null} state
 * @param {SessionOpened} opened
 * @returns {State}
 */
export function fromOpened(state, opened) {
  const replay = opened.resumed === "replay" && state?.sessionId === opened.sessionId && state.epoch === opened.epoch;
  if (!state || !replay) return fromSnapshot(opened);
  const running = opened.turn;
  const given = new Map((running?.items ?? []).map((item) => [item.itemId, item]));
  // Answers whose turn is over stay as well: the events that follow bring their entry, or say that they came to
  // nothing.
  const kept = state.items.map((item) => {
    const parts = given.get(item.itemId)?.parts;
    given.delete(item.itemId);
    return parts && textLength(parts) > textLength(item.parts) ? { ...item, parts } : item;
  });
  const fresh = [...given.values()].map((item) => ({ ...item, turnId: running?.turnId ?? "" }));
  return {
    ...state,
    role: opened.role,
    presence: opened.presence,
    outOfSync: null,
    compaction: resumedCompaction(state.compaction, opened),
    held: opened.held ?? null,
    contextInfo: opened.asOfSeq === state.seq ? opened.contextInfo : state.contextInfo,
    items: [...kept, ...fresh],
  };
}

/**
 * Where this state stands, for `open_session.resume`.
 * @param {State} state
 */
export function resumePoint(state) {
  const items = state.items.filter((item) => !item.aborted).flatMap(({ itemId, parts }) => {
    // An item without text is named too: the server declares void only what it is told of.
    const offsets = parts.length > 0 ? parts.map((part) => partText(part).length) : [0];
    return offsets.map((offset, part) => ({ itemId, part, offset }));
  });
  return { epoch: state.epoch, seq: state.seq, ...(items.length > 0 ? { items } : {}) };
}

/**
 * The state with a page of `get_entries` of a path.
 * @param {State} state
 * @param {import("reseed-protocol").Entries} page
 * @returns {State}
 */
export function withPage(state, page) {
  const known = new Map(state.known);
  for (const entry of page.items) known.set(entry.entryId, entry);
  const top = page.more ? state.top : (page.items[0] ?? state.entries[0])?.entryId ?? null;
  return { ...state, known, ...pathTo(known, state.leafId, top) };
}

/**
 * Whether so little of the path is known that the rest should be asked for at once.
 * @param {State} state
 */
export function needsPath(state) {
  return state.more && state.entries.length < PATH_ENTRIES_MIN;
}

/**
 * The state with a fresh answer to `get_context_info`.
 * @param {State} state
 * @param {ContextInfo} contextInfo
 * @returns {State}
 */
export function withContextInfo(state, contextInfo) {
  return { ...state, contextInfo, warning: contextInfo.warning ?? null };
}

/** @param {State} state */
export function isRunning(state) {
  return state.turnId !== null;
}

/**
 * The text of a part so far; of a tool call its arguments.
 * @param {RunningPart | undefined} part
 */
export function partText(part) {
  if (!part) return "";
  return part.type === "tool_call" ? part.arguments : part.text;
}

/**
 * The texts of a message, without what is thought.
 * @param {Part[]} parts
 */
export function textOfParts(parts) {
  return parts.flatMap((part) => (part.type === "text" ? [part.text] : [])).join("\n");
}

/**
 * Applies one event.
 * @param {State} state
 * @param {EventFrame} event
 * @returns {State}
 */
export function reduce(state, event) {
  if (event.seq === undefined) return apply(state, event);
  if (event.seq <= state.seq) return state;
  if (event.seq > state.seq + 1) return { ...state, outOfSync: state.outOfSync ?? "resume" };
  return apply({ ...state, seq: event.seq }, event);
}

/**
 * @param {State} state
 * @param {EventFrame} event
 * @returns {State}
 */
function apply(state, event) {
  switch (event.type) {
    case "entry_appended": return appendEntry(state, event.payload.entry);
    // Void answers are shown until the next turn. Others stay: a replay may come to the beginning of their turn only
    // now.
    case "turn_started":
      return { ...state, turnId: event.payload.turnId, lastTurn: null, items: state.items.filter((item) => !item.aborted) };
    case "turn_finished": return finishTurn(state, event.payload);
    case "tool_call": return addCall(state, event.payload);
    case "call_resolved": {
      const { toolCallId } = event.payload;
      return { ...state, pending: state.pending.filter((call) => call.toolCallId !== toolCallId) };
    }
    case "queue_item_added":
    case "queue_item_removed":
    case "queue_reordered":
    case "queue_released": return { ...state, queue: changeQueue(state.queue, event) };
    case "session_updated": return updateSession(state, event.payload);
    case "context_compacted": return compacted(state, event.payload);
    case "item_started": return startItem(state, event.payload);
    case "item_delta": return addDelta(state, event.payload);
    case "item_finished": return finishCall(state, event.payload);
    case "item_aborted": {
      const { itemId, reason } = event.payload;
      // Nothing was shown of an item without text, so there is nothing to mark as void.
      const shown = state.items.filter((item) => item.itemId !== itemId || item.parts.length > 0);
      if (shown.length < state.items.length) return { ...state, items: shown };
      return mapItem(state, itemId, (item) => ({ ...item, aborted: reason }));
    }
    case "call_progressed": {
      const { toolCallId, message, deadline } = event.payload;
      const pending = state.pending.map((call) => (call.toolCallId === toolCallId ? { ...call, message, deadline } : call));
      return { ...state, pending };
    }
    case "compaction_undone": return compactionUndone(state, event.payload);
    case "compaction_started": return compactionStarted(state, event.payload);
    case "compaction_progress": return compactionProgressed(state, event.payload);
    case "compaction_prepared": return compactionPrepared(state, event.payload);
    case "compaction_failed": return compactionFailed(state, event.payload);
    case "context_updated": return withContextInfo(state, event.payload.contextInfo);
    case "context_warning": return { ...state, warning: event.payload.message };
    case "presence_changed": return { ...state, presence: changePresence(state.presence, event.payload) };
    default: return state;
  }
}

/**
 * The tree grows by one entry, and the leaf is now this one: where it hangs from elsewhere, the view moves there.
 * @param {State} state
 * @param {Entry} entry
 * @returns {State}
 */
function appendEntry(state, entry) {
  const known = new Map(state.known).set(entry.entryId, entry);
  const grows = entry.parentId === state.leafId && (state.entries.length > 0 || state.leafId === null);
  const path = grows
    ? { entries: [...state.entries, entry], leafId: entry.entryId }
    : pathTo(known, entry.entryId, state.top);
  const items = state.items.filter((item) => item.itemId !== entry.entryId);
  const said = entry.type === "message" && entry.role === "user";
  return {
    ...state,
    known,
    ...path,
    items: items.length === state.items.length ? state.items : items,
    lastTurn: said ? null : state.lastTurn,
  };
}

/**
 * The path to a leaf, from the first entry on above which all are known.
 * @param {ReadonlyMap<string, Entry>} known
 * @param {string | null} leafId
 * @param {string | null} top
 */
function pathTo(known, leafId, top) {
  const entries = [];
  let id = leafId;
  while (id !== null) {
    const entry = known.get(id);
    if (!entry) break;
    entries.push(entry);
    id = entry.entryId === top ? null : entry.parentId;
  }
  return { entries: entries.reverse(), more: id !== null, leafId, top };
}

/**
 * @param {State} state
 * @param {import("reseed-protocol").TurnFinished} finished
 * @returns {State}
 */
function finishTurn(state, { turnId, status, error, contextInfo }) {
  const ended = status === "completed" ? null : { turnId, status, ...(error ? { error } : {}) };
  return {
    ...state,
    turnId: null,
    items: state.items.filter((item) => item.aborted || item.turnId !== turnId),
    pending: state.pending.filter((call) => call.turnId !== turnId),
    lastTurn: ended,
    unanswered: ended ? [...state.unanswered, { ...ended, leafId: state.leafId }].slice(-FAILURES_MAX) : state.unanswered,
    contextInfo,
    warning: contextInfo.warning ?? null,
  };
}

/**
 * A compaction has failed. Those that were cancelled, or whose work became pointless, are no failures.
 * @param {State} state
 * @param {import("reseed-protocol").CompactionFailed} failed
 * @returns {State}
 */
function compactionFailed(state, { jobId, trigger, error, background }) {
  const [compaction, held] = [withoutJob(state, jobId), heldWithout(state, jobId)];
  // One without a trigger is the summary of a branch: whoever waits for it is told by the reply.
  if (background || !trigger || NOT_FAILED.has(error.code)) return { ...state, compaction, held };
  const failure = { jobId, error, leafId: state.leafId };
  return { ...state, compaction, held, failures: [...state.failures, failure].slice(-FAILURES_MAX) };
}

/**
 * @param {State} state
 * @param {Call} call
 * @returns {State}
 */
function addCall(state, call) {
  const others = state.pending.filter((known) => known.toolCallId !== call.toolCallId);
  return { ...state, pending: [...others, call] };
}

/**
 * @param {State} state
 * @param {import("reseed-protocol").SessionUpdated} updated
 * @returns {State}
 */
function updateSession(state, updated) {
  return {
    ...state,
    ...(updated.leafId === undefined ? {} : moved(state, placeOf(updated.leafId))),
    name: updated.name ?? state.name,
    model: updated.model ?? state.model,
    strategy: updated.strategy ?? state.strategy,
    settings: updated.settings ?? state.settings,
    pins: updated.pins ?? state.pins,
    generation: updated.generation ?? state.generation,
  };
}

/**
 * What changes when the session goes on from `leafId`. What could be retried was asked elsewhere, and the summary of
 * the branch that is left is done.
 * @param {State} state
 * @param {string | null} leafId
 */
function moved(state, leafId) {
  const { compaction: running } = state;
  // A replay may tell of an earlier move while the next is at work already.
  const ends = running?.phase === SUMMARISING_BRANCH && state.seq > (running.asOfSeq ?? 0);
  const compaction = ends ? null : running;
  return { ...pathTo(state.known, leafId, state.top), lastTurn: leafId === state.leafId ? state.lastTurn : null, compaction };
}

/**
 * An answer starts, or a tool call in it. After a resume either may be told again.
 * @param {State} state
 * @param {Pick<import("reseed-protocol").ItemStarted, "itemId" | "turnId" | "part" | "name">} started
 * @returns {State}
 */
function startItem(state, { itemId, turnId, part, name }) {
  if (state.known.has(itemId)) return state;
  const isNew = !state.items.some((item) => item.itemId === itemId);
  const begun = isNew ? { ...state, items: [...state.items, { itemId, turnId, parts: [] }] } : state;
  if (part === undefined || name === undefined) return begun;
  return mapItem(begun, itemId, (item) => {
    if (item.aborted || item.parts[part]?.type === "tool_call") return item;
    return { ...item, parts: withPart(item.parts, part, { type: "tool_call", name, arguments: "" }) };
  });
}

/**
 * A tool call in an answer is complete. That the whole answer is needs nothing: its entry follows.
 * @param {State} state
 * @param {import("reseed-protocol").ItemFinished} finished
 * @returns {State}
 */
function finishCall(state, { itemId, part }) {
  return mapItem(state, itemId, (item) => {
    const call = part === undefined ? undefined : item.parts[part];
    if (part === undefined || call?.type !== "tool_call") return item;
    return { ...item, parts: withPart(item.parts, part, { ...call, finished: true }) };
  });
}

/**
 * @param {RunningPart[]} parts
 * @param {number} index
 * @param {RunningPart} part
 * @returns {RunningPart[]}
 */
function withPart(parts, index, part) {
  const changed = [...parts];
  while (changed.length < index) changed.push({ type: "text", text: "" });
  changed[index] = part;
  return changed;
}

/**
 * @param {State} state
 * @param {string} itemId
 * @param {(item: Item) => Item} change
 * @returns {State}
 */
function mapItem(state, itemId, change) {
  return { ...state, items: state.items.map((item) => (item.itemId === itemId ? change(item) : item)) };
}

/**
 * Puts a piece of text where it belongs. What is there already is not added twice; text behind a hole is not shown.
 * @param {State} state
 * @param {import("reseed-protocol").ItemDelta} delta
 * @returns {State}
 */
function addDelta(state, { itemId, part: index, offset, kind, text }) {
  const started = startItem(state, { itemId, turnId: state.turnId ?? "" });
  const item = started.items.find((candidate) => candidate.itemId === itemId);
  if (!item || item.aborted) return state;
  const before = item.parts[index];
  // A call whose beginning is not known has no name to show: its entry has it.
  if (kind === "arguments" && before?.type !== "tool_call") return started;
  const old = partText(before);
  if (offset > old.length) return { ...started, outOfSync: started.outOfSync ?? "resume" };
  if (offset + text.length <= old.length) return started;
  const whole = old.slice(0, offset) + text;
  /** @type {RunningPart} */
  const part = before?.type === "tool_call"
    ? { ...before, arguments: whole }
    : { type: (kind ?? before?.type) === "reasoning" ? "reasoning" : "text", text: whole };
  return mapItem(started, itemId, (found) => ({ ...found, parts: withPart(found.parts, index, part) }));
}

/** @param {RunningPart[]} parts */
function textLength(parts) {
  return parts.reduce((sum, part) => sum + partText(part).length, 0);
}
