/**
 * What is shown of answers that did not come and of compactions that failed: the notice below the chat, and the lines
 * that stay in it.
 *
 * @typedef {import("./client.js").SessionSnapshot} Snapshot
 * @typedef {import("./client.js").Entry} Entry
 *
 * @typedef {object} Trace what is left of failures of a kind
 * @property {import("./errors.js").Explained} explained
 * @property {number} times
 * @property {boolean} isTurn whether an answer failed, rather than a compaction
 */

import { el, pulse } from "./dom.js";
import { explain, explainDelay, explainEnd } from "./errors.js";
import { detailsOf } from "./toasts.js";

/**
 * That the newest question has no answer, and what can be done about it.
 * @param {NonNullable<Snapshot["lastTurn"]>} turn
 * @param {(() => void) | null} retry
 */
export function endedRow({ status, error }, retry) {
  const { text, details } = explainEnd(status, error);
  return el("li", { class: `ended ${status}`, "data-ended": status },
    el("div", { class: "said", role: "alert" }, el("span", {}, text), detailsOf(details)),
    retry && el("button", { type: "button", class: "button small", onclick: retry }, "Try again"));
}

/**
 * That the model's server is asked again after a wait, with the seconds that are left.
 * @param {NonNullable<Snapshot["delayed"]>} delayed as it has just arrived
 */
export function delayRow({ reason, waitMs }) {
  const until = performance.now() + waitMs;
  const left = el("span", {});
  const row = el("li", { class: "activity delayed" }, pulse(), el("span", {}, `${explainDelay(reason)} `, left));
  const show = () => {
    const seconds = Math.ceil((until - performance.now()) / 1000);
    left.textContent = seconds > 0 ? `Trying again in ${seconds} s…` : "Trying again…";
  };
  show();
  const timer = setInterval(() => (row.isConnected ? show() : clearInterval(timer)), 1000);
  return row;
}

/**
 * What is left of a failure in the chat.
 * @param {import("./errors.js").Explained} explained
 * @param {number} times
 * @param {(() => void) | null} again asks the question once more, if it still has no answer
 */
export function traceRow({ text, past, details }, times, again) {
  const said = again ? text : past ?? text;
  return el("li", { class: "trace", "data-trace": true },
    el("span", {}, times > 1 ? `${said} (${times} times)` : said), detailsOf(details),
    again && el("button", { type: "button", class: "button small", onclick: again }, "Try again"));
}

/**
 * Returns the question that a failure left without an answer, while the chat has gone on with others. Null if it has
 * one by now, or was asked again.
 * @param {readonly Entry[]} path
 * @param {string} leafId where it failed
 * @returns {import("./message.js").MessageEntry | null}
 */
export function openQuestion(path, leafId) {
  const end = path.findIndex((entry) => entry.entryId === leafId);
  const at = path.findLastIndex((entry, index) => index <= end && isQuestion(entry));
  const question = path[at];
  if (question?.type !== "message") return null;
  const rest = path.slice(at + 1);
  const next = rest.findIndex(isQuestion);
  const isAnswered = (/** @type {Entry} */ entry) => entry.type === "message" && entry.role === "assistant" && !entry.incomplete
    && !entry.content.some((part) => part.type === "tool_call");
  const said = JSON.stringify(question.content);
  const isAskedAgain = rest.some((entry) => entry.type === "message" && isQuestion(entry) && JSON.stringify(entry.content) === said);
  return next < 0 || isAskedAgain || rest.slice(0, next).some(isAnswered) ? null : question;
}

/** @param {Entry} entry */
function isQuestion(entry) {
  return entry.type === "message" && entry.role === "user";
}

/**
 * The failures of a chat by the entry after which they happened, the same ones in a row as one.
 * @param {Snapshot | null} snapshot
 * @returns {Map<string, Trace[]>} those before the first entry are under "root"
 */
export function tracesOf(snapshot) {
  /** @type {Map<string, Trace[]>} */
  const traces = new Map();
  const add = (/** @type {string} */ leafId, /** @type {import("./errors.js").Explained} */ explained, isTurn = false) => {
    const there = traces.get(leafId) ?? [];
    const last = there[there.length - 1];
    if (last?.explained.text === explained.text) last.times += 1;
    else there.push({ explained, times: 1, isTurn });
    traces.set(leafId, there);
  };
  for (const { turnId, status, error, leafId } of snapshot?.unansweredTurns ?? []) {
    // An answer that was stopped says so itself.
    const stopped = status === "cancelled" ? snapshot?.entries.get(leafId) : undefined;
    if (stopped?.type === "message" && stopped.incomplete) continue;
    // The last one is shown below the chat, where it can be tried again.
    if (turnId !== snapshot?.lastTurn?.turnId || snapshot?.turn) add(leafId, explainEnd(status, error), true);
  }
  for (const failure of snapshot?.failedCompactions ?? []) add(failure.leafId, explain(failure.error));
  return traces;
}
