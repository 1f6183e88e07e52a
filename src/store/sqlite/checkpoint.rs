//! Checkpoints: copies the write-ahead log (WAL) back into the database. It also removes the text of deleted sessions
//! from the files: it clears unused bytes in the copied pages (see `scrub.rs`) and empties the log.

use super::{
    lock::Lock,
    open::BUSY_TIMEOUT,
    scrub::{self, Pages, Salts},
    watched::Watched,
};
use rusqlite::{Connection, ErrorCode, ffi};
use std::{io, time::Duration};

/// The time for which emptying the log waits for readers of an older snapshot. Reads of this process take a few
/// milliseconds. Nothing is written while it waits.
const READERS_LEAVE: Duration = Duration::from_millis(50);

/// The number of frames at the start of a log from which a sample of pages is taken.
const SAMPLE_FRAMES: u64 = 16;

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

/// A range of frames of a log, counted from 1 as in SQLite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frames {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl Frames {
    /// Returns their positions in the file, counted from 0.
    fn places(self) -> std::ops::Range<u64> {
        u64::from(self.first.saturating_sub(1))..self.last.into()
    }
}

/// Copies the log back into the database, as far as readers allow. If all of it was copied, clears unused bytes of its
/// pages and returns true. This is the moment to clear them, because SQLite restarts a fully copied log with the next
/// write.
pub(super) fn copy_back(db: &Connection, lock: Option<&Lock>) -> rusqlite::Result<bool> {
    copy_back_after(db, lock, Cleared::default())
}

/// The part of a log that [`copy_beside`] has copied and cleared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cleared {
    /// The number of its frames, from the start of the log.
    pub(super) frames: u32,
    /// Identifies the log.
    salts: Salts,
    /// A sample of its pages.
    pub(super) sample: Pages,
}

/// Does the same as [`copy_back`] when a part of the log is already cleared.
pub(super) fn copy_back_after(db: &Connection, lock: Option<&Lock>, cleared: Cleared) -> rusqlite::Result<bool> {
    changing(lock, |pages| {
        let copied = copy_and_clear(db, lock, &cleared, pages);
        pages.extend(&cleared.sample);
        copied
    })
}

/// Returns the number of frames in a connection's log, and how many of them were copied back. Changes nothing. (SQLite
/// before 3.51 does not know this mode, and would run a checkpoint.)
pub(super) fn progress(db: &Connection) -> rusqlite::Result<(i64, i64)> {
    let Answer { frames, copied, .. } = run(db, "NOOP")?;
    Ok((frames, copied))
}

/// Copies the log back up to the last of these frames while the writer continues, and clears unused bytes of their
/// pages. Returns the part that is now cleared; `None` if another connection was in the way.
///
/// The caller must hold a snapshot that ends with the last frame and that was taken before all of the log was copied.
/// Then no later frames are copied meanwhile, and the log is not restarted, so a page torn by a power loss is read from
/// the log.
pub(super) fn copy_beside(
    db: &Connection,
    watched: Option<&Watched>,
    frames: Frames,
) -> rusqlite::Result<Option<Cleared>> {
    // It is set here and not earlier: on a connection that has read nothing, it would create a log beside a new file.
    db.pragma_update(None, "synchronous", "FULL")?;
    let Answer { is_busy, copied, .. } = run(db, "PASSIVE")?;
    if is_busy || copied != i64::from(frames.last) {
        return Ok(None);
    }
    let mut cleared = Cleared { frames: frames.last, ..Cleared::default() };
    if let Some((database, log)) = watched.and_then(Watched::database).filter(|_| cfg!(unix)) {
        // Pages that cannot be read now are cleared, or reported, when all of the log is copied.
        let Ok(salts) = scrub::salts_of(&log) else { return Ok(None) };
        let Ok(pages) = scrub::pages_in(&log, frames.places()) else { return Ok(None) };
        let is_synced = scrub::clear(database, &pages).map_err(as_failed_sync)?;
        if !is_synced {
            // SQLite syncs only once all of the log is copied, and the writer would then wait for it.
            database.sync_data().map_err(as_failed_sync)?;
        }
        cleared.salts = salts;
        cleared.sample.extend(scrub::some_of(&pages));
    }
    Ok(Some(cleared))
}

/// Returns a sample of the pages in the log, if it can be read.
pub(super) fn sample(lock: &Lock) -> Pages {
    let pages = lock.database().and_then(|(_, log)| scrub::pages_in(&log, 0..SAMPLE_FRAMES).ok());
    pages.map(|pages| scrub::some_of(&pages).into_iter().collect()).unwrap_or_default()
}

/// Runs a change of the database file, and records which pages it changed.
fn changing<T>(lock: Option<&Lock>, change: impl FnOnce(&mut Pages) -> T) -> T {
    let watched = lock.map(Lock::watched);
    watched.inspect(|watched| watched.begin_change());
    let mut pages = Pages::new();
    let done = change(&mut pages);
    watched.inspect(|watched| watched.end_change(&pages));
    done
}

fn copy_and_clear(db: &Connection, lock: Option<&Lock>, before: &Cleared, pages: &mut Pages) -> rusqlite::Result<bool> {
    let version = data_version(db)?;
    let Answer { is_busy, frames, copied } = run(db, "PASSIVE")?;
    if is_busy || copied < frames {
        return Ok(false);
    }
    let Some((database, log)) = lock.and_then(Lock::database).filter(|_| cfg!(unix) && frames > 0) else {
        return Ok(true);
    };
    let frames = frames.cast_unsigned();
    let is_same = scrub::salts_of(&log).is_ok_and(|salts| salts == before.salts);
    let first = if is_same { before.frames.into() } else { 0 };
    pages.extend(scrub::pages_in(&log, first..frames).unwrap_or_else(|error| {
        tracing::error!(%error, "the write-ahead log cannot be read: copies of deleted text may stay in the database");
        Pages::new()
    }));
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
        scrub::clear(database, pages).map_err(as_failed_sync)?;
        Ok(true)
    });
    db.execute_batch("ROLLBACK")?;
    cleared
}

/// Empties the log after copying it back, and frees the connection's cached pages. Returns false if a reader was in the
/// way.
pub(super) fn empty(db: &Connection, lock: Option<&Lock>) -> rusqlite::Result<bool> {
    db.busy_timeout(READERS_LEAVE)?;
    let erased = changing(lock, |pages| {
        Ok(copy_and_clear(db, lock, &Cleared::default(), pages)? && !run(db, "TRUNCATE")?.is_busy)
    });
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
    scrub::clear(database, &pages).map(drop)
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
