//! The extension points, and the hooks that a client offers for them.

words! {
    /// The extension points.
    #[derive(PartialOrd, Ord)]
    enum HookPoint {
        /// Before and after requests, with the envelope. Answers with patches.
        Context,
        /// The user has sent input that is not accepted yet, the model has given an answer that is not shown yet, or a
        /// tool has answered. Answers with another message, which is stored, shown and sent instead.
        Message,
        /// A turn starts. Answers with a system prompt for this turn, a message, or data to store.
        BeforeAgentStart,
        /// A compaction is about to be made. Answers with a summary, another model, or a cancellation.
        BeforeCompaction,
        /// The session is about to move in its tree. Answers with a summary, instructions, a label, or a cancellation.
        BeforeNavigate,
        /// The model has called a tool. Answers with other arguments, or blocks the call.
        ToolCall,
        /// A tool has answered. Answers with another result.
        ToolResult,
    }
}

impl HookPoint {
    /// All extension points.
    pub const ALL: &'static [Self] = &[
        Self::Context,
        Self::Message,
        Self::BeforeAgentStart,
        Self::BeforeCompaction,
        Self::BeforeNavigate,
        Self::ToolCall,
        Self::ToolResult,
    ];

    /// Returns its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Message => "message",
            Self::BeforeAgentStart => "before_agent_start",
            Self::BeforeCompaction => "before_compaction",
            Self::BeforeNavigate => "before_navigate",
            Self::ToolCall => "tool_call",
            Self::ToolResult => "tool_result",
        }
    }

    /// Returns the fields that an answer may have here, besides `error`.
    #[must_use]
    pub const fn answer_fields(self) -> &'static [&'static str] {
        match self {
            Self::Context => &["patch", "transformerName", "display"],
            Self::Message => &["message"],
            Self::BeforeAgentStart => &["systemPrompt", "customMessage", "entries"],
            Self::BeforeCompaction => {
                &["cancel", "summary", "firstKeptEntryId", "details", "model", "instructions", "replaceInstructions"]
            }
            Self::BeforeNavigate => &["cancel", "summary", "details", "instructions", "replaceInstructions", "label"],
            Self::ToolCall => &["block", "reason", "arguments"],
            Self::ToolResult => &["output", "isError"],
        }
    }
}

words! {
    /// The occasions on which a `context` hook is called.
    #[derive(PartialOrd, Ord)]
    enum ContextReason {
        /// Before a request is counted. Its patch is stored and applies to every later request on the branch.
        BeforeRequest,
        /// Before the request is sent. Its patch applies to this request only.
        Ephemeral,
        /// After the answer that ends a turn. Its patch is stored.
        TurnEnd,
    }
}

closed! {
    /// A hook offered by a client.
    #[derive(Eq)]
    struct HookOffer {
        /// Its name, in errors and in what it creates: 1 to 64 of `A-Za-z0-9._-`. If absent, `client`.
        name?: String,
        /// Its extension point.
        point: HookPoint,
        /// The occasions on which it is called, for `context`; absent: always.
        reasons?: Vec<ContextReason>,
        /// The time limit of an answer in milliseconds; absent: the server's default.
        timeout_ms?: u64,
        /// If true, nothing happens that the hook could not inspect, because it failed or its client was away for too
        /// long. If false, its failure is reported, and the original is used. The default is true, unless `observe` is
        /// true.
        required?: bool,
        /// If true, it is only notified: its answer is not awaited and changes nothing.
        observe?: bool,
    }

    /// Payload of `register_hooks`.
    struct RegisterHooks {
        /// The hooks, called in this order; empty for none.
        hooks: Vec<HookOffer>,
    }
}
