/** Who spends what, budgets, and one user: sessions, usage, sockets, and the levers. */

import { el, number, styled } from "../dom.js";
import { costOf, count, money, when } from "./format.js";
import { attempt, card, leverButtons, meter, paced, put, said, table, tiles } from "./parts.js";

/** Pages of sums that are read: 10,000 users. */
const PAGES_MAX = 10;
/** Users in the table; the field above finds the others. */
const ROWS_MAX = 100;
/** Days that the table covers. */
const DAYS = 30;
const DAY_MS = 86_400_000;
/** Milliseconds between two readings. */
const READ_MS = 30_000;

export class UsersView {
  /**
   * @param {import("./main.js").App} app
   * @param {string | null} user the one to show; null: all
   */
  constructor(app, user) {
    this.app = app;
    this.user = user;
    this.reading = paced(() => READ_MS, () => this.read());
    /** @type {import("./usage-view.js").Sum[]} */
    this.sums = [];
    this.said = el("p", { class: "said", role: "status" });
    this.budgets = card("Budgets");
    this.cost = card(user === null ? `Cost by user, ${DAYS} days` : `Cost by model, ${DAYS} days`);
    this.search = el("input", { class: "field", type: "search", placeholder: "Find a user…", "aria-label": "Find a user", autocomplete: "off" });
    this.search.addEventListener("input", () => this.list());
    this.facts = el("div", {});
    const path = `api/users/${encodeURIComponent(user ?? "")}`;
    /** @type {(import("./levers.js").Lever & { label: string })[]} */
    const levers = user === null ? [] : [
      { label: "Close…", title: `Close all sessions of ${user}?`, says: "All connections of this user are closed, and their sessions leave memory. Running answers are interrupted. Nothing is deleted: clients may connect again.", action: "Close them", method: "POST", path: `${path}/close` },
      { label: "Delete all…", title: `Delete everything of ${user}?`, says: "All sessions of this user, their usage and their tickets are deleted, and their connections are closed. Then the files are searched for what remains, and the counts are shown. This cannot be undone.", action: "Delete for good", method: "DELETE", path, isDanger: true, field: { label: `Type the user’s name to confirm: ${user}`, name: "confirm", must: user } },
    ];
    if (user === null) this.cost.body.before(this.search);
    this.node = el("section", { class: "view", "aria-label": user === null ? "Users" : "User" },
      user !== null && el("p", { class: "back" }, el("a", { href: "#users" }, "← Users")),
      el("div", { class: "view-head" }, el("h1", {}, user ?? "Users"), user !== null && leverButtons(app, levers, () => this.reading.again())),
      this.said, user !== null && this.facts, user !== null && el("p", { class: "back" }, el("a", { href: `#sessions=${encodeURIComponent(user)}` }, "Show the sessions of this user")), this.budgets.node, this.cost.node);
  }

  update() {
    void this.reading.run();
  }

  async read() {
    const { api } = this.app;
    const owner = this.user ?? undefined;
    const from = new Date(Date.now() - DAYS * DAY_MS).toISOString().slice(0, 10);
    this.said.textContent = "";
    await Promise.all([
      attempt(this.cost.body, async () => {
        const { items, isCut } = await api.all("api/usage", { by: owner === undefined ? "user" : "model", from, owner }, PAGES_MAX);
        this.sums = items;
        if (isCut) this.said.textContent = `Only the first ${number(items.length)} users are counted.`;
        this.list();
      }),
      attempt(this.budgets.body, async () => this.showBudgets(await api.get("api/budgets", { owner }))),
      owner !== undefined && attempt(this.facts, async () => this.showUser(await api.get(`api/users/${encodeURIComponent(owner)}`))),
    ]);
  }

  /** @param {User} about */
  showUser({ sessions, usage, sockets, class: named, unanswered = [] }) {
    if (unanswered.length > 0) this.said.textContent = `These nodes did not answer, and are not counted: ${unanswered.join(", ")}.`;
    put(this.facts, el("dl", { class: "tiles" }, tiles([["Sessions", number(sessions.count)], ["In memory", number(sessions.open ?? 0)], ["Connections", number(sockets)], ["Requests", number(usage.requests ?? 0)], ["Cost", money(costOf(usage))], ["Class", named ?? "–"]])));
  }

  /** Lists users, or the models of one, largest cost first. */
  list() {
    const key = /** @type {"user" | "model"} */ (this.user === null ? "user" : "model");
    const words = this.search.value.trim().toLowerCase();
    const found = this.sums.filter((sum) => (sum[key] ?? "").toLowerCase().includes(words)).sort((one, other) => costOf(other) - costOf(one) || other.inputTokens - one.inputTokens);
    const most = Math.max(1, ...found.slice(0, 1).map(costOf));
    const head = [key === "user" ? "User" : "Model", "Cost", "Requests", "Tokens in", "From caches", "Tokens out"];
    const rows = found.slice(0, ROWS_MAX).map((sum) => {
      const name = sum[key] || (key === "user" ? "(nobody)" : "unknown");
      return el("tr", {},
        el("th", { scope: "row" }, key === "user" && sum.user ? el("a", { href: `#user=${encodeURIComponent(sum.user)}` }, name) : name),
        el("td", {}, styled(el("span", { class: "bar-of", "aria-hidden": "true" }), { "--used": String(costOf(sum) / most) }), el("span", { class: "amount" }, money(costOf(sum)))),
        el("td", {}, number(sum.requests)), el("td", { title: number(sum.inputTokens) }, count(sum.inputTokens)),
        el("td", {}, sum.inputTokens > 0 ? `${Math.round((sum.cachedTokens / sum.inputTokens) * 100)} %` : "–"), el("td", { title: number(sum.outputTokens) }, count(sum.outputTokens)));
    });
    const more = found.length > rows.length && said(`${number(found.length - rows.length)} more cost less.`);
    put(this.cost.body, rows.length === 0 ? said("No requests in this time.") : table("Cost", head, rows), more);
  }

  /** @param {{ items: Budget[], class?: string }} about */
  showBudgets({ items, class: named }) {
    const text = items.length > 0 ? "" : this.user === null ? "The deployment has no budget (BUDGETS_FILE)." : "This user has no budget.";
    put(this.budgets.body, text && said(text), el("ul", { class: "budgets" }, items.map((budget) => budgetRow(budget, named))));
  }
}

/**
 * @typedef {Record<"spentNanoUsd" | "spentTokens" | "reservedNanoUsd" | "usedPercent", number>} Spent
 * @typedef {{ budget: string, per: string, limitNanoUsd?: number, limitTokens?: number, refillsAt?: string }} Limit
 * @typedef {Limit & Spent} Budget
 *
 * @typedef {Partial<Record<"requests" | "costNanoUsd" | "estimatedCostNanoUsd", number>>} Usage
 * @typedef {{ sockets: number, class?: string, unanswered?: string[] }} Connected
 * @typedef {Connected & { sessions: Record<string, number>, usage: Usage }} User
 */

/**
 * @param {Budget} budget
 * @param {string | undefined} named the user's class
 */
function budgetRow({ budget, per, spentNanoUsd, spentTokens, reservedNanoUsd, limitNanoUsd, limitTokens, usedPercent, refillsAt }, named) {
  const parts = [limitNanoUsd !== undefined && `${money(spentNanoUsd)} of ${money(limitNanoUsd)}`, limitTokens !== undefined && `${count(spentTokens)} of ${count(limitTokens)} tokens`].filter(Boolean);
  const notes = [reservedNanoUsd > 0 && `${money(reservedNanoUsd)} reserved by running requests`, refillsAt && `filled again ${when(refillsAt)}`].filter(Boolean);
  return el("li", {},
    el("p", {}, el("b", {}, `${budget === "user" ? `User${named ? ` (${named})` : ""}` : budget[0].toUpperCase() + budget.slice(1)}, per ${per}`), ` · ${parts.join(" · ")}`),
    meter(usedPercent, `Budget of the ${budget} per ${per}`),
    el("p", { class: "hint" }, [`${Math.round(usedPercent)} % used`, ...notes].join(" · ")));
}
