//! The parts of an answer that is being streamed.

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
