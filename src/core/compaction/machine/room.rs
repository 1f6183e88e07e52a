//! Makes room for a request that would not fit, or that the provider refused as too large.

use crate::compaction::machine::work::{JobPurpose, Need};
use crate::{
    agent_loop::io::Effect,
    compaction::machine::{Compacting, Compactor, plan::Planner},
};
use crate::{
    compaction::{Order, breaker::Permit, cut::must_stay, structure::Structure},
    context::RequestCount,
};
use reseed_protocol::{ErrorBody, ErrorCode, compaction::CompactionTrigger};

impl Compacting<'_> {
    /// Makes the next request wait for room: for the running compaction, or for one that starts now. Returns false if
    /// there is none to wait for.
    pub(crate) fn wait_for_room(&mut self, count: &RequestCount) -> bool {
        if self.wait_for_running() {
            return true;
        }
        match self.permit(count.tokens, true) {
            Permit::Denied => false,
            permit => {
                let order = Order::automatic(self.ledger.new_id(), self.prompt.manager().trigger());
                let purpose = JobPurpose::Commit { background: false };
                self.start_job(order, purpose, permit == Permit::Full).is_ok() && self.is_held_up()
            }
        }
    }

    /// Makes room for a request that the provider refused as too large: commits a ready or held compaction, or waits
    /// for one that is running or starts now. Returns false if none of these is possible.
    pub(crate) fn make_room_for_refused(&mut self, count: &RequestCount) -> bool {
        // A compaction that was applied or ordered during this turn makes room at once.
        if let Some(ready) = self.compaction.take_ready()
            && self.compaction.commit(self.ledger, self.prompt, ready).is_ok()
        {
            return true;
        }
        if self.commit_held(Need::Refused) {
            return true;
        }
        if self.wait_for_running() {
            self.compaction.overflowed();
            return true;
        }
        let order = Order::automatic(self.ledger.new_id(), CompactionTrigger::Overflow);
        let permit = self.permit(count.tokens, true);
        let purpose = JobPurpose::Commit { background: false };
        permit != Permit::Denied && self.start_job(order, purpose, permit == Permit::Full).is_ok() && self.is_held_up()
    }

    /// Returns true if the loop cannot continue: it waits for a compaction, or a compaction has ended it.
    pub(crate) fn is_held_up(&self) -> bool {
        self.compaction.awaited || self.ledger.is_over()
    }

    /// Waits for the running job, if its outcome will be committed.
    pub(crate) fn wait_for_running(&mut self) -> bool {
        let Some(running) = &mut self.compaction.work.running else { return false };
        if matches!(running.purpose, JobPurpose::Preview(_)) {
            self.void_running("the conversation needs room now");
            return false;
        }
        if running.can_wait() {
            self.ledger.push(Effect::Hurry(running.request));
        }
        running.waited_since.get_or_insert(self.ledger.now);
        self.compaction.awaited = true;
        true
    }
}

impl Compactor {
    /// Returns the error for a request that does not fit: the tokens of each part, and a suggestion.
    pub(crate) fn does_not_fit(&self, planner: Planner<'_>, count: &RequestCount, window: u64) -> ErrorBody {
        let Planner { ledger, prompt } = planner;
        let context = ledger.context();
        let structure = Structure::of(&context);
        let stays = must_stay(&context, &structure);
        let last = structure.last_input(&context);
        let cost = |is_part: &dyn Fn(usize) -> bool| {
            let units = structure.units.iter().enumerate().filter(|(at, _)| is_part(*at));
            prompt.in_tokens(units.map(|(_, unit)| unit.tokens).sum())
        };
        let pinned = cost(&|at| stays[at] && Some(at) != last);
        let last_input = cost(&|at| Some(at) == last);
        let fixed = prompt.fixed();
        let (system, tools) = (prompt.in_tokens(fixed.system), prompt.in_tokens(fixed.tools));
        let rest = count.tokens.saturating_sub(system + tools + pinned + last_input);
        let remedy = if system + tools + pinned + last_input > window {
            "no compaction can make that fit: shorten the largest of these, or choose a model with a larger window"
        } else if self.gave_up() {
            "compaction has just failed; send retry_turn to try again, or compact the context first"
        } else if prompt.manager().is_automatic() {
            "what could be compacted is too little; say less at once, or choose a model with a larger window"
        } else {
            "the strategy `manual` never compacts by itself; compact the context, then send retry_turn"
        };
        let message = format!(
            "the next request has about {} tokens, the window {window}: system prompt {system}, tools {tools}, pinned \
             entries {pinned}, the last input {last_input}, the rest {rest}; {remedy}",
            count.tokens
        );
        ErrorBody::new(ErrorCode::ContextOverflow, message).with_details(serde_json::json!({
            "tokens": count.tokens,
            "windowTokens": window,
            "system": system,
            "tools": tools,
            "pinned": pinned,
            "lastInput": last_input,
            "rest": rest,
        }))
    }
}
