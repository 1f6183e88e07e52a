//! What a migration needs of a store in addition to [`SessionStore`].

use crate::{CommandMark, Created, EntryColumns, Error, NewRecord, Secret, SessionHead, SessionStore, StoreFuture};
use reseed_core::usage_row::UsageRow;
use reseed_protocol::{CommandId, SessionId};

/// The most rows of a page, and the bytes of text after which a page ends.
pub(crate) const PAGE_ROWS: u32 = 1000;
/// See [`PAGE_ROWS`].
pub(crate) const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// The size of a database or a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Sessions.
    pub sessions: u64,
    /// Their records.
    pub records: u64,
    /// Their commands' marks.
    pub marks: u64,
}

/// A session as it appears in the list of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The number that its store assigned.
    pub(crate) number: i64,
    /// Its id; `None` if damage has made it invalid.
    pub(crate) id: Option<SessionId>,
    /// The command that created it.
    pub(crate) created_by: Option<CommandId>,
}

impl Listed {
    /// Reads the columns `number`, `id` and `created_by`.
    pub(crate) fn of(number: i64, id: Option<&str>, created_by: Option<&str>) -> Self {
        let created_by = created_by.and_then(|command| command.parse().ok());
        Self { number, id: id.and_then(|id| id.parse().ok()), created_by }
    }
}

impl EntryColumns {
    /// Returns the columns `entry`, `parent` and `kind` of a record; `None` if it appends no entry.
    ///
    /// # Errors
    /// The reason the record is damaged.
    pub(crate) fn stored([entry, parent, kind]: [Option<String>; 3]) -> Result<Option<Self>, &'static str> {
        let (Some(entry), Some(kind)) = (entry, kind) else { return Ok(None) };
        let invalid = |_| "the id of an entry is not valid";
        let parent_id = parent.map(|parent| parent.parse()).transpose().map_err(invalid)?;
        Ok(Some(Self { entry_id: entry.parse().map_err(invalid)?, parent_id, kind }))
    }
}

/// A part of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    /// Records with consecutive `seq`.
    pub(crate) records: Vec<NewRecord>,
    /// Marks, ordered by the bytes of their ids.
    pub(crate) marks: Vec<CommandMark>,
}

/// A store that can be copied as a whole, and that can be the target of a copy. Lists come in pages of [`PAGE_ROWS`]
/// and [`PAGE_BYTES`]; an empty page ends a list.
pub(crate) trait Bulk: SessionStore {
    /// Returns the number of sessions, and the number of records according to their heads.
    fn size(&self) -> StoreFuture<'_, Result<Size, Error>>;

    /// Returns sessions with numbers above `after`.
    fn listed(&self, after: i64) -> StoreFuture<'_, Result<Vec<Listed>, Error>>;

    /// Returns records with larger `seq`, and marks with larger ids.
    fn page<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        after_command: &'a str,
    ) -> StoreFuture<'a, Result<Page, Error>>;

    /// Creates an empty session with this head's id, owner and term, and opens it.
    fn create_copy<'a>(
        &'a self,
        head: &'a SessionHead,
        created_by: Option<&'a CommandId>,
    ) -> StoreFuture<'a, Result<Created, Error>>;

    /// Returns the secrets of the servers, with their names.
    fn secrets(&self) -> StoreFuture<'_, Result<Vec<(String, Secret)>, Error>>;

    /// Stores a secret in place of the one with this name.
    fn put_secret<'a>(&'a self, name: &'a str, secret: Secret) -> StoreFuture<'a, Result<(), Error>>;

    /// Returns rows of the operator's account with their numbers, which are above `after`.
    fn usage_page(&self, after: i64) -> StoreFuture<'_, Result<Vec<(i64, UsageRow)>, Error>>;

    /// Marks the store as the target of a migration that is not complete.
    fn mark(&self) -> StoreFuture<'_, Result<(), Error>>;
}
