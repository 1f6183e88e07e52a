//! Searches: finds the blocks that may contain a match, and reads their entries.

use super::{BLOCK, Range, SEPARATOR, path_to};
use crate::{
    Error, Hit, Hits, ListQuery, Part, SearchQuery, SearchScope, StoredRecord,
    checksum::int,
    postgres::{fault::Fault, read, readers::Db, tree::Tree},
    search::{CALL_STEPS_MAX, Document, SEARCHED_MAX, SESSIONS_MAX, Term, rank},
    whole_mark,
};
use reseed_protocol::SessionId;
use std::collections::HashMap;

/// The most records, and bytes of them, that a search reads. A search that stops there reports that there may be more.
const READS_MAX: u32 = 10_000;
const READ_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The most records, and bytes of them, that one statement reads.
const PAGE: u32 = 256;
const PAGE_BYTES_MAX: usize = 1024 * 1024;

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

pub(in crate::postgres) async fn search(db: &Db, query: &SearchQuery) -> Result<Hits, Fault> {
    let limit = query.hits_max();
    let mut search = Search {
        db,
        query,
        asked: Asked::of(query),
        found: Vec::new(),
        reads_left: READS_MAX,
        bytes_left: READ_BYTES_MAX,
        searched_left: SEARCHED_MAX,
        looks_left: LOOKS_MAX,
    };
    match &query.scope {
        SearchScope::Session(session) => {
            // This also reports damage.
            let found = read::head(db, session).await?;
            if query.query.is_empty() || limit == 0 {
                return Ok(Hits::default());
            }
            search.sessions(&[(session.clone(), found.number, int(found.head.last_seq))]).await?;
        }
        SearchScope::Owner(_) if query.query.is_empty() || limit == 0 => return Ok(Hits::default()),
        SearchScope::Owner(owner) => search.all_of(owner).await?,
    }
    let is_partial = search.is_spent();
    let mut found = search.found;
    if query.any {
        rank(&mut found, query.query.len(), |hit| hit.seq);
    }
    Ok(Hits::first(found.into_iter().map(|(hit, _)| hit).collect(), limit, is_partial))
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
    db: &'a Db,
    query: &'a SearchQuery,
    asked: Asked,
    /// The hits, each with the terms that it contains.
    found: Vec<(Hit, Vec<bool>)>,
    reads_left: u32,
    bytes_left: usize,
    /// The number of sessions whose entries may still be read.
    searched_left: u32,
    looks_left: usize,
}

impl Search<'_> {
    fn is_spent(&self) -> bool {
        self.reads_left == 0 || self.bytes_left == 0
    }

    /// Returns true if nothing more needs to be read.
    fn is_full(&self) -> bool {
        self.is_spent() || !self.query.any && self.found.len() > self.query.hits_max()
    }

    async fn all_of(&mut self, owner: &str) -> Result<(), Fault> {
        let mut list = ListQuery { owner: Some(owner.to_owned()), limit: LIST_PAGE, ..ListQuery::default() };
        let mut sessions_left = SESSIONS_MAX as usize;
        loop {
            let (page, next_cursor) = read::list_numbered(self.db, &list).await?;
            let mut sessions: Vec<Place> =
                page.into_iter().map(|found| (found.head.session, found.number, int(found.head.last_seq))).collect();
            sessions.truncate(sessions_left);
            sessions_left -= sessions.len();
            let mut rest = sessions.as_slice();
            while !rest.is_empty() && !self.is_full() && self.looks_left > 0 {
                let portion;
                (portion, rest) = rest.split_at(self.portion(rest));
                self.sessions(portion).await?;
            }
            match next_cursor {
                _ if self.is_full() => return Ok(()),
                _ if !rest.is_empty() => {
                    self.reads_left = 0;
                    return Ok(());
                }
                Some(_) if sessions_left == 0 || self.searched_left == 0 || self.looks_left == 0 => {
                    self.reads_left = 0;
                    return Ok(());
                }
                Some(cursor) => list = ListQuery { cursor: Some(cursor), limit: NEXT_PAGE, ..list },
                None => return Ok(()),
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

    /// Searches sessions one after the other, after one look-up in the index for all of them.
    async fn sessions(&mut self, sessions: &[Place]) -> Result<(), Fault> {
        let numbers: Vec<i64> = sessions.iter().map(|(_, number, _)| *number).collect();
        // The result is parallel to `needles`; `position` compares bytes.
        let sql = "SELECT session, first_seq, last_seq, ARRAY(SELECT position(n.needle IN w.words) > 0 \
                   FROM unnest($2::bytea[]) WITH ORDINALITY AS n(needle, at) ORDER BY n.at) \
                   FROM unnest($1::bigint[]) AS i(number) JOIN words w ON w.session = i.number \
                   ORDER BY session, first_seq";
        let rows = self.db.rows(sql, &[&numbers, &self.asked.needles]).await?;
        self.looks_left = self.looks_left.saturating_sub(rows.len() * self.asked.needles.len());
        let mut blocks: HashMap<i64, Vec<(Range, bool)>> = HashMap::new();
        for row in &rows {
            let has: Vec<bool> = row.try_get(3)?;
            let range = Range { first: row.try_get(1)?, last: row.try_get(2)? };
            blocks.entry(row.try_get(0)?).or_default().push((range, self.asked.fits(&has, self.query.any)));
        }
        for (session, number, last_seq) in sessions {
            let ranges = candidates(blocks.get(number).map_or(&[], Vec::as_slice), *last_seq);
            if ranges.is_empty() {
                continue;
            }
            if self.is_full() {
                return Ok(());
            }
            if self.searched_left == 0 {
                self.reads_left = 0;
                return Ok(());
            }
            self.searched_left -= 1;
            match self.session(session, *number, *last_seq, ranges).await {
                // The session was deleted since it was listed.
                Err(Fault::Refused(Error::NotFound(_))) if matches!(self.query.scope, SearchScope::Owner(_)) => {}
                done => done?,
            }
        }
        Ok(())
    }

    async fn session(
        &mut self,
        session: &SessionId,
        number: i64,
        last_seq: i64,
        mut ranges: Vec<Range>,
    ) -> Result<(), Fault> {
        let last = self.query.before_seq.map_or(last_seq, |before| int(before).saturating_sub(1).min(last_seq));
        let wanted = Range { first: 1, last };
        ranges = ranges.into_iter().filter_map(|range| range.and(wanted)).collect();
        let in_session = matches!(self.query.scope, SearchScope::Session(_));
        if let Some(entry) = self.query.on_path_to.as_ref().filter(|_| in_session) {
            let path = path_to(self.db, number, entry).await?;
            ranges = path.iter().flat_map(|on| ranges.iter().filter_map(|range| range.and(*on))).collect();
        }
        for range in ranges {
            let mut before = range.last + 1;
            while before > range.first && !self.is_full() {
                let most = u32::try_from(before - range.first).unwrap_or(PAGE).min(PAGE).min(self.reads_left);
                let (records, oldest) = self.read(session, before, most).await?;
                let Some(oldest) = oldest else { break };
                before = oldest;
                for record in records {
                    if record.seq.cast_signed() >= range.first && !self.is_full() {
                        self.look(session, number, &record).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads entries before a position, newest first, and skips damaged ones. Returns the position at which to
    /// continue; `None` at the end.
    async fn read(
        &mut self,
        session: &SessionId,
        before: i64,
        most: u32,
    ) -> Result<(Vec<StoredRecord>, Option<i64>), Fault> {
        let before = before.cast_unsigned();
        let window = (Some(before), None);
        let (mut records, oldest) = match read::window(self.db, session, window, most, PAGE_BYTES_MAX).await {
            Ok(page) => {
                let oldest = page.records.first().map(|record| record.seq.cast_signed());
                (page.records, oldest)
            }
            Err(Fault::Refused(Error::Damaged { part: Part::Record(seq), .. })) => {
                let near = (Some(before), Some(seq));
                let page = read::window(self.db, session, near, most, PAGE_BYTES_MAX).await;
                (page.map(|page| page.records).unwrap_or_default(), Some(seq.cast_signed()))
            }
            Err(fault) => return Err(fault),
        };
        self.reads_left = self.reads_left.saturating_sub(u32::try_from(records.len()).unwrap_or(u32::MAX));
        let bytes: usize = records.iter().map(|record| record.body.len()).sum();
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
        records.reverse();
        Ok((records, oldest))
    }

    async fn look(&mut self, session: &SessionId, number: i64, record: &StoredRecord) -> Result<(), Fault> {
        let Some(document) = document(self.db, session, record).await? else { return Ok(()) };
        if let Some(hit) = self.query.hit(session, record.seq, &document)
            && !self.repeats(session, number, &document).await?
        {
            self.found.push(hit);
        }
        Ok(())
    }

    /// Returns true for the results of the history tools.
    async fn repeats(&self, session: &SessionId, number: i64, document: &Document) -> Result<bool, Fault> {
        let (Some(call), Some(parent)) = (&document.answers, &document.parent) else { return Ok(false) };
        let tree = Tree::new(self.db, session, number);
        let above = match tree.path(parent, CALL_STEPS_MAX, PAGE_BYTES_MAX).await {
            Ok(page) => page.records,
            Err(Fault::Refused(Error::Damaged { .. })) => return Ok(false),
            Err(fault) => return Err(fault),
        };
        Ok(above.iter().find_map(|record| Document::of(&record.body)?.makes(call)).unwrap_or(false))
    }
}

/// Returns the searched text of a record. If the record holds only a part of a tool's result, the whole result is
/// included.
pub(super) async fn document(db: &Db, session: &SessionId, record: &StoredRecord) -> Result<Option<Document>, Fault> {
    let Some(mut document) = Document::of(&record.body) else { return Ok(None) };
    if document.is_cut
        && let Some(mark) = read::command(db, session, &whole_mark(&document.entry)).await?
    {
        document.text = mark.reply.to_string();
    }
    Ok(Some(document))
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
