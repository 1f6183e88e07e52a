//! What is known of each MCP server, for operators: no secrets, nothing that was said.

use serde::Serialize;

/// The state of one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    /// Its name in `MCP_FILE`.
    pub name: String,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// What it is doing.
    pub state: ServerState,
    /// The revision of MCP that was agreed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The server's name and version, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub software: Option<String>,
    /// The names of its tools, as the model sees them.
    pub tools: Vec<String>,
    /// Why some of its tools are not offered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Why it is not up, or why it last was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The times that it came up.
    pub starts: u64,
    /// The end of what its process last wrote to standard error, with secrets masked. It is for the operator's own
    /// terminal and never serialised: it may hold what was said.
    #[serde(skip)]
    pub stderr: Option<String>,
}

/// What a server is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerState {
    /// It is being connected to.
    Starting,
    /// It takes calls.
    Ready,
    /// Its process was stopped because nobody called it; the next call starts it.
    Idle,
    /// It is down and will be tried again.
    Waiting,
    /// The file switches it off.
    Disabled,
    /// This server is stopping.
    Closed,
}

impl ServerState {
    /// Returns the word for people and for JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::Disabled => "disabled",
            Self::Closed => "closed",
        }
    }
}
