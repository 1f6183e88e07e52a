/**
 * The fold: a snapshot and an event give the next snapshot.
 *
 * Invariants:
 * - these functions mutate none of their arguments, and know neither clock nor network;
 * - a snapshot reached by events equals the one that the server sends at the same moment, apart from decoration;
 * - durable events are applied once and in order; one that would leave a gap returns `"gap"` instead;
 * - an event costs the same however long the history is; only moving to another branch costs as much as its path;
 * - unknown events, entries and fields change nothing.
 */

import type {
  DurableFrame,
  Entry,
  EphemeralFrame,
  PresenceChanged,
  SessionUpdated,
  TurnFinished,
  UnansweredTurn,
} from "../wire.js";
import {
  compacted,
  compactionFailed,
  compactionPrepared,
  compactionProgressed,
  compactionStarted,
  compactionUndone,
  FAILURES_MAX,
  isReplayed,
  measured,
} from "./context.js";
import { Path, placeOf } from "./entries.js";
import { itemAborted, itemDelta, itemFinished, itemStarted } from "./items.js";
import { changeQueue } from "./queue.js";
import { type CompactionJob, type SessionSnapshot, SUMMARISING_BRANCH } from "./snapshot.js";

/** A session event frame. */
export type EventFrame = DurableFrame | EphemeralFrame;

/** The fields that an event changes. */
type Change = Partial<SessionSnapshot>;

/**
 * Returns the snapshot after one event. `"gap"` means that an earlier event is missing: reopen the session with
 * `resume`.
 */
export function fold(now: SessionSnapshot, event: EventFrame): SessionSnapshot | "gap" {
  const { seq } = event;
  if (seq === undefined) return withState(now, changed(now, event));
  if (seq <= now.seq) return now;
  if (seq > now.seq + 1) return "gap";
  return withState(now, { seq, asOfSeq: Math.max(seq, now.asOfSeq), ...changed(now, event) });
}

function changed(now: SessionSnapshot, event: EventFrame): Change {
  switch (event.type) {
    case "entry_appended":
      return entryAppended(now, event.payload.entry);
    case "turn_started":
      return { turn: { turnId: event.payload.turnId }, lastTurn: null };
    case "turn_finished":
      return turnFinished(now, event.payload);
    case "tool_call": {
      const call = event.payload;
      const others = now.pending.filter((known) => known.toolCallId !== call.toolCallId);
      // The last `session_opened` may have reported a later deadline of this call than the event does.
      return isReplayed(now) && others.length < now.pending.length ? {} : { pending: [...others, call] };
    }
    case "approval_request":
      return { approvals: [...now.approvals, event.payload] };
    case "call_resolved": {
      const { toolCallId, approvalId } = event.payload;
      return approvalId === undefined
        ? { pending: now.pending.filter((call) => call.toolCallId !== toolCallId) }
        : { approvals: now.approvals.filter((approval) => approval.approvalId !== approvalId) };
    }
    case "call_progressed": {
      const { toolCallId, message, deadline } = event.payload;
      const moved = now.pending.map((call) => (call.toolCallId === toolCallId ? { ...call, message, deadline } : call));
      return toolCallId === undefined ? {} : { pending: moved };
    }
    case "queue_item_added":
    case "queue_item_removed":
    case "queue_reordered":
    case "queue_released":
      return { queue: changeQueue(now.queue, event) };
    case "session_updated":
      return sessionUpdated(now, event.payload);
    case "request_delayed":
      // It may arrive after the events that end the delay, since those are durable.
      return { delayed: now.turn?.turnId === event.payload.turnId ? event.payload : null };
    case "item_started":
      return { ...waited(now), ...itemStarted(now, event.payload) };
    case "item_delta":
      return itemDelta(now, event.payload);
    case "item_finished":
      return itemFinished(now, event.payload);
    case "item_aborted":
      return itemAborted(now, event.payload);
    case "compaction_started":
      return compactionStarted(now, event.payload);
    case "compaction_progress":
      return compactionProgressed(now, event.payload);
    case "compaction_prepared":
      return compactionPrepared(now, event.payload);
    case "context_compacted":
      return compacted(now, event.payload);
    case "compaction_undone":
      return compactionUndone(now, event.payload);
    case "compaction_failed":
      return compactionFailed(now, event.payload);
    case "context_updated":
      return measured(event.payload.contextInfo);
    case "context_warning":
      return { warning: event.payload.message };
    case "host_changed":
      return { host: event.payload.host ?? null };
    case "presence_changed":
      return presenceChanged(now, event.payload);
    default:
      // For the host or the session list, or unknown to this version.
      return {};
  }
}

/** Applies `entry_appended`: the tree grows by one entry, which becomes the leaf. */
function entryAppended(now: SessionSnapshot, entry: Entry): Change {
  const entries = now.entries.with([entry]);
  const settled = now.items.some((item) => item.itemId === entry.entryId);
  return {
    // An answer that was not streamed, because a hook inspected it first, ends the delay too.
    ...(entry.type === "message" && entry.role === "assistant" ? waited(now) : {}),
    entries,
    leafId: entry.entryId,
    path: Path.to(entries, entry.entryId, now.path.top),
    ...(settled ? { items: now.items.filter((item) => item.itemId !== entry.entryId) } : {}),
    ...(entry.type === "session_info" ? { name: entry.name } : {}),
  };
}

/** Ends the delay, since the model server has answered. */
function waited({ delayed }: SessionSnapshot): Change {
  return delayed ? { delayed: null } : {};
}

function turnFinished(now: SessionSnapshot, { turnId, status, error, contextInfo }: TurnFinished): Change {
  const ended = status === "completed" ? null : { turnId, status, ...(error ? { error } : {}) };
  return {
    turn: null,
    ...waited(now),
    items: now.items.filter((item) => item.aborted || item.turnId !== turnId),
    pending: now.pending.filter((call) => call.turnId !== turnId),
    approvals: now.approvals.filter((approval) => approval.turnId !== turnId),
    lastTurn: ended,
    ...(ended ? { unansweredTurns: remembered(now, { ...ended, leafId: now.leafId }) } : {}),
    ...measured(contextInfo),
  };
}

function remembered(now: SessionSnapshot, ended: UnansweredTurn): readonly UnansweredTurn[] {
  return [...now.unansweredTurns, ended].slice(-FAILURES_MAX);
}

function sessionUpdated(now: SessionSnapshot, updated: SessionUpdated): Change {
  const { name, model, strategy, settings, pins, standingApprovals, generation, leafId } = updated;
  return {
    ...(leafId === undefined ? {} : moved(now, placeOf(leafId))),
    ...(name === undefined ? {} : { name }),
    ...(model === undefined ? {} : { model }),
    ...(strategy === undefined ? {} : { strategy }),
    ...(settings === undefined ? {} : { settings }),
    ...(pins === undefined ? {} : { pins }),
    ...(standingApprovals === undefined ? {} : { standingApprovals }),
    ...(generation === undefined ? {} : { generation }),
  };
}

/** Moves the session to another place. What `retryTurn` would repeat is on the abandoned branch. */
function moved(now: SessionSnapshot, leafId: SessionSnapshot["leafId"]): Change {
  return {
    leafId,
    path: Path.to(now.entries, leafId, now.path.top),
    ...(leafId === now.leafId ? {} : { lastTurn: null }),
    compaction: arrived(now),
  };
}

/** Ends the summary of an abandoned branch. A replay may report an earlier move than the running one. */
function arrived(now: SessionSnapshot): CompactionJob | null {
  const ends = now.compaction?.phase === SUMMARISING_BRANCH && !isReplayed(now);
  return ends ? null : now.compaction;
}

function presenceChanged(now: SessionSnapshot, { connection, left }: PresenceChanged): Change {
  const place = now.presence.findIndex((known) => known.connectionId === connection.connectionId);
  if (left) return place < 0 ? {} : { presence: now.presence.filter((_, index) => index !== place) };
  if (place < 0) return { presence: [...now.presence, connection] };
  return { presence: now.presence.map((known, index) => (index === place ? connection : known)) };
}

/** Returns the snapshot with these changes and the resulting state, or the same snapshot if nothing changes. */
function withState(now: SessionSnapshot, change: Change): SessionSnapshot {
  if (Object.keys(change).length === 0) return now;
  const next = { ...now, ...change };
  return { ...next, state: stateOf(next) };
}

/** Returns what the session is doing. A background compaction delays nobody. */
export function stateOf({ turn, compaction }: Pick<SessionSnapshot, "turn" | "compaction">): SessionSnapshot["state"] {
  if (turn) return "running";
  return compaction && !compaction.background ? "compacting" : "idle";
}
