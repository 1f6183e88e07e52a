//! Compacting: stage a job, ask for summaries, commit one entry, end the loop.

use super::{AgentLoop, CallModel, Effect, RequestId, Stage, turn::appended};
use crate::core::{
    context::{
        Context, RequestCount,
        build::remaining,
        build_context,
        compaction::{Job, Order, Outcome, Surroundings, summary_tokens_max},
        counter::Estimator,
        cut::{Cut, CutRule, Keep, find_cut, last_turn_cut, pi_cut},
    },
    model::{Answer, ModelFault},
    pi,
    session::Node,
};
use reseed_protocol::{
    EntryData, ErrorBody, ErrorCode, JobId, Timestamp,
    entry::{Compaction, CompactionDetails},
    event::{
        BreakdownChange, CompactionFailed, CompactionProgress, CompactionStarted, CompactionTrigger, ContextCompacted,
        EphemeralEvent, Event, TurnStatus,
    },
};
use std::sync::Arc;

/// The phase of a job that summarises for a compaction.
pub(super) const PHASE: &str = "summarising";

impl AgentLoop {
    /// Begins the compaction that a client ordered. `false`: nothing to do any more; the client is told.
    pub(super) fn start_ordered(&mut self, now: Timestamp, order: Order) -> bool {
        let keep = self.manager.keep_tokens(self.window_tokens());
        match self.start_job(now, order.clone(), keep) {
            Ok(()) => true,
            Err(error) => {
                self.compaction_failed(&order, error);
                false
            }
        }
    }

    /// The job that is at work or ordered: a compaction, or the summary of a branch.
    pub(super) fn running_job(&self) -> Option<JobId> {
        match &self.stage {
            Stage::Compacting { job, .. } => Some(job.order.job_id.clone()),
            Stage::Leaving { leaving, .. } => Some(leaving.job.order.job_id.clone()),
            _ => self.ordered.as_ref().map(|order| order.job_id.clone()),
        }
    }

    /// What a client's compaction would cut now.
    pub(super) fn ordered_cut(&self) -> Option<Cut> {
        self.cut(&self.context(), self.manager.keep_tokens(self.window_tokens()))
    }

    /// Where a compaction cuts that keeps about so many tokens.
    fn cut(&self, context: &Context, keep_tokens: u64) -> Option<Cut> {
        match self.deployment.cut_rule {
            CutRule::Own => find_cut(context, self.keep(keep_tokens)).or_else(|| last_turn_cut(context)),
            CutRule::Pi => pi_cut(self.session.tree.path(), context, keep_tokens),
        }
    }

    /// What a compaction should keep of the messages so that it ends well below where the next one begins: at most three
    /// quarters of that, with the system prompt, the tools and a summary beside it.
    fn keep(&self, keep_tokens: u64) -> Keep {
        let window = self.window_tokens();
        let trigger = self.manager.compact_at_tokens(window).unwrap_or(window - self.manager.reserved_tokens(window));
        let target = self.in_estimates(trigger / 4 * 3);
        let beside = self.fixed.system + self.fixed.tools + self.in_estimates(summary_tokens_max(window));
        Keep { tokens: self.in_estimates(keep_tokens), tokens_max: target.saturating_sub(beside) }
    }

    /// A number of the model's tokens in units of our estimates, of which the messages' counts are made.
    pub(super) fn in_estimates(&self, tokens: u64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "tokens of a window, far below 2^53"
        )]
        let estimated = (tokens as f64 / self.calibration.factor()) as u64;
        estimated.max(1)
    }

    /// Stages a compaction and asks for its first summary.
    pub(super) fn start_job(&mut self, now: Timestamp, order: Order, keep_tokens: u64) -> Result<(), ErrorBody> {
        let context = self.context();
        let cut = self.cut(&context, keep_tokens).ok_or_else(|| {
            ErrorBody::new(ErrorCode::NothingToCompact, "too few tokens are older than the last turn")
        })?;
        let around = Surroundings {
            model: &self.session.state.model,
            window_tokens: self.window_tokens(),
            counter: &self.counter,
            calibration: &self.calibration,
            details: self.compaction_details(),
            file_tools: &self.deployment.file_tools,
            now,
            delimiter: self.ids.next_text(),
        };
        let job = Job::stage(order, &context, cut, around);
        self.out.push(Effect::Emit(EphemeralEvent::CompactionStarted(CompactionStarted {
            job_id: job.order.job_id.clone(),
            trigger: job.order.trigger,
            background: false,
        })));
        self.next_summary(now, Box::new(job));
        Ok(())
    }

    fn compaction_details(&self) -> Option<CompactionDetails> {
        self.session.tree.path().iter().rev().find_map(|node| match &node.entry.data {
            EntryData::Compaction(compaction) => compaction.details.clone(),
            _ => None,
        })
    }

    /// Asks for the next summary of a job, or commits it when none is left to ask for.
    fn next_summary(&mut self, now: Timestamp, job: Box<Job>) {
        match self.ask_for_summary(&job, PHASE) {
            Some(request) => self.stage = Stage::Compacting { request, job },
            None => self.commit(now, &job),
        }
    }

    /// Asks for a job's next summary and tells how far it is; `None` when none is left to ask for.
    pub(super) fn ask_for_summary(&mut self, job: &Job, phase: &str) -> Option<RequestId> {
        let (done, total) = job.progress();
        let body = job.next_request()?;
        self.out.push(Effect::Emit(EphemeralEvent::CompactionProgress(CompactionProgress {
            job_id: job.order.job_id.clone(),
            phase: phase.to_owned(),
            done,
            total,
        })));
        let request = self.next_request_id();
        self.out.push(Effect::CallModel(Box::new(CallModel { request, body, shown_as: None })));
        Some(request)
    }

    pub(super) fn on_summary(&mut self, now: Timestamp, answer: &Answer) {
        let Stage::Compacting { mut job, .. } = std::mem::replace(&mut self.stage, Stage::Idle) else { return };
        job.take(answer);
        self.next_summary(now, job);
    }

    /// The model could not be asked. A refusal as too large is answered by rule; any other fault ends the compaction,
    /// and the context is as it was.
    pub(super) fn on_summary_fault(&mut self, now: Timestamp, fault: &ModelFault) {
        let Stage::Compacting { mut job, .. } = std::mem::replace(&mut self.stage, Stage::Idle) else { return };
        if let Some(told) = fault.overflow.window_tokens {
            self.remember_window(told);
        }
        if matches!(fault.code, ErrorCode::ContextOverflow | ErrorCode::UpstreamEmpty | ErrorCode::ContentFiltered) {
            job.fall_back();
            self.next_summary(now, job);
            return;
        }
        let mut error = ErrorBody::new(fault.code, fault.message.clone());
        error.retry_after_ms = fault.retry_after_ms;
        self.give_up(now, &job, error);
    }

    /// The compaction came to nothing.
    fn give_up(&mut self, now: Timestamp, job: &Job, error: ErrorBody) {
        self.compaction_failed(&job.order, error.clone());
        self.without_compaction(now, job, error);
    }

    /// Goes on without what this job would have made: a turn that needed it goes on where its request still fits. A
    /// request that the provider refused is not sent again as it was.
    pub(super) fn without_compaction(&mut self, now: Timestamp, job: &Job, error: ErrorBody) {
        if self.session.state.turn.is_some() {
            if job.order.trigger == CompactionTrigger::Overflow {
                self.finish_turn(now, TurnStatus::Failed, None, Some(overflow_stays(error)), Vec::new());
                return;
            }
            self.gave_up = true;
        }
        self.proceed(now);
    }

    fn compaction_failed(&mut self, order: &Order, error: ErrorBody) {
        self.out.push(Effect::Emit(EphemeralEvent::CompactionFailed(CompactionFailed {
            job_id: order.job_id.clone(),
            command_id: order.command_id.clone(),
            code: error.code,
            message: error.message,
        })));
    }

    /// A client or the end of the turn stops the job; the context is as it was.
    pub(super) fn cancel_job(&mut self, request: RequestId, job: &Job) {
        self.out.push(Effect::CancelModel(request));
        self.compaction_failed(&job.order, cancelled());
    }

    /// A client takes its order back before it was begun.
    pub(super) fn cancel_ordered(&mut self) {
        if let Some(order) = self.ordered.take() {
            self.compaction_failed(&order, cancelled());
        }
    }

    /// Checks that it gained something, writes the one entry that is the compaction, and ends this loop.
    fn commit(&mut self, now: Timestamp, job: &Job) {
        // Counted now: instructions, tools and settings may have changed since the job began.
        let before = &self.count(&self.context());
        let outcome = job.outcome().unwrap_or_else(|| job.shorter());
        let entry_id = self.ids.next_id();
        let mut chosen = self.would_be(now, job, outcome, &entry_id, before.tokens);
        if chosen.after.tokens >= before.tokens {
            chosen = self.would_be(now, job, job.shorter(), &entry_id, before.tokens);
        }
        let WouldBe { outcome, entry, after } = chosen;
        if after.tokens >= before.tokens {
            let message = format!(
                "the summary would not be smaller than what it replaces: {} tokens before, {} after",
                before.tokens, after.tokens
            );
            self.give_up(now, job, ErrorBody::new(ErrorCode::NothingToCompact, message));
            return;
        }
        let duration_ms = now.millis_since(job.started_at);
        let turn_id = self.session.state.turn.as_ref().map(|turn| turn.turn_id.clone());
        let waited = turn_id.is_some() || !self.session.state.queue.is_empty();
        #[expect(clippy::cast_precision_loss, reason = "a ratio of token counts, shown to one decimal")]
        let reduction_percent = (before.tokens - after.tokens) as f64 * 100.0 / before.tokens as f64;
        let compacted = ContextCompacted {
            old_token_count: before.tokens,
            new_token_count: after.tokens,
            reduction_percent: (reduction_percent * 10.0).round() / 10.0,
            strategy: self.manager.name().to_owned(),
            job_id: job.order.job_id.clone(),
            command_id: job.order.command_id.clone(),
            entry_id,
            first_kept_entry_id: outcome.first_kept.clone(),
            kept_entry_ids: outcome.kept.clone(),
            trigger: job.order.trigger,
            rung: outcome.rung,
            summary: outcome.summary.clone(),
            generation: self.generation + 1,
            duration_ms,
            paused_ms: if waited { duration_ms } else { 0 },
            summary_usage: outcome.usage.clone(),
            cached_tokens_lost: before.cached_tokens,
            breakdown: BreakdownChange { before: before.breakdown, after: after.breakdown },
        };
        let command_id = job.order.command_id.clone();
        let events = vec![appended(entry, turn_id, command_id), Event::ContextCompacted(Box::new(compacted))];
        self.append(events, Vec::new());
        self.out.push(Effect::Reseed);
        self.stage = Stage::Done;
    }

    /// The compaction's entry and what the pending request would cost with it.
    fn would_be(
        &self,
        now: Timestamp,
        job: &Job,
        outcome: Outcome,
        entry_id: &reseed_protocol::EntryId,
        tokens_before: u64,
    ) -> WouldBe {
        let data = |tokens_after| {
            EntryData::Compaction(Compaction {
                summary: outcome.summary.clone(),
                first_kept_entry_id: outcome.first_kept.clone(),
                kept_entry_ids: outcome.kept.clone(),
                tokens_before: self.tokens_before(tokens_before),
                tokens_after,
                trigger: Some(job.order.trigger),
                duration_ms: Some(now.millis_since(job.started_at)),
                details: Some(outcome.details.clone()),
            })
        };
        let node = Node::counted(self.entry(now, entry_id.clone(), data(None)), &self.counter);
        let mut path = self.session.tree.path().to_vec();
        path.push(Arc::new(node));
        let after = self.count(&build_context(&path));
        let entry = self.entry(now, entry_id.clone(), data(Some(after.tokens)));
        WouldBe { outcome, entry, after }
    }
}

impl AgentLoop {
    /// What the entry says of the context before. pi takes the newest report there for it, even one from before the last
    /// compaction.
    fn tokens_before(&self, counted: u64) -> u64 {
        match self.counter.estimator() {
            Estimator::Own => counted,
            Estimator::Pi => {
                let remaining = remaining(self.session.tree.path());
                let messages = pi::message::of_entries(remaining.into_iter().map(|(_, node)| &node.entry));
                pi::usage::context_tokens(&messages).tokens
            }
        }
    }
}

struct WouldBe {
    outcome: Outcome,
    entry: reseed_protocol::Entry,
    after: RequestCount,
}

pub(super) fn cancelled() -> ErrorBody {
    ErrorBody::new(ErrorCode::CompactionCancelled, "the compaction was cancelled; the context is as it was")
}

/// The turn's error where the provider refused its request as too large and the compaction failed too.
fn overflow_stays(error: ErrorBody) -> ErrorBody {
    let message = format!("the request does not fit into the model's window, and compacting failed: {}", error.message);
    ErrorBody { message, ..error }
}
