//! The tools of a session and the MCP servers that some of them come from, as `list_tools` returns them.

use super::{
    approval::ApprovalPolicy,
    offer::{ToolAnnotations, ToolPlace},
};

closed! {
    /// Payload of `set_tools`. Absent fields do not change.
    struct SetTools {
        /// The names of the tools that are switched off: at most 256.
        off?: Vec<String>,
        /// The session's own approval policy; without rules to remove it. It can only be stricter than the
        /// deployment's.
        approvals?: ApprovalPolicy,
    }
}

open! {
    /// Payload of `tools`.
    #[derive(Eq)]
    struct Tools {
        /// The tools, in the order in which requests send them.
        items: Vec<SessionTool>,
        /// The estimated tokens that those that are switched on take in each request.
        tokens: u64,
        /// The MCP servers of this server, sorted by name; absent if there are none. They are the same for all sessions.
        /// One that is up joins a session's tools at its next turn or compaction.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<ToolServer>>"))]
        servers: Vec<ToolServer>,
    }

    /// An MCP server: what its users may know of it.
    #[derive(Eq)]
    struct ToolServer {
        /// Its name, as its operator gave it.
        name: String,
        /// The beginning of its tools' names, up to `__`; absent if it is switched off.
        prefix?: String,
        /// What it is doing.
        state: ToolServerState,
        /// Why it is not up; while it is started again, why it was not.
        failure?: ToolServerFailure,
        /// The times that it came up again after the first.
        restarts: u64,
        /// Its tools that are not offered, each with the reason: the first 32.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<String>>"))]
        left_out: Vec<String>,
    }
}

words! {
    /// What an MCP server is doing.
    enum ToolServerState {
        /// It is being started.
        Starting,
        /// It takes calls.
        Ready,
        /// It was stopped because nobody called it; the next call starts it.
        Idle,
        /// It is down and will be tried again.
        Failing,
        /// Its operator has switched it off.
        Disabled,
        /// It is being ended.
        Stopping,
    }

    /// Why an MCP server is not up. The operator sees more.
    enum ToolServerFailure {
        /// Its program cannot be started.
        CannotStart,
        /// Its program ended.
        Ended,
        /// It did not come up in time.
        Timeout,
        /// Its address cannot be reached.
        Unreachable,
        /// It refused the connection or the credentials.
        Refused,
        /// It answered with an error or with what is not MCP, or did not list its tools.
        WrongAnswer,
        /// It closed the connection, or the connection was lost.
        Disconnected,
    }
}

open! {
    /// A tool of a session.
    #[derive(Eq)]
    struct SessionTool {
        /// Its name. One of an MCP server begins with the server's name and `__`.
        name: String,
        /// Its description, as the model gets it.
        description: String,
        /// Who runs it.
        #[serde(default, skip_serializing_if = "ToolPlace::is_client")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<ToolPlace>"))]
        place: ToolPlace,
        /// The estimated tokens that it takes in each request while it is switched on.
        tokens: u64,
        /// True if it is switched off in this session.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        off: bool,
        /// What it does to the world, by its own account.
        annotations?: ToolAnnotations,
    }
}
