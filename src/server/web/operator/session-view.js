/**
 * One session: what fills its context, its requests and their receipts, its compactions, the shape of its tree, and the
 * levers.
 *
 * @typedef {import("reseed-protocol").ContextInfo} ContextInfo
 * @typedef {import("../timeline.js").Request} Request
 * @typedef {import("../compaction.js").CompactionEntry} CompactionEntry
 */

import { breakText, dollars, verdictText } from "../cache.js";
import { chart } from "../chart.js";
import { ago, clock, el, number, span, styled } from "../dom.js";
import { breakerText, changeText, failedText, rungText } from "../report.js";
import { timelineOf } from "../timeline.js";
import { money, outcomeText, stateText, when } from "./format.js";
import { attempt, card, factsList, leverButtons, paced, put, said, table } from "./parts.js";
import { branchesOf, drawShape } from "./tree-shape.js";

/** Milliseconds between two readings of a session that changes, and of one that is not in the list. */
const READ_MS = 8_000;
const UNLISTED_MS = 30_000;

/** Entries that are looked at for requests, per page. */
const ENTRIES_LIMIT = 500;

/** @type {[keyof ContextInfo["breakdown"], string][]} */
const KINDS = [
  ["system", "System prompt"], ["tools", "Tool definitions"], ["summary", "Summary"], ["user", "User’s messages"], ["assistant", "Answers"],
  ["reasoning", "Reasoning"], ["toolResults", "Tool results"], ["images", "Pictures"], ["uncached", "Only in the next request"],
];

/** @type {Record<string, string>} */
const TRIGGERS = { manual: "asked for", threshold: "the window was nearly full", overflow: "the provider refused the request as too large", strategy: "chosen by the strategy" };

/** @param {string} id */
function leversOf(id) {
  const path = `api/sessions/${encodeURIComponent(id)}`;
  /** @type {(import("./levers.js").Lever & { label: string })[]} */
  const levers = [
    { label: "Compact…", title: "Compact this session?", says: "Older messages are summarised now, also if a circuit breaker is open. The summary is a request to the model, which costs money. Nothing is deleted, and it can be undone.", action: "Compact", method: "POST", path: `${path}/compact`, field: { label: "What should the summary focus on? (optional)", name: "instructions" } },
    { label: "Preview…", title: "Preview a compaction?", says: "The summary is made, which costs money, and shown. The session stays as it is.", action: "Preview", method: "POST", path: `${path}/preview` },
    { label: "Undo…", title: "Undo the last compaction?", says: "The model sees again what was summarised. Automatic compaction waits until the context has grown.", action: "Undo", method: "POST", path: `${path}/undo` },
    { label: "Cancel…", title: "Cancel what is running?", says: "The answer or the compaction that is running stops. What was written of the answer stays.", action: "Cancel it", method: "POST", path: `${path}/cancel` },
    { label: "Close…", title: "Close this session?", says: "Its clients get session_closed, and it leaves memory. A running answer is interrupted. Nothing is deleted: clients may open it again.", action: "Close it", method: "POST", path: `${path}/close` },
    { label: "Delete…", title: "Delete this session?", says: "The session and everything in it is deleted. This cannot be undone. What its requests cost stays in the account.", action: "Delete for good", method: "DELETE", path, isDanger: true, field: { label: `Type “${id.slice(0, 4)}”, the beginning of its id, to confirm`, name: "confirm", must: id.slice(0, 4) } },
  ];
  return levers;
}

export class SessionView {
  /**
   * @param {import("./main.js").App} app
   * @param {string} id
   */
  constructor(app, id) {
    this.app = app;
    this.id = id;
    this.path = `api/sessions/${encodeURIComponent(id)}`;
    /** The state of the session that was read last. */
    this.read = "";
    this.reading = paced(() => READ_MS, () => this.load());
    /** @type {any[]} requests and compactions, oldest first */
    this.entries = [];
    /** Where older ones begin; empty if there are none. */
    this.oldest = "";
    /** @type {string | null} the entry of the chosen request; null follows the newest one */
    this.chosen = null;
    this.title = el("h1", {}, id.slice(0, 12));
    this.facts = el("div", {});
    this.text = el("button", { type: "button", class: "button small", onclick: () => void this.showText() }, "Show the next request");
    this.textWhy = said("");
    this.context = card("Context window");
    this.next = el("div", {});
    this.context.node.append(el("div", { class: "levers" }, this.text, this.textWhy), this.next);
    this.requests = card("Requests");
    this.older = el("button", { type: "button", class: "button small", hidden: true, onclick: () => void this.showOlder() }, "Load older ones");
    this.olderWhy = el("div", { role: "status" });
    this.requests.node.append(el("div", { class: "levers" }, this.older, this.olderWhy));
    this.compactions = card("Compactions", "");
    this.tree = card("Tree");
    this.node = el("section", { class: "view", "aria-label": "Session" },
      el("p", { class: "back" }, el("a", { href: "#sessions" }, "← Sessions")),
      el("div", { class: "view-head" }, this.title, leverButtons(app, leversOf(id), (lever) => {
        if (lever.method === "DELETE") location.hash = "#sessions";
        else {
          this.read = "";
          this.reading.again();
        }
      })),
      this.facts,
      el("div", { class: "cards" }, this.context.node, this.requests.node, this.compactions.node, this.tree.node));
  }

  update() {
    const item = this.app.store.items.get(this.id);
    if (item) this.head(item);
    this.textWhy.textContent = this.app.lacks("content");
    this.text.disabled = this.app.lacks("content") !== "";
    if (this.state() !== this.read) void this.reading.run();
  }

  /** Returns a text that changes when the session is to be read again. */
  state() {
    const item = this.app.store.items.get(this.id);
    return item ? JSON.stringify([item.updatedAt, item.state, item.open, item.compaction]) : `unlisted ${Math.floor(Date.now() / UNLISTED_MS)}`;
  }

  /** @param {import("./session-store.js").Item} item */
  head(item) {
    this.title.textContent = item.name || this.id.slice(0, 12);
    const last = item.compaction?.last;
    put(this.facts, factsList([
      ["Id", this.id], ["User", item.owner ? el("a", { href: `#user=${encodeURIComponent(item.owner)}` }, item.owner) : "(nobody)"], ["State", stateText(item)],
      ["Model", item.model], ["Strategy", item.strategy], ["Node", item.node], ["Entries", number(item.entries)],
      ["Cost", item.costNanoUsd === undefined ? "unknown" : money(item.costNanoUsd)],
      ["Last compaction", last && `${outcomeText(last)}, ${ago(last.at, Date.now())}`],
      ["Created", when(item.createdAt)], ["Changed", when(item.updatedAt)],
    ]));
  }

  async load() {
    this.read = this.state();
    await Promise.all([
      attempt(this.context.body, async () => this.showContext(await this.app.api.get(`${this.path}/context`))),
      attempt(this.requests.body, async () => {
        const page = await this.app.api.get(`${this.path}/requests`, { limit: ENTRIES_LIMIT });
        // Older ones that were loaded stay, unless the page is of another branch.
        const at = this.entries.findIndex(({ entryId }) => entryId === page.items[0]?.entryId);
        if (at < 0) this.oldest = page.more ? page.oldest : "";
        this.entries = [...this.entries.slice(0, Math.max(0, at)), ...page.items];
        this.showRequests();
      }),
      attempt(this.tree.body, async () => this.showTree(await this.app.api.get(`${this.path}/tree`))),
    ]);
  }

  /** @param {ContextInfo} info */
  showContext(info) {
    const { breakdown, tokenCount, maxTokens, compactAtTokens, prepareAtTokens, breaker } = info;
    const whole = Math.max(maxTokens, tokenCount, 1);
    const share = (/** @type {number} */ tokens) => `${((tokens / whole) * 100).toFixed(1)}%`;
    const present = KINDS.filter(([kind]) => breakdown[kind] > 0);
    const stack = el("div", { class: "stack", "aria-hidden": "true" },
      present.map(([kind]) => styled(el("span"), { "--kind": `var(--kind-${kind})`, "--share": share(breakdown[kind]) })),
      compactAtTokens !== undefined && styled(el("i", { class: "limit" }), { "--at": share(compactAtTokens) }));
    const row = (/** @type {string} */ name, /** @type {number} */ tokens, /** @type {string} */ kind = "") => el("tr", {},
      el("th", { scope: "row" }, kind !== "" && styled(el("span", { class: "swatch", "aria-hidden": "true" }), { "--kind": `var(--kind-${kind})` }), name), el("td", {}, number(tokens)), el("td", {}, share(tokens).replace("%", " %")));
    put(this.context.body,
      el("p", { class: "sum" }, `${number(tokenCount)} of ${number(maxTokens)} tokens`),
      breaker && el("p", { class: "said wrong" }, breakerText(breaker, clock)), stack,
      table("Tokens by kind", ["Kind", "Tokens", "Share"], present.map(([kind, name]) => row(name, breakdown[kind], kind)), row("Next request", tokenCount)),
      factsList([
        ["Compacted automatically above", compactAtTokens === undefined ? "never" : `${number(compactAtTokens)} tokens`],
        ["Prepared in the background above", prepareAtTokens === undefined ? null : `${number(prepareAtTokens)} tokens`],
        ["Kept free for the answer", number(info.reservedTokens)], ["From the provider’s cache", info.cachedTokens > 0 ? number(info.cachedTokens) : null],
        ["Strategy", info.strategy], ["Messages", number(info.transcriptLength)],
      ]),
    );
  }

  /** Shows the next request as text, to operators who may read it. */
  async showText() {
    await attempt(this.next, async () => {
      const text = await this.app.api.get(`${this.path}/context`, { format: "markdown" }, "text/markdown");
      put(this.next, el("h3", {}, `The next request, as of ${clock(new Date().toISOString())}`), el("pre", { tabindex: 0, role: "region", "aria-label": "The next request" }, text));
    });
  }

  showRequests() {
    const { requests, compactions } = timelineOf(this.entries);
    this.older.hidden = this.oldest === "";
    put(this.compactions.body, compactions.length === 0 ? said("None on this branch.") : el("ol", { class: "steps" }, compactions.toReversed().map(({ entry }) => stepOf(entry))));
    if (requests.length === 0) return put(this.requests.body, said("No request of this branch has reported its tokens yet."));
    const max = requests.reduce((most, { sent }) => Math.max(most, sent), 1);
    const drawing = chart({
      label: `Tokens of ${number(requests.length)} requests, up to ${number(max)}, with ${compactions.length} compactions.`, max,
      areas: [
        { kind: "cached", values: requests.map(({ cached }) => cached) }, { kind: "shared", values: requests.map(({ shared }) => shared) },
        { kind: "fresh", values: requests.map(({ sent, cached, shared }) => sent - cached - shared) },
      ],
      marks: compactions.map(({ at }) => ({ kind: "compaction", at })),
    });
    const slider = el("input", { type: "range", min: 0, max: requests.length - 1, step: 1, "aria-label": "Request" });
    const receipt = el("div", {});
    const choose = (/** @type {number} */ at) => {
      slider.value = String(at);
      slider.setAttribute("aria-valuetext", `Request ${at + 1} of ${requests.length}`);
      drawing.select(at);
      receipt.replaceChildren(factsList(receiptOf(requests[at], at, requests.length)));
    };
    const pick = (/** @type {number} */ at) => {
      this.chosen = requests[at + 1] ? requests[at].answer.entryId : null;
      choose(at);
    };
    slider.addEventListener("input", () => pick(Number(slider.value)));
    drawing.node.addEventListener("pointerdown", ({ clientX }) => {
      const { left, width } = drawing.node.getBoundingClientRect();
      pick(drawing.at((clientX - left) / Math.max(1, width)));
    });
    const chosen = requests.findIndex(({ answer }) => answer.entryId === this.chosen);
    choose(chosen < 0 ? requests.length - 1 : chosen);
    const names = [["cached", "from the provider’s cache"], ["shared", "sent before, not from the cache"], ["fresh", "new"]];
    put(this.requests.body,
      el("div", { class: "canvas bare" }, drawing.node), slider,
      el("ul", { class: "legend" }, names.map(([kind, name]) => el("li", {}, el("span", { class: `swatch ${kind}`, "aria-hidden": "true" }), name))),
      receipt);
  }

  async showOlder() {
    const before = this.oldest;
    this.older.disabled = true;
    await attempt(this.olderWhy, async () => {
      const page = await this.app.api.get(`${this.path}/requests`, { limit: ENTRIES_LIMIT, before });
      put(this.olderWhy);
      // The session may have moved to another branch meanwhile.
      if (this.oldest !== before) return;
      this.entries = [...page.items, ...this.entries];
      this.oldest = page.more ? page.oldest : "";
      this.showRequests();
    });
    this.older.disabled = false;
  }

  /** @param {import("reseed-protocol").Tree} tree */
  showTree({ nodes, leafId, more }) {
    if (nodes.length === 0) return put(this.tree.body, said("It has no entries yet."));
    const shape = branchesOf(nodes, leafId);
    /** @type {Record<string, number>} */
    const types = {};
    for (const { type } of nodes) types[type] = (types[type] ?? 0) + 1;
    const text = `${more ? "The oldest " : ""}${number(nodes.length)} entries, ${number(shape.branches.length)} ${shape.branches.length === 1 ? "branch" : "branches"}, ${number(shape.depth)} deep`;
    put(this.tree.body,
      el("p", { class: "sum" }, text), drawShape(shape, `${text}.${shape.hasOwn ? " The session continues on the first line." : ""}`),
      factsList(Object.entries(types).sort(([, one], [, other]) => other - one).map(([type, times]) => [type.replace(/[:_]/g, " "), number(times)])));
  }
}

/**
 * Returns what is known about a request.
 * @param {Request} request
 * @param {number} at
 * @param {number} of
 * @returns {[string, string | null][]}
 */
function receiptOf({ answer, sent, cached, shared }, at, of) {
  const { usage, receipt, model, timestamp } = answer;
  const hooks = receipt?.hooks?.map(({ hook, point, outcome, durationMs }) => `${hook} at ${point}: ${outcome}, ${span(durationMs)}`) ?? [];
  return [
    ["Request", `${number(at + 1)} of ${number(of)}, ${when(timestamp)}`], ["Model", model ?? null],
    ["Sent", `${usage?.source === "estimated" ? "about " : ""}${number(sent)} tokens`], ["From the provider’s cache", `${number(cached)} (${Math.round((cached / Math.max(1, sent)) * 100)} %)`],
    ["Sent before, not from the cache", shared > 0 ? number(shared) : null], ["Answer", usage ? `${number(usage.outputTokens)} tokens` : null],
    ["Cost", usage?.costNanoUsd === undefined ? null : dollars(usage.costNanoUsd)],
    ["Differs from the one before", receipt?.broke ? breakText(receipt.broke) : receipt ? "It begins with the whole request before it." : null],
    ["Provider’s verdict", receipt?.provider ? verdictText(receipt.provider) : null], ["Adapted", receipt?.adapted?.join(", ") ?? null], ["Hooks", hooks.join("; ") || null],
  ];
}

/** @param {CompactionEntry} entry */
function stepOf({ timestamp, tokensBefore, tokensAfter, trigger, durationMs, rung, failedRungs = [], hook, summaryUsage, leftOut }) {
  const after = tokensAfter === undefined ? "" : ` → ${number(tokensAfter)} tokens${changeText(tokensBefore, tokensAfter)}`;
  const steps = [...failedRungs.map((failed) => el("li", { class: "bad" }, `Failed: ${failedText(failed)}`)), rung && el("li", { class: "good" }, `Used: ${rungText(rung)}${hook ? ` (${hook})` : ""}`)];
  const facts = [trigger && `Why: ${TRIGGERS[trigger] ?? trigger}`, durationMs !== undefined && `took ${span(durationMs)}`, summaryUsage?.costNanoUsd !== undefined && `cost ${dollars(summaryUsage.costNanoUsd)}`, leftOut && `${number(leftOut)} characters were left out`];
  return el("li", {}, el("p", {}, el("b", {}, `${number(tokensBefore)}${after}`), ` · ${when(timestamp)}`), el("p", { class: "hint" }, facts.filter(Boolean).join(" · ")), el("ul", {}, steps));
}
