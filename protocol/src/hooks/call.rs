//! Calls of hooks: what each point shows of the session.

use super::offer::{ContextReason, HookPoint};
use crate::{
    compaction::{CompactionDetails, CompactionTrigger},
    content::{Message, Part},
    context::{ContextEnvelope, ContextMessage},
    error::ErrorBody,
    ids::{CallId, EntryId, JobId, SessionId, TurnId},
    time::Timestamp,
    tools::CallOutcome,
    tree::{Entry, NavigatePosition},
};
use serde::{Deserialize, Serialize};

open! {
    /// A call to a hook: the payload of `hook_call`, and the body sent to a webhook.
    struct HookCall {
        /// Identifies it; the answer carries the same id.
        #[serde(rename = "hookCallId")]
        call_id: CallId,
        /// The hook's name.
        hook: String,
        /// The session.
        session_id: SessionId,
        /// The running turn.
        turn_id?: TurnId,
        /// The deadline of its answer; absent if no answer is awaited.
        deadline?: Timestamp,
        /// The subject of the call, distinguished by `point`.
        #[serde(flatten)]
        event: HookEvent,
    }
}

/// The event that a hook is called for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "point", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum HookEvent {
    /// A request.
    Context {
        /// The occasion.
        reason: ContextReason,
        /// The envelope that would be sent.
        envelope: Box<ContextEnvelope>,
    },
    /// A message is complete.
    Message {
        /// The entry that holds it, or, for an answer, will hold it.
        entry_id: EntryId,
        /// The message: its role and content.
        message: Message,
    },
    /// A turn starts.
    BeforeAgentStart {
        /// The system prompt.
        system_prompt: String,
        /// The user's input.
        input: Vec<Part>,
    },
    /// A compaction is about to be made.
    BeforeCompaction(Box<CompactionPreparation>),
    /// The session is about to move in its tree.
    BeforeNavigate(Box<NavigationPreparation>),
    /// The model has called a tool.
    ToolCall {
        /// Identifies the tool call.
        tool_call_id: CallId,
        /// The tool.
        name: String,
        /// The arguments, JSON text that the tool's schema accepts.
        arguments: String,
    },
    /// A tool has answered.
    ToolResult {
        /// Identifies the tool call.
        tool_call_id: CallId,
        /// The tool.
        name: String,
        /// The arguments of the call, JSON text.
        arguments: String,
        /// Its output.
        output: String,
        /// True if it failed.
        is_error: bool,
    },
}

impl HookEvent {
    /// Returns the extension point.
    #[must_use]
    pub fn point(&self) -> HookPoint {
        match self {
            Self::Context { .. } => HookPoint::Context,
            Self::Message { .. } => HookPoint::Message,
            Self::BeforeAgentStart { .. } => HookPoint::BeforeAgentStart,
            Self::BeforeCompaction(_) => HookPoint::BeforeCompaction,
            Self::BeforeNavigate(_) => HookPoint::BeforeNavigate,
            Self::ToolCall { .. } => HookPoint::ToolCall,
            Self::ToolResult { .. } => HookPoint::ToolResult,
        }
    }
}

open! {
    /// The compaction about to be made.
    struct CompactionPreparation {
        /// The job.
        job_id: JobId,
        /// Its trigger.
        trigger: CompactionTrigger,
        /// True if turns continue meanwhile.
        background: bool,
        /// True if it is only a preview.
        preview: bool,
        /// The user's instructions for the summary.
        custom_instructions?: String,
        /// The messages to be summarised, without the turn prefix.
        messages: Vec<ContextMessage>,
        /// The first part of a turn that is split, whose end is kept.
        turn_prefix: Vec<ContextMessage>,
        /// Both as text, in the form that a summarising model reads, for programs that need no structure.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<String>"))]
        conversation: String,
        /// The summary of the previous compaction, which the new one includes.
        previous_summary?: String,
        /// The summary that an earlier hook provided for this compaction.
        summary?: String,
        /// Files that the summarised part read and modified, including those of earlier compactions.
        files: CompactionDetails,
        /// Tokens of the next request.
        tokens_before: u64,
        /// The first entry to be kept; absent if none is.
        first_kept_entry_id?: EntryId,
        /// Older entries to be kept.
        kept_entry_ids: Vec<EntryId>,
        /// The settings of the compaction.
        settings: CompactionSettings,
        /// The entries of this branch as far as the model sees them, oldest first. If the first has a parent, there are
        /// older ones: page through them with `get_entries`, `path` and `before`.
        branch_entries: Vec<Entry>,
        /// The newest entry of this branch; absent if it has none.
        leaf_id?: EntryId,
    }

    /// The settings of a compaction.
    struct CompactionSettings {
        /// The strategy.
        strategy: String,
        /// The model that would summarise.
        model: String,
        /// The window of the session's model, in tokens.
        window_tokens: u64,
        /// Tokens kept free for the answer.
        reserve_tokens: u64,
        /// Tokens of recent entries to keep.
        keep_recent_tokens: u64,
        /// Tokens that the request should be reduced to.
        target_tokens: u64,
    }

    /// A move in the tree about to be made.
    struct NavigationPreparation {
        /// The target entry; `null` for before the first.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        target_id: Option<EntryId>,
        /// The position relative to it.
        position: NavigatePosition,
        /// The leaf after the move; `null` before the first entry.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        new_leaf_id: Option<EntryId>,
        /// The current leaf; `null` before the first entry.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        old_leaf_id: Option<EntryId>,
        /// The deepest entry on both paths; `null` if there is none.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        common_ancestor_id: Option<EntryId>,
        /// The entries of the abandoned branch, oldest first.
        entries_to_summarize: Vec<Entry>,
        /// True if the user wants a summary of it.
        user_wants_summary: bool,
        /// The user's instructions for the summary.
        custom_instructions?: String,
        /// True if these replace the usual instructions.
        replace_instructions: bool,
        /// The label that the user, or an earlier hook, gives the target.
        label?: String,
        /// The summary that an earlier hook provided.
        summary?: String,
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
        turn_id?: TurnId,
        /// The error.
        error: ErrorBody,
    }
}
