/**
 * The line below a message: its actions, and which of its alternatives it is.
 *
 * @typedef {import("./app.js").App} App
 * @typedef {import("./message.js").MessageEntry} MessageEntry
 * @typedef {import("./message.js").CustomEntry} CustomEntry
 *
 * @typedef {object} RowActions
 * @property {(entry: MessageEntry) => void} edit
 * @property {(entryId: string) => void} goOnFrom
 * @property {(entryId: string) => void} label
 * @property {(entry: MessageEntry | CustomEntry) => void} fork
 * @property {(entryId: string, index: number, count: number) => void} switchTo
 */

import { textOf } from "./client.js";
import { el, icon, iconButton } from "./dom.js";
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
    this.buttons = el("span", { class: "row-actions" });
    this.node = el("footer", { class: whole ? "tools-row" : "tools-row slim" }, this.siblings, this.pinned, this.name, this.facts, this.buttons);
  }

  render() {
    const { app, entry, actions } = this;
    const { entryId } = entry;
    const { tree } = app;
    const others = tree.alternatives(entryId);
    const label = tree.labelOf(entryId) ?? "";
    const may = !app.readOnly;
    const isLeaf = app.snapshot !== null && tree.saidAt(app.snapshot.leafId) === entryId;
    const can = ["navigate", "labels", "fork"].map((feature) => this.whole && app.can(feature));
    const pin = app.snapshot ? pinOf(app.snapshot, entryId) : null;
    const mayPin = may && app.can("pins");
    const key = JSON.stringify([others, label, may, isLeaf, can, pin, mayPin]);
    if (key === this.shown) return;
    this.shown = key;
    const [navigate, labels, fork] = can;
    this.name.hidden = label === "";
    this.name.replaceChildren(icon("label"), label);
    this.pinned.hidden = pin === null;
    this.pinned.replaceChildren(icon("pin"), pin?.with ? "Pinned with its call" : "Pinned");
    this.renderSiblings(this.whole ? others : [], may && navigate);
    const mine = entry.type === "message" && entry.role === "user" ? entry : null;
    const text = textOf(entry.content);
    const focused = this.buttons.contains(document.activeElement) ? document.activeElement?.getAttribute("aria-label") : null;
    const buttons = [
      mine && may && navigate && iconButton("edit", "Edit and ask again", () => actions.edit(mine)),
      !mine && this.whole && text && navigator.clipboard && iconButton("copy", "Copy answer", () => void navigator.clipboard.writeText(text)),
      may && navigate && !isLeaf && iconButton("here", "Continue from here", () => actions.goOnFrom(entryId)),
      may && labels && iconButton("label", label ? "Change label" : "Label", () => actions.label(entryId)),
      mayPin && this.pinButton(pin),
      may && fork && iconButton("fork", "Fork into a new chat", () => actions.fork(entry)),
    ];
    this.buttons.replaceChildren(...buttons.filter((button) => button instanceof HTMLElement));
    if (focused) /** @type {HTMLElement | null} */ (this.buttons.querySelector(`[aria-label="${CSS.escape(focused)}"]`))?.focus();
  }

  /** @param {import("reseed-protocol").Pin | null} pin */
  pinButton(pin) {
    const button = iconButton("pin", "Pin", () => void this.app.context.pin(this.entry.entryId, pin === null));
    button.setAttribute("aria-pressed", String(pin !== null));
    button.title = pin ? "Unpin" : "Pin: every compaction keeps it word for word";
    return button;
  }

  /**
   * @param {string[]} others
   * @param {boolean} may
   */
  renderSiblings(others, may) {
    const at = others.indexOf(this.entry.entryId);
    this.siblings.hidden = others.length < 2;
    if (this.siblings.hidden) return this.siblings.replaceChildren();
    const step = (/** @type {"left" | "right"} */ way, /** @type {string} */ label, /** @type {number} */ to) => {
      const button = iconButton(way, label, () => this.actions.switchTo(others[to], to, others.length));
      button.disabled = !may || to < 0 || to >= others.length;
      return button;
    };
    this.siblings.replaceChildren(
      step("left", "Earlier version", at - 1),
      el("span", { class: "count" }, `${at + 1}/${others.length}`),
      step("right", "Later version", at + 1));
  }
}
