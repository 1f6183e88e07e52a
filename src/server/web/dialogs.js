/** Modal dialogs. Each is built when it is needed and removed when it closes. */

import { COMMANDS } from "./commands.js";
import { SEARCH_KEYS, el, number } from "./dom.js";

/** Maximum length of a name in the protocol, in characters. */
export const NAME_CHARS_MAX = 200;

/** Maximum size of summary instructions that the server accepts, in bytes of UTF-8. */
const INSTRUCTIONS_BYTES_MAX = 16_384;

/**
 * Returns what is wrong with summary instructions, or an empty string. Instructions are never truncated.
 * @param {string} text
 */
export function instructionsFault(text) {
  const bytes = new TextEncoder().encode(text.trim()).length;
  const over = bytes - INSTRUCTIONS_BYTES_MAX;
  if (over <= 0) return "";
  // A character takes one or more bytes, so how many characters are too many depends on the text.
  const letters = Math.ceil((over * text.trim().length) / bytes);
  return `These instructions are too long by about ${letters === 1 ? "one character" : `${number(letters)} characters`}. Shorten them and try again.`;
}

/**
 * Validates an instructions field against the server's limit: shows the error below the field and blocks its form
 * meanwhile.
 * @param {HTMLInputElement | HTMLTextAreaElement} field
 */
export function instructionsField(field) {
  const said = el("p", { class: "said wrong", role: "status", hidden: true });
  const look = () => {
    const fault = field.hidden ? "" : instructionsFault(field.value);
    field.setCustomValidity(fault);
    said.textContent = fault;
    said.hidden = fault === "";
  };
  field.addEventListener("input", look);
  return { said, look };
}

/**
 * Shows a dialog and waits until it closes.
 * @param {HTMLDialogElement} dialog
 * @returns {Promise<string>} its return value; empty if it was dismissed
 */
export function ask(dialog) {
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
export function make(title, content, actions, size = "") {
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
export function closer(dialog, label, value = "", kind = "") {
  return el("button", { type: "button", class: `button ${kind}`, onclick: () => dialog().close(value) }, label);
}

/**
 * @param {string} title
 * @param {string} text
 * @param {string} action label of the destructive button
 */
export async function confirm(title, text, action) {
  /** @type {HTMLDialogElement} */
  const dialog = make(title, [el("p", {}, text)], [closer(() => dialog, "Cancel"), closer(() => dialog, action, "yes", "danger")]);
  return (await ask(dialog)) === "yes";
}

/**
 * Asks for a line of text.
 * @param {{
 *   title: string, text?: string, label: string, action: string, value?: string, secret?: boolean, charsMax?: number,
 *   instructs?: boolean, mayBeEmpty?: boolean,
 * }} options
 * @returns {Promise<string | null>} null if it was dismissed, or left empty although it may not be
 */
export async function prompt({ title, text, label, action, value = "", secret = false, charsMax, instructs = false, mayBeEmpty = false }) {
  const input = el("input", { class: "field", id: "dialog-input", type: secret ? "password" : "text", maxlength: charsMax, autocomplete: "off", autofocus: true });
  input.value = value;
  const submit = el("button", { type: "submit", class: "button primary" }, action);
  const form = el("form", {}, el("label", { for: "dialog-input" }, label), input, instructs && instructionsField(input).said);
  /** @type {HTMLDialogElement} */
  const dialog = make(title, [...(text ? [el("p", {}, text)] : []), form], []);
  form.append(el("div", { class: "actions" }, closer(() => dialog, "Cancel"), submit));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close("yes");
  });
  const shown = ask(dialog);
  input.select();
  if ((await shown) !== "yes") return null;
  return input.value.trim() || (mayBeEmpty ? "" : null);
}

/**
 * Builds the option to summarise the abandoned branch, with instructions for the summary.
 * @param {string} what label that says what is summarised
 */
export function summaryChoice(what) {
  const box = el("input", { type: "checkbox", name: "summarize" });
  const about = el("input", { class: "field", type: "text", placeholder: "What should the summary focus on? (optional)", "aria-label": "What the summary should focus on", hidden: true, autocomplete: "off" });
  const { said, look } = instructionsField(about);
  box.addEventListener("change", () => {
    about.hidden = !box.checked;
    look();
    if (box.checked) about.focus();
  });
  const node = el("div", { class: "summary-choice" }, el("label", { class: "check" }, box, el("span", {}, what)), about, said);
  /** @returns {import("./moves.js").Leaving} */
  const chosen = () => (box.checked ? { summarize: true, ...(about.value.trim() ? { instructions: about.value.trim() } : {}) } : {});
  return { node, chosen };
}

/**
 * Asks how to go to another place.
 * @template {string} T
 * @param {object} options
 * @param {string} options.title
 * @param {string[]} options.text
 * @param {{ value: T, name: string }[]} [options.places] the exact destinations to choose from
 * @param {boolean} options.leaves whether this abandons a branch that could be summarised
 * @param {string} options.action
 * @returns {Promise<{ place: T | undefined, leaving: import("./moves.js").Leaving } | null>} null if it was dismissed
 */
export async function askToGo({ title, text, places = [], leaves, action }) {
  const choice = leaves ? summaryChoice("Bring a summary of what is left along") : null;
  const radios = places.map(({ value, name }, index) => {
    const radio = el("input", { type: "radio", name: "place", value, checked: index === 0 });
    return { value, radio, node: el("label", { class: "check" }, radio, el("span", {}, name)) };
  });
  const group = radios.length > 1 && el("fieldset", {}, el("legend", { class: "visually-hidden" }, "Where"), ...radios.map(({ node }) => node));
  const submit = el("button", { type: "submit", class: "button primary", autofocus: true }, action);
  const form = el("form", {}, group, choice?.node);
  /** @type {HTMLDialogElement} */
  const dialog = make(title, [...text.map((line) => el("p", {}, line)), form], []);
  form.append(el("div", { class: "actions" }, closer(() => dialog, "Cancel"), submit));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close("yes");
  });
  if ((await ask(dialog)) !== "yes") return null;
  return { place: (radios.find(({ radio }) => radio.checked) ?? radios[0])?.value, leaving: choice?.chosen() ?? {} };
}

export async function help() {
  const commands = el("dl", {}, ...COMMANDS.flatMap(({ usage, does }) => [el("dt", {}, usage), el("dd", {}, does)]));
  const keys = [["Enter", "send"], ["Shift", "with Enter: a new line"], ["Alt", "with Enter: add to the answer that is being written"], ["↑", "in the empty message field: edit your last message"], ["Esc", "stop the answer"], ["Alt", "with Y, A, N or R: answer the card of a tool that has the focus"], ["/", "go to the message field"], ["?", "show these keys"], [SEARCH_KEYS, "search what was said"]];
  const list = el("dl", {}, ...keys.flatMap(([key, does]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, does)]));
  /** @type {HTMLDialogElement} */
  const dialog = make("Commands and keys", [commands, el("hr"), list], [closer(() => dialog, "Close")]);
  // The list is read from its start. Focusing the button at its end would scroll the view there.
  dialog.querySelector("h2")?.setAttribute("tabindex", "-1");
  dialog.querySelector("h2")?.setAttribute("autofocus", "");
  await ask(dialog);
}
