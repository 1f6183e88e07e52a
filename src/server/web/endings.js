/**
 * Renders failed answers and failed compactions: the notice below the chat, and the lines that stay in it.
 *
 * @typedef {import("./client.js").SessionSnapshot} Snapshot
 * @typedef {import("./client.js").Entry} Entry
 *
 * @typedef {object} Trace repeated failures of one kind, shown as one line
 * @property {import("./errors.js").Explained} explained
 * @property {number} times
 * @property {boolean} isTurn true if an answer failed, false for a compaction
 */

import { el, pulse } from "./dom.js";
import { explain, explainDelay, explainEnd } from "./errors.js";
import { detailsOf } from "./toasts.js";

/**
 * Renders the notice that the newest question has no answer, with what can be done about it.
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
 * Renders a countdown while the server waits before it asks the model's server again.
 * @param {NonNullable<Snapshot["delayed"]>} delayed as just received
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
 * Renders the line that a failure leaves in the chat.
 * @param {import("./errors.js").Explained} explained
 * @param {number} times
 * @param {(() => void) | null} again asks the question again, if it is still unanswered
 */
export function traceRow({ text, past, details }, times, again) {
  const said = again ? text : past ?? text;
  return el("li", { class: "trace", "data-trace": true },
    el("span", {}, times > 1 ? `${said} (${times} times)` : said), detailsOf(details),
    again && el("button", { type: "button", class: "button small", onclick: again }, "Try again"));
}

/**
 * Returns the question that a failure left unanswered while the chat went on with other questions, or null if it has
 * been answered or asked again since.
 * @param {readonly Entry[]} path
 * @param {string} leafId the entry at which it failed
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
 * Groups the failures of a chat by the entry they followed; identical ones in a row become one.
 * @param {Snapshot | null} snapshot
 * @returns {Map<string, Trace[]>} failures before the first entry are under "root"
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
    // A stopped answer is marked as such itself.
    const stopped = status === "cancelled" ? snapshot?.entries.get(leafId) : undefined;
    if (stopped?.type === "message" && stopped.incomplete) continue;
    // The last failure is shown below the chat, with a button to try again.
    if (turnId !== snapshot?.lastTurn?.turnId || snapshot?.turn) add(leafId, explainEnd(status, error), true);
  }
  for (const failure of snapshot?.failedCompactions ?? []) add(failure.leafId, explain(failure.error));
  return traces;
}
