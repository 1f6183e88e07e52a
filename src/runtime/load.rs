//! Loads a session from the store: the fold of its log, and the path as far back as the model can see.

use super::{blocking, stored_calibration::StoredCalibration};
use crate::{
    core::{
        compaction::Held,
        context::counter::Counter,
        session::{HeldAt, Queued, QueuedAt, Session, SessionState, SessionTree, StoredState, tree::PathReader},
    },
    store::{EntriesPage, EntryQuery, Error, Part, SessionHead, SessionStore, StoredRecord},
};
use futures_util::future::join;
use reseed_protocol::{Entry, EntryData, EntryId, SessionId, event::Event};
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, sync::Arc};
use tokio::task::yield_now;

/// Entries read per page on the way to the root.
const PATH_PAGE: u32 = 128;
/// Maximum entries per page. The pages of a long path grow, because each costs a round trip.
const PATH_PAGE_MAX: u32 = 1_024;
/// Bytes of entries after which a page ends. Two pages are in memory at once.
const PATH_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Entries that are counted before other tasks, and the read of the next page, get their turn.
const COUNTED_AT_ONCE: usize = 32;
/// Records read per page when the log is folded.
const LOG_PAGE: u32 = 1_000;
/// Bytes of records after which such a page ends.
const LOG_PAGE_BYTES: usize = 8 * 1024 * 1024;

/// Serialises the fold for the session's head, together with its model's calibration.
pub(super) fn stored_state(state: &SessionState, learnt: Option<&StoredCalibration>) -> Arc<str> {
    #[derive(Serialize)]
    struct Stored<'a> {
        #[serde(flatten)]
        state: &'a SessionState,
        #[serde(skip_serializing_if = "Option::is_none")]
        calibration: Option<&'a StoredCalibration>,
    }
    let stored = Stored { state, calibration: learnt };
    serde_json::to_string(&stored).expect("the state has text keys and finite numbers").into()
}

/// Returns the calibration stored in a session's head.
pub(super) fn stored_calibration(head: &SessionHead) -> Option<StoredCalibration> {
    #[derive(Deserialize)]
    struct Stored {
        calibration: Option<StoredCalibration>,
    }
    let stored: Stored = serde_json::from_str(head.head.state.as_ref()?).ok()?;
    stored.calibration
}

/// Returns the copy of the fold in a session's head; `None` if it is missing, damaged or of another version.
pub(super) fn stored_copy(head: &SessionHead) -> Option<StoredState> {
    let copy = StoredState::read(head.head.state.as_ref()?)?;
    (copy.seq() <= head.last_seq).then_some(copy)
}

/// Returns the fold of a session's log: the copy in its head plus the records after it, or a new fold.
///
/// # Errors
/// As [`load`].
pub(super) async fn state(store: &dyn SessionStore, head: &SessionHead) -> Result<SessionState, Error> {
    let mut state = SessionState::default();
    if let Some(copy) = stored_copy(head)
        && let Some(queue) = queue(store, &head.session, copy.queue()).await?
    {
        state = copy.with_queue(queue);
    }
    fold(store, head, &mut state).await?;
    Ok(state)
}

/// Returns a session's leaf.
///
/// # Errors
/// As [`load`].
pub(super) async fn leaf(store: &dyn SessionStore, head: &SessionHead) -> Result<Option<EntryId>, Error> {
    match stored_copy(head).filter(|copy| copy.seq() == head.last_seq) {
        Some(copy) => Ok(copy.with_queue(Vec::new()).leaf),
        None => Ok(state(store, head).await?.leaf),
    }
}

/// Reads queued inputs back from their records. `None` if a record does not hold its input, because then the copy does
/// not belong to this log.
async fn queue(
    store: &dyn SessionStore,
    session: &SessionId,
    queued: &[QueuedAt],
) -> Result<Option<Vec<Queued>>, Error> {
    let mut queue = Vec::with_capacity(queued.len());
    for at in queued {
        let records = store.read(session, at.seq.saturating_sub(1), 1).await?;
        let Some(record) = records.first().filter(|record| record.seq == at.seq) else { return Ok(None) };
        let Some(item) = Queued::read_back(at.clone(), &event(session, record)?) else { return Ok(None) };
        queue.push(item);
    }
    Ok(Some(queue))
}

/// Loads a session.
///
/// # Errors
/// The store's errors. [`Error::Unknown`] names the seq of a record that is not an event of this version.
pub(super) async fn load(store: &dyn SessionStore, head: &SessionHead) -> Result<Session, Error> {
    let mut session = Session::new(head.session.clone(), head.head.created_at);
    session.state = Arc::new(state(store, head).await?);
    session.tree = path(store, &head.session, &session.state).await?;
    session.held = held(store, &head.session, session.state.held.as_ref()).await?;
    let counter = Counter::for_model(&session.state.model);
    session.calibration = stored_calibration(head).and_then(|stored| stored.read(&session.state.model, &counter));
    Ok(session)
}

/// Loads the held compaction from its record. If the record is damaged, the held compaction is dropped. It is made
/// again, and the session loses nothing.
async fn held(store: &dyn SessionStore, session: &SessionId, at: Option<&HeldAt>) -> Result<Option<Arc<Held>>, Error> {
    let Some(at) = at else { return Ok(None) };
    let records = match store.read(session, at.seq - 1, 1).await {
        Err(Error::Damaged { .. }) => return Ok(None),
        records => records?,
    };
    let Some(record) = records.first().filter(|record| record.seq == at.seq) else { return Ok(None) };
    Ok(match event(session, record)? {
        Event::SessionUpdated(updated) => updated.held.as_ref().and_then(Held::read_back).map(Arc::new),
        _ => None,
    })
}

/// Loads the path to the leaf of a state, as far back as the model can see.
///
/// # Errors
/// As [`load`].
pub(super) async fn path(
    store: &dyn SessionStore,
    session: &SessionId,
    state: &SessionState,
) -> Result<SessionTree, Error> {
    path_to(store, session, state.leaf.clone(), state, &SessionTree::default()).await
}

/// Loads the path to an entry, as far back as the model can see. Where it meets a known path, the rest is taken from
/// that path.
///
/// # Errors
/// As [`load`].
pub(super) async fn path_to(
    store: &dyn SessionStore,
    session: &SessionId,
    leaf: Option<EntryId>,
    state: &SessionState,
    known: &SessionTree,
) -> Result<SessionTree, Error> {
    if let Some(path) = leaf.as_ref().and_then(|leaf| known.upto(leaf)) {
        return Ok(path);
    }
    let counter = Counter::for_model(&state.model);
    let mut reader = PathReader::new(state, &counter);
    let mut back = WayBack::from(leaf);
    let mut seqs: HashMap<EntryId, Option<u64>> = HashMap::new();
    let (mut ahead, mut pages) = (None, 0_u32);
    loop {
        let page = match ahead.take() {
            Some(page) => page,
            None => back.next_page(store, session).await?,
        };
        if page.is_empty() {
            break;
        }
        pages += 1;
        let oldest = page.last().map_or(0, |(seq, _)| *seq);
        // On a long path, the next page is read and parsed while this one is counted. Behind a compaction it may not be
        // needed.
        let ends =
            |entry: &Entry| matches!(entry.data, EntryData::Compaction(_)) && !state.undone.contains(&entry.entry_id);
        let is_long = pages > 1 && reader.may_join() && !page.iter().any(|(_, entry)| ends(entry));
        if is_long {
            back.limit = (back.limit * 2).min(PATH_PAGE_MAX);
        }
        let fetch = async { if is_long { Some(back.next_page(store, session).await) } else { None } };
        let (fetched, taken) = join(fetch, take(&mut reader, page, known)).await;
        match taken {
            Taken::All => ahead = fetched.transpose()?,
            Taken::Enough => break,
            Taken::Joins(known) => return Ok(reader.finish_with(known)),
        }
        // An entry is newer than its ancestors. So an entry that is newer than the current position and was not met is
        // on another branch.
        for pinned in reader.sought().to_vec() {
            let seq = match seqs.get(&pinned) {
                Some(seq) => *seq,
                None => *seqs.entry(pinned.clone()).or_insert(store.entry_seq(session, &pinned).await?),
            };
            if seq.is_none_or(|seq| seq >= oldest) {
                reader.give_up(&pinned);
            }
        }
        if !reader.wants_more() {
            break;
        }
        if let Some(missing) = reader.missing() {
            // Only single older entries are missing now. They are read one by one, however far back they are.
            for entry in by_id(store, session, missing.to_vec()).await? {
                let _ = reader.take(entry);
            }
            break;
        }
    }
    Ok(reader.finish())
}

/// Whether the walk to the root continues after a page.
enum Taken {
    /// The whole page is on the path.
    All,
    /// Nothing further back is needed.
    Enough,
    /// The page meets a known path, which leads to the root.
    Joins(SessionTree),
}

async fn take(reader: &mut PathReader<'_>, page: Vec<(u64, Entry)>, known: &SessionTree) -> Taken {
    for (at, (_, entry)) in page.into_iter().enumerate() {
        if at % COUNTED_AT_ONCE == COUNTED_AT_ONCE - 1 {
            yield_now().await;
        }
        if reader.may_join()
            && let Some(known) = known.upto(&entry.entry_id)
        {
            return Taken::Joins(known);
        }
        if !reader.take(entry) {
            return Taken::Enough;
        }
    }
    Taken::All
}

/// Returns these entries, newest first; missing ones are left out.
async fn by_id(store: &dyn SessionStore, session: &SessionId, ids: Vec<EntryId>) -> Result<Vec<Entry>, Error> {
    let mut found = Vec::with_capacity(ids.len());
    for from in ids {
        for record in store.entries(session, EntryQuery::Path { from, limit: 1 }).await? {
            found.extend(entry(session, &record)?.map(|entry| (record.seq, entry)));
        }
    }
    found.sort_by_key(|(seq, _)| std::cmp::Reverse(*seq));
    Ok(found.into_iter().map(|(_, entry)| entry).collect())
}

/// The walk from an entry to its root, page by page.
#[derive(Debug)]
pub(super) struct WayBack {
    next: Option<EntryId>,
    /// The maximum entries of the next page.
    limit: u32,
}

impl WayBack {
    /// Starts at an entry, which is included.
    pub(super) fn from(leaf: Option<EntryId>) -> Self {
        Self { next: leaf, limit: PATH_PAGE }
    }

    /// Returns the next entries towards the root with their `seq`, newest first; empty at the end.
    ///
    /// # Errors
    /// As [`load`].
    pub(super) async fn next_page(
        &mut self,
        store: &dyn SessionStore,
        session: &SessionId,
    ) -> Result<Vec<(u64, Entry)>, Error> {
        let Some(from) = self.next.take() else { return Ok(Vec::new()) };
        let query = EntryQuery::Path { from, limit: self.limit };
        let EntriesPage { records, cut } = store.entries_page(session, query, PATH_PAGE_BYTES).await?;
        let (is_full, of) = (cut || records.len() == self.limit as usize, session.clone());
        let page = blocking::beside(move || entries(&of, records)).await?;
        self.next = page.last().and_then(|(_, entry)| entry.parent_id.clone()).filter(|_| is_full);
        Ok(page)
    }
}

/// Returns the entries that records appended, with their `seq`.
fn entries(session: &SessionId, records: Vec<StoredRecord>) -> Result<Vec<(u64, Entry)>, Error> {
    let mut page = Vec::with_capacity(records.len());
    for record in records {
        if let Some(entry) = entry(session, &record)? {
            page.push((record.seq, entry));
        }
    }
    Ok(page)
}

/// Applies the records after the state to it. From an empty state this reads the whole log, which is slow but always
/// correct.
async fn fold(store: &dyn SessionStore, head: &SessionHead, state: &mut SessionState) -> Result<(), Error> {
    while state.seq < head.last_seq {
        let page = store.read_page(&head.session, state.seq, LOG_PAGE, LOG_PAGE_BYTES).await?;
        if page.is_empty() {
            return Err(missing(head, state.seq + 1));
        }
        for record in page {
            if record.seq != state.seq + 1 {
                return Err(missing(head, state.seq + 1));
            }
            state.apply(&event(&head.session, &record)?);
        }
    }
    Ok(())
}

/// Returns the error for a record missing from the log.
fn missing(head: &SessionHead, seq: u64) -> Error {
    Error::Damaged { session: head.session.clone(), part: Part::Record(seq), reason: "it is missing" }
}

/// Returns the entry that a record appended, if any.
///
/// # Errors
/// As [`load`].
pub(super) fn entry(session: &SessionId, record: &StoredRecord) -> Result<Option<Entry>, Error> {
    match event(session, record)? {
        Event::EntryAppended(appended) => Ok(Some(appended.entry)),
        _ => Ok(None),
    }
}

fn event(session: &SessionId, record: &StoredRecord) -> Result<Event, Error> {
    let unknown = |reason: &dyn std::fmt::Display| {
        let seq = record.seq;
        Error::Unknown(format!("record {seq} of session `{session}` is not an event of this version: {reason}"))
    };
    match serde_json::from_str(&record.body) {
        Ok(Event::Unknown(event)) => Err(unknown(&format_args!("its type is `{}`", event.name))),
        Ok(event) => Ok(event),
        Err(error) => Err(unknown(&error)),
    }
}

#[cfg(test)]
mod tests;
