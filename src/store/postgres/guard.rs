//! Holds the database for one server: a lock of the database's that lives as long as a connection.
//!
//! Two servers would do no harm to a log: each opening raises the term, and the database refuses the older writer. But
//! they would take sessions from each other, and settle each other's forks. So a second one does not start.

use super::{
    connection::{Connection, Connector},
    fault::Fault,
    readers::Pauses,
    schema,
};
use std::time::Duration;
use tokio::{task::JoinHandle, time::Instant};

/// The interval at which the connection is looked at. A server that is gone takes its lock with it, so this is only how
/// soon the lock is taken again after the database was away.
const LOOK: Duration = Duration::from_secs(1);

/// The lock. Dropping it gives it back.
pub(super) struct Guard(JoinHandle<()>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Guard {
    /// Takes the lock on this connection, and keeps it from then on. Waits for a server that is ending. Returns `None`
    /// if another one holds it.
    pub(super) async fn take(
        first: Connection,
        connector: Connector,
        schema: &str,
        patience: Duration,
    ) -> Result<Option<Self>, Fault> {
        let key = schema::lock_key(schema);
        let mut pauses = Pauses::until(Instant::now() + patience);
        while !try_lock(&first, key).await? {
            if !pauses.wait().await {
                return Ok(None);
            }
        }
        Ok(Some(Self(tokio::spawn(keep(first, connector, key)))))
    }
}

async fn try_lock(db: &Connection, key: i64) -> Result<bool, Fault> {
    let rows = db.rows("SELECT pg_try_advisory_lock($1)", &[&key]).await?;
    Ok(rows.first().is_some_and(|row| row.get(0)))
}

async fn keep(mut held: Connection, connector: Connector, key: i64) {
    let mut is_told = false;
    loop {
        tokio::time::sleep(LOOK).await;
        if !held.is_closed() {
            continue;
        }
        // The database was away. Writers and readers report that.
        let Ok(next) = connector.connect().await else { continue };
        match try_lock(&next, key).await {
            Ok(true) => {
                is_told = false;
                held = next;
            }
            Ok(false) if !is_told => {
                is_told = true;
                tracing::error!("another server has taken the database; stop one of the two");
            }
            _ => {}
        }
    }
}
