//! Schedules the search index: entries are added while nothing is written, and otherwise in a small part of the
//! thread's time, so that appends do not wait for the index. Searches read what is not indexed yet.

use super::{
    super::history::{self, Broken, DropOld, IndexSlice, Remake},
    Thread,
};
use crate::Error;
use reseed_protocol::SessionId;
use std::{
    collections::BTreeSet,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// The time without appends before entries are indexed. A slice costs as much as an append, so the entries of several
/// requests and of quick turns are indexed together.
const IDLE: Duration = Duration::from_secs(1);

/// The minimum time between two slices while there are appends, so that a slice has several entries.
const BUSY: Duration = Duration::from_secs(1);
/// The fraction of the thread's time that slices may take meanwhile, as its denominator. Fewer than five of a hundred
/// appends then meet a slice, which may take 20 ms.
const BUSY_PART: u32 = 25;

/// The time after which a slice that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// The number of consecutive failures after which indexing stops until the server restarts.
const FAILURES_MAX: u32 = 5;

/// The most sessions that are tracked by name. Beyond that, the store is queried for sessions to index.
const WAITING_MAX: usize = 10_000;

/// The work to index, and when.
pub(super) struct Indexing {
    /// Sessions that got new entries.
    waiting: BTreeSet<SessionId>,
    /// Sessions numbered above this may have entries that were not indexed before the last shutdown.
    unknown_after: Option<i64>,
    /// The earliest time of a slice if there are no appends.
    idle_at: Instant,
    /// The earliest time of a slice if there are.
    busy_at: Instant,
    failures: u32,
    /// True once indexing has stopped.
    is_off: bool,
    /// True if the index of an older program may still be there.
    has_old: bool,
    broken: Broken,
    /// True once the index was made again; doing so a second time would not help.
    is_remade: bool,
    busy: watch::Sender<bool>,
}

impl Indexing {
    pub(super) fn new(broken: Broken, is_on: bool) -> Self {
        let now = Instant::now();
        Self {
            waiting: BTreeSet::new(),
            unknown_after: Some(0),
            idle_at: now + IDLE,
            busy_at: now + BUSY,
            failures: 0,
            is_off: !is_on,
            has_old: true,
            broken,
            is_remade: false,
            busy: watch::Sender::new(is_on),
        }
    }

    /// Notes that a session has entries to index.
    pub(super) fn add(&mut self, session: &SessionId) {
        if self.is_off {
            return;
        }
        let now = Instant::now();
        if self.is_done() {
            // This is the first entry; an immediate slice would index it alone.
            self.busy_at = self.busy_at.max(now + BUSY);
            self.busy.send_replace(true);
        }
        self.idle_at = self.idle_at.max(now + IDLE);
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.clear();
            self.unknown_after = Some(0);
        }
        if !self.waiting.contains(session) {
            self.waiting.insert(session.clone());
        }
    }

    fn is_done(&self) -> bool {
        self.is_off || self.waiting.is_empty() && self.unknown_after.is_none()
    }

    /// Returns the time of the next slice if nothing is written before; `None` if there is nothing to do.
    pub(super) fn due_at(&self) -> Option<Instant> {
        (!self.is_done()).then_some(self.idle_at)
    }

    /// Watches whether there is anything to do.
    pub(super) fn watch(&self) -> watch::Receiver<bool> {
        self.busy.subscribe()
    }

    /// Schedules the next slice after one that took this long.
    fn took(&mut self, time: Duration) {
        let now = Instant::now();
        self.idle_at = now;
        self.busy_at = now + (time * (BUSY_PART - 1)).max(BUSY);
        self.busy.send_replace(!self.is_done());
    }

    fn failed(&mut self, error: &Error) {
        self.failures += 1;
        if self.failures < FAILURES_MAX {
            tracing::warn!(%error, "entries could not be added to the search index; it is tried again");
            self.idle_at = Instant::now() + RETRY;
            self.busy_at = self.idle_at;
        } else {
            tracing::error!(%error, "the search index cannot be written; until a restart, searches read the entries");
            self.is_off = true;
        }
        self.busy.send_replace(!self.is_done());
    }
}

impl Thread {
    /// Indexes some entries, if a slice is due.
    pub(super) fn index_when_due(&mut self, is_busy: bool) {
        let now = Instant::now();
        let at = if is_busy { self.indexing.busy_at } else { self.indexing.idle_at };
        if self.indexing.is_done() || at > now || self.health.failure().is_some() {
            if self.health.failure().is_some() {
                self.indexing.is_off = true;
                self.indexing.busy.send_replace(false);
            }
            return;
        }
        match self.index() {
            Ok(()) => {
                self.indexing.failures = 0;
                self.indexing.took(now.elapsed());
            }
            Err(error) => self.indexing.failed(&error),
        }
        self.checkpoint_when_due();
    }

    /// Indexes some entries. If the index turns out to be damaged, makes it again.
    fn index(&mut self) -> Result<(), Error> {
        let done = self.index_some();
        if self.indexing.broken.swap(false, Ordering::Relaxed) && !self.indexing.is_remade {
            tracing::warn!("the search index is damaged and is made again");
            self.indexing.is_remade = true;
            // If its table cannot be dropped now, it never can.
            self.write_own(Remake).inspect_err(|_| self.indexing.failures = FAILURES_MAX - 1)?;
            self.indexing.unknown_after = Some(0);
            return Ok(());
        }
        done
    }

    fn index_some(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.indexing.has_old) {
            let old = history::old(&self.db).map_err(|error| super::unknown("find the old search index", &error))?;
            if let Some(table) = old {
                self.write_own(DropOld(table))?;
                self.indexing.has_old = true;
                // It may hold words of sessions that were deleted since.
                self.upkeep.begin();
                return Ok(());
            }
        }
        if self.indexing.waiting.is_empty()
            && let Some(after) = self.indexing.unknown_after
        {
            let broken = &self.indexing.broken;
            let found = history::unindexed(&self.db, after, broken);
            let (sessions, next) = found.map_err(|error| super::unknown("find what is to be indexed", &error))?;
            self.indexing.waiting.extend(sessions);
            self.indexing.unknown_after = next;
            return Ok(());
        }
        let Some(session) = self.indexing.waiting.pop_first() else { return Ok(()) };
        match self.write_own(IndexSlice { session: session.clone(), broken: self.indexing.broken.clone() }) {
            // Other reads report damaged records, and searches read what they can.
            Ok(false) | Err(Error::Damaged { .. }) => Ok(()),
            Ok(true) => {
                self.indexing.waiting.insert(session);
                Ok(())
            }
            Err(error) => {
                self.indexing.waiting.insert(session);
                Err(error)
            }
        }
    }
}
