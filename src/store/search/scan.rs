//! Search for stores without an index: reads entries, newest first.

use super::{Document, Hits, SEARCHED_MAX, SearchQuery, SearchScope, rank};
use crate::{EntriesPage, EntryQuery, Error, ListQuery, Part, SessionStore, StoredRecord, whole_mark};
use reseed_protocol::{EntryId, SessionId};

/// The most records read at once.
const PAGE: u32 = 256;

/// The most bytes read at once.
const PAGE_BYTES_MAX: usize = 1024 * 1024;

/// The most entries to walk up in search of the call that a tool's result answers. A model makes fewer calls at once.
pub(crate) const CALL_STEPS_MAX: u32 = 256;

/// Answers a search by reading every entry in its scope.
///
/// # Errors
/// [`Error::NotFound`], [`Error::Unknown`]. Damaged records are skipped.
pub(crate) async fn scan<S: SessionStore + ?Sized>(store: &S, query: SearchQuery) -> Result<Hits, Error> {
    let limit = query.hits_max();
    if let SearchScope::Session(session) = &query.scope {
        store.head(session).await?;
    }
    if query.query.is_empty() || limit == 0 {
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
    let mut found = Vec::new();
    for session in sessions {
        match Scan::new(store, &session, &query).run(&mut found, limit + 1).await {
            // The session was deleted since it was listed.
            Err(Error::NotFound(_)) if matches!(query.scope, SearchScope::Owner(_)) => {}
            done => done?,
        }
        if !query.any && found.len() > limit {
            break;
        }
    }
    if query.any {
        rank(&mut found, query.query.len(), |hit| hit.seq);
    }
    Ok(Hits::first(found.into_iter().map(|(hit, _)| hit).collect(), limit, is_partial))
}

/// The matches: a hit and its terms each.
type Found = Vec<(super::Hit, Vec<bool>)>;

struct Scan<'a, S: ?Sized> {
    store: &'a S,
    session: &'a SessionId,
    query: &'a SearchQuery,
}

impl<'a, S: SessionStore + ?Sized> Scan<'a, S> {
    fn new(store: &'a S, session: &'a SessionId, query: &'a SearchQuery) -> Self {
        Self { store, session, query }
    }

    async fn run(&self, found: &mut Found, hits_max: usize) -> Result<(), Error> {
        let is_full = |found: &Found| !self.query.any && found.len() >= hits_max;
        let in_session = matches!(self.query.scope, SearchScope::Session(_));
        let mut from = self.query.on_path_to.clone().filter(|_| in_session);
        let mut before = self.query.before_seq;
        loop {
            let (records, is_last) = match &from {
                Some(from) => self.path(from).await?,
                None => self.log(before).await?,
            };
            let Some(oldest) = records.last() else { return Ok(()) };
            before = Some(oldest.seq);
            let oldest = Document::parent_of(&oldest.body);
            for record in &records {
                self.look(record, found).await?;
                if is_full(found) {
                    return Ok(());
                }
            }
            if is_last {
                return Ok(());
            }
            if from.is_some() {
                let Some(parent) = oldest else { return Ok(()) };
                from = Some(parent);
            }
        }
    }

    /// Reads entries from one back to its root. Damage ends the path.
    async fn path(&self, from: &EntryId) -> Result<(Vec<StoredRecord>, bool), Error> {
        let mut limit = PAGE;
        loop {
            let query = EntryQuery::Path { from: from.clone(), limit };
            match self.store.entries_page(self.session, query, PAGE_BYTES_MAX).await {
                Ok(EntriesPage { records, cut }) => {
                    let is_last = limit < PAGE || !cut && records.len() < limit as usize;
                    return Ok((records, is_last));
                }
                Err(Error::Damaged { part: Part::Record(_), .. }) if limit > 1 => limit /= 2,
                Err(Error::Damaged { part: Part::Record(_), .. }) => return Ok((Vec::new(), true)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads entries before a position, newest first, and skips damaged ones.
    async fn log(&self, before_seq: Option<u64>) -> Result<(Vec<StoredRecord>, bool), Error> {
        let query = EntryQuery::Log { before_seq, after_seq: None, limit: PAGE };
        match self.store.entries_page(self.session, query, PAGE_BYTES_MAX).await {
            Ok(EntriesPage { mut records, cut }) => {
                let is_last = !cut && records.len() < PAGE as usize;
                records.reverse();
                // If a page is cut short, its oldest entries are missing.
                Ok((records, is_last))
            }
            Err(Error::Damaged { part: Part::Record(seq), .. }) => {
                let near = EntryQuery::Log { before_seq, after_seq: Some(seq), limit: PAGE };
                let mut records = self.store.entries_page(self.session, near, usize::MAX).await?.records;
                records.reverse();
                records.push(StoredRecord { seq, body: "".into() });
                Ok((records, false))
            }
            Err(error) => Err(error),
        }
    }

    async fn look(&self, record: &StoredRecord, found: &mut Found) -> Result<(), Error> {
        let Some(mut document) = Document::of(&record.body) else { return Ok(()) };
        if document.is_cut
            && let Some(mark) = self.store.command(self.session, &whole_mark(&document.entry)).await?
        {
            document.text = mark.reply.to_string();
        }
        if let Some(hit) = self.query.hit(self.session, record.seq, &document)
            && !self.repeats(&document).await?
        {
            found.push(hit);
        }
        Ok(())
    }

    /// Returns true for the results of the history tools.
    async fn repeats(&self, document: &Document) -> Result<bool, Error> {
        let (Some(call), Some(parent)) = (&document.answers, &document.parent) else { return Ok(false) };
        let query = EntryQuery::Path { from: parent.clone(), limit: CALL_STEPS_MAX };
        let above = match self.store.entries_page(self.session, query, PAGE_BYTES_MAX).await {
            Ok(page) => page.records,
            Err(Error::Damaged { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        Ok(above.iter().filter_map(|record| Document::of(&record.body)?.makes(call)).next().unwrap_or(false))
    }
}
