/** The status lines below the bar: connection, read-only access, server notice, full window. */

import { byId, clock, el, percentOf } from "./dom.js";
import { breakerText } from "./report.js";

/** Percentage from which the gauge alone is not enough of a warning. */
const WARN_PERCENT = 90;

/** The close code of a server that does not understand what this page sends. */
const NOT_UNDERSTOOD = 4400;

export class LinesView {
  /**
   * @param {import("./app.js").App} app
   * @param {() => void} onLogin
   */
  constructor(app, onLogin) {
    this.app = app;
    this.onLogin = onLogin;
    this.connection = byId("connection-line", HTMLElement);
    this.role = byId("role-line", HTMLElement);
    this.notice = byId("notice-line", HTMLElement);
    this.warning = byId("warning-line", HTMLElement);
    this.noticeClosed = false;
    /**
     * Whether the connection has been lost since the page loaded. During the first attempt there is nothing to report.
     */
    this.wasAway = false;
    /** @type {Map<HTMLElement, string>} the content of each line, so that it is rebuilt only when that changes */
    this.said = new Map();
    setInterval(() => this.app.status.phase === "waiting" && this.renderConnection(), 1000);
  }

  render() {
    const { snapshot, client } = this.app;
    this.renderConnection();
    const damaged = "A part of this chat cannot be read any more. You can read the rest of it, and write in other chats.";
    this.say(this.role, this.app.readOnly ? damaged : null, []);
    const notice = this.noticeClosed ? null : client.welcome?.server.notice ?? null;
    this.say(this.notice, notice, [["Got it", () => {
      this.noticeClosed = true;
      this.render();
    }]]);
    const full = snapshot && percentOf(snapshot.contextInfo) >= WARN_PERCENT && snapshot.contextInfo.compactAtTokens === undefined;
    const percent = snapshot ? Math.round(percentOf(snapshot.contextInfo)) : 0;
    // The user undid the compaction on purpose, so this breaker needs no warning; the breakdown mentions it.
    const breaker = snapshot?.contextInfo.breaker?.reason === "undone" ? undefined : snapshot?.contextInfo.breaker;
    const fullness = `The context window is ${percent} % full.`;
    // The server's warning about a nearly full window may promise a compaction that is paused.
    const rests = breaker ? `${breakerText(breaker, clock)}${percent >= WARN_PERCENT ? ` ${fullness}` : ""}` : null;
    // The server's own sentence uses names from the protocol.
    const next = nextStep(snapshot?.contextInfo);
    const warning = rests ?? (snapshot?.warning || full ? `${fullness} ${next}` : null);
    this.say(this.warning, warning, this.app.context.mayCompact ? [["Compact now", () => void this.app.context.compact()]] : []);
  }

  renderConnection() {
    const { status, client, asksForToken } = this.app;
    const line = this.connection;
    line.classList.toggle("danger", status.phase === "stopped");
    this.wasAway ||= status.phase === "waiting" || status.phase === "stopped";
    switch (status.phase) {
      case "open": return this.say(line, null, []);
      case "connecting": return this.say(line, this.wasAway ? "Connecting…" : null, []);
      case "waiting": {
        const seconds = Math.max(0, Math.ceil((status.retryAt - Date.now()) / 1000));
        this.say(line, "The connection is lost.", [["Try now", () => client.reconnect()]], `Reconnecting in ${seconds} s…`);
        return;
      }
      case "stopped": {
        if (asksForToken) return this.say(line, "The server asks for a token.", [["Sign in", this.onLogin]]);
        const isOld = status.code === NOT_UNDERSTOOD;
        const text = isOld ? "The server did not understand this page. Reload it." : status.reason || "The server ended the connection.";
        this.say(line, text, [["Reconnect", () => client.reconnect()]]);
      }
    }
  }

  /**
   * @param {HTMLElement} line
   * @param {string | null} text null hides the line
   * @param {[string, () => void][]} actions
   * @param {string} [aside] changes often, so it is hidden from screen readers
   */
  say(line, text, actions, aside = "") {
    const key = JSON.stringify([text, actions.map(([label]) => label), aside]);
    if (this.said.get(line) === key) return;
    const hadFocus = line.contains(document.activeElement);
    const asideNode = line.querySelector("[aria-hidden]");
    const known = JSON.parse(this.said.get(line) ?? "[]");
    this.said.set(line, key);
    line.hidden = text === null;
    if (asideNode && known[0] === text) {
      asideNode.textContent = aside;
      return;
    }
    if (text === null) return line.replaceChildren();
    line.replaceChildren(
      el("span", {}, text),
      aside ? el("span", { "aria-hidden": "true" }, aside) : "",
      ...actions.map(([label, onclick]) => el("button", { type: "button", class: "button small", onclick }, label)));
    if (hadFocus) line.querySelector("button")?.focus();
  }
}

/**
 * Says what will free space next.
 * @param {import("reseed-protocol").ContextInfo | undefined} info
 */
function nextStep(info) {
  if (info?.compactAtTokens === undefined) return "Compact it to make room.";
  if (info.tokenCount > info.compactAtTokens) return "The older part is summarised before the next answer.";
  return `Above ${Math.round((info.compactAtTokens / Math.max(1, info.maxTokens)) * 100)} % the older part is summarised.`;
}
