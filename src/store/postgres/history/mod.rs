//! The search index for the text of entries.
//!
//! A session's log is divided into blocks of some dozens of records; the last block may still grow. A row of `words`
//! holds the distinct words of a block's entries in order, as [`crate::search`] splits them. So every language
//! is searched as in the other stores, whatever the encoding of the database. A search first finds the blocks that
//! contain its words, and reads only their entries. Records that are in no block are not indexed yet, and are read.
//!
//! So nothing waits for the index: a background task fills it. Everything in it derives from the records.

mod find;
mod index;

pub(super) use find::search;
pub(super) use index::{BLOCK, Indexer};

use super::{fault::Fault, readers::Db};
use crate::search::range::Range;
use reseed_protocol::EntryId;
use std::collections::BTreeMap;

/// Separates the words of a row, and stands at both its ends. No word contains it.
const SEPARATOR: char = '\n';

/// Returns the ranges in which all entries are on the path to this one, newest first; none if the entry does not exist.
/// Nearly every entry is a child of the previous one, so a path is a few ranges, each of which starts at an entry that
/// is not.
async fn path_to(db: &Db, number: i64, to: &EntryId) -> Result<Vec<Range>, Fault> {
    let sql = "SELECT seq FROM record WHERE session = $1 AND entry = $2";
    let Some(row) = db.row(sql, &[&number, &to.as_str()]).await? else { return Ok(Vec::new()) };
    let mut next: Option<i64> = Some(row.try_get(0)?);
    // The positions where a range may start, and the position of the parent there.
    let jumps = "SELECT r.seq, p.seq FROM record r LEFT JOIN record p ON p.session = $1 AND p.entry = r.parent \
                 WHERE r.session = $1 AND r.parent IS NOT NULL AND NOT r.follows \
                 UNION ALL SELECT r.seq, NULL FROM record r WHERE r.session = $1 AND r.parent IS NULL \
                 AND r.entry IS NOT NULL";
    let mut starts: BTreeMap<i64, Option<i64>> = BTreeMap::new();
    for row in db.rows(jumps, &[&number]).await? {
        starts.insert(row.try_get(0)?, row.try_get(1)?);
    }
    let mut ranges = Vec::new();
    while let Some(last) = next {
        // Each start is visited once, even in a cycle.
        let Some(first) = starts.range(..=last).next_back().map(|(first, _)| *first) else { break };
        next = starts.remove(&first).flatten();
        ranges.push(Range { first, last });
    }
    // In an imported file, a parent may come after its child.
    ranges.sort_by_key(|range| std::cmp::Reverse(range.first));
    Ok(ranges)
}
