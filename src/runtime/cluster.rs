//! This server as a node of a cluster: it beats, watches the other nodes, and knows whether it may trust itself.
//!
//! [`view`] makes the judgments. The registry draws the consequences for this node's sessions
//! (`runtime/registry/holding.rs`).

pub(crate) mod view;

use self::view::{BEATS, Holder, View};
use crate::{
    metrics,
    store::{Cluster, Error, LeasedSession, NewNode, NodeId, NodeRow, Pulse, SessionStore, Spaced},
};
use reseed_protocol::SessionId;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, MissedTickBehavior, interval, timeout, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// The time limit for announcing that this node leaves. Without it, the others notice after the lease.
const LEAVE_TIME: Duration = Duration::from_secs(5);

/// The standing of this node. Its changes trigger a check of its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// This node's id. It changes if the node was removed and has joined again.
    pub(crate) me: NodeId,
    /// The number of times that trust has returned after it ran out. Meanwhile, others may have opened this node's
    /// sessions.
    lapses: u64,
    /// The store's count of failovers. The replica that took over may lack the newest records.
    failovers: u64,
    /// Changes when a node joins, leaves or becomes silent.
    pub(crate) others: u64,
    /// The number of answered beats.
    beats: u64,
}

/// A node's standing when it opened a session. While it is unchanged, no other node can have taken the session, and the
/// store cannot have lost its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Since {
    me: NodeId,
    lapses: u64,
    failovers: u64,
}

impl Standing {
    pub(crate) fn since(&self) -> Since {
        Since { me: self.me, lapses: self.lapses, failovers: self.failovers }
    }
}

/// Returns the number of open sessions and of connections.
type Counts = Box<dyn Fn() -> (u64, u64) + Send + Sync>;

/// Maintains this server's membership in the cluster, from its start until [`Keeper::leave`].
pub struct Keeper {
    store: Arc<dyn SessionStore>,
    node: NewNode,
    patience: Duration,
    began: Instant,
    view: Mutex<View>,
    standing: watch::Sender<Standing>,
    /// This node's standing when all its open sessions were last compared with the store.
    compared: Mutex<Since>,
    counts: OnceLock<Counts>,
    draining: AtomicBool,
    /// Limits the log lines about other nodes that cannot be reached.
    unreachable: Mutex<Spaced>,
    /// Cancelled when an operator asks this node to stop.
    asked: CancellationToken,
    /// Requests a beat at once.
    now: Notify,
    ended: CancellationToken,
}

impl Keeper {
    /// Joins the cluster of a store and keeps beating; `None` if the store is for one server. `patience` is how long
    /// openings and requests wait while this node does not trust itself.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub async fn start(
        store: Arc<dyn SessionStore>,
        node: NewNode,
        patience: Duration,
    ) -> Result<Option<Arc<Self>>, Error> {
        let began = Instant::now();
        let Some(cluster) = store.cluster() else { return Ok(None) };
        let me = cluster.join(&node).await?;
        let view = View::joined(node.lease, me, Duration::ZERO);
        let first = Standing { me, lapses: 0, failovers: cluster.failovers(), others: 0, beats: 0 };
        let standing = watch::Sender::new(first);
        let keeper = Arc::new(Self {
            store: store.clone(),
            node,
            patience,
            began,
            view: Mutex::new(view),
            standing,
            compared: Mutex::new(first.since()),
            counts: OnceLock::new(),
            draining: AtomicBool::new(false),
            unreachable: Mutex::default(),
            asked: CancellationToken::new(),
            now: Notify::new(),
            ended: CancellationToken::new(),
        });
        keeper.beat(&mut false).await;
        tracing::info!(node = %me, name = %keeper.node.name, "joined the servers of the database");
        tokio::spawn(keeper.clone().run());
        Ok(Some(keeper))
    }

    /// Sets the source of the counts that this node reports with its beats.
    pub(crate) fn counts_by(&self, counts: impl Fn() -> (u64, u64) + Send + Sync + 'static) {
        // Later calls have no effect.
        let _ = self.counts.set(Box::new(counts));
        // The first beat had no counts, and may have preceded the metrics.
        self.now.notify_one();
    }

    fn cluster(&self) -> Option<&dyn Cluster> {
        self.store.cluster()
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the node that this server is.
    #[must_use]
    pub fn me(&self) -> NodeId {
        self.view().me()
    }

    /// Returns true if no other node can have judged this one silent, and it has not begun to leave. After either,
    /// others may take its sessions.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        !self.ended.is_cancelled() && self.view().is_trusted(self.began.elapsed())
    }

    /// Waits until this node may trust itself. Returns false if that takes longer than the patience.
    pub(crate) async fn trusted(&self) -> bool {
        let (mut standing, until) = (self.standing.subscribe(), Instant::now() + self.patience);
        while !self.is_trusted() {
            if !matches!(timeout_at(until, standing.changed()).await, Ok(Ok(()))) {
                return self.is_trusted();
            }
        }
        true
    }

    /// Returns the standing to store with a session that is about to be opened. It already includes a failover that no
    /// beat has noticed.
    pub(crate) fn since(&self) -> Since {
        let now = self.standing.borrow().since();
        Since { failovers: self.cluster().map_or(0, Cluster::failovers), ..now }
    }

    /// Waits until this node may trust itself, and returns true if it still holds a session opened at that standing. If
    /// trust has run out in between, the store is queried, because others may have opened a session that is not closed
    /// here yet.
    pub(crate) async fn still_has(&self, held: LeasedSession, then: Since) -> bool {
        if !self.trusted().await {
            return false;
        }
        let now = self.since();
        if now == then {
            return true;
        }
        let compared = *self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        let (lapses, failovers) = (then.lapses.max(compared.lapses), then.failovers.max(compared.failovers));
        let known = Since { lapses, failovers, ..then };
        self.lost(&[held], known, now).await.is_ok_and(|lost| lost.is_empty())
    }

    /// Returns the sessions that this node may have lost between two standings.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub(crate) async fn lost(&self, held: &[LeasedSession], then: Since, now: Since) -> Result<Vec<SessionId>, Error> {
        let all = || held.iter().map(|held| held.session.clone()).collect();
        let Some(cluster) = self.cluster().filter(|_| now.me == then.me) else { return Ok(all()) };
        let lost = cluster.lost(held).await?;
        // While this node did not trust itself, another node may have opened a session and written to it, and the
        // failover may have lost these records. The store then looks as this node left it, but clients have seen more.
        let is_unknown = now.lapses != then.lapses && cluster.failovers() != then.failovers;
        Ok(if is_unknown { all() } else { lost })
    }

    /// Records that all open sessions were compared with the store at this standing.
    pub(crate) fn compared(&self, now: Since) {
        *self.compared.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Joins again now instead of at the next beat, because the store does not know the node `lacking`, which this
    /// server was. Returns once it has joined, when it leaves, or after the patience.
    pub(crate) async fn join_now(&self, lacking: NodeId) {
        let mut standing = self.standing.subscribe();
        self.now.notify_one();
        let joined = standing.wait_for(|now| now.me != lacking);
        // If it has not joined, the next call fails and reports that.
        tokio::select! {
            _ = timeout(self.patience, joined) => {}
            () = self.ended.cancelled() => {}
        }
    }

    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    pub(crate) fn beat_every(&self) -> Duration {
        self.view().beat_every()
    }

    /// Returns a receiver for changes of the standing.
    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Returns all living nodes except this one, as of the last poll.
    #[must_use]
    pub fn others(&self) -> Vec<NodeRow> {
        self.view().living().cloned().collect()
    }

    /// Returns the node that holds a session with this holder, if it is another one and not silent.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub(crate) async fn elsewhere(&self, holder: Option<NodeId>) -> Result<Option<Box<NodeRow>>, Error> {
        let known = self.view().holder(holder);
        Ok(match known {
            Holder::Nobody | Holder::Me => None,
            Holder::Other(row) => Some(row),
            Holder::Unknown => self.rows().await?.into_iter().find(|row| Some(row.id) == holder).map(Box::new),
        })
    }

    /// Returns the rows of all nodes from the store.
    async fn rows(&self) -> Result<Vec<NodeRow>, Error> {
        match self.cluster() {
            Some(cluster) => cluster.nodes().await,
            None => Ok(Vec::new()),
        }
    }

    /// Returns all nodes from the store. The flag is true for a silent node.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub async fn nodes(&self) -> Result<Vec<(NodeRow, bool)>, Error> {
        let rows = self.rows().await?;
        let view = self.view();
        Ok(rows.into_iter().map(|row| (view.is_silent(row.id), row)).map(|(silent, row)| (row, silent)).collect())
    }

    /// Returns the name of the node that holds a session, if the node is known and alive.
    pub(crate) fn name_of(&self, holder: Option<NodeId>) -> Option<String> {
        match self.view().holder(holder) {
            Holder::Me => Some(self.node.name.clone()),
            Holder::Other(row) => Some(row.node.name.clone()),
            Holder::Nobody | Holder::Unknown => None,
        }
    }

    /// Counts a session that this node has taken over, if another node held it.
    pub(crate) fn took_over_from(&self, holder: Option<NodeId>) {
        let Some(holder) = holder else { return };
        let view = self.view();
        if holder != view.me() {
            metrics::TAKEOVERS_TOTAL.add([if view.is_silent(holder) { "silent" } else { "gone" }], 1);
        }
    }

    /// Returns true if another living node holds a session, as of the last poll. An unknown node counts as living if it
    /// may have joined since.
    pub(crate) fn is_of_another(&self, holder: Option<NodeId>) -> bool {
        let view = self.view();
        match view.holder(holder) {
            Holder::Other(_) => true,
            Holder::Unknown => holder.is_some_and(|holder| view.may_have_joined(holder)),
            Holder::Me | Holder::Nobody => false,
        }
    }

    /// Waits until another node is silent or has left. A node that is not known yet counts as living.
    pub(crate) async fn gone(&self, node: NodeId) {
        let (mut standing, mut was_seen) = (self.standing.subscribe(), false);
        loop {
            let is_seen = self.view().living().any(|row| row.id == node);
            // The sender lives as long as this borrow.
            if was_seen && !is_seen || standing.changed().await.is_err() {
                return;
            }
            was_seen |= is_seen;
        }
    }

    /// Returns how long to wait before asking again for a session that this node holds.
    pub(crate) fn retry_after(&self, node: NodeId) -> Duration {
        self.view().retry_after(node)
    }

    /// Limits the log lines about unreachable nodes, because each client that asks for a session there would cause one.
    /// Returns the number of lines left out before this one, or `None` if this one should be left out.
    pub(crate) fn admit_unreachable(&self) -> Option<u64> {
        self.unreachable.lock().unwrap_or_else(PoisonError::into_inner).admit()
    }

    /// Announces with an immediate beat that this server is about to stop.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.now.notify_one();
    }

    /// Waits until an operator asks this node to stop, with `reseed nodes --drain`.
    pub(crate) async fn asked_to_drain(&self) {
        self.asked.cancelled().await;
    }

    /// Returns true if another node can serve this node's clients and will not stop soon. The store is queried, because
    /// others may have started since the last beat.
    pub(crate) async fn has_others(&self) -> bool {
        let rows = match timeout(self.beat_every(), self.nodes()).await {
            Ok(Ok(rows)) => rows,
            Ok(Err(_)) | Err(_) => return false,
        };
        let me = self.me();
        let serves = |row: &NodeRow| row.id != me && row.node.address.is_some() && !row.pulse.draining;
        rows.iter().any(|(row, is_silent)| !is_silent && serves(row))
    }

    /// Stops beating and leaves the cluster. The sessions that this node still holds are free at once.
    pub async fn leave(&self) {
        self.ended.cancel();
        let Some(cluster) = self.cluster() else { return };
        let error = match timeout(LEAVE_TIME, cluster.leave()).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("the database did not answer within {} s", LEAVE_TIME.as_secs()),
        };
        tracing::warn!(error, "could not leave the servers of the database; sessions are free after the lease");
    }

    async fn run(self: Arc<Self>) {
        let mut due = interval(self.node.lease / BEATS);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut is_away, mut is_warned) = (false, false);
        loop {
            tokio::select! {
                () = self.ended.cancelled() => return,
                _ = due.tick() => {}
                () = self.now.notified() => {}
            }
            tokio::select! {
                () = self.ended.cancelled() => return,
                () = self.beat(&mut is_away) => {}
            }
            is_warned = is_warned || self.check_address();
        }
    }

    /// Beats once and evaluates the answer. `is_away` is true if the last beat failed.
    async fn beat(&self, is_away: &mut bool) {
        let Some(cluster) = self.cluster() else { return };
        let (sessions, connections) = self.counts.get().map_or((0, 0), |counts| counts());
        let pulse = Pulse { draining: self.draining.load(Ordering::Relaxed), sessions, connections };
        let sent = self.began.elapsed();
        let rows = match cluster.beat(pulse).await {
            Ok(Some(rows)) => rows,
            Ok(None) => return self.join_again(cluster).await,
            Err(error) => {
                let ago = self.view().renewed_ago(self.began.elapsed());
                metrics::LEASE_AGE_RATIO.set([], ago.as_secs_f64() / self.node.lease.as_secs_f64());
                if !std::mem::replace(is_away, true) {
                    tracing::warn!(%error, "this server cannot renew its lease; it opens no sessions until it can");
                }
                return;
            }
        };
        let answered = self.began.elapsed();
        let me = self.me();
        if !pulse.draining && rows.iter().any(|row| row.id == me && row.pulse.draining) {
            self.asked.cancel();
        }
        let failovers = cluster.failovers();
        let (counted, gone, lapsed) = {
            let mut view = self.view();
            // The clock of a suspended machine may have stopped too. The store's clock is used only to add suspicion.
            let age = rows.iter().find(|row| row.id == view.me()).map_or(Duration::ZERO, |row| row.age);
            let lapsed = !view.is_trusted(answered) || age >= view.trusted_for();
            let before: Vec<NodeId> = view.living().map(|row| row.id).collect();
            view.polled(sent, answered, rows);
            if self.standing.borrow().failovers != failovers {
                view.doubt();
            }
            let has_changed = !view.living().map(|row| row.id).eq(before);
            cluster.judge(view.silent(), failovers);
            let counted = view.counted(&self.node, pulse.draining);
            // This comes before anyone else can see that this node is trusted again.
            self.standing.send_modify(|standing| {
                standing.beats += 1;
                standing.lapses += u64::from(lapsed);
                standing.failovers = failovers;
                standing.others += u64::from(has_changed);
            });
            (counted, view.gone(), lapsed)
        };
        metrics::LEASE_AGE_RATIO.set([], 0.0);
        if lapsed {
            metrics::LEASE_LOSSES_TOTAL.add([], 1);
        }
        metrics::nodes(counted.living, counted.draining, counted.silent, sessions);
        if std::mem::take(is_away) {
            tracing::info!("this server renews its lease again");
        }
        if !gone.is_empty()
            && let Err(error) = cluster.remove(&gone).await
        {
            tracing::warn!(%error, "remove servers that are gone");
        }
    }

    /// Joins under a new id, because this node was removed and others may have taken all its sessions.
    async fn join_again(&self, cluster: &dyn Cluster) {
        let sent = self.began.elapsed();
        match cluster.join(&self.node).await {
            Ok(me) => {
                metrics::LEASE_LOSSES_TOTAL.add([], 1);
                tracing::error!(node = %me, "this server was removed from the database; it has joined again");
                let mut view = self.view();
                *view = View::joined(self.node.lease, me, sent);
                self.standing.send_modify(|standing| (standing.me, standing.beats) = (me, standing.beats + 1));
            }
            Err(error) => tracing::warn!(%error, "join the servers of the database again"),
        }
    }

    /// Warns if another living node has this node's address, because its sessions cannot be reached there. Returns true
    /// if so.
    fn check_address(&self) -> bool {
        let (view, address) = (self.view(), self.node.address.as_deref());
        let Some(twin) = address.and_then(|address| view.twin(address)) else { return false };
        tracing::error!(node = %twin.id, name = %twin.node.name, "another server has the same NODE_ADDRESS; change one");
        true
    }
}
