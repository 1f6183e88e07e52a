//! A schema of a PostgreSQL database as the source or target of a migration.
//!
//! Statements are sent again if a connection is lost, so every statement must be idempotent. Background work of
//! servers, such as removing deleted sessions, does not run here.

use super::{
    OpenError,
    append::STATE_INLINE_MAX,
    commit_mode, comparing, connect,
    connection::{Connection, Connector, Use},
    fault::Fault,
    read::{self, bounded, listed_at},
    readers::Readers,
    record,
    schema::{self, SchemaError},
    timeline::{LINEAGE, Timelines},
    upkeep,
};
use crate::{
    CommandMark, Error, Head, NodeId, Part, Postgres, SessionHead, StoreFuture,
    checksum::{self, int},
    migrate::{Begun, Listed, Mark, PAGE_BYTES, PAGE_ROWS, Record, Session, Size, Source, Target, User},
    page,
};
use reseed_protocol::SessionId;
use std::{sync::Arc, time::Duration};
use tokio_postgres::{Row, types::ToSql};

/// Keeps this lock apart from the one for creating tables.
const LOCK_OF_MIGRATIONS: i64 = 1 << 48;

/// Refuses the target of an incomplete migration. The table that marks it belongs to no schema step, because it only
/// exists while the migration is incomplete.
pub(super) async fn refuse_marked(db: &Connection, schema: &str) -> Result<(), SchemaError> {
    let found = db.rows("SELECT to_regclass($1) IS NOT NULL", &[&format!("\"{schema}\".migration")]).await?;
    match found.first().is_some_and(|row| row.get(0)) {
        true => Err(SchemaError::Migrating { schema: schema.to_owned() }),
        false => Ok(()),
    }
}

/// A schema.
pub(crate) struct PostgresSide {
    readers: Readers,
    /// Makes a target durable at the end; `None` for a source.
    last: Option<Readers>,
    /// Holds the lock that keeps a second migration out; `None` for a source.
    _lock: Option<Connection>,
}

impl PostgresSide {
    /// Opens a database to read it.
    ///
    /// # Errors
    /// [`OpenError`]: among others, its tables are of another version.
    pub(crate) async fn open_source(database: &Postgres) -> Result<Self, OpenError> {
        let connector = comparing(Connector::new(database, Use::Read, None)?, &Arc::default());
        let first = connect(&connector, database).await?;
        schema::check_all(&first, &database.schema).await?;
        refuse_marked(&first, &database.schema).await?;
        Ok(Self { readers: readers(connector, database)?, last: None, _lock: None })
    }

    /// Opens a database to write to it; creates the tables.
    ///
    /// # Errors
    /// [`OpenError`]: among others, another migration writes to it.
    pub(crate) async fn open_target(database: &Postgres) -> Result<Self, OpenError> {
        let timelines = Arc::<Timelines>::default();
        let first = comparing(Connector::new(database, Use::Write, None)?, &timelines);
        let first = connect(&first, database).await?;
        let durable = Connector::new(database, Use::Write, Some(&commit_mode(&first).await?))?;
        let durable = comparing(durable, &timelines);
        let lock = connect(&durable, database).await?;
        schema::check_server(&lock, database.allows_unsafe).await?;
        schema::migrate(&lock, &database.schema).await?;
        let key = schema::lock_key(&database.schema) ^ LOCK_OF_MIGRATIONS;
        let sql = "SELECT pg_try_advisory_lock($1)";
        let rows = lock.rows(sql, &[&key]).await.map_err(|fault| OpenError::Connect(fault.describe()))?;
        if !rows.first().is_some_and(|row| row.get(0)) {
            return Err(OpenError::Connect("another migration is writing to it; wait for its end".to_owned()));
        }
        // A server crash may lose the last statements; the next run executes them again.
        let quick = comparing(Connector::new(database, Use::Write, Some("off"))?, &timelines);
        Ok(Self { readers: readers(quick, database)?, last: Some(readers(durable, database)?), _lock: Some(lock) })
    }

    /// Returns true if a migration into it is not complete.
    pub(super) async fn has_mark(&self) -> Result<bool, Error> {
        let found = self.rows("SELECT to_regclass('migration') IS NOT NULL", &[]).await?;
        Ok(found.first().is_some_and(|row| row.get(0)))
    }

    /// Executes an idempotent statement and waits until it and everything written before are durable.
    pub(super) async fn write_durably(&self, sql: &str) -> Result<(), Error> {
        let Some(last) = &self.last else { return Err(Error::ReadOnly) };
        last.write(|db, _| async move { db.rows(sql, &[]).await.map(drop) }).await
    }

    pub(super) async fn rows(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        self.readers.read(|db| async move { db.rows(sql, params).await }).await
    }

    /// Executes an idempotent statement.
    pub(super) async fn write(&self, sql: &str, params: &[&(dyn ToSql + Sync)]) -> Result<(), Error> {
        self.readers.write(|db, _| async move { db.rows(sql, params).await.map(drop) }).await
    }
}

fn readers(connector: Connector, database: &Postgres) -> Result<Readers, OpenError> {
    // One statement runs at a time, however many connections a server has.
    Readers::new(connector, 1, database.patience).map_err(|error| OpenError::Connect(error.to_string()))
}

/// Selects the columns of a [`Listed`].
const LISTED: &str = "SELECT s.number, s.id, s.term, h.seq, h.updated_at FROM session s LEFT JOIN LATERAL \
                      (SELECT seq, updated_at FROM head WHERE session = s.number ORDER BY seq DESC LIMIT 1) h ON true";

fn listed(row: &Row) -> Result<Listed, Fault> {
    Ok(Listed {
        number: row.try_get(0)?,
        id: row.try_get(1)?,
        term: row.try_get(2)?,
        last_seq: row.try_get(3)?,
        updated_at: row.try_get(4)?,
    })
}

fn decoded<T>(rows: &[Row], decode: impl Fn(&Row) -> Result<T, Fault>) -> Result<Vec<T>, Fault> {
    rows.iter().map(decode).collect()
}

fn record_of(session: &SessionId, row: &Row) -> Result<Record, Fault> {
    let record::Verified { seq, version, checksum, columns, body } = record::verify(session, row)?;
    let [entry, parent, kind] = columns.map(|text| text.map(str::to_owned));
    let (seq, follows, body) = (seq.cast_signed(), row.try_get(7)?, body.to_owned());
    Ok(Record { seq, version, checksum, entry, parent, kind, follows, body })
}

fn mark_of(session: &SessionId, row: &Row) -> Result<Mark, Fault> {
    let damaged = |reason| Error::Damaged { session: session.clone(), part: Part::Mark, reason };
    let (command, fingerprint): (String, i64) = (row.try_get(0)?, row.try_get(1)?);
    let reply = str::from_utf8(row.try_get(2)?).map_err(|_| damaged("its reply is not UTF-8"))?;
    let mark =
        CommandMark { command_id: command.clone(), fingerprint: fingerprint.cast_unsigned(), reply: reply.into() };
    let checksum = checksum::mark(session, &mark);
    if row.try_get::<_, i64>(3)? != i64::from(checksum) {
        return Err(damaged("checksum mismatch").into());
    }
    Ok(Mark { command, fingerprint, reply: reply.to_owned(), checksum })
}

impl Source for PostgresSide {
    fn size(&mut self) -> StoreFuture<'_, Result<Size, Error>> {
        Box::pin(async {
            let sql = "SELECT (SELECT count(*) FROM session), (SELECT coalesce(sum(seq), 0)::bigint FROM head)";
            let rows = self.rows(sql, &[]).await?;
            let count = |column| rows.first().map_or(0, |row| row.get::<_, i64>(column).cast_unsigned());
            Ok(Size { sessions: count(0), records: count(1), ..Size::default() })
        })
    }

    fn list(&mut self, after: i64) -> StoreFuture<'_, Result<Vec<Listed>, Error>> {
        Box::pin(async move {
            let sql = format!("{LISTED} WHERE s.number > $1 ORDER BY s.number LIMIT $2");
            let rows = self.rows(&sql, &[&after, &i64::from(PAGE_ROWS)]).await?;
            Ok(decoded(&rows, listed)?)
        })
    }

    fn find<'a>(&'a mut self, id: &'a str) -> StoreFuture<'a, Result<Option<Listed>, Error>> {
        Box::pin(async move {
            let rows = self.rows(&format!("{LISTED} WHERE s.id = $1"), &[&id]).await?;
            Ok(rows.first().map(listed).transpose()?)
        })
    }

    fn session<'a>(&'a mut self, session: &'a SessionId) -> StoreFuture<'a, Result<Session, Error>> {
        let work = self.readers.read(move |db| async move {
            let found = read::head(&db, session).await.map_err(|fault| fault.of(session))?;
            let sql = "SELECT s.created_by, (SELECT last_entry FROM head WHERE session = s.number ORDER BY seq DESC \
                       LIMIT 1) FROM session s WHERE s.number = $1";
            let row = db.row(sql, &[&found.number]).await?.ok_or_else(|| Error::NotFound(session.clone()))?;
            Ok(Session { head: found.head, created_by: row.try_get(0)?, last_entry: row.try_get(1)? })
        });
        Box::pin(work)
    }

    fn records<'a>(
        &'a mut self,
        number: i64,
        session: &'a SessionId,
        after: i64,
    ) -> StoreFuture<'a, Result<Vec<Record>, Error>> {
        let columns = format!("{}, follows", record::COLUMNS);
        let sql = bounded(&columns, "seq > $3 ORDER BY seq LIMIT $4", "ASC");
        Box::pin(async move {
            let sql = &sql;
            let read = self.readers.read(|db| async move {
                let (bytes, rows) = (read::bytes(PAGE_BYTES), i64::from(PAGE_ROWS));
                let rows = db.rows(sql, &[&number, &bytes, &after, &rows]).await;
                decoded(&rows.map_err(|fault| fault.of(session))?, |row| record_of(session, row))
            });
            read.await
        })
    }

    fn marks<'a>(
        &'a mut self,
        number: i64,
        session: &'a SessionId,
        after: &'a str,
    ) -> StoreFuture<'a, Result<Vec<Mark>, Error>> {
        let sql = "SELECT command, fingerprint, reply, checksum FROM (SELECT *, row_number() OVER (ORDER BY command) \
                   AS n, sum(octet_length(reply)) OVER (ORDER BY command) AS upto FROM (SELECT command, fingerprint, \
                   reply, checksum FROM mark WHERE session = $1 AND command > $2 ORDER BY command LIMIT $3) AS chosen) \
                   AS summed WHERE upto <= $4 OR n = 1 ORDER BY command";
        let work = self.readers.read(move |db| async move {
            let (rows, bytes) = (i64::from(PAGE_ROWS), read::bytes(PAGE_BYTES));
            let rows = db.rows(sql, &[&number, &after, &rows, &bytes]).await;
            decoded(&rows.map_err(|fault| fault.of(session))?, |row| mark_of(session, row))
        });
        Box::pin(work)
    }

    fn users(&mut self) -> StoreFuture<'_, Result<Vec<User>, Error>> {
        Box::pin(async {
            let rows =
                self.rows("SELECT incarnation, name, lease_millis, beat FROM node ORDER BY name, 1", &[]).await?;
            let user = |row: &Row| {
                let lease = Duration::from_millis(row.try_get::<_, i64>(2)?.max(0).cast_unsigned());
                Ok(User { id: NodeId(row.try_get(0)?), name: row.try_get(1)?, lease, beat: row.try_get(3)? })
            };
            Ok(decoded(&rows, user)?)
        })
    }
}

impl Target for PostgresSide {
    fn begin<'a>(&'a mut self, source: &'a str) -> StoreFuture<'a, Result<Begun, Error>> {
        Box::pin(async move {
            // A run that was killed at its beginning left the table without a row, and nothing else.
            if self.has_mark().await?
                && let Some(row) = self.rows("SELECT source FROM migration", &[]).await?.first()
            {
                let other = String::from_utf8_lossy(row.try_get(0).map_err(Fault::from)?);
                return Ok(if other == source { Begun::Again } else { Begun::Other(other.into_owned()) });
            }
            if !self.rows("SELECT 1 FROM session LIMIT 1", &[]).await?.is_empty() {
                return Ok(Begun::Full);
            }
            let sql =
                "CREATE TABLE IF NOT EXISTS migration (one boolean PRIMARY KEY DEFAULT true, source bytea NOT NULL)";
            self.write(sql, &[]).await?;
            let sql = "INSERT INTO migration (source) VALUES ($1) ON CONFLICT DO NOTHING";
            self.write(sql, &[&source.as_bytes()]).await?;
            Ok(Begun::New)
        })
    }

    fn reserve<'a>(&'a mut self, _: &'a SessionId) -> StoreFuture<'a, Result<i64, Error>> {
        // If the answer is lost, the number has no rows, and the next sweep removes it.
        let sql = "INSERT INTO removal (session) SELECT nextval(pg_get_serial_sequence('session', 'number')) \
                   RETURNING session";
        Box::pin(async move {
            let row = self.readers.write(|db, _| async move { db.row(sql, &[]).await }).await?;
            let row = row.ok_or_else(|| Error::Unknown("the database gave no number".to_owned()))?;
            Ok(row.try_get(0).map_err(Fault::from)?)
        })
    }

    fn put_records<'a>(&'a mut self, number: i64, records: &'a [Record]) -> StoreFuture<'a, Result<(), Error>> {
        let sql = "INSERT INTO record (session, seq, checksum, version, follows, entry, parent, kind, body) \
                   SELECT $1, r.* FROM unnest($2::bigint[], $3::bigint[], $4::smallint[], $5::boolean[], $6::text[], \
                   $7::text[], $8::text[], $9::bytea[]) AS r ON CONFLICT DO NOTHING";
        let (seqs, versions, follows): (Vec<i64>, Vec<i16>, Vec<bool>) = (
            records.iter().map(|record| record.seq).collect(),
            records.iter().map(|record| record.version).collect(),
            records.iter().map(|record| record.follows).collect(),
        );
        let checksums: Vec<i64> = records.iter().map(|record| record.checksum.into()).collect();
        let entries: Vec<Option<&str>> = records.iter().map(|record| record.entry.as_deref()).collect();
        let parents: Vec<Option<&str>> = records.iter().map(|record| record.parent.as_deref()).collect();
        let kinds: Vec<Option<&str>> = records.iter().map(|record| record.kind.as_deref()).collect();
        let bodies: Vec<&[u8]> = records.iter().map(|record| record.body.as_bytes()).collect();
        Box::pin(async move {
            self.write(sql, &[&number, &seqs, &checksums, &versions, &follows, &entries, &parents, &kinds, &bodies])
                .await
        })
    }

    fn put_marks<'a>(&'a mut self, number: i64, marks: &'a [Mark]) -> StoreFuture<'a, Result<(), Error>> {
        let sql = "INSERT INTO mark (session, command, fingerprint, reply, checksum) \
                   SELECT $1, m.* FROM unnest($2::text[], $3::bigint[], $4::bytea[], $5::bigint[]) AS m \
                   ON CONFLICT DO NOTHING";
        let commands: Vec<&str> = marks.iter().map(|mark| mark.command.as_str()).collect();
        let fingerprints: Vec<i64> = marks.iter().map(|mark| mark.fingerprint).collect();
        let replies: Vec<&[u8]> = marks.iter().map(|mark| mark.reply.as_bytes()).collect();
        let checksums: Vec<i64> = marks.iter().map(|mark| mark.checksum.into()).collect();
        Box::pin(async move { self.write(sql, &[&number, &commands, &fingerprints, &replies, &checksums]).await })
    }

    fn publish<'a>(&'a mut self, number: i64, session: &'a Session, bytes: u64) -> StoreFuture<'a, Result<(), Error>> {
        let sql = format!(
            "WITH gone AS (DELETE FROM removal WHERE session = $1), \
             s AS (INSERT INTO session (number, id, owner, checksum, created_by, epoch, timeline, term, name, \
             name_folded, created_at, listed_at) OVERRIDING SYSTEM VALUE \
             VALUES ($1, $2, $3, $4, $5, $6, {LINEAGE}, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING), \
             h AS (INSERT INTO head (session, seq, last_entry, updated_at, entries, token_count, window_tokens, \
             cost_nano_usd, unpriced_requests, running, bytes, checksum, state, state_checksum) \
             VALUES ($1, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, \
             CASE WHEN $25 THEN NULL ELSE $23::bytea END, $24) ON CONFLICT DO NOTHING) \
             INSERT INTO state (session, state, checksum) SELECT $1, $23, $24 WHERE $25 ON CONFLICT DO NOTHING"
        );
        Box::pin(async move {
            let Session { head: SessionHead { session: id, owner, epoch, last_seq, term, head, .. }, .. } = session;
            let Head { name, created_at, updated_at, state, .. } = head;
            let state = state.as_deref();
            let params: [&(dyn ToSql + Sync); 25] = [
                &number,
                &id.as_str(),
                &owner.as_bytes(),
                &i64::from(checksum::owner(id, owner)),
                &session.created_by,
                epoch,
                &int(*term),
                &name.as_bytes(),
                &page::fold(name).into_bytes(),
                &created_at.0,
                &listed_at(*updated_at),
                &int(*last_seq),
                &session.last_entry,
                &updated_at.0,
                &int(head.entries),
                &int(head.token_count),
                &int(head.window_tokens),
                &head.cost_nano_usd.map(int),
                &int(head.unpriced_requests),
                &head.running,
                &int(bytes),
                &i64::from(read::head_checksum(id, *last_seq, head)),
                &state.map(str::as_bytes),
                &state.map_or(0, |state| i64::from(checksum::state(id, state))),
                &state.is_some_and(|state| state.len() > STATE_INLINE_MAX),
            ];
            self.write(&sql, &params).await
        })
    }

    fn withdraw<'a>(&'a mut self, session: &'a str) -> StoreFuture<'a, Result<(), Error>> {
        let sql = "WITH s AS (DELETE FROM session WHERE id = $1 RETURNING number), \
                   h AS (DELETE FROM head USING s WHERE head.session = s.number) \
                   INSERT INTO removal (session) SELECT number FROM s";
        Box::pin(async move { self.write(sql, &[&session]).await })
    }

    fn sweep(&mut self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(self.readers.write(|db, _| async move { upkeep::remove_all(&db).await }))
    }

    fn finish(&mut self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async { self.write_durably("DROP TABLE IF EXISTS migration").await })
    }
}
