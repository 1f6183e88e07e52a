//! Commands about what the model sees: how full it is, how it is compacted, what stays in it.

use crate::{EntryId, JobId};
use serde::{Deserialize, Serialize};

payloads! {
    /// Payload of `get_context`.
    struct GetContext {
        /// `envelope` (the default) or `markdown`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        format: Option<ContextFormat>,
        /// Whether to include what hooks last added for one request only; looking asks no hook.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ephemeral: Option<bool>,
    }

    /// Payload of `manual_compact`.
    #[derive(Default)]
    struct ManualCompact {
        /// What the summary should dwell on, or with `replaceInstructions` the whole prompt for it. At most 16 KiB, and at
        /// most a quarter of the window of the model that summarises; more is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<String>,
        /// Whether `instructions` take the place of the server's own prompt rather than being added to it. The summary then
        /// has the form that they ask for, and nothing is put back into it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replace_instructions: Option<bool>,
        /// Apply exactly the compaction that this preview showed. Nothing else may be given with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        preview_id: Option<JobId>,
        /// Compact in this strategy's way, this once; absent: in that of the session, by a summary where it is `manual`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strategy: Option<String>,
        /// Summarise everything anew from the entries themselves instead of merging into the summary there is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rebuild: Option<bool>,
    }

    /// Payload of `preview_compact`: as those of `manual_compact`.
    #[derive(Default)]
    struct PreviewCompact {
        /// What the summary should dwell on, or with `replaceInstructions` the whole prompt for it. At most 16 KiB, and at
        /// most a quarter of the window of the model that summarises; more is refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instructions: Option<String>,
        /// Whether `instructions` take the place of the server's own prompt rather than being added to it. The summary then
        /// has the form that they ask for, and nothing is put back into it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replace_instructions: Option<bool>,
        /// Compact in this strategy's way; absent: in that of the session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strategy: Option<String>,
        /// Summarise everything anew from the entries themselves.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rebuild: Option<bool>,
    }

    /// Payload of `cancel_compaction`.
    struct CancelCompaction {
        /// The compaction; absent for the running one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        job_id: Option<JobId>,
    }

    /// Payload of `undo_compaction`.
    #[derive(Default)]
    struct UndoCompaction {
        /// The compaction's entry; absent for the one that is in effect.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        entry_id: Option<EntryId>,
    }

    /// Payload of `pin_entry` and `unpin_entry`.
    struct PinEntry {
        /// The entry: something said, or a client's message. A tool's answer and its call go together.
        entry_id: EntryId,
    }

    /// Payload of `set_context_strategy`.
    struct SetContextStrategy {
        /// `threshold`, `manual` (also `dummy`, `none`), `sliding_window`, `tool_results`, `truncate`, `importance` or
        /// `pipeline`.
        strategy: String,
        /// The strategy's settings; what is absent stays at the deployment's default.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        settings: Option<StrategySettings>,
    }

    /// Settings of the strategies. Each reads those that concern it.
    #[derive(Default)]
    struct StrategySettings {
        /// Compact when more than this share of the window is used; 0 to 1. The room for an answer can be used up earlier.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        threshold: Option<f64>,
        /// Compact when less than this many tokens are free for an answer; at most half of the window counts. Absent:
        /// `maxOutputTokens` of `set_options`, at most three quarters of the window, or else 2 % of the window, at
        /// least 512 tokens and at most a fifth.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reserve_tokens: Option<u64>,
        /// About how many recent tokens stay word for word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keep_recent_tokens: Option<u64>,
        /// A compaction gets down to this share of the window, and to three quarters of the count at which it is due where
        /// that is less; above 0, at most 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        target: Option<f64>,
        /// From this share of the trigger on a compaction is prepared while turns go on; 1 for never.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        background: Option<f64>,
        /// A compaction saves at least this share of the request; 0 to 0.9.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        min_gain: Option<f64>,
        /// `sliding_window` keeps so many of the newest turns; at least 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keep_turns: Option<u64>,
        /// So many of the newest tool results are never cleared.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        keep_tool_results: Option<u64>,
        /// Whether `importance` summarises what it takes out; otherwise it is dropped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summarise: Option<bool>,
        /// The strategies of a `pipeline`, gentle to drastic.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        steps: Option<Vec<String>>,
        /// What the conversation is about, which decides what a summary must keep.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary_kind: Option<SummaryKind>,
    }
}

/// What a conversation is about, which decides what its summary must keep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum SummaryKind {
    /// Recognised from tools, files, code and errors, anew for each summary.
    #[default]
    Auto,
    /// People and what they tell.
    Chat,
    /// Work on code: files, symbols, signatures, decisions.
    Code,
    /// The search for a fault: symptoms, hypotheses ruled out, reproduction, exact errors.
    Debugging,
    /// Reading: sources, claims, open questions.
    Research,
}

/// How `get_context` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "codegen", derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ContextFormat {
    /// The envelope as JSON.
    Envelope,
    /// The envelope as text to read.
    Markdown,
}
