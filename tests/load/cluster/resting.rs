//! What sessions that rest cost the database: beats, and nothing for each of them.

use super::{Sizes, postgres::Server, servers::Servers};
use crate::{
    client::{Client, Reading, Speaks},
    figures::{Figures, Goal},
    process::Bench,
};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use std::{fs, sync::Arc, time::Duration};

/// Sessions of one connection, of the 64 that it may have.
const OF_A_CONNECTION: usize = 50;

/// Connections made at a time.
const AT_ONCE: usize = 16;

pub(super) async fn measure(
    bench: &Bench,
    server: &Arc<Server>,
    sizes: Sizes,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let servers = Servers::start(bench, server.database(""), 2).await?;
    let servers = &servers;
    let _clients: Vec<Client> = stream::iter(0..sizes.resting.div_ceil(OF_A_CONNECTION))
        .map(async |number| {
            let address = servers.address(number % servers.count());
            let mut client = Client::connect_to(address, Speaks::V2, Reading::default()).await?;
            client.hello().await?;
            for _ in 0..OF_A_CONNECTION {
                client.open(None).await?;
            }
            anyhow::Ok(client)
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    // The database writes back what was just written.
    server.sql("postgres", "CHECKPOINT");
    let before = used(server)?;
    tokio::time::sleep(Duration::from_secs(sizes.rest_secs)).await;
    // A worker that was counted before may be gone.
    let share = used(server)?.saturating_sub(before).as_secs_f64() / sizes.rest_secs as f64 * 100.0;
    let name = format!("cluster: of a processor, that the database uses for {} idle sessions", sizes.resting);
    figures.add(&name, share, "%", Goal::AtMost(1.0));
    Ok(())
}

/// Returns the processor time of PostgreSQL's processes that run now.
fn used(server: &Server) -> anyhow::Result<Duration> {
    let main = server.pid();
    let mut nanos = 0;
    for process in fs::read_dir("/proc")? {
        let path = process?.path();
        // One that is gone by now does not count.
        let Ok(status) = fs::read_to_string(path.join("stat")) else { continue };
        let fields = status.rsplit_once(')').map_or("", |(_, rest)| rest);
        let parent = fields.split_whitespace().nth(1).and_then(|parent| parent.parse().ok());
        let is_main = path.file_name().is_some_and(|name| name.to_string_lossy() == main.to_string());
        if !is_main && parent != Some(main) {
            continue;
        }
        if let Ok(schedule) = fs::read_to_string(path.join("schedstat")) {
            nanos += schedule.split_whitespace().next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    Ok(Duration::from_nanos(nanos))
}
