//! The tree as SQLite stores it: finds the children of an entry.
//!
//! A child that follows its parent in the log is found there, all others in an index. Neither has a checksum, but each
//! record found has one and is compared with the request.

pub(super) mod links;

use super::{
    Fault,
    read::{self, int},
    record::{self, COLUMNS, PARENT},
};
use crate::{
    StoredRecord,
    walk::{self, Found, Links},
};
use reseed_protocol::{EntryId, SessionId};
use rusqlite::{Connection, Row};
use std::collections::HashSet;

/// The `seq` of the children of an entry that do not follow it in the log.
pub(super) const PLACES: &str = "
SELECT seq FROM record WHERE session = ?1 AND parent = ?2 AND follows IS NULL AND seq > ?3 ORDER BY seq LIMIT ?4";

/// The same with the children's ids.
pub(super) const LINKS: &str =
    "SELECT seq, entry FROM record WHERE session = ?1 AND parent = ?2 AND follows IS NULL ORDER BY seq";

/// Counts them, except for one `seq`.
pub(super) const COUNT: &str =
    "SELECT count(*) FROM record WHERE session = ?1 AND parent = ?2 AND follows IS NULL AND seq <> ?3";

/// The entries after a `seq`. The last column takes no space in a row, so a large body before it is not read.
pub(super) const AFTER: &str = "
SELECT seq, entry, parent, follows FROM record
WHERE session = ?1 AND seq > ?2 AND entry IS NOT NULL ORDER BY seq LIMIT ?3";

/// The `seq` of the roots, in no order. Roots with a missing parent are rare and not marked. But an entry that follows
/// its parent is never a root, so only the parents of the others are looked up.
pub(super) const ROOTS: &str = "
SELECT seq FROM record INDEXED BY record_root WHERE session = ?1 AND parent IS NULL AND entry IS NOT NULL
UNION ALL
SELECT seq FROM record AS below WHERE session = ?1 AND parent > '' AND follows IS NULL
    AND NOT EXISTS (SELECT 1 FROM record AS above WHERE above.session = ?1 AND above.entry = below.parent)";

/// An entry's parent. SQLite loads a row's columns only up to the last one named, so a large body is not read.
const ABOVE: &str = "SELECT seq, parent FROM record WHERE session = ?1 AND entry = ?2";

/// The entry followed its parent in the log, but the previous entry is now a different one.
const ORPHANED: &str = "the entry before it is missing";

/// The index leads to an intact record, but not to the requested one.
pub(super) const MISPLACED: &str = "index mismatch";

/// The entries of one session.
pub(super) struct Tree<'a> {
    db: &'a Connection,
    session: &'a SessionId,
    number: i64,
}

impl<'a> Tree<'a> {
    /// Returns the tree of an existing session.
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
        text.parse().map_err(|_| self.damaged(seq, "invalid entry id"))
    }

    fn damaged(&self, seq: u64, reason: &'static str) -> Fault {
        record::damaged(self.session, seq, reason)
    }

    fn roots(&self, after_seq: u64, limit: u32) -> Result<Vec<u64>, Fault> {
        let mut places = self.db.prepare_cached(ROOTS)?;
        let places = places.query_map([self.number], place)?;
        let mut places: Vec<u64> = places.collect::<Result<_, _>>()?;
        places.retain(|seq| *seq > after_seq);
        places.sort_unstable();
        places.truncate(limit as usize);
        Ok(places)
    }

    /// Returns the next entry in the log if it is a child of `entry`.
    fn follower(&self, entry: &EntryId) -> Result<Option<(u64, EntryId)>, Fault> {
        let mut place = self.db.prepare_cached("SELECT seq FROM record WHERE session = ?1 AND entry = ?2")?;
        let mut rows = place.query((self.number, entry.as_str()))?;
        let Some(seq) = rows.next()?.map(|row| row.get::<_, i64>(0)).transpose()? else { return Ok(None) };
        let mut next = self.db.prepare_cached(AFTER)?;
        let mut rows = next.query((self.number, seq, 1))?;
        match rows.next()? {
            Some(row) if self.is_child(row, entry.as_str())? => {
                let (seq, id) = (row.get::<_, i64>(0)?.cast_unsigned(), row.get::<_, String>(1)?);
                Ok(Some((seq, self.entry_id(seq, &id)?)))
            }
            _ => Ok(None),
        }
    }

    /// Returns true if a row of [`AFTER`] is a child of the previous entry. Returns an error if it followed an entry
    /// that is gone.
    fn is_child(&self, row: &Row<'_>, before: &str) -> Result<bool, Fault> {
        let is_child = row.get_ref(2)?.as_str_or_null().ok().flatten() == Some(before);
        if !is_child && row.get::<_, Option<i64>>(3)? == Some(1) {
            return Err(self.damaged(row.get::<_, i64>(0)?.cast_unsigned(), ORPHANED));
        }
        Ok(is_child)
    }

    /// Returns the newest entry without children at or below an entry. Except in some imported files, children come
    /// after their parents, so one pass over the links after the entry suffices.
    pub(super) fn newest_leaf(&self, below: &EntryId) -> Result<Option<StoredRecord>, Fault> {
        let Some(top) = self.find(below)? else { return Ok(None) };
        let mut inside = HashSet::from([top.entry.as_str().to_owned()]);
        let (mut newest, mut before) = (top.entry.as_str().to_owned(), top.entry.as_str().to_owned());
        let mut after = self.db.prepare_cached(AFTER)?;
        let mut rows = after.query((self.number, int(top.record.seq), -1))?;
        while let Some(row) = rows.next()? {
            self.is_child(row, &before)?;
            before = row.get(1)?;
            if row.get_ref(2)?.as_str_or_null().ok().flatten().is_some_and(|parent| inside.contains(parent)) {
                newest.clone_from(&before);
                inside.insert(newest.clone());
            }
        }
        let newest = self.entry_id(top.record.seq, &newest)?;
        if self.child_count(&newest)? > 0 {
            return walk::newest_leaf(self, below);
        }
        Ok(self.find(&newest)?.map(|found| found.record))
    }
}

fn place(row: &Row<'_>) -> rusqlite::Result<u64> {
    row.get::<_, i64>(0).map(i64::cast_unsigned)
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

    fn parent(&self, entry: &EntryId) -> Result<Option<Option<EntryId>>, Fault> {
        let mut step = self.db.prepare_cached(ABOVE)?;
        let mut rows = step.query((self.number, entry.as_str()))?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let seq = row.get::<_, i64>(0)?.cast_unsigned();
        let parent = row.get_ref(1)?.as_str_or_null().map_err(|_| self.damaged(seq, "a column is not text"))?;
        Ok(Some(parent.map(|parent| self.entry_id(seq, parent)).transpose()?))
    }

    fn check_orphan(&self, entry: &EntryId) -> Result<(), Fault> {
        let Some(found) = self.find(entry)? else { return Ok(()) };
        let mut follows =
            self.db.prepare_cached("SELECT 1 FROM record WHERE session = ?1 AND seq = ?2 AND follows = 1")?;
        if follows.exists((self.number, int(found.record.seq)))? {
            return Err(self.damaged(found.record.seq, ORPHANED));
        }
        Ok(())
    }

    fn places(&self, of: Option<&EntryId>, after_seq: u64, limit: u32) -> Result<Vec<u64>, Fault> {
        let Some(parent) = of else { return self.roots(after_seq, limit) };
        let mut places = self.db.prepare_cached(PLACES)?;
        let places = places.query_map((self.number, parent.as_str(), int(after_seq), limit), place)?;
        let mut places: Vec<u64> = places.collect::<Result<_, _>>()?;
        places.extend(self.follower(parent)?.map(|(seq, _)| seq).filter(|seq| *seq > after_seq));
        // Entries written by an older version are in the index even if they follow their parent.
        places.sort_unstable();
        places.dedup();
        places.truncate(limit as usize);
        Ok(places)
    }

    fn at(&self, seq: u64, parent: Option<&EntryId>) -> Result<Found, Fault> {
        let mut step =
            self.db.prepare_cached(&format!("SELECT {COLUMNS} FROM record WHERE session = ?1 AND seq = ?2"))?;
        let mut rows = step.query((self.number, int(seq)))?;
        let row = rows.next()?.ok_or_else(|| self.damaged(seq, "it is missing"))?;
        let found = self.found(row)?;
        let hangs = parent.is_none_or(|parent| {
            row.get_ref(PARENT).is_ok_and(|found| found.as_str_or_null().ok().flatten() == Some(parent.as_str()))
        });
        if found.record.seq != seq || !hangs {
            return Err(self.damaged(seq, MISPLACED));
        }
        Ok(found)
    }

    fn child_count(&self, of: &EntryId) -> Result<u64, Fault> {
        let follower = self.follower(of)?.map(|(seq, _)| int(seq));
        let mut count = self.db.prepare_cached(COUNT)?;
        let others: i64 = count.query_row((self.number, of.as_str(), follower.unwrap_or(0)), |row| row.get(0))?;
        Ok(others.cast_unsigned() + u64::from(follower.is_some()))
    }

    fn child_links(&self, of: &EntryId) -> Result<Vec<(u64, EntryId)>, Fault> {
        let mut links: Vec<(u64, EntryId)> = self.follower(of)?.into_iter().collect();
        let mut statement = self.db.prepare_cached(LINKS)?;
        let mut rows = statement.query((self.number, of.as_str()))?;
        while let Some(row) = rows.next()? {
            let seq = row.get::<_, i64>(0)?.cast_unsigned();
            let entry: String = row.get(1)?;
            if links.first().is_none_or(|(follower, _)| *follower != seq) {
                links.push((seq, self.entry_id(seq, &entry)?));
            }
        }
        Ok(links)
    }
}
