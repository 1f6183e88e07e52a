/**
 * The line below a message: its time, which of its alternatives it is, and the menu of its actions. The menu's button
 * is its only Tab stop.
 *
 * @typedef {import("./app.js").App} App
 * @typedef {import("./message.js").MessageEntry} MessageEntry
 * @typedef {import("./message.js").CustomEntry} CustomEntry
 *
 * @typedef {object} RowActions
 * @property {(entry: MessageEntry) => void} edit
 * @property {(entryId: string, asksModel: boolean) => void} regenerate
 * @property {(entryId: string) => void} goOnFrom
 * @property {(entryId: string) => void} label
 * @property {(entry: MessageEntry | CustomEntry) => void} fork
 * @property {(entryId: string, index: number, count: number) => void} switchTo
 */

import { textOf } from "./client.js";
import { clock, dayOf, el, icon, iconButton } from "./dom.js";
import { toggleMenu } from "./menu.js";
import { pinOf } from "./snapshot.js";

export class RowTools {
  /**
   * @param {App} app
   * @param {MessageEntry | CustomEntry} entry
   * @param {RowActions} actions
   * @param {string} facts what it cost, for answers
   * @param {boolean} whole whether the chat can continue from here; in the middle of a tool call only the pin is
   * offered
   */
  constructor(app, entry, actions, facts, whole) {
    this.app = app;
    this.entry = entry;
    this.actions = actions;
    this.whole = whole;
    this.shown = "";
    this.name = el("span", { class: "label-chip", hidden: true });
    this.pinned = el("span", { class: "pin-chip", hidden: true });
    this.siblings = el("span", { class: "siblings", role: "group", "aria-label": "Other versions", hidden: true });
    this.facts = facts ? el("span", { class: "facts" }, facts) : null;
    const what = entry.type === "message" && entry.role === "assistant" ? "answer" : "message";
    // The time tells apart the buttons of a chat, and is hidden until the message is pointed at.
    this.label = `Actions for this ${what} of ${timeOf(entry.timestamp)}`;
    this.button = iconButton("more", this.label, () => toggleMenu(this.button, this.label, this.items()));
    this.button.setAttribute("aria-haspopup", "menu");
    this.button.setAttribute("aria-expanded", "false");
    const time = el("time", { class: "when", datetime: entry.timestamp, title: new Date(entry.timestamp).toLocaleString() }, timeOf(entry.timestamp));
    // The time comes after what is always shown: it takes room while it is hidden.
    this.node = el("footer", { class: whole ? "tools-row" : "tools-row slim" },
      this.siblings, this.pinned, this.name, this.facts, time, el("span", { class: "row-actions" }, this.button));
  }

  render() {
    const { app, entry } = this;
    const { entryId } = entry;
    const { tree } = app;
    const others = this.whole ? tree.alternatives(entryId) : [];
    const label = tree.labelOf(entryId) ?? "";
    const pin = app.snapshot ? pinOf(app.snapshot, entryId) : null;
    const isEmpty = this.items().length === 0;
    const key = JSON.stringify([others, label, pin, this.may("navigate"), isEmpty]);
    if (key === this.shown) return;
    this.shown = key;
    this.name.hidden = label === "";
    this.name.replaceChildren(icon("label"), label);
    this.pinned.hidden = pin === null;
    this.pinned.replaceChildren(icon("pin"), pin?.with ? "Pinned with its call" : "Pinned");
    this.renderSiblings(others);
    this.button.hidden = isEmpty;
  }

  /**
   * Returns true if this window may change the chat in this way.
   * @param {string} feature
   */
  may(feature) {
    return !this.app.readOnly && this.app.can(feature);
  }

  /**
   * Returns the actions that are possible now.
   * @returns {import("./menu.js").MenuItem[]}
   */
  items() {
    const { app, entry, actions, whole } = this;
    const { entryId } = entry;
    const isLeaf = app.snapshot !== null && app.tree.saidAt(app.snapshot.leafId) === entryId;
    const mine = entry.type === "message" && entry.role === "user" ? entry : null;
    const isAnswer = entry.type === "message" && entry.role === "assistant";
    const text = textOf(entry.content);
    const moves = whole && this.may("navigate");
    const others = moves ? app.tree.alternatives(entryId) : [];
    const at = others.indexOf(entryId);
    const pinned = app.snapshot !== null && pinOf(app.snapshot, entryId) !== null;
    /** @type {(import("./menu.js").MenuItem | null | false | "")[]} */
    const items = [
      moves && mine && { icon: "edit", label: "Edit and ask again", run: () => actions.edit(mine) },
      whole && text && navigator.clipboard && { icon: "copy", label: mine ? "Copy message" : "Copy answer", run: () => void navigator.clipboard.writeText(text) },
      moves && isAnswer && { icon: "retry", label: "Regenerate", run: () => actions.regenerate(entryId, false) },
      moves && isAnswer && hasChoice(app.models) && { icon: "window", label: "Regenerate with…", hint: "Another model gives another version of this answer", run: () => actions.regenerate(entryId, true) },
      moves && !isLeaf && { icon: "here", label: "Continue from here", run: () => actions.goOnFrom(entryId) },
      at > 0 && { icon: "left", label: "Earlier version", run: () => actions.switchTo(others[at - 1], at - 1, others.length) },
      at >= 0 && at < others.length - 1 && { icon: "right", label: "Later version", run: () => actions.switchTo(others[at + 1], at + 1, others.length) },
      whole && this.may("labels") && { icon: "label", label: app.tree.labelOf(entryId) ? "Change label" : "Label", run: () => actions.label(entryId) },
      this.may("pins") && { icon: "pin", label: "Pin", checked: pinned, hint: pinned ? "Unpin" : "Every compaction keeps it word for word", run: () => void app.context.pin(entryId, !pinned) },
      whole && this.may("fork") && { icon: "fork", label: "Fork into a new chat", run: () => actions.fork(entry) },
    ];
    return items.filter((item) => item !== null && item !== false && item !== "");
  }

  /** @param {string[]} others */
  renderSiblings(others) {
    const at = others.indexOf(this.entry.entryId);
    this.siblings.hidden = others.length < 2;
    if (this.siblings.hidden) return this.siblings.replaceChildren();
    const step = (/** @type {"left" | "right"} */ way, /** @type {string} */ label, /** @type {number} */ to) => {
      const button = iconButton(way, label, () => this.actions.switchTo(others[to], to, others.length));
      button.disabled = !this.may("navigate") || to < 0 || to >= others.length;
      // The menu has them too.
      button.tabIndex = -1;
      return button;
    };
    this.siblings.replaceChildren(
      step("left", "Earlier version", at - 1),
      el("span", { class: "count" }, `${at + 1}/${others.length}`),
      step("right", "Later version", at + 1));
  }
}

/**
 * Returns true if a chat may use more than one model.
 * @param {import("reseed-protocol").Models | null} models
 */
function hasChoice(models) {
  return models !== null && (models.others || models.items.length > 1);
}

/**
 * Returns the time of a message; on another day than today with its date.
 * @param {string} timestamp RFC 3339
 */
function timeOf(timestamp) {
  if (dayOf(timestamp) === dayOf(new Date().toISOString())) return clock(timestamp);
  return `${new Date(timestamp).toLocaleDateString(undefined, { day: "numeric", month: "short" })}, ${clock(timestamp)}`;
}
