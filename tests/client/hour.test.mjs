/**
 * An hour of use: simulated users chat over one or two real servers, which are killed, restarted and reloaded, in front of
 * a model server that counts what it reports. At the end, all accounts of it must agree (`hour/account.mjs`).
 *
 *     USERS=200 MINUTES=60 node --test hour.test.mjs    a whole hour, in five minutes; tests/soak/hour.sh runs it
 *     SEED=72 node --test hour.test.mjs                 makes the same choices again, though not at the same moments
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Account } from "./hour/account.mjs";
import { CLASSES, Model } from "./hour/model.mjs";
import { seeded } from "./seeded.mjs";
import { Servers } from "./hour/servers.mjs";
import { isLimited, ownerOf, SPEED, User } from "./hour/users.mjs";

const USERS = Number(process.env.USERS ?? 20);
const MINUTES = Number(process.env.MINUTES ?? 3);
const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 1_000_000));
/** Simulated minutes between two faults. */
const FAULT_MINUTES = 10;
/** Milliseconds for which a killed server is away. */
const AWAY_MS = 1_500;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

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
  counts = new Map();

  constructor(seed, servers, until) {
    Object.assign(this, { seed, servers, until });
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

/** Disturbs the servers until the hour is over. Returns when each process was killed, and when the budgets were raised. */
async function disturb({ servers, model, world, random, raise }) {
  const kills = new Map();
  const began = Date.now();
  const faults = Math.max(2, Math.round(MINUTES / FAULT_MINUTES));
  let raisedAt = Infinity;
  for (let fault = 0; fault < faults; fault += 1) {
    await sleep(began + ((fault + 0.6 + 0.3 * random()) / (faults + 0.5)) * (world.until - began) - Date.now());
    const node = servers.nodes[(fault + (SEED % 2)) % servers.nodes.length];
    if (fault % 2 === 0) {
      // While it receives the end of an answer, or a moment later.
      const moment = async (key) => {
        const end = new Promise((resolve) => (model.onReport = (request) => request.key === key && resolve()));
        await Promise.race([end, sleep(2_000)]);
        if (random() < 0.7) await sleep(random() * 10);
      };
      await servers.end(node, "SIGKILL", moment);
      kills.set(node.key, Date.now());
      await sleep(AWAY_MS);
    } else {
      await servers.end(node, "SIGTERM");
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

async function play({ nodes, users }) {
  const owners = Array.from({ length: users }, (_, number) => ownerOf(number));
  const budget = 4e6 + MINUTES * 1e6;
  const model = await Model.start(SEED);
  const servers = await Servers.start({ model, owners, nodes, budgets: budgetsOf(owners, budget) });
  try {
    const world = new World(SEED, servers, Date.now() + (MINUTES * 60_000) / SPEED);
    const raise = () => servers.limit(budgetsOf(owners, budget * 1.5));
    const disturbing = disturb({ servers, model, world, random: seeded(SEED), raise });
    const users_ = owners.map((_, number) => new User(number, world));
    const living = users_.map((user) => user.live());
    if (process.env.DEBUG) setTimeout(() => { console.log([...world.counts]); for (const u of users_) console.log(u.owner, u.doing, u.client?.status); for (const n of servers.nodes) console.log(n.name, n.key, n.isUp, n.url) }, 30_000);
    const [{ kills, raisedAt }] = await Promise.all([disturbing, ...living]);
    await quiet(servers);
    for (const node of servers.nodes) {
      await servers.scrape(node);
      servers.scraped.get(node.key).isFinal = true;
    }

    assert.deepEqual(model.wrong, []);
    const account = new Account({ model, servers, world, kills });
    const lost = account.reports();
    const estimates = account.estimates();
    await account.sums();
    const uncounted = account.metrics();
    const overrun = await account.budgets([{ from: 0, nano: budget }, { from: raisedAt, nano: budget * 1.5 }]);
    tell({ world, model, account, kills, lost, estimates, uncounted, overrun, users, nodes });
    return { world, model, account };
  } finally {
    model.close();
    await servers.stop();
  }
}

/** Waits until no server works on anything: until no request is in progress, and nothing more is written. */
async function quiet(servers) {
  for (let before = null; ; ) {
    const counts = [];
    for (const node of servers.nodes) {
      await servers.scrape(node);
      counts.push(...servers.scraped.get(node.key).counts.values());
    }
    const now = JSON.stringify([counts.sort(), servers.rows().length]);
    if (now === before) return;
    before = now;
    await sleep(1_000);
  }
}

function tell({ world, model, account, kills, lost, estimates, uncounted, overrun, users, nodes }) {
  const purposes = new Map();
  for (const { purpose } of account.reported) purposes.set(purpose, (purposes.get(purpose) ?? 0) + 1);
  const states = new Map();
  for (const { state } of model.requests) states.set(state, (states.get(state) ?? 0) + 1);
  const text = (counts) => [...counts].sort().map(([name, count]) => `${name} ${count}`).join(", ");
  const number = (number) => number.toLocaleString("en-GB");
  const lines = [
    `${users} users, ${MINUTES} minutes, ${nodes} servers, ${kills.size} kills; SEED=${SEED}`,
    `users: ${text(world.counts)}`,
    `requests: ${number(model.requests.length)}; ${text(states)}; reported: ${text(purposes)}`,
    `tokens: ${CLASSES.map((kind) => `${kind} ${number(account.reported.reduce((sum, { tokens }) => sum + tokens[kind], 0))}`).join(", ")}`,
    `cost: $${(account.total.costNanoUsd / 1e9).toFixed(9)}, estimated $${(account.total.estimatedCostNanoUsd / 1e9).toFixed(9)}`,
    `lost by kills: ${lost.map(({ number, key, purpose, endedAt }) => `#${number} (${purpose}, ${kills.get(key) - endedAt} ms before the end of ${key})`).join(", ") || "nothing"}`,
    `estimates: ${estimates.rows.length}, of which reservations of killed servers ${estimates.reservations}; lost ${estimates.lost}`,
    `not in the metrics read before the end of a process: ${uncounted}; budgets passed by at most $${(overrun / 1e9).toFixed(6)}`,
  ];
  console.log(lines.join("\n"));
}

test(`${USERS} users on two servers with PostgreSQL`, async () => {
  await play({ nodes: 2, users: USERS });
});

test(`${Math.ceil(USERS / 2)} users on one server with SQLite`, async () => {
  await play({ nodes: 1, users: Math.ceil(USERS / 2) });
});
