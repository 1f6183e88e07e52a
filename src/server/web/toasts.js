/**
 * Short notices above the message field. They take space there instead of covering what is being read, and belong to
 * the chat in which they appeared. Errors are announced at once and stay until closed; other notices disappear after a
 * while.
 */

import { byId, el, iconButton } from "./dom.js";

/** Maximum notices at once. The oldest one gives way: a flood of them would fill the page. */
const TOASTS_MAX = 3;
/** Milliseconds for which a notice stays that is not an error. */
const INFO_MS = 6000;

/** The same, for a notice with an action. */
const ACTION_MS = 10_000;

/**
 * @param {import("./app.js").Notice} notice
 * @param {boolean} [typed] whether it concerns the text in the message field
 */
export function toast({ kind, message, details, action }, typed = false) {
  const root = byId("toasts", HTMLElement);
  const node = el("div", { class: `toast ${kind}`, role: kind === "error" ? "alert" : "status" },
    el("div", {}, el("span", {}, message), detailsOf(details),
      action && el("button", { type: "button", class: "button small", onclick: () => (node.remove(), action.run()) }, action.label)),
    iconButton("close", "Close notice", () => node.remove()));
  node.toggleAttribute("data-typed", typed);
  // A repeated notice replaces its earlier copy.
  for (const old of root.children) if (old.textContent === node.textContent) old.remove();
  while (root.children.length >= TOASTS_MAX) root.firstElementChild?.remove();
  root.append(node);
  if (kind === "error") return;
  const leave = () => {
    // Do not rush a user who is about to use it.
    if (node.matches(":hover, :focus-within")) setTimeout(leave, INFO_MS);
    else node.remove();
  };
  setTimeout(leave, action ? ACTION_MS : INFO_MS);
}

/** Removes the notices of the chat being left. */
export function clearToasts() {
  byId("toasts", HTMLElement).replaceChildren();
}

/** Removes the notices about the previous text of the message field, since something else is being sent. */
export function clearTyped() {
  for (const node of byId("toasts", HTMLElement).querySelectorAll("[data-typed]")) node.remove();
}

/**
 * Builds foldable details; null if there are none.
 * @param {string | undefined} details
 */
export function detailsOf(details) {
  return details ? el("details", { class: "details" }, el("summary", {}, "Details"), el("code", {}, details)) : null;
}
