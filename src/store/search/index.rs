//! The search index, the same in every store that has one.
//!
//! A session's log is divided into blocks of some dozens of records; the last block may still grow. A row of the table
//! `words` holds the distinct words of a block's entries in order, as [`super::words`] splits them. So every language
//! is searched alike, whatever the database can do. A search first finds the blocks that contain its words, and reads
//! only their entries. Records that are in no block are not indexed yet, and are read. So nothing waits for the index:
//! it is filled in the background. Everything in it derives from the records.

use super::{Query, SEARCHED_MAX, SESSIONS_MAX, Scan, query::Term, range::Range, words};
use crate::{Error, Hits, ListQuery, SearchQuery, SearchScope, SessionStore, checksum::int};
use reseed_protocol::{EntryId, SessionId};
use std::collections::{BTreeSet, HashMap};

/// The number of records in a block.
pub(crate) const BLOCK: u32 = 64;

/// The bytes of bodies after which a block ends early.
pub(crate) const BLOCK_BYTES: usize = 1024 * 1024;

/// Separates the words of a row, and stands at both its ends. No word contains it.
const SEPARATOR: char = '\n';

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

/// The same limit for one look-up, estimated from the lengths of the sessions. It keeps a statement far from its
/// timeout.
const LOOKS_AT_ONCE_MAX: usize = 10_000;

/// The number of blocks that are read for each term if some terms suffice: a session's newest. So a common word does
/// not keep the entries with a rare one from being found.
const BLOCKS_OF_TERM: u32 = 16;

/// The number of words of a term that are looked up in the index; the longest are chosen. Entries are compared with the
/// whole term.
const NEEDLES_OF_TERM: usize = 3;

/// A session as a search finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) session: SessionId,
    pub(crate) number: i64,
    pub(crate) last_seq: i64,
}

/// A block of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// The session's number.
    pub(crate) session: i64,
    pub(crate) records: Range,
    /// Whether each of the needles is among its words.
    pub(crate) has: Vec<bool>,
}

/// A store with an index.
pub(crate) trait Index: SessionStore {
    /// Finds a session, and reports a damaged one.
    fn place(&self, session: &SessionId) -> impl Future<Output = Result<Place, Error>> + Send;

    /// Lists sessions, without damaged ones, and returns the start of the next page.
    fn places(&self, list: &ListQuery) -> impl Future<Output = Result<(Vec<Place>, Option<String>), Error>> + Send;

    /// Looks these needles up in the blocks of these sessions, in the order of the log. A needle is a byte string to be
    /// found in the words of a block.
    fn blocks(&self, sessions: &[i64], needles: &[Vec<u8>]) -> impl Future<Output = Result<Vec<Block>, Error>> + Send;

    /// Returns the ranges in which all entries are on the path to this one, newest first; none if the entry does not
    /// exist.
    fn path(&self, session: i64, to: &EntryId) -> impl Future<Output = Result<Vec<Range>, Error>> + Send;
}

/// Collects the words of a block.
#[derive(Default)]
pub(crate) struct Words(BTreeSet<String>);

impl Words {
    /// Adds the words in the first bytes of a text.
    pub(crate) fn add(&mut self, text: &str, bytes_max: usize) {
        words::each(text, |word, place, _| {
            if !self.0.contains(word) {
                self.0.insert(word.to_owned());
            }
            place.end < bytes_max
        });
    }

    /// Returns the row's column.
    pub(crate) fn joined(&self) -> Vec<u8> {
        let mut joined = String::from(SEPARATOR);
        for word in &self.0 {
            joined.push_str(word);
            joined.push(SEPARATOR);
        }
        joined.into_bytes()
    }
}

/// Answers a search with the index of a store.
///
/// # Errors
/// As [`SessionStore::search`].
pub(crate) async fn search<S: Index>(store: &S, query: &SearchQuery) -> Result<Hits, Error> {
    let scan = Scan::new(store, query, READS_MAX, READ_BYTES_MAX);
    let asked = Asked::of(&query.query);
    let (searched_left, looks_left) = (SEARCHED_MAX, LOOKS_MAX);
    let mut search = Search { store, query, asked, scan, searched_left, looks_left, leaves_out: false };
    let is_partial = match &query.scope {
        SearchScope::Session(session) => {
            let place = store.place(session).await?;
            if query.is_empty() {
                return Ok(Hits::default());
            }
            search.sessions(&[place]).await?
        }
        SearchScope::Owner(_) if query.is_empty() => return Ok(Hits::default()),
        SearchScope::Owner(owner) => search.all_of(owner).await?,
    };
    Ok(search.scan.hits(is_partial || search.leaves_out))
}

/// What a block must contain.
struct Asked {
    needles: Vec<Vec<u8>>,
    /// The needles of each term.
    of_terms: Vec<Vec<usize>>,
}

impl Asked {
    fn of(query: &Query) -> Self {
        let (mut needles, mut of_terms) = (Vec::new(), Vec::new());
        for term in &query.terms {
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

    /// Returns which of a session's blocks are read, and whether others that may match are left out. Hits can only be
    /// in the `wanted` ranges.
    fn choose(&self, blocks: &[Block], wanted: &[Range], any: bool) -> (Vec<(Range, bool)>, bool) {
        let (mut left, mut leaves_out) = (vec![BLOCKS_OF_TERM; self.of_terms.len()], false);
        let mut chosen = Vec::with_capacity(blocks.len());
        for block in blocks.iter().rev() {
            let has = |term: &Vec<usize>| term.iter().all(|at| block.has.get(*at).copied().unwrap_or(true));
            let mut is_read = wanted.iter().any(|range| range.and(block.records).is_some());
            if is_read && any {
                is_read = false;
                for (_, left) in self.of_terms.iter().zip(&mut left).filter(|(term, _)| has(term)) {
                    (is_read, leaves_out) = (is_read || *left > 0, leaves_out || *left == 0);
                    *left = left.saturating_sub(1);
                }
            } else {
                is_read = is_read && self.of_terms.iter().all(has);
            }
            chosen.push((block.records, is_read));
        }
        chosen.reverse();
        (chosen, leaves_out)
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

struct Search<'a, S> {
    store: &'a S,
    query: &'a SearchQuery,
    asked: Asked,
    scan: Scan<'a, S>,
    /// The number of sessions whose entries may still be read.
    searched_left: u32,
    looks_left: usize,
    /// True if blocks that may match were left out.
    leaves_out: bool,
}

impl<S: Index> Search<'_, S> {
    /// Searches an owner's sessions. Returns true if some were left out.
    async fn all_of(&mut self, owner: &str) -> Result<bool, Error> {
        let mut list = ListQuery { owner: Some(owner.to_owned()), limit: LIST_PAGE, ..ListQuery::default() };
        let mut sessions_left = SESSIONS_MAX as usize;
        loop {
            let (mut sessions, next_cursor) = self.store.places(&list).await?;
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
        let fits = |place: &&Place| {
            let blocks = usize::try_from(place.last_seq / i64::from(BLOCK) + 1).unwrap_or(usize::MAX);
            looks = blocks.saturating_mul(self.asked.needles.len()).saturating_add(looks);
            looks <= LOOKS_AT_ONCE_MAX
        };
        sessions.iter().take_while(fits).count().max(1)
    }

    /// Searches sessions one after the other, after one look-up in the index for all of them. Returns true if some were
    /// left out.
    async fn sessions(&mut self, sessions: &[Place]) -> Result<bool, Error> {
        let numbers: Vec<i64> = sessions.iter().map(|place| place.number).collect();
        let found = self.store.blocks(&numbers, &self.asked.needles).await?;
        self.looks_left = self.looks_left.saturating_sub(found.len() * self.asked.needles.len());
        let mut blocks: HashMap<i64, Vec<Block>> = HashMap::new();
        for block in found {
            blocks.entry(block.session).or_default().push(block);
        }
        for place in sessions {
            let wanted = self.wanted(place).await?;
            let blocks = blocks.get(&place.number).map_or(&[][..], Vec::as_slice);
            let (chosen, leaves_out) = self.asked.choose(blocks, &wanted, self.query.any);
            let ranges = candidates(&chosen, place.last_seq);
            let ranges: Vec<Range> =
                wanted.iter().flat_map(|on| ranges.iter().filter_map(|range| range.and(*on))).collect();
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
            self.leaves_out |= leaves_out;
            match self.scan.ranges(&place.session, &ranges).await {
                // The session was deleted since it was listed.
                Err(Error::NotFound(_)) if matches!(self.query.scope, SearchScope::Owner(_)) => {}
                done => done?,
            }
        }
        Ok(false)
    }

    /// Returns the ranges of a session in which hits may be, newest first.
    async fn wanted(&self, place: &Place) -> Result<Vec<Range>, Error> {
        let last = self.query.before_seq.map_or(place.last_seq, |before| int(before).saturating_sub(1));
        let bounds = Range { first: 1, last: last.min(place.last_seq) };
        let in_session = matches!(self.query.scope, SearchScope::Session(_));
        let wanted = match self.query.on_path_to.as_ref().filter(|_| in_session) {
            Some(entry) => self.store.path(place.number, entry).await?,
            None => vec![bounds],
        };
        Ok(wanted.into_iter().filter_map(|range| range.and(bounds)).collect())
    }
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
    use super::{Asked, BLOCKS_OF_TERM, Block, Query, Range, Words, candidates};

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

    /// The word `common` is in every block, and `rare` in the first one.
    #[test]
    fn a_common_word_does_not_hide_a_rare_one() {
        let asked = Asked::of(&Query::parse("common rare"));
        let last = 3 * i64::from(BLOCKS_OF_TERM);
        let records = |seq| Range { first: seq, last: seq };
        let blocks: Vec<Block> =
            (1..=last).map(|seq| Block { session: 1, records: records(seq), has: vec![true, seq == 1] }).collect();
        let chosen = |wanted: &[Range], any| {
            let (chosen, leaves_out) = asked.choose(&blocks, wanted, any);
            let read: Vec<i64> =
                chosen.into_iter().filter(|(_, is_read)| *is_read).map(|(range, _)| range.first).collect();
            (read, leaves_out)
        };
        let newest = |last: i64| last - i64::from(BLOCKS_OF_TERM) + 1..=last;
        let whole = [Range { first: 1, last }];
        assert_eq!(chosen(&whole, false), (vec![1], false));
        assert_eq!(chosen(&whole, true), ([1].into_iter().chain(newest(last)).collect(), true));
        // Blocks beyond the wanted ranges do not count.
        assert_eq!(chosen(&[Range { first: 2, last: 20 }], true), (newest(20).collect(), true));
        assert_eq!(chosen(&[records(9), records(7)], true), (vec![7, 9], false));
    }

    #[test]
    fn a_row_has_each_word_once_and_in_order() {
        let mut words = Words::default();
        words.add("two one two", usize::MAX);
        words.add("one three four", 4);
        assert_eq!(words.joined(), b"\none\nthree\ntwo\n");
        assert_eq!(Words::default().joined(), b"\n");
    }
}
