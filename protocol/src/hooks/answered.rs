//! The message in a hook's answer, parsed strictly.
//!
//! [`Message`] and [`Part`] are also the stored and imported forms, so they ignore unknown fields. In an answer an
//! unknown field is refused by name instead: a silently dropped field can change what a message says.

use crate::{
    content::{Cut, Message, Part, Payload, Role, StopReason, Usage},
    ids::CallId,
    receipt::Receipt,
};
use serde::{Deserialize, Deserializer};

/// The replacement message. Only its role and content matter; the other fields of a message are ignored.
#[derive(Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema), schemars(rename = "AnsweredMessage"))]
#[serde(remote = "Message", rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AnsweredMessage {
    /// Its author.
    role: Role,
    /// Its content, in order.
    #[serde(deserialize_with = "parts")]
    #[cfg_attr(feature = "codegen", schemars(with = "Vec<AnsweredPart>"))]
    content: Vec<Part>,
    /// Ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// Ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    /// Ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    envelope_key: Option<String>,
    /// Ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<Box<Receipt>>,
    /// Ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop_reason: Option<StopReason>,
    /// Ignored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    incomplete: bool,
    /// Ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cut: Option<Box<Cut>>,
    /// Ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<Box<Payload>>,
    /// Ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    details: Option<Box<serde_json::Value>>,
}

/// A part of that message.
#[derive(Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema), schemars(rename = "AnsweredPart"))]
#[serde(remote = "Part", tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
enum AnsweredPart {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// An image, by address or as a `data:` URL.
    Image {
        /// `https:` or `data:` URL.
        url: String,
        /// The level of detail: `low`, `high` or `auto`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// The model's reasoning before it answered.
    Reasoning {
        /// The readable part; empty if the provider hides it.
        text: String,
        /// The provider's own item, as in the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        payload: Option<serde_json::Value>,
    },
    /// A tool call by the model.
    ToolCall {
        /// Identifies this call, as in the hook call.
        #[serde(rename = "toolCallId")]
        call_id: CallId,
        /// The tool's name.
        name: String,
        /// The arguments as the model wrote them.
        arguments: String,
    },
    /// The result of a tool.
    ToolResult {
        /// The call that it answers.
        #[serde(rename = "toolCallId")]
        call_id: CallId,
        /// The output, as text for the model.
        output: String,
        /// True if the tool failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

/// Parses the message of an answer.
pub(super) fn message<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Message>, D::Error> {
    #[derive(Deserialize)]
    struct Strict(#[serde(with = "AnsweredMessage")] Message);
    let read = Option::<Strict>::deserialize(deserializer)?;
    Ok(read.map(|Strict(message)| message))
}

fn parts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Part>, D::Error> {
    #[derive(Deserialize)]
    struct Strict(#[serde(with = "AnsweredPart")] Part);
    let read = Vec::<Strict>::deserialize(deserializer)?;
    Ok(read.into_iter().map(|Strict(part)| part).collect())
}
