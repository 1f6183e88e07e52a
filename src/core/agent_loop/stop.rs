//! Stopping: what a client's cancel, a server that shuts down, and a damaged session stop, by the loop's stage.

use crate::agent_loop::{AgentLoop, stage::Stage, step::Step};
use reseed_protocol::{ErrorBody, event::TurnStatus};

impl AgentLoop {
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

    /// Stops everything that the session is doing. The running turn ends with this status.
    pub(in crate::agent_loop) fn on_stop(&mut self, error: Box<ErrorBody>, status: TurnStatus) {
        self.ws.hold();
        self.hooks.refuse_inputs(&mut self.ws, &error);
        self.ws.refuse_pending_with(error);
        self.compaction.cancel_ordered(&mut self.ws);
        self.compaction.leave_held(&self.ws);
        if self.stage() != Stage::Compacting {
            self.cancel_running();
        }
        self.stop_turn(status);
    }

    /// Stops whatever the running turn is doing.
    pub(in crate::agent_loop) fn stop_turn(&mut self, status: TurnStatus) {
        match self.stage() {
            Stage::Asking => self.turn.stop_asking(&mut self.ws, status),
            Stage::Compacting => {
                self.compaction.release();
                // A client that cancels a turn leaves a background compaction running; the turn no longer waits for it.
                let is_clients = status == TurnStatus::Cancelled && !self.ws.is_holding();
                if is_clients && self.compaction.is_in_background() {
                    self.compaction.wait_no_more();
                } else {
                    self.cancel_running();
                }
                if self.ws.session.state.turn.is_some() {
                    self.ws.then(Step::stop_turn(status));
                }
            }
            Stage::Hooking => {
                self.hooks.cancel_awaited(&mut self.ws);
                let is_in_turn = self.ws.session.state.turn.is_some();
                self.ws.then(if is_in_turn { Step::stop_turn(status) } else { Step::Proceed });
            }
            Stage::AwaitingTools => self.ws.then(Step::stop_turn(status)),
            Stage::Leaving => self.navigation.cancel_move(&mut self.ws),
            Stage::Idle | Stage::Stopping | Stage::Done => {}
        }
    }
}
