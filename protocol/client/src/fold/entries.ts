/**
 * The known part of a session's tree, as immutable values that share their storage.
 *
 * - `KnownEntries` holds every entry seen so far, on any branch. Adding an entry costs the same at any size: all
 *   versions share one log, and each version sees a prefix of it.
 * - `Path` is what to show: from the oldest known entry to the leaf. It is walked once, on the first read.
 */

import type { Entry, EntryId, LeafId } from "../wire.js";

/** The storage shared by versions of `KnownEntries`. */
interface Log {
  readonly places: Map<EntryId, number>;
  readonly list: Entry[];
}

/** Known entries by their id. */
export class KnownEntries implements Iterable<Entry> {
  /** No entries. */
  static readonly none: KnownEntries = new KnownEntries({ places: new Map(), list: [] }, 0);

  readonly #log: Log;

  /** The number of entries. */
  readonly size: number;

  private constructor(log: Log, size: number) {
    this.#log = log;
    this.size = size;
  }

  /** Returns a set of these entries. */
  static of(entries: Iterable<Entry>): KnownEntries {
    return KnownEntries.none.with(entries);
  }

  /** Returns the entry with this id, or `undefined` if it is unknown. */
  get(id: EntryId): Entry | undefined {
    const place = this.#log.places.get(id);
    return place !== undefined && place < this.size ? this.#log.list[place] : undefined;
  }

  /** Returns true if the entry is known. */
  has(id: EntryId): boolean {
    return this.get(id) !== undefined;
  }

  /** Returns these entries plus more. An entry never changes, so a known one stays as it is. */
  with(entries: Iterable<Entry>): KnownEntries {
    const fresh = [...entries].filter((entry) => !this.has(entry.entryId));
    if (fresh.length === 0) return this;
    // Copy the log if another version has already extended it, or if nothing was ever added.
    const own = this.size === 0 || this.#log.list.length > this.size;
    const log = own ? copy(this.#log, this.size) : this.#log;
    for (const entry of fresh) {
      if (log.places.has(entry.entryId)) continue;
      log.places.set(entry.entryId, log.list.length);
      log.list.push(entry);
    }
    return new KnownEntries(log, log.list.length);
  }

  /** Iterates over the entries in the order in which they became known. */
  *[Symbol.iterator](): Iterator<Entry> {
    for (let place = 0; place < this.size; place += 1) yield this.#log.list[place]!;
  }
}

function copy(log: Log, size: number): Log {
  const list = log.list.slice(0, size);
  return { list, places: new Map(list.map((entry, place) => [entry.entryId, place])) };
}

/** The path to a leaf, as far as it is known. */
export class Path implements Iterable<Entry> {
  readonly #known: KnownEntries;
  #walked: { readonly entries: readonly Entry[]; readonly more: boolean } | undefined;

  /** The last entry of the path, from which the session continues. */
  readonly leafId: LeafId;

  /** The entry that the server has declared the first one, whatever its parent; `null` if none is known. */
  readonly top: EntryId | null;

  private constructor(known: KnownEntries, leafId: LeafId, top: EntryId | null) {
    this.#known = known;
    this.leafId = leafId;
    this.top = top;
  }

  /** Returns the path to a leaf. */
  static to(known: KnownEntries, leafId: LeafId, top: EntryId | null): Path {
    return new Path(known, leafId, top);
  }

  /** The entries, oldest first. The array is built on the first read and stays the same. */
  get entries(): readonly Entry[] {
    return this.#walk().entries;
  }

  /** True if the path has older, unknown entries; `Session.loadOlder` fetches them. */
  get more(): boolean {
    return this.#walk().more;
  }

  /** Iterates over the entries, oldest first. */
  [Symbol.iterator](): Iterator<Entry> {
    return this.entries[Symbol.iterator]();
  }

  #walk(): { readonly entries: readonly Entry[]; readonly more: boolean } {
    if (this.#walked) return this.#walked;
    const walked = new Set<Entry>();
    let place: LeafId = this.leafId;
    while (place !== "root") {
      const entry = this.#known.get(place);
      // Stop at a cycle of parents, which would never end.
      if (!entry || walked.has(entry)) break;
      walked.add(entry);
      // The records before the top are damaged: nobody has them.
      place = entry.entryId === this.top ? "root" : (entry.parentId ?? "root");
    }
    this.#walked = { entries: [...walked].reverse(), more: place !== "root" };
    return this.#walked;
  }
}

/** Normalises a place; records of older versions name the root by `null`. */
export function placeOf(id: LeafId | null): LeafId {
  return id ?? "root";
}
