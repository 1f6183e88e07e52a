/**
 * One lasting connection over a succession of sockets.
 *
 * Invariants:
 * - credentials are requested before each attempt, since a ticket works once;
 * - an abandoned attempt has no effect any more, however it ends;
 * - the commands that wait for a connection are bounded, and none is sent before `welcome`.
 */

import {
  asError,
  ClientClosed,
  CommandError,
  ConnectionLost,
  ConnectionStopped,
  CredentialsRefused,
  NoCredentials,
} from "../errors.js";
import type {
  EphemeralFrame,
  DurableFrame,
  Hello,
  ReplyFrame,
  ServerFrame,
  SessionId,
  Software,
  Welcome,
} from "../wire.js";
import { backoff } from "./backoff.js";
import { closeCode } from "./close-codes.js";
import {
  type CommandName,
  frameText,
  isResent,
  isWriting,
  type PayloadOf,
  type ReplyPayload,
  tooLargeFor,
  WITHOUT_SUBSCRIPTION,
} from "./commands.js";
import type { Environment, Socket, SocketConstructor } from "./environment.js";
import { Heartbeat } from "./heartbeat.js";
import { newId } from "./ids.js";
import { Outbox } from "./outbox.js";

/**
 * Milliseconds allowed from the first packet to `welcome`; otherwise a network that swallows packets would block the
 * client.
 */
const CONNECT_MS = 20_000;

/**
 * Milliseconds after which a connection counts as stable: its end is a first failure, and its credentials were good.
 */
const LASTED_MS = 10_000;

/** The close code that the client assigns when the other end is silent, as the server would. */
const SILENT = 4508;

/** The `readyState` of a socket that can send. */
const OPEN = 1;

/** The status of a connection. */
export type ConnectionStatus =
  | { readonly phase: "connecting" }
  | { readonly phase: "open"; readonly welcome: Welcome }
  | {
      readonly phase: "waiting";
      /** Start of the next attempt, in milliseconds since 1970. */
      readonly retryAt: number;
      /** Why the last one ended. */
      readonly reason: string;
    }
  | {
      readonly phase: "stopped";
      /** The close code; 1000 if this client was closed, 1006 if the runtime refused to create a socket. */
      readonly code: number;
      /** Why it ended. */
      readonly reason: string;
      /** The error that rejects all further commands. */
      readonly error: Error;
    };

/** The credentials in `hello`. */
export type Credentials = Pick<Hello, "ticket" | "token">;

/** The dependencies of a connection. */
export interface ConnectionOptions {
  readonly url: string;
  readonly WebSocket: SocketConstructor;
  readonly environment: Environment;
  readonly client: Software | undefined;
  /** The tab's identity. */
  readonly clientId: () => Promise<string>;
  /** Returns the trace context of a command. */
  readonly traceparent: (() => string | undefined) | undefined;
  /** Returns credentials for one attempt. */
  readonly credentials: () => Promise<Credentials>;
  /** True if a new request for credentials may return different ones. */
  readonly renews: boolean;
  /** Maximum commands without a reply, and their total bytes. */
  readonly outboxMax: number;
  readonly outboxBytesMax: number;
  /** Called with each new status. */
  readonly onStatus: (status: ConnectionStatus) => void;
  /** Called with each event. */
  readonly onEvent: (event: DurableFrame | EphemeralFrame) => void;
  /** Checks that the server responds and everything was received. */
  readonly onProbe: () => void;
}

/** The options of one command. */
export interface Addressed {
  /** The session in the envelope. */
  readonly session?: SessionId | undefined;
  /** The command's id; absent: a new one. */
  readonly id?: string | undefined;
}

/** Receives a reply before the events that follow it, which may arrive before a promise callback runs. */
export type OnReply<T extends CommandName> = (reply: ReplyPayload<T>) => void;

/** A lasting connection. */
export class Connection {
  readonly #options: ConnectionOptions;
  readonly #outbox: Outbox;
  readonly #open = new Set<SessionId>();
  #status: ConnectionStatus = { phase: "connecting" };
  #socket: Socket | null = null;
  #heartbeat: Heartbeat | null = null;
  #cancelTimer: () => void = () => undefined;
  /** Cancel the delays of temporarily refused commands. */
  readonly #cancelReleases = new Set<() => void>();
  /** Counts the attempts, so that results of an earlier one are recognised. */
  #attempt = 0;
  #failures = 0;
  #welcomedAt = 0;
  #renewed = false;
  /** True once a socket was open: the server accepts this page's origin. */
  #wasOpen = false;
  #bytesMax = Number.POSITIVE_INFINITY;
  #endWake: () => void;

  /** Starts connecting. */
  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#outbox = new Outbox(options.outboxMax, options.outboxBytesMax);
    this.#endWake = options.environment.onWake(() => this.wake());
    void this.#connect();
  }

  /** The current status. */
  get status(): ConnectionStatus {
    return this.#status;
  }

  /** Sends a command as soon as possible. */
  request<T extends CommandName>(
    type: T,
    payload: PayloadOf<T>,
    to: Addressed = {},
    onReply: OnReply<T> = () => undefined,
  ): Promise<ReplyPayload<T>> {
    return this.#add(type, payload, to, onReply, false);
  }

  /** Sends a command on the current connection, or fails; it is never resent. */
  requestNow<T extends CommandName>(
    type: T,
    payload: PayloadOf<T>,
    to: Addressed = {},
    onReply: OnReply<T> = () => undefined,
  ): Promise<ReplyPayload<T>> {
    if (this.#socket?.readyState !== OPEN) return Promise.reject(new ConnectionLost("there is no connection"));
    return this.#add(type, payload, to, onReply, true);
  }

  /** Marks the session as open on this connection and sends the commands that waited for it. */
  opened(session: SessionId): void {
    this.#open.add(session);
    this.#flush();
  }

  /** Marks the session as not open for now: its commands wait. */
  held(session: SessionId): void {
    this.#open.delete(session);
  }

  /** Marks the session as ended for good: its commands fail. */
  ended(session: SessionId, error: Error): void {
    this.#open.delete(session);
    this.#outbox.fail(session, error);
  }

  /** Handles a hint that the network may be back: connects at once, or probes the other end. */
  wake(): void {
    if (this.#status.phase === "waiting") void this.#connect();
    else this.#heartbeat?.ask();
  }

  /** Reconnects, even after the connection has stopped, for instance once the user has logged in again. */
  reconnect(): void {
    this.#failures = 0;
    this.#renewed = false;
    void this.#connect();
  }

  /** Closes the connection for good. */
  close(): void {
    this.#endWake();
    this.#stop(1000, new ClientClosed("the client was closed"));
  }

  #add<T extends CommandName>(
    type: T,
    payload: PayloadOf<T>,
    to: Addressed,
    onReply: OnReply<T>,
    now: boolean,
  ): Promise<ReplyPayload<T>> {
    const { session, id = newId() } = to;
    const sessionId = session === undefined ? {} : { sessionId: session };
    // A field without a value is left out.
    const traceparent = this.#options.traceparent?.();
    const frame = frameText({ id, ...sessionId, traceparent, type, payload: payload ?? {} });
    if (this.#status.phase === "stopped") return Promise.reject(this.#status.error);
    const tooLarge = tooLargeFor(this.#bytesMax, type, frame);
    if (tooLarge) return Promise.reject(tooLarge);
    return new Promise((resolve, reject) => {
      const creates = type === "open_session" && session === undefined;
      const waitsFor = now || WITHOUT_SUBSCRIPTION.has(type) ? null : (session ?? null);
      const resent = !now && isResent(type, creates);
      const writes = isWriting(type, creates);
      // The server answers each command with the matching reply type.
      const take = (reply: unknown): void => {
        onReply(reply as ReplyPayload<T>);
        (resolve as (reply: unknown) => void)(reply);
      };
      const about = session ?? null;
      this.#outbox.add({ id, type, frame, about, session: waitsFor, resent, writes, resolve: take, reject }, !now);
      if (now) this.#send(this.#outbox.takeOne(id));
      else this.#flush();
    });
  }

  #flush(): void {
    if (this.#status.phase !== "open") return;
    this.#send(this.#outbox.take((session) => session === null || this.#open.has(session)));
  }

  #send(frames: readonly string[]): void {
    for (const frame of frames) this.#socket?.send(frame);
  }

  async #connect(): Promise<void> {
    this.#drop();
    const attempt = this.#attempt;
    const isCurrent = (): boolean => this.#attempt === attempt;
    this.#setStatus({ phase: "connecting" });
    this.#cancelTimer = this.#options.environment.after(CONNECT_MS, () => this.#closed(1006, "no answer"));
    try {
      const [clientId, credentials] = await Promise.all([this.#options.clientId(), this.#options.credentials()]);
      if (!isCurrent()) return;
      const hello: Hello = { protocolVersion: 2, clientId, ...credentials };
      this.#dial(this.#options.client ? { ...hello, client: this.#options.client } : hello, isCurrent);
    } catch (thrown) {
      if (!isCurrent()) return;
      const error = asError(thrown);
      if (error instanceof NoCredentials) this.#stop(4401, error);
      else this.#retry(error.message);
    }
  }

  #dial(hello: Hello, isCurrent: () => boolean): void {
    const socket = this.#newSocket();
    if (!socket) return;
    this.#socket = socket;
    socket.onopen = () => {
      this.#wasOpen = true;
      if (isCurrent()) void this.#greet(hello, isCurrent);
    };
    socket.onmessage = ({ data }) => {
      if (isCurrent()) this.#receive(String(data));
    };
    socket.onclose = ({ code, reason }) => {
      if (isCurrent()) this.#closed(code, String(reason));
    };
    // The close event that follows is what counts. Without a listener, npm's `ws` would throw.
    socket.onerror = () => undefined;
  }

  /** Creates a socket. If the runtime refuses, as for `ws:` on an `https:` page, it always will. */
  #newSocket(): Socket | null {
    const { url, WebSocket } = this.#options;
    try {
      return new WebSocket(url, "reseed.v2");
    } catch (thrown) {
      this.#stop(1006, new ConnectionStopped(1006, `cannot connect to ${url}: ${asError(thrown).message}`));
      return null;
    }
  }

  async #greet(hello: Hello, isCurrent: () => boolean): Promise<void> {
    try {
      const welcome = await this.requestNow("hello", hello);
      if (!isCurrent()) return;
      this.#cancelTimer();
      this.#welcomedAt = this.#options.environment.now();
      this.#bytesMax = welcome.limits.messageBytesMax;
      // A command queued before the limit was known may exceed it. The server would then close every connection with
      // 1009.
      this.#outbox.refuse(({ type, frame }) => tooLargeFor(this.#bytesMax, type, frame));
      this.#heartbeat = new Heartbeat(this.#options.environment, welcome.heartbeatMs, {
        probe: this.#options.onProbe,
        dead: () => this.#closed(SILENT, "the server is silent"),
      });
      this.#setStatus({ phase: "open", welcome });
      this.#flush();
    } catch (error) {
      if (isCurrent() && error instanceof CommandError) this.#refused(error);
    }
  }

  /** Handles a refused `hello`; the close that should follow may never come. */
  #refused(error: CommandError): void {
    if (error.code === "unauthenticated") this.#closed(4401, error.message);
    else if (error.retriable) this.#retry(error.message, error.retryAfterMs);
    else this.#stop(4400, error);
  }

  #receive(text: string): void {
    this.#heartbeat?.heard();
    const frame = JSON.parse(text) as ServerFrame;
    // An error without `re` concerns the connection, and the close that follows says the same.
    if (frame.type === "token_expiring") void this.#renew();
    else if (isEvent(frame)) this.#options.onEvent(frame);
    else this.#replied(frame);
  }

  /**
   * Renews the credentials in place. If that fails, the server closes the connection with 4401 when they expire, and
   * the next one requests credentials again.
   */
  async #renew(): Promise<void> {
    if (!this.#options.renews) return;
    const attempt = this.#attempt;
    try {
      const { ticket, token } = await this.#options.credentials();
      if (this.#attempt !== attempt) return;
      if (ticket !== undefined) await this.requestNow("authenticate", { ticket });
      else if (token !== undefined) await this.requestNow("authenticate", { token });
    } catch {
      // The close that follows reports the failure.
    }
  }

  #replied(frame: ReplyFrame): void {
    const again = this.#outbox.reply(frame, (session) => session === null || this.#open.has(session));
    if (again === null) return;
    const { environment } = this.#options;
    const wait = Math.max(again.waitMs ?? 0, backoff(again.refusals, environment.random()));
    const cancel = environment.after(wait, () => {
      this.#cancelReleases.delete(cancel);
      this.#outbox.release(again.id);
      this.#flush();
    });
    this.#cancelReleases.add(cancel);
  }

  #closed(code: number, reason: string): void {
    const { meaning, then, waitMs } = closeCode(code);
    const words = reason || this.#maybeOrigin() || meaning;
    if (this.#hasLasted()) {
      this.#failures = 0;
      this.#renewed = false;
    }
    if (then === "stop") this.#stop(code, new ConnectionStopped(code, words));
    else if (then === "reconnect") this.#retry(words, waitMs);
    else if (this.#renewed) this.#stop(code, new CredentialsRefused(words));
    else {
      // New credentials are tried at once, but only once: further ones would be no better.
      this.#renewed = true;
      void this.#connect();
    }
  }

  /**
   * Suggests a cause if no socket was ever open: a browser does not tell its page that the server has refused the
   * page's origin. Also logs it to the console once, since a page that hangs shows no status.
   */
  #maybeOrigin(): string | null {
    const { environment, url } = this.#options;
    const { origin } = environment;
    if (this.#wasOpen || !origin || origin === new URL(url).origin.replace(/^ws/, "http")) return null;
    const why =
      `cannot connect to ${url}: the server is not running, or it does not admit pages of ${origin}. ` +
      `Add ${origin} to ALLOWED_ORIGINS in the server's settings`;
    if (this.#failures === 0) environment.warn(`reseed-client: ${why}.`);
    return why;
  }

  #hasLasted(): boolean {
    return this.#status.phase === "open" && this.#options.environment.now() - this.#welcomedAt >= LASTED_MS;
  }

  #retry(reason: string, waitMs = 0): void {
    const { environment } = this.#options;
    const wait = Math.max(waitMs, backoff(this.#failures, environment.random()));
    this.#failures += 1;
    this.#drop();
    this.#cancelTimer = environment.after(wait, () => void this.#connect());
    this.#setStatus({ phase: "waiting", retryAt: environment.now() + wait, reason });
  }

  #stop(code: number, error: Error): void {
    if (this.#status.phase === "stopped") return;
    this.#drop();
    this.#setStatus({ phase: "stopped", code, reason: error.message, error });
    for (const cancel of this.#cancelReleases) cancel();
    this.#cancelReleases.clear();
    this.#outbox.fail(null, error);
  }

  /** Abandons the current attempt. */
  #drop(): void {
    this.#attempt += 1;
    this.#cancelTimer();
    this.#heartbeat?.stop();
    this.#heartbeat = null;
    this.#open.clear();
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    this.#outbox.lost();
  }

  #setStatus(status: ConnectionStatus): void {
    this.#status = status;
    this.#options.onStatus(status);
  }
}

/** Returns true if a frame is an event: it answers no command. */
function isEvent(frame: ServerFrame): frame is DurableFrame | EphemeralFrame {
  return frame.re === undefined && frame.type !== "error";
}
