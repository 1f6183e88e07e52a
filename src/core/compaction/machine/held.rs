//! Held compactions: prepared early, while turns continue, and committed in one step at the trigger.
//!
//! A held compaction is a record in the log, so it survives this loop, the session's unloading and the process. It is
//! valid as long as what it has read and the settings that made it are unchanged; [`Compacting::check_held`] checks
//! this after every input and drops it otherwise.

use crate::compaction::machine::work::{Need, Ready, Source};
use crate::{
    agent_loop::{deployment::Summaries, ledger::Ledger, records::session_updated, step::Step},
    compaction::machine::{
        Compacting, commit::keep_what_came, commit::still_holds, fail::unused, plan::Planner, work::Spent,
    },
};
use crate::{
    compaction::{
        Basis, Decision, Held, Order, Outcome,
        breaker::Permit,
        read_key,
        strategy::{FallbackStep, Options},
    },
    context::RequestCount,
    fingerprint::fingerprint_of,
    session::SessionTree,
    usage::add_usage,
};
use reseed_protocol::{
    EntryId, ErrorBody, ErrorCode,
    compaction::{CompactionPrepared, CompactionRung, CompactionTrigger},
    event::EphemeralEvent,
};

impl Compacting<'_> {
    /// Holds a finished compaction until it is due.
    ///
    /// # Errors
    /// The job's input has changed; the clients were notified.
    pub(crate) fn hold(&mut self, basis: Basis, outcome: Box<Outcome>, remade: bool) -> Result<(), ErrorBody> {
        let context = self.ledger.context();
        let is_seen = |id: &EntryId| context.messages.iter().any(|counted| counted.entry_id.as_ref() == Some(id));
        let read_before = outcome.first_kept.clone().filter(is_seen);
        let last_read = basis.last_read.clone().filter(|_| read_before.is_none());
        let read = read_key(&context, read_before.as_ref(), last_read.as_ref());
        let Some(read) = read.filter(|_| still_holds(self.ledger.path(), &basis, &outcome)) else {
            let message = "what the compaction had read is no longer what the model sees";
            let error = ErrorBody::new(ErrorCode::CompactionVoid, message);
            let spent = Spent::of(&basis, self.ledger.now, true, None);
            self.compaction.compaction_failed(self.ledger, &basis.order, spent, error.clone());
            return Err(error);
        };
        let held = Held {
            job_id: basis.order.job_id.clone(),
            trigger: basis.order.trigger,
            started_at: basis.started_at,
            ended_at: self.ledger.now,
            base: basis.base,
            read_before,
            last_read,
            read,
            settings: self.planner().made_with(),
            remade,
            wishes: basis.wishes,
            outcome: *outcome,
        };
        self.ledger.append(vec![session_updated(|updated| updated.held = Some(held.record()))], Vec::new());
        let count = self.prompt.count_now(self.ledger);
        let prepared = Box::new(self.planner().prepared(&held, &count));
        self.ledger.emit(EphemeralEvent::CompactionPrepared(prepared));
        let decision = self.prompt.manager().before_request(&count, self.ledger.window_tokens());
        if self.is_idle() && matches!(decision, Decision::Due | Decision::Compact) {
            self.commit_held(Need::Due);
        }
        Ok(())
    }

    /// Commits the held compaction in one step, so that no turn waits. Returns false if none is held, or if it must be
    /// made again first.
    pub(crate) fn commit_held(&mut self, need: Need) -> bool {
        self.check_held();
        let Some(held) = self.ledger.session.held.clone() else { return false };
        let before = self.prompt.count_now(self.ledger);
        let after = self.planner().after_held(&held, &before);
        if after >= before.tokens {
            return false;
        }
        let window = match need {
            // The request alone filled the whole window, whatever our count says.
            Need::Refused => self.ledger.window_tokens().min(before.tokens.max(1)),
            Need::Due | Need::Room => self.ledger.window_tokens(),
        };
        let makes_room = after <= self.prompt.manager().compact_at_tokens(window).unwrap_or(window);
        let permit = self.permit(before.tokens, need != Need::Due);
        let will_do = self.planner().source_beside(&held, before.tokens, after, true).is_none()
            || (need != Need::Due && makes_room)
            || self.compaction.gave_up
            || permit != Permit::Full;
        if !will_do {
            return false;
        }
        self.void_running("the compaction prepared earlier is committed");
        let mut basis = held.basis();
        if need == Need::Refused {
            basis.order.trigger = CompactionTrigger::Overflow;
        }
        let outcome = Box::new(held.outcome.clone());
        self.compaction
            .commit(
                self.ledger,
                self.prompt,
                Ready { basis, outcome, background: true, waited_since: None, merged: false },
            )
            .is_ok()
    }

    /// Returns the source for preparing a compaction; `is_due` means that the next request is above the trigger.
    /// Returns `None` if the held compaction is good enough or nothing better can be made.
    pub(crate) fn source(&mut self, is_due: bool) -> Option<Source> {
        self.check_held();
        let Some(held) = self.ledger.session.held.clone() else { return Some(Source::Seen) };
        let before = self.prompt.count_now(self.ledger);
        let after = self.planner().after_held(&held, &before);
        self.planner().source_beside(&held, before.tokens, after, is_due)
    }

    /// Returns the source of a compaction that is waited for. A held one, if any, was not good enough.
    pub(crate) fn source_now(&mut self) -> Source {
        self.source(true).unwrap_or(Source::Seen)
    }

    /// Returns the source of a compaction that a person ordered: the held one, if it needs merging.
    pub(crate) fn source_of(&mut self, order: &Order) -> Source {
        let merges = self.planner().is_plain(order) && self.source(true) == Some(Source::Held);
        if merges { Source::Held } else { Source::Seen }
    }

    /// Returns the held compaction if it is what a plain compaction order would produce.
    pub(crate) fn held_for_person(&mut self) -> Option<(Basis, Box<Outcome>)> {
        self.check_held();
        let held = self.ledger.session.held.clone().filter(|held| held.is_summary())?;
        let before = self.prompt.count_now(self.ledger);
        let after = self.planner().after_held(&held, &before);
        let mut basis = held.basis();
        basis.order.trigger = CompactionTrigger::Manual;
        let will_do = self.planner().saves_enough(&basis, before.tokens, after)
            && self.planner().reaches(&held.outcome, after, self.ledger.window_tokens());
        will_do.then(|| (basis, Box::new(held.outcome.clone())))
    }

    /// Drops the held compaction if what it has read, or the settings that made it, have changed.
    pub(crate) fn check_held(&mut self) {
        if self.ledger.state().held.is_none() || self.ledger.is_over() {
            return;
        }
        let why = match &self.ledger.session.held {
            None => Some("its record has a format that this version does not know"),
            Some(held) if held.settings != self.planner().made_with() => {
                Some("the settings that it was made with have changed")
            }
            Some(held) => {
                let holds = held.still_reads(&self.ledger.context())
                    && still_holds(self.ledger.path(), &held.basis(), &held.outcome);
                (!holds).then_some("what it had read is no longer what the model sees")
            }
        };
        if let Some(why) = why {
            self.drop_held(unused(why));
        }
    }

    /// Drops the held compaction and the job that builds on it. A turn that waits for that job continues without it.
    pub(crate) fn drop_held(&mut self, error: ErrorBody) {
        let Some(held) = self.ledger.state().held.clone() else { return };
        let ordered = self.compaction.work.take_ready_if(|ready| ready.basis.order.job_id == held.job_id);
        match (ordered, self.ledger.session.held.clone()) {
            (Some(ready), _) => {
                let spent = Spent::of(&ready.basis, self.ledger.now, ready.background, ready.waited_since);
                self.compaction.compaction_failed(self.ledger, &ready.basis.order, spent, error.clone());
            }
            (None, Some(held)) => self.compaction.tell_dropped(self.ledger, &held, error.clone()),
            (None, None) => self.compaction.tell_unreadable(self.ledger, self.prompt, held.job_id, error.clone()),
        }
        let Some(running) = self.compaction.work.running().filter(|running| running.source == Source::Held) else {
            return;
        };
        let (trigger, is_waited_for) = (running.job.order.trigger, self.is_waited_for());
        self.void_running("the prepared compaction that it builds on was dropped");
        if is_waited_for {
            self.ledger.then(Step::WithoutCompaction(trigger, error));
        }
    }
}

impl Planner<'_> {
    /// Returns the held compaction in the form that clients get when it is prepared and when they join.
    pub(crate) fn shown_held(&self) -> Option<CompactionPrepared> {
        let held = self.ledger.session.held.as_ref()?;
        Some(self.prepared(held, &self.prompt.count_now(self.ledger)))
    }

    fn prepared(&self, held: &Held, count: &RequestCount) -> CompactionPrepared {
        CompactionPrepared {
            job_id: held.job_id.clone(),
            trigger: held.trigger,
            rung: held.outcome.rung,
            tokens_before: count.tokens,
            tokens_after: self.after_held(held, count),
            compact_at_tokens: self.prompt.manager().compact_at_tokens(self.ledger.window_tokens()),
            duration_ms: held.basis().duration_ms(self.ledger.now),
            summary_usage: held.outcome.usage.clone(),
        }
    }

    fn source_beside(&self, held: &Held, before: u64, after: u64, is_due: bool) -> Option<Source> {
        // A hook's summary is final.
        if held.outcome.any_gain || held.outcome.rung == CompactionRung::HookSummary {
            return None;
        }
        let saves_enough = self.saves_enough(&held.basis(), before, after);
        if saves_enough && self.reaches(&held.outcome, after, self.ledger.window_tokens()) {
            return None;
        }
        // It is made again only if it would be committed at once; otherwise still more may be appended first.
        if held.remade || !is_due {
            return None;
        }
        if held.is_free() {
            return Some(Source::SeenAgain);
        }
        if self.can_merge(held) {
            return Some(Source::Held);
        }
        // The entries appended since stay verbatim either way. If the held compaction hardly saves anything, another
        // one would follow at once, so a new one reads everything instead.
        (!saves_enough).then_some(Source::SeenAgain)
    }

    /// Returns true if the entries appended since deserve a summary of their own.
    fn can_merge(&self, held: &Held) -> bool {
        let Some(tree) = self.with_held() else { return false };
        let steps = self.steps(&tree, &tree.context(), &held.basis().order).unwrap_or_default();
        steps.iter().any(|step| matches!(step, FallbackStep::Summarise(_)))
    }

    /// Returns the tokens of the next request if the held compaction were committed now.
    fn after_held(&self, held: &Held, before: &RequestCount) -> u64 {
        let (basis, mut outcome) = (held.basis(), held.outcome.clone());
        keep_what_came(self.ledger.path(), &basis, &mut outcome);
        self.would_be(&basis, &outcome, &some_id(), before.tokens).1.tokens
    }

    /// Returns the tree with the held compaction applied.
    pub(crate) fn with_held(&self) -> Option<SessionTree> {
        let held = self.ledger.session.held.as_ref()?;
        let (basis, mut outcome) = (held.basis(), held.outcome.clone());
        keep_what_came(self.ledger.path(), &basis, &mut outcome);
        let (entry, _) = self.would_be(&basis, &outcome, &some_id(), 0);
        Some(self.with_compaction(entry, &outcome))
    }

    /// Returns a fingerprint of the settings that determine a compaction's outcome. It does not include settings that
    /// only determine when to compact, what a request contains besides its messages, or how long to wait for a model.
    fn made_with(&self) -> String {
        let Summaries { model, request, writing: _, timeout_ms: _ } = &self.ledger.deployment.summaries;
        let Options {
            keep_recent_tokens,
            target,
            keep_turns,
            keep_tool_results,
            summarise,
            steps,
            summary_kind: _,
            user_share,
            summary_mode,
            threshold: _,
            reserve_tokens: _,
            max_output_tokens: _,
            background: _,
            min_gain: _,
        } = self.prompt.manager().options();
        let summaries = (model, format!("{request:?} {:?}", self.writing()));
        let options = (keep_recent_tokens, target, keep_turns, keep_tool_results, summarise, steps);
        let words = format!("{user_share} {summary_mode:?}");
        let rule = format!("{} {:?}", self.ledger.deployment.cut_rules.name(), self.ledger.deployment.file_tools);
        let made = (&self.ledger.state().model, self.prompt.manager().name(), summaries, options, words, rule);
        let key = fingerprint_of(&made);
        format!("{key:016x}")
    }
}

/// Returns the id of an entry that is never written.
fn some_id() -> EntryId {
    "held".parse().expect("a word is an id")
}

/// Adds the cost of the held compaction to an outcome that replaces it without being merged with it.
pub(crate) fn paid_for_both(held: Option<&Held>, mut outcome: Box<Outcome>) -> Box<Outcome> {
    let replaced = held.and_then(|held| held.outcome.usage.as_ref());
    if let Some(usage) = replaced {
        outcome.usage = Some(add_usage(outcome.usage.take(), usage));
    }
    outcome
}

/// Marks the held compaction as already remade: making it again failed and is not attempted once more.
pub(crate) fn keep_held_as_it_is(ledger: &mut Ledger) {
    let Some(held) = ledger.session.held.as_ref().filter(|held| !held.remade) else { return };
    let record = Held { remade: true, ..Held::clone(held) }.record();
    ledger.append(vec![session_updated(|updated| updated.held = Some(record))], Vec::new());
}
