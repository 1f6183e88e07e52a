//! Compactions that are made and not yet committed: what they were made from, and how the log keeps one that is held.

use super::{Order, Outcome, Wishes};
use crate::core::{
    context::Context,
    session::fingerprint::{chain, chained, fingerprint},
};
use reseed_protocol::{
    EntryId, JobId, Timestamp,
    event::{CompactionRung, CompactionTrigger, FailedRung, HeldCompaction},
};
use serde::{Deserialize, Serialize};

/// Why a finished compaction was made and what it had read: all that its [`Outcome`] needs to be committed later.
#[derive(Debug, Clone, PartialEq)]
pub struct Basis {
    /// What asked for it.
    pub order: Order,
    /// When it began.
    pub started_at: Timestamp,
    /// When it was finished, where it has waited since.
    pub ended_at: Option<Timestamp>,
    /// The compaction whose context was read.
    pub base: Option<EntryId>,
    /// The newest entry that was read, where it matters.
    pub last_read: Option<EntryId>,
    /// The ways that did not do.
    pub failed: Vec<FailedRung>,
    /// The summary is made anew: it need not gain anything.
    pub is_rebuild: bool,
    /// What its hooks wished.
    pub wishes: Wishes,
}

impl Basis {
    /// Milliseconds it took to make, until now or until it was finished.
    #[must_use]
    pub fn duration_ms(&self, now: Timestamp) -> u64 {
        self.ended_at.unwrap_or(now).millis_since(self.started_at)
    }
}

/// A compaction that is held: prepared early, committed at the trigger.
///
/// Invariant: it is the newest `session_updated.held` of the log, unless `context_compacted` or a `compaction_failed`
/// of its job follows, so a session that is read back holds the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// The job that prepared it.
    pub job_id: JobId,
    /// Why it was begun.
    pub trigger: CompactionTrigger,
    /// When it was begun.
    pub started_at: Timestamp,
    /// When it was finished.
    pub ended_at: Timestamp,
    /// The compaction whose context was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<EntryId>,
    /// What it has read stands before this entry, the first that it keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_before: Option<EntryId>,
    /// Where it keeps no tail: what it has read ends with this entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_read: Option<EntryId>,
    /// Fingerprint of the messages that it takes out or keeps one by one.
    pub read: String,
    /// Fingerprint of the settings that it was made with.
    pub settings: String,
    /// It was made from one that was held before: that is done once a cycle.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remade: bool,
    /// What its hooks wished. They are asked once, so it holds for one that is made from this, too.
    #[serde(default, skip_serializing_if = "Wishes::is_empty")]
    pub wishes: Wishes,
    /// What it came to.
    pub outcome: Outcome,
}

impl Held {
    /// Reads one from the log. `None` for a form that this version does not know.
    #[must_use]
    pub fn read_back(held: &HeldCompaction) -> Option<Self> {
        serde_json::from_value(held.record.clone()).ok()
    }

    /// The form in which the log keeps it.
    #[must_use]
    pub fn record(&self) -> HeldCompaction {
        let record = serde_json::to_value(self).expect("it has text keys and finite numbers");
        HeldCompaction { job_id: self.job_id.clone(), record }
    }

    /// What it was made from.
    #[must_use]
    pub fn basis(&self) -> Basis {
        Basis {
            order: Order::automatic(self.job_id.clone(), self.trigger),
            started_at: self.started_at,
            ended_at: Some(self.ended_at),
            base: self.base.clone(),
            last_read: self.last_read.clone(),
            failed: self.outcome.failed.clone(),
            is_rebuild: false,
            wishes: self.wishes.clone(),
        }
    }

    /// Whether it has a summary, and not only leaves something out.
    #[must_use]
    pub fn is_summary(&self) -> bool {
        !matches!(self.outcome.rung, CompactionRung::ClearToolResults | CompactionRung::Truncate)
    }

    /// Whether neither the model nor a hook was asked for it, so that making another costs nothing.
    #[must_use]
    pub fn is_free(&self) -> bool {
        use CompactionRung::{ClearToolResults, Extract, Truncate};
        let by_rule = matches!(self.outcome.rung, ClearToolResults | Extract | Truncate);
        by_rule && self.outcome.usage.is_none() && self.outcome.hook.is_none()
    }

    /// Whether what it has read is still what stands there.
    #[must_use]
    pub fn still_reads(&self, context: &Context) -> bool {
        read_key(context, self.read_before.as_ref(), self.last_read.as_ref()).as_ref() == Some(&self.read)
    }
}

/// Fingerprint of what the context says before one entry, or up to another. `None` where that entry is not there.
#[must_use]
pub fn read_key(context: &Context, before: Option<&EntryId>, last_read: Option<&EntryId>) -> Option<String> {
    let place = |id: &EntryId| context.messages.iter().position(|counted| counted.entry_id.as_ref() == Some(id));
    let read = match before {
        Some(before) => &context.messages[..place(before)?],
        None => &context.messages[..=place(last_read?)?],
    };
    let key = chained(read.iter().map(|counted| {
        let id = counted.entry_id.as_ref().map_or(0, |id| fingerprint(id.as_str().as_bytes()));
        chain(counted.hash, id)
    }));
    Some(format!("{key:016x}"))
}
