//! Watched lists of a cluster: what other nodes change is found by asking the store, while anybody watches.
//!
//! A look is one question for all owners together, so it costs the same however many watch. What this node changes is
//! told at once, without this. A change may be told twice, and is then the same item.

use super::Registry;
use crate::{
    runtime::watch::list_item,
    store::{Changes, Error as StoreError, Head, SessionHead},
};
use reseed_protocol::{
    SessionId, Timestamp,
    reply::{SessionItem, SessionState},
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::{MissedTickBehavior, interval};

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Sessions that were written to this recently are looked at again: their writers' clocks may be late by as much, and
/// so may their commits.
const LOOKED_BACK_MILLIS: i64 = 30_000;

/// A session that changed this recently is told to whoever begins to watch: it may have been just after the list.
const RECENT_MILLIS: i64 = 10_000;

/// A session as it was told.
type Told = (u64, SessionState, String);

/// What the looks so far have seen.
#[derive(Debug, Default)]
struct Seen {
    owners: HashSet<String>,
    /// The sessions that were written to lately, and those whose turns run elsewhere.
    sessions: HashMap<SessionId, (SessionHead, Told)>,
    /// The deletions that the store still repeats.
    deleted: HashSet<SessionId>,
}

impl Registry {
    /// Tells watchers what other nodes change, until the server stops.
    pub fn keep_watching(self: &Arc<Self>) {
        if self.keeper().is_none() {
            return;
        }
        let registry = self.clone();
        self.track(async move {
            let mut due = interval(LOOK_EVERY);
            due.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut seen = Seen::default();
            loop {
                tokio::select! {
                    () = registry.shared.drain.cancelled() => return,
                    _ = due.tick() => {}
                }
                // The next look compares with what this one would have.
                if let Err(error) = registry.look(&mut seen).await {
                    tracing::debug!(%error, "look for sessions that other servers change");
                }
            }
        });
    }

    /// Asks what has changed of the sessions of all watched owners, and tells what is new.
    async fn look(&self, seen: &mut Seen) -> Result<(), StoreError> {
        let owners = self.watches.owners();
        let is_watched: HashSet<&String> = owners.iter().collect();
        let Some(cluster) = self.store().cluster().filter(|_| !owners.is_empty()) else {
            *seen = Seen::default();
            return Ok(());
        };
        let now = self.now();
        let since = Timestamp(now.0.saturating_sub(LOOKED_BACK_MILLIS));
        let Changes { heads, deleted } = cluster.changes(&owners, since).await?;
        let mut before = std::mem::take(&mut seen.sessions);
        for head in heads {
            let earlier = before.remove(&head.session).map(|(_, told)| told);
            let is_recent = head.head.updated_at.0 >= now.0.saturating_sub(RECENT_MILLIS);
            let is_awaited = earlier.is_some() || seen.owners.contains(&head.owner) || is_recent;
            let told = self.tell_changed(&head, earlier.as_ref(), is_awaited);
            seen.sessions.insert(head.session.clone(), (head, told));
        }
        for (session, owner) in &deleted {
            before.remove(session);
            seen.sessions.remove(session);
            if !seen.deleted.contains(session) {
                self.watches.changed(owner, || gone(session));
            }
        }
        seen.deleted = deleted.into_iter().map(|(session, _)| session).collect();
        // A turn also ends with the server that runs it, and nothing is written then.
        let running = before
            .into_iter()
            .filter(|(_, (head, told))| told.1 == SessionState::Running && is_watched.contains(&head.owner));
        for (session, (head, told)) in running {
            let now = self.tell_changed(&head, Some(&told), true);
            seen.sessions.insert(session, (head, now));
        }
        seen.owners = owners.into_iter().collect();
        Ok(())
    }

    /// Tells a session if it is not as it was told. Returns it as it is.
    fn tell_changed(&self, head: &SessionHead, earlier: Option<&Told>, is_awaited: bool) -> Told {
        let state = self.doing_anywhere(head);
        let told = (head.last_seq, state, head.head.name.clone());
        // One that is open here tells of itself.
        if is_awaited && earlier != Some(&told) && self.opened(&head.session).is_none() {
            self.watches.changed(&head.owner, || list_item(&head.session, &head.head, state));
        }
        told
    }
}

fn gone(session: &SessionId) -> SessionItem {
    SessionItem { deleted: true, ..list_item(session, &Head::default(), SessionState::Idle) }
}
