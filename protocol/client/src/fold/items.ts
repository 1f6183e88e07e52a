/** The part of the fold about answers in progress: their text and tool calls. */

import type { ItemAborted, ItemDelta, ItemFinished, ItemStarted, RunningItem, RunningPart, TurnId } from "../wire.js";
import type { Item, SessionSnapshot } from "./snapshot.js";

/**
 * Maximum parts of an item that are shown: four times as many as the server lets a model write. The entry has all of
 * them. A part takes memory for all its predecessors too, so one bad index must not exhaust the memory.
 */
export const PARTS_MAX = 4096;

/** Maximum aborted answers whose text is kept: as many as failed turns. */
const LOST_MAX = 16;

/** The fields that this file changes. */
type Change = Partial<SessionSnapshot>;

/** Returns the text of a part, or the arguments of a tool call; empty if it has none. */
export function partText(part: RunningPart | undefined): string {
  if (!part) return "";
  return part.type === "tool_call" ? part.arguments : part.text;
}

/** Returns an item of a snapshot. */
export function itemOf({ itemId, parts }: RunningItem, turnId: TurnId): Item {
  return { itemId, turnId, parts };
}

/** Applies `item_started`, for a message or a tool call in it. */
export function itemStarted(now: SessionSnapshot, started: ItemStarted): Change {
  const { itemId, turnId, part: index, name = "" } = started;
  const items = withItem(now, itemId, turnId);
  if (!items || index === undefined || index >= PARTS_MAX) return items ? { items } : {};
  return changeItem(items, itemId, (item) => {
    const known = item.parts[index];
    // It is already known if the snapshot had it, but lacks a name if its arguments arrived first.
    if (known?.type === "tool_call" && known.name) return item;
    const call = known?.type === "tool_call" ? known : { type: "tool_call" as const, arguments: "" };
    return { ...item, parts: withPart(item.parts, index, { ...call, name }) };
  });
}

/** Applies `item_delta`. Known text is not added twice; text after a gap waits for the complete entry. */
export function itemDelta(now: SessionSnapshot, delta: ItemDelta): Change {
  const { itemId, part: index, offset, text } = delta;
  const items = withItem(now, itemId, now.turn?.turnId ?? "");
  if (!items || index >= PARTS_MAX) return items ? { items } : {};
  return changeItem(items, itemId, (item) => {
    const old = item.parts[index];
    const shown = partText(old);
    if (item.aborted || offset > shown.length || offset + text.length <= shown.length) return item;
    return {
      ...item,
      parts: withPart(item.parts, index, grown(old, delta, shown + text.slice(shown.length - offset))),
    };
  });
}

/** Applies `item_finished`. The complete message is its entry, which follows. */
export function itemFinished(now: SessionSnapshot, { itemId, part: index }: ItemFinished): Change {
  if (index === undefined) return {};
  return changeItem(now.items, itemId, (item) => {
    const part = item.parts[index];
    if (part?.type !== "tool_call" || part.finished) return item;
    return { ...item, parts: withPart(item.parts, index, { ...part, finished: true }) };
  });
}

/** Applies `item_aborted`. An item that showed nothing disappears; other items stay, marked as not stored. */
export function itemAborted(now: SessionSnapshot, { itemId, reason }: ItemAborted): Change {
  return { items: withLost(now.items, (item) => item.itemId === itemId, reason, now.leafId) };
}

/**
 * Marks items as aborted. What they showed stays, after the entry where it was shown, since a person may be reading it.
 * If there are more than `LOST_MAX`, the newest stay.
 */
export function withLost(
  items: readonly Item[],
  isLost: (item: Item) => boolean,
  aborted: string,
  after: SessionSnapshot["leafId"],
): readonly Item[] {
  const marked = items.map((item) => (isLost(item) && !item.aborted ? { ...item, aborted, after } : item));
  const shown = marked.filter((item) => !item.aborted || item.parts.some((part) => partText(part) !== ""));
  const surplus = shown.filter((item) => item.aborted).slice(0, -LOST_MAX);
  return surplus.length > 0 ? shown.filter((item) => !surplus.includes(item)) : shown;
}

/** Returns the part with this text. */
function grown(old: RunningPart | undefined, { kind }: ItemDelta, text: string): RunningPart {
  if (old?.type === "tool_call") return { ...old, arguments: text };
  if (kind === "arguments") return { type: "tool_call", name: "", arguments: text };
  const isReasoning = kind === "reasoning" || (kind === undefined && old?.type === "reasoning");
  return isReasoning ? { type: "reasoning", text } : { type: "text", text };
}

/** Returns the items including this one, or `null` if it is already an entry. */
function withItem(now: SessionSnapshot, itemId: string, turnId: TurnId): readonly Item[] | null {
  if (now.items.some((item) => item.itemId === itemId)) return now.items;
  // An ephemeral event may arrive after the durable one that settles it.
  if (now.entries.has(itemId)) return null;
  return [...now.items, { itemId, turnId, parts: [] }];
}

function changeItem(items: readonly Item[], itemId: string, change: (item: Item) => Item): Change {
  return { items: items.map((item) => (item.itemId === itemId ? change(item) : item)) };
}

/** Returns the parts with one replaced. Unknown parts before it become empty texts. */
function withPart(parts: readonly RunningPart[], index: number, part: RunningPart): readonly RunningPart[] {
  const changed = [...parts];
  while (changed.length < index) changed.push({ type: "text", text: "" });
  changed[index] = part;
  return changed;
}
