//! The state of a session, for a client that joins it.

use reseed_protocol::{
    EntryId, TurnId,
    compaction::{CompactionPrepared, FailedCompaction, Pin, RunningCompaction},
    context::ContextInfo,
    session::{SessionSettings, SessionState},
    tools::{Approval, PendingCall, StandingApproval},
    turn::{EndedTurn, QueueItem, UnansweredTurn},
};

/// The state of a session, for a client that joins it.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The sequence number of the newest event included.
    pub seq: u64,
    /// The entry that the session continues from.
    pub leaf: Option<EntryId>,
    /// Its activity.
    pub state: SessionState,
    /// Number of times its loop was seeded.
    pub generation: u64,
    /// Its name; empty if it has none.
    pub name: String,
    /// Its model.
    pub model: String,
    /// Its strategy's short name.
    pub strategy: String,
    /// Its other settings.
    pub settings: SessionSettings,
    /// The window's usage.
    pub context_info: ContextInfo,
    /// The running turn.
    pub turn: Option<TurnId>,
    /// The last turn, if it can be retried.
    pub last_turn: Option<EndedTurn>,
    /// The newest turns that ended without an answer.
    pub unanswered_turns: Vec<UnansweredTurn>,
    /// The newest compactions that failed.
    pub failed_compactions: Vec<FailedCompaction>,
    /// The running compaction.
    pub compaction: Option<RunningCompaction>,
    /// The compaction that is held until it is due.
    pub held: Option<CompactionPrepared>,
    /// Queued inputs.
    pub queue: Vec<QueueItem>,
    /// Tool calls without an answer.
    pub pending: Vec<PendingCall>,
    /// Calls that a person must allow first.
    pub approvals: Vec<Approval>,
    /// Lasting answers to approvals.
    pub standing_approvals: Vec<StandingApproval>,
    /// Entries that every compaction keeps.
    pub pins: Vec<Pin>,
    /// Compactions that were undone.
    pub undone: Vec<EntryId>,
}
