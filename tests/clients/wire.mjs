/**
 * One WebSocket as a queue of JSON frames, over npm's `ws` or Node's own client. Both have the browser's interface, so
 * a client is written once and tested with each.
 */

import { createRequire } from "node:module";

/** Maximum milliseconds for one frame on a busy machine; only a failing client reaches it. */
const PATIENCE_MS = 60_000;

/** Frames shown when something fails, newest last. */
const SHOWN_MAX = 12;

/** The two implementations, by the name on the command line. */
const IMPLEMENTATIONS = {
  // `import` does not search NODE_PATH, `require` does.
  npm: () => createRequire(import.meta.url)("ws"),
  builtin: () => globalThis.WebSocket,
};

/** A failed expectation, with the frames that led to it. */
export class Unexpected extends Error {}

export class Wire {
  #socket;
  #waiting = [];
  #seen = [];
  #wake = () => undefined;
  #closed;

  constructor(socket) {
    this.#socket = socket;
    socket.addEventListener("message", (event) => {
      const frame = JSON.parse(event.data);
      this.#waiting.push(frame);
      this.#seen.push(frame);
      this.#wake();
    });
    this.#closed = new Promise((resolve) => {
      socket.addEventListener("close", (event) => {
        this.closeCode = event.code;
        this.#wake();
        resolve(event.code);
      });
    });
  }

  /** Connects; `implementation` is `npm` or `builtin`, `protocols` the subprotocols to offer. */
  static async open(implementation, url, protocols = []) {
    const WebSocket = IMPLEMENTATIONS[implementation]?.();
    if (!WebSocket) throw new Error(`there is no WebSocket client called \`${implementation}\` here`);
    const socket = new WebSocket(url, protocols);
    const wire = new Wire(socket);
    await new Promise((resolve, reject) => {
      socket.addEventListener("open", resolve);
      socket.addEventListener("error", (event) => reject(event.error ?? new Error(`connect to ${url}: ${event.message}`)));
    });
    return wire;
  }

  /** The subprotocol chosen by the server; empty for none. */
  get protocol() {
    return this.#socket.protocol;
  }

  /** Sends an object as a text frame, or text as it is. */
  send(frame) {
    this.#socket.send(typeof frame === "string" ? frame : JSON.stringify(frame));
  }

  /** Returns the next frame. */
  async next() {
    const patience = AbortSignal.timeout(PATIENCE_MS);
    while (this.#waiting.length === 0) {
      this.expect(this.closeCode === undefined, `the server closed with ${this.closeCode}`);
      this.expect(!patience.aborted, `nothing came for ${PATIENCE_MS} ms`);
      await new Promise((resolve) => {
        this.#wake = resolve;
        patience.addEventListener("abort", resolve, { once: true });
      });
    }
    return this.#waiting.shift();
  }

  /** Returns the payload of the next frame, which must have this type. */
  async nextOf(type) {
    const frame = await this.next();
    this.expect(frame.type === type, `\`${type}\` should come here, \`${frame.type}\` came`);
    return frame.payload;
  }

  /** Waits for this many pings from the server; only npm's `ws` reports them. */
  async pings(count) {
    for (let seen = 0; seen < count; seen += 1) {
      await Promise.race([new Promise((resolve) => this.#socket.once("ping", resolve)), this.#closed]);
      this.expect(this.closeCode === undefined, `the server closed with ${this.closeCode} after ${seen} pings`);
    }
  }

  /** Closes properly. Returns the code that the server answered with. */
  async close() {
    this.#socket.close(1000);
    return this.#closed;
  }

  /** Drops the connection without waiting for an answer. */
  drop() {
    if (this.#socket.terminate) this.#socket.terminate();
    else this.#socket.close();
  }

  /** Fails with the newest frames unless `condition` holds. */
  expect(condition, message) {
    if (condition) return;
    const shown = this.#seen.slice(-SHOWN_MAX).map((frame) => `  ${JSON.stringify(frame).slice(0, 600)}`);
    throw new Unexpected([message, ...shown].join("\n"));
  }

  /** Fails unless both are equal as JSON. */
  same(found, expected, what) {
    const [left, right] = [JSON.stringify(found), JSON.stringify(expected)];
    this.expect(left === right, `${what} should be ${right}, is ${left}`);
  }
}

/** Runs the steps in order, reporting each by name; exits at the first failure. */
export async function run(steps) {
  for (const [name, step] of Object.entries(steps)) {
    try {
      await step();
    } catch (error) {
      console.log(`failed ${name}: ${error instanceof Unexpected ? error.message : error.stack}`);
      process.exit(1);
    }
    console.log(`ok ${name}`);
  }
  process.exit(0);
}
