//! The order for a compaction, and its outcome.

use super::raw::Raw;
use reseed_protocol::{
    CommandId, EntryId, JobId, NativeCompaction, Usage,
    compaction::{
        CompactionDetails, CompactionRung, CompactionTrigger, FailedRung, SummaryForm, SummaryKind, SummarySegment,
    },
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The kind of request that asks for a summary.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SummaryRequest {
    /// [`Self::CachedPrefix`] if the session's own model summarises and its provider is known to cache, otherwise
    /// [`Self::Quoted`].
    #[default]
    Auto,
    /// Quotes the conversation as data in a separate request.
    Quoted,
    /// Appends the instruction to the request that the conversation would send, so that the provider's cache is used.
    CachedPrefix,
    /// Lets the session's provider compact in its own form, which its model is sent from then on. The readable text
    /// beside it is the provider's, or else a summary as with [`Self::Auto`].
    ProviderNative,
}

/// How summaries are written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Writing {
    /// A prompt that replaces the server's own.
    pub prompt: Option<Arc<str>>,
    /// The kind of conversation.
    pub kind: SummaryKind,
}

/// A request for a compaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// Its id on the wire.
    pub job_id: JobId,
    /// The reason for it.
    pub trigger: CompactionTrigger,
    /// The command that requested it, if any.
    pub command_id: Option<CommandId>,
    /// What the summary should focus on.
    pub instructions: Option<String>,
    /// True if the instructions replace ours: the summary has the requested form, and may lack our sections.
    pub free_form: bool,
    /// The strategy to use, by short name; `None` for the session's.
    pub strategy: Option<&'static str>,
    /// The history to summarise, instead of merging into the existing summary.
    pub rebuild: Option<Arc<Raw>>,
}

impl Order {
    /// Creates an order that the server gives itself.
    #[must_use]
    pub fn automatic(job_id: JobId, trigger: CompactionTrigger) -> Self {
        Self { job_id, trigger, command_id: None, instructions: None, free_form: false, strategy: None, rebuild: None }
    }
}

/// The outcome of a compaction, not yet compared with what it replaces. It names entries, so it applies to every later
/// context that still contains them. The log stores a held outcome, so a new field needs a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The summary, with the file lists; empty if nothing was summarised.
    pub summary: String,
    /// The summary's form, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<SummaryForm>,
    /// The parts of the summary, unless it is one text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<SummarySegment>,
    /// Characters of results, arguments and reasoning that no summary request contained.
    #[serde(default)]
    pub left_out: u64,
    /// The provider's own form of the summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Box<NativeCompaction>>,
    /// The step that produced it.
    pub rung: CompactionRung,
    /// The gentler steps that failed or saved too little.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedRung>,
    /// Files touched so far.
    pub details: CompactionDetails,
    /// The first entry kept verbatim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_kept: Option<EntryId>,
    /// Older entries kept verbatim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<EntryId>,
    /// Entries whose tool results are replaced with a short note.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cleared: Vec<EntryId>,
    /// Total usage of the summary requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Estimated tokens that the messages may have even above the target: those that the cut keeps, plus a summary
    /// within its bound.
    pub allowed_tokens: u64,
    /// Accepts any sufficient gain, even if the target is not met.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_gain: bool,
    /// The hook that supplied the summary or selected the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// The details that the hook stores with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_details: Option<serde_json::Value>,
}
