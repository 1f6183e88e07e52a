//! The next request of a turn: the turn machine requests it, and the compaction machine decides whether there is room.

use crate::agent_loop::step::{FailedRequest, PreparedRequest, Step};
use crate::agent_loop::subject::{Subject, request::Overlay};
use crate::compaction::Decision;
use crate::context::Context;
use crate::{agent_loop::AgentLoop, compaction::machine::work::Need};
use reseed_protocol::{
    ErrorBody, ErrorCode,
    hooks::{ContextReason, HookPoint},
};

impl AgentLoop {
    /// Prepares the next request of the running turn, or makes room for it first.
    pub(in crate::agent_loop) fn request(&mut self) {
        let Some(turn) = self.ledger.state().turn.clone() else { return };
        if self.turn.before_request(&mut self.ledger, &mut self.prompt, &self.roster) {
            return;
        }
        let context = self.ledger.context();
        let count = self.prompt.count(&self.ledger, &context);
        let window = self.ledger.window_tokens();
        let mut is_due = false;
        match self.prompt.manager().before_request(&count, window) {
            Decision::Ready => {}
            Decision::Warn => {
                let info = self.compaction.context_info_of(self.planner(), &count, window);
                self.turn.warn(&mut self.ledger, info);
            }
            Decision::Prepare => self.compacting().prepare(&count),
            Decision::Due => {
                if self.compacting().commit_held(Need::Due) {
                    return;
                }
                self.compacting().prepare_another(&count);
                is_due = true;
            }
            Decision::Compact => {
                if self.compacting().commit_held(Need::Room) {
                    return;
                }
                let may_wait = !turn.compacted && !self.compaction.gave_up();
                if may_wait && self.compacting().wait_for_room(&count) {
                    return;
                }
            }
        }
        self.ledger.then(Step::SendPrepared(Box::new(PreparedRequest { context, count, is_due })));
    }

    /// Sends the prepared request of the running turn, after hooks have added to it, unless a compaction was started
    /// for it. Ends the turn if the request does not fit the window.
    pub(in crate::agent_loop) fn send_prepared(&mut self, prepared: PreparedRequest) {
        let PreparedRequest { context, count, is_due } = prepared;
        // A compaction that needs no model was prepared at once.
        if self.compacting().is_held_up()
            || is_due && !self.compaction.is_at_work() && self.compacting().commit_held(Need::Due)
        {
            return;
        }
        let window = self.ledger.window_tokens();
        if count.tokens.saturating_sub(count.error_bound_tokens) > window {
            let error = self.compaction.does_not_fit(self.planner(), &count, window);
            self.ledger.then(Step::fail_turn(error));
            return;
        }
        if self.roster.has_hooks(&self.ledger, HookPoint::Context, Some(ContextReason::Ephemeral)) {
            let base = self.ledger.context();
            let overlay = Overlay { context: Context::clone(&context), changes: Vec::new(), base };
            self.ledger.then(Step::Ask(Subject::Ephemeral(Box::new(overlay))));
            return;
        }
        self.prompt.forget_added();
        self.ledger.then(Step::Send(context));
    }

    /// Makes room for a request that failed because it was too large; otherwise ends the turn.
    pub(in crate::agent_loop) fn on_request_failed(&mut self, failed: FailedRequest) {
        let FailedRequest { count, fault, may_compact } = failed;
        if may_compact && self.compacting().make_room_for_refused(&count) {
            return;
        }
        let mut error = if fault.code == ErrorCode::ContextOverflow {
            self.compaction.does_not_fit(self.planner(), &count, self.ledger.window_tokens())
        } else {
            ErrorBody::new(fault.code, fault.message)
        };
        error.retry_after_ms = fault.retry_after_ms;
        self.ledger.then(Step::fail_turn(error));
    }
}
