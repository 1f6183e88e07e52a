/**
 * The menu that a button opens over the page.
 *
 * Invariants:
 * - at most one menu is open; it has the focus while it is open, and gives it back to its button;
 * - it stays inside the window, wherever its button scrolls to;
 * - nothing of a closed menu is left in the page.
 *
 * @typedef {object} MenuItem
 * @property {keyof typeof import("./dom.js").ICONS} icon
 * @property {string} label
 * @property {() => void} run
 * @property {string} [hint] what it does, in a tooltip
 * @property {boolean} [checked] whether it is on, for what can be switched on and off
 */

import { el, icon, styled } from "./dom.js";

/** Pixels between the menu and its button, and the edge of the window. */
const GAP_PIXELS = 4;

/** @type {(() => void) | null} closes the open menu */
let closeOpen = null;

/**
 * Opens a menu, or closes it if this button's is open.
 * @param {HTMLElement} opener
 * @param {string} label
 * @param {MenuItem[]} items
 */
export function toggleMenu(opener, label, items) {
  const wasOpen = opener.getAttribute("aria-expanded") === "true";
  closeOpen?.();
  if (wasOpen || items.length === 0) return;
  const close = (/** @type {boolean} */ refocus) => {
    closeOpen = null;
    opener.setAttribute("aria-expanded", "false");
    document.removeEventListener("pointerdown", outside, true);
    removeEventListener("scroll", place, true);
    removeEventListener("resize", place);
    // Before the menu goes, so that removing it does not move the focus to the document.
    if (refocus) opener.focus({ preventScroll: true });
    menu.remove();
  };
  const buttons = items.map(({ icon: sign, label: text, hint, checked, run }) => el("button", {
    type: "button", role: checked === undefined ? "menuitem" : "menuitemcheckbox", tabindex: -1, title: hint,
    "aria-checked": checked === undefined ? null : String(checked),
    onclick: () => (close(true), run()),
  }, icon(sign), el("span", {}, text)));
  const menu = el("div", { class: "menu", role: "menu", "aria-label": label, popover: "manual" }, buttons);
  const outside = (/** @type {PointerEvent} */ { target }) => {
    if (target instanceof Node && !menu.contains(target) && !opener.contains(target)) close(false);
  };
  const place = () => {
    const from = opener.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = menu;
    const below = from.bottom + GAP_PIXELS;
    const top = below + height <= innerHeight ? below : from.top - GAP_PIXELS - height;
    const within = (/** @type {number} */ at, /** @type {number} */ room) => Math.max(GAP_PIXELS, Math.min(at, room - GAP_PIXELS));
    styled(menu, { "--x": `${within(from.right - width, innerWidth - width)}px`, "--y": `${within(top, innerHeight - height)}px` });
  };
  menu.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    const { length } = buttons;
    const to = { ArrowDown: (at + 1) % length, ArrowUp: (at + length - 1) % length, Home: 0, End: length - 1 }[event.key] ?? typed(buttons, at, event);
    if (event.key === "Escape") close(true);
    // The focus goes on from the button.
    else if (event.key === "Tab") return close(true);
    else if (to >= 0) buttons[to].focus();
    else return;
    event.preventDefault();
  });
  menu.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget instanceof Node && !menu.contains(relatedTarget) && relatedTarget !== opener) close(false);
  });
  closeOpen = () => close(false);
  // Inside the message, and so inside the landmark that it belongs to.
  opener.after(menu);
  menu.showPopover();
  opener.setAttribute("aria-expanded", "true");
  document.addEventListener("pointerdown", outside, true);
  addEventListener("scroll", place, true);
  addEventListener("resize", place);
  place();
  buttons[0].focus({ preventScroll: true });
}

/**
 * Returns the next item that starts with the typed letter, or -1.
 * @param {HTMLElement[]} buttons
 * @param {number} at
 * @param {KeyboardEvent} event
 */
function typed(buttons, at, { key, ctrlKey, metaKey, altKey }) {
  if (key.length !== 1 || key === " " || ctrlKey || metaKey || altKey) return -1;
  const starts = (/** @type {HTMLElement} */ button) => button.textContent?.toLowerCase().startsWith(key.toLowerCase());
  const after = buttons.findIndex((button, index) => index > at && starts(button));
  return after >= 0 ? after : buttons.findIndex(starts);
}
