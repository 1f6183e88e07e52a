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
use crate::search::range::{Range, on_path};
use reseed_protocol::EntryId;
use std::collections::BTreeMap;

/// Separates the words of a row, and stands at both its ends. No word contains it.
const SEPARATOR: char = '\n';

/// Returns the ranges in which all entries are on the path to this one, newest first; none if the entry does not exist.
async fn path_to(db: &Db, number: i64, to: &EntryId) -> Result<Vec<Range>, Fault> {
    let sql = "SELECT seq FROM record WHERE session = $1 AND entry = $2";
    let Some(row) = db.row(sql, &[&number, &to.as_str()]).await? else { return Ok(Vec::new()) };
    // The positions where a range may start, and the position of the parent there.
    let jumps = "SELECT r.seq, p.seq FROM record r LEFT JOIN record p ON p.session = $1 AND p.entry = r.parent \
                 WHERE r.session = $1 AND r.parent IS NOT NULL AND NOT r.follows \
                 UNION ALL SELECT r.seq, NULL FROM record r WHERE r.session = $1 AND r.parent IS NULL \
                 AND r.entry IS NOT NULL";
    let mut starts = BTreeMap::new();
    for row in db.rows(jumps, &[&number]).await? {
        starts.insert(row.try_get(0)?, row.try_get(1)?);
    }
    Ok(on_path(starts, row.try_get(0)?))
}
