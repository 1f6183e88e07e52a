/**
 * The developers' drawer: the live frames of the displayed chat, filtered, each to be copied as TypeScript or for
 * wscat.
 *
 * @typedef {import("./wire-log.js").Logged} Logged
 * @typedef {object} Frame
 * @property {string} type
 * @property {string} [re] the command that it replies to
 * @property {string} [sessionId]
 * @property {number} [seq]
 * @property {Record<string, unknown>} [payload]
 */

import { el, iconButton, number } from "./dom.js";
import { wireLog } from "./wire-log.js";

/** Rows drawn, the newest ones. */
const ROWS_MAX = 100;
/** Characters of a frame that are drawn. All of it can be copied. */
const TEXT_CHARS_MAX = 100_000;
/** Milliseconds for which the button confirms a copy. */
const COPIED_MS = 1500;

export class WireView {
  /**
   * @param {import("./app.js").App} app
   * @param {() => void} onClose
   */
  constructor(app, onClose) {
    this.app = app;
    this.onClose = onClose;
    /** The newest frame that was looked at. */
    this.last = 0;
    /** @type {string | null} the chat whose frames are shown */
    this.sessionId = null;
    this.waits = false;
    this.filter = el("input", { type: "search", class: "field", placeholder: "Type or text", "aria-label": "Filter frames", autocomplete: "off", spellcheck: "false" });
    this.progress = el("input", { type: "checkbox" });
    this.paused = el("input", { type: "checkbox" });
    this.list = el("ol", { class: "frames", "aria-label": "Frames, newest last", tabindex: 0 });
    this.title = el("h2", { tabindex: -1, id: "wire-title" }, "Frames of this chat");
    this.node = el("section", { class: "wire", "aria-labelledby": "wire-title", hidden: true },
      el("div", { class: "wire-head" }, this.title, this.filter,
        el("label", { class: "check" }, this.progress, el("span", {}, "Deltas")),
        el("label", { class: "check" }, this.paused, el("span", {}, "Pause")),
        iconButton("close", "Close the frames", () => this.close())),
      this.list);
    for (const field of [this.filter, this.progress]) field.addEventListener("input", () => this.redraw());
    this.paused.addEventListener("input", () => this.draw());
    this.node.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.target === this.filter) return;
      event.preventDefault();
      this.close();
    });
  }

  show() {
    this.node.hidden = false;
    this.redraw();
    this.title.focus();
    wireLog.onAdd = () => this.later();
  }

  close() {
    wireLog.onAdd = null;
    this.node.hidden = true;
    this.list.replaceChildren();
    this.onClose();
  }

  /** Follows to another chat. */
  render() {
    if (!this.node.hidden && this.app.target !== this.sessionId) this.redraw();
  }

  /** Draws at most once a frame of the screen. */
  later() {
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => {
      this.waits = false;
      this.draw();
    });
  }

  redraw() {
    this.sessionId = this.app.target;
    this.last = 0;
    this.list.replaceChildren();
    this.draw();
    if (this.list.childElementCount === 0) this.list.append(el("li", { class: "hint" }, "No frames yet."));
  }

  draw() {
    if (this.node.hidden || (this.paused.checked && this.last > 0)) return;
    const fresh = wireLog.frames.filter(({ number: at }) => at > this.last).flatMap((logged) => this.shown(logged)).slice(-ROWS_MAX);
    this.last = wireLog.count;
    if (fresh.length === 0) return;
    this.list.querySelector(".hint")?.remove();
    const { scrollHeight, scrollTop, clientHeight } = this.list;
    const isEnd = scrollHeight - scrollTop - clientHeight < 30;
    this.list.append(...fresh.map(([logged, frame]) => row(logged, frame)));
    while (this.list.childElementCount > ROWS_MAX) this.list.firstElementChild?.remove();
    if (isEnd) this.list.scrollTop = this.list.scrollHeight;
  }

  /**
   * @param {Logged} logged
   * @returns {[Logged, Frame][]} empty if it is not of this chat, or filtered out
   */
  shown(logged) {
    /** @type {Frame} */
    const frame = JSON.parse(logged.text);
    const wanted = this.filter.value.trim().toLowerCase();
    const isShown = frame.sessionId === this.sessionId && (this.progress.checked || !logged.isProgress) && (wanted === "" || logged.text.toLowerCase().includes(wanted));
    return isShown ? [[logged, frame]] : [];
  }
}

/**
 * @param {Logged} logged
 * @param {Frame} frame
 */
function row({ at, isSent, text }, frame) {
  const kind = isSent ? "command" : frame.re !== undefined ? "reply" : "event";
  const inside = el("div", { class: "inside" });
  const details = el("details", {},
    el("summary", {},
      el("span", { class: "way", "aria-hidden": "true" }, isSent ? "→" : "←"), el("span", { class: "visually-hidden" }, `${kind}: `),
      el("code", {}, frame.type), frame.seq !== undefined && el("span", {}, `seq ${frame.seq}`),
      el("span", { class: "size" }, `${number(text.length)} B`), el("time", {}, new Date(at).toLocaleTimeString())),
    inside);
  details.addEventListener("toggle", () => {
    if (!details.open || inside.childNodes.length > 0) return;
    const whole = JSON.stringify(frame, null, 2);
    const code = kind === "command" ? commandCode(frame) : kind === "event" ? eventCode(frame) : null;
    inside.append(
      el("div", { class: "actions" },
        code !== null && copier("Copy as TypeScript", code), kind === "command" && copier("Copy as wscat", wscat(frame)), copier("Copy JSON", () => whole)),
      el("pre", { class: "plain", tabindex: 0 }, whole.slice(0, TEXT_CHARS_MAX)));
  });
  return el("li", { class: kind }, details);
}

/**
 * @param {string} label
 * @param {() => string} text
 */
function copier(label, text) {
  const button = el("button", { type: "button", class: "button small", onclick: async () => {
    await navigator.clipboard.writeText(text());
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), COPIED_MS);
  } }, label);
  button.hidden = !navigator.clipboard;
  return button;
}

/** Returns the address of the server. */
function address() {
  const url = new URL("ws", location.href);
  url.protocol = url.protocol.replace("http", "ws");
  return url.href.replace(/[?#].*$/, "");
}

/**
 * Writes a command for the TypeScript client.
 * @param {Frame} frame
 */
function commandCode({ type, sessionId, payload = {} }) {
  const to = sessionId === undefined ? "" : `, { session: ${JSON.stringify(sessionId)} }`;
  return () => `import { connect } from "reseed-client";

const client = connect(${JSON.stringify(address())});
${sessionId === undefined ? "" : `await client.session(${JSON.stringify(sessionId)}).opened();\n`}const reply = await client.request(${JSON.stringify(type)}, ${JSON.stringify(payload, null, 2)}${to});
console.log(reply);
`;
}

/**
 * Writes an event as a typed value, for a test.
 * @param {Frame} frame
 */
function eventCode(frame) {
  return () => `import type { EventFrame } from "reseed-client";

const event: EventFrame = ${JSON.stringify(frame, null, 2)};
`;
}

/**
 * Writes the lines to type into wscat. Each command gets an id of its own: the server executes an id once.
 * @param {Frame} frame
 */
function wscat({ type, sessionId, payload = {} }) {
  return () => {
    const id = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
    const lines = [
      { id: id(), type: "hello", payload: { protocolVersion: 2 } },
      ...(sessionId === undefined || type === "open_session" ? [] : [{ id: id(), sessionId, type: "open_session", payload: {} }]),
      { id: id(), ...(sessionId === undefined ? {} : { sessionId }), type, payload },
    ];
    return `wscat -c ${address()} -s reseed.v2\n${lines.map((line) => JSON.stringify(line)).join("\n")}\n`;
  };
}
