/**
 * The "Compact…" dialog: choose how to compact, preview the outcome, then apply or discard it.
 *
 * Invariants:
 * - nothing changes until the user applies a preview or compacts now; closing the dialog stops a running preview;
 * - a late response to an abandoned preview changes nothing.
 *
 * @typedef {import("./context.js").Wishes} Wishes
 * @typedef {import("reseed-protocol").CompactionPreview} CompactionPreview
 * @typedef {{ label: string, run: () => void, kind?: string }} Action
 */

import { CommandError, SUMMARISING_BRANCH } from "./client.js";
import { previewView } from "./difference-view.js";
import { instructionsField } from "./dialogs.js";
import { el } from "./dom.js";
import { explainError } from "./errors.js";
import { STRATEGIES } from "./offered-strategies.js";
import { detailsOf } from "./toasts.js";

/** Error codes after which only a new preview helps. */
const OVER = ["preview_not_found", "history_moved", "compaction_void"];
/** Maximum delay of a browser timer, in milliseconds. */
const TIMER_MS_MAX = 2 ** 31 - 1;

export class CompactDialog {
  /**
   * @param {import("./app.js").App} app
   * @param {string} [instructions]
   */
  constructor(app, instructions = "") {
    this.app = app;
    this.sessionId = app.snapshot?.sessionId;
    /** Counts preview requests: only the response to the newest one counts. */
    this.asked = 0;
    /** @type {string | null} job of the running preview, once it is known */
    this.job = null;
    this.working = false;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.expiry = undefined;

    this.about = el("textarea", { class: "field", id: "compact-about", rows: 2, dir: "auto", placeholder: "What should the summary focus on? (optional)", autofocus: true });
    this.about.value = instructions;
    const { said: tooLong, look: lookAtAbout } = instructionsField(this.about);
    lookAtAbout();
    this.strategy = el("select", { class: "field", id: "compact-strategy" },
      el("option", { value: "" }, `As the chat does (${app.snapshot?.strategy ?? ""})`),
      ...STRATEGIES.filter(({ automatic }) => automatic)
        .map(({ name, about }) => el("option", { value: name, title: about }, name)));
    this.rebuild = el("input", { type: "checkbox", id: "compact-rebuild" });
    this.form = el("form", {},
      el("label", { for: "compact-about" }, "Instructions"), this.about, tooLong,
      ...(app.can("strategies") ? [
        el("label", { for: "compact-strategy" }, "Strategy"), this.strategy,
        el("label", { class: "check" }, this.rebuild, el("span", {}, "Summarise everything again, instead of adding to the summary there is")),
      ] : []));
    this.said = el("p", { class: "said", role: "status" });
    this.progress = el("progress", { "aria-label": "Making the preview", hidden: true });
    this.heading = el("h3", { tabindex: "-1" }, "What it would come to");
    this.result = el("div", { class: "preview", hidden: true });
    this.actions = el("div", { class: "actions" });
    this.dialog = el("dialog", { class: "compact", "aria-labelledby": "compact-title" },
      el("h2", { id: "compact-title" }, "Compact the context"),
      el("p", { class: "about" }, "Older messages give way to a summary. Nothing is deleted, and it can be undone."),
      this.form, this.said, this.progress, this.result, this.actions);
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      void (app.can("preview") ? this.preview() : this.compactNow());
    });
    this.look = () => this.sessionChanged() && this.dialog.close();
  }

  /** Shows the dialog until it is closed. */
  show() {
    const { app, dialog } = this;
    document.body.append(dialog);
    app.watchers.add(this.look);
    const end = app.session?.onEvent((event, snapshot) => {
      // Progress of a job other than the session's own compaction belongs to a preview.
      if (event === "opened" || event === "replaying" || event.type !== "compaction_progress") return;
      const { jobId, phase, done, total } = event.payload;
      if (phase !== SUMMARISING_BRANCH && snapshot.compaction?.jobId !== jobId) this.advanced(jobId, done, total);
    });
    dialog.addEventListener("close", () => {
      app.watchers.delete(this.look);
      end?.();
      clearTimeout(this.expiry);
      this.giveUp();
      dialog.remove();
    });
    this.toForm();
    dialog.showModal();
  }

  /** Returns true if the dialog's session is no longer displayed or cannot be changed. */
  sessionChanged() {
    const { snapshot, readOnly, status } = this.app;
    return snapshot?.sessionId !== this.sessionId || readOnly || status.phase === "stopped";
  }

  /** @returns {Wishes} */
  wishes() {
    const instructions = this.about.value.trim();
    return {
      ...(instructions ? { instructions } : {}),
      ...(this.strategy.value ? { strategy: this.strategy.value } : {}),
      ...(this.rebuild.checked ? { rebuild: true } : {}),
    };
  }

  /** Returns true if the server accepts the instructions; otherwise their field shows why not. */
  fits() {
    if (this.about.validity.valid) return true;
    this.toForm();
    return false;
  }

  // Display

  /**
   * @param {"form" | "working" | "result"} part
   * @param {Action[]} actions the last one is the default
   * @param {string} [text]
   */
  display(part, actions, text = "") {
    this.form.hidden = part !== "form";
    this.progress.hidden = part !== "working";
    this.result.hidden = part !== "result";
    this.dialog.classList.toggle("large", part === "result");
    this.said.textContent = text;
    this.said.hidden = text === "";
    this.said.classList.remove("wrong");
    this.actions.replaceChildren(...actions.map(({ label, run, kind = "" }) => el("button", { type: "button", class: `button ${kind}`, onclick: run }, label)));
  }

  toForm() {
    const close = { label: "Close", run: () => this.dialog.close() };
    const mayLook = this.app.can("preview");
    const now = { label: "Compact now", run: () => void this.compactNow(), kind: mayLook ? "" : "primary" };
    this.display("form", [close, now, ...(mayLook ? [{ label: "Preview", run: () => void this.preview(), kind: "primary" }] : [])]);
    if (this.dialog.open) this.about.focus();
  }

  /**
   * @param {string} text
   * @param {string} [details]
   */
  wrong(text, details) {
    this.said.replaceChildren(text, detailsOf(details) ?? "");
    this.said.hidden = false;
    this.said.classList.add("wrong");
    this.said.scrollIntoView({ block: "nearest" });
  }

  /**
   * Marks what is shown as no longer valid.
   * @param {string} text
   * @param {string} [details]
   */
  over(text, details) {
    clearTimeout(this.expiry);
    this.result.classList.add("over");
    const close = { label: "Close", run: () => this.dialog.close() };
    this.display(this.result.hidden ? "form" : "result", [close, { label: "New preview", run: () => void this.preview(), kind: "primary" }]);
    this.wrong(text, details);
    this.actions.querySelector("button:last-child")?.scrollIntoView({ block: "nearest" });
    /** @type {HTMLElement | null} */ (this.actions.querySelector("button:last-child"))?.focus();
  }

  /**
   * @param {string} jobId
   * @param {number} done
   * @param {number} total
   */
  advanced(jobId, done, total) {
    if (!this.working) return;
    this.job = jobId;
    if (total <= 1) return;
    this.progress.max = total;
    this.progress.value = done;
    this.said.textContent = `Making the preview, ${done} of ${total}…`;
  }

  // Actions

  async preview() {
    if (!this.fits()) return;
    clearTimeout(this.expiry);
    this.asked += 1;
    const mine = this.asked;
    this.working = true;
    this.job = null;
    this.progress.removeAttribute("value");
    this.display("working", [{ label: "Stop", run: () => (this.giveUp(), this.toForm()) }], "Making the preview…");
    this.actions.querySelector("button")?.focus();
    try {
      const { preview, messages } = await this.app.context.preview(this.wishes());
      if (mine !== this.asked) return;
      this.working = false;
      this.showResult(preview, messages);
    } catch (error) {
      if (mine !== this.asked) return;
      this.working = false;
      const { text, details } = explainError(error);
      if (error instanceof CommandError && OVER.includes(error.code)) return this.over(text, details);
      this.toForm();
      this.wrong(text, details);
    }
  }

  /** Stops the running preview and discards its result. */
  giveUp() {
    this.asked += 1;
    if (this.working && this.job && !this.sessionChanged()) void this.app.context.cancel(this.job);
    this.working = false;
  }

  /**
   * @param {CompactionPreview} preview
   * @param {import("reseed-protocol").ContextMessage[] | null} messages
   */
  showResult(preview, messages) {
    this.result.classList.remove("over");
    this.result.replaceChildren(this.heading, ...previewView(preview, messages, this.app));
    const apply = { label: "Apply", run: () => void this.apply(preview), kind: "primary" };
    this.display("result", [{ label: "Discard", run: () => this.dialog.close() }, { label: "Change…", run: () => this.toForm() }, apply]);
    this.heading.focus();
    const left = Date.parse(preview.expiresAt) - Date.now();
    // A clock that says the preview has already expired is wrong; the server's response decides.
    if (left > 0) this.expiry = setTimeout(() => !this.result.hidden && this.over("This preview has expired."), Math.min(left, TIMER_MS_MAX));
  }

  /** @param {CompactionPreview} preview */
  async apply({ previewId }) {
    await this.doing(async () => {
      await this.app.context.order({ previewId });
      this.later();
    });
  }

  async compactNow() {
    if (!this.fits()) return;
    await this.doing(async () => {
      await this.app.context.order(this.wishes());
      this.later();
    });
  }

  /** The compaction is running or waits for its turn to be applied. */
  later() {
    this.dialog.close();
    if (this.app.snapshot?.turn) this.app.listeners.onNotice({ kind: "info", message: "It is put in place before the next request." });
  }

  /**
   * Runs a button's action once and shows what went wrong.
   * @param {() => Promise<void>} act
   */
  async doing(act) {
    const buttons = [...this.actions.querySelectorAll("button")];
    const mine = this.asked;
    for (const button of buttons) button.disabled = true;
    try {
      await act();
    } catch (error) {
      if (mine !== this.asked) return this.app.fail(error);
      for (const button of buttons) button.disabled = false;
      const { text, details } = explainError(error);
      if (error instanceof CommandError && OVER.includes(error.code)) this.over(text, details);
      else this.wrong(text, details);
    }
  }
}
