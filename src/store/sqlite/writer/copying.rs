//! Copies the write-ahead log back while the writer continues.
//!
//! Copying thousands of pages and syncing them takes as long as dozens of groups. So once the log is long, a thread
//! with its own connection copies it, and then what was added meanwhile. The writer copies only the small rest. That
//! must happen between two groups, because SQLite restarts a log only when all of it is copied.
//!
//! While a round runs, the snapshot of an idle reader pins the log at the frame up to which the round copies. So the
//! log is not restarted while its pages are cleared in the database (see `scrub.rs`), and no other program's checkpoint
//! has anything to copy there. Nothing else writes to the pages being cleared.
//!
//! From the first round until the writer's part is done, a change of the file by another program is not noticed
//! (`watched.rs`), unless the file was replaced.

use super::super::{
    checkpoint::{self, Cleared, Frames},
    health::Health,
    watched::Watched,
};
use super::unknown;
use crate::Error;
use rusqlite::Connection;
use std::{
    io,
    sync::{Arc, mpsc as orders},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// The most rounds before the writer copies the rest, however much that is. Each round leaves about a quarter of what
/// it copied, unless the disk is slower than the writers.
const ROUNDS_MAX: u32 = 4;

/// The time for which a round retries while a reader of an older snapshot is in the way. Reads of this process take a
/// few milliseconds.
const READERS_LEAVE: Duration = Duration::from_millis(200);

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(2);

/// The connections for copying.
pub(in crate::sqlite) struct Copiers {
    /// Copies.
    pub(in crate::sqlite) copier: Connection,
    /// Holds the snapshot.
    pub(in crate::sqlite) pin: Connection,
}

/// The thread on which copying runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sqlite) enum CopyingPlace {
    /// On a thread of its own.
    Beside,
    /// On the writer's thread, after the group that follows the order. A simulated disk uses this, because its sequence
    /// of events must not depend on threads.
    Inline,
}

/// The limits of copying, in frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// The most frames that the writer copies itself instead of starting another round.
    pub(super) left: u32,
    /// The most frames by which the log may grow meanwhile.
    pub(super) growth: u32,
}

/// The outcome of a round, as returned by [`checkpoint::copy_beside`].
pub(super) type Outcome = Result<Option<Cleared>, Error>;

/// One of the rounds in which a log is copied back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    number: u32,
    frames: Frames,
}

/// The writer's side of copying: starts rounds and receives their results.
pub(super) struct Copying {
    worker: Worker,
    pin: Connection,
    limits: Limits,
    /// The round under way.
    round: Option<Round>,
    /// The length of the log, in frames, when the first round began.
    began_with: u32,
}

enum Worker {
    Beside {
        /// `None` once the thread is told to end.
        orders: Option<orders::SyncSender<Frames>>,
        outcomes: mpsc::Receiver<Outcome>,
        thread: Option<JoinHandle<()>>,
    },
    Inline {
        copier: Copier,
        ordered: Option<Frames>,
    },
}

struct Copier {
    db: Connection,
    watched: Option<Watched>,
    health: Arc<Health>,
    /// The time for which an attempt is retried.
    patience: Duration,
}

impl Copier {
    fn copy(&self, frames: Frames) -> Outcome {
        let until = Instant::now() + self.patience;
        let copied = loop {
            match checkpoint::copy_beside(&self.db, self.watched.as_ref(), frames) {
                Ok(None) if Instant::now() < until => thread::sleep(PAUSE),
                copied => break copied,
            }
        };
        copied.map_err(|error| {
            let failure = unknown("copy the write-ahead log back", &error);
            if super::is_fatal(&error) {
                // The group in progress is the last one. It is synced through another handle of the log, and Linux
                // reports a failed write to that handle too. The log stays.
                self.health.end(failure.clone());
            }
            failure
        })
    }
}

impl Copying {
    pub(super) fn start(
        Copiers { copier, pin }: Copiers,
        place: CopyingPlace,
        limits: Limits,
        watched: Option<Watched>,
        health: Arc<Health>,
    ) -> io::Result<Self> {
        let copier = |patience| Copier { db: copier, watched, health, patience };
        let worker = match place {
            CopyingPlace::Inline => Worker::Inline { copier: copier(Duration::ZERO), ordered: None },
            CopyingPlace::Beside => {
                let copier = copier(READERS_LEAVE);
                // There is one round at a time.
                let (orders, ordered) = orders::sync_channel::<Frames>(1);
                let (done, outcomes) = mpsc::channel(1);
                let run = move || {
                    while let Ok(frames) = ordered.recv() {
                        if done.blocking_send(copier.copy(frames)).is_err() {
                            break;
                        }
                    }
                };
                let thread = thread::Builder::new().name("store-copier".into()).spawn(run)?;
                Worker::Beside { orders: Some(orders), outcomes, thread: Some(thread) }
            }
        };
        Ok(Self { worker, pin, limits, round: None, began_with: 0 })
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.round.is_some()
    }

    /// Returns true if the log, now this many frames long, has grown to its limit since the first round began.
    pub(super) fn is_behind(&self, frames: u32) -> bool {
        frames.saturating_sub(self.began_with) >= self.limits.growth
    }

    /// Begins the first round, which copies the log of the writer's connection, now this many frames long. Returns
    /// false if the round could not begin.
    pub(super) fn begin(&mut self, db: &Connection, frames: u32) -> bool {
        self.began_with = frames;
        self.go(db, Round { number: 1, frames: Frames { first: 1, last: frames } })
    }

    /// Begins the next round after one that copied its frames, if much was added to the log meanwhile. The log is now
    /// this many frames long. Returns false if there is no further round.
    pub(super) fn go_on(&mut self, db: &Connection, done: Round, frames: u32) -> bool {
        let is_much = frames.saturating_sub(done.frames.last) > self.limits.left;
        let round = Round { number: done.number + 1, frames: Frames { first: done.frames.last + 1, last: frames } };
        is_much && done.number < ROUNDS_MAX && !self.is_behind(frames) && self.go(db, round)
    }

    fn go(&mut self, db: &Connection, round: Round) -> bool {
        let frames = round.frames;
        let is_pinned = self.pin.execute_batch("BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1").is_ok();
        // A snapshot of a fully copied log would not keep it from being restarted, and a snapshot taken after another
        // program wrote would end later.
        let is_held = |(there, copied)| there == i64::from(frames.last) && copied < there;
        let is_ordered = is_pinned
            && checkpoint::progress(db).is_ok_and(is_held)
            && match &mut self.worker {
                Worker::Beside { orders, .. } => orders.as_ref().is_some_and(|to| to.try_send(frames).is_ok()),
                Worker::Inline { ordered, .. } => {
                    *ordered = Some(frames);
                    true
                }
            };
        if is_ordered {
            self.round = Some(round);
        } else {
            self.unpin();
        }
        is_ordered
    }

    /// Returns the current round and its outcome, if it has ended.
    pub(super) fn ended(&mut self) -> Option<(Round, Outcome)> {
        self.round?;
        let outcome = match &mut self.worker {
            Worker::Beside { outcomes, .. } => match outcomes.try_recv() {
                Err(mpsc::error::TryRecvError::Empty) => None,
                Err(mpsc::error::TryRecvError::Disconnected) => Some(Err(gone())),
                Ok(outcome) => Some(outcome),
            },
            Worker::Inline { copier, ordered } => ordered.take().map(|frames| copier.copy(frames)),
        };
        outcome.and_then(|outcome| self.over(outcome))
    }

    /// Waits for the current round to end, and returns it with its outcome.
    pub(super) fn wait(&mut self) -> Option<(Round, Outcome)> {
        self.round?;
        let outcome = match &mut self.worker {
            Worker::Beside { outcomes, .. } => outcomes.blocking_recv().unwrap_or_else(|| Err(gone())),
            Worker::Inline { copier, ordered } => ordered.take().map_or_else(|| Err(gone()), |it| copier.copy(it)),
        };
        self.over(outcome)
    }

    /// Does the same without blocking. It never returns if there is no round, or if the round waits for the next group.
    /// Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> (Round, Outcome) {
        if let (Some(_), Worker::Beside { outcomes, .. }) = (self.round, &mut self.worker) {
            let outcome = outcomes.recv().await.unwrap_or_else(|| Err(gone()));
            if let Some(ended) = self.over(outcome) {
                return ended;
            }
        }
        std::future::pending().await
    }

    fn over(&mut self, outcome: Outcome) -> Option<(Round, Outcome)> {
        let round = self.round.take()?;
        self.unpin();
        Some((round, outcome))
    }

    fn unpin(&mut self) {
        if !self.pin.is_autocommit()
            && let Err(error) = self.pin.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "the reader that pins the write-ahead log does not end: the log keeps growing");
        }
    }
}

impl Drop for Copying {
    /// Waits for the thread, because the connection that closes last copies back the rest, and that must be the
    /// writer's.
    fn drop(&mut self) {
        if let Worker::Beside { orders, outcomes, thread } = &mut self.worker {
            drop(orders.take());
            outcomes.close();
            // The thread has reported its panic itself.
            let _ = thread.take().map(JoinHandle::join);
        }
    }
}

fn gone() -> Error {
    Error::Unknown("the thread that copies the write-ahead log back has ended".into())
}

#[cfg(test)]
mod tests;
