/**
 * What is sent with a message: pictures and text files, taken by the button, by paste or by drop. They wait below the
 * chat, each with what it costs, and can be taken away.
 *
 * Files are read one selection after the other. They go to the draft that was shown when they were chosen.
 *
 * @typedef {import("reseed-protocol").Part} Part
 * @typedef {{ session: string }} Reading files that are being read, with the session whose draft gets them
 */

import { fileOf, joined } from "./attached.js";
import { byId, el, iconButton, number } from "./dom.js";

/** Maximum attachments of a message. */
const ATTACHED_MAX = 16;
/** Bytes of a frame besides the content of its message. */
const FRAME_BYTES = 4096;
/** The limit of a frame on a server that has not said it yet, in bytes. */
const MESSAGE_BYTES = 1_048_576;
/** Tokens of a picture and bytes per token of text, as the server estimates them before a provider has reported any. */
const PICTURE_TOKENS = 1105;
const TOKEN_BYTES = 4;
/** Characters from which a text alone is counted. */
const COUNTED_CHARS = 4000;

export class Attachments {
  /**
   * @param {import("./app.js").App} app
   * @param {object} listeners
   * @param {() => void} listeners.onChange
   * @param {() => Reading} listeners.onRead called when files for the displayed draft begin to be read
   * @param {(reading: Reading) => import("./drafts.js").Draft} listeners.draftOf returns the draft that gets the files
   * @param {(reading: Reading, parts: Part[]) => void} listeners.onDone called with what was read
   */
  constructor(app, listeners) {
    this.app = app;
    this.listeners = listeners;
    /** The end of the files that are being read. */
    this.queue = Promise.resolve();
    this.isReading = false;
    this.list = byId("attachments", HTMLElement);
    this.estimate = byId("estimate", HTMLElement);
    this.button = byId("attach", HTMLButtonElement);
    this.field = byId("files", HTMLInputElement);
    /** @type {readonly Part[]} */
    this.parts = [];
    /** Tokens of the attachments, as estimated. */
    this.tokens = 0;
    this.counted = "";
    this.button.addEventListener("click", () => this.field.click());
    this.field.addEventListener("change", () => {
      this.take([...(this.field.files ?? [])]);
      this.field.value = "";
    });
    document.addEventListener("dragover", (event) => this.over(event, true));
    document.addEventListener("dragleave", (event) => event.relatedTarget === null && this.over(event, false));
    document.addEventListener("drop", (event) => {
      this.over(event, false);
      this.take([...(event.dataTransfer?.files ?? [])]);
    });
  }

  /**
   * Shows that files can be dropped. Without this, the browser would leave the page for the file.
   * @param {DragEvent} event
   * @param {boolean} isOver
   */
  over(event, isOver) {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    document.body.classList.toggle("dropping", isOver && !this.app.readOnly);
  }

  /**
   * Takes files from the clipboard. Programs that copy text add a picture of it, so a text is pasted as such.
   * @param {ClipboardEvent} event
   */
  paste(event) {
    const { clipboardData } = event;
    if (!clipboardData || clipboardData.files.length === 0 || clipboardData.types.includes("text/plain")) return;
    event.preventDefault();
    this.take([...clipboardData.files]);
  }

  /** Returns the model, if it is known to take no pictures. */
  get blind() {
    const { models, snapshot } = this.app;
    const model = snapshot?.model ?? models?.model ?? "";
    return models?.items.find(({ id }) => id === model)?.images === false ? model : null;
  }

  /**
   * Attaches files, or says why not.
   * @param {File[]} files
   */
  take(files) {
    const { app, blind } = this;
    if (files.length === 0 || app.readOnly) return;
    const reading = this.listeners.onRead();
    this.queue = this.queue.then(async () => {
      const parts = await app.quietly(this.read(files, reading, blind));
      this.listeners.onDone(reading, parts ?? []);
    });
  }

  /**
   * Reads files until their draft is full.
   * @param {File[]} files
   * @param {Reading} reading
   * @param {string | null} blind
   * @returns {Promise<Part[]>}
   */
  async read(files, reading, blind) {
    const { app } = this;
    const part = await app.part(async () => await import("./files.js"));
    if (!part) return [];
    const bytesMax = (app.client.welcome?.limits.messageBytesMax ?? MESSAGE_BYTES) - FRAME_BYTES;
    const draft = this.listeners.draftOf(reading);
    const used = new TextEncoder().encode(JSON.stringify(joined(draft))).length;
    const room = files.slice(0, Math.max(0, ATTACHED_MAX - draft.attached.length));
    const { parts, refusals } = await part.readFiles(room, { bytesMax, bytesLeft: bytesMax - used, blind });
    if (room.length < files.length) refusals.push(`A message has at most ${ATTACHED_MAX} attachments.`);
    if (refusals.length > 0) app.listeners.onNotice({ kind: "error", message: refusals.join(" ") });
    return parts;
  }

  /** @param {readonly Part[]} parts */
  set(parts) {
    this.parts = parts;
    this.tokens = parts.reduce((sum, part) => sum + tokensOf(part), 0);
    this.list.hidden = parts.length === 0;
    this.list.replaceChildren(...parts.map((part, index) => this.chip(part, index)));
  }

  /**
   * @param {Part} part
   * @param {number} index
   */
  chip(part, index) {
    const file = fileOf(part);
    const pictures = this.parts.filter(({ type }) => type === "image");
    const name = file?.name ?? (pictures.length > 1 ? `Picture ${pictures.indexOf(part) + 1}` : "Picture");
    return el("li", {},
      part.type === "image" && el("img", { src: part.url, alt: "" }),
      el("span", { class: "what", dir: "auto" }, name),
      el("span", { class: "size" }, `about ${number(tokensOf(part))} tokens`),
      iconButton("close", `Remove ${name}`, () => {
        this.set(this.parts.filter((_, other) => other !== index));
        this.listeners.onChange();
      }));
  }

  /**
   * Shows what the message will cost, if that matters: an estimate, because only the provider knows the exact count.
   * @param {number} chars characters that are typed
   * @param {() => string} text returns them
   */
  count(chars, text) {
    const info = this.app.snapshot?.contextInfo;
    const isShown = this.isReading || this.parts.length > 0 || chars > COUNTED_CHARS;
    const key = isShown ? [this.isReading, chars, this.tokens, info?.tokenCount, info?.maxTokens].join() : "";
    if (key === this.counted) return;
    this.counted = key;
    this.estimate.hidden = !isShown;
    if (!isShown) return;
    this.estimate.classList.toggle("wrong", false);
    if (this.isReading) {
      this.estimate.textContent = "Reading…";
      return;
    }
    const tokens = this.tokens + tokensOf({ type: "text", text: text() });
    const room = info && info.maxTokens - info.reservedTokens;
    const isOver = room !== undefined && tokens > room;
    const free = info && Math.max(0, info.maxTokens - info.reservedTokens - info.tokenCount);
    const rest = isOver ? "More than the model’s window has." : free === undefined ? "" : tokens > free ? "Older messages are summarised to make room." : `${number(free)} are free.`;
    this.estimate.classList.toggle("wrong", isOver);
    this.estimate.textContent = `This message has about ${number(tokens)} tokens (estimated). ${rest}`;
  }
}

/** @param {Part} part */
function tokensOf(part) {
  if (part.type === "image") return PICTURE_TOKENS;
  return part.type === "text" ? Math.ceil(new TextEncoder().encode(part.text).length / TOKEN_BYTES) : 0;
}
