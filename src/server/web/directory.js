/**
 * The list of the user's sessions, a page at a time. It is asked for again when there is a reason to: the server does
 * not yet tell by itself.
 *
 * @typedef {import("reseed-protocol").SessionItem} SessionItem
 * @typedef {import("reseed-protocol").CommandOf<"list_sessions">["payload"]} Ask
 */

/** Milliseconds in which several reasons to list the sessions again become one. */
const DELAY_MS = 200;
/** Sessions of a page. */
const PAGE = 50;
/** Sessions that the server sends at most at once. */
const PAGE_MAX = 200;

export class Directory {
  /**
   * @param {object} options
   * @param {(payload: Ask) => Promise<import("reseed-protocol").Sessions | null>} options.ask null when there is no answer
   * @param {() => void} options.onChange
   */
  constructor({ ask, onChange }) {
    this.ask = ask;
    this.onChange = onChange;
    /** @type {SessionItem[]} newest first */
    this.items = [];
    this.search = "";
    /** @type {string | undefined} where the next page begins; absent when all are here */
    this.cursor = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  /** Lists again, a little later: what comes meanwhile is listed with it. */
  listSoon() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      void this.list();
    }, DELAY_MS);
  }

  /** Lists again as much as was there. */
  async list() {
    const limit = Math.min(PAGE_MAX, Math.max(PAGE, this.items.length));
    await this.load({ limit }, []);
  }

  /** Adds the next page. */
  async more() {
    if (this.cursor) await this.load({ limit: PAGE, cursor: this.cursor }, this.items);
  }

  /**
   * @param {Ask} payload
   * @param {SessionItem[]} before
   */
  async load(payload, before) {
    const { search } = this;
    const page = await this.ask(search ? { ...payload, search } : payload);
    // The answer to an older search is of no use.
    if (!page || search !== this.search) return;
    this.items = [...before, ...page.items];
    this.cursor = page.nextCursor;
    this.onChange();
  }

  /** @param {string} search */
  searchFor(search) {
    this.search = search.trim();
    this.listSoon();
  }

  /**
   * A session is gone.
   * @param {string} sessionId
   */
  forget(sessionId) {
    this.items = this.items.filter((item) => item.sessionId !== sessionId);
    this.onChange();
    this.listSoon();
  }
}
