//! The form of answers: which tools the model may or must call, and the format of its text.

use serde::{Deserialize, Serialize};

closed! {
    /// The form of answers. Absent fields are left to the provider.
    #[derive(Default, Eq)]
    struct AnswerOptions {
        /// Which tools the model may or must call. A choice that forces a call is for the first request of a turn.
        tool_choice?: ToolChoice,
        /// False if an answer may have at most one call.
        parallel_tool_calls?: bool,
        /// The format of the text.
        format?: AnswerFormat,
        /// Asks for the probabilities of the answer's tokens, each with this many alternatives, 0 to 20. They come in
        /// `details.logprobs` of the answer, as the model server sends them; only those of Chat Completions do.
        top_logprobs?: u32,
    }
}

/// Which tools the model may or must call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// It calls no tool.
    None,
    /// It calls at least one tool.
    Required,
    /// It calls this tool.
    Tool {
        /// The tool.
        name: String,
    },
}

impl ToolChoice {
    /// Returns true if the model must call a tool.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        matches!(self, Self::Required | Self::Tool { .. })
    }
}

/// The format of an answer's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum AnswerFormat {
    /// A JSON object.
    JsonObject,
    /// JSON that a schema accepts.
    JsonSchema {
        /// The schema's name: 1 to 64 of `A-Za-z0-9_-`.
        name: String,
        /// Its purpose, for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        description: Option<String>,
        /// The JSON Schema.
        #[cfg_attr(feature = "codegen", ts(type = "Record<string, unknown>"))]
        schema: serde_json::Value,
        /// True if the provider must hold the answer to the schema.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "codegen", ts(optional))]
        strict: Option<bool>,
    },
}
