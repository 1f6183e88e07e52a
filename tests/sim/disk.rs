//! The store of a run: one disk shared by all servers of the run, and each server's access to it.
//!
//! The disk is the memory store, with a mirror of what it accepted. Access is slow at times, and fails at times before
//! or after the write. A dead server gets no more responses, so that a crash in the middle of an append leaves it
//! written or not, unknown to anyone. In a cluster it is the database that all nodes share: each has a handle and a
//! connection of its own (`cluster/link.rs`).

use crate::{
    broken::Broken,
    cluster::{
        fleet::{Beaten, QUANTUM_MAX, Standstill},
        link::{Late, Link, Member, Sent},
    },
    history::{Failover, Grant, Trace, Written},
};
use fastrand::Rng;
use futures_util::FutureExt;
use reseed::core::usage_row::UsageRow;
use reseed::store::{
    Append, Cluster, CommandMark, Created, EntriesPage, EntryQuery, Error, Lease, ListPage, ListQuery, MinuteQuery,
    MinuteRow, NewRecord, NodeId, SessionHead, SessionStore, StoreFuture, StoredNode, StoredRecord, SubtreeQuery,
    Traces, UsageFuture, UsageQuery,
    memory::{MemoryStore, Standby},
};
use reseed_protocol::{CommandId, EntryId, SessionId, Timestamp};
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The disk shared by all servers of a run.
pub(crate) struct Disk {
    seed: u64,
    pub(crate) broken: Broken,
    pub(crate) trace: Trace,
    inner: Mutex<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) written: BTreeMap<SessionId, Vec<Written>>,
    /// The session created first, which clients use. Others are its forks.
    first: Option<SessionId>,
    /// All operations, so that an earlier state can be recreated.
    done: Vec<Done>,
    /// The newest term of each session.
    terms: BTreeMap<SessionId, u64>,
    /// Appends acknowledged but not yet written, with that fault injected.
    pub(crate) late: VecDeque<(usize, Lease, u64, Append)>,
    pub(crate) rng: Rng,
    /// Faults per thousand accesses; 0 for none.
    faults_per_mille: u32,
    /// One in this many accesses is slow; 0 for none.
    slow_once_in: u8,
    pub(crate) faults: u64,
    /// The openings of sessions, in order.
    pub(crate) grants: Vec<Grant>,
    /// The commands that were marked as done, in order.
    marks: Vec<String>,
    /// The standby of a cluster's database with its data, once it receives nothing more.
    standby: Option<Behind>,
    /// The living nodes of a cluster, by number.
    pub(crate) members: BTreeMap<usize, Member>,
    /// Writes of a cluster's nodes that are executed after their sender gave up or died.
    pub(crate) afterwards: Vec<Late>,
    /// When each of them has beaten, by its own time of day.
    pub(crate) beaten_at: Beaten,
    /// The database's time, and when each node has beaten by it.
    pub(crate) now: Duration,
    pub(crate) beats: BTreeMap<NodeId, Duration>,
    /// Makes the node of a cluster that writes next stand still then, before it has the answer.
    pub(crate) still_then: Option<Standstill>,
    pub(crate) stopped: Vec<(usize, Standstill)>,
    /// When each node of a cluster has sent its last beat that was answered, by number.
    pub(crate) renewed: BTreeMap<usize, Duration>,
}

/// A standby that is behind.
struct Behind {
    store: Standby,
    lengths: BTreeMap<SessionId, usize>,
    marks: usize,
    terms: BTreeMap<SessionId, u64>,
}

#[derive(Clone)]
enum Done {
    Create(SessionId, Timestamp),
    Open(SessionId),
    Append(Lease, u64, Box<Append>, usize),
}

/// The outcome of an append.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Good,
    /// Not written, and its writer does not know.
    FailsBefore,
    /// Written, and its writer does not know.
    FailsAfter,
}

impl Disk {
    pub(crate) fn new(seed: u64, broken: Broken, trace: Trace) -> Arc<Self> {
        let inner = Inner {
            store: Arc::new(MemoryStore::seeded(seed)),
            written: BTreeMap::new(),
            first: None,
            done: Vec::new(),
            terms: BTreeMap::new(),
            late: VecDeque::new(),
            rng: Rng::with_seed(seed ^ 0xd15c),
            faults_per_mille: 0,
            slow_once_in: 0,
            faults: 0,
            grants: Vec::new(),
            marks: Vec::new(),
            standby: None,
            members: BTreeMap::new(),
            afterwards: Vec::new(),
            beaten_at: Beaten::default(),
            now: Duration::ZERO,
            beats: BTreeMap::new(),
            still_then: None,
            stopped: Vec::new(),
            renewed: BTreeMap::new(),
        };
        Arc::new(Self { seed, broken, trace, inner: Mutex::new(inner) })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of a session's records on the disk.
    pub(crate) fn durable(&self, session: &SessionId) -> u64 {
        self.lock().written.get(session).map_or(0, Vec::len) as u64
    }

    /// Returns the newest record that a server wrote to the clients' session.
    pub(crate) fn last_of(&self, node: usize) -> u64 {
        let inner = self.lock();
        let log = inner.first.as_ref().and_then(|first| inner.written.get(first));
        let place = log.and_then(|log| log.iter().rposition(|record| record.node == node));
        place.map_or(0, |at| at as u64 + 1)
    }

    /// Makes this many of a thousand accesses fail, and one in this many slow.
    pub(crate) fn trouble(&self, faults_per_mille: u32, slow_once_in: u8) {
        let mut inner = self.lock();
        inner.faults_per_mille = faults_per_mille;
        inner.slow_once_in = slow_once_in;
        inner.still_then = None;
    }

    /// Stops all faults.
    pub(crate) fn heal(&self) {
        self.trouble(0, 0);
    }

    /// Loses the newest appends, like a disk that was not told to sync: restores the earlier state.
    pub(crate) async fn lose(&self, appends: usize) {
        let mut done = self.lock().done.clone();
        for _ in 0..appends {
            let Some(last) = done.iter().rposition(|done| matches!(done, Done::Append(..))) else { break };
            done.truncate(last);
        }
        let store = Arc::new(MemoryStore::seeded(self.seed));
        {
            let mut inner = self.lock();
            inner.store = store.clone();
            inner.written.clear();
            inner.done.clear();
        }
        for done in done {
            match done {
                Done::Create(session, now) => drop(self.create(&store, &session, now).await),
                Done::Open(session) => drop(self.open(&store, 0, &session).await),
                Done::Append(lease, first_seq, append, node) => {
                    drop(self.append(node, &lease, first_seq, *append).await);
                }
            }
        }
        self.trace.line("disk: the newest appends are lost");
    }

    /// Lets the standby of a cluster's database receive nothing more.
    pub(crate) fn hold_back(&self) {
        let mut inner = self.lock();
        let lengths = inner.written.iter().map(|(session, log)| (session.clone(), log.len())).collect();
        let (marks, terms) = (inner.marks.len(), inner.terms.clone());
        inner.standby = Some(Behind { store: inner.store.standby(), lengths, marks, terms });
        self.trace.line("disk: the standby gets nothing more");
    }

    /// Lets the standby take over; `given` is the number of frames that clients have received.
    pub(crate) fn fail_over(&self, given: usize) -> Option<Failover> {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let Behind { store, lengths, marks, terms } = inner.standby.take()?;
        inner.store.fail_over(store, self.broken != Broken::SilentFailover);
        let before = inner.written.clone();
        let length = |session| lengths.get(session).copied().unwrap_or(0);
        let lost: BTreeMap<_, _> =
            inner.written.iter_mut().map(|(session, log)| (session.clone(), log.split_off(length(session)))).collect();
        inner.written.retain(|session, _| lengths.contains_key(session));
        inner.terms = terms;
        // Writes on their way were on their way to the other copy.
        inner.afterwards.clear();
        let marks = inner.marks.split_off(marks).into_iter().collect();
        let sessions = lost.iter().map(|(session, log)| format!("{} of {session}", log.len()));
        self.trace
            .line(format_args!("disk: the standby takes over without {}", sessions.collect::<Vec<_>>().join(", ")));
        Some(Failover { given, before, lost, marks })
    }

    pub(crate) fn store(&self) -> Arc<MemoryStore> {
        self.lock().store.clone()
    }

    async fn create(&self, store: &MemoryStore, session: &SessionId, now: Timestamp) -> Result<Lease, Error> {
        {
            let mut inner = self.lock();
            inner.first.get_or_insert_with(|| session.clone());
            inner.done.push(Done::Create(session.clone(), now));
        }
        store.create(session, "", now).await
    }

    async fn open(&self, store: &MemoryStore, node: usize, session: &SessionId) -> Result<(Lease, SessionHead), Error> {
        self.lock().done.push(Done::Open(session.clone()));
        let before = store.head(session).await?;
        let (lease, head) = store.open(session).await?;
        let mut inner = self.lock();
        inner.terms.insert(session.clone(), lease.term);
        let lease = self.broken.granted(lease);
        let others = inner.members.iter().filter(|(number, _)| **number != node);
        let mut holders = others.filter(|(_, member)| member.is(before.holder));
        let holder = holders.next().filter(|(number, _)| inner.trusts(**number));
        let from_trusting = holder.map(|(number, member)| (*number, member.stands_still()));
        let (session, epoch) = (session.clone(), lease.epoch.clone());
        inner.grants.push(Grant { session, epoch, term: lease.term, node, from_trusting });
        Ok((lease, head))
    }

    /// Returns the node of a cluster that has the clients' session, if it lives.
    pub(crate) fn holder(&self) -> Option<usize> {
        let inner = self.lock();
        let holder = inner.store.head(inner.first.as_ref()?).now_or_never()?.ok()?.holder;
        inner.members.iter().find(|(_, member)| member.is(holder)).map(|(number, _)| *number)
    }

    /// Returns true if this node of a cluster trusts that it still holds its sessions, but does not hold the clients'
    /// session.
    pub(crate) fn is_stale(&self, node: usize) -> bool {
        let inner = self.lock();
        let (Some(member), Some(first)) = (inner.members.get(&node), &inner.first) else { return false };
        let head = inner.store.head(first).now_or_never();
        let holder = head.and_then(Result::ok).and_then(|head| head.holder);
        inner.trusts(node) && !member.is(holder)
    }

    /// Writes, and updates the mirror.
    pub(crate) async fn append(&self, node: usize, lease: &Lease, first_seq: u64, append: Append) -> Result<(), Error> {
        let newest = self.lock().terms.get(&lease.session).copied().unwrap_or(lease.term);
        let claimed = self.broken.claimed(lease, newest);
        self.store().append(&claimed, first_seq, append.clone()).await?;
        let mut guard = self.lock();
        let inner = &mut *guard;
        let log = inner.written.entry(lease.session.clone()).or_default();
        let (term, newest_term) = (lease.term, newest);
        let written = |record: &NewRecord| {
            let (body, epoch) = (record.body.clone(), lease.epoch.clone());
            Written { body, term, newest_term, node, epoch }
        };
        log.extend(append.records.iter().map(written));
        inner.marks.extend(append.marks.iter().map(|mark| mark.command_id.clone()));
        let kinds: Vec<&str> = append.records.iter().map(|record| kind(&record.body)).collect();
        let of =
            if inner.first.as_ref() == Some(&lease.session) { String::new() } else { format!(" of {}", lease.session) };
        self.trace.line(format_args!("disk: node {node} term {} at {first_seq}{of}: {}", lease.term, kinds.join(" ")));
        inner.done.push(Done::Append(lease.clone(), first_seq, Box::new(append), node));
        Ok(())
    }
}

/// Returns an event's type, for the trace.
fn kind(body: &str) -> &str {
    body.split('"').nth(3).unwrap_or("?")
}

/// One server's access to the disk.
pub(crate) struct Road {
    pub(crate) disk: Arc<Disk>,
    pub(crate) node: usize,
    pub(crate) alive: Arc<AtomicBool>,
    /// A node's connection to the database of its cluster.
    pub(crate) link: Option<Link>,
}

impl Road {
    fn store(&self) -> Arc<MemoryStore> {
        self.link.as_ref().map_or_else(|| self.disk.store(), |link| link.store.clone())
    }

    /// Never returns on a dead server, which gets no response.
    async fn answered(&self) {
        if !self.alive.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    /// Delays an access at times, on the way there or back. Waits for a connection that is cut.
    async fn travel(&self) -> Result<(), Error> {
        let millis = {
            let mut inner = self.disk.lock();
            let once_in = inner.slow_once_in;
            if once_in > 0 && inner.rng.u8(..once_in) == 0 { inner.rng.u64(1..40) } else { 0 }
        };
        if millis > 0 {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        self.answered().await;
        match &self.link {
            Some(link) => link.passes().await,
            None => Ok(()),
        }
    }

    /// Makes the node stand still before it continues, if that was requested.
    async fn stand_still(&self) {
        let still = self.disk.lock().still_then.take();
        if let Some(still) = still {
            self.disk.lock().stopped.push((self.node, still));
            // It is stopped once it has run for a quantum.
            tokio::time::sleep(Duration::from_millis(QUANTUM_MAX * 2)).await;
        }
    }

    fn fate(&self, what: &str) -> Fate {
        let mut inner = self.disk.lock();
        let per_mille = inner.faults_per_mille;
        if inner.rng.u32(..1_000) >= per_mille {
            return Fate::Good;
        }
        inner.faults += 1;
        let fate = if inner.rng.bool() { Fate::FailsBefore } else { Fate::FailsAfter };
        drop(inner);
        let when = if fate == Fate::FailsBefore { "before" } else { "after" };
        self.disk.trace.line(format_args!("disk: {what} of node {} fails {when} it is done", self.node));
        fate
    }

    /// Executes an operation on the disk, with delays.
    pub(crate) async fn asked<T>(&self, what: &str, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.travel().await?;
        let fate = self.fate(what);
        if fate == Fate::FailsBefore {
            return Err(failed());
        }
        let done = work.await;
        self.travel().await?;
        if fate == Fate::FailsAfter { Err(failed()) } else { done }
    }
}

pub(crate) fn failed() -> Error {
    Error::Unknown("a fault of the run".to_owned())
}

impl SessionStore for Road {
    fn create<'a>(
        &'a self,
        session: &'a SessionId,
        _owner: &'a str,
        now: Timestamp,
    ) -> StoreFuture<'a, Result<Lease, Error>> {
        Box::pin(async move {
            self.answered().await;
            let store = self.store();
            let work = self.disk.create(&store, session, now);
            if self.link.is_some() { self.asked("create", work).await } else { work.await }
        })
    }

    fn create_once<'a>(
        &'a self,
        session: &'a SessionId,
        owner: &'a str,
        _command: Option<&'a CommandId>,
        now: Timestamp,
    ) -> StoreFuture<'a, Result<Created, Error>> {
        // No client of the simulated world creates a session by a command.
        Box::pin(async move { self.create(session, owner, now).await.map(Created::Now) })
    }

    fn created_by<'a>(
        &'a self,
        _owner: &'a str,
        _command: &'a CommandId,
    ) -> StoreFuture<'a, Result<Option<SessionId>, Error>> {
        Box::pin(async { Ok(None) })
    }

    fn open<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(Lease, SessionHead), Error>> {
        Box::pin(async move {
            let store = self.store();
            let (lease, head) = self.asked("open", self.disk.open(&store, self.node, session)).await?;
            self.disk
                .trace
                .line(format_args!("disk: node {} opens at {} as term {}", self.node, head.last_seq, lease.term));
            Ok((lease, self.disk.broken.opened(head)))
        })
    }

    fn append<'a>(&'a self, lease: &'a Lease, first_seq: u64, append: Append) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            if let Some(answer) = self.disk.broken.append(self, lease, first_seq, &append).await {
                return answer;
            }
            let sent = self.link.as_ref().map(|_| Sent::new(self, lease, first_seq, &append));
            let work = async {
                sent.into_iter().for_each(Sent::arrived);
                self.disk.append(self.node, lease, first_seq, append).await?;
                self.stand_still().await;
                Ok(())
            };
            self.asked("append", work).await
        })
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.answered().await;
            let store = self.store();
            let work = store.release(lease);
            if self.link.is_some() { self.asked("release", work).await } else { work.await }
        })
    }

    fn read_page<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        limit: u32,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>> {
        Box::pin(async move { self.asked("read", self.store().read_page(session, after_seq, limit, bytes_max)).await })
    }

    fn entries_page<'a>(
        &'a self,
        session: &'a SessionId,
        query: EntryQuery,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<EntriesPage, Error>> {
        Box::pin(async move { self.asked("entries", self.store().entries_page(session, query, bytes_max)).await })
    }

    fn subtree<'a>(
        &'a self,
        session: &'a SessionId,
        query: SubtreeQuery,
    ) -> StoreFuture<'a, Result<Vec<StoredNode>, Error>> {
        Box::pin(async move { self.asked("subtree", self.store().subtree(session, query)).await })
    }

    fn entry_seq<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Result<Option<u64>, Error>> {
        Box::pin(async move { self.asked("entry_seq", self.store().entry_seq(session, entry)).await })
    }

    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        command_id: &'a str,
    ) -> StoreFuture<'a, Result<Option<CommandMark>, Error>> {
        Box::pin(async move { self.asked("command", self.store().command(session, command_id)).await })
    }

    fn head<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<SessionHead, Error>> {
        Box::pin(async move { self.asked("head", self.store().head(session)).await })
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<ListPage, Error>> {
        Box::pin(async move { self.asked("list", self.store().list(query)).await })
    }

    fn add_usage(&self, rows: Vec<UsageRow>) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move { self.asked("add_usage", self.store().add_usage(rows)).await })
    }

    fn usage_sums(&self, query: UsageQuery) -> UsageFuture<'_> {
        Box::pin(async move { self.asked("usage_sums", self.store().usage_sums(query)).await })
    }

    fn put_minute(&self, row: MinuteRow) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move { self.asked("put_minute", self.store().put_minute(row)).await })
    }

    fn minutes(&self, query: MinuteQuery) -> StoreFuture<'_, Result<Vec<MinuteRow>, Error>> {
        Box::pin(async move { self.asked("minutes", self.store().minutes(query)).await })
    }

    fn remove_usage(&self, before: Timestamp) -> StoreFuture<'_, Result<u64, Error>> {
        Box::pin(async move { self.asked("remove_usage", self.store().remove_usage(before)).await })
    }

    fn forget_owner<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Result<u64, Error>> {
        Box::pin(async move { self.asked("forget_owner", self.store().forget_owner(owner)).await })
    }

    fn traces<'a>(&'a self, owner: &'a str, sessions: &'a [SessionId]) -> StoreFuture<'a, Result<Traces, Error>> {
        Box::pin(async move { self.asked("traces", self.store().traces(owner, sessions)).await })
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(async move { self.asked("delete", self.store().delete(session)).await })
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        self.link.as_ref().map(|_| self as &dyn Cluster)
    }

    fn close(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move { Ok(()) })
    }
}
