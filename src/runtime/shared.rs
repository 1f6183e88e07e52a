//! What every session's actor shares, and how faults of the store are told.

use crate::{
    clock::Clock,
    core::{
        agent_loop::Deployment,
        context::counter::{Calibration, Counter},
    },
    provider::Provider,
    store::{Error as StoreError, SessionStore},
};
use dashmap::DashMap;
use reseed_protocol::{ErrorBody, ErrorCode};
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// Models whose estimates are corrected: more than any deployment has. Where CONTEXT_WINDOW is set every name is taken for
/// a model's, so clients could otherwise fill memory with names.
const CALIBRATIONS_MAX: usize = 1_000;

/// What every actor shares.
pub(super) struct Shared {
    pub(super) store: Arc<dyn SessionStore>,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) deployment: Arc<Deployment>,
    pub(super) detached_turn: Duration,
    /// The server will stop: finish the running turn, take nothing more, leave memory.
    pub(super) drain: CancellationToken,
    /// The server is stopping: end the running turn now.
    pub(super) stop: CancellationToken,
    /// How far the estimates of each model are off; of at most [`CALIBRATIONS_MAX`] models.
    pub(super) calibrations: DashMap<String, Calibration>,
}

impl Shared {
    pub(super) fn calibrate(&self, model: &str, estimated: u64, reported: u64) {
        if self.calibrations.len() >= CALIBRATIONS_MAX && !self.calibrations.contains_key(model) {
            return;
        }
        let mut calibration = self.calibration(model);
        calibration.observe(estimated, reported);
        self.calibrations.insert(model.to_owned(), calibration);
    }

    pub(super) fn calibration(&self, model: &str) -> Calibration {
        let known = self.calibrations.get(model).map(|calibration| *calibration);
        known.unwrap_or_else(|| Calibration::new(Counter::for_model(model).method()))
    }
}

/// The wire's word for a fault of the store.
#[must_use]
pub fn store_error(error: &StoreError) -> ErrorBody {
    match error {
        StoreError::NotFound(id) => {
            ErrorBody::new(ErrorCode::SessionNotFound, format!("there is no session `{id}` among yours"))
                .with_field("sessionId")
        }
        StoreError::Damaged { .. } => {
            tracing::error!(%error, "a session is damaged; restore it from a backup");
            ErrorBody::new(ErrorCode::SessionDamaged, error.to_string()).with_field("sessionId")
        }
        // What went wrong inside is the operator's business and stands in the log.
        other => {
            tracing::error!(error = %other, "the store failed");
            ErrorBody::new(ErrorCode::StoreFailed, "the store could not be used; nothing was acknowledged, try again")
        }
    }
}
