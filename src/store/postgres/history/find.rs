//! Searches: finds the blocks that may contain a match, and reads their entries.

use super::{BLOCK, Range, SEPARATOR, path_to};
use crate::{
    Error, Hits, ListQuery, SearchQuery, SearchScope,
    checksum::int,
    postgres::{PostgresStore, fault::Fault, read, readers::Db},
    search::{SEARCHED_MAX, SESSIONS_MAX, Scan, Term},
};
use reseed_protocol::SessionId;
use std::{collections::HashMap, sync::Arc};
use tokio_postgres::Row;

/// The most records, and bytes of them, that a search reads. A search that stops there reports that there may be more.
const READS_MAX: u32 = 10_000;
const READ_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The number of an owner's sessions that are listed and looked up in the index together. The first page is small,
/// because most searches end there.
const LIST_PAGE: u32 = 100;
const NEXT_PAGE: u32 = 500;

/// The most blocks that a search of several sessions looks through, each counted once per word. This many take about
/// two seconds.
const LOOKS_MAX: usize = 100_000;

/// The same limit for one statement, estimated from the lengths of the sessions. It keeps the statement far from its
/// timeout.
const STATEMENT_LOOKS_MAX: usize = 10_000;

/// The number of words of a term that are looked up in the index; the longest are chosen. Entries are compared with the
/// whole term.
const NEEDLES_OF_TERM: usize = 3;

pub(in crate::postgres) async fn search(store: &PostgresStore, query: &SearchQuery) -> Result<Hits, Error> {
    let scan = Scan::new(store, query, READS_MAX, READ_BYTES_MAX);
    let asked = Asked::of(query);
    let mut search = Search { store, query, asked, scan, searched_left: SEARCHED_MAX, looks_left: LOOKS_MAX };
    let is_partial = match &query.scope {
        SearchScope::Session(session) => {
            // This also reports damage.
            let head = async |db: Arc<Db>| read::head(&db, session).await.map_err(|fault| fault.of(session));
            let found = store.readers.read(head).await?;
            if query.is_empty() {
                return Ok(Hits::default());
            }
            search.sessions(&[(session.clone(), found.number, int(found.head.last_seq))]).await?
        }
        SearchScope::Owner(_) if query.is_empty() => return Ok(Hits::default()),
        SearchScope::Owner(owner) => search.all_of(owner).await?,
    };
    Ok(search.scan.hits(is_partial))
}

/// What a block must contain, as byte strings to be found in its words.
struct Asked {
    needles: Vec<Vec<u8>>,
    /// The needles of each term.
    of_terms: Vec<Vec<usize>>,
}

impl Asked {
    fn of(query: &SearchQuery) -> Self {
        let (mut needles, mut of_terms) = (Vec::new(), Vec::new());
        for term in &query.query.terms {
            let places = needles_of(term).into_iter().map(|needle| {
                needles.iter().position(|known| *known == needle).unwrap_or_else(|| {
                    needles.push(needle);
                    needles.len() - 1
                })
            });
            of_terms.push(places.collect());
        }
        Self { needles, of_terms }
    }

    /// Returns true if a block that has these needles may contain a match.
    fn fits(&self, has: &[bool], any: bool) -> bool {
        let mut terms = self.of_terms.iter().map(|term| term.iter().all(|at| has.get(*at).copied().unwrap_or(true)));
        if any { terms.any(|fits| fits) } else { terms.all(|fits| fits) }
    }
}

fn needles_of(term: &Term) -> Vec<Vec<u8>> {
    let last = term.words.len().saturating_sub(1);
    let mut needles: Vec<Vec<u8>> = term
        .words
        .iter()
        .enumerate()
        .map(|(at, word)| {
            let end = if at == last && term.is_prefix { String::new() } else { SEPARATOR.to_string() };
            format!("{SEPARATOR}{word}{end}").into_bytes()
        })
        .collect();
    needles.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
    needles.truncate(NEEDLES_OF_TERM);
    needles
}

/// A session, its number and its newest `seq`.
type Place = (SessionId, i64, i64);

struct Search<'a> {
    store: &'a PostgresStore,
    query: &'a SearchQuery,
    asked: Asked,
    scan: Scan<'a, PostgresStore>,
    /// The number of sessions whose entries may still be read.
    searched_left: u32,
    looks_left: usize,
}

impl Search<'_> {
    /// Searches an owner's sessions. Returns true if some were left out.
    async fn all_of(&mut self, owner: &str) -> Result<bool, Error> {
        let mut list = ListQuery { owner: Some(owner.to_owned()), limit: LIST_PAGE, ..ListQuery::default() };
        let mut sessions_left = SESSIONS_MAX as usize;
        loop {
            let query = &list;
            let page = self.store.readers.read(|db| async move { read::list_numbered(&db, query).await });
            let (page, next_cursor) = page.await?;
            let mut sessions: Vec<Place> =
                page.into_iter().map(|found| (found.head.session, found.number, int(found.head.last_seq))).collect();
            sessions.truncate(sessions_left);
            sessions_left -= sessions.len();
            let mut rest = sessions.as_slice();
            while !rest.is_empty() && !self.scan.is_full() {
                let portion;
                (portion, rest) = rest.split_at(self.portion(rest));
                if self.looks_left == 0 || self.sessions(portion).await? {
                    return Ok(true);
                }
            }
            match next_cursor {
                Some(_) if sessions_left == 0 => return Ok(true),
                Some(cursor) if !self.scan.is_full() => {
                    list = ListQuery { cursor: Some(cursor), limit: NEXT_PAGE, ..list };
                }
                _ => return Ok(false),
            }
        }
    }

    /// Returns how many of these sessions are looked up together.
    fn portion(&self, sessions: &[Place]) -> usize {
        let mut looks = 0;
        let fits = |(_, _, last_seq): &&Place| {
            let blocks = usize::try_from(*last_seq / i64::from(BLOCK) + 1).unwrap_or(usize::MAX);
            looks = blocks.saturating_mul(self.asked.needles.len()).saturating_add(looks);
            looks <= STATEMENT_LOOKS_MAX
        };
        sessions.iter().take_while(fits).count().max(1)
    }

    /// Searches sessions one after the other, after one look-up in the index for all of them. Returns true if some were
    /// left out.
    async fn sessions(&mut self, sessions: &[Place]) -> Result<bool, Error> {
        let numbers: &Vec<i64> = &sessions.iter().map(|(_, number, _)| *number).collect();
        // The result is parallel to `needles`; `position` compares bytes.
        let sql = "SELECT session, first_seq, last_seq, ARRAY(SELECT position(n.needle IN w.words) > 0 \
                   FROM unnest($2::bytea[]) WITH ORDINALITY AS n(needle, at) ORDER BY n.at) \
                   FROM unnest($1::bigint[]) AS i(number) JOIN words w ON w.session = i.number \
                   ORDER BY session, first_seq";
        let needles = &self.asked.needles;
        let rows = self.store.readers.read(|db| async move { db.rows(sql, &[numbers, needles]).await }).await?;
        self.looks_left = self.looks_left.saturating_sub(rows.len() * needles.len());
        let mut blocks: HashMap<i64, Vec<(Range, bool)>> = HashMap::new();
        for row in &rows {
            let (number, range, has) = block(row)?;
            blocks.entry(number).or_default().push((range, self.asked.fits(&has, self.query.any)));
        }
        for (session, number, last_seq) in sessions {
            let ranges = candidates(blocks.get(number).map_or(&[], Vec::as_slice), *last_seq);
            if ranges.is_empty() {
                continue;
            }
            if self.scan.is_full() {
                return Ok(false);
            }
            if self.searched_left == 0 {
                return Ok(true);
            }
            self.searched_left -= 1;
            match self.session(session, *number, *last_seq, ranges).await {
                // The session was deleted since it was listed.
                Err(Error::NotFound(_)) if matches!(self.query.scope, SearchScope::Owner(_)) => {}
                done => done?,
            }
        }
        Ok(false)
    }

    async fn session(
        &mut self,
        session: &SessionId,
        number: i64,
        last_seq: i64,
        mut ranges: Vec<Range>,
    ) -> Result<(), Error> {
        let last = self.query.before_seq.map_or(last_seq, |before| int(before).saturating_sub(1).min(last_seq));
        let wanted = Range { first: 1, last };
        ranges = ranges.into_iter().filter_map(|range| range.and(wanted)).collect();
        let in_session = matches!(self.query.scope, SearchScope::Session(_));
        if let Some(entry) = self.query.on_path_to.as_ref().filter(|_| in_session) {
            let path = self.store.readers.read(|db| async move { path_to(&db, number, entry).await }).await?;
            ranges = path.iter().flat_map(|on| ranges.iter().filter_map(|range| range.and(*on))).collect();
        }
        self.scan.ranges(session, &ranges).await
    }
}

/// Reads a row about a block: its session's number, its range, and which needles it has.
fn block(row: &Row) -> Result<(i64, Range, Vec<bool>), Fault> {
    Ok((row.try_get(0)?, Range { first: row.try_get(1)?, last: row.try_get(2)? }, row.try_get(3)?))
}

/// Returns the ranges to read, newest first: blocks that may match, and records that are in no block. Adjacent ranges
/// are joined.
fn candidates(blocks: &[(Range, bool)], last_seq: i64) -> Vec<Range> {
    let (mut ranges, mut next) = (Vec::<Range>::new(), 1);
    let mut add = |range: Range| match ranges.last_mut() {
        Some(before) if before.last + 1 == range.first => before.last = range.last,
        _ => ranges.push(range),
    };
    for (block, fits) in blocks {
        if block.first > next {
            add(Range { first: next, last: block.first - 1 });
        }
        if *fits && block.last >= next {
            add(Range { first: block.first.max(next), last: block.last });
        }
        next = next.max(block.last + 1);
    }
    if next <= last_seq {
        add(Range { first: next, last: last_seq });
    }
    ranges.reverse();
    ranges
}

#[cfg(test)]
mod tests {
    use super::{Range, candidates};

    #[test]
    fn records_outside_any_block_are_read() {
        let block = |first, last, fits| (Range { first, last }, fits);
        let cases = [
            (vec![], 9, "1-9"),
            (vec![], 0, ""),
            (vec![block(1, 4, false)], 4, ""),
            (vec![block(1, 4, false)], 6, "5-6"),
            (vec![block(1, 4, true)], 6, "1-6"),
            (
                vec![block(1, 4, true), block(5, 8, false), block(11, 12, false), block(13, 20, true)],
                25,
                "13-25 9-10 1-4",
            ),
        ];
        for (blocks, last_seq, want) in cases {
            let found = candidates(&blocks, last_seq);
            let found: Vec<_> = found.iter().map(|range| format!("{}-{}", range.first, range.last)).collect();
            assert_eq!(found.join(" "), want, "{blocks:?} {last_seq}");
        }
    }
}
