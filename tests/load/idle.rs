//! Memory of idle connections.

use crate::{
    client::{Client, Reading, Speaks},
    figures::{Figures, Goal},
    process::{Bench, Process},
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use std::time::Duration;

/// Connections made at a time.
const AT_ONCE: usize = 64;

/// Sessions that one connection subscribes to, of the 64 that it may.
const SUBSCRIPTIONS: usize = 50;

/// The time without growth after which the memory counts as settled.
const SETTLED: Duration = Duration::from_millis(500);

pub(crate) async fn measure(bench: &Bench, connections: usize, figures: &mut Figures) -> anyhow::Result<()> {
    let server = bench.reseed(&bench.database("idle")).await?;
    bench.upstream.answer(10, None);
    // What is loaded once, mainly the tokenizer, belongs to no connection.
    let mut first = Client::session(&server, None).await?;
    first.turn("Are you there?").await?;

    let before = settled(&server).await?;
    let clients: Vec<Client> = stream::iter(0..connections)
        .map(|_| Client::connect(&server, Speaks::V2, Reading::default()))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let name = format!("idle: memory of a connection without a session, of {connections}");
    figures.add(&name, share(before, settled(&server).await?, connections), "KiB", Goal::AtMost(10.0));

    let clients: Vec<Client> = stream::iter(clients)
        .map(async |mut client| {
            client.hello().await?;
            client.open(None).await?;
            anyhow::Ok(client)
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let name = format!("idle: memory of a connection with an open session, of {connections}");
    figures.add(&name, share(before, settled(&server).await?, connections), "KiB", Goal::AtMost(16.0));

    let before_more = settled(&server).await?;
    let sessions = clients.iter().map(Client::session_id).collect::<anyhow::Result<Vec<_>>>()?;
    // A client of its own subscribes to so many of them.
    let mut watchers = Vec::new();
    for sessions in sessions.chunks(SUBSCRIPTIONS) {
        let mut client = Client::connect(&server, Speaks::V2, Reading::default()).await?;
        client.hello().await?;
        for session in sessions {
            client.open(Some(session)).await?;
        }
        watchers.push(client);
    }
    let name = format!("idle: memory of a further subscription, of {SUBSCRIPTIONS} a connection");
    figures.add(&name, share(before_more, settled(&server).await?, sessions.len()), "KiB", Goal::AtMost(6.0));
    drop(watchers);

    let mut clients: Vec<Client> = stream::iter(clients)
        .map(async |mut client| {
            client.turn("Are you there?").await?;
            anyhow::Ok(client)
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let name = format!("idle: memory of a connection after a turn, of {connections}");
    figures.add(&name, share(before, settled(&server).await?, connections), "KiB", Goal::None);
    // They are still connected.
    for client in clients.iter_mut().step_by(10) {
        client.ask("ping", serde_json::json!({}), "pong").await?;
    }
    // Their sessions are unloaded with them.
    drop(clients);
    let name = format!("idle: memory of a session whose client has left, of {connections}");
    figures.add(&name, share(before, settled(&server).await?, connections), "KiB", Goal::None);
    Ok(())
}

/// Returns the server's memory once it has stopped growing.
pub(crate) async fn settled(server: &Process) -> anyhow::Result<u64> {
    let mut resident = server.resident()?;
    loop {
        tokio::time::sleep(SETTLED).await;
        let now = server.resident()?;
        if now <= resident {
            return Ok(now);
        }
        resident = now;
    }
}

pub(crate) fn share(before: u64, now: u64, connections: usize) -> f64 {
    now.saturating_sub(before) as f64 / 1024.0 / connections as f64
}
