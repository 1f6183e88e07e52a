//! The size of a context, once for each dialect: v1 has one field more, and `null` for the root.

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
            /// The window that was learnt from the model's server, if `maxTokens` is that one: it is smaller than what
            /// is configured or listed. `set_model`, also with the same model, forgets it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub learned_window_tokens: Option<u64>,
            /// The strategy: its short name on v2, its class-style name on v1.
            pub strategy: String,
            /// A sentence for the user, from 90 % on.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub warning: Option<String>,
            /// `tokenCount / maxTokens`, not clamped.
            pub usage_ratio: f64,
            /// The source of `tokenCount`.
            pub source: $crate::context::CountSource,
            /// The part of `tokenCount` that the provider reported.
            pub usage_tokens: u64,
            /// The part of `tokenCount` that is estimated for what came after the report.
            pub trailing_tokens: u64,
            /// The entry whose report was used.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub last_usage_entry_id: Option<$crate::EntryId>,
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
            pub compact_at_rule: Option<$crate::context::CompactAtRule>,
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
            pub session_id: $crate::SessionId,
            $(#[$leaf])*
            pub leaf_id: Option<$crate::EntryId>,
            /// The open circuit breaker of automatic compaction, if it is open.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub breaker: Option<$crate::context::Breaker>,
            /// Tokens by kind; they add up to `tokenCount`.
            pub breakdown: $crate::context::Breakdown,
        }
    };
}

pub(crate) use context_info;
