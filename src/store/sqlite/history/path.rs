//! The path to an entry, as ranges of the log.
//!
//! Nearly every entry is a child of the previous entry in the log, and is marked as such. A path therefore consists of
//! a few ranges. Each starts at an entry that does not follow its parent, and ends at an entry on the path. The cost
//! depends on the number of such starts, not on the length of the session.

use super::Range;
use crate::sqlite::Fault;
use reseed_protocol::EntryId;
use rusqlite::{Connection, OptionalExtension as _};
use std::collections::BTreeMap;

/// The entries with a parent that do not follow it in the log.
const JUMPS: &str = "SELECT seq, parent FROM record WHERE session = ?1 AND parent > '' AND follows IS NULL";

/// The entries without a parent.
const ROOTS: &str = "
SELECT seq FROM record INDEXED BY record_root WHERE session = ?1 AND parent IS NULL AND entry IS NOT NULL";

/// Returns the ranges in which all entries are on the path to this one, newest first; none if the entry does not exist.
pub(super) fn ranges(db: &Connection, number: i64, to: &EntryId) -> Result<Vec<Range>, Fault> {
    let mut starts: BTreeMap<i64, Option<String>> = BTreeMap::new();
    let mut jumps = db.prepare_cached(JUMPS)?;
    let mut rows = jumps.query([number])?;
    while let Some(row) = rows.next()? {
        starts.insert(row.get(0)?, Some(row.get(1)?));
    }
    let mut roots = db.prepare_cached(ROOTS)?;
    let mut rows = roots.query([number])?;
    while let Some(row) = rows.next()? {
        starts.insert(row.get(0)?, None);
    }
    let mut place = db.prepare_cached("SELECT seq FROM record WHERE session = ?1 AND entry = ?2")?;
    let mut ranges = Vec::new();
    let mut next = Some(to.as_str().to_owned());
    while let Some(entry) = next {
        let Some(last) = place.query_row((number, &entry), |row| row.get(0)).optional()? else { break };
        // Each start is visited once, even in a cycle.
        let Some(first) = starts.range(..=last).next_back().map(|(first, _)| *first) else { break };
        next = starts.remove(&first).flatten();
        ranges.push(Range { first, last });
    }
    // In an imported file, a parent may come after its child.
    ranges.sort_by_key(|range| std::cmp::Reverse(range.first));
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::{JUMPS, ROOTS};
    use crate::sqlite::schema;
    use rusqlite::Connection;

    #[test]
    fn a_path_is_found_by_indexes() {
        let mut db = Connection::open_in_memory().unwrap();
        schema::migrate(&mut db).unwrap();
        for (sql, want) in [(JUMPS, "_parent (session=? AND parent>?)"), (ROOTS, "_root (session=?)")] {
            let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let plan: Vec<String> = statement.raw_query().mapped(|row| row.get(3)).collect::<Result<_, _>>().unwrap();
            assert_eq!(plan, [format!("SEARCH record USING INDEX record{want}")], "{sql}");
        }
    }
}
