// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { Command } from "./commands.js";

/** Commands that change a session, once for each `id`: send one again if its reply was lost. */
export const WRITING_COMMANDS = [
  "rename_session",
  "user_input",
  "cancel_turn",
  "retry_turn",
  "edit_queue",
  "tool_result",
  "approval_response",
  "navigate",
  "fork_session",
  "set_label",
  "append_custom",
  "append_custom_message",
  "start_compaction",
  "cancel_compaction",
  "undo_compaction",
  "pin_entry",
  "unpin_entry",
  "set_context_strategy",
  "set_model",
  "set_instructions",
  "set_tools",
  "withdraw_approval",
  "set_options",
] as const satisfies readonly Command["type"][];

/** Commands that only read: repeating them changes nothing. */
export const QUERIES = [
  "list_sessions",
  "list_models",
  "get_entries",
  "search_history",
  "get_tree",
  "get_context_info",
  "get_context",
  "list_tools",
] as const satisfies readonly Command["type"][];

/** Commands that work without a subscription to their session. */
export const WITHOUT_SUBSCRIPTION = [
  "hello",
  "authenticate",
  "open_session",
  "list_sessions",
  "list_models",
  "rename_session",
  "delete_session",
  "get_entries",
  "search_history",
  "ping",
  "get_tree",
] as const satisfies readonly Command["type"][];

/** A command that changes a session. */
export type WritingCommand = (typeof WRITING_COMMANDS)[number];

/** The reply to each command that was not refused. */
export const REPLIES = {
  hello: "welcome",
  authenticate: "ok",
  open_session: "session_opened",
  close_session: "ok",
  list_sessions: "sessions",
  list_models: "models",
  rename_session: "ok",
  delete_session: "ok",
  get_entries: "entries",
  search_history: "history_hits",
  ping: "pong",
  user_input: "accepted",
  cancel_turn: "ok",
  retry_turn: "accepted",
  edit_queue: "ok",
  tool_result: "ok",
  call_progress: "ok",
  approval_response: "ok",
  navigate: "navigated",
  fork_session: "forked",
  get_tree: "tree",
  set_label: "ok",
  append_custom: "ok",
  append_custom_message: "ok",
  get_context_info: "context_info",
  get_context: "context",
  start_compaction: "ok",
  preview_compaction: "compaction_preview",
  cancel_compaction: "ok",
  undo_compaction: "ok",
  pin_entry: "ok",
  unpin_entry: "ok",
  set_context_strategy: "ok",
  set_model: "ok",
  set_instructions: "ok",
  list_tools: "tools",
  set_tools: "ok",
  withdraw_approval: "ok",
  set_options: "ok",
  register_tools: "ok",
  register_hooks: "ok",
  take_over_host: "ok",
  hook_result: "ok",
} as const satisfies Record<Command["type"], string>;
