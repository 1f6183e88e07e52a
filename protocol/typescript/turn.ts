// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { CommandId, EntryId, LeafId, Timestamp, TurnId } from "./basics.js";
import type { Input, Message, Part, StopReason, Usage } from "./content.js";
import type { ContextInfo } from "./context.js";
import type { ErrorBody, ErrorCode } from "./errors.js";

/** Payload of `user_input`. */
export interface UserInput {
  /**
   * The input. It may be empty (no items) if the last message of `history` has the role `user` or `tool`: that
   * message is then the input.
   */
  input: Input;
  /**
   * Messages that come before the input, such as the results of calls that ended the last turn (`endsTurn`), or
   * a conversation from elsewhere: at most 10,000. They are stored together with the input. Only `role` and
   * `content` are taken. A result must be that of a call of the last answer, or of one in this list. Refused
   * with `turn_running` while a turn is running.
   */
  history?: Array<Message>;
  /** Data for programs, stored with the message of the input: at most 64 KiB. Never sent to the model. */
  details?: unknown;
  /**
   * False to only store the input, without asking the model: the next input continues after it. Not together
   * with `parentId`, and refused with `turn_running` while a turn is running.
   */
  generate?: boolean;
  /** The handling while a turn is running; absent: `queue`. */
  whenBusy?: WhenBusy;
  /** The entry to continue from; absent for the leaf. The move and the input are stored together. */
  parentId?: LeafId;
  /** Refuses with `leaf_moved` if a message was appended after this entry. */
  ifLeaf?: LeafId;
  /**
   * With `parentId`: summarises the abandoned branch at the new position, before the input; `accepted` then
   * comes once the summary is ready.
   */
  summarize?: boolean;
  /** The focus of that summary. */
  instructions?: string;
  /** Replaces the server's own instructions with `instructions` instead of adding to them. */
  replaceInstructions?: boolean;
}

/** The handling of input that arrives while a turn is running. */
export type WhenBusy = "queue" | "steer" | "reject";

/** Payload of `cancel_turn`. */
export interface CancelTurn {
  /** The turn; absent for the running one. */
  turnId?: TurnId;
}

/** Payload of `retry_turn`. */
export interface RetryTurn {
  /** The turn; absent for the last one. */
  turnId?: TurnId;
}

/** Payload of `edit_queue`. */
export interface EditQueue {
  /** Queued inputs to remove, by the ids of their commands. */
  remove?: Array<CommandId>;
  /** All remaining queued inputs, in the new order. */
  order?: Array<CommandId>;
}

/** A turn that is running. */
export interface RunningTurn {
  /** The turn. */
  turnId: TurnId;
  /** Its items that are not entries yet. */
  items: Array<RunningItem>;
}

/** An item being streamed. */
export interface RunningItem {
  /** The id that its entry will have. */
  itemId: EntryId;
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

/** A turn that ended without an answer; the fields are those of `turn_finished`. */
export interface EndedTurn {
  /** The turn. */
  turnId: TurnId;
  /** Its status. */
  status: TurnStatus;
  /** The error, on `failed`. */
  error?: ErrorBody;
}

/** The end of a turn. */
export type TurnStatus = "completed" | "failed" | "cancelled" | "interrupted";

/** A turn that ended without an answer, with its position in the history. */
export interface UnansweredTurn {
  /** The turn. */
  turnId: TurnId;
  /** Its status. */
  status: TurnStatus;
  /** The error, on `failed`. */
  error?: ErrorBody;
  /** The newest entry when it ended. */
  leafId: LeafId;
}

/** A queued input. */
export interface QueueItem {
  /** The command that sent it. */
  commandId: CommandId;
  /** Its content. */
  content: Array<Part>;
  /** If true, it is sent with the next request of the running turn, before other queued inputs. */
  steer?: boolean;
  /** Set for a client's message (`append_custom_message`), which requests no answer. */
  custom?: QueuedCustom;
  /**
   * The `navigate` during which it was sent; the input is for the target of that move. If the move fails, the
   * input stays in the queue until another move completes or `edit_queue` releases it.
   */
  after?: CommandId;
  /** The id that its entry will have; absent for a client's message, and for inputs queued by older versions. */
  entryId?: EntryId;
  /** Data for programs that came with the input; absent for a client's message. */
  details?: unknown;
}

/** The further fields of a client's queued message. */
export interface QueuedCustom {
  /** The id that its entry will have. */
  entryId: EntryId;
  /** The kind of message, chosen by the client. */
  customType: string;
  /** True if it should be shown to people. */
  display: boolean;
  /** Further data for programs; never sent to the model. */
  details?: unknown;
}

/** Payload of `accepted`. */
export interface Accepted {
  /** The entry that was written; absent while the input is queued. */
  entryId?: EntryId;
  /** The turn that was started; absent while the input is queued. */
  turnId?: TurnId;
  /** True if the input is queued. */
  queued: boolean;
  /** This reply covers everything up to this durable event; what the command caused follows. */
  asOfSeq: number;
  /** True if the command had been executed before; this is its first reply. */
  duplicate?: boolean;
}

/** Payload of `turn_started`. */
export interface TurnStarted {
  /** The turn. */
  turnId: TurnId;
  /** The commands whose input it answers. */
  commandIds: Array<CommandId>;
  /** The loop's generation. */
  generation: number;
}

/** Payload of `turn_finished`. */
export interface TurnFinished {
  /** The turn. */
  turnId: TurnId;
  /** Its status. */
  status: TurnStatus;
  /** The reason the last answer ended. */
  finishReason?: StopReason;
  /** The error, on `failed`. */
  error?: ErrorBody;
  /** The usage of the turn's requests together. */
  usage?: Usage;
  /** The part of `usage` for an answer that was not stored, because a hook that had to check it failed. */
  withheldUsage?: Usage;
  /** The size of the context. */
  contextInfo: ContextInfo;
}

/** Payload of `queue_item_added`. */
export interface QueueItemAdded {
  /** Its position in the queue; 0 is the first. */
  position: number;
  /** The input. */
  item: QueueItem;
}

/** Payload of `queue_item_removed`. */
export interface QueueItemRemoved {
  /** The command that sent the input. */
  commandId: CommandId;
  /** The reason. */
  reason: QueueRemovalReason;
  /** The turn that it started or joined. */
  turnId?: TurnId;
  /** The entry that holds it now, appended by one of the next events. Absent if it was cancelled. */
  entryId?: EntryId;
  /** The `edit_queue` that cancelled it. */
  cancelledBy?: CommandId;
}

/** The reason an input left the queue. */
export type QueueRemovalReason = "started" | "steered" | "appended" | "cancelled";

/** Payload of `queue_reordered`. */
export interface QueueReordered {
  /** The commands that sent the queued inputs, the next one first. */
  order: Array<CommandId>;
  /** The command that caused it. */
  commandId?: CommandId;
}

/** Payload of `queue_released`: no queued input has `after` any more. */
export interface QueueReleased {
  /** The command that caused it: the move, or `edit_queue`. */
  commandId?: CommandId;
}

/** Payload of `item_started`. */
export interface ItemStarted {
  /** The id that its entry will have. */
  itemId: EntryId;
  /** Its turn. */
  turnId: TurnId;
  /** The kind of item. */
  kind: ItemKind;
  /** The part of the item that starts; on tool calls. */
  part?: number;
  /** The tool's name; on tool calls. */
  name?: string;
}

/** The kind of item that starts streaming. */
export type ItemKind = "message" | "tool_call";

/** Payload of `item_delta`. */
export interface ItemDelta {
  /** The item. */
  itemId: EntryId;
  /** The part of the item. */
  part: number;
  /** The position of the text, in UTF-16 code units from the start of the part. */
  offset: number;
  /** The kind of part; absent for text. */
  kind?: DeltaKind;
  /** The text. */
  text: string;
}

/** The kind of text in a delta. */
export type DeltaKind = "text" | "reasoning" | "arguments";

/** Payload of `item_finished`. */
export interface ItemFinished {
  /** The item. */
  itemId: EntryId;
  /** The tool call in it that is complete; absent if the whole item is. */
  part?: number;
}

/** Payload of `request_delayed`. The wait is over when the answer starts, the turn ends, or another wait begins. */
export interface RequestDelayed {
  /** The running turn. */
  turnId: TurnId;
  /** The attempt that follows the wait: 2 after the first one has failed. */
  attempt: number;
  /** The length of the wait, in milliseconds. */
  waitMs: number;
  /**
   * The error of the last attempt: `upstream_rate_limited`, `upstream_overloaded`, `upstream_unreachable`,
   * `upstream_error` or `upstream_truncated`.
   */
  reason: ErrorCode;
}

/** Payload of `item_aborted`. */
export interface ItemAborted {
  /** The item. */
  itemId: EntryId;
  /** An error code. */
  reason: string;
}

/**
 * Payload of `budget_notice`. At 100 percent, requests to the model are refused with `budget_exhausted` until the
 * budget is filled again.
 */
export interface BudgetNotice {
  /** Whose budget it is: `user`, `session` or `deployment`. */
  budget: string;
  /** The time for which it is meant: `day`, `month` or `session`. */
  per: string;
  /** The share that is used: 80 or 100. */
  percent: number;
  /** When it is filled again; absent if it never is. */
  refillsAt?: Timestamp;
}
