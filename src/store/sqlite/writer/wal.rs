//! The length of the write-ahead log, and when it is copied back.

use super::{
    super::checkpoint::{self, Cleared},
    Failed, Thread,
    copying::{Copying, Limits, Outcome, Round},
    is_fatal, is_full, unknown,
};
use crate::Error;
use rusqlite::Connection;
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

/// The length of the log, and when it is copied back next.
pub(super) struct Wal {
    /// The number of its pages after the last commit.
    pages: Arc<AtomicU32>,
    /// The number of pages at which copying begins.
    begin_pages: u32,
    /// The number of pages by which it grows before copying is tried again.
    retry_pages: u32,
    /// [`Self::begin_pages`], or more if the log stayed long after the last copy.
    due_at: u32,
    /// The length at which all of it was copied. While the length is the same, nothing was added.
    copied: Option<u32>,
    /// The length that was seen last.
    seen: u32,
}

impl Wal {
    /// Observes the log of a connection. This replaces SQLite's automatic checkpoints, which make a commit wait for
    /// them and hide a failed sync.
    pub(super) fn watch(db: &mut Connection, checkpoint_pages: u32) -> rusqlite::Result<Self> {
        let pages = Arc::new(AtomicU32::new(0));
        let seen = pages.clone();
        db.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: i32| {
            seen.store(pages.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        let retry_pages = checkpoint_pages.div_ceil(4);
        Ok(Self { pages, begin_pages: checkpoint_pages, retry_pages, due_at: checkpoint_pages, copied: None, seen: 0 })
    }

    /// Returns the limits for copying such a log concurrently.
    pub(super) fn limits(checkpoint_pages: u32) -> Limits {
        // The writer's part takes about as long as two or three groups.
        Limits { left: checkpoint_pages / 12, growth: checkpoint_pages.div_ceil(2) }
    }

    pub(super) fn pages(&self) -> u32 {
        self.pages.load(Ordering::Relaxed)
    }

    /// Returns true if the log must be copied back now. If it stays long, because a reader needs it or copying fails,
    /// the very next commit does not retry.
    fn is_due(&mut self) -> bool {
        let pages = self.pages();
        if pages < self.seen {
            // The log was restarted.
            (self.due_at, self.copied) = (self.begin_pages, None);
        }
        self.seen = pages;
        pages >= self.due_at && self.copied != Some(pages)
    }

    /// Returns true if the log is longer than it should become while it is copied.
    fn is_long(&self) -> bool {
        self.pages() >= self.begin_pages.saturating_add(self.begin_pages.div_ceil(2))
    }

    /// Records that copying has ended, and whether all of the log is copied.
    fn ended(&mut self, is_copied: bool) {
        let pages = self.pages();
        (self.copied, self.seen) = (is_copied.then_some(pages), pages);
        self.due_at = pages.saturating_add(self.retry_pages);
    }
}

impl Thread {
    pub(super) fn is_copying(&self) -> bool {
        self.copying.as_ref().is_some_and(Copying::is_under_way)
    }

    /// Starts copying the write-ahead log back if it is long, and does the writer's part. It runs after the writes are
    /// answered.
    pub(super) fn checkpoint_when_due(&mut self) {
        if self.health.failure().is_some() {
            return;
        }
        if let Some(copying) = self.copying.as_mut().filter(|copying| copying.is_under_way()) {
            // A disk that copies more slowly than it takes in must not let the log grow without bound.
            let is_behind = copying.is_behind(self.wal.pages());
            if let Some((round, outcome)) = if is_behind { copying.wait() } else { copying.ended() } {
                self.after_round(round, outcome);
            }
        } else if self.wal.is_due() && !self.begin_copying() {
            self.copy_the_rest(Cleared::default());
        }
    }

    /// Begins to copy the log back concurrently. Returns false if that is not possible.
    fn begin_copying(&mut self) -> bool {
        let Some(copying) = &mut self.copying else { return false };
        let watched = self.lock.as_ref().map(|lock| lock.watched());
        watched.inspect(|watched| watched.begin_change());
        copying.begin(&self.db, self.wal.pages())
    }

    /// Continues after a round: with the next one, or with the rest on this thread.
    pub(super) fn after_round(&mut self, round: Round, outcome: Outcome) {
        let goes_on = |copying: &mut Copying| copying.go_on(&self.db, round, self.wal.pages());
        match outcome {
            outcome if self.health.failure().is_some() => self.end_copying(outcome),
            Ok(Some(_)) if self.copying.as_mut().is_some_and(goes_on) => {}
            Ok(Some(cleared)) => self.copy_the_rest(cleared),
            // A reader is in the way all the time.
            Ok(None) if self.wal.is_long() => self.copy_the_rest(Cleared::default()),
            // Copying is retried when the log is longer. An error is logged.
            outcome => self.end_copying(outcome),
        }
    }

    /// Waits until no other thread copies the log.
    pub(super) fn settle_copying(&mut self) {
        if let Some((_, outcome)) = self.copying.as_mut().and_then(Copying::wait) {
            self.end_copying(outcome);
        }
    }

    /// Ends copying and leaves the log as the round left it.
    fn end_copying(&mut self, outcome: Outcome) {
        if let Some(lock) = &self.lock {
            let sample = match &outcome {
                Ok(Some(cleared)) => cleared.sample.clone(),
                _ => checkpoint::sample(lock),
            };
            lock.watched().end_change(&sample);
        }
        self.wal.ended(false);
        if let Err(error) = outcome {
            self.keeps_growing(&error);
        }
    }

    /// Copies back the rest of the log after a part of it was cleared.
    fn copy_the_rest(&mut self, cleared: Cleared) {
        if let Err(Failed { error, .. }) = self.copy_back(cleared) {
            self.keeps_growing(&error);
        }
    }

    fn keeps_growing(&self, error: &Error) {
        if self.health.failure().is_none() {
            let pages = self.wal.pages();
            tracing::error!(%error, pages, "the write-ahead log could not be copied back and keeps growing");
        }
    }

    /// Copies the whole log back at once.
    pub(super) fn checkpoint(&mut self) -> Result<(), Failed> {
        self.settle_copying();
        if let Some(error) = self.health.failure() {
            return Err(Failed { error, is_full: false });
        }
        self.copy_back(Cleared::default())
    }

    fn copy_back(&mut self, cleared: Cleared) -> Result<(), Failed> {
        let copied = checkpoint::copy_back_after(&self.db, self.lock.as_ref(), cleared);
        self.wal.ended(matches!(copied, Ok(true)));
        match copied {
            Ok(_) => Ok(()),
            Err(error) if is_fatal(&error) => Err(self.ended(unknown("copy the write-ahead log back", &error))),
            Err(error) => {
                Err(Failed { error: unknown("copy the write-ahead log back", &error), is_full: is_full(&error) })
            }
        }
    }
}
