/** The list of pinned messages, which every compaction keeps verbatim. */

import { textOf } from "./client.js";
import { el, iconButton } from "./dom.js";

/** Characters of a message shown in the list. */
const PREVIEW_CHARS = 80;

export class PinsView {
  /**
   * @param {import("./app.js").App} app
   * @param {(entryId: string) => void} onReveal
   */
  constructor(app, onReveal) {
    this.app = app;
    this.onReveal = onReveal;
    /** @type {unknown[]} inputs of the last render */
    this.shown = [];
    this.title = el("summary", {});
    this.list = el("ul", {});
    this.node = el("details", { class: "section pins" }, this.title, this.list);
  }

  /** @param {import("./client.js").SessionSnapshot} snapshot */
  render(snapshot) {
    const { app } = this;
    const of = [snapshot.pins, app.readOnly, app.tree.version];
    if (of.every((part, index) => part === this.shown[index])) return;
    this.shown = of;
    // A message pinned along with another one is unpinned with it.
    const pins = snapshot.pins.filter((pin) => !pin.with);
    this.node.hidden = pins.length === 0;
    this.title.textContent = `Pinned: ${pins.length}`;
    const hadFocus = this.list.contains(document.activeElement);
    this.list.replaceChildren(...pins.map(({ entryId }) => el("li", {},
      el("button", { type: "button", class: "button quiet what", title: "Show it in the chat", onclick: () => this.onReveal(entryId) }, this.preview(snapshot, entryId)),
      !app.readOnly && iconButton("close", "Unpin", () => void app.context.pin(entryId, false)))));
    if (hadFocus) (this.list.querySelector("button") ?? this.title).focus();
  }

  /**
   * @param {import("./client.js").SessionSnapshot} snapshot
   * @param {string} entryId
   */
  preview(snapshot, entryId) {
    const entry = snapshot.entries.get(entryId);
    const said = entry?.type === "message" || entry?.type === "custom_message" ? textOf(entry.content).replace(/\s+/g, " ").trim().slice(0, PREVIEW_CHARS) : "";
    return said || this.app.tree.nodes.get(entryId)?.preview || "A message further up";
  }
}
