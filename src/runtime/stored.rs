//! Reads stored sessions without opening them and without a server: for the command line.

use super::{errors::store_error, load};
use crate::{
    core::{
        agent_loop::{AgentLoop, Deployment, Seed},
        context::counter::Calibration,
        session::{IdSource, SessionState},
    },
    store::{Error, SessionHead, SessionStore, UNFINISHED},
};
use reseed_protocol::{
    ErrorBody, SessionId,
    context::{Context, ContextInfo, GetContext},
};
use std::sync::Arc;

/// Returns what is known of a session, and its state. An unfinished session counts as missing.
///
/// # Errors
/// The store's errors.
pub async fn read(store: &dyn SessionStore, id: &SessionId) -> Result<(SessionHead, SessionState), Error> {
    let head = store.head(id).await?;
    if head.head.updated_at == UNFINISHED {
        return Err(Error::NotFound(id.clone()));
    }
    let state = load::state(store, &head).await?;
    Ok((head, state))
}

/// Returns what `get_context` would return, except for tools. Tools belong to the client that offers them and are not
/// stored.
///
/// # Errors
/// As `get_context`, and the store's errors.
pub(crate) async fn context(
    store: &dyn SessionStore,
    head: &SessionHead,
    deployment: Arc<Deployment>,
    get: &GetContext,
) -> Result<Context, ErrorBody> {
    seeded(store, head, deployment).await?.next_request(get)
}

/// Returns how full the window is, also without tools.
///
/// # Errors
/// The store's errors.
pub(crate) async fn context_info(
    store: &dyn SessionStore,
    head: &SessionHead,
    deployment: Arc<Deployment>,
) -> Result<ContextInfo, ErrorBody> {
    Ok(seeded(store, head, deployment).await?.context_info())
}

async fn seeded(
    store: &dyn SessionStore,
    head: &SessionHead,
    deployment: Arc<Deployment>,
) -> Result<AgentLoop, ErrorBody> {
    let session = load::load(store, head).await.map_err(|error| store_error(&error))?;
    let counter = deployment.counter(&session.state.model);
    let stored = session.calibration.clone().filter(|own| own.method() == counter.method());
    let calibration = stored.unwrap_or_else(|| Calibration::new(counter.method()));
    let generation = session.state.generation.max(1);
    Ok(AgentLoop::seeded(generation, Seed::new(session, deployment, calibration, IdSource::seeded(0))))
}
