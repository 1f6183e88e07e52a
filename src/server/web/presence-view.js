/** The badge beside the title that shows who else has the session open, with names in its tooltip. */

import { byId, el, icon } from "./dom.js";
import { countText, namesText, others } from "./presence.js";

export class PresenceView {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    this.badge = byId("presence", HTMLElement);
    /** @type {readonly import("./presence.js").Participant[] | null} the participants the badge shows */
    this.shown = null;
  }

  render() {
    const { snapshot, status, client } = this.app;
    // While the connection is down, nothing is known about the others.
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
