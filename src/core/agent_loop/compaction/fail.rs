//! A failed compaction: it failed, was stopped, or has read what the model no longer sees. The context is unchanged,
//! and clients learn the reason and the cost.

use crate::agent_loop::compaction::Compactor;
use crate::agent_loop::workspace::Workspace;
use crate::agent_loop::{
    AgentLoop, Effect,
    compaction::held::Source,
    compaction::job::{Running, Use},
    stage::Stage,
};
use crate::context::compaction::{Basis, Held, Order};
use reseed_protocol::{
    ErrorBody, ErrorCode, JobId, Timestamp, Usage,
    event::{CompactionFailed, CompactionTrigger, Event, FailedRung},
};

/// The cost of a failed compaction.
#[derive(Debug, Default)]
pub(in crate::agent_loop) struct Spent {
    background: bool,
    duration_ms: u64,
    paused_ms: u64,
    failed: Vec<FailedRung>,
    /// The usage of a held compaction's summary.
    unused: Option<Usage>,
}

impl AgentLoop {
    /// Stops the running job or drops its outcome, for a client or because the turn ends. The context is unchanged.
    /// Returns the job's trigger.
    pub(in crate::agent_loop) fn cancel_running(&mut self) -> Option<CompactionTrigger> {
        self.end_running(&cancelled())
    }

    /// Voids the running job or its outcome: what it has read is no longer what the model sees.
    pub(in crate::agent_loop) fn void_running(&mut self, why: &str) {
        let message = format!("what the compaction had read is no longer what the model sees: {why}");
        self.end_running(&ErrorBody::new(ErrorCode::CompactionVoid, message));
    }

    fn end_running(&mut self, error: &ErrorBody) -> Option<CompactionTrigger> {
        if self.ws.stage.is(Stage::Compacting) {
            self.ws.stage.enter(Stage::Idle);
        }
        self.hooks.cancel_compaction_hooks(&mut self.ws);
        if let Some(Running { request, job, use_, background, waited_since, source, .. }) =
            self.compaction.work.take_running()
        {
            self.ws.out.push(Effect::CancelModel(request));
            match use_ {
                Use::Preview(caller) => self.ws.reply(&caller, self.ws.ending_or(error.clone())),
                Use::Commit { .. } => {
                    let spent = self.ws.spent(&job.basis(), background, waited_since);
                    self.compaction.compaction_failed(&mut self.ws, &job.order, spent, error.clone());
                }
            }
            if source != Source::Seen && error.code == ErrorCode::CompactionCancelled {
                self.ws.keep_held_as_it_is();
            }
            return Some(job.order.trigger);
        }
        let ready = self.compaction.work.take_ready()?;
        if error.code == ErrorCode::CompactionVoid && self.ws.is_held(&ready.basis.order.job_id) {
            // It stays held and may still be committed; `check_held` decides if it can.
            return Some(ready.basis.order.trigger);
        }
        let spent = self.ws.spent(&ready.basis, ready.background, ready.waited_since);
        self.compaction.compaction_failed(&mut self.ws, &ready.basis.order, spent, error.clone());
        Some(ready.basis.order.trigger)
    }
}

impl Compactor {
    /// Records and reports a failed compaction. Drops the held compaction and the preview of the same job: a compaction
    /// reported as failed must never be committed.
    pub(in crate::agent_loop) fn compaction_failed(
        &mut self,
        ws: &mut Workspace,
        order: &Order,
        mut spent: Spent,
        error: ErrorBody,
    ) {
        if ws.is_held(&order.job_id) {
            spent.unused = ws.session.held.as_ref().and_then(|held| held.outcome.usage.clone());
        }
        let _ = self.carried.preview.take_if(|prepared| *prepared.id() == order.job_id);
        let failed = CompactionFailed {
            job_id: order.job_id.clone(),
            command_id: order.command_id.clone(),
            trigger: Some(order.trigger),
            background: spent.background,
            failed_rungs: spent.failed,
            duration_ms: spent.duration_ms,
            paused_ms: spent.paused_ms,
            unused_usage: spent.unused,
            code: error.code,
            message: error.message,
        };
        ws.append(vec![Event::CompactionFailed(Box::new(failed))], Vec::new());
    }

    /// Reports that a held compaction is dropped unused.
    pub(in crate::agent_loop) fn tell_dropped(&mut self, ws: &mut Workspace, held: &Held, error: ErrorBody) {
        let basis = held.basis();
        let spent = Spent { unused: held.outcome.usage.clone(), ..ws.spent(&basis, true, None) };
        self.compaction_failed(ws, &basis.order, spent, error);
    }

    /// Reports that a held compaction with an unreadable record is dropped.
    pub(in crate::agent_loop) fn tell_unreadable(&mut self, ws: &mut Workspace, job_id: JobId, error: ErrorBody) {
        let order = Order::automatic(job_id, ws.manager.trigger());
        let spent = Spent { background: true, ..Spent::default() };
        self.compaction_failed(ws, &order, spent, error);
    }

    /// Cancels an ordered compaction before it starts.
    pub(in crate::agent_loop) fn cancel_ordered(&mut self, ws: &mut Workspace) {
        if let Some(order) = self.work.take_ordered() {
            self.compaction_failed(ws, &order, Spent::default(), cancelled());
        }
    }
}

impl Workspace {
    /// Returns what a compaction has cost so far.
    pub(in crate::agent_loop) fn spent(
        &self,
        basis: &Basis,
        background: bool,
        waited_since: Option<Timestamp>,
    ) -> Spent {
        Spent {
            background,
            duration_ms: basis.duration_ms(self.now),
            paused_ms: waited_since.map_or(0, |since| self.now.millis_since(since)),
            failed: basis.failed.clone(),
            unused: None,
        }
    }
}

/// Returns the error for a held compaction that is dropped unused.
pub(in crate::agent_loop) fn unused(why: &str) -> ErrorBody {
    let message = format!("the compaction that was prepared is not used: {why}; the context is as it was");
    ErrorBody::new(ErrorCode::CompactionVoid, message)
}

pub(in crate::agent_loop) fn cancelled() -> ErrorBody {
    ErrorBody::new(ErrorCode::CompactionCancelled, "the compaction was cancelled; the context is as it was")
}
