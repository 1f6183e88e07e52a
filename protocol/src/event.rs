//! What happened. Durable events have a `seq`, are stored, and are the same for every subscriber; ephemeral ones are
//! decoration.

use crate::{
    CallId, CommandId, Entry, EntryId, ErrorBody, JobId, SessionId, StopReason, Timestamp, TurnId, Usage,
    command::SessionRole,
    context::{Breakdown, ContextInfo},
    entry::SummaryForm,
    hook::{HookCall, HookOffer, HookPoint},
    reply::{Pin, QueueItem, SessionItem, SessionSettings},
};
use serde::{Deserialize, Serialize};

/// A durable event: one stored record, under `seq` in the envelope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", content = "payload", rename_all = "snake_case")]
pub enum Event {
    /// The tree has grown by one entry, the user's included; the leaf is now this one.
    EntryAppended(Box<EntryAppended>),
    /// A turn has begun.
    TurnStarted(TurnStarted),
    /// A turn has ended; exactly one for each begun.
    TurnFinished(Box<TurnFinished>),
    /// The model asks for a tool of the owner's.
    ToolCall(ToolCall),
    /// A tool call is answered, has failed or was dropped.
    RequestResolved(RequestResolved),
    /// The waiting inputs are now these.
    QueueChanged(QueueChanged),
    /// Something about the session has changed.
    SessionUpdated(Box<SessionUpdated>),
    /// The context was compacted and the loop seeded anew.
    ContextCompacted(Box<ContextCompacted>),
    /// Building the context passes over that compaction from now on.
    CompactionUndone(Box<CompactionUndone>),
    /// A compaction, or the summary of a branch, failed or was cancelled; the context is as it was.
    CompactionFailed(Box<CompactionFailed>),
}

/// An ephemeral event: it has no `seq`, is not stored, and may be missed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", content = "payload", rename_all = "snake_case")]
pub enum EphemeralEvent {
    /// An answer begins to be shown.
    ItemStarted(ItemStarted),
    /// A piece of it; pieces may be coalesced.
    ItemDelta(ItemDelta),
    /// What was shown of it is void.
    ItemAborted(ItemAborted),
    /// A tool says what it is doing.
    CallProgressed(CallProgressed),
    /// A hook of this client's is asked; only to that client.
    HookCall(Box<HookCall>),
    /// A call of a hook of this client's is withdrawn; only to that client.
    HookCancelled(HookCancelled),
    /// A hook failed.
    HookFailed(HookFailed),
    /// A tool's call is withdrawn.
    ToolCancelled(ToolCancelled),
    /// A compaction begins.
    CompactionStarted(CompactionStarted),
    /// How far it is.
    CompactionProgress(CompactionProgress),
    /// A compaction is prepared and held: it is committed at the trigger, in one step.
    CompactionPrepared(Box<CompactionPrepared>),
    /// The window is nearly full and nothing will be done about it, or something else about it should be known.
    ContextWarning(ContextWarning),
    /// How full the window is now, in the middle of a turn: after a tool's result and before the request that follows.
    ContextUpdated(Box<ContextUpdated>),
    /// What this connection is to the session has changed.
    RoleChanged(RoleChanged),
    /// A session in the list has changed; only to connections that watch it (`list_sessions`).
    SessionChanged(SessionItem),
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
        /// How it ended.
        status: TurnStatus,
        /// Why the last answer ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finish_reason: Option<StopReason>,
        /// What went wrong, on `failed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ErrorBody>,
        /// What the turn's requests cost together.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// The part of it for an answer that is not stored, since a hook failed that had to look at it first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        withheld_usage: Option<Usage>,
        /// How full the window is now.
        context_info: ContextInfo,
    }

    /// Payload of `tool_call`.
    struct ToolCall {
        /// The call; delivered at least once.
        call_id: CallId,
        /// Its turn.
        turn_id: TurnId,
        /// The tool.
        name: String,
        /// The arguments, JSON text that the tool's schema accepts.
        arguments: String,
        /// When it fails without an answer.
        deadline: Timestamp,
    }

    /// Payload of `request_resolved`.
    struct RequestResolved {
        /// The call.
        call_id: CallId,
        /// What became of it.
        outcome: CallOutcome,
    }

    /// Payload of `queue_changed`.
    struct QueueChanged {
        /// The inputs that wait, first in line first.
        items: Vec<QueueItem>,
    }

    /// Payload of `session_updated`: what is absent has not changed.
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
        /// The other settings, all of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settings: Option<SessionSettings>,
        /// The entry from which the session goes on; `null` before the first.
        #[serde(default, deserialize_with = "crate::command::present", skip_serializing_if = "Option::is_none")]
        leaf_id: Option<Option<EntryId>>,
        /// The entries that every compaction keeps word for word, all of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pins: Option<Vec<Pin>>,
        /// How often the loop was seeded.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        generation: Option<u64>,
        /// The compaction that is held from now on. For the server, which reads it back after a restart.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<HeldCompaction>,
        /// The required hooks of its client that work of the session needs from now on, all of them: their names and
        /// where they are asked. For the server, which reads them back after a restart.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        hooks: Option<Vec<HookOffer>>,
        /// The command that caused it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_id: Option<CommandId>,
    }

    /// A compaction that is prepared and not yet committed, as the log keeps it.
    struct HeldCompaction {
        /// The job that prepared it.
        job_id: JobId,
        /// What the server needs to commit it. Its form is the server's own and may change.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        record: serde_json::Value,
    }

    /// Payload of `compaction_undone`.
    struct CompactionUndone {
        /// The compaction's entry.
        entry_id: EntryId,
        /// The command that asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_id: Option<CommandId>,
        /// The generation of the loop that was seeded.
        generation: u64,
        /// How full the window is now.
        context_info: ContextInfo,
    }

    /// Payload of `context_compacted`. Before and after are counted over the same pending request.
    struct ContextCompacted {
        /// Tokens of the next request before.
        old_token_count: u64,
        /// Tokens of the next request after.
        new_token_count: u64,
        /// By how much it shrank, in percent, 0 to 100.
        reduction_percent: f64,
        /// The strategy: its short name on v2, its class-style name on v1.
        strategy: String,
        /// The job.
        job_id: JobId,
        /// The command that asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_id: Option<CommandId>,
        /// The compaction's entry.
        entry_id: EntryId,
        /// The first entry kept word for word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first_kept_entry_id: Option<EntryId>,
        /// Older entries kept word for word.
        kept_entry_ids: Vec<EntryId>,
        /// Entries whose tool results are shown as a short note from now on.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<EntryId>>"))]
        cleared_entry_ids: Vec<EntryId>,
        /// Why it was done.
        trigger: CompactionTrigger,
        /// Whether it was made while turns went on.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        background: bool,
        /// Which way of making room it took.
        rung: CompactionRung,
        /// The gentler ways that were tried before, and why they did not do.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<FailedRung>>"))]
        failed_rungs: Vec<FailedRung>,
        /// The summary.
        summary: String,
        /// Its form; absent where none was made, where a hook made it, and in older logs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        form: Option<SummaryForm>,
        /// The generation of the loop that was seeded.
        generation: u64,
        /// Milliseconds it took.
        duration_ms: u64,
        /// Milliseconds a user waited for it.
        paused_ms: u64,
        /// What the summary requests cost together; absent where the model was not asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary_usage: Option<Usage>,
        /// Tokens that the provider had in its cache and will have to read anew.
        cached_tokens_lost: u64,
        /// What of the summary was looked after; absent where nothing was summarised, and in older logs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retained: Option<Retained>,
        /// The count above which the strategy compacts by itself; absent where it never does by count.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compact_at_tokens: Option<u64>,
        /// Tokens by kind, before and after.
        breakdown: BreakdownChange,
    }

    /// How well a summary kept what is exact: paths, addresses, numbers, names, open tasks.
    #[derive(Copy, Eq, Default)]
    struct Retained {
        /// How many were looked for.
        checked: u64,
        /// How many of them the summary had lost and were put back word for word.
        restored: u64,
    }

    /// A way of making room that did not do.
    #[derive(Eq)]
    struct FailedRung {
        /// Which.
        rung: CompactionRung,
        /// Why not, in a word for programs: `too_little`, `empty`, `truncated`, `refused`, `malformed`, `continued`
        /// (the model answered the user instead), `not_smaller`, `timeout`, or an error code.
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
        /// `message`.
        kind: String,
    }

    /// Payload of `item_delta`.
    struct ItemDelta {
        /// The item.
        item_id: EntryId,
        /// The part of it.
        part: u32,
        /// Where the text goes, in UTF-16 code units from the part's beginning.
        offset: u64,
        /// What kind of part this is; absent for text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<DeltaKind>,
        /// The piece.
        text: String,
    }

    /// Payload of `item_aborted`.
    struct ItemAborted {
        /// The item.
        item_id: EntryId,
        /// Why: an error code.
        reason: String,
    }

    /// Payload of `call_progressed`.
    struct CallProgressed {
        /// The call.
        call_id: CallId,
        /// What the tool is doing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// When it fails without an answer now.
        deadline: Timestamp,
    }

    /// Payload of `hook_cancelled`: nobody waits for the answer any more.
    struct HookCancelled {
        /// The call.
        call_id: CallId,
        /// The session.
        session_id: SessionId,
        /// Why: `timed_out`, or `dropped` where what it was asked about is over.
        outcome: CallOutcome,
    }

    /// Payload of `tool_cancelled`: nobody waits for the answer any more. What is durable about it is
    /// `request_resolved`.
    struct ToolCancelled {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// The turn that made it.
        turn_id: TurnId,
        /// Why: `timed_out`, or `dropped` where its turn ended.
        outcome: CallOutcome,
    }

    /// Payload of `hook_failed`.
    struct HookFailed {
        /// The hook.
        hook: String,
        /// Where it was asked.
        event: HookPoint,
        /// The running turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
        /// An error code.
        code: crate::ErrorCode,
        /// What went wrong.
        message: String,
    }

    /// Payload of `compaction_started`.
    struct CompactionStarted {
        /// The job.
        job_id: JobId,
        /// Why.
        trigger: CompactionTrigger,
        /// Whether turns go on meanwhile.
        background: bool,
    }

    /// Payload of `compaction_progress`.
    struct CompactionProgress {
        /// The job.
        job_id: JobId,
        /// What it is at: `summarising`, or `summarising_branch` for a branch that is left.
        phase: String,
        /// Steps done.
        done: u64,
        /// Steps in all.
        total: u64,
    }

    /// Payload of `compaction_prepared`. Nothing has changed yet: the next request is as it was.
    struct CompactionPrepared {
        /// The job. `context_compacted` names it when it is committed, `compaction_failed` when it is dropped.
        job_id: JobId,
        /// Why it was begun.
        trigger: CompactionTrigger,
        /// Which way of making room it takes.
        rung: CompactionRung,
        /// Tokens of the next request now.
        token_count: u64,
        /// Tokens of the next request if it were committed now.
        new_token_count: u64,
        /// It is committed before the first request of more tokens than this; absent where the strategy never compacts
        /// by count.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compact_at_tokens: Option<u64>,
        /// Milliseconds it took.
        duration_ms: u64,
        /// What the summary requests cost together; absent where the model was not asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary_usage: Option<Usage>,
    }

    /// Payload of `compaction_failed`.
    struct CompactionFailed {
        /// The job.
        job_id: JobId,
        /// The command that asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command_id: Option<CommandId>,
        /// Why it was begun; absent for the summary of a branch that is left.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trigger: Option<CompactionTrigger>,
        /// Whether it was begun while turns went on.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        background: bool,
        /// The ways of making room that were tried, and why they did not do.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<FailedRung>>"))]
        failed_rungs: Vec<FailedRung>,
        /// Milliseconds it took; 0 where it was not begun.
        #[serde(default)]
        duration_ms: u64,
        /// Milliseconds a user waited for it.
        #[serde(default)]
        paused_ms: u64,
        /// What its summary requests cost together, where a compaction that was held is dropped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unused_usage: Option<Usage>,
        /// An error code.
        code: crate::ErrorCode,
        /// What went wrong.
        message: String,
    }

    /// Payload of `context_warning`.
    struct ContextWarning {
        /// Of the window, in percent, held within 0 to 100.
        usage_percent: f64,
        /// A sentence for the user.
        message: String,
    }

    /// Payload of `context_updated`.
    struct ContextUpdated {
        /// The running turn.
        turn_id: TurnId,
        /// How full the window is. A reader that is behind is given the newest one alone.
        context_info: ContextInfo,
    }

    /// Payload of `role_changed`.
    struct RoleChanged {
        /// What this connection is to the session now.
        role: SessionRole,
    }
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
    /// How a turn ended.
    enum TurnStatus {
        /// With an answer.
        Completed,
        /// With an error; it can be retried where that says so.
        Failed,
        /// The user stopped it.
        Cancelled,
        /// The server stopped in the middle of it.
        Interrupted,
    }

    /// What became of a tool call.
    enum CallOutcome {
        /// The tool answered.
        Answered,
        /// The tool answered that it failed.
        Failed,
        /// No answer came in time.
        TimedOut,
        /// Its turn ended first.
        Dropped,
    }

    /// Why a compaction was done.
    enum CompactionTrigger {
        /// A client asked.
        Manual,
        /// The next request would have been too large.
        Threshold,
        /// The provider refused a request as too large.
        Overflow,
        /// The strategy's own reason.
        Strategy,
    }

    /// Which way of making room a compaction took, gentle to drastic.
    enum CompactionRung {
        /// Old tool results gave way to a short note; nothing was summarised.
        ClearToolResults,
        /// The model summarised it in one request.
        ModelSummary,
        /// The model summarised it piece by piece.
        ChunkedSummary,
        /// Facts were extracted by rule.
        Extract,
        /// The oldest were left out.
        Truncate,
        /// A hook gave the summary.
        HookSummary,
    }

    /// What kind of part a delta belongs to.
    enum DeltaKind {
        /// Text.
        Text,
        /// Reasoning.
        Reasoning,
    }
}
