//! The course of one turn: what a dialect tells its client, in order and without overlap.

use super::chain::is_input;
use reseed_client::{SessionEvent, fold::Snapshot};
use reseed_protocol::{
    Entry, EntryId, ErrorBody, ErrorCode, FurtherUsage, Role, StopReason, TurnId, Usage, UsageSource,
    compaction::ContextCompacted,
    content::utf16_len,
    event::{EphemeralEvent, Event},
    tools::Approval,
    turn::{DeltaKind, ItemDelta, RequestDelayed, RunningPart, TurnStatus},
};
use std::collections::{HashMap, HashSet, VecDeque, hash_map::Entry as Slot};

/// A step of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A part of an answer starts: a text, reasoning, or a call of this tool.
    Started {
        /// The entry that the answer will be.
        item: EntryId,
        /// The part of it.
        part: u32,
        /// The kind of part.
        kind: DeltaKind,
        /// The tool; for a call.
        name: Option<String>,
    },
    /// More text of a part that has started.
    Delta(Delta),
    /// The answer that was shown so far will not become an entry.
    Aborted(EntryId),
    /// An entry of the turn. Texts of an answer that were not shown before are in it.
    Entry(Box<Entry>),
    /// The model server is asked again after a wait.
    Delayed(RequestDelayed),
    /// A compaction.
    Compaction(Compaction),
    /// A person must allow a call. The turn waits.
    Approval(Box<Approval>),
    /// The turn has ended.
    Finished(Box<Ended>),
    /// The turn can no longer be followed. It may still be running.
    Failed(ErrorBody),
}

/// More text of a part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// The entry that the answer will be.
    pub item: EntryId,
    /// The part of it.
    pub part: u32,
    /// The kind of part.
    pub kind: DeltaKind,
    /// The place of the text, in UTF-16 code units.
    pub offset: u64,
    /// The text.
    pub text: String,
}

/// A compaction of the session, while the turn runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Compaction {
    /// It has started, and the turn waits for it unless it runs in the background.
    Started {
        /// True if the turn goes on meanwhile.
        background: bool,
    },
    /// It has done so many of its steps, and the turn waits.
    Progress {
        /// Steps done.
        done: u64,
        /// Total steps.
        total: u64,
    },
    /// It was committed. The event has the size of the context before and after.
    Committed(Box<ContextCompacted>),
    /// It failed, and the context is unchanged.
    Failed(ErrorBody),
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// How it ended.
    pub status: TurnStatus,
    /// Why the last answer ended.
    pub finish_reason: Option<StopReason>,
    /// The error, if it failed.
    pub error: Option<ErrorBody>,
    /// The tokens of its requests together.
    pub usage: Option<Usage>,
}

/// Follows one turn.
#[derive(Debug, Default)]
pub(super) struct Course {
    turn: Option<TurnId>,
    /// The entry of the input, or the last entry of the answer that was passed on.
    last: Option<EntryId>,
    passed_on: HashSet<EntryId>,
    /// The UTF-16 code units of each part that were passed on.
    units: HashMap<(EntryId, u32), u64>,
    approvals: HashSet<String>,
    ready: VecDeque<Step>,
    is_over: bool,
    /// True if compactions are passed on without a turn.
    watches: bool,
}

impl Course {
    /// Passes on compactions, whether a turn is followed or not.
    pub(super) fn watch(&mut self) {
        self.watches = true;
    }

    /// Takes the next step that is ready.
    pub(super) fn take(&mut self) -> Option<Step> {
        self.ready.pop_front()
    }

    /// Follows this turn from its beginning.
    pub(super) fn follow(&mut self, turn: TurnId, input: Option<&EntryId>) {
        *self = Self { turn: Some(turn), last: input.cloned(), ..Self::default() };
    }

    /// Follows the answer to an input from its stored entries on. A turn that is over has no others.
    pub(super) fn resume(&mut self, snapshot: &Snapshot, input: &EntryId, entries: Vec<Entry>) {
        *self = Self { last: Some(input.clone()), ..Self::default() };
        let last = entries.last().map_or(input, |entry| &entry.entry_id).clone();
        let running = snapshot.turn.as_ref().filter(|_| snapshot.leaf_id.as_ref() == Some(&last));
        self.turn = running.map(|turn| turn.turn_id.clone());
        self.catch_up(snapshot, entries);
        if self.turn.is_none() && !self.is_over {
            let usage = usage_of(self.passed_entries());
            let unanswered = snapshot.unanswered_turns.iter().find(|turn| turn.leaf_id.as_ref() == Some(&last));
            let ended = match unanswered {
                Some(turn) => Ended { status: turn.status, finish_reason: None, error: turn.error.clone(), usage },
                None => self.stored_end(usage),
            };
            self.end(ended);
        }
    }

    fn passed_entries(&self) -> impl Iterator<Item = &Entry> {
        self.ready.iter().filter_map(|step| match step {
            Step::Entry(entry) => Some(&**entry),
            _ => None,
        })
    }

    /// Returns how a turn ended, judged by its entries.
    fn stored_end(&self, usage: Option<Usage>) -> Ended {
        let answer =
            self.passed_entries().filter_map(Entry::message).filter(|said| said.role == Role::Assistant).last();
        match answer {
            Some(answer) if answer.incomplete => {
                let is_cancelled = answer.stop_reason == Some(StopReason::Cancelled);
                let status = if is_cancelled { TurnStatus::Cancelled } else { TurnStatus::Interrupted };
                Ended { status, finish_reason: answer.stop_reason, error: None, usage }
            }
            Some(answer) => {
                Ended { status: TurnStatus::Completed, finish_reason: answer.stop_reason, error: None, usage }
            }
            None => {
                let error = ErrorBody::new(ErrorCode::Interrupted, "the turn ended without an answer");
                Ended { status: TurnStatus::Interrupted, finish_reason: None, error: Some(error), usage }
            }
        }
    }

    /// Passes on what is known and was not passed on yet.
    pub(super) fn catch_up(&mut self, snapshot: &Snapshot, entries: Vec<Entry>) {
        for entry in entries {
            self.entry(&entry);
        }
        let Some(turn) = self.turn.clone() else { return };
        let followed = self.last.clone();
        let place = snapshot.path.iter().position(|entry| Some(&entry.entry_id) == followed.as_ref());
        if let Some(place) = place {
            let rest: Vec<_> = snapshot.path.iter().skip(place + 1).cloned().collect();
            for entry in rest.iter().take_while(|entry| !is_input(entry)) {
                self.entry(entry);
            }
        }
        for item in snapshot.items.iter().filter(|item| item.turn_id() == Some(&turn) && item.aborted().is_none()) {
            for part in 0..item.parts().len() {
                self.rest_of_part(snapshot, item.item_id(), u32::try_from(part).unwrap_or(u32::MAX));
            }
        }
        for approval in snapshot.approvals.iter().filter(|approval| approval.turn_id == turn) {
            self.approval(approval);
        }
        let is_running = snapshot.turn.as_ref().is_some_and(|running| running.turn_id == turn);
        if !is_running && !self.is_over {
            let ended = match snapshot.unanswered_turns.iter().find(|ended| ended.turn_id == turn) {
                Some(turn) => {
                    Ended { status: turn.status, finish_reason: None, error: turn.error.clone(), usage: None }
                }
                None => self.stored_end(usage_of(self.passed_entries())),
            };
            self.end(ended);
        }
    }

    /// Takes an event of the session, which the snapshot contains.
    pub(super) fn event(&mut self, snapshot: &Snapshot, event: SessionEvent) {
        if (self.is_over || self.turn.is_none()) && !self.watches {
            return;
        }
        let is_ours = |turn: Option<&TurnId>| turn.is_some() && turn == self.turn.as_ref();
        match event {
            SessionEvent::Ephemeral(EphemeralEvent::ItemDelta(delta)) => self.delta(snapshot, delta),
            SessionEvent::Ephemeral(EphemeralEvent::ItemStarted(started)) if is_ours(Some(&started.turn_id)) => {
                if let (Some(part), Some(name)) = (started.part, started.name) {
                    self.start(&started.item_id, part, DeltaKind::Arguments, Some(name));
                }
            }
            SessionEvent::Ephemeral(EphemeralEvent::ItemAborted(aborted)) => {
                let was_shown = self.units.keys().any(|(item, _)| *item == aborted.item_id);
                if was_shown {
                    self.units.retain(|(item, _), _| *item != aborted.item_id);
                    self.ready.push_back(Step::Aborted(aborted.item_id));
                }
            }
            SessionEvent::Ephemeral(EphemeralEvent::RequestDelayed(delayed)) if is_ours(Some(&delayed.turn_id)) => {
                self.ready.push_back(Step::Delayed(delayed));
            }
            SessionEvent::Ephemeral(EphemeralEvent::CompactionStarted(started)) => {
                self.ready.push_back(Step::Compaction(Compaction::Started { background: started.background }));
            }
            SessionEvent::Ephemeral(EphemeralEvent::CompactionProgress(progress)) => {
                let job = snapshot.compaction.as_ref();
                if job.is_some_and(|job| !job.background && job.job_id == progress.job_id) {
                    let (done, total) = (progress.done, progress.total);
                    self.ready.push_back(Step::Compaction(Compaction::Progress { done, total }));
                }
            }
            SessionEvent::Durable(_, Event::CompactionFailed(failed)) => {
                self.ready.push_back(Step::Compaction(Compaction::Failed(failed.error)));
            }
            SessionEvent::Durable(_, Event::ContextCompacted(compacted)) => {
                self.ready.push_back(Step::Compaction(Compaction::Committed(compacted)));
            }
            SessionEvent::Durable(_, Event::EntryAppended(appended)) if is_ours(appended.turn_id.as_ref()) => {
                self.entry(&appended.entry);
            }
            SessionEvent::Durable(_, Event::ApprovalRequest(approval)) if is_ours(Some(&approval.turn_id)) => {
                self.approval(&approval);
            }
            SessionEvent::Durable(_, Event::TurnFinished(finished)) if is_ours(Some(&finished.turn_id)) => {
                let finished = *finished;
                self.end(Ended {
                    status: finished.status,
                    finish_reason: finished.finish_reason,
                    error: finished.error,
                    usage: finished.usage,
                });
            }
            _ => {}
        }
    }

    fn end(&mut self, ended: Ended) {
        self.is_over = true;
        self.ready.push_back(Step::Finished(Box::new(ended)));
    }

    fn approval(&mut self, approval: &Approval) {
        if self.approvals.insert(approval.approval_id.as_str().to_owned()) {
            self.ready.push_back(Step::Approval(Box::new(approval.clone())));
        }
    }

    fn entry(&mut self, entry: &Entry) {
        // The sender knows the input itself.
        if Some(&entry.entry_id) == self.last.as_ref() || !self.passed_on.insert(entry.entry_id.clone()) {
            return;
        }
        self.last = Some(entry.entry_id.clone());
        self.ready.push_back(Step::Entry(Box::new(entry.clone())));
    }

    fn start(&mut self, item: &EntryId, part: u32, kind: DeltaKind, name: Option<String>) {
        if let Slot::Vacant(units) = self.units.entry((item.clone(), part)) {
            units.insert(0);
            self.ready.push_back(Step::Started { item: item.clone(), part, kind, name });
        }
    }

    fn delta(&mut self, snapshot: &Snapshot, delta: ItemDelta) {
        let ItemDelta { item_id, part, offset, kind, text } = delta;
        let kind = kind.unwrap_or(DeltaKind::Text);
        if self.passed_on.contains(&item_id) {
            return;
        }
        let had = self.units.get(&(item_id.clone(), part)).copied();
        if offset != had.unwrap_or(0) || had.is_none() && kind == DeltaKind::Arguments {
            // Something was missed: the snapshot has all of it.
            self.rest_of_part(snapshot, &item_id, part);
            return;
        }
        self.start(&item_id, part, kind, None);
        self.units.insert((item_id.clone(), part), offset + utf16_len(&text));
        self.ready.push_back(Step::Delta(Delta { item: item_id, part, kind, offset, text }));
    }

    /// Passes on what the snapshot has of a part beyond what was passed on.
    fn rest_of_part(&mut self, snapshot: &Snapshot, item_id: &EntryId, part: u32) {
        let Some(item) =
            snapshot.item(item_id).filter(|item| item.turn_id().is_none_or(|of| Some(of) == self.turn.as_ref()))
        else {
            return;
        };
        let place = usize::try_from(part).unwrap_or(usize::MAX);
        let Some(running) = item.parts().get(place) else { return };
        let (kind, name) = match running {
            RunningPart::Text { .. } => (DeltaKind::Text, None),
            RunningPart::Reasoning { .. } => (DeltaKind::Reasoning, None),
            RunningPart::ToolCall { name, .. } => (DeltaKind::Arguments, Some(name.clone())),
        };
        // A part that only makes room for a later one.
        if running.text().is_empty() && name.is_none() {
            return;
        }
        self.start(item_id, part, kind, name);
        let offset = self.units.get(&(item_id.clone(), part)).copied().unwrap_or(0);
        let text = after_units(running.text(), offset).to_owned();
        if !text.is_empty() {
            self.units.insert((item_id.clone(), part), item.offset(place));
            self.ready.push_back(Step::Delta(Delta { item: item_id.clone(), part, kind, offset, text }));
        }
    }
}

/// Returns the text after so many UTF-16 code units.
#[must_use]
pub fn after_units(text: &str, skipped: u64) -> &str {
    let mut left = skipped;
    for (at, character) in text.char_indices() {
        if left == 0 {
            return &text[at..];
        }
        left = left.saturating_sub(character.len_utf16() as u64);
    }
    ""
}

/// Returns the tokens of the answers together.
#[must_use]
pub fn usage_of<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<Usage> {
    entries.filter_map(|entry| entry.message()?.usage.as_ref()).fold(None, |sum, next| Some(added(sum, next)))
}

/// Returns the tokens of another request added to a sum, as the server adds them for a turn: the cost is known only if
/// both are, and a sum that includes an estimate is one.
#[must_use]
pub fn added(sum: Option<Usage>, next: &Usage) -> Usage {
    let Some(sum) = sum else { return next.clone() };
    let either = |sum: Option<u64>, next: Option<u64>| match (sum, next) {
        (None, None) => None,
        (sum, next) => Some(sum.unwrap_or(0).saturating_add(next.unwrap_or(0))),
    };
    Usage {
        input_tokens: sum.input_tokens.saturating_add(next.input_tokens),
        cached_tokens: sum.cached_tokens.saturating_add(next.cached_tokens),
        cache_write_tokens: either(sum.cache_write_tokens, next.cache_write_tokens),
        cache_write_hour_tokens: either(sum.cache_write_hour_tokens, next.cache_write_hour_tokens),
        output_tokens: sum.output_tokens.saturating_add(next.output_tokens),
        reasoning_tokens: either(sum.reasoning_tokens, next.reasoning_tokens),
        prefix_tokens: either(sum.prefix_tokens, next.prefix_tokens),
        further: sum.further.into_iter().chain(next.further).reduce(FurtherUsage::and),
        cost_nano_usd: sum.cost_nano_usd.zip(next.cost_nano_usd).map(|(sum, next)| sum.saturating_add(next)),
        source: if sum.source == UsageSource::Reported { next.source } else { sum.source },
    }
}
