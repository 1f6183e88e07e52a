//! Compactions that are finished but not yet applied: what they were made from, and how the log stores a held one.

use super::order::{Order, Outcome};
use crate::{
    context::messages::Context,
    fingerprint::{chain, chained, fingerprint},
};
use reseed_protocol::{
    EntryId, JobId, Timestamp,
    compaction::{CompactionRung, CompactionTrigger, FailedRung, HeldCompaction},
};
use serde::{Deserialize, Serialize};

/// Why a finished compaction was made and what it read: everything besides its [`Outcome`] that is needed to apply it
/// later.
#[derive(Debug, Clone, PartialEq)]
pub struct Basis {
    /// The order for it.
    pub order: Order,
    /// When it started.
    pub started_at: Timestamp,
    /// When it finished, if it has waited since.
    pub ended_at: Option<Timestamp>,
    /// The compaction in effect in the context that was read.
    pub base: Option<EntryId>,
    /// The newest entry that was read, if it matters.
    pub last_read: Option<EntryId>,
    /// The compaction steps that failed or saved too little.
    pub failed: Vec<FailedRung>,
    /// True if it rebuilds the summary; it then need not save anything.
    pub is_rebuild: bool,
}

impl Basis {
    /// Returns the milliseconds from its start to its end, or to now.
    #[must_use]
    pub fn duration_ms(&self, now: Timestamp) -> u64 {
        self.ended_at.unwrap_or(now).millis_since(self.started_at)
    }
}

/// A held compaction: prepared early, applied at the trigger.
///
/// Invariant: it is the newest `session_updated.held` of the log, unless `context_compacted` or a `compaction_failed`
/// for its job follows, so a session read from the store holds the same one. Records of older versions have further
/// fields, which are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// The job that prepared it.
    pub job_id: JobId,
    /// What started it.
    pub trigger: CompactionTrigger,
    /// When it started.
    pub started_at: Timestamp,
    /// When it finished.
    pub ended_at: Timestamp,
    /// The compaction in effect in the context that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<EntryId>,
    /// The first kept entry; everything before it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_before: Option<EntryId>,
    /// The last entry that was read, if no tail is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_read: Option<EntryId>,
    /// Fingerprint of the messages that it removes or keeps one by one.
    pub read: String,
    /// Fingerprint of the settings it was made with.
    pub settings: String,
    /// True if it was due when it was finished: it is committed as it is.
    #[serde(rename = "remade", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_last: bool,
    /// Its outcome.
    pub outcome: Outcome,
}

impl Held {
    /// Parses the log's record. Returns `None` for a form that this version does not know.
    #[must_use]
    pub fn read_back(held: &HeldCompaction) -> Option<Self> {
        serde_json::from_value(held.record.clone()).ok()
    }

    /// Returns the record for the log.
    #[must_use]
    pub fn record(&self) -> HeldCompaction {
        let record = serde_json::to_value(self).expect("it has text keys and finite numbers");
        HeldCompaction { job_id: self.job_id.clone(), record }
    }

    /// Returns what it was made from.
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
        }
    }

    /// Returns true if it has a summary, rather than only leaving something out.
    #[must_use]
    pub fn is_summary(&self) -> bool {
        !matches!(self.outcome.rung, CompactionRung::ClearToolResults | CompactionRung::Truncate)
    }

    /// Returns true if what it read is unchanged.
    #[must_use]
    pub fn still_reads(&self, context: &Context) -> bool {
        read_key(context, self.read_before.as_ref(), self.last_read.as_ref()).as_ref() == Some(&self.read)
    }
}

/// Returns the fingerprint of the context before one entry, or up to another; `None` if that entry is missing.
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
