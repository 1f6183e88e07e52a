//! Hooks: code of others' that is asked at defined points. The same questions and answers for Rust code, for webhooks
//! and for a client over its own socket.
//!
//! Several hooks of one point are asked in the order in which they were registered, each sees what the earlier ones
//! made of it, and what an answer leaves out stays as it is: an empty answer changes nothing.

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

/// Where hooks are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum HookPoint {
    /// Around every request, with the envelope. Answers patches.
    Context,
    /// The user has said something that is not accepted yet, the model has answered and nobody has seen it, or a tool
    /// has answered. Answers another message, which is stored, shown and sent in place of the first.
    Message,
    /// A turn begins. Answers a system prompt for this turn, a message, data to keep.
    BeforeAgentStart,
    /// A compaction is about to be made. Answers a summary, another model, or that it should not be.
    BeforeCompact,
    /// The session is about to go on elsewhere in its tree. Answers a summary, instructions, a label, or that it should
    /// not.
    BeforeNavigate,
    /// The model has called a tool. Answers other arguments, or that it may not.
    ToolCall,
    /// A tool has answered. Answers another result.
    ToolResult,
}

impl HookPoint {
    /// Every point.
    pub const ALL: &'static [Self] = &[
        Self::Context,
        Self::Message,
        Self::BeforeAgentStart,
        Self::BeforeCompact,
        Self::BeforeNavigate,
        Self::ToolCall,
        Self::ToolResult,
    ];

    /// As it is called on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Message => "message",
            Self::BeforeAgentStart => "before_agent_start",
            Self::BeforeCompact => "before_compact",
            Self::BeforeNavigate => "before_navigate",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
        }
    }

    /// The fields that an answer may have here, beside `error`.
    #[must_use]
    pub const fn answer_fields(self) -> &'static [&'static str] {
        match self {
            Self::Context => &["patch", "transformerName", "display"],
            Self::Message => &["message"],
            Self::BeforeAgentStart => &["systemPrompt", "customMessage", "entries"],
            Self::BeforeCompact => {
                &["cancel", "summary", "firstKeptEntryId", "details", "model", "instructions", "replaceInstructions"]
            }
            Self::BeforeNavigate => &["cancel", "summary", "details", "instructions", "replaceInstructions", "label"],
            Self::ToolCall => &["block", "reason", "arguments"],
            Self::ToolResult => &["output", "isError"],
        }
    }
}

/// When a `context` hook is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ContextReason {
    /// Before a request is counted. Its patch is kept, and every later request on the branch is made with it.
    BeforeRequest,
    /// Before it is sent. Its patch is for this request alone.
    Ephemeral,
    /// After the answer that ends a turn. Its patch is kept.
    TurnEnd,
}

/// A hook that is offered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookOffer {
    /// Its name, in errors and on what it makes: 1 to 64 of `A-Za-z0-9._-`; absent: `client`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it is asked.
    pub event: HookPoint,
    /// When, for `context`; absent: always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasons: Option<Vec<ContextReason>>,
    /// Milliseconds an answer may take; absent: the server's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether a turn waits, until the time limit, for its client to come back where that is away; otherwise the hook
    /// is passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// Whether it is only told: nobody waits for it, and it changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observe: Option<bool>,
}

/// A question to a hook: the payload of `hook_call`, and the body that a webhook gets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct HookCall {
    /// Names it; the answer carries the same.
    pub call_id: CallId,
    /// The hook's name.
    pub hook: String,
    /// The session.
    pub session_id: SessionId,
    /// The running turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// When it is too late; absent where no answer is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// What is asked, told apart by `event`.
    #[serde(flatten)]
    pub event: HookEvent,
}

/// What a hook is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "event", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum HookEvent {
    /// Around a request.
    Context {
        /// When.
        reason: ContextReason,
        /// What would be sent.
        envelope: Box<ContextEnvelope>,
    },
    /// A message is done.
    Message {
        /// The entry that holds it, or, of an answer, will.
        entry_id: EntryId,
        /// The message: its role and its content.
        message: Message,
    },
    /// A turn begins.
    BeforeAgentStart {
        /// The system prompt.
        system_prompt: String,
        /// What the user said.
        input: Vec<Part>,
    },
    /// A compaction is about to be made.
    BeforeCompact(Box<CompactionPreparation>),
    /// The session is about to go on elsewhere.
    BeforeNavigate(Box<NavigationPreparation>),
    /// The model has called a tool.
    ToolCall {
        /// Names the tool's call.
        tool_call_id: CallId,
        /// The tool.
        name: String,
        /// The arguments, JSON text that the tool's schema accepts.
        arguments: String,
    },
    /// A tool has answered.
    ToolResult {
        /// Names the tool's call.
        tool_call_id: CallId,
        /// The tool.
        name: String,
        /// The arguments that it was called with, JSON text.
        arguments: String,
        /// Its answer.
        output: String,
        /// Whether it failed.
        is_error: bool,
    },
}

impl HookEvent {
    /// Where this is asked.
    #[must_use]
    pub fn point(&self) -> HookPoint {
        match self {
            Self::Context { .. } => HookPoint::Context,
            Self::Message { .. } => HookPoint::Message,
            Self::BeforeAgentStart { .. } => HookPoint::BeforeAgentStart,
            Self::BeforeCompact(_) => HookPoint::BeforeCompact,
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
    /// What a compaction would be made of.
    struct CompactionPreparation {
        /// The job.
        job_id: JobId,
        /// Why it is made.
        trigger: CompactionTrigger,
        /// Whether turns go on meanwhile.
        background: bool,
        /// Whether it is only to be looked at.
        preview: bool,
        /// What the user wants the summary to look at.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        custom_instructions: Option<String>,
        /// The messages that would be summarised, the turn prefix left out.
        messages: Vec<ContextMessage>,
        /// The beginning of a turn that is cut through, and whose end is kept.
        turn_prefix: Vec<ContextMessage>,
        /// Both as text, in the form in which a summarising model reads them, for programs that need no structure.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<String>"))]
        conversation: String,
        /// The summary of the compaction before, which the new one takes in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        previous_summary: Option<String>,
        /// The summary that an earlier hook gave for this compaction.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        /// Files that the summarised part read and modified, those of earlier compactions included.
        files: CompactionDetails,
        /// Tokens of the next request now.
        tokens_before: u64,
        /// The first entry that would be kept; absent when none is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first_kept_entry_id: Option<EntryId>,
        /// Older entries that would be kept.
        kept_entry_ids: Vec<EntryId>,
        /// By what the compaction is made.
        settings: CompactionSettings,
        /// The entries of this branch as far as the model sees them, oldest first. Where the first has a parent there
        /// are older ones: `get_entries` with `path` and `before` pages through them.
        branch_entries: Vec<Entry>,
        /// The newest entry of this branch; absent where it has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        leaf_id: Option<EntryId>,
    }

    /// By what a compaction is made.
    struct CompactionSettings {
        /// The strategy.
        strategy: String,
        /// The model that would summarise.
        model: String,
        /// The window of the session's model, in tokens.
        window_tokens: u64,
        /// Tokens kept free for the answer.
        reserve_tokens: u64,
        /// Tokens of recent entries that are kept.
        keep_recent_tokens: u64,
        /// Tokens that the request is to come down to.
        target_tokens: u64,
    }

    /// What a move in the tree would do.
    struct NavigationPreparation {
        /// The entry that it goes to; `null` for before the first.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        target_id: Option<EntryId>,
        /// Where at it.
        position: NavigatePosition,
        /// The entry from which the session goes on after it; `null` before the first.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        new_leaf_id: Option<EntryId>,
        /// The entry from which the session goes on now; `null` before the first.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        old_leaf_id: Option<EntryId>,
        /// The deepest entry on both ways; `null` where there is none.
        #[cfg_attr(feature = "codegen", ts(optional = false))]
        common_ancestor_id: Option<EntryId>,
        /// The entries of the branch that is left, oldest first.
        entries_to_summarize: Vec<Entry>,
        /// Whether the user wants a summary of it.
        user_wants_summary: bool,
        /// What the user wants the summary to look at.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        custom_instructions: Option<String>,
        /// Whether these take the place of the usual ones.
        replace_instructions: bool,
        /// The name that the user, or an earlier hook, gives the place.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        label: Option<String>,
        /// The summary that an earlier hook gave.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
    }
}

macro_rules! answers {
    ($($(#[$attr:meta])* $field:ident = $name:literal: $ty:ty,)*) => {
        /// What a hook answers; the body that a webhook sends back. Each point allows some of the fields, and what is
        /// absent stays as it is.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
        #[cfg_attr(feature = "codegen", ts(optional_fields))]
        #[serde(deny_unknown_fields)]
        pub struct HookAnswer { $($(#[$attr])* #[serde(rename = $name, default, skip_serializing_if = "Option::is_none")] pub $field: Option<$ty>,)* }

        /// Payload of `hook_result`: the answer to a `hook_call`. Each point allows some of the fields, and what is
        /// absent stays as it is.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
        #[cfg_attr(feature = "codegen", ts(optional_fields))]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct HookResult {
            /// The call.
            pub call_id: CallId,
            $($(#[$attr])* #[serde(rename = $name, default, skip_serializing_if = "Option::is_none")] pub $field: Option<$ty>,)*
        }

        impl HookAnswer {
            /// The fields that are there, as they are called on the wire.
            #[must_use]
            pub fn fields(&self) -> Vec<&'static str> {
                let mut fields = Vec::new();
                $(if self.$field.is_some() { fields.push($name); })*
                fields
            }
        }

        impl HookResult {
            /// The call and its answer.
            #[must_use]
            pub fn into_answer(self) -> (CallId, HookAnswer) {
                (self.call_id, HookAnswer { $($field: self.$field,)* })
            }
        }
    };
}

answers! {
    /// The hook could not do its work, in a sentence.
    error = "error": String,
    /// `context`: changes of the envelope, in order.
    #[cfg_attr(feature = "codegen", schemars(with = "Option<Vec<crate::patch::proposed::SubmittedOp>>"), ts(as = "Option<Vec<crate::patch::proposed::SubmittedOp>>"))]
    patch = "patch": Vec<Value>,
    /// `context`: who made the patch; absent: the hook's name.
    transformer_name = "transformerName": String,
    /// `context`: how the patch is shown to people.
    display = "display": TransformDisplay,
    /// `message`: the message in its place; of the same role, with the same tool calls. Its role and content count.
    #[serde(deserialize_with = "answered::message")]
    #[cfg_attr(feature = "codegen", schemars(with = "Option<answered::AnsweredMessage>"))]
    message = "message": Message,
    /// `before_agent_start`: the system prompt for this turn.
    system_prompt = "systemPrompt": String,
    /// `before_agent_start`: a message to keep and to send in the user's place.
    custom_message = "customMessage": HookMessage,
    /// `before_agent_start`: data to keep; the model never sees it.
    entries = "entries": Vec<HookEntry>,
    /// `before_compact`, `before_navigate`: do not do it.
    cancel = "cancel": bool,
    /// `before_compact`, `before_navigate`: the summary; the model is not asked.
    summary = "summary": String,
    /// `before_compact`, with a `summary`: the first entry that is kept word for word, where it is not the one that the
    /// call names. It must be one that the model sees, and not stand between a call and its result.
    first_kept_entry_id = "firstKeptEntryId": EntryId,
    /// `before_compact`, `before_navigate`: more for programs, kept with the summary.
    #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
    details = "details": Value,
    /// `before_compact`: the model that summarises.
    model = "model": String,
    /// `before_compact`, `before_navigate`: what the summary should look at.
    instructions = "instructions": String,
    /// `before_compact`, `before_navigate`: whether these take the place of the usual ones.
    replace_instructions = "replaceInstructions": bool,
    /// `before_navigate`: a name for the place.
    label = "label": String,
    /// `tool_call`: the tool may not be called; the model is told so.
    block = "block": bool,
    /// `tool_call`: why not, for the model.
    reason = "reason": String,
    /// `tool_call`: other arguments, JSON text that the tool's schema accepts.
    arguments = "arguments": String,
    /// `tool_result`: the tool's answer.
    output = "output": String,
    /// `tool_result`: whether it failed.
    is_error = "isError": bool,
}

impl HookAnswer {
    /// `context`: these changes of the envelope, in order.
    #[must_use]
    pub fn patch(ops: Vec<PatchOp>) -> Self {
        let ops = ops.iter().map(|op| serde_json::to_value(op).expect("ops have text keys"));
        Self { patch: Some(ops.collect()), ..Self::default() }
    }

    /// `context`: the same, shown to people so.
    #[must_use]
    pub fn with_display(self, display: TransformDisplay) -> Self {
        Self { display: Some(display), ..self }
    }

    /// `message`: this message in the place of the one asked about.
    #[must_use]
    pub fn message(message: Message) -> Self {
        Self { message: Some(message), ..Self::default() }
    }

    /// `before_compact`, `before_navigate`: this summary; the model is not asked.
    #[must_use]
    pub fn summary(summary: impl Into<String>) -> Self {
        Self { summary: Some(summary.into()), ..Self::default() }
    }

    /// `before_compact`, `before_navigate`: do not do it.
    #[must_use]
    pub fn cancel() -> Self {
        Self { cancel: Some(true), ..Self::default() }
    }

    /// `tool_call`: the tool may not be called, and the model is told why.
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
    /// What kind of message, 1 to 200 characters of the hook's own choice.
    pub custom_type: String,
    /// What it says.
    pub content: InputContent,
    /// Whether it should be shown to people.
    pub display: bool,
}

/// Data that a hook keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookEntry {
    /// What kind of data, 1 to 200 characters of the hook's own choice.
    pub custom_type: String,
    /// The data, any JSON.
    #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
    pub data: Value,
}
