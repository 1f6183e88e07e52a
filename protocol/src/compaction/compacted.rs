//! The payload of `context_compacted`, once for each dialect: v1 has other names for the two counts.

use crate::context::Breakdown;
use serde::{Deserialize, Serialize};

/// Declares the payload with these names for the tokens before and after.
macro_rules! context_compacted {
    ($(#[$doc:meta])* $name:ident, $before:ident, $after:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
        #[cfg_attr(feature = "codegen", ts(optional_fields))]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// Tokens of the next request before.
            pub $before: u64,
            /// Tokens of the next request after.
            pub $after: u64,
            /// The reduction in percent, 0 to 100.
            pub reduction_percent: f64,
            /// The strategy: its short name on v2, its class-style name on v1.
            pub strategy: String,
            /// The job.
            pub job_id: $crate::ids::JobId,
            /// The command that requested it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub command_id: Option<$crate::ids::CommandId>,
            /// The compaction's entry.
            pub entry_id: $crate::ids::EntryId,
            /// The first entry kept verbatim.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub first_kept_entry_id: Option<$crate::ids::EntryId>,
            /// Older entries kept verbatim.
            pub kept_entry_ids: Vec<$crate::ids::EntryId>,
            /// Entries whose tool results are shown as a short note from now on.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<crate::ids::EntryId>>"))]
            pub cleared_entry_ids: Vec<$crate::ids::EntryId>,
            /// Its trigger.
            pub trigger: $crate::compaction::entry::CompactionTrigger,
            /// True if it was made in the background.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
            pub background: bool,
            /// The fallback step that succeeded.
            pub rung: $crate::compaction::entry::CompactionRung,
            /// The steps tried before, and why each failed or saved too little.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<crate::compaction::entry::FailedRung>>"))]
            pub failed_rungs: Vec<$crate::compaction::entry::FailedRung>,
            /// The summary.
            pub summary: String,
            /// Its form; absent if none was made, if a hook made it, and in older logs.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub form: Option<$crate::compaction::entry::SummaryForm>,
            /// The generation of the newly seeded loop.
            pub generation: u64,
            /// Its duration in milliseconds.
            pub duration_ms: u64,
            /// The time that a user waited for it, in milliseconds.
            pub paused_ms: u64,
            /// The usage of the summary requests together; absent if the model was not used.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub summary_usage: Option<$crate::content::Usage>,
            /// Tokens that the provider had cached and must process again.
            pub cached_tokens_lost: u64,
            /// The facts checked in the summary; only in older logs.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub retained: Option<$crate::compaction::entry::Retained>,
            /// The count above which the strategy compacts automatically; absent if it never does by count.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub compact_at_tokens: Option<u64>,
            /// Tokens by kind, before and after.
            pub breakdown: $crate::compaction::compacted::BreakdownChange,
        }
    };
    // Another dialect's payload is made from v2's.
    ($(#[$doc:meta])* $name:ident, $before:ident, $after:ident, from $v2:path) => {
        $crate::compaction::compacted::context_compacted! { $(#[$doc])* $name, $before, $after }

        impl From<$v2> for $name {
            fn from(compacted: $v2) -> Self {
                let $v2 {
                    tokens_before, tokens_after, reduction_percent, strategy, job_id, command_id, entry_id,
                    first_kept_entry_id, kept_entry_ids, cleared_entry_ids, trigger, background, rung, failed_rungs,
                    summary, form, generation, duration_ms, paused_ms, summary_usage, cached_tokens_lost, retained,
                    compact_at_tokens, breakdown,
                } = compacted;
                Self {
                    $before: tokens_before, $after: tokens_after, reduction_percent, strategy, job_id, command_id,
                    entry_id, first_kept_entry_id, kept_entry_ids, cleared_entry_ids, trigger, background, rung,
                    failed_rungs, summary, form, generation, duration_ms, paused_ms, summary_usage, cached_tokens_lost,
                    retained, compact_at_tokens, breakdown,
                }
            }
        }
    };
}

pub(crate) use context_compacted;

context_compacted! {
    /// Payload of `context_compacted`. Before and after are counted for the same pending request.
    ContextCompacted, tokens_before, tokens_after
}

open! {
    /// Tokens by kind, before and after.
    struct BreakdownChange {
        /// Before.
        before: Breakdown,
        /// After.
        after: Breakdown,
    }
}
