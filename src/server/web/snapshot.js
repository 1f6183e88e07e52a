/**
 * Questions about a snapshot that several views ask. Pure.
 *
 * @typedef {import("./client.js").SessionSnapshot} Snapshot
 */

/**
 * Returns true if a compaction is running that turns wait for; a background compaction delays nothing.
 * @param {Pick<Snapshot, "compaction">} snapshot
 */
export function isHeldUp({ compaction }) {
  return compaction !== null && !compaction.background;
}

/**
 * Returns true if something is running that must stop before the session can move.
 * @param {Pick<Snapshot, "turn" | "compaction">} snapshot
 */
export function isBusy(snapshot) {
  return snapshot.turn !== null || isHeldUp(snapshot);
}

/**
 * Returns the compaction whose summary the model sees, as far as the path is known, or null.
 * @param {Pick<Snapshot, "path" | "undone">} snapshot
 */
export function inEffect({ path, undone }) {
  const found = path.entries.findLast((entry) => entry.type === "compaction" && !undone.includes(entry.entryId));
  return found?.type === "compaction" ? found : null;
}

/**
 * Returns the pin of an entry, or null if it has none.
 * @param {Pick<Snapshot, "pins">} snapshot
 * @param {string} entryId
 */
export function pinOf({ pins }, entryId) {
  return pins.find((pin) => pin.entryId === entryId) ?? null;
}
