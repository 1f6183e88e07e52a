//! The cost of a turn above the floor's: processor time, and time to the first delta.

use crate::{
    client::{Client, Reading, Speaks, Turn},
    figures::{Figures, Goal, median, median_of, ms},
    process::{Bench, Process},
};
use anyhow::ensure;
use futures_util::future::try_join_all;
use reseed::store::{self, Append, Head, NewRecord};
use reseed_protocol::Timestamp;
use std::time::{Duration, Instant};

const DELTAS: usize = 50;

/// Between two deltas: 500 tokens per second, faster than models and slow enough that each delta is sent alone.
const PACE: Duration = Duration::from_millis(2);

/// Parallel connections: a few, not so many that they wait for each other.
const CONNECTIONS: usize = 2;

/// Appends of which the median counts as a store commit.
const COMMITS: usize = 200;

/// The size of a record in bytes, about that of a short question with its turn.
const RECORD_BYTES: usize = 600;

/// The results of the turns against one of the two.
#[derive(Default)]
struct Taken {
    first_deltas: Vec<Duration>,
    /// Milliseconds of processor time per turn, by round.
    cpu: Vec<f64>,
}

impl Taken {
    fn first_delta(&mut self) -> f64 {
        ms(median(std::mem::take(&mut self.first_deltas)))
    }

    fn cpu(&mut self) -> f64 {
        median_of(std::mem::take(&mut self.cpu))
    }
}

pub(crate) async fn measure(bench: &Bench, rounds: usize, turns: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let floor = bench.floor().await?;
    let server = bench.reseed(&bench.database("turn")).await?;
    let text = bench.upstream.answer(DELTAS, Some(PACE));
    // One round each that does not count: one-time loading.
    round(&floor, Speaks::Floor, 2, &text, &mut Taken::default()).await?;
    round(&server, Speaks::V2, 2, &text, &mut Taken::default()).await?;
    let (mut floors, mut servers) = (Taken::default(), Taken::default());
    for _ in 0..rounds {
        round(&floor, Speaks::Floor, turns, &text, &mut floors).await?;
        round(&server, Speaks::V2, turns, &text, &mut servers).await?;
    }
    let commit = commit(bench, "turn-commit").await?;
    let (floor_cpu, server_cpu) = (floors.cpu(), servers.cpu());
    let (floor_first, server_first) = (floors.first_delta(), servers.first_delta());
    let count = rounds * turns * CONNECTIONS;
    figures.add(&format!("turn: processor time of the floor, {count} turns"), floor_cpu, "ms", Goal::None);
    figures.add("turn: processor time of the server", server_cpu, "ms", Goal::None);
    figures.add("turn: processor time beyond the floor's", server_cpu - floor_cpu, "ms", Goal::AtMost(1.0));
    figures.add("turn: processor time, ratio to the floor's", server_cpu / floor_cpu.max(0.01), "x", Goal::None);
    figures.add("turn: to the first delta, floor", floor_first, "ms", Goal::None);
    figures.add("turn: to the first delta, server", server_first, "ms", Goal::None);
    figures.add("turn: one store commit", ms(commit), "ms", Goal::None);
    let beyond = server_first - floor_first - ms(commit);
    figures.add("turn: to the first delta beyond the floor's and one commit", beyond, "ms", Goal::AtMost(1.0));
    Ok(())
}

/// Runs this many turns on each connection, each connection with a session of its own.
async fn round(process: &Process, speaks: Speaks, turns: usize, text: &str, taken: &mut Taken) -> anyhow::Result<()> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = Client::connect(process, speaks, Reading::default()).await?;
        if speaks == Speaks::V2 {
            client.hello().await?;
            client.open(None).await?;
        }
        clients.push(client);
    }
    let before = process.cpu()?;
    let talks = clients.iter_mut().map(async |client| {
        let mut done: Vec<Turn> = Vec::new();
        for _ in 0..turns {
            done.push(client.turn("What does the server keep?").await?);
        }
        anyhow::Ok(done)
    });
    let done = try_join_all(talks).await?.concat();
    let cpu = process.cpu()? - before;
    taken.cpu.push(ms(cpu) / done.len() as f64);
    for turn in done {
        ensure!(turn.text == text, "the answer was {:?}", turn.text);
        taken.first_deltas.push(turn.first_delta);
    }
    Ok(())
}

/// Returns the time of one small append of the server's own store on this disk, in a new database of this name.
pub(crate) async fn commit(bench: &Bench, name: &str) -> anyhow::Result<Duration> {
    let store = store::connect(&format!("sqlite://{}", bench.database(name).display())).await?;
    let mut lease = store.create(&"commit".parse()?, "", Timestamp(0)).await?;
    let mut times = Vec::with_capacity(COMMITS);
    for _ in 0..COMMITS {
        let record = NewRecord { body: "x".repeat(RECORD_BYTES).into(), entry: None };
        let append = Append { records: vec![record], marks: Vec::new(), usage: Vec::new(), head: Head::default() };
        let began = Instant::now();
        store.append(&lease, lease.next_seq, append).await?;
        times.push(began.elapsed());
        lease.next_seq += 1;
    }
    store.close().await?;
    Ok(median(times))
}
