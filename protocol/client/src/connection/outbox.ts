/**
 * Commands that have no reply yet, in the order in which they were given.
 *
 * What always holds:
 * - there are at most `commandsMax` of them, with `bytesMax` together;
 * - a command goes out under one id, however often it is sent;
 * - a command about a session goes out once that session is open on this connection, in order.
 */

import { CommandError, ConnectionLost, OutboxFull } from "../errors.js";
import type { ReplyFrame, SessionId } from "../wire.js";

/** A command without a reply. */
export interface Waiting {
  /** Its id. */
  readonly id: string;
  /** The frame, as text. */
  readonly frame: string;
  /** The session that must be open before; `null` if none has to be. */
  readonly session: SessionId | null;
  /** True if it is sent again after a lost connection. */
  readonly resent: boolean;
  /** Takes the payload of the reply. */
  resolve(payload: unknown): void;
  /** Takes the reason why there is none. */
  reject(error: Error): void;
}

/** The commands that wait for a reply. */
export class Outbox {
  readonly #waiting = new Map<string, Waiting & { sent: boolean }>();
  readonly #commandsMax: number;
  readonly #bytesMax: number;
  #characters = 0;

  /** Creates one with these bounds. */
  constructor(commandsMax: number, bytesMax: number) {
    this.#commandsMax = commandsMax;
    this.#bytesMax = bytesMax;
  }

  /** The number of commands. */
  get size(): number {
    return this.#waiting.size;
  }

  /** Adds a command that is not sent yet. Throws if it is `bounded` and there is no room. */
  add(command: Waiting, bounded: boolean): void {
    if (bounded) this.#checkRoom(command);
    this.#characters += command.frame.length;
    this.#waiting.set(command.id, { ...command, sent: false });
  }

  #checkRoom(command: Waiting): void {
    if (this.#waiting.size >= this.#commandsMax) {
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
    for (const command of this.#waiting.values()) {
      if (command.sent || !mayGo(command.session)) continue;
      command.sent = true;
      frames.push(command.frame);
    }
    return frames;
  }

  /** Takes this command, whatever else waits. */
  takeOne(id: string): readonly string[] {
    const command = this.#waiting.get(id);
    if (!command || command.sent) return [];
    command.sent = true;
    return [command.frame];
  }

  /** Hands a reply to its command. Returns false if no command waits for it. */
  reply(frame: ReplyFrame): boolean {
    const command = frame.re === undefined ? undefined : this.#remove(frame.re);
    if (!command) return false;
    if (frame.type === "error") command.reject(new CommandError(frame.payload));
    else command.resolve(frame.payload ?? {});
    return true;
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
    this.#remove(id)?.reject(error);
  }

  #remove(id: string): Waiting | undefined {
    const command = this.#waiting.get(id);
    if (!command) return undefined;
    this.#waiting.delete(id);
    this.#characters -= command.frame.length;
    return command;
  }
}
