//! The state of a session at one moment.

use super::{Item, KnownEntries, Path};
use reseed_protocol::{
    CallId, ConnectionId, EntryId, JobId, SessionId, Timestamp, TurnId,
    compaction::{CompactionPrepared, CompactionTrigger, FailedCompaction, Pin, RunningCompaction},
    context::ContextInfo,
    session::{Host, Participant, SessionRole, SessionSettings, SessionState},
    tools::{Approval, PendingCall, StandingApproval, ToolCall, ToolPlace},
    turn::{EndedTurn, QueueItem, RequestDelayed, UnansweredTurn},
};

/// A session at one moment: the fold of its events. A position in the tree is `None` for the root, which precedes the
/// first entry.
///
/// [`Snapshot::opened`] creates one. [`Snapshot::apply`] and [`Snapshot::apply_ephemeral`] keep it up to date.
/// [`Snapshot::resume_point`] returns where to continue after the connection was lost.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The session.
    pub session_id: SessionId,
    /// The role of this connection.
    pub role: SessionRole,
    /// Identifies the log to which `seq` belongs.
    pub epoch: String,
    /// The last durable event in this snapshot.
    pub seq: u64,
    /// The activity of the session.
    pub state: SessionState,
    /// The session's name; empty if it has none.
    pub name: String,
    /// The model.
    pub model: String,
    /// The context strategy's short name.
    pub strategy: String,
    /// The other settings.
    pub settings: SessionSettings,
    /// The number of times that the agent loop was seeded.
    pub generation: u64,
    /// The size of the context.
    pub context_info: ContextInfo,
    /// A warning about the window, for people.
    pub warning: Option<String>,
    /// All known entries, on any branch.
    pub entries: KnownEntries,
    /// The path to the leaf, which is what to show.
    pub path: Path,
    /// The entry from which the session continues.
    pub leaf_id: Option<EntryId>,
    /// The running turn.
    pub turn: Option<Turn>,
    /// The wait before the turn's request is sent to the model server again. Present until the answer starts.
    pub delayed: Option<RequestDelayed>,
    /// Answers that are being written, and aborted ones until the next turn begins.
    pub items: Vec<Item>,
    /// The last turn, if it ended without an answer and nothing followed. `retry_turn` would retry it.
    pub last_turn: Option<EndedTurn>,
    /// The newest turns that ended without an answer, oldest first, each with its position in the history.
    pub unanswered_turns: Vec<UnansweredTurn>,
    /// The newest compactions that failed while somebody waited for them, oldest first.
    pub failed_compactions: Vec<FailedCompaction>,
    /// The running compaction, or the summary of an abandoned branch that is being written.
    pub compaction: Option<CompactionJob>,
    /// The compaction that was prepared and waits until it is due.
    pub held: Option<CompactionPrepared>,
    /// The compactions that were undone.
    pub undone: Vec<EntryId>,
    /// The entries that every compaction keeps verbatim.
    pub pins: Vec<Pin>,
    /// Queued inputs, the next one first.
    pub queue: Vec<QueueItem>,
    /// Tool calls without a result.
    pub pending: Vec<Call>,
    /// Tool calls that a person must allow first.
    pub approvals: Vec<Approval>,
    /// Lasting answers to approvals.
    pub standing_approvals: Vec<StandingApproval>,
    /// The connection that hosts the session's tools and hooks.
    pub host: Option<Host>,
    /// The connections that are subscribed to the session, in order of arrival.
    pub presence: Vec<Participant>,
    /// The newest event that the server has reported, which equals `seq` unless a replay is running. Events up to it do
    /// not override what only `session_opened` reported.
    pub(super) as_of_seq: u64,
}

impl Snapshot {
    /// Returns the running or aborted item with this id.
    #[must_use]
    pub fn item(&self, id: &EntryId) -> Option<&Item> {
        self.items.iter().find(|item| item.item_id() == id)
    }

    /// Returns the pending tool call with this id.
    #[must_use]
    pub fn call(&self, id: &CallId) -> Option<&Call> {
        self.pending.iter().find(|call| call.call_id == *id)
    }

    /// Returns true if this connection is the session's host.
    #[must_use]
    pub fn is_host(&self, connection_id: &ConnectionId) -> bool {
        self.host.as_ref().is_some_and(|host| host.connection_id == *connection_id && !host.away)
    }

    /// Recomputes `state`. A background compaction does not count as one.
    pub(super) fn update_state(&mut self) {
        let is_held_up = self.compaction.as_ref().is_some_and(|job| !job.background);
        self.state = match (&self.turn, is_held_up) {
            (Some(_), _) => SessionState::Running,
            (None, true) => SessionState::Compacting,
            (None, false) => SessionState::Idle,
        };
    }

    /// Takes over a new size of the context, and its warning. Events that report the size do this by themselves.
    pub fn measured(&mut self, context_info: ContextInfo) {
        self.warning.clone_from(&context_info.warning);
        self.context_info = context_info;
    }
}

/// A running turn.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Turn {
    /// The turn.
    pub turn_id: TurnId,
}

/// A tool call without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The call.
    pub call_id: CallId,
    /// Its turn.
    pub turn_id: TurnId,
    /// The tool.
    pub name: String,
    /// The arguments, as JSON text.
    pub arguments: String,
    /// When it fails if it is not answered.
    pub deadline: Timestamp,
    /// The side that runs it.
    pub place: ToolPlace,
    /// The activity that the tool reports.
    pub message: Option<String>,
}

impl From<PendingCall> for Call {
    fn from(pending: PendingCall) -> Self {
        let PendingCall { call_id, turn_id, name, arguments, deadline, place } = pending;
        Self { call_id, turn_id, name, arguments, deadline, place, message: None }
    }
}

impl From<ToolCall> for Call {
    fn from(call: ToolCall) -> Self {
        let ToolCall { call_id, turn_id, name, arguments, deadline, place } = call;
        Self { call_id, turn_id, name, arguments, deadline, place, message: None }
    }
}

/// A running compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionJob {
    /// The job.
    pub job_id: JobId,
    /// Its phase: `starting`, `ordered`, `summarising`, or `summarising_branch` for an abandoned branch.
    pub phase: String,
    /// What triggered it; `None` if this client was not told.
    pub trigger: Option<CompactionTrigger>,
    /// True if turns continue during it.
    pub background: bool,
    /// The number of finished steps.
    pub done: Option<u64>,
    /// The total number of steps.
    pub total: Option<u64>,
}

impl From<RunningCompaction> for CompactionJob {
    fn from(running: RunningCompaction) -> Self {
        let RunningCompaction { job_id, phase, background } = running;
        Self { job_id, phase, trigger: None, background, done: None, total: None }
    }
}
