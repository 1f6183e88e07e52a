//! The default store: one SQLite file, for one node.
//!
//! All writes go through one thread that commits them in groups with `synchronous=FULL`; reads have connections of their
//! own. One process at a time may have the file.

mod lock;
mod open;
mod read;
mod readers;
mod record;
mod schema;
mod tree;
mod write;
mod writer;

#[cfg(test)]
mod tests;

pub use open::OpenError;

use super::{
    Append, CommandMark, EntryQuery, Error, Lease, ListPage, ListQuery, SessionHead, SessionStore, StoreFuture,
    StoredNode, StoredRecord, SubtreeQuery, walk,
};
use readers::{READERS, Readers};
use reseed_protocol::{EntryId, SessionId, Timestamp};
use std::{path::Path, sync::Arc, time::Duration};
use write::{AppendAt, Create, Delete, Open};
use writer::Writer;

/// What the writer has done since the store was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitStats {
    /// Commits that wrote something; each has synced the disk.
    pub commits: u64,
    /// Records appended.
    pub records: u64,
    /// Bytes of bodies, replies and states written.
    pub bytes: u64,
    /// How long the newest commit took, its sync included and the writing before it not.
    pub last_commit: Duration,
}

/// Why a read or a write was not done.
#[derive(Debug)]
enum Fault {
    /// By our own rules; nothing was changed.
    Refused(Error),
    /// The database failed.
    Sqlite(rusqlite::Error),
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
            Fault::Refused(error) => error,
            Fault::Sqlite(error) => Self::Unknown(format!("read: {error}")),
        }
    }
}

/// Sessions in a SQLite file. Dropping it without [`SessionStore::close`] waits for the writes already accepted.
pub struct SqliteStore {
    readers: Readers,
    writer: Arc<Writer>,
}

impl SqliteStore {
    /// Opens the file at `path`; makes it, and the directories above it, where there is none.
    ///
    /// # Errors
    /// [`OpenError`]: in use, not ours, of a newer version, or not to be opened at all.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_observed(path, |_| {})
    }

    /// Like [`Self::open`], and calls `observer` after each commit, before its writes are answered. It runs on the
    /// writer's thread: it must be quick.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_observed(path: &Path, observer: impl Fn(CommitStats) + Send + 'static) -> Result<Self, OpenError> {
        let opened = open::open(path, READERS)?;
        let writer = Writer::start(opened.writer, opened.lock, Box::new(observer))
            .map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        Ok(Self { readers: Readers::new(opened.readers), writer: Arc::new(writer) })
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.readers.close_now();
        // Whoever opens the file next finds it free. A panic of the writer has been reported by its own thread.
        let _ = self.writer.close();
    }
}

impl SessionStore for SqliteStore {
    fn create<'a>(
        &'a self,
        session: &'a SessionId,
        owner: &'a str,
        now: Timestamp,
    ) -> StoreFuture<'a, Result<Lease, Error>> {
        Box::pin(async move {
            let random = getrandom::u64().map_err(|error| Error::Unknown(format!("make an epoch: {error}")))?;
            let (session, owner, epoch) = (session.clone(), owner.to_owned(), format!("{random:016x}"));
            self.writer.call(Create { session, owner, epoch, now }).await
        })
    }

    fn open<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(Lease, SessionHead), Error>> {
        Box::pin(self.writer.call(Open(session.clone())))
    }

    fn append<'a>(&'a self, lease: &'a Lease, first_seq: u64, append: Append) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(self.writer.call(AppendAt { lease: lease.clone(), first_seq, append }))
    }

    fn release<'a>(&'a self, _lease: &'a Lease) -> StoreFuture<'a, Result<(), Error>> {
        // One node: there is nobody to leave it to. The next `open` makes the lease stale.
        Box::pin(async { Ok(()) })
    }

    fn read<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        limit: u32,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>> {
        let session = session.clone();
        Box::pin(self.readers.ask(move |db| read::records(db, &session, after_seq, limit)))
    }

    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        query: EntryQuery,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>> {
        let session = session.clone();
        Box::pin(self.readers.ask(move |db| read::entries(db, &session, &query)))
    }

    fn subtree<'a>(
        &'a self,
        session: &'a SessionId,
        query: SubtreeQuery,
    ) -> StoreFuture<'a, Result<Vec<StoredNode>, Error>> {
        let session = session.clone();
        Box::pin(self.readers.ask(move |db| walk::subtree(&tree::Tree::of(db, &session)?, &query)))
    }

    fn entry_seq<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Result<Option<u64>, Error>> {
        let (session, entry) = (session.clone(), entry.clone());
        Box::pin(self.readers.ask(move |db| read::entry_seq(db, &session, &entry)))
    }

    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        command_id: &'a str,
    ) -> StoreFuture<'a, Result<Option<CommandMark>, Error>> {
        let (session, command_id) = (session.clone(), command_id.to_owned());
        Box::pin(self.readers.ask(move |db| read::command(db, &session, &command_id)))
    }

    fn head<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<SessionHead, Error>> {
        let session = session.clone();
        Box::pin(self.readers.ask(move |db| read::head(db, &session)))
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<ListPage, Error>> {
        Box::pin(self.readers.ask(move |db| read::list(db, &query)))
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(self.writer.call(Delete(session.clone())))
    }

    fn close(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            // The readers first: the last connection to go copies the WAL back, and theirs cannot write.
            self.readers.close().await;
            let writer = self.writer.clone();
            let closed = tokio::task::spawn_blocking(move || writer.close()).await;
            closed.unwrap_or_else(|_| Err(Error::Unknown("close did not end".into())))
        })
    }
}
