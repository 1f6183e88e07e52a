//! Reads stored sessions without opening them and without a server: for the command line.

use super::{load, shared::store_error};
use crate::{
    core::{
        agent_loop::{AgentLoop, Deployment, Seed},
        context::count::relearnt,
        session::{IdSource, SessionState},
    },
    store::{Error, SessionHead, SessionStore, UNFINISHED},
};
use reseed_protocol::{ErrorBody, SessionId, command::GetContext, reply::Context};
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

/// Returns what `get_context` would return, except for tools, which belong to the client that offers them and are not
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
    let session = load::load(store, head).await.map_err(|error| store_error(&error))?;
    let counter = deployment.counter(&session.state.model);
    let calibration = relearnt(&session.tree.context(), &session.state.model, &counter);
    let generation = session.state.generation.max(1);
    AgentLoop::seeded(generation, Seed::new(session, deployment, calibration, IdSource::seeded(0))).next_request(get)
}
