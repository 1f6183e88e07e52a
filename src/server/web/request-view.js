/**
 * The panel that shows what the next request sends: its parts with the cost of each, or all of it as Markdown or JSON.
 *
 * Invariants:
 * - it is fetched again when the session has changed, one fetch at a time;
 * - unfolded parts and the scroll position survive when a newer request replaces the one shown;
 * - everything is shown as text: nothing in it is live.
 *
 * @typedef {import("./app.js").App} App
 * @typedef {import("./request.js").Row} Row
 * @typedef {import("./request.js").Section} Section
 * @typedef {import("reseed-protocol").Context} Context
 * @typedef {"parts" | "markdown" | "json"} Look
 * @typedef {{ sessionId: string, title: string, note: string, envelope: Context, markdown: Context }} Past
 */

import { byId, el, icon, iconButton, number, styled } from "./dom.js";
import { aboutText, optionsText, sectionsOf, stackOf } from "./request.js";

/** Rows of a section drawn at once, the newest ones: a long session has thousands. */
const ROWS_MAX = 300;
/** Maximum characters of a text that are drawn. All of it can be copied. */
const TEXT_CHARS_MAX = 500_000;
/** Milliseconds for which the button confirms a copy. */
const COPIED_MS = 1500;

/** @type {[Look, string][]} */
const LOOKS = [["parts", "Parts"], ["markdown", "Markdown"], ["json", "JSON"]];

export class RequestView {
  /**
   * @param {App} app
   * @param {{ onShow: () => void, onClose: () => void }} listeners
   */
  constructor(app, { onShow, onClose }) {
    this.app = app;
    this.onShow = onShow;
    this.onClose = onClose;
    this.panel = byId("request", HTMLElement);
    /** @type {Look} */
    this.look = "parts";
    this.withHooks = false;
    /** @type {unknown[]} inputs of the newest fetch */
    this.asked = [];
    this.asking = false;
    /** @type {{ sessionId: string, context: Context } | null} the response that is shown */
    this.answer = null;
    /** @type {Past | null} a past request, shown instead of the next one */
    this.past = null;
    /** @type {string | null} why there is no response */
    this.fault = null;
    /** @type {Set<string>} keys of unfolded parts */
    this.unfolded = new Set();

    this.about = el("p", { class: "about" });
    this.note = el("p", { class: "about", hidden: true });
    this.looks = LOOKS.map(([look, name]) => el("button", { type: "button", class: "button small", "aria-pressed": String(look === this.look), onclick: () => this.lookAs(look) }, name));
    this.copy = el("button", { type: "button", class: "button quiet small", onclick: () => void this.copyAll() });
    this.copy.hidden = !navigator.clipboard;
    this.sayCopied(false);
    this.hooks = el("input", { type: "checkbox" });
    this.hooks.addEventListener("change", () => {
      this.withHooks = this.hooks.checked;
      this.render();
    });
    this.hooksLine = el("label", { class: "check", hidden: true }, this.hooks, el("span", {}, "With what hooks added for the last request alone"));
    this.body = el("div", { class: "request-body" });
    const title = el("h2", { id: "request-title", tabindex: -1 }, "The next request");
    this.title = title;
    this.panel.replaceChildren(
      el("div", { class: "request-head" }, title, iconButton("close", "Close the request", () => this.close())),
      this.about, this.note,
      el("div", { class: "looks" },
        el("div", { role: "group", "aria-label": "Show it as", class: "segments" }, ...this.looks), this.copy),
      this.hooksLine,
      this.body);
    this.panel.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      this.close();
    });
    this.narrow = matchMedia("(max-width: 760px)");
    this.narrow.addEventListener("change", () => this.open && this.cover());
  }

  get open() {
    return !this.panel.hidden;
  }

  /** @param {Past | null} [past] a past request to show; absent: the next one */
  show(past = null) {
    if (!this.app.snapshot) return;
    this.onShow();
    this.past = past;
    this.answer = null;
    this.asked = [];
    this.fault = null;
    this.title.textContent = past?.title ?? "The next request";
    this.note.textContent = past?.note ?? "";
    this.note.hidden = past === null;
    this.panel.hidden = false;
    this.cover();
    document.body.classList.add("with-request");
    this.title.focus();
    this.render();
  }

  close() {
    if (!this.open) return;
    const focused = this.panel.contains(document.activeElement);
    this.panel.hidden = true;
    this.cover();
    document.body.classList.remove("with-request");
    this.asked = [];
    this.answer = null;
    this.past = null;
    this.fault = null;
    this.unfolded.clear();
    this.body.replaceChildren();
    if (focused) this.onClose();
  }

  /** Where the panel fills the screen, nothing behind it may take the focus. */
  cover() {
    byId("page", HTMLElement).inert = this.open && this.narrow.matches;
  }

  /** @param {Look} look */
  lookAs(look) {
    this.look = look;
    this.looks.forEach((button, index) => button.setAttribute("aria-pressed", String(LOOKS[index][0] === look)));
    this.body.scrollTop = 0;
    this.render();
    this.draw();
  }

  /** Fetches again if anything has changed that the next request may depend on. */
  render() {
    const { app } = this;
    const { snapshot } = app;
    if (!snapshot || (this.past && this.past.sessionId !== snapshot.sessionId)) this.close();
    if (!snapshot || !this.open || app.session?.status.phase !== "open") return;
    const format = this.look === "markdown" ? "markdown" : "envelope";
    if (this.past) {
      const context = this.past[format];
      if (this.answer?.context === context) return;
      this.answer = { sessionId: snapshot.sessionId, context };
      return this.draw();
    }
    const about = [
      snapshot.sessionId, snapshot.leafId, snapshot.turn, snapshot.generation, snapshot.model, snapshot.settings, snapshot.pins, snapshot.undone,
      snapshot.contextInfo, format, this.withHooks,
    ];
    if (this.asking || about.every((part, index) => part === this.asked[index])) return;
    this.asked = about;
    void this.ask(snapshot.sessionId, format);
  }

  /**
   * @param {string} sessionId
   * @param {"envelope" | "markdown"} format
   */
  async ask(sessionId, format) {
    this.asking = true;
    try {
      const context = await this.app.context.nextRequest(format, this.withHooks);
      if (!this.past) this.answer = { sessionId, context };
      this.fault = null;
    } catch (error) {
      // It is fetched again once the session has reopened.
      if (this.app.session?.status.phase !== "open") this.asked = [];
      else if (!this.past) this.fault = error instanceof Error ? error.message : String(error);
    }
    this.asking = false;
    // A past request was opened meanwhile.
    if (!this.open || this.past) return;
    this.draw();
    this.render();
  }

  draw() {
    const { snapshot } = this.app;
    const answer = this.answer?.sessionId === snapshot?.sessionId ? this.answer : null;
    const context = answer?.context;
    const { scrollTop } = this.body;
    const focused = document.activeElement instanceof HTMLElement && this.body.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    this.copy.hidden = !navigator.clipboard || this.text() === null;
    if (this.fault !== null) {
      this.body.replaceChildren(el("p", { class: "said wrong", role: "status" }, this.fault));
      return;
    }
    if (!context) return;
    const added = [...(snapshot?.entries ?? [])].some((entry) => entry.type === "ephemeral");
    this.hooksLine.hidden = this.past !== null || (!added && !this.withHooks);
    const { envelope } = context;
    if (this.look === "parts" && envelope) this.body.replaceChildren(...this.parts(context, envelope));
    else {
      const text = this.text();
      if (text === null) return;
      const rest = text.length - TEXT_CHARS_MAX;
      this.body.replaceChildren(
        el("pre", { class: "plain", tabindex: 0 }, rest > 0 ? text.slice(0, TEXT_CHARS_MAX) : text),
        rest > 0 ? el("p", { class: "hint" }, `${number(rest)} more characters are not drawn; Copy takes all of it.`) : "");
    }
    // Markdown responses lack the metadata, but the snapshot has it too.
    const meta = envelope?.meta ?? (snapshot && { model: snapshot.model, windowTokens: snapshot.contextInfo.maxTokens });
    this.about.textContent = [aboutText(meta, context.tokens), envelope ? optionsText(envelope.options) : ""].filter(Boolean).join(" · ");
    this.body.scrollTop = scrollTop;
    if (focused) /** @type {HTMLElement | null} */ (this.body.querySelector(`[data-key="${CSS.escape(focused)}"]`))?.focus({ preventScroll: true });
  }

  /**
   * @param {Context} context
   * @param {NonNullable<Context["envelope"]>} envelope
   */
  parts({ tokens }, envelope) {
    const { snapshot } = this.app;
    const sections = sectionsOf(envelope, (entryId) => snapshot?.entries.get(entryId)?.type === "compaction");
    const stack = stackOf(sections, envelope.meta);
    const largest = Math.max(1, ...sections.flatMap((section) => section.rows.map((row) => row.tokens ?? 0)));
    const bar = stack.length > 0 && el("div", { class: "stack", "aria-hidden": "true" },
      ...stack.map(({ kind, tokens: some }) => styled(el("span"), { "--kind": `var(--kind-${kind})`, "--share": `${(some / Math.max(1, tokens)) * 100}%` })));
    const frame = envelope.meta?.parts?.frame;
    return [
      ...(bar ? [bar] : []),
      ...sections.map((section) => this.section(section, { tokens, largest })),
      ...(frame ? [el("p", { class: "hint frame" }, "What any request costs", el("span", { class: "count" }, number(frame)))] : []),
    ];
  }

  /**
   * @param {Section} section
   * @param {{ tokens: number, largest: number }} whole
   */
  section({ title, rows }, whole) {
    const counted = rows.every((row) => row.tokens !== null);
    const sum = rows.reduce((total, row) => total + (row.tokens ?? 0), 0);
    const older = rows.slice(0, Math.max(0, rows.length - ROWS_MAX));
    const list = el("ul", { class: "request-parts" }, ...rows.slice(older.length).map((row) => this.row(row, whole)));
    const more = older.length > 0 && el("button", { type: "button", class: "button quiet small", onclick: () => {
      more && more.remove();
      list.prepend(...older.map((row) => this.row(row, whole)));
    } }, `Show ${number(older.length)} older`);
    return el("section", { "aria-label": title },
      el("h3", {}, rows.length > 1 ? `${title} (${number(rows.length)})` : title, counted && el("span", { class: "count" }, number(sum))),
      more, list);
  }

  /**
   * @param {Row} row
   * @param {{ tokens: number, largest: number }} whole
   */
  row({ key, kind, name, tokens, preview, said }, { tokens: all, largest }) {
    const bar = tokens !== null && styled(el("span", { class: "share", "aria-hidden": "true" }, el("i")), { "--kind": `var(--kind-${kind})`, "--share": `${(tokens / largest) * 100}%` });
    const title = tokens === null ? null : `${number(tokens)} tokens, ${((tokens / Math.max(1, all)) * 100).toFixed(1)} % of the request`;
    const inside = el("div", { class: "inside" });
    const details = el("details", { "data-kind": kind },
      el("summary", { "data-key": key, title },
        el("span", { class: "name" }, name), el("span", { class: "what", dir: "auto" }, preview), bar,
        tokens !== null && el("span", { class: "count" }, number(tokens), el("span", { class: "visually-hidden" }, " tokens"))),
      inside);
    const fill = () => {
      if (details.open) this.unfolded.add(key);
      else this.unfolded.delete(key);
      if (details.open && inside.childNodes.length === 0) inside.append(...said().map(saidNode));
    };
    details.addEventListener("toggle", fill);
    if (this.unfolded.has(key)) {
      details.open = true;
      fill();
    }
    return el("li", {}, details);
  }

  /** Returns everything shown as text, or null if it has not arrived yet. */
  text() {
    const context = this.answer?.context;
    if (this.look === "markdown") return context?.markdown ?? null;
    return context?.envelope ? JSON.stringify(context.envelope, null, 2) : null;
  }

  async copyAll() {
    const text = this.text();
    if (text === null) return;
    await navigator.clipboard.writeText(text);
    this.sayCopied(true);
    setTimeout(() => this.sayCopied(false), COPIED_MS);
  }

  /** @param {boolean} done */
  sayCopied(done) {
    this.copy.replaceChildren(icon("copy"), done ? "Copied" : "Copy");
  }
}

/** @param {import("./request.js").Said} said */
function saidNode({ label, text, picture }) {
  const shown = picture !== undefined && /^data:image\/(?:png|jpeg|gif|webp);/i.test(picture) && el("img", { src: picture, alt: "Picture" });
  return el("div", {}, label && el("small", { class: "kind" }, label), shown, text !== "" && el("pre", { class: "plain", dir: "auto" }, text));
}
