/**
 * Compares the accounts of an hour: what the model reported, the rows of the table of usage, the sums of `/api/usage`,
 * the metrics of every process, and the budgets. They agree to the token and to the billionth of a dollar. Only a
 * server that is killed may lose something: the answers that it was receiving.
 */

import assert from "node:assert/strict";
import { CLASSES, costOf, OUTPUT_MAX, PRICES } from "./model.mjs";
import { isLimited } from "./users.mjs";

const add = (sums, key, number) => sums.set(key, (sums.get(key) ?? 0) + number);
/** Returns lists of the items with the same key. */
export function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return groups;
}

/** Pairs requests with rows of the same signature. Returns what is left of both. */
function pair(requests, rows, signature) {
  const waiting = groupBy(rows, signature);
  const left = requests.filter((request) => !waiting.get(signature(request))?.pop());
  return [left, [...waiting.values()].flat()];
}

const slotOf = (purpose) => (["turn", "prewarm"].includes(purpose) ? purpose : "summary");

/** The accounts of one run. */
export class Account {
  /** @param {{ model: object, servers: object, world: object, kills: Map<string, number> }} run */
  constructor({ model, servers, world, kills }) {
    Object.assign(this, { servers, world, kills });
    this.requests = model.requests;
    this.reported = model.requests.filter(({ state }) => state === "reported");
    const known = new Set(world.sessions.values());
    // The model knows tags only, and not the sessions of the HTTP API.
    this.sessionOf = ({ tag, session }) => world.sessions.get(tag) ?? (known.has(session) ? session : "http");
    this.rows = servers.rows();
  }

  /**
   * Returns true if a killed process may have lost this: it was the last that its session asked there, and nobody was
   * told.
   */
  #mayBeLost(request) {
    if (!this.kills.has(request.key) || this.world.told.has(request.number)) return false;
    const isLater = ({ key, tag, purpose, number }) =>
      key === request.key && tag === request.tag && slotOf(purpose) === slotOf(request.purpose) && number > request.number;
    return !this.requests.some(isLater);
  }

  /**
   * Every reported request is a row, once, and nothing else is. A request without a report is an estimated row, once;
   * refused ones are none. Besides, there is only this: what killed processes lost, and the reservations that they
   * left; estimates instead of a report that was on its way when the server cancelled the request, or was killed; and
   * estimates of requests that it cancelled while they were on their way to the model.
   */
  requestsAndRows() {
    const whose = (of) => [of.owner, this.sessionOf(of), of.model, of.purpose].join(" ");
    const exactly = (of) => [whose(of), ...CLASSES.map((kind) => of.tokens[kind]), of.cost].join(" ");
    const sent = this.rows.filter(({ tokens }) => tokens.input + tokens.output > 0);
    const [unwritten, invented] = pair(this.reported, sent.filter(({ isReported }) => isReported), exactly);
    assert.deepEqual(invented, [], "rows that the model did not report, or twice");
    this.estimated = sent.filter(({ isReported }) => !isReported);
    // Those that cannot have been lost have the first claim to a row, and rows with an answer have the first to a
    // request.
    this.estimated.sort((a, b) => a.tokens.output - b.tokens.output);
    const began = this.requests
      .filter(({ state }) => ["left", "broken"].includes(state))
      .sort((a, b) => this.#mayBeLost(a) - this.#mayBeLost(b));
    const [unestimated, more] = pair(began, this.estimated, whose);
    // What was told was not cancelled.
    const mayCross = unwritten.filter(({ number }) => !this.world.told.has(number));
    const [gone, surplus] = pair(mayCross, more, whose);
    this.crossed = mayCross.filter((request) => !gone.includes(request));
    this.lost = [...unwritten, ...unestimated].filter((request) => !this.crossed.includes(request));
    const unexplained = this.lost.filter((request) => !this.#mayBeLost(request));
    assert.deepEqual(unexplained, [], "requests without a row");
    // Of a killed server's reservation, the request may not have been sent; and of a cancelled one, no word was
    // answered.
    this.reservations = surplus.filter(({ owner }) => isLimited(owner) && this.kills.size > 0);
    this.unsent = surplus.filter((row) => !this.reservations.includes(row));
    assert.deepEqual(this.unsent.filter(({ tokens }) => tokens.output > 0), [], "estimates of answers that nobody gave");
    assert.ok(this.unsent.length <= 3 + this.requests.length / 100, `${this.unsent.length} requests never came`);
    for (const [owner, { length }] of groupBy(this.reservations, ({ owner }) => owner)) {
      assert.ok(length <= 3 * this.kills.size, `${owner} has ${length} reservations without a request`);
    }
  }

  /** `/api/usage` returns the sums of the rows, however they are grouped. */
  async sums() {
    const names = { input: "inputTokens", cached: "cachedTokens", cache_write: "cacheWriteTokens", cache_write_hour: "cacheWriteHourTokens", output: "outputTokens", reasoning: "reasoningTokens" };
    const day = ({ at }) => new Date(at).toISOString().slice(0, 10);
    const groups = { user: (row) => row.owner, model: (row) => row.model, session: (row) => row.session, day, total: () => "" };
    for (const node of this.servers.nodes) {
      for (const [by, keyOf] of Object.entries(groups)) {
        const expected = [...groupBy(this.rows, keyOf)].map(([key, rows]) => {
          const sum = (number) => rows.reduce((sum, row) => sum + number(row), 0);
          const sent = (row) => row.tokens.input + row.tokens.output > 0;
          return {
            ...(by === "total" ? {} : { [by]: key }),
            requests: sum((row) => sent(row)),
            estimatedRequests: sum((row) => sent(row) && !row.isReported),
            unpricedRequests: 0,
            ...Object.fromEntries(CLASSES.map((kind) => [names[kind], sum((row) => row.tokens[kind])])),
            costNanoUsd: sum((row) => (row.isReported ? row.cost : 0)),
            estimatedCostNanoUsd: sum((row) => (row.isReported ? 0 : row.cost)),
          };
        });
        const sorted = (items) => items.toSorted((a, b) => (a[by] < b[by] ? -1 : 1));
        assert.deepEqual(sorted(await this.servers.usage(node, `by=${by}`)), sorted(expected), `sums by ${by}`);
        if (by === "total") [this.total] = expected;
        if (by === "user") this.byUser = expected;
      }
      for (const step of ["minute", "hour", "day"]) {
        const steps = await this.servers.usage(node, `by=total&step=${step}`);
        for (const [name, sum] of Object.entries(this.total)) {
          assert.equal(steps.reduce((sum, item) => sum + item[name], 0), sum, `${name} by ${step}`);
        }
      }
    }
  }

  /**
   * The metrics of every process have what the model reported to it until they were read, for the last time before it
   * ended. Reports that were on their way when a request was cancelled are not among it.
   */
  metrics() {
    this.unread = 0;
    for (const [key, { at, counts }] of this.servers.scraped) {
      const own = this.reported.filter((request) => request.key === key && !this.crossed.includes(request));
      const expected = new Map();
      for (const { purpose, model, tokens, cost } of own.filter(({ endedAt }) => endedAt < at)) {
        for (const [kind, number] of Object.entries({ ...tokens, cost })) {
          if (number > 0) add(expected, `${slotOf(purpose)} ${model} ${kind}`, number);
        }
      }
      assert.deepEqual(Object.fromEntries(counts), Object.fromEntries(expected), `the metrics of ${key}`);
      this.unread += own.filter(({ endedAt }) => endedAt >= at).length;
    }
  }

  /**
   * No request of a user reaches the model once the reported costs have used up the budget, and none follows after a
   * turn was told so. `limits` are the budgets in billionths of a dollar, with the times from which they hold.
   */
  async budgets(limits) {
    const overruns = [];
    for (const [owner, requests] of groupBy(this.requests.filter(({ owner }) => isLimited(owner)), ({ owner }) => owner)) {
      for (const request of requests) {
        const limit = Math.max(...limits.filter(({ from }) => from <= request.begunAt).map(({ nano }) => nano));
        const ended = requests.filter(({ state, endedAt }) => state === "reported" && endedAt < request.begunAt);
        const spent = ended.reduce((sum, { cost }) => sum + cost, 0);
        assert.ok(spent < limit, `${owner} had spent ${spent} of ${limit} before request ${request.number}`);
      }
      const rows = this.rows.filter((row) => row.owner === owner);
      const spent = rows.reduce((sum, { cost }) => sum + cost, 0);
      const limit = limits.at(-1).nano;
      const dearest = Math.max(...requests.map(({ model, prompt }) => dearestOf(model, prompt)));
      assert.ok(spent < limit + dearest, `${owner} has spent ${spent} of ${limit}`);
      overruns.push(Math.max(0, spent - limit));
      const [used] = (await this.servers.get(this.servers.nodes[0], `/api/budgets?owner=${owner}`)).items;
      assert.equal(used.spentNanoUsd, spent, `/api/budgets of ${owner}`);
    }
    for (const { owner, at } of this.world.refusedByBudget) {
      const raised = limits.find(({ from }) => from > at)?.from ?? Infinity;
      const after = this.requests.filter((request) => request.owner === owner && request.begunAt > at && request.begunAt < raised);
      assert.deepEqual(after, [], `${owner} asked the model after the budget was used up`);
    }
    this.overrun = Math.max(...overruns);
  }
}

/** Returns the most that a request can be estimated to cost: all input is written to the cache for an hour. */
const dearestOf = (model, prompt) => {
  const [input, , , written, hour] = PRICES[model];
  const most = hour > input && hour > written ? "cache_write_hour" : "input";
  const tokens = { input: prompt, cached: 0, cache_write: 0, cache_write_hour: 0, output: OUTPUT_MAX };
  if (most !== "input") Object.assign(tokens, { cache_write: prompt, cache_write_hour: prompt });
  return costOf(model, tokens);
};
