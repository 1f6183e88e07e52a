//! The end of a turn: finished, failed, cancelled or interrupted.

use crate::{
    agent_loop::{AgentLoop, Effect, Mark, stage::Stage, step::Step},
    session::{OpenTurn, state::add_usage},
};
use reseed_protocol::{
    ErrorBody, ErrorCode, StopReason, Usage,
    event::{CallOutcome, Event, TurnFinished, TurnStatus},
    reply::PendingCall,
};

impl AgentLoop {
    /// Ends the running turn and continues with what is queued.
    pub(in crate::agent_loop) fn finish_turn(
        &mut self,
        status: TurnStatus,
        finish_reason: Option<StopReason>,
        error: Option<ErrorBody>,
        marks: Vec<Mark>,
    ) {
        let Some(turn) = self.ws.session.state.turn.clone() else { return };
        self.compaction.turn_over();
        let withdrawn: Vec<PendingCall> = self.ws.session.state.pending.clone();
        // A tool whose result hooks are inspecting has answered, so its client is not notified.
        let withdrawn: Vec<PendingCall> =
            withdrawn.into_iter().filter(|call| !self.hooks.is_looked_at(&call.call_id)).collect();
        let late = self.hooks.drop_looked_at(&mut self.ws);
        let dropped = self.turn.drop_calls(&mut self.ws, &turn.turn_id);
        if !dropped.is_empty() {
            self.ws.append(dropped, Vec::new());
        }
        withdrawn.into_iter().for_each(|call| self.ws.withdraw(call, CallOutcome::Dropped));
        late.iter().for_each(|caller| self.ws.remember(caller));
        let withheld_usage = self.turn.progress(&self.ws.session.state).looked_at_usage.take();
        let usage = turn_usage(&self.ws.session.state.turn);
        let usage = match &withheld_usage {
            Some(withheld) => Some(add_usage(usage, withheld)),
            None => usage,
        };
        let event = Event::TurnFinished(Box::new(TurnFinished {
            turn_id: turn.turn_id,
            status,
            finish_reason,
            error,
            usage,
            withheld_usage,
            context_info: self.compaction.context_info(&self.ws),
        }));
        self.ws.append(vec![event], marks);
        self.ws.drop_turn_prompt();
        self.ws.then(Step::Proceed);
        self.ws.then(Step::PrepareIdle);
    }

    /// Ends the running turn early as `cancelled` or `interrupted`; open calls get a result that says so.
    pub(in crate::agent_loop) fn end_turn(&mut self, status: TurnStatus) {
        let error = (status == TurnStatus::Interrupted).then(|| {
            ErrorBody::new(ErrorCode::Interrupted, "the server stopped in the middle of the turn; send retry_turn")
        });
        let finish_reason = (status == TurnStatus::Cancelled).then_some(StopReason::Cancelled);
        self.finish_turn(status, finish_reason, error, Vec::new());
    }

    /// Ends the running turn with this error.
    pub(in crate::agent_loop) fn fail_turn(&mut self, error: ErrorBody) {
        self.compaction.release();
        self.finish_turn(TurnStatus::Failed, None, Some(error), Vec::new());
    }

    /// Stops accepting work. Accepted work may finish; pending inputs are refused at once instead of waiting for their
    /// hooks.
    pub(in crate::agent_loop) fn on_hold(&mut self, error: &ErrorBody) {
        self.ws.hold();
        let held_by_input = self.stage() == Stage::Hooking;
        self.hooks.refuse_inputs(&mut self.ws, error);
        if held_by_input && self.stage() == Stage::Idle {
            self.ws.then(Step::Proceed);
        }
    }

    /// Stops everything that the session is doing.
    pub(in crate::agent_loop) fn on_stop(&mut self, error: Box<ErrorBody>) {
        self.ws.hold();
        self.hooks.refuse_inputs(&mut self.ws, &error);
        self.ws.refuse_pending_with(error);
        self.compaction.cancel_ordered(&mut self.ws);
        self.compaction.leave_held(&self.ws);
        if self.stage() != Stage::Compacting {
            self.cancel_running();
        }
        self.stop_turn(TurnStatus::Interrupted);
    }

    /// Stops whatever the running turn is doing.
    pub(in crate::agent_loop) fn stop_turn(&mut self, status: TurnStatus) {
        match self.stage() {
            Stage::Asking => {
                let Some(asking) = &mut self.turn.asking else { return };
                asking.stopped_as = Some(status);
                self.ws.push(Effect::CancelModel(asking.request));
            }
            Stage::Compacting => {
                self.compaction.release();
                // A background compaction continues; the turn no longer waits for it.
                if self.compaction.is_in_background() && status == TurnStatus::Cancelled {
                    self.compaction.wait_no_more();
                } else {
                    self.cancel_running();
                }
                if self.ws.session.state.turn.is_some() {
                    self.end_turn(status);
                }
            }
            Stage::Hooking => {
                self.hooks.cancel_awaited(&mut self.ws);
                if self.ws.session.state.turn.is_some() {
                    self.end_turn(status);
                } else {
                    self.ws.then(Step::Proceed);
                }
            }
            Stage::AwaitingTools => {
                self.end_turn(status);
            }
            Stage::Leaving => {
                self.navigation.cancel_move(&mut self.ws);
            }
            Stage::Idle | Stage::Stopping | Stage::Done => {}
        }
    }
}

fn turn_usage(turn: &Option<OpenTurn>) -> Option<Usage> {
    turn.as_ref().and_then(|turn| turn.usage.clone())
}
