/** The token of this tab, if the server requires one, and the tickets that stand for it. */

import { NoCredentials } from "./client.js";

const TOKEN_KEY = "reseed.token";

/**
 * Stores a token until the tab is closed.
 * @param {string} token
 */
export function keepToken(token) {
  sessionStorage.setItem(TOKEN_KEY, token);
}

/**
 * Returns a fresh ticket if this tab has a token. A ticket is valid for one connection, and the token itself stays out
 * of that connection. Without a token there is no ticket, and a server that requires one refuses the connection.
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
