//! The tree as SQLite finds it: from an entry to its children.
//!
//! Children are found in an index, which carries no checksum; each record that it leads to does, and is compared with what
//! was asked for.

use super::{
    Fault,
    read::{self, int},
    record::{self, COLUMNS, PARENT},
};
use crate::store::walk::{Found, Links};
use reseed_protocol::{EntryId, SessionId};
use rusqlite::{Connection, Row};

/// The children of an entry with their places.
pub(super) const LINKS: &str = "SELECT seq, entry FROM record WHERE session = ?1 AND parent = ?2 ORDER BY seq";

/// How many children an entry has.
pub(super) const COUNT: &str = "SELECT count(*) FROM record WHERE session = ?1 AND parent = ?2";

/// The places of the roots, in no order. Those whose parent is not there are rare and not marked, so all parents of the
/// session are looked up: in the order of their index, which is that of the index of entries, and without reading a record.
pub(super) const ROOTS: &str = "
SELECT seq FROM record INDEXED BY record_root WHERE session = ?1 AND parent IS NULL AND entry IS NOT NULL
UNION ALL
SELECT seq FROM record AS below WHERE session = ?1 AND parent > ''
    AND NOT EXISTS (SELECT 1 FROM record AS above WHERE above.session = ?1 AND above.entry = below.parent)";

/// The children of an entry after a place.
pub(super) fn children_sql() -> String {
    format!("SELECT {COLUMNS} FROM record WHERE session = ?1 AND parent = ?2 AND seq > ?3 ORDER BY seq LIMIT ?4")
}

/// An index leads to a record, sound in itself, that is not the one that was asked for.
pub(super) const MISPLACED: &str = "it is not what the index says";

/// The entries of one session.
pub(super) struct Tree<'a> {
    db: &'a Connection,
    session: &'a SessionId,
    number: i64,
}

impl<'a> Tree<'a> {
    /// The tree of a session that is there.
    pub(super) fn of(db: &'a Connection, session: &'a SessionId) -> Result<Self, Fault> {
        Ok(Self::new(db, session, read::number(db, session)?))
    }

    pub(super) fn new(db: &'a Connection, session: &'a SessionId, number: i64) -> Self {
        Self { db, session, number }
    }

    /// Reads a row of [`COLUMNS`] that appends an entry.
    fn found(&self, row: &Row<'_>) -> Result<Found, Fault> {
        let record = record::decode(self.session, row)?;
        let entry: String = row.get(record::ENTRY)?;
        Ok(Found { entry: self.entry_id(record.seq, &entry)?, record })
    }

    fn entry_id(&self, seq: u64, text: &str) -> Result<EntryId, Fault> {
        text.parse().map_err(|_| self.damaged(seq, "its entry's id does not read"))
    }

    fn damaged(&self, seq: u64, reason: &'static str) -> Fault {
        record::damaged(self.session, seq, reason)
    }

    fn roots(&self, after_seq: u64, limit: u32) -> Result<Vec<Found>, Fault> {
        let mut places = self.db.prepare_cached(ROOTS)?;
        let places = places.query_map([self.number], |row| row.get(0))?;
        let mut places: Vec<i64> = places.collect::<Result<_, _>>()?;
        places.retain(|seq| *seq > int(after_seq));
        places.sort_unstable();
        places.truncate(limit as usize);
        let mut step =
            self.db.prepare_cached(&format!("SELECT {COLUMNS} FROM record WHERE session = ?1 AND seq = ?2"))?;
        let mut found = Vec::new();
        for seq in places {
            let mut rows = step.query((self.number, seq))?;
            let row = rows.next()?.ok_or_else(|| self.damaged(seq.cast_unsigned(), "it is missing"))?;
            found.push(self.found(row)?);
        }
        Ok(found)
    }
}

impl Links for Tree<'_> {
    type Error = Fault;

    fn find(&self, entry: &EntryId) -> Result<Option<Found>, Fault> {
        let mut step =
            self.db.prepare_cached(&format!("SELECT {COLUMNS} FROM record WHERE session = ?1 AND entry = ?2"))?;
        let mut rows = step.query((self.number, entry.as_str()))?;
        let found = rows.next()?.map(|row| self.found(row)).transpose()?;
        match found {
            Some(found) if found.entry != *entry => Err(self.damaged(found.record.seq, MISPLACED)),
            found => Ok(found),
        }
    }

    fn children(&self, of: Option<&EntryId>, after_seq: u64, limit: u32) -> Result<Vec<Found>, Fault> {
        let Some(parent) = of else { return self.roots(after_seq, limit) };
        let mut statement = self.db.prepare_cached(&children_sql())?;
        let mut rows = statement.query((self.number, parent.as_str(), int(after_seq), limit))?;
        let mut children = Vec::new();
        while let Some(row) = rows.next()? {
            let child = self.found(row)?;
            if row.get_ref(PARENT)?.as_str_or_null().ok().flatten() != Some(parent.as_str()) {
                return Err(self.damaged(child.record.seq, MISPLACED));
            }
            children.push(child);
        }
        Ok(children)
    }

    fn child_count(&self, of: &EntryId) -> Result<u64, Fault> {
        let mut count = self.db.prepare_cached(COUNT)?;
        Ok(count.query_row((self.number, of.as_str()), |row| row.get::<_, i64>(0))?.cast_unsigned())
    }

    fn child_links(&self, of: &EntryId) -> Result<Vec<(u64, EntryId)>, Fault> {
        let mut statement = self.db.prepare_cached(LINKS)?;
        let mut rows = statement.query((self.number, of.as_str()))?;
        let mut links = Vec::new();
        while let Some(row) = rows.next()? {
            let seq = row.get::<_, i64>(0)?.cast_unsigned();
            let entry: String = row.get(1)?;
            links.push((seq, self.entry_id(seq, &entry)?));
        }
        Ok(links)
    }
}
