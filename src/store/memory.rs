//! The in-memory store (`DATABASE_URL=memory:`, tests): the whole contract, except that nothing outlives the process.

use super::{
    Append, CommandMark, Created, EntryQuery, Error, Head, Lease, ListPage, ListQuery, NewRecord, SessionHead,
    SessionStore, StoreFuture, StoredNode, StoredRecord, SubtreeQuery, UNFINISHED,
    page::{self, Cursor, EntriesPage, Filling},
    walk::{self, Found, Links},
};
use reseed_protocol::{CommandId, EntryId, SessionId, Timestamp};
use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::{Mutex, PoisonError},
};

/// Sessions in memory. Its size is bounded only by what is stored: nothing is dropped except by
/// [`SessionStore::delete`].
#[derive(Debug)]
pub struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sessions: BTreeMap<SessionId, Session>,
    /// The sessions that commands have created, by owner and command.
    created: HashMap<(String, CommandId), SessionId>,
    /// Session numbers assigned so far.
    numbers: i64,
    epochs: fastrand::Rng,
    closed: bool,
}

#[derive(Debug)]
struct Session {
    number: i64,
    owner: String,
    epoch: String,
    term: u64,
    /// The record with `seq` n is at index n - 1.
    records: Vec<NewRecord>,
    seq_of_entry: HashMap<EntryId, u64>,
    /// For each parent named, present or not, the `seq` of its children in order.
    children: HashMap<EntryId, Vec<u64>>,
    marks: HashMap<String, CommandMark>,
    head: Head,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// Returns an empty store. Its logs get random epochs, so that a client that resumes against a new process notices.
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
            state: Mutex::new(State {
                sessions: BTreeMap::new(),
                created: HashMap::new(),
                numbers: 0,
                epochs,
                closed: false,
            }),
        }
    }

    /// Runs `work` when the future is first polled, as a store with a disk would. Nothing panics while the lock is
    /// held, so a poisoned lock still guards whole sessions.
    fn with<'a, T: 'a>(
        &'a self,
        work: impl FnOnce(&mut State) -> Result<T, Error> + Send + 'a,
    ) -> StoreFuture<'a, Result<T, Error>> {
        Box::pin(async move {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.closed {
                return Err(Error::Unknown("the store is closed".into()));
            }
            work(&mut state)
        })
    }
}

impl State {
    fn session(&self, id: &SessionId) -> Result<&Session, Error> {
        self.sessions.get(id).ok_or_else(|| Error::NotFound(id.clone()))
    }

    fn session_mut(&mut self, id: &SessionId) -> Result<&mut Session, Error> {
        self.sessions.get_mut(id).ok_or_else(|| Error::NotFound(id.clone()))
    }
}

impl Session {
    fn last_seq(&self) -> u64 {
        self.records.len() as u64
    }

    fn lease(&self, id: &SessionId) -> Lease {
        Lease { session: id.clone(), term: self.term, next_seq: self.last_seq() + 1, epoch: self.epoch.clone() }
    }

    fn session_head(&self, id: &SessionId) -> SessionHead {
        SessionHead {
            session: id.clone(),
            owner: self.owner.clone(),
            epoch: self.epoch.clone(),
            last_seq: self.last_seq(),
            head: self.head.clone(),
        }
    }

    fn append(&mut self, lease: &Lease, first_seq: u64, append: Append) -> Result<(), Error> {
        lease.check(first_seq, &self.epoch, self.term, self.last_seq())?;
        append.check_distinct(lease)?;
        if let Some(mark) = append.marks.iter().find(|mark| self.marks.contains_key(&mark.command_id)) {
            let (session, command_id) = (lease.session.clone(), mark.command_id.clone());
            return Err(Error::DuplicateCommand { session, command_id });
        }
        let mut entries = append.records.iter().filter_map(|record| record.entry.as_ref());
        if let Some(entry) = entries.find(|entry| self.seq_of_entry.contains_key(&entry.entry_id)) {
            return Err(Error::DuplicateEntry { session: lease.session.clone(), entry: entry.entry_id.clone() });
        }
        for record in append.records {
            self.records.push(record);
            let seq = self.records.len() as u64;
            if let Some(entry) = self.records.last().and_then(|record| record.entry.as_ref()) {
                self.seq_of_entry.insert(entry.entry_id.clone(), seq);
                if let Some(parent) = &entry.parent_id {
                    self.children.entry(parent.clone()).or_default().push(seq);
                }
            }
        }
        self.marks.extend(append.marks.into_iter().map(|mark| (mark.command_id.clone(), mark)));
        let stored = self.head.state.take();
        self.head = append.head;
        self.head.state = self.head.state.take().or(stored);
        Ok(())
    }

    /// Returns records with `after_seq < seq < before_seq`, oldest first.
    fn between(&self, after_seq: u64, before_seq: u64) -> impl DoubleEndedIterator<Item = (u64, &NewRecord)> {
        let start = usize::try_from(after_seq).unwrap_or(usize::MAX);
        let end = usize::try_from(before_seq.saturating_sub(1)).unwrap_or(usize::MAX).min(self.records.len());
        let records = self.records.get(start..end).unwrap_or_default();
        records.iter().enumerate().map(move |(i, record)| ((start + i) as u64 + 1, record))
    }

    /// Returns the records from an entry back to its root.
    fn path<'a>(&'a self, from: &'a EntryId) -> impl Iterator<Item = (u64, &'a NewRecord)> {
        let mut next = Some(from);
        std::iter::from_fn(move || {
            let seq = *self.seq_of_entry.get(next?)?;
            let record = self.records.get(usize::try_from(seq).ok()?.checked_sub(1)?)?;
            next = record.entry.as_ref().and_then(|entry| entry.parent_id.as_ref());
            Some((seq, record))
        })
    }

    fn entries(&self, query: &EntryQuery, bytes_max: usize) -> EntriesPage {
        match query {
            EntryQuery::Path { from, limit } => filled(self.path(from).take(*limit as usize), bytes_max),
            EntryQuery::PathAfter { after, to, steps, limit } => {
                let Ok(page) = walk::path_after(self, (after, to), *steps, *limit, bytes_max);
                page
            }
            EntryQuery::Log { before_seq, after_seq, limit } => {
                let entries = self
                    .between(after_seq.unwrap_or(0), before_seq.unwrap_or(u64::MAX))
                    .filter(|(_, record)| record.entry.is_some());
                if after_seq.is_some() {
                    return filled(entries.take(*limit as usize), bytes_max);
                }
                let mut newest = filled(entries.rev().take(*limit as usize), bytes_max);
                newest.records.reverse();
                newest
            }
            EntryQuery::Children { of, after_seq, limit } => {
                let Ok(page) = walk::children(self, of.as_ref(), *after_seq, *limit, bytes_max);
                page
            }
            EntryQuery::Kind { kind, after_seq, limit } => {
                let of_kind = |record: &NewRecord| record.entry.as_ref().is_some_and(|entry| entry.kind == *kind);
                let records = self.between(*after_seq, u64::MAX).filter(|(_, record)| of_kind(record));
                filled(records.take(*limit as usize), bytes_max)
            }
            EntryQuery::NewestLeaf { below } => {
                let Ok(leaf) = walk::newest_leaf(self, below);
                EntriesPage { records: leaf.into_iter().collect(), cut: false }
            }
        }
    }

    /// Returns the entry at `seq`, if that record holds one.
    fn found(&self, seq: u64) -> Option<Found> {
        let record = self.records.get(usize::try_from(seq).ok()?.checked_sub(1)?)?;
        Some(Found { entry: record.entry.as_ref()?.entry_id.clone(), record: stored((seq, record)) })
    }

    fn is_root(&self, record: &NewRecord) -> bool {
        let parent = record.entry.as_ref().map(|entry| entry.parent_id.as_ref());
        parent.is_some_and(|parent| parent.is_none_or(|parent| !self.seq_of_entry.contains_key(parent)))
    }
}

impl Links for Session {
    type Error = Infallible;

    fn find(&self, entry: &EntryId) -> Result<Option<Found>, Infallible> {
        Ok(self.seq_of_entry.get(entry).and_then(|seq| self.found(*seq)))
    }

    fn parent(&self, entry: &EntryId) -> Result<Option<Option<EntryId>>, Infallible> {
        let record = self.path(entry).next().and_then(|(_, record)| record.entry.as_ref());
        Ok(record.map(|entry| entry.parent_id.clone()))
    }

    fn check_orphan(&self, _: &EntryId) -> Result<(), Infallible> {
        Ok(())
    }

    fn places(&self, of: Option<&EntryId>, after_seq: u64, limit: u32) -> Result<Vec<u64>, Infallible> {
        let seqs: Vec<u64> = match of {
            Some(parent) => self.children.get(parent).cloned().unwrap_or_default(),
            None => {
                let records = self.between(after_seq, u64::MAX).filter(|(_, record)| self.is_root(record));
                records.map(|(seq, _)| seq).take(limit as usize).collect()
            }
        };
        Ok(seqs.into_iter().filter(|seq| *seq > after_seq).take(limit as usize).collect())
    }

    fn at(&self, seq: u64, _parent: Option<&EntryId>) -> Result<Found, Infallible> {
        Ok(self.found(seq).expect("a place was found under the same lock"))
    }

    fn child_count(&self, of: &EntryId) -> Result<u64, Infallible> {
        Ok(self.children.get(of).map_or(0, |children| children.len() as u64))
    }

    fn child_links(&self, of: &EntryId) -> Result<Vec<(u64, EntryId)>, Infallible> {
        let children = self.children.get(of).into_iter().flatten();
        Ok(children.filter_map(|seq| self.found(*seq).map(|found| (*seq, found.entry))).collect())
    }
}

/// Returns the page of these records.
fn filled<'a>(records: impl Iterator<Item = (u64, &'a NewRecord)>, bytes_max: usize) -> EntriesPage {
    let mut page = Filling::new(bytes_max);
    for record in records {
        let Ok(has_room) = page.add(|| Ok::<_, Infallible>(stored(record)));
        if !has_room {
            break;
        }
    }
    page.done()
}

fn stored((seq, record): (u64, &NewRecord)) -> StoredRecord {
    StoredRecord { seq, body: record.body.clone() }
}

impl State {
    fn create(&mut self, session: &SessionId, owner: &str, now: Timestamp) -> Result<Lease, Error> {
        if self.sessions.contains_key(session) {
            return Err(Error::Exists(session.clone()));
        }
        self.numbers += 1;
        let made = Session {
            number: self.numbers,
            owner: owner.to_owned(),
            epoch: format!("{:016x}", self.epochs.u64(..)),
            term: 1,
            records: Vec::new(),
            seq_of_entry: HashMap::new(),
            children: HashMap::new(),
            marks: HashMap::new(),
            head: Head { created_at: now, updated_at: now, ..Head::default() },
        };
        let lease = made.lease(session);
        self.sessions.insert(session.clone(), made);
        Ok(lease)
    }
}

impl SessionStore for MemoryStore {
    fn create<'a>(
        &'a self,
        session: &'a SessionId,
        owner: &'a str,
        now: Timestamp,
    ) -> StoreFuture<'a, Result<Lease, Error>> {
        self.with(move |state| state.create(session, owner, now))
    }

    fn create_once<'a>(
        &'a self,
        session: &'a SessionId,
        owner: &'a str,
        command: &'a CommandId,
        now: Timestamp,
    ) -> StoreFuture<'a, Result<Created, Error>> {
        self.with(move |state| {
            let key = (owner.to_owned(), command.clone());
            if let Some(earlier) = state.created.get(&key).filter(|earlier| state.sessions.contains_key(*earlier)) {
                return Ok(Created::Before(earlier.clone()));
            }
            let lease = state.create(session, owner, now)?;
            state.created.insert(key, session.clone());
            Ok(Created::Now(lease))
        })
    }

    fn open<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(Lease, SessionHead), Error>> {
        self.with(move |state| {
            let found = state.session_mut(session)?;
            found.term += 1;
            Ok((found.lease(session), found.session_head(session)))
        })
    }

    fn append<'a>(&'a self, lease: &'a Lease, first_seq: u64, append: Append) -> StoreFuture<'a, Result<(), Error>> {
        self.with(move |state| state.session_mut(&lease.session)?.append(lease, first_seq, append))
    }

    fn release<'a>(&'a self, _lease: &'a Lease) -> StoreFuture<'a, Result<(), Error>> {
        // There is only one node, so nobody else can take the lease. The next `open` makes it stale.
        Box::pin(async { Ok(()) })
    }

    fn read<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        limit: u32,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>> {
        self.with(move |state| {
            let records = state.session(session)?.between(after_seq, u64::MAX);
            Ok(records.take(limit as usize).map(stored).collect())
        })
    }

    fn entries_page<'a>(
        &'a self,
        session: &'a SessionId,
        query: EntryQuery,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<EntriesPage, Error>> {
        self.with(move |state| Ok(state.session(session)?.entries(&query, bytes_max)))
    }

    fn subtree<'a>(
        &'a self,
        session: &'a SessionId,
        query: SubtreeQuery,
    ) -> StoreFuture<'a, Result<Vec<StoredNode>, Error>> {
        self.with(move |state| {
            let Ok(nodes) = walk::subtree(state.session(session)?, &query);
            Ok(nodes)
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
            let start = page::start(query.cursor.as_deref())?;
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

    fn delete<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(), Error>> {
        self.with(move |state| {
            state.sessions.remove(session).ok_or_else(|| Error::NotFound(session.clone()))?;
            state.created.retain(|_, made| made != session);
            Ok(())
        })
    }

    fn close(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.closed = true;
            state.sessions.clear();
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::MemoryStore;
    use crate::store::{
        SessionStore,
        conformance::{self, Subject, contract_suite, id},
    };

    async fn build() -> Subject {
        Subject::new(MemoryStore::new(), ())
    }

    contract_suite!(build());

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
