//! The size of a context, once for each dialect: v1 has one field more, and `null` for the root.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Declares the payload with these further fields and these attributes of its leaf.
macro_rules! context_info {
    ($(#[$doc:meta])* $name:ident { $($(#[$further_doc:meta])* $further:ident: $ty:ty,)* }, $(#[$leaf:meta])*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
        #[cfg_attr(feature = "codegen", ts(optional_fields))]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($(#[$further_doc])* pub $further: $ty,)*
            /// Tokens of the exact next request, without the reserve for the answer.
            pub token_count: u64,
            /// Messages in the next request.
            pub transcript_length: u64,
            /// The model's window in tokens.
            pub max_tokens: u64,
            /// The window learned from the model server, if `maxTokens` is this value: it is smaller than the
            /// configured or listed window. `set_model` forgets it, even with the same model.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub learned_window_tokens: Option<u64>,
            /// The strategy: its short name on v2, its class-style name on v1.
            pub strategy: String,
            /// A sentence for the user, once 90 % of the window is used.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub warning: Option<String>,
            /// `tokenCount / maxTokens`, not clamped.
            pub usage_ratio: f64,
            /// The source of `tokenCount`.
            pub source: $crate::context::info::CountSource,
            /// The part of `tokenCount` that the provider reported.
            pub usage_tokens: u64,
            /// The part of `tokenCount` that is estimated for what came after the report.
            pub trailing_tokens: u64,
            /// The entry whose report was used.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub last_usage_entry_id: Option<$crate::ids::EntryId>,
            /// The possible error of `tokenCount`, in tokens in either direction.
            pub error_bound_tokens: u64,
            /// Tokens left free for an answer.
            pub reserved_tokens: u64,
            /// The strategy compacts automatically before it sends a request with more tokens than this; absent if it
            /// never does.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub compact_at_tokens: Option<u64>,
            /// The rule that decides `compactAtTokens`; absent if that is absent, or if the strategy has its own rule.
            /// Not in v1.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub compact_at_rule: Option<$crate::context::info::CompactAtRule>,
            /// Above this count a compaction is prepared in the background; absent if none is.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub prepare_at_tokens: Option<u64>,
            /// The tokens of the last request that were read from the provider's cache.
            pub cached_tokens: u64,
            /// The number of times that the loop was seeded.
            pub generation: u64,
            /// The number of compactions of this session.
            pub compactions: u64,
            /// The session.
            pub session_id: $crate::ids::SessionId,
            $(#[$leaf])*
            pub leaf_id: Option<$crate::ids::EntryId>,
            /// The open circuit breaker of automatic compaction, if it is open.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub breaker: Option<$crate::context::info::Breaker>,
            /// Tokens by kind; they add up to `tokenCount`.
            pub breakdown: $crate::context::info::Breakdown,
        }
    };
}

pub(crate) use context_info;

context_info! {
    /// The size of the context; every number is finite.
    ContextInfo {},
    /// The session's leaf, from which it continues.
    #[serde(with = "crate::leaf")]
    #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
}

words! {
    /// The source of a request's token count.
    enum CountSource {
        /// The provider's report covers all of it.
        Reported,
        /// Estimated by the server.
        Estimated,
        /// Reported for the prefix, estimated for the rest.
        Mixed,
    }
}

open! {
    /// Tokens by kind; the kinds add up to the request's `tokenCount`.
    #[derive(Copy, Default, Eq)]
    struct Breakdown {
        /// The system prompt.
        system: u64,
        /// The tool definitions.
        tools: u64,
        /// The summary of what was compacted.
        summary: u64,
        /// The user's messages, including pending input.
        user: u64,
        /// The model's messages, including its tool calls.
        assistant: u64,
        /// The model's reasoning, if it is sent back.
        reasoning: u64,
        /// Tool results.
        tool_results: u64,
        /// Images.
        images: u64,
        /// Messages outside the cached prefix.
        uncached: u64,
    }
}

impl Breakdown {
    /// Returns the sum of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.system
            + self.tools
            + self.summary
            + self.user
            + self.assistant
            + self.reasoning
            + self.tool_results
            + self.images
            + self.uncached
    }
}

words! {
    /// The rule that decides when a compaction is due: the one with the smallest count.
    enum CompactAtRule {
        /// The threshold's share of the window.
        Threshold,
        /// The window minus `reserveTokens`, at most half of the window.
        ReserveTokens,
        /// The window minus the longest answer that `maxOutputTokens` allows, at most three quarters of the window.
        MaxOutputTokens,
        /// The window minus a reserve: 2 % of the window, at least 512 tokens and at most a fifth of the window.
        AnswerRoom,
    }
}

open! {
    /// The circuit breaker of automatic compaction: why it is open, and until when. A client may compact meanwhile,
    /// which closes the breaker if it saves enough.
    #[derive(Eq)]
    struct Breaker {
        /// The reason.
        reason: BreakerReason,
        /// Consecutive compactions that failed or saved too little.
        failures: u64,
        /// Automatic compaction is tried again from this time on.
        retry_at?: Timestamp,
        /// Automatic compaction is tried again once the next request has more tokens than this.
        retry_above_tokens?: u64,
        /// A sentence for the user.
        message: String,
    }
}

words! {
    /// The reason for an open circuit breaker.
    enum BreakerReason {
        /// Several consecutive compactions failed.
        Failures,
        /// Several consecutive compactions saved too little.
        NoGain,
        /// A compaction was undone: the restored messages stay until more is said.
        Undone,
    }
}
