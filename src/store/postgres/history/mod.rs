//! The index by which the text of entries is searched.
//!
//! The log of a session is cut into blocks of some dozens of records, the last of which may still grow. A row of
//! `words` holds the words of a block's entries, each once, in order, as [`crate::store::search`] cuts them: so every
//! language is searched as in the other stores, whatever the encoding of the database. A search first finds the blocks
//! that have the words it asks for, and reads only their entries. What no row names is not indexed yet, and is read.
//!
//! So nothing waits for the index: a task fills it in the background. Everything in it follows from the records.

mod find;
mod index;

pub(super) use find::search;
pub(super) use index::{BLOCK, Indexer};

use super::{fault::Fault, readers::Db};
use crate::store::search::range::Range;
use reseed_protocol::EntryId;
use std::collections::BTreeMap;

/// Separates the words of a row, and stands at its beginning and end. No word has it.
const SEPARATOR: char = '\n';

/// Returns the ranges in which all entries are on the path to this one, newest first; none if it does not exist. Nearly
/// every entry is a child of the one before it, so a path is a few ranges, each from an entry that is not.
async fn path_to(db: &Db, number: i64, to: &EntryId) -> Result<Vec<Range>, Fault> {
    let sql = "SELECT seq FROM record WHERE session = $1 AND entry = $2";
    let Some(row) = db.row(sql, &[&number, &to.as_str()]).await? else { return Ok(Vec::new()) };
    let mut next: Option<i64> = Some(row.try_get(0)?);
    // Where a range may begin, and the place of the parent there.
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
        // Each start is passed once, also in a cycle.
        let Some(first) = starts.range(..=last).next_back().map(|(first, _)| *first) else { break };
        next = starts.remove(&first).flatten();
        ranges.push(Range { first, last });
    }
    // In an imported file, a parent may come after its child.
    ranges.sort_by_key(|range| std::cmp::Reverse(range.first));
    Ok(ranges)
}
