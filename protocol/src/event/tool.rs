//! Who runs a tool call.

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
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub fn is_client(&self) -> bool {
        *self == Self::Client
    }
}
