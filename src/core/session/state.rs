//! The state of a session: the fold of its log.
//!
//! A copy is stored so that opening a session does not read its whole log. The log is authoritative: a copy of another
//! version is discarded and folded again; a copy of an earlier `seq` is brought up to date with the records after it.
//!
//! The copy is small (see [`STATE_BYTES_MAX`]). Long texts from clients are not part of it and are read back from their
//! records: queued inputs, and the held compaction. All lists are bounded, except `undone`, which grows by one id with
//! each undo.

mod cost;
mod queue;
mod unseen;

pub use cost::Cost;
pub use queue::{Queued, QueuedAt};
pub use unseen::{Unseen, UnseenChange};

use super::input::is_message;
use crate::usage::add_usage;
use reseed_protocol::{
    CommandId, EntryData, EntryId, ErrorCode, JobId, Role, TurnId, Usage,
    compaction::{CompactionFailed, CompactionTrigger, FailedCompaction, Pin, StrategySettings},
    context::ContextInfo,
    event::Event,
    hooks::HookOffer,
    session::SessionSettings,
    tools::{Approval, PendingCall, StandingApproval},
    turn::{EndedTurn, TurnFinished, TurnStatus, UnansweredTurn},
};
use serde::{Deserialize, Serialize};

/// Version of the stored copy. A copy of another version is folded again from the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StateVersion(u32);

impl Default for StateVersion {
    /// Returns the version that this server writes.
    fn default() -> Self {
        Self(6)
    }
}

/// The size in bytes above which the copy is not stored with every append, but only at the end of a turn, where it is
/// needed next, and once per [`UNSTORED_RECORDS_MAX`] records. Most copies are smaller: about 600 bytes.
pub const STATE_BYTES_MAX: usize = 2 * 1024;

/// Maximum records after the stored copy. They are read and applied when the session is opened, which takes
/// milliseconds.
pub const UNSTORED_RECORDS_MAX: u64 = 1_000;

/// Maximum unanswered turns remembered. A chat has no use for older failures.
const UNANSWERED_TURNS_MAX: usize = 16;

/// Maximum failed compactions remembered, for the same reason.
const FAILED_COMPACTIONS_MAX: usize = 16;

/// After an undone compaction, the request may grow by this fraction of the window before the next compaction, because
/// a user who restored the old context wants to use it.
const REST_WINDOW_PART: u64 = 10;

/// A strategy with its settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Strategy {
    /// Its short name.
    pub name: String,
    /// The settings that differ from the deployment's.
    pub settings: Option<StrategySettings>,
}

/// The place of the held compaction in the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldAt {
    /// Sequence number of its record.
    pub seq: u64,
    /// The job that prepared it.
    pub job_id: JobId,
}

/// The state of a session. A new one leaves everything to the deployment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionState {
    /// Version of the stored form.
    pub version: StateVersion,
    /// Sequence number of the newest event applied.
    pub seq: u64,
    /// The session's name; empty if it has none.
    pub name: String,
    /// Its model.
    pub model: String,
    /// Its strategy's short name.
    pub strategy: String,
    /// Its other settings.
    pub settings: SessionSettings,
    /// The entry that the session continues from.
    pub leaf: Option<EntryId>,
    /// The number of times that its agent loop was seeded.
    pub generation: u64,
    /// The number of times that it was compacted.
    pub compactions: u64,
    /// Number of entries in its tree.
    pub entries: u64,
    /// Entries that every compaction keeps verbatim.
    pub pins: Vec<Pin>,
    /// Undone compactions: building the context skips them.
    pub undone: Vec<EntryId>,
    /// Automatic compaction ignores requests up to this many tokens, so that it does not remove what an undo restored.
    pub rest_tokens: Option<u64>,
    /// The held compaction, applied when it becomes due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldAt>,
    /// The client's required hooks that were in force when the running turn began and when the queued inputs were
    /// accepted. After a restart, neither continues unless these hooks are called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookOffer>,
    /// Changes since the newest answers that no entry shows. With them, a receipt can explain even after a restart why
    /// a request does not start like the previous one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<UnseenChange>,
    /// Cost of its requests.
    pub cost: Cost,
    /// Queued inputs. Stored as references to their records: see [`StoredState`].
    #[serde(serialize_with = "queue::refer", skip_deserializing)]
    pub queue: Vec<Queued>,
    /// Sequence number of the newest record in which older versions wrote a whole queue; 0 if there is none. Clients do
    /// not know these records, so they are not replayed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub whole_queue_seq: u64,
    /// The turn that is running.
    pub turn: Option<OpenTurn>,
    /// The last turn, if it ended without an answer and nothing was said since. A retry repeats this turn.
    pub last_turn: Option<EndedTurn>,
    /// The newest turns that ended without an answer, oldest first.
    pub unanswered_turns: Vec<UnansweredTurn>,
    /// The newest failed compactions that were waited for, oldest first.
    pub failed_compactions: Vec<FailedCompaction>,
    /// Tool calls without a result.
    pub pending: Vec<PendingCall>,
    /// Tool calls that a person must allow first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approval>,
    /// Standing approvals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub standing_approvals: Vec<StandingApproval>,
}

/// A turn that has started and not finished.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenTurn {
    /// The turn's id.
    pub turn_id: TurnId,
    /// The commands whose input it answers.
    pub command_ids: Vec<CommandId>,
    /// Number of answers so far.
    pub answers: u64,
    /// Summed usage of its requests.
    pub usage: Option<Usage>,
    /// True if the context was compacted since the last answer, so that one crossing of the threshold compacts once. A
    /// compaction that was prepared in the background does not count: it may have been planned before the input.
    pub compacted: bool,
    /// True if that compaction was made because the provider refused a request as too large.
    pub overflowed: bool,
}

/// A stored copy as it is read, with the queued inputs still in their records.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredState {
    state: SessionState,
    queue: Vec<QueuedAt>,
}

impl StoredState {
    /// Reads a stored copy; `None` if it is damaged or of another version.
    #[must_use]
    pub fn read(json: &str) -> Option<Self> {
        #[derive(Deserialize)]
        struct References {
            queue: Vec<QueuedAt>,
        }
        let state: SessionState = serde_json::from_str(json).ok()?;
        let References { queue } = serde_json::from_str(json).ok()?;
        (state.version == StateVersion::default()).then_some(Self { state, queue })
    }

    /// Returns the sequence number of the newest event applied.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.state.seq
    }

    /// Returns the records that hold its queued inputs, in the order of the queue.
    #[must_use]
    pub fn queue(&self) -> &[QueuedAt] {
        &self.queue
    }

    /// Returns the state with these queued inputs.
    #[must_use]
    pub fn with_queue(self, queue: Vec<Queued>) -> SessionState {
        SessionState { queue, ..self.state }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(seq: &u64) -> bool {
    *seq == 0
}

impl SessionState {
    /// Applies one event of the log, in order.
    pub fn apply(&mut self, event: &Event) {
        self.seq += 1;
        match event {
            Event::EntryAppended(appended) => {
                self.entries += 1;
                if appended.entry.parent_id != self.leaf {
                    unseen::changed(&mut self.unseen, Unseen::Navigation, self.turn.is_some());
                }
                self.leaf = Some(appended.entry.entry_id.clone());
                if let EntryData::SessionInfo(info) = &appended.entry.data {
                    self.name.clone_from(&info.name);
                }
                self.cost.pay(appended);
                unseen::answered(&mut self.unseen, &appended.entry.data);
                let Some(turn) = &mut self.turn else { return };
                if is_message(&appended.entry) {
                    // A new message in a running turn may make its request too large again.
                    turn.compacted = false;
                    turn.overflowed = false;
                }
                let EntryData::Message(message) = &appended.entry.data else { return };
                if message.role != Role::Assistant {
                    return;
                }
                turn.answers += 1;
                if let Some(usage) = &message.usage {
                    turn.usage = Some(add_usage(turn.usage.take(), usage));
                }
            }
            Event::TurnStarted(started) => {
                self.last_turn = None;
                self.turn = Some(OpenTurn {
                    turn_id: started.turn_id.clone(),
                    command_ids: started.command_ids.clone(),
                    answers: 0,
                    usage: None,
                    compacted: false,
                    overflowed: false,
                });
            }
            Event::TurnFinished(finished) => {
                self.turn = None;
                self.pending.clear();
                self.approvals.clear();
                self.last_turn = (finished.status != TurnStatus::Completed).then(|| EndedTurn {
                    turn_id: finished.turn_id.clone(),
                    status: finished.status,
                    error: finished.error.clone(),
                });
                self.remember_unanswered(finished);
                if let Some(usage) = &finished.withheld_usage {
                    self.cost.add(Some(usage));
                }
            }
            Event::ToolCall(call) => self.pending.push(PendingCall {
                call_id: call.call_id.clone(),
                turn_id: call.turn_id.clone(),
                name: call.name.clone(),
                arguments: call.arguments.clone(),
                deadline: call.deadline,
                place: call.place,
            }),
            Event::ApprovalRequest(approval) => self.approvals.push((**approval).clone()),
            Event::CallResolved(resolved) => match &resolved.approval_id {
                Some(decided) => self.approvals.retain(|approval| approval.approval_id != *decided),
                None => self.pending.retain(|call| call.call_id != resolved.call_id),
            },
            Event::QueueItemAdded(_)
            | Event::QueueItemRemoved(_)
            | Event::QueueReordered(_)
            | Event::QueueReleased(_) => queue::apply(&mut self.queue, self.seq, event),
            Event::QueueChanged(_) => {
                self.whole_queue_seq = self.seq;
                queue::apply(&mut self.queue, self.seq, event);
            }
            Event::SessionUpdated(updated) => {
                if let Some(name) = &updated.name {
                    self.name.clone_from(name);
                }
                if let Some(model) = &updated.model {
                    self.model.clone_from(model);
                }
                if let Some(strategy) = &updated.strategy {
                    // A session's first record names its initial strategy.
                    if self.strategy != *strategy && !self.strategy.is_empty() {
                        unseen::changed(&mut self.unseen, Unseen::Strategy(strategy.clone()), self.turn.is_some());
                    }
                    self.strategy.clone_from(strategy);
                }
                if let Some(settings) = &updated.settings {
                    self.settings.clone_from(settings);
                }
                if let Some(pins) = &updated.pins {
                    unseen::changed(&mut self.unseen, Unseen::Pins, self.turn.is_some());
                    self.pins.clone_from(pins);
                }
                if let Some(standing) = &updated.standing_approvals {
                    self.standing_approvals.clone_from(standing);
                }
                if let Some(hooks) = &updated.hooks {
                    self.hooks.clone_from(hooks);
                }
                if let Some(leaf) = &updated.leaf_id {
                    if self.leaf != *leaf {
                        unseen::changed(&mut self.unseen, Unseen::Navigation, self.turn.is_some());
                        // The turn that a retry would repeat was on another branch.
                        self.last_turn = None;
                    }
                    self.leaf.clone_from(leaf);
                }
                if let Some(generation) = updated.generation {
                    self.generation = generation;
                }
                if let Some(held) = &updated.held {
                    self.held = Some(HeldAt { seq: self.seq, job_id: held.job_id.clone() });
                }
            }
            Event::ContextCompacted(compacted) => {
                self.compactions += 1;
                self.generation = compacted.generation;
                self.rest_tokens = None;
                self.held = None;
                if let Some(usage) = &compacted.summary_usage {
                    self.cost.add(Some(usage));
                }
                if let Some(turn) = &mut self.turn {
                    turn.compacted |= !compacted.background;
                    turn.overflowed |= compacted.trigger == CompactionTrigger::Overflow;
                }
            }
            Event::CompactionFailed(failed) => {
                self.held.take_if(|held| held.job_id == failed.job_id);
                self.remember_failed(failed);
            }
            Event::CompactionUndone(undone) => {
                self.undone.push(undone.entry_id.clone());
                self.generation = undone.generation;
                self.rest_tokens = Some(rest_after_undo(&undone.context_info));
            }
            // This version does not open a log that contains one: see `runtime/load.rs`.
            Event::Unknown(_) => {}
        }
    }

    /// Remembers a compaction that failed while it was waited for. A failed compaction without a trigger is a branch
    /// summary, whose failure is reported in the reply to the move.
    fn remember_failed(&mut self, failed: &CompactionFailed) {
        let ended = matches!(
            failed.error.code,
            ErrorCode::CompactionCancelled | ErrorCode::CompactionVoid | ErrorCode::NothingToCompact
        );
        if failed.background || failed.trigger.is_none() || ended {
            return;
        }
        self.failed_compactions.push(FailedCompaction {
            job_id: failed.job_id.clone(),
            error: failed.error.clone(),
            leaf_id: self.leaf.clone(),
        });
        let surplus = self.failed_compactions.len().saturating_sub(FAILED_COMPACTIONS_MAX);
        self.failed_compactions.drain(..surplus);
    }

    fn remember_unanswered(&mut self, finished: &TurnFinished) {
        if finished.status == TurnStatus::Completed {
            return;
        }
        self.unanswered_turns.push(UnansweredTurn {
            turn_id: finished.turn_id.clone(),
            status: finished.status,
            error: finished.error.clone(),
            leaf_id: self.leaf.clone(),
        });
        let surplus = self.unanswered_turns.len().saturating_sub(UNANSWERED_TURNS_MAX);
        self.unanswered_turns.drain(..surplus);
    }
}

/// Returns the token count up to which automatic compaction stays off after an undo.
#[must_use]
pub fn rest_after_undo(info: &ContextInfo) -> u64 {
    info.token_count.saturating_add(info.max_tokens / REST_WINDOW_PART)
}
