//! The interface between a migration and the databases at both ends.

use super::rows::{Listed, Mark, Record, Session, Size, User};
use crate::{Error, StoreFuture};
use reseed_protocol::SessionId;

/// The most rows of a page, and the bytes of text after which a page ends.
pub(crate) const PAGE_ROWS: u32 = 1000;
/// See [`PAGE_ROWS`].
pub(crate) const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// A database that is read. All lists are in the order of their keys, in pages of [`PAGE_ROWS`] and [`PAGE_BYTES`]; an
/// empty page ends a list. A row that does not read back as it was written is [`Error::Damaged`].
pub(crate) trait Source: Send {
    /// Returns the number of sessions, and the number of records according to their heads.
    fn size(&mut self) -> StoreFuture<'_, Result<Size, Error>>;

    /// Returns sessions with numbers above `after`.
    fn list(&mut self, after: i64) -> StoreFuture<'_, Result<Vec<Listed>, Error>>;

    /// Returns the session with this id, if there is one.
    fn find<'a>(&'a mut self, id: &'a str) -> StoreFuture<'a, Result<Option<Listed>, Error>>;

    /// Returns a session's row.
    fn session<'a>(&'a mut self, session: &'a SessionId) -> StoreFuture<'a, Result<Session, Error>>;

    /// Returns stored records of a session with larger `seq`. There may be gaps.
    fn records<'a>(
        &'a mut self,
        number: i64,
        session: &'a SessionId,
        after: i64,
    ) -> StoreFuture<'a, Result<Vec<Record>, Error>>;

    /// Returns marks of a session with larger ids.
    fn marks<'a>(
        &'a mut self,
        number: i64,
        session: &'a SessionId,
        after: &'a str,
    ) -> StoreFuture<'a, Result<Vec<Mark>, Error>>;

    /// Returns the servers listed as using the database. A database that only one process can open lists none.
    fn users(&mut self) -> StoreFuture<'_, Result<Vec<User>, Error>>;
}

/// The state of the target when a migration begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It was empty, and is marked now.
    New,
    /// It was marked by an earlier run from the same source.
    Again,
    /// It was marked by a migration from this other source.
    Other(String),
    /// It holds sessions and no mark: an earlier run is complete, or the database is used for something else.
    Full,
}

/// A database that is written to. Nothing needs to be durable before [`Target::finish`].
pub(crate) trait Target: Source {
    /// Marks the target as being filled from this source, unless it is used for anything else.
    fn begin<'a>(&'a mut self, source: &'a str) -> StoreFuture<'a, Result<Begun, Error>>;

    /// Reserves a number for a new session. Its rows are marked for removal until the session is published.
    fn reserve<'a>(&'a mut self, session: &'a SessionId) -> StoreFuture<'a, Result<i64, Error>>;

    /// Writes records of a session that is not published.
    fn put_records<'a>(&'a mut self, number: i64, records: &'a [Record]) -> StoreFuture<'a, Result<(), Error>>;

    /// Writes marks of a session that is not published.
    fn put_marks<'a>(&'a mut self, number: i64, marks: &'a [Mark]) -> StoreFuture<'a, Result<(), Error>>;

    /// Publishes a session whose records have this many bytes.
    fn publish<'a>(&'a mut self, number: i64, session: &'a Session, bytes: u64) -> StoreFuture<'a, Result<(), Error>>;

    /// Deletes a published session and marks its rows for removal.
    fn withdraw<'a>(&'a mut self, session: &'a str) -> StoreFuture<'a, Result<(), Error>>;

    /// Removes all rows that are marked for removal.
    fn sweep(&mut self) -> StoreFuture<'_, Result<(), Error>>;

    /// Makes everything durable and removes the mark.
    fn finish(&mut self) -> StoreFuture<'_, Result<(), Error>>;
}
