//! The cost of a long history: opening a session with one, and a turn in it, compared with a short one.

use crate::{
    Sizes,
    client::{Client, Speaks},
    figures::{Figures, Goal, median, median_of, ms},
    history_list, history_store,
    process::{Bench, Process},
};
use anyhow::ensure;
use std::time::{Duration, Instant};

/// Messages of the short session, and of the one that has its whole history in the context.
const SHORT: usize = 1_000;
const WHOLE: usize = 10_000;

/// Deltas of an answer: few, so that the cost of a turn besides streaming shows.
const DELTAS: usize = 5;

/// The number of openings of each session, if there are as many rounds.
const OPENINGS: usize = 9;

pub(crate) async fn measure(
    bench: &Bench,
    Sizes { rounds, turns, entries, listed, .. }: Sizes,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let database = bench.database("history");
    history_store::write(&database, "short", SHORT, true).await?;
    history_store::write(&database, "long", entries, true).await?;
    let whole = entries.min(WHOLE);
    history_store::write(&database, "whole", whole, false).await?;

    let server = bench.reseed(&database).await?;
    warm(bench, &server).await?;
    memory(&server, entries, figures).await?;
    // Alternating, so that a busy machine slows both; each pair gives a ratio of its own.
    let openings = OPENINGS.min(rounds);
    let (mut short_times, mut long_times, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..openings {
        let (short, long) = (opening(&server, "short").await?, opening(&server, "long").await?);
        ratios.push(long.as_secs_f64() / short.as_secs_f64());
        short_times.push(short);
        long_times.push(long);
    }
    figures.add(&format!("history: open a session of {SHORT} entries"), ms(median(short_times)), "ms", Goal::None);
    let opened = ms(median(long_times));
    figures.add(&format!("history: open a session of {entries} entries"), opened, "ms", Goal::AtMost(50.0));
    figures.add("history: opening, long to short", median_of(ratios), "x", Goal::AtMost(1.5));
    let mut whole_times = Vec::new();
    for _ in 0..openings {
        whole_times.push(opening(&server, "whole").await?);
    }
    let name = format!("history: open one of {whole} entries, none compacted: all in the context");
    figures.add(&name, ms(median(whole_times)), "ms", Goal::AtMost(50.0));
    history_list::measure(bench, listed, figures).await?;

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
    // Below the clock's resolution there is nothing to compare.
    figures.add("history: processor time, long to short", long_cpu / short_cpu.max(0.01), "x", Goal::AtMost(1.2));
    Ok(())
}

/// Runs a turn in a session of its own, so that one-time loading is done.
async fn warm(bench: &Bench, server: &Process) -> anyhow::Result<()> {
    bench.upstream.answer(DELTAS, None);
    Client::session(server, None).await?.turn("Are you there?").await?;
    Ok(())
}

/// Measures the memory of two open sessions whose contexts are the same.
async fn memory(server: &Process, entries: usize, figures: &mut Figures) -> anyhow::Result<()> {
    // Once each, so that what is cached for the next one is there.
    for session in ["short", "long", "short", "long"] {
        opening(server, session).await?;
    }
    let before = server.resident()?;
    let mut short = Client::session(server, Some("short")).await?;
    let with_short = server.resident()?;
    let mut long = Client::session(server, Some("long")).await?;
    let with_long = server.resident()?;
    let kib = |bytes: u64, less: u64| bytes.saturating_sub(less) as f64 / 1024.0;
    figures.add(&format!("history: memory of one of {SHORT} entries"), kib(with_short, before), "KiB", Goal::None);
    let more = kib(with_long, with_short);
    // Of its 100,000 entries the text alone would be 20 MiB.
    figures.add(&format!("history: memory of one of {entries} entries"), more, "KiB", Goal::AtMost(1024.0));
    short.close().await?;
    long.close().await
}

/// Returns the time to open a session that is not in memory.
pub(crate) async fn opening(server: &Process, session: &str) -> anyhow::Result<Duration> {
    let mut client = Client::connect(server, Speaks::V2, Default::default()).await?;
    client.hello().await?;
    let began = Instant::now();
    client.open(Some(session)).await?;
    let opened = began.elapsed();
    client.close().await?;
    Ok(opened)
}
