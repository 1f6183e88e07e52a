//! Held compactions: prepared early, while turns continue, and committed in one step at the trigger.
//!
//! A held compaction is a record in the log, so it survives this loop, the session's unloading and the process. It is
//! valid as long as what it has read and the settings that made it are unchanged; [`Compacting::check_held`] checks
//! this after every input and drops it otherwise. If so much was appended meanwhile that it would miss the target,
//! another one is prepared when it is due. Until that one is ready, it stays held: it is committed if the other one
//! fails, or if a request needs the room at once.

use crate::compaction::machine::work::{Need, Ready};
use crate::{
    agent_loop::{deployment::Summaries, records::session_updated},
    compaction::machine::{
        Compacting,
        commit::{keep_what_came, still_holds},
        fail::{unused, void},
        plan::Planner,
    },
};
use crate::{
    compaction::{Basis, Decision, Held, Outcome, breaker::Permit, read_key, strategy::Options},
    context::RequestCount,
    fingerprint::fingerprint_of,
};
use reseed_protocol::{
    EntryId, ErrorBody,
    compaction::{CompactionPrepared, CompactionTrigger},
    event::EphemeralEvent,
};

impl Compacting<'_> {
    /// Holds a finished compaction until it is due. It replaces the one held so far.
    ///
    /// # Errors
    /// The job's input has changed; the clients were notified.
    pub(crate) fn hold(&mut self, ready: Ready) -> Result<(), ErrorBody> {
        let (basis, outcome) = (&ready.basis, &ready.outcome);
        let context = self.ledger.context();
        let is_seen = |id: &EntryId| context.messages.iter().any(|counted| counted.entry_id.as_ref() == Some(id));
        let read_before = outcome.first_kept.clone().filter(is_seen);
        let last_read = basis.last_read.clone().filter(|_| read_before.is_none());
        let read = read_key(&context, read_before.as_ref(), last_read.as_ref());
        let Some(read) = read.filter(|_| still_holds(self.ledger.path(), basis, outcome)) else {
            return Err(self.compaction.unusable(self.ledger, &ready, void()));
        };
        let Ready { basis, outcome, .. } = ready;
        let count = self.prompt.count_now(self.ledger);
        let decision = self.prompt.manager().before_request(&count, self.ledger.window_tokens());
        let is_due = matches!(decision, Decision::Due | Decision::Compact);
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
            is_last: is_due,
            outcome: *outcome,
        };
        let passed_over = self.ledger.session.held.clone();
        self.ledger.append(vec![session_updated(|updated| updated.held = Some(held.record()))], Vec::new());
        if let Some(passed_over) = passed_over {
            self.compaction.tell_dropped(self.ledger, &passed_over, unused("another one was prepared"));
        }
        let prepared = Box::new(self.planner().prepared(&held, &count));
        self.ledger.emit(EphemeralEvent::CompactionPrepared(prepared));
        if self.is_idle() && is_due {
            self.commit_held(Need::Due);
        }
        Ok(())
    }

    /// Commits the held compaction in one step, so that no turn waits. Returns false if none is held, or if another one
    /// should be made because it would miss the target and the next request does not need it; it then stays held.
    pub(crate) fn commit_held(&mut self, need: Need) -> bool {
        self.check_held();
        let Some(held) = self.ledger.session.held.clone() else { return false };
        let before = self.prompt.count_now(self.ledger);
        let after = self.planner().after_held(&held, &before);
        let window = self.ledger.window_tokens();
        let is_needed = match need {
            Need::Due => false,
            Need::Room => after <= window,
            // The request alone filled the whole window, whatever our count says.
            Need::Refused => {
                let window = window.min(before.tokens.max(1));
                after <= self.prompt.manager().compact_at_tokens(window).unwrap_or(window)
            }
        };
        let may_be_last = self.compaction.gave_up || self.permit(before.tokens, need != Need::Due) != Permit::Full;
        let is_used = after < before.tokens && (is_needed || may_be_last);
        if !is_used && !self.planner().is_good_enough(&held, &before, after) {
            return false;
        }
        self.void_running("the compaction prepared earlier is committed");
        let mut basis = held.basis();
        if need == Need::Refused {
            basis.order.trigger = CompactionTrigger::Overflow;
        }
        let outcome = Box::new(held.outcome.clone());
        self.compaction
            .commit(self.ledger, self.prompt, Ready { basis, outcome, background: true, waited_since: None })
            .is_ok()
    }

    /// Returns the held compaction if it is what a plain compaction order would produce.
    pub(crate) fn held_for_person(&mut self) -> Option<(Basis, Box<Outcome>)> {
        self.check_held();
        let held = self.ledger.session.held.clone().filter(|held| held.is_summary())?;
        let before = self.prompt.count_now(self.ledger);
        let after = self.planner().after_held(&held, &before);
        let mut basis = held.basis();
        basis.order.trigger = CompactionTrigger::Manual;
        self.planner().is_good_enough(&held, &before, after).then(|| (basis, Box::new(held.outcome.clone())))
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

    /// Drops the held compaction.
    pub(crate) fn drop_held(&mut self, error: ErrorBody) {
        let Some(held) = self.ledger.state().held.clone() else { return };
        let ordered = self.compaction.work.take_ready_of(&held.job_id);
        match (ordered, self.ledger.session.held.clone()) {
            (Some(ready), _) => drop(self.compaction.unusable(self.ledger, &ready, error)),
            (None, Some(held)) => self.compaction.tell_dropped(self.ledger, &held, error),
            (None, None) => self.compaction.tell_unreadable(self.ledger, self.prompt, held.job_id, error),
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

    /// Returns true if no other compaction need be made in place of the held one, which leaves `after` tokens. One that
    /// was finished when it was due is not made again.
    fn is_good_enough(&self, held: &Held, before: &RequestCount, after: u64) -> bool {
        held.is_last && after < before.tokens || self.judge(&held.basis(), &held.outcome, before, after).is_ok()
    }

    /// Returns the tokens of the next request if the held compaction were committed now.
    fn after_held(&self, held: &Held, before: &RequestCount) -> u64 {
        let (basis, mut outcome) = (held.basis(), held.outcome.clone());
        keep_what_came(self.ledger.path(), &basis, &mut outcome);
        self.would_leave(&basis, &outcome, before.tokens)
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
