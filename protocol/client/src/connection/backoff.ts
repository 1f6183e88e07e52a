/** Computes the delay before the next connection attempt. */

/** Upper limit of the first delay in milliseconds. */
const FIRST_MS = 500;

/** Upper limit of any delay in milliseconds: a recovered server should not wait long for its clients. */
const MAX_MS = 30_000;

/** Number of attempts after which the delay stops growing. */
const DOUBLINGS_MAX = 6;

/**
 * Returns the delay in milliseconds: anything between zero and a limit that doubles with each attempt ("full jitter"),
 * so that the clients of a recovering server do not all arrive at once.
 *
 * @param failures number of consecutive failed attempts
 * @param random a number from 0 to below 1
 */
export function backoff(failures: number, random: number): number {
  const limit = Math.min(MAX_MS, FIRST_MS * 2 ** Math.min(failures, DOUBLINGS_MAX));
  return Math.round(limit * random);
}
