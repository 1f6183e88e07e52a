//! Removes sessions: those that a user deletes, and those that nobody ever wrote to.

use super::{Kept, Registry};
use crate::{
    config::Retention,
    runtime::watch::list_item,
    store::{EMPTY_SEQ_MAX, Error as StoreError, ListQuery, SessionHead, UNFINISHED, USAGE_REMOVED_MAX},
};
use reseed_protocol::{
    ErrorBody, SessionId, Timestamp,
    session::{SessionItem, SessionState, SubscriptionEnd},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

/// How long a session is kept that is empty, or is not stored and not open. A client that lost its connection returns
/// within this time.
const LEFT_SESSION_KEPT: Duration = Duration::from_secs(60 * 60);

/// The interval between sweeps of empty sessions.
const SWEEP_EVERY: Duration = Duration::from_secs(5 * 60);

/// Empty sessions that a sweep checks, in addition to those that may be open and must stay.
const SWEEP_SESSIONS: u32 = 10_000;

/// Sessions that are looked at together when old ones are deleted.
const PAGE: u32 = 200;

/// Milliseconds of a day.
const DAY_MILLIS: i64 = 24 * 60 * 60 * 1_000;

impl Registry {
    /// Deletes a session permanently. All subscriptions to it end.
    ///
    /// # Errors
    /// `session_not_found`, `store_failed`.
    pub async fn delete(&self, id: &SessionId, owner: &str) -> Result<(), ErrorBody> {
        let head = self.head(id, owner).await?;
        let _turn = self.open.lock(id).await;
        if let Some(handle) = self.open.get(id) {
            handle.close(SubscriptionEnd::Deleted).await;
        }
        self.erase(&head).await.map_err(|error| self.fault(&error))
    }

    /// Deletes empty sessions that are older than an hour and not open. Returns their number.
    ///
    /// # Errors
    /// The store's.
    pub async fn sweep_empty(&self) -> Result<u64, StoreError> {
        let before = self.an_hour_ago();
        // All open sessions may be empty and have to stay. With this limit, a sweep always finds one that can be
        // deleted.
        let most = SWEEP_SESSIONS.saturating_add(self.limits.sessions_open_max);
        let mut gone = 0;
        for id in self.store().empty_sessions(before, most).await? {
            if self.check_running().is_err() {
                break;
            }
            match self.delete_if_empty(&id).await {
                Ok(deleted) => gone += u64::from(deleted),
                // A session that cannot be deleted must not block those behind it.
                Err(error @ StoreError::Damaged { .. }) => {
                    let _reported = self.fault(&error);
                }
                Err(StoreError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(gone)
    }

    /// Deletes the sessions in memory that nobody has written to for an hour and that are not open. Returns their
    /// number.
    ///
    /// # Errors
    /// The store's.
    pub async fn sweep_unstored(&self) -> Result<u64, StoreError> {
        let mut gone = 0;
        for id in self.shared.unstored.unchanged_since(self.an_hour_ago()) {
            let _turn = self.open.lock(&id).await;
            if self.open.get(&id).is_some() {
                continue;
            }
            match self.store().head(&id).await {
                Ok(head) => self.erase(&head).await?,
                Err(StoreError::NotFound(_)) => continue,
                Err(error) => return Err(error),
            }
            gone += 1;
        }
        Ok(gone)
    }

    /// Replaces how long sessions are kept. `has_claims` says that tokens may name the classes of their users.
    pub(crate) fn retain(&self, retention: Retention, has_claims: bool) {
        self.retention.send_replace((retention, has_claims));
    }

    /// Returns how long sessions are kept, and whether tokens may name classes. It tells of changes.
    pub(crate) fn retention(&self) -> watch::Receiver<(Retention, bool)> {
        self.retention.subscribe()
    }

    /// Returns the sessions of a page that are due to be deleted, and the start of the next page. The pages together
    /// have all sessions that have not changed for the shortest time after which any is deleted.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn overdue(
        &self,
        cursor: Option<String>,
    ) -> Result<(Vec<SessionHead>, Option<String>), StoreError> {
        let (retention, has_claims) = self.retention.borrow().clone();
        let Some(shortest) = retention.shortest() else { return Ok((Vec::new(), None)) };
        let before = |days: u32| Timestamp(self.now().0.saturating_sub(i64::from(days) * DAY_MILLIS));
        let changed_before = Some(before(shortest));
        let page = self.store().list(ListQuery { changed_before, cursor, limit: PAGE, ..ListQuery::default() }).await?;
        let is_due = |head: &SessionHead| {
            let days = retention.days_of(self.budgets().known_class(&head.owner, has_claims).as_deref());
            days > 0 && head.head.updated_at < before(days)
        };
        Ok((page.items.into_iter().filter(is_due).collect(), page.next_cursor))
    }

    /// Deletes a session that is due, unless it is open or has changed since. Returns true if it was deleted.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn delete_overdue(&self, due: &SessionHead) -> Result<bool, StoreError> {
        let _turn = self.open.lock(&due.session).await;
        if self.open.get(&due.session).is_some() {
            return Ok(false);
        }
        self.erase_if(&due.session, |head| head.last_seq == due.last_seq).await
    }

    /// Removes what requests to models cost that ended more than this many days ago. Returns the number of rows.
    ///
    /// # Errors
    /// The store's.
    pub async fn sweep_usage(&self, days: u32) -> Result<u64, StoreError> {
        let before = Timestamp(self.now().0.saturating_sub(i64::from(days) * DAY_MILLIS));
        let mut gone = 0;
        // Other writes are executed in between.
        while self.check_running().is_ok() {
            let removed = self.store().remove_usage(before).await?;
            gone += removed;
            if removed < u64::from(USAGE_REMOVED_MAX) {
                break;
            }
        }
        Ok(gone)
    }

    /// Sweeps empty and unstored sessions periodically, and the usage that is older than `usage_days` (0 for none),
    /// until the server stops.
    pub fn keep_sweeping(self: &Arc<Self>, usage_days: u32) {
        let registry = self.clone();
        self.track(async move {
            let mut due = tokio::time::interval(SWEEP_EVERY);
            due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = registry.shared.drain.cancelled() => return,
                    _ = due.tick() => {}
                }
                for (swept, what) in
                    [(registry.sweep_empty().await, "empty"), (registry.sweep_unstored().await, "unstored")]
                {
                    match swept {
                        Ok(0) => {}
                        Ok(sessions) => tracing::info!(sessions, "deleted {what} sessions"),
                        Err(error) => tracing::warn!(%error, "sweep {what} sessions"),
                    }
                }
                if usage_days > 0
                    && let Err(error) = registry.sweep_usage(usage_days).await
                {
                    tracing::warn!(%error, "remove old usage");
                }
            }
        });
    }

    /// Returns the time before which a session counts as left.
    fn an_hour_ago(&self) -> Timestamp {
        let kept = i64::try_from(LEFT_SESSION_KEPT.as_millis()).unwrap_or(i64::MAX);
        Timestamp(self.now().0.saturating_sub(kept))
    }

    /// Deletes a session if it is empty and not open. Nobody can open it meanwhile.
    async fn delete_if_empty(&self, id: &SessionId) -> Result<bool, StoreError> {
        let _turn = self.open.lock(id).await;
        if self.open.get(id).is_some() { Ok(false) } else { self.erase_if_empty(id).await }
    }

    async fn erase_if_empty(&self, id: &SessionId) -> Result<bool, StoreError> {
        self.erase_if(id, |head| head.last_seq <= EMPTY_SEQ_MAX).await
    }

    /// Deletes a session for which `is_meant` holds, unless another node has it open.
    async fn erase_if(&self, id: &SessionId, is_meant: impl Fn(&SessionHead) -> bool) -> Result<bool, StoreError> {
        match self.store().head(id).await {
            Ok(head) if is_meant(&head) && head.head.updated_at != UNFINISHED => {
                if self.keeper().is_none() {
                    return self.erase(&head).await.map(|()| true);
                }
                if self.elsewhere(&head).await?.is_some() {
                    return Ok(false);
                }
                // From here on no other node can open it, and what another node has written in the meantime is visible.
                match self.take(id).await {
                    Ok((_, _, head)) if is_meant(&head) => self.erase(&head).await.map(|()| true),
                    Ok((_, lease, _)) => self.store().release(&lease).await.map(|()| false),
                    Err(StoreError::Held { .. } | StoreError::NotFound(_)) => Ok(false),
                    Err(error) => Err(error),
                }
            }
            // It was deleted or written to in the meantime, or is damaged, which a sweep must not touch.
            Ok(_) | Err(StoreError::NotFound(_) | StoreError::Damaged { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn erase(&self, head: &SessionHead) -> Result<(), StoreError> {
        let id = &head.session;
        let is_listed = self.kept(id) == Kept::Stored;
        let deleted = self.shared.store.delete(id).await;
        if deleted.is_ok() && is_listed {
            let item = || SessionItem { deleted: true, ..list_item(id, &head.head, SessionState::Idle) };
            self.watches.changed(&head.owner, item);
        }
        self.shared.damaged.remove(id);
        if deleted.is_ok() {
            let (tools, id) = (self.parts().tools(), id.clone());
            // There may be many files, and the session is already gone.
            self.track(async move { tools.forget(&id).await });
        }
        deleted
    }
}
