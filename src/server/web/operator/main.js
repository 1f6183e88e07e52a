/**
 * The operator's page: who is signed in, which view is shown, and when the server is asked again.
 *
 * @typedef {object} View
 * @property {HTMLElement} node
 * @property {() => void} update is called after each poll
 * @property {() => void} [close] is called when another view is shown
 */

import { byId, el } from "../dom.js";
import { Api, Refused } from "./api.js";
import { costOf } from "./format.js";
import { SessionStore } from "./session-store.js";
import { SessionsView } from "./sessions-view.js";

/** Milliseconds between questions for what was spent today. */
const TODAY_MS = 30_000;
/** Milliseconds, at least, until the server is asked again after a failure. */
const RETRY_MS = 5_000;

export class App {
  constructor() {
    this.main = byId("main", HTMLElement);
    this.live = byId("live", HTMLElement);
    this.api = new Api(() => this.askForToken());
    this.store = new SessionStore((parameters) => this.api.get("api/sessions", parameters));
    /** What requests have cost since midnight UTC, in nanodollars; null if unknown. */
    /** @type {number | null} */
    this.today = null;
    this.todayAt = -Infinity;
    /** @type {View | null} */
    this.view = null;
    /** The address whose view is shown, or is being loaded. */
    this.shown = "";
    /** @type {Map<string, number>} how far each address was scrolled */
    this.scrolled = new Map();
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.isPolling = false;
    this.isSignedIn = false;
    addEventListener("hashchange", () => void this.route());
    document.addEventListener("visibilitychange", () => this.wake());
    byId("theme", HTMLElement).addEventListener("click", switchTheme);
    byId("skip", HTMLElement).addEventListener("click", (event) => (event.preventDefault(), this.main.focus()));
    byId("sign-out", HTMLElement).addEventListener("click", () => location.reload());
  }

  /**
   * Says why something cannot be done with this token, or returns an empty text.
   * @param {"write" | "content"} right
   */
  lacks(right) {
    const { operator } = this.store;
    if (right === "write" && operator?.writes === false) return "This token may only read. It needs the right operator.write (in OPERATOR_TOKENS: name/write:token).";
    if (right === "content" && operator?.readsContent === false) return "This token may not read what was said. It needs the right operator.content.";
    return "";
  }

  /**
   * Confirms a lever and pulls it.
   * @param {import("./levers.js").Lever} lever
   */
  async pull(lever) {
    const { pull } = await import("./levers.js");
    const isDone = await pull(this, lever);
    if (isDone) this.wake();
    return isDone;
  }

  /** Asks the server now, and again later. */
  wake() {
    clearTimeout(this.timer);
    if (document.hidden) this.say("paused", "Paused");
    else void this.poll();
  }

  async poll() {
    if (this.isPolling) return;
    this.isPolling = true;
    let pause = Math.max(this.store.intervalMs, RETRY_MS);
    try {
      await this.store.poll();
      if (performance.now() - this.todayAt > TODAY_MS) await this.readToday();
      if (!this.isSignedIn) this.open();
      this.view?.update();
      pause = this.store.isComplete ? this.store.intervalMs : 0;
      this.say("on", `Live, every ${Math.round(this.store.intervalMs / 1000)} s`);
    } catch (error) {
      // It waits for a token, unless another one was given meanwhile.
      if (error instanceof Refused && error.status === 401) pause = this.api.token === null ? Infinity : 0;
      else this.say("off", error instanceof Refused ? error.message : "This page has failed. It tries again.");
      if (!(error instanceof Refused)) throw error;
    } finally {
      this.isPolling = false;
      if (!document.hidden && pause < Infinity) this.timer = setTimeout(() => void this.poll(), pause);
    }
  }

  /**
   * @param {string} state
   * @param {string} text
   */
  say(state, text) {
    this.live.dataset.state = state;
    // How often it asks is not worth an interruption; that it cannot is.
    this.live.setAttribute("aria-live", state === "off" ? "polite" : "off");
    if (this.live.textContent !== text) this.live.textContent = text;
  }

  async readToday() {
    this.todayAt = performance.now();
    try {
      const { items } = await this.api.get("api/usage", { by: "total", from: new Date().toISOString().slice(0, 10) });
      this.today = costOf(items[0] ?? {});
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      this.today = null;
    }
  }

  open() {
    this.isSignedIn = true;
    byId("tabs", HTMLElement).hidden = false;
    byId("sign-out", HTMLElement).hidden = this.api.token === null;
    void this.route();
  }

  /** Shows the view that the address names. */
  async route() {
    if (!this.isSignedIn) return;
    const [, name = "", value = ""] = /^#(\w+)(?:=(.*))?$/.exec(location.hash || "#sessions") ?? [];
    const wanted = location.hash;
    if (this.view) this.scrolled.set(this.shown, this.main.scrollTop);
    this.shown = wanted;
    for (const tab of byId("tabs", HTMLElement).querySelectorAll("a")) {
      const isCurrent = tab.hash === `#${name}` || tab.hash === `#${name}s`;
      if (isCurrent) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    }
    const view = await this.load(name, value);
    // Another address was chosen meanwhile.
    if (this.shown !== wanted) return view?.close?.();
    this.view?.close?.();
    this.view = view;
    this.main.replaceChildren(view.node);
    document.title = `reseed · ${view.node.getAttribute("aria-label")}`;
    view.update();
    this.main.scrollTop = this.scrolled.get(wanted) ?? 0;
    this.main.focus({ preventScroll: true });
  }

  /**
   * @param {string} name
   * @param {string} value
   * @returns {Promise<View>}
   */
  async load(name, value) {
    try {
      const of = decodeURIComponent(value);
      switch (name) {
        case "session": return new (await import("./session-view.js")).SessionView(this, of);
        case "usage": return new (await import("./usage-view.js")).UsageView(this);
        case "users": return new (await import("./users-view.js")).UsersView(this, null);
        case "user": return new (await import("./users-view.js")).UsersView(this, of);
        case "servers": return new (await import("./servers-view.js")).ServersView(this);
        default: return new SessionsView(this, of || undefined);
      }
    } catch {
      const node = el("section", { class: "view", "aria-label": "Not loaded" }, el("p", { class: "said wrong", role: "alert" }, "This part of the page could not be loaded. Reload the page; you will need your token again."));
      return { node, update: () => undefined };
    }
  }

  /** Asks for a token. What was shown goes, because it belongs to another one. */
  askForToken() {
    const wasRefused = this.api.token !== null;
    clearTimeout(this.timer);
    this.view?.close?.();
    this.view = null;
    this.isSignedIn = false;
    this.api.token = null;
    this.store = new SessionStore((parameters) => this.api.get("api/sessions", parameters));
    byId("tabs", HTMLElement).hidden = true;
    byId("sign-out", HTMLElement).hidden = true;
    this.say("off", "");
    const refused = wasRefused && el("p", { class: "said wrong", role: "alert", id: "refused" },
      "This is not an operator’s token. It may be wrong or expired, or belong to a user: use one from OPERATOR_TOKENS, or a signed token with the scope “operator”.");
    const field = el("input", { class: "field", id: "token", type: "password", required: true, autocomplete: "off", spellcheck: "false", "aria-describedby": wasRefused ? "refused" : null, "aria-invalid": wasRefused ? "true" : null });
    const form = el("form", { class: "sign-in", "aria-label": "Sign in" },
      el("h1", {}, "Sign in"), el("label", { for: "token" }, "Operator token"), field, refused,
      el("p", { class: "hint" }, "It stays in the memory of this tab: a reload forgets it."),
      el("button", { type: "submit", class: "button primary wide" }, "Sign in"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.api.token = field.value.trim();
      field.value = "";
      this.wake();
    });
    this.main.replaceChildren(form);
    field.focus();
  }
}

function switchTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  try {
    localStorage.setItem("reseed.theme", root.dataset.theme);
  } catch {
    // Storage is disabled: the choice holds until the page is closed.
  }
}

new App().wake();
