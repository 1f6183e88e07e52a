/**
 * The context over the chat: a plot of its requests, with compactions as steps. Any request can be chosen, and what the
 * model saw then can be looked at.
 *
 * The protocol has no command for a past request. A copy of the chat that ends before the answer shows it: the entries
 * before it are the same, and the copy is in the server's memory only. Instructions, tools and options are those of
 * now, so the count is compared with the one that was taken before the request was sent.
 *
 * @typedef {import("./timeline.js").Request} Request
 */

import { breakText, dollars, paidText } from "./cache.js";
import { chart } from "./chart.js";
import { el, iconButton, number } from "./dom.js";
import { explainError } from "./errors.js";
import { entriesOf } from "./export.js";
import { timelineOf } from "./timeline.js";

/**
 * @param {import("./app.js").App} app
 * @param {object} actions
 * @param {(entryId: string) => void} actions.onReveal brings a message into view
 * @param {(seen: import("./request-view.js").Past) => void} actions.onSeen shows what the model saw
 */
export async function showTimeline(app, { onReveal, onSeen }) {
  const { session, snapshot } = app;
  if (!session || !snapshot) return;
  const said = el("p", { class: "said", role: "status" }, "Loading…");
  const body = el("div", {});
  const dialog = el("dialog", { class: "timeline", "aria-labelledby": "timeline-title" },
    el("div", { class: "timeline-head" }, el("h2", { id: "timeline-title" }, "Context over the chat"), iconButton("close", "Close the plot", () => dialog.close())),
    said, body);
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
  const fail = (/** @type {unknown} */ error) => {
    said.textContent = explainError(error).text;
    said.classList.add("wrong");
  };
  try {
    const entries = await entriesOf(app, snapshot.sessionId, "branch", (count) => (said.textContent = `${number(count)} entries…`));
    const timeline = timelineOf(entries);
    said.textContent = "";
    if (timeline.requests.length === 0) {
      said.textContent = "No request of this chat has reported its tokens yet.";
      return;
    }
    body.replaceChildren(...plot(timeline));
  } catch (error) {
    fail(error);
  }

  /**
   * Builds the plot, its slider and the facts of the chosen request.
   * @param {import("./timeline.js").Timeline} timeline
   */
  function plot({ requests, compactions, costNanoUsd, unpriced }) {
    const { maxTokens, compactAtTokens } = snapshot?.contextInfo ?? { maxTokens: 0, compactAtTokens: undefined };
    const most = requests.reduce((largest, { sent }) => Math.max(largest, sent), 0);
    const max = Math.max(maxTokens, most);
    const upTo = `up to ${number(most)} of ${number(maxTokens)}`;
    const drawing = chart({
      label: `Tokens of ${number(requests.length)} requests, ${upTo}, with ${compactions.length} compactions.`,
      max,
      areas: [
        { kind: "cached", values: requests.map(({ cached }) => cached) },
        { kind: "shared", values: requests.map(({ shared }) => shared) },
        { kind: "fresh", values: requests.map(({ sent, cached, shared }) => sent - cached - shared) },
      ],
      limits: compactAtTokens === undefined ? [] : [{ kind: "compact", value: compactAtTokens }],
      marks: compactions.map(({ at }) => ({ kind: "compaction", at })),
    });
    const slider = el("input", { type: "range", min: 0, max: requests.length - 1, step: 1, "aria-label": "Request", autofocus: true });
    const facts = el("dl", { class: "facts-list" });
    const actions = el("div", { class: "actions" });
    const choose = (/** @type {number} */ at) => {
      slider.value = String(at);
      const request = requests[at];
      slider.setAttribute("aria-valuetext", `Request ${at + 1} of ${requests.length}, ${number(request.sent)} tokens`);
      drawing.select(at);
      const step = compactions.findLast((one) => one.at === at);
      facts.replaceChildren(...factsOf(request, at, requests.length, step?.entry).flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
      actions.replaceChildren(...buttons(request));
    };
    slider.addEventListener("input", () => choose(Number(slider.value)));
    const pointed = (/** @type {PointerEvent} */ event) => {
      if (event.type === "pointermove" && event.buttons === 0) return;
      const { left, width } = drawing.node.getBoundingClientRect();
      choose(drawing.at((event.clientX - left) / Math.max(1, width)));
    };
    drawing.node.addEventListener("pointerdown", pointed);
    drawing.node.addEventListener("pointermove", pointed);
    choose(requests.length - 1);
    const paid = paidText(costNanoUsd > 0 ? { costNanoUsd, unpricedRequests: unpriced } : {});
    const legend = [["cached", "from the provider’s cache"], ["shared", "sent before, not from the cache"], ["fresh", "new"]].map(([kind, text]) => el("span", { class: `key ${kind}` }, text));
    return [
      drawing.node, slider,
      el("p", { class: "legend" }, legend, compactions.length > 0 && el("span", { class: "key compaction" }, "compaction"), paid !== null && el("span", {}, `Cost of this branch: ${paid}`)),
      facts, actions,
    ];
  }

  /** @param {Request} request */
  function buttons(request) {
    const { answer } = request;
    const show = el("button", { type: "button", class: "button small", onclick: () => {
      dialog.close();
      onReveal(answer.entryId);
    } }, "Show the answer");
    const look = el("button", { type: "button", class: "button small primary", onclick: async () => {
      look.disabled = true;
      said.textContent = "Rebuilding the request…";
      try {
        const seen = await seenBy(request);
        const wasOpen = dialog.open;
        dialog.close();
        if (wasOpen && seen.sessionId === app.target) onSeen(seen);
      } catch (error) {
        fail(error);
        look.disabled = false;
      }
    } }, "What the model saw");
    return [show, answer.parentId !== null && app.can("fork") && !app.readOnly && look].filter((node) => node instanceof HTMLElement);
  }

  /**
   * Returns what a request sent, from a copy of the chat that ends before its answer.
   * @param {Request} request
   */
  async function seenBy({ answer }) {
    const entryId = /** @type {string} */ (answer.parentId);
    const { sessionId } = await app.client.request("fork_session", { entryId, position: "at", store: false }, { session: session?.id });
    const copy = app.client.session(sessionId);
    try {
      await copy.opened();
      const envelope = await copy.getContext({ format: "envelope" });
      const markdown = await copy.getContext({ format: "markdown" });
      const sent = answer.receipt?.tokens;
      const same = sent === undefined ? "" : sent === envelope.tokens ? " It has as many tokens as the request that was sent." : ` The request that was sent had ${number(sent)} tokens.`;
      const note = `Rebuilt from what was said before this answer, with the instructions, tools and model of now.${same} What hooks added for this request only is left out.`;
      return { sessionId: session?.id ?? "", title: "What the model saw", note, envelope, markdown };
    } finally {
      await copy.delete().catch(() => undefined);
    }
  }
}

/**
 * @param {Request} request
 * @param {number} at
 * @param {number} count
 * @param {import("./compaction.js").CompactionEntry | undefined} step the compaction just before it
 * @returns {[string, string][]}
 */
function factsOf({ answer, sent, cached, shared }, at, count, step) {
  const { usage, receipt, model, timestamp } = answer;
  /** @type {[string, string | null][]} */
  const facts = [
    ["Request", `${number(at + 1)} of ${number(count)}, ${new Date(timestamp).toLocaleString()}`],
    ["Model", model ?? null],
    ["Sent", `${usage?.source === "estimated" ? "about " : ""}${number(sent)} tokens`],
    ["From the provider’s cache", `${number(cached)} tokens, ${Math.round((cached / Math.max(1, sent)) * 100)} %`],
    ["Sent before, not from the cache", shared > 0 ? `${number(shared)} tokens` : null],
    ["Answer", usage ? `${number(usage.outputTokens)} tokens` : null],
    ["Cost", usage?.costNanoUsd === undefined ? null : dollars(usage.costNanoUsd)],
    ["Compaction before it", step ? `${number(step.tokensBefore)} → ${step.tokensAfter === undefined ? "?" : number(step.tokensAfter)} tokens` : null],
    ["Where it differs from the one before", receipt?.broke ? breakText(receipt.broke) : null],
  ];
  return facts.filter(/** @returns {fact is [string, string]} */ (fact) => fact[1] !== null);
}
