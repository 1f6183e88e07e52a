/**
 * The sessions of the server, kept up to date by small requests.
 *
 * The list is newest first. So a poll reads the newest pages until it meets a session that has not changed. What this
 * cannot show, a sweep finds: with each poll it reads one further page of the whole list, and begins again at its end.
 * A session that should be on a page and is not there has been deleted, or has moved up to the newest ones, which are
 * read after that.
 *
 * @typedef {import("reseed-protocol").SessionItem & {
 *   owner: string, open: boolean, windowTokens: number, node?: string, model?: string, strategy?: string,
 *   compaction?: { count: number, rests?: string, last?: LastCompaction },
 * }} Item
 * @typedef {object} LastCompaction
 * @property {string} at
 * @property {string} outcome `committed`, `failed`, `no_gain`, `cancelled` or `void`
 * @property {string} trigger
 * @property {string} [rung]
 * @property {number} [reductionPercent]
 * @property {string} [code]
 * @property {number} durationMs
 * @property {number} pausedMs
 * @typedef {{ readsContent: boolean, writes?: boolean }} Rights
 * @typedef {{ items: Item[], nextCursor?: string, operator?: Rights }} Page
 */

/** Sessions per request: of the newest ones, and of the sweep. The page parses and merges one in a few milliseconds. */
const NEWEST_LIMIT = 100;
const SWEEP_LIMIT = 500;
/** Maximum pages of newest sessions per poll. The sweep finds the rest. */
const NEWEST_PAGES_MAX = 5;
/** Maximum sessions in memory, some 10 MB. */
const SESSIONS_MAX = 20_000;

/** Milliseconds between polls: at least, and at most, when nothing changes. */
export const INTERVAL_MS = { least: 4_000, most: 20_000 };
/** The polls, and each of a view's readings, may take at most this share of the time. */
export const BUSY_SHARE = 1 / 20;

export class SessionStore {
  /** @param {(parameters: { limit: number, cursor?: string }) => Promise<Page>} fetchPage */
  constructor(fetchPage) {
    this.fetchPage = fetchPage;
    /** @type {Map<string, Item>} */
    this.items = new Map();
    /** Increases with each change. */
    this.version = 0;
    /** True once the whole list was read. */
    this.isComplete = false;
    /** True if there are more sessions than `SESSIONS_MAX`. */
    this.isCut = false;
    /** @type {Page["operator"]} */
    this.operator = undefined;
    this.intervalMs = INTERVAL_MS.least;
    /** @type {{ cursor?: string, from: string }} where the sweep continues; `from` is the newest time of its page */
    this.sweep = { from: END };
    this.swept = 0;
  }

  /** Reads one page of the sweep and the newest sessions. */
  async poll() {
    const before = this.version;
    const started = performance.now();
    const isAll = await this.#sweepOn();
    let cursor;
    let from = END;
    for (let page = 0; page < NEWEST_PAGES_MAX && this.isComplete && !isAll; page += 1) {
      const answer = await this.fetchPage({ limit: NEWEST_LIMIT, cursor });
      const last = answer.items.at(-1);
      const isKnown = last === undefined || this.items.get(last.sessionId)?.updatedAt === last.updatedAt;
      this.#merge(answer, from);
      cursor = answer.nextCursor;
      if (isKnown || cursor === undefined) break;
      from = last.updatedAt;
    }
    const took = performance.now() - started;
    const calm = this.version === before ? Math.min(this.intervalMs * 1.5, INTERVAL_MS.most) : INTERVAL_MS.least;
    this.intervalMs = Math.max(calm, took / BUSY_SHARE);
  }

  /** Reads the next page of the sweep, and returns true if this was the whole list. */
  async #sweepOn() {
    const { cursor, from } = this.sweep;
    const answer = await this.fetchPage({ limit: SWEEP_LIMIT, cursor });
    this.#merge(answer, from);
    this.swept += answer.items.length;
    const hasRoom = this.swept + SWEEP_LIMIT <= SESSIONS_MAX;
    if (answer.nextCursor !== undefined && hasRoom) {
      this.sweep = { cursor: answer.nextCursor, from: answer.items.at(-1)?.updatedAt ?? from };
      return false;
    }
    const isCut = answer.nextCursor !== undefined;
    if (!this.isComplete || isCut !== this.isCut) this.version += 1;
    Object.assign(this, { isComplete: true, isCut, sweep: { from: END }, swept: 0 });
    return cursor === undefined;
  }

  /**
   * Applies a page that begins after the time `from`.
   * @param {Page} page
   * @param {string} from
   */
  #merge({ items, nextCursor, operator }, from) {
    const until = nextCursor === undefined ? "" : items.at(-1)?.updatedAt ?? from;
    const here = new Set(items.map((item) => item.sessionId));
    for (const [id, { updatedAt }] of this.items) {
      if (updatedAt < from && updatedAt > until && !here.has(id)) {
        this.items.delete(id);
        this.version += 1;
      }
    }
    for (const item of items) {
      const known = this.items.get(item.sessionId);
      if (known && JSON.stringify(known) === JSON.stringify(item)) continue;
      this.items.set(item.sessionId, item);
      this.version += 1;
    }
    this.operator = operator;
  }
}

/** A text that sorts after every time. */
const END = "~";
