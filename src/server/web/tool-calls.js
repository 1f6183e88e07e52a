/**
 * Renders each tool call as one line: the tool, what the call is about, how it went and how long it took. Unfolded, it
 * shows arguments and result.
 *
 * A call has exactly one line. Until there is a result, the line is in the answer that made the call; afterwards it is
 * in the row of the result, with the arguments.
 *
 * @typedef {import("reseed-protocol").Entry} Entry
 * @typedef {import("reseed-protocol").Part} Part
 * @typedef {{ name: string, arguments: string, timestamp: string }} Made a call made by an answer on the path
 */

import { el, span } from "./dom.js";
import { commandLine, indented, visible } from "./visible.js";

/** Maximum characters that say what a call is about. */
const ABOUT_CHARS = 80;

/** The prefix that the server gives the result of a call that never ran. */
const NOT_MADE = "Not called: ";

/**
 * Finds the calls on a path, and which of them have a result.
 * @param {readonly Entry[]} entries
 */
export function callsOf(entries) {
  /** @type {Map<string, Made>} */
  const made = new Map();
  /** @type {Set<string>} */
  const answered = new Set();
  for (const entry of entries) {
    if (entry.type !== "message") continue;
    for (const part of entry.content) {
      if (part.type === "tool_call") made.set(part.toolCallId, { name: part.name, arguments: part.arguments, timestamp: entry.timestamp });
      else if (part.type === "tool_result") answered.add(part.toolCallId);
    }
  }
  return { made, answered };
}

/**
 * Summarises a call by the values of its arguments, texts first.
 * @param {string} text the arguments, as JSON
 */
export function aboutCall(text) {
  return shortened(visible(valuesOf(text)).replace(/\s+/g, " ").trim());
}

/** @param {string} text */
function valuesOf(text) {
  /** @type {unknown} */
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return text;
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return text;
  const values = Object.entries(value).map(([name, one]) => {
    if (typeof one === "string") return { rank: 0, text: one };
    if (Array.isArray(one) && one.length > 0 && one.every((word) => typeof word === "string")) return { rank: 0, text: commandLine(one) };
    return { rank: 1, text: `${name}: ${JSON.stringify(one)}` };
  });
  return values.sort((a, b) => a.rank - b.rank).map((one) => one.text).join(", ");
}

/** @param {string} text */
function shortened(text) {
  return text.length > ABOUT_CHARS ? `${text.slice(0, ABOUT_CHARS)}…` : text;
}

/**
 * Builds the line of a call in an answer.
 * @param {Extract<Part, { type: "tool_call" }>} part
 */
export function callLine(part) {
  return line({ kind: "call", name: part.name, about: aboutCall(part.arguments), state: "", attributes: { "data-call": part.toolCallId } },
    [section("Arguments", indented(part.arguments))]);
}

/**
 * Builds the line of a call with its result.
 * @param {Extract<Part, { type: "tool_result" }>} part
 * @param {Made | undefined} made the call, if it is known
 * @param {number | undefined} millis how long it took
 */
export function resultLine(part, made, millis) {
  const isRefused = part.isError === true && part.output.startsWith(NOT_MADE);
  const outcome = isRefused ? "not run" : part.isError ? "failed" : "done";
  const time = isRefused || millis === undefined || !(millis >= 0) ? "" : ` · ${span(millis)}`;
  return line({
    kind: part.isError ? "call failed" : "call", name: made?.name ?? "tool", about: made ? aboutCall(made.arguments) : "",
    state: `${outcome}${time}`, attributes: { "data-result": part.toolCallId },
  }, [made && section("Arguments", indented(made.arguments)), section("Result", part.output)]);
}

/**
 * @param {{ kind: string, name: string, about: string, state: string, attributes: Record<string, string> }} call
 * @param {(HTMLElement | undefined)[]} sections
 */
function line({ kind, name, about, state, attributes }, sections) {
  return el("details", { class: `fold ${kind}`, ...attributes },
    el("summary", {},
      el("span", { class: "visually-hidden" }, "Tool "), el("code", {}, name),
      el("span", { class: "about", dir: "auto" }, about), el("span", { class: "state" }, state)),
    el("div", { class: "inside", tabindex: 0 }, ...sections));
}

/**
 * @param {string} title
 * @param {string} text
 */
function section(title, text) {
  return el("div", {}, el("small", { class: "kind" }, title), el("pre", { class: "plain" }, text));
}

/**
 * Shows the state of calls without a result, and hides the lines of calls that have one.
 * @param {HTMLElement} root
 * @param {import("./client.js").SessionSnapshot | null} snapshot
 * @param {Set<string>} answered
 */
export function showStates(root, snapshot, answered) {
  /** @type {NodeListOf<HTMLDetailsElement>} */
  const lines = root.querySelectorAll("details[data-call]");
  for (const node of lines) {
    const callId = node.dataset.call ?? "";
    if (answered.has(callId)) handOver(root, node, callId);
    node.hidden = answered.has(callId);
    const pending = snapshot?.pending.find((call) => call.toolCallId === callId);
    const asks = snapshot?.approvals.some((approval) => approval.toolCallId === callId);
    const state = asks ? "waits for approval" : pending ? `running${pending.message ? `: ${visible(pending.message)}` : "…"}` : "";
    const shown = node.querySelector(".state");
    if (shown && shown.textContent !== state) shown.textContent = state;
    node.classList.toggle("running", Boolean(pending));
  }
}

/**
 * Hands the unfolded state and the focus of a line over to the line with the result.
 * @param {HTMLElement} root
 * @param {HTMLDetailsElement} node
 * @param {string} callId
 */
function handOver(root, node, callId) {
  if (node.hidden) return;
  /** @type {HTMLDetailsElement | null} */
  const result = root.querySelector(`details[data-result="${CSS.escape(callId)}"]`);
  if (!result) return;
  if (node.open) result.open = true;
  if (node.contains(document.activeElement)) result.querySelector("summary")?.focus({ preventScroll: true });
}
