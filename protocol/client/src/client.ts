/** The client: one connection, and the sessions open on it. */

import { type CommandName, type PayloadOf, type ReplyPayload } from "./connection/commands.js";
import { type Addressed, Connection, type ConnectionStatus, type Credentials } from "./connection/connection.js";
import {
  type Environment,
  realEnvironment,
  type SocketConstructor,
  socketConstructor,
} from "./connection/environment.js";
import { tabId } from "./connection/ids.js";
import { Listeners } from "./listeners.js";
import { type NewSessionOptions, Session, type SessionOptions } from "./session/session.js";
import { SessionList } from "./sessions.js";
import { offers } from "./hosting/offer.js";
import type {
  DurableFrame,
  EphemeralFrame,
  HistoryHits,
  ListSessions,
  Models,
  SearchHistory,
  SessionId,
  Sessions,
  Software,
  Welcome,
} from "./wire.js";

/** Maximum commands without a reply: more than a person or a well-behaved program issues while the network is down. */
const OUTBOX_MAX = 256;

/** Maximum total bytes of these commands. */
const OUTBOX_BYTES_MAX = 16 * 1024 * 1024;

/** A token or a ticket; absent if there is none. */
type Credential = string | undefined;

/** The options of `connect`. */
export interface ConnectOptions {
  /**
   * A token from the server's `AUTH_TOKENS`, for programs. A function is called before each connection attempt;
   * `undefined` connects without a token.
   */
  readonly token?: string | (() => Credential | Promise<Credential>);
  /**
   * Returns a one-time ticket, for browsers: see `fetchTicket`. Called before each connection attempt. `undefined`
   * connects without a ticket, for servers that require no credentials.
   */
  readonly ticket?: () => Credential | Promise<Credential>;
  /**
   * Identifies one tab or program across reconnects, and must be unique. Absent: in a browser it is stored for the tab,
   * elsewhere each client gets a new one. A newer connection with the same id takes over the host role from the older
   * one.
   */
  readonly clientId?: string;
  /** The name and version of your program, for the server's operator. */
  readonly client?: Software;
  /**
   * The WebSocket implementation; absent: the runtime's own. Node has one since version 22; on older versions pass that
   * of npm's `ws`.
   */
  readonly WebSocket?: SocketConstructor;
  /** Returns the W3C trace context of the caller. Called for each command, which carries it. */
  readonly traceparent?: () => string | undefined;
  /** Maximum commands that may wait for a reply; absent: 256. */
  readonly outboxMax?: number;
  /** Maximum total bytes of these commands; absent: 16 MiB. */
  readonly outboxBytesMax?: number;
  /** The clock and random numbers, for tests. */
  readonly environment?: Environment;
}

/**
 * Connects to a server: `ws://host:port`, or `wss`, `http`, `https`, with or without `/ws`. Returns at once: commands
 * wait until the connection is up. Throws a `TypeError` for any other address.
 */
export function connect(url: string | URL, options: ConnectOptions = {}): Client {
  return new Client(url, options);
}

/** A lasting connection with its sessions. */
export class Client {
  readonly #connection: Connection;
  readonly #environment: Environment;
  /** Sessions that are open or have listeners. */
  readonly #sessions = new Map<SessionId, Session>();
  /** Sessions that only their owners keep alive, so that a client does not accumulate every session it has seen. */
  readonly #idle = new Map<SessionId, WeakRef<Session>>();
  readonly #forgotten = new FinalizationRegistry((id: SessionId) => {
    if (!this.#idle.get(id)?.deref()) this.#idle.delete(id);
  });
  readonly #listeners = new Listeners();
  #probes = 0;
  #welcome: Welcome | null = null;
  /** The list of sessions. */
  readonly sessions: SessionList;

  /** Use `connect` instead. */
  constructor(url: string | URL, options: ConnectOptions = {}) {
    const clientId = once(() => (options.clientId === undefined ? tabId() : Promise.resolve(options.clientId)));
    this.#environment = options.environment ?? realEnvironment;
    this.#connection = new Connection({
      url: socketUrl(url),
      WebSocket: socketConstructor(options.WebSocket),
      environment: this.#environment,
      client: options.client,
      clientId,
      traceparent: options.traceparent,
      credentials: () => credentials(options),
      renews: options.ticket !== undefined || typeof options.token === "function",
      outboxMax: options.outboxMax ?? OUTBOX_MAX,
      outboxBytesMax: options.outboxBytesMax ?? OUTBOX_BYTES_MAX,
      onStatus: (status) => this.#statusChanged(status),
      onEvent: (event) => this.#take(event),
      onProbe: () => this.#probe(),
    });
    this.sessions = new SessionList(this.#connection, this.#environment);
  }

  /** The status of the connection; the same object until it changes. */
  get status(): ConnectionStatus {
    return this.#connection.status;
  }

  /**
   * What the server announced on the newest connection, such as its features and limits. It stays while the connection
   * is down; `null` before the first connection.
   */
  get welcome(): Welcome | null {
    return this.#welcome;
  }

  /** Calls a function after each change of `status`. Returns the function that unsubscribes. */
  readonly subscribe = (listener: () => void): (() => void) => this.#listeners.add(listener);

  /**
   * Returns the session. There is one object per session as long as it is open or in use. It opens with the first
   * subscription or request. Options count only on the first call; `Session.host` changes the offer later.
   */
  session(id: SessionId, options: SessionOptions = {}): Session {
    const known = this.#sessions.get(id) ?? this.#idle.get(id)?.deref();
    if (known) return known;
    const session = this.#made(id, options);
    this.#forgotten.register(session, id);
    this.#idle.set(id, new WeakRef(session));
    return session;
  }

  /** Creates a session and opens it. Exactly one is created even if the connection is lost meanwhile. */
  async createSession(options: NewSessionOptions = {}): Promise<Session> {
    const { role, entries, deltas, store } = options;
    const opening = {
      ...(role ? { role } : {}),
      ...(entries === undefined ? {} : { entries }),
      ...(deltas === undefined ? {} : { deltas }),
      ...(store === undefined ? {} : { store }),
    };
    const payload = { ...opening, ...offers(options) };
    const { sessionId } = await this.#connection.request("open_session", payload, {}, (opened) => {
      this.session(opened.sessionId, options).adopt(opened);
    });
    return this.session(sessionId, options);
  }

  /** Fetches one page of sessions, newest first. `sessions` is the list that updates itself. */
  listSessions(options: Omit<ListSessions, "watch"> = {}): Promise<Sessions> {
    return this.#connection.request("list_sessions", options);
  }

  /** Lists the models that a session may use: the default for new sessions, and what is known of each. */
  listModels(): Promise<Models> {
    return this.#connection.request("list_models", {});
  }

  /** Searches what was said in all sessions of this user. The most recently written session comes first. */
  searchHistory(query: string, options: Omit<SearchHistory, "query"> = {}): Promise<HistoryHits> {
    return this.#connection.request("search_history", { query, ...options });
  }

  /** Sends any command, such as one that a newer server supports and this version has no method for. */
  request<T extends CommandName>(type: T, payload: PayloadOf<T>, to: Addressed = {}): Promise<ReplyPayload<T>> {
    return this.#connection.request(type, payload, to);
  }

  /** Reconnects, even after the connection has stopped, for instance once the user has logged in again. */
  reconnect(): void {
    this.#connection.reconnect();
  }

  /** Closes all sessions and the connection. Running turns continue without this client. */
  close(): void {
    for (const session of this.#sessions.values()) void session.close();
    this.#connection.close();
  }

  #made(id: SessionId, options: SessionOptions): Session {
    return new Session(id, options, {
      connection: this.#connection,
      environment: this.#environment,
      connectionId: () => (this.status.phase === "open" ? this.status.welcome.connectionId : null),
      onUse: (session, isUsed) => this.#used(session, isUsed),
    });
  }

  #used(session: Session, isUsed: boolean): void {
    if (isUsed === this.#sessions.has(session.id)) return;
    if (isUsed) {
      this.#idle.delete(session.id);
      this.#sessions.set(session.id, session);
    } else {
      this.#sessions.delete(session.id);
      this.#idle.set(session.id, new WeakRef(session));
    }
  }

  #statusChanged(status: ConnectionStatus): void {
    if (status.phase === "open") this.#welcome = status.welcome;
    for (const session of this.#sessions.values()) {
      if (status.phase === "open") session.connected();
      else session.disconnected();
    }
    if (status.phase === "open") this.sessions.connected();
    this.#listeners.tell();
  }

  #take(event: DurableFrame | EphemeralFrame): void {
    if (event.type === "session_changed") this.sessions.take(event.payload);
    else if (event.sessionId !== undefined) this.#sessions.get(event.sessionId)?.take(event);
  }

  /** Checks that the server responds and, for one session after the other, that it has received everything. */
  #probe(): void {
    const open = [...this.#sessions.values()].filter((session) => session.status.phase === "open");
    const session = open[this.#probes % open.length];
    this.#probes += 1;
    if (!session?.snapshot) return void this.#connection.requestNow("ping", {}).catch(() => undefined);
    const { seq } = session.snapshot;
    const ask = this.#connection.requestNow("ping", { seq }, { session: session.id }, ({ inSync }) => {
      // Events that arrived between the request and its reply are not missing.
      if (inSync === false && session.snapshot?.seq === seq) session.resync();
    });
    ask.catch(() => undefined);
  }
}

/** Returns the address of the socket: `http` becomes `ws`, and an empty path becomes `/ws`. */
export function socketUrl(url: string | URL): string {
  const address = parsed(url);
  if (!address || !/^(ws|http)s?:$/.test(address.protocol)) {
    const forms = "must begin with ws://, wss://, http:// or https://, for instance ws://127.0.0.1:8080";
    throw new TypeError(`\`${url}\` is not the address of a server: it ${forms}`);
  }
  address.protocol = address.protocol.replace(/^http/, "ws");
  // A socket's address must have no fragment.
  address.hash = "";
  if (address.pathname === "/") address.pathname = "/ws";
  return address.href;
}

/**
 * Fetches a ticket from the server to send in place of a token: `ticket: () => fetchTicket(url, token)`. A page has no
 * token; it asks its own server, which makes this call for it.
 */
export async function fetchTicket(server: string | URL, token: string): Promise<string> {
  const address = new URL("/api/tickets", server);
  address.protocol = address.protocol.replace(/^ws/, "http");
  const response = await fetch(address, { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  if (!response.ok) throw new Error(`POST ${address.pathname} returned ${response.status}`);
  const { ticket } = (await response.json()) as { ticket: string };
  return ticket;
}

function parsed(url: string | URL): URL | null {
  try {
    return new URL(url);
  } catch {
    return null;
  }
}

async function credentials({ token, ticket }: ConnectOptions): Promise<Credentials> {
  if (ticket) {
    const given = await ticket();
    return given === undefined ? {} : { ticket: given };
  }
  const given = typeof token === "function" ? await token() : token;
  return given === undefined ? {} : { token: given };
}

/** Returns a function that calls `ask` once and caches the result. */
function once<T>(ask: () => Promise<T>): () => Promise<T> {
  let asked: Promise<T> | undefined;
  return () => (asked ??= ask());
}
