//! The end of a turn: finished, failed, cancelled or interrupted.

use crate::{
    agent_loop::{
        AgentLoop,
        io::Effect,
        late::Callee,
        step::{Step, TurnEnd},
        turn::Turn,
        workspace::Workspace,
    },
    session::{OpenTurn, state::add_usage},
};
use reseed_protocol::{
    Usage,
    event::{CallOutcome, Event, TurnFinished, TurnStatus},
    reply::{PendingCall, Reply},
};

impl AgentLoop {
    /// Ends the running turn and continues with what is queued. Open calls get a result that says so.
    pub(in crate::agent_loop) fn finish_turn(&mut self, end: TurnEnd) {
        let TurnEnd { status, finish_reason, error } = end;
        self.compaction.release();
        let Some(turn) = self.ws.session.state.turn.clone() else { return };
        self.compaction.turn_over();
        let withdrawn: Vec<PendingCall> = self.ws.session.state.pending.clone();
        // A tool whose result hooks are inspecting has answered, so its client is not notified.
        let withdrawn: Vec<PendingCall> =
            withdrawn.into_iter().filter(|call| self.hooks.inspected_answer(&call.call_id).is_none()).collect();
        let late = self.hooks.drop_looked_at(&mut self.ws);
        let dropped = self.turn.drop_calls(&mut self.ws, &turn.turn_id);
        if !dropped.is_empty() {
            self.ws.append(dropped, Vec::new());
        }
        withdrawn.into_iter().for_each(|call| self.ws.withdraw(call, CallOutcome::Dropped));
        for (caller, call) in late {
            let error = Callee::Tool.too_late(&call, Some(CallOutcome::Dropped));
            self.ws.reply(&caller, Reply::Error(error));
        }
        let withheld_usage = self.turn.carried.progress(&self.ws.session.state).looked_at_usage.take();
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
        self.ws.append(vec![event], Vec::new());
        self.ws.drop_turn_prompt();
        self.ws.then(Step::Proceed);
        self.ws.then(Step::PrepareIdle);
    }
}

impl Turn {
    /// Stops the answer in progress. The turn ends with this status once the part shown so far is known.
    pub(in crate::agent_loop) fn stop_asking(&mut self, ws: &mut Workspace, status: TurnStatus) {
        let Some(asking) = &mut self.asking else { return };
        asking.stopped_as = Some(status);
        ws.push(Effect::CancelModel(asking.request));
    }
}

fn turn_usage(turn: &Option<OpenTurn>) -> Option<Usage> {
    turn.as_ref().and_then(|turn| turn.usage.clone())
}
