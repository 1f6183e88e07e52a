/** Decides what to fetch after an event that does not carry everything it changed. */

import type { EventFrame } from "../fold/fold.js";
import type { SessionSnapshot } from "../fold/snapshot.js";
import type { LeafId } from "../wire.js";

/** Returns true if an event changes the size of the context without stating it. During a turn other events state it. */
export function changesContext(event: EventFrame): boolean {
  if (event.type === "context_compacted") return true;
  // A failure may open the circuit breaker; for a background compaction it is the only sign.
  if (event.type === "compaction_failed") return event.payload.trigger !== undefined;
  if (event.type === "entry_appended") return ["custom_message", "branch_summary"].includes(event.payload.entry.type);
  if (event.type !== "session_updated") return false;
  const { leafId, model, strategy, settings, pins } = event.payload;
  return [leafId, model, strategy, settings, pins].some((changed) => changed !== undefined);
}

/** Returns true if the session has moved to an unknown place, so that none of its past could be shown. */
export function movesAway(event: EventFrame, { entries, leafId }: SessionSnapshot): boolean {
  if (event.type === "session_updated") return event.payload.leafId !== undefined && isUnknown(leafId);
  return event.type === "entry_appended" && isUnknown(event.payload.entry.parentId ?? "root");

  function isUnknown(place: LeafId): boolean {
    return place !== "root" && !entries.has(place);
  }
}
