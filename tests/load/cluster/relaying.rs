//! The cost of a relay: of a client at a server that does not have its session. Beside it, a bare relay copies the
//! bytes of as many sockets from and to the server that has it.

use super::{Sizes, postgres::Server, servers::Servers};
use crate::{
    client::{Client, Reading, Speaks},
    figures::{Figures, Goal, median, ms},
    process::{Bench, Process},
};
use futures_util::{StreamExt as _, TryStreamExt as _, future::try_join_all, stream};
use std::{
    net::SocketAddr,
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

/// The most rounds in which they watch at the edge and at the bare relay, alternating.
const ROUNDS_MAX: usize = 3;

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
    frames(bench, &servers, sizes.relayed.min(WATCHERS), sizes.rounds, figures).await?;
    memory(bench, &servers, sizes.relayed, figures).await
}

/// Connects to a server, and opens this session or a new one.
async fn client(servers: &Servers<'_>, at: usize, session: Option<&str>) -> anyhow::Result<Client> {
    client_at(servers.address(at), session).await
}

async fn client_at(at: SocketAddr, session: Option<&str>) -> anyhow::Result<Client> {
    let mut client = Client::connect_to(at, Speaks::V2, Reading::default()).await?;
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

async fn frames(
    bench: &Bench,
    servers: &Servers<'_>,
    count: usize,
    rounds: usize,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    bench.upstream.answer(DELTAS, Some(PACE));
    let bare = bench.bare_relay(servers.address(0)).await?;
    let mut talker = client(servers, 0, None).await?;
    let session = talker.session_id()?.to_owned();
    let (mut at_edge, mut at_bare) = (Vec::new(), Vec::new());
    for _ in 0..rounds.min(ROUNDS_MAX) {
        let edge = || servers.with(1, |server| server.cpu());
        at_edge.push(frame(&mut talker, servers.address(1), &session, count, edge).await?);
        at_bare.push(frame(&mut talker, bare.address, &session, count, || bare.cpu()).await?);
    }
    let [edge, bare] = [at_edge, at_bare].map(|used| median(used).as_secs_f64() * 1e6);
    let name = format!("cluster: processor time of a frame at the edge, of {count} readers");
    figures.add(&name, edge, "us", Goal::AtMost(2.0));
    figures.add("cluster: processor time of a frame at a bare relay", bare, "us", Goal::None);
    figures.add("cluster: a frame at the edge to one at a bare relay", edge / bare, "x", Goal::None);
    Ok(())
}

/// Has a turn that this many watch at an address; returns the processor time of one of their frames there.
async fn frame(
    talker: &mut Client,
    at: SocketAddr,
    session: &str,
    count: usize,
    cpu: impl Fn() -> anyhow::Result<Duration>,
) -> anyhow::Result<Duration> {
    let mut watchers = try_join_all((0..count).map(|_| client_at(at, Some(session)))).await?;
    let (before, began) = (cpu()?, Instant::now());
    let watched = try_join_all(watchers.iter_mut().map(|watcher| watcher.watch(began)));
    let (watched, _) = tokio::try_join!(watched, talker.turn("And then?"))?;
    let frames: u64 = watched.iter().map(|turn| turn.deltas + turn.events).sum();
    anyhow::ensure!(frames > 0, "nothing was watched");
    Ok((cpu()? - before).div_f64(frames as f64))
}

async fn memory(bench: &Bench, servers: &Servers<'_>, count: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let holders = try_join_all((0..SESSIONS.min(count)).map(|_| client(servers, 0, None))).await?;
    let sessions = holders.iter().map(Client::session_id).collect::<anyhow::Result<Vec<_>>>()?;
    let resident = |at| servers.with(at, Process::resident);
    let before = [settled(|| resident(0)).await?, settled(|| resident(1)).await?];
    let _clients = subscribed(servers.address(1), &sessions, count).await?;
    for (at, what, goal) in [(1, "edge", Goal::AtMost(14.0)), (0, "holder", Goal::None)] {
        let grown = settled(|| resident(at)).await?.saturating_sub(before[at]);
        let name = format!("cluster: memory of a relayed connection at the {what}, of {count}");
        figures.add(&name, kib_of_one(grown, count), "KiB", goal);
    }
    let bare = bench.bare_relay(servers.address(0)).await?;
    let before = settled(|| bare.resident()).await?;
    let _clients = subscribed(bare.address, &sessions, count).await?;
    let grown = settled(|| bare.resident()).await?.saturating_sub(before);
    figures.add("cluster: memory of a connection at a bare relay", kib_of_one(grown, count), "KiB", Goal::None);
    Ok(())
}

fn kib_of_one(bytes: u64, count: usize) -> f64 {
    bytes as f64 / 1024.0 / count as f64
}

/// Connects this many clients, each subscribed to one of these sessions.
async fn subscribed(at: SocketAddr, sessions: &[&str], count: usize) -> anyhow::Result<Vec<Client>> {
    let clients = (0..count).map(|number| client_at(at, Some(sessions[number % sessions.len()])));
    stream::iter(clients).buffer_unordered(AT_ONCE).try_collect().await
}

/// Returns the memory of a process once it does not grow any more.
async fn settled(resident: impl Fn() -> anyhow::Result<u64>) -> anyhow::Result<u64> {
    let mut last = resident()?;
    loop {
        tokio::time::sleep(SETTLED).await;
        let now = resident()?;
        if now <= last {
            return Ok(now);
        }
        last = now;
    }
}
