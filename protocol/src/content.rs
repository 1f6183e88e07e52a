//! One content model for the wire, the tree and the store.

use crate::{CallId, receipt::Receipt};
use serde::{Deserialize, Serialize};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A person, or what stands in a person's place (a summary, a note).
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Part {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture, by address or as a `data:` URL.
    Image {
        /// `https:` or `data:` URL.
        url: String,
        /// How closely the model should look: `low`, `high` or `auto`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        detail: Option<String>,
    },
    /// What the model thought before it answered.
    Reasoning {
        /// The readable part, empty where the provider hides it.
        text: String,
        /// The provider's own item, sent back to it unchanged; opaque to everyone else.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional, type = "unknown"))]
        payload: Option<serde_json::Value>,
    },
    /// The model asks for a tool.
    ToolCall {
        /// Names this call; its result carries the same id.
        call_id: CallId,
        /// The tool's name.
        name: String,
        /// The arguments as the model wrote them: JSON text, perhaps malformed.
        arguments: String,
    },
    /// What a tool answered.
    ToolResult {
        /// The call that this answers.
        call_id: CallId,
        /// The answer, as text for the model.
        output: String,
        /// Whether the tool failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(optional, as = "Option<bool>"))]
        is_error: bool,
    },
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model was done.
    Stop,
    /// The output limit cut it.
    Length,
    /// It waits for tools.
    ToolCalls,
    /// The provider's filter cut it.
    ContentFilter,
    /// The user cancelled it.
    Cancelled,
}

/// Where a count comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The provider reported it.
    Reported,
    /// We reckoned it.
    Estimated,
}

/// Tokens that one request cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens sent, the cached ones included.
    pub input_tokens: u64,
    /// Of these, tokens the provider took from its cache.
    pub cached_tokens: u64,
    /// Of these, tokens the provider wrote to its cache, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    /// Tokens answered, the reasoning included.
    pub output_tokens: u64,
    /// Of these, reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// Of the tokens sent, as counted before, the longest beginning that the request shares with the session's request
    /// before it: what the provider could have had in its cache. Absent for summaries, and in older logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix_tokens: Option<u64>,
    /// What it cost, in billionths of a US dollar; absent where the model's price is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_nano_usd: Option<u64>,
    /// Reported by the provider or reckoned by us.
    pub source: UsageSource,
}

impl Usage {
    /// Tokens sent and answered together.
    #[must_use]
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// What one side said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Who said it.
    pub role: Role,
    /// What was said, in order.
    pub content: Vec<Part>,
    /// The model that answered; on assistant messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// What the request cost; on assistant messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Names the system prompt, the tools and the messages that were sent with the request, so that its `usage` is
    /// known to be stale when they change; on assistant messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envelope_key: Option<String>,
    /// What the request was made of; on assistant messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Box<Receipt>>,
    /// Why the answer ended; on assistant messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// The answer was cut off by a cancel: this is what had been shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
    pub incomplete: bool,
}

impl Message {
    /// A message that is neither an answer nor measured.
    #[must_use]
    pub fn new(role: Role, content: Vec<Part>) -> Self {
        Self {
            role,
            content,
            model: None,
            usage: None,
            envelope_key: None,
            receipt: None,
            stop_reason: None,
            incomplete: false,
        }
    }

    /// A user message of one text.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, vec![Part::Text { text: text.into() }])
    }

    /// The texts of this message, joined by newlines; reasoning, calls and results left out.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|part| match part {
                Part::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect();
        texts.join("\n")
    }

    /// The calls that this message makes, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = (&CallId, &str, &str)> {
        self.content.iter().filter_map(|part| match part {
            Part::ToolCall { call_id, name, arguments } => Some((call_id, name.as_str(), arguments.as_str())),
            _ => None,
        })
    }
}

/// The length of a text as JavaScript counts it, the unit of every text position on the wire.
#[must_use]
pub fn utf16_len(text: &str) -> u64 {
    text.chars().map(|c| c.len_utf16() as u64).sum()
}
