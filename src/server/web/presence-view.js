/** The badge beside the title that says who else has the open session open, with names for those who point at it. */

import { byId, el, icon } from "./dom.js";
import { countText, namesText, others } from "./presence.js";

export class PresenceView {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    this.badge = byId("presence", HTMLElement);
    /** @type {readonly import("./presence.js").Participant[] | null} what the badge was drawn of */
    this.shown = null;
  }

  render() {
    const { snapshot, status, client } = this.app;
    // While the connection is away nothing is known of the others.
    const presence = status.phase === "open" && snapshot ? snapshot.presence : null;
    if (presence === this.shown) return;
    this.shown = presence;
    const there = others(presence ?? [], client.welcome?.connectionId);
    this.badge.hidden = there.length === 0;
    if (there.length === 0) return;
    this.badge.title = namesText(there);
    this.badge.replaceChildren(icon("window"),
      el("span", { class: "count", "aria-hidden": "true" }, String(there.length + 1)),
      el("span", { class: "who" }, countText(there)));
  }
}
