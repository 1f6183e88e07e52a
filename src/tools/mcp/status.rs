//! The state of each MCP server, for operators. It contains no secrets and no conversation text.

pub use reseed_protocol::tools::ToolServerState as ServerState;
use reseed_protocol::tools::{ToolServer, ToolServerFailure};

/// The state of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its name in `MCP_FILE`.
    pub name: String,
    /// The prefix of its tools' names, up to `__`; `None` if it is disabled.
    pub prefix: Option<String>,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// Its state.
    pub state: ServerState,
    /// The negotiated revision of MCP.
    pub protocol: Option<String>,
    /// The server's name and version, as it reports them.
    pub software: Option<String>,
    /// The names of its tools, as the model sees them.
    pub tools: Vec<String>,
    /// Why some of its tools are not offered.
    pub left_out: Vec<String>,
    /// Why it is not up, or why it last was not.
    pub error: Option<String>,
    /// The class of that failure, which users may see.
    pub failure: Option<ToolServerFailure>,
    /// How many times it has come up.
    pub starts: u64,
    /// The last part of its process's standard error, with secrets masked. It is only for the operator's own terminal
    /// and never sent anywhere, because it may contain conversation text.
    pub stderr: Option<String>,
}

impl ServerStatus {
    /// Returns the state that users may see.
    #[must_use]
    pub fn shown(&self) -> ToolServer {
        ToolServer {
            name: self.name.clone(),
            prefix: self.prefix.clone(),
            state: self.state,
            failure: self.failure,
            restarts: self.starts.saturating_sub(1),
            left_out: self.left_out.clone(),
        }
    }
}
