/**
 * The commands that change something. The server does each once by its id, so they may be sent again.
 *
 * Written from the table of commands by `UPDATE=1 cargo test --test it commands`. Do not edit.
 */

export const WRITING_COMMANDS = new Set([
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
  "set_options",
]);
