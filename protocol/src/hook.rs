//! Hooks: external code called at fixed extension points. Calls and answers are the same for Rust code, webhooks and a
//! client over its own socket.
//!
//! Several hooks of one point are called in the order of registration; each sees the result of the earlier ones, and
//! what an answer leaves out stays unchanged: an empty answer changes nothing.

mod answered;

use crate::{
    CallId, Entry, EntryId, JobId, Message, Part, SessionId, Timestamp, TurnId,
    command::{InputContent, NavigatePosition},
    context::{ContextEnvelope, ContextMessage},
    entry::CompactionDetails,
    event::CompactionTrigger,
    patch::{PatchOp, TransformDisplay},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The extension points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// Before and after requests, with the envelope. Answers with patches.
    Context,
    /// The user has sent input that is not accepted yet, the model has answered and nobody has seen it, or a tool has
    /// answered. Answers with another message, which is stored, shown and sent instead.
    Message,
    /// A turn starts. Answers with a system prompt for this turn, a message, or data to store.
    BeforeAgentStart,
    /// A compaction is about to be made. Answers with a summary, another model, or a cancellation.
    BeforeCompaction,
    /// The session is about to move in its tree. Answers with a summary, instructions, a label, or a cancellation.
    BeforeNavigate,
    /// The model has called a tool. Answers with other arguments, or blocks the call.
    ToolCall,
    /// A tool has answered. Answers with another result.
    ToolResult,
}

impl HookPoint {
    /// All extension points.
    pub const ALL: &'static [Self] = &[
        Self::Context,
        Self::Message,
        Self::BeforeAgentStart,
        Self::BeforeCompaction,
        Self::BeforeNavigate,
        Self::ToolCall,
        Self::ToolResult,
    ];

    /// Returns its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Message => "message",
            Self::BeforeAgentStart => "before_agent_start",
            Self::BeforeCompaction => "before_compaction",
            Self::BeforeNavigate => "before_navigate",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
        }
    }

    /// Returns the fields that an answer may have here, besides `error`.
    #[must_use]
    pub const fn answer_fields(self) -> &'static [&'static str] {
        match self {
            Self::Context => &["patch", "transformerName", "display"],
            Self::Message => &["message"],
            Self::BeforeAgentStart => &["systemPrompt", "customMessage", "entries"],
            Self::BeforeCompaction => {
                &["cancel", "summary", "firstKeptEntryId", "details", "model", "instructions", "replaceInstructions"]
            }
            Self::BeforeNavigate => &["cancel", "summary", "details", "instructions", "replaceInstructions", "label"],
            Self::ToolCall => &["block", "reason", "arguments"],
            Self::ToolResult => &["output", "isError"],
        }
    }
}

/// The occasions on which a `context` hook is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ContextReason {
    /// Before a request is counted. Its patch is stored and applies to every later request on the branch.
    BeforeRequest,
    /// Before the request is sent. Its patch applies to this request only.
    Ephemeral,
    /// After the answer that ends a turn. Its patch is stored.
    TurnEnd,
}

/// A hook offered by a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookOffer {
    /// Its name, in errors and on what it creates: 1 to 64 of `A-Za-z0-9._-`; absent: `client`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its extension point.
    pub point: HookPoint,
    /// The occasions on which it is called, for `context`; absent: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<ContextReason>>,
    /// The time limit of an answer in milliseconds; absent: the server's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// True, the default unless `observe` is true: what the hook could not inspect, because it failed or its client was
    /// away for too long, does not happen. False: its failure is reported, and the original is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// If true, it is only notified: its answer is not awaited and changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe: Option<bool>,
}

/// A call to a hook: the payload of `hook_call`, and the body sent to a webhook.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct HookCall {
    /// Identifies it; the answer carries the same id.
    #[serde(rename = "hookCallId")]
    pub call_id: CallId,
    /// The hook's name.
    pub hook: String,
    /// The session.
    pub session_id: SessionId,
    /// The running turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The deadline of its answer; absent if no answer is awaited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// The subject of the call, distinguished by `point`.
    #[serde(flatten)]
    pub event: HookEvent,
}

/// The event that a hook is called for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "point", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum HookEvent {
    /// A request.
    Context {
        /// When.
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

macro_rules! payloads {
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

payloads! {
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
        #[serde(default, skip_serializing_if = "Option::is_none")]
        custom_instructions: Option<String>,
        /// The messages to be summarised, without the turn prefix.
        messages: Vec<ContextMessage>,
        /// The first part of a turn that is split, whose end is kept.
        turn_prefix: Vec<ContextMessage>,
        /// Both as text, in the form that a summarising model reads, for programs that need no structure.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<String>"))]
        conversation: String,
        /// The summary of the previous compaction, which the new one includes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        previous_summary: Option<String>,
        /// The summary that an earlier hook provided for this compaction.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        /// Files that the summarised part read and modified, including those of earlier compactions.
        files: CompactionDetails,
        /// Tokens of the next request.
        tokens_before: u64,
        /// The first entry to be kept; absent if none is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first_kept_entry_id: Option<EntryId>,
        /// Older entries to be kept.
        kept_entry_ids: Vec<EntryId>,
        /// The settings of the compaction.
        settings: CompactionSettings,
        /// The entries of this branch as far as the model sees them, oldest first. If the first has a parent, there are
        /// older ones: page through them with `get_entries`, `path` and `before`.
        branch_entries: Vec<Entry>,
        /// The newest entry of this branch; absent if it has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        leaf_id: Option<EntryId>,
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
        #[serde(default, skip_serializing_if = "Option::is_none")]
        custom_instructions: Option<String>,
        /// True if these replace the usual instructions.
        replace_instructions: bool,
        /// The label that the user, or an earlier hook, gives the target.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// The summary that an earlier hook provided.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
    }
}

macro_rules! answers {
    ($($(#[$attr:meta])* $field:ident = $name:literal: $ty:ty,)*) => {
        /// A hook's answer; the response body of a webhook. Each point allows some of the fields, and what is absent
        /// stays unchanged.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
        #[cfg_attr(feature = "codegen", ts(optional_fields))]
        #[serde(deny_unknown_fields)]
        pub struct HookAnswer { $($(#[$attr])* #[serde(rename = $name, default, skip_serializing_if = "Option::is_none")] pub $field: Option<$ty>,)* }

        /// Payload of `hook_result`: the answer to a `hook_call`. Each point allows some of the fields, and what is
        /// absent stays unchanged.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
        #[cfg_attr(feature = "codegen", ts(optional_fields))]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct HookResult {
            /// The call.
            #[serde(rename = "hookCallId")]
            pub call_id: CallId,
            $($(#[$attr])* #[serde(rename = $name, default, skip_serializing_if = "Option::is_none")] pub $field: Option<$ty>,)*
        }

        impl HookAnswer {
            /// Returns the fields that are present, by their names on the wire.
            #[must_use]
            pub fn fields(&self) -> Vec<&'static str> {
                let mut fields = Vec::new();
                $(if self.$field.is_some() { fields.push($name); })*
                fields
            }
        }

        impl HookResult {
            /// Creates the answer to a call.
            #[must_use]
            pub fn new(call_id: CallId, answer: HookAnswer) -> Self {
                Self { call_id, $($field: answer.$field,)* }
            }

            /// Returns the call and its answer.
            #[must_use]
            pub fn into_answer(self) -> (CallId, HookAnswer) {
                (self.call_id, HookAnswer { $($field: self.$field,)* })
            }
        }
    };
}

answers! {
    /// The hook failed; a sentence saying why.
    error = "error": String,
    /// `context`: changes to the envelope, in order.
    #[cfg_attr(feature = "codegen", schemars(with = "Option<Vec<crate::patch::proposed::SubmittedOp>>"), ts(as = "Option<Vec<crate::patch::proposed::SubmittedOp>>"))]
    patch = "patch": Vec<Value>,
    /// `context`: the author of the patch; absent: the hook's name.
    transformer_name = "transformerName": String,
    /// `context`: how the patch is shown to people.
    display = "display": TransformDisplay,
    /// `message`: the replacement message, with the same role and the same tool calls. Only its role and content
    /// matter.
    #[serde(deserialize_with = "answered::message")]
    #[cfg_attr(feature = "codegen", schemars(with = "Option<answered::AnsweredMessage>"))]
    message = "message": Message,
    /// `before_agent_start`: the system prompt for this turn.
    system_prompt = "systemPrompt": String,
    /// `before_agent_start`: a message to store and send in the user's role.
    custom_message = "customMessage": HookMessage,
    /// `before_agent_start`: data to store; the model never sees it.
    entries = "entries": Vec<HookEntry>,
    /// `before_compaction`, `before_navigate`: cancels it.
    cancel = "cancel": bool,
    /// `before_compaction`, `before_navigate`: the summary; the model is not used.
    summary = "summary": String,
    /// `before_compaction`, with a `summary`: the first entry kept verbatim, if other than the one in the call. The
    /// model must see it, and it must not be between a call and its result.
    first_kept_entry_id = "firstKeptEntryId": EntryId,
    /// `before_compaction`, `before_navigate`: further data for programs, stored with the summary.
    #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
    details = "details": Value,
    /// `before_compaction`: the model that summarises.
    model = "model": String,
    /// `before_compaction`, `before_navigate`: instructions for the summary.
    instructions = "instructions": String,
    /// `before_compaction`, `before_navigate`: true if these replace the usual instructions.
    replace_instructions = "replaceInstructions": bool,
    /// `before_navigate`: a label for the target.
    label = "label": String,
    /// `tool_call`: blocks the call; the model is told.
    block = "block": bool,
    /// `tool_call`: the reason, for the model.
    reason = "reason": String,
    /// `tool_call`: other arguments, JSON text that the tool's schema accepts.
    arguments = "arguments": String,
    /// `tool_result`: the tool's output.
    output = "output": String,
    /// `tool_result`: true if the tool failed.
    is_error = "isError": bool,
}

impl HookAnswer {
    /// Answers `context` with these changes to the envelope, in order.
    #[must_use]
    pub fn patch(ops: Vec<PatchOp>) -> Self {
        let ops = ops.iter().map(|op| serde_json::to_value(op).expect("ops have text keys"));
        Self { patch: Some(ops.collect()), ..Self::default() }
    }

    /// Answers `message` with a replacement.
    #[must_use]
    pub fn message(message: Message) -> Self {
        Self { message: Some(message), ..Self::default() }
    }

    /// Answers `before_compaction` or `before_navigate` with a summary; the model is not used.
    #[must_use]
    pub fn summary(summary: impl Into<String>) -> Self {
        Self { summary: Some(summary.into()), ..Self::default() }
    }

    /// Answers `before_compaction` or `before_navigate` with a cancellation.
    #[must_use]
    pub fn cancel() -> Self {
        Self { cancel: Some(true), ..Self::default() }
    }

    /// Blocks a `tool_call` with a reason for the model.
    #[must_use]
    pub fn block(reason: impl Into<String>) -> Self {
        Self { block: Some(true), reason: Some(reason.into()), ..Self::default() }
    }
}

/// A message that a hook adds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookMessage {
    /// The kind of message, 1 to 200 characters chosen by the hook.
    pub custom_type: String,
    /// Its content.
    pub content: InputContent,
    /// True if it should be shown to people.
    pub display: bool,
}

/// Data that a hook stores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookEntry {
    /// The kind of data, 1 to 200 characters chosen by the hook.
    pub custom_type: String,
    /// The data, any JSON.
    #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
    pub data: Value,
}
