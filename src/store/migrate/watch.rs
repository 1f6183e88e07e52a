//! Checks whether the servers that a database lists are alive.

use crate::{Cluster, Error, NodeId, NodeRow};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The interval at which the list is read. A living server beats every fifth of its lease, and a lease is at least 2 s.
const LOOK: Duration = Duration::from_millis(250);

/// A server, and its counter.
pub(crate) type Beat = (NodeId, u64);

/// The result of watching the servers that a database lists.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// All of these have been silent for their lease, or there are none.
    Silent(Vec<Beat>),
    /// Servers with these names are alive.
    Alive(String),
}

/// Watches the servers that a database lists until one of them beats or all leases have passed. `announce` receives
/// their names and how many seconds this may take. A database that only one process can open lists none.
pub(crate) async fn watch(
    cluster: Option<&dyn Cluster>,
    announce: &mut (dyn FnMut(String, u64) + Send),
) -> Result<Watched, Error> {
    let Some(cluster) = cluster else { return Ok(Watched::Silent(Vec::new())) };
    let rows = cluster.nodes().await?;
    let first = beats(&rows);
    let Some(lease) = rows.iter().map(|row| row.node.lease).max() else { return Ok(Watched::Silent(first)) };
    announce(names(&rows), lease.as_secs());
    let until = Instant::now() + lease;
    while Instant::now() < until {
        sleep(LOOK).await;
        let mut living = cluster.nodes().await?;
        living.retain(|row| !first.contains(&(row.id, row.beat)));
        if !living.is_empty() {
            return Ok(Watched::Alive(names(&living)));
        }
    }
    Ok(Watched::Silent(first))
}

pub(super) fn beats(rows: &[NodeRow]) -> Vec<Beat> {
    rows.iter().map(|row| (row.id, row.beat)).collect()
}

/// Names the servers for people.
pub(super) fn names(rows: &[NodeRow]) -> String {
    rows.iter().map(|row| format!("server {} (`{}`)", row.id, row.node.name)).collect::<Vec<_>>().join(", ")
}
