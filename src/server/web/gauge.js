/** The context gauge and the panel behind it: tokens by kind, which add up to the next request. */

import { breakText, dollars, lastAsked, paidText, sharedText, sharesOf, verdictText } from "./cache.js";
import { byId, clock, el, number, percentOf, styled } from "./dom.js";
import { PinsView } from "./pins-view.js";
import { breakerText } from "./report.js";
import { StrategyView } from "./strategy-view.js";

/**
 * @typedef {import("reseed-protocol").ContextInfo} ContextInfo
 * @typedef {keyof ContextInfo["breakdown"]} Kind
 */

/** @type {[Kind, string][]} */
const KINDS = [
  ["system", "System prompt"],
  ["tools", "Tool definitions"],
  ["summary", "Summary"],
  ["user", "Your messages"],
  ["assistant", "Answers"],
  ["reasoning", "Reasoning"],
  ["toolResults", "Tool results"],
  ["images", "Pictures"],
  ["uncached", "Of this request only"],
];

/** Share of the limit at which the gauge changes colour. */
const HIGH_SHARE = 0.75;

/** @type {Record<string, string>} */
const SOURCES = {
  reported: "reported by the provider",
  estimated: "estimated",
  mixed: "reported, the newest part estimated",
};

export class GaugeView {
  /**
   * @param {import("./app.js").App} app
   * @param {object} actions
   * @param {() => void} actions.onRequest shows what the next request sends
   * @param {() => void} actions.onCompact opens the compaction dialog
   * @param {() => void} actions.onTools shows the tools
   * @param {() => void} actions.onTimeline shows the context over the chat
   * @param {(entryId: string) => void} actions.onReveal brings a message into view
   */
  constructor(app, actions) {
    this.app = app;
    this.actions = actions;
    this.root = byId("gauge", HTMLElement);
    this.meter = byId("gauge-meter", HTMLElement);
    this.button = byId("gauge-button", HTMLButtonElement);
    this.panel = byId("breakdown", HTMLElement);
    /** @type {unknown[]} inputs of the last render of the numbers */
    this.shown = [];
    this.numbers = el("div", {});
    this.foot = el("div", { class: "actions" });
    this.strategy = new StrategyView(app);
    this.pins = new PinsView(app, (entryId) => (this.panel.hidePopover(), actions.onReveal(entryId)));
    this.panel.replaceChildren(this.numbers, this.pins.node, this.strategy.node, this.foot);
    this.panel.addEventListener("toggle", () => this.open && void app.context.refresh());
  }

  get open() {
    return this.panel.matches(":popover-open");
  }

  show() {
    if (!this.app.snapshot || this.open) return;
    this.panel.showPopover();
    this.panel.querySelector("button")?.focus();
  }

  render() {
    const { app } = this;
    const { snapshot } = app;
    const info = snapshot?.contextInfo ?? null;
    this.root.hidden = info === null;
    if (!snapshot || !info) {
      if (this.open) this.panel.hidePopover();
      return;
    }
    this.strategy.render(snapshot);
    this.pins.render(snapshot);
    const asked = lastAsked(snapshot.path.entries);
    const paid = paidText(app.client.sessions.view.items.find((item) => item.sessionId === snapshot.sessionId) ?? {});
    const of = [info, snapshot.model, app.context.mayCompact, asked?.entryId, paid];
    if (of.every((part, index) => part === this.shown[index])) return;
    this.shown = of;
    const percent = Math.round(percentOf(info));
    const tokens = `${number(info.tokenCount)} of ${number(info.maxTokens)} tokens`;
    this.root.dataset.level = levelOf(info);
    this.meter.setAttribute("aria-valuenow", String(percent));
    this.meter.setAttribute("aria-valuetext", `${percent} percent, ${tokens}`);
    const limits = limitsOf(info);
    styled(this.meter, { "--used": `${percentOf(info)}%` });
    this.meter.replaceChildren(el("span", {}), ...limits.map(mark));
    this.meter.title = [tokens, ...limits.map(({ name, count }) => `${name} ${number(count)}`)].join("; ");
    this.button.replaceChildren(
      el("b", {}, `${percent} %`),
      el("span", { class: "tokens" }, ` · ${number(info.tokenCount)} / ${number(info.maxTokens)}`));
    // The label starts with the visible text, so that voice control users can say it.
    this.button.setAttribute("aria-label", `${this.button.textContent}: show what fills the context window`);
    const focused = this.panel.contains(document.activeElement) ? document.activeElement?.textContent : null;
    this.numbers.replaceChildren(...this.contents(snapshot, info, asked, paid));
    this.foot.replaceChildren(...this.buttons());
    if (focused && !this.panel.contains(document.activeElement)) [...this.panel.querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
  }

  /**
   * @param {import("./client.js").SessionSnapshot} snapshot
   * @param {ContextInfo} info
   * @param {ReturnType<typeof lastAsked>} asked the newest answer
   * @param {string | null} paid what the session has cost
   */
  contents(snapshot, info, asked, paid) {
    const present = KINDS.filter(([kind]) => info.breakdown[kind] > 0);
    const whole = Math.max(info.maxTokens, info.tokenCount, 1);
    const share = (/** @type {number} */ count) => (count / whole) * 100;
    const stack = el("div", { class: "stack", "aria-hidden": "true" },
      ...present.map(([kind]) => styled(el("span"), { "--kind": `var(--kind-${kind})`, "--share": `${share(info.breakdown[kind])}%` })),
      ...limitsOf(info).map(mark));
    const row = (/** @type {string} */ name, /** @type {number} */ count, /** @type {Kind | null} */ kind) =>
      el("tr", { "data-kind": kind },
        el("th", { scope: "row" }, kind && styled(el("span", { class: "swatch" }), { "--kind": `var(--kind-${kind})` }), name),
        el("td", {}, number(count)),
        el("td", {}, `${share(count).toFixed(1)} %`));
    const table = el("table", { class: "kinds" },
      el("caption", { class: "visually-hidden" }, "Tokens by kind"),
      el("tbody", {}, ...present.map(([kind, name]) => row(name, info.breakdown[kind], kind))),
      el("tfoot", {}, row("Next request", info.tokenCount, null)));
    /** @type {[string, string | null][]} */
    const facts = [
      ["Free", number(Math.max(0, info.maxTokens - info.tokenCount))],
      ["Kept free for the answer", number(info.reservedTokens)],
      ["Prepared in the background above", info.prepareAtTokens === undefined ? null : number(info.prepareAtTokens)],
      ["Compacts by itself above", info.compactAtTokens === undefined ? "never" : number(info.compactAtTokens)],
      ["Strategy", info.strategy],
      ["Model", snapshot.model],
      ["Counted", (SOURCES[info.source] ?? info.source) + (info.errorBoundTokens > 0 ? `, ± ${number(info.errorBoundTokens)}` : "")],
      ["From the provider’s cache", info.cachedTokens > 0 ? number(info.cachedTokens) : null],
      ["Compactions so far", number(info.compactions)],
      ["Last request", asked?.usage.costNanoUsd === undefined ? null : dollars(asked.usage.costNanoUsd)],
      ["This chat so far", paid],
    ];
    const list = el("dl", { class: "facts-list" },
      ...facts.flatMap(([name, value]) => (value === null ? [] : [el("dt", {}, name), el("dd", {}, value)])));
    return [
      el("h2", {}, "Context window"),
      el("p", { class: "sum" }, `${number(info.tokenCount)} of ${number(info.maxTokens)} tokens, ${Math.round(percentOf(info))} %`),
      ...(info.breaker ? [el("p", { class: "breaker" }, breakerText(info.breaker, clock))] : []),
      stack, table, list, ...(asked ? sentBefore(asked) : []),
    ];
  }

  buttons() {
    const { app, actions } = this;
    const button = (/** @type {string} */ label, /** @type {() => void} */ onclick) => el("button", { type: "button", class: "button small", onclick }, label);
    const closing = (/** @type {() => void} */ act) => () => (this.panel.hidePopover(), act());
    const compact = app.context.mayCompact
      ? [button("Compact now", closing(() => void app.context.compact())), button("Compact…", closing(actions.onCompact))]
      : [];
    return [button("Show the next request", closing(actions.onRequest)), button("Over the chat…", closing(actions.onTimeline)), button("Tools…", closing(actions.onTools)), ...compact];
  }
}

/**
 * Renders how much of the last request had been sent before.
 * @param {NonNullable<ReturnType<typeof lastAsked>>} asked
 */
function sentBefore({ usage, receipt }) {
  const parts = sharesOf(usage).map(({ kind, share }) => styled(el("span"), { "--kind": `var(--sent-${kind})`, "--share": `${share}%` }));
  return [
    el("h3", {}, "Last request"),
    el("div", { class: "stack", "aria-hidden": "true" }, ...parts),
    el("p", { class: "sent-before" }, sharedText(usage), receipt?.broke ? ` ${breakText(receipt.broke)}` : null, receipt?.provider ? ` ${verdictText(receipt.provider)}` : null),
  ];
}

/**
 * Returns how full the window is as a level. It is full above the token count at which the server compacts. Where the
 * server never compacts, it is full from the count at which the server warns.
 * @param {ContextInfo} info
 */
export function levelOf({ tokenCount, compactAtTokens: compact, maxTokens, warning }) {
  const isFull = compact === undefined ? warning !== undefined : tokenCount > compact;
  return isFull ? "full" : tokenCount >= HIGH_SHARE * Math.min(compact ?? maxTokens, maxTokens) ? "high" : "low";
}

/**
 * Returns the token counts at which something happens automatically, with their positions in the window.
 * @param {ContextInfo} info
 */
function limitsOf({ prepareAtTokens: prepare, compactAtTokens: compact, maxTokens, tokenCount }) {
  const whole = Math.max(maxTokens, tokenCount, 1);
  const limits = [];
  if (prepare !== undefined && prepare < (compact ?? 0)) limits.push({ kind: "soft", name: "prepared above", count: prepare });
  if (compact !== undefined) limits.push({ kind: "hard", name: "compacted above", count: compact });
  return limits.map((limit) => ({ ...limit, at: Math.min(100, (limit.count / whole) * 100) }));
}

/** @param {ReturnType<typeof limitsOf>[number]} limit */
function mark({ kind, at }) {
  return styled(el("i", { class: `limit ${kind}` }), { "--at": `${at}%` });
}
