/** Starts and extends a fold: `session_opened`, pages of older entries, and the position to resume from. */

import type { Entries, Resume, ResumeItem, SessionOpened } from "../wire.js";
import { measured, resumedCompaction } from "./context.js";
import { KnownEntries, Path, placeOf } from "./entries.js";
import { stateOf } from "./fold.js";
import { itemOf, partText, withLost } from "./items.js";
import type { Call, Item, SessionSnapshot } from "./snapshot.js";

/** Returns the snapshot that `session_opened` describes. */
export function fromOpened(opened: SessionOpened): SessionSnapshot {
  const entries = KnownEntries.of(opened.entries ?? []);
  const leafId = placeOf(opened.leafId);
  const { turn } = opened;
  return {
    sessionId: opened.sessionId,
    role: opened.role,
    epoch: opened.epoch,
    seq: opened.asOfSeq,
    state: opened.state,
    name: opened.name ?? "",
    model: opened.model,
    strategy: opened.strategy,
    settings: opened.settings,
    generation: opened.generation,
    contextInfo: opened.contextInfo,
    warning: opened.contextInfo.warning ?? null,
    entries,
    path: Path.to(entries, leafId, opened.more === false ? (opened.entries?.[0]?.entryId ?? null) : null),
    leafId,
    turn: turn ? { turnId: turn.turnId } : null,
    delayed: null,
    items: turn?.items.map((item) => itemOf(item, turn.turnId)) ?? [],
    lastTurn: opened.lastTurn ?? null,
    unansweredTurns: (opened.unansweredTurns ?? []).map((turn) => ({ ...turn, leafId: placeOf(turn.leafId) })),
    failedCompactions: (opened.failedCompactions ?? []).map((job) => ({ ...job, leafId: placeOf(job.leafId) })),
    compaction: opened.compaction ?? null,
    held: opened.held ?? null,
    undone: opened.undone ?? [],
    pins: opened.pins ?? [],
    queue: opened.queue,
    pending: opened.pending,
    approvals: opened.approvals ?? [],
    standingApprovals: opened.standingApprovals ?? [],
    host: opened.host ?? null,
    presence: opened.presence ?? [],
    asOfSeq: opened.asOfSeq,
  };
}

/**
 * Returns the snapshot after `session_opened` has answered a resume. A replay continues from the known snapshot, and
 * the missed events follow; anything else is a new snapshot.
 */
export function reopened(known: SessionSnapshot | null, opened: SessionOpened): SessionSnapshot {
  const isReplay = opened.resumed === "replay" && known?.sessionId === opened.sessionId;
  if (!known || !isReplay || known.epoch !== opened.epoch) return withShown(fromOpened(opened), known);
  const next = {
    ...known,
    role: opened.role,
    delayed: null,
    compaction: resumedCompaction(known.compaction, opened),
    held: opened.held ?? null,
    host: opened.host ?? null,
    presence: opened.presence ?? [],
    asOfSeq: opened.asOfSeq,
    pending: resumedCalls(known.pending, opened),
    // This is the size after the replay. If there is nothing to replay, no event reports it.
    ...(opened.asOfSeq === known.seq ? measured(opened.contextInfo) : {}),
    // Items whose turn is over stay too: the events that follow bring their entries or declare them void.
    items: resumedItems(known.items, opened),
  };
  return { ...next, state: stateOf(next) };
}

/**
 * Returns a new snapshot plus the answers that were in progress when the connection was lost and are now neither an
 * entry nor in progress. Such an answer is omitted if the snapshot does not reach back to its place: it may be an older
 * entry.
 */
function withShown(fresh: SessionSnapshot, known: SessionSnapshot | null): SessionSnapshot {
  if (known?.sessionId !== fresh.sessionId) return fresh;
  const isThere = ({ itemId, after = known.leafId }: Item) =>
    fresh.entries.has(itemId) ||
    fresh.items.some((item) => item.itemId === itemId) ||
    !(after === "root" ? !fresh.path.more : fresh.entries.has(after));
  const lost = known.items.filter((item) => !isThere(item));
  return { ...fresh, items: [...withLost(lost, () => true, "interrupted", known.leafId), ...fresh.items] };
}

/** Returns the known calls and the new ones, with their current deadlines: no stored event moves a deadline. */
function resumedCalls(known: readonly Call[], { pending }: SessionOpened): readonly Call[] {
  const given = new Map(pending.map((call) => [call.toolCallId, call]));
  const kept = known.map((call) => {
    const fresh = given.get(call.toolCallId);
    given.delete(call.toolCallId);
    return fresh ? { ...call, ...fresh } : call;
  });
  return [...kept, ...given.values()];
}

/** Returns the known items, each with the longer text, and the new ones. */
function resumedItems(known: readonly Item[], { turn }: SessionOpened): readonly Item[] {
  const given = new Map(turn?.items.map((item) => [item.itemId, itemOf(item, turn.turnId)]));
  const kept = known.map((item) => {
    const fresh = given.get(item.itemId);
    given.delete(item.itemId);
    return fresh && textLength(fresh) > textLength(item) ? fresh : item;
  });
  return [...kept, ...given.values()];
}

function textLength(item: Item): number {
  return item.parts.reduce((sum, part) => sum + partText(part).length, 0);
}

/** Returns the position to resume from, for `open_session`. Offsets are UTF-16 code units, as counted by `length`. */
export function resumePoint(snapshot: SessionSnapshot): Resume {
  const valid = snapshot.items.filter((item) => !item.aborted);
  const items = valid.flatMap(({ itemId, parts }): ResumeItem[] => {
    // An item without text is listed too: the server only declares items void that it was given.
    if (parts.length === 0) return [{ itemId, part: 0, offset: 0 }];
    return parts.map((part, index) => ({ itemId, part: index, offset: partText(part).length }));
  });
  return { epoch: snapshot.epoch, seq: snapshot.seq, ...(items.length > 0 ? { items } : {}) };
}

/**
 * Returns the snapshot with a page of `get_entries`. Only events move the leaf.
 *
 * @param isOlder true for a page of the path that ends where its known part starts: if the server has no more, the path
 * starts there
 */
export function withEntries(
  snapshot: SessionSnapshot,
  page: Pick<Entries, "items" | "more">,
  isOlder = false,
): SessionSnapshot {
  const entries = snapshot.entries.with(page.items);
  const first = page.items[0] ?? snapshot.path.entries[0];
  const top = isOlder && !page.more && first ? first.entryId : snapshot.path.top;
  if (entries === snapshot.entries && top === snapshot.path.top) return snapshot;
  return { ...snapshot, entries, path: Path.to(entries, snapshot.leafId, top) };
}
