/**
 * Types of the wire that the generator does not print yet: tool calls that stream. Delete this file, and its names from
 * `wire.ts`, once `protocol/typescript/` has them.
 */

import type * as now from "../../typescript/index.js";

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

/** Payload of `item_delta`. */
export type ItemDelta = Omit<now.ItemDelta, "kind"> & {
  /** The kind of text; absent for text. */
  kind?: DeltaKind;
};

/** Payload of `item_finished`. */
export interface ItemFinished {
  /** The item. */
  itemId: now.EntryId;
  /** The tool call in it that is complete; absent if the whole item is. */
  part?: number;
}

/** An item being streamed. */
export interface RunningItem {
  /** The id that its entry will have. */
  itemId: now.EntryId;
  /** Its parts so far. */
  parts: Array<RunningPart>;
}

/** A part of an answer that is being streamed. A tool call has no id yet: the durable event `tool_call` names it. */
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

/** Payload of `session_opened`. */
export type SessionOpened = Omit<now.SessionOpened, "turn"> & {
  /** The running turn. */
  turn?: RunningTurn;
};

/** An ephemeral event. */
export type EphemeralEvent =
  | Exclude<now.EphemeralEvent, { type: "item_started" | "item_delta" }>
  | { type: "item_started"; payload: ItemStarted }
  | { type: "item_delta"; payload: ItemDelta }
  | { type: "item_finished"; payload: ItemFinished };

/** A reply with its payload. */
export type Reply =
  | Exclude<now.Reply, { type: "session_opened" }>
  | { type: "session_opened"; payload: SessionOpened };

/** The one answer to a command; an `error` without `re` is about the connection. */
export type ReplyFrame =
  | ({ re: string; sessionId?: string; seq?: undefined } & Reply)
  | ({ re?: undefined; sessionId?: string; seq?: undefined } & Extract<Reply, { type: "error" }>);

/** An event that is not stored. */
export type EphemeralFrame = { re?: undefined; sessionId?: string; seq?: undefined } & EphemeralEvent;

/** Server to client. */
export type ServerFrame = ReplyFrame | now.DurableFrame | EphemeralFrame;
