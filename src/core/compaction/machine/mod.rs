//! The compaction machine: decides when to compact, runs the job, holds the outcome until it is due, and commits it.
//!
//! Inputs: the model's summary or its failure; the commands `start_compaction`, `preview_compaction`,
//! `cancel_compaction`, `undo_compaction`, `pin_entry` and `unpin_entry`; a turn that needs room; an event that changes
//! what a job has read; the decision of `before_compaction` hooks; the steps `PrepareIdle`, `WithoutCompaction`,
//! `CheckHeld` and `CompactionTick`.
//!
//! Outputs: the effects that call the model and cancel the call, and `Reseed` after a commit; the compaction as an
//! entry, the held compaction in the session's state, `compaction_failed`, progress and previews; the steps `Ask` (the
//! hooks), `WithoutCompaction`, `EndTurn` and `Proceed`.
//!
//! - `plan`: when and how to compact
//! - `running`: a running compaction, in the background or waited for; `work`: the one in progress, as a value
//! - `room`: room for a request that would not fit
//! - `held`: holding a finished compaction until it is due; `commit`: appending it
//! - `fail`: what follows when a summary, or a whole compaction, fails
//! - `preview`: showing a compaction before it is committed; `keep`: pins, and undoing a compaction
//! - `instructions`: instructions for summaries; `hooks`: hooks before a compaction
//! - `memory`: what the next loop inherits

pub(crate) mod commit;
pub(crate) mod fail;
pub(crate) mod held;
pub(crate) mod hooks;
pub(crate) mod instructions;
pub(crate) mod keep;
pub(crate) mod memory;
pub(crate) mod plan;
pub(crate) mod preview;
pub(crate) mod room;
pub(crate) mod running;
pub(crate) mod work;

use crate::{
    agent_loop::{hooks::Hooks, ledger::Ledger, prompt::Prompt, roster::Roster, step::Step},
    compaction::machine::{
        plan::Planner,
        work::{Ready, Running},
    },
};
use crate::{
    compaction::{Order, breaker::Permit},
    context::RequestCount,
};
use memory::CompactionMemory;
use reseed_protocol::{
    CommandId, EntryId, JobId, Timestamp,
    context::{BreakerReason, ContextInfo},
};
use work::Work;

/// The compaction in progress, and the experience from earlier ones.
#[derive(Debug)]
pub(crate) struct Compactor {
    carried: CompactionMemory,
    work: Work,
    /// True if a compaction failed in this turn. It is not tried again before the turn is over, so that a summary that
    /// always fails is not requested before every round of tools.
    gave_up: bool,
    /// True while the session waits for the running job.
    awaited: bool,
}

/// The compaction machine with everything that it may access.
#[derive(Debug)]
pub(crate) struct Compacting<'a> {
    pub(crate) compaction: &'a mut Compactor,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) prompt: &'a Prompt,
    pub(crate) roster: &'a Roster,
    /// The hooks machine; hooks that inspect the running compaction are cancelled with it.
    pub(crate) hooks: &'a mut Hooks,
    /// True if the session waits for no other machine.
    pub(crate) is_free: bool,
}

impl Compacting<'_> {
    fn planner(&self) -> Planner<'_> {
        Planner { ledger: self.ledger, prompt: self.prompt }
    }

    /// Returns what the circuit breaker allows for a request of this many tokens.
    fn permit(&self, tokens: u64, is_needed: bool) -> Permit {
        self.compaction.carried.breaker.permit(self.ledger.now, tokens, self.ledger.state().rest_tokens, is_needed)
    }

    /// Returns true if the session waits for the running job.
    fn is_waited_for(&self) -> bool {
        self.compaction.awaited && !self.ledger.is_over()
    }

    /// Returns true if nothing is running, apart from a compaction in the background.
    fn is_idle(&self) -> bool {
        self.is_free && !self.compaction.awaited && !self.ledger.is_over()
    }

    /// Proceeds if nothing is in progress; otherwise, work in progress proceeds once it ends.
    fn proceed_if_idle(&mut self) {
        if self.is_idle() {
            self.ledger.then(Step::Proceed);
        }
    }
}

impl Compactor {
    pub(crate) fn new(mut carried: CompactionMemory) -> Self {
        Self {
            work: Work { ordered: carried.ordered.take(), ..Work::default() },
            carried,
            gave_up: false,
            awaited: false,
        }
    }

    /// Returns what the next loop inherits.
    pub(crate) fn into_carried(mut self) -> CompactionMemory {
        self.carried.ordered = self.work.ordered.take();
        self.carried
    }

    /// Returns true if a job is running, waited for or not.
    pub(crate) fn is_at_work(&self) -> bool {
        self.work.running.is_some()
    }

    /// Returns true while the session waits for the running job.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Notes that the session no longer waits for the running job.
    pub(crate) fn release(&mut self) {
        self.awaited = false;
    }

    /// Returns the running, ordered or ready job.
    pub(crate) fn job_id(&self) -> Option<&JobId> {
        let running = self.work.running.as_ref().map(|running| &running.job.order);
        let order = running.or(self.work.ordered.as_ref());
        order.or(self.work.ready.as_ref().map(|ready| &ready.basis.order)).map(|order| &order.job_id)
    }

    /// Returns the job that a client's own compaction must not replace: one that was requested or that is waited for.
    pub(crate) fn blocking_job(&self) -> Option<&JobId> {
        match &self.work.running {
            Some(running) if running.is_in_background() && running.waited_since.is_none() => None,
            Some(running) => Some(&running.job.order.job_id),
            None => self.work.ordered.as_ref().map(|order| &order.job_id),
        }
    }

    /// Returns the command that requested the running job as a preview.
    pub(crate) fn preview_of(&self) -> Option<CommandId> {
        self.work.running.as_deref().and_then(Running::preview_of)
    }

    /// Returns the deadline of the running job; none while its request yields to others.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.work.running.as_ref().filter(|running| !running.makes_way).map(|running| running.job.deadline)
    }

    /// Returns true if a compaction was ordered and has not started.
    pub(crate) fn is_ordered(&self) -> bool {
        self.work.ordered.is_some()
    }

    /// Returns the id of the preview that may be applied.
    #[cfg(test)]
    pub(crate) fn preview_id(&self) -> Option<&reseed_protocol::JobId> {
        self.carried.preview.as_ref().map(|preview| preview.id())
    }

    /// Returns true if a compaction failed in this turn.
    pub(crate) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Resets the failure flag at the end of a turn: the next one may compact again.
    pub(crate) fn turn_over(&mut self) {
        self.gave_up = false;
    }

    /// Notes that a person or a hook declined a compaction at this token count.
    pub(crate) fn declined(&mut self, tokens: u64) {
        self.carried.breaker.declined(tokens);
    }

    /// Drops a ready compaction if it is the held one, which was ordered in the running turn. It stays held.
    pub(crate) fn leave_held(&mut self, ledger: &Ledger) {
        if let Some(held) = &ledger.state().held {
            let _ = self.work.take_ready_of(&held.job_id);
        }
    }

    /// Returns true if the running job was started in the background.
    pub(crate) fn is_in_background(&self) -> bool {
        self.work.running.as_deref().is_some_and(Running::is_in_background)
    }

    /// Takes the compaction that waits for a point between two requests.
    pub(crate) fn take_ready(&mut self) -> Option<Ready> {
        self.work.take_ready()
    }

    /// Takes the ordered compaction.
    pub(crate) fn take_ordered(&mut self) -> Option<Order> {
        self.work.ordered.take()
    }

    /// Drops the preview if `is_read` accepts the last entry that it has read.
    pub(crate) fn drop_preview_if(&mut self, is_read: impl Fn(Option<&EntryId>) -> bool) {
        let _ = self.carried.preview.take_if(|preview| is_read(preview.basis().last_read.as_ref()));
    }

    /// Returns true if `is_read` accepts the last entry that the compaction in progress has read.
    pub(crate) fn has_read(&self, is_read: impl Fn(Option<&EntryId>) -> bool) -> bool {
        let at_work = self.work.running.as_ref().map(|running| running.job.last_read());
        at_work.or(self.work.ready.as_ref().map(|ready| ready.basis.last_read.as_ref())).is_some_and(is_read)
    }

    /// Returns how full the window would be with the next request.
    pub(crate) fn context_info(&self, planner: Planner<'_>) -> ContextInfo {
        let count = planner.prompt.count_now(planner.ledger);
        self.context_info_of(planner, &count, planner.ledger.window_tokens())
    }

    /// Returns how full the window is, given this count of the next request.
    pub(crate) fn context_info_of(&self, planner: Planner<'_>, count: &RequestCount, window: u64) -> ContextInfo {
        let Planner { ledger, prompt } = planner;
        let breaker = self.carried.breaker.state(ledger.now, count.tokens, ledger.state().rest_tokens);
        prompt.context_info_of(ledger, count, window, breaker)
    }

    /// Resets the circuit breaker after a change of strategy.
    pub(crate) fn reset_breaker(&mut self) {
        self.carried.breaker.reset();
    }

    /// Returns why the circuit breaker is open, if it is.
    pub(crate) fn tripped(&self) -> Option<BreakerReason> {
        self.carried.breaker.tripped()
    }
}
