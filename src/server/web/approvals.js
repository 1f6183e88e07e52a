/**
 * Approval cards: they ask a person before a tool runs.
 *
 * Invariants:
 * - everything the model wrote is shown as text, with invisible characters written out;
 * - a key pressed while writing never allows anything: the answer keys need Alt, and Enter and Space only press the
 *   focused button;
 * - a card is answered once; while its answer is in flight, it accepts no other.
 *
 * @typedef {import("reseed-protocol").Approval} Approval
 * @typedef {import("reseed-protocol").ApprovalOption} Option
 */

import { clock, el } from "./dom.js";
import { indented, visible } from "./visible.js";

/** Maximum length of the message to the model, in characters; the field enforces it. */
const MESSAGE_CHARS_MAX = 2000;

/** Matches arguments that consist of a single text. */
const ONE_TEXT = /^\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*"(?:[^"\\]|\\.)*"\s*\}\s*$/;

/**
 * The answers, in display order.
 *
 * @type {{ option: Option, label: string, does: string, key: string, kind: string }[]}
 */
export const ANSWERS = [
  { option: "allow_once", label: "Allow once", does: "Run this call", key: "Y", kind: "primary" },
  { option: "allow_always", label: "Allow always", does: "Run this call, and in this chat every later one that is exactly the same", key: "A", kind: "" },
  { option: "reject_once", label: "Reject", does: "Do not run this call; the model reads your message", key: "N", kind: "" },
  { option: "reject_always", label: "Reject always", does: "Do not run this call, nor in this chat any later one that is exactly the same", key: "R", kind: "" },
];

export class ApprovalCard {
  /**
   * @param {import("./app.js").App} app
   * @param {Approval} approval
   * @param {() => void} onType called when a printable key is pressed on the card, which belongs in the message field
   */
  constructor(app, approval, onType) {
    this.app = app;
    this.approval = approval;
    this.onType = onType;
    const { approvalId, name } = approval;
    const title = `approval-${approvalId}`;
    this.said = el("p", { class: "said wrong", role: "alert", hidden: true });
    this.message = el("input", {
      class: "field", type: "text", maxlength: MESSAGE_CHARS_MAX, autocomplete: "off",
      "aria-label": "Message for the model if you reject", placeholder: "If you reject: why, for the model (optional)",
    });
    const offered = ANSWERS.filter(({ option }) => approval.options.includes(option));
    this.buttons = offered.map(({ option, label, does, key, kind }) =>
      el("button", { type: "button", class: `button ${kind}`, title: `${does} (Alt+${key})`, "aria-keyshortcuts": `Alt+${key}`, onclick: () => void this.answer(option) }, label));
    const may = !app.readOnly;
    this.node = el("li", { class: "approval", tabindex: -1, "aria-labelledby": title, "data-approval": approvalId },
      el("h2", { id: title }, "Allow the tool ", el("code", {}, visible(name)), "?"),
      el("p", { class: "why" }, visible(approval.reason).replace(/`([^`]+)`/g, "“$1”"), approval.place === "server" ? " It would run on the server." : " It would run in a program that is connected to this chat."),
      ...exactCall(approval),
      el("p", { class: "why" }, `Without an answer until ${until(approval.expiresAt)} it is not run.`),
      ...(may ? [
        el("div", { class: "answers" }, ...this.buttons),
        this.message, this.said,
        el("p", { class: "keys" }, "“Always” means: in this chat, and for exactly this call. ",
          el("span", { class: "by-key" }, "Keys, while this card has the focus: ", offered.map(({ key, label }, index) => [index > 0 ? ", " : "", el("kbd", {}, `Alt+${key}`), ` ${label.toLowerCase()}`]).flat())),
      ] : [el("p", { class: "why" }, "Somebody who may write in this chat has to decide.")]));
    if (may) this.node.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.isComposing || event.ctrlKey || event.metaKey) return;
    if (event.altKey) {
      // On some keyboards Alt produces another letter, so compare the key's position.
      const pressed = ANSWERS.find(({ key, option }) => event.code === `Key${key}` && this.approval.options.includes(option));
      if (!pressed || event.repeat) return;
      event.preventDefault();
      void this.answer(pressed.option);
    } else if (event.key === "Enter" && event.target === this.message) {
      event.preventDefault();
      if (this.message.value.trim() !== "") void this.answer("reject_once");
    } else if (event.target === this.node && event.key.length === 1) {
      // A user who simply keeps typing has not noticed that the card took the focus.
      this.onType();
    }
  }

  /** @param {Option} option */
  async answer(option) {
    if (this.node.ariaBusy === "true") return;
    this.wait(true);
    this.said.hidden = true;
    const message = option.startsWith("reject") ? this.message.value.trim() : "";
    const refused = await this.app.approvals.answer(this.approval, option, message);
    if (refused === null) return;
    this.wait(false);
    this.said.textContent = refused;
    this.said.hidden = refused === "";
  }

  /** @param {boolean} busy */
  wait(busy) {
    this.node.ariaBusy = String(busy);
    // Keep the focus in place: a button that gets disabled would lose it.
    for (const button of this.buttons) button.setAttribute("aria-disabled", String(busy));
    this.message.readOnly = busy;
  }
}

/**
 * Renders exactly what would be called.
 * @param {Approval} approval
 */
function exactCall({ display, proposedArguments }) {
  const box = (/** @type {string} */ label, /** @type {(Node | string)[]} */ content) =>
    el("pre", { class: "plain exact", tabindex: 0, role: "region", "aria-label": label }, ...content);
  const texts = textsInLines(display);
  const whole = box("All arguments", [indented(display)]);
  return [
    ...texts.map((text) => box("A text among the arguments", inLines(visible(text.trimEnd())))),
    // Other arguments must be visible without unfolding; only a single text already shows everything.
    texts.length > 0 && ONE_TEXT.test(display) ? el("details", { class: "details" }, el("summary", {}, "All arguments"), whole) : whole,
    proposedArguments !== undefined && el("details", { class: "details" },
      el("summary", {}, "An extension has changed what the model wrote"), box("What the model wrote", [indented(proposedArguments)])),
  ].filter((part) => part instanceof HTMLElement);
}

/**
 * Returns the multi-line texts among a call's arguments, such as a patch, a script or a file. JSON writes each in one
 * line.
 * @param {string} text JSON
 */
function textsInLines(text) {
  /** @type {string[]} */
  const found = [];
  const collect = (/** @type {unknown} */ value) => {
    if (typeof value === "string" && value.includes("\n")) found.push(value);
    else if (typeof value === "object" && value !== null) Object.values(value).forEach(collect);
  };
  try {
    collect(JSON.parse(text));
  } catch {
    // Invalid JSON is shown as it is.
  }
  return found;
}

/** @param {string} text */
function inLines(text) {
  return text.startsWith("*** Begin Patch") ? text.split("\n").map(patchLine) : [text];
}

/** @param {string} line */
function patchLine(line) {
  const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : null;
  return el("span", { class: kind }, `${line}\n`);
}

/** @param {string} time RFC 3339 */
function until(time) {
  const date = new Date(time);
  const isToday = date.toDateString() === new Date().toDateString();
  return isToday ? clock(time) : date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}
