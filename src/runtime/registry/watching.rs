//! Watched lists in a cluster: while anyone watches, the store is polled for changes that other nodes make.
//!
//! A poll takes two statements for all owners together, however many watch. In the database, each owner is one more
//! index scan. Changes made by this node are reported at once, without polling. A change may be reported twice, with
//! the same item.
//!
//! A poll reaches back to the last answered one. So an outage of the store loses nothing, except deletions if the
//! database itself has crashed. Watchers are disconnected and list the sessions again in two cases: the outage lasted
//! so long that the store has forgotten the deletions (an hour), or it left more changes than a poll returns. If there
//! are that many without an outage, the oldest of them may go unreported, and the log says so.

use super::Registry;
use crate::{
    runtime::watch::list_item,
    store::{Changes, DELETED_KEPT, Error as StoreError, Head, SessionHead},
};
use reseed_protocol::{
    SessionId, Timestamp,
    session::{SessionItem, SessionState},
};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::time::{MissedTickBehavior, interval};

/// The interval between polls.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Sessions that were written to this recently are read again, because their writers' clocks and commits may be late by
/// this much.
const LOOKED_BACK_MILLIS: i64 = 30_000;

/// A session that changed this recently is reported to new watchers, because it may have changed just after the list
/// was read.
const RECENT_MILLIS: i64 = 10_000;

/// A session in the form in which it was last reported.
type LastReport = (u64, SessionState, String);

/// The result of the polls so far.
#[derive(Debug, Default)]
struct Polled {
    /// When the last answered poll ran, or the first one if none was answered.
    at: Option<Timestamp>,
    owners: HashSet<String>,
    /// Sessions that were written to recently, and those whose turns run elsewhere.
    sessions: HashMap<SessionId, (SessionHead, LastReport)>,
    /// Deletions that the store still repeats.
    deleted: HashSet<SessionId>,
    /// True if the last answered poll left out changes.
    was_cut: bool,
}

impl Polled {
    /// Returns the time from which on the polls so far may have missed something.
    fn whole_until(&mut self, now: Timestamp) -> Timestamp {
        // If a clock was set back, others' changes carry its new times.
        now.min(*self.at.get_or_insert(now))
    }

    /// Records whether a poll left out changes. Returns true if it is the first one in a row that did.
    fn begins_to_cut(&mut self, is_cut: bool) -> bool {
        !std::mem::replace(&mut self.was_cut, is_cut) && is_cut
    }
}

impl Registry {
    /// Reports changes made by other nodes to watchers, until the server stops.
    pub fn keep_watching(self: &Arc<Self>) {
        if self.keeper().is_none() {
            return;
        }
        let registry = self.clone();
        self.track(async move {
            let mut due = interval(LOOK_EVERY);
            due.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut polled = Polled::default();
            loop {
                tokio::select! {
                    () = registry.shared.drain.cancelled() => return,
                    _ = due.tick() => {}
                }
                // The next poll covers what this one would have.
                if let Err(error) = registry.look(&mut polled).await {
                    tracing::debug!(%error, "look for sessions that other servers change");
                }
            }
        });
    }

    /// Polls the sessions of all watched owners, and reports what is new.
    async fn look(&self, polled: &mut Polled) -> Result<(), StoreError> {
        let owners = self.watches.owners();
        let is_watched: HashSet<&String> = owners.iter().collect();
        let Some(cluster) = self.store().cluster().filter(|_| !owners.is_empty()) else {
            *polled = Polled::default();
            return Ok(());
        };
        let now = self.now();
        let from = polled.whole_until(now);
        let since = earlier(from, LOOKED_BACK_MILLIS);
        // The store times deletions by its own clock, which may differ too.
        let within = Duration::from_millis(now.millis_since(earlier(since, LOOKED_BACK_MILLIS)));
        let added: Vec<String> = owners.iter().filter(|owner| !polled.owners.contains(*owner)).cloned().collect();
        // Lists show these as running. They may write nothing for a long time, and end with their server.
        let running = if added.is_empty() { Vec::new() } else { cluster.running(&added).await? };
        let Changes { heads, deleted, is_cut } = cluster.changes(&owners, since, within).await?;
        let was_away = from < earlier(now, RECENT_MILLIS);
        if within > DELETED_KEPT || is_cut && was_away {
            self.watches.lose();
        }
        if polled.begins_to_cut(is_cut && !was_away) {
            tracing::warn!(
                "too many sessions change at once: watched lists may miss the oldest changes of other servers"
            );
        }
        let mut before = std::mem::take(&mut polled.sessions);
        for head in heads {
            let told_before = before.remove(&head.session).map(|(_, told)| told);
            let is_recent = head.head.updated_at >= earlier(from, RECENT_MILLIS);
            let is_awaited = told_before.is_some() || polled.owners.contains(&head.owner) || is_recent;
            let told = self.tell_changed(&head, told_before.as_ref(), is_awaited);
            polled.sessions.insert(head.session.clone(), (head, told));
        }
        // The sessions that were just read are newer than these, and may still have to be reported.
        for head in running.into_iter().filter(|head| !polled.sessions.contains_key(&head.session)) {
            let told = self.tell_changed(&head, None, false);
            before.insert(head.session.clone(), (head, told));
        }
        for (session, owner) in &deleted {
            before.remove(session);
            polled.sessions.remove(session);
            if !polled.deleted.contains(session) {
                self.watches.changed(owner, || gone(session));
            }
        }
        polled.deleted = deleted.into_iter().map(|(session, _)| session).collect();
        // A turn also ends with its server, and nothing is written then.
        let running = before
            .into_iter()
            .filter(|(_, (head, told))| told.1 == SessionState::Running && is_watched.contains(&head.owner));
        for (session, (head, told)) in running {
            let now = self.tell_changed(&head, Some(&told), true);
            polled.sessions.insert(session, (head, now));
        }
        polled.owners = owners.into_iter().collect();
        polled.at = Some(now);
        Ok(())
    }

    /// Reports a session if it differs from its last report. Returns its current form.
    fn tell_changed(&self, head: &SessionHead, before: Option<&LastReport>, is_awaited: bool) -> LastReport {
        let state = self.doing_anywhere(head);
        let told = (head.last_seq, state, head.head.name.clone());
        // A list may have shown it as running until its server was found gone, and nothing is written then.
        let is_awaited = is_awaited || head.head.running && state != SessionState::Running;
        // A session that is open here reports its own changes.
        if is_awaited && before != Some(&told) && self.opened(&head.session).is_none() {
            self.watches.changed(&head.owner, || list_item(&head.session, &head.head, state));
        }
        told
    }
}

fn earlier(time: Timestamp, millis: i64) -> Timestamp {
    Timestamp(time.0.saturating_sub(millis))
}

fn gone(session: &SessionId) -> SessionItem {
    SessionItem { deleted: true, ..list_item(session, &Head::default(), SessionState::Idle) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::ManualClock,
        config::LimitSettings,
        core::agent_loop::Deployment,
        hooks::Hooks,
        provider::offline::Offline,
        runtime::{
            cluster::Keeper,
            registry::RegistryOptions,
            watch::{Missed, Watcher},
        },
        store::{Append, Lease, NewNode, NodeId, SessionStore, memory::MemoryStore},
        tools::Toolset,
    };

    const START: Timestamp = Timestamp(1_000_000_000_000);

    /// A server whose registry has a watcher, and another one.
    struct Pair {
        registry: Arc<Registry>,
        clock: Arc<ManualClock>,
        keeper: Arc<Keeper>,
        other: MemoryStore,
        at_other: NodeId,
        polled: Polled,
    }

    impl Pair {
        async fn new() -> Self {
            let node = |name: &str| NewNode {
                name: name.into(),
                address: None,
                version: "0".into(),
                lease: Duration::from_secs(5),
            };
            let store = Arc::new(MemoryStore::new());
            let other = store.another();
            let at_other = other.cluster().unwrap().join(&node("other")).await.unwrap();
            let keeper = Keeper::start(store.clone(), node("own"), Duration::from_secs(4)).await.unwrap().unwrap();
            let clock = Arc::new(ManualClock::new(START));
            let registry = Registry::new(RegistryOptions {
                store,
                provider: Arc::new(Offline::new(Default::default())),
                clock: clock.clone(),
                hooks: Hooks::default(),
                tools: Toolset::default(),
                deployment: Deployment::default(),
                limits: LimitSettings::default(),
                has_several_users: false,
                detached_turn: Duration::ZERO,
                host_away: Duration::ZERO,
                cluster: Some(keeper.clone()),
            });
            Self { registry, clock, keeper, other, at_other, polled: Polled::default() }
        }

        /// Returns what a poll reports to a watcher.
        async fn look(&mut self, watcher: &mut Watcher) -> Result<Vec<(String, SessionState)>, Missed> {
            self.registry.look(&mut self.polled).await.unwrap();
            let told = watcher.take()?;
            Ok(told.iter().map(|item| (item.session_id.to_string(), item.state)).collect())
        }

        /// Creates a session at the other server.
        async fn made(&self, id: &str) -> Lease {
            self.other.create(&id.parse().unwrap(), "ann", self.registry.now()).await.unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_after_a_pause_finds_what_was_changed_meanwhile() {
        let mut pair = Pair::new().await;
        let mut watcher = pair.registry.watches().watch("ann");
        assert_eq!(pair.look(&mut watcher).await, Ok(vec![]));
        pair.clock.advance_millis(5_000);
        pair.made("s").await;
        pair.clock.advance_millis(40_000);
        let idle = ("s".to_owned(), SessionState::Idle);
        assert_eq!(pair.look(&mut watcher).await, Ok(vec![idle]));
        assert_eq!(pair.look(&mut watcher).await, Ok(vec![]), "once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_after_an_hour_has_watchers_list_again() {
        let mut pair = Pair::new().await;
        let mut watcher = pair.registry.watches().watch("ann");
        pair.look(&mut watcher).await.unwrap();
        pair.clock.advance_millis(3_600_000);
        let missed = pair.look(&mut watcher).await.map_err(Missed::message);
        assert_eq!(missed, Err("the server cannot tell which sessions other servers have changed; list them again"));
        let mut again = pair.registry.watches().watch("ann");
        assert_eq!(pair.look(&mut again).await, Ok(vec![]));
    }

    #[test]
    fn a_look_goes_back_to_the_last_one_that_was_answered_or_the_first_that_was_not() {
        let mut polled = Polled::default();
        let at = |millis| Timestamp(START.0 + millis);
        assert_eq!(polled.whole_until(at(0)), at(0));
        assert_eq!(polled.whole_until(at(40_000)), at(0), "the first was not answered");
        polled.at = Some(at(40_000));
        assert_eq!(polled.whole_until(at(41_000)), at(40_000));
        assert_eq!(polled.whole_until(at(10_000)), at(10_000), "the clock was put back");
    }

    #[test]
    fn changes_that_are_left_out_are_logged_once_in_a_row() {
        let mut polled = Polled::default();
        let cuts = [false, true, true, false, true].map(|is_cut| polled.begins_to_cut(is_cut));
        assert_eq!(cuts, [false, true, false, false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_is_silent_when_a_watch_begins_ends_with_its_server() {
        let mut pair = Pair::new().await;
        let lease = pair.made("s").await;
        let now = pair.registry.now();
        let head = Head { created_at: now, updated_at: now, running: true, ..Head::default() };
        let append = Append { records: Vec::new(), marks: Vec::new(), usage: Vec::new(), head };
        pair.other.append(&lease, 1, append).await.unwrap();
        pair.clock.advance_millis(60_000);
        let mut watcher = pair.registry.watches().watch("ann");
        assert_eq!(pair.look(&mut watcher).await, Ok(vec![]), "as its list has it");
        let other = pair.other.cluster().unwrap();
        let (_, left) = tokio::join!(pair.keeper.gone(pair.at_other), other.leave());
        left.unwrap();
        assert_eq!(pair.look(&mut watcher).await, Ok(vec![("s".to_owned(), SessionState::Idle)]));
        assert_eq!(pair.look(&mut watcher).await, Ok(vec![]), "once");
    }
}
