/**
 * Requests to the operator endpoints.
 *
 * Invariant: the token is in this object only. It is never in storage, in an address or in the page, so a reload
 * forgets it.
 */

/** Hexadecimal digits of an `Idempotency-Key`. */
const KEY_DIGITS = 32;

/** An answer other than success, one that is not the server's, or none. */
export class Refused extends Error {
  /**
   * @param {number} status 0 if the server did not answer
   * @param {{ message?: string }} body
   */
  constructor(status, { message }) {
    super(message || `the server answered with status ${status}`);
    this.status = status;
  }
}

export class Api {
  /** @param {() => void} onSignedOut is called if the server does not accept the token */
  constructor(onSignedOut) {
    this.onSignedOut = onSignedOut;
    /** @type {string | null} */
    this.token = null;
  }

  /**
   * Reads an endpoint. Undefined parameters are left out.
   * @param {string} path
   * @param {Record<string, string | number | undefined>} [parameters]
   * @param {string} [type] what the answer's `Content-Type` contains
   * @returns {Promise<any>} parsed JSON, or the text of an answer in another format
   */
  get(path, parameters = {}, type = "json") {
    const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
    const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
    return this.#send(query ? `${path}?${query}` : path, {}, type);
  }

  /**
   * Pulls a lever. The same key makes a repetition harmless.
   * @param {"POST" | "DELETE"} method
   * @param {string} path
   * @param {object | undefined} body
   * @param {string} key
   */
  act(method, path, body, key) {
    const headers = { "idempotency-key": key, ...(body ? { "content-type": "application/json" } : {}) };
    return this.#send(path, { method, headers, body: body && JSON.stringify(body) }, "json");
  }

  /**
   * Reads all pages of an endpoint, up to a number of them.
   * @param {string} path
   * @param {Record<string, string | number | undefined>} parameters
   * @param {number} pagesMax
   * @param {number} [limit] items per page
   * @param {() => boolean} [isStale] ends the reading
   * @returns {Promise<{ items: any[], isCut: boolean }>}
   */
  async all(path, parameters, pagesMax, limit = 1000, isStale = () => false) {
    /** @type {any[]} */
    const items = [];
    let cursor;
    for (let page = 0; page < pagesMax && !isStale(); page += 1) {
      const answer = await this.get(path, { ...parameters, limit, cursor });
      items.push(...answer.items);
      cursor = answer.nextCursor;
      if (cursor === undefined) return { items, isCut: false };
    }
    return { items, isCut: true };
  }

  /**
   * @param {string} path
   * @param {RequestInit} options
   * @param {string} type
   */
  async #send(path, { headers, ...options }, type) {
    const asked = this.token;
    const sent = { accept: "application/json", ...headers, ...(asked === null ? {} : { authorization: `Bearer ${asked}` }) };
    const answered = async () => {
      const response = await fetch(path, { ...options, headers: sent, cache: "no-store", credentials: "omit" });
      const kind = response.headers.get("content-type") ?? "";
      const isJson = kind.includes("json");
      return { status: response.status, isOk: response.ok, kind, isJson, body: isJson ? await response.json() : await response.text() };
    };
    const { status, isOk, kind, isJson, body } = await answered().catch(() => {
      throw new Refused(0, { message: "The server does not answer." });
    });
    if (isOk && kind.includes(type)) return body;
    if (isOk) throw new Refused(status, { message: "The answer is not this server’s. A proxy may have sent it." });
    // A token that was replaced in the meantime says nothing about the new one.
    if (status === 401 && asked === this.token) this.onSignedOut();
    throw new Refused(status, isJson ? body : { message: body.trim().slice(0, 300) });
  }
}

/** Returns a new `Idempotency-Key`. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(KEY_DIGITS / 2));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
