//! Deletes sessions that have not changed for as long as `RETENTION_DAYS` says, and records how many. Several servers
//! of one database may do so at the same time: each session is deleted once.

use super::{
    app::App,
    audit::{ASKED, Act},
};
use std::{sync::Arc, time::Duration};
use tokio::time::{MissedTickBehavior, interval};

/// The interval between passes. Sessions are kept for days.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// Deletes old sessions once an hour, and when the setting changes, until the server stops.
pub(crate) fn keep(app: &Arc<App>) {
    let app = app.clone();
    let (mut retention, stopping) = (app.registry.retention(), app.registry.stopping());
    tokio::spawn(async move {
        let mut due = interval(EVERY);
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                _ = due.tick() => {}
                changed = retention.changed() => if changed.is_err() { return },
            }
            tokio::select! {
                () = stopping.cancelled() => return,
                () = pass(&app) => {}
            }
        }
    });
}

/// Deletes the sessions that are due, one page after the other.
async fn pass(app: &App) {
    let (mut cursor, mut deleted) = (None, 0_u64);
    loop {
        let (due, next) = match app.registry.overdue(cursor).await {
            Ok(page) => page,
            Err(error) => return tracing::warn!(%error, "look for old sessions"),
        };
        let mut some = 0;
        if !due.is_empty() && !record(app, ASKED).await {
            return;
        }
        for head in &due {
            match app.registry.delete_overdue(head).await {
                Ok(is_deleted) => some += u64::from(is_deleted),
                // One that cannot be deleted must not keep the others.
                Err(error) => tracing::warn!(%error, session = %head.session, "delete an old session"),
            }
        }
        if !due.is_empty() {
            record(app, &format!("sessions {some}")).await;
        }
        (deleted, cursor) = (deleted + some, next);
        if cursor.is_none() {
            break;
        }
    }
    if deleted > 0 {
        tracing::info!(sessions = deleted, "deleted old sessions");
    }
}

/// Records a step of a pass. Returns false if it cannot be recorded.
async fn record(app: &App, outcome: &str) -> bool {
    let act = Act { who: "RETENTION_DAYS", what: "delete_old", session: None, user: None, address: None, outcome };
    let recorded = app.admission.audit.act(act).await;
    recorded.inspect_err(|error| tracing::error!(error = error.message, "old sessions stay")).is_ok()
}
