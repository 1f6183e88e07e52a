//! Reads sessions of any owner without opening them, for operators and lists. If a session is open, its actor answers.
//! Otherwise it is loaded from the store for this purpose and dropped again.

use super::{load::load, registry::Registry};
use crate::{
    core::agent_loop::{AgentLoop, Snapshot},
    store::SessionHead,
};
use reseed_protocol::{
    ErrorBody, SessionId,
    context::{Context, GetContext},
};

impl Registry {
    /// Returns the state of a session.
    ///
    /// # Errors
    /// `session_not_found`, `store_failed`.
    pub async fn peek(&self, id: &SessionId) -> Result<Snapshot, ErrorBody> {
        if let Some(handle) = self.opened(id)
            && let Ok(snapshot) = handle.snapshot().await
        {
            return Ok(snapshot);
        }
        let head = self.find(id).await?;
        self.snapshot_of(&head).await
    }

    /// Returns what the next request of a session would send. If the session is not open, the result lacks its client's
    /// tools, which are not stored, and what hooks added for one request.
    ///
    /// # Errors
    /// `session_not_found`, `store_failed`; `invalid_field` if it is too large to show.
    pub async fn next_request(&self, id: &SessionId, get: &GetContext) -> Result<Context, ErrorBody> {
        if let Some(handle) = self.opened(id)
            && let Ok(context) = handle.next_request(get.clone()).await
        {
            return context;
        }
        let head = self.find(id).await?;
        self.loop_of(&head).await?.next_request(get)
    }

    pub(super) async fn snapshot_of(&self, head: &SessionHead) -> Result<Snapshot, ErrorBody> {
        Ok(self.loop_of(head).await?.snapshot())
    }

    /// Returns the loop with which a session would continue.
    async fn loop_of(&self, head: &SessionHead) -> Result<AgentLoop, ErrorBody> {
        let session = load(&**self.store(), head).await.map_err(|error| self.fault(&error))?;
        let session = self.founded(session);
        let generation = session.state.generation;
        Ok(AgentLoop::seeded(generation, self.seed(session)?))
    }
}
