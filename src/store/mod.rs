//! To the log. A session is a log of records with `seq` 1, 2, 3 …; one stored record is one durable event.
//!
//! The store knows nothing of what records mean: it keeps their bodies, the columns by which entries are found again,
//! the idempotency marks and one head per session. It fits a single node and a cluster alike: `open` hands out a lease
//! whose `term` fences stale writers.

mod check;
mod connect;
mod error;
pub mod faulty;
pub mod memory;
mod page;
pub mod sqlite;
mod walk;

#[cfg(test)]
mod conformance;

pub use connect::{ConnectError, connect, connect_observed};
pub use error::{Error, Part};
pub use walk::SubtreeQuery;

use reseed_protocol::{EntryId, SessionId, Timestamp, event::Event};
use std::{future::Future, pin::Pin, sync::Arc};

/// A future that a store returns.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The right to write to a session. A later `open` makes it stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The session.
    pub session: SessionId,
    /// The fence: grows with each `open`; an append under an older term is refused.
    pub term: u64,
    /// The next `seq` to be written.
    pub next_seq: u64,
    /// Names the log; made with it and never changed. The wire's `epoch`.
    pub epoch: String,
}

/// A record to be appended: one durable event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecord {
    /// JSON of the event, `{"type":…,"payload":…}`.
    pub body: Arc<str>,
    /// Set when the event appends an entry to the tree.
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
    /// The columns of an event's record; none for an event that appends no entry.
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

/// A writing command's mark: stored with what the command wrote, for the life of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandMark {
    /// The command's id.
    pub command_id: String,
    /// A hash of its content; the same id with another one is a conflict.
    pub fingerprint: u64,
    /// JSON of the reply it got, to be given again.
    pub reply: Arc<str>,
}

/// What lists and a quick open need: derived from the log, written with every append, never the truth itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Head {
    /// The session's name; empty where it has none.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When something was last written.
    pub updated_at: Timestamp,
    /// How many entries its tree has.
    pub entries: u64,
    /// Tokens of its next request.
    pub token_count: u64,
    /// The window of its model, in tokens.
    pub window_tokens: u64,
    /// What its requests have cost, in billionths of a US dollar, as far as that is known; absent where it is of none.
    pub cost_nano_usd: Option<u64>,
    /// Requests whose cost is not known, and in no sum.
    pub unpriced_requests: u64,
    /// Whether a turn or a compaction was at work.
    pub running: bool,
    /// JSON of the fold of the whole log up to the last append, opaque to the store. Read back empty where it is damaged:
    /// it is to be folded anew.
    pub state: Arc<str>,
}

/// One durable step: all of it or nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Append {
    /// Its records, written at `first_seq`, `first_seq + 1`, …; may be empty when only a mark is to be kept.
    pub records: Vec<NewRecord>,
    /// Marks of the commands that caused it.
    pub marks: Vec<CommandMark>,
    /// The session's head afterwards.
    pub head: Head,
}

/// A record as it is read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its place in the log.
    pub seq: u64,
    /// JSON of the event.
    pub body: Arc<str>,
}

/// A record that appends an entry, with the entry's place in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredNode {
    /// The record.
    pub record: StoredRecord,
    /// How many children the entry has.
    pub child_count: u64,
}

/// What is known of a session without opening it.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionHead {
    /// The session.
    pub session: SessionId,
    /// The name that made it (`AUTH_TOKENS`); empty where no tokens are needed.
    pub owner: String,
    /// Names the log.
    pub epoch: String,
    /// The newest `seq`; 0 for an empty log.
    pub last_seq: u64,
    /// The rest.
    pub head: Head,
}

/// Which sessions to list, newest `updated_at` first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only this owner's; `None` for all (operators).
    pub owner: Option<String>,
    /// Only sessions whose name contains this text, whatever its case.
    pub search: Option<String>,
    /// Start after the page that ended with this cursor.
    pub cursor: Option<String>,
    /// Most sessions to return.
    pub limit: u32,
    /// Those that are still being made, and no others.
    pub unfinished: bool,
}

/// In a head's `updated_at`, from `create` on: the session is still being made, by more appends than one. Lists leave it
/// out, and whoever makes it says by a last append with a real time that it is whole.
pub const UNFINISHED: Timestamp = Timestamp(i64::MIN);

/// A page of sessions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListPage {
    /// The sessions.
    pub items: Vec<SessionHead>,
    /// Where the next page starts; absent on the last.
    pub next_cursor: Option<String>,
    /// Sessions that stand at this place but whose head is damaged, so that nothing is known of them, not even their
    /// owner: told only where every owner's are listed. The page holds as many items less.
    pub damaged: Vec<SessionId>,
}

/// Which entries to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryQuery {
    /// The entry and its ancestors, newest first, at most `limit`.
    Path {
        /// Where to start.
        from: EntryId,
        /// Most records.
        limit: u32,
    },
    /// Entries in the order of the log, oldest first: those just before or just after a place.
    Log {
        /// Only entries whose `seq` is smaller.
        before_seq: Option<u64>,
        /// Only entries whose `seq` is larger.
        after_seq: Option<u64>,
        /// Most records. With `after_seq` the oldest are taken, otherwise the newest.
        limit: u32,
    },
    /// The children of an entry in the order of the log.
    Children {
        /// The entry; `None` for the roots: entries without a parent, or whose parent is not in the session.
        of: Option<EntryId>,
        /// Only entries whose `seq` is larger; 0 for the first page.
        after_seq: u64,
        /// Most records.
        limit: u32,
    },
    /// Entries of one type in the order of the log.
    Kind {
        /// The type, as on the wire.
        kind: String,
        /// Only entries whose `seq` is larger; 0 for the first page.
        after_seq: u64,
        /// Most records.
        limit: u32,
    },
    /// The newest entry without children at or below an entry: one record, or none where the entry is not there.
    NewestLeaf {
        /// The entry.
        below: EntryId,
    },
}

/// The log of every session.
///
/// Contract, checked by `store/conformance/` for each implementation: an append is durable when it is `Ok`; it is whole or
/// nothing; appends of one session are in order without a gap; a stale term or a wrong `first_seq` is `Fenced`.
/// A write whose future is dropped may still be done. Reads see everything acknowledged before they began.
///
/// ```
/// use reseed::store::{Append, Error, Head, NewRecord, SessionStore, memory::MemoryStore};
/// use reseed_protocol::{SessionId, Timestamp};
///
/// async fn two_writers(store: &dyn SessionStore, session: SessionId) -> Result<(), Error> {
///     let body = r#"{"type":"session_updated","payload":{"name":"Ferry"}}"#;
///     let record = NewRecord { body: body.into(), entry: None };
///     let append = Append { records: vec![record], marks: Vec::new(), head: Head::default() };
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
    /// Makes an empty session and opens it.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Unknown`].
    fn create<'a>(
        &'a self,
        session: &'a SessionId,
        owner: &'a str,
        now: Timestamp,
    ) -> StoreFuture<'a, Result<Lease, Error>>;

    /// Becomes the only writer of a session: its term grows by one.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], [`Error::Unknown`].
    fn open<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(Lease, SessionHead), Error>>;

    /// Appends at `first_seq`, which must be the next one. Durable when `Ok`.
    ///
    /// # Errors
    /// [`Error::Fenced`], [`Error::DuplicateCommand`], [`Error::DuplicateEntry`], [`Error::NotFound`] (deleted
    /// meanwhile), [`Error::Damaged`], [`Error::Unknown`]. With all but the last nothing was written.
    fn append<'a>(&'a self, lease: &'a Lease, first_seq: u64, append: Append) -> StoreFuture<'a, Result<(), Error>>;

    /// Gives the lease back. Harmless when it is stale.
    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Result<(), Error>>;

    /// Records with `seq > after_seq`, oldest first, at most `limit`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], [`Error::Unknown`].
    fn read<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        limit: u32,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>>;

    /// The same, but no more records once those read have `bytes_max` bytes: one at least, however large it is.
    ///
    /// # Errors
    /// As [`SessionStore::read`].
    fn read_page<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        limit: u32,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>> {
        Box::pin(async move {
            let (mut page, mut bytes, mut after) = (Vec::new(), 0, after_seq);
            while page.len() < limit as usize && (page.is_empty() || bytes < bytes_max) {
                let Some(record) = self.read(session, after, 1).await?.pop() else { break };
                (after, bytes) = (record.seq, bytes + record.body.len());
                page.push(record);
            }
            Ok(page)
        })
    }

    /// Records that append entries. An entry that the session does not have ends its path: the last
    /// record returned may then name a parent that is not there.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], [`Error::Unknown`].
    fn entries<'a>(
        &'a self,
        session: &'a SessionId,
        query: EntryQuery,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>>;

    /// A part of the tree, breadth first; nothing where its root is not there.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], [`Error::Unknown`].
    fn subtree<'a>(
        &'a self,
        session: &'a SessionId,
        query: SubtreeQuery,
    ) -> StoreFuture<'a, Result<Vec<StoredNode>, Error>>;

    /// The `seq` of the record that appended an entry, if there is one.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], [`Error::Unknown`].
    fn entry_seq<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Result<Option<u64>, Error>>;

    /// The mark of a command, if there is such a session and it has it.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Unknown`].
    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        command_id: &'a str,
    ) -> StoreFuture<'a, Result<Option<CommandMark>, Error>>;

    /// What is known of a session without opening it.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], [`Error::Unknown`].
    fn head<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<SessionHead, Error>>;

    /// Lists sessions. `head.state` is left empty, so that a page stays small however much the sessions hold.
    ///
    /// # Errors
    /// [`Error::Cursor`], [`Error::Unknown`].
    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<ListPage, Error>>;

    /// Deletes a session and all it holds, whoever has it open.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], [`Error::Unknown`].
    fn delete<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(), Error>>;

    /// Why nothing can be written any more until the process is started again, if so: a sync of the disk has failed, and
    /// what the disk holds is not known.
    fn failure(&self) -> Option<Error> {
        None
    }

    /// Whether a write would be taken now. A store that failed to write tries it again, with as much as was refused, so
    /// that it answers `Ok` only where there is room again.
    ///
    /// # Errors
    /// Why a write would be refused.
    fn check_writable(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(async move { self.failure().map_or(Ok(()), Err) })
    }

    /// Waits until everything accepted is durable and closes the store: every later read and write
    /// is [`Error::Unknown`]. Closing twice is harmless.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn close(&self) -> StoreFuture<'_, Result<(), Error>>;
}
