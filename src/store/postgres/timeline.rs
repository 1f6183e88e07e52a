//! The timeline of the server's log. It changes when a standby takes over and when a backup is restored; the database
//! may then lack the last acknowledged records.
//!
//! A session gets a new epoch at its next opening (`session.rs`). This module makes a running server notice the change
//! with its first connection to the other copy, and never return to the old one: a replaced primary that still accepts
//! writes would acknowledge writes that are lost. Connections made before the change are no longer used. A starting
//! server first asks all hosts for their timelines (`Connector::survey`), and uses none that is behind another.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};
use tokio_postgres::{Client, SimpleQueryMessage};

/// The timeline of a server that accepts writes: eight hexadecimal digits, so that texts sort like numbers.
pub(super) const TIMELINE: &str = "substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)";

/// The lineage of a log: the server's timeline, the server's own identifier, the database and the table. The first
/// changes when a standby takes over and after a point-in-time recovery. The others change when a dump is restored into
/// another server, database or schema, or the table is created anew. A file-level copy of the server changes none of
/// them; only its operator can report that (`reseed restored`).
pub(super) const LINEAGE: &str = "concat_ws('.', substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), \
                                  (SELECT system_identifier FROM pg_control_system()), \
                                  (SELECT oid FROM pg_database WHERE datname = current_database()), \
                                  'session'::regclass::oid)";

/// The timelines that the connections of one store have found.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The newest timeline; empty before the first connection.
    newest: String,
    failovers: u64,
    /// The time at which the last failover was found.
    found_at: Option<Instant>,
}

impl Timelines {
    /// Returns how often a newer timeline was found.
    pub(super) fn failovers(&self) -> u64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).failovers
    }

    /// Returns true if a connection made at this time may lead to a copy that has been replaced since.
    pub(super) fn has_left(&self, began: Instant) -> bool {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).found_at.is_some_and(|found| began < found)
    }

    /// Checks which timeline a new connection leads to. One that is older than the newest found is refused, as a server
    /// that cannot be used now would be.
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

    /// Returns true if any connection has found a timeline.
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
        metrics::counter!(crate::TIMELINE_CHANGES_TOTAL).increment(1);
        tracing::error!(
            before,
            now = timeline,
            "the database is on another timeline: a standby has taken over, or a backup was restored. Writes that the \
             previous one acknowledged may be lost; sessions get a new epoch when they are opened again"
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
