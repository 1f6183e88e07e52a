//! The sessions that this server holds as a node of a cluster: where a session is, and which ones are lost.

use super::{Kept, Registry};
use crate::{
    runtime::{
        cluster::{Keeper, Since},
        errors::stopping,
        handle::{Message, SessionHandle},
    },
    store::{Error as StoreError, Lease, LeasedSession, NodeId, NodeRow, SessionHead},
};
use futures_util::future::join_all;
use reseed_protocol::{CommandId, ErrorBody, ErrorCode, SessionId, session::SubscriptionEnd};
use std::{collections::HashSet, sync::Arc};
use tokio::time::{Instant, timeout};

/// The reason why sessions are closed after this node has lost touch with the others, or after a failover.
const LOST: &str = "others may have opened them, or the database has lost their end";

/// Maximum number of sessions that the log names when many are closed.
const NAMED_MAX: usize = 100;

/// Where a session was found.
pub(crate) enum Found {
    /// It is open here.
    Here(SessionHandle),
    /// Another node holds it.
    Elsewhere(SessionId, Box<NodeRow>),
}

/// The reason why a session was not opened.
pub(super) enum NotOpened {
    /// Another node holds it.
    Held(NodeId),
    Refused(ErrorBody),
}

impl Registry {
    /// Returns this server's membership in the cluster, if the store has one.
    #[must_use]
    pub fn keeper(&self) -> Option<&Arc<Keeper>> {
        self.shared.cluster.as_ref()
    }

    /// Returns true unless this node has lost touch with the store, so that others may take over its sessions.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.keeper().is_none_or(|keeper| keeper.is_trusted())
    }

    /// Returns the node that holds a session of `owner`, if it is another living one.
    ///
    /// # Errors
    /// `session_not_found`, `store_failed`.
    pub async fn locate(&self, id: &SessionId, owner: &str) -> Result<Option<Box<NodeRow>>, ErrorBody> {
        let head = self.head(id, owner).await?;
        self.elsewhere(&head).await.map_err(|error| self.fault(&error))
    }

    /// Opens a session that belongs to `owner`. If another node holds it, that node is returned instead.
    ///
    /// # Errors
    /// As [`Registry::open`].
    pub(crate) async fn open_or_find(&self, id: &SessionId, owner: &str) -> Result<Found, ErrorBody> {
        if self.keeper().is_none() {
            return self.open(id, owner).await.map(Found::Here);
        }
        let mut held_by = None;
        // A session that is taken over between the two steps is looked up once more.
        for _ in 0..2 {
            let head = self.head(id, owner).await?;
            // A node without an address may be giving the session up. Opening it asks the store, which knows best.
            let row = self.elsewhere(&head).await.map_err(|error| self.fault(&error))?;
            if let Some(row) = row.filter(|row| row.node.address.is_some()) {
                return Ok(Found::Elsewhere(id.clone(), row));
            }
            match self.open_at(&head).await {
                Ok(handle) => return Ok(Found::Here(handle)),
                Err(NotOpened::Held(node)) => held_by = Some(node),
                Err(NotOpened::Refused(error)) => return Err(error),
            }
        }
        Err(held_by.map_or_else(stopping, |node| self.held_elsewhere(id, node)))
    }

    /// Creates a session for `owner` and opens it, or opens the one that this command has created before. If another
    /// node holds that one, the node is returned instead.
    ///
    /// # Errors
    /// As [`Registry::create_once`].
    pub(crate) async fn create_or_find(
        &self,
        owner: &str,
        command: &CommandId,
        kept: Kept,
    ) -> Result<Found, ErrorBody> {
        match self.create_once(owner, command, kept).await {
            Err(error) if self.keeper().is_some() && error.code == ErrorCode::Overloaded => {
                match self.created_by(owner, Some(command)).await? {
                    Some(earlier) => self.open_or_find(&earlier, owner).await,
                    None => Err(error),
                }
            }
            made => made.map(Found::Here),
        }
    }

    /// Returns the node that holds a session, if it is another living one. The store is queried if this node does not
    /// know.
    ///
    /// # Errors
    /// The store's.
    pub(in crate::runtime) async fn elsewhere(&self, head: &SessionHead) -> Result<Option<Box<NodeRow>>, StoreError> {
        let Some(keeper) = self.keeper() else { return Ok(None) };
        keeper.elsewhere(head.holder).await
    }

    /// Waits until this node may open sessions.
    pub(super) async fn wait_for_trust(&self) -> Result<(), ErrorBody> {
        let Some(keeper) = self.keeper() else { return Ok(()) };
        if keeper.trusted().await {
            return Ok(());
        }
        let message = "this server cannot reach its database, so it opens no sessions; reconnect";
        Err(ErrorBody::new(ErrorCode::StoreFailed, message))
    }

    /// Returns the error for a session that another node holds.
    pub(crate) fn held_elsewhere(&self, session: &SessionId, node: NodeId) -> ErrorBody {
        let error = self.fault(&StoreError::Held { session: session.clone(), node });
        match self.keeper() {
            Some(keeper) => {
                let wait = u64::try_from(keeper.retry_after(node).as_millis()).unwrap_or(u64::MAX);
                error.with_retry_after_ms(wait)
            }
            None => error,
        }
    }

    /// Becomes the writer of a session. In a cluster, also returns the node's standing at that time.
    ///
    /// # Errors
    /// The store's.
    pub(in crate::runtime) async fn take(
        &self,
        id: &SessionId,
    ) -> Result<(Option<Since>, Lease, SessionHead), StoreError> {
        let (since, opened) = self.as_member(|| self.shared.store.open(id)).await;
        opened.map(|(lease, head)| (since, lease, head))
    }

    /// Runs a store operation that only nodes may do. If the store does not know this node, waits until the node has
    /// joined again, and retries once. In a cluster, also returns the node's standing when it asked (see
    /// [`Keeper::since`]).
    pub(in crate::runtime) async fn as_member<T, F>(
        &self,
        ask: impl Fn() -> F,
    ) -> (Option<Since>, Result<T, StoreError>)
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let (asked, answer) = (self.since(), ask().await);
        let Err(StoreError::NotMember(lacking)) = answer else { return (asked, answer) };
        if let Some(keeper) = self.keeper() {
            keeper.join_now(lacking).await;
        }
        (self.since(), ask().await)
    }

    /// Returns this node's standing, in a cluster.
    pub(super) fn since(&self) -> Option<Since> {
        self.keeper().map(|keeper| keeper.since())
    }

    /// Ensures that nothing sent earlier to a session's log can still be written. It opens the session, which fences
    /// off earlier writers. If the session is open here, it waits for the actor, which knows the outcome of all its
    /// writes.
    ///
    /// # Errors
    /// The store's.
    pub(in crate::runtime) async fn fence(&self, id: &SessionId) -> Result<(), StoreError> {
        let _turn = self.open.lock(id).await;
        if let Some(handle) = self.open.get(id)
            && handle.snapshot().await.is_ok()
        {
            return Ok(());
        }
        match self.take(id).await {
            Ok((_, lease, _)) => self.shared.store.release(&lease).await,
            // Another node has opened it, which has the same effect.
            Err(StoreError::Held { .. } | StoreError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns true if another living node is working on a session, as of the last poll.
    pub(super) fn is_of_another(&self, head: &SessionHead) -> bool {
        self.keeper().is_some_and(|keeper| keeper.is_of_another(head.holder))
    }

    /// Closes sessions that this node no longer holds, until the server stops.
    pub fn keep_holding(self: &Arc<Self>) {
        let Some(keeper) = self.keeper().cloned() else { return };
        let registry = self.clone();
        self.track(async move {
            let mut standing = keeper.standing();
            let mut known = standing.borrow_and_update().since();
            let mut away_since: Option<Instant> = None;
            loop {
                tokio::select! {
                    () = registry.shared.drain.cancelled() => return,
                    // Nothing changes while no beat is answered, but time passes.
                    _ = timeout(keeper.beat_every(), standing.changed()) => {}
                }
                let now = standing.borrow_and_update().since();
                if now != known {
                    let mut open = registry.open.all();
                    // Nobody else can have those in memory.
                    open.retain(|handle| handle.since != Some(now) && registry.kept(&handle.id) == Kept::Stored);
                    let leased: Vec<LeasedSession> = open.iter().map(SessionHandle::leased).collect();
                    match keeper.lost(&leased, known, now).await {
                        Ok(lost) => {
                            let lost: HashSet<SessionId> = lost.into_iter().collect();
                            open.retain(|handle| lost.contains(&handle.id));
                            registry.evict(&open, LOST).await;
                            keeper.compared(now);
                            known = now;
                        }
                        Err(error) => tracing::warn!(%error, "look which sessions others have opened"),
                    }
                }
                if keeper.is_trusted() {
                    away_since = None;
                } else if away_since.get_or_insert_with(Instant::now).elapsed() >= keeper.patience() {
                    let mut open = registry.open.all();
                    open.retain(|handle| registry.kept(&handle.id) == Kept::Stored);
                    registry.evict(&open, "the database is away").await;
                    away_since = None;
                }
            }
        });
    }

    /// Closes sessions. Their clients reconnect and find them wherever they are now.
    async fn evict(&self, sessions: &[SessionHandle], why: &'static str) {
        if !sessions.is_empty() {
            tracing::warn!(sessions = sessions.len(), "closing sessions: {why}");
        }
        for handle in sessions.iter().take(NAMED_MAX) {
            tracing::info!(session = %handle.id, last_seq = handle.feed.seq(), "closing a session: {why}");
        }
        // A session that is gone has closed its feed itself.
        join_all(sessions.iter().map(|handle| handle.mailbox.send(Message::Close(SubscriptionEnd::Moved)))).await;
    }
}
