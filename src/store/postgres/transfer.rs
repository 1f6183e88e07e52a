//! A schema of a PostgreSQL database as the source or target of a migration.

use super::{
    OpenError, PostgresStore, comparing, connect,
    connection::{Connection, Connector, Use},
    fault::Fault,
    prepared, read,
    readers::Readers,
    record,
    schema::{self, SchemaError},
    secrets,
    session::New,
    writer::Writer,
};
use crate::{
    CommandMark, Created, EntryColumns, Error, NewRecord, Postgres, Secret, SessionHead, StoreFuture,
    checksum::int,
    migrate::{Bulk, Listed, PAGE_BYTES, PAGE_ROWS, Page, Size},
    spending::{Numbers, USAGE_COLUMNS, purpose, tokens},
};
use reseed_core::usage_row::UsageRow;
use reseed_protocol::{CommandId, SessionId, Timestamp};
use std::sync::Arc;
use tokio_postgres::Row;

/// Returns true if the schema is the target of an incomplete migration. The table that marks it belongs to no schema
/// step, because it only exists while the migration is incomplete.
async fn is_marked(db: &Connection, schema: &str) -> Result<bool, SchemaError> {
    let found = db.rows("SELECT to_regclass($1) IS NOT NULL", &[&format!("\"{schema}\".migration")]).await?;
    Ok(found.first().is_some_and(|row| row.get(0)))
}

/// Refuses the target of an incomplete migration.
pub(super) async fn refuse_marked(db: &Connection, schema: &str) -> Result<(), SchemaError> {
    match is_marked(db, schema).await? {
        true => Err(SchemaError::Migrating { schema: schema.to_owned() }),
        false => Ok(()),
    }
}

/// The end of a migration into a schema. It holds a connection from before the first write. Writes of the store are not
/// synced, so a crash or a failover of the server can lose them, but then this connection ends too.
pub(crate) struct Completion {
    connector: Connector,
    db: Connection,
}

impl Completion {
    /// Removes the mark of the target. This commit is synced, and with it everything written before.
    ///
    /// # Errors
    /// [`Error::Unknown`]: the connection has ended.
    pub(crate) async fn complete(self) -> Result<(), Error> {
        let dropped = match self.db.is_closed() {
            true => Err(Fault::NoConnection("the connection has ended".to_owned())),
            false => self.db.rows("DROP TABLE migration", &[]).await,
        };
        let done = dropped.and_then(|_| replicated(&self.connector));
        done.map_err(|fault| {
            Error::Unknown(format!(
                "{}; the database may have lost what was written last, so run this again into an empty database",
                fault.describe()
            ))
        })
    }
}

/// Fails if a commit has stopped waiting for its standby.
pub(super) fn replicated(connector: &Connector) -> Result<(), Fault> {
    match connector.unreplicated() {
        0 => Ok(()),
        _ => Err(Error::Unknown("the standby did not confirm a commit in time".to_owned()).into()),
    }
}

impl PostgresStore {
    /// Opens a database to copy all of it.
    ///
    /// # Errors
    /// [`OpenError`]: among others, its tables are of another version.
    pub(crate) async fn open_source(database: &Postgres) -> Result<Self, OpenError> {
        let connector = comparing(Connector::new(database, Use::Read, None)?, &Arc::default());
        let first = connect(&connector, database).await?;
        schema::check_all(&first, &database.schema).await?;
        refuse_marked(&first, &database.schema).await?;
        Self::without_writer(connector, database)
    }

    /// Opens a database to copy sessions into it; creates the tables. Writes are only durable after
    /// [`Completion::complete`]: a target that was interrupted is not used.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(crate) async fn open_target(database: &Postgres) -> Result<(Self, Completion), OpenError> {
        let timelines = Arc::default();
        let (connector, db) = prepared(database, &timelines).await?;
        refuse_marked(&db, &database.schema).await?;
        let quick = comparing(Connector::new(database, Use::Write, Some("off"))?, &timelines);
        let writer = Writer::start(&quick, database.patience, Box::new(|_| {}));
        let store = Self { writer: Some(writer), ..Self::without_writer(quick, database)? };
        Ok((store, Completion { connector, db }))
    }
}

fn listed(row: &Row) -> Result<Listed, Fault> {
    Ok(Listed::of(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
}

/// Returns rows with numbers above `after`, for a migration.
async fn usage_page(readers: &Readers, after: i64) -> Result<Vec<(i64, UsageRow)>, Error> {
    let sql = &format!("SELECT {USAGE_COLUMNS}, number FROM model_usage WHERE number > $1 ORDER BY number LIMIT $2");
    let rows = readers.read(|db| async move { db.rows(sql, &[&after, &i64::from(PAGE_ROWS)]).await }).await?;
    Ok(rows.iter().map(read_row).collect::<Result<_, Fault>>()?)
}

fn read_row(row: &Row) -> Result<(i64, UsageRow), Fault> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let session: &str = row.try_get(3)?;
    let damaged = |_| Error::Unknown("the usage of models names an invalid session".to_owned());
    let mut numbers = [0; 6];
    for (at, number) in (7..).zip(&mut numbers) {
        *number = row.try_get(at)?;
    }
    let read = UsageRow {
        id: row.try_get(0)?,
        at: Timestamp(row.try_get(1)?),
        owner: text(row.try_get(2)?),
        session: session.parse().map_err(damaged)?,
        model: text(row.try_get(4)?),
        purpose: purpose(row.try_get(5)?),
        tokens: tokens(numbers),
        source: Numbers::source(row.try_get(6)?),
        cost_nano_usd: row.try_get::<_, Option<i64>>(13)?.map(i64::cast_unsigned),
    };
    Ok((row.try_get(14)?, read))
}

impl Bulk for PostgresStore {
    fn size(&self) -> StoreFuture<'_, Result<Size, Error>> {
        let sql = "SELECT (SELECT count(*) FROM session), (SELECT coalesce(sum(seq), 0)::bigint FROM head)";
        Box::pin(self.readers.read(move |db| async move {
            let row = db.row(sql, &[]).await?;
            let count = |column| row.as_ref().map_or(0, |row| row.get::<_, i64>(column).cast_unsigned());
            Ok(Size { sessions: count(0), records: count(1), marks: 0 })
        }))
    }

    fn listed(&self, after: i64) -> StoreFuture<'_, Result<Vec<Listed>, Error>> {
        let sql = "SELECT number, id, created_by FROM session WHERE number > $1 ORDER BY number LIMIT $2";
        Box::pin(self.readers.read(move |db| async move {
            db.rows(sql, &[&after, &i64::from(PAGE_ROWS)]).await?.iter().map(listed).collect()
        }))
    }

    fn page<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        after_command: &'a str,
    ) -> StoreFuture<'a, Result<Page, Error>> {
        Box::pin(self.read_of(session, move |db| async move {
            let stored = read::records(&db, session, after_seq, PAGE_ROWS, PAGE_BYTES).await?;
            let number = read::number(&db, session).await?;
            let sql = "SELECT entry, parent, kind FROM record WHERE session = $1 AND seq > $2 ORDER BY seq LIMIT $3";
            // Reading the records has verified these columns.
            let columns = db.rows(sql, &[&number, &int(after_seq), &int(stored.len() as u64)]).await?;
            let mut records = Vec::with_capacity(stored.len());
            for (row, stored) in columns.iter().zip(stored) {
                let entry = EntryColumns::stored([row.try_get(0)?, row.try_get(1)?, row.try_get(2)?]);
                let entry = entry.map_err(|reason| record::damaged(session, stored.seq, reason))?;
                records.push(NewRecord { body: stored.body, entry });
            }
            // The page ends with the mark that reaches its bytes.
            let sql = "SELECT fingerprint, reply, checksum, command FROM (SELECT *, sum(octet_length(reply)) \
                       OVER (ORDER BY command) AS upto FROM (SELECT command, fingerprint, reply, checksum FROM mark \
                       WHERE session = $1 AND command > $2 ORDER BY command LIMIT $3) AS chosen) AS summed \
                       WHERE upto - octet_length(reply) < $4 ORDER BY command";
            let (rows, bytes) = (i64::from(PAGE_ROWS), read::bytes(PAGE_BYTES));
            let marks = db.rows(sql, &[&number, &after_command, &rows, &bytes]).await?;
            let marks = marks.iter().map(|row| read::mark(session, row.try_get(3)?, row));
            Ok(Page { records, marks: marks.collect::<Result<Vec<CommandMark>, Fault>>()? })
        }))
    }

    fn create_copy<'a>(
        &'a self,
        head: &'a SessionHead,
        created_by: Option<&'a CommandId>,
    ) -> StoreFuture<'a, Result<Created, Error>> {
        Box::pin(async move {
            let SessionHead { session, owner, term, head, .. } = head;
            let new = New { session, owner, created_by, holder: None, term: *term, now: head.created_at };
            new.create(&self.readers).await
        })
    }

    fn secrets(&self) -> StoreFuture<'_, Result<Vec<(String, Secret)>, Error>> {
        Box::pin(secrets::all(&self.readers))
    }

    fn put_secret<'a>(&'a self, name: &'a str, secret: Secret) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(secrets::replace(&self.readers, name, secret))
    }

    fn usage_page(&self, after: i64) -> StoreFuture<'_, Result<Vec<(i64, UsageRow)>, Error>> {
        Box::pin(usage_page(&self.readers, after))
    }

    fn mark(&self) -> StoreFuture<'_, Result<(), Error>> {
        let sql = "CREATE TABLE migration (source bytea)";
        Box::pin(self.readers.write(move |db, _| async move { db.rows(sql, &[]).await.map(drop) }))
    }
}
