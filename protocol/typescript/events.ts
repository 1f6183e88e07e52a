// Written from the Rust types by `UPDATE=1 cargo test -p reseed-protocol`. Do not edit.

import type { CompactionFailed, CompactionPrepared, CompactionProgress, CompactionStarted, CompactionUndone, ContextCompacted } from "./compaction.js";
import type { ContextUpdated, ContextWarning } from "./context.js";
import type { HookCall, HookCancelled, HookFailed } from "./hooks.js";
import type { HostChanged, PresenceChanged, SessionClosed, SessionItem, SessionUpdated, TokenExpiring } from "./session.js";
import type { Approval, CallProgressed, CallResolved, RunTool, ToolCall, ToolCancelled } from "./tools.js";
import type { EntryAppended } from "./tree.js";
import type { BudgetNotice, ItemAborted, ItemDelta, ItemFinished, ItemStarted, QueueItemAdded, QueueItemRemoved, QueueReleased, QueueReordered, RequestDelayed, TurnFinished, TurnStarted } from "./turn.js";

/** A durable event: one stored record, with its `seq` in the envelope. */
export type Event =
  | { type: "entry_appended"; payload: EntryAppended }
  | { type: "turn_started"; payload: TurnStarted }
  | { type: "turn_finished"; payload: TurnFinished }
  | { type: "tool_call"; payload: ToolCall }
  | { type: "approval_request"; payload: Approval }
  | { type: "call_resolved"; payload: CallResolved }
  | { type: "queue_item_added"; payload: QueueItemAdded }
  | { type: "queue_item_removed"; payload: QueueItemRemoved }
  | { type: "queue_reordered"; payload: QueueReordered }
  | { type: "queue_released"; payload: QueueReleased }
  | { type: "session_updated"; payload: SessionUpdated }
  | { type: "context_compacted"; payload: ContextCompacted }
  | { type: "compaction_undone"; payload: CompactionUndone }
  | { type: "compaction_failed"; payload: CompactionFailed };

/** An ephemeral event: it has no `seq`, is not stored, and may be missed. */
export type EphemeralEvent =
  | { type: "item_started"; payload: ItemStarted }
  | { type: "item_delta"; payload: ItemDelta }
  | { type: "item_finished"; payload: ItemFinished }
  | { type: "request_delayed"; payload: RequestDelayed }
  | { type: "item_aborted"; payload: ItemAborted }
  | { type: "call_progressed"; payload: CallProgressed }
  | { type: "hook_call"; payload: HookCall }
  | { type: "hook_cancelled"; payload: HookCancelled }
  | { type: "hook_failed"; payload: HookFailed }
  | { type: "tool_cancelled"; payload: ToolCancelled }
  | { type: "compaction_started"; payload: CompactionStarted }
  | { type: "compaction_progress"; payload: CompactionProgress }
  | { type: "compaction_prepared"; payload: CompactionPrepared }
  | { type: "context_warning"; payload: ContextWarning }
  | { type: "budget_notice"; payload: BudgetNotice }
  | { type: "context_updated"; payload: ContextUpdated }
  | { type: "run_tool"; payload: RunTool }
  | { type: "host_changed"; payload: HostChanged }
  | { type: "presence_changed"; payload: PresenceChanged }
  | { type: "session_closed"; payload: SessionClosed }
  | { type: "session_changed"; payload: SessionItem }
  | { type: "token_expiring"; payload: TokenExpiring };
