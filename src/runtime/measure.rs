//! What of a session's life is counted for the operator. Durations are this process's own: a turn that a restart
//! interrupted is counted without one.

use crate::{
    core::model::{Answer, ModelFault, Purpose},
    metrics::{self, CompactionOutcome, Outcome},
};
use reseed_protocol::{
    ErrorCode,
    event::{CompactionTrigger, EphemeralEvent, Event},
};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(super) struct Measure {
    turn: Option<Instant>,
    first_delta_due: bool,
    compaction: Option<(CompactionTrigger, Instant)>,
}

impl Measure {
    /// From when the first piece of the turn's answer is timed, if it has not come yet.
    pub(super) fn first_delta(&mut self) -> Option<Instant> {
        std::mem::take(&mut self.first_delta_due).then_some(self.turn).flatten()
    }

    pub(super) fn appended(&mut self, event: &Event) {
        match event {
            Event::TurnStarted(_) => {
                self.turn = Some(Instant::now());
                self.first_delta_due = true;
            }
            Event::TurnFinished(finished) => {
                let lasted = self.turn.take().map_or(Duration::ZERO, |began| began.elapsed());
                metrics::turn_finished(finished.status, lasted);
            }
            Event::ContextCompacted(compacted) => {
                self.compaction = None;
                let lasted = Duration::from_millis(compacted.duration_ms);
                let saved = compacted.old_token_count.saturating_sub(compacted.new_token_count);
                metrics::compaction_finished(compacted.trigger, CompactionOutcome::Committed, lasted, saved);
            }
            _ => {}
        }
    }

    pub(super) fn emitted(&mut self, event: &EphemeralEvent) {
        match event {
            EphemeralEvent::CompactionStarted(started) => self.compaction = Some((started.trigger, Instant::now())),
            EphemeralEvent::CompactionFailed(failed) => {
                let outcome = match failed.code {
                    ErrorCode::CompactionCancelled => CompactionOutcome::Cancelled,
                    _ => CompactionOutcome::Failed,
                };
                if let Some((trigger, began)) = self.compaction.take() {
                    metrics::compaction_finished(trigger, outcome, began.elapsed(), 0);
                }
            }
            _ => {}
        }
    }
}

pub(super) fn model_answered(purpose: Purpose, outcome: &Result<Answer, ModelFault>) {
    match outcome {
        Ok(answer) => metrics::model_request_finished(purpose, Outcome::Ok, answer.usage),
        Err(fault) => metrics::model_request_finished(purpose, Outcome::Error(fault.code), None),
    }
}
