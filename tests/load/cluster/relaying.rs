//! The cost of a relay: of a client at a server that does not have its session.

use super::{Sizes, postgres::Server, servers::Servers};
use crate::{
    client::{Client, Reading, Speaks},
    figures::{Figures, Goal, median, ms},
    process::Bench,
};
use futures_util::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Sessions of the relayed connections.
const SESSIONS: usize = 50;

/// Connections made at a time.
const AT_ONCE: usize = 32;

/// An answer whose deltas come one by one.
const DELTAS: usize = 200;
const PACE: Duration = Duration::from_millis(2);

/// Connections that watch one session, for the cost of a frame.
const WATCHERS: usize = 100;

/// The time without growth after which the memory counts as settled.
const SETTLED: Duration = Duration::from_millis(500);

pub(super) async fn measure(
    bench: &Bench,
    server: &Arc<Server>,
    sizes: Sizes,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let servers = Servers::start(bench, server.database(""), 2).await?;
    first_delta(bench, &servers, sizes.turns, figures).await?;
    frames(bench, &servers, sizes.relayed.min(WATCHERS), figures).await?;
    memory(&servers, sizes.relayed, figures).await
}

/// Connects to a server, and opens this session or a new one.
async fn client(servers: &Servers<'_>, at: usize, session: Option<&str>) -> anyhow::Result<Client> {
    let mut client = Client::connect_to(servers.address(at), Speaks::V2, Reading::default()).await?;
    client.hello().await?;
    client.open(session).await?;
    Ok(client)
}

async fn first_delta(bench: &Bench, servers: &Servers<'_>, turns: usize, figures: &mut Figures) -> anyhow::Result<()> {
    bench.upstream.answer(5, None);
    let mut direct = client(servers, 0, None).await?;
    let holder = client(servers, 0, None).await?;
    let mut relayed = client(servers, 1, Some(holder.session_id()?)).await?;
    let (mut directly, mut through) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        directly.push(direct.turn("And then?").await?.first_delta);
        through.push(relayed.turn("And then?").await?.first_delta);
    }
    let (directly, through) = (ms(median(directly)), ms(median(through)));
    figures.add("cluster: to the first delta, directly", directly, "ms", Goal::None);
    figures.add("cluster: to the first delta, more through a relay", through - directly, "ms", Goal::AtMost(0.3));
    Ok(())
}

async fn frames(bench: &Bench, servers: &Servers<'_>, count: usize, figures: &mut Figures) -> anyhow::Result<()> {
    bench.upstream.answer(DELTAS, Some(PACE));
    let mut talker = client(servers, 0, None).await?;
    let session = talker.session_id()?.to_owned();
    let mut watchers = try_join_all((0..count).map(|_| client(servers, 1, Some(&session)))).await?;
    let before = servers.with(1, |server| server.cpu())?;
    let began = Instant::now();
    let watched = try_join_all(watchers.iter_mut().map(|watcher| watcher.watch(began)));
    let (watched, _) = tokio::try_join!(watched, talker.turn("And then?"))?;
    let used = servers.with(1, |server| server.cpu())? - before;
    let frames: u64 = watched.iter().map(|turn| turn.deltas + turn.events).sum();
    let name = format!("cluster: processor time of a frame at the edge, of {frames}");
    figures.add(&name, used.as_secs_f64() * 1e6 / frames as f64, "us", Goal::AtMost(2.0));
    Ok(())
}

async fn memory(servers: &Servers<'_>, count: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let holders = try_join_all((0..SESSIONS).map(|_| client(servers, 0, None))).await?;
    let sessions = holders.iter().map(Client::session_id).collect::<anyhow::Result<Vec<_>>>()?;
    let before = [settled(servers, 0).await?, settled(servers, 1).await?];
    let sessions = &sessions;
    let _clients: Vec<Client> = stream::iter(0..count)
        .map(|number| client(servers, 1, Some(sessions[number % SESSIONS])))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    for (at, what, goal) in [(1, "edge", Goal::AtMost(14.0)), (0, "holder", Goal::None)] {
        let grown = settled(servers, at).await?.saturating_sub(before[at]);
        let name = format!("cluster: memory of a relayed connection at the {what}, of {count}");
        figures.add(&name, grown as f64 / 1024.0 / count as f64, "KiB", goal);
    }
    Ok(())
}

async fn settled(servers: &Servers<'_>, at: usize) -> anyhow::Result<u64> {
    let mut last = servers.with(at, |server| server.resident())?;
    loop {
        tokio::time::sleep(SETTLED).await;
        let now = servers.with(at, |server| server.resident())?;
        if now <= last {
            return Ok(now);
        }
        last = now;
    }
}
