//! Watched lists of a cluster: what other nodes change is found by asking the store, while anybody watches.
//!
//! What this node changes is told at once, without this. A change may be told twice, and is then the same item.

use super::Registry;
use crate::{
    runtime::watch::list_item,
    store::{Error as StoreError, Head, ListQuery},
};
use reseed_protocol::{
    SessionId,
    reply::{SessionItem, SessionState},
};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};
use tokio::time::{MissedTickBehavior, interval};

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Sessions of one owner that a look compares: the newest.
const LOOKED_AT: u32 = 200;

/// A session that changed this recently is told to whoever begins to watch: it may have been just after the list.
const RECENT_MILLIS: i64 = 10_000;

/// A session as it was told.
type Told = (u64, SessionState, String);

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
            let mut known: HashMap<String, BTreeMap<SessionId, Told>> = HashMap::new();
            loop {
                tokio::select! {
                    () = registry.shared.drain.cancelled() => return,
                    _ = due.tick() => {}
                }
                let owners = registry.watches.owners();
                known.retain(|owner, _| owners.contains(owner));
                for owner in owners {
                    match registry.look_at(&owner, known.get(&owner)).await {
                        Ok(now) => drop(known.insert(owner, now)),
                        // The next look compares with what this one would have.
                        Err(error) => tracing::debug!(%error, "look for sessions that other servers change"),
                    }
                }
            }
        });
    }

    /// Compares the newest sessions of an owner with what they were, and tells what is different.
    async fn look_at(
        &self,
        owner: &str,
        before: Option<&BTreeMap<SessionId, Told>>,
    ) -> Result<BTreeMap<SessionId, Told>, StoreError> {
        let query = ListQuery { owner: Some(owner.to_owned()), limit: LOOKED_AT, ..ListQuery::default() };
        let page = self.store().list(query).await?;
        let since = self.now().0.saturating_sub(RECENT_MILLIS);
        let mut now = BTreeMap::new();
        for head in &page.items {
            let state = self.doing_anywhere(head);
            let told = (head.last_seq, state, head.head.name.clone());
            let is_new = match before {
                Some(before) => before.get(&head.session) != Some(&told),
                None => head.head.updated_at.0 >= since,
            };
            // One that is open here tells of itself.
            if is_new && self.opened(&head.session).is_none() {
                self.watches.changed(owner, || list_item(&head.session, &head.head, state));
            }
            now.insert(head.session.clone(), told);
        }
        for (session, told) in before.into_iter().flatten() {
            if now.contains_key(session) {
                continue;
            }
            // Older than the others by now, or deleted.
            if let Err(StoreError::NotFound(_)) = self.store().head(session).await {
                self.watches.changed(owner, || deleted(session, told.2.clone()));
            }
        }
        Ok(now)
    }
}

fn deleted(session: &SessionId, name: String) -> SessionItem {
    let head = Head { name, ..Head::default() };
    SessionItem { deleted: true, ..list_item(session, &head, SessionState::Idle) }
}
