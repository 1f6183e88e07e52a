//! Metrics and log lines about a session's life, for the operator. They never contain conversation text. Turn durations
//! are measured by this process, so a turn that a restart interrupted is counted without one.
//!
//! The end of a compaction reports everything about it, so nothing is kept while it runs. Each compaction is one log
//! line with the target [`COMPACTION`] and stable field names.

use crate::{
    core::{
        agent_loop::Deployment,
        context::verdict,
        model::{Answer, ModelFault, ModelRequest},
        tool::ToolPlace,
    },
    metrics::{
        self, Held, Outcome,
        calls::ToolCallMeter,
        compaction::{self, CompactionOutcome},
        word,
    },
};
use reseed_protocol::{
    CallId, ErrorCode, JobId, Role, SessionId, Timestamp, UsageSource,
    compaction::{
        CompactionFailed, CompactionPrepared, CompactionRung, CompactionTrigger, ContextCompacted, FailedRung,
    },
    context::{BreakerReason, ContextWarning},
    event::{EphemeralEvent, Event},
    receipt::Receipt,
    reply::Reply,
    tools::CallOutcome,
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The target of log lines about compactions, for `LOG_LEVEL`.
const COMPACTION: &str = "reseed::compaction";

/// Maximum number of failed steps in one log line. There may be as many as a history has pieces.
const STEPS_LISTED_MAX: usize = 16;

/// The outcome of a session's newest compaction, for operators.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LastCompaction {
    /// When it ended.
    pub at: Timestamp,
    /// Its trigger.
    pub trigger: CompactionTrigger,
    /// True if it started in the background.
    pub background: bool,
    /// `committed`, `failed`, `no_gain`, `cancelled` or `void`.
    pub outcome: &'static str,
    /// The fallback step that succeeded; absent if none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rung: Option<CompactionRung>,
    /// How much it reduced the next request, in percent; absent if it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reduction_percent: Option<f64>,
    /// The reason why it was not committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// Its duration in milliseconds.
    pub duration_ms: u64,
    /// How long a user waited for it, in milliseconds.
    pub paused_ms: u64,
}

#[derive(Debug)]
pub(super) struct Measure {
    session: SessionId,
    turn: Option<Instant>,
    first_delta_due: bool,
    /// The newest preview. Only one can be applied.
    preview: Option<JobId>,
    last_compaction: Option<Box<LastCompaction>>,
    /// The last fault of the running turn's requests, and the requested model.
    fault: Option<Box<(ModelFault, String)>>,
    breaker: Option<(BreakerReason, Held)>,
    /// The running calls of a client's tools. Bounded by the calls of one answer.
    client_calls: BTreeMap<CallId, ToolCallMeter>,
}

impl Measure {
    pub(super) fn new(session: SessionId) -> Self {
        Self {
            session,
            turn: None,
            first_delta_due: false,
            preview: None,
            last_compaction: None,
            fault: None,
            breaker: None,
            client_calls: BTreeMap::new(),
        }
    }

    /// Records that a request of the running turn to this model failed.
    pub(super) fn turn_failed(&mut self, fault: &ModelFault, model: &str) {
        self.fault = Some(Box::new((fault.clone(), model.to_owned())));
    }

    /// Returns the start time for measuring the first piece of the turn's answer, if that piece has not arrived yet.
    pub(super) fn first_delta(&mut self) -> Option<Instant> {
        std::mem::take(&mut self.first_delta_due).then_some(self.turn).flatten()
    }

    /// Returns the outcome of the newest compaction since the session was opened.
    pub(super) fn last_compaction(&self) -> Option<LastCompaction> {
        self.last_compaction.as_deref().copied()
    }

    /// Records that a client's tool call, which waited for others, starts now.
    pub(super) fn client_call_starts(&mut self, call: &CallId) {
        if let Some(meter) = self.client_calls.get_mut(call) {
            meter.starts();
        }
    }

    pub(super) fn appended(&mut self, now: Timestamp, event: &Event) {
        match event {
            Event::ToolCall(call) if call.place == ToolPlace::Client => {
                self.client_calls.insert(call.call_id.clone(), ToolCallMeter::of_client());
            }
            // With an approval's id, it only reports a person's decision.
            Event::CallResolved(resolved) if resolved.approval_id.is_none() => {
                match (self.client_calls.remove(&resolved.call_id), resolved.outcome) {
                    (Some(meter), CallOutcome::Answered) => meter.ended(false),
                    (Some(meter), CallOutcome::Failed) => meter.ended(true),
                    // It was cancelled.
                    (meter, _) => drop(meter),
                }
            }
            Event::TurnStarted(_) => {
                self.turn = Some(Instant::now());
                self.fault = None;
                self.first_delta_due = true;
            }
            Event::TurnFinished(finished) => {
                let lasted = self.turn.take().map_or(Duration::ZERO, |began| began.elapsed());
                metrics::turn_finished(finished.status, lasted);
                let millis = lasted.as_millis();
                let (session, turn, info) = (&self.session, &finished.turn_id, &finished.context_info);
                match &finished.error {
                    None => {
                        tracing::info!(
                            %session, %turn, status = ?finished.status, millis, tokens = info.token_count,
                            "turn finished"
                        )
                    }
                    Some(error) => {
                        // Included even if the turn then failed with the code of the compaction that tried to resolve
                        // it.
                        let fault = self.fault.take();
                        let origin = fault.as_ref().map(|fault| &fault.0.origin);
                        tracing::warn!(
                            %session,
                            %turn,
                            status = ?finished.status,
                            millis,
                            code = %error.code,
                            model = fault.as_ref().map(|fault| fault.1.as_str()),
                            http_status = origin.and_then(|origin| origin.http_status),
                            error_type = origin.and_then(|origin| origin.error_type.as_deref()),
                            request_id = origin.and_then(|origin| origin.request_id.as_deref()),
                            "turn finished"
                        )
                    }
                }
            }
            Event::EntryAppended(appended) if appended.turn_id.is_some() => {
                if appended.entry.message().is_some_and(|message| message.role == Role::Assistant) {
                    // A fault of an earlier request in the turn does not explain a later failure.
                    self.fault = None;
                }
                if let Some(receipt) = appended.entry.message().and_then(|message| message.receipt.as_deref()) {
                    metrics::request_shared(receipt);
                    self.provider_disagrees(receipt);
                }
            }
            Event::ContextCompacted(compacted) => {
                // The failed request is sent again, smaller.
                self.fault = None;
                self.compacted(now, compacted);
            }
            Event::CompactionFailed(failed) => self.compaction_failed(now, failed),
            Event::CompactionUndone(undone) => {
                metrics::COMPACTIONS_UNDONE_TOTAL.add([], 1);
                tracing::info!(
                    target: COMPACTION,
                    session = %self.session,
                    entry = %undone.entry_id,
                    tokens = undone.context_info.token_count,
                    "compaction undone"
                );
            }
            _ => {}
        }
    }

    /// Logs that the provider sees another difference to the previous request than the receipt.
    fn provider_disagrees(&self, receipt: &Receipt) {
        let Some(provider) = receipt.provider.as_ref().filter(|provider| provider.agrees == Some(false)) else {
            return;
        };
        tracing::info!(
            session = %self.session,
            receipt = receipt.broke.as_ref().map_or("none", |broke| verdict::part_of(&broke.part)),
            provider = provider.part.as_deref().unwrap_or("none"),
            reason = provider.reason.as_deref(),
            "the provider disagrees with the receipt of a request"
        );
    }

    pub(super) fn emitted(&self, event: &EphemeralEvent) {
        match event {
            EphemeralEvent::CompactionPrepared(prepared) => self.prepared(prepared),
            EphemeralEvent::ContextWarning(ContextWarning { code: Some(code), .. }) => {
                metrics::CONTEXT_WARNINGS_TOTAL.add([word(code)], 1)
            }
            _ => {}
        }
    }

    pub(super) fn replied(&mut self, reply: &Reply) {
        if let Reply::CompactionPreview(preview) = reply {
            metrics::COMPACTION_PREVIEWS_TOTAL.add(["shown"], 1);
            self.preview = Some(preview.preview_id.clone());
        }
    }

    /// Records whether the loop reports the circuit breaker for automatic compaction as open.
    pub(super) fn note_breaker(&mut self, reason: Option<BreakerReason>) {
        if self.breaker.as_ref().map(|(reason, _)| *reason) == reason {
            return;
        }
        self.breaker = reason.map(|reason| (reason, compaction::breaker_opened(reason)));
        let session = &self.session;
        match reason {
            None => {
                tracing::info!(target: COMPACTION, %session, "circuit breaker closed: automatic compaction resumes")
            }
            // A person caused it, so it is not a warning.
            Some(BreakerReason::Undone) => {
                tracing::info!(
                    target: COMPACTION, %session, reason = "undone",
                    "circuit breaker open: automatic compaction is paused"
                );
            }
            Some(reason) => {
                let reason = word(reason);
                tracing::warn!(
                    target: COMPACTION, %session, reason,
                    "circuit breaker open: automatic compaction is paused"
                );
            }
        }
    }

    fn compacted(&mut self, now: Timestamp, event: &ContextCompacted) {
        compaction::compaction_committed(event);
        // A held compaction is shown unchanged. It is committed at the threshold whether it was shown or not.
        let was_shown = self.preview.take_if(|preview| *preview == event.job_id).is_some();
        if was_shown && event.trigger == CompactionTrigger::Manual {
            metrics::COMPACTION_PREVIEWS_TOTAL.add(["applied"], 1);
        }
        let (input, cached, output) = event
            .summary_usage
            .as_ref()
            .map_or((0, 0, 0), |usage| (usage.input_tokens, usage.cached_tokens, usage.output_tokens));
        tracing::info!(
            target: COMPACTION,
            session = %self.session,
            job = %event.job_id,
            trigger = word(event.trigger),
            mode = compaction::mode(event.background),
            outcome = CompactionOutcome::Committed.word(),
            rung = word(event.rung),
            before = event.tokens_before,
            after = event.tokens_after,
            millis = event.duration_ms,
            paused_millis = event.paused_ms,
            failed = steps(&event.failed_rungs),
            summary_input = input,
            summary_cached = cached,
            summary_output = output,
            cached_lost = event.cached_tokens_lost,
            "compaction ended"
        );
        self.last_compaction = Some(Box::new(LastCompaction {
            at: now,
            trigger: event.trigger,
            background: event.background,
            outcome: CompactionOutcome::Committed.word(),
            rung: Some(event.rung),
            reduction_percent: Some(event.reduction_percent),
            code: None,
            duration_ms: event.duration_ms,
            paused_ms: event.paused_ms,
        }));
    }

    fn prepared(&self, event: &CompactionPrepared) {
        metrics::COMPACTIONS_PREPARED_TOTAL.add([], 1);
        tracing::info!(
            target: COMPACTION,
            session = %self.session,
            job = %event.job_id,
            trigger = word(event.trigger),
            rung = word(event.rung),
            before = event.tokens_before,
            after = event.tokens_after,
            millis = event.duration_ms,
            "compaction prepared"
        );
    }

    fn compaction_failed(&mut self, now: Timestamp, event: &CompactionFailed) {
        compaction::compaction_failed(event);
        let session = &self.session;
        let Some(trigger) = event.trigger else {
            tracing::info!(
                target: COMPACTION, %session, job = %event.job_id, code = %event.error.code,
                "branch not summarised"
            );
            return;
        };
        let outcome = CompactionOutcome::of(event.error.code);
        macro_rules! log {
            ($level:ident) => {
                tracing::$level!(
                    target: COMPACTION,
                    %session,
                    job = %event.job_id,
                    trigger = word(trigger),
                    mode = compaction::mode(event.background),
                    outcome = outcome.word(),
                    code = %event.error.code,
                    millis = event.duration_ms,
                    paused_millis = event.paused_ms,
                    failed = steps(&event.failed_rungs),
                    "compaction ended"
                )
            };
        }
        match outcome {
            CompactionOutcome::Failed | CompactionOutcome::NoGain => log!(warn),
            _ => log!(info),
        }
        self.last_compaction = Some(Box::new(LastCompaction {
            at: now,
            trigger,
            background: event.background,
            outcome: outcome.word(),
            rung: None,
            reduction_percent: None,
            code: Some(event.error.code),
            duration_ms: event.duration_ms,
            paused_ms: event.paused_ms,
        }));
    }
}

/// Formats the failed steps as `step:reason`, both from closed sets.
fn steps(failed: &[FailedRung]) -> String {
    let listed = failed.iter().take(STEPS_LISTED_MAX);
    let listed = listed.map(|failed| format!("{}:{}", word(failed.rung), compaction::reason(&failed.reason)));
    listed.collect::<Vec<_>>().join(",")
}

/// Records a request that ended without an outcome, because it was cancelled or its task panicked.
pub(super) fn model_left(purpose: &'static str, panicked: bool) {
    let outcome = if panicked { Outcome::Error(ErrorCode::Internal) } else { Outcome::Cancelled };
    metrics::model_request_finished(purpose, outcome);
}

/// Records the outcome of a request. Returns the label of its model.
pub(super) fn model_answered(
    asked: &ModelRequest,
    deployment: &Deployment,
    outcome: &Result<Answer, ModelFault>,
) -> &'static str {
    let purpose = metrics::purpose_of(asked);
    let (counted, reported) = match outcome {
        Ok(answer) => (Outcome::Ok, answer.usage),
        Err(fault) => (Outcome::Error(fault.code), fault.origin.usage),
    };
    metrics::model_request_finished(purpose, counted);
    let model = metrics::model_label(&asked.model, &deployment.configured_models());
    if let Some(reported) = reported {
        metrics::model_tokens(purpose, model, &reported);
    }
    // An answer without a report costs something that is unknown. A failure without one may have cost nothing.
    if reported.is_some() || outcome.is_ok() {
        let usage = reported.map(|reported| reported.usage(UsageSource::Reported));
        let cost = usage.and_then(|usage| deployment.prices.cost_nano_usd(&asked.model, &usage));
        metrics::model_answer_paid(purpose, model, cost);
    }
    model
}

#[cfg(test)]
mod tests;
