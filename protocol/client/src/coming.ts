/**
 * Types of the wire that the generator does not print yet: hosts, presence, the name of the root, tool calls that
 * stream. Delete this file once `protocol/typescript/` has them, and its names from `wire.ts`.
 */

import type * as now from "../../typescript/index.js";

/** An entry, or the place before the first entry. */
export type LeafId = now.EntryId | "root";

/** What a connection may do with a session. */
export type SessionRole = "writer" | "observer";

/** A connection that is subscribed to a session. */
export interface Participant {
  /** The server's name for the connection. */
  connectionId: string;
  /** The client's own name for its tab. */
  clientId?: string;
  /** The client program. */
  client?: now.Software;
  /** What it may do. */
  role: SessionRole;
  /** True if it offers tools or hooks. */
  offers?: boolean;
}

/** The connection whose tools and hooks are asked. */
export interface Host {
  /** The connection. */
  connectionId: string;
  /** The client's own name for its tab. */
  clientId?: string;
  /** True while it is not connected and may still come back. */
  away?: boolean;
}

/** Payload of `host_changed`. */
export interface HostChanged {
  /** The new host; absent if nobody hosts. */
  host?: Host;
}

/** Payload of `presence_changed`. */
export interface PresenceChanged {
  /** The connection, as it is now. */
  connection: Participant;
  /** True if it has left. */
  left?: boolean;
}

/** Payload of `run_tool`, sent to the host alone: run this call now. */
export interface RunTool {
  /** The call. */
  toolCallId: now.CallId;
  /** True if this client was sent it before. */
  again?: boolean;
}

/** Payload of `item_started`. */
export interface ItemStarted {
  /** The id that its entry will have. */
  itemId: now.EntryId;
  /** Its turn. */
  turnId: now.TurnId;
  /** What starts. */
  kind: ItemKind;
  /** The part of the item that starts; on tool calls. */
  part?: number;
  /** The tool's name; on tool calls. */
  name?: string;
}

/** What starts streaming. */
export type ItemKind = "message" | "tool_call";

/** The kind of text in a delta. */
export type DeltaKind = "text" | "reasoning" | "arguments";

/** An item being streamed. */
export interface RunningItem {
  /** The id that its entry will have. */
  itemId: now.EntryId;
  /** Its parts so far. */
  parts: Array<RunningPart>;
}

/** A part of an answer that is being streamed. A tool call has no id yet. */
export type RunningPart =
  | {
      type: "text";
      /** The text so far. */
      text: string;
    }
  | {
      type: "reasoning";
      /** The text so far. */
      text: string;
    }
  | {
      type: "tool_call";
      /** The tool's name. */
      name: string;
      /** The arguments so far: the beginning of a JSON text. */
      arguments: string;
      /** True if the call is complete. */
      finished?: boolean;
    };

/** A turn that is running. */
export type RunningTurn = Omit<now.RunningTurn, "items"> & {
  /** Its items that are not entries yet. */
  items: Array<RunningItem>;
};

/** Payload of `item_delta`. */
export interface ItemDelta {
  /** The item. */
  itemId: now.EntryId;
  /** The part of it. */
  part: number;
  /** The position of the text, in UTF-16 code units from the start of the part. */
  offset: number;
  /** The kind of part; absent for text. */
  kind?: DeltaKind;
  /** The text. */
  text: string;
}

/** Payload of `item_finished`. */
export interface ItemFinished {
  /** The item. */
  itemId: now.EntryId;
  /** The part that is complete; absent for the whole item. */
  part?: number;
}

/** A durable event. */
export type Event =
  Exclude<now.Event, { type: "session_updated" }> | { type: "session_updated"; payload: SessionUpdated };

/** Payload of `session_updated`: absent fields have not changed. */
export type SessionUpdated = Omit<now.SessionUpdated, "leafId"> & {
  /** The session's leaf. */
  leafId?: LeafId;
};

/** An ephemeral event. */
export type EphemeralEvent =
  | Exclude<now.EphemeralEvent, { type: "role_changed" | "item_started" | "item_delta" }>
  | { type: "item_started"; payload: ItemStarted }
  | { type: "item_delta"; payload: ItemDelta }
  | { type: "item_finished"; payload: ItemFinished }
  | { type: "run_tool"; payload: RunTool }
  | { type: "host_changed"; payload: HostChanged }
  | { type: "presence_changed"; payload: PresenceChanged };

/** Payload of `session_opened`. */
export type SessionOpened = Omit<
  now.SessionOpened,
  "role" | "leafId" | "unansweredTurns" | "failedCompactions" | "turn"
> & {
  /** The running turn. */
  turn?: RunningTurn;
  /** This connection's role. */
  role: SessionRole;
  /** The session's leaf. */
  leafId: LeafId;
  /** The newest turns that ended without an answer, oldest first. */
  unansweredTurns?: UnansweredTurn[];
  /** The newest failed compactions that somebody waited for, oldest first. */
  failedCompactions?: FailedCompaction[];
  /** The host; absent if there is none. */
  host?: Host;
  /** The connections that are subscribed. */
  presence: Participant[];
};

/** A turn that ended without an answer, with its place in the history. */
export type UnansweredTurn = Omit<now.UnansweredTurn, "leafId"> & {
  /** The newest entry when it ended. */
  leafId: LeafId;
};

/** A failed compaction, with its place in the history. */
export type FailedCompaction = Omit<now.FailedCompaction, "leafId"> & {
  /** The newest entry when it failed. */
  leafId: LeafId;
};

/** Payload of `entries`. */
export type Entries = Omit<now.Entries, "leafId"> & {
  /** The session's leaf. */
  leafId: LeafId;
};

/** Payload of `tree`. */
export type Tree = Omit<now.Tree, "leafId"> & {
  /** The session's leaf. */
  leafId: LeafId;
};

/** Payload of `navigated`. */
export type Navigated = Omit<now.Navigated, "leafId"> & {
  /** The session's leaf. */
  leafId: LeafId;
};

/** Payload of `ok`. */
export type Done = now.Done & {
  /** True if the offered tools and hooks wait behind those of the host. */
  standby?: boolean;
};

/** Payload of `welcome`. */
export type Welcome = now.Welcome & {
  /** The server's name for this connection. */
  connectionId: string;
};

/** Payload of `open_session`. */
export type OpenSession = Omit<now.OpenSession, "role" | "takeover"> & {
  /** Writer (the default) or observer. */
  role?: SessionRole;
};

/** Payload of `user_input`. */
export type UserInput = Omit<now.UserInput, "parentId" | "ifLeaf"> & {
  /** The entry to continue from; absent for the leaf. */
  parentId?: LeafId;
  /** Refuses with `leaf_moved` if a message was appended after this entry. */
  ifLeaf?: LeafId;
};

/** Payload of `navigate`. */
export type Navigate = Omit<now.Navigate, "entryId"> & {
  /** The entry to move to. */
  entryId: LeafId;
};

/** A command with its payload. */
export type Command =
  | Exclude<now.Command, { type: "open_session" | "user_input" | "navigate" }>
  | { type: "open_session"; payload?: OpenSession }
  | { type: "user_input"; payload: UserInput }
  | { type: "navigate"; payload: Navigate }
  | { type: "take_over_host"; payload?: now.Empty };

/** A reply with its payload. */
export type Reply =
  | Exclude<now.Reply, { type: "session_opened" | "entries" | "tree" | "navigated" | "ok" | "welcome" }>
  | { type: "session_opened"; payload: SessionOpened }
  | { type: "entries"; payload: Entries }
  | { type: "tree"; payload: Tree }
  | { type: "navigated"; payload: Navigated }
  | { type: "ok"; payload: Done }
  | { type: "welcome"; payload: Welcome };

/** Which reply answers which command. */
export type ReplyTypes = now.ReplyTypes & { take_over_host: "ok" };

/** Whether a command's frame names a session. */
export type Addresses = now.Addresses & { take_over_host: "required" };

/** Client to server. */
export type CommandFrame = { id: string; sessionId?: string } & Command;

/** The one answer to a command; an `error` without `re` is about the connection. */
export type ReplyFrame =
  | ({ re: string; sessionId?: string; seq?: undefined } & Reply)
  | ({ re?: undefined; sessionId?: string; seq?: undefined } & Extract<Reply, { type: "error" }>);

/** A stored event. */
export type DurableFrame = { re?: undefined; sessionId: string; seq: number } & Event;

/** An event that is not stored. */
export type EphemeralFrame = { re?: undefined; sessionId?: string; seq?: undefined } & EphemeralEvent;

/** Server to client. */
export type ServerFrame = ReplyFrame | DurableFrame | EphemeralFrame;

/** The command called `T`. */
export type CommandOf<T extends Command["type"]> = Extract<Command, { type: T }>;

/** What a hook at point `P` is asked. The generated one looks for a field that is now called `point`. */
export type HookCallAt<P extends now.HookPoint> = Extract<now.HookCall, { point: P }>;
