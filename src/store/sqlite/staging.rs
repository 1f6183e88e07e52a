//! New rows wait here, in stages, before they go to their places.
//!
//! A session's rows are found by indexes in which each session has leaf pages of its own. A commit of two hundred
//! sessions would change six hundred such pages, each of 8 KiB, for rows of a few hundred bytes: that took most of an
//! append's time. So new rows go into a stage, a small copy of the tables and their indexes that all sessions share,
//! and are moved from there many at a time, session by session.
//!
//! - There are two stages. One takes the new rows; meanwhile the rows of the other are moved in portions
//!   (`writer/moving.rs`), so that no append waits for all of them. Then they change places.
//! - A portion is all rows of some sessions, in the order of their numbers. `staging.moved` says up to which session a
//!   stage was moved: these rows are copies, which reads leave out, until the last portion empties the whole stage at
//!   once, which costs much less than to delete row by row. The stage that takes new rows always has 0 there.
//! - Reads go through views that unite the places and both stages. SQLite plans each part by its own index.
//! - A large record, or the large reply of a mark, goes to its place at once: written twice it would cost more than the
//!   pages of its indexes.

use super::{Fault, is_damage, writer::Write};
use crate::store::Error;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _};

/// Rows of a stage after which it is moved. With more, a commit changes more pages of the stage's own indexes; with
/// fewer, a session has fewer rows in each portion.
const ROWS_MAX: u64 = 4096;

/// Bytes of text after which it is moved: what emptying it has to overwrite at once.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Bytes of text after which a portion ends, with the session whose rows are the last of it.
const PORTION_BYTES_MAX: u64 = 1024 * 1024;

/// Bytes from which the text of a row is large: two pages, about as much as its places in the indexes change.
pub(super) const LARGE_BYTES: usize = 16 * 1024;

/// Finds a row with this session and entry, or command, wherever it is. Copies may be found twice.
pub(super) const FIND_ENTRY: &str = "\
    SELECT 1 FROM record WHERE session = ?1 AND entry = ?2 UNION ALL \
    SELECT 1 FROM record_staged_1 WHERE session = ?1 AND entry = ?2 UNION ALL \
    SELECT 1 FROM record_staged_2 WHERE session = ?1 AND entry = ?2";
pub(super) const FIND_COMMAND: &str = "\
    SELECT 1 FROM mark WHERE session = ?1 AND command = ?2 UNION ALL \
    SELECT 1 FROM mark_staged_1 WHERE session = ?1 AND command = ?2 UNION ALL \
    SELECT 1 FROM mark_staged_2 WHERE session = ?1 AND command = ?2";

/// The tables of what is in its place.
pub(super) const RECORD_PLACE: &str = "record";
pub(super) const MARK_PLACE: &str = "mark";

/// The tables that hold records, in the order in which a deletion empties them: what is in a stage can be moved as long
/// as it is there.
pub(super) const RECORD_TABLES: [&str; 3] = ["record_staged_1", "record_staged_2", RECORD_PLACE];

/// The tables that hold marks, in the same order.
pub(super) const MARK_TABLES: [&str; 3] = ["mark_staged_1", "mark_staged_2", MARK_PLACE];

/// One of the two stages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    First,
    Second,
}

impl Stage {
    /// Returns the stage that takes new rows.
    pub(super) fn written(db: &Connection) -> rusqlite::Result<Self> {
        let mut written = db.prepare_cached("SELECT stage FROM staging WHERE written")?;
        let stage: i64 = written.query_row([], |row| row.get(0))?;
        Ok(if stage == Self::First.number() { Self::First } else { Self::Second })
    }

    /// Returns the other stage.
    pub(super) fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// Returns true if it has no rows.
    fn is_empty(self, db: &Connection) -> rusqlite::Result<bool> {
        let (records, marks) = (self.records(), self.marks());
        let any = format!("SELECT 1 FROM {records} UNION ALL SELECT 1 FROM {marks} LIMIT 1");
        db.prepare_cached(&any)?.exists([]).map(|any| !any)
    }

    /// Returns its number in the tables.
    fn number(self) -> i64 {
        match self {
            Self::First => 1,
            Self::Second => 2,
        }
    }

    /// Returns the name of its table of records.
    pub(super) fn records(self) -> &'static str {
        RECORD_TABLES[self as usize]
    }

    /// Returns the name of its table of marks.
    pub(super) fn marks(self) -> &'static str {
        MARK_TABLES[self as usize]
    }
}

/// Counts what the stages hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Staged {
    /// The stage that takes new rows.
    pub(super) written: Stage,
    /// The rows in it, and the bytes of their text.
    rows: u64,
    bytes: u64,
    /// True if the other stage has rows to be moved.
    pub(super) is_moving: bool,
}

impl Staged {
    /// Reads what a file has in its stages. Damage in them is found again, and reported, when their rows are moved.
    pub(super) fn find(db: &Connection) -> rusqlite::Result<Self> {
        let written = Stage::written(db)?;
        match Self::measure(db, written) {
            Err(error) if is_damage(&error) => Ok(Self { written, rows: 0, bytes: 0, is_moving: true }),
            found => found,
        }
    }

    fn measure(db: &Connection, written: Stage) -> rusqlite::Result<Self> {
        let (records, marks) = (written.records(), written.marks());
        // `octet_length` takes the size from the row's header: no text is read.
        let sizes = format!(
            "SELECT count(*), coalesce(sum(bytes), 0) FROM (SELECT octet_length(body) AS bytes FROM {records} \
             UNION ALL SELECT octet_length(reply) FROM {marks})"
        );
        let size = |row: &rusqlite::Row<'_>, column| row.get(column).map(|size: i64| size.cast_unsigned());
        let (rows, bytes) = db.query_row(&sizes, [], |row| Ok((size(row, 0)?, size(row, 1)?)))?;
        let moved = "SELECT 1 FROM staging WHERE stage = ?1 AND moved > 0";
        let other = written.other();
        let is_moving = !other.is_empty(db)? || db.prepare(moved)?.exists([other.number()])?;
        Ok(Self { written, rows, bytes, is_moving })
    }

    /// Counts rows that were written.
    pub(super) fn add(&mut self, rows: u64, bytes: u64) {
        self.rows += rows;
        self.bytes += bytes;
    }

    /// Returns true if the stages are to change places.
    pub(super) fn is_full(&self) -> bool {
        !self.is_moving && (self.rows >= ROWS_MAX || self.bytes >= BYTES_MAX)
    }

    /// Returns true if no stage has any rows.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_moving && self.rows == 0
    }

    /// Follows a [`Turn`] that was committed.
    pub(super) fn turned(&mut self) {
        *self = Self { written: self.written.other(), rows: 0, bytes: 0, is_moving: true };
    }
}

/// Makes a stage, which must be empty, the one that takes new rows.
pub(super) struct Turn(pub(super) Stage);

impl Write for Turn {
    type Output = ();

    fn write(&self, db: &Connection) -> Result<(), Fault> {
        if !self.0.is_empty(db).map_err(undone)? {
            return Err(Fault::Undone(Error::Unknown("the other stage still has rows".into())));
        }
        // All rows that it had may have been deleted since some of them were moved.
        let turn = "UPDATE staging SET written = (stage = ?1), moved = 0";
        db.prepare_cached(turn)?.execute([self.0.number()]).map_err(undone)?;
        Ok(())
    }
}

/// Moves the rows of the next sessions in a stage to their places: about this many rows, if there are.
pub(super) struct Move {
    pub(super) stage: Stage,
    pub(super) rows: u64,
}

impl Write for Move {
    /// True if the stage is empty now.
    type Output = bool;

    fn write(&self, db: &Connection) -> Result<bool, Fault> {
        self.shift(db).map_err(undone)
    }
}

/// Returns the fault of a step that touches pages of many sessions: a damaged one must not end the writing of the
/// others.
fn undone(error: rusqlite::Error) -> Fault {
    let is_taken = error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation);
    if is_taken || is_damage(&error) {
        return Fault::Undone(Error::Unknown(format!("move rows to their places: {error}")));
    }
    error.into()
}

impl Move {
    fn shift(&self, db: &Connection) -> rusqlite::Result<bool> {
        let (stage, records, marks) = (self.stage.number(), self.stage.records(), self.stage.marks());
        let moved = self.stage.moved(db)?;
        let last = self.last_session(db, moved)?;
        let through = last.unwrap_or(i64::MAX);
        // Rows of deleted sessions are not copied; they go when the stage is emptied.
        db.prepare_cached(&format!(
            "INSERT INTO record (session, seq, version, checksum, entry, parent, kind, body, follows) \
             SELECT session, seq, version, checksum, entry, parent, kind, body, follows FROM {records} \
             INDEXED BY {records}_seq WHERE session > ?1 AND session <= ?2 \
             AND session NOT IN (SELECT number FROM deletion) ORDER BY session, seq"
        ))?
        .execute((moved, through))?;
        db.prepare_cached(&format!(
            "INSERT INTO mark (session, command, fingerprint, reply, checksum) \
             SELECT session, command, fingerprint, reply, checksum FROM {marks} \
             INDEXED BY {marks}_command WHERE session > ?1 AND session <= ?2 \
             AND session NOT IN (SELECT number FROM deletion) ORDER BY session, command"
        ))?
        .execute((moved, through))?;
        let is_last = last.is_none();
        if is_last {
            db.prepare_cached(&format!("DELETE FROM {records}"))?.execute([])?;
            db.prepare_cached(&format!("DELETE FROM {marks}"))?.execute([])?;
        }
        let moved = if is_last { 0 } else { through };
        db.prepare_cached("UPDATE staging SET moved = ?2 WHERE stage = ?1")?.execute((stage, moved))?;
        Ok(is_last)
    }

    /// Returns the session with which the portion ends; `None` if it has all that is left.
    fn last_session(&self, db: &Connection, moved: i64) -> rusqlite::Result<Option<i64>> {
        let sizes = format!(
            "SELECT session, octet_length(body) FROM {0} INDEXED BY {0}_seq WHERE session > ?1 ORDER BY session, seq",
            self.stage.records()
        );
        let mut sizes = db.prepare_cached(&sizes)?;
        let mut rows = sizes.query([moved])?;
        let (mut count, mut bytes) = (0, 0);
        while let Some(row) = rows.next()? {
            count += 1;
            bytes += row.get::<_, i64>(1)?.cast_unsigned();
            if count >= self.rows || bytes >= PORTION_BYTES_MAX {
                return row.get(0).map(Some);
            }
        }
        Ok(None)
    }
}

impl Stage {
    /// Returns the session up to which it was moved.
    fn moved(self, db: &Connection) -> rusqlite::Result<i64> {
        db.prepare_cached("SELECT moved FROM staging WHERE stage = ?1")?.query_row([self.number()], |row| row.get(0))
    }

    /// Returns the id of the session whose rows are moved next, for a report; the empty text if it is unknown.
    pub(super) fn next_session(self, db: &Connection) -> String {
        let id = format!(
            "SELECT id FROM session WHERE number = (SELECT min(session) FROM {} WHERE session > ?1)",
            self.records()
        );
        let found = self.moved(db).and_then(|moved| db.query_row(&id, [moved], |row| row.get(0)).optional());
        found.ok().flatten().unwrap_or_default()
    }
}
