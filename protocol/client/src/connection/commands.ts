/** The facts about a command that decide how it is sent. */

import { CommandTooLarge } from "../errors.js";
import { type Addresses, type Command, type Reply, type ReplyTypes, WRITING_COMMANDS } from "../wire.js";

/** The name of a command. */
export type CommandName = Command["type"];

/** The payload of the command called `T`. */
export type PayloadOf<T extends CommandName> = Extract<Command, { type: T }>["payload"];

/** The payload of the reply to the command called `T`, unless it is refused. */
export type ReplyPayload<T extends CommandName> = Extract<Reply, { type: ReplyTypes[T] }>["payload"];

/** Commands that work without a subscription to the session. */
export const WITHOUT_SUBSCRIPTION: ReadonlySet<CommandName> = new Set<CommandName>([
  ...namesOf<"none" | "optional">({
    hello: true,
    authenticate: true,
    open_session: true,
    list_sessions: true,
    list_models: true,
    search_history: true,
    ping: true,
  }),
  "rename_session",
  "delete_session",
  "get_entries",
  "get_tree",
]);

/** Commands that only ask: asking twice changes nothing. */
const READING = [
  "list_sessions",
  "list_models",
  "get_entries",
  "get_tree",
  "get_context",
  "get_context_info",
  "search_history",
] as const;

/** Commands that the server carries out once for each id. */
const WRITING: ReadonlySet<CommandName> = new Set<CommandName>(WRITING_COMMANDS);

/** Commands that are sent again when a connection is lost before their reply. */
const RESENT: ReadonlySet<CommandName> = new Set<CommandName>([...WRITING, ...READING]);

/** Returns true if the server stores what the command does. A new session is created once for each id. */
export function isWriting(type: CommandName, creates: boolean): boolean {
  return creates || WRITING.has(type);
}

/** Returns true if the command may be sent again under its id. */
export function isResent(type: CommandName, creates: boolean): boolean {
  return creates || RESENT.has(type);
}

/** In JSON: an escaped backslash, or half a surrogate pair, which `JSON.stringify` escapes only where it is alone. */
const LONE_SURROGATES = /\\\\|\\ud[89a-f][0-9a-f]{2}/g;

/**
 * Returns a frame as text. Half a surrogate pair, as text that was cut anywhere may have, becomes U+FFFD: it is no
 * Unicode, and the server would refuse the whole frame.
 */
export function frameText(frame: object): string {
  const text = JSON.stringify(frame);
  return text.includes("\\ud") ? text.replace(LONE_SURROGATES, (found) => (found === "\\\\" ? found : "\ufffd")) : text;
}

/** Returns the error for a command that has more bytes than the server accepts. */
export function tooLargeFor(bytesMax: number, type: CommandName, frame: string): CommandTooLarge | null {
  // A UTF-16 unit has at most three bytes.
  if (frame.length * 3 <= bytesMax) return null;
  const bytes = new TextEncoder().encode(frame).length;
  if (bytes <= bytesMax) return null;
  return new CommandTooLarge(`${type} has ${bytes} bytes, the server accepts ${bytesMax}; send less`);
}

/** Returns the names of a record that has all commands which address a session in one of these ways. */
function namesOf<A extends Addresses[CommandName]>(names: {
  [T in CommandName as Addresses[T] extends A ? T : never]: true;
}): CommandName[] {
  return Object.keys(names) as CommandName[];
}
