//! How the text of a deleted session leaves the files: the write-ahead log is copied back into the database, unused
//! bytes of the pages that it held are cleared there (see `scrub.rs`), and the log is emptied.

use super::{
    lock::Lock,
    open::BUSY_TIMEOUT,
    scrub::{self, Pages},
};
use rusqlite::{Connection, ErrorCode, ffi};
use std::{io, time::Duration};

/// How long emptying the log waits for readers of an older state. Reads of this process take a few milliseconds; while
/// it waits, nothing is written.
const READERS_LEAVE: Duration = Duration::from_millis(50);

/// The answer of a checkpoint.
struct Checkpoint {
    /// True if another connection was in the way.
    is_busy: bool,
    /// Frames in the log; -1 without a log.
    frames: i64,
    /// Of these, frames that are in the database too.
    copied: i64,
}

fn checkpoint(db: &Connection, mode: &str) -> rusqlite::Result<Checkpoint> {
    let mut statement = db.prepare(&format!("PRAGMA wal_checkpoint({mode})"))?;
    let mut rows = statement.query([])?;
    let mut answer = Checkpoint { is_busy: true, frames: -1, copied: -1 };
    while let Some(row) = rows.next()? {
        answer = Checkpoint { is_busy: row.get::<_, i64>(0)? != 0, frames: row.get(1)?, copied: row.get(2)? };
    }
    Ok(answer)
}

/// Copies the log back into the database, as far as its readers allow. If all of it was copied, clears unused bytes of
/// its pages and returns true. SQLite takes such a log up again from its start with the next write, so this is the
/// moment for it.
pub(super) fn copy_back(db: &Connection, lock: Option<&Lock>) -> rusqlite::Result<bool> {
    changing(lock, |pages| copy_and_clear(db, lock, pages))
}

/// Runs what changes the database file, and fills in the pages that it changes.
fn changing<T>(lock: Option<&Lock>, change: impl FnOnce(&mut Pages) -> T) -> T {
    let watched = lock.map(Lock::watched);
    watched.inspect(|watched| watched.begin_change());
    let mut pages = Pages::new();
    let done = change(&mut pages);
    watched.inspect(|watched| watched.end_change(&pages));
    done
}

fn copy_and_clear(db: &Connection, lock: Option<&Lock>, pages: &mut Pages) -> rusqlite::Result<bool> {
    let before = data_version(db)?;
    let Checkpoint { is_busy, frames, copied } = checkpoint(db, "PASSIVE")?;
    if is_busy || copied < frames {
        return Ok(false);
    }
    let Some((database, log)) = lock.and_then(Lock::database).filter(|_| cfg!(unix) && frames > 0) else {
        return Ok(true);
    };
    *pages = scrub::pages_in(&log, frames.cast_unsigned());
    // Nobody may write to the pages meanwhile, also no other program that got around our lock. If one has written since
    // the log was copied, it may still be copying that.
    match db.execute_batch("BEGIN IMMEDIATE") {
        Ok(()) => {}
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => return Ok(false),
        Err(error) => return Err(error),
    }
    let cleared = data_version(db).and_then(|now| {
        if now != before {
            return Ok(false);
        }
        scrub::clear(database, pages).map_err(as_failed_sync)?;
        Ok(true)
    });
    db.execute_batch("ROLLBACK")?;
    cleared
}

/// Empties the log after copying it back, and frees the connection's copies of pages. Returns false if a reader was in
/// the way.
pub(super) fn erase(db: &Connection, lock: Option<&Lock>) -> rusqlite::Result<bool> {
    db.busy_timeout(READERS_LEAVE)?;
    let erased = changing(lock, |pages| Ok(copy_and_clear(db, lock, pages)? && !checkpoint(db, "TRUNCATE")?.is_busy));
    db.busy_timeout(BUSY_TIMEOUT)?;
    // A cached page may have bytes that were cleared in the file.
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

/// What was cleared shares sectors with rows, so that the system must say that it is on the disk: what follows a failed
/// write or sync here is what follows a failed sync of SQLite's.
fn as_failed_sync(error: io::Error) -> rusqlite::Error {
    let failure = ffi::Error::new(ffi::SQLITE_IOERR_FSYNC);
    rusqlite::Error::SqliteFailure(failure, Some(format!("clear unused bytes: {error}")))
}
