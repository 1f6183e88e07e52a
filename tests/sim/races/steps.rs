//! The steps that races share: running one, waiting, filling the window, and what the history must say.

use crate::{
    TAIL_LINES, checks,
    history::History,
    script::{make, say, send},
    world::{World, run_scenario},
};
use reseed_protocol::{ErrorCode, JobId, compaction::ContextCompacted, event::Event};
use serde_json::Value;
use std::{ops::RangeInclusive, time::Duration};

const SEEDS: RangeInclusive<u64> = 1..=15;

/// The client that sends the commands: one that writes.
pub(super) const WRITER: usize = 1;

/// Inputs within which the window must be nearly full.
const INPUTS_MAX: usize = 60;

/// The number of checks for a condition.
const LOOKS_MAX: usize = 400;

/// Runs a race for every seed; `check` receives the race's result and the run's history.
pub(super) fn race<T>(run: impl AsyncFn(&mut World) -> T, check: impl Fn(&T, &History) -> Result<(), String>) {
    for seed in SEEDS {
        let (told, history, trace) = run_scenario(seed, &run);
        let mut broken: Vec<String> =
            checks::broken(&history).into_iter().map(|(promise, why)| format!("{promise}: {why}")).collect();
        broken.extend(check(&told, &history).err());
        if !broken.is_empty() {
            let lines: Vec<&str> = trace.lines().collect();
            let tail = lines[lines.len().saturating_sub(TAIL_LINES * 3)..].join("\n    ");
            panic!("seed {seed}:\n    {tail}\n{}", broken.join("\n"));
        }
    }
}

/// Waits for a condition.
pub(super) async fn until(world: &mut World, what: &str, is_so: impl AsyncFn(&World) -> bool) {
    for _ in 0..LOOKS_MAX {
        world.pass(Duration::from_millis(5)).await;
        if is_so(world).await {
            return;
        }
    }
    panic!("it does not come about that {what}");
}

/// Connects all clients.
pub(super) async fn gather(world: &mut World) {
    until(world, "everyone is in", async |world| {
        world.clients[WRITER].writes() && world.clients.iter().all(|client| client.connection.is_some())
    })
    .await;
}

pub(super) async fn tell(world: &mut World, name: &str, payload: Value) {
    send(world, WRITER, make(name, payload)).await;
}

/// Sends an input of this many words, and lets a turn's time pass.
pub(super) async fn input(world: &mut World, words: usize) {
    let number = world.commands + 1;
    send(world, WRITER, say(&format!("input {number}: {}", "word ".repeat(words)), None)).await;
}

/// Returns true if every command is answered, no turn is running and nothing is queued.
pub(super) fn is_quiet(world: &World) -> bool {
    let client = &world.clients[WRITER];
    client.unanswered.is_empty() && client.view.turn.is_none() && client.view.queue.is_empty()
}

pub(super) async fn quiet(world: &mut World) {
    until(world, "the session is quiet", async |world| is_quiet(world)).await;
}

/// Returns the compaction running in the background.
pub(super) async fn at_work(world: &World) -> Option<JobId> {
    let compaction = world.clients[WRITER].snapshot().await?.compaction?;
    compaction.background.then_some(compaction.job_id)
}

/// Returns the tokens of the next request.
pub(super) async fn tokens(world: &World) -> u64 {
    world.clients[WRITER].snapshot().await.map_or(0, |snapshot| snapshot.context_info.token_count)
}

/// Talks until a background compaction starts, and holds it there.
pub(super) async fn fill(world: &mut World) -> JobId {
    world.script.hold_summaries(true);
    gather(world).await;
    for _ in 0..INPUTS_MAX {
        let words = world.wire.rng.usize(20..50);
        input(world, words).await;
        quiet(world).await;
        if let Some(job) = at_work(world).await {
            return job;
        }
    }
    panic!("{INPUTS_MAX} inputs and no compaction in the background");
}

/// Releases the summaries, and waits until no compaction is running.
pub(super) async fn finish(world: &mut World) {
    world.script.hold_summaries(false);
    until(world, "the compaction is over", async |world| {
        let snapshot = world.clients[WRITER].snapshot().await;
        is_quiet(world) && snapshot.is_some_and(|snapshot| snapshot.compaction.is_none())
    })
    .await;
}

/// Like [`finish`], and talks on until the held compaction is committed.
pub(super) async fn commit(world: &mut World) {
    finish(world).await;
    for _ in 0..INPUTS_MAX {
        let snapshot = world.clients[WRITER].snapshot().await;
        if snapshot.is_some_and(|snapshot| snapshot.context_info.compactions > 0) {
            return;
        }
        let words = world.wire.rng.usize(10..30);
        input(world, words).await;
        quiet(world).await;
    }
    panic!("{INPUTS_MAX} inputs and what is held is not committed");
}

pub(super) fn made(history: &History) -> Vec<&ContextCompacted> {
    let made = history.events.iter().filter_map(|event| match event {
        Event::ContextCompacted(compacted) => Some(&**compacted),
        _ => None,
    });
    made.collect()
}

/// Returns the error code of a job that was not committed, from the log.
pub(super) fn failed(history: &History, job: &JobId) -> Option<ErrorCode> {
    history.events.iter().find_map(|event| match event {
        Event::CompactionFailed(failed) if failed.job_id == *job => Some(failed.error.code),
        _ => None,
    })
}

pub(super) fn ensure(right: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if right { Ok(()) } else { Err(why()) }
}

/// Checks that only this job was committed, without a pause for anybody.
pub(super) fn only_in_the_background(job: &JobId, history: &History) -> Result<(), String> {
    let made = made(history);
    let right = match made.as_slice() {
        [made] => made.job_id == *job && made.background && made.paused_ms == 0,
        _ => false,
    };
    ensure(right, || format!("not `{job}` alone, without a pause, but {made:?}"))
}

/// Checks that nothing was committed, and that everybody received the reason.
pub(super) fn came_to_nothing(job: &JobId, history: &History, code: ErrorCode) -> Result<(), String> {
    let (made, failed) = (made(history), failed(history, job));
    ensure(made.is_empty(), || format!("a compaction was made: {made:?}"))?;
    ensure(failed == Some(code), || format!("`{job}` ended with {failed:?}, not {code}"))
}
