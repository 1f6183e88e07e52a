/** A back end and a front end as README.md shows them, on the real server; renewing and revoking what was granted. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { connect } from "reseed-client";
import { WebSocket } from "ws";
import { Server } from "../browser/server.mjs";
import { pack, run, temporary, unpack } from "./packed.mjs";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const README = fileURLToPath(new URL("../../README.md", import.meta.url));
const TOKEN = "a-token-that-only-the-back-end-knows";
const LISTENING = 'process.stdout.write("listening");';

/** Returns the example of README.md whose first line is this comment. */
function example(comment) {
  const found = readFileSync(README, "utf8").split(`\`\`\`js\n// ${comment}`)[1];
  const code = found.split("```")[0].split("\n").slice(1).join("\n");
  assert.ok(code.trim().split("\n").length <= 10, "ten lines");
  return code;
}

/** Returns text in which each of these is found once and replaced. */
function replaced(text, pairs) {
  return pairs.reduce((whole, [from, to]) => {
    assert.equal(whole.split(from).length, 2, from);
    return whole.replace(from, to);
  }, text);
}

/** Returns a port that was free just now: a back end takes the one that it is given. */
async function freePort() {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  probe.close();
  await once(probe, "close");
  return port;
}

test("the back end and the front end of README.md run", async (context) => {
  const folder = temporary(context);
  unpack(pack(folder), folder);
  symlinkSync(join(HERE, "node_modules/ws"), join(folder, "node_modules/ws"));
  const server = new Server({ SERVICE_TOKENS: `shop:${TOKEN}` });
  const url = (await server.start()).replace(/\/$/, "");
  const port = String(await freePort());
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  writeFileSync(join(folder, "login.js"), 'export const userOf = () => "user-17";');
  const listens = [".listen(process.env.PORT)", `.listen(process.env.PORT, () => ${LISTENING.slice(0, -1)})`];
  const address = ["http://127.0.0.1:8080", url];
  writeFileSync(join(folder, "back.js"), replaced(example("the back end, in Node"), [address, listens]));
  const page = [
    ["ws://127.0.0.1:8080", url.replace("http", "ws")],
    ["{ ticket }", "{ ticket, WebSocket: (await import('ws')).WebSocket }"],
    ['"/ticket"', `"http://127.0.0.1:${port}/ticket"`],
    ["document.body.append(piece)", "process.stdout.write(piece)"],
  ];
  const front = replaced(example("the front end, with your bundler"), page);
  writeFileSync(join(folder, "front.js"), `${front}\nclient.close();\n`);
  const env = { PATH: process.env.PATH, RESEED_TOKEN: TOKEN, PORT: port };
  const back = spawn(process.execPath, ["back.js"], { cwd: folder, env, stdio: ["ignore", "pipe", "inherit"] });
  try {
    await once(back.stdout, "data");
    assert.match(run(process.execPath, ["front.js"], { cwd: folder, timeout: 60_000 }), /Miso/);
  } finally {
    back.kill();
    await server.remove();
  }
});

test("a client renews what it was granted, and stops when that is taken back", async () => {
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
    // Another connection, whose grant is as short, begins later and is not renewed.
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
