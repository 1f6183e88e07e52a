/**
 * Commands that have no reply yet, in the order in which they were given.
 *
 * What always holds:
 * - there are at most `commandsMax` of them, with `bytesMax` together;
 * - a command goes out under one id, however often it is sent;
 * - a command about a session goes out once that session is open on this connection, in order;
 * - a writing command that gets `store_failed` or `shutting_down` stays and is sent again: it may have been stored;
 * - a command that was sent before stays after every refusal that is only for now;
 * - a command stays for a bounded number of refusals; its caller gets the last one.
 */

import { CommandError, ConnectionLost, OutboxFull } from "../errors.js";
import type { ErrorBody, ErrorCode, ReplyFrame, SessionId } from "../wire.js";
import type { CommandName } from "./commands.js";

/** Refusals after which the same command may succeed by waiting. */
const FOR_NOW: ReadonlySet<ErrorCode> = new Set(["rate_limited", "store_failed", "overloaded", "shutting_down"]);

/** Refusals after which a writing command may be stored all the same. Sending it again tells whether it is. */
const MAYBE_STORED: ReadonlySet<ErrorCode> = new Set(["store_failed", "shutting_down"]);

/** Refusals for now that one command may have: whoever has asked should be told some time. */
const REFUSALS_MAX = 5;

/** A command without a reply. */
export interface Waiting {
  /** Its id. */
  readonly id: string;
  /** Its name. */
  readonly type: CommandName;
  /** The frame, as text. */
  readonly frame: string;
  /** The session that it names; `null` if it names none. */
  readonly about: SessionId | null;
  /** The session that must be open before; `null` if none has to be. */
  readonly session: SessionId | null;
  /** True if it is sent again after a lost connection. */
  readonly resent: boolean;
  /** True if the server stores what it does, once for each id. */
  readonly writes: boolean;
  /** Takes the payload of the reply. */
  resolve(payload: unknown): void;
  /** Takes the reason why there is none. */
  reject(error: Error): void;
}

/** A command that was refused for now. */
export interface Refused {
  /** Its id. */
  readonly id: string;
  /** The number of times that this has happened. */
  readonly refusals: number;
  /** Milliseconds to wait at least, if the server has said so. */
  readonly waitMs: number | undefined;
}

interface Entry extends Waiting {
  sent: boolean;
  /** The number of times that it was sent. */
  sendings: number;
  /** The number of temporary refusals. */
  refusals: number;
  /** True while it waits for longer than for the connection and its session. */
  held: boolean;
  /** The same command, given again meanwhile. */
  joined: Waiting[];
}

/** The commands that wait for a reply. */
export class Outbox {
  readonly #waiting = new Map<string, Entry>();
  readonly #commandsMax: number;
  readonly #bytesMax: number;
  #characters = 0;
  #joined = 0;

  /** Creates one with these bounds. */
  constructor(commandsMax: number, bytesMax: number) {
    this.#commandsMax = commandsMax;
    this.#bytesMax = bytesMax;
  }

  /** The number of commands. */
  get size(): number {
    return this.#waiting.size + this.#joined;
  }

  /**
   * Adds a command that is not sent yet. The same one under the same id gets the same reply. Throws if it is `bounded`
   * and there is no room, or if another command with this id waits.
   */
  add(command: Waiting, bounded: boolean): void {
    if (bounded) this.#checkRoom(command);
    const known = this.#waiting.get(command.id);
    if (known) {
      if (known.frame !== command.frame) {
        throw new TypeError(`another command with the id ${command.id} waits for its reply; give each its own id`);
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
    // Counted in UTF-16 units, of which a text has no more than bytes.
    if (this.#characters + command.frame.length > this.#bytesMax && this.#waiting.size > 0) {
      throw new OutboxFull(`${this.#characters} bytes wait for a reply already; wait for some of them`);
    }
  }

  /** Takes the commands that may go out now and were not sent on this connection, in order. */
  take(mayGo: (session: SessionId | null) => boolean): readonly string[] {
    const frames: string[] = [];
    const behind = new Set<SessionId>();
    for (const command of this.#waiting.values()) {
      const { about } = command;
      // A command waits behind one of the same session that is held back, so that their order stays. Otherwise an older
      // `rename_session` would replace a newer one.
      if (command.held && about !== null) behind.add(about);
      const isBehind = about !== null && behind.has(about);
      if (command.sent || command.held || isBehind || !mayGo(command.session)) continue;
      frames.push(...this.takeOne(command.id));
    }
    return frames;
  }

  /** Takes this command, whatever else waits. */
  takeOne(id: string): readonly string[] {
    const command = this.#waiting.get(id);
    if (!command || command.sent) return [];
    command.sent = true;
    command.sendings += 1;
    return [command.frame];
  }

  /**
   * Hands a reply to its command. Returns what to `release` later if the command was refused only for now; one that
   * came while its session was not open waits for that alone.
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

  /** A command that was refused for now may go out again. */
  release(id: string): void {
    const command = this.#waiting.get(id);
    if (command) command.held = false;
  }

  /** Fails the commands for which there is an error. */
  refuse(errorOf: (command: Waiting) => Error | null): void {
    for (const command of [...this.#waiting.values()]) {
      const error = errorOf(command);
      if (error) this.#fail(command.id, error);
    }
  }

  /** The connection is lost: what may be sent again waits for the next one, all other commands fail. */
  lost(): void {
    for (const command of [...this.#waiting.values()]) {
      if (command.resent || !command.sent) command.sent = false;
      else this.#fail(command.id, new ConnectionLost("the connection was lost before the reply"));
    }
  }

  /** Fails all commands of a session, or with `null` all commands. */
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
 * Returns true if a refused command stays: it may be stored all the same; or it was sent once before already, so that
 * whoever gave it counts on it; or the server has ended its session for a moment, and it came too late for that
 * subscription.
 */
function staysFor(command: Entry, { code, retriable }: ErrorBody, isOpen: boolean): boolean {
  if (!command.resent || command.refusals >= REFUSALS_MAX) return false;
  if (code === "no_session") return command.session !== null && !isOpen;
  const isMaybeStored = command.writes && MAYBE_STORED.has(code);
  return retriable && FOR_NOW.has(code) && (isMaybeStored || command.sendings > 1);
}
