//! A SQLite file as the source or target of a migration. The lock of the file keeps servers out meanwhile.

use super::{
    Fault, OpenError, Options, SqliteStore, new_session, open, read, record, secrets, spending, write::Create,
    writer::Write,
};
use crate::{
    CommandMark, Created, EntryColumns, Error, NewRecord, Secret, SessionHead, StoreFuture,
    checksum::int,
    migrate::{Bulk, Listed, PAGE_BYTES, PAGE_ROWS, Page, Size},
};
use reseed_core::usage_row::UsageRow;
use reseed_protocol::{CommandId, SessionId};
use rusqlite::{Connection, Row};
use std::path::Path;

/// The table that marks a target. It is not part of the schema, because it only exists while a migration is incomplete.
const MARK: &str = "migration";

/// Returns true if the file is the target of an incomplete migration.
pub(super) fn is_marked(db: &Connection) -> rusqlite::Result<bool> {
    db.prepare("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1")?.exists([MARK])
}

/// Makes everything in a target durable and removes the mark.
pub(crate) fn unmark(path: &Path) -> Result<(), OpenError> {
    let opened = open::open(path, open::Beside::Nothing, None)?;
    let removed = opened.writer.execute_batch(&format!("DROP TABLE IF EXISTS {MARK}"));
    removed.map_err(|source| OpenError::Sqlite { path: path.to_owned(), source })
}

/// Marks the file.
struct Mark;

impl Write for Mark {
    type Output = ();

    fn write(&self, db: &Connection) -> Result<(), Fault> {
        Ok(db.execute_batch(&format!("CREATE TABLE {MARK} (source TEXT)"))?)
    }
}

impl SqliteStore {
    /// Opens a file for a migration. Nothing is indexed, and writes are only durable once the store is closed: a target
    /// that was interrupted is not used.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub(crate) fn open_bulk(path: &Path) -> Result<Self, OpenError> {
        Self::start(path, Options { index: false, ..Options::default() }, "NORMAL")
    }
}

fn page(db: &Connection, session: &SessionId, after_seq: u64, after_command: &str) -> Result<Page, Fault> {
    let stored = read::records(db, session, after_seq, PAGE_ROWS, PAGE_BYTES)?;
    let number = read::number(db, session)?;
    let mut statement = db.prepare_cached(
        "SELECT entry, parent, kind FROM record WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
    )?;
    // Reading the records has verified these columns.
    let columns = statement.query_map((number, int(after_seq), int(stored.len() as u64)), |row| {
        Ok([row.get(0)?, row.get(1)?, row.get(2)?])
    })?;
    let mut records = Vec::with_capacity(stored.len());
    for (columns, stored) in columns.zip(stored) {
        let entry = EntryColumns::stored(columns?).map_err(|reason| record::damaged(session, stored.seq, reason))?;
        records.push(NewRecord { body: stored.body, entry });
    }
    Ok(Page { records, marks: marks(db, session, number, after_command)? })
}

fn marks(db: &Connection, session: &SessionId, number: i64, after: &str) -> Result<Vec<CommandMark>, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT fingerprint, reply, checksum, command FROM mark WHERE session = ?1 AND command > ?2 \
         ORDER BY command LIMIT ?3",
    )?;
    let mut rows = statement.query((number, after, PAGE_ROWS))?;
    let (mut marks, mut bytes) = (Vec::new(), 0);
    while bytes < PAGE_BYTES
        && let Some(row) = rows.next()?
    {
        let mark = read::mark(session, row.get(3)?, row)?;
        bytes += mark.reply.len();
        marks.push(mark);
    }
    Ok(marks)
}

impl Bulk for SqliteStore {
    fn size(&self) -> StoreFuture<'_, Result<Size, Error>> {
        let sql = "SELECT count(*), coalesce(sum(last_seq), 0) FROM session";
        let count = |row: &Row<'_>, column| row.get::<_, i64>(column).map(i64::cast_unsigned);
        Box::pin(self.readers.run(move |db| {
            let size = |row: &Row<'_>| Ok(Size { sessions: count(row, 0)?, records: count(row, 1)?, marks: 0 });
            Ok(db.query_row(sql, [], size)?)
        }))
    }

    fn listed(&self, after: i64) -> StoreFuture<'_, Result<Vec<Listed>, Error>> {
        Box::pin(self.readers.run(move |db| Ok(read::listed(db, after)?)))
    }

    fn page<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        after_command: &'a str,
    ) -> StoreFuture<'a, Result<Page, Error>> {
        let command = after_command.to_owned();
        Box::pin(self.readers.run_for(session, move |db, session| page(db, session, after_seq, &command)))
    }

    fn create_copy<'a>(
        &'a self,
        head: &'a SessionHead,
        created_by: Option<&'a CommandId>,
    ) -> StoreFuture<'a, Result<Created, Error>> {
        Box::pin(async move {
            let new = new_session(&head.session, &head.owner, created_by, head.head.created_at)?;
            self.write(Create { term: head.term, ..new }).await
        })
    }

    fn secrets(&self) -> StoreFuture<'_, Result<Vec<(String, Secret)>, Error>> {
        Box::pin(self.readers.run(secrets::all))
    }

    fn put_secret<'a>(&'a self, name: &'a str, secret: Secret) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(self.write(secrets::Replace { name: name.to_owned(), secret }))
    }

    fn usage_page(&self, after: i64) -> StoreFuture<'_, Result<Vec<(i64, UsageRow)>, Error>> {
        Box::pin(self.readers.run(move |db| spending::page(db, after)))
    }

    fn mark(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(self.write(Mark))
    }
}
