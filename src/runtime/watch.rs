//! Watches of the session list: reports changes to watchers.
//!
//! A change is the item that a list would now show. Only the newest change of each session waits, so a watcher costs at
//! most `CHANGES_MAX` items however slowly it reads. A watcher that falls further behind learns that it has missed
//! changes. If nobody watches, a change costs one atomic read.

use super::{measure::LastCompaction, prewarm::Prewarmed};
use crate::{core::agent_loop::usage_ratio, store::Head};
use dashmap::DashMap;
use reseed_protocol::{
    SessionId,
    context::BreakerReason,
    session::{SessionItem, SessionState},
};
use serde::Serialize;
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::Instant, time::sleep_until};

/// Maximum number of sessions whose change waits for one watcher. This is about 400 KB, and far more sessions than
/// change between two reads of a client.
const CHANGES_MAX: usize = 1_000;
/// The number of waiting changes at which a watcher is woken before its pause ends.
const CHANGES_HURRY: usize = CHANGES_MAX / 2;
/// Maximum number of changes taken at once, so that a connection handles its commands in between.
const CHANGES_TAKEN: usize = 100;
/// The minimum interval between reports. Changes in between are reported together, each session once.
const CHANGES_PAUSE: Duration = Duration::from_millis(200);

/// The watchers of each owner's sessions.
#[derive(Debug, Default)]
pub struct Watches {
    boards: DashMap<String, Vec<Arc<Board>>>,
    watchers: AtomicUsize,
}

/// The changes waiting for one watcher.
#[derive(Debug, Default)]
struct Board {
    waiting: Mutex<Changes>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Changes {
    items: HashMap<SessionId, SessionItem>,
    /// The sessions in the order of their first change.
    order: VecDeque<SessionId>,
    /// Set once changes were lost. None wait any more.
    missed: Option<Missed>,
}

/// A watcher of one owner's sessions. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watcher {
    watches: Arc<Watches>,
    owner: String,
    board: Arc<Board>,
    next_at: Instant,
}

/// Why a watcher has lost changes of the session list. It must list the sessions again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missed {
    /// More than `CHANGES_MAX` sessions changed before the watcher took them.
    Behind,
    /// A poll of the store cannot find all changes that other servers made, because there are too many or they are
    /// forgotten.
    Unseen,
}

impl Missed {
    /// Returns the message for the watcher's client: what happened, and what to do.
    #[must_use]
    pub fn message(self) -> &'static str {
        match self {
            Self::Behind => "too many sessions changed without being read; list them again",
            Self::Unseen => "the server cannot tell which sessions other servers have changed; list them again",
        }
    }
}

/// Returns a session in the form that lists show.
#[must_use]
pub(crate) fn list_item(session: &SessionId, head: &Head, state: SessionState) -> SessionItem {
    SessionItem {
        session_id: session.clone(),
        name: head.name.clone(),
        created_at: head.created_at,
        updated_at: head.updated_at,
        entries: head.entries,
        token_count: head.token_count,
        usage_ratio: usage_ratio(head.token_count, head.window_tokens),
        cost_nano_usd: head.cost_nano_usd,
        unpriced_requests: head.cost_nano_usd.map(|_| head.unpriced_requests).filter(|requests| *requests > 0),
        state,
        deleted: false,
    }
}

impl Watches {
    /// Starts a watch.
    #[must_use]
    pub fn watch(self: &Arc<Self>, owner: &str) -> Watcher {
        let board = Arc::new(Board::default());
        self.watchers.fetch_add(1, Ordering::Relaxed);
        self.boards.entry(owner.to_owned()).or_default().push(board.clone());
        Watcher { watches: self.clone(), owner: owner.to_owned(), board, next_at: Instant::now() }
    }

    /// Returns the owners whose sessions are watched.
    pub(super) fn owners(&self) -> Vec<String> {
        self.boards.iter().map(|board| board.key().clone()).collect()
    }

    /// Tells all watchers that changes of other servers are lost, so that they must list the sessions again.
    pub(super) fn lose(&self) {
        for board in self.boards.iter().flat_map(|boards| boards.value().clone()) {
            board.lock().lose(Missed::Unseen);
            board.wake.notify_one();
        }
    }

    /// Reports a change to this owner's watchers. `item` is called only if there are any.
    pub(super) fn changed(&self, owner: &str, item: impl FnOnce() -> SessionItem) {
        if self.watchers.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(boards) = self.boards.get(owner) else { return };
        let item = item();
        for board in boards.iter() {
            board.put(item.clone());
        }
    }
}

impl Changes {
    /// Drops the changes. The first reason is kept.
    fn lose(&mut self, missed: Missed) {
        *self = Self { missed: self.missed.or(Some(missed)), ..Self::default() };
    }
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Changes> {
        // Every change is complete before the lock is released.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, item: SessionItem) {
        let mut waiting = self.lock();
        if waiting.missed.is_some() {
            return;
        }
        let id = item.session_id.clone();
        if waiting.items.insert(id.clone(), item).is_some() {
            return;
        }
        waiting.order.push_back(id);
        if waiting.order.len() > CHANGES_MAX {
            waiting.lose(Missed::Behind);
        }
        // A watcher that has something to fetch, or waits for its pause to end, is not woken again.
        let wakes = waiting.missed.is_some() || matches!(waiting.order.len(), 1 | CHANGES_HURRY);
        drop(waiting);
        if wakes {
            self.wake.notify_one();
        }
    }
}

impl Watcher {
    /// Waits until there is something to report and the pause has ended. Cancel safe.
    pub async fn due(&self) {
        loop {
            let (count, missed) = {
                let waiting = self.board.lock();
                (waiting.order.len(), waiting.missed.is_some())
            };
            match count {
                _ if missed => return,
                0 => self.board.wake.notified().await,
                CHANGES_HURRY.. => return,
                _ if self.next_at <= Instant::now() => return,
                _ => tokio::select! {
                    () = sleep_until(self.next_at) => {}
                    () = self.board.wake.notified() => {}
                },
            }
        }
    }

    /// Returns the changes to report now, in the order of their first change.
    ///
    /// # Errors
    /// [`Missed`]: some changes are lost.
    pub fn take(&mut self) -> Result<Vec<SessionItem>, Missed> {
        let mut waiting = self.board.lock();
        if let Some(missed) = waiting.missed {
            return Err(missed);
        }
        let count = waiting.order.len().min(CHANGES_TAKEN);
        let ids: Vec<SessionId> = waiting.order.drain(..count).collect();
        let taken = ids.iter().filter_map(|id| waiting.items.remove(id)).collect();
        if waiting.order.is_empty() {
            self.next_at = Instant::now() + CHANGES_PAUSE;
        }
        Ok(taken)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Some(mut boards) = self.watches.boards.get_mut(&self.owner) {
            boards.retain(|board| !Arc::ptr_eq(board, &self.board));
        }
        self.watches.boards.remove_if(&self.owner, |_, boards| boards.is_empty());
        self.watches.watchers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open session's row in the list. It records what the session is doing, which the store does not know.
#[derive(Debug)]
pub(super) struct Row {
    watches: Arc<Watches>,
    session: SessionId,
    owner: Arc<str>,
    /// False for a session that is not stored. Lists do not show it.
    is_listed: bool,
    doing: Mutex<SessionState>,
    /// Boxed, because most sessions are never compacted.
    compactions: Mutex<Option<Box<Compactions>>>,
    /// Its model and its strategy.
    runs_on: Mutex<(String, String)>,
}

/// An open session, for operators.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Opened {
    /// Its model.
    pub model: String,
    /// Its strategy's short name.
    pub strategy: String,
    /// Its compactions.
    #[serde(flatten)]
    pub compactions: Compactions,
}

/// The compactions of an open session, for operators.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Compactions {
    /// The number of compactions.
    pub count: u64,
    /// The newest one since the session was opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<LastCompaction>,
    /// The reason why the circuit breaker for automatic compaction is open, if it is.
    #[serde(rename = "rests", skip_serializing_if = "Option::is_none")]
    pub breaker_open: Option<BreakerReason>,
    /// What it has cost and saved since the session was opened to fill the provider's cache after compactions, and to
    /// refresh it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prewarmed: Option<Prewarmed>,
}

impl Row {
    pub(super) fn new(watches: Arc<Watches>, session: SessionId, owner: String, is_listed: bool) -> Arc<Self> {
        let (doing, compactions, runs_on) = (Mutex::new(SessionState::Idle), Mutex::default(), Mutex::default());
        Arc::new(Self { watches, session, owner: owner.into(), is_listed, doing, compactions, runs_on })
    }

    /// Returns the session's owner.
    pub(super) fn owner(&self) -> Arc<str> {
        self.owner.clone()
    }

    /// Returns what operators see of the session.
    pub(super) fn opened(&self) -> Opened {
        let (model, strategy) = self.runs_on.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let compactions = self.compactions.lock().unwrap_or_else(PoisonError::into_inner);
        Opened { model, strategy, compactions: compactions.as_deref().copied().unwrap_or_default() }
    }

    /// Updates the model and the strategy.
    pub(super) fn runs_on(&self, model: &str, strategy: &str) {
        let mut runs_on = self.runs_on.lock().unwrap_or_else(PoisonError::into_inner);
        if (&*runs_on.0, &*runs_on.1) != (model, strategy) {
            *runs_on = (model.to_owned(), strategy.to_owned());
        }
    }

    /// Updates the compactions.
    pub(super) fn compacts(&self, now: Compactions) {
        let mut compactions = self.compactions.lock().unwrap_or_else(PoisonError::into_inner);
        if compactions.as_deref().copied().unwrap_or_default() != now {
            *compactions = Some(Box::new(now));
        }
    }

    pub(super) fn doing(&self) -> SessionState {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports a change of the session's head or of what it is doing.
    pub(super) fn changed(&self, head: &Head, doing: SessionState) {
        *self.doing.lock().unwrap_or_else(PoisonError::into_inner) = doing;
        if self.is_listed {
            self.watches.changed(&self.owner, || list_item(&self.session, head, doing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: &str, entries: u64) -> SessionItem {
        let head = Head { entries, ..Head::default() };
        list_item(&id.parse().unwrap(), &head, SessionState::Idle)
    }

    fn tell(watches: &Watches, owner: &str, id: &str, entries: u64) {
        watches.changed(owner, || item(id, entries));
    }

    fn taken(watcher: &mut Watcher) -> Vec<String> {
        watcher.take().unwrap().iter().map(|item| format!("{} {}", item.session_id, item.entries)).collect()
    }

    fn is_due(watcher: &Watcher) -> bool {
        use futures_util::FutureExt as _;
        watcher.due().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn each_session_is_told_once_as_it_is_now_to_those_who_watch_its_owner() {
        let watches = Arc::new(Watches::default());
        watches.changed("ann", || panic!("nobody watches: no item is made"));
        let (mut ann, mut other) = (watches.watch("ann"), watches.watch("ann"));
        watches.changed("bob", || panic!("nobody watches bob's"));
        assert!(!is_due(&ann));
        for (id, entries) in [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("a", 3)] {
            tell(&watches, "ann", id, entries);
        }
        assert!(is_due(&ann));
        assert_eq!(taken(&mut ann), ["a 3", "b 1", "c 1"]);
        assert_eq!(taken(&mut other), ["a 3", "b 1", "c 1"]);
        // The next change is reported after the pause.
        tell(&watches, "ann", "a", 4);
        assert!(!is_due(&ann));
        let began = Instant::now();
        ann.due().await;
        assert_eq!(began.elapsed(), CHANGES_PAUSE);
        assert_eq!(taken(&mut ann), ["a 4"]);
        drop((ann, other));
        watches.changed("ann", || panic!("nobody watches any more"));
        assert!(watches.boards.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn many_changes_are_told_early_and_too_many_are_missed() {
        let watches = Arc::new(Watches::default());
        let mut watcher = watches.watch("");
        tell(&watches, "", "first", 1);
        assert_eq!(taken(&mut watcher), ["first 1"]);
        let many = |from: usize, to: usize| {
            for n in from..to {
                tell(&watches, "", &format!("s{n}"), 1);
            }
        };
        many(0, CHANGES_HURRY - 1);
        assert!(!is_due(&watcher));
        many(CHANGES_HURRY - 1, CHANGES_HURRY);
        assert!(is_due(&watcher), "before its pause is over");
        for _ in 0..CHANGES_HURRY / CHANGES_TAKEN {
            assert_eq!(taken(&mut watcher).len(), CHANGES_TAKEN);
        }
        many(0, CHANGES_MAX);
        many(0, CHANGES_MAX);
        assert!(is_due(&watcher) && watcher.board.lock().missed.is_none(), "as many as may wait");
        many(CHANGES_MAX, CHANGES_MAX + 1);
        assert!(is_due(&watcher));
        assert_eq!(watcher.take(), Err(Missed::Behind));
        many(0, 10);
        assert!(watcher.board.lock().items.is_empty(), "nothing is kept for it any more");
        assert_eq!(watcher.take(), Err(Missed::Behind), "it begins anew, or not at all");
    }
}
