//! Measures the server against a floor in the same run: `load smoke` to see that it works, `load full` for the figures.
//!
//! The server under test is the real binary (`RESEED_BIN`) as a process of its own; so is the floor (`floor.rs`, which
//! this program becomes as `load floor`, or `load relay`), and so are the attackers (`load attack`). One scripted model
//! server (`upstream.rs`) serves both. A missed goal is printed and fails nothing: timing depends on the machine. A
//! failed turn and lost text fail the run.
#![expect(clippy::print_stdout, reason = "the figures are what this program is for")]

mod appends;
mod appends_store;
mod attackers;
mod client;
mod cluster;
mod compacting;
mod doors;
mod fanout;
mod figures;
mod floor;
mod history;
mod history_list;
mod history_store;
mod hostile;
mod idle;
mod planning;
mod process;
mod searching;
mod soak;
mod stalled;
mod start;
mod stream;
mod turn;
mod upstream;

use anyhow::{Context as _, bail};
use figures::Figures;
use process::Bench;
use std::{process::ExitCode, time::Instant};
use upstream::Upstream;

/// The server's own, so that the two do not differ in their allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The sizes of the measurements.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Idle connections.
    idle_connections: usize,
    /// Readers that stop reading, and the turns that are produced for them.
    stalled_readers: usize,
    stalled_turns: usize,
    /// Deltas of each of their answers, of six bytes each.
    stalled_deltas: usize,
    /// How often the floor and the server take turns; also the maximum number of starts and openings.
    rounds: usize,
    /// Turns of each connection in one round.
    turns: usize,
    /// Deltas of an answer that comes as fast as it can.
    stream_deltas: usize,
    /// Connections that watch one session.
    watchers: usize,
    /// Entries of the long session.
    entries: usize,
    /// Sessions in a list.
    listed: u32,
    /// Tokens of the conversations that are compacted, and how often.
    compacted_tokens: &'static [u64],
    compacted_rounds: usize,
    /// Sessions that append at once.
    appenders: usize,
    /// The duration of that, in seconds.
    append_secs: u64,
    /// Well-behaved users beside attackers, and the seconds of each phase.
    users: usize,
    hostile_secs: u64,
    /// Visitors whose sessions come and go, and the seconds of all runs together.
    visitors: usize,
    soak_secs: u64,
    /// Those of several servers on PostgreSQL.
    cluster: cluster::Sizes,
}

const SMOKE: Sizes = Sizes {
    idle_connections: 60,
    stalled_readers: 10,
    stalled_turns: 2,
    stalled_deltas: 5_000,
    rounds: 1,
    turns: 2,
    stream_deltas: 500,
    watchers: 10,
    entries: 1_000,
    listed: 200,
    compacted_tokens: &[10_000],
    compacted_rounds: 1,
    appenders: 20,
    append_secs: 1,
    users: 4,
    hostile_secs: 1,
    visitors: 10,
    soak_secs: 3,
    cluster: cluster::SMOKE,
};

const FULL: Sizes = Sizes {
    idle_connections: 5_000,
    stalled_readers: 200,
    stalled_turns: 100,
    stalled_deltas: 25_000,
    rounds: 10,
    turns: 15,
    stream_deltas: 20_000,
    watchers: 100,
    entries: 100_000,
    listed: 10_000,
    compacted_tokens: &[10_000, 60_000, 600_000],
    compacted_rounds: 9,
    appenders: 200,
    append_secs: 5,
    users: 100,
    hostile_secs: 30,
    visitors: 2_000,
    soak_secs: 1_800,
    cluster: cluster::FULL,
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    let done = match arguments.as_slice() {
        ["floor", port, upstream] => runtime.block_on(floor::run(port, upstream)).map(|()| true),
        ["relay", port, server] => runtime.block_on(floor::relay(port, server)).map(|()| true),
        ["attack", server, token, only @ ..] => runtime.block_on(attackers::run(server, token, only)).map(|()| true),
        ["smoke", only @ ..] => runtime.block_on(measure(SMOKE, only)),
        ["full", only @ ..] => runtime.block_on(measure(FULL, only)),
        other => Err(anyhow::anyhow!("load: {other:?} is no way to run it; allowed: smoke or full, then measures")),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    println!("{error:#}");
    ExitCode::FAILURE
}

/// Runs the measurements, or only those named, and returns true if all of them worked.
async fn measure(sizes: Sizes, only: &[&str]) -> anyhow::Result<bool> {
    const NAMES: &[&str] = &[
        "start",
        "idle",
        "stalled",
        "turn",
        "doors",
        "stream",
        "fanout",
        "history",
        "planning",
        "compacting",
        "searching",
        "appends",
        "cluster",
        "hostile",
        "soak",
    ];
    if let Some(unknown) = only.iter().find(|name| !NAMES.contains(name)) {
        bail!("there is no measure `{unknown}`; allowed: {}", NAMES.join(", "));
    }
    let upstream = Upstream::start().await.context("start the scripted model server")?;
    let bench = Bench::new(upstream)?;
    let mut figures = Figures::default();
    let (mut passed, mut failures) = (0, Vec::new());
    // Half an hour is for who asks for it.
    let is_asked =
        |name: &&&str| only.contains(*name) || (only.is_empty() && (**name != "soak" || sizes.soak_secs < 60));
    for name in NAMES.iter().filter(is_asked) {
        let began = Instant::now();
        let done = match *name {
            "start" => start::measure(&bench, sizes.rounds, &mut figures).await,
            "idle" => idle::measure(&bench, sizes.idle_connections, &mut figures).await,
            "stalled" => stalled::measure(&bench, sizes, &mut figures).await,
            "turn" => turn::measure(&bench, sizes.rounds, sizes.turns, &mut figures).await,
            "doors" => doors::measure(&bench, sizes.rounds, sizes.turns, &mut figures).await,
            "stream" => stream::measure(&bench, sizes.rounds, sizes.stream_deltas, &mut figures).await,
            "fanout" => fanout::measure(&bench, sizes.watchers, sizes.turns, &mut figures).await,
            "history" => history::measure(&bench, sizes, &mut figures).await,
            "planning" => planning::measure(sizes.entries, &mut figures),
            "compacting" => {
                compacting::measure(&bench, sizes.compacted_tokens, sizes.compacted_rounds, &mut figures).await
            }
            "searching" => {
                let Sizes { entries, appenders, append_secs, .. } = sizes;
                searching::measure(&bench, entries, appenders, append_secs, sizes.rounds, &mut figures).await
            }
            "hostile" => hostile::measure(&bench, sizes.users, sizes.hostile_secs, &mut figures).await,
            "cluster" => cluster::measure(&bench, sizes.cluster, &mut figures).await,
            "soak" => soak::measure(&bench, sizes.visitors, sizes.soak_secs, &mut figures).await,
            _ => {
                let Sizes { appenders, append_secs, rounds, .. } = sizes;
                appends::measure(&bench, appenders, append_secs, rounds, &mut figures).await
            }
        };
        match done {
            Ok(()) => passed += 1,
            Err(error) => failures.push(format!("FAILED {name}: {error:#}")),
        }
        println!("{name}: took {:.1} s", began.elapsed().as_secs_f64());
    }
    println!("{figures}");
    // At the end, where they are found below all the figures.
    for failure in &failures {
        println!("{failure}");
    }
    println!("{passed} passed, {} failed", failures.len());
    Ok(failures.is_empty())
}
