//! The nodes of a run: each has a runtime of its own, whose clock stands still unless the node is driven.
//!
//! So a node can be paused, as the system may do: its tasks, timers and calls stand still. It wakes at a later time, or
//! at the same one, as a suspended machine does. It can be killed: all of it is dropped at once. Its clock runs a
//! little faster or slower than those of others.

use super::link::{LEASE, Late};
use crate::{
    client::Server,
    disk::{Disk, Road},
};
use fastrand::Rng;
use futures_util::FutureExt;
use reseed::store::{Cluster, NodeId, Silent};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    runtime::Runtime,
    task::yield_now,
    time::{advance, sleep},
};

/// The longest time for which a node runs before the next one does.
pub(crate) const QUANTUM_MAX: u64 = 200;

/// Maximum number of quanta for which the world may wait for one thing.
const WAITS_MAX: u32 = 20_000;

/// All nodes of a run. Clones refer to the same nodes.
#[derive(Clone)]
pub(crate) struct Fleet(Rc<Inner>);

struct Inner {
    nodes: RefCell<BTreeMap<usize, Node>>,
    rng: RefCell<Rng>,
    /// The time since the beginning of the run.
    now: Cell<Duration>,
    /// The number of quanta since the world last did something.
    waits: Cell<u32>,
    outage_until: Cell<Duration>,
    /// When each node that is started again is due.
    starts: RefCell<Vec<Duration>>,
}

/// A node that was started.
pub(crate) struct Node {
    pub(crate) runtime: Runtime,
    pub(crate) alive: Arc<AtomicBool>,
    pub(crate) is_still: Arc<AtomicBool>,
    /// Set once the node has joined.
    pub(crate) server: Arc<OnceLock<Server>>,
    /// The speed of its clock, in thousandths of the world's.
    pub(crate) speed: u64,
    /// The remainder of its time after whole milliseconds were spent, in thousandths.
    pub(crate) rest: u64,
    pub(crate) paused: Option<Pause>,
    pub(crate) split_until: Duration,
    pub(crate) road: Arc<Road>,
}

/// The way in which a node stands still.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standstill {
    pub(crate) time: Duration,
    /// True if its clock continues to run.
    pub(crate) counts: bool,
    /// True if the others remove it meanwhile, as if they had watched it be silent for an hour.
    pub(crate) is_removed: bool,
}

/// A node that stands still.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pause {
    since: Duration,
    until: Duration,
    still: Standstill,
}

impl Node {
    fn run(&mut self, millis: u64, turns: u32) {
        let spent = millis * self.speed + self.rest;
        self.rest = spent % 1_000;
        self.runtime.block_on(async {
            for _ in 0..turns {
                yield_now().await;
            }
            if spent >= 1_000 {
                sleep(Duration::from_millis(spent / 1_000)).await;
            }
        });
    }
}

impl Fleet {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Rc::new(Inner {
            nodes: RefCell::default(),
            rng: RefCell::new(Rng::with_seed(seed ^ 0xf1ee7)),
            now: Cell::new(Duration::ZERO),
            waits: Cell::new(0),
            outage_until: Cell::new(Duration::ZERO),
            starts: RefCell::default(),
        }))
    }

    pub(crate) fn now(&self) -> Duration {
        self.0.now.get()
    }

    fn waits(&self) -> u32 {
        self.0.waits.get()
    }

    fn outage_until(&self) -> Duration {
        self.0.outage_until.get()
    }

    pub(crate) fn rng(&self) -> std::cell::RefMut<'_, Rng> {
        self.0.rng.borrow_mut()
    }

    /// Records that the world did something: time passes slowly until it waits.
    pub(crate) fn acted(&self) {
        self.0.waits.set(0);
    }

    pub(crate) fn add(&self, number: usize, node: Node) {
        self.0.nodes.borrow_mut().insert(number, node);
    }

    /// Returns the numbers of all running nodes, including those that stand still or have not joined yet.
    pub(crate) fn numbers(&self) -> Vec<usize> {
        self.0.nodes.borrow().keys().copied().collect()
    }

    /// Returns the nodes that clients can reach.
    pub(crate) fn servers(&self) -> Vec<Server> {
        self.0.nodes.borrow().values().filter_map(|node| node.server.get().cloned()).collect()
    }

    pub(crate) fn server(&self, number: usize) -> Option<Server> {
        self.0.nodes.borrow().get(&number)?.server.get().cloned()
    }

    /// Drops a node with all of its tasks.
    pub(crate) fn kill(&self, number: usize, disk: &Disk) {
        disk.lock().members.remove(&number);
        let Some(node) = self.0.nodes.borrow_mut().remove(&number) else { return };
        node.alive.store(false, Ordering::SeqCst);
        drop(node);
    }

    pub(crate) fn pause(&self, number: usize, still: Standstill) {
        let now = self.now();
        if let Some(node) = self.0.nodes.borrow_mut().get_mut(&number)
            && node.paused.is_none()
        {
            node.is_still.store(true, Ordering::SeqCst);
            node.paused = Some(Pause { since: now, until: now + still.time, still });
        }
    }

    pub(crate) fn is_paused(&self, number: usize) -> bool {
        self.0.nodes.borrow().get(&number).is_some_and(|node| node.paused.is_some())
    }

    /// Cuts a node off the database.
    pub(crate) fn split(&self, number: usize, time: Duration) {
        let until = self.now() + time;
        if let Some(node) = self.0.nodes.borrow_mut().get_mut(&number) {
            node.split_until = node.split_until.max(until);
        }
        self.cut_links();
    }

    /// Makes the database unreachable for all.
    pub(crate) fn outage(&self, time: Duration) {
        self.0.outage_until.set(self.outage_until().max(self.now() + time));
        self.cut_links();
    }

    pub(crate) fn start_in(&self, time: Duration) {
        self.0.starts.borrow_mut().push(self.now() + time);
    }

    /// Takes the starts that are due; with `all`, all of them.
    pub(crate) fn take_starts(&self, all: bool) -> usize {
        let (now, mut starts) = (self.now(), self.0.starts.borrow_mut());
        let before = starts.len();
        starts.retain(|at| !all && *at > now);
        before - starts.len()
    }

    /// Ends all pauses and splits.
    pub(crate) fn heal(&self) {
        self.0.outage_until.set(Duration::ZERO);
        for node in self.0.nodes.borrow_mut().values_mut() {
            node.split_until = Duration::ZERO;
            if let Some(pause) = &mut node.paused {
                pause.until = Duration::ZERO;
            }
        }
        self.cut_links();
    }

    fn cut_links(&self) {
        let now = self.now();
        let outage_until = self.outage_until();
        for node in self.0.nodes.borrow().values() {
            if let Some(link) = &node.road.link {
                link.cut(outage_until.max(node.split_until) > now);
            }
        }
    }

    /// Lets every node run for a while. The longer the world has waited, the longer they run.
    pub(crate) fn drive(&self, world: &Runtime, disk: &Arc<Disk>) {
        let waits = self.waits();
        self.0.waits.set(waits + 1);
        assert!(waits < WAITS_MAX, "the world waits for something that does not happen");
        let most = if waits < 2 { 0 } else { (1 << (waits - 2).min(8)).min(QUANTUM_MAX) };
        let (millis, turns) = {
            let mut rng = self.rng();
            (if most > 0 { rng.u64(1..=most) } else { 0 }, rng.u32(1..4))
        };
        self.0.now.set(self.now() + Duration::from_millis(millis));
        disk.lock().now = self.now();
        self.cut_links();
        let mut order = self.numbers();
        self.rng().shuffle(&mut order);
        for number in order {
            let mut nodes = self.0.nodes.borrow_mut();
            let Some(node) = nodes.get_mut(&number) else { continue };
            match node.paused {
                Some(pause) if pause.until > self.now() => continue,
                Some(pause) => {
                    node.paused = None;
                    node.is_still.store(false, Ordering::SeqCst);
                    disk.trace.line(format_args!("world: node {number} wakes"));
                    if pause.still.is_removed && self.now() - pause.since > LEASE * 2 {
                        remove(node, disk);
                    }
                    if pause.still.counts {
                        let stood = self.now() - pause.since;
                        node.runtime.block_on(async { advance(stood).await });
                    }
                }
                None => {}
            }
            node.run(millis, turns);
        }
        let stopped = std::mem::take(&mut disk.lock().stopped);
        for (number, still) in stopped {
            disk.trace.line(format_args!("world: node {number} stands still for {} ms", still.time.as_millis()));
            self.pause(number, still);
        }
        carry_out_late(disk);
        world.block_on(async { sleep(Duration::from_millis(millis)).await });
    }
}

/// Executes writes whose senders have given up.
fn carry_out_late(disk: &Arc<Disk>) {
    let due: Vec<Late> = {
        let mut inner = disk.lock();
        inner.afterwards.iter_mut().for_each(|late| late.turns -= 1);
        let (due, later) = std::mem::take(&mut inner.afterwards).into_iter().partition(|late| late.turns == 0);
        inner.afterwards = later;
        due
    };
    for Late { node, lease, first_seq, append, .. } in due {
        let outcome = disk.append(node, &lease, first_seq, append).now_or_never();
        let outcome = match outcome.expect("memory does not wait") {
            Ok(()) => "is carried out".to_owned(),
            Err(error) => format!("is refused: {error}"),
        };
        disk.trace.line(format_args!("disk: an append of node {node}, which has no answer, {outcome}"));
    }
}

/// Removes a node from the database.
fn remove(node: &Node, disk: &Disk) {
    let Some(keeper) = node.server.get().and_then(|server| server.registry.keeper()) else { return };
    let store = disk.store();
    let Some(Ok(rows)) = store.nodes().now_or_never() else { return };
    let it = rows.iter().filter(|row| row.id == keeper.me());
    let it: Vec<Silent> = it.map(|row| Silent { node: row.id, beat: row.beat }).collect();
    disk.trace.line(format_args!("world: it was removed from the database as {}", keeper.me()));
    drop(store.remove(&it).now_or_never());
}

/// When each node has beaten. The links of all nodes share this record.
pub(crate) type Beaten = Arc<Mutex<BTreeMap<NodeId, i64>>>;
