// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { CallId, EntryId, JobId, SessionId, TurnId } from "./basics.js";

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
  | { type: "tool_result"; payload: ToolResult }
  | { type: "call_progress"; payload: CallProgress }
  | { type: "approval_response"; payload: ApprovalResponse }
  | { type: "get_context_info"; payload?: Empty }
  | { type: "get_context"; payload?: GetContext }
  | { type: "manual_compact"; payload?: ManualCompact }
  | { type: "cancel_compaction"; payload?: CancelCompaction }
  | { type: "set_context_strategy"; payload: SetContextStrategy }
  | { type: "set_model"; payload: SetModel }
  | { type: "set_instructions"; payload: SetInstructions }
  | { type: "set_options"; payload?: SetOptions }
  | { type: "register_tools"; payload: RegisterTools };

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
}

/** What a connection is to a session. */
export type SessionRole = "owner" | "observer";

/** A place in a session's log and in the items that were running. */
export interface Resume {
  /** Names the log. */
  epoch: string;
  /** The last durable event that was seen. */
  seq: number;
  /** How much of each running item was seen. */
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
  /** Whether to send `session_changed` events from now on. Not built yet: `true` is refused. */
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
export type WhenBusy = "queue" | "reject";

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
  /** What the tool is doing, for the user. */
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

/** Payload of `get_context`. */
export interface GetContext {
  /** `envelope` (the default) or `markdown`. */
  format?: ContextFormat;
  /** Whether to include what belongs to one request only. */
  ephemeral?: boolean;
}

/** How `get_context` answers. */
export type ContextFormat = "envelope" | "markdown";

/** Payload of `manual_compact`. */
export interface ManualCompact {
  /** What the summary should dwell on. */
  instructions?: string;
}

/** Payload of `cancel_compaction`. */
export interface CancelCompaction {
  /** The compaction; absent for the running one. */
  jobId?: JobId;
}

/** Payload of `set_context_strategy`. */
export interface SetContextStrategy {
  /** `threshold` or `manual` (aliases `dummy`, `none`). */
  strategy: string;
  /** The strategy's settings; what is absent stays at the deployment's default. */
  settings?: StrategySettings;
}

/** Settings of the strategies. */
export interface StrategySettings {
  /** Compact when more than this share of the window is used; above 0, at most 1. */
  threshold?: number;
  /** Compact when less than this many tokens are free. */
  reserveTokens?: number;
  /** About how many recent tokens stay word for word. */
  keepRecentTokens?: number;
}

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
