//! Tools, as whoever runs them offers them: a client, the server, or an MCP server.

use crate::context::ToolDefinition;

closed! {
    /// A tool that the model may call.
    struct ToolOffer {
        /// Its name: 1 to 64 of `A-Za-z0-9_-`.
        name: String,
        /// A description for the model.
        description: String,
        /// JSON Schema of its arguments, an object. Absent or `null`: it has none.
        #[serde(default)]
        #[cfg_attr(feature = "codegen", ts(type = "Record<string, unknown> | null"))]
        parameters: serde_json::Value,
        /// The timeout of a call in milliseconds; absent: the server's default.
        timeout_ms?: u64,
        /// True if a call may safely be made twice: a new host is asked to run it even if an earlier one was.
        idempotent?: bool,
        /// True if calls of this tool run one after another.
        sequential?: bool,
        /// What the tool does to the world. The defaults of the approval policy follow from it.
        annotations?: ToolAnnotations,
    }
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

closed! {
    /// What a tool does to the world, by its own account. The words are MCP's; what is absent is unknown.
    #[derive(Copy, Default, Eq)]
    struct ToolAnnotations {
        /// True if it changes nothing.
        read_only?: bool,
        /// True if it may destroy what it changes.
        destructive?: bool,
        /// True if a second call with the same arguments changes nothing more.
        idempotent?: bool,
        /// True if it reaches beyond the server: the network, other systems.
        open_world?: bool,
    }
}

words! {
    /// Who runs a tool call.
    #[derive(Default, PartialOrd, Ord)]
    enum ToolPlace {
        /// The client that hosts the session's tools.
        #[default]
        Client,
        /// The server, or an MCP server that it talks to.
        Server,
    }
}

impl ToolPlace {
    /// Returns true if a client runs it.
    #[must_use]
    pub fn is_client(&self) -> bool {
        *self == Self::Client
    }
}

closed! {
    /// Payload of `register_tools`.
    struct RegisterTools {
        /// The tools; empty for none.
        tools: Vec<ToolOffer>,
    }
}

open! {
    /// A pattern in a tool's schema that the arguments of its calls are not checked against. The tool can be used all
    /// the same; it should check them itself.
    struct UncheckedPattern {
        /// The tool.
        tool: String,
        /// Where the pattern stands in the tool's parameters: a JSON Pointer.
        at: String,
        /// Why.
        reason: UncheckedReason,
    }
}

words! {
    /// Why a pattern is not checked.
    enum UncheckedReason {
        /// It has what an engine of linear time cannot do, such as lookaheads and backreferences, or is not valid.
        Unsupported,
        /// It is too large when compiled, by itself or together with the other patterns of the offer.
        TooLarge,
    }
}
