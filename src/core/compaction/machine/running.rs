//! A compaction job that follows its fallback chain, in the background or waited for.
//!
//! One job runs at a time. A background job's outcome is committed at the next point between two requests. `fail`
//! handles the failure of a step, or of the whole chain.

use crate::compaction::machine::work::{Advanced, JobPurpose, PHASE, Ready, Running, Spent};
use crate::{
    agent_loop::{io::RequestId, ledger::Ledger},
    compaction::machine::{Compacting, Compactor, plan::Planner},
};
use crate::{
    compaction::{Basis, Job, Next, Order, Outcome},
    context::RequestCount,
    model::{ModelFault, ModelRequest},
    usage_row::UsagePurpose,
};
use reseed_protocol::{
    ErrorCode, Timestamp,
    compaction::{CompactionProgress, CompactionRung, CompactionStarted, CompactionTrigger, RunningCompaction},
    event::EphemeralEvent,
};

impl Compacting<'_> {
    /// Starts the compaction that a client ordered. Returns false if nothing is left to do; the client has then been
    /// notified.
    pub(crate) fn start_ordered(&mut self, order: Order) -> bool {
        self.void_running("a compaction that was asked for takes its place");
        match self.start_job(order.clone(), JobPurpose::Commit { background: false }, true) {
            Ok(()) => self.is_held_up(),
            Err(error) => {
                self.compaction.compaction_failed(self.ledger, &order, Spent::default(), error);
                false
            }
        }
    }

    /// Starts a prepared job.
    pub(crate) fn begin(&mut self, job: Box<Job>, purpose: JobPurpose) -> Advanced {
        if let JobPurpose::Commit { background } = purpose {
            self.ledger.emit(EphemeralEvent::CompactionStarted(CompactionStarted {
                job_id: job.order.job_id.clone(),
                trigger: job.order.trigger,
                background,
            }));
        }
        let mut running = Running { request: RequestId(0), job, purpose, waited_since: None, makes_way: false };
        if !running.is_in_background() && (self.ledger.state().turn.is_some() || !self.ledger.state().queue.is_empty())
        {
            running.waited_since = Some(self.ledger.now);
        }
        match self.before_compaction(running) {
            Some(running) => self.advance(running),
            None => Advanced::Asked,
        }
    }

    /// Advances a job as far as possible without the model.
    pub(crate) fn advance(&mut self, mut running: Running) -> Advanced {
        let before = self.prompt.count_now(self.ledger);
        loop {
            match running.job.advance() {
                Next::Ask(body) => {
                    let spent_on = running.spent_on();
                    running.request =
                        ask_for_summary(self.ledger, &running.job, *body, PHASE, running.can_wait(), spent_on);
                    running.makes_way = false;
                    if !running.is_in_background() && !self.ledger.is_over() {
                        self.compaction.awaited = true;
                    }
                    self.compaction.work.run(running);
                    return Advanced::Asked;
                }
                Next::Offer(outcome) => {
                    let basis = running.job.basis();
                    let after = self.planner().would_leave(&basis, &outcome, before.tokens);
                    match self.planner().judge(&basis, &outcome, &before, after) {
                        Ok(()) => return self.made(running, outcome),
                        Err(why) => running.job.refuse(outcome, why, after),
                    }
                }
                Next::Exhausted => return self.chain_is_used_up(running, before.tokens),
            }
        }
    }

    /// Uses a job's outcome: shows, holds or commits it.
    pub(crate) fn made(&mut self, running: Running, outcome: Box<Outcome>) -> Advanced {
        let background = running.is_in_background();
        let Running { job, purpose, waited_since, .. } = running;
        let basis = job.basis();
        if let JobPurpose::Preview(caller) = purpose {
            self.compaction.show_preview(self.ledger, self.prompt, &caller, basis, outcome);
            return Advanced::Over;
        }
        let trigger = basis.order.trigger;
        let ready = Ready { basis, outcome, background, waited_since };
        let used = if background && !self.is_waited_for() {
            self.hold(ready)
        } else if !self.is_free || self.ledger.is_over() {
            self.compaction.work.wait(ready);
            Ok(())
        } else {
            self.compaction.commit(self.ledger, self.prompt, ready)
        };
        used.map_or_else(|error| Advanced::Failed(trigger, error), |()| Advanced::Over)
    }
}

impl Compactor {
    /// Returns the running or ordered compaction for a client that joins. Previews are private to their client.
    pub(crate) fn shown_compaction(&self) -> Option<RunningCompaction> {
        let of = |order: &Order, phase: &str, background| RunningCompaction {
            job_id: order.job_id.clone(),
            phase: phase.to_owned(),
            background,
        };
        if let Some(running) = &self.work.running {
            let background = !self.awaited;
            let is_shown = matches!(running.purpose, JobPurpose::Commit { .. });
            return is_shown.then(|| of(&running.job.order, PHASE, background));
        }
        if let Some(ready) = &self.work.ready {
            return Some(of(&ready.basis.order, "ready", true));
        }
        self.work.ordered.as_ref().map(|order| of(order, "ordered", false))
    }

    pub(crate) fn is_running(&self, request: RequestId) -> bool {
        self.work.running.as_ref().is_some_and(|running| running.request == request)
    }

    /// Marks the running job as needed by a request that the provider refused: if the job fails, so does the turn.
    pub(crate) fn overflowed(&mut self) {
        if let Some(running) = &mut self.work.running {
            running.job.order.trigger = CompactionTrigger::Overflow;
        }
    }

    /// Notes that the running job's request yields to others; its time limit is paused.
    pub(crate) fn makes_way(&mut self) {
        if let Some(running) = &mut self.work.running {
            running.makes_way = true;
        }
    }

    /// Notes that the running job's request is sent again; its time limit starts anew.
    pub(crate) fn is_asked_again(&mut self, ledger: &Ledger) {
        if let Some(running) = &mut self.work.running {
            running.makes_way = false;
            running.job.deadline = ledger.now.plus_millis(ledger.deployment.summaries.timeout_ms);
        }
    }

    /// Notes that a turn's request waited behind the summary of the compaction in progress.
    pub(crate) fn waited_behind(&mut self, ledger: &Ledger, millis: u64) {
        if self.work.running.is_none() && self.work.ready.is_none() && ledger.session.held.is_none() {
            return;
        }
        self.carried.waited_behind_ms = self.carried.waited_behind_ms.saturating_add(millis);
    }

    /// Returns how long users waited for a compaction that ends now.
    pub(crate) fn paused_ms(&mut self, now: Timestamp, waited_since: Option<Timestamp>) -> u64 {
        let waited = waited_since.map_or(0, |since| now.millis_since(since));
        waited.saturating_add(std::mem::take(&mut self.carried.waited_behind_ms))
    }

    /// Notes that the running job is no longer waited for.
    pub(crate) fn wait_no_more(&mut self) {
        if let Some(running) = &mut self.work.running {
            running.waited_since = None;
        }
    }

    /// Notes that queued input waits for the running job.
    pub(crate) fn waits_from(&mut self, now: Timestamp) {
        if let Some(running) = self.work.running.as_mut().filter(|_| self.awaited) {
            running.waited_since.get_or_insert(now);
        }
    }
}

impl Planner<'_> {
    /// Checks that an outcome that leaves `after` tokens is good enough; otherwise returns the reason.
    pub(crate) fn judge(
        &self,
        basis: &Basis,
        outcome: &Outcome,
        before: &RequestCount,
        after: u64,
    ) -> Result<(), &'static str> {
        if outcome.rung == CompactionRung::HookSummary {
            // A hook's summary is final: it is refused only if it saves nothing.
            return if after < before.tokens { Ok(()) } else { Err("not_smaller") };
        }
        if !self.saves_enough(basis, before.tokens, after) {
            return Err(if after >= before.tokens { "not_smaller" } else { "too_little" });
        }
        let window = self.planning_window(basis.order.trigger, || before.tokens);
        if outcome.any_gain || basis.order.trigger == CompactionTrigger::Manual || self.reaches(outcome, after, window)
        {
            return Ok(());
        }
        // A model's summary that makes room is kept even if it is longer than requested, because an extract says less.
        let is_models = matches!(
            outcome.rung,
            CompactionRung::ModelSummary | CompactionRung::ChunkedSummary | CompactionRung::ProviderNative
        );
        let target = self.prompt.manager().target_tokens(window);
        // It must not be so long that the next compaction is due at once.
        let is_below = |due: u64| after <= target + due.saturating_sub(target) / 4 * 3;
        if is_models && self.prompt.manager().compact_at_tokens(window).is_some_and(is_below) {
            return Ok(());
        }
        Err("too_little")
    }

    /// Returns true if an outcome that leaves `after` tokens reaches the target, or the maximum that its cut allows.
    fn reaches(&self, outcome: &Outcome, after: u64, window_tokens: u64) -> bool {
        let target = self.prompt.manager().target_tokens(window_tokens);
        let fixed = self.prompt.fixed().total() + self.prompt.added_once_compacted(self.ledger);
        let least = self.prompt.in_tokens(fixed + outcome.allowed_tokens);
        outcome.allowed_tokens > 0 && after <= least || after <= target
    }

    /// Returns true if the saving reaches the minimum. A rebuilt summary need not save anything, but may enlarge the
    /// context only up to the target.
    pub(crate) fn saves_enough(&self, basis: &Basis, before: u64, after: u64) -> bool {
        let fits = || after <= before.max(self.prompt.manager().target_tokens(self.ledger.window_tokens()));
        self.is_gain(before, after) || basis.is_rebuild && fits()
    }

    fn is_gain(&self, before: u64, after: u64) -> bool {
        let least = crate::compaction::strategy::share(before, self.prompt.manager().options().min_gain).max(1);
        after.saturating_add(least) <= before
    }
}

/// Requests a job's next summary and reports its progress. If it is not awaited, it yields to users' requests on model
/// servers that process one request at a time.
pub(crate) fn ask_for_summary(
    ledger: &mut Ledger,
    job: &Job,
    body: ModelRequest,
    phase: &str,
    makes_way: bool,
    spent_on: UsagePurpose,
) -> RequestId {
    let (done, total) = job.progress();
    ledger.emit(EphemeralEvent::CompactionProgress(CompactionProgress {
        job_id: job.order.job_id.clone(),
        phase: phase.to_owned(),
        done,
        total,
    }));
    ledger.call_model(body, None, false, makes_way, spent_on)
}

/// Handles a failed summary request that concerns the request itself: it was too large, produced no summary, or is
/// beyond a budget. The job makes the next attempt. Returns false for any other fault.
pub(crate) fn summary_failed(ledger: &mut Ledger, job: &mut Job, fault: &ModelFault) -> bool {
    match fault.code {
        ErrorCode::ContextOverflow => {
            let is_own = *job.model() == *ledger.state().model;
            if let Some(told) = fault.overflow.window_tokens.filter(|_| is_own) {
                ledger.remember_told_window(told);
            }
            job.too_large(fault.overflow.window_tokens);
        }
        ErrorCode::UpstreamEmpty if fault.ran_out && job.leave_room_for_reasoning() => {}
        ErrorCode::UpstreamEmpty => job.try_again("empty"),
        ErrorCode::ContentFiltered => job.try_again("refused"),
        // Until the budget is filled again, no other request would be sent either.
        ErrorCode::BudgetExhausted => job.without_model("budget_exhausted"),
        _ => return false,
    }
    true
}
