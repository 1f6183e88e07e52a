//! Answers that come faster than they can be read: the rate of their text, the size of their frames, and what a slow
//! reader receives.

use crate::{
    client::{Client, Reading, Speaks, Turn},
    figures::{Figures, Goal, median_of},
    process::{Bench, Process},
};
use anyhow::{Context as _, ensure};
use futures_util::future::try_join_all;
use std::time::Duration;

/// Sessions that stream at once.
const SESSIONS: usize = 4;

/// The most alternations: one round streams megabytes, and ten of them say no more than five.
const ROUNDS_MAX: usize = 5;

/// Deltas of the answer that is read slowly, and the model's pace: a second and a half in all.
const SLOW_DELTAS: usize = 1_500;
const SLOW_PACE: Duration = Duration::from_millis(1);

/// The slow reader's pause after each frame. With a frame for each delta it would need 75 seconds.
const PAUSE: Duration = Duration::from_millis(50);

/// The slow reader's own buffer in the kernel, so that the kernel does not read for it.
const RECEIVE_BYTES: u32 = 4 * 1024;

pub(crate) async fn measure(bench: &Bench, rounds: usize, deltas: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let floor = bench.floor().await?;
    let server = bench.reseed(&bench.database("stream")).await?;
    let text = bench.upstream.answer(deltas, None);
    let (mut floor_rates, mut server_rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut frames, mut bytes, mut text_bytes) = (0, 0, 0);
    for round in 0..=rounds.min(ROUNDS_MAX) {
        let (floor_rate, _) = stream(&floor, Speaks::Floor, &text).await?;
        let (server_rate, turns) = stream(&server, Speaks::V2, &text).await?;
        // The first round does not count.
        if round > 0 {
            floor_rates.push(floor_rate);
            server_rates.push(server_rate);
            ratios.push(server_rate / floor_rate);
            for turn in turns {
                frames += turn.deltas;
                bytes += turn.delta_bytes;
                text_bytes += turn.text.len() as u64;
            }
        }
    }
    let mib = |rates| median_of(rates) / (1024.0 * 1024.0);
    figures.add(&format!("stream: {SESSIONS} x {deltas} deltas at once, floor"), mib(floor_rates), "MiB/s", Goal::None);
    figures.add("stream: the server", mib(server_rates), "MiB/s", Goal::None);
    figures.add("stream: rate of text, ratio to the floor's", median_of(ratios), "x", Goal::AtLeast(0.8));
    let beyond = (bytes - text_bytes) as f64 / frames as f64;
    figures.add("stream: bytes of a frame beyond its text", beyond, "B", Goal::AtMost(130.0));
    let counted = (deltas * SESSIONS * rounds.min(ROUNDS_MAX)) as f64;
    figures.add("stream: deltas in a frame", counted / frames as f64, "", Goal::None);
    slow(bench, &server, figures).await
}

/// Streams an answer in each session at once; returns bytes of text per second, and the turns.
async fn stream(process: &Process, speaks: Speaks, text: &str) -> anyhow::Result<(f64, Vec<Turn>)> {
    let mut clients = Vec::new();
    for _ in 0..SESSIONS {
        let mut client = Client::connect(process, speaks, Reading::default()).await?;
        if speaks == Speaks::V2 {
            client.hello().await?;
            client.open(None).await?;
        }
        clients.push(client);
    }
    let turns = try_join_all(clients.iter_mut().map(|client| client.turn("Tell me everything."))).await?;
    ensure!(turns.iter().all(|turn| turn.text == text), "an answer is not whole");
    let last = turns.iter().map(|turn| turn.last_delta).max().context("no turn")?;
    Ok(((text.len() * turns.len()) as f64 / last.as_secs_f64(), turns))
}

/// Sends the same answer to a client that reads at once and to one that does not.
async fn slow(bench: &Bench, server: &Process, figures: &mut Figures) -> anyhow::Result<()> {
    let text = bench.upstream.answer(SLOW_DELTAS, Some(SLOW_PACE));
    let readings = [Reading::default(), Reading { pause: Some(PAUSE), receive_bytes: Some(RECEIVE_BYTES) }];
    let turns = try_join_all(readings.map(async |reading| {
        let mut client = Client::connect(server, Speaks::V2, reading).await?;
        client.hello().await?;
        client.open(None).await?;
        client.turn("Tell me everything.").await
    }))
    .await?;
    ensure!(turns.iter().all(|turn| turn.text == text), "an answer is not whole");
    let frames: Vec<f64> = turns.iter().map(|turn| turn.deltas as f64).collect();
    figures.add(&format!("stream: frames of {SLOW_DELTAS} paced deltas, quick reader"), frames[0], "", Goal::None);
    figures.add("stream: the same, a reader that sleeps", frames[1], "", Goal::AtMost(frames[0] / 2.0));
    Ok(())
}
