/** Computes the wait before the next attempt to connect. */

/** Milliseconds that the first wait is at most. */
const FIRST_MS = 500;

/** Milliseconds that any wait is at most: a server that is back should not wait long for its clients. */
const MAX_MS = 30_000;

/** Attempts after which the wait does not grow any more. */
const DOUBLINGS_MAX = 6;

/**
 * Returns the milliseconds to wait: anything from nothing to a limit that doubles with each attempt ("full jitter"), so
 * that the clients of a server that comes back do not arrive together.
 *
 * @param failures how many attempts have failed in a row
 * @param random a number from 0 to below 1
 */
export function backoff(failures: number, random: number): number {
  const limit = Math.min(MAX_MS, FIRST_MS * 2 ** Math.min(failures, DOUBLINGS_MAX));
  return Math.round(limit * random);
}
