//! The account of a session's requests to models.
//!
//! Each request has one [`Meter`], which makes its row when the request ends: by an answer, a failure or a
//! cancellation, whichever comes first. Rows wait in [`Spent`] until the session's next append writes them, or until
//! its actor writes them alone.

use super::{
    measure::{model_answered, model_left},
    shared::Shared,
};
use crate::{
    core::{
        model::{Answer, ModelFault, ModelRequest, ReportedUsage},
        usage_row::{UsagePurpose, UsageRow, UsageTokens},
    },
    metrics::purpose_of,
    provider::{Delay, DeltaSink},
    store::Lease,
};
use reseed_protocol::{Message, Role, UsageSource};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// Bytes of text per token, for answers that broke off: a usual value for English.
const TOKEN_BYTES: u64 = 4;

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
}

#[derive(Debug, Default)]
struct Progress {
    has_ended: bool,
    /// How often the request was withdrawn after its answer had begun.
    withdrawn: u32,
}

impl Meter {
    /// Starts counting the `number`th request under this lease.
    pub(super) fn new(
        shared: Arc<Shared>,
        spent: Arc<Spent>,
        (owner, lease, number): (&str, &Lease, u64),
        request: &ModelRequest,
        purpose: UsagePurpose,
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
        let body = MeteredRequest { row, input_tokens: request.envelope.meta.tokens };
        Self { shared, spent, body, bytes: AtomicU64::new(0), progress: Mutex::default() }
    }

    /// Notes that a piece of the answer has arrived.
    pub(super) fn shown(&self, bytes: usize) {
        // A piece without text, such as the beginning of a call, also shows that the model works.
        self.bytes.fetch_add((bytes as u64).max(1), Ordering::Relaxed);
    }

    /// Records how the request ended, unless it was cancelled before.
    pub(super) fn ended(&self, request: &ModelRequest, outcome: &Result<Answer, ModelFault>) {
        let mut progress = self.progress();
        if std::mem::replace(&mut progress.has_ended, true) {
            model_left(purpose_of(request), false);
            return;
        }
        let deployment = self.shared.parts.deployment();
        model_answered(request, &deployment, outcome);
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
            (None, Err(_)) => self.estimate_if_begun(),
        }
    }

    /// Records that the request was cancelled. Its answer, which may still arrive, is not counted.
    pub(super) fn cancelled(&self) {
        if !std::mem::replace(&mut self.progress().has_ended, true) {
            self.estimate_if_begun();
        }
    }

    /// Writes the rows that wait, because no append may follow soon.
    pub(super) async fn write_alone(&self) {
        let rows = self.spent.take();
        if let Err(error) = self.shared.store.add_usage(rows.clone()).await {
            tracing::warn!(session = %self.body.row.session, %error, "the usage of a request is recorded later");
            self.spent.put_back(rows);
        }
    }

    /// Records that the request was withdrawn, to be sent again later.
    pub(super) fn withdrawn(&self) {
        let mut progress = self.progress();
        if !progress.has_ended && self.bytes.load(Ordering::Relaxed) > 0 {
            progress.withdrawn += 1;
            let id = format!("{}-{}", self.body.row.id, progress.withdrawn);
            self.push(UsageRow { id, ..self.estimated(self.written_tokens()) });
            self.bytes.store(0, Ordering::Relaxed);
        }
    }

    fn report(&self, usage: &ReportedUsage) {
        let prices = &self.shared.parts.deployment().prices;
        self.push(self.body.row.clone().reported(usage, prices));
    }

    /// A request that failed before its answer began is not billed.
    fn estimate_if_begun(&self) {
        if self.bytes.load(Ordering::Relaxed) > 0 {
            self.estimate(self.written_tokens());
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
        self.spent.rows().push(UsageRow { at: self.shared.clock.now(), ..row });
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
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
