//! A store with a second one in memory beside it, for sessions that are not to be stored.
//!
//! The store is chosen when a session is created. Later accesses find it by the session's id. Lists, searches of all
//! sessions and stored bytes cover stored sessions only. What requests cost is stored for all of them.

use super::{
    Append, Cluster, CommandMark, Created, EntryQuery, Error, Lease, ListPage, ListQuery, MinuteQuery, MinuteRow,
    SearchQuery, Secret, SessionHead, SessionStore, StoreFuture, StoredNode, StoredRecord, SubtreeQuery, Traces, Usage,
    UsageFuture, UsageQuery,
    memory::MemoryStore,
    page::EntriesPage,
    search::{Hits, SearchScope},
};
use reseed_core::usage_row::UsageRow;
use reseed_protocol::{CommandId, EntryId, SessionId, Timestamp};
use std::sync::Arc;

/// Maximum bytes of all unstored sessions together: some thousand conversations, and a small part of a server's memory.
pub const UNSTORED_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The bytes that a session counts for besides its records: its indexes and its head.
const SESSION_BYTES: u64 = 4 * 1024;

/// A store, and a store in memory beside it.
pub struct WithUnstored {
    stored: Arc<dyn SessionStore>,
    unstored: Arc<MemoryStore>,
}

impl WithUnstored {
    /// Puts a store in memory beside a store.
    #[must_use]
    pub fn new(stored: Arc<dyn SessionStore>) -> Self {
        Self { stored, unstored: Arc::default() }
    }

    /// Returns the store in memory, to create sessions in it.
    #[must_use]
    pub fn unstored(&self) -> Arc<MemoryStore> {
        self.unstored.clone()
    }

    fn of(&self, session: &SessionId) -> &dyn SessionStore {
        if self.unstored.contains(session) { &*self.unstored } else { &*self.stored }
    }
}

/// Returns true if there is room for more unstored sessions, and for more of this owner's: one may have half of it.
#[must_use]
pub fn has_room(unstored: &MemoryStore, owner: &str) -> bool {
    let bytes = |usage: Usage| usage.bytes + usage.sessions * SESSION_BYTES;
    bytes(unstored.total_usage()) < UNSTORED_BYTES_MAX && bytes(unstored.usage_of(owner)) < UNSTORED_BYTES_MAX / 2
}

impl SessionStore for WithUnstored {
    fn create_once<'a>(
        &'a self,
        session: &'a SessionId,
        owner: &'a str,
        command: Option<&'a CommandId>,
        now: Timestamp,
    ) -> StoreFuture<'a, Result<Created, Error>> {
        self.stored.create_once(session, owner, command, now)
    }

    fn created_by<'a>(
        &'a self,
        owner: &'a str,
        command: &'a CommandId,
    ) -> StoreFuture<'a, Result<Option<SessionId>, Error>> {
        Box::pin(async move {
            match self.unstored.created_by(owner, command).await? {
                Some(session) => Ok(Some(session)),
                None => self.stored.created_by(owner, command).await,
            }
        })
    }

    fn open<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(Lease, SessionHead), Error>> {
        self.of(session).open(session)
    }

    fn append<'a>(
        &'a self,
        lease: &'a Lease,
        first_seq: u64,
        mut append: Append,
    ) -> StoreFuture<'a, Result<(), Error>> {
        if !self.unstored.contains(&lease.session) {
            return self.stored.append(lease, first_seq, append);
        }
        // What has begun is finished, as with quotas: the bound is checked before.
        Box::pin(async move {
            // What it cost is stored, and before the session has it.
            let usage = std::mem::take(&mut append.usage);
            if !usage.is_empty() {
                self.stored.add_usage(usage).await?;
            }
            self.unstored.append(lease, first_seq, append).await
        })
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Result<(), Error>> {
        self.of(&lease.session).release(lease)
    }

    fn read_page<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        limit: u32,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>> {
        self.of(session).read_page(session, after_seq, limit, bytes_max)
    }

    fn entries_page<'a>(
        &'a self,
        session: &'a SessionId,
        query: EntryQuery,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<EntriesPage, Error>> {
        self.of(session).entries_page(session, query, bytes_max)
    }

    fn subtree<'a>(
        &'a self,
        session: &'a SessionId,
        query: SubtreeQuery,
    ) -> StoreFuture<'a, Result<Vec<StoredNode>, Error>> {
        self.of(session).subtree(session, query)
    }

    fn entry_seq<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Result<Option<u64>, Error>> {
        self.of(session).entry_seq(session, entry)
    }

    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        command_id: &'a str,
    ) -> StoreFuture<'a, Result<Option<CommandMark>, Error>> {
        self.of(session).command(session, command_id)
    }

    fn head<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<SessionHead, Error>> {
        self.of(session).head(session)
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<ListPage, Error>> {
        self.stored.list(query)
    }

    fn usage<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Result<Option<Usage>, Error>> {
        self.stored.usage(owner)
    }

    fn add_usage(&self, rows: Vec<UsageRow>) -> StoreFuture<'_, Result<(), Error>> {
        self.stored.add_usage(rows)
    }

    fn usage_sums(&self, query: UsageQuery) -> UsageFuture<'_> {
        self.stored.usage_sums(query)
    }

    fn remove_usage(&self, before: Timestamp) -> StoreFuture<'_, Result<u64, Error>> {
        self.stored.remove_usage(before)
    }

    fn put_minute(&self, row: MinuteRow) -> StoreFuture<'_, Result<(), Error>> {
        self.stored.put_minute(row)
    }

    fn minutes(&self, query: MinuteQuery) -> StoreFuture<'_, Result<Vec<MinuteRow>, Error>> {
        self.stored.minutes(query)
    }

    fn forget_owner<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Result<u64, Error>> {
        self.stored.forget_owner(owner)
    }

    fn traces<'a>(&'a self, owner: &'a str, sessions: &'a [SessionId]) -> StoreFuture<'a, Result<Traces, Error>> {
        self.stored.traces(owner, sessions)
    }

    fn empty_sessions(&self, before: Timestamp, limit: u32) -> StoreFuture<'_, Result<Vec<SessionId>, Error>> {
        self.stored.empty_sessions(before, limit)
    }

    fn search(&self, query: SearchQuery) -> StoreFuture<'_, Result<Hits, Error>> {
        match &query.scope {
            SearchScope::Session(session) => self.of(session).search(query),
            SearchScope::Owner(_) => self.stored.search(query),
        }
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(), Error>> {
        self.of(session).delete(session)
    }

    fn secret<'a>(&'a self, name: &'a str, offered: Secret) -> StoreFuture<'a, Result<Secret, Error>> {
        self.stored.secret(name, offered)
    }

    fn failure(&self) -> Option<Error> {
        self.stored.failure()
    }

    fn check_writable(&self) -> StoreFuture<'_, Result<(), Error>> {
        self.stored.check_writable()
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        self.stored.cluster()
    }

    fn close(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.unstored.close().await?;
            self.stored.close().await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{self, Subject, append_of, contract_suite, id, log};

    async fn build() -> Subject {
        Subject::new(WithUnstored::new(Arc::new(MemoryStore::new())), ())
    }

    // Without an unstored session, it is the store.
    contract_suite!(build());

    #[tokio::test]
    async fn an_unstored_session_is_found_by_its_id_and_nowhere_else() {
        let stored = Arc::new(MemoryStore::new());
        let store = WithUnstored::new(stored.clone());
        let (session, now) = (id("s"), conformance::NOW);
        let lease = store.unstored().create(&session, "ann", now).await.unwrap();
        store.append(&lease, 1, append_of(["a", "b"])).await.unwrap();
        assert_eq!(log(&store, &session).await, "1:a 2:b");
        assert_eq!(store.head(&session).await.unwrap().owner, "ann");
        assert!(store.list(ListQuery { limit: 10, ..ListQuery::default() }).await.unwrap().items.is_empty());
        assert_eq!(store.usage("ann").await.unwrap(), Some(Usage::default()));
        assert!(!stored.contains(&session));
        assert_eq!(store.unstored().unchanged_since(now), std::slice::from_ref(&session));
        store.delete(&session).await.unwrap();
        assert!(matches!(store.head(&session).await, Err(Error::NotFound(_))));
    }
}
