//! Deletion in steps: one small write hides a session, and its rows are removed later in slices, between other writes.
//!
//! The first write deletes the session's row, through which every read finds the rest, and puts its number and id into
//! `deletion`. So the session is gone for everyone at once and its id is free again. After a restart the slices
//! continue, because a number is never reused.

use super::{Fault, damaged_pages, is_damage, read, writer::Write};
use crate::Error;
use reseed_protocol::SessionId;
use rusqlite::{Connection, OptionalExtension as _, types::Type};

/// The most rows of text that a slice removes; each may touch a page of each index.
const SLICE_ROWS_MAX: u32 = 256;

/// The bytes of text after which a slice ends. `secure_delete` overwrites all of them, which takes some 5 ms.
const SLICE_BYTES_MAX: i64 = 1024 * 1024;

/// The number of pages by which a step shortens the file: 1 MiB.
const SHRINK_PAGES: u32 = 128;

/// The number of free pages that a file may keep (4 MiB), so that it does not shrink and grow with every few writes.
const FREE_PAGES_KEPT: u32 = 512;

/// Hides a session and schedules its removal.
pub(super) struct Delete(pub(super) SessionId);

impl Write for Delete {
    type Output = ();

    const DELETES: bool = true;

    fn write(&self, db: &Connection) -> Result<(), Fault> {
        let number = read::number(db, &self.0).map_err(|fault| fault.writing(&self.0))?;
        let order = db.prepare_cached("INSERT OR IGNORE INTO deletion (number, id) VALUES (?1, ?2)")?;
        let hide = || db.prepare_cached("DELETE FROM session WHERE number = ?1")?.execute([number]);
        let hidden = { order }.execute((number, self.0.as_str())).and_then(|_| hide());
        hidden.map(drop).map_err(|error| damaged_or(error, &self.0))
    }
}

fn damaged_or(error: rusqlite::Error, session: &SessionId) -> Fault {
    if is_damage(&error) { Fault::Undone(damaged_pages(session)) } else { error.into() }
}

/// A hidden session whose rows are still to be removed.
pub(super) struct Hidden {
    pub(super) number: i64,
    pub(super) session: SessionId,
}

/// Returns the first hidden session with a number above `after`.
pub(super) fn next(db: &Connection, after: i64) -> rusqlite::Result<Option<Hidden>> {
    db.prepare_cached("SELECT number, id FROM deletion WHERE number > ?1 ORDER BY number LIMIT 1")?
        .query_row([after], |row| {
            let id: String = row.get(1)?;
            let session = id.parse().map_err(|_| rusqlite::Error::InvalidColumnType(1, "id".into(), Type::Text))?;
            Ok(Hidden { number: row.get(0)?, session })
        })
        .optional()
}

/// The result of a slice.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Removed {
    /// The number of sessions that are completely removed, and the session number of the last of them.
    pub(super) sessions: u32,
    pub(super) last: Option<i64>,
}

/// Removes rows of a hidden session, and of further ones while there is room in the slice. With one commit per short
/// session, removal would fall behind when many are deleted.
pub(super) struct Slice {
    pub(super) first: Hidden,
    /// The most sessions that it removes; at least one.
    pub(super) sessions_max: u32,
}

impl Write for Slice {
    type Output = Removed;

    const DELETES: bool = true;

    fn write(&self, db: &Connection) -> Result<Removed, Fault> {
        self.remove(db)
    }
}

/// The remaining room of a slice.
struct Room {
    rows: u32,
    bytes: i64,
}

impl Room {
    fn is_used(&self) -> bool {
        self.rows == 0 || self.bytes <= 0
    }
}

impl Slice {
    fn remove(&self, db: &Connection) -> Result<Removed, Fault> {
        let mut removed = Removed::default();
        let mut room = Room { rows: SLICE_ROWS_MAX, bytes: SLICE_BYTES_MAX };
        let mut next = Some((self.first.number, self.first.session.clone()));
        while let Some((number, session)) = next {
            let is_gone = remove_rows(db, number, &mut room);
            if !is_gone.map_err(|error| damaged_or(error, &session))? {
                break;
            }
            removed.sessions += 1;
            removed.last = Some(number);
            if room.is_used() || removed.sessions >= self.sessions_max {
                break;
            }
            // An unreadable row ends this slice; the next one begins with it.
            next = self::next(db, number).ok().flatten().map(|hidden| (hidden.number, hidden.session));
        }
        Ok(removed)
    }
}

/// Removes rows of a session while there is room. Returns true if nothing of it is left.
fn remove_rows(db: &Connection, number: i64, room: &mut Room) -> rusqlite::Result<bool> {
    let words = "SELECT first_seq, octet_length(words) FROM words WHERE session = ?1 ORDER BY first_seq LIMIT ?2";
    if let Some(last) = last::<i64>(db, words, number, room)? {
        db.prepare_cached("DELETE FROM words WHERE session = ?1 AND first_seq <= ?2")?.execute((number, last))?;
    }
    if room.is_used() {
        return Ok(false);
    }
    // `octet_length` takes the size from the row's header: no text is read.
    let records = "SELECT seq, octet_length(body) FROM record WHERE session = ?1 ORDER BY seq LIMIT ?2";
    if let Some(last) = last::<i64>(db, records, number, room)? {
        db.prepare_cached("DELETE FROM record WHERE session = ?1 AND seq <= ?2")?.execute((number, last))?;
    }
    if room.is_used() {
        return Ok(false);
    }
    let marks = "SELECT command, octet_length(reply) FROM mark WHERE session = ?1 ORDER BY command LIMIT ?2";
    if let Some(last) = last::<String>(db, marks, number, room)? {
        db.prepare_cached("DELETE FROM mark WHERE session = ?1 AND command <= ?2")?.execute((number, last))?;
    }
    if room.is_used() {
        return Ok(false);
    }
    room.bytes -= db
        .prepare_cached("DELETE FROM session_state WHERE session = ?1 RETURNING octet_length(state)")?
        .query_row([number], |row| row.get::<_, Option<i64>>(0))
        .optional()?
        .flatten()
        .unwrap_or(0);
    db.prepare_cached("DELETE FROM deletion WHERE number = ?1")?.execute([number])?;
    Ok(true)
}

/// Returns the key of the last row that fits, and subtracts it from the room.
fn last<K: rusqlite::types::FromSql>(
    db: &Connection,
    rows: &str,
    number: i64,
    room: &mut Room,
) -> rusqlite::Result<Option<K>> {
    let mut rows = db.prepare_cached(rows)?;
    let mut rows = rows.query((number, room.rows))?;
    let mut last = None;
    while let Some(row) = rows.next()? {
        last = Some(row.get(0)?);
        room.rows -= 1;
        room.bytes -= row.get::<_, Option<i64>>(1)?.unwrap_or(0);
        if room.is_used() {
            break;
        }
    }
    Ok(last)
}

/// Shortens the file by some free pages. Returns true if there is more to do. A file created before this was possible
/// keeps its length.
pub(super) struct Shrink;

impl Write for Shrink {
    type Output = bool;

    const DELETES: bool = true;

    fn write(&self, db: &Connection) -> Result<bool, Fault> {
        // This moves pages of all sessions, and a damaged one must not stop writes to the others.
        let damaged = |error| Fault::Undone(Error::Unknown(format!("move pages: {error}")));
        self.shorten(db).map_err(|error| if is_damage(&error) { damaged(error) } else { error.into() })
    }
}

impl Shrink {
    fn shorten(&self, db: &Connection) -> rusqlite::Result<bool> {
        if !is_due(db)? {
            return Ok(false);
        }
        // Each row of the result has no columns and stands for one page.
        let mut step = db.prepare_cached(&format!("PRAGMA incremental_vacuum({SHRINK_PAGES})"))?;
        let mut pages = step.query([])?;
        while pages.next()?.is_some() {}
        is_due(db)
    }
}

fn is_due(db: &Connection) -> rusqlite::Result<bool> {
    let free: u32 = db.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
    Ok(free > FREE_PAGES_KEPT && can_shrink(db)?)
}

/// Returns true if the file's pages can be moved, so that the file can be shortened while in use.
fn can_shrink(db: &Connection) -> rusqlite::Result<bool> {
    // The value 2 means incremental.
    db.pragma_query_value(None, "auto_vacuum", |row| row.get::<_, i64>(0)).map(|mode| mode == 2)
}
