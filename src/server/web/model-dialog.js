/** Asks which model should answer again. */

import { ask, closer, make } from "./dialogs.js";
import { el } from "./dom.js";
import { modelField } from "./models.js";

/**
 * @param {import("./app.js").App} app
 * @param {string[]} about what else happens
 * @returns {Promise<string | null>} null if it was dismissed
 */
export async function askModel({ models, snapshot }, about) {
  const current = snapshot?.model ?? "";
  const other = models?.items.find(({ id }) => id !== current)?.id ?? current;
  const { field, nodes } = modelField(models, other);
  field.setAttribute("autofocus", "");
  const text = ["The new answer is another version of this one. The chat goes on with this model.", ...about];
  const form = el("form", {}, el("label", { for: "chat-model" }, "Model"), ...nodes);
  /** @type {HTMLDialogElement} */
  const dialog = make("Regenerate with another model", [...text.map((line) => el("p", {}, line)), form], [], "chat-settings");
  form.append(el("div", { class: "actions" }, closer(() => dialog, "Cancel"), el("button", { type: "submit", class: "button primary" }, "Regenerate")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    dialog.close("yes");
  });
  return (await ask(dialog)) === "yes" ? field.value.trim() || null : null;
}
