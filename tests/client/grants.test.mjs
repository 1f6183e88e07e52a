/** Renewing and revoking grants on the real server. `package.test.mjs` runs README.md's own backend and frontend. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { connect } from "reseed-client";
import { WebSocket } from "ws";
import { Server } from "../browser/server.mjs";

const TOKEN = "a-token-that-only-the-back-end-knows";

test("a client renews its grant, and stops when the grant is revoked", async () => {
  const server = new Server({ SERVICE_TOKENS: `shop:${TOKEN}` });
  const url = await server.start();
  const headers = { Authorization: `Bearer ${TOKEN}` };
  const mint = async (validForSecs) => {
    const body = JSON.stringify({ principal: "user/17", validForSecs });
    return (await (await fetch(`${url}api/tickets`, { method: "POST", headers, body })).json()).ticket;
  };
  const times = [4, 600];
  const client = connect(url, { ticket: () => mint(times.shift()), WebSocket });
  const phases = [];
  client.subscribe(() => phases.push(client.status.phase));
  try {
    const session = await client.createSession();
    // Another connection with an equally short grant starts later and is not renewed.
    const other = new WebSocket(`${url.replace("http", "ws")}ws?ticket=${await mint(4)}`, "reseed.v2");
    const [code] = await once(other, "close");
    assert.equal(code, 4401);
    await session.send("hello").finished();
    assert.deepEqual([times, phases], [[], ["open"]], "the connection is the first one");
    const stopped = new Promise((resolve) => client.subscribe(resolve));
    const revoked = await fetch(`${url}api/principals/user%2F17`, { method: "DELETE", headers });
    assert.deepEqual(await revoked.json(), { tickets: 0, sockets: 1 });
    await stopped;
    assert.deepEqual([client.status.phase, client.status.code], ["stopped", 4403]);
  } finally {
    client.close();
    await server.remove();
  }
});
