//! Stores with deliberate faults, around the real one.

use futures_util::poll;
use reseed::{
    core::usage_row::UsageRow,
    store::{
        Append, CommandMark, Created, EntriesPage, EntryQuery, Error, Lease, ListPage, ListQuery, MinuteQuery,
        MinuteRow, SessionHead, SessionStore, StoreFuture, StoredNode, StoredRecord, SubtreeQuery, Traces, UsageFuture,
        UsageQuery, sqlite::SqliteStore,
    },
};
use reseed_protocol::{CommandId, EntryId, SessionId, Timestamp};
use std::{collections::HashMap, sync::Mutex};

/// The fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Right,
    /// An append returns `Ok` once it has been handed on.
    AcknowledgesEarly,
    /// An append is written under whatever term is the newest.
    IgnoresTerm,
    /// An append whose outcome is unknown returns `Ok`.
    HidesFailures,
}

/// The store with one fault.
pub(crate) struct Broken {
    inner: SqliteStore,
    how: How,
    newest: Mutex<HashMap<SessionId, Lease>>,
}

impl Broken {
    pub(crate) fn new(inner: SqliteStore, how: How) -> Self {
        Self { inner, how, newest: Mutex::default() }
    }

    pub(crate) async fn settled(&self) {
        self.inner.settled().await;
    }

    fn remember(&self, lease: &Lease) {
        self.newest.lock().unwrap().insert(lease.session.clone(), lease.clone());
    }
}

impl SessionStore for Broken {
    fn create_once<'a>(
        &'a self,
        session: &'a SessionId,
        owner: &'a str,
        command: Option<&'a CommandId>,
        now: Timestamp,
    ) -> StoreFuture<'a, Result<Created, Error>> {
        Box::pin(async move {
            let created = self.inner.create_once(session, owner, command, now).await?;
            if let Created::Now(lease) = &created {
                self.remember(lease);
            }
            Ok(created)
        })
    }

    fn created_by<'a>(
        &'a self,
        owner: &'a str,
        command: &'a CommandId,
    ) -> StoreFuture<'a, Result<Option<SessionId>, Error>> {
        self.inner.created_by(owner, command)
    }

    fn open<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(Lease, SessionHead), Error>> {
        Box::pin(async move {
            let opened = self.inner.open(session).await?;
            self.remember(&opened.0);
            Ok(opened)
        })
    }

    fn append<'a>(&'a self, lease: &'a Lease, first_seq: u64, append: Append) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            match self.how {
                How::Right => self.inner.append(lease, first_seq, append).await,
                How::AcknowledgesEarly => {
                    let mut appending = self.inner.append(lease, first_seq, append);
                    // It is in the writer's queue now, and is executed even if nobody waits for it.
                    let _ = poll!(&mut appending);
                    Ok(())
                }
                How::IgnoresTerm => {
                    let newest = self.newest.lock().unwrap().get(&lease.session).cloned();
                    self.inner.append(newest.as_ref().unwrap_or(lease), first_seq, append).await
                }
                How::HidesFailures => match self.inner.append(lease, first_seq, append).await {
                    Err(Error::Unknown(_)) => Ok(()),
                    answer => answer,
                },
            }
        })
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Result<(), Error>> {
        self.inner.release(lease)
    }

    fn read_page<'a>(
        &'a self,
        session: &'a SessionId,
        after_seq: u64,
        limit: u32,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<Vec<StoredRecord>, Error>> {
        self.inner.read_page(session, after_seq, limit, bytes_max)
    }

    fn entries_page<'a>(
        &'a self,
        session: &'a SessionId,
        query: EntryQuery,
        bytes_max: usize,
    ) -> StoreFuture<'a, Result<EntriesPage, Error>> {
        self.inner.entries_page(session, query, bytes_max)
    }

    fn subtree<'a>(
        &'a self,
        session: &'a SessionId,
        query: SubtreeQuery,
    ) -> StoreFuture<'a, Result<Vec<StoredNode>, Error>> {
        self.inner.subtree(session, query)
    }

    fn entry_seq<'a>(
        &'a self,
        session: &'a SessionId,
        entry: &'a EntryId,
    ) -> StoreFuture<'a, Result<Option<u64>, Error>> {
        self.inner.entry_seq(session, entry)
    }

    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        command_id: &'a str,
    ) -> StoreFuture<'a, Result<Option<CommandMark>, Error>> {
        self.inner.command(session, command_id)
    }

    fn head<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<SessionHead, Error>> {
        self.inner.head(session)
    }

    fn list(&self, query: ListQuery) -> StoreFuture<'_, Result<ListPage, Error>> {
        self.inner.list(query)
    }

    fn add_usage(&self, rows: Vec<UsageRow>) -> StoreFuture<'_, Result<(), Error>> {
        self.inner.add_usage(rows)
    }

    fn usage_sums(&self, query: UsageQuery) -> UsageFuture<'_> {
        self.inner.usage_sums(query)
    }

    fn put_minute(&self, row: MinuteRow) -> StoreFuture<'_, Result<(), Error>> {
        self.inner.put_minute(row)
    }

    fn minutes(&self, query: MinuteQuery) -> StoreFuture<'_, Result<Vec<MinuteRow>, Error>> {
        self.inner.minutes(query)
    }

    fn remove_usage(&self, before: Timestamp) -> StoreFuture<'_, Result<u64, Error>> {
        self.inner.remove_usage(before)
    }

    fn forget_owner<'a>(&'a self, owner: &'a str) -> StoreFuture<'a, Result<u64, Error>> {
        self.inner.forget_owner(owner)
    }

    fn traces<'a>(&'a self, owner: &'a str, sessions: &'a [SessionId]) -> StoreFuture<'a, Result<Traces, Error>> {
        self.inner.traces(owner, sessions)
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> StoreFuture<'a, Result<(), Error>> {
        self.inner.delete(session)
    }

    fn close(&self) -> StoreFuture<'_, Result<(), Error>> {
        self.inner.close()
    }
}
