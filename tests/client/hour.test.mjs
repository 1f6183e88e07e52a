/**
 * An hour of use: simulated users chat over one or two real servers, which are killed, restarted and reloaded, in front
 * of a model server that counts what it reports. At the end, all accounts of it must agree (`hour/account.mjs`).
 *
 *     USERS=200 MINUTES=60 node --test hour.test.mjs    a whole hour, in five minutes; tests/soak/hour.sh runs it
 *     SEED=72 node --test hour.test.mjs                 makes the same choices again, though not at the same moments
 *     KEEP=/tmp/hour node --test hour.test.mjs          keeps all requests and rows, to explain a failure
 */

import assert from "node:assert/strict";
import { setMaxListeners } from "node:events";
import { writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { Account, groupBy } from "./hour/account.mjs";
import { CLASSES, Model } from "./hour/model.mjs";
import { Servers } from "./hour/servers.mjs";
import { isLimited, ownerOf, SPEED, User } from "./hour/users.mjs";
import { readPage, verifyAudit } from "./hour/witnesses.mjs";
import { seeded } from "./seeded.mjs";

const USERS = Number(process.env.USERS ?? 20);
const MINUTES = Number(process.env.MINUTES ?? 3);
const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 1_000_000));
const { KEEP } = process.env;
/** Simulated minutes between two faults. */
const FAULT_MINUTES = 10;
/** Milliseconds for which a killed server is away. */
const AWAY_MS = 1_500;

/** Returns the budgets of the users who have one: this share of a dollar a month. */
const budgetsOf = (owners, nano) => ({
  classes: { default: [], small: [{ per: "month", dollars: nano / 1e9 }] },
  users: Object.fromEntries(owners.filter(isLimited).map((owner) => [owner, "small"])),
});

/** What the users share. */
class World {
  sessions = new Map();
  /** The numbers of requests whose answers clients were told of, with the time. What is told is stored. */
  told = new Map();
  refusedByBudget = [];
  /** The deleted sessions. */
  deleted = [];
  counts = new Map();
  clients = [];
  /** Aborted when the test ends, which may have failed. */
  over = new AbortController();

  constructor(seed, users, servers, until) {
    Object.assign(this, { seed, users, servers, until });
    setMaxListeners(0, this.over.signal);
  }

  sleep(ms) {
    return setTimeout(Math.max(ms, 0), undefined, { signal: this.over.signal });
  }

  count(what) {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }

  exhausted(owner) {
    this.refusedByBudget.push({ owner, at: Date.now() });
  }

  /** Notes which answers a durable event has. */
  hear(event) {
    if (event.seq === undefined) return;
    for (const [, number, call] of JSON.stringify(event).matchAll(/#(\d+)|call_(\d+)/g)) {
      this.told.set(Number(number ?? call), this.told.get(Number(number ?? call)) ?? Date.now());
    }
  }
}

/**
 * Disturbs the servers until the hour is over. Returns when each process was killed, and when the budgets were
 * raised.
 */
async function disturb({ servers, model, world, random, raise }) {
  const kills = new Map();
  const began = Date.now();
  const faults = Math.max(2, Math.round(MINUTES / FAULT_MINUTES));
  let raisedAt = Infinity;
  for (let fault = 0; fault < faults; fault += 1) {
    await world.sleep(began + ((fault + 0.6 + 0.3 * random()) / (faults + 0.5)) * (world.until - began) - Date.now());
    const node = servers.nodes[Math.floor(random() * servers.nodes.length)];
    if (fault % 2 === 0) {
      // While it receives the end of an answer, or a moment later.
      const moment = async (key) => {
        const end = new Promise((resolve) => (model.onReport = (request) => request.key === key && resolve()));
        await Promise.race([end, world.sleep(2_000)]);
        if (random() < 0.7) await world.sleep(random() * 10);
      };
      await servers.end(node, "SIGKILL", model, moment);
      kills.set(node.key, Date.now());
      await world.sleep(AWAY_MS);
    } else {
      await servers.end(node, "SIGTERM", model);
    }
    await servers.start(node);
    if (raisedAt === Infinity) {
      raisedAt = Date.now();
      raise();
      await servers.reload();
    }
  }
  return { kills, raisedAt };
}

function keep(file, what) {
  if (KEEP) writeFileSync(file, JSON.stringify(what, (_, value) => (value instanceof Map ? [...value] : value)));
}

async function play({ nodes, users }) {
  const owners = Array.from({ length: users }, (_, number) => ownerOf(number));
  const budget = 4e6 + MINUTES * 1e6;
  const model = await Model.start(SEED);
  const servers = await Servers.start({ model, owners, nodes, budgets: budgetsOf(owners, budget) });
  const world = new World(SEED, users, servers, Date.now() + (MINUTES * 60_000) / SPEED);
  try {
    const raise = () => servers.limit(budgetsOf(owners, budget * 1.5));
    const disturbing = disturb({ servers, model, world, random: seeded(SEED), raise });
    const living = owners.map((_, number) => new User(number, world).live());
    const [{ kills, raisedAt }] = await Promise.all([disturbing, ...living]);
    await servers.settle(servers.nodes, () => servers.rows().length);

    assert.deepEqual(model.wrong, []);
    const account = new Account({ model, servers, world, kills });
    keep(`${KEEP}-${nodes}.json`, { requests: model.requests, rows: account.rows, sessions: world.sessions, told: world.told, kills });
    account.requestsAndRows();
    await account.sums();
    account.metrics();
    await account.budgets([{ from: 0, nano: budget }, { from: raisedAt, nano: budget * 1.5 }]);
    await readPage(servers.nodes[0], account.total, account.byUser);
    await servers.stop();
    account.audited = verifyAudit(servers.nodes, world.deleted, seeded(SEED));
    tell(account, nodes);
  } finally {
    world.over.abort();
    world.clients.forEach((client) => client.close());
    model.close();
    await servers.remove();
  }
}

/** Prints what happened. */
function tell({ world, requests, reported, estimated, reservations, unsent, crossed, lost, kills, unread, overrun, total, audited }, nodes) {
  const count = (items, name) => [...groupBy(items, name)].map(([name, { length }]) => `${name} ${length}`).sort().join(", ");
  const inProgress = lost.filter(({ state }) => state !== "reported").length;
  const ended = lost.filter(({ state }) => state === "reported");
  const oldest = Math.max(0, ...ended.map(({ key, endedAt }) => kills.get(key) - endedAt));
  const dollars = (nano) => `$${(nano / 1e9).toFixed(9)}`;
  const lines = [
    `${world.users} users, ${MINUTES} minutes, ${nodes} servers, kills of ${[...kills.keys()].join(", ")}; SEED=${SEED}`,
    `users: ${[...world.counts].map(([what, times]) => `${what} ${times}`).sort().join(", ")}`,
    `requests: ${requests.length}; ${count(requests, ({ state }) => state)}; reported: ${count(reported, ({ purpose }) => purpose)}`,
    `tokens: ${CLASSES.map((kind) => `${kind} ${reported.reduce((sum, { tokens }) => sum + tokens[kind], 0)}`).join(", ")}`,
    `cost: ${dollars(total.costNanoUsd)}, and ${dollars(total.estimatedCostNanoUsd)} in ${estimated.length} estimates, of which ` +
      `${crossed.length} stand for a report that was on its way, ${unsent.length} for requests that were, and ` +
      `${reservations.length} are reservations of killed servers`,
    `lost with killed servers: ${inProgress} answers in progress, and ${ended.length} that had just ended, at most ${oldest} ms ` +
      `before the server was gone`,
    `ended after the last reading of metrics: ${unread}; budgets passed by at most ${dollars(overrun)}`,
    `the page shows these sums, and ${audited} lines of the audit log are unchanged`,
  ];
  console.log(lines.join("\n"));
}

describe(`an hour of use, SEED=${SEED}`, { concurrency: true }, () => {
  test(`${USERS} users on two servers with PostgreSQL`, () => play({ nodes: 2, users: USERS }));
  test(`${Math.ceil(USERS / 2)} users on one server with SQLite`, () => play({ nodes: 1, users: Math.ceil(USERS / 2) }));
});
