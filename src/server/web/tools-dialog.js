/**
 * The tools of the chat that is shown, with the tokens that each takes and a switch, and the lasting answers to what
 * tools have asked.
 *
 * What always holds: it shows what the server says. A switch that the server has not accepted goes back.
 *
 * @typedef {import("reseed-protocol").SessionTool} Tool
 */

import { el, number } from "./dom.js";
import { explainError } from "./errors.js";
import { visible } from "./visible.js";

/** What stands between the name of a tool server and that of its tool. */
const SERVER_MARK = "__";

export class ToolsDialog {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    this.session = app.theSession;
    /** @type {readonly Tool[] | null} */
    this.tools = null;
    /** @type {unknown[]} what is shown */
    this.shown = [];
    /** Counts what was asked for: only the newest list counts. */
    this.asked = 0;
    this.said = el("p", { class: "said", role: "status" }, "Loading…");
    this.list = el("div", {});
    this.standing = el("div", {});
    const close = el("button", { type: "button", class: "button", onclick: () => this.dialog.close() }, "Close");
    const title = el("h2", { id: "tools-title", tabindex: -1, autofocus: true }, "Tools");
    this.dialog = el("dialog", { class: "tools", "aria-labelledby": "tools-title" },
      title, this.said, this.list, this.standing, el("div", { class: "actions" }, close));
    this.look = () => this.changed();
  }

  show() {
    const { app, dialog } = this;
    document.body.append(dialog);
    app.watchers.add(this.look);
    dialog.addEventListener("close", () => {
      app.watchers.delete(this.look);
      dialog.remove();
    });
    dialog.showModal();
    this.changed();
  }

  /** Something has changed: what depends on it is asked for or drawn again. */
  changed() {
    const { app } = this;
    const { snapshot } = app;
    if (!snapshot || app.session !== this.session) return this.dialog.close();
    const [settings, host, standing] = this.shown;
    if (settings !== snapshot.settings || host !== snapshot.host) void this.load();
    if (standing !== snapshot.standingApprovals) this.renderStanding(snapshot.standingApprovals);
    this.shown = [snapshot.settings, snapshot.host, snapshot.standingApprovals];
  }

  async load() {
    this.asked += 1;
    const mine = this.asked;
    try {
      const { items, tokens } = await this.session.listTools();
      if (mine !== this.asked) return;
      this.tools = items;
      const on = items.filter((tool) => !tool.off).length;
      const count = items.length === 1 ? "1 tool" : `${number(items.length)} tools`;
      this.say(items.length === 0 ? "This chat has no tools." : `${count}, ${on === items.length ? "all" : number(on)} switched on: about ${number(tokens)} tokens in every request.`);
      this.renderList(items);
    } catch (error) {
      if (mine === this.asked) this.say(explainError(error).text, true);
    }
  }

  /**
   * @param {string} text
   * @param {boolean} [wrong]
   */
  say(text, wrong = false) {
    this.said.textContent = text;
    this.said.classList.toggle("wrong", wrong);
  }

  /** @param {readonly Tool[]} items */
  renderList(items) {
    const focused = document.activeElement instanceof HTMLElement && this.list.contains(document.activeElement) ? document.activeElement.dataset.of : undefined;
    /** @type {Map<string, Tool[]>} */
    const groups = new Map();
    for (const tool of items) {
      const group = groupOf(tool);
      groups.set(group, [...(groups.get(group) ?? []), tool]);
    }
    this.list.replaceChildren(...[...groups].map(([name, tools]) => this.group(name, tools)));
    if (focused !== undefined) /** @type {HTMLElement | null} */ (this.list.querySelector(`[data-of="${CSS.escape(focused)}"]`))?.focus();
  }

  /**
   * @param {string} name
   * @param {Tool[]} tools
   */
  group(name, tools) {
    const may = !this.app.readOnly && tools.length > 1;
    const on = tools.some((tool) => !tool.off);
    const all = may && el("button", { type: "button", class: "button small", "data-of": `group ${name}`, onclick: () => void this.turn(tools, !on) }, on ? "Switch all off" : "Switch all on");
    return el("section", { "aria-label": name },
      el("div", { class: "tool-group" }, el("h3", {}, name), all || null),
      el("ul", {}, ...tools.map((tool) => this.row(tool))));
  }

  /** @param {Tool} tool */
  row(tool) {
    const box = el("input", { type: "checkbox", role: "switch", "data-of": tool.name, disabled: this.app.readOnly });
    box.checked = !tool.off;
    box.addEventListener("change", () => void this.turn([tool], box.checked));
    const facts = [doesText(tool), `${number(tool.tokens)} tokens`].filter(Boolean).join(" · ");
    return el("li", { class: tool.off ? "off" : null },
      el("label", { class: "check" }, box, el("code", {}, tool.name), el("span", { class: "facts" }, facts)),
      tool.description && el("p", { dir: "auto" }, visible(tool.description)));
  }

  /**
   * Switches tools on or off.
   * @param {readonly Tool[]} tools
   * @param {boolean} on
   */
  async turn(tools, on) {
    const names = new Set(tools.map((tool) => tool.name));
    const others = (this.app.snapshot?.settings.toolsOff ?? []).filter((name) => !names.has(name));
    try {
      await this.session.setTools({ off: on ? others : [...others, ...names] });
    } catch (error) {
      if (this.tools) this.renderList(this.tools);
      this.say(explainError(error).text, true);
    }
  }

  /** @param {readonly import("reseed-protocol").StandingApproval[]} standing */
  renderStanding(standing) {
    const hadFocus = this.standing.contains(document.activeElement);
    const { app } = this;
    const row = (/** @type {import("reseed-protocol").StandingApproval} */ one) => {
      const what = one.option === "allow_always" ? "Always allowed" : "Always rejected";
      return el("li", {},
        el("div", {}, el("b", {}, what), ": ", el("code", {}, visible(one.name)), el("pre", { class: "plain", tabindex: 0 }, visible(one.display))),
        !app.readOnly && el("button", { type: "button", class: "button small", "aria-label": `Ask again about ${one.name}`, onclick: () => void app.approvals.withdraw(one.approvalId) }, "Ask again"));
    };
    this.standing.replaceChildren(...(standing.length === 0 ? [] : [
      el("h3", {}, "Your lasting answers"),
      el("p", {}, "Each is for exactly this call, in this chat."),
      el("ul", { class: "standing" }, ...standing.map(row)),
    ]));
    if (hadFocus) (this.standing.querySelector("button") ?? this.dialog.querySelector("h2"))?.focus();
  }
}

/**
 * Returns the heading that a tool stands under.
 * @param {Tool} tool
 */
function groupOf({ name, place }) {
  if (place !== "server") return "Of programs connected to this chat";
  const at = name.indexOf(SERVER_MARK);
  return at > 0 ? name.slice(0, at) : "Of this server";
}

/**
 * Says what a tool does to the world, by its own account.
 * @param {Tool} tool
 */
function doesText({ annotations: hints = {} }) {
  if (hints.readOnly) return hints.openWorld ? "only reads, also elsewhere" : "only reads";
  return [hints.destructive && "may destroy", hints.openWorld && "reaches other systems"].filter(Boolean).join(", ");
}
