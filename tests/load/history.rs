//! What a long past costs: opening a session of it, and a turn in it, beside a session with a short one.

use crate::{
    client::{Client, Speaks},
    figures::{Figures, Goal, median, median_of, ms},
    history_store,
    process::{Bench, Process},
};
use anyhow::ensure;
use std::time::{Duration, Instant};

/// Messages of the short session.
const SHORT: usize = 100;

/// Deltas of an answer: few, so that what a turn costs besides streaming shows.
const DELTAS: usize = 5;

/// How often each session is opened.
const OPENINGS: usize = 9;

pub(crate) async fn measure(
    bench: &Bench,
    rounds: usize,
    turns: usize,
    entries: usize,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let database = bench.database("history");
    history_store::write(&database, "short", SHORT, true).await?;
    history_store::write(&database, "long", entries, true).await?;
    history_store::write(&database, "whole", entries, false).await?;

    let server = bench.reseed(&database).await?;
    warm(bench, &server).await?;
    let opened = median(openings(&server, "long").await?);
    figures.add(&format!("history: open a session of {entries} entries"), ms(opened), "ms", Goal::AtMost(50.0));
    let opened = median(openings(&server, "whole").await?);
    let name = format!("history: the same, none of them compacted: all {entries} in the context");
    figures.add(&name, ms(opened), "ms", Goal::AtMost(50.0));

    let text = bench.upstream.answer(DELTAS, None);
    let (mut short_times, mut long_times) = (Vec::new(), Vec::new());
    let (mut short_cpu, mut long_cpu) = (Vec::new(), Vec::new());
    let mut short = Client::session(&server, Some("short")).await?;
    let mut long = Client::session(&server, Some("long")).await?;
    for _ in 0..rounds {
        for (client, times, cpu) in
            [(&mut short, &mut short_times, &mut short_cpu), (&mut long, &mut long_times, &mut long_cpu)]
        {
            let before = server.cpu()?;
            for _ in 0..turns * 2 {
                let turn = client.turn("What was said of the receipt?").await?;
                ensure!(turn.text == text, "the answer was {:?}", turn.text);
                times.push(turn.finished);
            }
            cpu.push((server.cpu()? - before).as_secs_f64() * 1e3 / (turns * 2) as f64);
        }
    }
    let (short_time, long_time) = (ms(median(short_times)), ms(median(long_times)));
    figures.add(&format!("history: a turn after {SHORT} entries, latency"), short_time, "ms", Goal::None);
    figures.add(&format!("history: a turn after {entries} entries, latency"), long_time, "ms", Goal::None);
    figures.add("history: latency, long to short", long_time / short_time, "x", Goal::AtMost(1.2));
    let (short_cpu, long_cpu) = (median_of(short_cpu), median_of(long_cpu));
    figures.add(&format!("history: a turn after {SHORT} entries, processor time"), short_cpu, "ms", Goal::None);
    figures.add(&format!("history: a turn after {entries} entries, processor time"), long_cpu, "ms", Goal::None);
    // Below a tick of the clock there is nothing to compare.
    figures.add("history: processor time, long to short", long_cpu / short_cpu.max(0.01), "x", Goal::AtMost(1.2));
    Ok(())
}

/// A turn in a session of its own, so that what is loaded once is loaded.
async fn warm(bench: &Bench, server: &Process) -> anyhow::Result<()> {
    bench.upstream.answer(DELTAS, None);
    Client::session(server, None).await?.turn("Are you there?").await?;
    Ok(())
}

/// How long a session takes to open that is not in memory.
async fn openings(server: &Process, session: &str) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::new();
    for _ in 0..OPENINGS {
        let mut client = Client::connect(server, Speaks::V2, Default::default()).await?;
        client.hello().await?;
        let began = Instant::now();
        client.open(Some(session)).await?;
        times.push(began.elapsed());
        client.close().await?;
    }
    Ok(times)
}
