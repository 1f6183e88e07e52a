/**
 * What is shown of answers that did not come and of compactions that failed: the notice below the chat, and the lines
 * that stay in it.
 *
 * @typedef {import("./fold.js").State} State
 */

import { el } from "./dom.js";
import { explain, explainEnd } from "./errors.js";
import { detailsOf } from "./toasts.js";

/**
 * That the newest question has no answer, and what can be done about it.
 * @param {NonNullable<State["lastTurn"]>} turn
 * @param {(() => void) | null} retry
 */
export function endedRow({ status, error }, retry) {
  const { text, details } = explainEnd(status, error);
  return el("li", { class: `ended ${status}`, role: "alert", "data-ended": status },
    el("div", { class: "said" }, el("span", {}, text), detailsOf(details)),
    retry && el("button", { type: "button", class: "button small", onclick: retry }, "Try again"));
}

/**
 * What is left of a failure in the chat.
 * @param {import("./errors.js").Explained} explained
 * @param {number} times
 */
export function traceRow({ text, details }, times) {
  return el("li", { class: "trace", "data-trace": true },
    el("span", {}, times > 1 ? `${text} (${times} times)` : text), detailsOf(details));
}

/**
 * The failures of a chat by the entry after which they happened, the same ones in a row as one.
 * @param {State | null} state
 * @returns {Map<string, { explained: import("./errors.js").Explained, times: number }[]>} those before the first entry
 *   are under ""
 */
export function tracesOf(state) {
  /** @type {Map<string, { explained: import("./errors.js").Explained, times: number }[]>} */
  const traces = new Map();
  const add = (/** @type {string | null} */ leafId, /** @type {import("./errors.js").Explained} */ explained) => {
    const there = traces.get(leafId ?? "") ?? [];
    const last = there[there.length - 1];
    if (last?.explained.text === explained.text) last.times += 1;
    else there.push({ explained, times: 1 });
    traces.set(leafId ?? "", there);
  };
  for (const { turnId, status, error, leafId } of state?.unanswered ?? []) {
    // An answer that was stopped says so itself.
    const stopped = status === "cancelled" && leafId !== null ? state?.known.get(leafId) : undefined;
    if (stopped?.type === "message" && stopped.incomplete) continue;
    // The last one is shown below the chat, where it can be tried again.
    if (turnId !== state?.lastTurn?.turnId || state?.turnId) add(leafId, explainEnd(status, error));
  }
  for (const failure of state?.failures ?? []) add(failure.leafId, explain(failure.error));
  return traces;
}
