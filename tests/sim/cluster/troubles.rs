//! What happens to the nodes of a cluster, and to their connections to the database.

use super::{
    fleet::{Beaten, Fleet, Node, Standstill},
    link::{LEASE, Link, Member, PATIENCE},
};
use crate::{
    client::Server,
    disk::Road,
    script,
    world::{SimClock, World},
};
use reseed::{
    internals::{Keeper, Registry, keep_settling_forks, settle_forks},
    store::NewNode,
};
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    task::yield_now,
    time::{Instant, sleep},
};

/// The time within which the others have noticed a dead node.
const NOTICED: Duration = Duration::from_secs(12);

impl World {
    fn fleet(&self) -> Fleet {
        self.fleet.clone().expect("the servers are a cluster")
    }

    /// Starts the nodes, and creates the session.
    pub(super) async fn begin_cluster(&mut self) {
        for _ in 0..[2, 3, 3, 3, 4][self.wire.rng.usize(..5)] {
            self.start_node();
        }
        let server = self.some_node().await;
        let registry = server.registry.clone();
        let created = server.on(async move { registry.create("").await.map(|handle| handle.id) }).await;
        let session = created.expect("the node lives").expect("a healthy database makes a session");
        self.wire.session = session.clone();
        self.wire.history.session = Some(session);
        self.wire.disk.trouble(self.profile.disk_faults, self.profile.disk_slow);
    }

    /// Starts a node, which clients can reach once it has joined.
    pub(super) fn start_node(&mut self) {
        let fleet = self.fleet();
        self.nodes += 1;
        let number = self.nodes;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("a runtime");
        let skew = self.wire.rng.i64(-10_000..10_000);
        let speed = 1_000 + self.wire.rng.u64(0..40) - 20;
        let now = i64::try_from(fleet.now().as_millis()).unwrap_or(i64::MAX);
        let clock = {
            let _its_clock = runtime.enter();
            SimClock::new(now + skew)
        };
        let (alive, is_still) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let disk = self.wire.disk.clone();
        let link = Link::new(disk.store().another(), clock.clone(), self.beaten());
        let road = Arc::new(Road { disk, node: number, alive: alive.clone(), link: Some(link) });
        let options = self.options(road.clone(), clock);
        let random_bits = self.random_bits();
        let server = Arc::new(OnceLock::new());
        self.wire.trace.line(format_args!("world: node {number} starts, {skew} ms off, at {speed} ‰ of the time"));
        let (ready, still, own, way) = (server.clone(), is_still.clone(), runtime.handle().clone(), road.clone());
        runtime.spawn(async move {
            let new = NewNode {
                name: number.to_string(),
                address: Some(format!("ws://node-{number}")),
                version: "0".to_owned(),
                lease: LEASE,
            };
            let keeper = loop {
                match Keeper::start(way.clone(), new.clone(), PATIENCE).await {
                    Ok(keeper) => break keeper.expect("the database is shared"),
                    Err(_) => sleep(Duration::from_millis(500)).await,
                }
            };
            let member = Member { keeper: Arc::downgrade(&keeper), runtime: own.clone(), is_still: still };
            way.disk.lock().members.insert(number, member);
            let options = reseed::internals::RegistryOptions { cluster: Some(keeper), ..options };
            let registry = Registry::with_random_bits(options, random_bits);
            // As `service::start` does.
            drop(settle_forks(&registry).await);
            keep_settling_forks(&registry);
            registry.keep_holding();
            way.disk.trace.line(format_args!("world: node {number} is ready"));
            drop(ready.set(Server { node: number, registry, road: way, runtime: own }));
        });
        let node =
            Node { runtime, alive, is_still, server, speed, rest: 0, paused: None, split_until: Duration::ZERO, road };
        fleet.add(number, node);
    }

    fn beaten(&self) -> Beaten {
        self.wire.disk.lock().beaten_at.clone()
    }

    /// Returns a node that is ready, and starts one if there is none.
    async fn some_node(&mut self) -> Server {
        loop {
            if let Some(server) = self.fleet().servers().into_iter().next() {
                return server;
            }
            if self.fleet().numbers().is_empty() {
                self.start_node();
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns the node to which a client connects: the one to which it was sent, or any.
    pub(crate) fn node_for(&mut self, number: usize) -> Option<Server> {
        let fleet = self.fleet();
        let directed = self.clients[number].directed.take().and_then(|node| fleet.server(node));
        directed.or_else(|| self.wire.rng.choice(fleet.servers()))
    }

    pub(super) async fn cluster_step(&mut self, step: usize) {
        let fleet = self.fleet();
        self.wire.trace.line(format_args!("-- step {step} at {} ms", fleet.now().as_millis()));
        for _ in 0..fleet.take_starts(false) {
            self.start_node();
        }
        fleet.acted();
        let chance = self.wire.rng.u8(..100);
        match chance {
            0..12 => {
                let millis = self.wire.rng.u64(1..300);
                sleep(Duration::from_millis(millis)).await;
            }
            12..20 => {
                let millis = self.wire.rng.u64(1_000..9_000);
                self.wire.trace.line(format_args!("world: {millis} ms pass"));
                sleep(Duration::from_millis(millis)).await;
                // A client that gets no pings for long connects again.
                for number in fleet.numbers() {
                    if fleet.is_paused(number) && self.wire.rng.bool() {
                        self.cut_clients_of(number);
                    }
                }
            }
            _ if chance >= 100 - self.profile.troubles => self.cluster_trouble().await,
            _ => script::act(self).await,
        }
        for client in &mut self.clients {
            client.look(&mut self.wire);
        }
        for _ in 0..self.wire.rng.u32(0..=self.profile.turns) {
            fleet.acted();
            yield_now().await;
        }
    }

    /// Causes a fault of a node, or of its connection to the database.
    async fn cluster_trouble(&mut self) {
        let fleet = self.fleet();
        let Some(any) = self.wire.rng.choice(fleet.numbers()) else {
            self.start_node();
            return;
        };
        // Mostly this is the node that has the session.
        let number = self.wire.disk.holder().filter(|_| self.wire.rng.u8(..3) > 0).unwrap_or(any);
        let most = [500, 3_000, 15_000][self.wire.rng.usize(..3)];
        let millis = self.wire.rng.u64(50..most);
        let time = Duration::from_millis(millis);
        match self.wire.rng.u8(..18) {
            0..3 => {
                self.wire.trace.line(format_args!("world: node {number} is killed"));
                self.kill(number);
                fleet.start_in(time);
            }
            3 => {
                self.wire.trace.line("world: all nodes are killed");
                for number in fleet.numbers() {
                    self.kill(number);
                    fleet.start_in(time);
                }
            }
            4..6 if !fleet.is_paused(number) => self.stop_node(number).await,
            6..9 => {
                let counts = self.wire.rng.u8(..3) > 0;
                let clock = if counts { "its clock runs on" } else { "so does its clock" };
                self.wire.trace.line(format_args!("world: node {number} stands still for {millis} ms, {clock}"));
                let is_removed = self.wire.rng.u8(..4) == 0;
                fleet.pause(number, Standstill { time, counts, is_removed });
            }
            15..17 => {
                // This is long enough for others to take its sessions in the middle of its work.
                let time = Duration::from_millis(self.wire.rng.u64(4_000..16_000));
                let still = Standstill { time, counts: self.wire.rng.bool(), is_removed: false };
                self.wire.trace.line(format_args!("world: who writes next stands still then: {still:?}"));
                self.wire.disk.lock().still_then = Some(still);
            }
            9..11 => {
                self.wire.trace.line(format_args!("world: node {number} is cut off the database for {millis} ms"));
                fleet.split(number, time);
            }
            11..13 => {
                self.wire.trace.line(format_args!("world: the database is away for {millis} ms"));
                fleet.outage(time);
            }
            13 => {
                let off_by = self.wire.rng.i64(-20_000..20_000);
                self.wire.trace.line(format_args!("world: the time of day of node {number} jumps by {off_by} ms"));
                if let Some(link) = fleet.server(number).as_ref().and_then(|server| server.road.link.as_ref()) {
                    link.clock.off_by.fetch_add(off_by, Ordering::SeqCst);
                }
            }
            14 if fleet.numbers().len() < 4 => self.start_node(),
            _ => self.cut_clients_of(number),
        }
    }

    fn cut_clients_of(&mut self, number: usize) {
        for client in &mut self.clients {
            if client.is_on(number) {
                client.cut(&mut self.wire);
            }
        }
    }

    fn kill(&mut self, number: usize) {
        self.cut_clients_of(number);
        self.fleet().kill(number, &self.wire.disk);
    }

    /// Stops a node as SIGTERM does.
    async fn stop_node(&mut self, number: usize) {
        let Some(server) = self.fleet().server(number) else { return };
        let grace = Duration::from_millis(self.wire.rng.u64(0..2_000));
        self.wire.trace.line(format_args!("world: node {number} stops within {} ms", grace.as_millis()));
        let registry = server.registry.clone();
        let stopped = server.on(async move {
            let keeper = registry.keeper().cloned().expect("a node of a cluster");
            registry.stop(grace).await;
            keeper.leave().await;
        });
        stopped.await;
        // Every socket closes with the server; what was published by then is in its buffer.
        for at in 0..self.clients.len() {
            if self.clients[at].is_on(number) {
                self.clients[at].read_all(&mut self.wire).await;
            }
        }
        self.kill(number);
        let soon = Duration::from_millis(self.wire.rng.u64(0..1_000));
        self.fleet().start_in(soon);
    }

    /// Ends all faults of nodes, and waits until every node knows which others are alive.
    pub(crate) async fn heal_cluster(&mut self) {
        let fleet = self.fleet();
        fleet.heal();
        let missing = 2_usize.saturating_sub(fleet.numbers().len());
        for _ in 0..fleet.take_starts(true).max(missing) {
            self.start_node();
        }
        self.wait(NOTICED).await;
    }

    /// Lets time pass.
    async fn wait(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            sleep(Duration::from_millis(250)).await;
            self.fleet().acted();
        }
    }

    /// Kills all nodes, starts one, and returns it once it knows that the others are gone.
    pub(crate) async fn start_cluster_anew(&mut self) -> Server {
        self.wire.trace.line("world: everything is started anew");
        for number in self.fleet().numbers() {
            self.fleet().kill(number, &self.wire.disk);
        }
        let server = self.some_node().await;
        self.wait(NOTICED).await;
        server
    }
}
