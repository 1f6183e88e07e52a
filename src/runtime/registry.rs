//! The open sessions. Each has one live loop, whose actor is shared by everyone who opens the session.

mod creating;
pub(crate) mod holding;
mod open_sessions;
mod owned;
mod removal;
mod watching;

pub(crate) use self::creating::Kept;

use self::{holding::NotOpened, open_sessions::OpenSessions};
use super::{
    actor,
    cluster::Keeper,
    errors::{stopping, store_error},
    handle::{Message, SessionHandle},
    load::{leaf, load, stored_copy},
    model_server_load::ModelServerLoad,
    parts::Parts,
    resting::Resting,
    shared::Shared,
    stored_shares::StoredShares,
    watch::{Opened, Watches},
};
use crate::{
    clock::Clock,
    config::{LimitSettings, Retention},
    core::{
        agent_loop::{AgentLoop, Deployment, Seed},
        session::{IdSource, Session},
    },
    hooks::Hooks,
    metrics::limits::Limit,
    provider::Provider,
    shares::{
        Permit, Share, Shares,
        budgets::{Budgets, Rules},
    },
    store::{Error as StoreError, NodeId, SessionHead, SessionStore, UNFINISHED, WithUnstored},
    tools::Toolset,
    trace::Traces,
};
use dashmap::DashMap;
use reseed_protocol::{
    EntryId, ErrorBody, ErrorCode, SessionId, Timestamp,
    context::ContextInfo,
    session::{SessionState, SubscriptionEnd},
};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The time limit for sessions to record that their turn was interrupted. This takes a few commits.
const INTERRUPT_TIME: Duration = Duration::from_secs(5);

/// The options of a registry.
pub struct RegistryOptions {
    /// The store.
    pub store: Arc<dyn SessionStore>,
    /// The provider.
    pub provider: Arc<dyn Provider>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The hooks.
    pub hooks: Hooks,
    /// The tools that the server runs.
    pub tools: Toolset,
    /// The deployment. Its hooks and tools are replaced by those above.
    pub deployment: Deployment,
    /// The limits for clients. Each session in memory holds its active context.
    pub limits: LimitSettings,
    /// True if there may be several users, so that each has a share.
    pub has_several_users: bool,
    /// How long a turn continues after its last connection has left.
    pub detached_turn: Duration,
    /// How long a host may be away before a connection on standby replaces it.
    pub host_away: Duration,
    /// This server's membership in the cluster; `None` if the store is for one server.
    pub cluster: Option<Arc<Keeper>>,
}

/// Returns 64 random bits per call, from which ids are made. The error says why there are none.
pub(crate) type RandomBits = Box<dyn Fn() -> Result<u64, String> + Send + Sync>;

/// The open sessions.
pub struct Registry {
    shared: Arc<Shared>,
    open: OpenSessions,
    limits: LimitSettings,
    stopping: AtomicBool,
    actors: TaskTracker,
    random_bits: RandomBits,
    watches: Arc<Watches>,
    /// How long sessions are kept, and whether tokens may name classes.
    retention: watch::Sender<(Retention, bool)>,
}

impl Registry {
    /// Creates a registry without open sessions. Its ids come from the system's randomness.
    #[must_use]
    pub fn new(options: RegistryOptions) -> Arc<Self> {
        Self::with_random_bits(options, Box::new(system_bits))
    }

    /// Creates a registry whose ids derive from `random_bits`, for tests that run twice and compare. Anyone who can
    /// guess the bits can guess session ids.
    #[must_use]
    pub fn with_random_bits(options: RegistryOptions, random_bits: RandomBits) -> Arc<Self> {
        let RegistryOptions {
            store,
            provider,
            clock,
            hooks,
            tools,
            deployment,
            limits,
            has_several_users,
            detached_turn,
            host_away,
            cluster,
        } = options;
        let shares = Shares::new(&limits, has_several_users);
        let store = WithUnstored::new(store);
        let unstored = store.unstored();
        let store: Arc<dyn SessionStore> = Arc::new(store);
        let shared = Shared {
            budgets: Budgets::new(Rules::default(), store.clone(), clock.clone(), cluster.is_some()),
            stored: StoredShares::new(store.clone(), shares.clone(), &limits, has_several_users),
            model_server: ModelServerLoad::new(provider.slots()),
            store,
            unstored,
            parts: Parts::new(provider, hooks, tools, deployment),
            clock,
            detached_turn,
            host_away,
            drain: CancellationToken::new(),
            stop: CancellationToken::new(),
            calibrations: DashMap::new(),
            damaged: DashMap::new(),
            resting: Resting::default(),
            shares,
            traces: OnceLock::new(),
            cluster,
        };
        Arc::new(Self {
            shared: Arc::new(shared),
            open: OpenSessions::default(),
            limits,
            stopping: AtomicBool::new(false),
            actors: TaskTracker::new(),
            random_bits,
            watches: Arc::default(),
            retention: watch::Sender::default(),
        })
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn SessionStore> {
        &self.shared.store
    }

    /// Converts a store error to a wire error. A session found to be damaged becomes read-only.
    #[must_use]
    pub fn fault(&self, error: &StoreError) -> ErrorBody {
        self.shared.fault(error)
    }

    /// Returns the provider, hooks, tools and settings that sessions use.
    #[must_use]
    pub fn parts(&self) -> &Parts {
        &self.shared.parts
    }

    /// Returns the token that is cancelled when the server is about to stop.
    pub(crate) fn stopping(&self) -> CancellationToken {
        self.shared.drain.clone()
    }

    /// Returns the budgets. They limit nothing until rules are set.
    pub(crate) fn budgets(&self) -> &Budgets {
        &self.shared.budgets
    }

    /// Makes spans with these traces from now on. Only the first call counts.
    pub(crate) fn trace_with(&self, traces: Traces) {
        let _ = self.shared.traces.set(traces);
    }

    /// Returns what makes spans.
    pub(crate) fn traces(&self) -> &Traces {
        self.shared.traces()
    }

    /// Returns the users' shares.
    pub(crate) fn shares(&self) -> &Arc<Shares> {
        &self.shared.shares
    }

    /// Makes the sessions that rest without a connection leave memory now.
    pub async fn unload_resting(&self) {
        let _ = self.shared.resting.make_room().await;
    }

    /// Returns the number of open sessions.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open.count()
    }

    /// Returns the session with this id if it belongs to `owner`, opening it if necessary.
    ///
    /// # Errors
    /// `session_not_found` (also for a session of another owner, which must stay hidden), `overloaded` (also if another
    /// node has it open), `shutting_down`, `store_failed`.
    pub async fn open(&self, id: &SessionId, owner: &str) -> Result<SessionHandle, ErrorBody> {
        let head = self.head(id, owner).await?;
        self.open_at(&head).await.map_err(|refused| match refused {
            NotOpened::Held(node) => self.held_elsewhere(id, node),
            NotOpened::Refused(error) => error,
        })
    }

    /// Opens the session with this head if necessary.
    async fn open_at(&self, head: &SessionHead) -> Result<SessionHandle, NotOpened> {
        let id = &head.session;
        let _turn = self.open.lock(id).await;
        if let Some(handle) = self.open.get(id) {
            // If another node has opened it since, its next append would be refused anyway. A head that was read before
            // this node opened it has an older term.
            if head.term <= handle.term {
                return Ok(handle);
            }
            handle.close(SubscriptionEnd::Moved).await;
        }
        let room = self.room(&head.owner).await.map_err(NotOpened::Refused)?;
        let started = self.read(id, head.holder).await?;
        Ok(self.spawn(started, room))
    }

    /// Becomes the writer of a session and loads it. `before` is the node that held it until now.
    async fn read(&self, id: &SessionId, before: Option<NodeId>) -> Result<actor::Started, NotOpened> {
        let store = &self.shared.store;
        self.wait_for_trust().await.map_err(NotOpened::Refused)?;
        let (since, lease, head) = self.take(id).await.map_err(|error| match error {
            StoreError::Held { node, .. } => NotOpened::Held(node),
            error => NotOpened::Refused(self.fault(&error)),
        })?;
        self.keeper().iter().for_each(|keeper| keeper.took_over_from(before));
        let session = load(&**store, &head).await.map_err(|error| NotOpened::Refused(self.fault(&error)))?;
        let session = self.founded(session);
        let stored_seq = stored_copy(&head).map_or(0, |copy| copy.seq());
        let row = self.row(id, head.owner);
        let seed = self.seed(session).map_err(NotOpened::Refused)?;
        Ok(actor::Started { lease, since, seed, head: head.head, stored_seq, row })
    }

    /// Returns what the store knows of a session, if it belongs to `owner`.
    ///
    /// # Errors
    /// `session_not_found`, `store_failed`.
    pub async fn head(&self, id: &SessionId, owner: &str) -> Result<SessionHead, ErrorBody> {
        let head = self.find(id).await?;
        if head.owner == owner { Ok(head) } else { Err(store_error(&StoreError::NotFound(id.clone()))) }
    }

    /// Returns what the store knows of a session of any owner. An unfinished session counts as missing.
    ///
    /// # Errors
    /// `session_not_found`, `store_failed`.
    pub async fn find(&self, id: &SessionId) -> Result<SessionHead, ErrorBody> {
        match self.shared.store.head(id).await {
            Ok(head) if head.head.updated_at != UNFINISHED => Ok(head),
            Ok(_) => Err(store_error(&StoreError::NotFound(id.clone()))),
            Err(error) => Err(self.fault(&error)),
        }
    }

    /// Returns a session's leaf without opening it; `None` before the first entry, or if it cannot be read from a
    /// damaged log.
    ///
    /// # Errors
    /// `store_failed`.
    pub async fn leaf(&self, head: &SessionHead) -> Result<Option<EntryId>, ErrorBody> {
        match leaf(&*self.shared.store, head).await {
            Ok(leaf) => Ok(leaf),
            Err(error @ StoreError::Damaged { .. }) => {
                let _ = self.fault(&error);
                Ok(None)
            }
            Err(error) => Err(self.fault(&error)),
        }
    }

    /// Returns the reason why nothing may be written to a session, if one of its records was found damaged.
    #[must_use]
    pub fn damage(&self, id: &SessionId) -> Option<ErrorBody> {
        self.shared.damage(id)
    }

    /// Returns how long a host may be away before a connection on standby replaces it.
    #[must_use]
    pub fn host_away(&self) -> std::time::Duration {
        self.shared.host_away
    }

    /// Returns the context info of an empty session.
    #[must_use]
    pub fn empty_context_info(&self) -> ContextInfo {
        let id = "none".parse().expect("a word is an id");
        let session = self.unwritten(id, self.shared.clock.now());
        let calibration = self.shared.calibration(&session.state.model);
        let seed = Seed::new(session, self.shared.parts.deployment(), calibration, IdSource::seeded(0));
        AgentLoop::seeded(1, seed).context_info()
    }

    /// Returns a new session, before its first event.
    fn unwritten(&self, id: SessionId, now: Timestamp) -> Session {
        let mut session = Session::new(id, now);
        let deployment = self.shared.parts.deployment();
        let state = session.state_mut();
        state.model.clone_from(&deployment.model);
        state.strategy.clone_from(&deployment.strategy);
        session
    }

    /// Returns a loaded session. If its first event was never written, it starts like a new one.
    pub(super) fn founded(&self, session: Session) -> Session {
        if session.state.seq == 0 { self.unwritten(session.id, session.created_at) } else { session }
    }

    /// Returns what a session is doing. A session that is not open is idle, even if its log contains a turn that died
    /// with its process.
    #[must_use]
    pub fn doing(&self, id: &SessionId) -> SessionState {
        self.open.doing(id)
    }

    /// Returns what a session is doing, wherever it is open. If another node holds it, only a running turn is known.
    #[must_use]
    pub fn doing_anywhere(&self, head: &SessionHead) -> SessionState {
        let runs_elsewhere = head.head.running && self.opened(&head.session).is_none() && self.is_of_another(head);
        if runs_elsewhere { SessionState::Running } else { self.doing(&head.session) }
    }

    /// Returns what operators see of a session; `None` if it is not open.
    #[must_use]
    pub fn open_row(&self, id: &SessionId) -> Option<Opened> {
        self.open.row(id)
    }

    /// Returns the watchers of each owner's sessions.
    #[must_use]
    pub fn watches(&self) -> &Arc<Watches> {
        &self.watches
    }

    /// Returns the session's handle, if it is open.
    #[must_use]
    pub fn opened(&self, id: &SessionId) -> Option<SessionHandle> {
        self.open.get(id)
    }

    /// Stops accepting sessions and turns. Waits `grace` for running turns, then interrupts them.
    pub async fn stop(&self, grace: Duration) {
        self.stopping.store(true, Ordering::Relaxed);
        self.shared.drain.cancel();
        self.actors.close();
        if tokio::time::timeout(grace, self.actors.wait()).await.is_ok() {
            return;
        }
        tracing::info!(sessions = self.open_count(), "interrupting running turns; they can be retried");
        self.shared.stop.cancel();
        if tokio::time::timeout(INTERRUPT_TIME, self.actors.wait()).await.is_err() {
            tracing::warn!(sessions = self.open_count(), "some sessions did not stop in time");
        }
    }

    /// Runs a task that the server waits for when it stops.
    pub(super) fn track(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.actors.spawn(task);
    }

    pub(super) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Refuses to start or continue anything once the server is stopping.
    pub(super) fn check_running(&self) -> Result<(), ErrorBody> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(stopping());
        }
        Ok(())
    }

    /// Takes a permit for another session of this user in memory. If there is no room, the sessions that rest leave.
    async fn room(&self, owner: &str) -> Result<Permit, ErrorBody> {
        match self.free_room(owner) {
            Err(error)
                if matches!(error.code, ErrorCode::Overloaded | ErrorCode::LimitReached)
                    && self.shared.resting.make_room().await =>
            {
                self.free_room(owner)
            }
            room => room,
        }
    }

    fn free_room(&self, owner: &str) -> Result<Permit, ErrorBody> {
        self.check_running()?;
        let most = self.limits.sessions_open_max;
        if self.open_count() >= most as usize {
            Limit::OpenSessions.refused();
            let message = format!("{most} sessions are open, the limit (SESSIONS_OPEN_MAX)");
            return Err(ErrorBody::new(ErrorCode::Overloaded, message));
        }
        self.shared.shares.take(Share::OpenSessions, owner, 1)
    }

    pub(super) fn seed(&self, session: Session) -> Result<Seed, ErrorBody> {
        let calibration = self.shared.calibration_of(&session);
        let ids = IdSource::seeded(self.random_bits()?);
        Ok(Seed::new(session, self.shared.parts.deployment(), calibration, ids))
    }

    fn random_bits(&self) -> Result<u64, ErrorBody> {
        (self.random_bits)()
            .map_err(|error| ErrorBody::new(ErrorCode::Internal, format!("the system has no randomness: {error}")))
    }

    fn spawn(&self, started: actor::Started, room: Permit) -> SessionHandle {
        let row = started.row.clone();
        let (handle, run) = actor::actor(self.shared.clone(), started);
        let entered = self.open.enter(handle.clone(), row);
        self.actors.spawn(async move {
            let place = run.await;
            drop((entered, room));
            // A request that waits for the place needs the room.
            drop(place);
        });
        // If the node's standing has changed while the session was being opened, the check of all open sessions may
        // have missed it.
        if self.since() != handle.since {
            handle.mailbox.post(Message::Close(SubscriptionEnd::Moved));
        }
        handle
    }
}

fn system_bits() -> Result<u64, String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(u64::from_le_bytes(bytes))
}
