//! Stages: small tables in which new rows wait before they move to the main tables.
//!
//! Indexes find a session's rows, and each session has leaf pages of its own in them. A commit of two hundred sessions
//! would change six hundred such pages of 8 KiB each, for rows of a few hundred bytes; that took most of an append's
//! time. So new rows go into a stage: a small copy of the tables and their indexes that all sessions share. They move
//! from there in bulk, session by session.
//!
//! - There are two stages. One takes new rows while the rows of the other move in portions (`writer/moving.rs`), so
//!   that no append waits for all of them. Then the stages swap roles.
//! - A portion is all rows of some sessions, in the order of their numbers. `staging.moved` is the last session of a
//!   stage that has moved. Its moved rows are now copies, which reads ignore, until the last portion empties the whole
//!   stage at once; that costs much less than deleting row by row. For the stage that takes new rows, it is always 0.
//! - Reads use views that unite the main tables and both stages. SQLite plans each part by its own index.
//! - A large record, or the large reply of a mark, goes directly to its main table: writing it twice would cost more
//!   than the pages of its indexes.

use super::{Fault, is_damage, writer::Write};
use crate::Error;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _};

/// The number of rows after which a stage is moved. With more, a commit changes more pages of the stage's own indexes;
/// with fewer, a session has fewer rows in each portion.
const ROWS_MAX: u64 = 4096;

/// The bytes of text after which a stage is moved. Emptying it has to overwrite all of them at once.
const BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The bytes of text after which a portion ends. It always includes all rows of its last session.
const PORTION_BYTES_MAX: u64 = 1024 * 1024;

/// The size from which the text of a row counts as large: two pages, about as much as the row changes in the indexes.
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

/// The main tables.
pub(super) const RECORD_PLACE: &str = "record";
pub(super) const MARK_PLACE: &str = "mark";

/// The tables that hold records, in the order in which a deletion empties them. The stages come first, because rows in
/// a stage could still move.
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

/// The number of rows in the stages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Staged {
    /// The stage that takes new rows.
    pub(super) written: Stage,
    /// The number of rows in it, and the bytes of their text.
    rows: u64,
    bytes: u64,
    /// True if the other stage has rows to move.
    pub(super) is_moving: bool,
}

impl Staged {
    /// Reads the state of a file's stages. Damage in them is found again, and reported, when their rows move.
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

    /// Counts written rows.
    pub(super) fn add(&mut self, rows: u64, bytes: u64) {
        self.rows += rows;
        self.bytes += bytes;
    }

    /// Returns true if the stages must swap roles.
    pub(super) fn is_full(&self) -> bool {
        !self.is_moving && (self.rows >= ROWS_MAX || self.bytes >= BYTES_MAX)
    }

    /// Returns true if no stage has any rows.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_moving && self.rows == 0
    }

    /// Applies a [`Turn`] that was committed.
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
        // Deletions may have removed its last rows after some of them had moved, so `moved` is reset.
        let turn = "UPDATE staging SET written = (stage = ?1), moved = 0";
        db.prepare_cached(turn)?.execute([self.0.number()]).map_err(undone)?;
        Ok(())
    }
}

/// Moves the rows of the next sessions in a stage to the main tables: about this many rows, if there are enough.
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

/// Classifies an error of a step that touches pages of many sessions: damage in one must not stop writes to the others.
fn undone(error: rusqlite::Error) -> Fault {
    let is_taken = error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation);
    if is_taken || is_damage(&error) {
        return Fault::Undone(Error::Unknown(format!("move rows to the main tables: {error}")));
    }
    error.into()
}

impl Move {
    fn shift(&self, db: &Connection) -> rusqlite::Result<bool> {
        let (stage, records, marks) = (self.stage.number(), self.stage.records(), self.stage.marks());
        let moved = self.stage.moved(db)?;
        let last = self.last_session(db, moved)?;
        let through = last.unwrap_or(i64::MAX);
        // Rows of deleted sessions are not copied; they disappear when the stage is emptied.
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

    /// Returns the last session of the portion; `None` if the portion contains all remaining rows.
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
    /// Returns the last session that has moved.
    fn moved(self, db: &Connection) -> rusqlite::Result<i64> {
        db.prepare_cached("SELECT moved FROM staging WHERE stage = ?1")?.query_row([self.number()], |row| row.get(0))
    }

    /// Returns the id of the session whose rows move next, for a log line; empty if it is unknown.
    pub(super) fn next_session(self, db: &Connection) -> String {
        let id = format!(
            "SELECT id FROM session WHERE number = (SELECT min(session) FROM {} WHERE session > ?1)",
            self.records()
        );
        let found = self.moved(db).and_then(|moved| db.query_row(&id, [moved], |row| row.get(0)).optional());
        found.ok().flatten().unwrap_or_default()
    }
}
