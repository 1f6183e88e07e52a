/**
 * Commands without a reply, in the order in which they were issued.
 *
 * Invariants:
 * - there are at most `commandsMax` of them, with at most `bytesMax` in total;
 * - a command keeps its id, however often it is sent;
 * - commands about a session are sent in order, once that session is open on this connection;
 * - a writing command refused with `store_failed` or `shutting_down` stays and is resent: it may have been stored;
 * - a command that was sent before stays after every temporary refusal;
 * - a command survives a bounded number of refusals; its caller gets the last one.
 */

import { CommandError, ConnectionLost, OutboxFull } from "../errors.js";
import type { ErrorBody, ErrorCode, ReplyFrame, SessionId } from "../wire.js";
import type { CommandName } from "./commands.js";

/** Errors after which the same command may succeed later. */
const FOR_NOW: ReadonlySet<ErrorCode> = new Set(["rate_limited", "store_failed", "overloaded", "shutting_down"]);

/** Errors after which a writing command may have been stored anyway. Resending it finds out. */
const MAYBE_STORED: ReadonlySet<ErrorCode> = new Set(["store_failed", "shutting_down"]);

/** Maximum temporary refusals of one command: its caller must get an answer eventually. */
const REFUSALS_MAX = 5;

/** A command without a reply. */
export interface Waiting {
  /** Its id. */
  readonly id: string;
  /** Its name. */
  readonly type: CommandName;
  /** The frame, as text. */
  readonly frame: string;
  /** The session it names; `null` if none. */
  readonly about: SessionId | null;
  /** The session that must be open before it is sent; `null` if none. */
  readonly session: SessionId | null;
  /** True if it is resent after a lost connection. */
  readonly resent: boolean;
  /** True if the server stores its effect, once per id. */
  readonly writes: boolean;
  /** Receives the payload of the reply. */
  resolve(payload: unknown): void;
  /** Receives the reason why there is no reply. */
  reject(error: Error): void;
}

/** A temporarily refused command. */
export interface Refused {
  /** Its id. */
  readonly id: string;
  /** How often it has been refused so far. */
  readonly refusals: number;
  /** Minimum milliseconds to wait, if the server named them. */
  readonly waitMs: number | undefined;
}

interface Entry extends Waiting {
  sent: boolean;
  /** How often it was sent. */
  sendings: number;
  /** The number of temporary refusals. */
  refusals: number;
  /** True while it waits for something other than the connection and its session. */
  held: boolean;
  /** The same command, issued again meanwhile. */
  joined: Waiting[];
}

/** The commands waiting for a reply. */
export class Outbox {
  readonly #waiting = new Map<string, Entry>();
  readonly #commandsMax: number;
  readonly #bytesMax: number;
  #characters = 0;
  #joined = 0;

  /** Creates an outbox with these limits. */
  constructor(commandsMax: number, bytesMax: number) {
    this.#commandsMax = commandsMax;
    this.#bytesMax = bytesMax;
  }

  /** The number of commands. */
  get size(): number {
    return this.#waiting.size + this.#joined;
  }

  /**
   * Adds a command that has not been sent yet. The same command under the same id gets the same reply. Throws if it is
   * `bounded` and there is no room, or if a different command with this id is waiting.
   */
  add(command: Waiting, bounded: boolean): void {
    if (bounded) this.#checkRoom(command);
    const known = this.#waiting.get(command.id);
    if (known) {
      if (known.frame !== command.frame) {
        throw new TypeError(`another command with the id ${command.id} is waiting for its reply; give each its own id`);
      }
      this.#joined += 1;
      known.joined.push(command);
      return;
    }
    this.#characters += command.frame.length;
    const fresh = { sent: false, sendings: 0, refusals: 0, held: false, joined: [] };
    this.#waiting.set(command.id, { ...command, ...fresh });
  }

  #checkRoom(command: Waiting): void {
    if (this.size >= this.#commandsMax) {
      throw new OutboxFull(`${this.#commandsMax} commands wait for a reply already; wait for some of them`);
    }
    // Counted in UTF-16 units, which never outnumber the bytes.
    if (this.#characters + command.frame.length > this.#bytesMax && this.#waiting.size > 0) {
      throw new OutboxFull(`${this.#characters} bytes wait for a reply already; wait for some of them`);
    }
  }

  /** Takes the commands that may be sent now and were not sent on this connection yet, in order. */
  take(mayGo: (session: SessionId | null) => boolean): readonly string[] {
    const frames: string[] = [];
    const behind = new Set<SessionId>();
    for (const command of this.#waiting.values()) {
      const { about } = command;
      // A command waits behind a held one of the same session, to preserve their order. Otherwise an older
      // `rename_session` could replace a newer one.
      if (command.held && about !== null) behind.add(about);
      const isBehind = about !== null && behind.has(about);
      if (command.sent || command.held || isBehind || !mayGo(command.session)) continue;
      frames.push(...this.takeOne(command.id));
    }
    return frames;
  }

  /** Takes this command regardless of the others. */
  takeOne(id: string): readonly string[] {
    const command = this.#waiting.get(id);
    if (!command || command.sent) return [];
    command.sent = true;
    command.sendings += 1;
    return [command.frame];
  }

  /**
   * Passes a reply to its command. If the command was only refused temporarily, returns what to `release` later. A
   * command that arrived while its session was not open waits for that alone.
   */
  reply(frame: ReplyFrame, isOpen: (session: SessionId | null) => boolean): Refused | null {
    const command = frame.re === undefined ? undefined : this.#waiting.get(frame.re);
    if (!command) return null;
    if (frame.type === "error" && staysFor(command, frame.payload, isOpen(command.session))) {
      command.sent = false;
      command.refusals += 1;
      if (frame.payload.code === "no_session") return null;
      command.held = true;
      return { id: command.id, refusals: command.refusals, waitMs: frame.payload.retryAfterMs };
    }
    this.#remove(command.id);
    for (const { resolve, reject } of [command, ...command.joined]) {
      if (frame.type === "error") reject(new CommandError(frame.payload));
      else resolve(frame.payload ?? {});
    }
    return null;
  }

  /** Allows a temporarily refused command to be sent again. */
  release(id: string): void {
    const command = this.#waiting.get(id);
    if (command) command.held = false;
  }

  /** Fails the commands for which `errorOf` returns an error. */
  refuse(errorOf: (command: Waiting) => Error | null): void {
    for (const command of [...this.#waiting.values()]) {
      const error = errorOf(command);
      if (error) this.#fail(command.id, error);
    }
  }

  /** Handles a lost connection: resendable commands wait for the next one, all others fail. */
  lost(): void {
    for (const command of [...this.#waiting.values()]) {
      if (command.resent || !command.sent) command.sent = false;
      else this.#fail(command.id, new ConnectionLost("the connection was lost before the reply"));
    }
  }

  /** Fails all commands of a session; with `null`, all commands. */
  fail(session: SessionId | null, error: Error): void {
    for (const command of [...this.#waiting.values()]) {
      if (session === null || command.session === session) this.#fail(command.id, error);
    }
  }

  #fail(id: string, error: Error): void {
    const command = this.#remove(id);
    for (const { reject } of command ? [command, ...command.joined] : []) reject(error);
  }

  #remove(id: string): Entry | undefined {
    const command = this.#waiting.get(id);
    if (!command) return undefined;
    this.#waiting.delete(id);
    this.#characters -= command.frame.length;
    this.#joined -= command.joined.length;
    return command;
  }
}

/**
 * Returns true if a refused command stays, for one of three reasons: it may have been stored anyway; it was sent
 * before, so its caller counts on it; or the server had suspended its session, and the command came too late for that
 * subscription.
 */
function staysFor(command: Entry, { code, retriable }: ErrorBody, isOpen: boolean): boolean {
  if (!command.resent || command.refusals >= REFUSALS_MAX) return false;
  if (code === "no_session") return command.session !== null && !isOpen;
  const isMaybeStored = command.writes && MAYBE_STORED.has(code);
  return retriable && FOR_NOW.has(code) && (isMaybeStored || command.sendings > 1);
}
