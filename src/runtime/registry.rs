//! Which sessions are open. One live loop a session: whoever wants it shares its actor.

use super::{
    actor,
    fork::FORKS_MAX,
    handle::{Message, SessionHandle, stopping},
    load::{load, state},
    shared::{Shared, store_error},
    watch::{Compactions, Row, Watches, list_item},
};
use crate::{
    clock::Clock,
    core::{
        agent_loop::{AgentLoop, Deployment, Seed},
        session::{IdSource, Session, fingerprint::fingerprint},
    },
    hooks::Hooks,
    provider::Provider,
    store::{Error as StoreError, Head, SessionHead, SessionStore, UNFINISHED},
};
use dashmap::DashMap;
use reseed_protocol::{
    CloseCode, EntryId, ErrorBody, ErrorCode, SessionId, Timestamp,
    context::ContextInfo,
    reply::{SessionItem, SessionState},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Mutex;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long sessions may take to write that their turn was interrupted: a few commits.
const INTERRUPT_TIME: Duration = Duration::from_secs(5);

/// What a registry is made of.
pub struct RegistryOptions {
    /// The log.
    pub store: Arc<dyn SessionStore>,
    /// The model.
    pub provider: Arc<dyn Provider>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What is asked at defined points.
    pub hooks: Hooks,
    /// What the deployment says; its hooks are taken from those above.
    pub deployment: Deployment,
    /// Most sessions open at once: each holds its active context in memory.
    pub sessions_open_max: usize,
    /// How long a turn may run after its last connection has left.
    pub detached_turn: Duration,
}

/// Gives 64 random bits at each call, from which ids are made; or says why there are none.
pub type RandomBits = Box<dyn Fn() -> Result<u64, String> + Send + Sync>;

/// The open sessions.
pub struct Registry {
    shared: Arc<Shared>,
    slots: Arc<DashMap<SessionId, Arc<Slot>>>,
    open: Arc<AtomicUsize>,
    sessions_open_max: usize,
    stopping: AtomicBool,
    actors: TaskTracker,
    random_bits: RandomBits,
    /// Held by those that fork: each session has one of these.
    forks: [Mutex<()>; FORKS_MAX],
    watches: Arc<Watches>,
    /// What open sessions are doing.
    rows: Arc<DashMap<SessionId, Arc<Row>>>,
}

/// Held while a session is being opened, so that two that want it open it once.
#[derive(Default)]
struct Slot {
    handle: Mutex<Option<SessionHandle>>,
}

impl Registry {
    /// A registry in which no session is open. Its ids come from the system's randomness.
    #[must_use]
    pub fn new(options: RegistryOptions) -> Arc<Self> {
        Self::with_random_bits(options, Box::new(system_bits))
    }

    /// A registry whose ids follow from `random_bits`, for tests that run twice and compare. Whoever can guess the bits
    /// can guess the ids of sessions.
    #[must_use]
    pub fn with_random_bits(options: RegistryOptions, random_bits: RandomBits) -> Arc<Self> {
        let RegistryOptions { store, provider, clock, hooks, deployment, sessions_open_max, detached_turn } = options;
        // The core calls hooks by their place, so both lists are one.
        let deployment = Arc::new(Deployment { hooks: hooks.specs(), ..deployment });
        let shared = Shared {
            store,
            provider,
            clock,
            hooks,
            deployment,
            detached_turn,
            drain: CancellationToken::new(),
            stop: CancellationToken::new(),
            calibrations: DashMap::new(),
            damaged: DashMap::new(),
        };
        Arc::new(Self {
            shared: Arc::new(shared),
            slots: Arc::default(),
            open: Arc::new(AtomicUsize::new(0)),
            sessions_open_max,
            stopping: AtomicBool::new(false),
            actors: TaskTracker::new(),
            random_bits,
            forks: std::array::from_fn(|_| Mutex::new(())),
            watches: Arc::default(),
            rows: Arc::default(),
        })
    }

    /// The log.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn SessionStore> {
        &self.shared.store
    }

    /// The wire's word for a fault of the store. A session that turns out to be damaged is read-only from now on.
    #[must_use]
    pub fn fault(&self, error: &StoreError) -> ErrorBody {
        self.shared.fault(error)
    }

    /// What the deployment says.
    #[must_use]
    pub fn deployment(&self) -> &Deployment {
        &self.shared.deployment
    }

    /// The server's hooks.
    #[must_use]
    pub fn hooks(&self) -> &Hooks {
        &self.shared.hooks
    }

    /// How many sessions are open.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Makes a session for `owner` and opens it.
    ///
    /// # Errors
    /// `overloaded`, `shutting_down`, `store_failed`.
    pub async fn create(&self, owner: &str) -> Result<SessionHandle, ErrorBody> {
        self.check_room()?;
        let id = self.random_id()?;
        let now = self.shared.clock.now();
        let lease = self.shared.store.create(&id, owner, now).await.map_err(|error| self.fault(&error))?;
        let session = self.unwritten(id.clone(), now);
        let row = Row::new(self.watches.clone(), id.clone(), owner.to_owned());
        let head = Head { created_at: now, updated_at: now, ..Head::default() };
        let started = actor::Started { lease, seed: self.seed(session)?, head, row };
        let slot = Arc::new(Slot::default());
        let mut place = slot.handle.lock().await;
        self.slots.insert(id, slot.clone());
        let handle = self.spawn(started);
        *place = Some(handle.clone());
        drop(place);
        Ok(handle)
    }

    /// The session of this id, if it belongs to `owner`, opened if it is not.
    ///
    /// # Errors
    /// `session_not_found` (also for another owner's: to anyone else it does not exist), `overloaded`,
    /// `shutting_down`, `store_failed`.
    pub async fn open(&self, id: &SessionId, owner: &str) -> Result<SessionHandle, ErrorBody> {
        self.head(id, owner).await?;
        let slot = self.slots.entry(id.clone()).or_default().clone();
        let mut place = slot.handle.lock().await;
        if let Some(handle) = place.as_ref().filter(|handle| !handle.is_gone()) {
            return Ok(handle.clone());
        }
        let opened = self.read(id).await;
        match opened {
            Ok(started) => {
                let handle = self.spawn(started);
                *place = Some(handle.clone());
                Ok(handle)
            }
            Err(error) => {
                drop(place);
                drop(slot);
                forget(&self.slots, id);
                Err(error)
            }
        }
    }

    async fn read(&self, id: &SessionId) -> Result<actor::Started, ErrorBody> {
        self.check_room()?;
        let store = &self.shared.store;
        let (lease, head) = store.open(id).await.map_err(|error| self.fault(&error))?;
        let session = self.founded(load(&**store, &head).await.map_err(|error| self.fault(&error))?);
        let row = Row::new(self.watches.clone(), id.clone(), head.owner);
        Ok(actor::Started { lease, seed: self.seed(session)?, head: head.head, row })
    }

    /// What the store knows of a session, if it belongs to `owner`.
    ///
    /// # Errors
    /// `session_not_found`, `store_failed`.
    pub async fn head(&self, id: &SessionId, owner: &str) -> Result<SessionHead, ErrorBody> {
        let head = self.find(id).await?;
        if head.owner == owner { Ok(head) } else { Err(store_error(&StoreError::NotFound(id.clone()))) }
    }

    /// What the store knows of a session, whoever it belongs to. One that is still being made is not there.
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

    /// The entry from which a session goes on, without opening it; `None` before the first, and where a damaged log no
    /// longer says.
    ///
    /// # Errors
    /// `store_failed`.
    pub async fn leaf(&self, head: &SessionHead) -> Result<Option<EntryId>, ErrorBody> {
        match state(&*self.shared.store, head).await {
            Ok(state) => Ok(state.leaf),
            Err(error @ StoreError::Damaged { .. }) => {
                let _ = self.fault(&error);
                Ok(None)
            }
            Err(error) => Err(self.fault(&error)),
        }
    }

    /// Why nothing may be written to a session, if a record of it was found damaged.
    #[must_use]
    pub fn damage(&self, id: &SessionId) -> Option<ErrorBody> {
        self.shared.damage(id)
    }

    /// How full the window of a session is in which nothing was said.
    #[must_use]
    pub fn empty_context_info(&self) -> ContextInfo {
        let id = "none".parse().expect("a word is an id");
        let session = self.unwritten(id, self.shared.clock.now());
        let calibration = self.shared.calibration(&session.state.model);
        let seed = Seed::new(session, self.shared.deployment.clone(), calibration, IdSource::seeded(0));
        AgentLoop::seeded(1, seed).context_info()
    }

    /// A session as it begins, before its first event.
    fn unwritten(&self, id: SessionId, now: Timestamp) -> Session {
        let mut session = Session::new(id, now);
        session.state.model.clone_from(&self.shared.deployment.model);
        session.state.strategy.clone_from(&self.shared.deployment.strategy);
        session
    }

    /// A session that was read; one whose first event was never written begins like a new one.
    pub(super) fn founded(&self, session: Session) -> Session {
        if session.state.seq == 0 { self.unwritten(session.id, session.created_at) } else { session }
    }

    /// What a session is doing. One that is not open does nothing, whatever its log says of a turn that died with its
    /// process.
    #[must_use]
    pub fn doing(&self, id: &SessionId) -> SessionState {
        self.rows.get(id).map_or(SessionState::Idle, |row| row.doing())
    }

    /// How compaction goes in a session; `None` where it is not open.
    #[must_use]
    pub fn compactions(&self, id: &SessionId) -> Option<Compactions> {
        self.rows.get(id).map(|row| row.compactions())
    }

    /// Who watches which owner's sessions.
    #[must_use]
    pub fn watches(&self) -> &Arc<Watches> {
        &self.watches
    }

    /// The session's handle, if it is open.
    #[must_use]
    pub fn opened(&self, id: &SessionId) -> Option<SessionHandle> {
        let slot = self.slots.get(id)?.clone();
        let place = slot.handle.try_lock().ok()?;
        place.as_ref().filter(|handle| !handle.is_gone()).cloned()
    }

    /// Deletes a session for good; whoever has it open is closed with 4404.
    ///
    /// # Errors
    /// `session_not_found`, `store_failed`.
    pub async fn delete(&self, id: &SessionId, owner: &str) -> Result<(), ErrorBody> {
        let head = self.head(id, owner).await?;
        let slot = self.slots.entry(id.clone()).or_default().clone();
        let place = slot.handle.lock().await;
        if let Some(handle) = place.as_ref()
            && handle.send(Message::Close(CloseCode::NoSuchSession)).await.is_ok()
        {
            handle.mailbox.closed().await;
        }
        let deleted = self.shared.store.delete(id).await;
        if deleted.is_ok() {
            let item = || SessionItem { deleted: true, ..list_item(id, &head.head, SessionState::Idle) };
            self.watches.changed(owner, item);
        }
        drop(place);
        drop(slot);
        forget(&self.slots, id);
        self.shared.damaged.remove(id);
        deleted.map_err(|error| self.fault(&error))
    }

    /// Takes no more sessions and begins no more turns; waits `grace` for those that are running, then interrupts them.
    pub async fn stop(&self, grace: Duration) {
        self.stopping.store(true, Ordering::Relaxed);
        self.shared.drain.cancel();
        self.actors.close();
        if tokio::time::timeout(grace, self.actors.wait()).await.is_ok() {
            return;
        }
        tracing::info!(sessions = self.open_count(), "turns are interrupted; they can be retried");
        self.shared.stop.cancel();
        if tokio::time::timeout(INTERRUPT_TIME, self.actors.wait()).await.is_err() {
            tracing::warn!(sessions = self.open_count(), "sessions did not end in time");
        }
    }

    /// The place that forks of this session share, with some others.
    pub(super) fn fork_place(&self, source: &SessionId) -> &Mutex<()> {
        let place = fingerprint(source.as_str().as_bytes()) % FORKS_MAX as u64;
        &self.forks[usize::try_from(place).unwrap_or(0)]
    }

    /// Runs a task that the server waits for when it stops.
    pub(super) fn track(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.actors.spawn(task);
    }

    pub(super) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Refuses to begin or go on with anything once the server is stopping.
    pub(super) fn check_running(&self) -> Result<(), ErrorBody> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(stopping());
        }
        Ok(())
    }

    fn check_room(&self) -> Result<(), ErrorBody> {
        self.check_running()?;
        if self.open_count() >= self.sessions_open_max {
            let message = format!("{} sessions are open, as many as may (SESSIONS_OPEN_MAX)", self.sessions_open_max);
            return Err(ErrorBody::new(ErrorCode::Overloaded, message));
        }
        Ok(())
    }

    pub(super) fn seed(&self, session: Session) -> Result<Seed, ErrorBody> {
        let calibration = self.shared.calibration_of(&session);
        let ids = IdSource::seeded(self.random_bits()?);
        Ok(Seed::new(session, self.shared.deployment.clone(), calibration, ids))
    }

    fn random_bits(&self) -> Result<u64, ErrorBody> {
        (self.random_bits)()
            .map_err(|error| ErrorBody::new(ErrorCode::Internal, format!("the system has no randomness: {error}")))
    }

    /// A session's id is also what keeps strangers out where no tokens are asked for: 16 letters, 80 random bits.
    pub(super) fn random_id(&self) -> Result<SessionId, ErrorBody> {
        let mut id = IdSource::seeded(self.random_bits()?).next_text();
        id.push_str(&IdSource::seeded(self.random_bits()?).next_text()[..4]);
        id.parse().map_err(|error| ErrorBody::new(ErrorCode::Internal, format!("no id could be made: {error}")))
    }

    fn spawn(&self, started: actor::Started) -> SessionHandle {
        self.open.fetch_add(1, Ordering::Relaxed);
        let counted = Counted(self.open.clone());
        let row = started.row.clone();
        let (handle, run) = actor::actor(self.shared.clone(), started);
        self.rows.insert(handle.id.clone(), row.clone());
        let (slots, rows, id) = (self.slots.clone(), self.rows.clone(), handle.id.clone());
        self.actors.spawn(async move {
            let forgotten = Forgotten { slots, rows, row, id };
            run.await;
            drop((counted, forgotten));
        });
        handle
    }
}

/// A session among the open ones, until dropped: also when its actor panics.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A slot to be forgotten when its actor is over.
struct Forgotten {
    slots: Arc<DashMap<SessionId, Arc<Slot>>>,
    rows: Arc<DashMap<SessionId, Arc<Row>>>,
    row: Arc<Row>,
    id: SessionId,
}

impl Drop for Forgotten {
    fn drop(&mut self) {
        // Perhaps the session was opened again meanwhile.
        self.rows.remove_if(&self.id, |_, row| Arc::ptr_eq(row, &self.row));
        forget(&self.slots, &self.id);
    }
}

/// Forgets the slot of a session that has left memory, unless someone is about to open it again: slots are as many as
/// sessions are open, not as many as ever were.
fn forget(slots: &DashMap<SessionId, Arc<Slot>>, id: &SessionId) {
    slots.remove_if(id, |_, slot| match slot.handle.try_lock() {
        Ok(place) => Arc::strong_count(slot) == 1 && place.as_ref().is_none_or(SessionHandle::is_gone),
        Err(_) => false,
    });
}

fn system_bits() -> Result<u64, String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| error.to_string())?;
    Ok(u64::from_le_bytes(bytes))
}
