//! Searches: uses the index where there is one, and reads records where there is none.

use super::{Part, Range, Suspects, index, likely::Likely, parts, path, role_word, row_of, seq_of};
use crate::{
    Hit, Hits, ListQuery, SearchQuery, SearchScope,
    search::{Document, SEARCHED_MAX, SESSIONS_MAX, Term, rank},
    sqlite::{
        Fault,
        read::{self, int},
        record::COLUMNS,
    },
};
use reseed_protocol::SessionId;
use rusqlite::Connection;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The most records, and bytes of them, that a search reads: records that are not indexed, and entries that the index
/// names. A search that stops there reports that there may be more.
const READS_MAX: u32 = 10_000;
const READ_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The time after which a search ends with the hits so far: long phrases of common words take up to a quarter of a
/// second per shard. A search occupies one of few readers, and keeps the write-ahead log from being restarted.
const SEARCH_WITHIN: Duration = Duration::from_secs(10);

/// The most entries per term that are considered when some terms suffice: a session's newest.
const OF_A_TERM_MAX: usize = 512;

/// The most ranges of a path that are queried one by one. With more, all entries are queried and those off the path are
/// dropped.
const RANGES_MAX: usize = 32;

/// The number of an owner's sessions that are listed at once.
const LIST_PAGE: u32 = 100;

/// The number of an owner's sessions that are searched individually before shards are queried for the others. Most
/// searches end with these.
const ONE_BY_ONE: u32 = 100;

pub(in crate::sqlite) fn search(db: &Connection, query: &SearchQuery, suspects: &Suspects) -> Result<Hits, Fault> {
    let limit = query.hits_max();
    if query.query.is_empty() || limit == 0 {
        if let SearchScope::Session(session) = &query.scope {
            read::number(db, session)?;
        }
        return Ok(Hits::default());
    }
    let mut search = Search {
        db,
        query,
        suspects,
        found: Vec::new(),
        reads_left: READS_MAX,
        bytes_left: READ_BYTES_MAX,
        until: Instant::now() + SEARCH_WITHIN,
    };
    match &query.scope {
        SearchScope::Session(session) => {
            let found = read::head_without_state(db, session)?;
            search.session(session, found.number, int(found.head.last_seq))?;
        }
        SearchScope::Owner(owner) => search.all_of(owner)?,
    }
    let is_partial = search.is_spent();
    if query.any {
        return search.ranked(limit);
    }
    Ok(Hits::first(search.found.into_iter().filter_map(|found| found.hit).collect(), limit, is_partial))
}

/// An entry that may match.
struct Found {
    session: SessionId,
    number: i64,
    seq: i64,
    /// `None` if only the index was queried.
    hit: Option<Hit>,
    terms: Vec<bool>,
}

struct Search<'a> {
    db: &'a Connection,
    query: &'a SearchQuery,
    suspects: &'a Suspects,
    found: Vec<Found>,
    reads_left: u32,
    bytes_left: usize,
    until: Instant,
}

/// The session that is being searched.
#[derive(Clone, Copy)]
struct Place<'a> {
    session: &'a SessionId,
    number: i64,
    /// The ranges of the path, if the search is limited to one.
    path: Option<&'a [Range]>,
}

impl Place<'_> {
    fn has(&self, seq: i64) -> bool {
        self.path.is_none_or(|path| path.iter().any(|range| (range.first..=range.last).contains(&seq)))
    }
}

impl Search<'_> {
    fn is_spent(&self) -> bool {
        self.reads_left == 0 || self.bytes_left == 0 || self.until <= Instant::now()
    }

    /// Returns true if nothing more needs to be read.
    fn is_full(&self) -> bool {
        self.is_spent() || !self.query.any && self.found.len() > self.query.hits_max()
    }

    fn all_of(&mut self, owner: &str) -> Result<(), Fault> {
        let mut list = ListQuery { owner: Some(owner.to_owned()), limit: LIST_PAGE, ..ListQuery::default() };
        let (mut listed, mut searched) = (0, 0);
        let mut likely = Likely::new(self.db, self.query, self.suspects);
        loop {
            let (sessions, next_cursor) = read::list_numbered(self.db, &list)?;
            for found in sessions {
                if self.is_full() {
                    return Ok(());
                }
                if listed == SESSIONS_MAX {
                    self.reads_left = 0;
                    return Ok(());
                }
                listed += 1;
                let last_seq = int(found.head.last_seq);
                if searched >= ONE_BY_ONE && !likely.may_have(found.number, last_seq)? {
                    continue;
                }
                if searched == SEARCHED_MAX {
                    self.reads_left = 0;
                    return Ok(());
                }
                searched += 1;
                self.session(&found.head.session, found.number, last_seq)?;
            }
            match next_cursor {
                Some(cursor) => list.cursor = Some(cursor),
                None => return Ok(()),
            }
        }
    }

    fn session(&mut self, session: &SessionId, number: i64, last_seq: i64) -> Result<(), Fault> {
        let last = self.query.before_seq.map_or(last_seq, |before| int(before).saturating_sub(1).min(last_seq));
        let wanted = Range { first: 1, last };
        let in_session = matches!(self.query.scope, SearchScope::Session(_));
        let path = match self.query.on_path_to.as_ref().filter(|_| in_session) {
            Some(entry) => Some(path::ranges(self.db, number, entry)?),
            None => None,
        };
        let place = Place { session, number, path: path.as_deref() };
        let ranges: Vec<Range> = match &path {
            None => vec![wanted],
            Some(path) if path.len() <= RANGES_MAX => path.iter().filter_map(|range| range.and(wanted)).collect(),
            Some(path) => {
                let last = path.iter().map(|range| range.last).max().unwrap_or(0);
                Range { first: 1, last }.and(wanted).into_iter().collect()
            }
        };
        let parts = parts(self.db, number, last_seq)?;
        for range in ranges {
            let inside = |part: &Part| Some(Part { records: part.records.and(range)?, shard: part.shard });
            for part in parts.iter().rev().filter_map(inside) {
                if self.is_full() {
                    return Ok(());
                }
                self.part(place, part)?;
            }
        }
        Ok(())
    }

    fn part(&mut self, place: Place<'_>, part: Part) -> Result<(), Fault> {
        let before = self.found.len();
        let Some(shard) = part.shard else { return self.read(place, part.records) };
        let done = if self.query.any {
            self.ask_any(place, shard, part.records)
        } else {
            self.ask(place, shard, part.records)
        };
        match done {
            Ok(true) => Ok(()),
            // The index cannot answer a term well.
            Ok(false) => self.read(place, part.records),
            Err(Fault::Sqlite(error)) if super::is_of_shard(&error) => {
                self.suspects.add(shard);
                self.found.truncate(before);
                self.read(place, part.records)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Finds the entries that contain all terms in a shard. Returns false if the index cannot answer.
    fn ask(&mut self, place: Place<'_>, shard: i64, records: Range) -> Result<bool, Fault> {
        let terms = self.query.query.terms.iter();
        let Some(mut wanted) = terms.map(asked).collect::<Option<Vec<_>>>() else { return Ok(false) };
        wanted.extend(self.query.role.map(|role| format!("\"{}\"", role_word(role))));
        let mut statement = self.db.prepare_cached(&format!(
            "SELECT rowid FROM history_{shard} WHERE history_{shard} MATCH ?1 AND rowid BETWEEN ?2 AND ?3 \
             ORDER BY rowid DESC"
        ))?;
        let range = (row_of(place.number, records.first), row_of(place.number, records.last));
        let mut rows = statement.query((wanted.join(" "), range.0, range.1))?;
        while let Some(row) = rows.next()? {
            let seq = seq_of(row.get(0)?);
            if place.has(seq)
                && let Some(document) = index::document_at(self.db, place.session, place.number, seq)?
            {
                self.read_one(&document);
                self.look(place, seq, &document);
            }
            if self.is_full() {
                break;
            }
        }
        Ok(true)
    }

    /// Finds the newest entries for each term in a shard. Returns false if the index cannot answer.
    fn ask_any(&mut self, place: Place<'_>, shard: i64, records: Range) -> Result<bool, Fault> {
        let terms = &self.query.query.terms;
        let mut statement = self.db.prepare_cached(&format!(
            "SELECT rowid FROM history_{shard} WHERE history_{shard} MATCH ?1 AND rowid BETWEEN ?2 AND ?3 \
             ORDER BY rowid DESC"
        ))?;
        let range = (row_of(place.number, records.first), row_of(place.number, records.last));
        let mut of_entry: BTreeMap<i64, Vec<bool>> = BTreeMap::new();
        for (at, term) in terms.iter().enumerate() {
            let Some(mut wanted) = asked(term) else { return Ok(false) };
            let of_session = |found: &&Found| found.number == place.number && found.terms[at];
            let mut left = OF_A_TERM_MAX.saturating_sub(self.found.iter().filter(of_session).count());
            if left == 0 {
                continue;
            }
            if let Some(role) = self.query.role {
                wanted = format!("{wanted} \"{}\"", role_word(role));
            }
            let mut rows = statement.query((wanted, range.0, range.1))?;
            while left > 0
                && let Some(row) = rows.next()?
            {
                let seq = seq_of(row.get(0)?);
                if place.has(seq) {
                    of_entry.entry(seq).or_insert_with(|| vec![false; terms.len()])[at] = true;
                    left -= 1;
                }
            }
        }
        let session = place.session;
        let found = of_entry.into_iter().rev();
        self.found.extend(found.map(|(seq, terms)| Found {
            session: session.clone(),
            number: place.number,
            seq,
            hit: None,
            terms,
        }));
        Ok(true)
    }

    /// Reads records, newest first.
    fn read(&mut self, place: Place<'_>, records: Range) -> Result<(), Fault> {
        let mut statement = self.db.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM record WHERE session = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq DESC"
        ))?;
        let mut rows = statement.query((place.number, records.first, records.last))?;
        while let Some(row) = rows.next()? {
            let seq = row.get(0)?;
            self.reads_left = self.reads_left.saturating_sub(1);
            if place.has(seq)
                && let Some(document) = index::document(self.db, place.session, place.number, row)?
            {
                self.bytes_left = self.bytes_left.saturating_sub(document.text.len());
                if self.look(place, seq, &document)
                    && index::repeats(self.db, place.session, place.number, &document, &[])?
                {
                    self.found.pop();
                }
            }
            if self.is_full() {
                break;
            }
        }
        Ok(())
    }

    fn read_one(&mut self, document: &Document) {
        self.reads_left = self.reads_left.saturating_sub(1);
        self.bytes_left = self.bytes_left.saturating_sub(document.text.len());
    }

    /// Adds an entry if it matches.
    fn look(&mut self, place: Place<'_>, seq: i64, document: &Document) -> bool {
        let Some((hit, terms)) = self.query.hit(place.session, seq.cast_unsigned(), document) else { return false };
        let (session, number) = (place.session.clone(), place.number);
        self.found.push(Found { session, number, seq, hit: Some(hit), terms });
        true
    }

    /// Returns the best matches. Only these are read.
    fn ranked(mut self, limit: usize) -> Result<Hits, Fault> {
        let is_partial = self.is_spent();
        let found = std::mem::take(&mut self.found);
        let mut by_terms: Vec<(Found, Vec<bool>)> = found
            .into_iter()
            .map(|mut found| {
                let terms = std::mem::take(&mut found.terms);
                (found, terms)
            })
            .collect();
        rank(&mut by_terms, self.query.query.len(), |found| found.seq.cast_unsigned());
        let mut hits = Vec::new();
        for (found, _) in by_terms {
            if hits.len() > limit {
                break;
            }
            if found.hit.is_some() {
                hits.extend(found.hit);
            } else if let Some(document) = index::document_at(self.db, &found.session, found.number, found.seq)? {
                hits.extend(self.query.hit(&found.session, found.seq.cast_unsigned(), &document).map(|(hit, _)| hit));
            }
        }
        Ok(Hits::first(hits, limit, is_partial))
    }
}

/// Returns the FTS5 expression for a term; `None` if it would have to scan most words. A word consists of letters and
/// digits, so nothing in it is FTS5 syntax.
pub(super) fn asked(term: &Term) -> Option<String> {
    let star = if term.is_prefix { " *" } else { "" };
    (!term.is_broad()).then(|| format!("\"{}\"{star}", term.words.join(" ")))
}
