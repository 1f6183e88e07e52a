/** How full the window is, and behind it what fills it: tokens by kind, which add up to the next request. */

import { byId, el, number } from "./dom.js";

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

/** Percent from which the gauge changes its colour. */
const HIGH_PERCENT = 75;
const FULL_PERCENT = 90;

/** @type {Record<string, string>} */
const SOURCES = {
  reported: "reported by the provider",
  estimated: "estimated",
  mixed: "reported, the newest part estimated",
};

export class GaugeView {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    this.root = byId("gauge", HTMLElement);
    this.meter = byId("gauge-meter", HTMLElement);
    this.button = byId("gauge-button", HTMLButtonElement);
    this.panel = byId("breakdown", HTMLElement);
    /** @type {ContextInfo | null} */
    this.shown = null;
    /** @type {(() => void) | null} shows the next request word for word */
    this.onText = null;
    this.panel.addEventListener("toggle", () => this.open && void app.refreshContextInfo());
  }

  get open() {
    return this.panel.matches(":popover-open");
  }

  show() {
    if (!this.app.state || this.open) return;
    this.panel.showPopover();
    this.panel.querySelector("button")?.focus();
  }

  render() {
    const { state } = this.app;
    const info = state?.contextInfo ?? null;
    this.root.hidden = info === null;
    if (info === this.shown) return;
    this.shown = info;
    if (!state || !info) {
      if (this.open) this.panel.hidePopover();
      return;
    }
    const percent = Math.round(info.usagePercent);
    const tokens = `${number(info.tokenCount)} of ${number(info.maxTokens)} tokens`;
    this.root.dataset.level = percent >= FULL_PERCENT ? "full" : percent >= HIGH_PERCENT ? "high" : "low";
    this.meter.setAttribute("aria-valuenow", String(percent));
    this.meter.setAttribute("aria-valuetext", `${percent} percent, ${tokens}`);
    this.meter.style.setProperty("--used", `${Math.min(100, info.usagePercent)}%`);
    this.meter.title = tokens;
    this.button.replaceChildren(
      el("b", {}, `${percent} %`),
      el("span", { class: "tokens" }, ` · ${number(info.tokenCount)} / ${number(info.maxTokens)}`));
    this.button.setAttribute("aria-label", `Context: ${percent} percent, ${tokens}. Show what fills it`);
    const focused = this.panel.contains(document.activeElement) ? document.activeElement?.textContent : null;
    this.panel.replaceChildren(...this.contents(state, info));
    if (focused) [...this.panel.querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
  }

  /**
   * @param {import("./fold.js").State} state
   * @param {ContextInfo} info
   */
  contents(state, info) {
    const present = KINDS.filter(([kind]) => info.breakdown[kind] > 0);
    const whole = Math.max(info.maxTokens, info.tokenCount, 1);
    const share = (/** @type {number} */ count) => (count / whole) * 100;
    const stack = el("div", { class: "stack", "aria-hidden": "true" },
      ...present.map(([kind]) => styled(el("span"), { "--kind": `var(--kind-${kind})`, "--share": `${share(info.breakdown[kind])}%` })),
      info.compactAtTokens !== undefined
        && styled(el("span", { class: "limit" }), { "--at": `${Math.min(100, share(info.compactAtTokens))}%` }));
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
      ["Compacts by itself at", info.compactAtTokens === undefined ? "never" : number(info.compactAtTokens)],
      ["Strategy", info.strategy],
      ["Model", state.model],
      ["Counted", (SOURCES[info.source] ?? info.source) + (info.errorBoundTokens > 0 ? `, ± ${number(info.errorBoundTokens)}` : "")],
      ["From the provider’s cache", info.cachedTokens > 0 ? number(info.cachedTokens) : null],
      ["Compactions so far", number(info.compactions)],
      ["Automatic compaction rests", info.breaker ?? null],
    ];
    const list = el("dl", { class: "facts-list" },
      ...facts.flatMap(([name, value]) => (value === null ? [] : [el("dt", {}, name), el("dd", {}, value)])));
    const compact = this.app.readOnly || state.compaction
      ? null
      : el("button", { type: "button", class: "button small", onclick: () => (this.panel.hidePopover(), void this.app.compact()) }, "Compact now");
    const text = el("button", { type: "button", class: "button small", onclick: () => this.onText?.() }, "Show the next request");
    return [
      el("h2", {}, "Context window"),
      el("p", { class: "sum" }, `${number(info.tokenCount)} of ${number(info.maxTokens)} tokens, ${Math.round(info.usagePercent)} %`),
      stack, table, list,
      el("div", { class: "actions" }, text, compact),
    ];
  }
}

/**
 * @param {HTMLElement} element
 * @param {Record<string, string>} properties
 */
function styled(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
  return element;
}
