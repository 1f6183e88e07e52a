//! Replies: the one reply to a command, under the command's own `id`.

use crate::{
    CommandId, Entry, EntryId, ErrorBody, JobId, Part, SessionId, Timestamp, TurnId, Usage,
    approval::{Approval, ApprovalPolicy, StandingApproval},
    command::{SessionRole, StrategySettings},
    context::{ContextEnvelope, ContextInfo},
    entry::SummaryForm,
    event::{CompactionPrepared, CompactionRung, FailedRung, Host, Participant, Retained, TurnStatus},
    receipt::Receipt,
};
use serde::{Deserialize, Serialize};

messages! {
    /// A reply with its payload.
    pub enum Reply {
        /// To `hello`.
        Welcome(Box<Welcome>) = "welcome",
        /// To `open_session`.
        SessionOpened(Box<SessionOpened>) = "session_opened",
        /// To `list_sessions`.
        Sessions(Sessions) = "sessions",
        /// To `list_models`.
        Models(Models) = "models",
        /// To `get_entries`.
        Entries(Entries) = "entries",
        /// To `ping`.
        Pong(Pong) = "pong",
        /// To `user_input` and `retry_turn`, once their entries are durable.
        Accepted(Accepted) = "accepted",
        /// To every command without a reply of its own.
        Ok(Done) = "ok",
        /// To `get_context_info`.
        ContextInfo(Box<ContextInfo>) = "context_info",
        /// To `get_context`.
        Context(Box<Context>) = "context",
        /// To `list_tools`.
        Tools(Tools) = "tools",
        /// The reply to `preview_compaction`, once its summary is made.
        CompactionPreview(Box<CompactionPreview>) = "compaction_preview",
        /// To `navigate`.
        Navigated(Navigated) = "navigated",
        /// To `fork_session`.
        Forked(Forked) = "forked",
        /// To `get_tree`.
        Tree(Tree) = "tree",
        /// To `search_history`.
        HistoryHits(HistoryHits) = "history_hits",
        /// To a refused command; nothing was changed, unless `code` is one whose cause says otherwise.
        Error(ErrorBody) = "error",
    }
}

macro_rules! replies {
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

mod duplicate;
mod history;
mod models;
mod resumed;
mod running;
mod tools;
mod unchecked;
mod welcome;

pub use history::{HistoryHit, HistoryHits, HitRole};
pub use models::{ModelItem, ModelPrice, Models};
pub use resumed::Resumed;
pub use running::{PendingCall, RunningPart};
pub use tools::{SessionTool, ToolServer, ToolServerFailure, ToolServerState, Tools};
pub use unchecked::{UncheckedPattern, UncheckedReason};
pub use welcome::{Limits, Server, Welcome};

replies! {
    /// Payload of `session_opened`: the whole state as of `asOfSeq`.
    struct SessionOpened {
        /// The session.
        session_id: SessionId,
        /// This connection's role.
        role: SessionRole,
        /// The connection that hosts the tools and hooks; absent if none does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<Host>,
        /// Patterns of the tools that this command offered which the arguments of calls are not checked against: the
        /// first 32.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<UncheckedPattern>>"))]
        unchecked_patterns: Vec<UncheckedPattern>,
        /// The connections that are subscribed to the session, this one included, in the order in which they came.
        #[serde(default)]
        presence: Vec<Participant>,
        /// Identifies the log; with `seq`, a position to resume from.
        epoch: String,
        /// This reply covers everything up to this durable event; live events follow.
        as_of_seq: u64,
        /// The session's leaf, from which it continues.
        #[serde(with = "crate::leaf")]
        #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
        leaf_id: Option<EntryId>,
        /// The session's state.
        state: SessionState,
        /// The number of times that the loop was seeded.
        generation: u64,
        /// The session's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The model.
        model: String,
        /// The strategy's short name.
        strategy: String,
        /// The other settings.
        settings: SessionSettings,
        /// The size of the context.
        context_info: ContextInfo,
        /// The result of a `resume`; absent if none was requested.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resumed: Option<Resumed>,
        /// The newest entries on the path, oldest first; absent after a `replay`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entries: Option<Vec<Entry>>,
        /// True if there are older entries on the path than these.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        more: Option<bool>,
        /// The running turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<RunningTurn>,
        /// The last turn, if it ended without an answer and nothing was said since: what `retry_turn` would retry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_turn: Option<EndedTurn>,
        /// The newest turns that ended without an answer, oldest first, each with its position in the history,
        /// including `lastTurn`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<UnansweredTurn>>"))]
        unanswered_turns: Vec<UnansweredTurn>,
        /// The newest failed compactions that somebody waited for, oldest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<FailedCompaction>>"))]
        failed_compactions: Vec<FailedCompaction>,
        /// The running compaction.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compaction: Option<RunningCompaction>,
        /// The prepared compaction that is held until due, with current counts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<CompactionPrepared>,
        /// Queued inputs.
        queue: Vec<QueueItem>,
        /// Unanswered tool calls.
        pending: Vec<PendingCall>,
        /// Calls that a person must allow first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<Approval>>"))]
        approvals: Vec<Approval>,
        /// Lasting answers to approvals.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<StandingApproval>>"))]
        standing_approvals: Vec<StandingApproval>,
        /// The entries that every compaction keeps verbatim.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<Pin>>"))]
        pins: Vec<Pin>,
        /// The compactions that were undone.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<EntryId>>"))]
        undone: Vec<EntryId>,
    }

    /// An entry that every compaction keeps verbatim.
    #[derive(Eq)]
    struct Pin {
        /// The entry.
        entry_id: EntryId,
        /// The entry that was pinned, if this one only accompanies it: a tool result with its call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        with: Option<EntryId>,
        /// The compaction that had replaced it when it was pinned; absent if the model saw it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        under: Option<EntryId>,
    }

    /// Settings of a session besides model and strategy.
    struct SessionSettings {
        /// The system prompt; absent to use the deployment's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<String>,
        /// 0 to 2; absent to use the provider's default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        temperature: Option<f64>,
        /// The most tokens of an answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_output_tokens: Option<u64>,
        /// The reasoning effort.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning_effort: Option<String>,
        /// The strategy's settings that differ from the deployment's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strategy_settings: Option<StrategySettings>,
        /// The window learned from a provider's refusal, if smaller than the configured one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        learned_window_tokens: Option<u64>,
        /// The tools that are switched off in this session.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<String>>"))]
        tools_off: Vec<String>,
        /// The session's own approval policy. It can only be stricter than the deployment's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approvals: Option<ApprovalPolicy>,
    }

    /// A turn that is running.
    struct RunningTurn {
        /// The turn.
        turn_id: TurnId,
        /// Its items that are not entries yet.
        items: Vec<RunningItem>,
    }

    /// A turn that ended without an answer; the fields are those of `turn_finished`.
    struct EndedTurn {
        /// The turn.
        turn_id: TurnId,
        /// Its status.
        status: TurnStatus,
        /// The error, on `failed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ErrorBody>,
    }

    /// A turn that ended without an answer, with its position in the history.
    struct UnansweredTurn {
        /// The turn.
        turn_id: TurnId,
        /// Its status.
        status: TurnStatus,
        /// The error, on `failed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ErrorBody>,
        /// The newest entry when it ended.
        #[serde(with = "crate::leaf")]
        #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
        leaf_id: Option<EntryId>,
    }

    /// A failed compaction, with its position in the history.
    struct FailedCompaction {
        /// The job.
        job_id: JobId,
        /// The error.
        error: ErrorBody,
        /// The newest entry when it failed.
        #[serde(with = "crate::leaf")]
        #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
        leaf_id: Option<EntryId>,
    }

    /// An item being streamed.
    struct RunningItem {
        /// The id that its entry will have.
        item_id: EntryId,
        /// Its parts so far.
        parts: Vec<RunningPart>,
    }

    /// A compaction that is running.
    struct RunningCompaction {
        /// The job.
        job_id: JobId,
        /// Its phase.
        phase: String,
        /// True if turns continue meanwhile.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        background: bool,
    }

    /// A queued input.
    struct QueueItem {
        /// The command that sent it.
        command_id: CommandId,
        /// Its content.
        content: Vec<Part>,
        /// If true, it is sent with the next request of the running turn, before other queued inputs.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        steer: bool,
        /// Set for a client's message (`append_custom_message`), which requests no answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        custom: Option<QueuedCustom>,
        /// The `navigate` during which it was sent, for whose target it is. If the move fails, it stays in the queue
        /// until another move arrives or `edit_queue` releases it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<CommandId>,
        /// The id that its entry will have; absent for a client's message, and for inputs queued by older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry_id: Option<EntryId>,
    }

    /// The further fields of a client's queued message.
    struct QueuedCustom {
        /// The id that its entry will have.
        entry_id: EntryId,
        /// The kind of message, chosen by the client.
        custom_type: String,
        /// True if it should be shown to people.
        display: bool,
        /// Further data for programs; never sent to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        details: Option<serde_json::Value>,
    }

    /// Payload of `sessions`.
    struct Sessions {
        /// The sessions, newest first.
        items: Vec<SessionItem>,
        /// The cursor for the next page; absent on the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_cursor: Option<String>,
    }

    /// A session in a list.
    struct SessionItem {
        /// The session.
        session_id: SessionId,
        /// Its name; empty if it has none.
        name: String,
        /// The time of its creation.
        created_at: Timestamp,
        /// The time of the last write to it.
        updated_at: Timestamp,
        /// The number of entries in its tree.
        entries: u64,
        /// Tokens of its next request.
        token_count: u64,
        /// `tokenCount` as a share of the window, not clamped.
        usage_ratio: f64,
        /// The known cost of its requests, in billionths of a US dollar; absent if no cost is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_nano_usd: Option<u64>,
        /// Its requests of unknown cost, which are not in `costNanoUsd`; only with that, and only if there are some.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unpriced_requests: Option<u64>,
        /// Its state.
        state: SessionState,
        /// True if it was deleted: remove it from the list. Only in `session_changed`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        deleted: bool,
    }

    /// Payload of `compaction_preview`: what `start_compaction { previewId }` would do.
    struct CompactionPreview {
        /// Identifies it in `start_compaction`.
        preview_id: JobId,
        /// The time of its expiry.
        expires_at: Timestamp,
        /// The summary; empty if nothing would be summarised.
        summary: String,
        /// Its form; absent if none would be made, and if a hook made it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        form: Option<SummaryForm>,
        /// The fallback step that succeeded.
        rung: CompactionRung,
        /// The steps tried before, and why each failed or saved too little.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<FailedRung>>"))]
        failed_rungs: Vec<FailedRung>,
        /// The first entry to be kept; absent if none would be.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first_kept_entry_id: Option<EntryId>,
        /// Older entries to be kept verbatim.
        kept_entry_ids: Vec<EntryId>,
        /// Entries whose tool results would be shown as a short note.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<EntryId>>"))]
        cleared_entry_ids: Vec<EntryId>,
        /// The messages that the model would no longer see.
        dropped: Stretch,
        /// The messages that it would still see, without the summary.
        kept: Stretch,
        /// Tokens of the next request.
        tokens_before: u64,
        /// Tokens of the same request after the compaction.
        tokens_after: u64,
        /// The facts checked in the summary.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retained: Option<Retained>,
        /// The usage of the summary requests; absent if the model was not used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary_usage: Option<Usage>,
    }

    /// Some messages of a context.
    #[derive(Default)]
    struct Stretch {
        /// The number of messages.
        count: u64,
        /// Their tokens.
        tokens: u64,
        /// The first one's entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<EntryId>,
        /// The last one's entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<EntryId>,
    }

    /// Payload of `navigated`.
    struct Navigated {
        /// The session's leaf, from which it continues.
        #[serde(with = "crate::leaf")]
        #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
        leaf_id: Option<EntryId>,
        /// The input to edit, if the move was to before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Vec<Part>>,
        /// The summary of the abandoned branch.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch_summary_entry_id: Option<EntryId>,
        /// This reply covers everything up to this durable event; what the command caused follows.
        as_of_seq: u64,
        /// True if the command had been executed before; this is its first reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duplicate: Option<bool>,
    }

    /// Payload of `forked`.
    struct Forked {
        /// The new session; open it like any other.
        session_id: SessionId,
        /// The input to edit, if the fork was before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Vec<Part>>,
        /// True if the command had been executed before; this is its first reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duplicate: Option<bool>,
    }

    /// Payload of `tree`.
    struct Tree {
        /// The entries, parents before their children.
        nodes: Vec<TreeNode>,
        /// The session's leaf, from which it continues.
        #[serde(with = "crate::leaf")]
        #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
        leaf_id: Option<EntryId>,
        /// This reply covers everything up to this durable event.
        as_of_seq: u64,
        /// True if entries were left out: those below nodes whose `childCount` is larger than their number of children
        /// here.
        more: bool,
    }

    /// An entry of the tree.
    struct TreeNode {
        /// The entry.
        entry_id: EntryId,
        /// Its parent; `null` for a root.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        parent_id: Option<EntryId>,
        /// Its type; a message's includes its role, as in `message:user`.
        #[serde(rename = "type")]
        kind: String,
        /// The start of its text, one line of at most 80 characters.
        preview: String,
        /// Its label.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// The time of its creation.
        timestamp: Timestamp,
        /// The number of its children.
        child_count: u64,
    }

    /// Payload of `entries`.
    struct Entries {
        /// The entries, oldest first.
        items: Vec<Entry>,
        /// The session's leaf, from which it continues.
        #[serde(with = "crate::leaf")]
        #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
        leaf_id: Option<EntryId>,
        /// This reply covers everything up to this durable event.
        as_of_seq: u64,
        /// True if there are more in the requested direction.
        more: bool,
        /// The `seq` of damaged records in this range; absent if there are none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        damaged: Option<Vec<u64>>,
    }

    /// Payload of `pong`.
    struct Pong {
        /// The session's newest durable event; absent if the ping named no session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        /// True if the client has seen it; if `false`, open the session again with `resume`. Absent if the ping named
        /// no session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        in_sync: Option<bool>,
        /// The server's time.
        server_time: Timestamp,
    }

    /// Payload of `accepted`.
    struct Accepted {
        /// The entry that was written; absent while the input is queued.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry_id: Option<EntryId>,
        /// The turn that was started; absent while the input is queued.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
        /// True if the input is queued.
        queued: bool,
        /// This reply covers everything up to this durable event; what the command caused follows.
        as_of_seq: u64,
        /// True if the command had been executed before; this is its first reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duplicate: Option<bool>,
    }

    /// Payload of `ok`.
    #[derive(Default)]
    struct Done {
        /// The compaction that was started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job_id: Option<JobId>,
        /// True if another connection hosts the session's tools and hooks: what was offered waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        standby: Option<bool>,
        /// Patterns of the offered tools' schemas that the arguments of calls are not checked against: the first 32.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<UncheckedPattern>>"))]
        unchecked_patterns: Vec<UncheckedPattern>,
        /// The entry that was written, or will be before the next request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry_id: Option<EntryId>,
        /// This reply covers everything up to this durable event; what the command caused follows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        as_of_seq: Option<u64>,
        /// True if the command had been executed before; this is its first reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duplicate: Option<bool>,
    }

    /// Payload of `context`.
    struct Context {
        /// The next request's envelope.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        envelope: Option<ContextEnvelope>,
        /// The same as readable text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        markdown: Option<String>,
        /// Its tokens.
        tokens: u64,
        /// The receipt it would have compared with the session's previous request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<Receipt>,
    }
}

/// The state of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Idle.
    Idle,
    /// A turn is running.
    Running,
    /// It is being compacted outside a turn, or an abandoned branch is being summarised.
    Compacting,
}
