//! A SQLite file as the source or target of a migration. It is opened as a server opens it, so no server can use it
//! meanwhile.
//!
//! The calls block the thread for as long as SQLite takes: the migrating command does nothing else meanwhile.

use super::{
    Fault, OpenError,
    lock::Lock,
    open::{self, Opened},
    read, record,
    vacuum::remove_hidden,
    write::NewRow,
};
use crate::{
    CommandMark, Error, Part, SessionHead, StoreFuture, checksum,
    migrate::{Begun, Listed, Mark, PAGE_BYTES, PAGE_ROWS, Record, Session, Size, Source, Target, User},
};
use reseed_protocol::SessionId;
use rusqlite::{Connection, OptionalExtension as _, Row, types::ValueRef};
use std::{future::ready, path::Path};

/// The table that marks a target. It is not part of the schema, because it only exists while a migration is incomplete.
const MARK: &str = "migration";

/// Returns true if the file is the target of an incomplete migration.
pub(super) fn is_marked(db: &Connection) -> rusqlite::Result<bool> {
    db.prepare("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1")?.exists([MARK])
}

/// An open file. The lock is released after the connection is closed.
pub(crate) struct SqliteSide {
    db: Connection,
    _lock: Option<Lock>,
}

impl SqliteSide {
    /// Opens the file at `path`; creates it if it does not exist.
    ///
    /// # Errors
    /// [`OpenError`]: among others, a server uses it.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        let Opened { writer: db, lock, .. } = open::open(path, open::Beside::Nothing, None)?;
        Ok(Self { db, _lock: lock })
    }

    /// Opens a file to read all of it. Refuses the target of an unfinished migration.
    pub(crate) fn open_source(path: &Path) -> Result<Self, OpenError> {
        let Opened { writer: db, lock, found, .. } = open::open(path, open::Beside::Nothing, None)?;
        if found.is_marked {
            return Err(OpenError::Migrating { path: path.to_owned() });
        }
        Ok(Self { db, _lock: lock })
    }
}

const LISTED: &str = "number, id, term, last_seq, updated_at";

fn listed(row: &Row<'_>) -> rusqlite::Result<Listed> {
    let id = match row.get_ref(1)? {
        ValueRef::Text(id) => String::from_utf8_lossy(id).into_owned(),
        _ => String::new(),
    };
    // Damage is reported when the session is read.
    Ok(Listed {
        number: row.get(0)?,
        id,
        term: row.get(2).unwrap_or(-1),
        last_seq: row.get(3).ok(),
        updated_at: row.get(4).ok(),
    })
}

/// Takes rows until their texts reach [`PAGE_BYTES`].
fn page_of<T>(
    mut rows: rusqlite::Rows<'_>,
    take: impl Fn(&Row<'_>) -> Result<(T, usize), Fault>,
) -> Result<Vec<T>, Fault> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    while bytes < PAGE_BYTES
        && let Some(row) = rows.next()?
    {
        let (value, len) = take(row)?;
        bytes += len;
        page.push(value);
    }
    Ok(page)
}

impl SqliteSide {
    fn records_of(&self, number: i64, session: &SessionId, after: i64) -> Result<Vec<Record>, Fault> {
        let sql = format!(
            "SELECT {}, follows FROM record WHERE session = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
            record::COLUMNS
        );
        let mut statement = self.db.prepare_cached(&sql)?;
        page_of(statement.query((number, after, PAGE_ROWS))?, |row| {
            let record::Verified { seq, version, checksum, columns, body } = record::verify(session, row)?;
            let damaged = |reason| record::damaged(session, seq, reason);
            let text = |text: Option<&[u8]>| match text.map(|text| str::from_utf8(text).map(str::to_owned)) {
                Some(Err(_)) => Err(damaged("a column is not UTF-8")),
                Some(Ok(text)) => Ok(Some(text)),
                None => Ok(None),
            };
            let [entry, parent, kind] = columns;
            let record = Record {
                seq: seq.cast_signed(),
                version: i16::try_from(version).map_err(|_| damaged("unknown format version"))?,
                checksum,
                entry: text(entry)?,
                parent: text(parent)?,
                kind: text(kind)?,
                follows: row.get::<_, Option<i64>>(7)?.is_some_and(|follows| follows != 0),
                body: body.to_owned(),
            };
            Ok((record, body.len()))
        })
    }

    fn marks_of(&self, number: i64, session: &SessionId, after: &str) -> Result<Vec<Mark>, Fault> {
        let mut statement = self.db.prepare_cached(
            "SELECT command, fingerprint, reply, checksum FROM mark WHERE session = ?1 AND command > ?2 \
             ORDER BY command LIMIT ?3",
        )?;
        page_of(statement.query((number, after, PAGE_ROWS))?, |row| {
            let (command, fingerprint, reply): (String, i64, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let mark = CommandMark {
                command_id: command.clone(),
                fingerprint: fingerprint.cast_unsigned(),
                reply: reply.as_str().into(),
            };
            let checksum = checksum::mark(session, &mark);
            // Version 1 of the tables had no checksum.
            if !matches!(row.get_ref(3)?, ValueRef::Null) && row.get_ref(3)? != ValueRef::Integer(checksum.into()) {
                let (session, part) = (session.clone(), Part::Mark);
                return Err(Error::Damaged { session, part, reason: "checksum mismatch" }.into());
            }
            let bytes = reply.len();
            Ok((Mark { command, fingerprint, reply, checksum }, bytes))
        })
    }

    fn session_of(&self, session: &SessionId) -> Result<Session, Fault> {
        let found = read::head(&self.db, session)?;
        let mut statement = self.db.prepare_cached("SELECT created_by FROM session WHERE number = ?1")?;
        let created_by = statement.query_row([found.number], |row| row.get(0))?;
        let head = SessionHead { term: found.term, ..found.head };
        Ok(Session { head, created_by, last_entry: found.last_entry })
    }

    /// Executes writes in one transaction.
    fn transaction<T>(&self, write: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        let work = || {
            let transaction = self.db.unchecked_transaction()?;
            let done = write(&transaction)?;
            transaction.commit()?;
            Ok(done)
        };
        work().map_err(failed)
    }

    fn begin_from(&self, source: &str) -> Result<Begun, Error> {
        // Before the end, a crash of the machine may lose the last transactions; the next run copies them again.
        self.db.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
        self.transaction(|db| {
            if is_marked(db)? {
                let sql = format!("SELECT source FROM {MARK}");
                let other: String = db.query_row(&sql, [], |row| row.get(0))?;
                return Ok(if other == source { Begun::Again } else { Begun::Other(other) });
            }
            if db.prepare("SELECT 1 FROM session LIMIT 1")?.exists([])? {
                return Ok(Begun::Full);
            }
            db.execute_batch(&format!("CREATE TABLE {MARK} (source TEXT NOT NULL)"))?;
            db.execute(&format!("INSERT INTO {MARK} (source) VALUES (?1)"), [source])?;
            Ok(Begun::New)
        })
    }

    fn publish_as(&self, number: i64, session: &Session, bytes: u64) -> Result<(), Error> {
        let (created_by, last_entry) = (session.created_by.as_deref(), session.last_entry.as_deref());
        let row = NewRow { number: Some(number), head: &session.head, last_entry, created_by, bytes };
        self.transaction(|db| {
            db.prepare_cached("DELETE FROM deletion WHERE number = ?1")?.execute([number])?;
            row.insert(db)
        })
    }

    fn put_records_of(&self, number: i64, records: &[Record]) -> Result<(), Error> {
        self.transaction(|db| {
            let mut insert = db.prepare_cached(
                "INSERT INTO record (session, seq, version, checksum, entry, parent, kind, body, follows) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?;
            for record in records {
                insert.execute((
                    number,
                    record.seq,
                    record.version,
                    record.checksum,
                    &record.entry,
                    &record.parent,
                    &record.kind,
                    &record.body,
                    record.follows.then_some(1),
                ))?;
            }
            Ok(())
        })
    }

    fn put_marks_of(&self, number: i64, marks: &[Mark]) -> Result<(), Error> {
        self.transaction(|db| {
            let mut insert = db.prepare_cached(
                "INSERT INTO mark (session, command, fingerprint, reply, checksum) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?;
            for mark in marks {
                insert.execute((number, &mark.command, mark.fingerprint, &mark.reply, mark.checksum))?;
            }
            Ok(())
        })
    }

    /// Reserves the next number. Numbers grow, and none is used twice, not even one that an earlier run reserved.
    fn reserve_for(&self, session: &SessionId) -> Result<i64, Error> {
        self.transaction(|db| {
            let number: i64 = db
                .prepare_cached(
                    "SELECT 1 + max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'session'), 0), \
                     coalesce((SELECT max(number) FROM deletion), 0))",
                )?
                .query_row([], |row| row.get(0))?;
            db.prepare_cached("INSERT INTO deletion (number, id) VALUES (?1, ?2)")?
                .execute((number, session.as_str()))?;
            Ok(number)
        })
    }

    fn withdraw_of(&self, session: &str) -> Result<(), Error> {
        self.transaction(|db| {
            db.execute("INSERT INTO deletion (number, id) SELECT number, id FROM session WHERE id = ?1", [session])?;
            db.execute("DELETE FROM session WHERE id = ?1", [session])?;
            Ok(())
        })
    }

    fn end(&self) -> rusqlite::Result<()> {
        self.db.pragma_update(None, "synchronous", "FULL")?;
        self.db.execute_batch(&format!("DROP TABLE IF EXISTS {MARK}"))?;
        // This sync also makes everything durable that was written without one.
        open::to_the_end(&self.db, "PRAGMA wal_checkpoint(TRUNCATE)").map(drop)
    }
}

fn failed(error: rusqlite::Error) -> Error {
    Error::Unknown(error.to_string())
}

/// Wraps a finished result in a future.
fn now<'a, T: Send + 'a>(done: T) -> StoreFuture<'a, T> {
    Box::pin(ready(done))
}

impl Source for SqliteSide {
    fn size(&mut self) -> StoreFuture<'_, Result<Size, Error>> {
        let sql = "SELECT count(*), coalesce(sum(last_seq), 0) FROM session";
        let count = |row: &Row<'_>, column| row.get::<_, i64>(column).map(i64::cast_unsigned);
        let size = self.db.query_row(sql, [], |row| {
            Ok(Size { sessions: count(row, 0)?, records: count(row, 1)?, ..Size::default() })
        });
        now(size.map_err(failed))
    }

    fn list(&mut self, after: i64) -> StoreFuture<'_, Result<Vec<Listed>, Error>> {
        let sql = format!("SELECT {LISTED} FROM session WHERE number > ?1 ORDER BY number LIMIT ?2");
        let list = || -> rusqlite::Result<Vec<Listed>> {
            self.db.prepare_cached(&sql)?.query_map((after, PAGE_ROWS), listed)?.collect()
        };
        now(list().map_err(failed))
    }

    fn find<'a>(&'a mut self, id: &'a str) -> StoreFuture<'a, Result<Option<Listed>, Error>> {
        let sql = format!("SELECT {LISTED} FROM session WHERE id = ?1");
        let find = || self.db.prepare_cached(&sql)?.query_row([id], listed).optional();
        now(find().map_err(failed))
    }

    fn session<'a>(&'a mut self, session: &'a SessionId) -> StoreFuture<'a, Result<Session, Error>> {
        now(self.session_of(session).map_err(|fault| fault.reading(session).into()))
    }

    fn records<'a>(
        &'a mut self,
        number: i64,
        session: &'a SessionId,
        after: i64,
    ) -> StoreFuture<'a, Result<Vec<Record>, Error>> {
        now(self.records_of(number, session, after).map_err(|fault| fault.reading(session).into()))
    }

    fn marks<'a>(
        &'a mut self,
        number: i64,
        session: &'a SessionId,
        after: &'a str,
    ) -> StoreFuture<'a, Result<Vec<Mark>, Error>> {
        now(self.marks_of(number, session, after).map_err(|fault| fault.reading(session).into()))
    }

    fn users(&mut self) -> StoreFuture<'_, Result<Vec<User>, Error>> {
        // The lock of the file keeps everyone else out.
        now(Ok(Vec::new()))
    }
}

impl Target for SqliteSide {
    fn begin<'a>(&'a mut self, source: &'a str) -> StoreFuture<'a, Result<Begun, Error>> {
        now(self.begin_from(source))
    }

    fn reserve<'a>(&'a mut self, session: &'a SessionId) -> StoreFuture<'a, Result<i64, Error>> {
        now(self.reserve_for(session))
    }

    fn put_records<'a>(&'a mut self, number: i64, records: &'a [Record]) -> StoreFuture<'a, Result<(), Error>> {
        now(self.put_records_of(number, records))
    }

    fn put_marks<'a>(&'a mut self, number: i64, marks: &'a [Mark]) -> StoreFuture<'a, Result<(), Error>> {
        now(self.put_marks_of(number, marks))
    }

    fn publish<'a>(&'a mut self, number: i64, session: &'a Session, bytes: u64) -> StoreFuture<'a, Result<(), Error>> {
        now(self.publish_as(number, session, bytes))
    }

    fn withdraw<'a>(&'a mut self, session: &'a str) -> StoreFuture<'a, Result<(), Error>> {
        now(self.withdraw_of(session))
    }

    fn sweep(&mut self) -> StoreFuture<'_, Result<(), Error>> {
        now(remove_hidden(&self.db).map_err(failed))
    }

    fn finish(&mut self) -> StoreFuture<'_, Result<(), Error>> {
        now(self.end().map_err(failed))
    }
}
