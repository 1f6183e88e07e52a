/**
 * The settings of the displayed chat: model, instructions, temperature and answer length. Before the first message,
 * saving creates the chat.
 */

import { CommandError } from "./client.js";
import { el } from "./dom.js";
import { explainError } from "./errors.js";
import { modelField } from "./models.js";

export class SettingsDialog {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    const { snapshot, models } = app;
    this.model = snapshot?.model ?? models?.model ?? "";
    const settings = snapshot?.settings;
    this.before = {
      instructions: settings?.instructions,
      temperature: settings?.temperature,
      maxOutputTokens: settings?.maxOutputTokens,
    };
    this.choice = modelField(models, this.model);
    this.instructions = el("textarea", { class: "field", id: "chat-instructions", name: "instructions", rows: 5 });
    this.instructions.value = this.before.instructions ?? "";
    /** Whether the server's own instructions apply. */
    this.hasServers = this.before.instructions === undefined;
    this.useServers = el("button", { type: "button", class: "button quiet small", disabled: app.readOnly, onclick: () => {
      this.instructions.value = "";
      this.instructions.focus();
      this.showInstructions(true);
    } }, "Use the server’s own");
    this.temperature = el("input", { class: "field", id: "chat-temperature", name: "temperature", type: "number", min: 0, max: 2, step: "any", placeholder: "default" });
    this.temperature.value = String(this.before.temperature ?? "");
    this.limit = el("input", { class: "field", id: "chat-limit", name: "maxOutputTokens", type: "number", min: 1, step: 1, placeholder: "default" });
    this.limit.value = String(this.before.maxOutputTokens ?? "");
    this.said = el("p", { class: "said wrong", role: "status", hidden: true });
    this.save = el("button", { type: "submit", class: "button primary", disabled: app.readOnly }, "Use this");
    const form = el("form", {},
      el("label", { for: "chat-model" }, "Model"), ...this.choice.nodes,
      el("div", { class: "label-row" }, el("label", { for: "chat-instructions" }, "Instructions"), this.useServers), this.instructions,
      el("div", { class: "setting-fields" },
        el("label", { for: "chat-temperature", title: "0 for the most predictable answers, up to 2" }, "Temperature"), this.temperature,
        el("label", { for: "chat-limit", title: "Tokens that an answer may have" }, "Longest answer, in tokens"), this.limit),
      this.said,
      el("div", { class: "actions" },
        el("button", { type: "button", class: "button", onclick: () => this.dialog.close() }, "Cancel"), this.save));
    this.dialog = el("dialog", { class: "chat-settings", "aria-labelledby": "chat-settings-title" },
      el("h2", { id: "chat-settings-title" }, "Model and instructions"), form);
    this.instructions.addEventListener("input", () => this.showInstructions(this.instructions.value.trim() === ""));
    form.addEventListener("input", () => (this.said.hidden = true));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.submit();
    });
  }

  show() {
    document.body.append(this.dialog);
    this.dialog.addEventListener("close", () => this.dialog.remove());
    this.dialog.showModal();
    this.showInstructions(this.hasServers);
    this.choice.field.focus();
  }

  /** @param {boolean} hasServers whether an empty field stands for the server's own instructions */
  showInstructions(hasServers) {
    this.hasServers = hasServers;
    this.instructions.placeholder = hasServers ? "Those of the server" : "None";
    this.useServers.hidden = hasServers;
  }

  async submit() {
    const { app, before } = this;
    const model = this.choice.field.value.trim();
    const instructions = this.hasServers ? undefined : this.instructions.value.trim();
    const value = (/** @type {HTMLInputElement} */ field) => (field.value === "" ? undefined : Number(field.value));
    const options = { temperature: value(this.temperature), maxOutputTokens: value(this.limit) };
    this.save.disabled = true;
    try {
      const session = await app.madeSession();
      if (model && model !== this.model) await session.setModel(model);
      if (instructions !== before.instructions) await session.setInstructions(instructions);
      if (options.temperature !== before.temperature || options.maxOutputTokens !== before.maxOutputTokens) {
        await session.setOptions(options);
      }
      this.dialog.close();
    } catch (error) {
      if (!(error instanceof CommandError)) {
        this.dialog.close();
        return app.fail(error);
      }
      this.said.textContent = explainError(error).text;
      this.said.hidden = false;
      const field = /** @type {{ field?: string } | undefined} */ (error.details)?.field;
      const wrong = field ? this.dialog.querySelector(`[name="${CSS.escape(field)}"]`) : null;
      if (wrong instanceof HTMLElement) wrong.focus();
    } finally {
      this.save.disabled = app.readOnly;
    }
  }
}
