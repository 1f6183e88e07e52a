// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { REPLIES } from "./command-table.js";
import type { Command } from "./commands.js";
import type { EphemeralEvent, Event } from "./events.js";
import type { HookAnswer, HookCall, HookPoint } from "./hooks.js";
import type { Reply } from "./replies.js";

/**
 * Client to server. The client chooses the `id`, which does not begin with `s_`; that of a writing command has 16 to 64
 * characters. `sessionId` names the session that the command is about: see `Addresses`. `traceparent` is the W3C trace
 * context that it belongs to.
 */
export type CommandFrame = { id: string; sessionId?: string; traceparent?: string } & Command;

/** The one answer to a command. `re` is the command's `id`; an `error` without it is about the connection. */
export type ReplyFrame =
  | { re: string; sessionId?: string; seq?: undefined } & Reply
  | { re?: undefined; sessionId?: string; seq?: undefined } & Extract<Reply, { type: "error" }>;

/** A stored event: 1, 2, 3 … in each session, without a gap. */
export type DurableFrame = { re?: undefined; sessionId: string; seq: number } & Event;

/**
 * An event that is not stored and may be missed. `session_changed` is about the list and `token_expiring` about the
 * connection; they have no `sessionId`.
 */
export type EphemeralFrame = { re?: undefined; sessionId?: string; seq?: undefined } & EphemeralEvent;

/** Server to client. Ignore a `type` that is not among these: a newer server sends more. */
export type ServerFrame = ReplyFrame | DurableFrame | EphemeralFrame;

/** The command called `T`. */
export type CommandOf<T extends Command["type"]> = Extract<Command, { type: T }>;

/** The reply to each command; every command may also be answered by `error`. */
export type ReplyTypes = typeof REPLIES;

/** Whether a command's frame names a session. */
export interface Addresses {
  hello: "none";
  authenticate: "none";
  open_session: "optional";
  close_session: "required";
  list_sessions: "none";
  list_models: "none";
  rename_session: "required";
  delete_session: "required";
  get_entries: "required";
  search_history: "optional";
  ping: "optional";
  user_input: "required";
  cancel_turn: "required";
  retry_turn: "required";
  edit_queue: "required";
  tool_result: "required";
  call_progress: "required";
  approval_response: "required";
  navigate: "required";
  fork_session: "required";
  get_tree: "required";
  set_label: "required";
  append_custom: "required";
  append_custom_message: "required";
  get_context_info: "required";
  get_context: "required";
  start_compaction: "required";
  preview_compaction: "required";
  cancel_compaction: "required";
  undo_compaction: "required";
  pin_entry: "required";
  unpin_entry: "required";
  set_context_strategy: "required";
  set_model: "required";
  set_instructions: "required";
  list_tools: "required";
  set_tools: "required";
  withdraw_approval: "required";
  set_options: "required";
  register_tools: "required";
  register_hooks: "required";
  take_over_host: "required";
  hook_result: "required";
}

/** The replies that the command called `T` can get. */
export type ReplyTo<T extends Command["type"]> = Extract<Reply, { type: ReplyTypes[T] | "error" }>;

/** The call to a hook at point `P`. */
export type HookCallAt<P extends HookPoint> = Extract<HookCall, { point: P }>;

/** The fields that an answer may have at each point, besides `error`. */
export interface HookAnswerFields {
  context: "patch" | "transformerName" | "display";
  message: "message";
  before_agent_start: "systemPrompt" | "customMessage" | "entries";
  before_compaction: "cancel" | "summary" | "firstKeptEntryId" | "details" | "model" | "instructions" | "replaceInstructions";
  before_navigate: "cancel" | "summary" | "details" | "instructions" | "replaceInstructions" | "label";
  tool_call: "block" | "reason" | "arguments";
  tool_result: "output" | "isError";
}

/** The answer of a hook at point `P`; with the call's `hookCallId`, it is the payload of `hook_result`. */
export type HookAnswerAt<P extends HookPoint> = Pick<HookAnswer, HookAnswerFields[P] | "error">;
