/**
 * Holds text too long for the message field, because a browser lays out all of a field's text again at every key press.
 * The text waits beside the field and is sent before what is typed there.
 */

import { byId, el, iconButton, number } from "./dom.js";

/** Maximum number of characters in the message field. */
export const FIELD_CHARS_MAX = 20_000;
/** Characters of the text shown on its chip. */
const PREVIEW_CHARS = 60;

export class LongText {
  /** @param {() => void} onChange */
  constructor(onChange) {
    this.onChange = onChange;
    this.list = byId("long-texts", HTMLElement);
    /** @type {string[]} */
    this.texts = [];
  }

  /** @param {string[]} texts */
  set(texts) {
    this.texts = texts;
    this.list.hidden = texts.length === 0;
    this.list.replaceChildren(...texts.map((text, index) => {
      const preview = text.slice(0, PREVIEW_CHARS * 4).trim().replace(/\s+/g, " ").slice(0, PREVIEW_CHARS);
      return el("li", {},
        el("span", { class: "what", dir: "auto" }, `${preview}…`),
        el("span", { class: "size" }, `${number(text.length)} characters`),
        iconButton("close", "Remove this text", () => {
          this.set(this.texts.filter((_, other) => other !== index));
          this.onChange();
        }));
    }));
  }

  /**
   * Adds a text that the field should not hold.
   * @param {string} text
   */
  add(text) {
    this.set([...this.texts, text]);
  }

  /**
   * Returns everything that would be sent.
   * @param {string} typed what the field holds
   */
  with(typed) {
    return [...this.texts, ...(typed === "" ? [] : [typed])].join("\n\n");
  }
}
