//! The fallback chain of one compaction.

mod draft;
mod hooked;
mod native;
mod outcomes;
pub(super) mod stage;

use self::{draft::Draft, native::Native};
use super::{
    ask::{Asking, Task},
    given::{HookRequests, HookSupply},
    held::Basis,
    order::{Order, Outcome},
    raw::Raw,
    segments::Room,
};
use crate::{
    compaction::strategy::FallbackStep,
    context::seed,
    model::{Answer, ModelRequest},
    prices::Prices,
    text::files::FileTools,
    usage::add_usage,
};
use reseed_protocol::{
    EntryId, Message, Timestamp, Usage, UsageSource,
    compaction::{Compaction, CompactionDetails, CompactionRung, FailedRung},
};
use std::{
    borrow::Cow,
    collections::{HashSet, VecDeque},
    sync::Arc,
};

/// The next need of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// The model must be asked.
    Ask(Box<ModelRequest>),
    /// This outcome is offered: take it, or reject it with [`Job::refuse`].
    Offer(Box<Outcome>),
    /// No step is left.
    Exhausted,
}

/// A compaction in progress.
#[derive(Debug, Clone)]
pub struct Job {
    /// The order for it.
    pub order: Order,
    /// When it started.
    pub started_at: Timestamp,
    /// When waiting for the model ends.
    pub deadline: Timestamp,
    /// The compaction in effect in the context that was read.
    pub base: Option<EntryId>,
    steps: VecDeque<FallbackStep>,
    /// The messages of the context with their original content and their entries.
    messages: Vec<(Option<EntryId>, Arc<Message>)>,
    /// The first entry after the summary and the ones kept one by one: the start of a tail that keeps everything.
    begins: Option<EntryId>,
    /// Indexes of the messages that a user wrote.
    inputs: HashSet<usize>,
    earlier: Option<Compaction>,
    noted: Option<CompactionDetails>,
    file_tools: FileTools,
    task: Task,
    asks_model: bool,
    /// The room of each part of the summary.
    room: Room,
    conversation: Option<ModelRequest>,
    /// The conversation's request, until its provider was asked to compact it.
    native: Option<ModelRequest>,
    /// The room that applies again if the provider's own compaction is not used.
    usual_room: Option<Room>,
    /// The history from which the summary is rebuilt, if it is to be rebuilt.
    raw: Option<Arc<Raw>>,
    at: State,
    failed: Vec<FailedRung>,
    best: Option<(u64, Box<Outcome>)>,
    usage: Option<Usage>,
    /// True if the usage of any answer is unknown.
    unreported: bool,
    /// The result of asking the model, until it is read.
    tried: Option<SummaryAttempt>,
    prices: Prices,
    /// The parts that hooks supply.
    given: HookSupply,
}

/// The result of asking the model for a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryAttempt {
    /// It wrote one.
    Summarised,
    /// It did not write a usable one: the job continues by rule.
    Failed,
}

/// The position of a job in the fallback chain.
#[derive(Debug, Clone)]
enum State {
    /// The job is between two steps.
    Between,
    /// The provider is compacting what a cut removes.
    Native(Native),
    /// The model is writing a part of this summary.
    Asking(Box<Asking>, Box<Draft>),
    /// The parts of this summary that the model has not written are written by rule.
    ByRule(Box<Draft>),
    /// An outcome is being considered. If it saves nothing, this summary is made by rule.
    Offered(CompactionRung, Option<Box<Draft>>),
}

impl Job {
    /// Returns the model that summarises.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.task.model
    }

    /// Returns the number of summarised pieces and the total number of pieces.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        match &self.at {
            State::Asking(asking, _) => asking.progress(),
            _ => (0, 1),
        }
    }

    /// Returns what the job needs next.
    #[must_use]
    pub fn advance(&mut self) -> Next {
        loop {
            match std::mem::replace(&mut self.at, State::Between) {
                State::Between => match self.steps.pop_front().map(|step| (self.given_summary(&step), step)) {
                    None => return Next::Exhausted,
                    Some((Some(outcome), _)) => return Next::Offer(Box::new(outcome)),
                    Some((None, FallbackStep::Clear { results, any_gain })) => {
                        self.at = State::Offered(CompactionRung::ClearToolResults, None);
                        return Next::Offer(Box::new(self.clearing(&results, any_gain)));
                    }
                    Some((None, FallbackStep::Truncate(cut))) => {
                        self.at = State::Offered(CompactionRung::Truncate, None);
                        return Next::Offer(Box::new(self.truncated(&cut)));
                    }
                    Some((None, FallbackStep::Summarise(cut))) => match self.compact_natively(&cut) {
                        Some(request) => {
                            self.at = State::Native(Native { cut, model: request.model.clone() });
                            return Next::Ask(request);
                        }
                        None => self.at = self.summarise(cut),
                    },
                },
                State::Asking(asking, mut draft) => {
                    if let Some(request) = asking.next_request() {
                        self.at = State::Asking(asking, draft);
                        return Next::Ask(Box::new(request));
                    }
                    draft.take(*asking);
                    if draft.merges_next() && self.asks_model {
                        self.at = self.merge_segments(draft);
                        continue;
                    }
                    self.write_by_rule(&mut draft);
                    return self.offer(draft);
                }
                State::ByRule(mut draft) => {
                    self.write_by_rule(&mut draft);
                    return self.offer(draft);
                }
                // Calling advance again without an answer, or without refuse, discards what is waited for.
                State::Native(_) | State::Offered(..) => {}
            }
        }
    }

    /// Takes the model's answer to the last request. An unusable answer (cut off, empty, a copy) is requested once
    /// more; then the summary is written by rule, so that a model that cannot summarise does not stop the conversation.
    pub fn take(&mut self, answer: &Answer) {
        let model = self.asked_model();
        match answer.usage {
            Some(reported) => {
                let usage = self.prices.priced(model, reported.usage(UsageSource::Reported));
                self.usage = Some(add_usage(self.usage.take(), &usage));
            }
            None => self.unreported = true,
        }
        if self.take_native(answer) {
            return;
        }
        let State::Asking(asking, draft) = &mut self.at else { return };
        match asking.take(answer) {
            Err(why) => self.try_again(why),
            Ok(()) if asking.is_done() && !draft.is_merging => self.tried = Some(SummaryAttempt::Summarised),
            Ok(()) => {}
        }
    }

    /// Asks once more after an answer or a refusal that produced no summary; otherwise continues by rule.
    pub fn try_again(&mut self, why: &'static str) {
        if self.native_failed(why) {
            return;
        }
        if let State::Asking(asking, _) = &mut self.at
            && self.asks_model
        {
            let step = asking.step();
            if asking.retry(why) {
                self.note_failed(step, why);
                return;
            }
        }
        self.fall_back(why);
    }

    /// Returns true while older segments are merged. The new one is already written, so the job can continue without
    /// the model.
    #[must_use]
    pub fn is_merging(&self) -> bool {
        matches!(&self.at, State::Asking(_, draft) if draft.is_merging)
    }

    /// Returns the result of asking the model, once.
    pub fn tried(&mut self) -> Option<SummaryAttempt> {
        self.tried.take()
    }

    /// Handles a request that was refused as too large, by a server that may have named its window: asks in smaller
    /// pieces, or not again.
    pub fn too_large(&mut self, window_tokens: Option<u64>) {
        if self.native_failed("context_overflow") {
            return;
        }
        if let State::Asking(asking, _) = &mut self.at {
            let step = asking.step();
            if asking.get_off() || asking.halve(window_tokens) {
                self.note_failed(step, "context_overflow");
            } else {
                self.fall_back("context_overflow");
            }
        }
    }

    /// Repeats the request with room for the model's reasoning, because the output limit left none for a summary.
    /// Returns `false` if it already had that room.
    pub fn leave_room_for_reasoning(&mut self) -> bool {
        match &mut self.at {
            State::Asking(asking, _) => asking.leave_room_for_reasoning(),
            _ => false,
        }
    }

    /// Continues by rule instead of with the model, for this reason. A failed request within the conversation is first
    /// repeated as a separate one, if the model may still be asked.
    pub fn fall_back(&mut self, why: &str) {
        if self.native_failed(why) {
            return;
        }
        if let State::Asking(asking, _) = &mut self.at
            && self.asks_model
            && asking.get_off()
        {
            self.note_failed(CompactionRung::ModelSummary, why);
            return;
        }
        if let State::Asking(asking, draft) = std::mem::replace(&mut self.at, State::Between) {
            self.note_failed(asking.step(), why);
            // Only the newest segment counts: merging older ones by rule is not a failure of the summary.
            if !draft.is_merging {
                self.tried = Some(SummaryAttempt::Failed);
            }
            self.at = State::ByRule(self.without_native(draft, why));
        }
    }

    /// Stops asking the model because time is up.
    pub fn out_of_time(&mut self) {
        self.without_model("timeout");
    }

    /// Stops asking the model for this reason.
    pub fn without_model(&mut self, why: &'static str) {
        self.asks_model = false;
        self.fall_back(why);
    }

    /// Rejects an offered outcome that would leave this many tokens.
    pub fn refuse(&mut self, outcome: Box<Outcome>, why: &str, tokens: u64) {
        let State::Offered(step, draft) = std::mem::replace(&mut self.at, State::Between) else { return };
        self.note_failed(step, why);
        if self.best.as_ref().is_none_or(|(least, _)| tokens < *least) {
            self.best = Some((tokens, outcome));
        }
        if let Some(draft) = draft {
            self.at = State::ByRule(draft);
        }
    }

    /// Returns the smallest rejected outcome with the tokens that it would leave, listing all failed steps.
    #[must_use]
    pub fn best(&mut self) -> Option<(u64, Box<Outcome>)> {
        let (tokens, mut outcome) = self.best.take()?;
        outcome.failed = self.failed.clone();
        outcome.failed.retain(|failed| failed.rung != outcome.rung);
        Some((tokens, outcome))
    }

    /// Returns the newest entry that was read.
    #[must_use]
    pub fn last_read(&self) -> Option<&EntryId> {
        self.messages.iter().rev().find_map(|(id, _)| id.as_ref())
    }

    /// Returns the data needed to apply the outcome.
    #[must_use]
    pub fn basis(&self) -> Basis {
        Basis {
            order: self.order.clone(),
            started_at: self.started_at,
            ended_at: None,
            base: self.base.clone(),
            last_read: self.last_read().cloned(),
            failed: self.failed.clone(),
            is_rebuild: self.is_rebuild(),
        }
    }

    /// Returns the steps that failed or saved too little so far.
    #[must_use]
    pub fn failed(&self) -> &[FailedRung] {
        &self.failed
    }

    fn note_failed(&mut self, step: CompactionRung, why: &str) {
        self.failed.push(FailedRung { rung: step, reason: why.to_owned() });
    }

    /// Returns true if it rebuilds the summary: it replaces the existing one and need not save anything.
    #[must_use]
    pub fn is_rebuild(&self) -> bool {
        self.raw.is_some()
    }
}

/// Returns the text of a summary message without the text around it. A summary from a patch has no such text.
pub(crate) fn summary_in(message: &Message) -> String {
    let text = message.text();
    seed::unseed(&text).map(Cow::into_owned).unwrap_or(text)
}
