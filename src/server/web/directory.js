/**
 * The list of the user's sessions, a page at a time. Where the server can, it tells of changes by itself; otherwise the
 * list is asked for again when there is a reason to.
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
   * @param {(payload: Ask) => Promise<import("reseed-protocol").Sessions | null>} options.ask returns null if there is
   *   no answer
   * @param {() => boolean} options.canWatch whether the server tells of changes
   * @param {() => void} options.onChange
   */
  constructor({ ask, canWatch, onChange }) {
    this.ask = ask;
    this.canWatch = canWatch;
    this.onChange = onChange;
    /** @type {SessionItem[]} newest first */
    this.items = [];
    this.search = "";
    /** @type {string | undefined} where the next page begins; absent when all are here */
    this.cursor = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  /** Something has changed of which the server tells by itself, where it can. */
  maybeChanged() {
    if (!this.canWatch()) this.listSoon();
  }

  /**
   * The server says that a session has changed.
   * @param {SessionItem} item
   */
  changed(item) {
    const others = this.items.filter((other) => other.sessionId !== item.sessionId);
    const known = others.length < this.items.length;
    if (item.deleted) {
      this.items = others;
    } else if (this.search) {
      // Whether it is found now is the server's to say.
      if (known) this.items = this.items.map((other) => (other.sessionId === item.sessionId ? item : other));
      this.listSoon();
    } else {
      const at = others.findIndex((other) => other.updatedAt <= item.updatedAt);
      // Behind the last of a page that is not the last, its place is not known.
      if (at < 0 && this.cursor && !known) return;
      this.items = others.toSpliced(at < 0 ? others.length : at, 0, item);
    }
    this.onChange();
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
    const watch = this.canWatch() ? { watch: true } : {};
    const page = await this.ask({ ...payload, ...watch, ...(search ? { search } : {}) });
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
