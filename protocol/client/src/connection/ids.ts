/** Command ids, and the identity of a tab. */

/** The storage key of the tab's id, so that it survives a reload. */
const STORED_AS = "reseed-client-id";

/** Milliseconds that a reloaded page may take to release its lock; a duplicated tab waits that long once. */
const RELEASE_MS = 200;

/** Returns a unique id of 32 characters. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Returns an id that survives reloads of a tab, so that a reloaded page regains its host role.
 *
 * A duplicated tab has a copy of the original's storage. It detects this by a lock that each page holds for its
 * lifetime, and takes a new id. Where there are no locks, as on a page that is not a secure context, only a reload
 * counts as the same tab.
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

/** Takes the lock of an id for the page's lifetime. False: another page holds it. Null: locks are unavailable. */
async function locked(id: string): Promise<boolean | null> {
  if (typeof navigator === "undefined" || !navigator.locks) return null;
  const waiting = new AbortController();
  const limit = setTimeout(() => waiting.abort(), RELEASE_MS);
  const { signal } = waiting;
  return new Promise((resolve) => {
    const taken = (): Promise<void> => {
      clearTimeout(limit);
      resolve(true);
      // The lock lasts as long as this promise, that is, for the page's lifetime.
      return new Promise(() => undefined);
    };
    // If the browser refuses locks altogether, they are unavailable.
    const refused = (): void => {
      clearTimeout(limit);
      resolve(signal.aborted ? false : null);
    };
    navigator.locks.request(`${STORED_AS}:${id}`, { signal }, taken).catch(refused);
  });
}

/** Returns true if this page load is a reload. */
function isReload(): boolean {
  const [navigation] = performance.getEntriesByType("navigation") as PerformanceNavigationTiming[];
  return navigation?.type === "reload";
}

/** Returns the tab's storage, or `null` if there is none or the user forbids it. */
function sessionStorageOf(): Storage | null {
  try {
    return globalThis.sessionStorage ?? null;
  } catch {
    return null;
  }
}
