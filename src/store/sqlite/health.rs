//! Reports whether a write would succeed now, before anyone sends one.
//!
//! After a failed write, the store counts as unwritable until a write at least as large succeeds, because on a full
//! disk a small one may still fit into free space in the write-ahead log. A check tries a write that leaves nothing
//! behind, so that a server without traffic also notices.

use super::{
    Fault,
    writer::{Size, Write},
};
use crate::Error;
use rusqlite::Connection;
use std::{
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

/// The size of a probe if no write has failed: more than a record of a typical turn.
const PROBE_BYTES_MIN: u64 = 16 * 1024;
/// The largest probe: as much as one group of writes may hold.
const PROBE_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The time for which a successful write counts as recent. More frequent checks cost no further syncs.
const RECHECK: Duration = Duration::from_secs(10);
/// The same while writes fail. It keeps checks from occupying the disk.
const RECHECK_SOON: Duration = Duration::from_secs(1);

/// The state of the writer, updated by its thread and read by others.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// The reason nothing is written until the process restarts.
    failure: OnceLock<Error>,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// The time of the last commit of a group.
    committed: Option<Instant>,
    /// The size of the largest failed group, until one of that size is committed.
    refused_bytes: Option<u64>,
    /// The time of the last probe, and its outcome.
    probed: Option<(Instant, Result<(), Error>)>,
}

impl Health {
    pub(super) fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    /// Stops all writing; every later write gets this answer. Only the first reason is kept.
    pub(super) fn end(&self, failure: Error) {
        if self.failure.set(failure.clone()).is_ok() {
            tracing::error!(error = %failure, "the store accepts no more writes until the server restarts");
        }
    }

    /// Records that a group of this many bytes was committed.
    pub(super) fn committed(&self, bytes: u64) {
        let mut last = self.last();
        last.committed = Some(Instant::now());
        last.refused_bytes = last.refused_bytes.filter(|refused| bytes < *refused);
    }

    /// Records that a group of this many bytes failed.
    pub(super) fn failed(&self, bytes: u64) {
        let mut last = self.last();
        let bytes = bytes.clamp(PROBE_BYTES_MIN, PROBE_BYTES_MAX);
        if last.refused_bytes.is_none() {
            // This makes earlier probe results obsolete.
            last.probed = None;
        }
        last.refused_bytes = Some(last.refused_bytes.map_or(bytes, |refused| refused.max(bytes)));
    }

    /// Returns the size of the probe to try; `None` if the latest result is recent enough.
    pub(super) fn probe_due(&self) -> Option<u64> {
        let last = self.last();
        let is_new = |at: Option<Instant>, recheck| at.is_some_and(|at| at.elapsed() < recheck);
        let probed = last.probed.as_ref().map(|(at, _)| *at);
        match last.refused_bytes {
            Some(bytes) => (!is_new(probed, RECHECK_SOON)).then_some(bytes),
            None => (!is_new(last.committed, RECHECK)).then_some(PROBE_BYTES_MIN),
        }
    }

    /// Returns the latest result, if no probe is due.
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
        // Every change is complete before the lock is released.
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write of this many bytes that leaves nothing behind. `secure_delete` overwrites data that is deleted in the same
/// transaction, so its pages are written and synced like those of any other write.
pub(super) struct Probe {
    pub(super) bytes: u64,
}

impl Write for Probe {
    type Output = ();

    fn write(&self, db: &Connection) -> Result<(), Fault> {
        // No session has this number.
        db.prepare_cached(
            "INSERT INTO mark (session, command, fingerprint, reply, checksum) \
             VALUES (-1, 'probe', 0, zeroblob(?1), 0)",
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
    use super::{Health, PROBE_BYTES_MIN};
    use crate::Error;

    fn full() -> Error {
        Error::Unknown("full".into())
    }

    #[test]
    fn a_refused_size_is_probed_until_as_much_is_accepted() {
        let health = Health::default();
        assert_eq!(health.probe_due(), Some(PROBE_BYTES_MIN), "nothing is known yet");
        health.committed(100);
        assert_eq!((health.probe_due(), health.probed()), (None, Ok(())));
        health.failed(100_000);
        health.failed(50_000);
        assert_eq!(health.probe_due(), Some(100_000));
        health.was_probed(Err(full()));
        assert_eq!((health.probe_due(), health.probed()), (None, Err(full())), "not tried again at once");
        health.committed(99_999);
        assert_eq!(health.probed(), Err(full()), "a smaller one says nothing of a larger one");
        health.committed(100_000);
        assert_eq!((health.probe_due(), health.probed()), (None, Ok(())));
        // A probe that succeeded before a write failed says nothing about that failure.
        health.was_probed(Ok(()));
        health.failed(1);
        assert_eq!(health.probe_due(), Some(PROBE_BYTES_MIN));
    }
}
