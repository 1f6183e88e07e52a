//! Sessions that come and go for a long time, with restarts in between: nothing that the server holds may grow.

use crate::{
    client::{Client, Reading, Speaks},
    figures::{Figures, Goal},
    process::{Bench, Process},
};
use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Runs of the server: the first and each other one end with SIGTERM, those between with SIGKILL.
const RUNS: u32 = 6;

/// Deltas of an answer, one each few milliseconds, as models send them.
const DELTAS: usize = 20;
const PACE: Duration = Duration::from_millis(5);

/// Turns in a session before it is deleted, and before the visitor leaves for a while.
const TURNS: std::ops::RangeInclusive<u32> = 2..=6;
const VISIT_TURNS: std::ops::RangeInclusive<u32> = 1..=3;

/// The longest that a visitor thinks or stays away, as a part of a run, and at most.
const THINKS_OF_RUN: u32 = 20;
const THINKS_MAX: Duration = Duration::from_secs(40);

/// Samples of a run.
const SAMPLES: u32 = 60;

/// The time within which the descriptors of those who left are closed, at most. Connections to the model server are
/// kept for 90 s, and those that are older are looked for every 90 s.
const LEFT_WITHIN: Duration = Duration::from_secs(200);

/// Descriptors that stay open once there was work: each of the store's readers opens the WAL when it first reads.
const STAY_OPEN: f64 = 8.0;

/// The time that the last run goes on at most until a session has come and gone.
const AT_LEAST_WITHIN: Duration = Duration::from_secs(120);

/// The pause between two looks at that.
const POLL: Duration = Duration::from_millis(50);

/// What the server holds at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    memory: u64,
    descriptors: u64,
    wal: u64,
    file: u64,
}

/// Someone who comes, talks, leaves, comes back, and deletes the conversation in the end.
#[derive(Debug, Default)]
struct Visitor {
    /// The session, and the turns that it still gets.
    session: Option<(String, u32)>,
}

#[derive(Debug, Default)]
struct Done {
    turns: AtomicU64,
    sessions: AtomicU64,
}

impl Done {
    /// Waits until a session has come and gone: in a short soak on a busy machine, none may have in time.
    async fn some(&self, within: Duration) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.sessions.load(Ordering::Relaxed) == 0 {
            let turns = self.turns.load(Ordering::Relaxed);
            ensure!(began.elapsed() < within, "no session has come and gone in {within:?} more; {turns} turns");
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }
}

pub(crate) async fn measure(bench: &Bench, visitors: usize, secs: u64, figures: &mut Figures) -> anyhow::Result<()> {
    let database = bench.database("soak");
    let text = bench.upstream.answer(DELTAS, Some(PACE));
    let time = Duration::from_secs(secs) / RUNS;
    let thinks = (time / THINKS_OF_RUN).min(THINKS_MAX);
    let mut all: Vec<Visitor> = (0..visitors).map(|_| Visitor::default()).collect();
    let done = Done::default();
    let mut runs = Vec::new();
    let mut left = (0, 0);
    for run in 0..RUNS {
        let server = bench.reseed(&database).await?;
        let before = held(&server, &database)?.descriptors;
        let visits = try_join_all(all.iter_mut().map(|visitor| visitor.come_and_go(&server, thinks, &text, &done)));
        // Whoever is in the middle of something is gone at its end.
        let samples = tokio::select! {
            failed = visits => return Err(failed.err().context("visits do not end")?),
            samples = async {
                let samples = sample(&server, &database, time).await?;
                if run + 1 == RUNS {
                    done.some(AT_LEAST_WITHIN).await?;
                }
                anyhow::Ok(samples)
            } => samples?,
        };
        let last = samples.last().context("a run has samples")?;
        println!(
            "soak: run {} of {RUNS}: {} sessions and {} turns so far, {} MiB, {} descriptors, WAL {} MiB, file {} MiB",
            run + 1,
            done.sessions.load(Ordering::Relaxed),
            done.turns.load(Ordering::Relaxed),
            last.memory >> 20,
            last.descriptors,
            last.wal >> 20,
            last.file >> 20,
        );
        runs.push(samples);
        if run + 1 == RUNS {
            left = (before, descriptors_left(&server, before, LEFT_WITHIN.min(time)).await?);
        }
        if run % 2 == 0 {
            server.stop().await?;
        }
    }
    report(&runs, left, &done, figures)
}

fn report(runs: &[Vec<Held>], left: (u64, u64), done: &Done, figures: &mut Figures) -> anyhow::Result<()> {
    let (sessions, turns) = (done.sessions.load(Ordering::Relaxed), done.turns.load(Ordering::Relaxed));
    figures.add("soak: sessions that came and went", sessions as f64, "", Goal::None);
    figures.add("soak: turns, none failed", turns as f64, "", Goal::None);
    let mib = |bytes: f64| bytes / 1024.0 / 1024.0;
    let first = runs.first().context("there were runs")?;
    let last = runs.last().context("there were runs")?;
    // The first third of a run fills the caches.
    let (middle, end) = (1..2, 2..3);
    let grown = runs.iter().map(|run| mean(run, &end, |held| held.memory) / mean(run, &middle, |held| held.memory));
    let memory = [first, last].map(|run| mean(run, &end, |held| held.memory));
    figures.add("soak: memory at the end", mib(memory[1]), "MiB", Goal::None);
    figures.add("soak: memory, last third of a run to its second, most", most(grown), "x", Goal::AtMost(1.1));
    figures.add("soak: memory, last run to first", memory[1] / memory[0], "x", Goal::AtMost(1.1));
    figures.add("soak: descriptors at the start of the last run", left.0 as f64, "", Goal::None);
    figures.add(
        "soak: more of them when all have left",
        left.1.saturating_sub(left.0) as f64,
        "",
        Goal::AtMost(STAY_OPEN),
    );
    let wal = most(runs.iter().flatten().map(|held| held.wal as f64));
    figures.add("soak: largest WAL", mib(wal), "MiB", Goal::AtMost(64.0));
    // The second run is the first that begins with what others left.
    let second = runs.get(1).unwrap_or(first);
    let file = [second, last].map(|run| mean(run, &end, |held| held.file));
    figures.add("soak: file at the end", mib(file[1]), "MiB", Goal::None);
    figures.add("soak: file, last run to second", file[1] / file[0].max(1.0), "x", Goal::AtMost(1.1));
    Ok(())
}

/// Returns the mean over some thirds of a run.
fn mean(run: &[Held], thirds: &std::ops::Range<usize>, of: impl Fn(&Held) -> u64) -> f64 {
    let part = &run[run.len() * thirds.start / 3..run.len() * thirds.end / 3];
    part.iter().map(|held| of(held) as f64).sum::<f64>() / part.len().max(1) as f64
}

fn most(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// Looks at the server for this long.
async fn sample(server: &Process, database: &Path, time: Duration) -> anyhow::Result<Vec<Held>> {
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        tokio::time::sleep(time / SAMPLES).await;
        samples.push(held(server, database)?);
    }
    Ok(samples)
}

fn held(server: &Process, database: &Path) -> anyhow::Result<Held> {
    let wal = PathBuf::from(format!("{}-wal", database.display()));
    // The WAL is not there before the first write.
    let size = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    Ok(Held { memory: server.resident()?, descriptors: server.descriptors()?, wal: size(&wal), file: size(database) })
}

/// Returns the descriptors once they are as few as before, or do not become fewer any more.
async fn descriptors_left(server: &Process, before: u64, within: Duration) -> anyhow::Result<u64> {
    let began = Instant::now();
    loop {
        let now = server.descriptors()?;
        if now <= before || began.elapsed() > within {
            return Ok(now);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

impl Visitor {
    /// Visits until something fails.
    async fn come_and_go(&mut self, server: &Process, thinks: Duration, text: &str, done: &Done) -> anyhow::Result<()> {
        loop {
            think(thinks).await;
            self.visit(server, thinks, text, done).await?;
        }
    }

    async fn visit(&mut self, server: &Process, thinks: Duration, text: &str, done: &Done) -> anyhow::Result<()> {
        let mut client = Client::connect(server, Speaks::V2, Reading::default()).await?;
        client.hello().await?;
        let known = self.session.take();
        // What was being deleted when the server stopped may be gone.
        let opened = client.open(known.as_ref().map(|(id, _)| id.as_str())).await;
        let (id, mut turns) = match (known, opened) {
            (Some(known), Ok(())) => known,
            (None, Ok(())) => (client.session_id()?.to_owned(), fastrand::u32(TURNS)),
            (Some(_), Err(error)) if format!("{error:#}").contains("session_not_found") => return Ok(()),
            (_, Err(error)) => return Err(error),
        };
        // Kept whenever the visit ends.
        self.session = Some((id.clone(), turns));
        for _ in 0..fastrand::u32(VISIT_TURNS).min(turns) {
            let turn = client.turn("How is the sea?").await?;
            ensure!(turn.text == text, "the answer was {:?}", turn.text);
            turns -= 1;
            self.session = Some((id.clone(), turns));
            done.turns.fetch_add(1, Ordering::Relaxed);
            think(thinks).await;
        }
        if turns == 0 {
            client.ask("delete_session", serde_json::json!({}), "ok").await?;
            self.session = None;
            done.sessions.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

async fn think(at_most: Duration) {
    tokio::time::sleep(at_most.mul_f64(fastrand::f64())).await;
}
