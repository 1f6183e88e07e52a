//! State shared by all session actors.

use super::{
    cluster::Keeper,
    errors::store_error,
    model_server_load::ModelServerLoad,
    parts::{MODELS_MAX, Parts},
    resting::Resting,
    stored_shares::StoredShares,
};
use crate::{
    clock::Clock,
    core::{
        context::counter::{Calibration, Counter, Report},
        session::Session,
    },
    shares::{Shares, budgets::Budgets},
    store::{Error as StoreError, SessionStore, has_room, memory::MemoryStore},
    trace::Traces,
};
use dashmap::DashMap;
use reseed_protocol::{ErrorBody, ErrorCode, SessionId};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio_util::sync::CancellationToken;

/// State shared by all actors.
pub(super) struct Shared {
    /// All sessions: those in the database, and those in memory only.
    pub(super) store: Arc<dyn SessionStore>,
    /// Where sessions are created that are not to be stored.
    pub(super) unstored: Arc<MemoryStore>,
    pub(super) parts: Parts,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) detached_turn: Duration,
    pub(super) host_away: Duration,
    /// The server is about to stop. Actors finish the running turn, accept nothing more, and leave memory.
    pub(super) drain: CancellationToken,
    /// The server is stopping. Actors end the running turn now.
    pub(super) stop: CancellationToken,
    /// The calibration of each model's estimates; at most [`MODELS_MAX`] models.
    pub(super) calibrations: DashMap<String, Calibration>,
    /// Sessions that are read-only because a record cannot be read back; at most [`DAMAGED_MAX`].
    pub(super) damaged: DashMap<SessionId, ErrorBody>,
    /// The requests in progress at the model server.
    pub(super) model_server: Arc<ModelServerLoad>,
    /// The sessions that stay in memory without a connection.
    pub(super) resting: Resting,
    /// The shares of the users, which limit how much each may take at a time.
    pub(super) shares: Arc<Shares>,
    /// The budgets of users, sessions and the deployment.
    pub(super) budgets: Budgets,
    /// The limits on the sessions and bytes that each user may store.
    pub(super) stored: StoredShares,
    /// Makes spans. Set once, before the first session is opened.
    pub(super) traces: OnceLock<Traces>,
    /// This server's membership in the cluster, if it is one of several.
    pub(super) cluster: Option<Arc<Keeper>>,
}

/// Maximum number of damaged sessions that are remembered. With more, the whole disk is damaged. Damage in other
/// sessions is found again wherever it is read.
const DAMAGED_MAX: usize = 10_000;

impl Shared {
    /// Returns what makes spans.
    pub(super) fn traces(&self) -> &Traces {
        self.traces.get_or_init(Traces::default)
    }

    /// Refuses more in memory if it is full of sessions that are not stored, or of this owner's.
    pub(super) fn check_memory(&self, owner: &str) -> Result<(), ErrorBody> {
        if has_room(&self.unstored, owner) {
            return Ok(());
        }
        let message = "this server's memory for sessions that are not stored is full; store it, or try again later";
        Err(ErrorBody::new(ErrorCode::Overloaded, message))
    }

    /// Converts a store error to a wire error. A session found to be damaged becomes read-only.
    pub(super) fn fault(&self, error: &StoreError) -> ErrorBody {
        let body = store_error(error);
        if let StoreError::Damaged { session, .. } = error
            && self.damaged.len() < DAMAGED_MAX
            && self.damaged.insert(session.clone(), body.clone()).is_none()
        {
            tracing::error!(%error, "the session is read-only from now on; restore the database from a backup");
        }
        body
    }

    /// Returns the reason why nothing may be written to this session, if there is one.
    pub(super) fn damage(&self, session: &SessionId) -> Option<ErrorBody> {
        self.damaged.get(session).map(|body| body.clone())
    }

    pub(super) fn calibrate(&self, model: &str, report: &Report) {
        if let Some(mut calibration) = self.calibrations.get_mut(model) {
            calibration.observe(report);
            return;
        }
        let mut calibration = self.calibration(model);
        calibration.observe(report);
        self.remember(model, calibration);
    }

    /// Returns what sessions of this model have taught since the server started.
    pub(super) fn known_calibration(&self, model: &str) -> Option<Calibration> {
        self.calibrations.get(model).map(|calibration| calibration.clone())
    }

    pub(super) fn calibration(&self, model: &str) -> Calibration {
        self.known_calibration(model).unwrap_or_else(|| Calibration::new(Counter::for_model(model).method()))
    }

    /// Returns the calibration for a session that is opened: the one stored with its state. A session that has learned
    /// nothing starts with what others have learned.
    pub(super) fn calibration_of(&self, session: &Session) -> Calibration {
        let model = &session.state.model;
        let method = self.parts.deployment().counter(model).method();
        let stored = session.calibration.clone().filter(|stored| stored.method() == method && stored.reports() > 0);
        let Some(own) = stored else { return self.calibration(model) };
        if !self.calibrations.contains_key(model) {
            self.remember(model, own.clone());
        }
        own
    }

    /// Returns the calibration of a session's model that has learned nothing.
    pub(super) fn new_calibration(&self, session: &Session) -> Calibration {
        Calibration::new(self.parts.deployment().counter(&session.state.model).method())
    }

    fn remember(&self, model: &str, calibration: Calibration) {
        if self.calibrations.len() < MODELS_MAX {
            self.calibrations.insert(model.to_owned(), calibration);
        }
    }
}
