//! Events. Durable events have a `seq`, are stored, and are the same for every subscriber; ephemeral ones are
//! decoration.

use crate::{
    compaction::{
        CompactionFailed, CompactionPrepared, CompactionProgress, CompactionStarted, CompactionUndone, ContextCompacted,
    },
    context::{ContextUpdated, ContextWarning},
    hooks::{HookCall, HookCancelled, HookFailed},
    session::{
        HostChanged, PresenceChanged, SessionClosed, SessionItem, SessionUpdated, SubscriptionEnd, TokenExpiring,
    },
    tools::{Approval, CallProgressed, CallResolved, RunTool, ToolCall, ToolCancelled},
    tree::EntryAppended,
    turn::{
        BudgetNotice, ItemAborted, ItemDelta, ItemFinished, ItemStarted, QueueChanged, QueueItemAdded,
        QueueItemRemoved, QueueReleased, QueueReordered, RequestDelayed, TurnFinished, TurnStarted,
    },
};

messages! {
    /// A durable event: one stored record, with its `seq` in the envelope.
    pub enum Event {
        /// An entry was appended to the tree, including the user's; it is now the leaf.
        EntryAppended(Box<EntryAppended>) = "entry_appended",
        /// A turn started.
        TurnStarted(TurnStarted) = "turn_started",
        /// A turn ended; exactly one per started turn.
        TurnFinished(Box<TurnFinished>) = "turn_finished",
        /// The model called a tool. `run_tool` asks the host to run it.
        ToolCall(ToolCall) = "tool_call",
        /// A person must allow a tool call before it is made.
        ApprovalRequest(Box<Approval>) = "approval_request",
        /// A tool call was answered, failed or was dropped; or a person has decided on one.
        CallResolved(CallResolved) = "call_resolved",
        /// An input was queued.
        QueueItemAdded(Box<QueueItemAdded>) = "queue_item_added",
        /// A queued input left the queue; sent exactly once for each input that was added.
        QueueItemRemoved(QueueItemRemoved) = "queue_item_removed",
        /// The queued inputs were put in another order.
        QueueReordered(QueueReordered) = "queue_reordered",
        /// Inputs that were sent during a move no longer wait for one.
        QueueReleased(QueueReleased) = "queue_released",
        /// The queue as a whole, in records of older versions. Never sent to a client.
        #[cfg_attr(feature = "codegen", schemars(skip), ts(skip))]
        QueueChanged(QueueChanged) = "queue_changed",
        /// The session's name, model or settings changed.
        SessionUpdated(Box<SessionUpdated>) = "session_updated",
        /// The context was compacted and the loop seeded again.
        ContextCompacted(Box<ContextCompacted>) = "context_compacted",
        /// A compaction was undone: the context ignores it from now on.
        CompactionUndone(Box<CompactionUndone>) = "compaction_undone",
        /// A compaction or branch summary failed or was cancelled; the context is unchanged.
        CompactionFailed(Box<CompactionFailed>) = "compaction_failed",
    }
}

messages! {
    /// An ephemeral event: it has no `seq`, is not stored, and may be missed.
    pub enum EphemeralEvent {
        /// An answer, or a tool call in it, starts streaming.
        ItemStarted(ItemStarted) = "item_started",
        /// A piece of the answer; pieces may be coalesced.
        ItemDelta(ItemDelta) = "item_delta",
        /// A tool call in the answer, or the answer, is complete. After the answer's own, its entry follows.
        ItemFinished(ItemFinished) = "item_finished",
        /// The model server refused a request for now, or failed: the request is sent again after a wait.
        RequestDelayed(RequestDelayed) = "request_delayed",
        /// The answer was aborted: it will not become an entry.
        ItemAborted(ItemAborted) = "item_aborted",
        /// A tool or a hook reported its progress.
        CallProgressed(CallProgressed) = "call_progressed",
        /// A call to a hook; only sent to the host.
        HookCall(Box<HookCall>) = "hook_call",
        /// A call to a hook was withdrawn; only sent to the host.
        HookCancelled(HookCancelled) = "hook_cancelled",
        /// A hook failed.
        HookFailed(HookFailed) = "hook_failed",
        /// A tool call was withdrawn.
        ToolCancelled(ToolCancelled) = "tool_cancelled",
        /// A compaction started.
        CompactionStarted(CompactionStarted) = "compaction_started",
        /// The progress of a compaction.
        CompactionProgress(CompactionProgress) = "compaction_progress",
        /// A compaction is prepared and held: it is committed at the threshold, in one step.
        CompactionPrepared(Box<CompactionPrepared>) = "compaction_prepared",
        /// The window is nearly full and will not be compacted, or there is another problem with the context.
        ContextWarning(ContextWarning) = "context_warning",
        /// A budget of the user, the session or the server has reached 80 or 100 percent.
        BudgetNotice(BudgetNotice) = "budget_notice",
        /// The size of the context during a turn: after a tool result, before the next request.
        ContextUpdated(Box<ContextUpdated>) = "context_updated",
        /// Run this tool now; only sent to the host.
        RunTool(RunTool) = "run_tool",
        /// Another connection hosts the session's tools and hooks, or none does.
        HostChanged(HostChanged) = "host_changed",
        /// A connection was subscribed to the session, offers something else, or has left.
        PresenceChanged(PresenceChanged) = "presence_changed",
        /// The subscription to this session has ended; the connection continues.
        SessionClosed(SessionClosed) = "session_closed",
        /// A session in the list changed; only sent to connections that watch the list (`list_sessions`).
        SessionChanged(SessionItem) = "session_changed",
        /// The credentials of this connection expire soon: send `authenticate`.
        TokenExpiring(TokenExpiring) = "token_expiring",
    }
}

impl SubscriptionEnd {
    /// Returns the event that reports it.
    #[must_use]
    pub fn event(self) -> EphemeralEvent {
        let (message, retriable) = match self {
            Self::Deleted => ("the session was deleted", false),
            Self::Moved => ("the session may be open on another server now; open it again with `resume`", true),
            Self::Failed => ("the server closed the session; open it again with `resume`", true),
        };
        EphemeralEvent::SessionClosed(SessionClosed { code: self, message: message.to_owned(), retriable, error: None })
    }
}
