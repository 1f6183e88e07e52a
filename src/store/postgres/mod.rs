//! Sessions in PostgreSQL 14 or newer, for operators who already run a database server.
//!
//! - Two connections commit appends in groups (`writer`, `append`). Every other write is a single statement
//!   (`session`). Reads take connections from a pool (`readers`).
//! - The database itself refuses a stale writer: every append locks its session's row and names epoch, term and
//!   position.
//! - When the connection or the server is lost, the fate of writes is determined and reads are retried for as long as
//!   the store's patience lasts. A server restart is only a pause. When the patience is exhausted, the answer is
//!   [`Error::Unknown`].
//! - Several servers may use one schema of a database at the same time. Each session is held by one of them (`nodes`).

mod append;
mod changes;
mod connection;
mod durability;
mod fault;
mod history;
mod hosts;
mod minutes;
mod nodes;
mod read;
mod readers;
mod record;
mod renew;
mod schema;
mod secrets;
mod session;
mod spending;
mod tickets;
mod timeline;
mod tls;
mod traces;
pub(super) mod transfer;
mod tree;
mod upkeep;
mod writer;

#[cfg(test)]
mod tests;

pub use connection::SetupError;
pub(super) use renew::renew;
pub use schema::SchemaError;
pub use tls::Error as TlsError;

use super::{
    Append, Cluster, CommandMark, CommitStats, Created, EntriesPage, EntryQuery, Error, Hits, Lease, ListPage,
    ListQuery, MinuteQuery, MinuteRow, Part, SearchQuery, Secret, SessionHead, SessionStore, StoreFuture, StoredNode,
    StoredRecord, SubtreeQuery, Traces, Usage, UsageFuture, UsageQuery,
    search::{self, index::BLOCK},
    traces::ERASED_WITHIN,
    walk,
};
use crate::Postgres;
use connection::{Connection, Connector, Use};
use durability::Durability;
use fault::Fault;
use history::Indexer;
use nodes::Nodes;
use readers::{Db, Pauses, Readers};
use reseed_core::usage_row::UsageRow;
use reseed_protocol::{CommandId, EntryId, SessionId, Timestamp};
use session::New;
use std::sync::Arc;
use timeline::Timelines;
use tokio::time::{Instant, timeout};
use tree::Tree;
use upkeep::Upkeep;
use writer::Writer;

/// The reason a database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address or the certificates cannot be used.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The server cannot be reached, or refused the connection.
    #[error("{0}")]
    Connect(String),
    /// The database cannot be used as it is.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// Sessions in a PostgreSQL database. If it is dropped without [`SessionStore::close`], accepted appends are completed
/// in the background.
pub struct PostgresStore {
    readers: Arc<Readers>,
    /// `None` if the database is open read-only.
    writer: Option<Writer>,
    /// `None` if the database is open read-only.
    upkeep: Option<Upkeep>,
    /// `None` if the database is open read-only.
    indexer: Option<Indexer>,
    nodes: Nodes,
    /// True if searches wait for the index, so that a test knows which code path they take.
    #[cfg(test)]
    waits_for_index: bool,
}

impl PostgresStore {
    /// Opens a database; creates the schema and its tables if they do not exist. Waits for a server that is starting.
    /// `observer` is called after each commit, before its appends are answered, and must be quick.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(database: &Postgres, observer: impl Fn(CommitStats) + Send + 'static) -> Result<Self, OpenError> {
        let timelines = Arc::<Timelines>::default();
        let (connector, first) = prepared(database, &timelines).await?;
        transfer::refuse_marked(&first, &database.schema).await?;
        drop(first);
        let connector = connector.watching(timelines.clone());
        let readers = Readers::new(connector.clone(), database.readers, database.patience);
        let readers = Arc::new(readers.map_err(|error| OpenError::Connect(error.to_string()))?);
        // A beat that is lost in a crash is soon followed by another.
        let beats = Connector::new(database, Use::Write, Some("off"))?.watching(timelines.clone());
        let nodes = Nodes::new(beats, readers.clone(), timelines);
        let upkeep = Upkeep::start(readers.clone());
        let indexer = Indexer::start(readers.clone(), BLOCK);
        let writer = Writer::start(&connector, database.patience, Box::new(observer));
        Ok(Self {
            readers,
            writer: Some(writer),
            upkeep: Some(upkeep),
            indexer: Some(indexer),
            nodes,
            #[cfg(test)]
            waits_for_index: false,
        })
    }

    /// Opens a database read-only, even while a server uses it. Reads see what the server has acknowledged; writes
    /// return [`Error::ReadOnly`].
    ///
    /// # Errors
    /// [`OpenError`]: among others, there are no tables, they are of another version, or a migration into them is not
    /// complete.
    pub async fn open_read_only(database: &Postgres) -> Result<Self, OpenError> {
        let connector = comparing(Connector::new(database, Use::Read, None)?, &Arc::default());
        let first = connect(&connector, database).await?;
        schema::check(&first, &database.schema).await?;
        transfer::refuse_marked(&first, &database.schema).await?;
        Self::without_writer(connector, database)
    }

    /// Opens a database to manage the servers that share it: it can read, and write requests to servers. It changes no
    /// tables, so they may belong to the previous version's servers.
    ///
    /// # Errors
    /// [`OpenError`]: among others, the tables are missing, or this program does not know them.
    pub async fn open_for_nodes(database: &Postgres) -> Result<Self, OpenError> {
        let connector = comparing(Connector::new(database, Use::Write, None)?, &Arc::default());
        let first = connect(&connector, database).await?;
        schema::check_nodes(&first, &database.schema).await?;
        Self::without_writer(connector, database)
    }

    fn without_writer(connector: Connector, database: &Postgres) -> Result<Self, OpenError> {
        let readers = Readers::new(connector.clone(), database.readers, database.patience);
        let readers = Arc::new(readers.map_err(|error| OpenError::Connect(error.to_string()))?);
        let nodes = Nodes::new(connector, readers.clone(), Arc::default());
        Ok(Self {
            readers,
            writer: None,
            upkeep: None,
            indexer: None,
            nodes,
            #[cfg(test)]
            waits_for_index: false,
        })
    }

    /// Describes the server's version and our tables on it. Then it describes how the server keeps what it
    /// acknowledges, in lines with a label each. Changes nothing.
    ///
    /// # Errors
    /// [`OpenError`]: the server cannot be used, or [`Self::open`] would fail on it, as far as can be checked without
    /// writing.
    pub(crate) async fn describe(database: &Postgres) -> Result<(String, Vec<(&'static str, String)>), OpenError> {
        let timelines = Arc::<Timelines>::default();
        let first = comparing(Connector::new(database, Use::Write, None)?, &timelines);
        let first = connect(&first, database).await?;
        let mode = commit_mode(&first).await?;
        let db = comparing(Connector::new(database, Use::Write, Some(&mode))?, &timelines);
        let db = connect(&db, database).await?;
        schema::check_server(&db, database.allows_unsafe).await?;
        schema::check_can_migrate(&db, &database.schema).await?;
        transfer::refuse_marked(&db, &database.schema).await?;
        let rows = db.rows("SELECT current_setting('server_version')", &[]).await.map_err(SchemaError::from)?;
        let version = rows.first().map_or("of no known version", |row| row.get(0));
        let durability = Durability::of(&first, &mode).await.map_err(SchemaError::from)?;
        let tables = match schema::version(&db, &database.schema).await.map_err(SchemaError::from)? {
            0 => "no tables yet".to_owned(),
            version => format!("tables of version {version}"),
        };
        let about = format!("PostgreSQL {version}; {tables} in the schema {}", database.schema);
        Ok((about, durability.lines()))
    }

    /// Waits until the rows of deleted sessions are removed.
    pub async fn settled(&self) {
        if let Some(upkeep) = &self.upkeep {
            upkeep.settled().await;
        }
    }

    fn writer(&self) -> Result<&Writer, Error> {
        self.writer.as_ref().ok_or(Error::ReadOnly)
    }

    /// Executes a read of a session. A session that was deleted meanwhile is reported as not found, however damaged it
    /// looks.
    async fn read_of<T, W>(&self, session: &SessionId, work: impl Fn(Arc<Db>) -> W) -> Result<T, Error>
    where
        W: Future<Output = Result<T, Fault>>,
    {
        let work = &work;
        self.readers
            .read(|db| async move {
                let before = read::number(&db, session).await?;
                let result = work(db.clone()).await.map_err(|fault| fault.of(session));
                if let Err(Fault::Refused(Error::Damaged { part: Part::Record(_), .. })) = &result
                    && read::number(&db, session).await? != before
                {
                    return Err(Error::NotFound(session.clone()).into());
                }
                result
            })
            .await
    }
}

fn closed() -> Error {
    Error::Unknown("the store is closed".into())
}

/// Returns a connector that compares its hosts if there are several. With a single host there is nothing to compare,
/// and the role needs fewer permissions.
fn comparing(connector: Connector, timelines: &Arc<Timelines>) -> Connector {
    if connector.has_several_hosts() { connector.watching(timelines.clone()) } else { connector }
}

/// Connects for the first time, to the newest copy of the database among its hosts. Waits for a server that is starting
/// or about to start.
async fn connect(connector: &Connector, database: &Postgres) -> Result<Connection, OpenError> {
    let mut pauses = Pauses::until(Instant::now() + database.patience);
    loop {
        connector.survey().await;
        match connector.connect().await {
            Ok(connection) => return Ok(connection),
            Err(fault) if fault.is_passing() && pauses.wait().await => {}
            Err(fault) => return Err(OpenError::Connect(fault.describe())),
        }
    }
}

/// Connects to a database for writing, and creates the tables or brings them up to date. Commits of the connector are
/// durable.
async fn prepared(database: &Postgres, timelines: &Arc<Timelines>) -> Result<(Connector, Connection), OpenError> {
    let first = comparing(Connector::new(database, Use::Write, None)?, timelines);
    let mode = commit_mode(&connect(&first, database).await?).await?;
    let connector = comparing(Connector::new(database, Use::Write, Some(&mode))?, timelines);
    let first = connect(&connector, database).await?;
    schema::check_server(&first, database.allows_unsafe).await?;
    schema::migrate(&first, &database.schema).await?;
    Ok((connector, first))
}

/// Returns the `synchronous_commit` mode for our commits: `on`, or the server's own if that waits for more.
async fn commit_mode(db: &Connection) -> Result<String, OpenError> {
    let rows = db.rows("SELECT current_setting('synchronous_commit')", &[]).await.map_err(SchemaError::from)?;
    let mode: &str = rows.first().map_or("on", |row| row.get(0));
    Ok(if mode == "remote_apply" { "remote_apply".to_owned() } else { "on".to_owned() })
}

impl SessionStore for PostgresStore {
    fn create_once<'a>(
        &'a self,
        session: &'a SessionId,
        owner: &'a str,
        command: Option<&'a CommandId>,
        now: Timestamp,
    ) -> StoreFuture<'a, Result<Created, Error>> {
        Box::pin(async move {
            self.writer()?;
            let holder = self.nodes.member.me();
            New { session, owner, created_by: command, holder, term: 1, now }.create(&self.readers).await
        })
    }

    fn created_by<'a>(
        &'a self,
        owner: &'a str,
        command: &'a CommandId,
    ) -> StoreFuture<'a, Result<Option<SessionId>, Error>> {
        Box::pin(async move {
            let found = self.readers.read(|db| async move { read::created_by(&db, owner, command).await }).await?;
            Ok(found.map(|(session, _)| session))
        })
    }

    fn open<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(Lease, SessionHead), Error>> {
        Box::pin(async move {
            self.writer()?;
            session::open(&self.readers, session, &self.nodes.member, &self.nodes.timelines).await
        })
    }

    fn append<'a>(&'a self, lease: &'a Lease, first_seq: u64, append: Append) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let adds = append.records.iter().any(|record| record.entry.is_some());
            self.writer()?.append(lease, first_seq, append).await?;
            self.indexer.as_ref().filter(|_| adds).inspect(|indexer| indexer.add(&lease.session));
            Ok(())
        })
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.writer()?;
            session::release(&self.readers, lease, &self.nodes.member).await
        })
    }

    fn read_page<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        limit: u32,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>> {
        let work = move |db: Arc<Db>| async move { read::records(&db, session, after_seq, limit, bytes_max).await };
        Box::pin(self.read_of(session, work))
    }

    fn entries_page<'a>(
        &'a self,
        session: &'a SessionId,
        query: EntryQuery,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<EntriesPage, Error>> {
        Box::pin(async move {
            let query = &query;
            self.read_of(session, |db| async move { entries(&db, session, query, bytes_max).await }).await
        })
    }

    fn subtree<'a>(
        &'a self,
        session: &'a SessionId,
        query: SubtreeQuery,
    ) -> StoreFuture<'a, Result<Vec<StoredNode>, Error>> {
        Box::pin(async move {
            let query = &query;
            let work = |db: Arc<Db>| async move { walk::subtree(&Tree::of(&db, session).await?, query).await };
            self.read_of(session, work).await
        })
    }

    fn entry_seq<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Result<Option<u64>, Error>> {
        Box::pin(self.readers.read(move |db| async move { read::entry_seq(&db, session, entry).await }))
    }

    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        command_id: &'a str,
    ) -> StoreFuture<'a, Result<Option<CommandMark>, Error>> {
        Box::pin(self.readers.read(move |db| async move { read::command(&db, session, command_id).await }))
    }

    fn head<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<SessionHead, Error>> {
        Box::pin(self.read_of(session, move |db| async move { Ok(read::head(&db, session).await?.head) }))
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<ListPage, Error>> {
        Box::pin(async move {
            let query = &query;
            self.readers.read(|db| async move { read::list(&db, query).await }).await
        })
    }

    fn usage<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Result<Option<Usage>, Error>> {
        Box::pin(self.readers.read(move |db| async move { read::usage(&db, owner).await.map(Some) }))
    }

    fn add_usage(&self, rows: Vec<UsageRow>) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.writer()?;
            spending::add(&self.readers, &rows).await
        })
    }

    fn usage_sums(&self, query: UsageQuery) -> UsageFuture<'_> {
        Box::pin(async move { spending::sums(&self.readers, &query).await })
    }

    fn remove_usage(&self, before: Timestamp) -> StoreFuture<'_, Result<u64, Error>> {
        Box::pin(async move {
            self.writer()?;
            spending::remove(&self.readers, before).await
        })
    }

    fn put_minute(&self, row: MinuteRow) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.writer()?;
            minutes::put(&self.readers, &row).await
        })
    }

    fn minutes(&self, query: MinuteQuery) -> StoreFuture<'_, Result<Vec<MinuteRow>, Error>> {
        Box::pin(async move { minutes::rows(&self.readers, &query).await })
    }

    fn forget_owner<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            self.writer()?;
            spending::forget(&self.readers, owner).await
        })
    }

    fn traces<'a>(&'a self, owner: &'a str, sessions: &'a [SessionId]) -> StoreFuture<'a, Result<Traces, Error>> {
        Box::pin(async move {
            // What is not removed by then is found.
            let _ = timeout(ERASED_WITHIN, self.settled()).await;
            traces::search(&self.readers, owner, sessions).await
        })
    }

    fn empty_sessions(&self, before: Timestamp, limit: u32) -> StoreFuture<'_, Result<Vec<SessionId>, Error>> {
        Box::pin(self.readers.read(move |db| async move { read::empty_sessions(&db, before, limit).await }))
    }

    fn search(&self, query: SearchQuery) -> StoreFuture<'_, Result<Hits, Error>> {
        Box::pin(async move {
            #[cfg(test)]
            if self.waits_for_index
                && let Some(indexer) = &self.indexer
            {
                indexer.indexed().await;
            }
            search::index::search(self, &query).await
        })
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.writer()?;
            session::delete(&self.readers, session).await?;
            self.upkeep.as_ref().map(Upkeep::wake);
            Ok(())
        })
    }

    fn secret<'a>(&'a self, name: &'a str, offered: Secret) -> StoreFuture<'a, Result<Secret, Error>> {
        Box::pin(async move {
            match secrets::find(&self.readers, name).await? {
                Some(found) => Ok(found),
                None => {
                    self.writer()?;
                    secrets::keep(&self.readers, name, offered).await
                }
            }
        })
    }

    fn failure(&self) -> Option<Error> {
        self.writer.as_ref().and_then(Writer::failure)
    }

    fn check_writable(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.writer()?.failure().map_or(Ok(()), Err)?;
            session::check_writable(&self.readers).await
        })
    }

    fn close(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            if let Some(writer) = &self.writer {
                writer.close().await;
            }
            self.readers.close();
            self.nodes.close();
            Ok(())
        })
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        Some(&self.nodes)
    }
}

async fn entries(db: &Db, session: &SessionId, query: &EntryQuery, bytes_max: usize) -> Result<EntriesPage, Fault> {
    match query {
        EntryQuery::Log { before_seq, after_seq, limit } => {
            read::window(db, session, (*before_seq, *after_seq), *limit, bytes_max).await
        }
        EntryQuery::Kind { kind, after_seq, limit } => {
            read::of_kind(db, session, kind, *after_seq, *limit, bytes_max).await
        }
        _ => Ok(walk::entries(&Tree::of(db, session).await?, query, bytes_max).await?.unwrap_or_default()),
    }
}
