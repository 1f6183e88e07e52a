/** Questions and longer texts over the page. Each dialog is made when it is needed and goes when it is closed. */

import { COMMANDS } from "./commands.js";
import { el } from "./dom.js";

/**
 * Shows a dialog and waits for its end.
 * @param {HTMLDialogElement} dialog
 * @returns {Promise<string>} its return value; empty when it was dismissed
 */
function ask(dialog) {
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
  });
}

/**
 * @param {string} title
 * @param {Node[]} content
 * @param {Node[]} actions
 * @param {string} [size]
 */
function make(title, content, actions, size = "") {
  const heading = el("h2", { id: "dialog-title" }, title);
  const foot = actions.length > 0 && el("div", { class: "actions" }, ...actions);
  return el("dialog", { class: size, "aria-labelledby": "dialog-title" }, heading, ...content, foot);
}

/**
 * @param {() => HTMLDialogElement} dialog
 * @param {string} label
 * @param {string} [value]
 * @param {string} [kind]
 */
function closer(dialog, label, value = "", kind = "") {
  return el("button", { type: "button", class: `button ${kind}`, onclick: () => dialog().close(value) }, label);
}

/**
 * @param {string} title
 * @param {string} text
 * @param {string} action what the dangerous button says
 */
export async function confirm(title, text, action) {
  /** @type {HTMLDialogElement} */
  const dialog = make(title, [el("p", {}, text)], [closer(() => dialog, "Cancel"), closer(() => dialog, action, "yes", "danger")]);
  return (await ask(dialog)) === "yes";
}

/**
 * Asks for a line of text.
 * @param {{ title: string, text?: string, label: string, action: string, value?: string, secret?: boolean, charsMax?: number }} options
 * @returns {Promise<string | null>} null when it was dismissed or left empty
 */
export async function prompt({ title, text, label, action, value = "", secret = false, charsMax }) {
  const input = el("input", { class: "field", id: "dialog-input", type: secret ? "password" : "text", maxlength: charsMax, autocomplete: "off", autofocus: true });
  input.value = value;
  const submit = el("button", { type: "submit", class: "button primary" }, action);
  const form = el("form", {}, el("label", { for: "dialog-input" }, label), input);
  /** @type {HTMLDialogElement} */
  const dialog = make(title, [...(text ? [el("p", {}, text)] : []), form], []);
  form.append(el("div", { class: "actions" }, closer(() => dialog, "Cancel"), submit));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close("yes");
  });
  const shown = ask(dialog);
  input.select();
  return (await shown) === "yes" ? input.value.trim() || null : null;
}

/**
 * Shows a long text as it is.
 * @param {string} title
 * @param {string} text
 */
export async function showText(title, text) {
  /** @type {HTMLDialogElement} */
  const dialog = make(title, [el("pre", { tabindex: 0 }, text)], [closer(() => dialog, "Close")], "large");
  await ask(dialog);
}

export async function help() {
  const commands = el("dl", {}, ...COMMANDS.flatMap(({ usage, does }) => [el("dt", {}, usage), el("dd", {}, does)]));
  const keys = [["Enter", "send"], ["Shift", "with Enter: a new line"], ["Esc", "stop the answer"], ["/", "go to the message field"]];
  const list = el("dl", {}, ...keys.flatMap(([key, does]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, does)]));
  /** @type {HTMLDialogElement} */
  const dialog = make("Commands and keys", [commands, el("hr"), list], [closer(() => dialog, "Close")]);
  // The list is read from its beginning: the button at its end would take the focus, and the view with it.
  dialog.querySelector("h2")?.setAttribute("tabindex", "-1");
  dialog.querySelector("h2")?.setAttribute("autofocus", "");
  await ask(dialog);
}
