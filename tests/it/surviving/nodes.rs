//! Three real servers on a real PostgreSQL, and clients that reconnect to any of them in turn. Servers are killed and
//! paused at random moments, cut off from the database and from each other, and the database is restarted. Nothing
//! acknowledged may be lost, nothing may occur twice, and nobody writes to a session that another server has opened.
//!
//! `KILLS=200` kills more often (`tests/soak/kill_nodes.sh`), `SEED=n` repeats one run's choices, though not its
//! timing. `RESEED_OLD_BIN=/path` names another build of the server: one of the servers begins as that build, and each
//! that is killed is started again as the other one (`tests/soak/versions.sh`).

use super::{
    folder::Folder,
    kills::{Told, act, has_all, log, number, refused},
};
use crate::support::{
    cluster::{Node, SHORT_LEASE},
    gate::Gate,
    postgres::Server,
};
use futures_util::future::join_all;
use reseed::store;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::watch, time::sleep};

/// Clients, each with a session of its own.
const CLIENTS: u64 = 9;

/// Kills in the normal run.
const KILLS: u64 = 5;

/// Names another build of the server.
const OLD_BIN: &str = "RESEED_OLD_BIN";

/// Restarts of the database.
const RESTARTS: u64 = 2;

/// Maximum number of frames that clients receive between two faults.
const FRAMES_MAX: u64 = 400;

/// Twice the lease. Others have taken over the sessions of a server that was away for this long.
const AWAY: Duration = Duration::from_secs(4);

/// The offline model, slow enough to be killed during an answer, in a window that a few answers fill.
const SETTINGS: [(&str, &str); 4] = [
    ("OFFLINE_WORD_MILLIS", "1"),
    ("CONTEXT_WINDOW", "2000"),
    SHORT_LEASE,
    // The server of these tests syncs the disk.
    ("UNSAFE_STORE", "false"),
];

/// What the clients share with the faults.
struct World {
    /// The addresses of the servers that are not being killed.
    servers: watch::Sender<Vec<String>>,
    /// The number of frames that clients received.
    frames: watch::Sender<u64>,
    over: AtomicBool,
    /// Connections and subscriptions that ended although the client did not end them.
    ended: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            servers: watch::Sender::new(Vec::new()),
            frames: watch::Sender::new(0),
            over: AtomicBool::new(false),
            ended: AtomicU64::new(0),
        })
    }

    /// Returns the address of any server.
    async fn any(&self, rng: &mut fastrand::Rng) -> String {
        let mut servers = self.servers.subscribe();
        let servers = servers.wait_for(|servers| !servers.is_empty()).await.unwrap();
        servers[rng.usize(..servers.len())].clone()
    }

    /// Waits until clients have received this many more frames.
    async fn progress(&self, frames: u64) {
        let at = *self.frames.borrow() + frames;
        self.frames.subscribe().wait_for(|frames| *frames >= at).await.unwrap();
    }
}

/// A client's record of what it did and received.
struct Story {
    session: String,
    epoch: String,
    /// Inputs in the order in which they were given: the command and the text.
    said: Vec<(String, String)>,
    /// The commands among them that were acknowledged.
    acknowledged: Vec<String>,
    /// All durable events that it received, by their position.
    told: BTreeMap<u64, Value>,
    /// The newest one that exists.
    seq: u64,
}

/// Errors that a server may return while others are being killed. The client tries again.
const PASSING: [&str; 4] = ["overloaded", "store_failed", "no_session", "shutting_down"];

/// Talks until the faults are over and everything that was said has its reply.
async fn talk(world: Arc<World>, seed: u64, number: u64) -> Story {
    let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(1_000).wrapping_add(number));
    let mut client = Folder::new(&format!("client-{number:09}"), json!({})).unwitnessed().timed();
    let (mut said, mut told) = (Vec::new(), BTreeMap::new());
    loop {
        if !client.is_connected() {
            let address = world.any(&mut rng).await;
            client.connect(&format!("ws://{address}/ws")).await;
            continue;
        }
        let frame = match client.step().await {
            Ok(frame) => frame,
            Err(code) => {
                assert!([1006, 1012, 1013, 4408].contains(&code), "client {number}: closed with {code}");
                world.ended.fetch_add(1, Ordering::SeqCst);
                continue;
            }
        };
        world.frames.send_modify(|frames| *frames += 1);
        world.ended.fetch_add(u64::from(frame["type"] == "session_closed"), Ordering::SeqCst);
        if let Some(seq) = frame["seq"].as_u64() {
            let event = json!({ "type": frame["type"], "payload": frame["payload"] });
            let before = told.insert(seq, event.clone());
            assert!(
                before.is_none_or(|before| before == event),
                "client {number}: event {seq} was another one: {frame}"
            );
        }
        let code = frame["payload"]["code"].as_str().filter(|_| frame["type"] == "error");
        if code.is_none_or(|code| !PASSING.contains(&code)) {
            refused(&frame, number);
        }
        if client.fold.session.is_empty() || frame["type"] == "session_closed" {
            continue;
        }
        if !world.over.load(Ordering::SeqCst) {
            act(&mut client, &mut rng, number, &mut said).await;
        } else if client.unanswered() + client.fold.queued == 0
            && client.fold.is_idle()
            && has_all(&mut client, &frame).await
        {
            break;
        }
    }
    let acknowledged = |id: &String| client.replies.get(id).is_some_and(|reply| reply["type"] == "accepted");
    let acknowledged = said.iter().map(|(id, _)| id).filter(|id| acknowledged(id)).cloned().collect();
    let (session, epoch) = (client.fold.session.clone(), client.fold.epoch.clone());
    Story { session, epoch, said, acknowledged, told, seq: client.fold.seq }
}

fn check(number: usize, story: &Story, log: &[(u64, Value)]) {
    let seqs: Vec<u64> = log.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(seqs, (1..=story.seq).collect::<Vec<_>>(), "client {number}: the log has a hole, or more than was told");
    for (seq, event) in &story.told {
        assert_eq!(&log[usize::try_from(*seq).unwrap() - 1].1, event, "client {number}: event {seq}");
    }
    let (mut asked, mut running) = (Vec::new(), None);
    for (seq, event) in log {
        let payload = &event["payload"];
        match event["type"].as_str().unwrap() {
            "entry_appended" if payload["entry"]["role"] == "user" && payload["commandId"].is_string() => {
                let text = payload["entry"]["content"][0]["text"].as_str().unwrap();
                asked.push((payload["commandId"].as_str().unwrap().to_owned(), text.to_owned()));
            }
            // A writer that does not know what another one has written would start a turn within a turn.
            "turn_started" => assert_eq!(running.replace(payload["turnId"].clone()), None, "client {number}: at {seq}"),
            "turn_finished" => assert_eq!(running.take(), Some(payload["turnId"].clone()), "client {number}: at {seq}"),
            _ => {}
        }
    }
    assert_eq!(running, None, "client {number}");
    for id in &story.acknowledged {
        assert!(asked.iter().any(|(known, _)| known == id), "client {number}: {id} was acknowledged and is lost");
    }
    // Each once, with its own text, in the order in which they were said.
    let mut said = story.said.iter();
    for one in &asked {
        assert!(said.any(|said| said == one), "client {number}: {one:?} is there twice or out of order: {asked:?}");
    }
}

/// A server, and the proxy between it and the database.
struct Site {
    node: Node,
    database: Gate,
    /// It is the other build of the server.
    is_old: bool,
}

/// The servers, and the connections between them.
struct Sites {
    database: Arc<Server>,
    /// The address of the database itself.
    address: String,
    sites: Vec<Site>,
}

impl Sites {
    async fn start(world: &World, more: &[(&str, &str)]) -> Self {
        let settings = &[&SETTINGS, more].concat();
        let start = || {
            let database = Arc::new(Server::start(""));
            let address = database.database("");
            (database, address)
        };
        let (database, address) = tokio::task::spawn_blocking(start).await.unwrap();
        let sites = ["a", "b", "c"].map(async |name| {
            let gate = Gate::new().await;
            gate.open(database.socket().to_str().unwrap());
            let through = format!("postgres://reseed@{}/{}", gate.address, address.rsplit('/').next().unwrap());
            let node = Node::start(&format!("{through}?sslmode=disable"), name, settings).await;
            Site { node, database: gate, is_old: false }
        });
        let sites = Self { sites: join_all(sites).await, database, address };
        world.servers.send_replace(sites.addresses(usize::MAX));
        sites
    }

    /// Returns the addresses of all servers but one.
    fn addresses(&self, without: usize) -> Vec<String> {
        let others = self.sites.iter().enumerate().filter(|(at, _)| *at != without);
        others.map(|(_, site)| site.node.server.address.clone()).collect()
    }

    /// Kills a server and starts it again; as the other build, if there is one.
    async fn kill(&mut self, world: &World, at: usize, old: Option<&Path>) {
        world.servers.send_replace(self.addresses(at));
        let site = &mut self.sites[at];
        site.is_old = old.is_some() && !site.is_old;
        site.node.restart_as(old.filter(|_| site.is_old)).await;
        world.servers.send_replace(self.addresses(usize::MAX));
    }

    /// Disturbs a server, or its connections to others, without ending it.
    async fn disturb(&self, rng: &mut fastrand::Rng, what: u64) {
        let site = &self.sites[rng.usize(..self.sites.len())];
        let socket = self.database.socket();
        match what % 6 {
            0 => {
                site.node.signal("STOP").await;
                sleep(AWAY).await;
                site.node.signal("CONT").await;
            }
            // Bytes that were sent are lost on the way.
            1 => {
                for site in &self.sites {
                    site.database.cut();
                    site.node.gate.cut();
                }
            }
            // The server is cut off from the database, without and with notice.
            2 => {
                site.database.freeze();
                sleep(AWAY).await;
                site.database.thaw();
            }
            3 => {
                site.database.close();
                sleep(AWAY).await;
                site.database.open(socket.to_str().unwrap());
            }
            // The server is cut off from the others, who still reach the database.
            4 => {
                site.node.gate.freeze();
                sleep(AWAY / 2).await;
                site.node.gate.thaw();
            }
            _ => {
                let slow = Duration::from_millis(rng.u64(1..20));
                site.database.delay(slow);
                site.node.gate.delay(slow);
                sleep(AWAY / 2).await;
                site.database.delay(Duration::ZERO);
                site.node.gate.delay(Duration::ZERO);
            }
        }
    }

    /// Waits until all serve, so that no session moves any more.
    async fn settle(&self) {
        for site in &self.sites {
            site.node.ready().await;
        }
        sleep(AWAY / 2).await;
    }

    /// Compares the logs with what the clients received.
    async fn check(self, stories: &[Story]) {
        for site in self.sites {
            site.node.server.stop().await;
        }
        let store = store::connect(&self.address).await.unwrap();
        for (number, story) in stories.iter().enumerate() {
            let session = story.session.parse().unwrap();
            check(number, story, &log(&*store, &session).await);
            let (lease, _) = store.open(&session).await.unwrap();
            assert_eq!(lease.epoch, story.epoch, "client {number}: the log is the one that it was told of");
        }
        store.close().await.unwrap();
    }
}

fn start_clients(world: &Arc<World>, seed: u64) -> Vec<tokio::task::JoinHandle<Story>> {
    (0..CLIENTS).map(|number| tokio::spawn(talk(world.clone(), seed, number))).collect()
}

async fn stories(clients: Vec<tokio::task::JoinHandle<Story>>) -> Vec<Story> {
    let mut stories = Vec::new();
    for client in clients {
        stories.push(client.await.unwrap());
    }
    stories
}

fn count(stories: &[Story], of: fn(&Story) -> usize) -> usize {
    stories.iter().map(of).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_killed_paused_and_cut_off_lose_double_and_overwrite_nothing() {
    let seed = number("SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    let kills = number("KILLS").unwrap_or(KILLS);
    let _told = Told(seed, kills);
    let world = World::new();
    let old = std::env::var_os(OLD_BIN).map(PathBuf::from);
    let old = old.as_deref();
    // A link that is dead is noticed within seconds.
    let mut sites = Sites::start(&world, &[("HEARTBEAT_SECS", "1")]).await;
    let mut old_starts = 0;
    if old.is_some() {
        sites.kill(&world, 0, old).await;
        old_starts += 1;
    }
    let clients = start_clients(&world, seed);
    let mut rng = fastrand::Rng::with_seed(seed);
    let faults = async {
        let first = rng.u64(..);
        for killed in 0..kills {
            world.progress(rng.u64(1..FRAMES_MAX)).await;
            let at = rng.usize(..sites.sites.len());
            sites.kill(&world, at, old).await;
            old_starts += u64::from(sites.sites[at].is_old);
            world.progress(rng.u64(1..FRAMES_MAX)).await;
            sites.disturb(&mut rng, first.wrapping_add(killed)).await;
        }
        sites.settle().await;
        world.over.store(true, Ordering::SeqCst);
        sites
    };
    // If a client fails, the test ends even while the faults continue.
    let (sites, stories) = tokio::join!(faults, stories(clients));
    let (inputs, events) =
        (count(&stories, |story| story.acknowledged.len()), count(&stories, |story| story.told.len()));
    let ended = world.ended.load(Ordering::SeqCst);
    eprintln!(
        "{kills} kills: {events} events, {inputs} inputs, {ended} connections and subscriptions ended, {old_starts} \
         starts of the other build; SEED={seed}"
    );
    assert!(ended > 0 && inputs > 0);
    sites.check(&stories).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_restarted_under_load_disconnects_nobody() {
    let seed = number("SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    let _told = Told(seed, 0);
    let world = World::new();
    let sites = Sites::start(&world, &[]).await;
    let clients = start_clients(&world, seed);
    let mut rng = fastrand::Rng::with_seed(seed);
    let faults = async {
        for _ in 0..RESTARTS {
            world.progress(rng.u64(FRAMES_MAX / 2..FRAMES_MAX)).await;
            let database = sites.database.clone();
            tokio::task::spawn_blocking(move || database.control(&["restart", "-m", "immediate"])).await.unwrap();
        }
        world.progress(FRAMES_MAX).await;
        sites.settle().await;
        world.over.store(true, Ordering::SeqCst);
        sites
    };
    let (sites, stories) = tokio::join!(faults, stories(clients));
    assert_eq!(world.ended.load(Ordering::SeqCst), 0, "connections and subscriptions ended");
    for (number, story) in stories.iter().enumerate() {
        assert_eq!(story.acknowledged.len(), story.said.len(), "client {number}: an input was refused");
    }
    assert!(count(&stories, |story| story.acknowledged.len()) > 0);
    sites.check(&stories).await;
}
