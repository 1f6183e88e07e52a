//! Events. Durable events have a `seq`, are stored, and are the same for every subscriber; ephemeral ones are
//! decoration.

use crate::{
    CallId, CommandId, Entry, EntryId, ErrorBody, ErrorCode, JobId, StopReason, Timestamp, TurnId, Usage,
    approval::{Approval, StandingApproval},
    context::{Breakdown, ContextInfo},
    hook::{HookCall, HookOffer, HookPoint},
    reply::{Pin, SessionItem, SessionSettings},
};
use serde::{Deserialize, Serialize};

pub(crate) mod compacted;
mod host;
mod queue;
mod tool;

pub use host::{Host, HostChanged, Participant, PresenceChanged, RunTool};
pub use queue::{QueueChanged, QueueItemAdded, QueueItemRemoved, QueueReleased, QueueRemovalReason, QueueReordered};
pub use tool::{CallResolved, ToolCall, ToolCancelled, ToolPlace};

messages! {
    /// A durable event: one stored record, with its `seq` in the envelope.
    pub enum Event {
        /// An entry was appended to the tree, including the user's; it is now the leaf.
        EntryAppended(Box<EntryAppended>) = "entry_appended",
        /// A turn started.
        TurnStarted(TurnStarted) = "turn_started",
        /// A turn ended; exactly one per started turn.
        TurnFinished(Box<TurnFinished>) = "turn_finished",
        /// The model called a tool. The host is asked to run it by `run_tool`.
        ToolCall(ToolCall) = "tool_call",
        /// A person must allow a tool call before it is made.
        ApprovalRequest(Box<Approval>) = "approval_request",
        /// A tool call was answered, failed or was dropped; or a person has decided on one.
        CallResolved(CallResolved) = "call_resolved",
        /// An input was queued.
        QueueItemAdded(Box<QueueItemAdded>) = "queue_item_added",
        /// A queued input left the queue: exactly one for each that was added.
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
        /// A compaction was undone: building the context ignores it from now on.
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
        /// The answer was aborted: what was shown of it is void.
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
        /// The window is nearly full and nothing will be done about it, or something else about it should be known.
        ContextWarning(ContextWarning) = "context_warning",
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

macro_rules! events {
    ($($(#[$doc:meta])* struct $name:ident { $($(#[$attr:meta])* $field:ident: $ty:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
            #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
            #[cfg_attr(feature = "codegen", ts(optional_fields))]
            #[serde(rename_all = "camelCase")]
            pub struct $name { $($(#[$attr])* pub $field: $ty,)* }
        )*
    };
}

events! {
    /// Payload of `entry_appended`.
    struct EntryAppended {
        /// The entry, as `get_entries` returns it.
        entry: Entry,
        /// The turn it belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
        /// The command that caused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_id: Option<CommandId>,
    }

    /// Payload of `token_expiring`.
    #[derive(Eq, Copy)]
    struct TokenExpiring {
        /// The milliseconds until the server closes the connection with 4401, unless it is renewed.
        expires_in_ms: u64,
    }

    /// Payload of `turn_started`.
    struct TurnStarted {
        /// The turn.
        turn_id: TurnId,
        /// The commands whose input it answers.
        command_ids: Vec<CommandId>,
        /// The loop's generation.
        generation: u64,
    }

    /// Payload of `turn_finished`.
    struct TurnFinished {
        /// The turn.
        turn_id: TurnId,
        /// Its status.
        status: TurnStatus,
        /// The reason the last answer ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finish_reason: Option<StopReason>,
        /// The error, on `failed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ErrorBody>,
        /// The usage of the turn's requests together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// The part of it for an answer that was not stored, because a hook that had to check it failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        withheld_usage: Option<Usage>,
        /// The size of the context.
        context_info: ContextInfo,
    }

    /// Payload of `session_updated`: absent fields have not changed.
    #[derive(Default)]
    struct SessionUpdated {
        /// The session's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// The strategy's short name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strategy: Option<String>,
        /// All of the other settings.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settings: Option<SessionSettings>,
        /// The session's leaf, from which it continues.
        #[serde(default, with = "crate::leaf::stored", skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", schemars(with = "Option<crate::leaf::LeafId>"))]
        #[cfg_attr(feature = "codegen", ts(as = "Option<crate::leaf::LeafId>"))]
        leaf_id: Option<Option<EntryId>>,
        /// All entries that every compaction keeps verbatim.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pins: Option<Vec<Pin>>,
        /// All lasting answers to approvals.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        standing_approvals: Option<Vec<StandingApproval>>,
        /// The number of times that the loop was seeded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        generation: Option<u64>,
        /// The compaction that is now held. For the server, which reads it back after a restart.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<HeldCompaction>,
        /// All required client hooks that the session's work now needs: their names and extension points. For the
        /// server, which reads them back after a restart.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hooks: Option<Vec<HookOffer>>,
        /// The command that caused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_id: Option<CommandId>,
    }

    /// A prepared compaction that is not yet committed, as stored in the log.
    struct HeldCompaction {
        /// The job that prepared it.
        job_id: JobId,
        /// The server's data for the commit. Its form is internal and may change.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        record: serde_json::Value,
    }

    /// Payload of `compaction_undone`.
    struct CompactionUndone {
        /// The compaction's entry.
        entry_id: EntryId,
        /// The command that requested it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_id: Option<CommandId>,
        /// The generation of the newly seeded loop.
        generation: u64,
        /// The size of the context.
        context_info: ContextInfo,
    }

    /// The retention of exact facts by a summary: paths, addresses, numbers, names, open tasks.
    #[derive(Copy, Eq, Default)]
    struct Retained {
        /// The number of facts checked.
        checked: u64,
        /// The number of facts that the summary had lost and that were restored verbatim.
        restored: u64,
    }

    /// A compaction step that failed or saved too little.
    #[derive(Eq)]
    struct FailedRung {
        /// The step.
        rung: CompactionRung,
        /// The reason, for programs: `too_little`, `empty`, `truncated`, `refused`, `malformed`, `continued` (the model
        /// answered the user instead), `not_smaller`, `timeout`, or an error code.
        reason: String,
    }

    /// Tokens by kind, before and after.
    struct BreakdownChange {
        /// Before.
        before: Breakdown,
        /// After.
        after: Breakdown,
    }

    /// Payload of `item_started`.
    struct ItemStarted {
        /// The id that its entry will have.
        item_id: EntryId,
        /// Its turn.
        turn_id: TurnId,
        /// What starts.
        kind: ItemKind,
        /// The part of the item that starts; on tool calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<u32>,
        /// The tool's name; on tool calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    }

    /// Payload of `item_delta`.
    struct ItemDelta {
        /// The item.
        item_id: EntryId,
        /// The part of it.
        part: u32,
        /// The position of the text, in UTF-16 code units from the start of the part.
        offset: u64,
        /// The kind of part; absent for text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<DeltaKind>,
        /// The text.
        text: String,
    }

    /// Payload of `item_finished`.
    struct ItemFinished {
        /// The item.
        item_id: EntryId,
        /// The tool call in it that is complete; absent if the whole item is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<u32>,
    }

    /// Payload of `request_delayed`. The wait is over when the answer starts, the turn ends, or another wait begins.
    #[derive(Eq)]
    struct RequestDelayed {
        /// The running turn.
        turn_id: TurnId,
        /// The attempt that follows the wait: 2 after the first one has failed.
        attempt: u32,
        /// The milliseconds until then.
        wait_ms: u64,
        /// Why the last attempt failed: `upstream_rate_limited`, `upstream_overloaded`, `upstream_unreachable`,
        /// `upstream_error` or `upstream_truncated`.
        reason: ErrorCode,
    }

    /// Payload of `item_aborted`.
    struct ItemAborted {
        /// The item.
        item_id: EntryId,
        /// An error code.
        reason: String,
    }

    /// Payload of `call_progressed`.
    struct CallProgressed {
        /// The tool call, if a tool reported.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_call_id: Option<CallId>,
        /// The hook call, if a hook reported.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hook_call_id: Option<CallId>,
        /// The current activity.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// The new time at which it fails if it is not answered.
        deadline: Timestamp,
    }

    /// Payload of `hook_cancelled`: the answer is no longer awaited.
    struct HookCancelled {
        /// The call.
        #[serde(rename = "hookCallId")]
        call_id: CallId,
        /// `timed_out`, or `dropped` if what the hook was called for is over.
        outcome: CallOutcome,
    }

    /// Payload of `hook_failed`.
    struct HookFailed {
        /// The hook.
        hook: String,
        /// Its extension point.
        point: HookPoint,
        /// The running turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
        /// The error.
        error: ErrorBody,
    }

    /// Payload of `compaction_started`.
    struct CompactionStarted {
        /// The job.
        job_id: JobId,
        /// Its trigger.
        trigger: CompactionTrigger,
        /// True if turns continue meanwhile.
        background: bool,
    }

    /// Payload of `compaction_progress`.
    struct CompactionProgress {
        /// The job.
        job_id: JobId,
        /// Its phase: `summarising`, or `summarising_branch` for an abandoned branch.
        phase: String,
        /// Steps done.
        done: u64,
        /// Total steps.
        total: u64,
    }

    /// Payload of `compaction_prepared`. Nothing has changed yet: the next request is the same.
    struct CompactionPrepared {
        /// The job. `context_compacted` names it when it is committed, `compaction_failed` when it is dropped.
        job_id: JobId,
        /// Its trigger.
        trigger: CompactionTrigger,
        /// The fallback step that succeeded.
        rung: CompactionRung,
        /// Tokens of the next request.
        tokens_before: u64,
        /// Tokens of the next request if it were committed now.
        tokens_after: u64,
        /// It is committed before the first request with more tokens than this; absent if the strategy never compacts
        /// by count.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compact_at_tokens: Option<u64>,
        /// Its duration in milliseconds.
        duration_ms: u64,
        /// The usage of the summary requests together; absent if the model was not used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary_usage: Option<Usage>,
    }

    /// Payload of `compaction_failed`.
    struct CompactionFailed {
        /// The job.
        job_id: JobId,
        /// The command that requested it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_id: Option<CommandId>,
        /// Its trigger; absent for the summary of an abandoned branch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trigger: Option<CompactionTrigger>,
        /// True if it started in the background.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        background: bool,
        /// The steps that were tried, and why each failed or saved too little.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<FailedRung>>"))]
        failed_rungs: Vec<FailedRung>,
        /// Its duration in milliseconds; 0 if it had not started.
        #[serde(default)]
        duration_ms: u64,
        /// The time that a user waited for it, in milliseconds.
        #[serde(default)]
        paused_ms: u64,
        /// The usage of its summary requests together, if a held compaction is dropped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary_usage: Option<Usage>,
        /// The error.
        error: ErrorBody,
    }

    /// Payload of `context_warning`.
    struct ContextWarning {
        /// The request's share of the window, not clamped.
        usage_ratio: f64,
        /// A sentence for the user.
        message: String,
        /// The cause, for programs; older servers leave it out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<ContextWarningCode>,
    }

    /// Payload of `context_updated`.
    struct ContextUpdated {
        /// The running turn.
        turn_id: TurnId,
        /// The size of the context. A slow reader only receives the newest.
        context_info: ContextInfo,
    }

    /// Payload of `session_closed`.
    struct SessionClosed {
        /// Why it ended.
        code: SubscriptionEnd,
        /// The same for people.
        message: String,
        /// True if `open_session` with `resume` may succeed.
        retriable: bool,
        /// The error behind it, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ErrorBody>,
    }
}

/// Why a subscription ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum SubscriptionEnd {
    /// The session was deleted.
    Deleted,
    /// The session left memory after an internal error or a failure of the store. Nothing acknowledged is lost.
    Failed,
    /// The session is open on another server of the cluster, or may be soon: this one has lost touch with the database,
    /// or with the server that had it. Nothing acknowledged is lost.
    Moved,
}

impl SubscriptionEnd {
    /// Returns the event that reports it.
    #[must_use]
    pub fn event(self) -> EphemeralEvent {
        let (message, retriable) = match self {
            Self::Deleted => ("the session was deleted", false),
            Self::Moved => ("the session may be open on another server now; open it again with `resume`", true),
            Self::Failed => ("the session was closed after an internal error; open it again with `resume`", true),
        };
        EphemeralEvent::SessionClosed(SessionClosed { code: self, message: message.to_owned(), retriable, error: None })
    }
}

compacted::context_compacted! {
    /// Payload of `context_compacted`. Before and after are counted for the same pending request.
    ContextCompacted, tokens_before, tokens_after
}

macro_rules! words {
    ($($(#[$doc:meta])* enum $name:ident { $($(#[$vdoc:meta])* $variant:ident,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
            #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
            #[serde(rename_all = "snake_case")]
            pub enum $name { $($(#[$vdoc])* $variant,)* }
        )*
    };
}

words! {
    /// The cause of a `context_warning`.
    enum ContextWarningCode {
        /// The window is nearly full, and the strategy does nothing about it.
        NearlyFull,
        /// Nothing tells the window of the chosen model: a default is assumed.
        WindowUnknown,
        /// The model's server seems to leave out the beginning of what it is sent.
        ContextTruncatedUpstream,
    }

    /// The end of a turn.
    enum TurnStatus {
        /// Completed with an answer.
        Completed,
        /// Failed with an error; `error.retriable` says whether it can be retried.
        Failed,
        /// Cancelled by the user.
        Cancelled,
        /// The server stopped during the turn.
        Interrupted,
    }

    /// The outcome of a tool call.
    enum CallOutcome {
        /// The tool answered.
        Answered,
        /// The tool reported a failure.
        Failed,
        /// No answer arrived in time.
        TimedOut,
        /// Its turn ended first.
        Dropped,
        /// A person allowed it: it is made now.
        Allowed,
        /// A person rejected it: it is not made.
        Rejected,
        /// Nobody decided in time: it is not made.
        Expired,
    }

    /// The trigger of a compaction.
    enum CompactionTrigger {
        /// A client requested it.
        Manual,
        /// The next request would have been too large.
        Threshold,
        /// The provider refused a request as too large.
        Overflow,
        /// The strategy's own rule.
        Strategy,
    }

    /// The compaction step that succeeded, from gentle to drastic.
    enum CompactionRung {
        /// Old tool results were replaced by a short note; nothing was summarised.
        ClearToolResults,
        /// The model summarised it in one request.
        ModelSummary,
        /// The model summarised it in several pieces.
        ChunkedSummary,
        /// Facts were extracted by rule.
        Extract,
        /// The oldest entries were dropped.
        Truncate,
        /// A hook provided the summary.
        HookSummary,
    }

    /// What starts streaming.
    enum ItemKind {
        /// An answer.
        Message,
        /// A tool call in an answer.
        ToolCall,
    }

    /// The kind of text in a delta.
    enum DeltaKind {
        /// Text.
        Text,
        /// Reasoning.
        Reasoning,
        /// The arguments of a tool call.
        Arguments,
    }
}
