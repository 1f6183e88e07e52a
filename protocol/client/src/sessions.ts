/** The list of sessions, newest first, kept true by the server. */

import type { Connection } from "./connection/connection.js";
import { asError } from "./errors.js";
import { Listeners } from "./listeners.js";
import type { SessionItem } from "./wire.js";

/** The list at one moment. */
export interface SessionsView {
  /** The sessions that were fetched, newest first. */
  readonly items: readonly SessionItem[];
  /** True if there are older ones: `loadMore` fetches them. */
  readonly more: boolean;
  /** True until the first page is there. */
  readonly loading: boolean;
  /** Why the list could not be fetched; absent if it could. */
  readonly error?: Error;
}

/** Sessions that one page has. */
const PAGE_ITEMS = 50;

/** Returns the list after a session has changed. One that has changed most recently is the newest. */
export function withSession(items: readonly SessionItem[], item: SessionItem): readonly SessionItem[] {
  const others = items.filter((other) => other.sessionId !== item.sessionId);
  if (item.deleted) return others;
  const isSame =
    others.length < items.length &&
    items.find((known) => known.sessionId === item.sessionId)?.updatedAt === item.updatedAt;
  // An item that was not written to stays where it is.
  if (isSame) return items.map((known) => (known.sessionId === item.sessionId ? item : known));
  return [item, ...others];
}

/** The list of sessions. It is fetched when somebody subscribes, and watched from then on. */
export class SessionList {
  readonly #connection: Connection;
  readonly #listeners = new Listeners();
  #view: SessionsView = { items: [], more: false, loading: true };
  #cursor: string | undefined;
  #wanted = false;

  /** Use `Client.sessions` instead. */
  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** The list; the same object until it changes. */
  get view(): SessionsView {
    return this.#view;
  }

  /** Calls a function after each change of `view`, and returns the function that ends this. */
  readonly subscribe = (listener: () => void): (() => void) => {
    const end = this.#listeners.add(listener);
    if (!this.#wanted) {
      this.#wanted = true;
      this.connected();
    }
    return end;
  };

  /** Fetches the next page of older sessions. */
  async loadMore(): Promise<void> {
    if (this.#cursor === undefined) return;
    const { items, nextCursor } = await this.#connection.request("list_sessions", {
      limit: PAGE_ITEMS,
      cursor: this.#cursor,
    });
    this.#cursor = nextCursor;
    const known = new Set(this.#view.items.map((item) => item.sessionId));
    const fresh = items.filter((item) => !known.has(item.sessionId));
    this.#set({ items: [...this.#view.items, ...fresh], more: nextCursor !== undefined, loading: false });
  }

  /** A connection is there: fetches the list anew, since a watch belongs to its connection. */
  connected(): void {
    if (!this.#wanted || this.#connection.status.phase !== "open") return;
    const take = this.#connection.requestNow("list_sessions", { limit: PAGE_ITEMS, watch: true }, {}, (page) => {
      this.#cursor = page.nextCursor;
      this.#set({ items: page.items, more: page.nextCursor !== undefined, loading: false });
    });
    take.catch((error: unknown) => this.#set({ ...this.#view, error: asError(error) }));
  }

  /** Takes `session_changed`. */
  take(item: SessionItem): void {
    if (this.#view.loading) return;
    this.#set({ ...this.#view, items: withSession(this.#view.items, item) });
  }

  #set(view: SessionsView): void {
    this.#view = view;
    this.#listeners.tell();
  }
}
