//! A simulated world around the server's own actors and core: clients, a model, a disk and time, with faults in all of
//! them, determined by one seed. The server's guarantees are checked on the history of each run.
//!
//! - `SEED=72 cargo test --test sim` runs one seed and prints its trace; `SEEDS=20000 cargo test --test sim` runs more
//! - `world` steps a run, `script` chooses what clients do, `client` and `view` are a client, `model` is the model
//!   server, `hooks` are those of servers and clients, `disk` is the store of all servers of a run, `history` is the
//!   result of a run, `checks` are the guarantees
//! - `cluster` runs the same world over several nodes that share one database
//! - `races` are separate scenarios: what happens during a background compaction
//! - `broken` holds deliberate faults, each of which a guarantee must detect
//!
//! # Reading a trace
//!
//! Each step starts with `-- step N at M ms`, where M is the time since the start of the run. What follows until the
//! next such line happened in this order: `world:` a fault, `client N:` a client did or received something, `disk:` a
//! server accessed the disk (`node 2 term 3 at 17: turn_finished` is server 2 writing record 17 under its lease of term
//! 3), `model:` a server sent a request to the model. A client `is given event 17` when it reads it, which may be long
//! after it was written. The violated guarantees are in the failure itself; search the trace for the seq, command or
//! connection that they name.

mod broken;
mod checks;
mod client;
mod cluster;
mod disk;
mod history;
mod hooks;
mod model;
mod races;
mod script;
mod streamed;
mod tools;
mod view;
mod world;

use broken::Broken;
use history::{History, What};
use reseed_protocol::{
    ErrorCode,
    event::{EphemeralEvent, Event},
    reply::Reply,
    tools::CallOutcome,
};
use std::{
    env, fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// Seeds of the normal run: more than [`CAUGHT_WITHIN`], so that injected faults can be found.
const SEEDS: u64 = 200;

/// Number of seeds within which an injected fault must be detected.
const CAUGHT_WITHIN: u64 = 150;

/// Failing runs after which no more are tried.
const FAILURES_MAX: usize = 8;

/// Trace lines of a failing run that are printed, from its end. `SEED=` prints the whole trace.
const TAIL_LINES: usize = 60;

/// The events of all runs together: a suite in which nothing happens proves nothing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    turns: u64,
    compactions: u64,
    background: u64,
    held: u64,
    undone: u64,
    previews: u64,
    pins: u64,
    events: u64,
    requests: u64,
    replays: u64,
    snapshots: u64,
    cuts: u64,
    closed: u64,
    runs: u64,
    hosts: u64,
    shared: u64,
    repeats: u64,
    queued: u64,
    faults: u64,
    moves: u64,
    forks: u64,
    hooks: u64,
    client_hooks: u64,
    hook_changes: u64,
    hook_faults: u64,
    hook_failures: u64,
    server_calls: u64,
    approvals: u64,
    allowed: u64,
    openings: u64,
    takeovers: u64,
}

impl Tally {
    fn of(history: &History) -> Self {
        let events = |wanted: fn(&Event) -> bool| history.events.iter().filter(|event| wanted(event)).count() as u64;
        let given = |wanted: fn(&What) -> bool| history.given.iter().filter(|given| wanted(&given.what)).count() as u64;
        let mut ids: Vec<&str> = history.sent.iter().map(|sent| sent.id.as_str()).collect();
        ids.sort_unstable();
        ids.dedup();
        Self {
            turns: events(|event| matches!(event, Event::TurnFinished(_))),
            compactions: events(|event| matches!(event, Event::ContextCompacted(_))),
            background: events(|event| matches!(event, Event::ContextCompacted(made) if made.background)),
            held: events(|event| matches!(event, Event::SessionUpdated(updated) if updated.held.is_some())),
            undone: events(|event| matches!(event, Event::CompactionUndone(_))),
            previews: given(
                |what| matches!(what, What::Reply(_, reply) if matches!(**reply, Reply::CompactionPreview(_))),
            ),
            pins: events(|event| matches!(event, Event::SessionUpdated(updated) if updated.pins.is_some())),
            events: history.events.len() as u64,
            requests: history.asked.len() as u64,
            replays: given(|what| matches!(what, What::Opened { replay: true, .. })),
            snapshots: given(|what| matches!(what, What::Opened { replay: false, .. })),
            cuts: given(|what| matches!(what, What::Cut)),
            closed: given(|what| matches!(what, What::Closed(_))),
            runs: given(|what| matches!(what, What::Run(_))),
            hosts: given(|what| matches!(what, What::Ephemeral(EphemeralEvent::HostChanged(_)))),
            shared: shared_turns(history),
            repeats: (history.sent.len() - ids.len()) as u64,
            queued: events(|event| matches!(event, Event::QueueItemAdded(_) | Event::QueueItemRemoved(_))),
            faults: history.faults,
            moves: given(|what| matches!(what, What::Reply(_, reply) if matches!(**reply, Reply::Navigated(_)))),
            forks: history.forks.len() as u64,
            hooks: history.hooks.server,
            client_hooks: history.hooks.clients,
            hook_changes: history.hooks.changed,
            hook_faults: history.hooks.failed + history.hooks.hung,
            server_calls: history.tools.len() as u64,
            openings: history.grants.len() as u64,
            takeovers: takeovers(history),
            approvals: events(|event| matches!(event, Event::ApprovalRequest(_))),
            allowed: events(|event| matches!(event, Event::CallResolved(end) if end.outcome == CallOutcome::Allowed)),
            hook_failures: events(|event| match event {
                Event::TurnFinished(finished) => finished.error.as_ref().is_some_and(|error| is_of_hook(error.code)),
                _ => false,
            }),
        }
    }

    fn add(&mut self, other: Self) {
        let Self { turns, compactions, events, requests, replays, snapshots, cuts, closed, .. } = other;
        let Self { runs, hosts, shared, .. } = other;
        let Self { repeats, queued, faults, moves, forks, background, undone, previews, pins, .. } = other;
        let Self { hooks, client_hooks, hook_changes, hook_faults, hook_failures, held, .. } = other;
        let Self { server_calls, approvals, allowed, openings, takeovers, .. } = other;
        self.openings += openings;
        self.takeovers += takeovers;
        self.server_calls += server_calls;
        self.approvals += approvals;
        self.allowed += allowed;
        self.held += held;
        self.hooks += hooks;
        self.client_hooks += client_hooks;
        self.hook_changes += hook_changes;
        self.hook_faults += hook_faults;
        self.hook_failures += hook_failures;
        self.turns += turns;
        self.compactions += compactions;
        self.background += background;
        self.undone += undone;
        self.previews += previews;
        self.pins += pins;
        self.events += events;
        self.requests += requests;
        self.replays += replays;
        self.snapshots += snapshots;
        self.cuts += cuts;
        self.closed += closed;
        self.runs += runs;
        self.hosts += hosts;
        self.shared += shared;
        self.repeats += repeats;
        self.queued += queued;
        self.faults += faults;
        self.moves += moves;
        self.forks += forks;
    }

    /// Checks that enough happened.
    fn has_at_least(&self, seeds: u64, least: &[(&str, u64, f64)]) {
        for (what, found, least) in least {
            #[expect(clippy::cast_precision_loss, reason = "counts of a test, far below 2^53")]
            let enough = *found as f64 >= least * seeds as f64;
            assert!(enough, "{found} {what} in {seeds} seeds: too few to mean anything");
        }
    }
}

/// Returns the number of turns that a client other than the first writer began.
fn shared_turns(history: &History) -> u64 {
    let is_of_another = |event: &&Event| match event {
        Event::TurnStarted(started) => started.command_ids.iter().any(|id| !id.as_str().starts_with("client1-")),
        _ => false,
    };
    history.events.iter().filter(is_of_another).count() as u64
}

/// Returns the number of openings of a session that another node had opened last.
fn takeovers(history: &History) -> u64 {
    let of_session = || history.grants.iter().filter(|grant| Some(&grant.session) == history.session.as_ref());
    of_session().zip(of_session().skip(1)).filter(|(before, grant)| before.node != grant.node).count() as u64
}

/// Returns true if a hook caused this error.
pub(crate) fn is_of_hook(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::HookFailed | ErrorCode::HookTimeout | ErrorCode::HookUnavailable | ErrorCode::InvalidPatch
    )
}

/// A run that violated a guarantee.
struct Failure {
    /// The name that the command adds to run these tests alone.
    room: &'static str,
    seed: u64,
    promises: Vec<(&'static str, String)>,
    trace: String,
}

impl Failure {
    fn line(&self) -> String {
        let promises: Vec<&str> = self.promises.iter().map(|(promise, _)| *promise).collect();
        format!("seed {}: {}", self.seed, promises.join("; "))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, room, .. } = self;
        writeln!(f, "seed {seed} broke its promises; `SEED={seed} cargo test --test sim{room}` repeats it")?;
        let lines: Vec<&str> = self.trace.lines().collect();
        for line in &lines[lines.len().saturating_sub(TAIL_LINES)..] {
            writeln!(f, "    {line}")?;
        }
        for (promise, why) in &self.promises {
            writeln!(f, "BROKEN: {promise}: {why}")?;
        }
        Ok(())
    }
}

fn failure(seed: u64) -> Result<Tally, Failure> {
    let (history, trace) = world::run(seed, Broken::Nothing);
    let promises = checks::broken(&history);
    if promises.is_empty() { Ok(Tally::of(&history)) } else { Err(Failure { room: ROOM, seed, promises, trace }) }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number, not `{value}`")))
}

/// Runs many seeds on all cores, and panics with the failures.
fn many(seeds: u64, run: fn(u64) -> Result<Tally, Failure>) -> Tally {
    let next = AtomicU64::new(1);
    let failures: Mutex<Vec<Failure>> = Mutex::default();
    let work = || {
        let mut tally = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > seeds {
                return tally;
            }
            match run(seed) {
                Ok(more) => tally.add(more),
                Err(failure) => {
                    let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                    eprintln!("{}", failure.line());
                    failures.push(failure);
                    if failures.len() >= FAILURES_MAX {
                        next.store(seeds + 1, Ordering::Relaxed);
                    }
                }
            }
        }
    };
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(2, usize::from);
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| tally.add(thread.join().expect("a run does not panic")));
    });
    let mut failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort_by_key(|failure| failure.seed);
    if let Some(first) = failures.first() {
        let others: Vec<String> = failures[1..].iter().map(Failure::line).collect();
        panic!("{first}\n{}", others.join("\n"));
    }
    tally
}

/// The name that a command adds to run these tests alone; none for this suite.
const ROOM: &str = "";

#[test]
fn whatever_happens_the_promises_hold() {
    if let Some(seed) = number("SEED") {
        let (history, trace) = world::run(seed, Broken::Nothing);
        eprintln!("{trace}\n{:?}", Tally::of(&history));
        let promises = checks::broken(&history);
        assert!(promises.is_empty(), "{}", Failure { room: ROOM, seed, promises, trace: String::new() });
        return;
    }
    let seeds = number("SEEDS").unwrap_or(SEEDS);
    let tally = many(seeds, failure);
    eprintln!("{seeds} seeds: {tally:?}");
    // A few seeds may happen to lack something.
    if seeds >= SEEDS {
        let least = [
            ("turns", tally.turns, 4.0),
            ("compactions", tally.compactions, 0.6),
            ("compactions in the background", tally.background, 0.1),
            ("compactions that were held", tally.held, 0.1),
            ("undone compactions", tally.undone, 0.05),
            ("previews", tally.previews, 0.05),
            ("changes of pins", tally.pins, 0.5),
            ("resumes by replay", tally.replays, 5.0),
            ("states given whole", tally.snapshots, 2.0),
            ("cuts", tally.cuts, 4.0),
            ("subscriptions ended by the server", tally.closed, 0.3),
            ("tools run by a host", tally.runs, 0.5),
            ("changes of the host", tally.hosts, 1.0),
            ("turns of a second writer", tally.shared, 1.0),
            ("repeated commands", tally.repeats, 3.0),
            ("changes of the queue", tally.queued, 3.0),
            ("faults of the disk", tally.faults, 0.2),
            ("moves in the tree", tally.moves, 0.4),
            ("forks", tally.forks, 0.2),
            ("hooks asked", tally.hooks, 4.0),
            ("hooks of clients asked", tally.client_hooks, 0.2),
            ("changes by hooks", tally.hook_changes, 1.0),
            ("faults of hooks", tally.hook_faults, 0.5),
            ("turns that failed by a hook", tally.hook_failures, 0.2),
            ("calls of the server's tools", tally.server_calls, 0.3),
            ("approvals", tally.approvals, 0.3),
            ("approvals that allowed", tally.allowed, 0.1),
        ];
        tally.has_at_least(seeds, &least);
    }
}

/// Checks that each injected fault breaks the guarantee beside it. The given seed is tried before the others. After a
/// change of the world, another seed may be the first that finds the fault; it is then printed.
fn check_found(faults: &[(Broken, &str, u64)], broken: impl Fn(u64, Broken) -> Vec<(&'static str, String)>) {
    for &(fault, promise, first) in faults {
        let finds = |seed: &u64| broken(*seed, fault).iter().any(|(broken, _)| *broken == promise);
        match std::iter::once(first).chain(1..=CAUGHT_WITHIN).find(finds) {
            Some(seed) => eprintln!("{fault:?} is found by seed {seed}: {promise}"),
            None => panic!("{fault:?} was put in, and {CAUGHT_WITHIN} seeds did not break `{promise}`"),
        }
    }
}

/// Each injected fault, a guarantee that must detect it, and the seed that does.
const FAULTS: &[(Broken, &str, u64)] = &[
    (Broken::AckBeforeSync, "nothing acknowledged is lost or doubled", 4),
    (Broken::PublishBeforeWrite, "nothing is published before it is written", 1),
    (Broken::IgnoreTerm, "one writer, one live loop", 38),
    (Broken::LoseQueue, "nothing acknowledged is lost or doubled", 3),
    (Broken::LoseOffset, "streamed text goes on where it was", 2),
    (Broken::DropEvent, "events have no gap", 1),
    (Broken::RepeatEvent, "events have no gap", 1),
    (Broken::SwapEvents, "events have no gap", 1),
    (Broken::ChangeEvent, "clients are given what the log says", 2),
];

#[test]
fn every_fault_that_is_put_in_is_found() {
    check_found(FAULTS, |seed, fault| checks::broken(&world::run(seed, fault).0));
}

#[test]
fn one_seed_run_twice_leaves_the_same_trace() {
    for seed in 1..=8 {
        let (_, first) = world::run(seed, Broken::Nothing);
        let (_, second) = world::run(seed, Broken::Nothing);
        let differs = first.lines().zip(second.lines()).find(|(first, second)| first != second);
        assert!(first == second, "seed {seed} runs otherwise the second time: {differs:?}");
    }
}
