/** The dialog that saves a chat as a file, or prints it. */

import { closer, make } from "./dialogs.js";
import { el, number } from "./dom.js";
import { explainError } from "./errors.js";
import { entriesOf, fileName, jsonOf, markdownOf } from "./export.js";

/** Milliseconds after which the browser has certainly taken the file. */
const TAKEN_MS = 60_000;

/**
 * @param {string} name
 * @param {{ value: string, label: string }[]} choices the first is chosen
 */
function radios(name, choices) {
  return choices.map(({ value, label }, index) =>
    el("label", { class: "check" }, el("input", { type: "radio", name, value, checked: index === 0 }), el("span", {}, label)));
}

/**
 * @param {import("./app.js").App} app
 * @param {() => void} onPrint prints the chat, once the dialog is closed
 */
export function showExport(app, onPrint) {
  const { snapshot } = app;
  if (!snapshot) return;
  const said = el("p", { class: "said", role: "status" });
  const save = el("button", { type: "submit", class: "button primary" }, "Save");
  const print = el("button", { type: "button", class: "button", onclick: () => (dialog.close(), onPrint()) }, "Print…");
  const form = el("form", {},
    el("fieldset", {}, el("legend", {}, "What"), radios("scope", [{ value: "branch", label: "This branch" }, { value: "all", label: "All branches (JSON only)" }])),
    el("fieldset", {}, el("legend", {}, "As"), radios("format", [{ value: "markdown", label: "Markdown, to read" }, { value: "json", label: "JSON, with everything that is stored" }])),
    said);
  /** @type {HTMLDialogElement} */
  const dialog = make("Export this chat", [form], []);
  form.append(el("div", { class: "actions" }, closer(() => dialog, "Cancel"), print, save));
  const value = (/** @type {string} */ name) => String(new FormData(form).get(name));
  const [markdown, json] = form.querySelectorAll("input[name=format]");
  form.addEventListener("change", () => {
    const isAll = value("scope") === "all";
    /** @type {HTMLInputElement} */ (markdown).disabled = isAll;
    if (isAll) /** @type {HTMLInputElement} */ (json).checked = true;
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void submit();
  });
  const submit = async () => {
    const scope = /** @type {import("./export.js").Scope} */ (value("scope"));
    const format = /** @type {import("./export.js").Format} */ (value("format"));
    save.disabled = true;
    try {
      const entries = await entriesOf(app, snapshot.sessionId, scope, (count) => (said.textContent = `${number(count)} entries…`));
      if (!dialog.open) return;
      const text = format === "json" ? jsonOf(snapshot, entries, scope) : markdownOf(snapshot.name, entries);
      download(fileName(snapshot.name, format), text, format === "json" ? "application/json" : "text/markdown");
      dialog.close();
    } catch (error) {
      said.textContent = explainError(error).text;
      said.classList.add("wrong");
    }
    save.disabled = false;
  };
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
}

/**
 * @param {string} name
 * @param {string} text
 * @param {string} type
 */
function download(name, text, type) {
  const href = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), TAKEN_MS);
}
