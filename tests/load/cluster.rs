//! Several servers on one PostgreSQL: its store against a bare writer and SQLite, relays, and nodes that come and go.
//!
//! PostgreSQL is started by this program, with everything that makes it durable.

mod failing;
mod relaying;
mod resting;
mod servers;
mod store;

use crate::{figures::Figures, process::Bench};
use std::sync::Arc;

#[path = "../support/postgres.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "the tests need all of it, and fail by panics")]
mod postgres;

/// What docker/README.md recommends, on a machine that does other things too.
const CONFIGURATION: &str = "shared_buffers = 256MB\nwal_compression = lz4";

/// The sizes of the measurements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    /// Megabytes of write-ahead log that PostgreSQL keeps on the disk.
    pub(crate) wal_max_mb: u32,
    /// Sessions that append at once, the rounds of that, and the seconds of each.
    pub(crate) appenders: usize,
    pub(crate) rounds: usize,
    pub(crate) append_secs: u64,
    /// Seconds for which a snapshot is held open.
    pub(crate) snapshot_secs: u64,
    /// Sessions in a list.
    pub(crate) listed: u32,
    /// Entries of a session that was never compacted.
    pub(crate) entries: usize,
    /// Relayed connections.
    pub(crate) relayed: usize,
    /// Turns for the time to the first delta.
    pub(crate) turns: usize,
    /// Sessions of a server that is killed.
    pub(crate) killed: usize,
    /// Clients that talk while servers are replaced, and while PostgreSQL restarts.
    pub(crate) talkers: usize,
    /// Sessions that rest, and the seconds for which they are watched.
    pub(crate) resting: usize,
    pub(crate) rest_secs: u64,
}

pub(crate) const SMOKE: Sizes = Sizes {
    wal_max_mb: 128,
    appenders: 10,
    rounds: 1,
    append_secs: 1,
    snapshot_secs: 1,
    listed: 100,
    entries: 200,
    relayed: 10,
    turns: 2,
    killed: 5,
    talkers: 6,
    resting: 50,
    rest_secs: 1,
};

pub(crate) const FULL: Sizes = Sizes {
    wal_max_mb: 2_048,
    appenders: 200,
    rounds: 5,
    append_secs: 3,
    snapshot_secs: 60,
    listed: 10_000,
    entries: 10_000,
    relayed: 1_000,
    turns: 150,
    killed: 500,
    talkers: 200,
    resting: 10_000,
    rest_secs: 20,
};

pub(crate) async fn measure(bench: &Bench, sizes: Sizes, figures: &mut Figures) -> anyhow::Result<()> {
    let configuration = format!("{CONFIGURATION}\nmax_wal_size = {}MB", sizes.wal_max_mb);
    let server = tokio::task::spawn_blocking(move || Arc::new(postgres::Server::start(&configuration))).await?;
    store::measure(bench, &server, sizes, figures).await?;
    relaying::measure(bench, &server, sizes, figures).await?;
    failing::measure(bench, &server, sizes, figures).await?;
    resting::measure(bench, &server, sizes, figures).await
}
