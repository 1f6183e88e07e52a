/**
 * DOM helpers. They insert text only as text: nothing here accepts markup.
 *
 * @typedef {Node | string | null | undefined | false} Child
 */

/** Children appended per call: the number of arguments of a call is bounded. */
const CHILDREN_AT_ONCE = 1000;

/**
 * Creates an element with attributes and children. `class` and `aria-…` become attributes, `on…` listeners, `true` an
 * empty attribute. Null, undefined and false are skipped. A list of children may be of any length.
 * @template {keyof HTMLElementTagNameMap} T
 * @param {T} tag
 * @param {Record<string, unknown>} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[T]}
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  const all = children.flat().filter(isChild);
  for (let at = 0; at < all.length; at += CHILDREN_AT_ONCE) element.append(...all.slice(at, at + CHILDREN_AT_ONCE));
  return element;
}

/**
 * @param {Child} child
 * @returns {child is Node | string}
 */
function isChild(child) {
  return child !== null && child !== undefined && child !== false;
}

/**
 * Returns the element with the id. The page's own markup contains it, so a miss is a bug of the page.
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} type
 * @returns {T}
 */
export function byId(id, type) {
  const element = document.getElementById(id);
  if (!(element instanceof type)) throw new Error(`the page has no ${type.name} #${id}`);
  return element;
}

/** Builds the animated dots that accompany a text about current activity. */
export function pulse() {
  return el("span", { class: "pulse", "aria-hidden": "true" }, el("i"), el("i"), el("i"));
}

/** Icon paths in a 24 by 24 view box. */
export const ICONS = {
  branch: "M6 4v16M6 14c0-5 12-2 12-8M6 20.5a1 1 0 1 0 0-.1M18 5.5a1 1 0 1 0 0-.1",
  close: "M6 6l12 12M18 6L6 18",
  copy: "M9 9h10v11H9zM5 15V4h10",
  delete: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  down: "M12 5v14M6 13l6 6 6-6",
  clock: "M12 4a8 8 0 1 0 .1 0zM12 8v4.5l3 2",
  code: "M9 7l-5 5 5 5M15 7l5 5-5 5",
  export: "M12 14V4M8 8l4-4 4 4M5 13v6h14v-6",
  fork: "M12 21v-7M12 14C12 9 5 10 5 4M12 14c0-5 7-4 7-10M2.5 6.5L5 4l2.5 2.5M16.5 6.5L19 4l2.5 2.5",
  here: "M5 4v7a4 4 0 0 0 4 4h10M14 10l5 5-5 5",
  label: "M4 5v6l9 9 7-7-9-9H5zM8.5 8.5v.1",
  left: "M15 5l-7 7 7 7",
  more: "M5.5 12h.1M12 12h.1M18.5 12h.1",
  now: "M5 12h13M12 5l7 7-7 7",
  help: "M9 9a3 3 0 1 1 4.2 2.8c-.8.4-1.2 1-1.2 2.2M12 17.5v.1",
  pin: "M9 4h6l-1 6 4 4H6l4-4zM12 14v7",
  print: "M7 9V4h10v5M7 17H4V9h16v8h-3M7 14h10v6H7z",
  theme: "M12 4a8 8 0 1 0 8 8 6 6 0 0 1-8-8z",
  right: "M9 5l7 7-7 7",
  up: "M12 19V5M6 11l6-6 6 6",
  window: "M8 8V4h12v11h-4M4 8h12v12H4zM4 12h12",
  edit: "M4 20l1-4L16 5l3 3L8 19z",
  undo: "M4 9h10a5 5 0 0 1 0 10H9M8 5L4 9l4 4",
  retry: "M20 11a8 8 0 1 0-2 6M20 4v7h-7",
};

/**
 * Builds an icon that accompanies words; screen readers skip it.
 * @param {keyof typeof ICONS} name
 */
export function icon(name) {
  const namespace = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(namespace, "svg");
  const path = document.createElementNS(namespace, "path");
  path.setAttribute("d", ICONS[name]);
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  svg.append(path);
  return svg;
}

/**
 * Builds a button that shows an icon and is named `label`.
 * @param {keyof typeof ICONS} name
 * @param {string} label
 * @param {(event: Event) => void} onclick
 */
export function iconButton(name, label, onclick) {
  return el("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick }, icon(name));
}

/** True on Apple platforms, where the command key replaces the control key. */
const IS_MAC = /Mac|iPhone|iPad/.test(globalThis.navigator?.platform ?? "");

/** The keyboard shortcut that opens the search, in words. */
export const SEARCH_KEYS = IS_MAC ? "⌘K" : "Ctrl+K";

/**
 * Returns true if the event is the keyboard shortcut that opens the search.
 * @param {KeyboardEvent} event
 */
export function isSearchKeys({ key, ctrlKey, metaKey, altKey, shiftKey }) {
  return key.toLowerCase() === "k" && !altKey && !shiftKey && (IS_MAC ? metaKey && !ctrlKey : ctrlKey && !metaKey);
}

const NUMBER = new Intl.NumberFormat("en");

/** @param {number} count */
export function number(count) {
  return NUMBER.format(Math.round(count));
}

/**
 * Returns how full the window is, in percent from 0 to 100.
 * @param {{ usageRatio: number }} info
 */
export function percentOf({ usageRatio }) {
  return Math.min(100, usageRatio * 100);
}

/**
 * Formats how long ago a time was.
 * @param {string} time RFC 3339
 * @param {number} now milliseconds since 1970
 */
export function ago(time, now) {
  const minutes = Math.max(0, Math.round((now - Date.parse(time)) / 60_000));
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min ago`;
  if (minutes < 24 * 60) return `${Math.round(minutes / 60)} h ago`;
  return new Date(time).toLocaleDateString(undefined, { day: "numeric", month: "short", year: "numeric" });
}

/**
 * Formats a duration.
 * @param {number} millis
 */
export function span(millis) {
  return millis < 1000 ? `${Math.round(millis)} ms` : `${(millis / 1000).toFixed(1)} s`;
}

/**
 * Formats the time of day.
 * @param {string} time RFC 3339
 */
export function clock(time) {
  return new Date(time).toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
}

/**
 * Returns the day of a time, here where the reader is, as text to compare.
 * @param {string} time RFC 3339
 */
export function dayOf(time) {
  return new Date(time).toDateString();
}

/**
 * Sets custom properties, which the page's content security policy does not allow in a style attribute.
 * @template {HTMLElement} T
 * @param {T} element
 * @param {Record<string, string>} properties
 */
export function styled(element, properties) {
  for (const [name, value] of Object.entries(properties)) element.style.setProperty(name, value);
  return element;
}
