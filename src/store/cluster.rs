//! Nodes: several servers that share one store.
//!
//! A session that is open has a holder, the node whose loop it is. Another node opens it only if the holder gives it
//! up, leaves, or is silent. Each node adds to a counter of its own in the store; an observer judges by its own clock
//! how long that counter stands still (`runtime/cluster/view.rs`), and passes the verdict to the store, which checks
//! that the counter still is where the observer saw it.
//!
//! Invariant: who holds a session decides only who asks for it. A wrong verdict costs a session that is opened again,
//! never a record: appends are fenced by the lease's term.

use super::{Error, SessionHead, StoreFuture};
use reseed_protocol::{SessionId, Timestamp};
use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// A node: one start of a server. A server that is started again is another node, with a higher number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub i64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A node that joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    /// Its name, for people.
    pub name: String,
    /// How other nodes reach it; `None`: they cannot.
    pub address: Option<String>,
    /// The version of its program.
    pub version: String,
    /// The time for which its counter may stand still.
    pub lease: Duration,
}

/// What a node tells with each beat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pulse {
    /// It is about to stop: it opens nothing that another node can open.
    pub draining: bool,
    /// Its open sessions.
    pub sessions: u64,
    /// Its connections to clients.
    pub connections: u64,
}

/// A node as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// The node.
    pub id: NodeId,
    /// What it said when it joined.
    pub node: NewNode,
    /// Its counter.
    pub beat: u64,
    /// What it said with its last beat.
    pub pulse: Pulse,
    /// The time since its last beat by the store's clock, for people. No decision follows from it.
    pub age: Duration,
}

/// A verdict: this node's counter has stood at this value for the time of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silent {
    /// The node.
    pub node: NodeId,
    /// Its counter. If it has moved since, the verdict is void.
    pub beat: u64,
}

/// A session that a node has open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The session.
    pub session: SessionId,
    /// The epoch under which it was opened.
    pub epoch: String,
    /// The term under which it was opened.
    pub term: u64,
    /// The newest of its records that the store has acknowledged.
    pub last_seq: u64,
}

/// Changed sessions that are returned at once: the newest.
pub(super) const CHANGES_MAX: u32 = 10_000;

/// The time for which a store knows at least what was deleted, unless it is a great deal.
pub(crate) const DELETED_KEPT: Duration = Duration::from_secs(60 * 60);

/// Tells what has changed of some owners' sessions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Sessions that were written to.
    pub heads: Vec<SessionHead>,
    /// Sessions that were deleted lately, and their owners. One may be repeated.
    pub deleted: Vec<(SessionId, String)>,
    /// True if there are more: the oldest are left out.
    pub is_cut: bool,
}

/// A ticket that any node redeems, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTicket {
    /// The digest of the ticket, which itself is nowhere.
    pub hash: [u8; 32],
    /// Its public id.
    pub id: String,
    /// The user whom it is for.
    pub owner: String,
    /// The service that made it; `None` if the user did.
    pub service: Option<String>,
    /// What it stands for, as the server wrote it.
    pub body: String,
    /// The time for which it can be redeemed.
    pub life: Duration,
}

/// The most tickets that may be unused; 0 for no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TicketBounds {
    /// Of one user.
    pub owner_max: usize,
    /// Of all users of one service.
    pub service_max: usize,
    /// Of all.
    pub all_max: usize,
}

/// The result of storing a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketPut {
    /// It can be redeemed.
    Stored,
    /// Its user has too many.
    OwnerFull,
    /// Its service has too many.
    ServiceFull,
    /// There are too many.
    Full,
}

/// Unused tickets of one service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketsOf<'a> {
    /// The one with this id.
    Id(&'a str),
    /// Those of this user.
    Owner(&'a str),
}

/// The nodes of a store that several servers can share. Contract: `cluster_suite!` in `store/conformance/`.
///
/// A handle of a store that has not joined holds nothing, and opens what no living node holds. One that has joined, but
/// whose node the store does not have, creates and opens nothing: what it opened would be anybody's. It was removed, or
/// has joined just before a copy of the store took over that lacks it.
pub trait Cluster: Send + Sync {
    /// Joins: what this handle creates and opens from now on is held by the node returned. Joining again makes another
    /// node of it, which does not hold what the one before held.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn join<'a>(&'a self, node: &'a NewNode) -> StoreFuture<'a, Result<NodeId, Error>>;

    /// Adds to this node's counter and returns all nodes, its own as it was before. `None`: the store does not have it,
    /// and it holds nothing. It has not joined, was removed, or a copy of the store has taken over that lacks it.
    ///
    /// # Errors
    /// [`Error::Unknown`]: it may have been counted.
    fn beat(&self, pulse: Pulse) -> StoreFuture<'_, Result<Option<Vec<NodeRow>>, Error>>;

    /// Replaces the verdicts with which this handle opens sessions. They hold as long as `failovers` is the count of
    /// failovers: in another copy of the store, counters may be where they were before.
    fn judge(&self, silent: Vec<Silent>, failovers: u64);

    /// Leaves: what this node held is free at once.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn leave(&self) -> StoreFuture<'_, Result<(), Error>>;

    /// Returns all nodes, by name.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn nodes(&self) -> StoreFuture<'_, Result<Vec<NodeRow>, Error>>;

    /// Removes nodes that were silent for so long that nobody will ask for them, unless they have beaten since.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn remove<'a>(&'a self, silent: &'a [Silent]) -> StoreFuture<'a, Result<(), Error>>;

    /// Asks a node to stop, as a signal would: its next beat returns its own row as draining, though it has not said
    /// so. Returns false if there is no such node.
    ///
    /// # Errors
    /// [`Error::Unknown`]: it may have been asked.
    fn ask_to_drain(&self, node: NodeId) -> StoreFuture<'_, Result<bool, Error>>;

    /// Returns those of these sessions that are no longer as given: somebody has opened or deleted them, or the store
    /// has lost the end of their logs.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn lost<'a>(&'a self, held: &'a [Held]) -> StoreFuture<'a, Result<Vec<SessionId>, Error>>;

    /// Returns what has changed of these owners' sessions: those that were written to since a time, by the clocks of
    /// their writers, and those that were deleted less than `within` ago, by the clock of the store, which forgets them
    /// after an hour. It costs the same number of statements however many owners there are. Damaged sessions
    /// are left out.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn changes<'a>(
        &'a self,
        owners: &'a [String],
        since: Timestamp,
        within: Duration,
    ) -> StoreFuture<'a, Result<Changes, Error>>;

    /// Returns these owners' sessions whose logs say that a turn is running and that a node holds, whether that lives
    /// or not; the newest. Damaged sessions are left out.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn running<'a>(&'a self, owners: &'a [String]) -> StoreFuture<'a, Result<Vec<SessionHead>, Error>>;

    /// Counts how often another copy of the store has taken this one's place. It may lack the end of what the one
    /// before has acknowledged: what is held must be compared with it.
    fn failovers(&self) -> u64 {
        0
    }

    /// Stores a ticket, unless there are too many. Tickets need not survive a crash of the store.
    ///
    /// # Errors
    /// [`Error::Unknown`]: it may be stored.
    fn put_ticket<'a>(
        &'a self,
        ticket: &'a NewTicket,
        bounds: TicketBounds,
    ) -> StoreFuture<'a, Result<TicketPut, Error>>;

    /// Removes the ticket with this digest. Returns its body and its age, unless it has expired.
    ///
    /// # Errors
    /// [`Error::Unknown`]: it may be gone.
    fn take_ticket<'a>(&'a self, hash: &'a [u8; 32]) -> StoreFuture<'a, Result<Option<(String, Duration)>, Error>>;

    /// Removes unused tickets of a service. Returns how many there were.
    ///
    /// # Errors
    /// [`Error::Unknown`]: they may be gone.
    fn withdraw_tickets<'a>(&'a self, service: &'a str, of: TicketsOf<'a>) -> StoreFuture<'a, Result<u64, Error>>;
}

/// Orders nodes by their names, and those of one name as they joined.
pub(super) fn by_name(mut rows: Vec<NodeRow>) -> Vec<NodeRow> {
    rows.sort_by(|one, other| (&one.node.name, one.id).cmp(&(&other.node.name, other.id)));
    rows
}

/// Which node a handle of a store is, and its verdicts.
#[derive(Debug, Default)]
pub(super) struct Membership {
    me: Mutex<Option<NodeId>>,
    /// The verdicts, and the count of failovers when they were made.
    verdicts: Mutex<(u64, Vec<Silent>)>,
}

impl Membership {
    pub(super) fn me(&self) -> Option<NodeId> {
        *self.me.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_me(&self, me: Option<NodeId>) {
        *self.me.lock().unwrap_or_else(PoisonError::into_inner) = me;
    }

    pub(super) fn judge(&self, silent: Vec<Silent>, failovers: u64) {
        *self.verdicts.lock().unwrap_or_else(PoisonError::into_inner) = (failovers, silent);
    }

    /// Returns the verdicts, if they are of this copy of the store.
    pub(super) fn silent(&self, failovers: u64) -> Vec<Silent> {
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        if verdicts.0 == failovers { verdicts.1.clone() } else { Vec::new() }
    }
}
