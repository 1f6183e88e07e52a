//! Requests summaries, lets them make way for users' requests, and ends those that will fail.
//!
//! A model may repeat itself, or write far beyond an output limit that its server ignores. It would continue until the
//! deadline, so its answer is cut off early. The core keeps what precedes the repetition.

use super::{
    feed::Feed,
    handle::WeakMailbox,
    metering::Meter,
    model_server_load::{ModelServerLoad, SummaryRequest, TurnRequest},
};
use crate::{
    core::{
        agent_loop::{Input, RequestId},
        compaction::summary::Repetition,
        model::{Answer, Delta, ModelFault, ModelRequest},
    },
    provider::{Delay, DeltaSink, Provider, fault::fault},
};
use reseed_protocol::{ErrorCode, Part, SessionId, StopReason, TurnId, event::EphemeralEvent, turn::RequestDelayed};
use std::{future::pending, sync::Arc, time::Duration};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

/// Maximum bytes of text per token of the output limit. No tokenizer exceeds this over a whole answer.
const TOKEN_BYTES_MAX: usize = 16;

/// Maximum time for which a summary makes way, summed over all its waits. At a server that is always busy, it would
/// otherwise never be made, and the next turn would have to wait for it.
const MAKES_WAY_MAX: Duration = Duration::from_secs(300);

/// Watches a summary as it arrives.
struct SummarySink<'a> {
    repetition: Repetition,
    /// The same for the reasoning that precedes it.
    reasoning: Repetition,
    bytes_max: usize,
    ends: &'a Notify,
    at_work: SummaryRequest,
    meter: &'a Meter,
}

impl DeltaSink for SummarySink<'_> {
    fn delta(&mut self, delta: Delta<'_>) {
        self.at_work.speaks();
        self.meter.shown(delta.text().len());
        let only_repeats = match delta {
            Delta::Text { text, .. } => self.repetition.push(text),
            Delta::Reasoning { text, .. } => self.reasoning.push(text),
            _ => return,
        };
        if only_repeats || self.repetition.text().len() + self.reasoning.text().len() > self.bytes_max {
            self.ends.notify_one();
        }
    }
}

/// Requests a summary. One that repeats itself is returned as cut off, without usage, and its request is cancelled. If
/// the model was still reasoning, there is no summary.
pub(super) async fn summary(
    provider: &dyn Provider,
    request: &ModelRequest,
    at_work: SummaryRequest,
    meter: &Meter,
) -> Result<Answer, ModelFault> {
    let ends = Notify::new();
    let tokens_max = request.envelope.options.max_output_tokens.and_then(|tokens| usize::try_from(tokens).ok());
    let bytes_max = tokens_max.map_or(usize::MAX, |tokens| tokens.saturating_mul(TOKEN_BYTES_MAX));
    let mut watched = SummarySink {
        repetition: Repetition::default(),
        reasoning: Repetition::of_reasoning(),
        bytes_max,
        ends: &ends,
        at_work,
        meter,
    };
    let outcome = tokio::select! {
        biased;
        outcome = provider.answer(request, &mut watched) => Some(outcome),
        () = ends.notified() => None,
    };
    outcome.unwrap_or_else(|| {
        tracing::info!(model = request.model, "a summary was ended early: the model repeats itself or does not stop");
        if watched.repetition.text().is_empty() {
            return Err(fault(ErrorCode::UpstreamEmpty, "it repeated itself while reasoning"));
        }
        let parts = vec![Part::Text { text: watched.repetition.text().to_owned() }];
        Ok(Answer::new(parts, StopReason::Length))
    })
}

/// A summary's request, while nobody waits for it.
pub(super) struct MakesWay<'a> {
    pub(super) request: RequestId,
    pub(super) mailbox: &'a WeakMailbox,
    /// Cancelled once somebody waits for the summary.
    pub(super) hurry: &'a CancellationToken,
    pub(super) meter: &'a Meter,
}

/// Requests a summary that nobody waits for. If the model server works on one request at a time, the request is held
/// back or withdrawn while a user wants the server, until somebody is in a `hurry` for the summary.
pub(super) async fn making_way(
    provider: &dyn Provider,
    request: &ModelRequest,
    (load, session): (&Arc<ModelServerLoad>, &SessionId),
    MakesWay { request: id, mailbox, hurry, meter }: MakesWay<'_>,
) -> Result<Answer, ModelFault> {
    let mut is_wanted = load.is_wanted();
    let mut patience = MAKES_WAY_MAX;
    loop {
        if is_wanted && !hurry.is_cancelled() && !patience.is_zero() {
            mailbox.tell(Input::MadeWay { request: id }).await;
            let since = Instant::now();
            tokio::select! {
                () = load.until(false) => {}
                () = hurry.cancelled() => {}
                () = tokio::time::sleep(patience) => {}
            }
            patience = patience.saturating_sub(since.elapsed());
            mailbox.tell(Input::AskedAgain { request: id }).await;
        }
        let withdrawn = async {
            load.until(true).await;
            if hurry.is_cancelled() || patience.is_zero() {
                pending().await
            }
        };
        tokio::select! {
            biased;
            outcome = summary(provider, request, load.summary(session.clone()), meter) => return outcome,
            () = withdrawn => is_wanted = true,
        }
        if is_wanted {
            meter.withdrawn();
        }
    }
}

/// The shortest wait for a model server that is reported to clients. A shorter one is over before anyone reads about
/// it.
const DELAY_TOLD_MIN: Duration = Duration::from_secs(1);

/// Passes on the pieces of a turn's answer, and records that they come.
pub(super) struct TurnSink<'a> {
    pub(super) sink: &'a mut dyn DeltaSink,
    pub(super) at_work: &'a TurnRequest,
    /// The feed that reports waits, and their turn.
    pub(super) tells: Option<(&'a Feed, &'a TurnId)>,
    pub(super) has_begun: bool,
}

impl DeltaSink for TurnSink<'_> {
    fn delta(&mut self, delta: Delta<'_>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.at_work.speaks();
        }
        self.sink.delta(delta);
    }

    fn delayed(&mut self, delay: &Delay) {
        self.at_work.delayed();
        if delay.wait < DELAY_TOLD_MIN {
            return;
        }
        let Some((feed, turn_id)) = self.tells else { return };
        feed.emit(&EphemeralEvent::RequestDelayed(RequestDelayed {
            turn_id: turn_id.clone(),
            attempt: delay.attempt,
            wait_ms: u64::try_from(delay.wait.as_millis()).unwrap_or(u64::MAX),
            reason: delay.reason,
        }));
    }
}
