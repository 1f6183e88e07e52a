//! The account of a session's requests to models.
//!
//! Each request has one [`Meter`], which reserves it in the budgets, and makes its row when the request ends: by an
//! answer, a failure or a cancellation, whichever comes first. Rows wait in [`Spent`] until the session's next append
//! writes them, or until its actor writes them alone.

use super::{
    errors::store_error,
    feed::Feed,
    inference::{Cause, Inference},
    measure::{model_answered, model_left},
    shared::Shared,
};
use crate::{
    core::{
        model::{Answer, ModelFault, ModelRequest, ReportedUsage},
        prewarm::CacheTerms,
        usage_row::{UsagePurpose, UsageRow, UsageTokens},
    },
    metrics::{model_label, purpose_of},
    provider::{AnswerFuture, Delay, DeltaSink, ModelsFuture, Provider, Slots},
    shares::budgets::{Notice, Refused, Whose},
    store::Lease,
    trace::{SpanContext, within},
};
use reseed_protocol::{ErrorCode, Message, Role, Timestamp, UsageSource, event::EphemeralEvent, turn::BudgetNotice};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};
use tokio::runtime::Handle;

/// Bytes of text per token, for answers that broke off: a usual value for English.
const TOKEN_BYTES: u64 = 4;

/// Output tokens of an answer whose request does not limit them, for its reservation.
const OUTPUT_TOKENS: u64 = 16_384;

/// Rows that are not yet written. They are as many as requests that ended since the last input.
#[derive(Debug, Default)]
pub(super) struct Spent(Mutex<Vec<UsageRow>>);

impl Spent {
    fn rows(&self) -> MutexGuard<'_, Vec<UsageRow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the rows to write them.
    pub(super) fn take(&self) -> Vec<UsageRow> {
        std::mem::take(&mut self.rows())
    }

    /// Puts rows back that could not be written, or may not have been.
    pub(super) fn put_back(&self, rows: Vec<UsageRow>) {
        self.rows().extend(rows);
    }
}

/// Counts one request.
pub(super) struct Meter {
    shared: Arc<Shared>,
    spent: Arc<Spent>,
    feed: Arc<Feed>,
    body: MeteredRequest,
    /// The bytes of the answer that have arrived.
    bytes: AtomicU64,
    progress: Mutex<Progress>,
}

/// The parts of a request that its row needs.
struct MeteredRequest {
    row: UsageRow,
    /// The estimated tokens of the request.
    input_tokens: u64,
    /// The most tokens of its answer.
    output_tokens_max: u64,
    cause: Cause,
}

#[derive(Debug, Default)]
struct Progress {
    has_ended: bool,
    /// True if a reservation is stored, which the row replaces.
    is_reserved: bool,
    /// True once the request may have reached the provider, which may bill it even if no answer arrives.
    is_sent: bool,
    /// How often the request was withdrawn after it had been sent.
    withdrawn: u32,
    /// The request while the provider works on it.
    inference: Option<Inference>,
}

impl Meter {
    /// Starts counting the `number`th request under this lease.
    pub(super) fn new(
        shared: Arc<Shared>,
        (spent, feed): (Arc<Spent>, Arc<Feed>),
        (owner, lease, number): (&str, &Lease, u64),
        request: &ModelRequest,
        (purpose, cause): (UsagePurpose, Cause),
    ) -> Self {
        let row = UsageRow {
            id: format!("{}-{}-{number}", lease.epoch, lease.term),
            at: shared.clock.now(),
            owner: owner.to_owned(),
            session: lease.session.clone(),
            model: request.model.clone(),
            purpose,
            tokens: UsageTokens::default(),
            source: UsageSource::Estimated,
            cost_nano_usd: None,
        };
        let output_tokens_max = request.envelope.options.max_output_tokens.unwrap_or(OUTPUT_TOKENS);
        let body = MeteredRequest { row, input_tokens: request.envelope.meta.tokens, output_tokens_max, cause };
        Self { shared, spent, feed, body, bytes: AtomicU64::new(0), progress: Mutex::default() }
    }

    /// Reserves the request in the budgets that hold for it. Waits while others in progress may use up what is left.
    ///
    /// # Errors
    /// A budget is used up, or the reservation could not be stored. The request must not be sent.
    pub(super) async fn reserve(self: &Arc<Self>) -> Result<(), ModelFault> {
        let (input, output) = (self.body.input_tokens, self.body.output_tokens_max);
        let row = self.body.row.clone().reserved(input, output, &self.shared.parts.deployment().prices);
        let mut reserving = Reserving { meter: self, row, is_kept: false };
        match self.shared.budgets.reserve(&reserving.row).await {
            Ok(is_reserved) => {
                let mut progress = self.progress();
                if progress.has_ended {
                    return Err(cancelled());
                }
                reserving.is_kept = true;
                progress.is_reserved = is_reserved;
                Ok(())
            }
            Err(Refused::Exhausted(notice)) => Err(exhausted(&notice, self.shared.clock.now())),
            Err(Refused::Store(error)) => Err(ModelFault::new(ErrorCode::StoreFailed, store_error(&error).message)),
        }
    }

    /// Notes that the request is being sent to this provider. Returns the context that goes with it.
    ///
    /// # Errors
    /// It was cancelled, and must not be sent.
    fn sent(&self, provider: &'static str, request: &ModelRequest) -> Result<Option<SpanContext>, ModelFault> {
        let mut progress = self.progress();
        if progress.has_ended {
            return Err(cancelled());
        }
        progress.is_sent = true;
        let (cause, session) = (&self.body.cause, &self.body.row.session);
        let inference = Inference::sent(self.shared.traces(), cause, session, provider, request);
        Ok(progress.inference.insert(inference).context())
    }

    /// Notes that a piece of the answer has arrived.
    pub(super) fn shown(&self, bytes: usize) {
        // A piece without text, such as the beginning of a call, also shows that the model works.
        let is_first = self.bytes.fetch_add((bytes as u64).max(1), Ordering::Relaxed) == 0;
        if is_first && let Some(inference) = &mut self.progress().inference {
            inference.speaks();
        }
    }

    /// Records how the request ended, unless it was cancelled before.
    pub(super) fn ended(&self, request: &ModelRequest, outcome: &Result<Answer, ModelFault>) {
        let mut progress = self.progress();
        if std::mem::replace(&mut progress.has_ended, true) {
            model_left(purpose_of(request), false);
            return;
        }
        let deployment = self.shared.parts.deployment();
        let label = model_answered(request, &deployment, outcome);
        if let Some(inference) = progress.inference.take() {
            inference.ended(label, outcome);
        }
        let reported = match outcome {
            Ok(answer) => answer.usage,
            Err(fault) => fault.origin.usage,
        };
        match (reported, outcome) {
            (Some(usage), _) => self.report(&usage),
            (None, Ok(answer)) => {
                let message = Message::new(Role::Assistant, answer.parts.clone());
                self.estimate(deployment.counter(&request.model).message(&message).total());
            }
            (None, Err(fault)) => self.estimate_if_sent(&progress, is_refusal(fault)),
        }
    }

    /// Records that the request was cancelled. Its answer, which may still arrive, is not counted.
    pub(super) fn cancelled(&self) {
        let mut progress = self.progress();
        if !std::mem::replace(&mut progress.has_ended, true) {
            self.interrupt(&mut progress);
            self.estimate_if_sent(&progress, false);
        }
    }

    /// Writes the rows that wait, because no append may follow soon. A task of its own does it, because a task that is
    /// aborted while it writes would lose them, and the session may have ended.
    pub(super) fn write_alone(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let meter = self.clone();
        runtime.spawn(async move {
            let rows = meter.spent.take();
            if rows.is_empty() {
                return;
            }
            match meter.shared.store.add_usage(rows.clone()).await {
                Ok(()) => meter.shared.budgets.written(&rows),
                Err(error) => {
                    let session = &meter.body.row.session;
                    tracing::warn!(%session, %error, "the usage of a request is recorded later");
                    meter.spent.put_back(rows);
                }
            }
        });
    }

    /// Records that the request was withdrawn, to be sent again later.
    pub(super) fn withdrawn(&self) {
        let mut progress = self.progress();
        if !progress.has_ended && std::mem::take(&mut progress.is_sent) {
            progress.withdrawn += 1;
            self.interrupt(&mut progress);
            let id = format!("{}-{}", self.body.row.id, progress.withdrawn);
            self.push(UsageRow { id, ..self.estimated(self.written_tokens()) });
            self.bytes.store(0, Ordering::Relaxed);
        }
    }

    fn interrupt(&self, progress: &mut Progress) {
        if let Some(inference) = progress.inference.take() {
            let deployment = self.shared.parts.deployment();
            inference.cancelled(model_label(&self.body.row.model, &deployment.configured_models()));
        }
    }

    fn report(&self, usage: &ReportedUsage) {
        let prices = &self.shared.parts.deployment().prices;
        self.push(self.body.row.clone().reported(usage, prices));
    }

    /// A request that was not sent, or was refused before its answer began, is not billed. A row without costs replaces
    /// its reservation.
    fn estimate_if_sent(&self, progress: &Progress, is_refused: bool) {
        if self.bytes.load(Ordering::Relaxed) > 0 || (progress.is_sent && !is_refused) {
            self.estimate(self.written_tokens());
        } else if progress.is_reserved {
            self.push(UsageRow { cost_nano_usd: Some(0), ..self.body.row.clone() });
        }
    }

    fn estimate(&self, output_tokens: u64) {
        self.push(self.estimated(output_tokens));
    }

    fn estimated(&self, output_tokens: u64) -> UsageRow {
        let prices = &self.shared.parts.deployment().prices;
        self.body.row.clone().estimated(self.body.input_tokens, output_tokens, prices)
    }

    fn written_tokens(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed).div_ceil(TOKEN_BYTES)
    }

    fn push(&self, row: UsageRow) {
        let row = UsageRow { at: self.shared.clock.now(), ..row };
        for notice in self.shared.budgets.settle(&row) {
            self.feed.emit(&EphemeralEvent::BudgetNotice(BudgetNotice {
                budget: notice.whose.kind().to_owned(),
                per: notice.per.as_str().to_owned(),
                percent: notice.percent,
                refills_at: notice.refills_at,
            }));
        }
        self.spent.rows().push(row);
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reservation in progress. If it is dropped before it is kept, its request is never sent.
struct Reserving<'a> {
    meter: &'a Arc<Meter>,
    row: UsageRow,
    /// True once the request's meter has taken it over.
    is_kept: bool,
}

impl Drop for Reserving<'_> {
    fn drop(&mut self) {
        // It may have been stored.
        if !self.is_kept && self.meter.shared.budgets.has_reserved(&self.row) {
            self.meter.push(UsageRow { cost_nano_usd: Some(0), ..self.meter.body.row.clone() });
            // Nobody else may write the row, and the reservation stays until then.
            self.meter.write_alone();
        }
    }
}

/// Counts a request as cancelled if its task ends without an outcome, also by a panic.
pub(super) struct CancelsOnDrop(pub(super) Arc<Meter>);

impl Drop for CancelsOnDrop {
    fn drop(&mut self) {
        self.0.cancelled();
    }
}

fn cancelled() -> ModelFault {
    ModelFault::new(ErrorCode::Interrupted, "the request was cancelled")
}

/// Returns true if the model did no work: the request did not reach it, or was refused.
fn is_refusal(fault: &ModelFault) -> bool {
    let is_refused = fault.origin.http_status.is_some_and(|status| !(200..300).contains(&status));
    is_refused
        || matches!(
            fault.code,
            ErrorCode::UpstreamUnreachable
                | ErrorCode::UpstreamAuth
                | ErrorCode::UpstreamQuota
                | ErrorCode::UpstreamRateLimited
                | ErrorCode::UpstreamOverloaded
                | ErrorCode::UpstreamNotFound
                | ErrorCode::UpstreamRejected
                | ErrorCode::ContextOverflow
        )
}

/// Returns the fault of a request beyond a budget, which says when it is filled again.
fn exhausted(notice: &Notice, now: Timestamp) -> ModelFault {
    let whose = match notice.whose {
        Whose::User(_) => "your budget",
        Whose::Session(_) => "the budget of this session",
        Whose::Deployment => "the budget of this server",
    };
    let (per, when) = match notice.refills_at {
        Some(time) => (format!(" for this {}", notice.per.as_str()), format!("it is filled again at {time}")),
        None => (String::new(), "continue in a new session".to_owned()),
    };
    let mut fault = ModelFault::new(ErrorCode::BudgetExhausted, format!("{whose}{per} is used up; {when}"));
    fault.retry_after_ms = notice.refills_at.map(|time| time.millis_since(now));
    fault
}

/// A provider that notes when the request is sent.
pub(super) struct MeteredProvider<'a> {
    pub(super) provider: &'a dyn Provider,
    pub(super) meter: &'a Meter,
}

impl Provider for MeteredProvider<'_> {
    fn name(&self) -> &'static str {
        self.provider.name()
    }

    fn name_of(&self, model: &str) -> &'static str {
        self.provider.name_of(model)
    }

    fn answer<'a>(&'a self, request: &'a ModelRequest, sink: &'a mut dyn DeltaSink) -> AnswerFuture<'a> {
        Box::pin(async move {
            let context = self.meter.sent(self.name_of(&request.model), request)?;
            within(context, self.provider.answer(request, sink)).await
        })
    }

    fn models(&self) -> ModelsFuture<'_> {
        self.provider.models()
    }

    fn cache(&self, model: &str) -> Option<CacheTerms> {
        self.provider.cache(model)
    }

    fn slots(&self) -> Slots {
        self.provider.slots()
    }
}

/// Counts the pieces of an answer, and passes them on.
pub(super) struct MeteredSink<'a> {
    pub(super) sink: &'a mut dyn DeltaSink,
    pub(super) meter: &'a Meter,
}

impl DeltaSink for MeteredSink<'_> {
    fn delta(&mut self, delta: crate::core::model::Delta<'_>) {
        self.meter.shown(delta.text().len());
        self.sink.delta(delta);
    }

    fn delayed(&mut self, delay: &Delay) {
        self.sink.delayed(delay);
    }
}
