//! The number of turns, and of their durable events, that many sessions complete at once.

use crate::{
    appends_store,
    client::Client,
    figures::{Figures, Goal, median, ms},
    process::Bench,
};
use futures_util::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use std::time::{Duration, Instant};

/// Sessions opened at a time.
const AT_ONCE: usize = 64;

/// The most rounds of the store and its floor.
const ROUNDS_MAX: usize = 5;

pub(crate) async fn measure(
    bench: &Bench,
    sessions: usize,
    secs: u64,
    rounds: usize,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    appends_store::measure(bench, sessions, rounds.min(ROUNDS_MAX), secs.min(3), figures).await?;
    let server = bench.reseed(&bench.database("appends")).await?;
    bench.upstream.answer(1, None);
    let clients: Vec<Client> = stream::iter(0..sessions)
        .map(|_| Client::session(&server, None))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let (began, cpu) = (Instant::now(), server.cpu()?);
    let until = began + Duration::from_secs(secs);
    let talks = clients.into_iter().map(async |mut client| {
        let (mut times, mut events) = (Vec::new(), 0);
        while Instant::now() < until {
            let turn = client.turn("And then?").await?;
            times.push(turn.finished);
            events += turn.events;
        }
        anyhow::Ok((times, events))
    });
    let done = try_join_all(talks).await?;
    let (lasted, cpu) = (began.elapsed().as_secs_f64(), server.cpu()? - cpu);
    let events: u64 = done.iter().map(|(_, events)| events).sum();
    let times: Vec<Duration> = done.into_iter().flat_map(|(times, _)| times).collect();
    let turns = times.len() as f64;
    figures.add(&format!("appends: turns of {sessions} sessions at once"), turns / lasted, "/s", Goal::None);
    figures.add("appends: durable events", events as f64 / lasted, "/s", Goal::None);
    figures.add("appends: processor time of a turn", ms(cpu) / turns, "ms", Goal::None);
    figures.add("appends: a turn, in the middle", ms(median(times)), "ms", Goal::None);
    Ok(())
}
