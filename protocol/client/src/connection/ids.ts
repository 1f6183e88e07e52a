/** Ids of commands, and the identity of a tab. */

/** The key under which a tab stores its id, so that a reload keeps it. */
const STORED_AS = "reseed-client-id";

/** Returns an id of 32 characters that nobody else has. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Returns an id that stays the same for a tab over reloads, so that a reloaded page gets its role as host back.
 *
 * A tab that was duplicated has a copy of the original's storage. It notices by a lock, which a page holds for its
 * life, and takes an id of its own. Where there are no locks, every load is a client of its own.
 */
export async function tabId(): Promise<string> {
  const storage = sessionStorageOf();
  if (!storage || typeof navigator === "undefined" || !navigator.locks) return newId();
  const stored = storage.getItem(STORED_AS);
  if (stored !== null && (await held(stored))) return stored;
  const fresh = newId();
  await held(fresh);
  storage.setItem(STORED_AS, fresh);
  return fresh;
}

/** Takes the lock of an id for the page's life. Returns false if another page has it. */
function held(id: string): Promise<boolean> {
  return new Promise((resolve) => {
    const taken = (lock: Lock | null): Promise<void> | undefined => {
      resolve(lock !== null);
      // The lock lasts as long as this promise, which is the page's life.
      return lock ? new Promise(() => undefined) : undefined;
    };
    navigator.locks.request(`${STORED_AS}:${id}`, { ifAvailable: true }, taken).catch(() => resolve(false));
  });
}

/** Returns the tab's storage; `null` where there is none or the user forbids it. */
function sessionStorageOf(): Storage | null {
  try {
    return globalThis.sessionStorage ?? null;
  } catch {
    return null;
  }
}
