//! The events of tool calls.

use super::CallOutcome;
use crate::{ApprovalId, CallId, Timestamp, TurnId, approval::ApprovalOption};
use serde::{Deserialize, Serialize};

/// Who runs a tool call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ToolPlace {
    /// The client that hosts the session's tools.
    #[default]
    Client,
    /// The server, or an MCP server that it talks to.
    Server,
}

impl ToolPlace {
    /// Returns true if a client runs it.
    #[must_use]
    pub fn is_client(&self) -> bool {
        *self == Self::Client
    }
}

/// Payload of `tool_call`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// The call; delivered at least once.
    #[serde(rename = "toolCallId")]
    pub call_id: CallId,
    /// Its turn.
    pub turn_id: TurnId,
    /// The tool.
    pub name: String,
    /// The arguments, JSON text that the tool's schema accepts.
    pub arguments: String,
    /// The time at which it fails if it is not answered.
    pub deadline: Timestamp,
    /// Who runs it.
    #[serde(default, skip_serializing_if = "ToolPlace::is_client")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<ToolPlace>"))]
    pub place: ToolPlace,
}

/// Payload of `call_resolved`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct CallResolved {
    /// The call.
    #[serde(rename = "toolCallId")]
    pub call_id: CallId,
    /// Its outcome.
    pub outcome: CallOutcome,
    /// The approval that is decided; absent if the call itself is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// The answer; absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option: Option<ApprovalOption>,
    /// The client that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// Payload of `tool_cancelled`: the answer is no longer awaited. The durable event is `call_resolved`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct ToolCancelled {
    /// The call.
    #[serde(rename = "toolCallId")]
    pub call_id: CallId,
    /// The tool.
    pub name: String,
    /// The turn that made it.
    pub turn_id: TurnId,
    /// `timed_out`, or `dropped` if its turn ended.
    pub outcome: CallOutcome,
}

impl CallResolved {
    /// Returns the end of a call.
    #[must_use]
    pub fn over(call_id: CallId, outcome: CallOutcome) -> Self {
        Self { call_id, outcome, approval_id: None, option: None, by: None }
    }
}
