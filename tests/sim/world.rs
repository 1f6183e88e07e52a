//! The world of a run: servers over one disk, clients, a model, and faults. One seed determines all of it.
//!
//! The world is stepped: each step does one thing (a client acts, time passes, a fault) and then runs the server's
//! tasks for a few turns of the scheduler. Time is tokio's, paused: it passes only when everyone waits.

mod settling;

use crate::{
    broken::Broken,
    client::{Client, Server, Wire},
    cluster::fleet::Fleet,
    disk::{Disk, Road},
    history::{History, Trace},
    hooks::Habits,
    model::{Model, Script},
    script,
    tools::Workshop,
};
use fastrand::Rng;
use reseed::{
    config::LimitSettings,
    core::{
        agent_loop::{Deployment, Summaries},
        compaction::strategy::Options,
        context::windows::Windows,
        session::IdSource,
    },
    internals::{Clock, Registry, RegistryOptions, settle_forks},
    store::{ListQuery, SessionStore},
};
use reseed_protocol::Timestamp;
use std::{
    cell::RefCell,
    sync::{
        Arc, Mutex, Once, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio::{
    runtime::Handle,
    task::yield_now,
    time::{Instant, sleep},
};

/// Steps of a run, minimum and maximum.
const STEPS: std::ops::Range<usize> = 60..220;

/// The start time of every run.
pub(crate) const BEGINNING: Timestamp = Timestamp(1_795_000_000_000);

/// A run.
pub(crate) struct World {
    pub(crate) wire: Wire,
    pub(crate) clients: Vec<Client>,
    pub(crate) profile: Profile,
    pub(crate) commands: u64,
    pub(crate) script: Arc<Script>,
    pub(crate) habits: Arc<Habits>,
    pub(crate) workshop: Arc<Workshop>,
    clock: Arc<SimClock>,
    servers: Vec<Up>,
    pub(crate) nodes: usize,
    /// The nodes, if the servers are a cluster.
    pub(crate) fleet: Option<Fleet>,
}

/// A running server.
struct Up {
    server: Server,
    alive: Arc<AtomicBool>,
}

/// The emphasis of a run: each seed stresses different things.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    /// Disk faults per thousand accesses.
    pub(crate) disk_faults: u32,
    /// One in this many disk accesses is slow.
    pub(crate) disk_slow: u8,
    /// Faults per hundred steps.
    pub(crate) troubles: u8,
    /// Disconnects per hundred client actions.
    pub(crate) cuts: u8,
    /// Nobody watches the whole time, so that the session may be alone and leave memory.
    pub(crate) alone: bool,
    /// The longest input, in words.
    pub(crate) words: usize,
    /// Most scheduler turns after a step.
    pub(crate) turns: u32,
}

/// The time of day, which follows tokio's and sometimes jumps back or forth.
pub(crate) struct SimClock {
    began: Instant,
    pub(crate) off_by: AtomicI64,
}

impl SimClock {
    /// Returns a clock that is off by this many milliseconds.
    pub(crate) fn new(off_by: i64) -> Arc<Self> {
        Arc::new(Self { began: Instant::now(), off_by: AtomicI64::new(off_by) })
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        Timestamp(BEGINNING.0 + passed + self.off_by.load(Ordering::SeqCst))
    }

    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

thread_local! {
    /// Panics in the run of this thread. tokio catches panics of tasks, and the server continues without them.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Installs a hook that records panics.
pub(crate) fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
            before(panic);
        }));
    });
    PANICS.take();
}

/// Returns the panics since [`note_panics`].
pub(crate) fn panics() -> Vec<String> {
    PANICS.take()
}

/// Runs one seed, and returns its history and trace.
pub(crate) fn run(seed: u64, broken: Broken) -> (History, String) {
    note_panics();
    let trace = Trace::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let mut history = runtime.expect("a runtime").block_on(async {
        let mut world = World::new(seed, broken, trace.clone()).await;
        let steps = world.wire.rng.usize(STEPS);
        for step in 0..steps {
            world.step(step).await;
        }
        world.settle().await;
        world.end().await
    });
    history.panics = PANICS.take();
    (history, trace.text())
}

/// Runs a scenario in a world without faults, in which the model answers every request, and returns its history and
/// trace. The seed determines the rest: who is connected, and when things happen.
pub(crate) fn run_scenario<T>(seed: u64, scenario: impl AsyncFnOnce(&mut World) -> T) -> (T, History, String) {
    note_panics();
    let trace = Trace::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let (told, mut history) = runtime.expect("a runtime").block_on(async {
        let mut rng = Rng::with_seed(seed);
        let profile = Profile {
            disk_faults: 0,
            disk_slow: [0, 8][rng.usize(..2)],
            troubles: 0,
            cuts: 0,
            alone: false,
            words: 20,
            turns: 6,
        };
        let habits = Habits::new(seed, true, trace.clone());
        let mut world = World::with_profile(seed, rng, profile, habits, Broken::Nothing, trace.clone()).await;
        world.script.be_plain();
        let told = scenario(&mut world).await;
        world.script.hold_summaries(false);
        world.settle().await;
        (told, world.end().await)
    });
    history.panics = PANICS.take();
    (told, history, trace.text())
}

impl World {
    async fn new(seed: u64, broken: Broken, trace: Trace) -> Self {
        let mut rng = Rng::with_seed(seed);
        let profile = Profile {
            disk_faults: [0, 0, 5, 30][rng.usize(..4)],
            disk_slow: [0, 8, 2][rng.usize(..3)],
            troubles: [0, 1, 3][rng.usize(..3)],
            cuts: [2, 6, 15][rng.usize(..3)],
            alone: rng.u8(..4) == 0,
            words: [20, 80, 160][rng.usize(..3)],
            turns: [2, 6, 20][rng.usize(..3)],
        };
        // An injected fault must be detected whatever else happens: hooks would only interfere.
        let habits = Habits::new(seed, broken != Broken::Nothing, trace.clone());
        Self::with_profile(seed, rng, profile, habits, broken, trace).await
    }

    async fn with_profile(
        seed: u64,
        rng: Rng,
        profile: Profile,
        habits: Arc<Habits>,
        broken: Broken,
        trace: Trace,
    ) -> Self {
        let mut world = Self::empty(seed, rng, profile, habits, broken, trace);
        world.start();
        let created = world.server().registry.create("").await.expect("a healthy disk makes a session");
        world.wire.session = created.id.clone();
        world.wire.history.session = Some(created.id);
        world.wire.disk.trouble(world.profile.disk_faults, world.profile.disk_slow);
        world
    }

    /// Returns a world without servers, and without a session.
    pub(crate) fn empty(
        seed: u64,
        mut rng: Rng,
        profile: Profile,
        habits: Arc<Habits>,
        broken: Broken,
        trace: Trace,
    ) -> Self {
        trace.line(format_args!("seed {seed}: {profile:?}"));
        let disk = Disk::new(seed, broken, trace.clone());
        let script = Script::new(seed, trace.clone());
        let workshop = Workshop::new(seed, trace.clone());
        let clock = SimClock::new(0);
        let clients = (0..rng.usize(3..6)).map(Client::new).collect();
        let nowhere = "nowhere".parse().expect("a word is an id");
        let wire = Wire::new(rng, disk, trace, nowhere);
        Self {
            wire,
            clients,
            profile,
            commands: 0,
            script,
            habits,
            workshop,
            clock,
            servers: Vec::new(),
            nodes: 0,
            fleet: None,
        }
    }

    /// Returns the newest server, to which clients connect.
    pub(crate) fn server(&self) -> Server {
        self.servers.last().expect("there is always a server").server.clone()
    }

    /// Returns the server to which a client connects, if there is one.
    pub(crate) fn server_for(&mut self, number: usize) -> Option<Server> {
        match self.fleet {
            Some(_) => self.node_for(number),
            None => Some(self.server()),
        }
    }

    /// Starts a server over the disk.
    pub(crate) fn start(&mut self) {
        self.nodes += 1;
        let node = self.nodes;
        let alive = Arc::new(AtomicBool::new(true));
        let road = Arc::new(Road { disk: self.wire.disk.clone(), node, alive: alive.clone(), link: None });
        let options = self.options(road.clone(), self.clock.clone());
        let registry = Registry::with_random_bits(options, self.random_bits());
        self.wire.trace.line(format_args!("world: node {node} starts"));
        let runtime = Handle::current();
        self.servers.push(Up { server: Server { node, registry, road, runtime }, alive });
    }

    /// Returns the source of a server's ids.
    pub(crate) fn random_bits(&mut self) -> Box<dyn Fn() -> Result<u64, String> + Send + Sync> {
        let bits = Mutex::new(IdSource::seeded(self.wire.rng.u64(..)));
        Box::new(move || Ok(bits.lock().unwrap_or_else(PoisonError::into_inner).next_bits()))
    }

    /// Returns the options of a server with this access to the disk.
    pub(crate) fn options(&self, road: Arc<Road>, clock: Arc<SimClock>) -> RegistryOptions {
        let deployment = Deployment {
            model: "test".into(),
            strategy: "threshold".into(),
            instructions: "Be brief.".into(),
            options: Options::default(),
            summaries: Summaries::default(),
            windows: Windows::new(Some(1_500), Vec::new()),
            tool_timeout_ms: 10_000,
            tool_rounds_max: 4,
            tool_parallel_max: 2,
            turn_timeout_ms: Some(600_000),
            approval_expiry_ms: 1_800_000,
            queue_items_max: 4,
            ..Deployment::default()
        };
        let (disk, node, alive) = (road.disk.clone(), road.node, road.alive.clone());
        RegistryOptions {
            store: road,
            provider: Arc::new(Model { script: self.script.clone(), disk, node, alive }),
            clock,
            hooks: self.habits.of_server(),
            tools: self.workshop.tools(true),
            deployment,
            limits: LimitSettings { sessions_open_max: 8, ..LimitSettings::default() },
            has_several_users: false,
            detached_turn: Duration::from_secs(60),
            host_away: Duration::from_secs(2),
            cluster: None,
        }
    }

    async fn step(&mut self, step: usize) {
        let millis = self.clock.now().millis_since(BEGINNING);
        self.wire.trace.line(format_args!("-- step {step} at {millis} ms"));
        let chance = self.wire.rng.u8(..100);
        match chance {
            0..8 => {
                let millis = self.wire.rng.u64(1..60);
                sleep(Duration::from_millis(millis)).await;
            }
            8..10 => {
                let secs = self.wire.rng.u64(1..90);
                self.wire.trace.line(format_args!("world: {secs} s pass"));
                sleep(Duration::from_secs(secs)).await;
            }
            _ if chance >= 100 - self.profile.troubles => self.trouble().await,
            _ => script::act(self).await,
        }
        for client in &mut self.clients {
            client.look(&mut self.wire);
        }
        for _ in 0..self.wire.rng.u32(0..=self.profile.turns) {
            yield_now().await;
        }
    }

    /// Causes a fault.
    async fn trouble(&mut self) {
        match self.wire.rng.u8(..11) {
            10 => {
                let all = self.wire.rng.bool();
                self.wire.trace.line(format_args!("world: the server has {} tools", if all { "all" } else { "fewer" }));
                self.server().registry.parts().replace_tools(self.workshop.tools(all));
            }
            8.. if self.profile.alone => {
                let secs = self.wire.rng.u64(5..200);
                self.wire.trace.line(format_args!("world: everyone is cut off for {secs} s"));
                for client in &mut self.clients {
                    client.cut(&mut self.wire);
                }
                sleep(Duration::from_secs(secs)).await;
            }
            0..3 => {
                self.crash().await;
                self.start();
                self.settle_forks().await;
            }
            3 => {
                let grace = Duration::from_millis(self.wire.rng.u64(0..2_000));
                self.wire.trace.line(format_args!("world: the server stops within {} ms", grace.as_millis()));
                self.server().registry.stop(grace).await;
                // Every socket closes with the server; what was published by then is in its buffer.
                for client in &mut self.clients {
                    client.read_all(&mut self.wire).await;
                    client.cut(&mut self.wire);
                }
                self.bury();
                self.start();
                self.settle_forks().await;
            }
            4..6 => {
                self.wire.trace.line("world: another server takes over, the old one does not know");
                self.start();
            }
            _ => {
                let off_by = self.wire.rng.i64(-20_000..20_000);
                self.clock.off_by.store(off_by, Ordering::SeqCst);
                self.wire.trace.line(format_args!("world: the clock is off by {off_by} ms"));
            }
        }
    }

    /// Crashes the machine with all of its servers.
    pub(crate) async fn crash(&mut self) {
        self.wire.trace.line("world: the machine goes down");
        self.bury();
        for client in &mut self.clients {
            client.cut(&mut self.wire);
        }
        let lost = self.wire.disk.broken.lost_in_a_crash(&mut self.wire.rng);
        if lost > 0 {
            self.wire.disk.lose(lost).await;
        }
    }

    /// Settles what a crash left unfinished, as a server does before it accepts commands.
    async fn settle_forks(&mut self) {
        if let Err(error) = settle_forks(&self.server().registry).await {
            self.wire.trace.line(format_args!("world: forks are not settled: {error}"));
        }
    }

    fn bury(&mut self) {
        for up in self.servers.drain(..) {
            up.alive.store(false, Ordering::SeqCst);
        }
    }

    /// Records the final states, and the state after a restart of everything.
    pub(crate) async fn end(mut self) -> History {
        let session = self.wire.session.clone();
        let live = self.clients[1].snapshot().await;
        let server = match self.fleet {
            Some(_) => self.start_cluster_anew().await,
            None => {
                self.crash_without_loss();
                self.start();
                self.settle_forks().await;
                self.server()
            }
        };
        let (registry, id) = (server.registry.clone(), session.clone());
        let anew = server.on(async move { registry.peek(&id).await.ok() }).await.flatten();
        let mut history = self.wire.history;
        history.ends = live.zip(anew);
        history.views = self.clients.iter().map(|client| client.view.clone()).collect();
        history.asked = self.script.take_asked();
        history.hooks = self.habits.asked();
        history.tools = self.workshop.started();
        history.written = self.wire.disk.lock().written.clone();
        history.faults = self.wire.disk.lock().faults;
        history.grants = self.wire.disk.lock().grants.clone();
        history.log = History::read(&*server.road, &session).await;
        history.events = History::events(&history.log);
        let listed = server.road.list(ListQuery { limit: 500, ..ListQuery::default() }).await.unwrap_or_default();
        for head in listed.items.iter().filter(|head| head.session != session) {
            let log = History::read(&*server.road, &head.session).await;
            history.forks.insert(head.session.clone(), History::events(&log));
        }
        history
    }

    fn crash_without_loss(&mut self) {
        self.bury();
        self.wire.trace.line("world: everything is started anew");
    }
}
