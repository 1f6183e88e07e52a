//! The commands, replies and events of compactions.

use super::entry::{CompactionRung, CompactionTrigger, FailedRung, Retained, SummaryForm};
use crate::{
    content::Usage,
    context::ContextInfo,
    error::ErrorBody,
    ids::{CommandId, EntryId, JobId},
    time::Timestamp,
};

closed! {
    /// Payload of `start_compaction`.
    #[derive(Default)]
    struct StartCompaction {
        /// The focus of the summary, or with `replaceInstructions` its whole prompt. At most 16 KiB, and at most a
        /// quarter of the summary model's window; more is refused.
        instructions?: String,
        /// Replaces the server's own instructions for a summary, including its form, with `instructions` instead of
        /// adding to them. Every summary request still says which part to summarise, that the conversation is data, and
        /// the maximum number of words.
        replace_instructions?: bool,
        /// Applies exactly the compaction of this preview. No other field is allowed with it.
        preview_id?: JobId,
        /// Uses this strategy once; absent: the session's, or a summary if that is `manual`.
        strategy?: String,
        /// Builds the summary from the original entries instead of merging into the existing one.
        rebuild?: bool,
    }

    /// Payload of `preview_compaction`, with fields as in `start_compaction`.
    #[derive(Default)]
    struct PreviewCompaction {
        /// The focus of the summary, or with `replaceInstructions` its whole prompt. At most 16 KiB, and at most a
        /// quarter of the summary model's window; more is refused.
        instructions?: String,
        /// Replaces the server's own instructions for a summary, including its form, with `instructions` instead of
        /// adding to them. Every summary request still says which part to summarise, that the conversation is data, and
        /// the maximum number of words.
        replace_instructions?: bool,
        /// Uses this strategy; absent: the session's.
        strategy?: String,
        /// Builds the summary from the original entries.
        rebuild?: bool,
    }

    /// Payload of `cancel_compaction`.
    struct CancelCompaction {
        /// The compaction; absent for the running one.
        job_id?: JobId,
    }

    /// Payload of `undo_compaction`.
    #[derive(Default)]
    struct UndoCompaction {
        /// The compaction's entry; absent for the one in effect.
        entry_id?: EntryId,
    }

    /// Payload of `pin_entry` and `unpin_entry`.
    struct PinEntry {
        /// The entry: a message, or a client's message. A tool's result and its call are pinned together.
        entry_id: EntryId,
    }
}

open! {
    /// Payload of `compaction_preview`: what `start_compaction { previewId }` would do.
    struct CompactionPreview {
        /// Identifies it in `start_compaction`.
        preview_id: JobId,
        /// The time at which it expires.
        expires_at: Timestamp,
        /// The summary; empty if nothing would be summarised.
        summary: String,
        /// Its form; absent if none would be made, and if a hook made it.
        form?: SummaryForm,
        /// The fallback step that succeeded.
        rung: CompactionRung,
        /// The steps tried before, and why each failed or saved too little.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<FailedRung>>"))]
        failed_rungs: Vec<FailedRung>,
        /// The first entry to be kept; absent if none would be.
        first_kept_entry_id?: EntryId,
        /// Older entries to be kept verbatim.
        kept_entry_ids: Vec<EntryId>,
        /// Entries whose tool results would be shown as a short note.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<EntryId>>"))]
        cleared_entry_ids: Vec<EntryId>,
        /// The messages that the model would no longer see.
        dropped: Stretch,
        /// The messages that it would still see, without the summary.
        kept: Stretch,
        /// Tokens of the next request.
        tokens_before: u64,
        /// Tokens of the same request after the compaction.
        tokens_after: u64,
        /// The facts checked in the summary; only from older servers.
        retained?: Retained,
        /// The usage of the summary requests; absent if the model was not used.
        summary_usage?: Usage,
    }

    /// Some messages of a context.
    #[derive(Default)]
    struct Stretch {
        /// The number of messages.
        count: u64,
        /// Their tokens.
        tokens: u64,
        /// The first one's entry.
        from?: EntryId,
        /// The last one's entry.
        to?: EntryId,
    }

    /// A compaction that is running.
    struct RunningCompaction {
        /// The job.
        job_id: JobId,
        /// Its phase.
        phase: String,
        /// True if turns continue meanwhile.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        background: bool,
    }

    /// A failed compaction, with its position in the history.
    struct FailedCompaction {
        /// The job.
        job_id: JobId,
        /// The error.
        error: ErrorBody,
        /// The newest entry when it failed.
        #[serde(with = "crate::leaf")]
        #[cfg_attr(feature = "codegen", schemars(with = "crate::leaf::LeafId"), ts(as = "crate::leaf::LeafId"))]
        leaf_id: Option<EntryId>,
    }

    /// An entry that every compaction keeps verbatim.
    #[derive(Eq)]
    struct Pin {
        /// The entry.
        entry_id: EntryId,
        /// The entry that was pinned, if this one only accompanies it: a tool result with its call.
        with?: EntryId,
        /// The compaction that had removed it from the context when it was pinned; absent if the model saw it.
        under?: EntryId,
    }

    /// Payload of `compaction_started`.
    struct CompactionStarted {
        /// The job.
        job_id: JobId,
        /// Its trigger.
        trigger: CompactionTrigger,
        /// True if turns continue meanwhile.
        background: bool,
    }

    /// Payload of `compaction_progress`.
    struct CompactionProgress {
        /// The job.
        job_id: JobId,
        /// Its phase: `summarising`, or `summarising_branch` for an abandoned branch.
        phase: String,
        /// Steps done.
        done: u64,
        /// Total steps.
        total: u64,
    }

    /// Payload of `compaction_prepared`. Nothing has changed yet: the next request is the same.
    struct CompactionPrepared {
        /// The job. `context_compacted` names it when it is committed, `compaction_failed` when it is dropped.
        job_id: JobId,
        /// Its trigger.
        trigger: CompactionTrigger,
        /// The fallback step that succeeded.
        rung: CompactionRung,
        /// Tokens of the next request.
        tokens_before: u64,
        /// Tokens of the next request if it were committed now.
        tokens_after: u64,
        /// It is committed before the first request with more tokens than this; absent if the strategy never compacts
        /// by count.
        compact_at_tokens?: u64,
        /// Its duration in milliseconds.
        duration_ms: u64,
        /// The usage of the summary requests together; absent if the model was not used.
        summary_usage?: Usage,
    }

    /// Payload of `compaction_failed`.
    struct CompactionFailed {
        /// The job.
        job_id: JobId,
        /// The command that requested it.
        command_id?: CommandId,
        /// Its trigger; absent for the summary of an abandoned branch.
        trigger?: CompactionTrigger,
        /// True if it started in the background.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<bool>"))]
        background: bool,
        /// The steps that were tried, and why each failed or saved too little.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        #[cfg_attr(feature = "codegen", ts(as = "Option<Vec<FailedRung>>"))]
        failed_rungs: Vec<FailedRung>,
        /// Its duration in milliseconds; 0 if it had not started.
        #[serde(default)]
        duration_ms: u64,
        /// The time that a user waited for it, in milliseconds.
        #[serde(default)]
        paused_ms: u64,
        /// The usage of its summary requests together, if a held compaction is dropped.
        summary_usage?: Usage,
        /// The error.
        error: ErrorBody,
    }

    /// Payload of `compaction_undone`.
    struct CompactionUndone {
        /// The compaction's entry.
        entry_id: EntryId,
        /// The command that requested it.
        command_id?: CommandId,
        /// The generation of the newly seeded loop.
        generation: u64,
        /// The size of the context.
        context_info: ContextInfo,
    }

    /// A prepared compaction that is not yet committed, as stored in the log.
    struct HeldCompaction {
        /// The job that prepared it.
        job_id: JobId,
        /// The server's data for the commit. Its form is internal and may change.
        #[cfg_attr(feature = "codegen", ts(type = "unknown"))]
        record: serde_json::Value,
    }
}
