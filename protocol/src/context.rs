//! The size of a session's context, and exactly what the next request would send.

pub(crate) mod info;

use crate::{EntryId, Message, Timestamp, TurnId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The source of a request's token count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum CountSource {
    /// The provider's report covers all of it.
    Reported,
    /// Estimated by the server.
    Estimated,
    /// Reported for the prefix, estimated for the rest.
    Mixed,
}

/// Tokens by kind; the kinds add up to the request's `tokenCount`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Breakdown {
    /// The system prompt.
    pub system: u64,
    /// The tool definitions.
    pub tools: u64,
    /// The summary of what was compacted.
    pub summary: u64,
    /// The user's messages, including pending input.
    pub user: u64,
    /// The model's messages, including its tool calls.
    pub assistant: u64,
    /// The model's reasoning, if it is sent back.
    pub reasoning: u64,
    /// Tool results.
    pub tool_results: u64,
    /// Images.
    pub images: u64,
    /// Messages outside the cached prefix.
    pub uncached: u64,
}

impl Breakdown {
    /// Returns the sum of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.system
            + self.tools
            + self.summary
            + self.user
            + self.assistant
            + self.reasoning
            + self.tool_results
            + self.images
            + self.uncached
    }
}

info::context_info! {
    /// The size of the context; every number is finite.
    ContextInfo {},
    /// The session's leaf, from which it continues.
    #[serde(with = "crate::leaf")]
    #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
}

/// The rule that decides when a compaction is due: the one with the smallest count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum CompactAtRule {
    /// The threshold's share of the window.
    Threshold,
    /// The window minus `reserveTokens`, at most half of the window.
    ReserveTokens,
    /// The window minus the longest answer that `maxOutputTokens` allows, at most three quarters of the window.
    MaxOutputTokens,
    /// The window minus 2 % of it, at least 512 tokens and at most a fifth of the window.
    AnswerRoom,
}

/// The circuit breaker of automatic compaction: why it is open, and until when. A client may compact meanwhile, which
/// closes the breaker if it saves enough.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct Breaker {
    /// The reason.
    pub reason: BreakerReason,
    /// Consecutive compactions that failed or saved too little.
    pub failures: u64,
    /// Automatic compaction is tried again from this time on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// Automatic compaction is tried again once the next request has more tokens than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_above_tokens: Option<u64>,
    /// A sentence for the user.
    pub message: String,
}

/// The reason for an open circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum BreakerReason {
    /// Several consecutive compactions failed.
    Failures,
    /// Several consecutive compactions saved too little.
    NoGain,
    /// A compaction was undone: the restored messages are left alone until more is said.
    Undone,
}

/// Everything that one request sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct ContextEnvelope {
    /// The system prompt.
    pub system: SystemPrompt,
    /// The offered tools, in the order in which they are sent.
    pub tools: Vec<ToolDefinition>,
    /// The messages; the uncached ones are always last.
    pub messages: EnvelopeMessages,
    /// Sampling and limits.
    pub options: RequestOptions,
    /// The purpose and token counts of the request; not sent.
    #[serde(default)]
    pub meta: EnvelopeMeta,
}

/// The purpose and token counts of a request. Not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct EnvelopeMeta {
    /// The requested model.
    pub model: String,
    /// Its window in tokens.
    pub window_tokens: u64,
    /// The turn; absent outside of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The number of the request within its turn, from 1.
    pub request: u64,
    /// Tokens of the whole request.
    pub tokens: u64,
    /// Tokens of each part, which add up to `tokens`; absent if not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<EnvelopeTokens>,
}

/// Tokens of each part of an envelope, in its order; they add up to its tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct EnvelopeTokens {
    /// Tokens that any request has.
    pub frame: u64,
    /// Each part of the system prompt.
    pub system: Vec<u64>,
    /// Each tool.
    pub tools: Vec<u64>,
    /// Each cached message.
    pub cached: Vec<u64>,
    /// Each uncached message.
    pub uncached: Vec<u64>,
}

/// The system prompt, in named parts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct SystemPrompt {
    /// The parts, in order.
    pub parts: Vec<SystemPart>,
    /// The parts' texts joined: what is sent. If empty, no system prompt is sent.
    pub compiled: String,
}

/// A named part of the system prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct SystemPart {
    /// The purpose of the part, such as `base`.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// The messages of a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct EnvelopeMessages {
    /// The stable prefix, which a provider can cache.
    pub cached: Vec<ContextMessage>,
    /// Messages of this request only; always sent last.
    pub uncached: Vec<ContextMessage>,
}

/// A message of a request, with the entry it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct ContextMessage {
    /// The entry it comes from; absent for messages without an entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_id: Option<EntryId>,
    /// The message.
    #[cfg_attr(feature = "codegen", ts(as = "Message"))]
    pub message: Arc<Message>,
}

/// A tool definition as sent to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// Its name: 1 to 64 of `A-Za-z0-9_-`.
    pub name: String,
    /// A description for the model.
    pub description: String,
    /// JSON Schema of its arguments, an object.
    #[serde(default)]
    #[cfg_attr(feature = "codegen", ts(type = "Record<string, unknown>"))]
    pub parameters: serde_json::Value,
}

/// Sampling and limits of a request. Absent values are left to the provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct RequestOptions {
    /// 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The most tokens of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// The reasoning effort, in the provider's own terms, such as `low` or `high`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
}
