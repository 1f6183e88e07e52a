//! The context meter: how full the window is, reported while a turn runs.

use crate::{
    agent_loop::{ledger::Ledger, prompt::Prompt, turn::Turn},
    compaction::machine::{Compactor, plan::Planner},
};
use reseed_protocol::{Timestamp, context::ContextUpdated, event::EphemeralEvent};

/// Minimum interval between meter updates while tools answer: as often as a person can notice.
const METER_PAUSE_MILLIS: u64 = 100;

impl Turn {
    /// Reports how full the window is during a turn, once per step. Reports between results that arrive together are
    /// throttled; the last one is sent before the next request.
    pub(crate) fn tell_meter(&mut self, ledger: &mut Ledger, prompt: &Prompt, compaction: &Compactor) {
        let Some(turn) = &ledger.state().turn else {
            (self.meter_due, self.metered) = (false, None);
            return;
        };
        if !std::mem::take(&mut self.meter_due) || ledger.is_over() {
            return;
        }
        let waits = self.awaits_tools;
        let too_soon = |(_, at): (u64, Timestamp)| waits && ledger.now < at.plus_millis(METER_PAUSE_MILLIS);
        if self.metered.is_some_and(too_soon) {
            return;
        }
        let (turn_id, context_info) = (turn.turn_id.clone(), compaction.context_info(Planner { ledger, prompt }));
        let tokens = context_info.token_count;
        if self.metered.is_none_or(|(told, _)| told != tokens) {
            self.metered = Some((tokens, ledger.now));
            let updated = ContextUpdated { turn_id, context_info };
            ledger.emit(EphemeralEvent::ContextUpdated(Box::new(updated)));
        }
    }
}
