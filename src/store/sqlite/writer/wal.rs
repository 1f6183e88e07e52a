//! The length of the write-ahead log, and when it is copied back.

use super::{super::erase, Failed, Thread, is_fatal, is_full, unknown};
use rusqlite::Connection;
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

/// The length of the log, and when it is copied back next.
pub(super) struct Wal {
    /// Its pages after the last commit.
    pages: Arc<AtomicU32>,
    /// Pages at which it is copied back.
    checkpoint_pages: u32,
    /// The same, or more if a reader of an old snapshot let only a part be copied last time.
    due_at: u32,
}

impl Wal {
    /// Observes the log of a connection. This replaces SQLite's own checkpoints, which make a commit wait for them and
    /// hide a failed sync.
    pub(super) fn watch(db: &mut Connection, checkpoint_pages: u32) -> rusqlite::Result<Self> {
        let pages = Arc::new(AtomicU32::new(0));
        let seen = pages.clone();
        db.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: i32| {
            seen.store(pages.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { pages, checkpoint_pages, due_at: checkpoint_pages })
    }

    pub(super) fn pages(&self) -> u32 {
        self.pages.load(Ordering::Relaxed)
    }

    /// Returns true if the log is to be copied back now. If it stays long, because a reader needs it or copying fails,
    /// that is not retried at the very next commit.
    pub(super) fn is_due(&mut self) -> bool {
        let pages = self.pages();
        if pages < self.checkpoint_pages {
            // The log restarted.
            self.due_at = self.checkpoint_pages;
        }
        let is_due = pages >= self.due_at;
        if is_due {
            self.due_at = pages.saturating_add(self.checkpoint_pages.div_ceil(4));
        }
        is_due
    }
}

impl Thread {
    /// Copies the write-ahead log back if it is long, after its writers were answered.
    pub(super) fn checkpoint_when_due(&mut self) {
        if self.wal.is_due() && self.health.failure().is_none() {
            let pages = self.wal.pages();
            if let Err(Failed { error, .. }) = self.checkpoint()
                && self.health.failure().is_none()
            {
                tracing::error!(%error, pages, "the write-ahead log could not be copied back and keeps growing");
            }
        }
    }

    pub(super) fn checkpoint(&mut self) -> Result<(), Failed> {
        match erase::copy_back(&self.db, self.lock.as_ref()) {
            Ok(_) => Ok(()),
            Err(error) if is_fatal(&error) => Err(self.ended(unknown("copy the write-ahead log back", &error))),
            Err(error) => {
                Err(Failed { error: unknown("copy the write-ahead log back", &error), is_full: is_full(&error) })
            }
        }
    }
}
