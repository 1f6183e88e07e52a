/**
 * What is shown of answers that did not come and of compactions that failed: the notice below the chat, and the lines
 * that stay in it.
 *
 * @typedef {import("./client.js").SessionSnapshot} Snapshot
 */

import { el } from "./dom.js";
import { explain, explainEnd } from "./errors.js";
import { detailsOf } from "./toasts.js";

/**
 * That the newest question has no answer, and what can be done about it.
 * @param {NonNullable<Snapshot["lastTurn"]>} turn
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
 * @param {Snapshot | null} snapshot
 * @returns {Map<string, { explained: import("./errors.js").Explained, times: number }[]>} those before the first entry
 *   are under "root"
 */
export function tracesOf(snapshot) {
  /** @type {Map<string, { explained: import("./errors.js").Explained, times: number }[]>} */
  const traces = new Map();
  const add = (/** @type {string} */ leafId, /** @type {import("./errors.js").Explained} */ explained) => {
    const there = traces.get(leafId) ?? [];
    const last = there[there.length - 1];
    if (last?.explained.text === explained.text) last.times += 1;
    else there.push({ explained, times: 1 });
    traces.set(leafId, there);
  };
  for (const { turnId, status, error, leafId } of snapshot?.unansweredTurns ?? []) {
    // An answer that was stopped says so itself.
    const stopped = status === "cancelled" ? snapshot?.entries.get(leafId) : undefined;
    if (stopped?.type === "message" && stopped.incomplete) continue;
    // The last one is shown below the chat, where it can be tried again.
    if (turnId !== snapshot?.lastTurn?.turnId || snapshot?.turn) add(leafId, explainEnd(status, error));
  }
  for (const failure of snapshot?.failedCompactions ?? []) add(failure.leafId, explain(failure.error));
  return traces;
}
