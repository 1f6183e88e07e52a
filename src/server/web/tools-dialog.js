/**
 * The tools of the displayed chat, each with its token cost and a switch, and the standing approvals. Tools of an MCP
 * server are listed under its name, with the server's state.
 *
 * The dialog always shows the server's state: a switch that the server did not accept flips back.
 *
 * @typedef {import("reseed-protocol").SessionTool} Tool
 * @typedef {import("reseed-protocol").ToolServer} ToolServer
 */

import { el, iconButton, number } from "./dom.js";
import { explainError } from "./errors.js";
import { visible } from "./visible.js";

/** Separates the name of a tool server from the name of its tool. */
const SERVER_MARK = "__";

/** Heading of the tools that client programs provide. */
const OF_PROGRAMS = "Of programs connected to this chat";

/** Milliseconds until the list is fetched again while a server is starting or failing: no event reports that. */
const LOOK_MS = 3000;

/** @type {Record<string, string>} */
const STATES = { starting: "starting…", ready: "running", idle: "stopped until it is needed", failing: "not running", disabled: "switched off", stopping: "stopping" };

/** @type {Record<string, string>} why a server is not running */
const FAILURES = {
  cannot_start: "its program cannot be started", ended: "its program ended", timeout: "it did not start in time",
  unreachable: "it cannot be reached", refused: "it refused the connection", wrong_answer: "it gave a wrong answer",
  disconnected: "the connection was lost",
};

export class ToolsDialog {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    this.session = app.theSession;
    /** @type {readonly Tool[] | null} */
    this.tools = null;
    /** @type {readonly ToolServer[]} */
    this.servers = [];
    /** @type {Set<string>} tools whose full description is shown */
    this.unfolded = new Set();
    this.timer = 0;
    /** @type {unknown[]} inputs of the last render */
    this.shown = [];
    /** Counts fetches: only the newest list counts. */
    this.asked = 0;
    this.said = el("p", { class: "said", role: "status" }, "Loading…");
    this.list = el("div", {});
    this.standing = el("div", {});
    // The button stays at the top: the list is long.
    const close = iconButton("close", "Close the tools", () => this.dialog.close());
    const title = el("h2", { id: "tools-title", tabindex: -1, autofocus: true }, "Tools");
    this.dialog = el("dialog", { class: "tools", "aria-labelledby": "tools-title" },
      el("div", { class: "tools-head" }, title, close), this.said, this.list, this.standing);
    this.look = () => this.changed();
  }

  show() {
    const { app, dialog } = this;
    document.body.append(dialog);
    app.watchers.add(this.look);
    dialog.addEventListener("close", () => {
      app.watchers.delete(this.look);
      clearTimeout(this.timer);
      // A response that arrives later must change nothing and fetch nothing.
      this.asked += 1;
      dialog.remove();
    });
    dialog.showModal();
    this.changed();
  }

  /** Handles a change: fetches or redraws whatever depends on it. */
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
    clearTimeout(this.timer);
    try {
      const { items, tokens, servers = [] } = await this.session.listTools();
      if (mine !== this.asked) return;
      this.tools = items;
      this.servers = servers;
      if (servers.some(({ state }) => state === "starting" || state === "failing")) this.timer = window.setTimeout(() => void this.load(), LOOK_MS);
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
    /** @type {Map<string, ToolServer>} */
    const servers = new Map();
    for (const tool of items) {
      const group = groupOf(tool);
      groups.set(group, [...(groups.get(group) ?? []), tool]);
    }
    // List a server without tools too: somebody may be looking for it.
    for (const server of this.servers) {
      const group = server.prefix ?? server.name;
      servers.set(group, server);
      if (!groups.has(group)) groups.set(group, []);
    }
    const ofPrograms = groups.get(OF_PROGRAMS);
    if (groups.delete(OF_PROGRAMS) && ofPrograms) groups.set(OF_PROGRAMS, ofPrograms);
    this.list.replaceChildren(...[...groups].map(([name, tools]) => this.group(name, tools, servers.get(name))));
    this.fitDescriptions();
    if (focused !== undefined) /** @type {HTMLElement | null} */ (this.list.querySelector(`[data-of="${CSS.escape(focused)}"]`))?.focus();
  }

  /**
   * @param {string} name
   * @param {Tool[]} tools
   * @param {ToolServer} [server] the MCP server they belong to
   */
  group(name, tools, server) {
    const may = !this.app.readOnly && tools.length > 1;
    const on = tools.some((tool) => !tool.off);
    const all = may && el("button", { type: "button", class: "button small", "data-of": `group ${name}`, onclick: () => void this.turn(tools, !on) }, on ? "Switch all off" : "Switch all on");
    const title = server?.name ?? name;
    const tokens = tools.reduce((sum, tool) => sum + tool.tokens, 0);
    return el("section", { "aria-label": title },
      el("div", { class: "tool-group" },
        el("div", {},
          el("h3", {}, title),
          server && el("p", { class: `about ${server.state}` }, el("span", { class: "dot", "aria-hidden": "true" }), stateText(server)),
          tools.length > 1 && el("p", { class: "about" }, `${number(tools.length)} tools · ${number(tokens)} tokens`)),
        all || null),
      tools.length > 0 && el("ul", {}, ...tools.map((tool) => this.row(tool))));
  }

  /** @param {Tool} tool */
  row(tool) {
    const box = el("input", { type: "checkbox", role: "switch", "data-of": tool.name, disabled: this.app.readOnly });
    box.checked = !tool.off;
    box.addEventListener("change", () => void this.turn([tool], box.checked));
    const facts = [doesText(tool), `${number(tool.tokens)} tokens`].filter(Boolean).join(" · ");
    return el("li", { class: tool.off ? "off" : null },
      el("label", { class: "check" }, box, el("code", {}, tool.name), el("span", { class: "facts" }, facts)),
      tool.description && this.description(tool));
  }

  /**
   * Builds a description, folded to two lines at first.
   * @param {Tool} tool
   */
  description({ name, description }) {
    const text = el("p", { dir: "auto" }, visible(description));
    const more = el("button", { type: "button", class: "button quiet small", "data-of": `more ${name}` });
    const show = (/** @type {boolean} */ whole) => {
      text.classList.toggle("short", !whole);
      more.setAttribute("aria-expanded", String(whole));
      more.textContent = whole ? "Show less" : "Show all";
      if (whole) this.unfolded.add(name);
      else this.unfolded.delete(name);
    };
    more.addEventListener("click", () => show(!this.unfolded.has(name)));
    show(this.unfolded.has(name));
    return el("div", { class: "description" }, text, more);
  }

  /** Hides the buttons of descriptions that fit without folding. */
  fitDescriptions() {
    for (const node of this.list.querySelectorAll(".description")) {
      const [text, more] = node.children;
      if (more instanceof HTMLElement) more.hidden = text.classList.contains("short") && text.scrollHeight <= text.clientHeight + 1;
    }
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
      el("p", { class: "about" }, "Each is for exactly this call, in this chat."),
      el("ul", { class: "standing" }, ...standing.map(row)),
    ]));
    if (hadFocus) (this.standing.querySelector("button") ?? this.dialog.querySelector("h2"))?.focus();
  }
}

/**
 * Says what an MCP server is doing, and why it is not running.
 * @param {ToolServer} server
 */
function stateText({ state, failure, restarts }) {
  const why = failure && FAILURES[failure];
  const often = restarts > 0 && `started again ${restarts === 1 ? "once" : `${number(restarts)} times`}`;
  const again = state === "failing" && "it is tried again";
  return [[STATES[state] ?? state, why].filter(Boolean).join(": "), again, often].filter(Boolean).join(" · ");
}

/**
 * Returns the heading under which a tool is listed.
 * @param {Tool} tool
 */
function groupOf({ name, place }) {
  if (place !== "server") return OF_PROGRAMS;
  const at = name.indexOf(SERVER_MARK);
  return at > 0 ? name.slice(0, at) : "Of this server";
}

/**
 * Says what a tool does to the outside world, according to its own annotations.
 * @param {Tool} tool
 */
function doesText({ annotations: hints = {} }) {
  if (hints.readOnly) return hints.openWorld ? "only reads, also elsewhere" : "only reads";
  return [hints.destructive && "may destroy", hints.openWorld && "reaches other systems"].filter(Boolean).join(", ");
}
