/**
 * The socket, version 2 of the protocol: one reply for every command, and a new socket when the old one is lost.
 *
 * What always holds:
 * - every command that is sent settles once: by its reply, which names it in `re`, or by `ConnectionLost`;
 * - a command about a session names it, from when it is asked on: what waits does not end in another session;
 * - a writing command whose reply got lost is sent again, with the same id, once the session is open again; the server
 *   knows the id and does the work once. An `open_session` that creates a session is sent again as soon as the server
 *   is there, since no session has to be open for it;
 * - nothing else writes before `ready()` says that the session stands;
 * - close codes decide about the next try as the protocol says: 44xx waits for the user, the rest backs off and tries
 *   again.
 *
 * @typedef {import("reseed-protocol").Command} Command
 * @typedef {import("reseed-protocol").ErrorBody} ErrorBody
 * @typedef {import("reseed-protocol").Welcome} Welcome
 * @typedef {import("./fold.js").EventFrame} EventFrame
 * @typedef {Command["type"]} CommandName
 *
 * @typedef {{ phase: "connecting" } | { phase: "open" } | { phase: "waiting", retryAt: number }
 *   | { phase: "stopped", code: number, reason: string } | { phase: "login" }} Status
 *
 * @typedef {{ clientId: string, ticket?: string }} Identity Who connects: a tab, and a ticket where one is needed.
 *
 * @typedef {object} Pending A command that waits for its reply.
 * @property {string} frame
 * @property {boolean} keeps whether it outlives a lost connection and is sent again
 * @property {boolean} creates whether it makes a session, and so needs none that is open
 * @property {boolean} sent
 * @property {(payload: any) => void} resolve
 * @property {(error: Error) => void} reject
 */

import { explain } from "./errors.js";
import { CLIENT_NAME } from "./presence.js";
import { WRITING_COMMANDS } from "./writing-commands.js";

/**
 * What a command is answered with, unless it is refused.
 * @template {CommandName} T
 * @typedef {Extract<
 *   import("reseed-protocol").Reply,
 *   { type: import("reseed-protocol").ReplyTypes[T] }
 * >["payload"]} ReplyOf
 */

/**
 * Commands that do not name a session by themselves. All others are about one.
 * @type {{ [T in CommandName as import("reseed-protocol").Addresses[T] extends "required" ? never : T]: true }}
 */
const UNADDRESSED = { hello: true, open_session: true, list_sessions: true, ping: true };

/** Commands that may wait for a connection. A person does not type more while it is away. */
const WAITING_MAX = 100;
/** Milliseconds before the first new try, doubled each time. */
const BACKOFF_MS_MIN = 400;
/** Milliseconds between two tries at most: a server that is back should not wait long for its page. */
const BACKOFF_MS_MAX = 15_000;
/** Milliseconds of silence after which the page asks whether the other end is still there. */
const SILENCE_MS = 30_000;
/** Milliseconds that an answer to this may take. */
const PONG_MS = 10_000;

/** A command was refused. */
export class CommandError extends Error {
  /** @param {ErrorBody} body */
  constructor(body) {
    super(body.message);
    this.code = /** @type {string} */ (body.code);
    this.retriable = body.retriable;
    this.retryAfterMs = body.retryAfterMs;
    this.details = body.details;
  }
}

/** The connection ended before the reply came. */
export class ConnectionLost extends Error {
  constructor(message = "the connection was lost") {
    super(message);
  }
}

/**
 * What went wrong, in people's words.
 * @param {unknown} error
 * @returns {import("./errors.js").Explained}
 */
export function explainError(error) {
  if (error instanceof CommandError) return explain(error);
  const message = error instanceof Error ? error.message : String(error);
  return { text: `${message.charAt(0).toUpperCase()}${message.slice(1)}.` };
}

/** A name for a command or a client: a UUID, also where the page is not served safely. */
export function newId() {
  if (isSecureContext) return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * What to do after a close.
 * @param {number} code
 * @returns {"retry" | "login" | "stop"}
 */
export function afterClose(code) {
  if (code === 4401) return "login";
  if (code >= 4400 && code < 4500) return "stop";
  return [1000, 1002, 1003, 1007, 1009].includes(code) ? "stop" : "retry";
}

/**
 * Milliseconds to wait before the next try: doubled each time, and spread, so that a server that comes back is not met
 * by all its pages at once.
 * @param {number} tries how many failed so far
 * @param {number} random 0 to 1
 */
export function backoff(tries, random) {
  const full = Math.min(BACKOFF_MS_MAX, BACKOFF_MS_MIN * 2 ** Math.min(tries, 10));
  return full * (0.5 + random / 2);
}

export class Connection {
  /**
   * @param {object} options
   * @param {string} options.url
   * @param {() => Promise<Identity>} options.identity throws `CommandError` when no credentials hold
   * @param {(welcome: Welcome) => Promise<void>} options.onWelcome opens the session again, and calls `ready` then
   * @param {(event: EventFrame) => void} options.onEvent
   * @param {(status: Status) => void} options.onStatus
   * @param {() => string | null} options.session the session that commands are about, unless they name another
   * @param {() => { session: string, seq: number } | null} options.place the open session, and the last durable event
   * of it that was seen
   * @param {() => void} options.onOutOfSync
   */
  constructor(options) {
    this.options = options;
    /** @type {Status} */
    this.status = { phase: "connecting" };
    /** @type {WebSocket | null} */
    this.socket = null;
    /** @type {Map<string, Pending>} */
    this.pending = new Map();
    this.tries = 0;
    this.isReady = false;
    this.bytesMax = Infinity;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.heardAt = 0;
    /** Counts the sockets, so that a late word of an old one is known as such. */
    this.generation = 0;
  }

  /** Connects now, whatever was going on. */
  async connect() {
    clearTimeout(this.timer);
    this.drop();
    this.generation += 1;
    const mine = this.generation;
    this.setStatus({ phase: "connecting" });
    let identity;
    try {
      identity = await this.options.identity();
    } catch (error) {
      if (mine !== this.generation) return;
      if (error instanceof CommandError && error.code === "unauthenticated") this.setStatus({ phase: "login" });
      else this.retryLater();
      return;
    }
    if (mine !== this.generation) return;
    const socket = new WebSocket(this.options.url, "reseed.v2");
    this.socket = socket;
    const current = () => this.socket === socket;
    socket.onopen = () => current() && void this.greet(identity);
    socket.onmessage = (event) => current() && this.receive(String(event.data));
    socket.onclose = (event) => current() && this.closed(event.code, event.reason);
  }

  /** Connects at once when it was about to be tried anyway. */
  nudge() {
    if (this.status.phase === "waiting") void this.connect();
  }

  /**
   * Sends a command.
   * @template {CommandName} T
   * @param {T} type
   * @param {import("reseed-protocol").CommandOf<T>["payload"]} payload
   * @param {object} [envelope]
   * @param {string} [envelope.id]
   * @param {string} [envelope.session] the session that it is about; absent for the one that is shown
   * @returns {Promise<ReplyOf<T>>}
   */
  request(type, payload, { id = newId(), session } = {}) {
    const sessionId = session ?? (type in UNADDRESSED ? null : this.options.session());
    if (sessionId === null && !(type in UNADDRESSED)) {
      return Promise.reject(new CommandError({ code: "no_session", message: `${type} is about a session`, retriable: false }));
    }
    const frame = JSON.stringify({ id, ...(sessionId === null ? {} : { sessionId }), type, payload });
    const bytes = new TextEncoder().encode(frame).length;
    if (bytes > this.bytesMax) {
      const message = `This is too long: ${bytes} bytes, and the server takes ${this.bytesMax}`;
      return Promise.reject(new Error(message));
    }
    return new Promise((resolve, reject) => {
      const creates = type === "open_session" && sessionId === null;
      const keeps = creates || WRITING_COMMANDS.has(type);
      const open = this.socket?.readyState === WebSocket.OPEN;
      if (!keeps && !open) return reject(new ConnectionLost());
      if (this.pending.size >= WAITING_MAX) return reject(new ConnectionLost("too much waits for the connection already"));
      const sent = open && (creates ? this.status.phase === "open" : !keeps || this.isReady);
      this.pending.set(id, { frame, keeps, creates, sent, resolve, reject });
      if (sent) this.socket?.send(frame);
    });
  }

  /** The session is being opened: what writes waits until `ready`. */
  hold() {
    this.isReady = false;
  }

  /** The session stands again: what waited for it goes out, in the order in which it was asked. */
  ready() {
    if (this.status.phase !== "open") return;
    this.isReady = true;
    this.sendWaiting(() => true);
  }

  /** @param {(command: Pending) => boolean} test */
  sendWaiting(test) {
    for (const command of this.pending.values()) {
      if (command.sent || !test(command)) continue;
      command.sent = true;
      this.socket?.send(command.frame);
    }
  }

  /** Gives up what waits for a session that will not be opened again. */
  forgetWaiting() {
    for (const [id, command] of this.pending) {
      if (command.sent) continue;
      this.pending.delete(id);
      command.reject(new ConnectionLost());
    }
  }

  /** @param {Identity} identity */
  async greet(identity) {
    const client = { name: CLIENT_NAME, version: "1" };
    try {
      const welcome = await this.request("hello", { protocolVersion: 2, client, ...identity });
      this.bytesMax = welcome.limits.messageBytesMax;
      this.setStatus({ phase: "open" });
      this.listen(welcome.heartbeatMs);
      this.sendWaiting((command) => command.creates);
      await this.options.onWelcome(welcome);
      this.tries = 0;
    } catch (error) {
      if (error instanceof CommandError) this.refused(error);
    }
  }

  /** @param {CommandError} error */
  refused(error) {
    if (error.code === "unauthenticated" || error.code === "forbidden") this.closed(4401, error.message);
    else if (error.retriable) this.closed(1013, error.message);
    else this.closed(4400, error.message);
  }

  /** @param {string} text */
  receive(text) {
    this.heardAt = Date.now();
    const frame = JSON.parse(text);
    if (frame.re === undefined) {
      // An error that answers no command is about the connection: the close behind it says the same.
      if (frame.type !== "error") this.options.onEvent(frame);
      return;
    }
    const command = this.pending.get(frame.re);
    if (!command) return;
    this.pending.delete(frame.re);
    if (frame.type === "error") command.reject(new CommandError(frame.payload));
    else command.resolve(frame.payload ?? {});
  }

  /**
   * @param {number} code
   * @param {string} reason
   */
  closed(code, reason) {
    this.drop();
    const next = afterClose(code);
    if (next === "retry") return this.retryLater();
    if (next === "login") return this.setStatus({ phase: "login" });
    this.forgetWaiting();
    this.setStatus({ phase: "stopped", code, reason });
  }

  retryLater() {
    const wait = backoff(this.tries, Math.random());
    this.tries += 1;
    this.setStatus({ phase: "waiting", retryAt: Date.now() + wait });
    this.timer = setTimeout(() => void this.connect(), wait);
  }

  /** Lets go of the socket. Questions are over; what writes waits for the next one. */
  drop() {
    const { socket } = this;
    this.socket = null;
    this.isReady = false;
    clearTimeout(this.timer);
    socket?.close();
    for (const [id, command] of this.pending) {
      command.sent = false;
      if (command.keeps) continue;
      this.pending.delete(id);
      command.reject(new ConnectionLost());
    }
  }

  /**
   * Asks after a silence whether the other end is there and everything was seen: a page cannot see WebSocket pings.
   * @param {number} heartbeatMs
   */
  listen(heartbeatMs) {
    const { socket } = this;
    const silence = Math.max(SILENCE_MS, heartbeatMs);
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      if (this.socket !== socket) return;
      if (Date.now() - this.heardAt >= silence) {
        const limit = setTimeout(() => this.socket === socket && this.closed(4508, "no answer"), PONG_MS);
        const place = this.options.place();
        const ping = place ? this.request("ping", { seq: place.seq }, { session: place.session }) : this.request("ping", {});
        const pong = await ping.catch(() => null);
        clearTimeout(limit);
        if (this.socket !== socket) return;
        if (pong?.inSync === false) this.options.onOutOfSync();
      }
      this.listen(heartbeatMs);
    }, silence);
  }

  /** @param {Status} status */
  setStatus(status) {
    this.status = status;
    this.options.onStatus(status);
  }
}
