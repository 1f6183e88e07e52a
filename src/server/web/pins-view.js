/** The messages that every compaction keeps word for word, in a list. */

import { el, iconButton } from "./dom.js";
import { textOfParts } from "./fold.js";

/** Characters of a message that stand for it. */
const PREVIEW_CHARS = 80;

export class PinsView {
  /**
   * @param {import("./app.js").App} app
   * @param {(entryId: string) => void} onReveal
   */
  constructor(app, onReveal) {
    this.app = app;
    this.onReveal = onReveal;
    /** @type {unknown[]} what is shown */
    this.shown = [];
    this.title = el("summary", {});
    this.list = el("ul", {});
    this.node = el("details", { class: "section pins" }, this.title, this.list);
  }

  /** @param {import("./fold.js").State} state */
  render(state) {
    const { app } = this;
    const of = [state.pins, app.readOnly, app.tree.version];
    if (of.every((part, index) => part === this.shown[index])) return;
    this.shown = of;
    // What only goes with another is unpinned with it.
    const pins = state.pins.filter((pin) => !pin.with);
    this.node.hidden = pins.length === 0;
    this.title.textContent = `Pinned: ${pins.length}`;
    const hadFocus = this.list.contains(document.activeElement);
    this.list.replaceChildren(...pins.map(({ entryId }) => el("li", {},
      el("button", { type: "button", class: "button quiet what", title: "Show it in the chat", onclick: () => this.onReveal(entryId) }, this.preview(state, entryId)),
      !app.readOnly && iconButton("close", "Unpin", () => void app.context.pin(entryId, false)))));
    if (hadFocus) (this.list.querySelector("button") ?? this.title).focus();
  }

  /**
   * @param {import("./fold.js").State} state
   * @param {string} entryId
   */
  preview(state, entryId) {
    const entry = state.known.get(entryId);
    const said = entry?.type === "message" || entry?.type === "custom_message" ? textOfParts(entry.content).replace(/\s+/g, " ").trim().slice(0, PREVIEW_CHARS) : "";
    return said || this.app.tree.nodes.get(entryId)?.preview || "A message further up";
  }
}
