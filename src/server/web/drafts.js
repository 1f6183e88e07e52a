/**
 * Unsent drafts, one per session. They survive a reload of the tab, as far as its storage allows.
 *
 * @typedef {object} Draft
 * @property {string} text
 * @property {import("reseed-protocol").Part[]} attached pictures and text files
 */

/** The key in the tab's storage. */
const KEY = "reseed.drafts";
/** Maximum drafts kept; of more, the oldest are dropped. */
const DRAFTS_MAX = 30;
/** Maximum characters of all stored drafts: browsers give a page about five million. */
const CHARS_MAX = 3_000_000;

/** @type {Draft} */
export const EMPTY = { text: "", attached: [] };

export class Drafts {
  constructor() {
    /** @type {Map<string, Draft>} by session, the newest last */
    this.all = new Map();
    try {
      this.all = new Map(JSON.parse(sessionStorage.getItem(KEY) ?? "[]"));
    } catch {
      // Storage is disabled, or another version of the page wrote it.
    }
  }

  /** @param {string} session */
  get(session) {
    return this.all.get(session) ?? EMPTY;
  }

  /**
   * @param {string} session
   * @param {Draft} draft
   */
  set(session, draft) {
    const isEmpty = draft.text === "" && draft.attached.length === 0;
    if (isEmpty && !this.all.has(session)) return;
    this.all.delete(session);
    if (!isEmpty) this.all.set(session, draft);
    for (const oldest of this.all.keys()) {
      if (this.all.size <= DRAFTS_MAX) break;
      this.all.delete(oldest);
    }
    this.store();
  }

  /** Stores the newest drafts that fit. */
  store() {
    /** @type {string[]} */
    const kept = [];
    let chars = 0;
    for (const one of [...this.all].reverse()) {
      const text = JSON.stringify(one);
      if (chars + text.length > CHARS_MAX) continue;
      chars += text.length;
      kept.unshift(text);
    }
    try {
      sessionStorage.setItem(KEY, `[${kept.join()}]`);
    } catch {
      // Storage is disabled or full: drafts last until the page is closed.
    }
  }
}
