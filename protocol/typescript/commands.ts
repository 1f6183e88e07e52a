// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { CallId, CommandId, EntryId, JobId, SessionId, TurnId } from "./basics.js";
import type { HookOffer, HookResult } from "./hooks.js";

/** A command with its payload. */
export type Command =
  | { type: "hello"; payload: Hello }
  | { type: "open_session"; payload?: OpenSession }
  | { type: "close_session"; payload?: Empty }
  | { type: "list_sessions"; payload?: ListSessions }
  | { type: "rename_session"; payload: RenameSession }
  | { type: "delete_session"; payload: DeleteSession }
  | { type: "get_entries"; payload?: GetEntries }
  | { type: "ping"; payload?: Ping }
  | { type: "user_input"; payload: UserInput }
  | { type: "cancel_turn"; payload?: CancelTurn }
  | { type: "retry_turn"; payload?: RetryTurn }
  | { type: "edit_queue"; payload?: EditQueue }
  | { type: "tool_result"; payload: ToolResult }
  | { type: "call_progress"; payload: CallProgress }
  | { type: "approval_response"; payload: ApprovalResponse }
  | { type: "navigate"; payload: Navigate }
  | { type: "fork_session"; payload: ForkSession }
  | { type: "get_tree"; payload?: GetTree }
  | { type: "set_label"; payload: SetLabel }
  | { type: "append_custom"; payload: AppendCustom }
  | { type: "append_custom_message"; payload: AppendCustomMessage }
  | { type: "get_context_info"; payload?: Empty }
  | { type: "get_context"; payload?: GetContext }
  | { type: "manual_compact"; payload?: ManualCompact }
  | { type: "preview_compact"; payload?: PreviewCompact }
  | { type: "cancel_compaction"; payload?: CancelCompaction }
  | { type: "undo_compaction"; payload?: UndoCompaction }
  | { type: "pin_entry"; payload: PinEntry }
  | { type: "unpin_entry"; payload: PinEntry }
  | { type: "set_context_strategy"; payload: SetContextStrategy }
  | { type: "set_model"; payload: SetModel }
  | { type: "set_instructions"; payload: SetInstructions }
  | { type: "set_options"; payload?: SetOptions }
  | { type: "register_tools"; payload: RegisterTools }
  | { type: "register_hooks"; payload: RegisterHooks }
  | { type: "hook_result"; payload: HookResult };

/** Payload of `hello`. */
export interface Hello {
  /** 2. */
  protocolVersion: number;
  /** Stable per tab: the same one replaces its own half-open connection silently. */
  clientId?: string;
  /** Who the client is, for the operator. */
  client?: Software;
  /** A one-time ticket from `POST /api/tickets`. */
  ticket?: string;
  /** A token of `AUTH_TOKENS`. */
  token?: string;
}

/** A program and its version. */
export interface Software {
  /** Its name. */
  name: string;
  /** Its version. */
  version: string;
}

/** Payload of `open_session`. */
export interface OpenSession {
  /** The session to join; absent to make one. */
  sessionId?: SessionId;
  /** Owner (the default) or observer. */
  role?: SessionRole;
  /** Whether to take the session from its present owner. */
  takeover?: boolean;
  /** Where this client left off. */
  resume?: Resume;
  /** How many of the newest entries the reply should carry; absent: 50. */
  entries?: number;
  /** Whether to send deltas (the default) or only whole entries. */
  deltas?: boolean;
  /** Tools to offer, as `register_tools` would. */
  tools?: Array<ToolOffer>;
  /** Hooks to offer, as `register_hooks` would. */
  hooks?: Array<HookOffer>;
}

/** What a connection is to a session. */
export type SessionRole = "owner" | "observer";

/** A place in a session's log and in the items that were running. */
export interface Resume {
  /** Names the log. */
  epoch: string;
  /** The last durable event that was seen. */
  seq: number;
  /**
   * How much was seen of each item without an entry. One of which only `item_started` came is named with part 0 and
   * offset 0.
   */
  items?: Array<ResumeItem>;
}

/** A place in a running item. */
export interface ResumeItem {
  /** The item. */
  itemId: EntryId;
  /** Its part. */
  part: number;
  /** UTF-16 code units seen of that part. */
  offset: number;
}

/** A tool that a client offers. */
export interface ToolOffer {
  /** Its name: 1 to 64 of `A-Za-z0-9_-`. */
  name: string;
  /** What it does, for the model. */
  description: string;
  /** JSON Schema of its arguments, an object. */
  parameters: Record<string, unknown>;
  /** Milliseconds a call may take; absent: the server's default. */
  timeoutMs?: number;
  /** Whether a call may safely be made twice. */
  idempotent?: boolean;
}

/** No payload, or `{}`. */
export type Empty = Record<string, never>;

/** Payload of `list_sessions`. */
export interface ListSessions {
  /** `nextCursor` of the page before. */
  cursor?: string;
  /** Most sessions to return, 1 to 200; absent: 50. */
  limit?: number;
  /** Text that the name must contain. */
  search?: string;
  /** Whether to send `session_changed` events from now on; `false` to stop. Absent: as it was. */
  watch?: boolean;
}

/** Payload of `rename_session`. */
export interface RenameSession {
  /** The session; absent for the open one. */
  sessionId?: SessionId;
  /** Its new name, 1 to 200 characters. */
  name: string;
}

/** Payload of `delete_session`. */
export interface DeleteSession {
  /** The session. */
  sessionId: SessionId;
}

/** Payload of `get_entries`. */
export interface GetEntries {
  /** The session; absent for the open one. */
  sessionId?: SessionId;
  /** Only entries older than this one. */
  before?: EntryId;
  /** Only entries newer than this one. */
  after?: EntryId;
  /** Most entries to return, 1 to 500; absent: 100. */
  limit?: number;
  /** Only entries on the path to the leaf. */
  path?: boolean;
}

/** Payload of `ping`. */
export interface Ping {
  /** The last durable event this client has seen. */
  seq?: number;
}

/** Payload of `user_input`. */
export interface UserInput {
  /** What the user says. */
  input: Input;
  /** What to do when a turn is running; absent: `queue`. */
  whenBusy?: WhenBusy;
  /** The entry to go on from, in the same durable step; `null` for the root, absent for the leaf. */
  parentId?: EntryId | null;
  /** Refuse with `leaf_moved` when a message was appended after this entry; `null` for before the first. */
  ifLeaf?: EntryId | null;
  /**
   * With `parentId`: whether the branch that is left should be summarised where the session goes on, before what is
   * said; `accepted` then comes once the summary is made.
   */
  summarize?: boolean;
  /** What that summary should focus on. */
  instructions?: string;
  /** Whether `instructions` take the place of the server's own rather than being added to them. */
  replaceInstructions?: boolean;
}

/** What the user says: a text, or OpenAI Responses input items. */
export type Input = string | Array<InputItem>;

/** One input item of OpenAI's Responses API. */
export interface InputItem {
  /** `message`; absent means the same. */
  type?: string;
  /** The item's id elsewhere; ignored. */
  id?: string;
  /** The item's state elsewhere; ignored. */
  status?: string;
  /** `user`. */
  role: string;
  /** A text, or parts. */
  content: InputContent;
}

/** The content of an input item. */
export type InputContent = string | Array<InputPart>;

/** A part of an input item. */
export type InputPart =
  | {
      type: "input_text";
      /** The text. */
      text: string;
    }
  | {
      type: "input_image";
      /** `https:` or `data:` URL. */
      image_url: string;
      /** `low`, `high` or `auto`. */
      detail?: string;
    };

/** What happens to input that comes while a turn is running. */
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
  /** Waiting inputs to take out, by the ids of their commands. */
  remove?: Array<CommandId>;
  /** The waiting inputs that are left, all of them, first in line first. */
  order?: Array<CommandId>;
}

/** Payload of `tool_result`. */
export interface ToolResult {
  /** The call. */
  callId: CallId;
  /** The tool's answer, as text for the model. */
  output: string;
  /** Whether the tool failed. */
  isError?: boolean;
}

/** Payload of `call_progress`. */
export interface CallProgress {
  /** The call. */
  callId: CallId;
  /** What it is doing, for the user. */
  message?: string;
}

/** Payload of `approval_response`. */
export interface ApprovalResponse {
  /** The approval. */
  approvalId: string;
  /** The decision. */
  review: string;
  /** What to tell the model when it is denied. */
  customDenyMessage?: string;
}

/** Payload of `navigate`. */
export interface Navigate {
  /** The entry to move to; `null` for before the first. */
  entryId: EntryId | null;
  /** Where at it; absent: `at`. */
  position?: NavigatePosition;
  /** Whether the branch that is left should be summarised where the session goes on. */
  summarize?: boolean;
  /**
   * What the summary should dwell on. At most 16 KiB, and at most a quarter of the window of the model that
   * summarises; more is refused.
   */
  instructions?: string;
  /** Whether `instructions` take the place of the server's own rather than being added to them. */
  replaceInstructions?: boolean;
  /** A name for the summary, or, without one, for the entry that is moved to. */
  label?: string;
}

/** Where at an entry a session goes on. */
export type NavigatePosition = "before" | "at" | "tip";

/** Payload of `fork_session`. */
export interface ForkSession {
  /** The entry at which the new session ends. */
  entryId: EntryId;
  /** Whether with it (`at`) or before it, its input handed back for editing (`before`). */
  position: ForkPosition;
}

/** Where a fork ends. */
export type ForkPosition = "before" | "at";

/** Payload of `get_tree`. */
export interface GetTree {
  /** Only what is below this entry, itself included; absent for the whole tree. */
  rootId?: EntryId;
  /** How many levels, the first included, at least 1; absent: as many as fit. */
  depth?: number;
}

/** Payload of `set_label`. */
export interface SetLabel {
  /** The entry. */
  entryId: EntryId;
  /** Its name, 1 to 200 characters; absent to take it away. */
  label?: string;
}

/** Payload of `append_custom`. */
export interface AppendCustom {
  /** What kind of data, 1 to 200 characters of the client's own choice. */
  customType: string;
  /** The data, any JSON. */
  data: unknown;
}

/** Payload of `append_custom_message`. */
export interface AppendCustomMessage {
  /** What kind of message, 1 to 200 characters of the client's own choice. */
  customType: string;
  /** What it says. */
  content: InputContent;
  /** Whether it should be shown to people. */
  display: boolean;
  /** More for programs, any JSON; kept with it, and never sent to the model. */
  details?: unknown;
}

/** Payload of `get_context`. */
export interface GetContext {
  /** `envelope` (the default) or `markdown`. */
  format?: ContextFormat;
  /** Whether to include what hooks last added for one request only; looking asks no hook. */
  ephemeral?: boolean;
}

/** How `get_context` answers. */
export type ContextFormat = "envelope" | "markdown";

/** Payload of `manual_compact`. */
export interface ManualCompact {
  /**
   * What the summary should dwell on, or with `replaceInstructions` the whole prompt for it. At most 16 KiB, and at
   * most a quarter of the window of the model that summarises; more is refused.
   */
  instructions?: string;
  /**
   * Whether `instructions` take the place of the server's own prompt rather than being added to it. The summary then
   * has the form that they ask for, and nothing is put back into it.
   */
  replaceInstructions?: boolean;
  /** Apply exactly the compaction that this preview showed. Nothing else may be given with it. */
  previewId?: JobId;
  /** Compact in this strategy's way, this once; absent: in that of the session, by a summary where it is `manual`. */
  strategy?: string;
  /** Summarise everything anew from the entries themselves instead of merging into the summary there is. */
  rebuild?: boolean;
}

/** Payload of `preview_compact`: as those of `manual_compact`. */
export interface PreviewCompact {
  /**
   * What the summary should dwell on, or with `replaceInstructions` the whole prompt for it. At most 16 KiB, and at
   * most a quarter of the window of the model that summarises; more is refused.
   */
  instructions?: string;
  /**
   * Whether `instructions` take the place of the server's own prompt rather than being added to it. The summary then
   * has the form that they ask for, and nothing is put back into it.
   */
  replaceInstructions?: boolean;
  /** Compact in this strategy's way; absent: in that of the session. */
  strategy?: string;
  /** Summarise everything anew from the entries themselves. */
  rebuild?: boolean;
}

/** Payload of `cancel_compaction`. */
export interface CancelCompaction {
  /** The compaction; absent for the running one. */
  jobId?: JobId;
}

/** Payload of `undo_compaction`. */
export interface UndoCompaction {
  /** The compaction's entry; absent for the one that is in effect. */
  entryId?: EntryId;
}

/** Payload of `pin_entry` and `unpin_entry`. */
export interface PinEntry {
  /** The entry: something said, or a client's message. A tool's answer and its call go together. */
  entryId: EntryId;
}

/** Payload of `set_context_strategy`. */
export interface SetContextStrategy {
  /**
   * `threshold`, `manual` (also `dummy`, `none`), `sliding_window`, `tool_results`, `truncate`, `importance` or
   * `pipeline`.
   */
  strategy: string;
  /** The strategy's settings; what is absent stays at the deployment's default. */
  settings?: StrategySettings;
}

/** Settings of the strategies. Each reads those that concern it. */
export interface StrategySettings {
  /** Compact when more than this share of the window is used; 0 to 1. The room for an answer can be used up earlier. */
  threshold?: number;
  /**
   * Compact when less than this many tokens are free for an answer; at most half of the window counts. Absent:
   * `maxOutputTokens` of `set_options`, at most three quarters of the window, or else 2 % of the window, at
   * least 512 tokens and at most a fifth.
   */
  reserveTokens?: number;
  /** About how many recent tokens stay word for word. */
  keepRecentTokens?: number;
  /**
   * A compaction gets down to this share of the window, and to three quarters of the count at which it is due where
   * that is less; above 0, at most 1.
   */
  target?: number;
  /** From this share of the trigger on a compaction is prepared while turns go on; 1 for never. */
  background?: number;
  /** A compaction saves at least this share of the request; 0 to 0.9. */
  minGain?: number;
  /** `sliding_window` keeps so many of the newest turns; at least 1. */
  keepTurns?: number;
  /** So many of the newest tool results are never cleared. */
  keepToolResults?: number;
  /** Whether `importance` summarises what it takes out; otherwise it is dropped. */
  summarise?: boolean;
  /** The strategies of a `pipeline`, gentle to drastic. */
  steps?: Array<string>;
  /** What the conversation is about, which decides what a summary must keep. */
  summaryKind?: SummaryKind;
}

/** What a conversation is about, which decides what its summary must keep. */
export type SummaryKind = "auto" | "chat" | "code" | "debugging" | "research";

/** Payload of `set_model`. */
export interface SetModel {
  /** The model's name, as the provider knows it. */
  model: string;
  /** How long it should think: the provider's own word. */
  reasoningEffort?: string;
}

/** Payload of `set_instructions`. */
export interface SetInstructions {
  /** The system prompt; empty for none. */
  instructions: string;
}

/** Payload of `set_options`. What is absent goes back to the provider's default. */
export interface SetOptions {
  /** 0 to 2. */
  temperature?: number;
  /** Most tokens an answer may have, at least 1. */
  maxOutputTokens?: number;
}

/** Payload of `register_tools`. */
export interface RegisterTools {
  /** The tools; empty to offer none. */
  tools: Array<ToolOffer>;
}

/** Payload of `register_hooks`. */
export interface RegisterHooks {
  /** The hooks, asked in this order; empty to offer none. */
  hooks: Array<HookOffer>;
}
