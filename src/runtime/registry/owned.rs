//! All sessions of one user: closes and deletes them, for operators.

use super::Registry;
use crate::{
    runtime::handle::SessionHandle,
    store::{Error as StoreError, ListQuery, SessionHead},
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use reseed_protocol::{SessionId, session::SubscriptionEnd};
use std::time::Duration;
use tokio::time::timeout;

/// Sessions that are read at a time.
const PAGE: u32 = 200;

/// The time limit for a user's sessions to leave memory. Each writes what its last requests have cost.
const LEAVE_TIME: Duration = Duration::from_secs(5);

/// Sessions that are closed or deleted at a time. It is half of the connections to PostgreSQL, so that others read and
/// write meanwhile.
const AT_ONCE: usize = 4;

impl Registry {
    /// Returns a user's open sessions.
    pub(crate) fn opened_of(&self, owner: &str) -> Vec<SessionHandle> {
        self.open.all_of(owner)
    }

    /// Closes a session that is open here: its turn is interrupted, and its clients are told. Returns the number of its
    /// connections.
    pub(crate) async fn close(&self, id: &SessionId) -> usize {
        let _turn = self.open.lock(id).await;
        let Some(handle) = self.open.get(id) else { return 0 };
        let connections = handle.feed.readers();
        handle.close(SubscriptionEnd::Failed).await;
        connections
    }

    /// Closes a user's sessions that are open here. Returns their number.
    pub(crate) async fn close_all_of(&self, owner: &str) -> usize {
        let open = stream::iter(self.opened_of(owner));
        let closed = open.map(async |handle| self.close(&handle.id).await).buffer_unordered(AT_ONCE).count().await;
        // A session that the user opens meanwhile is not waited for.
        let _ = timeout(LEAVE_TIME, self.open.none_of(owner)).await;
        closed
    }

    /// Deletes a user's sessions that are only in this server's memory. Returns their number.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn delete_unstored_of(&self, owner: &str) -> Result<usize, StoreError> {
        let mut deleted = 0;
        for id in self.shared.unstored.of_owner(owner) {
            let head = self.store().head(&id).await?;
            deleted += usize::from(self.delete_now(&head).await?);
        }
        Ok(deleted)
    }

    /// Deletes a user's stored sessions, also those that are still being created. Returns them.
    ///
    /// # Errors
    /// The store's. Some sessions may be deleted.
    pub(crate) async fn delete_all_of(&self, owner: &str) -> Result<Vec<SessionId>, StoreError> {
        let mut deleted = Vec::new();
        for unfinished in [false, true] {
            loop {
                let owner = Some(owner.to_owned());
                let page = self.store().list(ListQuery { owner, limit: PAGE, unfinished, ..ListQuery::default() });
                let page = page.await?.items;
                if page.is_empty() {
                    break;
                }
                let deleting = stream::iter(page)
                    .map(async |head: SessionHead| self.delete_now(&head).await.map(|_| head.session));
                let some: Vec<SessionId> = deleting.buffer_unordered(AT_ONCE).try_collect().await?;
                deleted.extend(some);
            }
        }
        Ok(deleted)
    }

    /// Deletes a session, whoever has it open. Returns false if it was deleted meanwhile.
    async fn delete_now(&self, head: &SessionHead) -> Result<bool, StoreError> {
        let _turn = self.open.lock(&head.session).await;
        if let Some(handle) = self.open.get(&head.session) {
            handle.close(SubscriptionEnd::Deleted).await;
        }
        match self.erase(head).await {
            Ok(()) => Ok(true),
            Err(StoreError::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
