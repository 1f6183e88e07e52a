//! The state of a session: the fold of its log.
//!
//! A copy is stored with every append so that opening a session does not read its whole log. The log is authoritative:
//! a copy of another version is discarded and folded again.

use super::input::is_message;
use reseed_protocol::{
    CommandId, EntryData, EntryId, ErrorCode, JobId, Role, TurnId, Usage, UsageSource,
    command::StrategySettings,
    context::ContextInfo,
    entry::BranchSummary,
    event::{CompactionFailed, CompactionTrigger, EntryAppended, Event, TurnFinished, TurnStatus},
    hook::HookOffer,
    reply::{EndedTurn, FailedCompaction, PendingCall, Pin, QueueItem, SessionSettings, UnansweredTurn},
};
use serde::{Deserialize, Serialize};

/// Version of the stored copy. A copy of another version is folded again from the log.
pub const STATE_VERSION: u32 = 4;

/// Maximum unanswered turns remembered. This state is stored with every append, so the list is short; a chat has no use
/// for older failures.
const UNANSWERED_TURNS_MAX: usize = 16;

/// Maximum failed compactions remembered, for the same reason.
const FAILED_COMPACTIONS_MAX: usize = 16;

/// After an undone compaction the request may grow by this fraction of the window before the next compaction: a user
/// who restored the old context wants to use it.
const REST_WINDOW_PART: u64 = 10;

/// A strategy with its settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Strategy {
    /// Its short name.
    pub name: String,
    /// The settings that differ from the deployment's.
    pub settings: Option<StrategySettings>,
}

/// Where the log stores the held compaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldAt {
    /// Sequence number of its record.
    pub seq: u64,
    /// The job that prepared it.
    pub job_id: JobId,
}

/// A change that may show in the next request, and of which no entry tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnseenChange {
    /// What changed.
    pub what: Unseen,
    /// True if an answer was recorded since. Its request may have been sent before the change, so the change is kept
    /// until the answer after it.
    pub answered: bool,
}

/// What a change without an entry has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Unseen {
    /// The pinned entries.
    Pins,
    /// The strategy, to the one of this name.
    Strategy(String),
}

/// The state of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionState {
    /// Version of the stored form.
    pub version: u32,
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
    /// How many times its agent loop was seeded.
    pub generation: u64,
    /// How many times it was compacted.
    pub compactions: u64,
    /// Number of entries in its tree.
    pub entries: u64,
    /// Entries that every compaction keeps verbatim.
    pub pins: Vec<Pin>,
    /// Undone compactions: building the context skips them.
    pub undone: Vec<EntryId>,
    /// Automatic compaction ignores requests up to this many tokens: what an undone compaction restored.
    pub rest_tokens: Option<u64>,
    /// The held compaction, applied when it becomes due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldAt>,
    /// The client's required hooks in force when the running turn began and when the queued inputs were accepted. After
    /// a restart neither continues unless these hooks are asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookOffer>,
    /// Changes since the newest answers that no entry shows, so that after a restart a receipt can still explain why a
    /// request does not start like the previous one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<UnseenChange>,
    /// Cost of its requests.
    pub cost: Cost,
    /// Queued inputs.
    pub queue: Vec<QueueItem>,
    /// The turn that is running.
    pub turn: Option<OpenTurn>,
    /// The last turn, if it ended without an answer and nothing was said since: the turn that a retry repeats.
    pub last_turn: Option<EndedTurn>,
    /// The newest turns that ended without an answer, oldest first.
    pub unanswered_turns: Vec<UnansweredTurn>,
    /// The newest failed compactions that someone waited for, oldest first.
    pub failed_compactions: Vec<FailedCompaction>,
    /// Tool calls without a result.
    pub pending: Vec<PendingCall>,
}

/// Cost of a session's requests as recorded in its log: the answers of its turns, and the summaries that were kept.
/// Answers that came with copied or imported history were paid for elsewhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// Known cost in billionths of a US dollar; `None` if no request's cost is known.
    pub nano_usd: Option<u64>,
    /// Requests with unknown cost.
    pub unpriced_requests: u64,
}

impl Cost {
    fn add(&mut self, usage: Option<&Usage>) {
        match usage.and_then(|usage| usage.cost_nano_usd) {
            Some(cost) => self.nano_usd = Some(self.nano_usd.unwrap_or(0).saturating_add(cost)),
            None => self.unpriced_requests += 1,
        }
    }
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
    /// True if the context was compacted since the last answer, so that crossing the threshold once compacts once.
    pub compacted: bool,
    /// True if that compaction was made because the provider refused a request as too large.
    pub overflowed: bool,
}

impl Default for SessionState {
    fn default() -> Self {
        Self {
            version: STATE_VERSION,
            seq: 0,
            name: String::new(),
            model: String::new(),
            strategy: String::new(),
            settings: no_settings(),
            leaf: None,
            generation: 0,
            compactions: 0,
            entries: 0,
            pins: Vec::new(),
            undone: Vec::new(),
            rest_tokens: None,
            held: None,
            hooks: Vec::new(),
            unseen: Vec::new(),
            cost: Cost::default(),
            queue: Vec::new(),
            turn: None,
            last_turn: None,
            unanswered_turns: Vec::new(),
            failed_compactions: Vec::new(),
            pending: Vec::new(),
        }
    }
}

/// Returns settings that leave everything to the deployment.
#[must_use]
pub fn no_settings() -> SessionSettings {
    SessionSettings {
        instructions: None,
        temperature: None,
        max_output_tokens: None,
        reasoning_effort: None,
        strategy_settings: None,
        learned_window_tokens: None,
    }
}

impl SessionState {
    /// Applies one event of the log, in order.
    pub fn apply(&mut self, event: &Event) {
        self.seq += 1;
        match event {
            Event::EntryAppended(appended) => {
                self.entries += 1;
                self.leaf = Some(appended.entry.entry_id.clone());
                if let EntryData::SessionInfo(info) = &appended.entry.data {
                    self.name.clone_from(&info.name);
                }
                self.pay(appended);
                self.age_unseen(&appended.entry.data);
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
            }),
            Event::RequestResolved(resolved) => self.pending.retain(|call| call.call_id != resolved.call_id),
            Event::QueueChanged(changed) => self.queue.clone_from(&changed.items),
            Event::SessionUpdated(updated) => {
                if let Some(name) = &updated.name {
                    self.name.clone_from(name);
                }
                if let Some(model) = &updated.model {
                    self.model.clone_from(model);
                }
                if let Some(strategy) = &updated.strategy {
                    // A session's first record names the one that it starts with.
                    if self.strategy != *strategy && !self.strategy.is_empty() {
                        self.unseen(Unseen::Strategy(strategy.clone()));
                    }
                    self.strategy.clone_from(strategy);
                }
                if let Some(settings) = &updated.settings {
                    self.settings.clone_from(settings);
                }
                if let Some(pins) = &updated.pins {
                    self.unseen(Unseen::Pins);
                    self.pins.clone_from(pins);
                }
                if let Some(hooks) = &updated.hooks {
                    self.hooks.clone_from(hooks);
                }
                if let Some(leaf) = &updated.leaf_id {
                    if self.leaf != *leaf {
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
                    turn.compacted = true;
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
        }
    }

    /// Remembers a change that no entry shows; of each kind only the newest, so there are two at most.
    fn unseen(&mut self, what: Unseen) {
        self.unseen.retain(|change| std::mem::discriminant(&change.what) != std::mem::discriminant(&what));
        self.unseen.push(UnseenChange { what, answered: false });
    }

    /// Forgets the changes that the newest answers have shown.
    fn age_unseen(&mut self, data: &EntryData) {
        if !matches!(data, EntryData::Message(message) if message.receipt.is_some()) {
            return;
        }
        self.unseen.retain(|change| !change.answered);
        self.unseen.iter_mut().for_each(|change| change.answered = true);
    }

    /// Remembers a compaction that failed while someone waited for it. One without a trigger is a branch summary, whose
    /// failure is reported in the reply to the move.
    fn remember_failed(&mut self, failed: &CompactionFailed) {
        let ended = matches!(
            failed.code,
            ErrorCode::CompactionCancelled | ErrorCode::CompactionVoid | ErrorCode::NothingToCompact
        );
        if failed.background || failed.trigger.is_none() || ended {
            return;
        }
        self.failed_compactions.push(FailedCompaction {
            job_id: failed.job_id.clone(),
            code: failed.code,
            message: failed.message.clone(),
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

    fn pay(&mut self, appended: &EntryAppended) {
        match &appended.entry.data {
            EntryData::Message(message) if message.role == Role::Assistant && appended.turn_id.is_some() => {
                self.cost.add(message.usage.as_ref());
            }
            EntryData::BranchSummary(BranchSummary { usage: Some(usage), .. }) if appended.command_id.is_some() => {
                self.cost.add(Some(usage));
            }
            _ => {}
        }
    }
}

/// Returns the token count up to which automatic compaction stays off after an undo.
#[must_use]
pub fn rest_after_undo(info: &ContextInfo) -> u64 {
    info.token_count.saturating_add(info.max_tokens / REST_WINDOW_PART)
}

/// Adds two usages. A sum that includes an estimate is an estimate. The cost is known only if both costs are: a partial
/// cost would look like the whole.
#[must_use]
pub fn add_usage(sum: Option<Usage>, more: &Usage) -> Usage {
    let Some(sum) = sum else { return more.clone() };
    let both = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (None, None) => None,
        (a, b) => Some(a.unwrap_or(0) + b.unwrap_or(0)),
    };
    Usage {
        input_tokens: sum.input_tokens + more.input_tokens,
        cached_tokens: sum.cached_tokens + more.cached_tokens,
        cache_write_tokens: both(sum.cache_write_tokens, more.cache_write_tokens),
        output_tokens: sum.output_tokens + more.output_tokens,
        reasoning_tokens: both(sum.reasoning_tokens, more.reasoning_tokens),
        prefix_tokens: both(sum.prefix_tokens, more.prefix_tokens),
        cost_nano_usd: sum.cost_nano_usd.zip(more.cost_nano_usd).map(|(a, b)| a.saturating_add(b)),
        source: if sum.source == UsageSource::Reported { more.source } else { sum.source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::context::{counter::Counter, testing::path};
    use reseed_protocol::event::SessionUpdated;

    fn usage(cost_nano_usd: Option<u64>, source: UsageSource) -> Usage {
        Usage {
            input_tokens: 10,
            cached_tokens: 4,
            cache_write_tokens: None,
            output_tokens: 2,
            reasoning_tokens: None,
            prefix_tokens: Some(3),
            cost_nano_usd,
            source,
        }
    }

    #[test]
    fn a_sum_that_lacks_a_part_has_no_cost() {
        let reported = |cost| usage(cost, UsageSource::Reported);
        let table = [
            (Some(5), reported(Some(7)), Some(12)),
            (Some(5), reported(None), None),
            (None, reported(Some(7)), None),
            (Some(5), usage(None, UsageSource::Estimated), None),
            (Some(u64::MAX), reported(Some(7)), Some(u64::MAX)),
        ];
        for (sum, more, expected) in table {
            let sum = add_usage(Some(add_usage(None, &reported(sum))), &more);
            assert_eq!((sum.cost_nano_usd, sum.prefix_tokens, sum.input_tokens), (expected, Some(6), 20));
            assert_eq!(sum.source, more.source);
        }
    }

    #[test]
    fn a_change_without_an_entry_is_remembered_until_the_second_answer() {
        let updated = |change: fn(&mut SessionUpdated)| {
            let mut updated = SessionUpdated::default();
            change(&mut updated);
            Event::SessionUpdated(Box::new(updated))
        };
        let (pins, manual) = (
            updated(|updated| updated.pins = Some(Vec::new())),
            updated(|updated| updated.strategy = Some("manual".to_owned())),
        );
        let said = |receipt| {
            let mut entry = path(&["a:assistant yes"], &Counter::for_model("test"))[0].entry.clone();
            let EntryData::Message(message) = &mut entry.data else { panic!("another entry") };
            message.receipt = receipt;
            Event::EntryAppended(Box::new(EntryAppended { entry, turn_id: None, command_id: None }))
        };
        let (answer, copied) = (said(Some(Box::default())), said(None));
        let strategy = || Unseen::Strategy("manual".to_owned());
        let table: [(&[&Event], &[Unseen]); 7] = [
            (&[&pins], &[Unseen::Pins]),
            (&[&pins, &pins], &[Unseen::Pins]),
            (&[&manual, &pins], &[strategy(), Unseen::Pins]),
            (&[&manual, &manual, &copied, &copied], &[strategy()]),
            (&[&pins, &answer], &[Unseen::Pins]),
            (&[&pins, &answer, &manual, &answer], &[strategy()]),
            (&[&pins, &answer, &answer], &[]),
        ];
        for (events, expected) in table {
            let mut state = SessionState { strategy: "threshold".to_owned(), ..SessionState::default() };
            events.iter().for_each(|event| state.apply(event));
            let unseen: Vec<Unseen> = state.unseen.iter().map(|change| change.what.clone()).collect();
            assert_eq!(unseen, expected, "{events:?}");
        }
    }

    #[test]
    fn what_a_session_has_cost_is_the_sum_of_what_is_known() {
        let mut cost = Cost::default();
        for usage in [None, Some(usage(Some(5), UsageSource::Reported)), Some(usage(None, UsageSource::Estimated))] {
            cost.add(usage.as_ref());
        }
        cost.add(Some(&usage(Some(7), UsageSource::Reported)));
        assert_eq!(cost, Cost { nano_usd: Some(12), unpriced_requests: 2 });
    }
}
