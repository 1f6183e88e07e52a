//! The tools of a session, as `list_tools` returns them.

use crate::{command::ToolAnnotations, event::ToolPlace};
use serde::{Deserialize, Serialize};

/// Payload of `tools`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "camelCase")]
pub struct Tools {
    /// The tools, in the order in which requests send them.
    pub items: Vec<SessionTool>,
    /// The estimated tokens that those that are switched on take in each request.
    pub tokens: u64,
}

/// A tool of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[cfg_attr(feature = "codegen", ts(optional_fields))]
#[serde(rename_all = "camelCase")]
pub struct SessionTool {
    /// Its name. One of an MCP server begins with the server's name and `__`.
    pub name: String,
    /// Its description, as the model gets it.
    pub description: String,
    /// Who runs it.
    #[serde(default, skip_serializing_if = "ToolPlace::is_client")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<ToolPlace>"))]
    pub place: ToolPlace,
    /// The estimated tokens that it takes in each request while it is switched on.
    pub tokens: u64,
    /// True if it is switched off in this session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
    pub off: bool,
    /// What it does to the world, by its own account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<ToolAnnotations>,
}
