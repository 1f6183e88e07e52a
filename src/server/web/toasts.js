/**
 * Short notices above the message field. They take room there instead of covering what is read, and belong to the chat
 * in which they came up. Errors are spoken at once and stay until they are closed; the rest leaves by itself.
 */

import { byId, el, iconButton } from "./dom.js";

/** Notices at once. An older one gives way: a flood of them would fill the page. */
const TOASTS_MAX = 3;
/** Milliseconds for which a notice that is no error stays. */
const INFO_MS = 6000;

/** The same, for one that something can be done about. */
const ACTION_MS = 10_000;

/**
 * @param {import("./app.js").Notice} notice
 * @param {boolean} [typed] whether it is about what stands in the message field
 */
export function toast({ kind, message, details, action }, typed = false) {
  const root = byId("toasts", HTMLElement);
  const node = el("div", { class: `toast ${kind}`, role: kind === "error" ? "alert" : "status" },
    el("div", {}, el("span", {}, message), detailsOf(details),
      action && el("button", { type: "button", class: "button small", onclick: () => (node.remove(), action.run()) }, action.label)),
    iconButton("close", "Close notice", () => node.remove()));
  node.toggleAttribute("data-typed", typed);
  // The same thing twice is one thing.
  for (const old of root.children) if (old.textContent === node.textContent) old.remove();
  while (root.children.length >= TOASTS_MAX) root.firstElementChild?.remove();
  root.append(node);
  if (kind === "error") return;
  const leave = () => {
    // Whoever is about to use it is not hurried.
    if (node.matches(":hover, :focus-within")) setTimeout(leave, INFO_MS);
    else node.remove();
  };
  setTimeout(leave, action ? ACTION_MS : INFO_MS);
}

/** Removes the notices of the chat that is left. */
export function clearToasts() {
  byId("toasts", HTMLElement).replaceChildren();
}

/** Removes the notices about what stood in the message field: something else is sent now. */
export function clearTyped() {
  for (const node of byId("toasts", HTMLElement).querySelectorAll("[data-typed]")) node.remove();
}

/**
 * Details that can be unfolded; null where there are none.
 * @param {string | undefined} details
 */
export function detailsOf(details) {
  return details ? el("details", { class: "details" }, el("summary", {}, "Details"), el("code", {}, details)) : null;
}
