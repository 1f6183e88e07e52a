//! Copies the write-ahead log back beside the writer.
//!
//! Copying thousands of pages and syncing them takes as long as dozens of groups. So a thread with a connection of its
//! own copies what the log holds once it is long, and then what was added meanwhile. The writer copies only the little
//! that is left: SQLite takes a log up again from its start only when all of it is copied, so that must be done between
//! two groups.
//!
//! While a round runs, the snapshot of an idle reader pins the log at the frame up to which the round copies. So the
//! log is not taken up again while its pages are cleared in the database (see `scrub.rs`), and no other program's
//! checkpoint has anything to copy there: nobody writes to what is being cleared.
//!
//! From the first round to the writer's part, a change of the file by another program is not noticed (`watched.rs`),
//! unless the file was replaced.

use super::super::{
    checkpoint::{self, Cleared, Frames},
    health::Health,
    watched::Watched,
};
use super::unknown;
use crate::store::Error;
use rusqlite::Connection;
use std::{
    io,
    sync::{Arc, mpsc as orders},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// Rounds before the writer copies what is left, however much it is: each leaves a quarter or so of what it copied,
/// unless the disk is slower than those who write.
const ROUNDS_MAX: u32 = 4;

/// The time for which a round tries again to copy what a reader of an older state keeps from it: reads of this process
/// take a few milliseconds.
const READERS_LEAVE: Duration = Duration::from_millis(200);

/// The time between two such attempts.
const PAUSE: Duration = Duration::from_millis(2);

/// The connections for copying.
pub(in crate::store::sqlite) struct Copiers {
    /// Copies.
    pub(in crate::store::sqlite) copier: Connection,
    /// Holds a snapshot meanwhile.
    pub(in crate::store::sqlite) pin: Connection,
}

/// Tells which thread copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::sqlite) enum CopyingPlace {
    /// On a thread of its own.
    Beside,
    /// On the writer's thread, after the group that follows the order: on a simulated disk, whose order of events must
    /// not depend on threads.
    Inline,
}

/// The limits of the copying, in frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Frames that the writer copies itself rather than let another round do it.
    pub(super) left: u32,
    /// Frames by which the log may grow meanwhile.
    pub(super) growth: u32,
}

/// The outcome of a round, as of [`checkpoint::copy_beside`].
pub(super) type Outcome = Result<Option<Cleared>, Error>;

/// One of the rounds in which a log is copied back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round {
    number: u32,
    frames: Frames,
}

/// Begins rounds and learns of their end, on the side of the writer.
pub(super) struct Copying {
    worker: Worker,
    pin: Connection,
    limits: Limits,
    /// The round under way.
    round: Option<Round>,
    /// Frames of the log when the first round began.
    began_with: u32,
}

enum Worker {
    Beside {
        /// `None` once it is told to end.
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
    /// The time for which an attempt is repeated.
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
                // The group that runs meanwhile is the last one. It is synced through another handle of the log, which
                // Linux tells of a failed write too, and the log stays.
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

    /// Returns true if the log, which has so many frames now, has grown as much as it may since the first round began.
    pub(super) fn is_behind(&self, frames: u32) -> bool {
        frames.saturating_sub(self.began_with) >= self.limits.growth
    }

    /// Begins the first round, which copies the log of the writer's connection with its so many frames. Returns false
    /// if there is no round.
    pub(super) fn begin(&mut self, db: &Connection, frames: u32) -> bool {
        self.began_with = frames;
        self.go(db, Round { number: 1, frames: Frames { first: 1, last: frames } })
    }

    /// Begins the next round after one that has copied its frames, if much was added to the log meanwhile, which has so
    /// many frames now. Returns false if there is none.
    pub(super) fn go_on(&mut self, db: &Connection, done: Round, frames: u32) -> bool {
        let is_much = frames.saturating_sub(done.frames.last) > self.limits.left;
        let round = Round { number: done.number + 1, frames: Frames { first: done.frames.last + 1, last: frames } };
        is_much && done.number < ROUNDS_MAX && !self.is_behind(frames) && self.go(db, round)
    }

    fn go(&mut self, db: &Connection, round: Round) -> bool {
        let frames = round.frames;
        let is_pinned = self.pin.execute_batch("BEGIN; SELECT 1 FROM sqlite_schema LIMIT 1").is_ok();
        // A snapshot of a log that was all copied would not keep it from being taken up again, and one that was taken
        // after another program wrote would end later.
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

    /// Returns the round under way with its outcome, if it has ended.
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

    /// Waits for the end of the round under way, and returns it with its outcome.
    pub(super) fn wait(&mut self) -> Option<(Round, Outcome)> {
        self.round?;
        let outcome = match &mut self.worker {
            Worker::Beside { outcomes, .. } => outcomes.blocking_recv().unwrap_or_else(|| Err(gone())),
            Worker::Inline { copier, ordered } => ordered.take().map_or_else(|| Err(gone()), |it| copier.copy(it)),
        };
        self.over(outcome)
    }

    /// Does the same without blocking. Without a round, or with one that waits for the next group, it does not return.
    /// Nothing is lost if the future is dropped.
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
    /// Waits for the thread: the connection that is closed last copies back what is left, and that is the writer's.
    fn drop(&mut self) {
        if let Worker::Beside { orders, outcomes, thread } = &mut self.worker {
            drop(orders.take());
            outcomes.close();
            // Its panic was reported by the thread itself.
            let _ = thread.take().map(JoinHandle::join);
        }
    }
}

fn gone() -> Error {
    Error::Unknown("the thread that copies the write-ahead log back has ended".into())
}

#[cfg(test)]
mod tests;
