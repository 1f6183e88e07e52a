//! A client's view as the protocol defines it: a fold. It takes the state received on joining, applies events in the
//! order of `seq`, and inserts streamed text at its offset. Written against the protocol, not against the server.

use crate::streamed::Streamed;
use reseed::internals::{ItemPosition, LeftOff};
use reseed_protocol::{
    Entry, EntryData, EntryId, TurnId,
    compaction::{FailedCompaction, Pin},
    content::utf16_len,
    event::{EphemeralEvent, Event},
    session::SessionSettings,
    tools::{Approval, PendingCall, StandingApproval},
    turn::{EndedTurn, QueueItem, TurnStatus, UnansweredTurn},
};
use std::collections::{BTreeMap, BTreeSet};

/// Failures of each kind that the server reports, according to the protocol.
const FAILURES_MAX: usize = 16;

/// A session's state, as a client knows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct View {
    pub(crate) epoch: String,
    pub(crate) seq: u64,
    pub(crate) leaf: Option<EntryId>,
    pub(crate) name: String,
    pub(crate) model: String,
    pub(crate) strategy: String,
    pub(crate) settings: Option<SessionSettings>,
    pub(crate) generation: u64,
    pub(crate) turn: Option<TurnId>,
    pub(crate) last_turn: Option<EndedTurn>,
    pub(crate) unanswered: Vec<UnansweredTurn>,
    pub(crate) failed: Vec<FailedCompaction>,
    pub(crate) queue: Vec<QueueItem>,
    pub(crate) pending: Vec<PendingCall>,
    pub(crate) approvals: Vec<Approval>,
    pub(crate) standing: Vec<StandingApproval>,
    pub(crate) pins: Vec<Pin>,
    pub(crate) undone: Vec<EntryId>,
    pub(crate) entries: BTreeMap<EntryId, Entry>,
    /// The answer being streamed, as far as it was shown.
    pub(crate) streamed: Option<Streamed>,
}

impl View {
    /// Folds a whole log.
    pub(crate) fn of(epoch: &str, events: &[Event]) -> Self {
        let mut view = Self { epoch: epoch.to_owned(), ..Self::default() };
        for event in events {
            view.apply(event);
        }
        view
    }

    /// Applies the next durable event.
    pub(crate) fn apply(&mut self, event: &Event) {
        self.seq += 1;
        match event {
            Event::EntryAppended(appended) => {
                let id = appended.entry.entry_id.clone();
                self.streamed.take_if(|streamed| streamed.item == id);
                self.leaf = Some(id.clone());
                if let EntryData::SessionInfo(info) = &appended.entry.data {
                    self.name.clone_from(&info.name);
                }
                self.entries.insert(id, appended.entry.clone());
            }
            Event::TurnStarted(started) => {
                self.turn = Some(started.turn_id.clone());
                self.last_turn = None;
            }
            Event::TurnFinished(finished) => {
                self.turn = None;
                self.streamed = None;
                self.pending.clear();
                self.approvals.clear();
                self.last_turn = (finished.status != TurnStatus::Completed).then(|| EndedTurn {
                    turn_id: finished.turn_id.clone(),
                    status: finished.status,
                    error: finished.error.clone(),
                });
                if finished.status != TurnStatus::Completed {
                    self.unanswered.push(UnansweredTurn {
                        turn_id: finished.turn_id.clone(),
                        status: finished.status,
                        error: finished.error.clone(),
                        leaf_id: self.leaf.clone(),
                    });
                    let surplus = self.unanswered.len().saturating_sub(FAILURES_MAX);
                    self.unanswered.drain(..surplus);
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
            Event::QueueItemAdded(added) => self.queue.insert(added.position as usize, added.item.clone()),
            Event::QueueItemRemoved(removed) => self.queue.retain(|item| item.command_id != removed.command_id),
            Event::QueueReordered(reordered) => {
                let place = |item: &QueueItem| reordered.order.iter().position(|id| *id == item.command_id);
                self.queue.sort_by_key(place);
            }
            Event::QueueReleased(_) => self.queue.iter_mut().for_each(|item| item.after = None),
            Event::QueueChanged(_) => unreachable!("only older servers wrote it"),
            Event::Unknown(event) => unreachable!("only newer servers write `{}`", event.name),
            Event::SessionUpdated(updated) => {
                let updated = (**updated).clone();
                self.name = updated.name.unwrap_or(std::mem::take(&mut self.name));
                self.model = updated.model.unwrap_or(std::mem::take(&mut self.model));
                self.strategy = updated.strategy.unwrap_or(std::mem::take(&mut self.strategy));
                self.settings = updated.settings.or(self.settings.take());
                self.pins = updated.pins.unwrap_or(std::mem::take(&mut self.pins));
                self.standing = updated.standing_approvals.unwrap_or(std::mem::take(&mut self.standing));
                if let Some(leaf) = updated.leaf_id {
                    if self.leaf != leaf {
                        self.last_turn = None;
                    }
                    self.leaf = leaf;
                }
                self.generation = updated.generation.unwrap_or(self.generation);
            }
            Event::ContextCompacted(compacted) => self.generation = compacted.generation,
            Event::CompactionFailed(failed) => {
                let ended = ["compaction_cancelled", "compaction_void", "nothing_to_compact"];
                if failed.background || failed.trigger.is_none() || ended.contains(&failed.error.code.as_str()) {
                    return;
                }
                self.failed.push(FailedCompaction {
                    job_id: failed.job_id.clone(),
                    error: failed.error.clone(),
                    leaf_id: self.leaf.clone(),
                });
                let surplus = self.failed.len().saturating_sub(FAILURES_MAX);
                self.failed.drain(..surplus);
            }
            Event::CompactionUndone(undone) => {
                self.generation = undone.generation;
                self.undone.push(undone.entry_id.clone());
            }
        }
    }

    /// Applies an ephemeral event.
    ///
    /// # Errors
    /// Text that does not continue where the text ends.
    pub(crate) fn decorate(&mut self, event: &EphemeralEvent) -> Result<(), String> {
        match event {
            EphemeralEvent::ItemStarted(started) => {
                let of_this = self.streamed.as_mut().and_then(|streamed| streamed.started(started));
                match of_this {
                    Some(outcome) => outcome?,
                    None => self.streamed = Some(Streamed::new(started.item_id.clone())),
                }
            }
            EphemeralEvent::ItemDelta(delta) => match &mut self.streamed {
                Some(streamed) => streamed.delta(delta)?,
                None => return Err(format!("text of `{}`, of which no beginning was given", delta.item_id)),
            },
            EphemeralEvent::ItemFinished(finished) => match &mut self.streamed {
                Some(streamed) => streamed.finished(finished)?,
                None => return Err(format!("the end of `{}`, of which no beginning was given", finished.item_id)),
            },
            EphemeralEvent::ItemAborted(aborted) => {
                self.streamed.take_if(|streamed| streamed.item == aborted.item_id);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the position from which a client with this view resumes.
    pub(crate) fn left_off(&self) -> LeftOff {
        let parts = self.streamed.iter().flat_map(|streamed| {
            streamed.parts.iter().map(|(at, part)| ItemPosition {
                item: streamed.item.clone(),
                part: *at,
                offset: utf16_len(part.text()),
            })
        });
        LeftOff { epoch: self.epoch.clone(), seq: self.seq, items: parts.collect() }
    }

    /// Returns the path to the leaf, oldest first, as far as its entries are known.
    pub(crate) fn path(&self) -> Vec<&Entry> {
        let mut path = Vec::new();
        let mut walked = BTreeSet::new();
        let mut next = self.leaf.as_ref();
        while let Some(entry) = next.and_then(|id| self.entries.get(id)).filter(|entry| walked.insert(&entry.entry_id))
        {
            path.push(entry);
            next = entry.parent_id.as_ref();
        }
        path.reverse();
        path
    }
}

/// Returns the first difference between two states, field by field; except for entries that one of them never received:
/// a client that joined late knows the path as it was then, and requests more when the session moves elsewhere.
pub(crate) fn difference(mine: &View, theirs: &View) -> Option<String> {
    let fields = |view: &View| {
        [
            ("seq", view.seq.to_string()),
            ("leaf", format!("{:?}", view.leaf)),
            ("epoch", view.epoch.clone()),
            ("name", view.name.clone()),
            ("model", view.model.clone()),
            ("strategy", view.strategy.clone()),
            ("settings", format!("{:?}", view.settings)),
            ("generation", view.generation.to_string()),
            ("turn", format!("{:?}", view.turn)),
            ("last turn", format!("{:?}", view.last_turn)),
            ("unanswered turns", format!("{:?}", view.unanswered)),
            ("failed compactions", format!("{:?}", view.failed)),
            ("queue", format!("{:?}", view.queue)),
            ("pending calls", format!("{:?}", view.pending)),
            ("approvals", format!("{:?}", view.approvals)),
            ("standing approvals", format!("{:?}", view.standing)),
            ("pins", format!("{:?}", view.pins)),
            ("undone compactions", format!("{:?}", view.undone)),
            ("streamed text", format!("{:?}", view.streamed)),
        ]
    };
    let differing = fields(mine).into_iter().zip(fields(theirs)).find(|(mine, theirs)| mine != theirs);
    let differing = differing.map(|((name, mine), (_, theirs))| format!("{name}: {mine}, not {theirs}"));
    let (mine, theirs) = (mine.path(), theirs.path());
    let shared = mine.len().min(theirs.len());
    let (mine, theirs) = (&mine[mine.len() - shared..], &theirs[theirs.len() - shared..]);
    differing.or((mine != theirs).then(|| "the path".to_owned()))
}
