//! The one answer that a command gets, under the command's own `id`.

use crate::{
    CallId, CommandId, Entry, EntryId, ErrorBody, JobId, Part, SessionId, Timestamp, TurnId, Usage,
    command::{SessionRole, StrategySettings},
    context::{ContextEnvelope, ContextInfo},
    entry::SummaryForm,
    event::{CompactionPrepared, CompactionRung, FailedRung, Retained, TurnStatus},
    receipt::Receipt,
};
use serde::{Deserialize, Serialize};

/// A reply with its payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", content = "payload", rename_all = "snake_case")]
pub enum Reply {
    /// To `hello`.
    Welcome(Welcome),
    /// To `open_session`.
    SessionOpened(Box<SessionOpened>),
    /// To `list_sessions`.
    Sessions(Sessions),
    /// To `get_entries`.
    Entries(Entries),
    /// To `ping`.
    Pong(Pong),
    /// To `user_input` and `retry_turn`, once what they wrote is durable.
    Accepted(Accepted),
    /// To everything that has nothing else to say.
    Ok(Done),
    /// To `get_context_info`.
    ContextInfo(Box<ContextInfo>),
    /// To `get_context`.
    Context(Box<Context>),
    /// To `preview_compact`, once its summary is made.
    CompactionPreview(Box<CompactionPreview>),
    /// To `navigate`.
    Navigated(Navigated),
    /// To `fork_session`.
    Forked(Forked),
    /// To `get_tree`.
    Tree(Tree),
    /// To a command that was refused; nothing was changed.
    Error(ErrorBody),
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

replies! {
    /// Payload of `welcome`.
    struct Welcome {
        /// 2.
        protocol_version: u32,
        /// The server.
        server: Server,
        /// What this server can do beyond the least: names that a client may look for.
        features: Vec<String>,
        /// What these credentials allow: `sessions`, `operator`.
        scopes: Vec<String>,
        /// The server pings every so many milliseconds.
        heartbeat_ms: u64,
        /// What it refuses.
        limits: Limits,
    }

    /// The server.
    struct Server {
        /// `reseed`.
        name: String,
        /// Its version.
        version: String,
        /// This process; another one after a restart.
        instance: String,
        /// The provider it talks to: `offline` or `openai`.
        provider: String,
        /// A sentence for the user where there is something to know, on the offline model for instance.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notice: Option<String>,
    }

    /// What the server refuses.
    struct Limits {
        /// Bytes of a frame.
        message_bytes_max: u64,
        /// Nested arrays and objects in a frame.
        depth_max: u64,
        /// Inputs that may wait.
        queue_items_max: u64,
        /// Tools that one client may offer.
        tools_max: u64,
        /// Hooks that one client may offer.
        #[serde(default)]
        hooks_max: u64,
    }

    /// Payload of `session_opened`: the whole state as of `asOfSeq`.
    struct SessionOpened {
        /// The session.
        session_id: SessionId,
        /// What this connection is to it.
        role: SessionRole,
        /// Names the log; with `seq` a place to resume from.
        epoch: String,
        /// This reply speaks of everything up to this durable event; live events follow above it.
        as_of_seq: u64,
        /// The entry from which the session goes on; `null` before the first.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        leaf_id: Option<EntryId>,
        /// What the session is doing.
        state: SessionState,
        /// How often the loop was seeded.
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
        /// How full the window is.
        context_info: ContextInfo,
        /// How a `resume` was served; absent where none was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        resumed: Option<Resumed>,
        /// The newest entries on the path, oldest first; absent after a `replay`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entries: Option<Vec<Entry>>,
        /// Whether there are older entries on the path than these.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        more: Option<bool>,
        /// The running turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<RunningTurn>,
        /// The last turn, where it ended without an answer and nothing was said since: what `retry_turn` would retry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_turn: Option<EndedTurn>,
        /// The newest turns that ended without an answer, oldest first, each with its place in the history; `lastTurn`
        /// is among them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<UnansweredTurn>>"))]
        unanswered_turns: Vec<UnansweredTurn>,
        /// The newest compactions that somebody waited for and that failed, oldest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<FailedCompaction>>"))]
        failed_compactions: Vec<FailedCompaction>,
        /// The running compaction.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compaction: Option<RunningCompaction>,
        /// The compaction that was prepared and is held until it is due, counted as of now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        held: Option<CompactionPrepared>,
        /// Inputs that wait.
        queue: Vec<QueueItem>,
        /// Tool calls without an answer.
        pending: Vec<PendingCall>,
        /// The entries that every compaction keeps word for word.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<Pin>>"))]
        pins: Vec<Pin>,
        /// The compactions that were undone.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<EntryId>>"))]
        undone: Vec<EntryId>,
    }

    /// An entry that every compaction keeps word for word.
    #[derive(Eq)]
    struct Pin {
        /// The entry.
        entry_id: EntryId,
        /// The entry that was pinned, where this one only goes with it: a tool's answer with its call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        with: Option<EntryId>,
        /// The compaction that had taken it out of the model's sight when it was pinned; absent where the model saw it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        under: Option<EntryId>,
    }

    /// Settings of a session beside model and strategy.
    struct SessionSettings {
        /// The system prompt; absent for the deployment's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<String>,
        /// 0 to 2; absent for the provider's default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        temperature: Option<f64>,
        /// Most tokens an answer may have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_output_tokens: Option<u64>,
        /// How long the model should think.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning_effort: Option<String>,
        /// The strategy's settings, where they differ from the deployment's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strategy_settings: Option<StrategySettings>,
        /// The window that a refusal of the provider has shown, where it is smaller than the configured one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        learned_window_tokens: Option<u64>,
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
        /// How it ended.
        status: TurnStatus,
        /// What went wrong, on `failed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ErrorBody>,
    }

    /// A turn that ended without an answer, at its place in the history.
    struct UnansweredTurn {
        /// The turn.
        turn_id: TurnId,
        /// How it ended.
        status: TurnStatus,
        /// What went wrong, on `failed`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ErrorBody>,
        /// The newest entry when it ended; `null` if there was none.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        leaf_id: Option<EntryId>,
    }

    /// A compaction that failed, at its place in the history.
    struct FailedCompaction {
        /// The job.
        job_id: JobId,
        /// An error code.
        code: crate::ErrorCode,
        /// What went wrong.
        message: String,
        /// The newest entry when it failed; `null` if there was none.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        leaf_id: Option<EntryId>,
    }

    /// An item that is being streamed.
    struct RunningItem {
        /// The id that its entry will have.
        item_id: EntryId,
        /// Its parts so far.
        parts: Vec<Part>,
    }

    /// A compaction that is running.
    struct RunningCompaction {
        /// The job.
        job_id: JobId,
        /// What it is at.
        phase: String,
        /// Whether turns go on meanwhile.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        background: bool,
    }

    /// An input that waits.
    struct QueueItem {
        /// The command that brought it.
        command_id: CommandId,
        /// What it says.
        content: Vec<Part>,
        /// It goes with the next request of the running turn, before those that wait their own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        steer: bool,
        /// It is a message of a client's (`append_custom_message`), which asks for no answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        custom: Option<QueuedCustom>,
        /// It was said while this `navigate` was at work, for the place that it goes to. When the move comes to nothing
        /// it stays in line until another move arrives or `edit_queue` lets it go.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<CommandId>,
        /// The id that its entry will have; absent of a client's message, and of what older versions put in line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry_id: Option<EntryId>,
    }

    /// What makes a waiting message a client's own.
    struct QueuedCustom {
        /// The id that its entry will have.
        entry_id: EntryId,
        /// What kind of message, in the client's own words.
        custom_type: String,
        /// Whether it should be shown to people.
        display: bool,
        /// More for programs; never sent to the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        details: Option<serde_json::Value>,
    }

    /// A tool call without an answer.
    struct PendingCall {
        /// The call.
        call_id: CallId,
        /// Its turn.
        turn_id: TurnId,
        /// The tool.
        name: String,
        /// The arguments, JSON text.
        arguments: String,
        /// When it fails.
        deadline: Timestamp,
    }

    /// Payload of `sessions`.
    struct Sessions {
        /// The sessions, newest first.
        items: Vec<SessionItem>,
        /// Ask with this for the next page; absent on the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_cursor: Option<String>,
    }

    /// A session in a list.
    struct SessionItem {
        /// The session.
        session_id: SessionId,
        /// Its name; empty where it has none.
        name: String,
        /// When it was made.
        created_at: Timestamp,
        /// When something was last written to it.
        updated_at: Timestamp,
        /// How many entries its tree has.
        entries: u64,
        /// Tokens of its next request.
        token_count: u64,
        /// Of its window, in percent, held within 0 to 100.
        usage_percent: f64,
        /// What its requests have cost, in billionths of a US dollar, as far as that is known; absent where it is of
        /// none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_nano_usd: Option<u64>,
        /// Of its requests, those whose cost is not known and not in `costNanoUsd`; only beside it, and only where
        /// there are some.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unpriced_requests: Option<u64>,
        /// What it is doing.
        state: SessionState,
        /// It was deleted: take it out of the list. Only in `session_changed`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        deleted: bool,
    }

    /// Payload of `compaction_preview`: what `manual_compact { previewId }` would do.
    struct CompactionPreview {
        /// Names it to `manual_compact`.
        preview_id: JobId,
        /// Until when it can be applied.
        expires_at: Timestamp,
        /// The summary; empty where nothing would be summarised.
        summary: String,
        /// Its form; absent where none would be made, and where a hook made it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        form: Option<SummaryForm>,
        /// Which way of making room it takes.
        rung: CompactionRung,
        /// The gentler ways that were tried before, and why they did not do.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<FailedRung>>"))]
        failed_rungs: Vec<FailedRung>,
        /// The first entry that would be kept; absent where none would.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut_entry_id: Option<EntryId>,
        /// Older entries that would be kept word for word.
        kept_entry_ids: Vec<EntryId>,
        /// Entries whose tool results would be shown as a short note.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<EntryId>>"))]
        cleared_entry_ids: Vec<EntryId>,
        /// What the model would not see any more.
        dropped: Stretch,
        /// What it would still see, the summary left out.
        kept: Stretch,
        /// Tokens of the next request now.
        old_token_count: u64,
        /// Tokens of the same request then.
        new_token_count: u64,
        /// What of the summary was looked after.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retained: Option<Retained>,
        /// What making the summary has cost; absent where the model was not asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost: Option<Usage>,
    }

    /// Some messages of a context.
    #[derive(Default)]
    struct Stretch {
        /// How many messages.
        count: u64,
        /// Their tokens.
        tokens: u64,
        /// The first one's entry.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<EntryId>,
        /// The last one's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<EntryId>,
    }

    /// Payload of `navigated`.
    struct Navigated {
        /// The entry from which the session goes on; `null` before the first.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        leaf_id: Option<EntryId>,
        /// The input to be edited, of a move to before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Vec<Part>>,
        /// The summary of the branch that was left.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch_summary_entry_id: Option<EntryId>,
        /// This reply speaks of everything up to this durable event; what the command caused follows above it.
        as_of_seq: u64,
        /// The command had been taken before; this is its first answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duplicate: Option<bool>,
    }

    /// Payload of `forked`.
    struct Forked {
        /// The new session; open it as any other.
        session_id: SessionId,
        /// The input to be edited, of a fork before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Vec<Part>>,
        /// The command had been taken before; this is its first answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duplicate: Option<bool>,
    }

    /// Payload of `tree`.
    struct Tree {
        /// The entries, parents before their children.
        nodes: Vec<TreeNode>,
        /// The entry from which the session goes on; `null` before the first.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        leaf_id: Option<EntryId>,
        /// This reply speaks of everything up to this durable event.
        as_of_seq: u64,
        /// Whether entries were left out: those below nodes whose `childCount` is larger than their children here.
        more: bool,
    }

    /// An entry as the tree shows it.
    struct TreeNode {
        /// The entry.
        entry_id: EntryId,
        /// The entry it hangs from; `null` for a root.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        parent_id: Option<EntryId>,
        /// Its type; a message's has its role behind it, `message:user`.
        #[serde(rename = "type")]
        kind: String,
        /// The beginning of what it says, one line of at most 80 characters.
        preview: String,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// When it was made.
        timestamp: Timestamp,
        /// How many entries hang from it.
        child_count: u64,
    }

    /// Payload of `entries`.
    struct Entries {
        /// The entries, oldest first.
        items: Vec<Entry>,
        /// The entry from which the session goes on; `null` before the first.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        leaf_id: Option<EntryId>,
        /// This reply speaks of everything up to this durable event.
        as_of_seq: u64,
        /// Whether there are more in the direction that was asked for.
        more: bool,
        /// The `seq` of records that belong here and do not read back; absent where all do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        damaged: Option<Vec<u64>>,
    }

    /// Payload of `pong`.
    struct Pong {
        /// The newest durable event of the open session; 0 without one.
        seq: u64,
        /// Whether the client has seen it; `false` means reopen with `resume`.
        in_sync: bool,
        /// The server's time.
        server_time: Timestamp,
    }

    /// Payload of `accepted`.
    struct Accepted {
        /// The entry that was written; absent while the input waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry_id: Option<EntryId>,
        /// The turn that was started; absent while the input waits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
        /// Whether the input waits for its turn.
        queued: bool,
        /// This reply speaks of everything up to this durable event; what the command caused follows above it.
        as_of_seq: u64,
        /// The command had been taken before; this is its first answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duplicate: Option<bool>,
    }

    /// Payload of `ok`.
    #[derive(Default)]
    struct Done {
        /// The compaction that was started.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job_id: Option<JobId>,
        /// The entry that was written, or will be before the next request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry_id: Option<EntryId>,
        /// This reply speaks of everything up to this durable event; what the command caused follows above it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        as_of_seq: Option<u64>,
        /// The command had been taken before; this is its first answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        duplicate: Option<bool>,
    }

    /// Payload of `context`.
    struct Context {
        /// What the next request would send.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        envelope: Option<ContextEnvelope>,
        /// The same as text to read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        markdown: Option<String>,
        /// Its tokens.
        tokens: u64,
        /// What it would share with the session's request before it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        receipt: Option<Receipt>,
    }
}

/// What a session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Nothing.
    Idle,
    /// A turn is running.
    Running,
    /// It is being compacted outside a turn, or a branch is summarised that it leaves.
    Compacting,
}

/// How a `resume` was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Resumed {
    /// Every missed durable event follows, in order.
    Replay,
    /// Too much was missed or the place is unknown: this is the full state.
    Snapshot,
}
