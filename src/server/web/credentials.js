/** What this tab knows of who it is: its own name, and the token where the server asks for one. */

import { CommandError, ConnectionLost, newId } from "./connection.js";

const TOKEN_KEY = "reseed.token";
const CLIENT_KEY = "reseed.client";

/** The tab's name, the same after a reload: the server then knows that the older connection is over. */
export function clientId() {
  const id = sessionStorage.getItem(CLIENT_KEY) ?? newId();
  sessionStorage.setItem(CLIENT_KEY, id);
  return id;
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
