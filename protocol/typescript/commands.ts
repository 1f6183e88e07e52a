// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { ApprovalPolicy } from "./approvals.js";
import type { ApprovalId, CallId, CommandId, EntryId, JobId, LeafId, TurnId } from "./basics.js";
import type { HookOffer, HookResult } from "./hooks.js";

/** A command with its payload. */
export type Command =
  | { type: "hello"; payload: Hello }
  | { type: "authenticate"; payload?: Authenticate }
  | { type: "open_session"; payload?: OpenSession }
  | { type: "close_session"; payload?: Empty }
  | { type: "list_sessions"; payload?: ListSessions }
  | { type: "list_models"; payload?: Empty }
  | { type: "rename_session"; payload: RenameSession }
  | { type: "delete_session"; payload?: Empty }
  | { type: "get_entries"; payload?: GetEntries }
  | { type: "search_history"; payload: SearchHistory }
  | { type: "ping"; payload?: Ping }
  | { type: "user_input"; payload: UserInput }
  | { type: "cancel_turn"; payload?: CancelTurn }
  | { type: "retry_turn"; payload?: RetryTurn }
  | { type: "edit_queue"; payload?: EditQueue }
  | { type: "tool_result"; payload: ToolResult }
  | { type: "call_progress"; payload?: CallProgress }
  | { type: "approval_response"; payload: ApprovalResponse }
  | { type: "navigate"; payload: Navigate }
  | { type: "fork_session"; payload: ForkSession }
  | { type: "get_tree"; payload?: GetTree }
  | { type: "set_label"; payload: SetLabel }
  | { type: "append_custom"; payload: AppendCustom }
  | { type: "append_custom_message"; payload: AppendCustomMessage }
  | { type: "get_context_info"; payload?: Empty }
  | { type: "get_context"; payload?: GetContext }
  | { type: "start_compaction"; payload?: StartCompaction }
  | { type: "preview_compaction"; payload?: PreviewCompaction }
  | { type: "cancel_compaction"; payload?: CancelCompaction }
  | { type: "undo_compaction"; payload?: UndoCompaction }
  | { type: "pin_entry"; payload: PinEntry }
  | { type: "unpin_entry"; payload: PinEntry }
  | { type: "set_context_strategy"; payload: SetContextStrategy }
  | { type: "set_model"; payload: SetModel }
  | { type: "set_instructions"; payload?: SetInstructions }
  | { type: "list_tools"; payload?: Empty }
  | { type: "set_tools"; payload?: SetTools }
  | { type: "withdraw_approval"; payload: WithdrawApproval }
  | { type: "set_options"; payload?: SetOptions }
  | { type: "register_tools"; payload: RegisterTools }
  | { type: "register_hooks"; payload: RegisterHooks }
  | { type: "take_over_host"; payload?: Empty }
  | { type: "hook_result"; payload: HookResult };

/** Payload of `hello`. */
export interface Hello {
  /** 2. */
  protocolVersion: number;
  /**
   * Stable per tab, and different in every tab: a newer connection of the same client hosts the tools and hooks
   * that the older one hosted.
   */
  clientId?: string;
  /** The client program, for the operator. */
  client?: Software;
  /** A one-time ticket from `POST /api/tickets`. */
  ticket?: string;
  /** A token from `AUTH_TOKENS`, or a signed one (JWT). */
  token?: string;
}

/** A program and its version. */
export interface Software {
  /** Its name. */
  name: string;
  /** Its version. */
  version: string;
}

/** Payload of `authenticate`: one of its fields. */
export interface Authenticate {
  /** A one-time ticket from `POST /api/tickets`. */
  ticket?: string;
  /** A token from `AUTH_TOKENS`, or a signed one (JWT). */
  token?: string;
}

/** Payload of `open_session`. */
export interface OpenSession {
  /** Writer (the default) or observer. */
  role?: SessionRole;
  /** The position at which this client left off. */
  resume?: Resume;
  /** The number of newest entries in the reply; absent: 50. */
  entries?: number;
  /** Sends deltas (the default), or only whole entries. */
  deltas?: boolean;
  /** Tools to offer, as with `register_tools`. */
  tools?: Array<ToolOffer>;
  /** Hooks to offer, as with `register_hooks`. */
  hooks?: Array<HookOffer>;
}

/** The role of a connection in a session. */
export type SessionRole = "writer" | "observer";

/** A position in a session's log and in the items that were running. */
export interface Resume {
  /** Identifies the log. */
  epoch: string;
  /** The last durable event received. */
  seq: number;
  /**
   * The position in each item without an entry. An item of which only `item_started` came has part 0 and offset
   * 0.
   */
  items?: Array<ResumeItem>;
}

/** A position in a running item. */
export interface ResumeItem {
  /** The item. */
  itemId: EntryId;
  /** Its part. */
  part: number;
  /** The UTF-16 code units received of that part. */
  offset: number;
}

/** A tool that the model may call. */
export interface ToolOffer {
  /** Its name: 1 to 64 of `A-Za-z0-9_-`. */
  name: string;
  /** A description for the model. */
  description: string;
  /** JSON Schema of its arguments, an object. Absent or `null`: it has none. */
  parameters: Record<string, unknown> | null;
  /** The timeout of a call in milliseconds; absent: the server's default. */
  timeoutMs?: number;
  /** True if a call may safely be made twice: a new host is asked to run it even if an earlier one was. */
  idempotent?: boolean;
  /** True if calls of this tool run one after another. */
  sequential?: boolean;
  /** What the tool does to the world. The defaults of the approval policy follow from it. */
  annotations?: ToolAnnotations;
}

/** What a tool does to the world, by its own account. The words are MCP's; what is absent is unknown. */
export interface ToolAnnotations {
  /** True if it changes nothing. */
  readOnly?: boolean;
  /** True if it may destroy what it changes. */
  destructive?: boolean;
  /** True if a second call with the same arguments changes nothing more. */
  idempotent?: boolean;
  /** True if it reaches beyond the server: the network, other systems. */
  openWorld?: boolean;
}

/** No payload, or `{}`. */
export type Empty = Record<string, never>;

/** Payload of `list_sessions`. */
export interface ListSessions {
  /** `nextCursor` of the previous page. */
  cursor?: string;
  /** The maximum number of sessions, 1 to 200; absent: 50. */
  limit?: number;
  /** Text that the name must contain. */
  search?: string;
  /** Sends `session_changed` events from now on; `false` stops them; absent: unchanged. */
  watch?: boolean;
}

/** Payload of `rename_session`. */
export interface RenameSession {
  /** Its new name, 1 to 200 characters. */
  name: string;
}

/** Payload of `get_entries`. */
export interface GetEntries {
  /** Only entries older than this one. */
  before?: EntryId;
  /** Only entries newer than this one. */
  after?: EntryId;
  /** The maximum number of entries, 1 to 500; absent: 100. */
  limit?: number;
  /** Only entries on the path to the leaf. */
  path?: boolean;
  /**
   * Only this entry. If its tool result was cut, `cut.whole` has all of it. One entry a command: a result is
   * at most as long as the frame that brought it.
   */
  entryId?: EntryId;
}

/** Payload of `search_history`. */
export interface SearchHistory {
  /**
   * Words, phrases in quotes, and beginnings of words with a star, all of which an entry must have: 1 to 1,000
   * characters. A word with punctuation in it, such as a path, is a phrase.
   */
  query: string;
  /** The maximum number of hits, 1 to 100; absent: 20. */
  limit?: number;
}

/** Payload of `ping`. */
export interface Ping {
  /** The last durable event that this client received. */
  seq?: number;
}

/** Payload of `user_input`. */
export interface UserInput {
  /** The input. */
  input: Input;
  /** The handling while a turn is running; absent: `queue`. */
  whenBusy?: WhenBusy;
  /** The entry to continue from, in the same durable append; absent for the leaf. */
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

/** The user's input: a text, or OpenAI Responses input items. */
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

/**
 * A part of an input item: in the form that entries have, `text` and `image`, or in that of OpenAI's Responses API,
 * `input_text` and `input_image`.
 */
export type InputPart =
  | {
      type: "text";
      /** The text. */
      text: string;
    }
  | {
      type: "image";
      /** `https:` or `data:` URL. */
      url: string;
      /** `low`, `high` or `auto`. */
      detail?: string;
    }
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

/** Payload of `tool_result`. */
export interface ToolResult {
  /** The call. */
  toolCallId: CallId;
  /** The tool's result, as text for the model. */
  output: string;
  /** True if the tool failed. */
  isError?: boolean;
}

/** Payload of `call_progress`. */
export interface CallProgress {
  /** The tool call; absent if a hook is at work. */
  toolCallId?: CallId;
  /** The hook call; absent if a tool is at work. */
  hookCallId?: CallId;
  /** Its current activity, for the user. */
  message?: string;
}

/** Payload of `approval_response`. */
export interface ApprovalResponse {
  /** The approval. */
  approvalId: ApprovalId;
  /** The decision. */
  review: Decision;
  /** The hash of the call that was shown. The answer is refused if the approval is about another one. */
  argumentsHash?: string;
  /** The message to the model if it is denied. */
  customDenyMessage?: string;
}

/** A decision on an approval: one of the four options, or one of v1's words for it. */
export type Decision = "allow_once" | "allow_always" | "reject_once" | "reject_always" | "reject_and_stop";

/** Payload of `navigate`. */
export interface Navigate {
  /** The entry to move to. */
  entryId: LeafId;
  /** The position at the entry; absent: `at`. */
  position?: NavigatePosition;
  /** Summarises the abandoned branch at the new position. */
  summarize?: boolean;
  /**
   * The focus of the summary. At most 16 KiB, and at most a quarter of the summary model's window; more is
   * refused.
   */
  instructions?: string;
  /** Replaces the server's own instructions with `instructions` instead of adding to them. */
  replaceInstructions?: boolean;
  /** A label for the summary or, without a summary, for the target entry. */
  label?: string;
}

/** The position at an entry from which a session continues. */
export type NavigatePosition = "before" | "at" | "tip";

/** Payload of `fork_session`. */
export interface ForkSession {
  /** The entry at which the new session ends. */
  entryId: EntryId;
  /** With the entry (`at`), or before it, returning its input for editing (`before`). */
  position: ForkPosition;
}

/** The end of a fork. */
export type ForkPosition = "before" | "at";

/** Payload of `get_tree`. */
export interface GetTree {
  /** Only this entry and what is below it; absent for the whole tree. */
  rootId?: EntryId;
  /** The number of levels, the first included, at least 1; absent: as many as fit. */
  depth?: number;
}

/** Payload of `set_label`. */
export interface SetLabel {
  /** The entry. */
  entryId: EntryId;
  /** Its label, 1 to 200 characters; absent to remove it. */
  label?: string;
}

/** Payload of `append_custom`. */
export interface AppendCustom {
  /** The kind of data, 1 to 200 characters of the client's choice. */
  customType: string;
  /** The data, any JSON. */
  data: unknown;
}

/** Payload of `append_custom_message`. */
export interface AppendCustomMessage {
  /** The kind of message, 1 to 200 characters of the client's choice. */
  customType: string;
  /** The content. */
  content: InputContent;
  /** True if it should be shown to users. */
  display: boolean;
  /** Additional data for programs, any JSON; stored with it, and never sent to the model. */
  details?: unknown;
}

/** Payload of `get_context`. */
export interface GetContext {
  /** `envelope` (the default) or `markdown`. */
  format?: ContextFormat;
  /** Includes what hooks last added for one request only; no hook is called for it. */
  ephemeral?: boolean;
}

/** The format of `get_context`. */
export type ContextFormat = "envelope" | "markdown";

/** Payload of `start_compaction`. */
export interface StartCompaction {
  /**
   * The focus of the summary, or with `replaceInstructions` its whole prompt. At most 16 KiB, and at most a
   * quarter of the summary model's window; more is refused.
   */
  instructions?: string;
  /**
   * Puts `instructions` in the place of what the server asks of a summary, its form included, instead of adding
   * to it. No missing facts are restored. What every request for a summary says stays: which part it is about,
   * that the conversation is data, and the maximum of words.
   */
  replaceInstructions?: boolean;
  /** Applies exactly the compaction of this preview. No other field is allowed with it. */
  previewId?: JobId;
  /** Uses this strategy once; absent: the session's, or a summary if that is `manual`. */
  strategy?: string;
  /** Builds the summary from the original entries instead of merging into the existing one. */
  rebuild?: boolean;
}

/** Payload of `preview_compaction`, with fields as in `start_compaction`. */
export interface PreviewCompaction {
  /**
   * The focus of the summary, or with `replaceInstructions` its whole prompt. At most 16 KiB, and at most a
   * quarter of the summary model's window; more is refused.
   */
  instructions?: string;
  /**
   * Puts `instructions` in the place of what the server asks of a summary, its form included, instead of adding
   * to it. No missing facts are restored. What every request for a summary says stays: which part it is about,
   * that the conversation is data, and the maximum of words.
   */
  replaceInstructions?: boolean;
  /** Uses this strategy; absent: the session's. */
  strategy?: string;
  /** Builds the summary from the original entries. */
  rebuild?: boolean;
}

/** Payload of `cancel_compaction`. */
export interface CancelCompaction {
  /** The compaction; absent for the running one. */
  jobId?: JobId;
}

/** Payload of `undo_compaction`. */
export interface UndoCompaction {
  /** The compaction's entry; absent for the one in effect. */
  entryId?: EntryId;
}

/** Payload of `pin_entry` and `unpin_entry`. */
export interface PinEntry {
  /** The entry: a message, or a client's message. A tool's result and its call are pinned together. */
  entryId: EntryId;
}

/** Payload of `set_context_strategy`. */
export interface SetContextStrategy {
  /** The strategy's name, such as `threshold` or `manual`; `unknown_strategy` lists those that the server offers. */
  strategy: string;
  /** The strategy's settings; absent ones keep the deployment's default. */
  settings?: StrategySettings;
}

/** Settings of the strategies. Each strategy reads its own. */
export interface StrategySettings {
  /**
   * Compacts when more than this fraction of the window is used; 0 to 1. The reserve for an answer can be
   * reached earlier.
   */
  threshold?: number;
  /**
   * Compacts when fewer than this many tokens are free for an answer; capped at half of the window. Absent:
   * `maxOutputTokens` of `set_options`, at most three quarters of the window, or else 2 % of the window, at
   * least 512 tokens and at most a fifth.
   */
  reserveTokens?: number;
  /** The approximate number of recent tokens kept verbatim. */
  keepRecentTokens?: number;
  /**
   * The fraction of the window that a compaction reduces the context to, or three quarters of the trigger if
   * that is less; above 0, at most 1.
   */
  target?: number;
  /** The fraction of the trigger at which a compaction is prepared in the background; 1 for never. */
  background?: number;
  /** The fraction of the request that a compaction must save; 0 to 0.9. */
  minGain?: number;
  /** The number of newest turns that `sliding_window` keeps; at least 1. */
  keepTurns?: number;
  /** The number of newest tool results that are never cleared. */
  keepToolResults?: number;
  /** Makes `importance` summarise what it removes; otherwise it is dropped. */
  summarise?: boolean;
  /** The strategies of a `pipeline`, from mild to drastic. */
  steps?: Array<string>;
  /** The kind of conversation, which determines what a summary must keep. */
  summaryKind?: SummaryKind;
  /**
   * The fraction of a compaction's target in which the user's own messages are kept word for word, newest
   * first; 0 to 1.
   */
  userShare?: number;
  /** What a compaction does with earlier summaries. */
  summaryMode?: SummaryMode;
}

/** The kind of conversation, which determines what its summary must keep. */
export type SummaryKind = "auto" | "chat" | "code" | "debugging" | "research";

/** What a compaction does with the summaries of earlier ones. */
export type SummaryMode = "segments" | "rewrite";

/** Payload of `set_model`. */
export interface SetModel {
  /** The model's name, as used by the provider. */
  model: string;
  /** The reasoning effort, in the provider's terms. */
  reasoningEffort?: string;
}

/** Payload of `set_instructions`. */
export interface SetInstructions {
  /** The system prompt; empty for none, absent for the deployment's own. */
  instructions?: string;
}

/** Payload of `set_tools`. Absent fields do not change. */
export interface SetTools {
  /** The names of the tools that are switched off: at most 256. */
  off?: Array<string>;
  /**
   * The session's own approval policy; without rules to remove it. It can only be stricter than the
   * deployment's.
   */
  approvals?: ApprovalPolicy;
}

/** Payload of `withdraw_approval`. */
export interface WithdrawApproval {
  /** The approval that got the lasting answer. */
  approvalId: ApprovalId;
}

/** Payload of `set_options`. Absent fields return to the provider's default. */
export interface SetOptions {
  /** 0 to 2. */
  temperature?: number;
  /** The maximum number of tokens of an answer, at least 1. */
  maxOutputTokens?: number;
}

/** Payload of `register_tools`. */
export interface RegisterTools {
  /** The tools; empty for none. */
  tools: Array<ToolOffer>;
}

/** Payload of `register_hooks`. */
export interface RegisterHooks {
  /** The hooks, called in this order; empty for none. */
  hooks: Array<HookOffer>;
}
