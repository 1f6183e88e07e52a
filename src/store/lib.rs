//! Session storage: an append-only log per session, with `seq` 1, 2, 3 …; one stored record is one durable event. The
//! store keeps record bodies, the columns by which entries are found, the idempotency marks and one head per session.
//! It does not interpret the bodies, except that `upgrade` translates those of older versions. The interface suits a
//! single node and a cluster alike: `open` returns a lease whose `term` fences stale writers.

mod address;
mod check;
mod checksum;
mod cluster;
mod connect;
mod epoch;
mod error;
#[doc(hidden)]
pub mod faulty;
mod lines;
pub mod memory;
pub mod migrate;
mod minutes;
mod page;
#[cfg(feature = "postgres")]
pub mod postgres;
mod postgres_url;
mod record;
mod restored;
mod search;
mod secret;
mod spending;
pub mod sqlite;
mod stats;
mod traces;
mod unstored;
mod upgrade;
mod walk;

#[cfg(test)]
pub(crate) mod conformance;

pub use address::{Database, InvalidDatabase, may_be_shown};
pub use cluster::{
    Changes, Cluster, DELETED_KEPT, LeasedSession, NewNode, NewTicket, NodeId, NodeRow, Pulse, Silent, TicketBounds,
    TicketPut, TicketsOf,
};
pub use connect::{ConnectError, connect, describe, open, open_for_nodes, open_read_only};
pub use error::{Error, Part};
#[doc(hidden)]
pub use lines::Spaced;
pub use minutes::{MINUTES_KEPT, MinuteQuery, MinuteRow};
pub use page::{EntriesPage, ListPage, ListQuery, UNFINISHED};
pub use postgres_url::{Postgres, PostgresUrl};
pub use restored::{Renewed, RestoredError, restored};
pub use search::{HISTORY_TOOLS, HITS_MAX, Hit, Hits, Query, SearchQuery, SearchScope, TERMS_MAX};
pub use secret::Secret;
pub use spending::{
    DELETED_OWNER, DELETED_SESSION, USAGE_REMOVED_MAX, UsageBy, UsageFuture, UsagePage, UsageQuery, UsageStep, UsageSum,
};
pub use stats::CommitStats;
#[doc(hidden)]
pub use stats::{READS_WAITED_TOTAL, TIMELINE_CHANGES_TOTAL};
pub use traces::Traces;
pub use unstored::{UNSTORED_BYTES_MAX, WithUnstored, has_room};
pub use walk::SubtreeQuery;

use reseed_core::usage_row::UsageRow;
use reseed_protocol::{CommandId, EntryId, SessionId, Timestamp, event::Event};
use std::{future::Future, pin::Pin, sync::Arc};

/// A future returned by a store.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The result of [`SessionStore::create_once`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// The session was created now.
    Now(Lease),
    /// The command created this session before; nothing was written.
    Before(SessionId),
}

/// The right to write to a session. A later `open` makes the lease stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// The fencing token: it grows with each `open`, and an append with an older term is refused.
    pub term: u64,
    /// The next `seq` to write.
    pub next_seq: u64,
    /// Identifies the log; assigned at creation and never changed. The wire's `epoch`.
    pub epoch: String,
}

/// A record to append: one durable event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// JSON of the event, `{"type":…,"payload":…}`.
    pub body: Arc<str>,
    /// Set if the event appends an entry to the tree.
    pub entry: Option<EntryColumns>,
}

/// The columns by which an entry is found without reading its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryColumns {
    /// The entry.
    pub entry_id: EntryId,
    /// Its parent.
    pub parent_id: Option<EntryId>,
    /// Its type, as on the wire.
    pub kind: String,
}

impl EntryColumns {
    /// Returns the columns of an event's record; `None` if the event appends no entry.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        let Event::EntryAppended(appended) = event else { return None };
        let entry = &appended.entry;
        Some(Self {
            entry_id: entry.entry_id.clone(),
            parent_id: entry.parent_id.clone(),
            kind: entry.type_name().to_owned(),
        })
    }
}

/// A writing command's idempotency mark, stored together with the command's records and kept for the life of the
/// session. The server's own marks (of ended tool calls, of copies and of whole tool results) have ids that no command
/// can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandMark {
    /// The command's id.
    pub command_id: String,
    /// A hash of its content; the same id with another fingerprint is a conflict.
    pub fingerprint: u64,
    /// JSON of its reply, sent again when the command is repeated.
    pub reply: Arc<str>,
}

/// Returns the id of the mark that holds a tool's whole result, when the entry holds only a part of it. No client can
/// use this id, because the prefix is reserved for the server.
#[must_use]
pub fn whole_mark(entry: &EntryId) -> String {
    format!("s_whole:{entry}")
}

/// A session's summary for lists and for fast opening. It is derived from the log and written with every append; the
/// log remains the source of truth.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Head {
    /// The session's name; empty if it has none.
    pub name: String,
    /// The time of the session's creation.
    pub created_at: Timestamp,
    /// The time of the last write to the session.
    pub updated_at: Timestamp,
    /// The number of entries in its tree.
    pub entries: u64,
    /// The tokens of its next request.
    pub token_count: u64,
    /// Its model's window, in tokens.
    pub window_tokens: u64,
    /// The known cost of its requests, in billionths of a US dollar; `None` if no cost is known.
    pub cost_nano_usd: Option<u64>,
    /// The number of requests whose cost is unknown. No sum includes them.
    pub unpriced_requests: u64,
    /// True if a turn or a compaction was running.
    pub running: bool,
    /// JSON of the log folded up to some record, opaque to the store. An append without a state keeps the stored one.
    /// It reads as `None` if it is damaged or was never stored; the log must then be folded again.
    pub state: Option<Arc<str>>,
}

/// One durable step, written completely or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct Append {
    /// Records, written at `first_seq`, `first_seq + 1`, …; may be empty if only a mark is stored.
    pub records: Vec<NewRecord>,
    /// Marks of the commands that caused the append.
    pub marks: Vec<CommandMark>,
    /// What the requests to models cost that ended with it. They are kept when the session is deleted.
    pub usage: Vec<UsageRow>,
    /// The session's head after the append.
    pub head: Head,
}

/// A record as read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its position in the log.
    pub seq: u64,
    /// JSON of the event.
    pub body: Arc<str>,
}

/// A record that appends an entry, with the entry's position in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredNode {
    /// The record.
    pub record: StoredRecord,
    /// The number of children of the entry.
    pub child_count: u64,
}

/// What is known about a session without opening it.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionHead {
    /// The session.
    pub session: SessionId,
    /// The owner (a name from `AUTH_TOKENS`); empty if no tokens are configured.
    pub owner: String,
    /// Identifies the log.
    pub epoch: String,
    /// The newest `seq`; 0 for an empty log.
    pub last_seq: u64,
    /// The term of its newest opening.
    pub term: u64,
    /// The node that has it open, if several nodes share the store. It may be dead.
    pub holder: Option<NodeId>,
    /// The rest of the head.
    pub head: Head,
}

/// The newest `seq` of an empty session. Its first record holds its initial settings, and nothing has happened since.
pub const EMPTY_SEQ_MAX: u64 = 1;

/// The sessions and bytes that an owner has stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Sessions.
    pub sessions: u64,
    /// The number of them that are empty: see [`EMPTY_SEQ_MAX`].
    pub empty: u64,
    /// Bytes of all of their records.
    pub bytes: u64,
}

/// Selects the entries to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryQuery {
    /// The entry to start at.
    Path {
        /// The entry to start at.
        from: EntryId,
        /// Most records.
        limit: u32,
    },
    /// The path from one entry down to another, oldest first and without the first; empty if the first is not found.
    PathAfter {
        /// The ancestor before the first entry to return.
        after: EntryId,
        /// The last entry of the path.
        to: EntryId,
        /// The most entries to walk back from `to` in search of `after`. Only the bodies of returned entries are read.
        steps: u32,
        /// The most records to return: those nearest to `after`.
        limit: u32,
    },
    /// Entries in log order, oldest first: those just before or just after a position.
    Log {
        /// Only entries whose `seq` is smaller.
        before_seq: Option<u64>,
        /// Only entries whose `seq` is larger.
        after_seq: Option<u64>,
        /// Most records. With `after_seq` the oldest are returned, otherwise the newest.
        limit: u32,
    },
    /// The children of an entry in log order.
    Children {
        /// The parent; `None` for the roots: entries without a parent, or whose parent is not in the session.
        of: Option<EntryId>,
        /// Only entries whose `seq` is larger; 0 for the first page.
        after_seq: u64,
        /// Most records.
        limit: u32,
    },
    /// Entries of one type in log order.
    Kind {
        /// The type, as on the wire.
        kind: String,
        /// Only entries whose `seq` is larger; 0 for the first page.
        after_seq: u64,
        /// Most records.
        limit: u32,
    },
    /// The newest entry without children at or below an entry: one record, or none if the entry does not exist.
    NewestLeaf {
        /// The entry.
        below: EntryId,
    },
}

/// The logs of all sessions.
///
/// Contract, checked by `store/conformance/` for each implementation: an append is durable when it returns `Ok`; it is
/// atomic; appends to one session are ordered without gaps; a stale term or a wrong `first_seq` is `Fenced`. A write
/// whose future is dropped may still be executed. Reads see everything acknowledged before they began.
///
/// ```
/// use reseed_store::{Append, Error, Head, NewRecord, SessionStore, memory::MemoryStore};
/// use reseed_protocol::{SessionId, Timestamp};
///
/// async fn two_writers(store: &dyn SessionStore, session: SessionId) -> Result<(), Error> {
///     let body = r#"{"type":"session_updated","payload":{"name":"Ferry"}}"#;
///     let record = NewRecord { body: body.into(), entry: None };
///     let append = Append { records: vec![record], marks: Vec::new(), usage: Vec::new(), head: Head::default() };
///
///     let lease = store.create(&session, "ann", Timestamp(0)).await?;
///     store.append(&lease, lease.next_seq, append.clone()).await?;
///     assert_eq!(&*store.read(&session, 0, 10).await?[0].body, body);
///
///     // The second writer fences the first one off.
///     let (newer, _) = store.open(&session).await?;
///     assert!(matches!(store.append(&lease, 2, append.clone()).await, Err(Error::Fenced { .. })));
///     store.append(&newer, newer.next_seq, append).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let session = "k7m2q9xw4hfatz8n".parse().expect("a valid id");
/// two_writers(&MemoryStore::new(), session).await.expect("the store works");
/// # }
/// ```
pub trait SessionStore: Send + Sync {
    /// Creates an empty session and opens it.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotMember`], [`Error::Unknown`].
    fn create<'a>(
        &'a self,
        session: &'a SessionId,
        owner: &'a str,
        now: Timestamp,
    ) -> StoreFuture<'a, Result<Lease, Error>> {
        Box::pin(async move {
            match self.create_once(session, owner, None, now).await? {
                Created::Now(lease) => Ok(lease),
                Created::Before(earlier) => Err(Error::Exists(earlier)),
            }
        })
    }

    /// Creates an empty session for this command of its owner and opens it, unless the command already created one.
    /// Without a command, it always creates one.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotMember`], [`Error::Unknown`].
    fn create_once<'a>(
        &'a self,
        session: &'a SessionId,
        owner: &'a str,
        command: Option<&'a CommandId>,
        now: Timestamp,
    ) -> StoreFuture<'a, Result<Created, Error>>;

    /// Returns the session that this owner's command created with [`Self::create_once`], if there is one.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn created_by<'a>(
        &'a self,
        owner: &'a str,
        command: &'a CommandId,
    ) -> StoreFuture<'a, Result<Option<SessionId>, Error>>;

    /// Becomes the only writer of a session and raises its term by one, unless another node that is not known to be
    /// silent holds the session (see [`Cluster`]).
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Held`], [`Error::NotMember`], [`Error::Damaged`], [`Error::Unknown`].
    fn open<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(Lease, SessionHead), Error>>;

    /// Appends at `first_seq`, which must be the next `seq`. The append is durable when this returns `Ok`.
    ///
    /// # Errors
    /// [`Error::Fenced`], [`Error::DuplicateCommand`], [`Error::DuplicateEntry`], [`Error::NotFound`] (deleted
    /// meanwhile), [`Error::Damaged`], [`Error::Unknown`]. For all but the last, nothing was written.
    fn append<'a>(&'a self, lease: &'a Lease, first_seq: u64, append: Append) -> StoreFuture<'a, Result<(), Error>>;

    /// Releases the lease, so that any node may open the session. Does nothing if the lease is stale.
    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Result<(), Error>>;

    /// Returns at most `limit` records with `seq > after_seq`, oldest first.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], [`Error::Unknown`].
    fn read<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        limit: u32,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>> {
        self.read_page(session, after_seq, limit, usize::MAX)
    }

    /// Reads as [`SessionStore::read`] does, but stops once the records read hold `bytes_max` bytes. Returns at least
    /// one, however large.
    ///
    /// # Errors
    /// As [`SessionStore::read`].
    fn read_page<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        limit: u32,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>>;

    /// Returns records that append entries. A path also ends at a parent that is not in the session; its last record
    /// then names that missing parent.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], [`Error::Unknown`].
    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        query: EntryQuery,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>> {
        Box::pin(async move { Ok(self.entries_page(session, query, usize::MAX).await?.records) })
    }

    /// Reads as [`SessionStore::entries`] does, from the query's position on, but stops before the bodies would exceed
    /// `bytes_max` bytes. Returns at least one record, however large. Reads no other bodies except the one that did not
    /// fit.
    ///
    /// # Errors
    /// As [`SessionStore::entries`].
    fn entries_page<'a>(
        &'a self,
        session: &'a SessionId,
        query: EntryQuery,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<EntriesPage, Error>>;

    /// Returns a part of the tree, breadth first; empty if its root does not exist.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], [`Error::Unknown`].
    fn subtree<'a>(
        &'a self,
        session: &'a SessionId,
        query: SubtreeQuery,
    ) -> StoreFuture<'a, Result<Vec<StoredNode>, Error>>;

    /// Returns the `seq` of the record that appended an entry, if there is one.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], [`Error::Unknown`].
    fn entry_seq<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Result<Option<u64>, Error>>;

    /// Returns the mark of a command, if the session exists and has one.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Unknown`].
    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        command_id: &'a str,
    ) -> StoreFuture<'a, Result<Option<CommandMark>, Error>>;

    /// Returns what is known about a session without opening it.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], [`Error::Unknown`].
    fn head<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<SessionHead, Error>>;

    /// Lists sessions. `head.state` is left out, so that a page stays small.
    ///
    /// # Errors
    /// [`Error::Cursor`], [`Error::Unknown`].
    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<ListPage, Error>>;

    /// Returns what an owner has stored, at a cost that does not depend on the amount. `None` means that this store
    /// does not count, so no quota can be enforced.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn usage<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Result<Option<Usage>, Error>> {
        let _ = owner;
        Box::pin(async { Ok(None) })
    }

    /// Adds rows to the operator's account that belong to no append. A row replaces one with the same id.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn add_usage(&self, rows: Vec<UsageRow>) -> StoreFuture<'_, Result<(), Error>>;

    /// Returns sums over the operator's account, ordered by their periods and keys.
    ///
    /// # Errors
    /// [`Error::Cursor`], [`Error::Unknown`].
    fn usage_sums(&self, query: UsageQuery) -> UsageFuture<'_>;

    /// Removes at most [`USAGE_REMOVED_MAX`] rows of the operator's account that are older than a time. Returns their
    /// number.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn remove_usage(&self, before: Timestamp) -> StoreFuture<'_, Result<u64, Error>>;

    /// Stores what a server counted in a minute, in place of its row for that minute. Removes the rows that are older
    /// than [`MINUTES_KEPT`], in the same write.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn put_minute(&self, row: MinuteRow) -> StoreFuture<'_, Result<(), Error>>;

    /// Returns what servers counted, oldest first.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn minutes(&self, query: MinuteQuery) -> StoreFuture<'_, Result<Vec<MinuteRow>, Error>>;

    /// Names [`DELETED_OWNER`] and [`DELETED_SESSION`] instead of an owner and their sessions, in at most
    /// [`USAGE_REMOVED_MAX`] rows of the operator's account. Returns their number. If none is left, also forgets which
    /// sessions of the owner were deleted lately.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn forget_owner<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Result<u64, Error>>;

    /// Waits until the texts of deleted sessions are erased, for a minute at most, and searches for what is left of an
    /// owner and of their sessions.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn traces<'a>(&'a self, owner: &'a str, sessions: &'a [SessionId]) -> StoreFuture<'a, Result<Traces, Error>>;

    /// Returns empty sessions (see [`EMPTY_SEQ_MAX`]) created before a time, oldest first, without those still being
    /// created. A store that does not track empty sessions returns none.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn empty_sessions(&self, before: Timestamp, limit: u32) -> StoreFuture<'_, Result<Vec<SessionId>, Error>> {
        let _ = (before, limit);
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Searches the text of entries: messages, tool calls, whole tool results and summaries. Reasoning and the results
    /// of the tools in [`HISTORY_TOOLS`] are not searched. Unreadable entries are skipped. A store without an index
    /// reads all entries in the scope.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`] (of the session's head), [`Error::Unknown`].
    fn search(&self, query: SearchQuery) -> StoreFuture<'_, Result<Hits, Error>> {
        Box::pin(search::scan(self, query))
    }

    /// Deletes a session and all it holds, even if another process or connection has it open.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], [`Error::Unknown`].
    fn delete<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(), Error>>;

    /// Returns the secret with this name, which all servers on the store share. If there is none, `offered` is stored
    /// and returned. Of several callers at the same time, all get the same. A store that keeps no secrets returns
    /// `offered`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] if there is none and it cannot be stored, [`Error::Unknown`].
    fn secret<'a>(&'a self, name: &'a str, offered: Secret) -> StoreFuture<'a, Result<Secret, Error>> {
        let _ = name;
        Box::pin(async move { Ok(offered) })
    }

    /// Returns the reason why nothing can be written until the process restarts, if there is one: a sync of the disk
    /// failed, so the contents of the disk are unknown.
    fn failure(&self) -> Option<Error> {
        None
    }

    /// Checks whether a write would succeed now. If the last write failed, the store tries another of the same size, so
    /// that it returns `Ok` only if there is room again.
    ///
    /// # Errors
    /// The reason a write would be refused.
    fn check_writable(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move { self.failure().map_or(Ok(()), Err) })
    }

    /// Returns the nodes that share the store; `None` if only one server can use it.
    fn cluster(&self) -> Option<&dyn Cluster> {
        None
    }

    /// Waits until everything accepted is durable and closes the store: every later read and write is
    /// [`Error::Unknown`]. Closing twice is harmless.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn close(&self) -> StoreFuture<'_, Result<(), Error>>;
}
