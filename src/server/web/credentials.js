/** What this tab knows of who it is: its own name, and the token where the server asks for one. */

import { CommandError, ConnectionLost, newId } from "./connection.js";

const TOKEN_KEY = "reseed.token";
const CLIENT_KEY = "reseed.client";
/** Milliseconds that a page may take to let go of its name after a reload; a duplicated tab waits so long once. */
const RELEASE_MS = 200;

/**
 * Takes the tab's name, the same after a reload: the server then knows that the older connection is over. A duplicated
 * tab begins with a copy of the other's name, and takes one of its own.
 */
export async function takeClientId() {
  const kept = sessionStorage.getItem(CLIENT_KEY);
  if (kept !== null && (await claim(kept))) return kept;
  const id = newId();
  sessionStorage.setItem(CLIENT_KEY, id);
  await claim(id);
  return id;
}

/**
 * Claims a name for as long as this page lives; false if another page holds it. Where the browser knows no locks, as on
 * a page that is not served safely, every name is free.
 * @param {string} id
 * @returns {Promise<boolean>}
 */
function claim(id) {
  if (!navigator.locks) return Promise.resolve(true);
  const signal = AbortSignal.timeout(RELEASE_MS);
  return new Promise((resolve) => {
    const hold = () => {
      resolve(true);
      return new Promise(() => undefined);
    };
    // Where locks are refused altogether, nothing is known of other pages.
    navigator.locks.request(`reseed.client.${id}`, { signal }, hold).catch(() => resolve(!signal.aborted));
  });
}

/**
 * Keeps a token as long as the tab is open.
 * @param {string} token
 */
export function keepToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token);
}

/**
 * A fresh ticket where this tab has a token: tickets are good for one connection, the token itself stays out of it.
 * @returns {Promise<{ ticket?: string }>}
 */
export async function credentials() {
  const token = sessionStorage.getItem(TOKEN_KEY);
  if (token === null) return {};
  const response = await fetch("api/tickets", { method: "POST", headers: { authorization: `Bearer ${token}` } });
  if (response.ok) return { ticket: (await response.json()).ticket };
  if (response.status !== 401 && response.status !== 403) throw new ConnectionLost(`no ticket: status ${response.status}`);
  sessionStorage.removeItem(TOKEN_KEY);
  throw new CommandError({ code: "unauthenticated", message: "the token was refused", retriable: false });
}
