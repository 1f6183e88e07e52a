//! The entry of a compaction, and how it came about.

use crate::{
    content::{NativeCompaction, Usage},
    context::PatchOp,
    ids::EntryId,
};
use serde_json::Value;

open! {
    /// A part of a compaction's summary: what the user said in a stretch of the session, word for word, and what the
    /// model wrote about the rest of it. Later compactions keep it byte for byte until it is merged with others.
    #[derive(Default, Eq)]
    struct SummarySegment {
        /// Its length within `summary`, in bytes of UTF-8. Segments follow one another without gaps.
        bytes: u64,
        /// The user's messages in it, oldest first; its text precedes the model's.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<SaidByUser>>"))]
        said: Vec<SaidByUser>,
    }

    /// A message of the user that a segment quotes word for word. A long one has a note in its middle.
    #[derive(Eq)]
    struct SaidByUser {
        /// Its entry; absent for a constraint that an older version had recorded.
        entry_id?: EntryId,
        /// The length of its text, in bytes of UTF-8.
        bytes: u64,
    }

    /// A compaction: nothing is deleted; the summary replaces the older entries in what the model sees.
    #[derive(Default)]
    struct Compaction {
        /// The summary, as the model will read it; empty if nothing was summarised.
        summary: String,
        /// The parts of the summary, oldest first; absent if it is one text that is rewritten as a whole, if a hook
        /// made it, and in older entries.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<SummarySegment>>"))]
        segments: Vec<SummarySegment>,
        /// The first entry kept verbatim; absent if none is.
        first_kept_entry_id?: EntryId,
        /// Older entries kept verbatim, placed between the summary and the first kept entry.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<EntryId>>"))]
        kept_entry_ids: Vec<EntryId>,
        /// Entries whose tool results are shown as a short note from here on.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<EntryId>>"))]
        cleared_entry_ids: Vec<EntryId>,
        /// Tokens of the next request before this compaction.
        tokens_before: u64,
        /// Tokens of the same request after it; absent in histories made elsewhere.
        tokens_after?: u64,
        /// Its trigger; absent in histories made elsewhere.
        trigger?: CompactionTrigger,
        /// Its duration in milliseconds; absent in histories made elsewhere.
        duration_ms?: u64,
        /// Files that the summarised part read and modified, as named by tools; accumulates over compactions.
        details?: CompactionDetails,
        /// The system prompt, the tools and the options after all patches before this compaction, so that earlier
        /// patches need not be read.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<PatchOp>>"))]
        carried_patch: Vec<PatchOp>,
        /// The form of the summary; absent if none was made, if a hook made it, and in older entries.
        form?: SummaryForm,
        /// The user's constraints, verbatim, as older versions recognised them. They are part of `summary`
        /// too. New entries have none, because the user's messages are kept as they are.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<String>>"))]
        constraints: Vec<String>,
        /// The hook that provided the summary, or named the model that made it.
        hook?: String,
        /// Data that the hook stores with it.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        hook_details?: Value,
        /// Characters of tool results, arguments and reasoning that no summary request contained, because the
        /// conversation did not fit into one request.
        #[serde(default, skip_serializing_if = "is_zero")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<u64>"))]
        left_out: u64,
        /// The fallback step that succeeded; absent in older histories and in those made elsewhere.
        rung?: CompactionRung,
        /// The steps before it that failed or saved too little.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<FailedRung>>"))]
        failed_rungs: Vec<FailedRung>,
        /// The retention of exact facts by the summary, in entries of older versions.
        retained?: Retained,
        /// The usage of the summary requests together.
        summary_usage?: Usage,
        /// True if the session offers the tools that search its history from here on: the text around the summary names
        /// them.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        history_tools: bool,
        /// The provider's own form of the summary, which its model is sent instead of the text.
        native?: NativeCompaction,
    }
}

words! {
    /// The form of a summary.
    #[derive(Default)]
    enum SummaryForm {
        /// The sections Goal, Constraints & Preferences, Progress, Key Decisions, Next Steps and Critical Context.
        #[default]
        Sections,
        /// A form of the model's own, or the one requested by instructions.
        Free,
    }
}

open! {
    /// Files used by the summarised part.
    #[derive(Default, Eq)]
    struct CompactionDetails {
        /// Files read and not modified, sorted.
        read_files: Vec<String>,
        /// Files written or edited, sorted.
        modified_files: Vec<String>,
    }
}

/// Returns true for a count that need not be written.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

open! {
    /// The retention of exact facts by a summary: paths, addresses, numbers, names, open tasks.
    #[derive(Copy, Eq, Default)]
    struct Retained {
        /// The number of facts checked.
        checked: u64,
        /// The number of facts that the summary had lost and that were restored verbatim.
        restored: u64,
    }

    /// A compaction step that failed or saved too little.
    #[derive(Eq)]
    struct FailedRung {
        /// The step.
        rung: CompactionRung,
        /// The reason, for programs: `too_little`, `not_smaller`, `empty`, `truncated`, `refused`, `malformed`,
        /// `continued` (the model answered the user instead), `copied` (it repeated the conversation), `timeout`, or an
        /// error code.
        reason: String,
    }
}

words! {
    /// The trigger of a compaction.
    enum CompactionTrigger {
        /// A client requested it.
        Manual,
        /// The next request would have been too large.
        Threshold,
        /// The provider refused a request as too large.
        Overflow,
        /// The strategy's own rule.
        Strategy,
    }

    /// The compaction step that succeeded, from gentle to drastic.
    enum CompactionRung {
        /// Old tool results were replaced by a short note; nothing was summarised.
        ClearToolResults,
        /// The model summarised it in one request.
        ModelSummary,
        /// The model summarised it in several pieces.
        ChunkedSummary,
        /// Facts were extracted by rule.
        Extract,
        /// The oldest entries were dropped.
        Truncate,
        /// A hook provided the summary.
        HookSummary,
        /// The provider made its own form of the summary; there is a readable text beside it.
        ProviderNative,
    }
}
