//! Nodes: several servers that share one store.
//!
//! An open session has a holder: the node that runs its loop. Another node may open the session only if the holder
//! releases it, leaves, or is silent. Each node increments a counter of its own in the store. An observer measures by
//! its own clock how long that counter stands still (`runtime/cluster/view.rs`) and passes its verdict to the store.
//! The store checks that the counter is still where the observer saw it.
//!
//! Invariant: holding a session only decides which node may open it. A wrong verdict costs a reopened session, never a
//! record, because appends are fenced by the lease's term.

use super::{Error, SessionHead, StoreFuture};
use reseed_protocol::{SessionId, Timestamp};
use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// A node: one start of a server. A restarted server is a new node with a higher number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub i64);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A node that is joining.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    /// Its name, for people.
    pub name: String,
    /// The address at which other nodes reach it; `None` if they cannot.
    pub address: Option<String>,
    /// The version of its program.
    pub version: String,
    /// Its lease: the longest time for which its counter may stand still.
    pub lease: Duration,
}

/// The status that a node reports with each beat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pulse {
    /// True if the node is about to stop: it opens no session that another node could open.
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
    /// The description that it joined with.
    pub node: NewNode,
    /// Its counter.
    pub beat: u64,
    /// The status that it reported with its last beat.
    pub pulse: Pulse,
    /// The time since its last beat by the store's clock, for display only. No decision depends on it.
    pub age: Duration,
}

/// A verdict: this node's counter has stood at this value for the whole of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silent {
    /// The node.
    pub node: NodeId,
    /// Its counter. If it has moved since, the verdict is void.
    pub beat: u64,
}

/// A session that a node has open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasedSession {
    /// The session.
    pub session: SessionId,
    /// The epoch under which it was opened.
    pub epoch: String,
    /// The term under which it was opened.
    pub term: u64,
    /// The newest of its records that the store has acknowledged.
    pub last_seq: u64,
}

/// The most changed sessions that are returned at once; the newest are kept.
pub(super) const CHANGES_MAX: u32 = 10_000;

/// The minimum time for which a store remembers deletions, unless there are very many.
pub const DELETED_KEPT: Duration = Duration::from_secs(60 * 60);

/// The changes to some owners' sessions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// Sessions that were written to.
    pub heads: Vec<SessionHead>,
    /// Recently deleted sessions and their owners. A session may appear twice.
    pub deleted: Vec<(SessionId, String)>,
    /// True if there are more: the oldest are left out.
    pub is_cut: bool,
}

/// A ticket that can be redeemed once, on any node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTicket {
    /// The digest of the ticket. The ticket itself is stored nowhere.
    pub hash: [u8; 32],
    /// Its public id.
    pub id: String,
    /// The user that it is for.
    pub owner: String,
    /// The service that made it; `None` if the user did.
    pub service: Option<String>,
    /// The server's description of what the ticket grants, opaque to the store.
    pub body: String,
    /// The time within which it can be redeemed.
    pub life: Duration,
}

/// The most unused tickets there may be; 0 means no limit.
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
    /// The ticket is stored and can be redeemed.
    Stored,
    /// Its user has too many unused tickets.
    OwnerFull,
    /// Its service has too many unused tickets.
    ServiceFull,
    /// There are too many unused tickets in all.
    Full,
}

/// Selects unused tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketsOf<'a> {
    /// The one of the service with this id.
    Id(&'a str),
    /// Those of the service for this user.
    Owner(&'a str),
    /// Those for this user, whoever made them.
    Anyone(&'a str),
}

/// The nodes of a store that several servers can share. Contract: `cluster_suite!` in `store/conformance/`.
///
/// A handle that has not joined holds nothing, and can open any session that no living node holds. A handle that has
/// joined, but whose node is missing from the store, creates and opens nothing: any node could take what it opened. Its
/// node was removed, or it joined just before a failover to a copy of the store that lacks it.
pub trait Cluster: Send + Sync {
    /// Joins: the returned node holds whatever this handle creates and opens from now on. Joining again makes it
    /// another node, which does not hold the sessions of the earlier one.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn join<'a>(&'a self, node: &'a NewNode) -> StoreFuture<'a, Result<NodeId, Error>>;

    /// Increments this node's counter and returns all nodes; its own row shows the values from before the beat. Returns
    /// `None` if the store does not have this node, which then holds nothing: it has not joined, was removed, or the
    /// store failed over to a copy that lacks it.
    ///
    /// # Errors
    /// [`Error::Unknown`]: the beat may have been counted.
    fn beat(&self, pulse: Pulse) -> StoreFuture<'_, Result<Option<Vec<NodeRow>>, Error>>;

    /// Replaces the verdicts with which this handle opens sessions. They are valid while the failover count equals
    /// `failovers`: in another copy of the store, counters may show older values.
    fn judge(&self, silent: Vec<Silent>, failovers: u64);

    /// Leaves: the sessions that this node held can be opened by others immediately.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn leave(&self) -> StoreFuture<'_, Result<(), Error>>;

    /// Returns all nodes, by name.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn nodes(&self) -> StoreFuture<'_, Result<Vec<NodeRow>, Error>>;

    /// Removes nodes that have been silent for so long that nobody will ask about them, unless they have beaten since.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn remove<'a>(&'a self, silent: &'a [Silent]) -> StoreFuture<'a, Result<(), Error>>;

    /// Asks a node to stop, as a signal would: its next beat returns its own row as draining, although it has not said
    /// so itself. Returns false if there is no such node.
    ///
    /// # Errors
    /// [`Error::Unknown`]: the request may have been stored.
    fn ask_to_drain(&self, node: NodeId) -> StoreFuture<'_, Result<bool, Error>>;

    /// Returns which of these sessions are no longer as given: another node has opened or deleted them, or the store
    /// has lost the end of their logs.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn lost<'a>(&'a self, held: &'a [LeasedSession]) -> StoreFuture<'a, Result<Vec<SessionId>, Error>>;

    /// Returns the changes to these owners' sessions: sessions written to since a time, by the clocks of their writers,
    /// and sessions deleted less than `within` ago, by the store's clock. The store forgets deletions after an hour.
    /// The number of statements does not depend on the number of owners. Damaged sessions are left out.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn changes<'a>(
        &'a self,
        owners: &'a [String],
        since: Timestamp,
        within: Duration,
    ) -> StoreFuture<'a, Result<Changes, Error>>;

    /// Returns these owners' newest sessions that have a running turn according to their logs and that a node holds,
    /// whether or not that node is alive. Damaged sessions are left out.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    fn running<'a>(&'a self, owners: &'a [String]) -> StoreFuture<'a, Result<Vec<SessionHead>, Error>>;

    /// Counts the failovers: how often another copy of the store has taken over. The new copy may lack the last
    /// acknowledged records, so a holder must compare its sessions with the store.
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

    /// Removes unused tickets, of a service or of anyone. Returns how many there were.
    ///
    /// # Errors
    /// [`Error::Unknown`]: the tickets may be gone.
    fn withdraw_tickets<'a>(&'a self, service: &'a str, of: TicketsOf<'a>) -> StoreFuture<'a, Result<u64, Error>>;
}

/// Orders nodes by name; nodes with the same name in the order in which they joined.
pub(super) fn by_name(mut rows: Vec<NodeRow>) -> Vec<NodeRow> {
    rows.sort_by(|one, other| (&one.node.name, one.id).cmp(&(&other.node.name, other.id)));
    rows
}

/// The identity of a store handle as a node, and its verdicts.
#[derive(Debug, Default)]
pub(super) struct Membership {
    me: Mutex<Option<NodeId>>,
    /// The verdicts, and the failover count at which they were made.
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

    /// Returns the verdicts, if they apply to this copy of the store.
    pub(super) fn silent(&self, failovers: u64) -> Vec<Silent> {
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        if verdicts.0 == failovers { verdicts.1.clone() } else { Vec::new() }
    }
}
