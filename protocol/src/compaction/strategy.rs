//! The strategy of a session: the command that sets it, and its settings.

closed! {
    /// Payload of `set_context_strategy`.
    struct SetContextStrategy {
        /// The strategy's name, such as `threshold` or `manual`; `unknown_strategy` lists those that the server offers.
        strategy: String,
        /// The strategy's settings; absent ones keep the deployment's default.
        settings?: StrategySettings,
    }

    /// Settings of the strategies. Each strategy reads its own.
    // The page shows its fields by title, with these bounds.
    #[derive(Default)]
    struct StrategySettings {
        /// Compacts when more than this fraction of the window is used; 0 to 1. The reserve for an answer can be
        /// reached earlier.
        #[cfg_attr(
            feature = "codegen",
            schemars(title = "Compact above, share of the window", range(min = 0.0, max = 1.0))
        )]
        threshold?: f64,
        /// Compacts when fewer than this many tokens are free for an answer; capped at half of the window. Absent:
        /// `maxOutputTokens` of `set_options`, at most three quarters of the window, or else 2 % of the window, at
        /// least 512 tokens and at most a fifth.
        #[cfg_attr(feature = "codegen", schemars(title = "Keep free for the answer, tokens", range(max = 100_000_000)))]
        reserve_tokens?: u64,
        /// The approximate number of recent tokens kept verbatim.
        #[cfg_attr(
            feature = "codegen",
            schemars(title = "Keep word for word, newest tokens", range(min = 1, max = 100_000_000))
        )]
        keep_recent_tokens?: u64,
        /// The fraction of the window that a compaction reduces the context to, or three quarters of the trigger if
        /// that is less; above 0, at most 1.
        #[cfg_attr(
            feature = "codegen",
            schemars(title = "Get down to, share of the window", extend("exclusiveMinimum" = 0), range(max = 1.0))
        )]
        target?: f64,
        /// The fraction of the trigger at which a compaction is prepared in the background; 1 for never.
        #[cfg_attr(
            feature = "codegen",
            schemars(title = "Prepare from, share of the way there", extend("exclusiveMinimum" = 0), range(max = 1.0))
        )]
        background?: f64,
        /// The fraction of the request that a compaction must save; 0 to 0.9.
        #[cfg_attr(
            feature = "codegen",
            schemars(title = "Save at least, share of the request", range(min = 0.0, max = 0.9))
        )]
        min_gain?: f64,
        /// The number of newest turns that `sliding_window` keeps; at least 1.
        #[cfg_attr(
            feature = "codegen",
            schemars(title = "Keep word for word, newest questions with answers", range(min = 1, max = 100_000_000))
        )]
        keep_turns?: u64,
        /// The number of newest tool results that are never cleared.
        #[cfg_attr(feature = "codegen", schemars(title = "Never clear, newest tool results", range(max = 100_000_000)))]
        keep_tool_results?: u64,
        /// Makes `importance` summarise what it removes; otherwise it is dropped.
        #[cfg_attr(feature = "codegen", schemars(title = "Summarise what is removed"))]
        summarise?: bool,
        /// The strategies of a `pipeline`, from mild to drastic.
        #[cfg_attr(feature = "codegen", schemars(title = "Strategies in order, gentle to drastic"))]
        steps?: Vec<String>,
        /// The kind of conversation, which determines what a summary must keep.
        #[cfg_attr(feature = "codegen", schemars(title = "What summaries keep first, by the kind of chat"))]
        summary_kind?: SummaryKind,
        /// The fraction of a compaction's target in which the user's own messages are kept word for word, newest
        /// first; 0 to 1.
        #[cfg_attr(
            feature = "codegen",
            schemars(title = "Keep what the user said, share of the target", range(min = 0.0, max = 1.0))
        )]
        user_share?: f64,
        /// How a compaction treats earlier summaries.
        #[cfg_attr(feature = "codegen", schemars(title = "What becomes of earlier summaries"))]
        summary_mode?: SummaryMode,
    }
}

words! {
    /// What a compaction does with the summaries of earlier ones.
    #[derive(Default)]
    enum SummaryMode {
        /// Keeps them unchanged, and adds a segment for what leaves the context now. The oldest segments are merged
        /// when all of them together exceed their share.
        #[default]
        Segments,
        /// Brings one summary up to date.
        Rewrite,
    }

    /// The kind of conversation, which determines what its summary must keep.
    #[derive(Default)]
    enum SummaryKind {
        /// Detected for each summary from plain signs: tools and code blocks.
        #[default]
        Auto,
        /// People and what they say.
        Chat,
        /// Work on code: files, symbols, signatures, decisions.
        Code,
        /// Debugging: symptoms, rejected hypotheses, reproduction, exact errors.
        Debugging,
        /// Research: sources, claims, open questions.
        Research,
    }
}
