/** The compaction strategy of this session: a choice among the server's strategies, and their settings. */

import { CommandError } from "./client.js";
import { el } from "./dom.js";
import { DEFAULTS, STRATEGIES } from "./offered-strategies.js";
import { fieldOf, unitOf, withFields } from "./strategies.js";
import { SETTINGS } from "./strategy-settings.js";

/**
 * @typedef {import("./strategies.js").SettingName} SettingName
 * @typedef {import("./client.js").SessionSnapshot} Snapshot
 */

/** Settings shown at once, the most frequently changed ones; the others are behind "More settings". */
const SHOWN = 4;

export class StrategyView {
  /** @param {import("./app.js").App} app */
  constructor(app) {
    this.app = app;
    /** Inputs of the last render: the form stays untouched while somebody edits it. */
    this.shown = "";
    this.select = el("select", { class: "field", id: "strategy-name" },
      ...STRATEGIES.map(({ name, about }) => el("option", { value: name, title: about }, name)));
    this.does = el("p", { class: "hint" });
    this.fields = el("div", {});
    this.said = el("p", { class: "said", role: "status" });
    this.save = el("button", { type: "submit", class: "button small" }, "Use this");
    const form = el("form", {},
      el("label", { for: "strategy-name" }, "Strategy"), this.select, this.does, this.fields, this.said,
      el("div", { class: "actions" }, this.save));
    this.node = el("details", { class: "section strategy" }, el("summary", {}, "Compaction strategy"), form);
    this.select.addEventListener("change", () => this.choose());
    form.addEventListener("input", () => (this.said.textContent = ""));
    form.addEventListener("invalid", (event) => reveal(/** @type {HTMLElement} */ (event.target)), true);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.submit();
    });
  }

  /** @param {Snapshot} snapshot */
  render(snapshot) {
    const { strategy, settings, sessionId } = snapshot;
    const { readOnly } = this.app;
    const key = JSON.stringify([sessionId, strategy, settings.strategySettings, readOnly]);
    if (key === this.shown) return;
    this.shown = key;
    // A strategy unknown to this page is listed by its name.
    if (![...this.select.options].some((option) => option.value === strategy)) this.select.append(el("option", { value: strategy }, strategy));
    this.select.value = strategy;
    this.select.disabled = this.save.disabled = readOnly;
    this.choose();
  }

  /** Shows the settings of the selected strategy. */
  choose() {
    const found = STRATEGIES.find(({ name }) => name === this.select.value);
    const settings = this.app.snapshot?.settings.strategySettings ?? {};
    this.does.textContent = found?.about ?? "";
    const names = found?.settings ?? [];
    const fields = (/** @type {SettingName[]} */ of) =>
      el("div", { class: "setting-fields" }, ...of.flatMap((name) => this.field(name, fieldOf(name, settings))));
    const more = names.slice(SHOWN);
    this.fields.replaceChildren(
      fields(names.slice(0, SHOWN)),
      ...(more.length === 0 ? [] : [
        el("details", { class: "more-settings", open: more.some((name) => settings[name] !== undefined) },
          el("summary", {}, "More settings"), fields(more)),
      ]),
    );
  }

  /**
   * @param {SettingName} name
   * @param {string} value
   */
  field(name, value) {
    const { about, kind, options } = SETTINGS[name];
    const { label, min, max, step } = unitOf(name);
    const id = `setting-${name}`;
    const standard = fieldOf(name, DEFAULTS);
    const common = { class: "field", id, name, disabled: this.app.readOnly };
    const choice = (/** @type {string[]} */ values) => el("select", common,
      el("option", { value: "" }, standard ? `default: ${standard}` : "default"),
      ...values.map((value) => el("option", { value }, value)));
    const typed = { ...common, placeholder: standard || "default" };
    const input = kind === "choice" ? choice(["yes", "no"])
      : kind === "option" ? choice(options ?? [])
      : kind === "names" ? el("input", { ...typed, type: "text", autocomplete: "off" })
      : el("input", { ...typed, type: "number", min, max, step });
    input.value = value;
    return [el("label", { for: id, title: about }, label), input];
  }

  async submit() {
    const { app } = this;
    const { snapshot } = app;
    if (!snapshot || app.readOnly) return;
    /** @type {[SettingName, string][]} */
    const fields = [...this.fields.querySelectorAll("input, select")].map((node) => {
      const input = /** @type {HTMLInputElement | HTMLSelectElement} */ (node);
      return [/** @type {SettingName} */ (input.name), input.value];
    });
    const settings = withFields(snapshot.settings.strategySettings ?? {}, fields);
    this.said.className = "said";
    try {
      await app.context.setStrategy(this.select.value, Object.keys(settings).length > 0 ? settings : undefined);
      this.said.textContent = "Used from the next request on.";
    } catch (error) {
      if (!(error instanceof CommandError)) return app.fail(error);
      this.said.className = "said wrong";
      this.said.textContent = error.message;
      const field = /** @type {{ field?: string } | undefined} */ (error.details)?.field?.replace(/^settings\./, "");
      /** @type {HTMLElement | null} */
      const wrong = field ? this.fields.querySelector(`[name="${CSS.escape(field)}"]`) : this.select;
      if (!wrong) return;
      reveal(wrong);
      wrong.focus();
    }
  }
}

/**
 * Unfolds the details that hide a field.
 * @param {HTMLElement} field
 */
function reveal(field) {
  const fold = field.closest("details");
  if (fold) fold.open = true;
}
