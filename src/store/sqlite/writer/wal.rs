//! The length of the write-ahead log, and when it is copied back.

use super::{super::checkpoint, Thread, is_fatal, unknown};
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

    /// Records that copying has ended, and whether all of the log is copied.
    fn ended(&mut self, is_copied: bool) {
        let pages = self.pages();
        (self.copied, self.seen) = (is_copied.then_some(pages), pages);
        self.due_at = pages.saturating_add(self.retry_pages);
    }
}

impl Thread {
    /// Copies the write-ahead log back if it is long. It runs after the writes are answered.
    pub(super) fn checkpoint_when_due(&mut self) {
        if self.wal.is_due()
            && let Err(error) = self.checkpoint()
            && self.health.failure().is_none()
        {
            let pages = self.wal.pages();
            tracing::error!(%error, pages, "the write-ahead log could not be copied back and keeps growing");
        }
    }

    /// Copies the whole log back, unless nothing may be written.
    pub(super) fn checkpoint(&mut self) -> Result<(), Error> {
        if let Some(error) = self.health.failure() {
            return Err(error);
        }
        let copied = checkpoint::copy_back(&self.db, self.lock.as_ref());
        self.wal.ended(matches!(copied, Ok(true)));
        copied.map(drop).map_err(|error| {
            let failure = unknown("copy the write-ahead log back", &error);
            if is_fatal(&error) { self.end(failure) } else { failure }
        })
    }
}
