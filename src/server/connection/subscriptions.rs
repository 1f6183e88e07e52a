//! The sessions that a connection reads, and the commands that they have not answered yet.

use crate::{
    core::agent_loop::Origin,
    runtime::{
        Attached, ConnectionShare, Cursor, Outgoing, Private, Reader, SessionHandle, handle::OUTGOING_MAX,
        outbox::Outbox, outbox::REPLIES_MAX, watch::Watcher,
    },
};
use reseed_protocol::{
    CommandId, SessionId,
    command::{Command, Does},
    session::SessionRole,
};
use std::collections::VecDeque;
use tokio::sync::mpsc;

pub(in crate::server) struct Subscriptions {
    /// At most [`SUBSCRIPTIONS_MAX`](crate::runtime::SUBSCRIPTIONS_MAX).
    pub(super) all: Vec<Subscription>,
    /// Set while the client watches the session list.
    pub(in crate::server) watching: Option<Box<Watcher>>,
    pub(in crate::server) shared: ConnectionShare,
    pub(in crate::server) outgoing: Outbox,
    /// Replies, and events that are only for this connection.
    pub(in crate::server) incoming: mpsc::Receiver<Outgoing>,
    /// Commands sent to sessions and not yet answered.
    unanswered: Vec<Unanswered>,
}

/// A session that the connection is subscribed to.
pub(in crate::server) struct Subscription {
    pub(in crate::server) handle: SessionHandle,
    pub(in crate::server) role: SessionRole,
    pub(in crate::server) feed: Reader,
    pub(super) cursor: Cursor,
    pub(super) deltas: bool,
    /// The last durable event that was written. The cursor may be ahead of it.
    pub(super) written: u64,
    /// Events for this connection only that wait for a durable one. [`ConnectionShare`] bounds their bytes.
    pub(super) early: VecDeque<Box<Private>>,
}

/// A command that a session will answer.
pub(super) struct Unanswered {
    pub(super) id: CommandId,
    pub(super) session: SessionId,
    pub(super) name: &'static str,
    /// True if the session answers it without waiting for anything.
    quick: bool,
}

/// Adds to a list that usually has one item. By default, a list starts with room for four.
fn push_rare<T>(list: &mut Vec<T>, item: T) {
    if list.is_empty() {
        list.reserve_exact(1);
    }
    list.push(item);
}

impl Subscriptions {
    pub(super) fn new(shared: ConnectionShare) -> Self {
        let (outgoing, incoming) = Outbox::new(OUTGOING_MAX);
        Self { all: Vec::new(), watching: None, shared, outgoing, incoming, unanswered: Vec::new() }
    }

    pub(in crate::server) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(in crate::server) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the oldest subscription.
    pub(in crate::server) fn first(&self) -> Option<&Subscription> {
        self.all.first()
    }

    /// Returns the subscription to this session.
    pub(in crate::server) fn of(&self, session: &SessionId) -> Option<&Subscription> {
        self.all.iter().find(|subscription| subscription.handle.id == *session)
    }

    pub(super) fn of_mut(&mut self, session: &SessionId) -> Option<&mut Subscription> {
        self.all.iter_mut().find(|subscription| subscription.handle.id == *session)
    }

    pub(super) fn add(&mut self, handle: SessionHandle, role: SessionRole, deltas: bool, attached: Attached) {
        let Attached { feed, cursor, .. } = attached;
        let (written, early) = (cursor.seq, VecDeque::new());
        push_rare(&mut self.all, Subscription { handle, role, feed, cursor, deltas, written, early });
    }

    /// Ends the subscription to a session, if there is one. The connection continues.
    pub(in crate::server) async fn end(&mut self, session: &SessionId, origin: Origin) -> bool {
        let Some(at) = self.all.iter().position(|subscription| subscription.handle.id == *session) else {
            return false;
        };
        let Subscription { handle, feed, .. } = self.all.swap_remove(at);
        drop(feed);
        handle.leave(origin).await;
        true
    }

    /// Ends all subscriptions without waiting, because the connection is over.
    pub(super) fn end_all(&mut self, origin: Origin) {
        for Subscription { handle, feed, .. } in self.all.drain(..) {
            drop(feed);
            handle.left(origin);
        }
        self.incoming.close();
    }

    /// Records that a command was sent to the session, which will answer it.
    pub(in crate::server) fn expect_reply(&mut self, id: CommandId, session: &SessionId, name: &'static str) {
        let quick = Command::spec_of(name).is_some_and(|spec| spec.does == Does::Transient);
        push_rare(&mut self.unanswered, Unanswered { id, session: session.clone(), name, quick });
    }

    /// Takes the command that a session has answered; `None` if it was answered when the session ended.
    pub(super) fn answered(&mut self, id: &CommandId, session: &SessionId) -> Option<Unanswered> {
        let is_it = |waiting: &Unanswered| waiting.id == *id && waiting.session == *session;
        let at = self.unanswered.iter().position(is_it)?;
        Some(self.unanswered.remove(at))
    }

    /// Takes the commands that a session can no longer answer because it has ended. A fork continues, because it needs
    /// no open session.
    pub(super) fn unanswerable(&mut self, session: &SessionId) -> Vec<Unanswered> {
        let is_over = |waiting: &mut Unanswered| waiting.session == *session && waiting.name != "fork_session";
        self.unanswered.extract_if(.., is_over).collect()
    }

    /// Returns true if another command may be read. Fewer than half of [`REPLIES_MAX`] may be unanswered: of the quick
    /// commands, and of each session. The rest is for answers to this client's hooks, because commands may wait for
    /// these.
    pub(super) fn may_read(&self) -> bool {
        let most = REPLIES_MAX / 2;
        let of = |session: &SessionId| self.unanswered.iter().filter(|waiting| waiting.session == *session).count();
        self.unanswered.len() < most
            || self.unanswered.iter().filter(|waiting| waiting.quick).count() < most
                && self.all.iter().all(|subscription| of(&subscription.handle.id) < most)
    }

    /// Returns what has arrived already.
    pub(super) fn next_outgoing(&mut self) -> Option<Outgoing> {
        self.incoming.try_recv().ok()
    }
}

/// Waits for reportable changes of the session list; never returns without a watcher. Boxed, because few connections
/// watch.
pub(in crate::server) async fn listed(watching: &Option<Box<Watcher>>) {
    match watching {
        Some(watcher) => Box::pin(watcher.due()).await,
        None => std::future::pending().await,
    }
}
