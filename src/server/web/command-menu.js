/**
 * The command menu above the message field: a listbox that the field controls while a command is typed.
 *
 * Invariants:
 * - the focus stays in the field; `aria-activedescendant` names the active option;
 * - the menu overlays the chat, so the field never moves, however many commands there are;
 * - a closed menu handles no key.
 */

import { completions } from "./commands.js";
import { byId, el } from "./dom.js";

export class CommandMenu {
  /**
   * @param {HTMLTextAreaElement} input
   * @param {(name: string) => void} onChoose
   */
  constructor(input, onChoose) {
    this.input = input;
    this.onChoose = onChoose;
    this.list = byId("hints", HTMLElement);
    /** @type {import("./commands.js").SlashCommand[]} */
    this.found = [];
    this.active = 0;
    // Pressing an option must not move the focus out of the field.
    this.list.addEventListener("pointerdown", (event) => event.preventDefault());
    this.list.addEventListener("mousedown", (event) => event.preventDefault());
    this.list.addEventListener("click", (event) => {
      const at = this.indexOf(event.target);
      if (at >= 0) this.choose(at);
    });
    this.list.addEventListener("pointermove", (event) => {
      const at = this.indexOf(event.target);
      if (at >= 0 && at !== this.active) this.activate(at, false);
    });
    input.addEventListener("blur", () => this.close());
  }

  get open() {
    return !this.list.hidden;
  }

  /** Shows the commands that match the text typed so far. */
  update() {
    const { value } = this.input;
    const found = completions(value);
    if (found.length === 0) return this.close();
    this.found = found;
    this.list.replaceChildren(...found.map(({ usage, does }, index) =>
      el("li", { role: "option", id: `hint-${index}` }, el("code", {}, usage), el("span", {}, does))));
    this.list.hidden = false;
    this.list.scrollTop = 0;
    this.input.setAttribute("role", "combobox");
    this.input.setAttribute("aria-expanded", "true");
    this.activate(0, true);
  }

  close() {
    if (!this.open) return;
    this.list.hidden = true;
    this.list.replaceChildren();
    this.found = [];
    this.input.removeAttribute("role");
    for (const name of ["aria-expanded", "aria-activedescendant"]) this.input.removeAttribute(name);
  }

  /**
   * Handles a key that belongs to the menu.
   * @param {KeyboardEvent} event
   * @returns {boolean} false if the key belongs to the field
   */
  key(event) {
    if (!this.open || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return false;
    const count = this.found.length;
    switch (event.key) {
      case "ArrowDown": this.activate((this.active + 1) % count, true); break;
      case "ArrowUp": this.activate((this.active + count - 1) % count, true); break;
      case "Escape": this.close(); break;
      case "Tab":
        if (event.shiftKey) return false;
        this.choose(this.active);
        break;
      case "Enter":
        // A fully typed command is sent, unless the arrow keys have selected another one.
        if (event.shiftKey || this.isTyped()) return false;
        this.choose(this.active);
        break;
      default: return false;
    }
    event.preventDefault();
    return true;
  }

  isTyped() {
    return this.input.value.toLowerCase() === `/${this.found[this.active]?.name}`;
  }

  /** @param {number} at */
  choose(at) {
    const { name } = this.found[at];
    this.close();
    this.onChoose(name);
  }

  /**
   * @param {number} at
   * @param {boolean} reveal whether to scroll the option into view
   */
  activate(at, reveal) {
    this.active = at;
    [...this.list.children].forEach((option, index) => option.setAttribute("aria-selected", String(index === at)));
    this.input.setAttribute("aria-activedescendant", `hint-${at}`);
    if (reveal) this.list.children[at].scrollIntoView({ block: "nearest" });
  }

  /** @param {EventTarget | null} target */
  indexOf(target) {
    const option = target instanceof Element ? target.closest("[role=option]") : null;
    return option ? [...this.list.children].indexOf(option) : -1;
  }
}
