//! Checkpoints: copies the write-ahead log (WAL) back into the database. It also removes the text of deleted sessions
//! from the files: it clears unused bytes in the copied pages (see `scrub.rs`) and empties the log.

use super::{
    lock::Lock,
    open::BUSY_TIMEOUT,
    scrub::{self, Pages},
};
use rusqlite::{Connection, ErrorCode, ffi};
use std::{io, time::Duration};

/// The time for which emptying the log waits for readers of an older snapshot. Reads of this process take a few
/// milliseconds. Nothing is written while it waits.
const READERS_LEAVE: Duration = Duration::from_millis(50);

/// SQLite's answer to a checkpoint.
struct Answer {
    /// True if another connection was in the way.
    is_busy: bool,
    /// Frames in the log; -1 without a log.
    frames: i64,
    /// The frames that have been copied into the database.
    copied: i64,
}

fn run(db: &Connection, mode: &str) -> rusqlite::Result<Answer> {
    let mut statement = db.prepare(&format!("PRAGMA wal_checkpoint({mode})"))?;
    let mut rows = statement.query([])?;
    let mut answer = Answer { is_busy: true, frames: -1, copied: -1 };
    while let Some(row) = rows.next()? {
        answer = Answer { is_busy: row.get::<_, i64>(0)? != 0, frames: row.get(1)?, copied: row.get(2)? };
    }
    Ok(answer)
}

/// Copies the log back into the database, as far as readers allow. If all of it was copied, clears unused bytes of its
/// pages and returns true. This is the moment to clear them, because SQLite restarts a fully copied log with the next
/// write.
pub(super) fn copy_back(db: &Connection, lock: Option<&Lock>) -> rusqlite::Result<bool> {
    let version = data_version(db)?;
    let Answer { is_busy, frames, copied } = run(db, "PASSIVE")?;
    if is_busy || copied < frames {
        return Ok(false);
    }
    let Some((database, log)) = lock.and_then(Lock::database).filter(|_| cfg!(unix) && frames > 0) else {
        return Ok(true);
    };
    let pages = scrub::pages_in(&log, frames.cast_unsigned()).unwrap_or_else(|error| {
        tracing::error!(%error, "the write-ahead log cannot be read: copies of deleted text may stay in the database");
        Pages::new()
    });
    // No one may write to these pages meanwhile, not even another program that got around our lock. If one has written
    // since the log was copied, it may still be running a checkpoint.
    match db.execute_batch("BEGIN IMMEDIATE") {
        Ok(()) => {}
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => return Ok(false),
        Err(error) => return Err(error),
    }
    let cleared = data_version(db).and_then(|now| {
        if now != version {
            return Ok(false);
        }
        scrub::clear(database, &pages).map_err(as_failed_sync)?;
        Ok(true)
    });
    db.execute_batch("ROLLBACK")?;
    cleared
}

/// Empties the log after copying it back, and frees the connection's cached pages. Returns false if a reader was in the
/// way.
pub(super) fn empty(db: &Connection, lock: Option<&Lock>) -> rusqlite::Result<bool> {
    db.busy_timeout(READERS_LEAVE)?;
    let erased = copy_back(db, lock).and_then(|is_copied| Ok(is_copied && !run(db, "TRUNCATE")?.is_busy));
    db.busy_timeout(BUSY_TIMEOUT)?;
    // A cached page may contain bytes that were cleared in the file.
    db.release_memory()?;
    erased
}

/// Clears unused bytes of every page of a database that no connection uses.
pub(super) fn clear_all(database: &std::fs::File) -> io::Result<()> {
    let mut header = [0; 100];
    scrub::read_at(database, &mut header, 0)?;
    let page_bytes = scrub::page_bytes(&header);
    let count = database.metadata()?.len().checked_div(page_bytes).unwrap_or(0);
    let pages: Pages = (1..=u32::try_from(count).unwrap_or(u32::MAX)).collect();
    scrub::clear(database, &pages)
}

/// Returns a number that changes with each commit of another connection.
fn data_version(db: &Connection) -> rusqlite::Result<i64> {
    db.pragma_query_value(None, "data_version", |row| row.get(0))
}

/// Cleared bytes share sectors with rows, so the system must confirm that they are on the disk. A failed write or sync
/// here is therefore handled like a failed sync in SQLite.
fn as_failed_sync(error: io::Error) -> rusqlite::Error {
    let failure = ffi::Error::new(ffi::SQLITE_IOERR_FSYNC);
    rusqlite::Error::SqliteFailure(failure, Some(format!("clear unused bytes: {error}")))
}
