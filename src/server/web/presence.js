/**
 * Describes in words who else has a session open. Pure.
 *
 * @typedef {import("reseed-protocol").Participant} Participant
 */

/** The page's client name in `hello`. */
export const CLIENT_NAME = "reseed-web";

/** Maximum number of others listed by name; the badge counts all of them. */
const NAMED_MAX = 10;

/**
 * Returns everyone else who has the session open. An older connection of the same tab that the server still considers
 * alive does not count.
 * @param {readonly Participant[]} presence
 * @param {string | undefined} connectionId this connection
 */
export function others(presence, connectionId) {
  const own = presence.find((one) => one.connectionId === connectionId)?.clientId;
  return presence.filter((one) => one.connectionId !== connectionId && (own === undefined || one.clientId !== own));
}

/**
 * Counts the windows, including this one, and the programs.
 * @param {readonly Participant[]} others
 */
export function countText(others) {
  const windows = 1 + others.filter(isWindow).length;
  const programs = 1 + others.length - windows;
  const count = (/** @type {number} */ of, /** @type {string} */ what) => `${of} ${what}${of === 1 ? "" : "s"}`;
  return programs === 0 ? count(windows, "window") : `${count(windows, "window")}, ${count(programs, "program")}`;
}

/**
 * Lists the others by name.
 * @param {readonly Participant[]} others
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
