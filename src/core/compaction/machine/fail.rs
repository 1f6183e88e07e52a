//! Decides what follows when a summary, or a whole compaction, fails.
//!
//! | what failed | what follows |
//! | --- | --- |
//! | the provider's own compaction, whatever the fault (`on_summary_fault`) | the usual summary |
//! | the answer: no usable summary, empty or refused (`on_summary`, `on_summary_fault`) | the next attempt |
//! | the output limit was reached before any text (`on_summary_fault`) | once: the same with room for reasoning |
//! | the request was too large (`on_summary_fault`) | the next attempt, in smaller pieces if possible |
//! | a budget is used up (`on_summary_fault`) | the next attempt, without the model |
//! | another fault, or the deadline (`on_summary_fault`, `on_compaction_tick`): | |
//! | – somebody waits, it is a preview, or older segments were being merged | the next attempt |
//! | – otherwise | the job ends and can be tried again later |
//! | every step of the chain (`chain_is_used_up`) | the best rejected outcome is used, if it saves enough |
//! | using an outcome (`commit`, `hold`: its input has changed, or it saves nothing) | the job ends |
//! | a required hook (`compaction_not_inspected` in `hooks`) | the job ends |
//!
//! [`Job`] chooses the next attempt (`take`, `try_again`, `too_large`, `fall_back`). An unusable answer is requested
//! once more, as a separate request if the failed one was part of the conversation. After that, the summary is an
//! extract by rule. After the deadline, nothing more is requested. An outcome that saves too little is refused
//! (`advance` in `running`), and the chain continues: with an extract, then with the strategy's next step.
//!
//! A job that ends (`Compactor::fail`), was stopped, or has read what the model no longer sees (`end_running`) leaves
//! the context unchanged. All clients receive the reason and the cost; for a preview, only the requesting client
//! receives the reason. The circuit breaker counts summaries that failed, and compactions that gained too little. A
//! turn that waits continues in `continue_without`: it sends its request if that still fits, and fails otherwise.
//!
//! `navigation` handles the summary of an abandoned branch (`on_branch_summary_fault`, `cancel_move`). After an
//! unusable answer, or a request that was too large, the move continues with another attempt, a smaller request or an
//! extract. After any other fault, or if it is cancelled, the session stays where it is.

use crate::compaction::machine::work::{Advanced, JobPurpose, Ready, Running, Spent};
use crate::{
    agent_loop::{io::Effect, ledger::Ledger, prompt::Prompt, step::Step},
    compaction::machine::{Compacting, Compactor, running::summary_failed},
};
use crate::{
    compaction::{Held, Job, Order, SummaryAttempt},
    model::{Answer, ModelFault},
};
use reseed_protocol::{
    ErrorBody, ErrorCode, JobId, Timestamp,
    compaction::{CompactionFailed, CompactionRung, CompactionTrigger, FailedRung},
    event::Event,
    reply::Reply,
};

impl Compacting<'_> {
    /// Handles the model's answer to a summary request. If it is unusable, the job makes the next attempt.
    pub(crate) fn on_summary(&mut self, answer: &Answer) {
        let Some(mut running) = self.compaction.work.take_running() else { return };
        // The summary that may follow has the whole time.
        if running.job.asks_natively() {
            self.renew_deadline(&mut running);
        }
        running.job.take(answer);
        self.advance_or_continue(running);
    }

    fn renew_deadline(&self, running: &mut Running) {
        running.job.deadline = self.ledger.now.plus_millis(self.ledger.deployment.summaries.timeout_ms);
    }

    /// Handles a failed summary request: the job makes the next attempt, or ends and can be tried again later.
    pub(crate) fn on_summary_fault(&mut self, fault: &ModelFault) {
        let Some(mut running) = self.compaction.work.take_running() else { return };
        if !running.job.native_failed(fault.code.as_str()) && !summary_failed(self.ledger, &mut running.job, fault) {
            if running.can_wait() && !running.job.is_merging() {
                self.compaction.carried.breaker.failed(self.ledger.now);
                let mut error = ErrorBody::new(fault.code, fault.message.clone());
                error.retry_after_ms = fault.retry_after_ms;
                self.compaction.fail(self.ledger, running, error);
                return;
            }
            running.job.fall_back(fault.code.as_str());
        }
        self.advance_or_continue(running);
    }

    /// Stops asking the model if the running job's deadline has passed: the job makes the next
    /// attempt, or ends and can be tried again later.
    pub(crate) fn on_compaction_tick(&mut self) {
        let deadline = self.compaction.deadline().filter(|_| !self.hooks.looks_at_compaction());
        if deadline.is_none_or(|deadline| deadline > self.ledger.now) {
            return;
        }
        let Some(mut running) = self.compaction.work.take_running() else { return };
        self.ledger.push(Effect::CancelModel(running.request));
        if running.job.native_failed("timeout") {
            self.renew_deadline(&mut running);
            self.advance_or_continue(running);
            return;
        }
        if running.can_wait() && !running.job.is_merging() {
            self.compaction.carried.breaker.failed(self.ledger.now);
            let message = format!(
                "the summary was not made within {} ms; see COMPACTION_TIMEOUT_SECS",
                self.ledger.deployment.summaries.timeout_ms
            );
            self.compaction.fail(self.ledger, running, ErrorBody::new(ErrorCode::UpstreamTimeout, message));
            return;
        }
        running.job.out_of_time();
        self.advance_or_continue(running);
    }

    /// Uses the best rejected outcome once no step of the chain is left, because some saving is better than none. Fails
    /// the job if it does not save enough. `before` is the context's current token count.
    pub(crate) fn chain_is_used_up(&mut self, mut running: Running, before: u64) -> Advanced {
        let best = running.job.best();
        match best.filter(|(tokens, _)| self.planner().saves_enough(&running.job.basis(), before, *tokens)) {
            Some((_, outcome)) => self.made(running, outcome),
            None => {
                let error = gains_nothing(before, running.job.failed());
                self.compaction.note_futile(self.ledger, &running, before);
                self.compaction.fail(self.ledger, running, error)
            }
        }
    }

    /// Reports the attempt to the circuit breaker and advances the job; continues without it if it fails.
    fn advance_or_continue(&mut self, mut running: Running) {
        self.compaction.note_tried(self.ledger.now, &mut running.job);
        let advanced = self.advance(running);
        self.continue_if_failed(advanced);
    }

    /// Continues without the compaction if the job has failed and the session waits for it.
    pub(crate) fn continue_if_failed(&mut self, advanced: Advanced) {
        if let Advanced::Failed(trigger, error) = advanced
            && self.is_waited_for()
        {
            self.ledger.then(Step::WithoutCompaction(trigger, error));
        }
    }

    /// Continues without the compaction: a waiting turn continues if its request still fits. If the provider refused
    /// the request, it is not sent again unchanged, and its turn fails.
    pub(crate) fn continue_without(&mut self, trigger: CompactionTrigger, error: ErrorBody) {
        if self.ledger.state().turn.is_some() {
            if trigger == CompactionTrigger::Overflow {
                self.ledger.then(Step::fail_turn(overflow_stays(error)));
                return;
            }
            self.compaction.gave_up = true;
        }
        self.ledger.then(Step::Proceed);
    }

    /// Stops the running job or drops its outcome, for a client or because the turn ends. The context is unchanged.
    /// Returns the job's trigger.
    pub(crate) fn cancel_running(&mut self) -> Option<CompactionTrigger> {
        self.end_running(&cancelled())
    }

    /// Voids the running job or its outcome, because the model no longer sees what it has read.
    pub(crate) fn void_running(&mut self, why: &str) {
        let message = format!("what the compaction had read is no longer what the model sees: {why}");
        self.end_running(&ErrorBody::new(ErrorCode::CompactionVoid, message));
    }

    fn end_running(&mut self, error: &ErrorBody) -> Option<CompactionTrigger> {
        self.compaction.release();
        self.hooks.cancel_compaction_hooks(self.ledger);
        if let Some(running) = self.compaction.work.take_running() {
            let background = running.is_in_background();
            let Running { request, job, purpose, waited_since, .. } = running;
            self.ledger.push(Effect::CancelModel(request));
            match purpose {
                JobPurpose::Preview(caller) => self.ledger.reply(&caller, self.ledger.ending_or(error.clone())),
                JobPurpose::Commit { .. } => {
                    let spent = Spent::of(&job.basis(), self.ledger.now, background, waited_since);
                    self.compaction.compaction_failed(self.ledger, &job.order, spent, error.clone());
                }
            }
            return Some(job.order.trigger);
        }
        let ready = self.compaction.work.take_ready()?;
        if error.code == ErrorCode::CompactionVoid && self.ledger.session.is_held(&ready.basis.order.job_id) {
            // It stays held and may still be committed; `check_held` decides whether it can be.
            return Some(ready.basis.order.trigger);
        }
        self.compaction.unusable(self.ledger, &ready, error.clone());
        Some(ready.basis.order.trigger)
    }
}

impl Compactor {
    /// Reports a summary attempt's outcome to the circuit breaker.
    pub(crate) fn note_tried(&mut self, now: Timestamp, job: &mut Job) {
        match job.tried() {
            Some(SummaryAttempt::Failed) => self.carried.breaker.failed(now),
            Some(SummaryAttempt::Summarised) => self.carried.breaker.summarised(),
            None => {}
        }
    }

    /// Ends the job without an outcome. A preview's client gets the error as its reply; nothing else waits for it.
    pub(crate) fn fail(&mut self, ledger: &mut Ledger, running: Running, error: ErrorBody) -> Advanced {
        let background = running.is_in_background();
        let Running { job, purpose, waited_since, .. } = running;
        if let JobPurpose::Preview(caller) = purpose {
            ledger.reply(&caller, Reply::Error(error));
            return Advanced::Over;
        }
        // It is not tried again before the turn is over.
        self.gave_up |= ledger.state().turn.is_some();
        self.compaction_failed(
            ledger,
            &job.order,
            Spent::of(&job.basis(), ledger.now, background, waited_since),
            error.clone(),
        );
        Advanced::Failed(job.order.trigger, error)
    }

    /// Reports that a finished compaction cannot be used. Returns the error.
    pub(crate) fn unusable(&mut self, ledger: &mut Ledger, ready: &Ready, error: ErrorBody) -> ErrorBody {
        let spent = Spent::of(&ready.basis, ledger.now, ready.background, ready.waited_since);
        self.compaction_failed(ledger, &ready.basis.order, spent, error.clone());
        error
    }

    /// Reports to the circuit breaker that an automatic compaction gained too little.
    pub(crate) fn note_futile(&mut self, ledger: &Ledger, running: &Running, tokens: u64) {
        if matches!(running.purpose, JobPurpose::Commit { .. })
            && running.job.order.trigger != CompactionTrigger::Manual
        {
            self.carried.breaker.gained(false, tokens, ledger.window_tokens());
        }
    }

    /// Records and reports a failed compaction. Drops the held compaction and the preview of the same job: a compaction
    /// reported as failed must never be committed.
    pub(crate) fn compaction_failed(&mut self, ledger: &mut Ledger, order: &Order, mut spent: Spent, error: ErrorBody) {
        if ledger.session.is_held(&order.job_id) {
            spent.unused = ledger.session.held.as_ref().and_then(|held| held.outcome.usage.clone());
        }
        let _ = self.carried.preview.take_if(|prepared| *prepared.id() == order.job_id);
        let failed = CompactionFailed {
            job_id: order.job_id.clone(),
            command_id: order.command_id.clone(),
            trigger: Some(order.trigger),
            background: spent.background,
            failed_rungs: spent.failed,
            duration_ms: spent.duration_ms,
            paused_ms: spent.paused_ms.saturating_add(std::mem::take(&mut self.carried.waited_behind_ms)),
            summary_usage: spent.unused,
            error,
        };
        ledger.append(vec![Event::CompactionFailed(Box::new(failed))], Vec::new());
    }

    /// Reports that a held compaction is dropped unused.
    pub(crate) fn tell_dropped(&mut self, ledger: &mut Ledger, held: &Held, error: ErrorBody) {
        let basis = held.basis();
        let spent = Spent { unused: held.outcome.usage.clone(), ..Spent::of(&basis, ledger.now, true, None) };
        self.compaction_failed(ledger, &basis.order, spent, error);
    }

    /// Reports that a held compaction with an unreadable record is dropped.
    pub(crate) fn tell_unreadable(&mut self, ledger: &mut Ledger, prompt: &Prompt, job_id: JobId, error: ErrorBody) {
        let order = Order::automatic(job_id, prompt.manager().trigger());
        let spent = Spent { background: true, ..Spent::default() };
        self.compaction_failed(ledger, &order, spent, error);
    }

    /// Cancels an ordered compaction before it starts.
    pub(crate) fn cancel_ordered(&mut self, ledger: &mut Ledger) {
        if let Some(order) = self.work.ordered.take() {
            self.compaction_failed(ledger, &order, Spent::default(), cancelled());
        }
    }
}

/// Returns the error for a compaction that has read what is no longer in effect.
pub(crate) fn void() -> ErrorBody {
    let message = "what the compaction had read is no longer what the model sees";
    ErrorBody::new(ErrorCode::CompactionVoid, message)
}

/// Returns the error for a held compaction that is dropped unused.
pub(crate) fn unused(why: &str) -> ErrorBody {
    let message = format!("the prepared compaction was discarded: {why}; the context is unchanged");
    ErrorBody::new(ErrorCode::CompactionVoid, message)
}

pub(crate) fn cancelled() -> ErrorBody {
    ErrorBody::new(ErrorCode::CompactionCancelled, "the compaction was cancelled; the context is unchanged")
}

/// Returns the error for a compaction that saves nothing, in plain words; the details list the failed steps.
pub(crate) fn gains_nothing(tokens: u64, failed: &[FailedRung]) -> ErrorBody {
    // If a step saves too little, that is not the model's fault.
    let is_fault = |failed: &&FailedRung| !matches!(&*failed.reason, "not_smaller" | "too_little");
    let model_failed = failed
        .iter()
        .filter(is_fault)
        .any(|failed| matches!(failed.rung, CompactionRung::ModelSummary | CompactionRung::ChunkedSummary));
    let why = if model_failed {
        "the model did not give a usable summary, and shortening without the model would not reduce them"
    } else {
        "a summary would not reduce them"
    };
    let message = format!("the conversation has about {tokens} tokens, and {why}; nothing was changed");
    let details = serde_json::json!({ "tokens": tokens, "failedRungs": failed });
    ErrorBody::new(ErrorCode::NothingToCompact, message).with_details(details)
}

/// Returns the turn's error after the provider refused its request as too large and the compaction failed too.
fn overflow_stays(error: ErrorBody) -> ErrorBody {
    let message = format!("the request does not fit into the model's window, and compacting failed: {}", error.message);
    ErrorBody { message, ..error }
}
