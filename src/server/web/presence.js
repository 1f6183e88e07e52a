/**
 * The fold of the connections that have a session open, and the names of the others. Pure.
 *
 * @typedef {import("reseed-protocol").Participant} Participant
 */

/** The name of the page in `hello`. */
export const CLIENT_NAME = "reseed-web";

/** Others that are named; the badge counts all of them. */
const NAMED_MAX = 10;

/**
 * A connection has come, has changed or has left.
 * @param {Participant[]} presence
 * @param {import("reseed-protocol").PresenceChanged} changed
 * @returns {Participant[]}
 */
export function changePresence(presence, { connection, left }) {
  const at = presence.findIndex((one) => one.connectionId === connection.connectionId);
  if (at < 0) return left ? presence : [...presence, connection];
  return presence.toSpliced(at, 1, ...(left ? [] : [connection]));
}

/**
 * Those who have the session open beside this connection. An older connection of the same tab that the server has not
 * missed yet is nobody else.
 * @param {Participant[]} presence
 * @param {string | undefined} connectionId this connection
 */
export function others(presence, connectionId) {
  const own = presence.find((one) => one.connectionId === connectionId)?.clientId;
  return presence.filter((one) => one.connectionId !== connectionId && (own === undefined || one.clientId !== own));
}

/**
 * Counts the windows, this one included, and the programs.
 * @param {Participant[]} others
 */
export function countText(others) {
  const windows = 1 + others.filter(isWindow).length;
  const programs = 1 + others.length - windows;
  const count = (/** @type {number} */ of, /** @type {string} */ what) => `${of} ${what}${of === 1 ? "" : "s"}`;
  return programs === 0 ? count(windows, "window") : `${count(windows, "window")}, ${count(programs, "program")}`;
}

/**
 * Names the others.
 * @param {Participant[]} others
 */
export function namesText(others) {
  const names = others.slice(0, NAMED_MAX).map((one) => {
    const program = one.client ? `${one.client.name} ${one.client.version}` : "a program";
    return `${isWindow(one) ? "another window" : program}${one.role === "observer" ? " (read-only)" : ""}`;
  });
  const more = others.length - names.length;
  if (more > 0) names.push(`${more} more`);
  return `Also in this chat: ${names.join(", ")}`;
}

/** @param {Participant} participant */
function isWindow({ client }) {
  return client?.name === CLIENT_NAME;
}
