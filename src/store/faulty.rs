//! A store that fails on demand, for tests of the layers above. Only [`SessionStore::append`] and reads of entries can
//! fail; all other calls pass through. The bytes of the entries read are counted.

use super::{
    Append, CommandMark, Created, EntriesPage, EntryQuery, Error, Hits, Lease, ListPage, ListQuery, MinuteQuery,
    MinuteRow, SearchQuery, Secret, SessionHead, SessionStore, StoreFuture, StoredNode, StoredRecord, SubtreeQuery,
    Traces, Usage, UsageFuture, UsageQuery,
};
use reseed_core::usage_row::UsageRow;
use reseed_protocol::{CommandId, EntryId, SessionId, Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::sync::{Notify, RwLock, RwLockWriteGuard};

/// The point at which an append fails. The caller gets [`Error::Unknown`] either way and cannot tell which it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Before writing: the log does not have it.
    Before,
    /// After writing: the log has it.
    After,
}

/// Wraps a store, and fails or holds chosen appends, for tests.
#[derive(Debug)]
pub struct Faulty<S> {
    inner: S,
    plan: Mutex<Plan>,
    /// Appends take a read lock, so a write lock holds them back.
    passage: RwLock<()>,
    /// The same for calls that write usage alone, of which each is noted when it begins.
    usage_passage: RwLock<()>,
    usage_begins: Notify,
    entry_bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Plan {
    /// Appends started so far.
    appends: u64,
    faults: BTreeMap<u64, Fault>,
    /// The faults that also kill the store.
    deaths: BTreeSet<u64>,
    /// The answers to the next reads of entries.
    reads: VecDeque<Error>,
}

impl<S: SessionStore> Faulty<S> {
    /// Wraps a store, without any fault yet.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            plan: Mutex::default(),
            passage: RwLock::default(),
            usage_passage: RwLock::default(),
            usage_begins: Notify::new(),
            entry_bytes: AtomicUsize::new(0),
        }
    }

    /// Makes the `nth` append from now fail; 1 is the next one. Appends of all sessions are counted together.
    pub fn fail_append(&self, nth: u64, fault: Fault) {
        let mut plan = self.plan();
        let at = plan.appends + nth;
        plan.faults.insert(at, fault);
    }

    /// Makes the `nth` append from now fail and closes the inner store, as if the process had died there.
    pub fn die_at_append(&self, nth: u64, fault: Fault) {
        let mut plan = self.plan();
        let at = plan.appends + nth;
        plan.faults.insert(at, fault);
        plan.deaths.insert(at);
    }

    /// Makes the next reads of entries fail with these errors, one each.
    pub fn fail_entries(&self, errors: impl IntoIterator<Item = Error>) {
        self.plan().reads.extend(errors);
    }

    /// Waits for the appends in progress, and lets no other start until the guard is dropped.
    pub async fn hold_appends(&self) -> RwLockWriteGuard<'_, ()> {
        self.passage.write().await
    }

    /// As [`Self::hold_appends`], for usage that is written alone.
    pub async fn hold_usage(&self) -> RwLockWriteGuard<'_, ()> {
        self.usage_passage.write().await
    }

    /// Waits until usage is written alone.
    pub async fn usage_begins(&self) {
        self.usage_begins.notified().await;
    }

    /// Returns the number of appends started, failed ones included.
    pub fn appends(&self) -> u64 {
        self.plan().appends
    }

    /// Returns the bytes of all entries read so far, except those of subtrees.
    pub fn entry_bytes(&self) -> usize {
        self.entry_bytes.load(Ordering::Relaxed)
    }

    /// Returns the inner store.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Returns the next append's fault and whether the store dies with it.
    fn next_fault(&self) -> Option<(Fault, bool)> {
        let mut plan = self.plan();
        plan.appends += 1;
        let now = plan.appends;
        let fault = plan.faults.remove(&now)?;
        Some((fault, plan.deaths.remove(&now)))
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: SessionStore> SessionStore for Faulty<S> {
    fn create_once<'a>(
        &'a self,
        session: &'a SessionId,
        owner: &'a str,
        command: Option<&'a CommandId>,
        now: Timestamp,
    ) -> StoreFuture<'a, Result<Created, Error>> {
        self.inner.create_once(session, owner, command, now)
    }

    fn created_by<'a>(
        &'a self,
        owner: &'a str,
        command: &'a CommandId,
    ) -> StoreFuture<'a, Result<Option<SessionId>, Error>> {
        self.inner.created_by(owner, command)
    }

    fn open<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(Lease, SessionHead), Error>> {
        self.inner.open(session)
    }

    fn append<'a>(&'a self, lease: &'a Lease, first_seq: u64, append: Append) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let _passes = self.passage.read().await;
            let Some((fault, dies)) = self.next_fault() else {
                return self.inner.append(lease, first_seq, append).await;
            };
            if fault == Fault::After {
                self.inner.append(lease, first_seq, append).await?;
            }
            if dies {
                self.inner.close().await?;
            }
            Err(Error::Unknown("injected fault".into()))
        })
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Result<(), Error>> {
        self.inner.release(lease)
    }

    fn read_page<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        limit: u32,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>> {
        self.inner.read_page(session, after_seq, limit, bytes_max)
    }

    fn entries_page<'a>(
        &'a self,
        session: &'a SessionId,
        query: EntryQuery,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<EntriesPage, Error>> {
        Box::pin(async move {
            if let Some(error) = self.plan().reads.pop_front() {
                return Err(error);
            }
            let page = self.inner.entries_page(session, query, bytes_max).await?;
            let bytes = page.records.iter().map(|record| record.body.len()).sum();
            self.entry_bytes.fetch_add(bytes, Ordering::Relaxed);
            Ok(page)
        })
    }

    fn subtree<'a>(
        &'a self,
        session: &'a SessionId,
        query: SubtreeQuery,
    ) -> StoreFuture<'a, Result<Vec<StoredNode>, Error>> {
        self.inner.subtree(session, query)
    }

    fn entry_seq<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Result<Option<u64>, Error>> {
        self.inner.entry_seq(session, entry)
    }

    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        command_id: &'a str,
    ) -> StoreFuture<'a, Result<Option<CommandMark>, Error>> {
        self.inner.command(session, command_id)
    }

    fn head<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<SessionHead, Error>> {
        self.inner.head(session)
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<ListPage, Error>> {
        self.inner.list(query)
    }

    fn usage<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Result<Option<Usage>, Error>> {
        self.inner.usage(owner)
    }

    fn add_usage(&self, rows: Vec<UsageRow>) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.usage_begins.notify_one();
            let _passes = self.usage_passage.read().await;
            self.inner.add_usage(rows).await
        })
    }

    fn usage_sums(&self, query: UsageQuery) -> UsageFuture<'_> {
        self.inner.usage_sums(query)
    }

    fn remove_usage(&self, before: Timestamp) -> StoreFuture<'_, Result<u64, Error>> {
        self.inner.remove_usage(before)
    }

    fn put_minute(&self, row: MinuteRow) -> StoreFuture<'_, Result<(), Error>> {
        self.inner.put_minute(row)
    }

    fn minutes(&self, query: MinuteQuery) -> StoreFuture<'_, Result<Vec<MinuteRow>, Error>> {
        self.inner.minutes(query)
    }

    fn forget_owner<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Result<u64, Error>> {
        self.inner.forget_owner(owner)
    }

    fn traces<'a>(&'a self, owner: &'a str, sessions: &'a [SessionId]) -> StoreFuture<'a, Result<Traces, Error>> {
        self.inner.traces(owner, sessions)
    }

    fn empty_sessions(&self, before: Timestamp, limit: u32) -> StoreFuture<'_, Result<Vec<SessionId>, Error>> {
        self.inner.empty_sessions(before, limit)
    }

    fn search(&self, query: SearchQuery) -> StoreFuture<'_, Result<Hits, Error>> {
        self.inner.search(query)
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(), Error>> {
        self.inner.delete(session)
    }

    fn secret<'a>(&'a self, name: &'a str, offered: Secret) -> StoreFuture<'a, Result<Secret, Error>> {
        self.inner.secret(name, offered)
    }

    fn failure(&self) -> Option<Error> {
        self.inner.failure()
    }

    fn check_writable(&self) -> StoreFuture<'_, Result<(), Error>> {
        self.inner.check_writable()
    }

    fn close(&self) -> StoreFuture<'_, Result<(), Error>> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use super::{Fault, Faulty};
    use crate::{
        Error, SessionStore,
        conformance::{self, Subject, append_of, contract_suite, id},
        memory::MemoryStore,
    };

    async fn build() -> Subject {
        Subject::new(Faulty::new(MemoryStore::new()), ())
    }

    contract_suite!(build());

    #[tokio::test]
    async fn only_the_chosen_append_fails_before_or_after_it_is_written() {
        for (fault, last_seq) in [(Fault::Before, 1), (Fault::After, 2)] {
            let store = Faulty::new(MemoryStore::new());
            let lease = store.create(&id("s"), "", conformance::NOW).await.unwrap();
            store.fail_append(2, fault);
            store.append(&lease, 1, append_of(["a"])).await.unwrap();
            let failed = store.append(&lease, 2, append_of(["b"])).await;
            assert!(matches!(failed, Err(Error::Unknown(_))), "{failed:?}");
            assert_eq!(store.head(&lease.session).await.unwrap().last_seq, last_seq, "{fault:?}");
            store.append(&lease, last_seq + 1, append_of(["c"])).await.unwrap();
            assert_eq!(store.appends(), 3);
        }
    }
}
