//! Whether the writer would take a write now, for those who ask before they send any.
//!
//! After a failed write it is refused until one that is at least as large succeeds: a small one may fit into room that
//! the write-ahead log has left, where the disk is full. So that a server without traffic finds out too, whoever asks
//! has a write tried that leaves nothing behind.

use super::{
    Fault,
    writer::{Size, Write},
};
use crate::store::Error;
use rusqlite::Connection;
use std::{
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

/// Bytes that are tried where no write has failed: more than a record of a usual turn.
const PROBE_BYTES_MIN: u64 = 16 * 1024;
/// The most that is tried: what one group of writes may hold.
const PROBE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How long a write that succeeded is believed. Whoever asks more often than this costs no more syncs.
const BELIEVED: Duration = Duration::from_secs(10);
/// The same while writes are refused or the disk is nearly full: nobody who asks may keep the disk busy.
const BRIEFLY_BELIEVED: Duration = Duration::from_secs(1);
/// A disk with less room than this is nearly full: a few of the largest groups, with the write-ahead log that holds
/// them.
const FREE_BYTES_MIN: u64 = 16 * PROBE_BYTES_MAX;

/// How writing goes, as the writer's thread has it; others look at it.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Why nothing more is written until the process starts again.
    failure: OnceLock<Error>,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// When a group was committed last.
    took: Option<Instant>,
    /// Bytes of the largest group that failed since one as large was committed.
    refused_bytes: Option<u64>,
    /// When a probe ended last, and how.
    probed: Option<(Instant, Result<(), Error>)>,
}

impl Health {
    pub(super) fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    pub(super) fn end(&self, failure: Error) {
        let _ = self.failure.set(failure);
    }

    /// A group of so many bytes was committed.
    pub(super) fn took(&self, bytes: u64) {
        let mut last = self.last();
        last.took = Some(Instant::now());
        last.refused_bytes = last.refused_bytes.filter(|refused| bytes < *refused);
    }

    /// A group of so many bytes failed.
    pub(super) fn refused(&self, bytes: u64) {
        let mut last = self.last();
        let bytes = bytes.clamp(PROBE_BYTES_MIN, PROBE_BYTES_MAX);
        if last.refused_bytes.is_none() {
            // What was found before this says nothing any more.
            last.probed = None;
        }
        last.refused_bytes = Some(last.refused_bytes.map_or(bytes, |refused| refused.max(bytes)));
    }

    /// How many bytes to try, with so many free on the disk where that is known; `None` where what is known is new
    /// enough.
    pub(super) fn probe_due(&self, free_bytes: Option<u64>) -> Option<u64> {
        let last = self.last();
        let is_new = |at: Option<Instant>, believed| at.is_some_and(|at| at.elapsed() < believed);
        let probed = last.probed.as_ref().map(|(at, _)| *at);
        match last.refused_bytes {
            Some(bytes) => (!is_new(probed, BRIEFLY_BELIEVED)).then_some(bytes),
            None => {
                let is_scarce = free_bytes.is_some_and(|free| free < FREE_BYTES_MIN);
                let believed = if is_scarce { BRIEFLY_BELIEVED } else { BELIEVED };
                (!is_new(last.took, believed)).then_some(PROBE_BYTES_MIN)
            }
        }
    }

    /// What is known where nothing is to be tried.
    pub(super) fn probed(&self) -> Result<(), Error> {
        let last = self.last();
        match (&last.probed, last.refused_bytes) {
            (Some((_, outcome)), Some(_)) => outcome.clone(),
            _ => Ok(()),
        }
    }

    pub(super) fn was_probed(&self, outcome: Result<(), Error>) {
        self.last().probed = Some((Instant::now(), outcome));
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        // Every change is whole before the lock is let go.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write of so many bytes that leaves nothing behind: what is deleted in the transaction that wrote it is overwritten
/// (`secure_delete`), so its pages are written and synced as those of any other write.
pub(super) struct Probe {
    pub(super) bytes: u64,
}

impl Write for Probe {
    type Output = ();

    fn write(&self, db: &Connection) -> Result<(), Fault> {
        // No session has this number.
        db.prepare_cached(
            "INSERT INTO mark (session, command, fingerprint, reply, checksum) VALUES (-1, 'probe', 0, zeroblob(?1), 0)",
        )?
        .execute([i64::try_from(self.bytes).unwrap_or(i64::MAX)])?;
        db.prepare_cached("DELETE FROM mark WHERE session = -1")?.execute([])?;
        Ok(())
    }

    fn size(&self) -> Size {
        Size { records: 0, bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::{BRIEFLY_BELIEVED, FREE_BYTES_MIN, Health, PROBE_BYTES_MIN};
    use crate::store::Error;
    use std::time::Instant;

    fn full() -> Error {
        Error::Unknown("full".into())
    }

    #[test]
    fn on_a_disk_that_is_nearly_full_a_write_is_believed_briefly() {
        let health = Health::default();
        health.last().took = Instant::now().checked_sub(2 * BRIEFLY_BELIEVED);
        for (free, due) in [(None, None), (Some(FREE_BYTES_MIN), None), (Some(0), Some(PROBE_BYTES_MIN))] {
            assert_eq!(health.probe_due(free), due, "{free:?}");
        }
    }

    #[test]
    fn what_was_refused_is_tried_again_until_as_much_is_taken() {
        let health = Health::default();
        assert_eq!(health.probe_due(None), Some(PROBE_BYTES_MIN), "nothing is known yet");
        health.took(100);
        assert_eq!((health.probe_due(None), health.probed()), (None, Ok(())));
        health.refused(100_000);
        health.refused(50_000);
        assert_eq!(health.probe_due(None), Some(100_000));
        health.was_probed(Err(full()));
        assert_eq!((health.probe_due(None), health.probed()), (None, Err(full())), "not tried again at once");
        health.took(99_999);
        assert_eq!(health.probed(), Err(full()), "a smaller one says nothing of a larger one");
        health.took(100_000);
        assert_eq!((health.probe_due(None), health.probed()), (None, Ok(())));
        // What a probe found before a write failed says nothing of it.
        health.was_probed(Ok(()));
        health.refused(1);
        assert_eq!(health.probe_due(None), Some(PROBE_BYTES_MIN));
    }
}
