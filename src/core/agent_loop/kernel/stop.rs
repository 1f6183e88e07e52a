//! The end of a turn: finished, failed, cancelled or interrupted. Also decides, by the loop's stage, what a client's
//! cancel, a server shutdown and a damaged session stop.

use crate::agent_loop::{AgentLoop, io::Caller, late::Callee, stage::Stage, step::Step, step::TurnEnd, turn::tools};
use crate::usage::add_usage;
use reseed_protocol::{
    CallId, ErrorBody,
    event::Event,
    reply::Reply,
    tools::{CallOutcome, PendingCall},
    turn::{TurnFinished, TurnStatus},
};

impl AgentLoop {
    /// Stops accepting work. Accepted work may finish; pending inputs are refused at once instead of waiting for their
    /// hooks.
    pub(in crate::agent_loop) fn on_hold(&mut self, error: &ErrorBody) {
        self.ledger.hold();
        let held_by_input = self.stage() == Stage::Hooking;
        self.hooks.refuse_inputs(&mut self.ledger, error);
        if held_by_input && self.stage() == Stage::Idle {
            self.ledger.then(Step::Proceed);
        }
    }

    /// Stops everything that the session is doing. The running turn ends with this status.
    pub(in crate::agent_loop) fn on_stop(&mut self, error: Box<ErrorBody>, status: TurnStatus) {
        self.ledger.hold();
        self.hooks.refuse_inputs(&mut self.ledger, &error);
        self.ledger.refuse_pending_with(error);
        self.compaction.cancel_ordered(&mut self.ledger);
        self.compaction.leave_held(&self.ledger);
        if self.stage() != Stage::Compacting {
            self.compacting().cancel_running();
        }
        // A turn that waits for a person's approval keeps waiting, even while the server is down.
        if self.stage() == Stage::AwaitingTools && !self.ledger.state().approvals.is_empty() {
            // Results that hooks are inspecting are lost, as are running calls.
            let late = self.hooks.drop_looked_at(&mut self.ledger);
            self.turn.park(&mut self.ledger);
            self.tell_late(late);
            return;
        }
        self.stop_turn(status);
    }

    /// Stops the running turn, whatever it is doing. `Failed` means that it took too long.
    pub(in crate::agent_loop) fn stop_turn(&mut self, status: TurnStatus) {
        match self.stage() {
            Stage::Asking => self.turn.stop_asking(&mut self.ledger, status),
            Stage::Compacting => {
                self.compaction.release();
                // When a client cancels a turn, a background compaction keeps running; the turn no longer waits for it.
                let is_clients = status == TurnStatus::Cancelled && !self.ledger.is_holding();
                if is_clients && self.compaction.is_in_background() {
                    self.compaction.wait_no_more();
                } else {
                    self.compacting().cancel_running();
                }
                if self.ledger.state().turn.is_some() {
                    self.ledger.then(Step::stop_turn(status));
                }
            }
            Stage::Hooking => {
                self.cancel_awaited();
                let is_in_turn = self.ledger.state().turn.is_some();
                self.ledger.then(if is_in_turn { Step::stop_turn(status) } else { Step::Proceed });
            }
            Stage::AwaitingTools => self.ledger.then(Step::stop_turn(status)),
            Stage::Leaving => self.navigation.cancel_move(&mut self.ledger),
            Stage::Idle | Stage::Stopping | Stage::Done => {}
        }
    }

    /// Tells the senders of results under inspection that their calls are over.
    fn tell_late(&mut self, late: Vec<(Caller, CallId)>) {
        for (caller, call) in late {
            let error = Callee::Tool.too_late(&call, Some(CallOutcome::Dropped));
            self.ledger.reply(&caller, Reply::Error(error));
        }
    }

    /// Ends the running turn and continues with the queue. Open calls get a result that says so.
    pub(in crate::agent_loop) fn finish_turn(&mut self, end: TurnEnd) {
        let TurnEnd { status, finish_reason, error } = end;
        self.compaction.release();
        let Some(turn) = self.ledger.state().turn.clone() else { return };
        self.compaction.turn_over();
        let mut withdrawn: Vec<PendingCall> = self.ledger.state().pending.clone();
        // A tool whose result hooks are inspecting has answered, so its client is not notified.
        withdrawn.retain(|call| self.hooks.inspected_answer(&call.call_id).is_none());
        let late = self.hooks.drop_looked_at(&mut self.ledger);
        let is_interrupted = status == TurnStatus::Interrupted;
        let dropped = self.turn.drop_calls(&mut self.ledger, &turn.turn_id, is_interrupted);
        if !dropped.is_empty() {
            self.ledger.append(dropped, Vec::new());
        }
        withdrawn.into_iter().for_each(|call| tools::withdraw(&mut self.ledger, call, CallOutcome::Dropped));
        self.tell_late(late);
        let withheld_usage = self.turn.take_withheld_usage(self.ledger.state());
        let mut usage = turn.usage;
        if let Some(withheld) = &withheld_usage {
            usage = Some(add_usage(usage, withheld));
        }
        let event = Event::TurnFinished(Box::new(TurnFinished {
            turn_id: turn.turn_id,
            status,
            finish_reason,
            error,
            usage,
            withheld_usage,
            context_info: self.compaction.context_info(self.planner()),
        }));
        self.ledger.append(vec![event], Vec::new());
        self.prompt.drop_turn_prompt(&mut self.ledger);
        self.ledger.then(Step::Proceed);
        self.ledger.then(Step::PrepareIdle);
    }
}
