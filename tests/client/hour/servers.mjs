/** The servers of the simulated hour: one on SQLite, or several on a PostgreSQL of their own. */

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Server } from "../../browser/server.mjs";
import { CLASSES, OUTPUT_MAX, PRICES, WINDOW } from "./model.mjs";

export const OPERATOR = "operator-token-of-some-length";
/** The secret that the servers share. */
const NODE_TOKEN = "a-secret-of-more-than-32-characters-for-nodes";

/** Prints the rows of a query, since Node 20 has no SQLite of its own. */
const READ_SQLITE =
  "import sqlite3, sys\nfor row in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]): print(*row, sep='\\t')";

/** Returns the token of a user. */
export const tokenOf = (owner) => `token-of-${owner}-0123456789`;

/** Returns a port that is free now. A server must know its address before it starts. */
async function freePort() {
  const socket = createServer().listen(0, "127.0.0.1");
  await once(socket, "listening");
  const { port } = socket.address();
  socket.close();
  await once(socket, "close");
  return String(port);
}

/** A PostgreSQL server on a socket in a folder of its own. It ends with this process, however that ends. */
export class Postgres {
  constructor() {
    const newest = readdirSync("/usr/lib/postgresql").sort((a, b) => Number(b) - Number(a))[0];
    this.bin = `/usr/lib/postgresql/${newest}/bin`;
    this.folder = mkdtempSync(join(tmpdir(), "reseed-pg-"));
    // It refuses to run as root.
    this.user = process.getuid() === 0 ? { uid: id("-u"), gid: id("-g") } : {};
    if (this.user.uid) chownSync(this.folder, this.user.uid, this.user.gid);
    const data = join(this.folder, "data");
    this.#run("initdb", "--auth=trust", "--username=reseed", "--encoding=UTF8", "--locale=C", "--no-sync", "-D", data);
    const options = `-c listen_addresses= -c unix_socket_directories=${this.folder} -c fsync=off -c max_connections=200`;
    const stop = `cat >/dev/null; '${this.bin}/pg_ctl' -D '${data}' -m immediate stop; rm -rf '${this.folder}'`;
    this.watch = spawn("/bin/sh", ["-c", stop], { ...this.user, detached: true, stdio: ["pipe", "ignore", "ignore"] });
    this.#run("pg_ctl", "-D", data, "-l", join(this.folder, "log"), "-w", "-o", options, "start");
    this.url = `postgres://reseed@${this.folder.replaceAll("/", "%2F")}/postgres`;
  }

  #run(program, ...args) {
    const options = { ...this.user, cwd: this.folder, stdio: ["ignore", "ignore", "inherit"] };
    execFileSync(join(this.bin, program), args, options);
  }

  query(sql) {
    const args = ["-h", this.folder, "-U", "reseed", "-X", "-A", "-t", "-F", "\t", "-d", "postgres", "-c", sql];
    return execFileSync(join(this.bin, "psql"), args, { ...this.user, cwd: this.folder, encoding: "utf8", maxBuffer: 2 ** 28 });
  }

  async stop() {
    this.watch.stdin.end();
    await once(this.watch, "exit");
  }
}

const id = (what) => Number(execFileSync("id", [what, "postgres"], { encoding: "utf8" }));

/** The servers. */
export class Servers {
  nodes = [];
  /** What each process said about its tokens and costs, by its API key. */
  scraped = new Map();

  /** @param {{ model: object, owners: string[], budgets: object, nodes: number }} options */
  static async start({ model, owners, budgets, nodes }) {
    const servers = new Servers();
    servers.postgres = nodes > 1 ? new Postgres() : null;
    servers.budgetsFile = join(mkdtempSync(join(tmpdir(), "reseed-budgets-")), "budgets.json");
    servers.limit(budgets);
    const windows = Object.keys(PRICES).map((name) => `${name}=${WINDOW}`);
    const settings = {
      MODEL: "swift",
      SUMMARY_MODEL: "clerk",
      OPENAI_BASE_URL: `${model.url}/v1`,
      ANTHROPIC_BASE_URL: model.url,
      MODEL_PRICES: Object.entries(PRICES).map(([name, prices]) => `${name}=${prices.join("/")}`).join(","),
      MODEL_WINDOWS: windows.join(","),
      OUTPUT_TOKENS_MAX: String(OUTPUT_MAX),
      CACHE_PREWARM: "on",
      AUTH_TOKENS: owners.map((owner) => `${owner}:${tokenOf(owner)}`).join(","),
      OPERATOR_TOKENS: `ops:${OPERATOR}`,
      BUDGETS_FILE: servers.budgetsFile,
      USAGE_RETENTION_DAYS: "0",
      AUDIT_FILE: "audit",
      LOG_LEVEL: "warn",
    };
    for (let at = 0; at < nodes; at += 1) {
      const name = "abc"[at];
      const node = new Server({ ...settings });
      if (servers.postgres) {
        node.port = await freePort();
        const address = `ws://127.0.0.1:${node.port}`;
        const shared = { DATABASE_URL: servers.postgres.url, NODE_NAME: name, NODE_ADDRESS: address, NODE_TOKEN };
        Object.assign(node.settings, shared, { NODE_LEASE_SECS: "2", RESEED_FIXED: "unsafe_store=true" });
      }
      Object.assign(node, { name, starts: 0, isUp: false });
      servers.nodes.push(node);
      await servers.start(node);
    }
    return servers;
  }

  /** Starts a server. Its key tells the model which process asks. */
  async start(node) {
    node.starts += 1;
    node.key = `${node.name}${node.starts}`;
    Object.assign(node.settings, { OPENAI_API_KEY: node.key, ANTHROPIC_API_KEY: node.key });
    await node.start();
    node.isUp = true;
  }

  /** Returns the address of any server that runs; of one that does not, if there is no other. */
  any(random) {
    const up = this.nodes.filter((node) => node.isUp);
    const from = up.length > 0 ? up : this.nodes;
    return from[Math.floor(random() * from.length)].url;
  }

  /** Writes the file with the budgets. */
  limit(budgets) {
    writeFileSync(this.budgetsFile, JSON.stringify(budgets));
  }

  /** Makes every server read its settings again, and waits until it has. */
  async reload() {
    const reloads = /^reseed_settings_reloads_total\{outcome="ok"\} (\d+)$/m;
    for (const node of this.nodes.filter((node) => node.isUp)) {
      const count = async () => Number(reloads.exec(await this.get(node, "/metrics", "text"))[1]);
      const before = await count();
      node.child.kill("SIGHUP");
      while ((await count()) === before) await sleep(20);
    }
  }

  /** Notes what a process counts: a number for each purpose, model and class of tokens, and for costs. */
  async scrape(node) {
    const text = await this.get(node, "/metrics", "text");
    const at = Date.now();
    const counts = new Map();
    const line = /^reseed_(tokens|model_cost_nano_usd)_total\{purpose="(\w+)",model="([^"]+)"(?:,kind="(\w+)")?\} (\d+)$/gm;
    for (const [, , purpose, model, kind, count] of text.matchAll(line)) {
      if (count !== "0") counts.set(`${purpose} ${model} ${kind ?? "cost"}`, Number(count));
    }
    this.scraped.set(node.key, { at, counts });
  }

  /** Reads what processes count, and `more`, until nothing changes any more. */
  async settle(nodes, more = () => null) {
    for (let before = ""; ; await sleep(500)) {
      for (const node of nodes) await this.scrape(node);
      const now = JSON.stringify([nodes.map(({ key }) => [...this.scraped.get(key).counts].sort()), more()]);
      if (now === before) return;
      before = now;
    }
  }

  /**
   * Ends a process at this moment. What it counts is read before. Meanwhile the model ends no answers of it, so
   * that the
   * reading has exactly the earlier ones.
   */
  async end(node, signal, model, moment = () => undefined) {
    node.isUp = false;
    model.held = node.key;
    await this.settle([node]);
    model.held = null;
    await moment(node.key);
    await node.end(signal);
  }

  async get(node, path, as = "json") {
    const answered = await fetch(new URL(path, node.url), { headers: { authorization: `Bearer ${OPERATOR}` } });
    assert.equal(answered.status, 200, `${path}: ${answered.status}`);
    return answered[as]();
  }

  /** Returns all sums of `/api/usage`. */
  async usage(node, query) {
    const items = [];
    let cursor = "";
    do {
      const page = await this.get(node, `/api/usage?${query}&limit=100${cursor}`);
      items.push(...page.items);
      cursor = page.nextCursor === undefined ? "" : `&cursor=${encodeURIComponent(page.nextCursor)}`;
    } while (cursor);
    return items;
  }

  /** Returns the rows of the table of usage. */
  rows() {
    // Names are bytes on PostgreSQL.
    const [owner, name] = ["owner", "model"].map((column) => (this.postgres ? `convert_from(${column}, 'UTF8')` : column));
    const columns = `id, at, ${owner}, session, ${name}, purpose, CASE WHEN reported THEN 1 ELSE 0 END`;
    const sql = `SELECT ${columns}, ${CLASSES}, cost_nano_usd FROM model_usage`;
    const [node] = this.nodes;
    const text = this.postgres
      ? this.postgres.query(sql)
      : execFileSync("python3", ["-c", READ_SQLITE, join(node.folder, "reseed.db"), sql], { encoding: "utf8", maxBuffer: 2 ** 28 });
    return text.trim().split("\n").map((line) => {
      const [id, at, owner, session, model, purpose, reported, ...numbers] = line.split("\t");
      const [cost, ...tokens] = [numbers.pop(), ...numbers].map(Number);
      const of = Object.fromEntries(CLASSES.map((kind, number) => [kind, tokens[number]]));
      return { id, at: Number(at), owner, session, model, purpose, isReported: reported === "1", tokens: of, cost };
    });
  }

  async stop() {
    for (const node of this.nodes) await node.end();
  }

  async remove() {
    for (const node of this.nodes) await node.remove();
    await this.postgres?.stop();
    rmSync(join(this.budgetsFile, ".."), { recursive: true });
  }
}
