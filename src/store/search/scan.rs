//! Searches by reading entries, newest first: everything in the scope, or what an index leaves over.

use super::{Document, Hit, Hits, SEARCHED_MAX, SearchQuery, SearchScope, range::Range, rank};
use crate::{EntriesPage, EntryQuery, Error, ListQuery, Part, SessionStore, StoredRecord, whole_mark};
use reseed_protocol::{EntryId, SessionId};

/// The most records read at once.
const PAGE: u32 = 256;

/// The most bytes read at once.
const PAGE_BYTES_MAX: usize = 1024 * 1024;

/// The most entries to walk up in search of the call that a tool's result answers. A model makes fewer calls at once.
const CALL_STEPS_MAX: u32 = 256;

/// Answers a search by reading every entry in its scope.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Unknown`]. Damaged records are skipped.
pub(crate) async fn scan<S: SessionStore + ?Sized>(store: &S, query: SearchQuery) -> Result<Hits, Error> {
    if let SearchScope::Session(session) = &query.scope {
        store.head(session).await?;
    }
    if query.is_empty() {
        return Ok(Hits::default());
    }
    let sessions = match &query.scope {
        SearchScope::Session(session) => vec![session.clone()],
        SearchScope::Owner(owner) => {
            let list = ListQuery { owner: Some(owner.clone()), limit: SEARCHED_MAX, ..ListQuery::default() };
            store.list(list).await?.items.into_iter().map(|head| head.session).collect()
        }
    };
    let is_partial = sessions.len() >= SEARCHED_MAX as usize;
    let mut scan = Scan::new(store, &query, u32::MAX, usize::MAX);
    for session in sessions {
        match scan.session(&session).await {
            // The session was deleted since it was listed.
            Err(Error::NotFound(_)) if matches!(query.scope, SearchScope::Owner(_)) => {}
            done => done?,
        }
        if scan.is_full() {
            break;
        }
    }
    Ok(scan.hits(is_partial))
}

/// A search that reads entries of one session after another.
pub(crate) struct Scan<'a, S: ?Sized> {
    store: &'a S,
    query: &'a SearchQuery,
    /// The hits, each with the terms that it contains.
    found: Vec<(Hit, Vec<bool>)>,
    /// The records, and bytes of them, that may still be read.
    reads_left: u32,
    bytes_left: usize,
}

impl<'a, S: SessionStore + ?Sized> Scan<'a, S> {
    pub(crate) fn new(store: &'a S, query: &'a SearchQuery, reads_max: u32, bytes_max: usize) -> Self {
        Self { store, query, found: Vec::new(), reads_left: reads_max, bytes_left: bytes_max }
    }

    /// Returns true if it has read as much as it may.
    pub(crate) fn is_spent(&self) -> bool {
        self.reads_left == 0 || self.bytes_left == 0
    }

    /// Returns true if nothing more needs to be read.
    pub(crate) fn is_full(&self) -> bool {
        self.is_spent() || !self.query.any && self.found.len() > self.query.hits_max()
    }

    /// Returns the best hits. `is_partial` says whether there may be more than those found.
    pub(crate) fn hits(mut self, is_partial: bool) -> Hits {
        let is_partial = is_partial || self.is_spent();
        if self.query.any {
            rank(&mut self.found, self.query.query.len(), |hit| hit.seq);
        }
        Hits::first(self.found.into_iter().map(|(hit, _)| hit).collect(), self.query.hits_max(), is_partial)
    }

    /// Searches a whole session, or the path that the search is limited to.
    async fn session(&mut self, session: &SessionId) -> Result<(), Error> {
        let in_session = matches!(self.query.scope, SearchScope::Session(_));
        let mut from = self.query.on_path_to.clone().filter(|_| in_session);
        if from.is_none() {
            let last = self.query.before_seq.map_or(i64::MAX, |before| before.min(i64::MAX as u64).cast_signed()) - 1;
            return self.ranges(session, &[Range { first: 1, last }]).await;
        }
        while let Some(entry) = from {
            let (records, is_last) = self.path(session, &entry).await?;
            from = records.last().filter(|_| !is_last).and_then(|oldest| Document::parent_of(&oldest.body));
            for record in &records {
                self.look(session, record).await?;
                if self.is_full() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Searches ranges of a session, given newest first.
    pub(crate) async fn ranges(&mut self, session: &SessionId, ranges: &[Range]) -> Result<(), Error> {
        for range in ranges {
            let mut before = range.last + 1;
            while before > range.first && !self.is_full() {
                let most = u32::try_from(before - range.first).unwrap_or(PAGE).min(PAGE).min(self.reads_left);
                let (records, oldest) = self.log(session, before.cast_unsigned(), most).await?;
                let Some(oldest) = oldest else { break };
                before = oldest.cast_signed();
                for record in records {
                    if record.seq.cast_signed() >= range.first && !self.is_full() {
                        self.look(session, &record).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns a page of the path, newest first, and whether the path ends there.
    async fn path(&self, session: &SessionId, from: &EntryId) -> Result<(Vec<StoredRecord>, bool), Error> {
        let query = EntryQuery::Path { from: from.clone(), limit: PAGE };
        let EntriesPage { records, cut } = self.store.entries_page(session, query, PAGE_BYTES_MAX).await?;
        let is_last = !cut && records.len() < PAGE as usize;
        Ok((records, is_last))
    }

    /// Reads entries before a position, newest first, and skips damaged ones. Returns the position at which to
    /// continue; `None` at the end.
    async fn log(
        &mut self,
        session: &SessionId,
        before: u64,
        limit: u32,
    ) -> Result<(Vec<StoredRecord>, Option<u64>), Error> {
        let query = |after_seq| EntryQuery::Log { before_seq: Some(before), after_seq, limit };
        let (mut records, oldest) = match self.store.entries_page(session, query(None), PAGE_BYTES_MAX).await {
            Ok(page) => {
                let oldest = page.records.first().map(|record| record.seq);
                (page.records, oldest)
            }
            Err(Error::Damaged { part: Part::Record(seq), .. }) => {
                match self.store.entries_page(session, query(Some(seq)), usize::MAX).await {
                    Ok(page) => (page.records, Some(seq)),
                    Err(Error::Damaged { .. }) => (Vec::new(), Some(seq)),
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        // A read that finds nothing also counts, so that a session full of damage ends a search.
        let reads = u32::try_from(records.len()).unwrap_or(u32::MAX).max(1);
        self.reads_left = self.reads_left.saturating_sub(reads);
        self.bytes_left = self.bytes_left.saturating_sub(records.iter().map(|record| record.body.len()).sum());
        records.reverse();
        Ok((records, oldest))
    }

    /// Adds an entry if it matches. If the record holds only a part of a tool's result, the whole result is searched.
    async fn look(&mut self, session: &SessionId, record: &StoredRecord) -> Result<(), Error> {
        let Some(mut document) = Document::of(&record.body) else { return Ok(()) };
        if document.is_cut
            && let Some(mark) = self.store.command(session, &whole_mark(&document.entry)).await?
        {
            document.text = mark.reply.to_string();
        }
        if let Some(hit) = self.query.hit(session, record.seq, &document)
            && !self.repeats(session, &document).await?
        {
            self.found.push(hit);
        }
        Ok(())
    }

    /// Returns true for the results of the history tools.
    async fn repeats(&self, session: &SessionId, document: &Document) -> Result<bool, Error> {
        let (Some(call), Some(parent)) = (&document.answers, &document.parent) else { return Ok(false) };
        let query = EntryQuery::Path { from: parent.clone(), limit: CALL_STEPS_MAX };
        let above = match self.store.entries_page(session, query, PAGE_BYTES_MAX).await {
            Ok(page) => page.records,
            Err(Error::Damaged { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        Ok(above.iter().find_map(|record| Document::of(&record.body)?.makes(call)).unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use super::{Scan, scan};
    use crate::{
        Error, Part, SearchQuery, SessionStore as _,
        conformance::{NOW, append, id, tests::searching::said},
        faulty::Faulty,
        memory::MemoryStore,
        search::range::Range,
    };

    #[tokio::test]
    async fn a_search_skips_damage_but_no_other_failure_and_counts_each_read() {
        let store = Faulty::new(MemoryStore::new());
        let session = id("s");
        let lease = store.create(&session, "", NOW).await.unwrap();
        let records = (1..=3).map(|n| said(&format!("e{n}"), "", "user", "word")).collect();
        store.append(&lease, 1, append(records)).await.unwrap();
        let query = SearchQuery::in_session(&session, "word", 9);
        let damaged =
            || Error::Damaged { session: session.clone(), part: Part::Record(2), reason: "checksum mismatch" };
        let away = || Error::Unknown("the database is away".into());

        store.fail_entries([damaged()]);
        let found = scan(&store, query.clone()).await.unwrap();
        assert_eq!(found.items.iter().map(|hit| hit.seq).collect::<Vec<_>>(), [3, 1]);
        store.fail_entries([damaged(), damaged()]);
        let found = scan(&store, query.clone()).await.unwrap();
        assert_eq!(found.items.iter().map(|hit| hit.seq).collect::<Vec<_>>(), [1]);
        store.fail_entries([damaged(), away()]);
        assert_eq!(scan(&store, query.clone()).await, Err(away()));

        store.fail_entries([damaged(), damaged()]);
        let mut one_read = Scan::new(&store, &query, 1, usize::MAX);
        one_read.ranges(&session, &[Range { first: 1, last: 3 }]).await.unwrap();
        let found = one_read.hits(false);
        assert_eq!((found.items, found.more), (Vec::new(), true));
    }
}
