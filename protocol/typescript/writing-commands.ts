// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { Command } from "./commands.js";

/** The commands that change a session. Each is done once by its `id`, so send it again if its reply got lost. */
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

/** A command that changes a session. */
export type WritingCommand = (typeof WRITING_COMMANDS)[number];
