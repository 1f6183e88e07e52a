//! Well-behaved users beside attackers.

use crate::{
    attackers,
    client::{Client, Reading, Speaks},
    figures::{Figures, Goal, ms},
    process::{Bench, Process},
};
use anyhow::ensure;
use futures_util::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// The attacker's token.
const MALLORY: &str = "token-of-mallory-b80a63ee19";

/// Deltas of an answer, one each few milliseconds, as models send them.
const DELTAS: usize = 20;
const PACE: Duration = Duration::from_millis(5);

/// The longest that a user thinks before the next input.
const THINKS: Duration = Duration::from_secs(2);

/// How often the memory is looked at.
const LOOKS: Duration = Duration::from_millis(200);

/// The bound on the server's memory under attack: what the bounds of one user and of all strangers add up to, and as
/// much again for the allocator.
const MEMORY_MIB_MAX: f64 = 768.0;

/// Connections that are opened at once.
const AT_ONCE: usize = 16;

pub(crate) async fn measure(bench: &Bench, users: usize, secs: u64, figures: &mut Figures) -> anyhow::Result<()> {
    let base_url = bench.upstream.base_url();
    let tokens: Vec<String> = (0..users).map(|number| format!("user{number}:{}", token(number))).collect();
    let tokens = format!("mallory:{MALLORY},{}", tokens.join(","));
    let settings = [
        ("OPENAI_BASE_URL", base_url.as_str()),
        ("CONTEXT_WINDOW", "1000000"),
        ("AUTH_TOKENS", tokens.as_str()),
        ("TRUSTED_PROXIES", attackers::PROXIES),
    ];
    let server = bench.reseed_with(&bench.database("hostile"), &settings).await?;
    let text = bench.upstream.answer(DELTAS, Some(PACE));
    let mut clients: Vec<Client> = stream::iter(0..users)
        .map(async |number| {
            let mut client = Client::connect(&server, Speaks::V2, Reading::default()).await?;
            client.hello_as(&token(number)).await?;
            client.open(None).await?;
            anyhow::Ok(client)
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    // One-time loading.
    talk(&mut clients, Duration::from_secs(1), &text).await?;
    let time = Duration::from_secs(secs);
    let quiet = talk(&mut clients, time, &text).await?;
    let before = server.resident()?;
    let mut attackers = bench.attackers(server.address, MALLORY)?;
    let largest = AtomicU64::new(before);
    let begun = server.cpu()?;
    let attacked = tokio::select! {
        talked = talk(&mut clients, time, &text) => talked?,
        failed = look(&server, &largest) => return Err(failed),
    };
    attackers.check()?;
    let used = server.cpu()?.saturating_sub(begun);
    drop(attackers);
    let after = talk(&mut clients, time, &text).await?;
    let mib = |bytes: u64| bytes as f64 / 1024.0 / 1024.0;
    let turns = quiet.len() + attacked.len() + after.len();
    let [quiet, attacked, after] =
        [quiet, attacked, after].map(|times| (percentile(times.clone(), 50), percentile(times, 95)));
    for (when, (median, most)) in [("quiet", quiet), ("attacked", attacked), ("afterwards", after)] {
        figures.add(&format!("hostile: to the first delta, median, {when}"), ms(median), "ms", Goal::None);
        figures.add(&format!("hostile: to the first delta, 95 of 100, {when}"), ms(most), "ms", Goal::None);
    }
    let ratio = ms(attacked.1) / ms(quiet.1).max(0.01);
    let name = format!("hostile: 95 of 100 attacked to quiet, {users} users, {turns} turns");
    figures.add(&name, ratio, "x", Goal::AtMost(3.0));
    let share = used.as_secs_f64() / time.as_secs_f64();
    figures.add("hostile: processors that the server used under attack", share, "", Goal::None);
    figures.add("hostile: memory before the attack", mib(before), "MiB", Goal::None);
    let most = mib(largest.into_inner());
    figures.add("hostile: most memory under attack", most, "MiB", Goal::AtMost(MEMORY_MIB_MAX));
    Ok(())
}

/// Returns a well-behaved user's token.
fn token(number: usize) -> String {
    format!("token-of-user-27c1d0f4be-{number}")
}

/// Lets all users talk for this long; returns the times to the first delta. Every turn must succeed.
async fn talk(clients: &mut [Client], time: Duration, text: &str) -> anyhow::Result<Vec<Duration>> {
    let began = Instant::now();
    let talks = clients.iter_mut().map(async |client| {
        let mut times = Vec::new();
        loop {
            tokio::time::sleep(THINKS.mul_f64(fastrand::f64())).await;
            if began.elapsed() >= time && !times.is_empty() {
                return anyhow::Ok(times);
            }
            let turn = client.turn("How is the sea?").await?;
            ensure!(turn.text == text, "the answer was {:?}", turn.text);
            times.push(turn.first_delta);
        }
    });
    Ok(try_join_all(talks).await?.concat())
}

/// Keeps the largest memory that the server had.
async fn look(server: &Process, largest: &AtomicU64) -> anyhow::Error {
    loop {
        tokio::time::sleep(LOOKS).await;
        match server.resident() {
            Ok(resident) => largest.fetch_max(resident, Ordering::Relaxed),
            Err(error) => return error.context("the server is gone"),
        };
    }
}

/// Returns the time within which so many of a hundred were.
fn percentile(mut times: Vec<Duration>, of_hundred: usize) -> Duration {
    times.sort_unstable();
    times.get((times.len() * of_hundred / 100).min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}
