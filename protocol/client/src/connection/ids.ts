/** Ids of commands, and the identity of a tab. */

/** The key under which a tab stores its id, so that a reload keeps it. */
const STORED_AS = "reseed-client-id";

/** Milliseconds that a page which is reloaded may take to let go of its lock; a duplicated tab waits so long once. */
const RELEASE_MS = 200;

/** Returns an id of 32 characters that nobody else has. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Returns an id that stays the same for a tab over reloads, so that a reloaded page gets its role as host back.
 *
 * A tab that was duplicated has a copy of the original's storage. It notices by a lock, which a page holds for its
 * life, and takes an id of its own. Where there are no locks, as on a page that is not served safely, only a reload is
 * known to be the same tab.
 */
export async function tabId(): Promise<string> {
  const storage = sessionStorageOf();
  if (!storage) return newId();
  const stored = storage.getItem(STORED_AS);
  if (stored !== null && ((await locked(stored)) ?? isReload())) return stored;
  const fresh = newId();
  storage.setItem(STORED_AS, fresh);
  await locked(fresh);
  return fresh;
}

/** Takes the lock of an id for the page's life. False: another page has it. Null: there are no locks. */
async function locked(id: string): Promise<boolean | null> {
  if (typeof navigator === "undefined" || !navigator.locks) return null;
  const waiting = new AbortController();
  const limit = setTimeout(() => waiting.abort(), RELEASE_MS);
  const { signal } = waiting;
  return new Promise((resolve) => {
    const taken = (): Promise<void> => {
      clearTimeout(limit);
      resolve(true);
      // The lock lasts as long as this promise, which is the page's life.
      return new Promise(() => undefined);
    };
    // Where the browser refuses locks altogether, there are none.
    const refused = (): void => {
      clearTimeout(limit);
      resolve(signal.aborted ? false : null);
    };
    navigator.locks.request(`${STORED_AS}:${id}`, { signal }, taken).catch(refused);
  });
}

/** Returns true if this page was loaded in place of itself. */
function isReload(): boolean {
  const [navigation] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
  return navigation?.type === "reload";
}

/** Returns the tab's storage; `null` where there is none or the user forbids it. */
function sessionStorageOf(): Storage | null {
  try {
    return globalThis.sessionStorage ?? null;
  } catch {
    return null;
  }
}
