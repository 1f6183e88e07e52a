/** Parts that the views have in common. */

import { el } from "../dom.js";
import { Refused } from "./api.js";
import { BUSY_SHARE } from "./session-store.js";

/** What can have the focus. */
const FOCUSABLE = "a, button, input, select, summary, [tabindex]";

/**
 * Replaces what a place contains, if it differs. The focus stays where it was, and tables as far scrolled as they were.
 * @param {HTMLElement} place
 * @param {...import("../dom.js").Child | import("../dom.js").Child[]} children
 */
export function put(place, ...children) {
  const next = el("div", {}, ...children);
  if (next.innerHTML === place.innerHTML) return;
  const focused = [...place.querySelectorAll(FOCUSABLE)].findIndex((element) => element === document.activeElement);
  const scrolled = [...place.querySelectorAll(".scroll")].map(({ scrollLeft, scrollTop }) => /** @type {const} */ ([scrollLeft, scrollTop]));
  place.replaceChildren(...next.childNodes);
  place.querySelectorAll(".scroll").forEach((node, at) => node.scrollTo(...(scrolled[at] ?? [0, 0])));
  const again = focused < 0 ? null : place.querySelectorAll(FOCUSABLE)[focused];
  if (again instanceof HTMLElement) again.focus({ preventScroll: true });
}

/** @param {string} text */
export function said(text) {
  return el("p", { class: "said" }, text);
}

/**
 * Does something that needs the server. If that fails, the place says why.
 * @param {HTMLElement} place
 * @param {() => Promise<unknown>} act
 */
export async function attempt(place, act) {
  try {
    await act();
  } catch (error) {
    put(place, said(reasonOf(error)));
  }
}

/**
 * Says why a request failed.
 * @param {unknown} error
 */
export function reasonOf(error) {
  if (!(error instanceof Refused)) throw error;
  return error.message;
}

/**
 * Paces readings: one does not begin while another is under way, and they take at most `BUSY_SHARE` of the time.
 * @param {() => number} pauseMs returns the least milliseconds between the beginnings of two
 * @param {() => Promise<unknown>} read
 */
export function paced(pauseMs, read) {
  let dueAt = -Infinity;
  let isReading = false;
  /** Reads, if it is due. */
  const run = async () => {
    const started = performance.now();
    if (isReading || started < dueAt) return;
    isReading = true;
    dueAt = Infinity;
    try {
      await read();
    } finally {
      isReading = false;
      if (dueAt === Infinity) dueAt = started + Math.max(pauseMs(), (performance.now() - started) / BUSY_SHARE);
      else void run();
    }
  };
  /** Reads now, or once the reading that is under way has ended. */
  const again = () => {
    dueAt = -Infinity;
    void run();
  };
  return { run, again };
}

/**
 * @param {string} title
 * @param {string} [text] what it says at first
 */
export function card(title, text = "Loading…") {
  const body = el("div", {}, said(text));
  return { body, node: el("section", { class: "card", "aria-label": title }, el("h2", {}, title), body) };
}

/**
 * A table of numbers, which scrolls in its place.
 * @param {string} title
 * @param {string[]} heads a column of texts ends with a colon
 * @param {HTMLTableRowElement[]} rows
 * @param {HTMLTableRowElement} [foot]
 */
export function table(title, heads, rows, foot) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${title}, as a table` },
    el("table", { class: "numbers" }, el("thead", {}, el("tr", {}, heads.map((name) => el("th", { scope: "col", class: name.endsWith(":") ? "text" : null }, name.replace(/:$/, ""))))), el("tbody", {}, rows), foot && el("tfoot", {}, foot)));
}

/**
 * Facts as tiles.
 * @param {[string, string][]} facts
 */
export function tiles(facts) {
  return facts.map(([name, value]) => el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, value)));
}

/**
 * Facts as a list, without those that are unknown.
 * @param {[string, string | Node | null | undefined][]} facts
 */
export function factsList(facts) {
  return el("dl", { class: "facts" }, facts.flatMap(([name, value]) => (value ? [el("div", {}, el("dt", {}, name), el("dd", {}, value))] : [])));
}

/**
 * A bar that shows a share.
 * @param {number} percent
 * @param {string} label
 * @param {string} [role]
 */
export function meter(percent, label, role = "meter") {
  const level = role !== "meter" ? "low" : percent >= 100 ? "full" : percent >= 80 ? "high" : "low";
  const share = Math.max(0, Math.min(100, percent));
  const node = el("div", { class: "meter", role, "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": Math.round(share), "data-level": level }, el("span", {}));
  node.style.setProperty("--used", `${share}%`);
  return node;
}

/**
 * Buttons for levers. They are disabled, and the reason is said, if the token has no right to pull them.
 * @param {import("./main.js").App} app
 * @param {(import("./levers.js").Lever & { label: string })[]} levers
 * @param {(lever: import("./levers.js").Lever) => void} done is called when one was pulled
 */
export function leverButtons(app, levers, done) {
  const buttons = levers.map(({ label, ...lever }) => el("button", {
    type: "button", class: `button small${lever.isDanger ? " danger" : ""}`, disabled: app.lacks("write") !== "",
    onclick: async () => (await app.pull(lever)) && done(lever),
  }, label));
  return el("div", { class: "levers", role: "group", "aria-label": "Levers" }, buttons, said(app.lacks("write")));
}
