//! Clusters: several nodes share one database, in the simulated world. Clients connect to any of them; a node that does
//! not have the session sends them to the one that has it, as its relay would.
//!
//! - `SEED=72 cargo test --test sim cluster` runs one seed and prints its trace; `SEEDS=10000 cargo test --test sim
//!   cluster` runs more
//! - `fleet` are the nodes, each with a runtime and a clock of its own; `link` is a node's connection to the database;
//!   `troubles` is what happens to them; `checks` are the guarantees beyond those of one server
//!
//! Each seed is stepped as in `world`, but the world is polled by hand: whenever it waits, every node runs for a while.

mod checks;
mod failover;
pub(crate) mod fleet;
pub(crate) mod link;
mod troubles;

use crate::{
    Failure, Tally,
    broken::Broken,
    check_found, checks as promises,
    history::{History, Trace},
    hooks::Habits,
    many, number,
    world::{Profile, World, note_panics, panics},
};
use fastrand::Rng;
use fleet::Fleet;
use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

/// Seeds of the normal run.
const SEEDS: u64 = 40;

/// Steps of a run, minimum and maximum.
const STEPS: std::ops::Range<usize> = 80..260;

/// Steps by which a standby is behind when it takes over.
const STEPS_FAILOVER: usize = 12;

/// Runs one seed, and returns its history and trace.
fn run(seed: u64, broken: Broken) -> (History, String) {
    run_until(seed, broken, false)
}

/// Runs one seed; with `fails_over`, a standby that is behind takes over at some time.
fn run_until(seed: u64, broken: Broken, fails_over: bool) -> (History, String) {
    note_panics();
    let trace = Trace::default();
    let own = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let own = own.expect("a runtime");
    let fleet = Fleet::new(seed);
    let mut rng = Rng::with_seed(seed);
    let profile = Profile {
        disk_faults: [0, 5, 10, 30][rng.usize(..4)],
        disk_slow: [0, 8, 2][rng.usize(..3)],
        // An injected fault must be found within few seeds.
        troubles: if broken == Broken::Nothing { [3, 6, 10][rng.usize(..3)] } else { 20 },
        cuts: [2, 6, 15][rng.usize(..3)],
        alone: rng.u8(..4) == 0,
        words: [20, 80, 160][rng.usize(..3)],
        turns: [2, 6, 20][rng.usize(..3)],
    };
    let habits = Habits::new(seed, broken != Broken::Nothing, trace.clone());
    let mut world = {
        let _its_clock = own.enter();
        World::empty(seed, rng, profile, habits, broken, trace.clone())
    };
    world.fleet = Some(fleet.clone());
    let disk = world.wire.disk.clone();
    let mut life = pin!(async move {
        world.begin_cluster().await;
        let steps = world.wire.rng.usize(STEPS);
        let over_at = fails_over.then(|| Rng::with_seed(seed ^ 0xfa11).usize(10..steps));
        for step in 0..steps {
            world.standby_step(step, over_at);
            world.cluster_step(step).await;
        }
        world.settle().await;
        world.end().await
    });
    let mut history = loop {
        let polled = {
            let _its_clock = own.enter();
            life.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        };
        match polled {
            Poll::Ready(history) => break history,
            Poll::Pending => fleet.drive(&own, &disk),
        }
    };
    for number in fleet.numbers() {
        fleet.kill(number, &disk);
    }
    history.panics = panics();
    (history, trace.text())
}

/// Returns the guarantees that a run violated.
fn broken_by(history: &History) -> Vec<(&'static str, String)> {
    let mut broken = promises::broken(history);
    broken.extend(checks::CHECKS.iter().filter_map(|(name, check)| Some((*name, check(history).err()?))));
    broken
}

fn failure(seed: u64) -> Result<Tally, Failure> {
    let (history, trace) = run(seed, Broken::Nothing);
    let promises = broken_by(&history);
    if promises.is_empty() { Ok(Tally::of(&history)) } else { Err(Failure { room: ROOM, seed, promises, trace }) }
}

/// The name by which these tests are run alone.
const ROOM: &str = " cluster";

#[test]
fn whatever_happens_to_a_cluster_the_promises_hold() {
    if let Some(seed) = number("SEED") {
        let (history, trace) = run(seed, Broken::Nothing);
        eprintln!("{trace}\n{:?}", Tally::of(&history));
        let promises = broken_by(&history);
        assert!(promises.is_empty(), "{}", Failure { room: ROOM, seed, promises, trace: String::new() });
        return;
    }
    let seeds = number("SEEDS").unwrap_or(SEEDS);
    let tally = many(seeds, failure);
    eprintln!("{seeds} seeds of clusters: {tally:?}");
    if seeds >= SEEDS {
        tally.has_at_least(
            seeds,
            &[
                ("turns", tally.turns, 2.0),
                ("openings", tally.openings, 1.5),
                ("takeovers", tally.takeovers, 0.8),
                ("resumes by replay", tally.replays, 4.0),
                ("states given whole", tally.snapshots, 2.0),
                ("subscriptions ended by the server", tally.closed, 0.1),
                ("repeated commands", tally.repeats, 3.0),
                ("forks", tally.forks, 0.1),
                ("compactions", tally.compactions, 0.3),
            ],
        );
    }
}

/// Each injected fault, a guarantee that must detect it, and the seed that does.
const FAULTS: &[(Broken, &str, u64)] = &[
    (Broken::IgnoreTerm, "one writer, one live loop", 3),
    (Broken::TermTwice, "a term has one holder", 1),
    (Broken::WallClockLease, "a session is taken from none that trusts its lease", 14),
    (Broken::ShortLease, "a session is taken from none that stands still before its lease is over", 11),
    (Broken::NothingLost, "none that trusts its lease asks the model for a session of another", 40),
    (Broken::AgeUnknown, "none that trusts its lease asks the model for a session of another", 54),
    (Broken::PublishBeforeWrite, "nothing is published before it is written", 2),
    (Broken::PublishBeforeWrite, "nothing acknowledged is lost or doubled", 5),
];

#[test]
fn every_fault_that_is_put_in_a_cluster_is_found() {
    check_found(FAULTS, |seed, fault| broken_by(&run(seed, fault).0));
}

#[test]
fn most_seeds_of_a_cluster_run_twice_leave_the_same_trace() {
    // tokio wakes those who wait for a change of a node's standing in an order of its own.
    let is_alike = |seed: &u64| run(*seed, Broken::Nothing).1 == run(*seed, Broken::Nothing).1;
    let alike = (1..=8).filter(is_alike).count();
    assert!(alike >= 6, "of 8 seeds {alike} leave the same trace the second time");
}
