//! The writes of the index: it is filled in slices, and made again if it is damaged.

use super::is_of_index;
use crate::{
    Error,
    search::{
        Document,
        index::{BLOCK, BLOCK_BYTES, Words},
    },
    sqlite::{
        Fault,
        read::{self, int},
        schema::WORDS,
        writer::Write,
    },
    whole_mark,
};
use reseed_protocol::SessionId;
use rusqlite::{Connection, OptionalExtension as _};
use std::sync::atomic::Ordering;

/// The bytes of bodies after which a slice ends. Indexing this much takes some 20 ms.
const SLICE_BYTES_MAX: usize = 256 * 1024;

/// The most bytes of an entry's text that are indexed; the rest cannot be found. A tool can return as much as a frame
/// holds.
const TEXT_BYTES_MAX: usize = 1024 * 1024;

/// The number of sessions checked in one step of [`unindexed`].
const WALK_SESSIONS: u32 = 256;

/// Indexes the first records of a session that are not indexed yet.
pub(in crate::sqlite) struct IndexSlice {
    pub(in crate::sqlite) session: SessionId,
    pub(in crate::sqlite) broken: super::Broken,
}

impl Write for IndexSlice {
    /// True if there is more to index.
    type Output = bool;

    fn write(&self, db: &Connection) -> Result<bool, Fault> {
        let session = || {
            db.prepare_cached("SELECT number, last_seq FROM session WHERE id = ?1")?
                .query_row([self.session.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
        };
        let Some((number, last_seq)) = self.read(session().map_err(Fault::from))? else { return Ok(false) };
        let mut bytes = 0;
        while bytes < SLICE_BYTES_MAX {
            let newest = newest(db, number).map_err(|error| self.of_index(error))?;
            if newest.is_some_and(|(_, last)| last >= last_seq) {
                return Ok(false);
            }
            match self.block(db, number, newest) {
                Ok(added) => bytes += added,
                // Its records are damaged. Other reads report that, and searches read what they can.
                Err(Fault::Refused(_)) => return Ok(false),
                Err(fault) => return Err(fault),
            }
        }
        Ok(true)
    }
}

/// Returns the first and the last `seq` of a session's newest block.
fn newest(db: &Connection, number: i64) -> rusqlite::Result<Option<(i64, i64)>> {
    db.prepare_cached("SELECT first_seq, last_seq FROM words WHERE session = ?1 ORDER BY first_seq DESC LIMIT 1")?
        .query_row([number], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

impl IndexSlice {
    /// Writes the next block, or the newest one again with more records. Returns the bytes of its bodies.
    fn block(&self, db: &Connection, number: i64, newest: Option<(i64, i64)>) -> Result<usize, Fault> {
        let (first, last) = newest.unwrap_or((1, 0));
        let may_grow = last - first + 1 < i64::from(BLOCK);
        let mut records = self.records(db, if may_grow { first - 1 } else { last })?;
        if records.last().is_some_and(|record| int(record.seq) <= last) {
            // Its bytes have ended it.
            records = self.records(db, last)?;
        }
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            // The session has fewer records than its head says, which other reads report.
            return Err(Error::NotFound(self.session.clone()).into());
        };
        let mut words = Words::default();
        for record in &records {
            let Some(document) = Document::of(&record.body) else { continue };
            let whole = match document.is_cut {
                true => self.read(read::command(db, &self.session, &whole_mark(&document.entry)))?,
                false => None,
            };
            words.add(whole.as_ref().map_or(&document.text, |mark| &*mark.reply), TEXT_BYTES_MAX);
        }
        let write = || {
            db.prepare_cached(
                "INSERT INTO words (session, first_seq, last_seq, words) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (session, first_seq) DO UPDATE SET last_seq = excluded.last_seq, words = excluded.words",
            )?
            .execute((number, int(first.seq), int(last.seq), words.joined()))
        };
        write().map_err(|error| self.of_index(error))?;
        Ok(records.iter().map(|record| record.body.len()).sum())
    }

    fn records(&self, db: &Connection, after: i64) -> Result<Vec<crate::StoredRecord>, Fault> {
        self.read(read::records(db, &self.session, after.cast_unsigned(), BLOCK, BLOCK_BYTES))
    }

    /// Attributes damage found by a read to the session.
    fn read<T>(&self, found: Result<T, Fault>) -> Result<T, Fault> {
        found.map_err(|fault| fault.writing(&self.session))
    }

    /// Rolls the slice back if the index is damaged. The entries of all sessions can still be written.
    fn of_index(&self, error: rusqlite::Error) -> Fault {
        if is_of_index(&error) {
            self.broken.store(true, Ordering::Relaxed);
            return undone("write the search index", &error);
        }
        error.into()
    }
}

fn undone(step: &str, error: &rusqlite::Error) -> Fault {
    Fault::Undone(Error::Unknown(format!("{step}: {error}")))
}

/// Empties the index by making its table again.
pub(in crate::sqlite) struct Remake;

impl Write for Remake {
    type Output = ();

    fn write(&self, db: &Connection) -> Result<(), Fault> {
        db.execute_batch(WORDS).map_err(|error| undone("make the search index again", &error))
    }
}

/// Drops a table of the index of an older program.
pub(in crate::sqlite) struct DropOld(pub(in crate::sqlite) i64);

impl Write for DropOld {
    type Output = ();

    fn write(&self, db: &Connection) -> Result<(), Fault> {
        drop_old(db, self.0).map_err(|error| undone("drop the old search index", &error))
    }
}

fn drop_old(db: &Connection, table: i64) -> rusqlite::Result<()> {
    db.execute_batch(&format!(
        "DROP TABLE IF EXISTS history_part; DROP TABLE IF EXISTS history_{table}; \
         DELETE FROM history_shard WHERE shard = {table}"
    ))
}

/// Returns the number of a table of the index of an older program, if there is one.
pub(in crate::sqlite) fn old(db: &Connection) -> rusqlite::Result<Option<i64>> {
    db.query_row("SELECT shard FROM history_shard LIMIT 1", [], |row| row.get(0)).optional()
}

/// Discards the whole index, as far as its tables can be changed.
pub(in crate::sqlite) fn discard(db: &Connection) {
    let discarded = || {
        while let Some(table) = old(db)? {
            drop_old(db, table)?;
        }
        db.execute_batch(WORDS)
    };
    if let Err(error) = discarded() {
        tracing::warn!(%error, "the search index could not be discarded");
    }
}

/// Returns the sessions with unindexed records, among some after a number, and the number to continue from.
pub(in crate::sqlite) fn unindexed(
    db: &Connection,
    after: i64,
    broken: &super::Broken,
) -> rusqlite::Result<(Vec<SessionId>, Option<i64>)> {
    let found = unindexed_after(db, after);
    if found.as_ref().is_err_and(is_of_index) {
        broken.store(true, Ordering::Relaxed);
    }
    found
}

fn unindexed_after(db: &Connection, after: i64) -> rusqlite::Result<(Vec<SessionId>, Option<i64>)> {
    let mut statement = db.prepare_cached(
        "SELECT number, id, last_seq > coalesce((SELECT last_seq FROM words WHERE session = number \
         ORDER BY first_seq DESC LIMIT 1), 0) FROM session WHERE number > ?1 ORDER BY number LIMIT ?2",
    )?;
    let mut rows = statement.query((after, WALK_SESSIONS))?;
    let (mut sessions, mut count, mut last) = (Vec::new(), 0, after);
    while let Some(row) = rows.next()? {
        (count, last) = (count + 1, row.get(0)?);
        if row.get(2)?
            && let Ok(id) = row.get::<_, String>(1)?.parse()
        {
            sessions.push(id);
        }
    }
    Ok((sessions, (count == WALK_SESSIONS).then_some(last)))
}
