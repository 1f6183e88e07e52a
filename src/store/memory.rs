//! The in-memory store (`DATABASE_URL=memory:`, and tests). It fulfils the whole contract, but nothing outlives the
//! process.

mod nodes;
mod session;
mod spending;
mod standby;

pub use self::standby::Standby;

use self::session::{Session, SessionLinks, stored};
use super::{
    Append, Cluster, CommandMark, Created, DELETED_OWNER, DELETED_SESSION, EMPTY_SEQ_MAX, EntryQuery, Error, Head,
    Lease, ListPage, ListQuery, MINUTES_KEPT, MinuteQuery, MinuteRow, NewTicket, NodeId, NodeRow, Secret, SessionHead,
    SessionStore, StoreFuture, StoredNode, StoredRecord, SubtreeQuery, Traces, UNFINISHED, USAGE_REMOVED_MAX, Usage,
    UsageFuture, UsageQuery,
    cluster::Membership,
    page::{self, Cursor, EntriesPage},
    walk,
};
use reseed_core::usage_row::UsageRow;
use reseed_protocol::{CommandId, EntryId, SessionId, Timestamp};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Deletions that are remembered for watchers of a list.
const DELETED_MAX: usize = 1_000;

/// Sessions in memory. Only [`SessionStore::delete`] removes anything: who uses it has to bound it.
#[derive(Debug)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    /// True once there are several handles, each a node of a cluster.
    is_shared: Arc<AtomicBool>,
    member: Membership,
    closed: AtomicBool,
}

#[derive(Debug, Clone)]
struct State {
    sessions: BTreeMap<SessionId, Session>,
    /// The sessions that commands have created, by owner and command.
    created: HashMap<(String, CommandId), SessionId>,
    /// The sessions and bytes that each owner has stored.
    usage: HashMap<String, Usage>,
    /// The ring of minutes, by minute and process.
    minutes: BTreeMap<(i64, String), String>,
    /// Session numbers assigned so far.
    numbers: i64,
    epochs: fastrand::Rng,
    /// Counts how often a standby has taken over.
    timeline: u64,
    nodes: BTreeMap<NodeId, NodeRow>,
    /// Node numbers assigned so far.
    node_numbers: i64,
    /// When sessions were deleted, and their owners: the newest.
    deleted: VecDeque<(std::time::Instant, SessionId, String)>,
    /// Unused tickets, and when they were made.
    tickets: Vec<(std::time::Instant, NewTicket)>,
    secrets: BTreeMap<String, Secret>,
    /// The operator's account, by the ids of its rows.
    spent: BTreeMap<String, UsageRow>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// Returns an empty store. Its logs get random epochs, so that a client that resumes against a new process notices
    /// the change.
    #[must_use]
    pub fn new() -> Self {
        Self::with_epochs(fastrand::Rng::new())
    }

    /// Returns an empty store whose epochs derive from `seed`, for tests that run twice and compare.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self::with_epochs(fastrand::Rng::with_seed(seed))
    }

    fn with_epochs(epochs: fastrand::Rng) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                sessions: BTreeMap::new(),
                created: HashMap::new(),
                usage: HashMap::new(),
                minutes: BTreeMap::new(),
                numbers: 0,
                epochs,
                timeline: 0,
                nodes: BTreeMap::new(),
                node_numbers: 0,
                deleted: VecDeque::new(),
                tickets: Vec::new(),
                secrets: BTreeMap::new(),
                spent: BTreeMap::new(),
            })),
            is_shared: Arc::default(),
            member: Membership::default(),
            closed: AtomicBool::new(false),
        }
    }

    /// Returns another handle on the same sessions. From then on, each handle can be a node: see [`Cluster`].
    #[must_use]
    pub fn another(&self) -> Self {
        self.is_shared.store(true, Ordering::Relaxed);
        let (state, is_shared) = (self.state.clone(), self.is_shared.clone());
        Self { state, is_shared, member: Membership::default(), closed: AtomicBool::new(false) }
    }

    /// Returns true if the store has a session.
    #[must_use]
    pub fn contains(&self, session: &SessionId) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).sessions.contains_key(session)
    }

    /// Returns what an owner has stored.
    #[must_use]
    pub fn usage_of(&self, owner: &str) -> Usage {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.usage.get(owner).copied().unwrap_or_default()
    }

    /// Returns what all owners together have stored.
    #[must_use]
    pub fn total_usage(&self) -> Usage {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.usage.values().fold(Usage::default(), |sum, usage| Usage {
            sessions: sum.sessions + usage.sessions,
            empty: sum.empty + usage.empty,
            bytes: sum.bytes + usage.bytes,
        })
    }

    /// Returns the sessions that were last changed before a time, without those still being created.
    #[must_use]
    pub fn unchanged_since(&self, before: Timestamp) -> Vec<SessionId> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_left = |at: Timestamp| at < before && at != UNFINISHED;
        let unchanged = state.sessions.iter().filter(|(_, session)| is_left(session.head.updated_at));
        unchanged.map(|(id, _)| id.clone()).collect()
    }

    /// Returns the sessions of an owner.
    #[must_use]
    pub fn of_owner(&self, owner: &str) -> Vec<SessionId> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let own = state.sessions.iter().filter(|(_, session)| session.owner == owner);
        own.map(|(id, _)| id.clone()).collect()
    }

    /// Runs `work` when the future is first polled, as a store with a disk would. Nothing panics while the lock is
    /// held, so the data is consistent even behind a poisoned lock.
    fn with<'a, T: 'a>(
        &'a self,
        work: impl FnOnce(&mut State) -> Result<T, Error> + Send + 'a,
    ) -> StoreFuture<'a, Result<T, Error>> {
        Box::pin(async move {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if self.closed.load(Ordering::Relaxed) {
                return Err(Error::Unknown("the store is closed".into()));
            }
            work(&mut state)
        })
    }
}

impl State {
    fn new_epoch(&mut self) -> String {
        format!("{:016x}", self.epochs.u64(..))
    }

    fn session(&self, id: &SessionId) -> Result<&Session, Error> {
        self.sessions.get(id).ok_or_else(|| Error::NotFound(id.clone()))
    }

    fn session_mut(&mut self, id: &SessionId) -> Result<&mut Session, Error> {
        self.sessions.get_mut(id).ok_or_else(|| Error::NotFound(id.clone()))
    }
}

impl State {
    fn add_usage(&mut self, rows: Vec<UsageRow>) {
        self.spent.extend(rows.into_iter().map(|row| (row.id.clone(), row)));
    }

    /// Replaces a session's share of its owner's usage.
    fn count(&mut self, owner: &str, before: Usage, after: Usage) {
        let sum = self.usage.entry(owner.to_owned()).or_default();
        *sum = Usage {
            sessions: sum.sessions + after.sessions - before.sessions,
            empty: sum.empty + after.empty - before.empty,
            bytes: sum.bytes + after.bytes - before.bytes,
        };
        if sum.sessions == 0 {
            self.usage.remove(owner);
        }
    }

    fn create(
        &mut self,
        session: &SessionId,
        owner: &str,
        holder: Option<NodeId>,
        now: Timestamp,
    ) -> Result<Lease, Error> {
        if self.sessions.contains_key(session) {
            return Err(Error::Exists(session.clone()));
        }
        self.expect_member(holder)?;
        self.numbers += 1;
        let made = Session {
            number: self.numbers,
            owner: owner.to_owned(),
            epoch: self.new_epoch(),
            timeline: self.timeline,
            term: 1,
            holder,
            records: Vec::new(),
            seq_of_entry: HashMap::new(),
            children: HashMap::new(),
            marks: HashMap::new(),
            head: Head { created_at: now, updated_at: now, ..Head::default() },
            bytes: 0,
        };
        let lease = made.lease(session);
        self.count(owner, Usage::default(), made.usage());
        self.sessions.insert(session.clone(), made);
        Ok(lease)
    }
}

impl SessionStore for MemoryStore {
    fn create_once<'a>(
        &'a self,
        session: &'a SessionId,
        owner: &'a str,
        command: Option<&'a CommandId>,
        now: Timestamp,
    ) -> StoreFuture<'a, Result<Created, Error>> {
        self.with(move |state| {
            let key = command.map(|command| (owner.to_owned(), command.clone()));
            let earlier = key.as_ref().and_then(|key| state.created.get(key));
            if let Some(earlier) = earlier.filter(|earlier| state.sessions.contains_key(*earlier)) {
                return Ok(Created::Before(earlier.clone()));
            }
            let lease = state.create(session, owner, self.member.me(), now)?;
            state.created.extend(key.map(|key| (key, session.clone())));
            Ok(Created::Now(lease))
        })
    }

    fn created_by<'a>(
        &'a self,
        owner: &'a str,
        command: &'a CommandId,
    ) -> StoreFuture<'a, Result<Option<SessionId>, Error>> {
        self.with(move |state| {
            let earlier = state.created.get(&(owner.to_owned(), command.clone()));
            Ok(earlier.filter(|earlier| state.sessions.contains_key(*earlier)).cloned())
        })
    }

    fn open<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(Lease, SessionHead), Error>> {
        self.with(move |state| {
            let me = self.member.me();
            let holder = state.session(session)?.holder;
            let silent = self.member.silent(state.timeline);
            if let Some(node) = holder.filter(|node| Some(*node) != me && state.lives(*node, &silent)) {
                return Err(Error::Held { session: session.clone(), node });
            }
            state.expect_member(me)?;
            let timeline = state.timeline;
            let fresh = (state.session(session)?.timeline != timeline).then(|| state.new_epoch());
            let found = state.session_mut(session)?;
            if let Some(epoch) = fresh {
                (found.timeline, found.epoch) = (timeline, epoch);
            }
            found.term += 1;
            found.holder = me;
            Ok((found.lease(session), found.session_head(session)))
        })
    }

    fn append<'a>(&'a self, lease: &'a Lease, first_seq: u64, append: Append) -> StoreFuture<'a, Result<(), Error>> {
        self.with(move |state| {
            let session = state.session_mut(&lease.session)?;
            let before = session.usage();
            let usage = session.append(lease, first_seq, append)?;
            let (owner, after) = (session.owner.clone(), session.usage());
            state.count(&owner, before, after);
            state.add_usage(usage);
            Ok(())
        })
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Result<(), Error>> {
        self.with(move |state| {
            if let Ok(session) = state.session_mut(&lease.session)
                && (session.term, &session.epoch, session.holder) == (lease.term, &lease.epoch, self.member.me())
            {
                session.holder = None;
            }
            Ok(())
        })
    }

    fn read_page<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        limit: u32,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>> {
        self.with(move |state| {
            let mut bytes = 0;
            let has_room = |record: &StoredRecord| {
                let has_room = bytes == 0 || bytes < bytes_max;
                bytes += record.body.len();
                has_room
            };
            let records = state.session(session)?.between(after_seq, u64::MAX).take(limit as usize);
            Ok(records.map(stored).take_while(has_room).collect())
        })
    }

    fn entries_page<'a>(
        &'a self,
        session: &'a SessionId,
        query: EntryQuery,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<EntriesPage, Error>> {
        self.with(move |state| state.session(session)?.entries(session, &query, bytes_max))
    }

    fn subtree<'a>(
        &'a self,
        session: &'a SessionId,
        query: SubtreeQuery,
    ) -> StoreFuture<'a, Result<Vec<StoredNode>, Error>> {
        self.with(move |state| {
            let links = SessionLinks { id: session, session: state.session(session)? };
            walk::immediate(walk::subtree(&links, &query))
        })
    }

    fn entry_seq<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Result<Option<u64>, Error>> {
        self.with(move |state| Ok(state.session(session)?.seq_of_entry.get(entry).copied()))
    }

    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        command_id: &'a str,
    ) -> StoreFuture<'a, Result<Option<CommandMark>, Error>> {
        self.with(move |state| Ok(state.sessions.get(session).and_then(|found| found.marks.get(command_id)).cloned()))
    }

    fn head<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<SessionHead, Error>> {
        self.with(move |state| Ok(state.session(session)?.session_head(session)))
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<ListPage, Error>> {
        self.with(move |state| {
            let start = page::start(&query)?;
            let search = query.search.as_deref().map(page::fold).unwrap_or_default();
            let mut found: Vec<(Cursor, &SessionId, &Session)> = state
                .sessions
                .iter()
                .filter(|(_, session)| (session.head.updated_at == UNFINISHED) == query.unfinished)
                .filter(|(_, session)| query.owner.as_ref().is_none_or(|owner| *owner == session.owner))
                .filter(|(_, session)| page::fold(&session.head.name).contains(&search))
                .map(|(id, session)| {
                    (Cursor { updated_at: session.head.updated_at.0, number: session.number }, id, session)
                })
                .filter(|(place, _, _)| *place < start)
                .collect();
            found.sort_by_key(|(place, _, _)| std::cmp::Reverse(*place));
            let limit = query.limit as usize;
            let next_cursor = found.get(limit.wrapping_sub(1)).filter(|_| found.len() > limit).map(|l| l.0.to_string());
            let items = found.into_iter().take(limit).map(|(_, id, session)| {
                let mut head = session.session_head(id);
                head.head.state = None;
                head
            });
            Ok(ListPage { items: items.collect(), next_cursor, damaged: Vec::new() })
        })
    }

    fn usage<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Result<Option<Usage>, Error>> {
        self.with(move |state| Ok(Some(state.usage.get(owner).copied().unwrap_or_default())))
    }

    fn add_usage(&self, rows: Vec<UsageRow>) -> StoreFuture<'_, Result<(), Error>> {
        self.with(move |state| {
            state.add_usage(rows);
            Ok(())
        })
    }

    fn usage_sums(&self, query: UsageQuery) -> UsageFuture<'_> {
        self.with(move |state| spending::sums(state.spent.values(), &query))
    }

    fn forget_owner<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Result<u64, Error>> {
        self.with(move |state| {
            let own = state.spent.values_mut().filter(|row| row.owner == owner).take(USAGE_REMOVED_MAX as usize);
            let named = own.map(|row| {
                DELETED_OWNER.clone_into(&mut row.owner);
                row.session = DELETED_SESSION.parse().expect("a word is an id");
            });
            let count = named.count() as u64;
            state.deleted.retain(|(_, _, of)| count > 0 || of != owner);
            Ok(count)
        })
    }

    fn traces<'a>(&'a self, owner: &'a str, sessions: &'a [SessionId]) -> StoreFuture<'a, Result<Traces, Error>> {
        self.with(move |state| {
            let mut traces = Traces::default();
            let is_own = |id: &SessionId, of: &String| of == owner || sessions.contains(id);
            let stored = state.sessions.iter().filter(|(id, session)| is_own(id, &session.owner)).count();
            traces.add("sessions", stored as u64);
            let rows = state.spent.values().filter(|row| is_own(&row.session, &row.owner)).count();
            traces.add("account", rows as u64);
            Ok(traces)
        })
    }

    fn remove_usage(&self, before: Timestamp) -> StoreFuture<'_, Result<u64, Error>> {
        self.with(move |state| {
            let old = state.spent.values().filter(|row| row.at < before).map(|row| row.id.clone());
            let old: Vec<String> = old.take(USAGE_REMOVED_MAX as usize).collect();
            old.iter().for_each(|id| drop(state.spent.remove(id)));
            Ok(old.len() as u64)
        })
    }

    fn put_minute(&self, row: MinuteRow) -> StoreFuture<'_, Result<(), Error>> {
        self.with(move |state| {
            state.minutes.retain(|(minute, _), _| *minute >= row.minute - MINUTES_KEPT);
            state.minutes.insert((row.minute, row.process), row.body);
            Ok(())
        })
    }

    fn minutes(&self, query: MinuteQuery) -> StoreFuture<'_, Result<Vec<MinuteRow>, Error>> {
        self.with(move |state| {
            let MinuteQuery { from, to, after, limit } = query;
            let rows = state.minutes.iter().filter(|(key, _)| (from..to).contains(&key.0) && **key > after);
            let rows = rows.take(limit as usize).map(|((minute, process), body)| MinuteRow {
                minute: *minute,
                process: process.clone(),
                body: body.clone(),
            });
            Ok(rows.collect())
        })
    }

    fn empty_sessions(&self, before: Timestamp, limit: u32) -> StoreFuture<'_, Result<Vec<SessionId>, Error>> {
        self.with(move |state| {
            let mut found: Vec<_> = state
                .sessions
                .iter()
                .filter(|(_, session)| session.last_seq() <= EMPTY_SEQ_MAX && session.head.updated_at != UNFINISHED)
                .map(|(id, session)| (session.head.created_at, id))
                .filter(|(created_at, _)| *created_at < before)
                .collect();
            found.sort();
            Ok(found.into_iter().take(limit as usize).map(|(_, id)| id.clone()).collect())
        })
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(), Error>> {
        self.with(move |state| {
            let gone = state.sessions.remove(session).ok_or_else(|| Error::NotFound(session.clone()))?;
            state.count(&gone.owner, gone.usage(), Usage::default());
            state.created.retain(|_, made| made != session);
            state.deleted.push_back((std::time::Instant::now(), session.clone(), gone.owner));
            if state.deleted.len() > DELETED_MAX {
                state.deleted.pop_front();
            }
            Ok(())
        })
    }

    fn secret<'a>(&'a self, name: &'a str, offered: Secret) -> StoreFuture<'a, Result<Secret, Error>> {
        self.with(move |state| Ok(*state.secrets.entry(name.to_owned()).or_insert(offered)))
    }

    fn close(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.closed.store(true, Ordering::Relaxed);
            if !self.is_shared.load(Ordering::Relaxed) {
                self.state.lock().unwrap_or_else(PoisonError::into_inner).sessions.clear();
            }
            Ok(())
        })
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        self.is_shared.load(Ordering::Relaxed).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryStore;
    use crate::{
        SessionStore,
        conformance::{self, Subject, contract_suite, id},
    };

    async fn build() -> Subject {
        Subject::new(MemoryStore::new(), ())
    }

    contract_suite!(build());

    mod nodes {
        use super::MemoryStore;
        use crate::conformance::cluster::{Nodes, cluster_suite};

        async fn build() -> Nodes {
            let a = MemoryStore::new();
            let b = a.another();
            Nodes::new(a, b, ())
        }

        cluster_suite!(build());
    }

    #[tokio::test]
    async fn epochs_follow_from_the_seed() {
        let mut epochs = Vec::new();
        for seed in [1, 1, 2] {
            let store = MemoryStore::seeded(seed);
            epochs.push(store.create(&id("s"), "", conformance::NOW).await.unwrap().epoch);
        }
        assert_eq!(epochs[0], epochs[1]);
        assert_ne!(epochs[0], epochs[2]);
    }
}
