/**
 * The message composer. Enter sends, Shift+Enter starts a new line, Alt+Enter steers the running turn, Escape stops it.
 * In the empty field, the up arrow edits the last message.
 */

import { CommandMenu } from "./command-menu.js";
import { byId } from "./dom.js";
import { FIELD_CHARS_MAX, LongText } from "./long-text.js";
import { isBusy } from "./snapshot.js";

export class ComposerView {
  /**
   * @param {import("./app.js").App} app
   * @param {object} listeners
   * @param {(text: string, whenBusy?: "steer") => Promise<boolean>} listeners.onSubmit returns false if the text was not
   * accepted; it is then put back
   * @param {() => void} listeners.onEditLast
   */
  constructor(app, { onSubmit, onEditLast }) {
    this.app = app;
    this.onSubmit = onSubmit;
    this.onEditLast = onEditLast;
    this.form = byId("composer", HTMLFormElement);
    this.input = byId("input", HTMLTextAreaElement);
    this.menu = new CommandMenu(this.input, (name) => this.complete(name));
    this.send = byId("send", HTMLButtonElement);
    this.stop = byId("stop", HTMLButtonElement);
    this.steer = byId("steer", HTMLButtonElement);
    this.long = new LongText(() => {
      this.render();
      this.input.focus();
    });
    /** @type {Map<string, string>} unsent drafts, by session */
    this.drafts = new Map();
    this.draftOf = "";
    /** @type {Set<{ session: string }>} texts in flight, with the session that gets each one back if it is refused */
    this.sending = new Set();

    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.submit();
    });
    this.stop.addEventListener("click", () => {
      void app.stop();
      this.input.focus();
    });
    this.steer.addEventListener("click", () => {
      void this.submit("steer");
      this.input.focus();
    });
    this.input.addEventListener("input", () => this.changed());
    this.input.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (this.menu.key(event)) return;
    if (event.key === "ArrowUp" && this.text === "" && !event.shiftKey && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      return this.onEditLast();
    }
    // During composition, Enter belongs to the input method.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    if (event.altKey && !this.steer.hidden) {
      event.preventDefault();
      return void this.submit("steer");
    }
    // Phone keyboards have no Shift+Enter: there Enter starts a new line and the button sends.
    if (matchMedia("(pointer: coarse)").matches && !event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    void this.submit();
  }

  /** @param {"steer"} [whenBusy] */
  async submit(whenBusy) {
    const { text } = this;
    if (text.trim() === "" || this.send.disabled) return;
    const sent = { session: this.draftOf };
    this.sending.add(sent);
    this.put("");
    const taken = await this.onSubmit(text, whenBusy);
    this.sending.delete(sent);
    if (taken) return;
    const { session } = sent;
    if (session === this.draftOf && this.text === "") this.put(text);
    else if (!this.drafts.get(session)) this.drafts.set(session, text);
  }

  /** Returns everything written, including text too long for the field. */
  get text() {
    return this.long.with(this.input.value);
  }

  /**
   * Replaces everything written.
   * @param {string} text
   */
  put(text) {
    this.long.set([]);
    this.input.value = text;
    this.changed();
  }

  changed() {
    if (this.input.value.length > FIELD_CHARS_MAX) {
      this.long.add(this.input.value);
      this.input.value = "";
    }
    this.fit();
    this.menu.update();
    this.render();
  }

  /** Grows the field with its text where the style sheet cannot. */
  fit() {
    if (CSS.supports("field-sizing", "content")) return;
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight}px`;
  }

  /** @param {string} name */
  complete(name) {
    this.input.value = `/${name} `;
    this.changed();
    this.input.focus();
    this.input.setSelectionRange(this.input.value.length, this.input.value.length);
  }

  /**
   * Puts a text back, before what is already in the field.
   * @param {string} text
   */
  give(text) {
    this.render();
    this.put(this.text.trim() === "" ? text : `${text}\n\n${this.text}`);
    this.focus();
  }

  /** Focuses the field, unless that would open an on-screen keyboard. */
  focus() {
    if (!matchMedia("(pointer: coarse)").matches) this.input.focus();
  }

  render() {
    const { app } = this;
    const { snapshot } = app;
    this.stop.hidden = app.readOnly || !snapshot || !isBusy(snapshot);
    this.send.disabled = app.readOnly || this.text.trim() === "" || app.status.phase === "stopped";
    this.input.disabled = app.readOnly;
    this.input.placeholder = app.readOnly ? "You have read-only access" : "Message, or / for commands";
    const running = Boolean(snapshot?.turn);
    this.steer.hidden = !running || !app.can("steer") || this.send.disabled || this.input.value.startsWith("/");
    this.send.title = running ? "Send after this answer (Enter)" : "Send (Enter)";
  }

  /**
   * Switches to another session; each keeps its own draft. Must be called before the next key can be pressed, because a
   * text belongs to the session that was displayed when it was written.
   * @param {string} session its id; "": one that will be created with its first input
   */
  show(session) {
    this.drafts.set(this.draftOf, this.text);
    this.draftOf = session;
    this.put(this.drafts.get(session) ?? "");
  }

  /**
   * Handles the creation of the first input's session: it takes over what was written meanwhile.
   * @param {string} session its id
   */
  made(session) {
    for (const sent of this.sending) if (sent.session === this.draftOf) sent.session = session;
    this.draftOf = session;
  }
}
