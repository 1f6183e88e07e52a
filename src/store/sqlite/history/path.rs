//! The path to an entry, as ranges of the log.
//!
//! Nearly every entry is a child of the previous entry in the log, and is marked as such. A path therefore consists of
//! a few ranges. Each starts at an entry that does not follow its parent, and ends at an entry on the path. The cost
//! depends on the number of such starts, not on the length of the session.

use super::Range;
use crate::{search::range::on_path, sqlite::Fault};
use reseed_protocol::EntryId;
use rusqlite::{Connection, OptionalExtension as _};
use std::collections::BTreeMap;

/// The entries with a parent that do not follow it in the log, and the positions of their parents.
const JUMPS: &str = "
SELECT below.seq, above.seq FROM record AS below LEFT JOIN record AS above
    ON above.session = ?1 AND above.entry = below.parent
WHERE below.session = ?1 AND below.parent > '' AND below.follows IS NULL";

/// The entries without a parent.
const ROOTS: &str = "
SELECT seq, NULL FROM record INDEXED BY record_root WHERE session = ?1 AND parent IS NULL AND entry IS NOT NULL";

/// Returns the ranges in which all entries are on the path to this one, newest first; none if the entry does not exist.
pub(super) fn ranges(db: &Connection, number: i64, to: &EntryId) -> Result<Vec<Range>, Fault> {
    let mut place = db.prepare_cached("SELECT seq FROM record WHERE session = ?1 AND entry = ?2")?;
    let Some(to) = place.query_row((number, to.as_str()), |row| row.get(0)).optional()? else { return Ok(Vec::new()) };
    let mut starts = BTreeMap::new();
    for sql in [JUMPS, ROOTS] {
        let mut statement = db.prepare_cached(sql)?;
        let mut rows = statement.query([number])?;
        while let Some(row) = rows.next()? {
            starts.insert(row.get(0)?, row.get(1)?);
        }
    }
    Ok(on_path(starts, to))
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
        let jumps = [
            "SEARCH below USING INDEX record_parent (session=? AND parent>?)",
            "SEARCH above USING INDEX record_entry (session=? AND entry=?) LEFT-JOIN",
        ];
        for (sql, want) in [(JUMPS, &jumps[..]), (ROOTS, &["SEARCH record USING INDEX record_root (session=?)"])] {
            let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let plan: Vec<String> = statement.raw_query().mapped(|row| row.get(3)).collect::<Result<_, _>>().unwrap();
            assert_eq!(plan, want, "{sql}");
        }
    }
}
