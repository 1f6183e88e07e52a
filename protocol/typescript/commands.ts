// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { CancelCompaction, PinEntry, PreviewCompaction, SetContextStrategy, StartCompaction, UndoCompaction } from "./compaction.js";
import type { GetContext } from "./context.js";
import type { HookResult, RegisterHooks } from "./hooks.js";
import type { Authenticate, Hello, ListSessions, OpenSession, Ping, RenameSession, SetInstructions, SetModel, SetOptions } from "./session.js";
import type { ApprovalResponse, CallProgress, RegisterTools, SetTools, ToolResult, WithdrawApproval } from "./tools.js";
import type { AppendCustom, AppendCustomMessage, ForkSession, GetEntries, GetTree, Navigate, SearchHistory, SetLabel } from "./tree.js";
import type { CancelTurn, EditQueue, RetryTurn, UserInput } from "./turn.js";

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

/** No payload, or `{}`. */
export type Empty = Record<string, never>;
