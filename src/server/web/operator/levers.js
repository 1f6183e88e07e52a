/**
 * Pulls levers: says what one does, pulls it when that is confirmed, and shows the result.
 *
 * @typedef {object} Lever
 * @property {string} title
 * @property {string} says what it does, and what cannot be undone
 * @property {string} action the label of the button that pulls it
 * @property {"POST" | "DELETE"} method
 * @property {string} path
 * @property {object} [body]
 * @property {{ label: string, name: string, must?: string }} [field] a text to send, or `must` be typed to confirm
 * @property {boolean} [isDanger]
 */

import { ask, closer, make } from "../dialogs.js";
import { el } from "../dom.js";
import { Refused, newKey } from "./api.js";
import { money } from "./format.js";

/**
 * @param {import("./main.js").App} app
 * @param {Lever} lever
 * @returns {Promise<boolean>} whether it was done
 */
export async function pull(app, { title, says, action, method, path, body, field, isDanger }) {
  // One key for all attempts: if only the answer was lost, the next attempt gets it, and nothing happens twice.
  const key = newKey();
  let isDone = false;
  const input = field && el("input", { class: "field", id: "lever-field", name: field.name, autocomplete: "off" });
  const check = () => input?.setCustomValidity(field?.must === undefined || input.value.trim() === field.must ? "" : `Type ${field.must} to confirm.`);
  input?.addEventListener("input", check);
  check();
  const said = el("div", { class: "result", role: "status" });
  const go = el("button", { type: "submit", class: `button ${isDanger ? "danger" : "primary"}`, autofocus: !field }, action);
  const form = el("form", {}, input && el("label", { for: "lever-field" }, field.label), input, said);
  /** @type {HTMLDialogElement} */
  const dialog = make(title, [el("p", {}, says), form], [], "lever");
  const close = closer(() => dialog, "Cancel");
  form.append(el("div", { class: "actions" }, close, go));
  // While a request runs the dialog stays: the key and the answer would be lost.
  const working = (/** @type {boolean} */ isWorking) => {
    go.disabled = close.disabled = isWorking;
    // A browser that knows this ignores a second press of Escape too, which `cancel` cannot prevent.
    dialog.setAttribute("closedby", isWorking ? "none" : "closerequest");
  };
  dialog.addEventListener("cancel", (event) => close.disabled && event.preventDefault());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = input && field.must === undefined ? input.value.trim() : "";
    // The key stands for this text.
    if (input) input.readOnly = true;
    working(true);
    said.replaceChildren(el("p", { class: "said" }, "Working…"));
    try {
      const answer = await app.api.act(method, path, text ? { ...body, [field?.name ?? ""]: text } : body, key);
      isDone = true;
      const facts = factsOf(answer).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value.length > LINE_CHARS ? el("pre", { tabindex: 0 }, value) : value)));
      said.replaceChildren(el("p", { class: "said done" }, "Done."), el("dl", { class: "facts" }, facts));
      go.remove();
      close.textContent = "Close";
      working(false);
      close.focus();
    } catch (error) {
      working(false);
      if (!(error instanceof Refused)) throw error;
      const isFinal = error.status >= 400 && error.status < 500 && error.status !== 429;
      const again = isFinal ? "" : " Trying again is safe: it acts once.";
      said.replaceChildren(el("p", { class: "said wrong", role: "alert" }, `${error.message}${again}`));
      go.disabled = isFinal;
      if (!isFinal) go.textContent = "Try again";
    }
  });
  await ask(dialog);
  return isDone;
}

/** Characters of a value that is shown in its line; a longer text gets its own block. */
const LINE_CHARS = 80;

/**
 * Flattens an answer into names and values.
 * @param {unknown} answer
 * @param {string} [prefix]
 * @returns {[string, string][]}
 */
export function factsOf(answer, prefix = "") {
  if (answer === null || typeof answer !== "object") return answer === "" || answer === undefined ? [] : [[prefix || "answer", String(answer)]];
  return Object.entries(answer).flatMap(([name, value]) => {
    const words = `${prefix ? `${prefix}, ` : ""}${name.replace(/([A-Z])/g, (letter) => ` ${letter.toLowerCase()}`)}`;
    if (/nanoUsd$/i.test(name) && typeof value === "number") return [[words.replace(/ ?nano usd$/i, ""), money(value)]];
    if (typeof value === "number") return [[words, value.toLocaleString("en")]];
    if (Array.isArray(value)) return value.length === 0 ? [] : [[words, value.map((one) => (one !== null && typeof one === "object" ? Object.values(one).join(": ") : String(one))).join(", ")]];
    return factsOf(value, words);
  });
}
