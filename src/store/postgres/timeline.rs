//! The timeline of the server's log, which changes when a standby takes over and when a backup is restored: then the
//! database may lack the end of what it has acknowledged.
//!
//! A session gets a new epoch at its next opening (`session.rs`). What this module adds is that a running server
//! notices with its first connection to the other copy, and never goes back to the one before: a primary that was
//! replaced but still takes writes would acknowledge what is lost. Connections that began before are used no more. A
//! server that starts asks all hosts for theirs first (`Connector::survey`), and uses none that is behind another.

use crate::metrics;
use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};
use tokio_postgres::{Client, SimpleQueryMessage};

/// The timeline of a server that takes writes: eight hexadecimal digits, so that texts are ordered as numbers.
pub(super) const TIMELINE: &str = "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)";

/// Where a log is continued: the timeline of the server, the server's own identifier, the database and the table. The
/// first changes when a standby takes over and with a restore to a point in time, the others when a dump is restored
/// into another server, database or schema, or the table is made anew. What is the same afterwards, such as a copy of
/// the server's files, only its operator can tell (`reseed restored`).
pub(super) const LINEAGE: &str = "concat_ws('.', substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), \
                                  (SELECT system_identifier FROM pg_control_system()), \
                                  (SELECT oid FROM pg_database WHERE datname = current_database()), \
                                  'session'::regclass::oid)";

/// Remembers what the connections of one store have found.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The newest timeline; empty before the first connection.
    newest: String,
    failovers: u64,
    /// When the last one was found.
    found_at: Option<Instant>,
}

impl Timelines {
    /// Returns how often a newer timeline was found.
    pub(super) fn failovers(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failovers
    }

    /// Returns true if a connection that began then may lead to the copy that was replaced since.
    pub(super) fn has_left(&self, began: Instant) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).found_at.is_some_and(|found| began < found)
    }

    /// Looks which timeline a new connection leads to. An older one than was found before is refused as a server that
    /// cannot be used now.
    pub(super) async fn enter(&self, client: &Client) -> Result<(), tokio_postgres::Error> {
        let newest = self.state.lock().unwrap_or_else(PoisonError::into_inner).newest.clone();
        let sql = format!(
            "DO $$ BEGIN IF {TIMELINE} < '{newest}' THEN RAISE EXCEPTION 'this server is on timeline %, and timeline \
             {newest} was in use: stop the primary that was replaced; if a backup was restored, restart reseed', \
             {TIMELINE} USING ERRCODE = 'cannot_connect_now'; END IF; END $$; SELECT {TIMELINE}"
        );
        let found = queried(client, &sql).await?;
        self.found(&found);
        Ok(())
    }

    /// Returns true if some connection has found a timeline.
    pub(super) fn is_known(&self) -> bool {
        !self.state.lock().unwrap_or_else(PoisonError::into_inner).newest.is_empty()
    }

    /// Sets the newest timeline of all hosts, before the first connection.
    pub(super) fn begin(&self, newest: String) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).newest = newest;
    }

    fn found(&self, timeline: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *timeline <= *state.newest {
            return;
        }
        let before = std::mem::replace(&mut state.newest, timeline.to_owned());
        if before.is_empty() {
            return;
        }
        state.failovers += 1;
        state.found_at = Some(Instant::now());
        drop(state);
        metrics::store_timeline_changed();
        tracing::error!(
            before,
            now = timeline,
            "the database is on another timeline: a standby has taken over, or a backup was restored. What the one \
             before had acknowledged may be lost; sessions get a new epoch when they are opened again"
        );
    }
}

/// Returns the timeline of the server that a connection leads to.
pub(super) async fn of(client: &Client) -> Result<String, tokio_postgres::Error> {
    queried(client, &format!("SELECT {TIMELINE}")).await
}

/// Returns the text that a query answers with.
async fn queried(client: &Client, sql: &str) -> Result<String, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    let found = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(found.unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::Timelines;

    #[test]
    fn only_a_newer_timeline_is_a_failover() {
        let timelines = Timelines::default();
        let counts = ["00000009", "00000009", "0000000A", "0000000A", "00000009", "00000010"].map(|timeline| {
            timelines.found(timeline);
            timelines.failovers()
        });
        assert_eq!(counts, [0, 0, 1, 1, 1, 2]);
    }
}
