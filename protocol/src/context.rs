//! How full the window is, and exactly what the next request would send.

use crate::{EntryId, Message, SessionId, Timestamp, TurnId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where the token count of a request comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum CountSource {
    /// The provider's own report covers all of it.
    Reported,
    /// Reckoned by us.
    Estimated,
    /// A report for the prefix, an estimate for the rest.
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
    /// The summary that stands for what was compacted.
    pub summary: u64,
    /// What the user said, pending input included.
    pub user: u64,
    /// What the model said, its tool calls included.
    pub assistant: u64,
    /// What the model thought, where it is sent back.
    pub reasoning: u64,
    /// What tools answered.
    pub tool_results: u64,
    /// Pictures.
    pub images: u64,
    /// Messages outside the cached prefix.
    pub uncached: u64,
}

impl Breakdown {
    /// All kinds together.
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

/// How full the window is. The first five fields are v1's; every number is finite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct ContextInfo {
    /// Tokens of the exact next request, without the output reserve.
    pub token_count: u64,
    /// `tokenCount / maxTokens` in percent, held within 0 to 100.
    pub usage_percent: f64,
    /// Messages in the next request.
    pub transcript_length: u64,
    /// The model's window in tokens.
    pub max_tokens: u64,
    /// The strategy: its short name on v2, its class-style name on v1.
    pub strategy: String,
    /// A sentence for the user from 90 % on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// `tokenCount / maxTokens`, not held within anything.
    pub usage_ratio: f64,
    /// Where `tokenCount` comes from.
    pub source: CountSource,
    /// Of `tokenCount`, what the provider reported.
    pub usage_tokens: u64,
    /// Of `tokenCount`, what we reckoned for what came after the report.
    pub trailing_tokens: u64,
    /// The entry whose report was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_usage_entry_id: Option<EntryId>,
    /// By how much `tokenCount` may be wrong, in tokens either way.
    pub error_bound_tokens: u64,
    /// Tokens left free for an answer.
    pub reserved_tokens: u64,
    /// The strategy compacts by itself before it sends a request of more tokens than this; absent where it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact_at_tokens: Option<u64>,
    /// Which rule decides `compactAtTokens`; absent where that is, and where a strategy has a rule of its own. Not on
    /// v1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact_at_rule: Option<CompactAtRule>,
    /// Above this count a compaction is prepared while turns go on; absent where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare_at_tokens: Option<u64>,
    /// Of the last request, tokens that the provider took from its cache.
    pub cached_tokens: u64,
    /// How often the loop was seeded.
    pub generation: u64,
    /// How often this session was compacted.
    pub compactions: u64,
    /// The session.
    pub session_id: SessionId,
    /// The entry from which the session goes on; `null` before the first.
    #[cfg_attr(feature = "codegen", ts(optional = false))]
    pub leaf_id: Option<EntryId>,
    /// Why automatic compaction rests, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<Breaker>,
    /// Tokens by kind; they add up to `tokenCount`.
    pub breakdown: Breakdown,
}

/// Which rule decides from which count on a compaction is due: the one that gives the smaller count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum CompactAtRule {
    /// The threshold's share of the window.
    Threshold,
    /// The window less `reserveTokens`, at most half of the window.
    ReserveTokens,
    /// The window less the longest answer that `maxOutputTokens` allows, at most three quarters of the window.
    MaxOutputTokens,
    /// The window less 2 % of it, at least 512 tokens and at most a fifth of the window.
    AnswerRoom,
}

/// Why automatic compaction rests, and until when. `manual_compact` works meanwhile, and ends the rest where it gains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct Breaker {
    /// Why.
    pub reason: BreakerReason,
    /// How often in a row it failed or gained too little.
    pub failures: u64,
    /// It is tried again from this time on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// It is tried again once the next request has more tokens than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_above_tokens: Option<u64>,
    /// A sentence for the user.
    pub message: String,
}

/// Why automatic compaction rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum BreakerReason {
    /// It failed several times in a row.
    Failures,
    /// It gained too little several times in a row.
    NoGain,
    /// A compaction was undone: what came back is left alone until more is said.
    Undone,
}

/// Everything that one request sends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct ContextEnvelope {
    /// The system prompt.
    pub system: SystemPrompt,
    /// The tools on offer, in the order in which they are sent.
    pub tools: Vec<ToolDefinition>,
    /// The messages; the uncached ones always last.
    pub messages: EnvelopeMessages,
    /// Sampling and limits.
    pub options: RequestOptions,
    /// What it is for, and what it costs; not sent.
    #[serde(default)]
    pub meta: EnvelopeMeta,
}

/// What a request is for, and what it costs. Not sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct EnvelopeMeta {
    /// The model that is asked.
    pub model: String,
    /// Its window in tokens.
    pub window_tokens: u64,
    /// The turn; absent outside of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// Which request of its turn, from 1.
    pub request: u64,
    /// Tokens of all of it.
    pub tokens: u64,
    /// Tokens of each part, which add up to `tokens`; absent where nobody looks at them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<EnvelopeTokens>,
}

/// Tokens of each part of an envelope, in its order; they add up to its tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct EnvelopeTokens {
    /// What any request costs.
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
    /// The parts' texts joined: what is sent. Empty: no system prompt is sent.
    pub compiled: String,
}

/// A named part of the system prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct SystemPart {
    /// What the part is for, `base` for instance.
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
    /// What belongs to this request only; always sent last.
    pub uncached: Vec<ContextMessage>,
}

/// A message of a request, with the entry it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct ContextMessage {
    /// The entry it stands for; absent for messages that no entry holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_id: Option<EntryId>,
    /// The message.
    #[cfg_attr(feature = "codegen", ts(as = "Message"))]
    pub message: Arc<Message>,
}

/// A tool as the model is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// Its name: 1 to 64 of `A-Za-z0-9_-`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments, an object.
    #[cfg_attr(feature = "codegen", ts(type = "Record<string, unknown>"))]
    pub parameters: serde_json::Value,
}

/// Sampling and limits of a request. What is absent is left to the provider.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct RequestOptions {
    /// 0 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Most tokens the answer may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// How long the model should think: the provider's own word, `low` or `high` for instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
}
