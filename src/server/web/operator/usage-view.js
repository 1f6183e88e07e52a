/** What requests cost, and how well the server did, over time. All numbers come from the server's own tables. */

import { el, number, span } from "../dom.js";
import { costOf, count, money } from "./format.js";
import { paced, put, reasonOf, tiles } from "./parts.js";
import { Plot } from "./plot.js";
import { RANGES, binOf, binsOf, grouped, largest, summed, total } from "./series.js";

/** Series in a plot; the others are added up. */
const SERIES_MAX = 5;
/** Pages of sums that are read: by user, and by period and model. */
const PAGES_MAX = 10;
/** The same for minutes, of which a week of four servers has 40,000. A page is parsed in some ten milliseconds. */
const MINUTES = { limit: 2_000, pagesMax: 20 };

/** @type {keyof typeof RANGES} kept while another view is shown */
let range = "hour";

/**
 * @typedef {"inputTokens" | "cachedTokens" | "cacheWriteTokens" | "outputTokens" | "reasoningTokens"} Tokens
 * @typedef {Record<Tokens | "requests" | "costNanoUsd" | "estimatedCostNanoUsd", number>} Numbers
 * @typedef {Numbers & { from: string, model?: string, user?: string }} Sum
 *
 * @typedef {Partial<Record<"compactions" | "failures", Record<string, number>>>} Counts
 * @typedef {Counts & { minute: string, waiting?: number, pauses?: { totalMs: number } }} Minute
 */

export class UsageView {
  /** @param {import("./main.js").App} app */
  constructor(app) {
    this.app = app;
    this.reading = paced(() => RANGES[range].readMs, () => this.read());
    this.facts = el("dl", { class: "tiles" });
    this.said = el("p", { class: "said", role: "status" });
    const percent = (/** @type {number} */ value) => `${Math.round(value)} %`;
    const mean = () => null;
    const largestOf = (/** @type {readonly number[]} */ values) => Math.max(0, ...values);
    this.plots = {
      tokens: new Plot({ title: "Tokens", what: "Tokens that models read and wrote, by class.", format: count }),
      models: new Plot({ title: "Cost by model", what: "Dollars, as far as prices are known.", format: money }),
      users: new Plot({ title: "Cost by user", what: "Dollars, of the users who cost most.", format: money }),
      cache: new Plot({ title: "Cache share", what: "Share of the input that came from the providers’ caches.", format: percent, max: 100, sum: mean }),
      compactions: new Plot({ title: "Compactions", what: "Compactions that ended, by outcome.", format: count }),
      waiting: new Plot({ title: "Waiting for permits", what: "Requests that waited for a permit when a minute ended; a longer period shows the largest number.", format: count, sum: largestOf }),
      pauses: new Plot({ title: "Waiting for compactions", what: "Time for which users waited.", format: span }),
      failures: new Plot({ title: "Failures", what: "What failed, by kind.", format: count }),
    };
    this.ranges = Object.entries(RANGES).map(([name, { title }]) => el("button", { type: "button", class: "button small", "data-range": name, onclick: () => this.choose(name) }, title));
    this.node = el("section", { class: "view", "aria-label": "Usage" },
      el("div", { class: "view-head" }, el("h1", {}, "Usage"), el("div", { class: "choices", role: "group", "aria-label": "Time" }, this.ranges)),
      this.facts, this.said, el("div", { class: "plots" }, Object.values(this.plots).map(({ node }) => node)));
  }

  /** @param {string} name */
  choose(name) {
    range = name;
    this.reading.again();
    this.update();
  }

  update() {
    for (const button of this.ranges) button.setAttribute("aria-pressed", String(button.dataset.range === range));
    void this.reading.run();
  }

  async read() {
    const chosen = range;
    this.said.textContent = "";
    const { step } = RANGES[range];
    const bins = binsOf(RANGES[range], Date.now());
    const from = new Date(bins.from).toISOString();
    const isStale = () => range !== chosen;
    const usage = async () => {
      const { items } = await this.app.api.all("api/usage", { by: "total", step, from }, PAGES_MAX);
      if (isStale()) return;
      this.showTotal(items);
      this.plotTotal(bins, items);
      const models = await this.app.api.all("api/usage", { by: "model", step, from }, PAGES_MAX);
      if (isStale()) return;
      this.plots.models.draw(bins, grouped(bins, models.items, ({ model }) => model || "unknown", timeOf, costOf, SERIES_MAX));
      const users = await this.usersOf(bins, from, step, items);
      if (!isStale()) this.plots.users.draw(bins, users);
    };
    const minutes = async () => {
      const { items, isCut } = await this.app.api.all("api/minutes", { from }, MINUTES.pagesMax, MINUTES.limit, isStale);
      if (isStale()) return;
      this.plotMinutes(bins, items);
      if (isCut) this.say("There are more minutes than this page reads: the newest are missing in the plots below.");
    };
    await Promise.all([this.attempt(usage), this.attempt(minutes)]);
  }

  /**
   * Reads, and says so if that fails.
   * @param {() => Promise<void>} read
   */
  async attempt(read) {
    try {
      await read();
    } catch (error) {
      this.say(`${reasonOf(error)} The numbers below may be old.`);
    }
  }

  /** @param {string} text is added to what is said */
  say(text) {
    this.said.textContent = [this.said.textContent, text].filter(Boolean).join(" ");
  }

  /** @param {Sum[]} items */
  showTotal(items) {
    const of = (/** @type {(sum: Sum) => number} */ value) => items.reduce((sum, item) => sum + value(item), 0);
    const [input, cached] = [of((sum) => sum.inputTokens), of((sum) => sum.cachedTokens)];
    put(this.facts, tiles([
      ["Cost", money(of(costOf))], ["Requests", number(of((sum) => sum.requests))], ["Tokens in", number(input)],
      ["Tokens out", number(of((sum) => sum.outputTokens))], ["From caches", input > 0 ? `${Math.round((cached / input) * 100)} %` : "–"],
    ]));
  }

  /**
   * @param {import("./series.js").Bins} bins
   * @param {Sum[]} items
   */
  plotTotal(bins, items) {
    const of = (/** @type {(sum: Sum) => number} */ value) => summed(bins, items, timeOf, value);
    const [input, cached] = [of((sum) => sum.inputTokens), of((sum) => sum.cachedTokens)];
    this.plots.tokens.draw(bins, [
      { name: "from a cache", values: cached },
      { name: "written to a cache", values: of((sum) => sum.cacheWriteTokens) },
      { name: "other input", values: of((sum) => Math.max(0, sum.inputTokens - sum.cachedTokens - sum.cacheWriteTokens)) },
      { name: "reasoning", values: of((sum) => sum.reasoningTokens) },
      { name: "other output", values: of((sum) => Math.max(0, sum.outputTokens - sum.reasoningTokens)) },
    ]);
    this.plots.cache.draw(bins, [{ name: "from a cache", values: input.map((sent, at) => (sent > 0 ? (cached[at] / sent) * 100 : NaN)) }]);
  }

  /**
   * Returns the cost of the users who cost most, each by its own request, and of all others.
   * @param {import("./series.js").Bins} bins
   * @param {string} from
   * @param {string} step
   * @param {Sum[]} all
   */
  async usersOf(bins, from, step, all) {
    const { items, isCut } = await this.app.api.all("api/usage", { by: "user", from }, PAGES_MAX);
    if (isCut) this.say(`Only the first ${number(items.length)} users are compared: others may cost more.`);
    const paying = items.filter((/** @type {Sum} */ sum) => costOf(sum) > 0).sort((one, other) => costOf(other) - costOf(one));
    const top = paying.slice(0, SERIES_MAX).map(({ user }) => user);
    const series = await Promise.all(top.map(async (user) => {
      const sums = await this.app.api.all("api/usage", { by: "total", step, from, owner: user }, PAGES_MAX);
      return { name: user || "(nobody)", values: summed(bins, sums.items, timeOf, costOf) };
    }));
    const rest = summed(bins, all, timeOf, costOf).map((sum, at) => Math.max(0, series.reduce((left, { values }) => left - values[at], sum)));
    if (paying.length > top.length && total(rest) > 0) series.push({ name: `${paying.length - top.length} more`, values: rest });
    return series;
  }

  /**
   * @param {import("./series.js").Bins} bins
   * @param {Minute[]} items
   */
  plotMinutes(bins, items) {
    const time = (/** @type {Minute} */ { minute }) => minute;
    const named = (/** @type {"compactions" | "failures"} */ field) => {
      const names = new Set(items.flatMap((item) => Object.keys(item[field] ?? {})));
      return largest([...names].map((name) => ({ name: name.replaceAll("_", " "), values: summed(bins, items, time, (item) => item[field]?.[name] ?? 0) })), SERIES_MAX);
    };
    this.plots.compactions.draw(bins, named("compactions"));
    this.plots.failures.draw(bins, named("failures"));
    this.plots.pauses.draw(bins, [{ name: "waited", values: summed(bins, items, time, ({ pauses }) => pauses?.totalMs ?? 0) }]);
    // The servers of a cluster are added up within a minute; a longer period shows its worst minute.
    /** @type {Map<string, number>} */
    const waiting = new Map();
    for (const { minute, waiting: now = 0 } of items) waiting.set(minute, (waiting.get(minute) ?? 0) + now);
    const most = new Array(bins.count).fill(0);
    for (const [minute, requests] of waiting) {
      const at = binOf(bins, minute);
      if (at >= 0) most[at] = Math.max(most[at], requests);
    }
    this.plots.waiting.draw(bins, [{ name: "requests", values: most }]);
  }
}

/** @param {Sum} sum */
const timeOf = ({ from }) => from;
