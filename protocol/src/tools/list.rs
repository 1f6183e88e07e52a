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
        /// The estimated tokens of the tools that are switched on, in each request.
        tokens: u64,
        /// The MCP servers of this server, sorted by name; absent if there are none. They are the same for all
        /// sessions. A server that is up adds its tools to a session at the session's next turn or compaction.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<ToolServer>>"))]
        servers: Vec<ToolServer>,
    }

    /// An MCP server, as far as users may see it.
    #[derive(Eq)]
    struct ToolServer {
        /// Its name, chosen by the operator.
        name: String,
        /// The beginning of its tools' names, up to `__`; absent if the server is disabled.
        prefix?: String,
        /// Its state.
        state: ToolServerState,
        /// Why it is down or, while it is started again, why it was down.
        failure?: ToolServerFailure,
        /// The number of times that it was started again.
        restarts: u64,
        /// The first 32 of its tools that are not offered, each with the reason.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<String>>"))]
        left_out: Vec<String>,
    }
}

words! {
    /// The state of an MCP server.
    enum ToolServerState {
        /// It is being started.
        Starting,
        /// It accepts calls.
        Ready,
        /// It was stopped because it was not used; the next call starts it.
        Idle,
        /// It is down; another attempt follows.
        Failing,
        /// The operator has disabled it.
        Disabled,
        /// It is being stopped.
        Stopping,
    }

    /// The reason why an MCP server is down. Operators see more details.
    enum ToolServerFailure {
        /// Its program cannot be started.
        CannotStart,
        /// Its program ended.
        Ended,
        /// It did not start in time.
        Timeout,
        /// Its address cannot be reached.
        Unreachable,
        /// It refused the connection or the credentials.
        Refused,
        /// It answered with an error or with something other than MCP, or did not list its tools.
        WrongAnswer,
        /// It closed the connection, or the connection was lost.
        Disconnected,
    }
}

open! {
    /// A tool of a session.
    #[derive(Eq)]
    struct SessionTool {
        /// Its name. The name of an MCP server's tool begins with the server's name and `__`.
        name: String,
        /// Its description, as the model gets it.
        description: String,
        /// The side that runs it.
        #[serde(default, skip_serializing_if = "ToolPlace::is_client")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<ToolPlace>"))]
        place: ToolPlace,
        /// The estimated tokens that it takes in each request while it is switched on.
        tokens: u64,
        /// True if it is switched off in this session.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        off: bool,
        /// Its effects, as the tool declares them.
        annotations?: ToolAnnotations,
    }
}
