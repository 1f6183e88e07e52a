//! A server that is killed, servers that are replaced one after the other, and a PostgreSQL that restarts.

use super::{
    Sizes,
    postgres::Server,
    servers::{Servers, Visitor},
};
use crate::{
    figures::{Figures, Goal, ms},
    process::Bench,
};
use anyhow::ensure;
use futures_util::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Sessions created at a time.
const AT_ONCE: usize = 32;

/// An answer of a tenth of a second: shorter than the grace of a server that stops.
const DELTAS: usize = 20;
const PACE: Duration = Duration::from_millis(5);

/// Time in which nothing happens, before and after each step.
const BETWEEN: Duration = Duration::from_millis(500);

pub(super) async fn measure(
    bench: &Bench,
    server: &Arc<Server>,
    sizes: Sizes,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    killed(bench, server, sizes.killed, figures).await?;
    replaced(bench, server, sizes.talkers, figures).await?;
    restarted(bench, server, sizes.talkers, figures).await
}

/// Creates sessions, at this server or at all in turns.
async fn visitors<'a>(servers: &'a Servers<'a>, count: usize, at: Option<usize>) -> anyhow::Result<Vec<Visitor<'a>>> {
    stream::iter(0..count)
        .map(|number| Visitor::new(servers, at.unwrap_or(number % servers.count())))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

async fn killed(bench: &Bench, server: &Server, count: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let text = bench.upstream.answer(1, None);
    let servers = Servers::start(bench, server.database(""), 3).await?;
    let mut visitors = visitors(&servers, count, Some(0)).await?;
    for visitor in &mut visitors {
        visitor.turn(&text).await?;
    }
    let gone = servers.take(0)?;
    let began = Instant::now();
    gone.kill()?;
    let back = visitors.iter_mut().map(async |visitor| {
        visitor.cut().await;
        visitor.back().await?;
        anyhow::Ok(began.elapsed())
    });
    let mut times = try_join_all(back).await?;
    times.sort_unstable();
    let [first, .., last] = times[..] else { anyhow::bail!("{count} sessions are too few") };
    let name = format!("cluster: of {count} sessions of a killed server, the first elsewhere");
    figures.add(&name, first.as_secs_f64(), "s", Goal::AtMost(6.5));
    figures.add("cluster: the last", last.as_secs_f64(), "s", Goal::AtMost(9.0));
    for visitor in &mut visitors {
        visitor.turn(&text).await?;
    }
    Ok(())
}

/// Lets all visitors talk while `meanwhile` runs; returns what it returns.
async fn talking<T>(
    visitors: &mut [Visitor<'_>],
    text: &str,
    meanwhile: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let is_over = AtomicBool::new(false);
    let talks = visitors.iter_mut().map(async |visitor| {
        while !is_over.load(Ordering::Relaxed) {
            visitor.turn(text).await?;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(..500))).await;
        }
        anyhow::Ok(())
    });
    let ended = async {
        tokio::time::sleep(BETWEEN).await;
        let done = meanwhile.await?;
        tokio::time::sleep(BETWEEN).await;
        is_over.store(true, Ordering::Relaxed);
        anyhow::Ok(done)
    };
    let (done, _) = tokio::try_join!(ended, try_join_all(talks))?;
    Ok(done)
}

async fn replaced(bench: &Bench, server: &Server, count: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let text = bench.upstream.answer(DELTAS, Some(PACE));
    let servers = Servers::start(bench, server.database(""), 3).await?;
    let mut visitors = visitors(&servers, count, None).await?;
    let replace = async {
        for at in 0..servers.count() {
            servers.take(at)?.stop().await?;
            servers.start_again(at).await?;
            tokio::time::sleep(BETWEEN).await;
        }
        anyhow::Ok(())
    };
    talking(&mut visitors, &text, replace).await?;
    let lost: usize = visitors.iter().map(|visitor| visitor.lost).sum();
    let mut away: Vec<Duration> = visitors.iter().flat_map(|visitor| visitor.away.iter().copied()).collect();
    ensure!(!away.is_empty(), "nobody was sent away");
    away.sort_unstable();
    let p99 = away[(away.len() * 99 / 100).min(away.len() - 1)];
    let name = format!("cluster: turns lost while 3 servers were replaced under {count} talks");
    figures.add(&name, lost as f64, "", Goal::AtMost(0.0));
    let name = format!("cluster: 99 of 100 back on another server, of {}", away.len());
    figures.add(&name, ms(p99), "ms", Goal::AtMost(2_000.0));
    Ok(())
}

async fn restarted(bench: &Bench, server: &Arc<Server>, count: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let text = bench.upstream.answer(DELTAS, Some(PACE));
    let servers = Servers::start(bench, server.database(""), 3).await?;
    let mut visitors = visitors(&servers, count, None).await?;
    for mode in ["fast", "immediate"] {
        let began = Instant::now();
        let restart = async {
            let server = server.clone();
            tokio::task::spawn_blocking(move || server.control(&["-m", mode, "restart"])).await?;
            anyhow::Ok(began.elapsed())
        };
        let took = talking(&mut visitors, &text, restart).await?;
        figures.add(&format!("cluster: PostgreSQL restarted ({mode}) in"), took.as_secs_f64(), "s", Goal::None);
        let closed: usize = visitors.iter_mut().map(|visitor| std::mem::take(&mut visitor.away).len()).sum();
        let name = format!("cluster: of {count} talks, cut off by that");
        figures.add(&name, closed as f64, "", Goal::AtMost(0.0));
    }
    Ok(())
}
