/**
 * The message composer. Enter sends, Shift+Enter starts a new line, Alt+Enter steers the running turn, Escape stops it.
 * In the empty field, the up arrow edits the last message.
 */

import { joined, split } from "./attached.js";
import { Attachments } from "./attachments.js";
import { CommandMenu } from "./command-menu.js";
import { parseCommand } from "./commands.js";
import { byId } from "./dom.js";
import { Drafts, EMPTY } from "./drafts.js";
import { FIELD_CHARS_MAX, LongText } from "./long-text.js";
import { isBusy } from "./snapshot.js";

/** Milliseconds after the last key press until the draft is stored: joining a long text takes a while. */
const STORE_MS = 400;

/** @typedef {import("reseed-protocol").Part} Part */

export class ComposerView {
  /**
   * @param {import("./app.js").App} app
   * @param {object} listeners
   * @param {(content: Part[], whenBusy?: "steer") => Promise<boolean>} listeners.onSubmit returns false if the message
   * was not accepted; it is then put back
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
    this.attachments = new Attachments(app, {
      onChange: () => {
        this.changed();
        this.input.focus();
      },
      onRead: () => this.read(),
      draftOf: ({ session }) => this.draftIn(session),
      onDone: (reading, parts) => this.attach(reading, parts),
    });
    this.drafts = new Drafts();
    this.draftOf = "";
    this.storing = 0;
    /**
     * @type {Set<{ session: string, content: Part[] }>} messages in flight, with the session that gets each back if it
     * is refused
     */
    this.sending = new Set();
    /** @type {Set<import("./attachments.js").Reading>} files that are being read; their message waits for them */
    this.readings = new Set();

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
    this.input.addEventListener("paste", (event) => this.attachments.paste(event));
    addEventListener("pagehide", () => this.leave());
    this.restore();
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
    if (this.isEmpty || this.isReading || this.send.disabled) return;
    const content = joined(this.draft);
    const sent = { session: this.draftOf, content };
    this.sending.add(sent);
    this.put("");
    this.store();
    const taken = await this.onSubmit(content, whenBusy);
    this.sending.delete(sent);
    if (taken) return this.drafts.store();
    const { session } = sent;
    this.drafts.set(session, merged(split(content), this.draftIn(session)));
    if (session === this.draftOf) this.restore();
  }

  /** Returns true if there is nothing to send. */
  get isEmpty() {
    return this.long.texts.length === 0 && this.input.value.trim() === "" && this.attachments.parts.length === 0;
  }

  /** Returns true while files for the displayed draft are being read. */
  get isReading() {
    return [...this.readings].some(({ session }) => session === this.draftOf);
  }

  /** Handles that files for the displayed draft begin to be read. */
  read() {
    const reading = { session: this.draftOf };
    this.readings.add(reading);
    this.render();
    return reading;
  }

  /**
   * Attaches what was read to the draft it was read for.
   * @param {import("./attachments.js").Reading} reading
   * @param {Part[]} parts
   */
  attach(reading, parts) {
    const { session } = reading;
    this.readings.delete(reading);
    if (session !== this.draftOf) {
      const { text, attached } = this.drafts.get(session);
      this.drafts.set(session, { text, attached: [...attached, ...parts] });
      return;
    }
    this.attachments.set([...this.attachments.parts, ...parts]);
    this.changed();
    this.input.focus();
  }

  /**
   * Returns what is written and attached.
   * @returns {import("./drafts.js").Draft}
   */
  get draft() {
    return { text: this.text, attached: [...this.attachments.parts] };
  }

  /**
   * Returns the draft of a session: the displayed one, or one that is stored.
   * @param {string} session
   * @returns {import("./drafts.js").Draft}
   */
  draftIn(session) {
    return session === this.draftOf ? this.draft : this.drafts.get(session);
  }

  /**
   * Keeps the draft when the page is left, and with it the messages that the server has not accepted yet. Only the
   * tab's storage gets those: the page may be shown again while they are still in flight.
   */
  leave() {
    this.store();
    const { all } = this.drafts;
    this.drafts.all = new Map(all);
    for (const { session, content } of this.sending) {
      const sent = split(content);
      // A command is not repeated.
      if (!parseCommand(sent.text)) this.drafts.set(session, merged(sent, this.drafts.get(session)));
    }
    this.drafts.all = all;
  }

  /** Keeps the draft. */
  store() {
    clearTimeout(this.storing);
    this.drafts.set(this.draftOf, this.draft);
  }

  /** Shows the draft of the displayed session. */
  restore() {
    const { text, attached } = this.drafts.get(this.draftOf);
    this.put(text, attached);
  }

  /** Returns everything written, including text too long for the field. */
  get text() {
    return this.long.with(this.input.value);
  }

  /**
   * Replaces everything written and attached.
   * @param {string} text
   * @param {readonly Part[]} [attached]
   */
  put(text, attached = []) {
    this.attachments.set(attached);
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
    clearTimeout(this.storing);
    this.storing = window.setTimeout(() => this.store(), STORE_MS);
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
   * Puts a message back, before what is already in the field.
   * @param {readonly Part[]} content
   */
  give(content) {
    this.render();
    const { text, attached } = merged(split(content), this.draft);
    this.put(text, attached);
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
    const { isReading } = this;
    this.attachments.isReading = isReading;
    this.send.disabled = app.readOnly || isReading || this.isEmpty || app.status.phase === "stopped";
    this.attachments.button.hidden = app.readOnly;
    this.attachments.count(this.long.texts.reduce((sum, text) => sum + text.length, this.input.value.length), () => this.text);
    this.input.disabled = app.readOnly;
    this.input.placeholder = app.readOnly ? "You have read-only access" : "Message, or / for commands";
    const running = Boolean(snapshot?.turn);
    this.steer.hidden = !running || !app.can("steer") || this.send.disabled || this.input.value.startsWith("/");
    this.send.title = isReading ? "Reading…" : running ? "Send after this answer (Enter)" : "Send (Enter)";
  }

  /**
   * Switches to another session; each keeps its own draft. Must be called before the next key can be pressed, because a
   * text belongs to the session that was displayed when it was written.
   * @param {string} session its id; "": one that will be created with its first input
   */
  show(session) {
    this.store();
    this.draftOf = session;
    this.restore();
  }

  /**
   * Handles the creation of the first input's session: it takes over what was written meanwhile.
   * @param {string} session its id
   */
  made(session) {
    for (const one of [...this.sending, ...this.readings]) if (one.session === this.draftOf) one.session = session;
    this.drafts.set(this.draftOf, EMPTY);
    this.draftOf = session;
    this.store();
  }
}

/**
 * Returns a draft with another one before it.
 * @param {import("./drafts.js").Draft} first
 * @param {import("./drafts.js").Draft} then
 */
function merged(first, then) {
  const text = [first.text, then.text].filter((one) => one.trim() !== "").join("\n\n");
  return { text, attached: [...first.attached, ...then.attached] };
}
