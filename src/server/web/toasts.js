/** Short notices in the corner. Errors are spoken at once and stay until they are closed; the rest leaves by itself. */

import { byId, el, iconButton } from "./dom.js";

/** Notices at once. An older one gives way: a flood of them would cover the page. */
const TOASTS_MAX = 4;
/** Milliseconds for which a notice that is no error stays. */
const INFO_MS = 6000;

/** The same, for one that something can be done about. */
const ACTION_MS = 10_000;

/** @param {import("./app.js").Notice} notice */
export function toast({ kind, message, code, retriable, action }) {
  const root = byId("toasts", HTMLElement);
  const words = [code, retriable ? "trying again may help" : null].filter(Boolean).join(" · ");
  const node = el("div", { class: `toast ${kind}`, role: kind === "error" ? "alert" : "status" },
    el("div", {}, message, words && el("small", {}, words),
      action && el("button", { type: "button", class: "button small", onclick: () => (node.remove(), action.run()) }, action.label)),
    iconButton("close", "Close notice", () => node.remove()));
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
