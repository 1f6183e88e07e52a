//! A node's connection to the database of its cluster: it can be cut, and writes on their way may arrive later.

use super::fleet::Beaten;
use crate::{
    broken::Broken,
    disk::{Inner, Road, failed},
    world::SimClock,
};
use futures_util::FutureExt;
use reseed::{
    internals::{Clock, Keeper},
    store::{
        Append, Changes, Cluster, Error, Lease, LeasedSession, NewNode, NewTicket, NodeId, NodeRow, Pulse, SessionHead,
        SessionStore, Silent, StoreFuture, TicketBounds, TicketPut, TicketsOf, memory::MemoryStore,
    },
};
use reseed_protocol::{SessionId, Timestamp};
use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{runtime::Handle, sync::Notify, time::timeout};

/// The lease of every node.
pub(crate) const LEASE: Duration = Duration::from_secs(5);

/// The time for which a call waits for a connection that is cut.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);

/// The longest time after its last beat for which a node may trust its lease, however wrong its clock is. It is longer
/// than a slow clock makes it, and shorter than others wait.
const TRUSTED_MAX: Duration = LEASE.saturating_sub(Duration::from_millis(500));

/// The time that a beat may take, as in the store for PostgreSQL.
const BEAT_LIMIT: Duration = Duration::from_secs(3);

/// A node's connection.
pub(crate) struct Link {
    /// The node's handle on the database.
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: Arc<SimClock>,
    is_cut: AtomicBool,
    /// Wakes calls in the order in which they wait, so that a seed is repeatable; a watch channel would not.
    healed: Notify,
    /// When each node has last beaten, by its own time of day. For nodes that judge by it, with that fault injected.
    beaten_at: Beaten,
    judged: Mutex<Vec<Silent>>,
}

impl Link {
    pub(crate) fn new(store: MemoryStore, clock: Arc<SimClock>, beaten_at: Beaten) -> Self {
        let (store, is_cut, healed) = (Arc::new(store), AtomicBool::new(false), Notify::new());
        Self { store, clock, is_cut, healed, beaten_at, judged: Mutex::default() }
    }

    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
        if !is_cut {
            self.healed.notify_waiters();
        }
    }

    /// Waits until the connection is whole.
    pub(crate) async fn passes(&self) -> Result<(), Error> {
        let whole = async {
            while self.is_cut.load(Ordering::SeqCst) {
                self.healed.notified().await;
            }
        };
        timeout(PATIENCE, whole).await.map_err(|_| failed())
    }

    /// Records a beat by the time of day, and what follows from those of others.
    fn note(&self, me: NodeId, rows: &[NodeRow]) {
        let now = self.clock.now().0;
        let mut beaten_at = self.beaten_at.lock().unwrap_or_else(PoisonError::into_inner);
        beaten_at.insert(me, now);
        let lease = i64::try_from(LEASE.as_millis()).unwrap_or(i64::MAX);
        let is_late = |row: &&NodeRow| row.id != me && beaten_at.get(&row.id).is_some_and(|at| now - at > lease);
        let silent = rows.iter().filter(is_late).map(|row| Silent { node: row.id, beat: row.beat });
        *self.judged.lock().unwrap_or_else(PoisonError::into_inner) = silent.collect();
    }
}

/// A living node, for checks.
pub(crate) struct Member {
    pub(crate) keeper: Weak<Keeper>,
    pub(crate) runtime: Handle,
    pub(crate) is_still: Arc<AtomicBool>,
}

impl Member {
    /// Returns true if this node has that id in the database.
    pub(crate) fn is(&self, node: Option<NodeId>) -> bool {
        node.is_some() && self.keeper.upgrade().map(|keeper| keeper.me()) == node
    }

    fn trusts(&self) -> bool {
        let _its_clock = self.runtime.enter();
        self.keeper.upgrade().is_some_and(|keeper| keeper.is_trusted())
    }

    pub(crate) fn stands_still(&self) -> bool {
        self.is_still.load(Ordering::SeqCst)
    }
}

impl Inner {
    /// Returns true if a node trusts that nobody has taken its sessions, and could know otherwise. A node whose clock
    /// stands still, or has stood still since its last beat, cannot know that its lease is over. Its next answered beat
    /// shows it.
    pub(crate) fn trusts(&self, number: usize) -> bool {
        let renewed = self.renewed.get(&number).copied().unwrap_or_default();
        self.members.get(&number).is_some_and(Member::trusts) && self.now.saturating_sub(renewed) < TRUSTED_MAX
    }
}

/// A write that is executed after its sender gave up or died.
pub(crate) struct Late {
    /// The number of turns until then.
    pub(crate) turns: u32,
    pub(crate) node: usize,
    pub(crate) lease: Lease,
    pub(crate) first_seq: u64,
    pub(crate) append: Append,
}

/// An append on its way to the database. If it is dropped before it arrives, it may still arrive.
pub(crate) struct Sent<'a> {
    road: &'a Road,
    late: Option<Late>,
}

impl<'a> Sent<'a> {
    pub(crate) fn new(road: &'a Road, lease: &Lease, first_seq: u64, append: &Append) -> Self {
        let late = Late { turns: 0, node: road.node, lease: lease.clone(), first_seq, append: append.clone() };
        Self { road, late: Some(late) }
    }

    pub(crate) fn arrived(mut self) {
        self.late = None;
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        let Some(mut late) = self.late.take() else { return };
        let mut inner = self.road.disk.lock();
        if inner.rng.u8(..3) == 0 {
            late.turns = inner.rng.u32(1..200);
            inner.afterwards.push(late);
        }
    }
}

impl Road {
    fn link(&self) -> &Link {
        self.link.as_ref().expect("only a node of a cluster asks for others")
    }

    fn nodes_of(&self) -> &dyn Cluster {
        self.link().store.cluster().expect("the database is shared")
    }
}

impl Cluster for Road {
    fn join<'a>(&'a self, node: &'a NewNode) -> StoreFuture<'a, Result<NodeId, Error>> {
        Box::pin(async move {
            let sent = self.disk.lock().now;
            let me = match self.asked("join", self.nodes_of().join(node)).await {
                Ok(me) => me,
                Err(error) => {
                    self.forget(node);
                    return Err(error);
                }
            };
            self.disk.lock().renewed.insert(self.node, sent);
            self.disk.trace.line(format_args!("disk: node {} joins as {me}", self.node));
            Ok(me)
        })
    }

    fn beat(&self, pulse: Pulse) -> StoreFuture<'_, Result<Option<Vec<NodeRow>>, Error>> {
        Box::pin(async move {
            let sent = self.disk.lock().now;
            let beat = timeout(BEAT_LIMIT, self.asked("beat", self.beaten(pulse))).await;
            let mut rows = beat.unwrap_or_else(|_| Err(failed()))?;
            match (self.disk.broken, &rows, self.me()) {
                (Broken::WallClockLease, Some(rows), Some(me)) => self.link().note(me, rows),
                (Broken::ShortLease, ..) => rows.iter_mut().flatten().for_each(|row| row.node.lease = LEASE / 5),
                _ => {}
            }
            if rows.is_some() {
                self.disk.lock().renewed.insert(self.node, sent);
            }
            Ok(rows)
        })
    }

    fn judge(&self, mut silent: Vec<Silent>, mut failovers: u64) {
        match self.disk.broken {
            Broken::WallClockLease => {
                silent = self.link().judged.lock().unwrap_or_else(PoisonError::into_inner).clone();
            }
            Broken::UntoldFailover => failovers = self.nodes_of().failovers(),
            _ => {}
        }
        self.nodes_of().judge(silent, failovers);
    }

    fn leave(&self) -> StoreFuture<'_, Result<(), Error>> {
        Box::pin(self.asked("leave", self.nodes_of().leave()))
    }

    fn nodes(&self) -> StoreFuture<'_, Result<Vec<NodeRow>, Error>> {
        Box::pin(self.asked("nodes", self.nodes_of().nodes()))
    }

    fn remove<'a>(&'a self, silent: &'a [Silent]) -> StoreFuture<'a, Result<(), Error>> {
        Box::pin(self.asked("remove", self.nodes_of().remove(silent)))
    }

    fn ask_to_drain(&self, node: NodeId) -> StoreFuture<'_, Result<bool, Error>> {
        Box::pin(self.asked("ask_to_drain", self.nodes_of().ask_to_drain(node)))
    }

    fn failovers(&self) -> u64 {
        if self.disk.broken == Broken::UntoldFailover { 0 } else { self.nodes_of().failovers() }
    }

    fn lost<'a>(&'a self, held: &'a [LeasedSession]) -> StoreFuture<'a, Result<Vec<SessionId>, Error>> {
        let held = if self.disk.broken == Broken::NothingLost { &[] } else { held };
        Box::pin(self.asked("lost", self.nodes_of().lost(held)))
    }

    fn changes<'a>(
        &'a self,
        owners: &'a [String],
        since: Timestamp,
        within: Duration,
    ) -> StoreFuture<'a, Result<Changes, Error>> {
        Box::pin(self.asked("changes", self.nodes_of().changes(owners, since, within)))
    }

    fn running<'a>(&'a self, owners: &'a [String]) -> StoreFuture<'a, Result<Vec<SessionHead>, Error>> {
        Box::pin(self.asked("running", self.nodes_of().running(owners)))
    }

    fn put_ticket<'a>(
        &'a self,
        ticket: &'a NewTicket,
        bounds: TicketBounds,
    ) -> StoreFuture<'a, Result<TicketPut, Error>> {
        self.nodes_of().put_ticket(ticket, bounds)
    }

    fn take_ticket<'a>(&'a self, hash: &'a [u8; 32]) -> StoreFuture<'a, Result<Option<(String, Duration)>, Error>> {
        self.nodes_of().take_ticket(hash)
    }

    fn withdraw_tickets<'a>(&'a self, service: &'a str, of: TicketsOf<'a>) -> StoreFuture<'a, Result<u64, Error>> {
        self.nodes_of().withdraw_tickets(service, of)
    }
}

impl Road {
    /// Beats, and reports the time since the previous beat by the database's clock.
    async fn beaten(&self, pulse: Pulse) -> Result<Option<Vec<NodeRow>>, Error> {
        let mut rows = self.nodes_of().beat(pulse).await?;
        let me = self.me();
        let mut inner = self.disk.lock();
        let now = inner.now;
        if let Some(row) = rows.iter_mut().flatten().find(|row| Some(row.id) == me) {
            let age = now - inner.beats.insert(row.id, now).unwrap_or(now);
            row.age = if self.disk.broken == Broken::AgeUnknown { Duration::ZERO } else { age };
        }
        Ok(rows)
    }

    /// Removes what a join may have created whose answer was lost. A node does not beat for a row that it does not
    /// know, but its handle on this database would.
    fn forget(&self, node: &NewNode) {
        let rows = self.nodes_of().nodes().now_or_never().and_then(Result::ok).unwrap_or_default();
        let newest = rows.iter().filter(|row| row.node == *node).max_by_key(|row| row.id);
        let newest: Vec<Silent> = newest.map(|row| Silent { node: row.id, beat: row.beat }).into_iter().collect();
        drop(self.nodes_of().remove(&newest).now_or_never());
    }

    /// Returns this node's id in the database.
    fn me(&self) -> Option<NodeId> {
        let inner = self.disk.lock();
        inner.members.get(&self.node)?.keeper.upgrade().map(|keeper| keeper.me())
    }
}
