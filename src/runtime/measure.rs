//! What of a session's life is counted and logged for the operator: never what was said. Durations are this process's own: a turn that a restart
//! interrupted is counted without one.

use crate::{
    core::model::{Answer, ModelFault, Purpose},
    metrics::{self, CompactionOutcome, Outcome},
};
use reseed_protocol::{
    ErrorCode, SessionId,
    event::{CompactionTrigger, EphemeralEvent, Event},
};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Measure {
    session: SessionId,
    turn: Option<Instant>,
    first_delta_due: bool,
    compaction: Option<(CompactionTrigger, Instant)>,
}

impl Measure {
    pub(super) fn new(session: SessionId) -> Self {
        Self { session, turn: None, first_delta_due: false, compaction: None }
    }

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
                let millis = lasted.as_millis();
                let (session, turn, info) = (&self.session, &finished.turn_id, &finished.context_info);
                match &finished.error {
                    None => {
                        tracing::info!(%session, %turn, status = ?finished.status, millis, tokens = info.token_count, "turn finished")
                    }
                    Some(error) => {
                        tracing::warn!(%session, %turn, status = ?finished.status, millis, code = %error.code, "turn finished")
                    }
                }
            }
            Event::ContextCompacted(compacted) => {
                self.compaction = None;
                let lasted = Duration::from_millis(compacted.duration_ms);
                let saved = compacted.old_token_count.saturating_sub(compacted.new_token_count);
                tracing::info!(
                    session = %self.session,
                    trigger = ?compacted.trigger,
                    rung = ?compacted.rung,
                    before = compacted.old_token_count,
                    after = compacted.new_token_count,
                    millis = compacted.duration_ms,
                    "context compacted"
                );
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
                tracing::warn!(session = %self.session, code = %failed.code, "compaction came to nothing");
                if let Some((trigger, began)) = self.compaction.take() {
                    metrics::compaction_finished(trigger, outcome, began.elapsed(), 0);
                }
            }
            _ => {}
        }
    }
}

/// A request that ended without an outcome: it was cancelled, or whoever made it panicked.
pub(super) fn model_left(purpose: Purpose, panicked: bool) {
    let outcome = if panicked { Outcome::Error(ErrorCode::Internal) } else { Outcome::Cancelled };
    metrics::model_request_finished(purpose, outcome, None);
}

pub(super) fn model_answered(purpose: Purpose, outcome: &Result<Answer, ModelFault>) {
    match outcome {
        Ok(answer) => metrics::model_request_finished(purpose, Outcome::Ok, answer.usage),
        Err(fault) => metrics::model_request_finished(purpose, Outcome::Error(fault.code), None),
    }
}
