//! A compaction at work: going down its ladder, in the background or waited for, and committing what it came to.
//!
//! One is at work at a time. What nobody waits for is committed at the next place between two requests; it replaces
//! exactly what was read and keeps everything said since.

use super::{AgentLoop, CallModel, Effect, RequestId, Stage, commands::Caller, fail::Spent, turn::appended};
use crate::core::{
    context::{
        RequestCount,
        build::remaining,
        compaction::{Job, Next, Order, Outcome, carry::carried_patch},
        counter::Estimator,
    },
    model::{Answer, ModelFault, ModelRequest},
    pi,
    session::{Node, SessionTree},
};
use reseed_protocol::{
    CommandId, Entry, EntryData, EntryId, ErrorBody, ErrorCode, JobId, Role, Timestamp,
    entry::Compaction,
    event::{
        BreakdownChange, CompactionProgress, CompactionStarted, CompactionTrigger, ContextCompacted, EphemeralEvent,
        Event, TurnStatus,
    },
    reply::{Reply, RunningCompaction},
};
use std::sync::Arc;

/// The phase of a job that summarises for a compaction.
pub(super) const PHASE: &str = "summarising";

/// What a job is made for.
#[derive(Debug, Clone)]
pub(super) enum Use {
    /// To be committed; in the background, turns go on meanwhile.
    Commit { background: bool },
    /// To be looked at by this client.
    Preview(Caller),
}

/// A job at work.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) request: RequestId,
    pub(super) job: Box<Job>,
    pub(super) use_: Use,
    /// It was begun while turns went on.
    pub(super) background: bool,
    /// Since when somebody waits for it.
    pub(super) waited_since: Option<Timestamp>,
}

/// A compaction that is made.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) job: Box<Job>,
    pub(super) outcome: Box<Outcome>,
    pub(super) background: bool,
    pub(super) waited_since: Option<Timestamp>,
}

/// How far a job went.
pub(super) enum Advanced {
    /// The model was asked.
    Asked,
    /// It is done: committed, ready or shown.
    Made,
    /// It came to nothing; everybody but a turn that waits was told.
    Failed(CompactionTrigger, ErrorBody),
}

impl Running {
    /// The command that asked for this as a preview.
    pub(super) fn preview_of(&self) -> Option<CommandId> {
        match &self.use_ {
            Use::Preview(caller) => Some(caller.id.clone()),
            Use::Commit { .. } => None,
        }
    }
}

impl AgentLoop {
    /// Begins the compaction that a client ordered. `false`: nothing to do any more; the client is told.
    pub(super) fn start_ordered(&mut self, now: Timestamp, order: Order) -> bool {
        self.void_running("a compaction that was asked for takes its place");
        match self.start_job(now, order.clone(), Use::Commit { background: false }, true) {
            Ok(()) => self.is_held_up(),
            Err(error) => {
                self.compaction_failed(&order, Spent::default(), error);
                false
            }
        }
    }

    /// Whether a compaction keeps this loop from going on: it is waited for, or has ended it.
    pub(super) fn is_held_up(&self) -> bool {
        matches!(self.stage, Stage::Compacting | Stage::Done)
    }

    /// The job that is at work or ordered: a compaction, a preview, or the summary of a branch.
    pub(super) fn running_job(&self) -> Option<&JobId> {
        match (&self.stage, &self.running, &self.ordered) {
            (Stage::Leaving { leaving, .. }, ..) => Some(&leaving.job.order.job_id),
            (_, Some(running), _) => Some(&running.job.order.job_id),
            (_, None, Some(order)) => Some(&order.job_id),
            (_, None, None) => self.ready.as_ref().map(|ready| &ready.job.order.job_id),
        }
    }

    /// The compaction at work or ordered, as a client that joins is told of it; a preview is its client's own business.
    pub(super) fn shown_compaction(&self) -> Option<RunningCompaction> {
        let of = |order: &Order, phase: &str, background| RunningCompaction {
            job_id: order.job_id.clone(),
            phase: phase.to_owned(),
            background,
        };
        if let Some(running) = &self.running {
            let background = !matches!(self.stage, Stage::Compacting);
            let is_shown = matches!(running.use_, Use::Commit { .. });
            return is_shown.then(|| of(&running.job.order, PHASE, background));
        }
        if let Some(ready) = &self.ready {
            return Some(of(&ready.job.order, "ready", true));
        }
        self.ordered.as_ref().map(|order| of(order, "ordered", false))
    }

    /// The job that a client's own compaction may not push aside: one that was asked for or that somebody waits for.
    pub(super) fn blocking_job(&self) -> Option<&JobId> {
        let aside = self.running.as_ref().is_some_and(|running| running.background && running.waited_since.is_none())
            || self.running.is_none() && self.ordered.is_none() && !matches!(self.stage, Stage::Leaving { .. });
        self.running_job().filter(|_| !aside)
    }

    pub(super) fn is_running(&self, request: RequestId) -> bool {
        self.running.as_ref().is_some_and(|running| running.request == request)
    }

    /// Begins a staged job.
    pub(super) fn begin(&mut self, now: Timestamp, job: Box<Job>, use_: Use) -> Advanced {
        let (background, shown) = match use_ {
            Use::Commit { background } => (background, true),
            Use::Preview(_) => (true, false),
        };
        if shown {
            self.out.push(Effect::Emit(EphemeralEvent::CompactionStarted(CompactionStarted {
                job_id: job.order.job_id.clone(),
                trigger: job.order.trigger,
                background,
            })));
        }
        let is_waited_for = !background && (self.session.state.turn.is_some() || !self.session.state.queue.is_empty());
        let request = RequestId(0);
        let waited_since = is_waited_for.then_some(now);
        let running = Running { request, job, use_, background, waited_since };
        match self.before_compaction(now, running) {
            Some(running) => self.advance(now, running),
            None => Advanced::Asked,
        }
    }

    /// Takes a job as far as it goes without the model.
    pub(super) fn advance(&mut self, now: Timestamp, mut running: Running) -> Advanced {
        let before = self.count(&self.context());
        loop {
            match running.job.advance() {
                Next::Ask(body) => {
                    running.request = self.ask_for_summary(&running.job, *body, PHASE);
                    if !running.background && !matches!(self.stage, Stage::Done) {
                        self.stage = Stage::Compacting;
                    }
                    self.running = Some(running);
                    return Advanced::Asked;
                }
                Next::Offer(outcome) => match self.judge(now, &running.job, &outcome, &before) {
                    Ok(()) => return self.made(now, running, outcome),
                    Err((why, tokens)) => running.job.refuse(outcome, why, tokens),
                },
                Next::Exhausted => {
                    // Where nothing gets down to the target, the most that is gained is better than nothing.
                    let best = running.job.best();
                    let gains = best.filter(|(tokens, _)| self.does(&running.job, before.tokens, *tokens));
                    return match gains {
                        Some((_, outcome)) => self.made(now, running, outcome),
                        None => {
                            let message = format!(
                                "nothing that was tried makes the request of {} tokens smaller by the least gain: {}",
                                before.tokens,
                                ladder(&running.job)
                            );
                            self.futile(&running, before.tokens);
                            self.fail(now, running, ErrorBody::new(ErrorCode::NothingToCompact, message))
                        }
                    };
                }
            }
        }
    }

    /// Whether what a job offers does; otherwise why not, and what it would leave.
    fn judge(
        &self,
        now: Timestamp,
        job: &Job,
        outcome: &Outcome,
        before: &RequestCount,
    ) -> Result<(), (&'static str, u64)> {
        let entry = "preview".parse::<EntryId>().expect("a word is an id");
        let after = self.would_be(now, job, outcome, &entry, before.tokens).1.tokens;
        if !self.does(job, before.tokens, after) {
            let why = if after >= before.tokens { "not_smaller" } else { "too_little" };
            return Err((why, after));
        }
        if outcome.any_gain || job.order.trigger == CompactionTrigger::Manual {
            return Ok(());
        }
        let target = self.manager.target_tokens(self.window_tokens());
        let least = self.in_tokens(self.compiled.fixed.system + self.compiled.fixed.tools + outcome.allowed_tokens);
        if outcome.allowed_tokens > 0 && after <= least || after <= target {
            return Ok(());
        }
        Err(("too_little", after))
    }

    /// Whether so much is gained that it is worth it. A summary that is made anew only must not make things worse.
    fn does(&self, job: &Job, before: u64, after: u64) -> bool {
        let fits = || after <= before.max(self.manager.target_tokens(self.window_tokens()));
        self.is_gain(before, after) || job.is_rebuild() && fits()
    }

    fn is_gain(&self, before: u64, after: u64) -> bool {
        let least = crate::core::context::strategy::share(before, self.manager.options().min_gain).max(1);
        after.saturating_add(least) <= before
    }

    /// Asks for a job's next summary and tells how far it is.
    pub(super) fn ask_for_summary(&mut self, job: &Job, body: ModelRequest, phase: &str) -> RequestId {
        let (done, total) = job.progress();
        self.out.push(Effect::Emit(EphemeralEvent::CompactionProgress(CompactionProgress {
            job_id: job.order.job_id.clone(),
            phase: phase.to_owned(),
            done,
            total,
        })));
        let request = self.next_request_id();
        self.out.push(Effect::CallModel(Box::new(CallModel { request, body, shown_as: None, withheld: false })));
        request
    }

    pub(super) fn on_summary(&mut self, now: Timestamp, answer: &Answer) {
        let Some(mut running) = self.running.take() else { return };
        running.job.take(answer);
        let advanced = self.advance(now, running);
        self.after(now, advanced);
    }

    /// What waited for a job goes on once it is over.
    pub(super) fn after(&mut self, now: Timestamp, advanced: Advanced) {
        if let Advanced::Failed(trigger, error) = advanced
            && matches!(self.stage, Stage::Compacting)
        {
            self.without_compaction(now, trigger, error);
        }
    }

    /// The model could not be asked. Where somebody waits, room is made by rule; in the background there is time to try
    /// again later.
    pub(super) fn on_summary_fault(&mut self, now: Timestamp, fault: &ModelFault) {
        let Some(mut running) = self.running.take() else { return };
        match fault.code {
            ErrorCode::ContextOverflow => {
                let own = *running.job.model() == *self.session.state.model;
                if let Some(told) = fault.overflow.window_tokens.filter(|_| own) {
                    self.remember_window(told);
                }
                running.job.too_large();
            }
            ErrorCode::UpstreamEmpty => running.job.fall_back("empty"),
            ErrorCode::ContentFiltered => running.job.fall_back("refused"),
            code if running.background && running.waited_since.is_none() => {
                let mut error = ErrorBody::new(code, fault.message.clone());
                error.retry_after_ms = fault.retry_after_ms;
                self.fail(now, running, error);
                return;
            }
            code => running.job.fall_back(code.as_str()),
        }
        let advanced = self.advance(now, running);
        self.after(now, advanced);
    }

    /// The time of the job at work is over.
    pub(super) fn on_compaction_tick(&mut self, now: Timestamp) {
        if self.running.as_ref().is_none_or(|running| running.job.deadline > now) {
            return;
        }
        let Some(mut running) = self.running.take() else { return };
        self.cancel_compaction_hooks();
        self.out.push(Effect::CancelModel(running.request));
        if running.background && running.waited_since.is_none() {
            let message = format!(
                "the summary was not made within {} ms; see COMPACTION_TIMEOUT_SECS",
                self.deployment.summaries.timeout_ms
            );
            self.fail(now, running, ErrorBody::new(ErrorCode::UpstreamTimeout, message));
            return;
        }
        running.job.out_of_time();
        let advanced = self.advance(now, running);
        self.after(now, advanced);
    }

    /// What a job came to does.
    fn made(&mut self, now: Timestamp, running: Running, outcome: Box<Outcome>) -> Advanced {
        let Running { job, use_, background, waited_since, .. } = running;
        if let Use::Preview(caller) = use_ {
            self.show_preview(now, &caller, job, outcome);
            return Advanced::Made;
        }
        let ready = Ready { job, outcome, background, waited_since };
        if !matches!(self.stage, Stage::Idle | Stage::Compacting) {
            self.ready = Some(Box::new(ready));
            return Advanced::Made;
        }
        let trigger = ready.job.order.trigger;
        match self.commit(now, ready) {
            Ok(()) => Advanced::Made,
            Err(error) => Advanced::Failed(trigger, error),
        }
    }

    /// The job came to nothing.
    pub(super) fn fail(&mut self, now: Timestamp, running: Running, error: ErrorBody) -> Advanced {
        let Running { job, use_, background, waited_since, .. } = running;
        if let Use::Preview(caller) = use_ {
            self.reply(&caller, Reply::Error(error));
            return Advanced::Made;
        }
        // A hook that is against it has decided, and not failed.
        let is_failure = !matches!(error.code, ErrorCode::NothingToCompact | ErrorCode::CompactionCancelled);
        if job.order.trigger != CompactionTrigger::Manual && is_failure {
            self.guards.failed(now);
        }
        // Not tried again before the turn is over.
        self.gave_up |= self.session.state.turn.is_some();
        self.compaction_failed(&job.order, self.spent(&job, background, waited_since), error.clone());
        Advanced::Failed(job.order.trigger, error)
    }

    fn futile(&mut self, running: &Running, tokens: u64) {
        if matches!(running.use_, Use::Commit { .. }) && running.job.order.trigger != CompactionTrigger::Manual {
            self.guards.gained(false, tokens, self.window_tokens());
        }
    }

    /// Goes on without what a job would have made: a turn that needed it goes on where its request still fits. A request
    /// that the provider refused is not sent again as it was.
    pub(super) fn without_compaction(&mut self, now: Timestamp, trigger: CompactionTrigger, error: ErrorBody) {
        if self.session.state.turn.is_some() {
            if trigger == CompactionTrigger::Overflow {
                self.stage = Stage::Idle;
                self.finish_turn(now, TurnStatus::Failed, None, Some(overflow_stays(error)), Vec::new());
                return;
            }
            self.gave_up = true;
        }
        self.proceed(now);
    }

    /// Waits for the job at work, if it will be committed.
    pub(super) fn wait_for_running(&mut self, now: Timestamp) -> bool {
        let Some(running) = &mut self.running else { return false };
        if matches!(running.use_, Use::Preview(_)) {
            self.void_running("the conversation needs room now");
            return false;
        }
        running.waited_since.get_or_insert(now);
        self.stage = Stage::Compacting;
        true
    }

    /// The provider refused the request that waits: when the job at work comes to nothing, so does the turn.
    pub(super) fn overflowed(&mut self) {
        if let Some(running) = &mut self.running {
            running.job.order.trigger = CompactionTrigger::Overflow;
        }
    }

    /// Nobody waits for the job at work any more.
    pub(super) fn wait_no_more(&mut self) {
        if let Some(running) = &mut self.running {
            running.waited_since = None;
        }
    }

    /// Somebody's input waits for the job at work.
    pub(super) fn waits_from_now(&mut self) {
        if let Some(running) = self.running.as_mut().filter(|_| matches!(self.stage, Stage::Compacting)) {
            running.waited_since.get_or_insert(self.now);
        }
    }

    /// Commits what waited for a place between two requests. `false`: it came to nothing.
    pub(super) fn commit_ready(&mut self, now: Timestamp, ready: Ready) -> bool {
        self.commit(now, ready).is_ok()
    }

    /// Writes the one entry that is the compaction, and ends this loop.
    ///
    /// # Errors
    /// Why it came to nothing; the clients were told.
    fn commit(&mut self, now: Timestamp, ready: Ready) -> Result<(), ErrorBody> {
        let Ready { job, mut outcome, background, waited_since } = ready;
        if !self.still_holds(&job, &outcome) {
            let message = "what the compaction had read is no longer what the model sees";
            let error = ErrorBody::new(ErrorCode::CompactionVoid, message);
            self.compaction_failed(&job.order, self.spent(&job, background, waited_since), error.clone());
            return Err(error);
        }
        self.keep_what_came(&job, &mut outcome);
        // Counted now: instructions, tools and settings may have changed since the job began, and more may have been said.
        let before = self.count(&self.context());
        let entry_id: EntryId = self.ids.next_id();
        let (entry, after) = self.would_be(now, &job, &outcome, &entry_id, before.tokens);
        let is_enough = self.does(&job, before.tokens, after.tokens);
        if after.tokens >= before.tokens && !(job.is_rebuild() && is_enough) {
            let message = format!(
                "the summary would not be smaller than what it replaces: {} tokens before, {} after",
                before.tokens, after.tokens
            );
            let error = ErrorBody::new(ErrorCode::NothingToCompact, message);
            self.compaction_failed(&job.order, self.spent(&job, background, waited_since), error.clone());
            return Err(error);
        }
        self.guards.gained(is_enough, after.tokens, self.window_tokens());
        let turn_id = self.session.state.turn.as_ref().map(|turn| turn.turn_id.clone());
        #[expect(clippy::cast_precision_loss, reason = "a ratio of token counts, shown to one decimal")]
        let reduction_percent = before.tokens.saturating_sub(after.tokens) as f64 * 100.0 / before.tokens as f64;
        let Outcome { summary, rung, failed, first_kept, kept, cleared, usage, retained, .. } = *outcome;
        let compacted = ContextCompacted {
            old_token_count: before.tokens,
            new_token_count: after.tokens,
            reduction_percent: (reduction_percent * 10.0).round() / 10.0,
            strategy: job.order.strategy.unwrap_or(self.manager.name()).to_owned(),
            job_id: job.order.job_id.clone(),
            command_id: job.order.command_id.clone(),
            entry_id,
            first_kept_entry_id: first_kept,
            kept_entry_ids: kept,
            cleared_entry_ids: cleared,
            trigger: job.order.trigger,
            background,
            rung,
            failed_rungs: failed,
            summary,
            generation: self.generation + 1,
            duration_ms: now.millis_since(job.started_at),
            paused_ms: waited_since.map_or(0, |since| now.millis_since(since)),
            summary_usage: usage,
            cached_tokens_lost: before.cached_tokens,
            retained,
            breakdown: BreakdownChange { before: before.breakdown, after: after.breakdown },
        };
        let command_id = job.order.command_id.clone();
        let events = vec![appended(entry, turn_id, command_id), Event::ContextCompacted(Box::new(compacted))];
        self.append(events, Vec::new());
        self.out.push(Effect::Reseed);
        self.stage = Stage::Done;
        Ok(())
    }

    /// Whether what a job has read is still what stands before what was said since.
    pub(super) fn still_holds(&self, job: &Job, outcome: &Outcome) -> bool {
        let path = self.session.tree.path();
        let has = |id: &EntryId| path.iter().any(|node| node.id() == id);
        self.compaction_in_effect().map(|(id, _)| id) == job.base.as_ref()
            && outcome.first_kept.iter().chain(&outcome.kept).chain(job.last_read()).all(has)
            && !self.parts_call_and_result(job, outcome)
    }

    /// Whether results came since to calls that were open when a job read them, and that it takes out: in its summary
    /// they have none, and the model would never see them.
    fn parts_call_and_result(&self, job: &Job, outcome: &Outcome) -> bool {
        let path = self.session.tree.path();
        let place = |id: &EntryId| path.iter().position(|node| node.id() == id);
        let Some(read) = job.last_read().and_then(place) else { return false };
        let said = |node: &Arc<Node>, role: Role| node.message.as_ref().is_some_and(|message| message.role == role);
        let since = path[read + 1..].iter().take_while(|node| !said(node, Role::Assistant));
        if !since.into_iter().any(|node| said(node, Role::Tool)) {
            return false;
        }
        let Some(calls) = path[..=read].iter().rposition(|node| said(node, Role::Assistant)) else { return false };
        let in_tail = outcome.first_kept.as_ref().and_then(place).is_some_and(|first| first <= calls);
        !in_tail && !path[calls].pinned && !outcome.kept.contains(path[calls].id())
    }

    /// What was said and pinned while the job was at work stays.
    fn keep_what_came(&self, job: &Job, outcome: &mut Outcome) {
        let path = self.session.tree.path();
        if outcome.first_kept.is_none() {
            // Of what was read nothing is the tail: it begins with what was said since.
            let read = job.last_read().and_then(|last| path.iter().rposition(|node| node.id() == last));
            outcome.first_kept = read.and_then(|at| path.get(at + 1)).map(|node| node.id().clone());
        }
        let first = outcome.first_kept.as_ref();
        let tail = first.and_then(|first| path.iter().position(|node| node.id() == first)).unwrap_or(path.len());
        let stays = |node: &&Arc<Node>| node.message.is_some() && (node.pinned || outcome.kept.contains(node.id()));
        outcome.kept = path[..tail].iter().filter(stays).map(|node| node.id().clone()).collect();
    }

    /// The compaction's entry and what the pending request would cost with it.
    pub(super) fn would_be(
        &self,
        now: Timestamp,
        job: &Job,
        outcome: &Outcome,
        entry_id: &EntryId,
        tokens_before: u64,
    ) -> (Entry, RequestCount) {
        let mut compaction = Compaction {
            summary: outcome.summary.clone(),
            first_kept_entry_id: outcome.first_kept.clone(),
            kept_entry_ids: outcome.kept.clone(),
            cleared_entry_ids: outcome.cleared.clone(),
            tokens_before: self.tokens_before(tokens_before),
            tokens_after: None,
            trigger: Some(job.order.trigger),
            duration_ms: Some(now.millis_since(job.started_at)),
            details: Some(outcome.details.clone()),
            carried_patch: Vec::new(),
            hook: outcome.hook.clone(),
            hook_details: outcome.hook_details.clone(),
        };
        let entry = |compaction| self.entry(now, entry_id.clone(), EntryData::Compaction(compaction));
        let mut tree = self.with_compaction(entry(compaction.clone()), &outcome.cleared);
        compaction.carried_patch = carried_patch(&self.session.tree, &tree, &compaction);
        if !compaction.carried_patch.is_empty() {
            tree = self.with_compaction(entry(compaction.clone()), &outcome.cleared);
        }
        let after = self.count(&tree.context());
        compaction.tokens_after = Some(after.tokens);
        (entry(compaction), after)
    }

    /// The tree as it would be.
    fn with_compaction(&self, entry: Entry, cleared: &[EntryId]) -> SessionTree {
        let mut tree = self.session.tree.clone();
        tree.append(Arc::new(Node::counted(entry, &self.counter)));
        tree.clear(cleared, &self.counter);
        tree
    }

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

/// The ways that a job tried, for people.
fn ladder(job: &Job) -> String {
    let tried: Vec<String> =
        job.failed().iter().map(|failed| format!("{:?}: {}", failed.rung, failed.reason)).collect();
    if tried.is_empty() { "there was nothing to try".to_owned() } else { tried.join(", ") }
}

/// The turn's error where the provider refused its request as too large and the compaction failed too.
fn overflow_stays(error: ErrorBody) -> ErrorBody {
    let message = format!("the request does not fit into the model's window, and compacting failed: {}", error.message);
    ErrorBody { message, ..error }
}
