/** The list of sessions, newest first, kept up to date by the server. */

import type { Connection } from "./connection/connection.js";
import type { Environment } from "./connection/environment.js";
import { asError } from "./errors.js";
import { Listeners } from "./listeners.js";
import type { ListSessions, SessionItem } from "./wire.js";

/** The state of the list. */
export interface SessionsView {
  /** The fetched sessions, newest first. */
  readonly items: readonly SessionItem[];
  /** True if there are older ones: `loadMore` fetches them. */
  readonly more: boolean;
  /** True until the first page has arrived. */
  readonly loading: boolean;
  /** The words that session names must contain; empty for all sessions. */
  readonly search: string;
  /** Why the list could not be fetched; absent if it could. */
  readonly error?: Error;
}

/** Sessions per page. */
const PAGE_ITEMS = 50;

/** Maximum sessions that the server sends at once. */
const PAGE_ITEMS_MAX = 200;

/** Milliseconds between a change and the repeated search: sessions with a running turn change many times a second. */
const SEARCH_AGAIN_MS = 1_000;

/** Returns the list after a session has changed. `more` means that there are older sessions not in the list. */
export function withSession(items: readonly SessionItem[], item: SessionItem, more = false): readonly SessionItem[] {
  const others = items.filter((other) => other.sessionId !== item.sessionId);
  if (item.deleted) return others;
  const place = others.findIndex((other) => other.updatedAt <= item.updatedAt);
  if (place >= 0) return [...others.slice(0, place), item, ...others.slice(place)];
  // Its place after the last known session is unknown.
  return more && others.length === items.length ? items : [...others, item];
}

/** The list of sessions. It is fetched on the first subscription, and watched from then on. */
export class SessionList {
  readonly #connection: Connection;
  readonly #environment: Environment;
  readonly #listeners = new Listeners();
  #view: SessionsView = { items: [], more: false, loading: true, search: "" };
  #cursor: string | undefined;
  #wanted = false;
  /** True while the list is being fetched. */
  #fetching = false;
  /** True if it has since changed in a way that only the server knows. */
  #isStale = false;
  /** True if the search will be repeated soon. */
  #searchesAgain = false;

  /** Use `Client.sessions` instead. */
  constructor(connection: Connection, environment: Environment) {
    this.#connection = connection;
    this.#environment = environment;
  }

  /** The list; the same object until it changes. */
  get view(): SessionsView {
    return this.#view;
  }

  /** Calls a function after each change of `view`. Returns the function that unsubscribes. */
  readonly subscribe = (listener: () => void): (() => void) => {
    const end = this.#listeners.add(listener);
    if (!this.#wanted) {
      this.#wanted = true;
      this.refresh();
    }
    return end;
  };

  /** Lists only sessions whose name contains these words, ignoring case; empty for all. */
  search(words: string): void {
    const search = words.trim();
    if (search === this.#view.search) return;
    this.#set({ ...this.#view, search });
    this.refresh();
  }

  /** Fetches the next page of older sessions. */
  async loadMore(): Promise<void> {
    const cursor = this.#cursor;
    if (cursor === undefined) return;
    const { search } = this.#view;
    const { items, nextCursor } = await this.#connection.request("list_sessions", this.#asked(PAGE_ITEMS, cursor));
    // The list may have been fetched again meanwhile, with a new cursor.
    if (cursor !== this.#cursor || search !== this.#view.search) return;
    this.#cursor = nextCursor;
    const known = new Set(this.#view.items.map((item) => item.sessionId));
    const fresh = items.filter((item) => !known.has(item.sessionId));
    this.#set({ items: [...this.#view.items, ...fresh], more: nextCursor !== undefined, loading: false, search });
  }

  /**
   * Fetches the list again, to the same length. This is needed only if the server does not report changes: if
   * `welcome.features` lacks `watch`.
   */
  refresh(): void {
    this.#isStale = true;
    void this.#fetch();
  }

  /** Handles a new connection: fetches the list again, since a watch belongs to its connection. */
  connected(): void {
    this.#fetching = false;
    if (this.#wanted) this.refresh();
  }

  /** Handles `session_changed`. */
  take(item: SessionItem): void {
    const { items, loading, more, search } = this.#view;
    if (loading) return;
    if (!search) return this.#set({ ...this.#view, items: withSession(items, item, more) });
    const known = items.filter((other) => other.sessionId !== item.sessionId || !item.deleted);
    const changed = known.map((other) => (other.sessionId === item.sessionId ? item : other));
    this.#set({ ...this.#view, items: changed });
    this.#searchSoon();
  }

  /** Repeats the search after a while: only the server knows what matches now. */
  #searchSoon(): void {
    if (this.#searchesAgain) return;
    this.#searchesAgain = true;
    this.#environment.after(SEARCH_AGAIN_MS, () => {
      this.#searchesAgain = false;
      if (this.#view.search) this.refresh();
    });
  }

  /** Fetches the list: one request at a time, and once more if it was requested meanwhile. */
  async #fetch(): Promise<void> {
    const { status } = this.#connection;
    if (this.#fetching || status.phase !== "open") return;
    this.#fetching = true;
    while (this.#isStale && status === this.#connection.status) {
      this.#isStale = false;
      const { search, items } = this.#view;
      const watch = status.welcome.features.includes("watch") ? { watch: true } : {};
      const asked = { ...this.#asked(Math.min(PAGE_ITEMS_MAX, Math.max(PAGE_ITEMS, items.length))), ...watch };
      const take = this.#connection.requestNow("list_sessions", asked, {}, (page) => {
        // Ignore the response to an older search; the newer one follows.
        if (search !== this.#view.search) return;
        this.#cursor = page.nextCursor;
        this.#set({ items: page.items, more: page.nextCursor !== undefined, loading: false, search });
      });
      await take.catch((error: unknown) => {
        if (status === this.#connection.status) this.#set({ ...this.#view, error: asError(error) });
      });
    }
    // A later connection may already be fetching the list.
    if (status === this.#connection.status) this.#fetching = false;
  }

  #asked(limit: number, cursor?: string): ListSessions {
    const { search } = this.#view;
    return { limit, ...(cursor === undefined ? {} : { cursor }), ...(search ? { search } : {}) };
  }

  #set(view: SessionsView): void {
    this.#view = view;
    this.#listeners.tell();
  }
}
