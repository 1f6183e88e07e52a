/** The token of this tab, where the server asks for one, and the tickets that stand for it. */

import { NoCredentials } from "./client.js";

const TOKEN_KEY = "reseed.token";

/**
 * Keeps a token as long as the tab is open.
 * @param {string} token
 */
export function keepToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token);
}

/**
 * Returns a fresh ticket if this tab has a token: a ticket is good for one connection, the token itself stays out of
 * it. Without a token there is none, and a server that asks for one says so.
 * @returns {Promise<string | undefined>}
 */
export async function ticket() {
  const token = sessionStorage.getItem(TOKEN_KEY);
  if (token === null) return undefined;
  const response = await fetch("api/tickets", { method: "POST", headers: { authorization: `Bearer ${token}` } });
  if (response.ok) return (await response.json()).ticket;
  if (response.status !== 401 && response.status !== 403) throw new Error(`no ticket: status ${response.status}`);
  sessionStorage.removeItem(TOKEN_KEY);
  throw new NoCredentials("the token was refused");
}
