//! What is known of each MCP server, for operators: no secrets, nothing that was said.

use reseed_protocol::reply::{ToolServer, ToolServerFailure, ToolServerState};

/// The state of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its name in `MCP_FILE`.
    pub name: String,
    /// The beginning of its tools' names, up to `__`; `None` if it is switched off.
    pub prefix: Option<String>,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// What it is doing.
    pub state: ServerState,
    /// The revision of MCP that was agreed on.
    pub protocol: Option<String>,
    /// The server's name and version, in its own words.
    pub software: Option<String>,
    /// The names of its tools, as the model sees them.
    pub tools: Vec<String>,
    /// Why some of its tools are not offered.
    pub left_out: Vec<String>,
    /// Why it is not up, or why it last was not.
    pub error: Option<String>,
    /// The class of that, which its users may know.
    pub failure: Option<ToolServerFailure>,
    /// The times that it came up.
    pub starts: u64,
    /// The end of what its process last wrote to standard error, with secrets masked. It is for the operator's own
    /// terminal and never sent anywhere: it may hold what was said.
    pub stderr: Option<String>,
}

/// What a server is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl ServerStatus {
    /// Returns what users may know of it.
    #[must_use]
    pub fn shown(&self) -> ToolServer {
        ToolServer {
            name: self.name.clone(),
            prefix: self.prefix.clone(),
            state: match self.state {
                ServerState::Starting => ToolServerState::Starting,
                ServerState::Ready => ToolServerState::Ready,
                ServerState::Idle => ToolServerState::Idle,
                ServerState::Waiting => ToolServerState::Failing,
                ServerState::Disabled => ToolServerState::Disabled,
                ServerState::Closed => ToolServerState::Stopping,
            },
            failure: self.failure,
            restarts: self.starts.saturating_sub(1),
            left_out: self.left_out.clone(),
        }
    }
}

impl ServerState {
    /// Returns the word for people.
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
