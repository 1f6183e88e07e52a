/** Facts about commands that decide how they are sent. */

import { CommandTooLarge } from "../errors.js";
import {
  type Command,
  QUERIES,
  type Reply,
  type ReplyTypes,
  WITHOUT_SUBSCRIPTION as FREE_COMMANDS,
  WRITING_COMMANDS,
} from "../wire.js";

/** The name of a command. */
export type CommandName = Command["type"];

/** The payload of the command called `T`. */
export type PayloadOf<T extends CommandName> = Extract<Command, { type: T }>["payload"];

/** The payload of a successful reply to the command called `T`. */
export type ReplyPayload<T extends CommandName> = Extract<Reply, { type: ReplyTypes[T] }>["payload"];

/** Commands that work without a subscription to the session. */
export const WITHOUT_SUBSCRIPTION: ReadonlySet<CommandName> = new Set<CommandName>(FREE_COMMANDS);

/** Commands that the server executes once per id. */
const WRITING: ReadonlySet<CommandName> = new Set<CommandName>(WRITING_COMMANDS);

/** Commands that are resent if the connection is lost before their reply. */
const RESENT: ReadonlySet<CommandName> = new Set<CommandName>([...WRITING_COMMANDS, ...QUERIES]);

/** Returns true if the server stores the command's effect. A new session is created once per id. */
export function isWriting(type: CommandName, creates: boolean): boolean {
  return creates || WRITING.has(type);
}

/** Returns true if the command may be resent under its id. */
export function isResent(type: CommandName, creates: boolean): boolean {
  return creates || RESENT.has(type);
}

/** Matches in JSON an escaped backslash or a lone surrogate, the only kind that `JSON.stringify` escapes. */
const LONE_SURROGATES = /\\\\|\\ud[89a-f][0-9a-f]{2}/g;

/**
 * Serialises a frame. A lone surrogate, which text cut at an arbitrary place may contain, becomes U+FFFD: it is not
 * valid Unicode, and the server would refuse the whole frame.
 */
export function frameText(frame: object): string {
  const text = JSON.stringify(frame);
  return text.includes("\\ud") ? text.replace(LONE_SURROGATES, (found) => (found === "\\\\" ? found : "\ufffd")) : text;
}

/** Returns an error if a command exceeds the server's size limit, or `null`. */
export function tooLargeFor(bytesMax: number, type: CommandName, frame: string): CommandTooLarge | null {
  // A UTF-16 unit takes at most three bytes.
  if (frame.length * 3 <= bytesMax) return null;
  const bytes = new TextEncoder().encode(frame).length;
  if (bytes <= bytesMax) return null;
  return new CommandTooLarge(`${type} has ${bytes} bytes, the server accepts ${bytesMax}; send less`);
}
