/**
 * The drawn stretch of a chat. A long chat would fill the page with elements, so only some of its entries have a row at
 * a time: `ROWS_MAX` in an ordinary window. The stretch moves as the reader nears its ends. Pure.
 *
 * @typedef {import("reseed-protocol").Entry} Entry
 */

/** Maximum entries with a row in a window of ordinary height. */
export const ROWS_MAX = 60;
/** Pixels of the window's height per entry: a taller window needs more entries to have some on either side of it. */
const ROW_PIXELS = 18;
/** Share of the entries by which the stretch moves at once. */
const STEP_SHARE = 1 / 3;

export class Stretch {
  constructor() {
    /** @type {string | null} the first drawn entry; null: as far up as the limit allows */
    this.first = null;
    /** @type {string | null} the last drawn entry; null: the newest one */
    this.last = null;
    /** Maximum entries with a row, and by how many the stretch moves. */
    this.most = ROWS_MAX;
    this.step = Math.round(ROWS_MAX * STEP_SHARE);
    /** Whether all entries have a row. */
    this.isAll = false;
  }

  /**
   * Takes the height of the window.
   * @param {number} pixels
   */
  fit(pixels) {
    this.most = Math.max(ROWS_MAX, Math.ceil(pixels / ROW_PIXELS));
    this.step = Math.round(this.most * STEP_SHARE);
  }

  /** Moves to the newest entries. */
  reset() {
    this.first = null;
    this.last = null;
  }

  /**
   * Returns the entries to draw, as a range of indexes.
   * @param {readonly Entry[]} entries
   * @param {string | null} reads the entry at the top of the view; null if the reader is at the end
   * @returns {{ from: number, to: number }}
   */
  range(entries, reads) {
    const count = entries.length;
    let from = this.first === null ? 0 : place(entries, this.first);
    let to = this.last === null ? count : place(entries, this.last) + 1;
    // The path has changed: the drawn entries are on another branch.
    if (from < 0 || to <= from) {
      this.reset();
      from = 0;
      to = count;
    }
    if (to - from > this.most && !this.isAll) {
      // Drop the entries farthest from the reader: first those above, then those below.
      const reader = reads === null ? to : place(entries, reads);
      from = Math.max(from, Math.min(to - this.most + this.step, reader - this.step));
      to = Math.min(to, from + this.most);
    }
    return this.set(entries, from, to);
  }

  /**
   * Moves towards the oldest entry.
   * @param {readonly Entry[]} entries
   * @returns {boolean} false if it is already drawn
   */
  older(entries) {
    const { from, to } = this.range(entries, null);
    if (from === 0) return false;
    const start = Math.max(0, from - this.step);
    this.set(entries, start, Math.min(to, start + this.most));
    return true;
  }

  /**
   * Moves towards the newest entry.
   * @param {readonly Entry[]} entries
   * @returns {boolean} false if it is already drawn
   */
  newer(entries) {
    const { from, to } = this.range(entries, null);
    if (to === entries.length) return false;
    const end = Math.min(entries.length, to + this.step);
    this.set(entries, Math.max(from, end - this.most), end);
    return true;
  }

  /**
   * Moves the stretch so that an entry is drawn.
   * @param {readonly Entry[]} entries
   * @param {string} entryId
   * @returns {boolean} false if it is not among these entries
   */
  include(entries, entryId) {
    const at = place(entries, entryId);
    if (at < 0) return false;
    const { from, to } = this.range(entries, null);
    if (at >= from && at < to) return true;
    const start = Math.max(0, Math.min(at - this.step, entries.length - this.most));
    this.set(entries, start, Math.min(entries.length, start + this.most));
    return true;
  }

  /**
   * @param {readonly Entry[]} entries
   * @param {number} from
   * @param {number} to
   */
  set(entries, from, to) {
    this.first = entries[from]?.entryId ?? null;
    this.last = to >= entries.length ? null : entries[to - 1].entryId;
    return { from, to };
  }
}

/**
 * @param {readonly Entry[]} entries
 * @param {string} entryId
 */
function place(entries, entryId) {
  return entries.findIndex((entry) => entry.entryId === entryId);
}
