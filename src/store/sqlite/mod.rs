//! The default store: one SQLite file, for one node.
//!
//! One thread executes all writes, commits them in groups with `synchronous=FULL`, and copies them from the write-ahead
//! log back into the file. Reads use connections of their own. Only one process at a time may write to the file; others
//! may read it meanwhile.

mod backup;
mod checkpoint;
mod health;
mod history;
mod lock;
mod minutes;
mod open;
mod read;
mod readers;
mod record;
mod removal;
mod renew;
mod schema;
mod scrub;
mod secrets;
mod spending;
mod traces;
pub(super) mod transfer;
mod tree;
mod vacuum;
mod write;
mod writer;

#[cfg(test)]
mod tests;

pub use backup::{BackupError, BackupProgress, backup};
pub use open::{OpenError, Options, Vfs};
pub(super) use renew::renew;
pub use vacuum::{VacuumError, Vacuumed, vacuum};

use super::{
    Append, CommandMark, CommitStats, Created, EntriesPage, EntryQuery, Error, Hits, Lease, ListPage, ListQuery,
    MinuteQuery, MinuteRow, Part, SearchQuery, Secret, SessionHead, SessionStore, StoreFuture, StoredNode,
    StoredRecord, SubtreeQuery, Traces, USAGE_REMOVED_MAX, Usage, UsageFuture, UsageQuery, epoch::new_epoch, search,
    traces::ERASED_WITHIN, walk,
};
use history::Broken;
use open::Beside;
use readers::{READERS, Readers};
use removal::Delete;
use reseed_core::usage_row::UsageRow;
use reseed_protocol::{CommandId, EntryId, SessionId, Timestamp};
use std::{path::Path, sync::Arc};
use tokio::time::timeout;
use traces::Files;
use write::{AppendAt, Create, Open};
use writer::{Parts, Writer};

/// The reason a read or a write was not executed.
#[derive(Debug)]
enum Fault {
    /// Our own rules refused it; nothing was changed.
    Refused(Error),
    /// It was refused after something was changed. The change is rolled back, and other writes continue.
    Undone(Error),
    /// The database failed.
    Sqlite(rusqlite::Error),
}

impl Fault {
    /// Attributes damage that the database found during a read to the session concerned.
    fn reading(self, session: &SessionId) -> Self {
        match self {
            Self::Sqlite(error) if is_damage(&error) => Self::Refused(damaged_pages(session)),
            other => other,
        }
    }

    /// Does the same for a write: after damage in a transaction, SQLite writes nothing more in it.
    fn writing(self, session: &SessionId) -> Self {
        match self {
            Self::Sqlite(error) if is_damage(&error) => Self::Undone(damaged_pages(session)),
            other => other,
        }
    }
}

fn damaged_pages(session: &SessionId) -> Error {
    Error::Damaged { session: session.clone(), part: Part::Pages, reason: "the database cannot read it" }
}

/// Returns true if SQLite could not make sense of the data, or if the data does not have the expected type.
fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::Error as E;
    match error {
        E::SqliteFailure(failure, _) => failure.code == rusqlite::ErrorCode::DatabaseCorrupt,
        E::FromSqlConversionFailure(..)
        | E::IntegralValueOutOfRange(..)
        | E::Utf8Error(..)
        | E::InvalidColumnType(..) => true,
        _ => false,
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Refused(error) | Fault::Undone(error) => error,
            Fault::Sqlite(error) => Self::Unknown(format!("read: {error}")),
        }
    }
}

/// Sessions in a SQLite file. Dropping it without [`SessionStore::close`] waits for the accepted writes.
pub struct SqliteStore {
    readers: Readers,
    /// `None` if the file is open read-only.
    writer: Option<Arc<Writer>>,
    /// `None` if the file is open read-only.
    files: Option<Files>,
    /// Set when the search index is found damaged.
    broken: Broken,
    /// True if searches wait for the index, so that a test knows which code path they take.
    #[cfg(test)]
    waits_for_index: bool,
}

impl SqliteStore {
    /// Opens the file at `path`; creates it, and the directories above it, if they do not exist.
    ///
    /// # Errors
    /// [`OpenError`]: the file is in use, not a reseed database, of a newer version, or unreadable.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_with(path, Options::default())
    }

    /// Opens the file as [`Self::open`] does, and calls `observer` after each commit, before its writes are answered.
    /// The observer runs on the writer's thread, so it must be quick.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_observed(path: &Path, observer: impl Fn(CommitStats) + Send + 'static) -> Result<Self, OpenError> {
        Self::open_with(path, Options { observer: Box::new(observer), ..Options::default() })
    }

    /// Opens the file as [`Self::open`] does, with options.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with(path: &Path, options: Options) -> Result<Self, OpenError> {
        Self::start(path, options, open::SYNCED)
    }

    fn start(path: &Path, options: Options, synchronous: &str) -> Result<Self, OpenError> {
        let Options { observer, checkpoint_pages, retry, index, vfs } = options;
        let opened = open::open(path, Beside::Served, vfs.as_ref())?;
        if opened.found.is_marked {
            return Err(OpenError::Migrating { path: path.to_owned() });
        }
        let mode = opened.writer.pragma_update(None, "synchronous", synchronous);
        mode.map_err(|source| OpenError::Sqlite { path: path.to_owned(), source })?;
        let readers = Readers::new(opened.readers);
        let broken = Broken::default();
        let files = opened.lock.as_ref().and_then(Files::of);
        let parts = Parts {
            db: opened.writer,
            lock: opened.lock,
            observer,
            checkpoint_pages,
            retry,
            readers: readers.pool(),
            has_deletions: opened.found.has_deletions,
            broken: broken.clone(),
            index,
        };
        let writer = Writer::start(parts).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Ok(Self {
            readers,
            writer: Some(Arc::new(writer)),
            files,
            broken,
            #[cfg(test)]
            waits_for_index: false,
        })
    }

    /// Waits until the rows of deleted sessions are removed from the files, unless a step has failed and is retried
    /// later.
    pub async fn settled(&self) {
        if let Some(writer) = &self.writer {
            writer.settled().await;
        }
    }

    /// Waits until every entry is indexed, unless the index cannot be written. Searches do not need to wait: they read
    /// entries that are not indexed.
    pub async fn indexed(&self) {
        if let Some(writer) = &self.writer {
            writer.indexed().await;
        }
    }

    /// Opens the file at `path` read-only, even while a server has it open. Reads see what the server has acknowledged;
    /// writes return [`Error::ReadOnly`].
    ///
    /// # Errors
    /// [`OpenError`]: the file is missing, not a reseed database, of another version, or the target of an incomplete
    /// migration.
    pub fn open_read_only(path: &Path) -> Result<Self, OpenError> {
        let readers = Readers::new(open::open_read_only(path, READERS)?);
        Ok(Self {
            readers,
            writer: None,
            files: None,
            broken: Broken::default(),
            #[cfg(test)]
            waits_for_index: false,
        })
    }

    /// Checks, without changing anything, that a server could use the file at `path` if it is not in use. A server
    /// creates a missing or empty file, and upgrades an older one.
    ///
    /// # Errors
    /// [`OpenError`]: not a reseed database, of a newer version, or the target of an incomplete migration.
    pub(crate) fn check(path: &Path) -> Result<(), OpenError> {
        match std::fs::metadata(path) {
            Ok(found) if found.len() > 0 => {}
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(OpenError::Io { path: path.to_owned(), source }),
        }
        match open::open_read_only(path, 1) {
            Ok(_) | Err(OpenError::Older { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn write<W: writer::Write>(&self, write: W) -> Result<W::Output, Error> {
        match &self.writer {
            Some(writer) => writer.call(write).await,
            None => Err(Error::ReadOnly),
        }
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.readers.close_now();
        // The next process to open the file must find it free. If the writer's thread panicked, it has reported that
        // itself.
        let _ = self.writer.as_ref().map(|writer| writer.close());
    }
}

/// Returns the write that creates a session, with a new epoch.
fn new_session(
    session: &SessionId,
    owner: &str,
    created_by: Option<&CommandId>,
    now: Timestamp,
) -> Result<Create, Error> {
    let (session, owner, epoch) = (session.clone(), owner.to_owned(), new_epoch()?);
    Ok(Create { session, owner, epoch, created_by: created_by.cloned(), term: 1, now })
}

impl SessionStore for SqliteStore {
    fn create_once<'a>(
        &'a self,
        session: &'a SessionId,
        owner: &'a str,
        command: Option<&'a CommandId>,
        now: Timestamp,
    ) -> StoreFuture<'a, Result<Created, Error>> {
        Box::pin(async move { self.write(new_session(session, owner, command, now)?).await })
    }

    fn created_by<'a>(
        &'a self,
        owner: &'a str,
        command: &'a CommandId,
    ) -> StoreFuture<'a, Result<Option<SessionId>, Error>> {
        let (owner, command) = (owner.to_owned(), command.clone());
        Box::pin(self.readers.run(move |db| read::created_by(db, &owner, &command)))
    }

    fn open<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(Lease, SessionHead), Error>> {
        Box::pin(self.write(Open(session.clone())))
    }

    fn append<'a>(&'a self, lease: &'a Lease, first_seq: u64, append: Append) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(self.write(AppendAt { lease: lease.clone(), first_seq, append }))
    }

    fn release<'a>(&'a self, _lease: &'a Lease) -> StoreFuture<'a, Result<(), Error>> {
        // There is only one node, so no other can take the lease. The next `open` makes it stale.
        Box::pin(async { Ok(()) })
    }

    fn read_page<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        limit: u32,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>> {
        let read = move |db: &_, session: &_| read::records(db, session, after_seq, limit, bytes_max);
        Box::pin(self.readers.run_for(session, read))
    }

    fn entries_page<'a>(
        &'a self,
        session: &'a SessionId,
        query: EntryQuery,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<EntriesPage, Error>> {
        Box::pin(self.readers.run_for(session, move |db, session| read::entries(db, session, &query, bytes_max)))
    }

    fn subtree<'a>(
        &'a self,
        session: &'a SessionId,
        query: SubtreeQuery,
    ) -> StoreFuture<'a, Result<Vec<StoredNode>, Error>> {
        Box::pin(
            self.readers.run_for(session, move |db, session| {
                walk::immediate(walk::subtree(&tree::Tree::of(db, session)?, &query))
            }),
        )
    }

    fn entry_seq<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Result<Option<u64>, Error>> {
        let entry = entry.clone();
        Box::pin(self.readers.run_for(session, move |db, session| read::entry_seq(db, session, &entry)))
    }

    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        command_id: &'a str,
    ) -> StoreFuture<'a, Result<Option<CommandMark>, Error>> {
        let command_id = command_id.to_owned();
        Box::pin(self.readers.run_for(session, move |db, session| read::command(db, session, &command_id)))
    }

    fn head<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<SessionHead, Error>> {
        Box::pin(self.readers.run_for(session, |db, session| Ok(read::head(db, session)?.head)))
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<ListPage, Error>> {
        Box::pin(self.readers.run(move |db| read::list(db, &query)))
    }

    fn usage<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Result<Option<Usage>, Error>> {
        let owner = owner.to_owned();
        Box::pin(self.readers.run(move |db| Ok(Some(read::usage(db, &owner)?))))
    }

    fn add_usage(&self, rows: Vec<UsageRow>) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(self.write(spending::Add(rows)))
    }

    fn usage_sums(&self, query: UsageQuery) -> UsageFuture<'_> {
        Box::pin(self.readers.run(move |db| spending::sums(db, &query)))
    }

    fn remove_usage(&self, before: Timestamp) -> StoreFuture<'_, Result<u64, Error>> {
        Box::pin(self.write(spending::Remove { before, limit: USAGE_REMOVED_MAX }))
    }

    fn put_minute(&self, row: MinuteRow) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(self.write(minutes::Put(row)))
    }

    fn minutes(&self, query: MinuteQuery) -> StoreFuture<'_, Result<Vec<MinuteRow>, Error>> {
        Box::pin(self.readers.run(move |db| minutes::rows(db, &query)))
    }

    fn forget_owner<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Result<u64, Error>> {
        Box::pin(self.write(spending::Forget { owner: owner.to_owned(), limit: USAGE_REMOVED_MAX }))
    }

    fn traces<'a>(&'a self, owner: &'a str, sessions: &'a [SessionId]) -> StoreFuture<'a, Result<Traces, Error>> {
        let (owner, sessions, files) = (owner.to_owned(), sessions.to_vec(), self.files.clone());
        Box::pin(async move {
            // What is not erased by then is found.
            let _ = timeout(ERASED_WITHIN, self.settled()).await;
            let name = owner.clone();
            let columns = move |db: &_| {
                let mut traces = Traces::default();
                traces::search_columns(db, &name, &mut traces)?;
                Ok(traces)
            };
            let mut traces = self.readers.run(columns).await?;
            let search =
                move || files.map_or(Ok(()), |files| files.search(&owner, &sessions, &mut traces)).map(|()| traces);
            let searched = tokio::task::spawn_blocking(search).await;
            searched.unwrap_or_else(|_| Err(Error::Unknown("the search of the files panicked".into())))
        })
    }

    fn empty_sessions(&self, before: Timestamp, limit: u32) -> StoreFuture<'_, Result<Vec<SessionId>, Error>> {
        Box::pin(self.readers.run(move |db| Ok(read::empty_sessions(db, before, limit)?)))
    }

    fn search(&self, query: SearchQuery) -> StoreFuture<'_, Result<Hits, Error>> {
        Box::pin(async move {
            #[cfg(test)]
            if self.waits_for_index {
                self.indexed().await;
            }
            search::index::search(self, &query).await
        })
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(self.write(Delete(session.clone())))
    }

    fn secret<'a>(&'a self, name: &'a str, offered: Secret) -> StoreFuture<'a, Result<Secret, Error>> {
        Box::pin(async move {
            let keep = secrets::Keep { name: name.to_owned(), offered };
            let wanted = keep.name.clone();
            match self.readers.run(move |db| secrets::find(db, &wanted)).await? {
                Some(found) => Ok(found),
                None => self.write(keep).await,
            }
        })
    }

    fn failure(&self) -> Option<Error> {
        self.writer.as_ref().and_then(|writer| writer.failure())
    }

    fn check_writable(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            match &self.writer {
                Some(writer) => writer.check().await,
                None => Err(Error::ReadOnly),
            }
        })
    }

    fn close(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            // The readers close first: the last connection to close runs a checkpoint, and a reader cannot write.
            self.readers.close().await;
            let Some(writer) = self.writer.clone() else { return Ok(()) };
            let closed = tokio::task::spawn_blocking(move || writer.close()).await;
            closed.unwrap_or_else(|_| Err(Error::Unknown("closing the store panicked".into())))
        })
    }
}
