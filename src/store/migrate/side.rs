//! What a migration asks of the database at each of its ends.

use super::rows::{Listed, Mark, Record, Session, Size, User};
use crate::store::{Error, StoreFuture};
use reseed_protocol::SessionId;

/// Rows of a page, and the bytes of texts with which a page ends.
pub(in crate::store) const PAGE_ROWS: u32 = 1000;
/// See [`PAGE_ROWS`].
pub(in crate::store) const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// A database to read. All lists are in the order of their keys, in pages of [`PAGE_ROWS`] and [`PAGE_BYTES`]; an empty
/// page is the end. What does not read back as it was written is [`Error::Damaged`].
pub(in crate::store) trait Source: Send {
    /// Returns the sessions and the records that their heads tell of.
    fn size(&mut self) -> StoreFuture<'_, Result<Size, Error>>;

    /// Returns sessions with larger numbers.
    fn list(&mut self, after: i64) -> StoreFuture<'_, Result<Vec<Listed>, Error>>;

    /// Returns the session with this id, if there is one.
    fn find<'a>(&'a mut self, id: &'a str) -> StoreFuture<'a, Result<Option<Listed>, Error>>;

    /// Returns a session's row.
    fn session<'a>(&'a mut self, session: &'a SessionId) -> StoreFuture<'a, Result<Session, Error>>;

    /// Returns records of a session with larger `seq`, as they are there: there may be gaps.
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

    /// Returns the servers that are listed as using it. A database that only one process can open lists none.
    fn users(&mut self) -> StoreFuture<'_, Result<Vec<User>, Error>>;
}

/// Says how a migration finds its target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) enum Begun {
    /// It was empty, and is marked now.
    New,
    /// It was marked by an earlier run from the same source.
    Again,
    /// It was marked by a migration from this other source.
    Other(String),
    /// It holds sessions, and no migration marks it: an earlier run is complete, or it is used for something else.
    Full,
}

/// A database to write. Until [`Target::finish`] nothing needs to be durable.
pub(in crate::store) trait Target: Source {
    /// Marks the target as being filled from this source, unless it is used for anything else.
    fn begin<'a>(&'a mut self, source: &'a str) -> StoreFuture<'a, Result<Begun, Error>>;

    /// Returns a number for a new session. Until it is published, its rows count as to be removed.
    fn reserve<'a>(&'a mut self, session: &'a SessionId) -> StoreFuture<'a, Result<i64, Error>>;

    /// Writes records of a session that is not published.
    fn put_records<'a>(&'a mut self, number: i64, records: &'a [Record]) -> StoreFuture<'a, Result<(), Error>>;

    /// Writes marks of a session that is not published.
    fn put_marks<'a>(&'a mut self, number: i64, marks: &'a [Mark]) -> StoreFuture<'a, Result<(), Error>>;

    /// Publishes a session, whose records have this many bytes.
    fn publish<'a>(&'a mut self, number: i64, session: &'a Session, bytes: u64) -> StoreFuture<'a, Result<(), Error>>;

    /// Deletes a published session; its rows count as to be removed.
    fn withdraw<'a>(&'a mut self, session: &'a str) -> StoreFuture<'a, Result<(), Error>>;

    /// Removes all rows that are to be removed.
    fn sweep(&mut self) -> StoreFuture<'_, Result<(), Error>>;

    /// Makes everything durable and takes the mark away.
    fn finish(&mut self) -> StoreFuture<'_, Result<(), Error>>;
}
