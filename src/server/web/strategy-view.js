/** How room is made in this session: the choice of a strategy, with the settings that matter to it. */

import { CommandError } from "./connection.js";
import { el } from "./dom.js";
import { SETTINGS, STRATEGIES, fieldOf, withFields } from "./strategies.js";

/**
 * @typedef {import("./strategies.js").SettingName} SettingName
 * @typedef {import("./fold.js").State} State
 */

export class StrategyView {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    /** What the form was made of: it stays as it is while somebody writes in it. */
    this.shown = "";
    this.select = el("select", { class: "field", id: "strategy-name" },
      ...STRATEGIES.map(({ name }) => el("option", { value: name }, name)));
    this.does = el("p", { class: "hint" });
    this.fields = el("div", { class: "setting-fields" });
    this.said = el("p", { class: "said", role: "status" });
    this.save = el("button", { type: "submit", class: "button small" }, "Use this");
    const form = el("form", {},
      el("label", { for: "strategy-name" }, "Strategy"), this.select, this.does, this.fields, this.said,
      el("div", { class: "actions" }, this.save));
    this.node = el("details", { class: "section strategy" }, el("summary", {}, "Compaction strategy"), form);
    this.select.addEventListener("change", () => this.choose());
    form.addEventListener("input", () => (this.said.textContent = ""));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.submit();
    });
  }

  /** @param {State} state */
  render(state) {
    const { strategy, settings, sessionId } = state;
    const { readOnly } = this.app;
    const key = JSON.stringify([sessionId, strategy, settings.strategySettings, readOnly]);
    if (key === this.shown) return;
    this.shown = key;
    // One that this page does not know is shown by its name.
    if (![...this.select.options].some((option) => option.value === strategy)) this.select.append(el("option", { value: strategy }, strategy));
    this.select.value = strategy;
    this.select.disabled = this.save.disabled = readOnly;
    this.choose();
  }

  /** Shows the settings of the strategy that is chosen. */
  choose() {
    const found = STRATEGIES.find(({ name }) => name === this.select.value);
    const settings = this.app.state?.settings.strategySettings ?? {};
    this.does.textContent = found?.does ?? "";
    this.fields.replaceChildren(...(found?.settings ?? []).flatMap((name) => this.field(name, fieldOf(name, settings))));
  }

  /**
   * @param {SettingName} name
   * @param {string} value
   */
  field(name, value) {
    const { label, kind, options } = SETTINGS[name];
    const id = `setting-${name}`;
    const about = { class: "field", id, name, disabled: this.app.readOnly };
    const input = kind === "choice"
      ? el("select", about, el("option", { value: "" }, "default"), el("option", { value: "yes" }, "yes"), el("option", { value: "no" }, "no"))
      : kind === "option"
        ? el("select", about, el("option", { value: "" }, "default"), ...(options ?? []).map((value) => el("option", { value }, value)))
      : kind === "names"
        ? el("input", { ...about, type: "text", placeholder: "default", autocomplete: "off" })
        : el("input", { ...about, type: "number", min: 0, max: kind === "percent" ? 100 : null, step: kind === "percent" ? "any" : 1, placeholder: "default" });
    input.value = value;
    return [el("label", { for: id }, label), input];
  }

  async submit() {
    const { app } = this;
    const { state } = app;
    if (!state || app.readOnly) return;
    /** @type {[SettingName, string][]} */
    const fields = [...this.fields.querySelectorAll("input, select")].map((node) => {
      const input = /** @type {HTMLInputElement | HTMLSelectElement} */ (node);
      return [/** @type {SettingName} */ (input.name), input.value];
    });
    const settings = withFields(state.settings.strategySettings ?? {}, fields);
    this.said.className = "said";
    try {
      await app.context.setStrategy(this.select.value, Object.keys(settings).length > 0 ? settings : undefined);
      this.said.textContent = "Used from the next request on.";
    } catch (error) {
      if (!(error instanceof CommandError)) return app.fail(error);
      this.said.className = "said wrong";
      this.said.textContent = error.message;
      const field = /** @type {{ field?: string } | undefined} */ (error.details)?.field?.replace(/^settings\./, "");
      /** @type {HTMLElement | null} */ (field ? this.fields.querySelector(`[name="${CSS.escape(field)}"]`) : this.select)?.focus();
    }
  }
}
