//! A compaction at work: stage, make, check, commit.
//!
//! A [`Job`] goes down a ladder of steps, gentle to drastic: clear old tool results, have the model summarise (in
//! pieces where one request would not hold it all), extract by rule, leave out. It offers what each step comes to;
//! whoever runs it counts that against the target and takes it, or has the job go on. Nothing of the session changes
//! until an [`Outcome`] is appended as one entry, so a crash, a cancel or a failure leaves the old context as it was.

mod asking;
pub(crate) mod carry;
mod held;
mod job;
mod raw;
#[cfg(test)]
mod retention;

pub use asking::{Asking, summary_tokens_max};
pub use held::{Basis, Held, read_key};
pub use job::{Given, Job, Next, Surroundings, Tried, Wishes};
pub use raw::Raw;

use reseed_protocol::{
    CommandId, EntryId, JobId, Usage,
    command::SummaryKind,
    entry::{CompactionDetails, SummaryForm},
    event::{CompactionRung, CompactionTrigger, FailedRung, Retained},
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where summaries are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SummaryRequest {
    /// [`Self::CachedPrefix`] where the session's own model summarises and its provider was seen to cache,
    /// [`Self::Quoted`] otherwise.
    #[default]
    Auto,
    /// The conversation goes in as quoted data, in a request of its own.
    Quoted,
    /// The instruction is appended to the request that the conversation would send, so that the provider's cache of it
    /// is used.
    CachedPrefix,
}

/// How summaries are written, as the deployment says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Writing {
    /// The form that is asked for.
    pub form: SummaryForm,
    /// A prompt that takes the place of the server's own.
    pub prompt: Option<Arc<str>>,
    /// What the conversation is about.
    pub kind: SummaryKind,
}

/// What asks for a compaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// Its name on the wire.
    pub job_id: JobId,
    /// Why.
    pub trigger: CompactionTrigger,
    /// The command that asked, if one did.
    pub command_id: Option<CommandId>,
    /// What the summary should dwell on.
    pub instructions: Option<String>,
    /// The instructions take the place of ours: the summary has the form that they ask for, and may lack our sections.
    pub free_form: bool,
    /// In whose way, by short name; absent for the session's strategy.
    pub strategy: Option<&'static str>,
    /// Summarise from these words, which were read from the history, instead of merging into the summary there is.
    pub rebuild: Option<Arc<Raw>>,
}

impl Order {
    /// An order that nobody but the server gave.
    #[must_use]
    pub fn automatic(job_id: JobId, trigger: CompactionTrigger) -> Self {
        Self { job_id, trigger, command_id: None, instructions: None, free_form: false, strategy: None, rebuild: None }
    }
}

/// What a compaction came to, not yet checked against what it replaces. It names entries, so it holds for every later
/// context that still has them. The log keeps one that is held, so a new field has a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The summary, with the lists of files; empty where nothing was summarised.
    pub summary: String,
    /// Its form, where one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<SummaryForm>,
    /// What the user said must or must not be, as far as it was summarised.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    /// How it was made.
    pub rung: CompactionRung,
    /// The gentler ways that did not do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedRung>,
    /// Files touched so far.
    pub details: CompactionDetails,
    /// The first entry kept word for word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_kept: Option<EntryId>,
    /// Older entries kept word for word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<EntryId>,
    /// Entries whose tool results are shown as a short note.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cleared: Vec<EntryId>,
    /// What the summary requests cost together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// How well the summary kept what is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained: Option<Retained>,
    /// The messages may have so many tokens in units of the estimate even where that is above the target: what the cut
    /// keeps, and a summary within its bound.
    pub allowed_tokens: u64,
    /// Any sufficient gain will do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_gain: bool,
    /// The hook whose summary this is, or that named the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// What it keeps with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_details: Option<serde_json::Value>,
}
