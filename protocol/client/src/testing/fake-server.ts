/**
 * An in-memory server for tests of programs that use this client. It answers every command as the protocol's examples
 * do, remembers sessions across reconnects, and can be controlled by the test.
 */

import type { CommandName, ReplyPayload } from "../connection/commands.js";
import type { SocketConstructor } from "../connection/environment.js";
import { newId } from "../connection/ids.js";
import {
  type CommandFrame,
  type CommandOf,
  type ErrorBody,
  type Input,
  REPLIES,
  type ReplyFrame,
  type ServerFrame,
  type SessionId,
} from "../wire.js";
import { FakeSession } from "./fake-session.js";
import { example, payload } from "./frames.js";
import { type FakeSocket, socketsTo } from "./socket.js";

/** The result of a handler: the payload of the reply, an error, or nothing if it replies by itself or not at all. */
export type Handled<T extends CommandName> = ReplyPayload<T> | { readonly error: ErrorBody } | undefined;

/** Handles a command instead of the built-in script. */
export type Handler<T extends CommandName> = (
  command: CommandOf<T> & { readonly id: string; readonly sessionId?: SessionId },
  socket: FakeSocket,
) => Handled<T>;

/** An in-memory server. */
export class FakeServer {
  /** The address to connect to; nothing real listens there. */
  readonly url = "ws://fake.invalid/ws";
  /** Pass this to `connect` as `WebSocket`. */
  readonly WebSocket: SocketConstructor;
  /** The commands received, oldest first. */
  readonly commands: CommandFrame[] = [];
  /** The sessions, by id. */
  readonly sessions = new Map<SessionId, FakeSession>();
  /** Returns the answer to an input, in the pieces in which it is streamed. */
  reply: (text: string) => readonly string[] = () => ["Start at 16:50: ", "the walk takes half an hour."];

  readonly #handlers = new Map<CommandName, Handler<never>>();
  readonly #sockets: FakeSocket[] = [];
  /** Replies by the id of a writing command: a repeated id is not executed twice. */
  readonly #done = new Map<string, ReplyFrame>();
  #waiting: { readonly type: CommandName; readonly resolve: (command: CommandFrame) => void }[] = [];
  #refuses = 0;

  /** Creates a server without sessions. */
  constructor() {
    this.WebSocket = socketsTo({
      connected: (socket) => this.#connected(socket),
      received: (socket, command) => this.#received(socket, command),
      closed: (socket) => this.#closed(socket),
    });
  }

  /** Adds a session. */
  session(session: FakeSession = new FakeSession()): FakeSession {
    this.sessions.set(session.id, session);
    return session;
  }

  /** The open connections, oldest first. */
  get sockets(): readonly FakeSocket[] {
    return this.#sockets;
  }

  /** Handles a command instead of the built-in script from now on. */
  on<T extends CommandName>(type: T, handler: Handler<T>): void {
    this.#handlers.set(type, handler as unknown as Handler<never>);
  }

  /** Resolves with the next command of this type. */
  next<T extends CommandName>(
    type: T,
  ): Promise<CommandOf<T> & { readonly id: string; readonly sessionId?: SessionId }> {
    return new Promise((resolve) => {
      this.#waiting.push({ type, resolve: resolve as (command: CommandFrame) => void });
    });
  }

  /** Sends a frame to all connections. */
  send(frame: ServerFrame): void {
    for (const socket of this.#sockets) socket.deliver(frame);
  }

  /** Ends all connections. */
  drop(code = 1006, reason = ""): void {
    for (const socket of [...this.#sockets]) socket.drop(code, reason);
  }

  /** Refuses this many of the next connection attempts. */
  refuse(attempts: number): void {
    this.#refuses = attempts;
  }

  #connected(socket: FakeSocket): void {
    if (this.#refuses > 0) {
      this.#refuses -= 1;
      socket.drop();
    } else this.#sockets.push(socket);
  }

  #closed(socket: FakeSocket): void {
    const place = this.#sockets.indexOf(socket);
    if (place >= 0) this.#sockets.splice(place, 1);
    for (const session of this.sessions.values()) session.leave(socket);
  }

  #received(socket: FakeSocket, command: CommandFrame): void {
    this.commands.push(command);
    const handler = this.#handlers.get(command.type);
    if (handler) {
      const handled = handler(command as never, socket);
      if (handled !== undefined) socket.deliver(replyTo(command, handled as Handled<CommandName>));
    } else this.#play(socket, command);
    const waiting = this.#waiting.filter(({ type }) => type === command.type);
    this.#waiting = this.#waiting.filter(({ type }) => type !== command.type);
    for (const { resolve } of waiting) resolve(command);
  }

  /** The built-in script. */
  #play(socket: FakeSocket, command: CommandFrame): void {
    const done = this.#done.get(command.id);
    const session = command.sessionId === undefined ? undefined : this.sessions.get(command.sessionId);
    if (done) return socket.deliver(repeated(done));
    switch (command.type) {
      case "open_session":
        return this.#open(socket, command, session);
      case "close_session":
        session?.leave(socket);
        return socket.deliver(replyTo(command, {}));
      case "user_input": {
        if (!session) return socket.deliver(replyTo(command, { error: NO_SESSION }));
        const text = textOfInput(command.payload.input);
        const asOfSeq = session.log.length;
        const ids = { entryId: newId().slice(0, 12), turnId: newId().slice(0, 12) };
        const reply = replyTo(command, { ...ids, queued: false, asOfSeq });
        this.#done.set(command.id, reply);
        // A reply precedes the events that its command causes.
        socket.deliver(reply);
        session.ask(text, command.id, ids);
        return session.answer(ids.turnId, this.reply(text));
      }
      case "ping": {
        const seq = session?.log.length;
        const known = seq === undefined ? {} : { seq, inSync: (command.payload?.seq ?? 0) >= seq };
        return socket.deliver(replyTo(command, { serverTime: new Date(0).toISOString(), ...known }));
      }
      default:
        return socket.deliver(replyTo(command, payloadOf(command.type)));
    }
  }

  #open(socket: FakeSocket, command: CommandFrame & CommandOf<"open_session">, known: FakeSession | undefined): void {
    if (command.sessionId !== undefined && !known) {
      return socket.deliver(replyTo(command, { error: SESSION_NOT_FOUND }));
    }
    const session = known ?? this.session();
    const { opened, missed } = session.open(socket, command.payload?.resume);
    socket.deliver({ re: command.id, sessionId: session.id, type: "session_opened", payload: opened });
    for (const frame of missed) socket.deliver(frame);
  }
}

const NO_SESSION: ErrorBody = {
  code: "no_session",
  message: "this connection is not subscribed to it",
  retriable: false,
};
const SESSION_NOT_FOUND: ErrorBody = {
  code: "session_not_found",
  message: "there is no such session",
  retriable: false,
};

/** Returns the payload of the example reply to a command. */
function payloadOf(type: CommandName): ReplyPayload<CommandName> {
  const { payload: body } = example(`replies/${REPLIES[type]}`);
  if (type !== "hello") return body as ReplyPayload<CommandName>;
  return { ...payload("replies/welcome", "welcome"), connectionId: newId() };
}

function replyTo(command: CommandFrame, handled: Handled<CommandName>): ReplyFrame {
  const sessionId = command.sessionId === undefined ? {} : { sessionId: command.sessionId };
  if (handled && "error" in handled) return { re: command.id, ...sessionId, type: "error", payload: handled.error };
  return { re: command.id, ...sessionId, type: REPLIES[command.type], payload: handled } as ReplyFrame;
}

function repeated(reply: ReplyFrame): ReplyFrame {
  return { ...reply, payload: { ...reply.payload, duplicate: true } } as ReplyFrame;
}

function textOfInput(input: Input): string {
  if (typeof input === "string") return input;
  return input
    .map(({ content }) =>
      typeof content === "string" ? content : content.map((part) => ("text" in part ? part.text : "")).join(""),
    )
    .join("\n");
}
