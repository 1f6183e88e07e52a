/**
 * Places in a session's tree. On the wire the one before the first entry is called `root`; inside the page it is null,
 * as the `parentId` of a first entry is.
 *
 * @typedef {import("reseed-protocol").LeafId} LeafId
 * @typedef {Placed<import("reseed-protocol").UnansweredTurn>} Unanswered
 * @typedef {Placed<import("reseed-protocol").FailedCompaction>} Failure
 */

/**
 * Something that happened at a place in the tree; null: before the first entry.
 * @template {{ leafId: string }} T
 * @typedef {Omit<T, "leafId"> & { leafId: string | null }} Placed
 */

/**
 * Returns a place that the server named. Events that older servers stored call the root null.
 * @param {LeafId | null} place
 */
export function placeOf(place) {
  return place === "root" ? null : place;
}

/**
 * Returns the server's name of a place.
 * @param {string | null} place
 * @returns {LeafId}
 */
export function nameOf(place) {
  return place ?? "root";
}

/**
 * Returns what the server says of places.
 * @template {{ leafId: string }} T
 * @param {T[]} [told]
 * @returns {Placed<T>[]}
 */
export function placed(told = []) {
  return told.map((one) => ({ ...one, leafId: placeOf(one.leafId) }));
}
