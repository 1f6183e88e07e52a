//! Tools, as whoever runs them offers them: a client, the server, or an MCP server.

use crate::{approval::ApprovalOption, context::ToolDefinition};
use serde::{Deserialize, Serialize};

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolOffer {
    /// Its name: 1 to 64 of `A-Za-z0-9_-`.
    pub name: String,
    /// A description for the model.
    pub description: String,
    /// JSON Schema of its arguments, an object. Absent or `null`: it has none.
    #[serde(default)]
    #[cfg_attr(feature = "codegen", ts(type = "Record<string, unknown> | null"))]
    pub parameters: serde_json::Value,
    /// The timeout of a call in milliseconds; absent: the server's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// True if a call may safely be made twice: a new host is asked to run it even if an earlier one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// True if calls of this tool run one after another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequential: Option<bool>,
    /// What the tool does to the world. The defaults of the approval policy follow from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
}

/// What a tool does to the world, by its own account. The words are MCP's; what is absent is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolAnnotations {
    /// True if it changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// True if it may destroy what it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// True if a second call with the same arguments changes nothing more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// True if it reaches beyond the server: the network, other systems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}

impl ToolOffer {
    /// Returns the offer of a tool with nothing but its name, description and schema.
    #[must_use]
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: serde_json::Value) -> Self {
        let (name, description) = (name.into(), description.into());
        Self { name, description, parameters, timeout_ms: None, idempotent: None, sequential: None, annotations: None }
    }

    /// Returns true if a call may safely be made twice.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        let hints = self.annotations.unwrap_or_default();
        self.idempotent.or(hints.idempotent) == Some(true) || hints.read_only == Some(true)
    }

    /// Returns the definition that is sent to the model.
    #[must_use]
    pub fn definition(&self) -> ToolDefinition {
        ToolDefinition {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
        }
    }
}

/// A decision on an approval: one of the four options, or one of v1's words for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Run this call.
    #[serde(alias = "yes")]
    AllowOnce,
    /// Run this call, and every later one that is exactly the same.
    #[serde(alias = "always")]
    AllowAlways,
    /// Do not run this call; the turn goes on, and the model reads why.
    #[serde(alias = "no-continue")]
    RejectOnce,
    /// Do not run this call, nor any later one that is exactly the same.
    RejectAlways,
    /// Do not run this call, and end the turn.
    #[serde(alias = "no-exit")]
    RejectAndStop,
}

impl Decision {
    /// Returns the option that the approval is answered with.
    #[must_use]
    pub fn option(self) -> ApprovalOption {
        match self {
            Self::AllowOnce => ApprovalOption::AllowOnce,
            Self::AllowAlways => ApprovalOption::AllowAlways,
            Self::RejectOnce | Self::RejectAndStop => ApprovalOption::RejectOnce,
            Self::RejectAlways => ApprovalOption::RejectAlways,
        }
    }
}
