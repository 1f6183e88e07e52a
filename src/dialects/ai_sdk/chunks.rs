//! The chunks of a message, as `UIMessageChunk` of the AI SDK 7 has them, with two data parts of this server.

use reseed_protocol::{
    content::{StopReason, Usage},
    context::ContextInfo,
};
use serde::Serialize;
use serde_json::Value;

/// The id of the data part about compactions. A later one replaces it.
pub(super) const COMPACTION_ID: &str = "reseed-compaction";

/// A chunk. The AI SDK closes the connection if it does not know a type or if a field is wrong.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(super) enum Chunk {
    /// The message begins, or goes on under its id.
    Start {
        message_id: String,
    },
    /// An answer of the model begins.
    StartStep,
    /// The answer and the results of its tools are complete.
    FinishStep,
    /// What was shown of the answer is void.
    ResetStep,
    TextStart {
        id: String,
    },
    TextDelta {
        id: String,
        delta: String,
    },
    TextEnd {
        id: String,
    },
    ReasoningStart {
        id: String,
    },
    ReasoningDelta {
        id: String,
        delta: String,
    },
    ReasoningEnd {
        id: String,
    },
    /// A tool call begins.
    ToolInputStart {
        tool_call_id: String,
        tool_name: String,
        #[serde(flatten)]
        runs: Runs,
    },
    ToolInputDelta {
        tool_call_id: String,
        input_text_delta: String,
    },
    ToolInputAvailable {
        tool_call_id: String,
        tool_name: String,
        input: Value,
        #[serde(flatten)]
        runs: Runs,
    },
    /// The input is not a JSON object.
    ToolInputError {
        tool_call_id: String,
        tool_name: String,
        input: Value,
        error_text: String,
        #[serde(flatten)]
        runs: Runs,
    },
    ToolApprovalRequest {
        approval_id: String,
        tool_call_id: String,
        reason: String,
    },
    ToolOutputAvailable {
        tool_call_id: String,
        output: Value,
    },
    ToolOutputError {
        tool_call_id: String,
        error_text: String,
    },
    ToolOutputDenied {
        tool_call_id: String,
    },
    /// An image that a tool returned.
    File {
        url: String,
        media_type: String,
    },
    /// A message of the user that joined the turn.
    SteeringMessage {
        id: String,
        parts: Vec<Value>,
    },
    /// The size of the context. Reaches only `onData`.
    #[serde(rename = "data-reseed-context")]
    Context {
        data: Gauge,
        transient: bool,
    },
    /// A compaction.
    #[serde(rename = "data-reseed-compaction")]
    Compaction {
        id: &'static str,
        data: CompactionState,
    },
    Finish {
        finish_reason: FinishReason,
        message_metadata: Metadata,
    },
    Error {
        error_text: String,
    },
    Abort {
        reason: String,
    },
}

/// Who runs a tool. Both fields are absent for a tool of the browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Runs {
    /// True if the page does not know the tool.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dynamic: bool,
    /// True if the page must not run it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    provider_executed: bool,
}

impl Runs {
    /// The browser runs the tool.
    pub(super) const BROWSER: Self = Self { dynamic: false, provider_executed: false };
    /// The server runs it, or another client.
    pub(super) const ELSEWHERE: Self = Self { dynamic: true, provider_executed: true };
}

/// Why a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FinishReason {
    Stop,
    Length,
    ContentFilter,
    /// It waits for the page: for a tool, or for an approval.
    ToolCalls,
    /// The server stopped during the turn.
    Interrupted,
    Other,
}

impl From<Option<StopReason>> for FinishReason {
    fn from(reason: Option<StopReason>) -> Self {
        match reason {
            Some(StopReason::Stop) => Self::Stop,
            Some(StopReason::Length) => Self::Length,
            Some(StopReason::ContentFilter) => Self::ContentFilter,
            Some(StopReason::ToolCalls) => Self::ToolCalls,
            _ => Self::Other,
        }
    }
}

/// What `metadata` of a message has after it ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    /// The session, which other doors open by this id.
    pub(super) session_id: String,
    pub(super) model: String,
    /// The usage of the turn's requests together; absent while the turn waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<Counted>,
}

/// Tokens, in the words of the AI SDK.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counted {
    input_tokens: u64,
    cached_input_tokens: u64,
    output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_tokens: Option<u64>,
    total_tokens: u64,
    /// In US dollars; absent if the price is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_nano_usd: Option<u64>,
}

impl From<&Usage> for Counted {
    fn from(usage: &Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            cached_input_tokens: usage.cached_tokens,
            output_tokens: usage.output_tokens,
            reasoning_tokens: usage.reasoning_tokens,
            total_tokens: usage.total_tokens(),
            cost_nano_usd: usage.cost_nano_usd,
        }
    }
}

/// The size of the context: the data of `data-reseed-context`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Gauge {
    token_count: u64,
    max_tokens: u64,
    usage_ratio: f64,
    cached_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    compact_at_tokens: Option<u64>,
    compactions: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

impl Gauge {
    pub(super) fn of(info: &ContextInfo) -> Self {
        Self {
            token_count: info.token_count,
            max_tokens: info.max_tokens,
            usage_ratio: info.usage_ratio,
            cached_tokens: info.cached_tokens,
            compact_at_tokens: info.compact_at_tokens,
            compactions: info.compactions,
            warning: info.warning.clone(),
        }
    }

    /// Returns the chunk about this size.
    pub(super) fn chunk(self) -> Chunk {
        Chunk::Context { data: self, transient: true }
    }
}

/// A compaction: the data of `data-reseed-compaction`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub(super) enum CompactionState {
    /// The answer waits for it.
    Running {
        #[serde(skip_serializing_if = "Option::is_none")]
        done: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        total: Option<u64>,
    },
    /// The model sees a summary instead of the older messages.
    Done {
        /// The entry that holds the summary.
        entry_id: String,
        tokens_before: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        tokens_after: Option<u64>,
    },
    /// The context is as it was.
    Failed { error_text: String },
}

impl CompactionState {
    /// Returns the chunk about this state.
    pub(super) fn chunk(self) -> Chunk {
        Chunk::Compaction { id: COMPACTION_ID, data: self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn chunks_have_the_names_of_the_ai_sdk() {
        let id = || "c".to_owned();
        let chunks = [
            (Chunk::StartStep, json!({"type": "start-step"})),
            (Chunk::ResetStep, json!({"type": "reset-step"})),
            (Chunk::Start { message_id: "m".into() }, json!({"type": "start", "messageId": "m"})),
            (
                Chunk::ToolInputStart { tool_call_id: id(), tool_name: "t".into(), runs: Runs::BROWSER },
                json!({"type": "tool-input-start", "toolCallId": "c", "toolName": "t"}),
            ),
            (
                Chunk::ToolInputStart { tool_call_id: id(), tool_name: "t".into(), runs: Runs::ELSEWHERE },
                json!({
                    "type": "tool-input-start", "toolCallId": "c", "toolName": "t", "dynamic": true,
                    "providerExecuted": true,
                }),
            ),
            (
                CompactionState::Running { done: Some(1), total: None }.chunk(),
                json!({
                    "type": "data-reseed-compaction", "id": "reseed-compaction",
                    "data": {"state": "running", "done": 1},
                }),
            ),
            (
                Chunk::Finish {
                    finish_reason: Some(StopReason::ContentFilter).into(),
                    message_metadata: Metadata { session_id: "s".into(), model: "m".into(), usage: None },
                },
                json!({
                    "type": "finish", "finishReason": "content-filter",
                    "messageMetadata": {"sessionId": "s", "model": "m"},
                }),
            ),
        ];
        for (chunk, expected) in chunks {
            assert_eq!(serde_json::to_value(&chunk).unwrap(), expected);
        }
    }
}
