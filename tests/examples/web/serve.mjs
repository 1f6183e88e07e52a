/**
 * Serves the page in this folder, and fetches the tickets with which the page connects: the token stays here.
 *
 *     AUTH_TOKENS=web:change-this-token ALLOWED_ORIGINS=http://127.0.0.1:3000 reseed
 *     RESEED_TOKEN=change-this-token node serve.mjs
 *
 * An argument names another folder. RESEED_URL is the server's address, PORT this one's. A real page would authenticate
 * its user before handing out a ticket.
 */

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

const TYPES = { ".html": "text/html", ".js": "text/javascript" };

/** Serves `folder`; `server` returns the address of reseed. Returns the HTTP server. */
export function serve({ folder, server, token }) {
  const client = join(folder, "node_modules/reseed-client/dist/");
  const answers = {
    "GET /server": async () => ["text/plain", server()],
    "POST /ticket": async () => ["text/plain", await ticket(server(), token)],
  };
  return createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://here");
    const path = normalize(pathname === "/" ? "/index.html" : pathname);
    const file = path.startsWith("/reseed-client/")
      ? join(client, path.slice("/reseed-client/".length))
      : join(folder, path);
    try {
      const answer = answers[`${request.method} ${path}`];
      const [type, body] = answer ? await answer() : [TYPES[extname(file)] ?? "text/plain", await readFile(file)];
      response.writeHead(200, { "content-type": type }).end(body);
    } catch (error) {
      response.writeHead(error.code === "ENOENT" ? 404 : 502).end(error.message);
    }
  });
}

/** Fetches a one-time ticket, as the client's `fetchTicket` does. */
async function ticket(server, token) {
  const headers = { Authorization: `Bearer ${token}` };
  const response = await fetch(new URL("/api/tickets", server), { method: "POST", headers });
  if (!response.ok) throw new Error(`the server gave no ticket: ${response.status}`);
  return (await response.json()).ticket;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { RESEED_URL = "http://127.0.0.1:8080", RESEED_TOKEN = "", PORT = "3000" } = process.env;
  const folder = process.argv[2] ?? fileURLToPath(new URL(".", import.meta.url));
  const http = serve({ folder, server: () => RESEED_URL, token: RESEED_TOKEN });
  http.listen(Number(PORT), "127.0.0.1", () => console.log(`http://127.0.0.1:${http.address().port}/`));
}
