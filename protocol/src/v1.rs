//! Protocol v1: used until a client opts into v2. Parsed leniently, because its existing clients cannot be changed:
//! unknown fields and `null` for absent are accepted.

use crate::content::{InputContent, InputItem, InputPart};
use serde::{Deserialize, Deserializer, Serialize};

/// A v1 command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", content = "payload", rename_all = "snake_case")]
pub enum Command {
    /// Sends input to the model.
    UserInput(UserInput),
    /// Requests the size of the context.
    GetContextInfo,
    /// Compacts now.
    ManualCompact,
    /// Answers an approval.
    ApprovalResponse(ApprovalResponse),
}

impl Command {
    /// Every v1 command's name.
    pub const NAMES: &'static [&'static str] =
        &["user_input", "get_context_info", "manual_compact", "approval_response"];
}

open! {
    /// Payload of `user_input`.
    struct UserInput {
        /// OpenAI Responses input items; unknown fields are ignored.
        #[serde(deserialize_with = "lenient_items")]
        input: Vec<InputItem>,
        /// Accepted and ignored.
        previous_response_id?: String,
    }
}

/// Parses items with unknown fields, which v2's items refuse: v1 clients that send some cannot be changed.
fn lenient_items<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<InputItem>, D::Error> {
    #[derive(Deserialize)]
    struct Item {
        #[serde(rename = "type")]
        kind: Option<String>,
        role: String,
        content: Content,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Content {
        Text(String),
        Parts(Vec<Part>),
    }
    #[derive(Deserialize)]
    #[serde(tag = "type", rename_all = "snake_case")]
    enum Part {
        #[serde(alias = "text", alias = "output_text")]
        InputText {
            text: String,
        },
        Image {
            url: String,
            detail: Option<String>,
        },
        InputImage {
            image_url: String,
            detail: Option<String>,
        },
    }
    let part = |part| match part {
        Part::InputText { text } => InputPart::InputText { text },
        Part::Image { url, detail } => InputPart::Image { url, detail },
        Part::InputImage { image_url, detail } => InputPart::InputImage { image_url, detail },
    };
    let items: Vec<Item> = Vec::deserialize(deserializer)?;
    let item = |Item { kind, role, content }| {
        let content = match content {
            Content::Text(text) => InputContent::Text(text),
            Content::Parts(parts) => InputContent::Parts(parts.into_iter().map(part).collect()),
        };
        InputItem { kind, id: None, status: None, role, content }
    };
    Ok(items.into_iter().map(item).collect())
}

open! {
    /// Payload of `approval_response`.
    struct ApprovalResponse {
        /// The decision.
        review: Review,
        /// An echo of a patch, as clients of the original send it. It is ignored in favour of the server's own copy.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        apply_patch?: serde_json::Value,
        /// The message to the model on a denial.
        custom_deny_message?: String,
        /// A client's explanation.
        explanation?: String,
    }
}

/// A decision on an approval. Upper-case spellings are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Review {
    /// Approve.
    #[serde(alias = "YES")]
    Yes,
    /// Deny, and stop.
    #[serde(alias = "NO", alias = "NO_EXIT", alias = "NO-EXIT")]
    NoExit,
    /// Deny, and continue.
    #[serde(alias = "NO_CONTINUE", alias = "NO-CONTINUE")]
    NoContinue,
    /// Approve, and do not ask again.
    #[serde(alias = "ALWAYS")]
    Always,
    /// Explain first.
    #[serde(alias = "EXPLAIN")]
    Explain,
}

/// Events sent to a v1 client; `context_info` and `context_compacted` have v2's fields with class-style strategy names,
/// and v1's own names for some.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", content = "payload", rename_all = "snake_case")]
pub enum Event {
    /// A turn starts or ends.
    LoadingState(LoadingState),
    /// A complete item.
    ResponseItem(ResponseItem),
    /// The size of the context.
    ContextInfo(Box<ContextInfo>),
    /// A person must allow a tool call.
    ApprovalRequest(ApprovalRequest),
    /// The context was compacted.
    ContextCompacted(Box<ContextCompacted>),
    /// The turn has ended.
    AgentFinished(AgentFinished),
    /// Something went wrong.
    Error(Error),
}

crate::context::info::context_info! {
    /// Payload of `context_info`.
    ContextInfo {
        /// `tokenCount / maxTokens` in percent, clamped to 0 to 100.
        usage_percent: f64,
    },
    /// The session's leaf, from which it continues; `null` before the first entry.
    #[cfg_attr(feature = "codegen", ts(optional = false))]
}

impl ContextInfo {
    /// Returns v1's payload for the size of a context.
    #[must_use]
    pub fn of(info: crate::context::ContextInfo) -> Self {
        // It has two decimals, as clients show it.
        let usage_percent = (info.usage_ratio * 10_000.0).round().clamp(0.0, 10_000.0) / 100.0;
        Self {
            usage_percent,
            token_count: info.token_count,
            transcript_length: info.transcript_length,
            max_tokens: info.max_tokens,
            learned_window_tokens: info.learned_window_tokens,
            strategy: info.strategy,
            warning: info.warning,
            usage_ratio: info.usage_ratio,
            source: info.source,
            usage_tokens: info.usage_tokens,
            trailing_tokens: info.trailing_tokens,
            last_usage_entry_id: info.last_usage_entry_id,
            error_bound_tokens: info.error_bound_tokens,
            reserved_tokens: info.reserved_tokens,
            compact_at_tokens: info.compact_at_tokens,
            compact_at_rule: info.compact_at_rule,
            prepare_at_tokens: info.prepare_at_tokens,
            cached_tokens: info.cached_tokens,
            generation: info.generation,
            compactions: info.compactions,
            session_id: info.session_id,
            leaf_id: info.leaf_id,
            breaker: info.breaker,
            breakdown: info.breakdown,
        }
    }
}

crate::compaction::compacted::context_compacted! {
    /// Payload of `context_compacted`.
    ContextCompacted, old_token_count, new_token_count, from crate::compaction::ContextCompacted
}

/// Payload of `loading_state`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
pub struct LoadingState {
    /// True if a turn is running.
    pub loading: bool,
}

open! {
    /// Payload of `approval_request`.
    #[derive(Eq)]
    struct ApprovalRequest {
        /// The tool's name and its arguments.
        command: Vec<String>,
        /// The approval.
        approval_id: String,
    }

    /// Payload of `agent_finished`: exactly this field, because the original client prints any other.
    #[derive(Eq)]
    struct AgentFinished {
        /// The turn.
        response_id: String,
    }
}

/// Payload of `error`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
pub struct Error {
    /// The error, for people.
    pub message: String,
    /// The code, and whether a retry may help.
    pub details: crate::error::ErrorDetails,
}

/// Payload of `response_item`: one item of OpenAI's Responses API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResponseItem {
    /// An assistant's text.
    Message {
        /// Its own id: the original client concatenates texts with the same id.
        id: String,
        /// `assistant`.
        role: String,
        /// The text.
        content: Vec<ItemContent>,
    },
    /// A tool call.
    FunctionCall {
        /// Its own id.
        id: String,
        /// The call.
        call_id: String,
        /// The tool.
        name: String,
        /// The arguments, JSON text.
        arguments: String,
    },
    /// A tool's result.
    FunctionCallOutput {
        /// Its own id.
        id: String,
        /// The call.
        call_id: String,
        /// JSON text of `{ output, metadata: { exit_code, duration_seconds } }`.
        output: String,
    },
    /// The model's reasoning.
    Reasoning {
        /// Its own id.
        id: String,
        /// The reasoning text.
        content: Vec<ItemContent>,
        /// Empty; newer clients read `summary`.
        summary: Vec<ItemContent>,
    },
}

/// Text within an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ItemContent {
    /// The assistant's text.
    OutputText {
        /// The text.
        text: String,
    },
    /// A text of the reasoning.
    InputText {
        /// The text.
        text: String,
    },
}

/// Returns the class-style name that v1 uses for a strategy.
#[must_use]
pub fn strategy_name(short: &str) -> String {
    if short == "manual" {
        return "DummyContextManager".to_owned();
    }
    let mut name = String::with_capacity(short.len() + 14);
    for word in short.split('_') {
        let mut chars = word.chars();
        if let Some(first) = chars.next() {
            name.extend(first.to_uppercase());
            name.push_str(chars.as_str());
        }
    }
    name + "ContextManager"
}

#[cfg(test)]
mod tests {
    #[test]
    fn strategies_have_class_style_names() {
        let table = [
            ("threshold", "ThresholdContextManager"),
            ("manual", "DummyContextManager"),
            ("sliding_window", "SlidingWindowContextManager"),
        ];
        for (short, long) in table {
            assert_eq!(super::strategy_name(short), long);
        }
    }
}
