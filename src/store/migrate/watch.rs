//! Checks whether the servers that a database lists are alive.

use super::{rows::User, side::Source};
use crate::Error;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The interval at which the list is read. A living server beats every fifth of its lease, and a lease is at least 2 s.
const LOOK: Duration = Duration::from_millis(250);

/// The result of watching the servers that a database lists.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// All of these have been silent for their lease, or there are none.
    Silent(Vec<User>),
    /// Servers with these names are alive.
    Alive(String),
}

/// Watches the servers that a database lists until one of them beats or all leases have passed. `announce` receives
/// their names and how many seconds this may take.
pub(crate) async fn watch(
    database: &mut dyn Source,
    announce: &mut (dyn FnMut(String, u64) + Send),
) -> Result<Watched, Error> {
    let first = database.users().await?;
    let Some(lease) = first.iter().map(|user| user.lease).max() else { return Ok(Watched::Silent(first)) };
    announce(names(&first), lease.as_secs());
    let until = Instant::now() + lease;
    while Instant::now() < until {
        sleep(LOOK).await;
        let now = database.users().await?;
        let living: Vec<User> = now.into_iter().filter(|user| !first.contains(user)).collect();
        if !living.is_empty() {
            return Ok(Watched::Alive(names(&living)));
        }
    }
    Ok(Watched::Silent(first))
}

/// Names the servers for people.
pub(super) fn names(users: &[User]) -> String {
    users.iter().map(|user| format!("server {} (`{}`)", user.id, user.name)).collect::<Vec<_>>().join(", ")
}
