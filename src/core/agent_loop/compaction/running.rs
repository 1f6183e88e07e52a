//! A compaction job going down its fallback chain, in the background or waited for.
//!
//! One job runs at a time. A background job's outcome is committed at the next point between two requests. What
//! follows when a step of the chain fails, or the whole chain, is in `fail`.

use crate::{
    agent_loop::{
        AgentLoop,
        compaction::{Compactor, fail::Spent, held::Source},
        io::{Caller, RequestId},
        stage::Stage,
        workspace::Workspace,
    },
    context::{
        RequestCount,
        compaction::{Basis, Job, Next, Order, Outcome},
    },
    model::ModelRequest,
};
use reseed_protocol::{
    CommandId, EntryId, ErrorBody, JobId, Timestamp,
    event::{CompactionProgress, CompactionRung, CompactionStarted, CompactionTrigger, EphemeralEvent},
    reply::RunningCompaction,
};

/// The phase of a job that summarises for a compaction.
pub(in crate::agent_loop) const PHASE: &str = "summarising";

/// The purpose of a job.
#[derive(Debug, Clone)]
pub(in crate::agent_loop) enum JobPurpose {
    /// The outcome is committed. In the background, turns continue meanwhile.
    Commit { background: bool },
    /// The outcome is shown to this client.
    Preview(Caller),
}

/// A running job.
#[derive(Debug)]
pub(in crate::agent_loop) struct Running {
    pub(in crate::agent_loop) request: RequestId,
    pub(in crate::agent_loop) job: Box<Job>,
    pub(in crate::agent_loop) purpose: JobPurpose,
    /// Time since which somebody has been waiting for it.
    pub(in crate::agent_loop) waited_since: Option<Timestamp>,
    /// The source that it is made from.
    pub(in crate::agent_loop) source: Source,
}

/// A finished compaction.
#[derive(Debug)]
pub(in crate::agent_loop) struct Ready {
    pub(in crate::agent_loop) basis: Basis,
    pub(in crate::agent_loop) outcome: Box<Outcome>,
    pub(in crate::agent_loop) background: bool,
    pub(in crate::agent_loop) waited_since: Option<Timestamp>,
    /// True if it was made from the held compaction.
    pub(in crate::agent_loop) merged: bool,
}

/// What `advance` has done with a job.
pub(in crate::agent_loop) enum Advanced {
    /// A model request was sent.
    Asked,
    /// The job is over and nothing is left to do: its outcome was committed, held or shown, or waits for a point
    /// between two requests. A preview is also over once its client has got its error.
    Over,
    /// The job failed. Clients were notified; a turn that waits for the job was not.
    Failed(CompactionTrigger, ErrorBody),
}

impl Running {
    /// Returns true if turns continue while the job runs, unless somebody waits for it. True for every preview.
    pub(in crate::agent_loop) fn is_in_background(&self) -> bool {
        !matches!(self.purpose, JobPurpose::Commit { background: false })
    }

    /// Returns the command that requested this job as a preview.
    pub(in crate::agent_loop) fn preview_of(&self) -> Option<CommandId> {
        match &self.purpose {
            JobPurpose::Preview(caller) => Some(caller.id.clone()),
            JobPurpose::Commit { .. } => None,
        }
    }
}

impl AgentLoop {
    /// Starts the compaction that a client ordered. Returns false if nothing is left to do; the client is notified.
    pub(in crate::agent_loop) fn start_ordered(&mut self, order: Order) -> bool {
        self.void_running("a compaction that was asked for takes its place");
        let source = self.source_of(&order);
        match self.start_job(order.clone(), JobPurpose::Commit { background: false }, true, source) {
            Ok(()) => self.is_held_up(),
            Err(error) => {
                self.compaction.compaction_failed(&mut self.ws, &order, Spent::default(), error);
                false
            }
        }
    }

    /// Returns the running or ordered job: a compaction, a preview, or a branch summary.
    pub(in crate::agent_loop) fn running_job(&self) -> Option<&JobId> {
        match (self.navigation.job_id(), self.compaction.work.running(), self.compaction.work.ordered()) {
            (Some(job_id), ..) => Some(job_id),
            (_, Some(running), _) => Some(&running.job.order.job_id),
            (_, None, Some(order)) => Some(&order.job_id),
            (_, None, None) => self.compaction.work.ready().map(|ready| &ready.basis.order.job_id),
        }
    }

    /// Returns the job that a client's own compaction must not replace: one that was requested or that somebody waits
    /// for.
    pub(in crate::agent_loop) fn blocking_job(&self) -> Option<&JobId> {
        let aside = self
            .compaction
            .work
            .running()
            .is_some_and(|running| running.is_in_background() && running.waited_since.is_none())
            || self.compaction.work.running().is_none()
                && self.compaction.work.ordered().is_none()
                && self.stage() != Stage::Leaving;
        self.running_job().filter(|_| !aside)
    }

    /// Starts a prepared job.
    pub(in crate::agent_loop) fn begin(&mut self, job: Box<Job>, purpose: JobPurpose, source: Source) -> Advanced {
        if let JobPurpose::Commit { background } = purpose {
            self.ws.emit(EphemeralEvent::CompactionStarted(CompactionStarted {
                job_id: job.order.job_id.clone(),
                trigger: job.order.trigger,
                background,
            }));
        }
        let mut running = Running { request: RequestId(0), job, purpose, waited_since: None, source };
        if !running.is_in_background()
            && (self.ws.session.state.turn.is_some() || !self.ws.session.state.queue.is_empty())
        {
            running.waited_since = Some(self.ws.now);
        }
        match self.before_compaction(running) {
            Some(running) => self.advance(running),
            None => Advanced::Asked,
        }
    }

    /// Advances a job as far as possible without the model.
    pub(in crate::agent_loop) fn advance(&mut self, mut running: Running) -> Advanced {
        let before = self.ws.count(&self.ws.context());
        loop {
            match running.job.advance() {
                Next::Ask(body) => {
                    running.request = self.ws.ask_for_summary(&running.job, *body, PHASE);
                    if !running.is_in_background() && !self.ws.is_over() {
                        self.compaction.awaited = true;
                    }
                    self.compaction.work.run(running);
                    return Advanced::Asked;
                }
                Next::Offer(outcome) => match self.ws.judge(&running.job.basis(), &outcome, &before) {
                    Ok(()) => return self.made(running, outcome),
                    Err((why, tokens)) => running.job.refuse(outcome, why, tokens),
                },
                Next::Exhausted => return self.chain_is_used_up(running, before.tokens),
            }
        }
    }

    /// Uses a job's outcome: shows, holds or commits it.
    pub(super) fn made(&mut self, running: Running, outcome: Box<Outcome>) -> Advanced {
        let background = running.is_in_background();
        let Running { job, purpose, waited_since, source, .. } = running;
        let (basis, merges) = (job.basis(), source == Source::Held);
        if let JobPurpose::Preview(caller) = purpose {
            self.compaction.show_preview(&mut self.ws, &caller, basis, outcome, merges);
            return Advanced::Over;
        }
        let trigger = basis.order.trigger;
        if background && self.stage() != Stage::Compacting {
            // Also true for a compaction made from scratch that replaces a held one.
            let remade = source != Source::Seen || self.ws.session.held.is_some();
            let outcome = if merges { outcome } else { self.ws.paid_for_both(outcome) };
            return match self.hold(basis, outcome, remade) {
                Ok(()) => Advanced::Over,
                Err(error) => Advanced::Failed(trigger, error),
            };
        }
        let ready = Ready { basis, outcome, background, waited_since, merged: merges };
        if !matches!(self.stage(), Stage::Idle | Stage::Compacting) {
            self.compaction.work.wait(ready);
            return Advanced::Over;
        }
        match self.compaction.commit(&mut self.ws, ready) {
            Ok(()) => Advanced::Over,
            Err(error) => Advanced::Failed(trigger, error),
        }
    }

    /// Returns true if the loop cannot continue: it waits for a compaction, or a compaction has ended it.
    pub(in crate::agent_loop) fn is_held_up(&self) -> bool {
        matches!(self.stage(), Stage::Compacting | Stage::Done)
    }

    /// Waits for the running job, if its outcome will be committed.
    pub(in crate::agent_loop) fn wait_for_running(&mut self) -> bool {
        let Some(running) = self.compaction.work.running_mut() else { return false };
        if matches!(running.purpose, JobPurpose::Preview(_)) {
            self.void_running("the conversation needs room now");
            return false;
        }
        running.waited_since.get_or_insert(self.ws.now);
        self.compaction.awaited = true;
        true
    }
}

impl Compactor {
    /// Returns the running or ordered compaction for a client that joins. Previews are private to their client.
    pub(in crate::agent_loop) fn shown_compaction(&self) -> Option<RunningCompaction> {
        let of = |order: &Order, phase: &str, background| RunningCompaction {
            job_id: order.job_id.clone(),
            phase: phase.to_owned(),
            background,
        };
        if let Some(running) = self.work.running() {
            let background = !self.awaited;
            let is_shown = matches!(running.purpose, JobPurpose::Commit { .. });
            return is_shown.then(|| of(&running.job.order, PHASE, background));
        }
        if let Some(ready) = self.work.ready() {
            return Some(of(&ready.basis.order, "ready", true));
        }
        self.work.ordered().map(|order| of(order, "ordered", false))
    }

    pub(in crate::agent_loop) fn is_running(&self, request: RequestId) -> bool {
        self.work.running().is_some_and(|running| running.request == request)
    }

    /// Marks the running job as needed by a request that the provider refused: if the job fails, so does the turn.
    pub(in crate::agent_loop) fn overflowed(&mut self) {
        if let Some(running) = self.work.running_mut() {
            running.job.order.trigger = CompactionTrigger::Overflow;
        }
    }

    /// Notes that nobody waits for the running job any more.
    pub(in crate::agent_loop) fn wait_no_more(&mut self) {
        if let Some(running) = self.work.running_mut() {
            running.waited_since = None;
        }
    }

    /// Notes that queued input waits for the running job.
    pub(in crate::agent_loop) fn waits_from_now(&mut self, ws: &mut Workspace) {
        if let Some(running) = self.work.running_mut().filter(|_| self.awaited) {
            running.waited_since.get_or_insert(ws.now);
        }
    }
}

impl Workspace {
    /// Checks that an outcome is good enough; otherwise returns the reason and the tokens that it would leave.
    fn judge(&self, basis: &Basis, outcome: &Outcome, before: &RequestCount) -> Result<(), (&'static str, u64)> {
        let entry = "preview".parse::<EntryId>().expect("a word is an id");
        let after = self.would_be(basis, outcome, &entry, before.tokens).1.tokens;
        if outcome.rung == CompactionRung::HookSummary {
            // A hook's summary is final: it is refused only if it saves nothing.
            return if after < before.tokens { Ok(()) } else { Err(("not_smaller", after)) };
        }
        if !self.saves_enough(basis, before.tokens, after) {
            let why = if after >= before.tokens { "not_smaller" } else { "too_little" };
            return Err((why, after));
        }
        let window = self.planning_window(basis.order.trigger, || before.tokens);
        if outcome.any_gain || basis.order.trigger == CompactionTrigger::Manual || self.reaches(outcome, after, window)
        {
            return Ok(());
        }
        Err(("too_little", after))
    }

    /// Returns true if an outcome that leaves `after` tokens reaches the target, or the most that its cut allows.
    pub(in crate::agent_loop) fn reaches(&self, outcome: &Outcome, after: u64, window_tokens: u64) -> bool {
        let target = self.manager().target_tokens(window_tokens);
        let least = self.prompt.in_tokens(self.prompt.fixed().total() + outcome.allowed_tokens);
        outcome.allowed_tokens > 0 && after <= least || after <= target
    }

    /// Returns true if the saving reaches the minimum. A rebuilt summary may save nothing, but it may enlarge the
    /// context only up to the target.
    pub(in crate::agent_loop) fn saves_enough(&self, basis: &Basis, before: u64, after: u64) -> bool {
        let fits = || after <= before.max(self.manager().target_tokens(self.window_tokens()));
        self.is_gain(before, after) || basis.is_rebuild && fits()
    }

    fn is_gain(&self, before: u64, after: u64) -> bool {
        let least = crate::context::strategy::share(before, self.manager().options().min_gain).max(1);
        after.saturating_add(least) <= before
    }

    /// Requests a job's next summary and reports its progress.
    pub(in crate::agent_loop) fn ask_for_summary(&mut self, job: &Job, body: ModelRequest, phase: &str) -> RequestId {
        let (done, total) = job.progress();
        self.emit(EphemeralEvent::CompactionProgress(CompactionProgress {
            job_id: job.order.job_id.clone(),
            phase: phase.to_owned(),
            done,
            total,
        }));
        self.call_model(body, None, false)
    }
}
