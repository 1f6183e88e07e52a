//! What of a turn is under way: the parts of an answer that is being streamed, and unanswered tool calls.

use crate::{CallId, Timestamp, TurnId, event::ToolPlace};
use serde::{Deserialize, Serialize};

/// A part of an answer that is being streamed. A tool call has no id yet: the durable event `tool_call` names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum RunningPart {
    /// Plain text.
    Text {
        /// The text so far.
        text: String,
    },
    /// The model's reasoning before it answered.
    Reasoning {
        /// The text so far.
        text: String,
    },
    /// A tool call.
    ToolCall {
        /// The tool's name.
        name: String,
        /// The arguments so far: the beginning of a JSON text.
        arguments: String,
        /// True if the call is complete.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(optional, as = "Option<bool>"))]
        finished: bool,
    },
}

impl RunningPart {
    /// Returns its text so far; of a tool call its arguments.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Text { text } | Self::Reasoning { text } => text,
            Self::ToolCall { arguments, .. } => arguments,
        }
    }
}

/// An unanswered tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct PendingCall {
    /// The call.
    #[serde(rename = "toolCallId")]
    pub call_id: CallId,
    /// Its turn.
    pub turn_id: TurnId,
    /// The tool.
    pub name: String,
    /// The arguments, JSON text.
    pub arguments: String,
    /// The time at which it fails if it is not answered.
    pub deadline: Timestamp,
    /// Who runs it.
    #[serde(default, skip_serializing_if = "ToolPlace::is_client")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<ToolPlace>"))]
    pub place: ToolPlace,
}
