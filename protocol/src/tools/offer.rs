//! Tools, as a client, the server or an MCP server offers them.

use crate::context::ToolDefinition;

closed! {
    /// A tool that the model may call.
    struct ToolOffer {
        /// Its name: 1 to 64 of `A-Za-z0-9_-`.
        name: String,
        /// A description for the model.
        description: String,
        /// JSON Schema of its arguments, as an object. Absent or `null` if it takes none.
        #[serde(default)]
        #[cfg_attr(feature = "codegen", ts(type = "Record<string, unknown> | null"))]
        parameters: serde_json::Value,
        /// The timeout of a call in milliseconds; absent: the server's default.
        timeout_ms?: u64,
        /// True if a call may safely run twice: a new host is asked to run it even if an earlier host was.
        idempotent?: bool,
        /// True if calls of this tool run one after another.
        sequential?: bool,
        /// True if a call of this tool ends the turn, once the other calls of the same answer have their results. The
        /// client gives the result with its next input, in `history`. No client is asked to run it.
        ends_turn?: bool,
        /// The effects of the tool. The defaults of the approval policy follow from them.
        annotations?: ToolAnnotations,
    }
}

impl ToolOffer {
    /// Creates the offer of a tool with only a name, a description and a schema.
    #[must_use]
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: serde_json::Value) -> Self {
        let (name, description) = (name.into(), description.into());
        Self {
            name,
            description,
            parameters,
            timeout_ms: None,
            idempotent: None,
            sequential: None,
            ends_turn: None,
            annotations: None,
        }
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
    /// The effects of a tool, as the tool declares them, in MCP's terms. Absent fields are unknown.
    #[derive(Copy, Default, Eq)]
    struct ToolAnnotations {
        /// True if it changes nothing.
        read_only?: bool,
        /// True if its changes may be destructive.
        destructive?: bool,
        /// True if a repeated call with the same arguments has no further effect.
        idempotent?: bool,
        /// True if it reaches beyond the server: the network, other systems.
        open_world?: bool,
    }
}

words! {
    /// The side that runs a tool call.
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
    /// A pattern in a tool's schema that arguments are not checked against. The tool can still be used, and should
    /// check them itself.
    struct UncheckedPattern {
        /// The tool.
        tool: String,
        /// The place of the pattern in the tool's parameters, as a JSON Pointer.
        at: String,
        /// The reason.
        reason: UncheckedReason,
    }
}

words! {
    /// The reason why a pattern is not checked.
    enum UncheckedReason {
        /// It is invalid, or uses what a linear-time engine does not support, such as lookaheads and backreferences.
        Unsupported,
        /// It is too large when compiled, by itself or together with the other patterns of the offer.
        TooLarge,
    }
}
