//! The only thread that commits. It commits all writes waiting in its queue in one transaction, with one `COMMIT` and
//! one sync of the disk, and then answers them. Once the write-ahead log is long, it copies the log back into the
//! database.
//!
//! Invariants:
//! - nothing is answered `Ok` before the `COMMIT` that holds it has returned;
//! - after a failed sync nothing more is written: the contents of the disk are then unknown, and a second sync that
//!   succeeds does not prove that the first one's pages are on the disk. The same applies after a `COMMIT` that failed
//!   for any reason but a full disk, after damage found while writing (other sessions may share it), and once the lock
//!   file or the database file is no longer the one that was opened.
//!
//! Between two groups it does a step of the work that deleted sessions leave (`upkeep.rs`), or indexes some entries
//! (`indexing.rs`).
//!
//! No row waits in a table of its own, and no second thread copies the log: together they made 99 of 100 appends of 200
//! busy sessions only 1.2 times as quick (tests/load/README.md).

mod handle;
mod indexing;
mod job;
mod upkeep;
mod wal;

pub(super) use handle::Writer;
pub(super) use job::{Size, Write};

use super::{CommitStats, checkpoint, health::Health, history::Broken, lock::Lock, readers::Pool};
use crate::Error;
use indexing::Indexing;
use job::{Job, Spoiled};
use rusqlite::{Connection, ErrorCode, config::DbConfig, ffi};
use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{runtime::Runtime, sync::mpsc};
use upkeep::Upkeep;
use wal::Wal;

/// The most writes that may wait for the thread. A session has one at a time, so the queue fills only if many sessions
/// write at the same time. Their futures then wait for room, and frame limits bound the size of what they carry.
const QUEUE_MAX: usize = 1024;

/// The size at which a group takes no more writes, so that no write waits for a transaction of many large ones. This
/// much is written in a few milliseconds.
const GROUP_BYTES_MAX: u64 = 1024 * 1024;

type Commit = Box<dyn FnMut(&Connection) -> rusqlite::Result<()> + Send>;

/// The parts from which the thread is built.
pub(super) struct Parts {
    pub(super) db: Connection,
    pub(super) lock: Option<Lock>,
    pub(super) observer: Box<dyn Fn(CommitStats) + Send>,
    /// As in [`super::Options`].
    pub(super) checkpoint_pages: u32,
    /// The time before the first retry of a failed upkeep step.
    pub(super) retry: Duration,
    pub(super) readers: Pool,
    /// True if rows of deleted sessions are still to be removed.
    pub(super) has_deletions: bool,
    pub(super) broken: Broken,
    /// True if entries are indexed.
    pub(super) index: bool,
}

/// The state that the thread owns.
struct Thread {
    db: Connection,
    /// Runs `COMMIT`; a field, so that a test can make it fail.
    commit: Commit,
    observer: Box<dyn Fn(CommitStats) + Send>,
    stats: CommitStats,
    /// Shared with the handle.
    health: Arc<Health>,
    wal: Wal,
    upkeep: Upkeep,
    indexing: Indexing,
    readers: Pool,
    /// It is declared after the connection, so that it is dropped after the connection closes.
    lock: Option<Lock>,
}

/// The event that wakes the thread.
enum Woken {
    Job(Box<dyn Job>),
    /// An upkeep step is due.
    Upkeep,
    /// All senders of jobs are gone.
    Closed,
}

impl Thread {
    fn new(parts: Parts) -> io::Result<Self> {
        let Parts { mut db, lock, observer, checkpoint_pages, retry, readers, has_deletions, broken, index } = parts;
        let (stats, health) = (CommitStats::default(), Arc::<Health>::default());
        let commit = Box::new(|db: &Connection| db.execute_batch("COMMIT"));
        let wal = Wal::watch(&mut db, checkpoint_pages).map_err(io::Error::other)?;
        let upkeep = Upkeep::new(has_deletions, retry);
        let indexing = Indexing::new(broken, index);
        Ok(Self { db, commit, observer, stats, health, wal, upkeep, indexing, readers, lock })
    }

    fn run(mut self, mut queue: mpsc::Receiver<Box<dyn Job>>, timer: &Runtime) {
        loop {
            match self.wait(&mut queue, timer) {
                Woken::Job(first) => {
                    self.write_group(gather(first, &mut queue));
                    self.checkpoint_when_due();
                    self.upkeep_when_due();
                    self.index_when_due(true);
                }
                Woken::Upkeep => {
                    self.upkeep_when_due();
                    self.index_when_due(false);
                }
                Woken::Closed => break,
            }
        }
        self.check_files();
        self.upkeep_at_the_end();
        if self.health.failure().is_some() {
            self.leave_log();
        } else if self.lock.is_some() {
            match checkpoint::empty(&self.db, self.lock.as_ref()) {
                Ok(true) => {}
                Ok(false) => tracing::warn!("the write-ahead log stays: another program reads the database"),
                Err(error) => tracing::warn!(%error, "the write-ahead log could not be copied back at the end"),
            }
        }
    }

    fn wait(&mut self, queue: &mut mpsc::Receiver<Box<dyn Job>>, timer: &Runtime) -> Woken {
        let job = |job: Option<Box<dyn Job>>| job.map_or(Woken::Closed, Woken::Job);
        let due_at = self.upkeep.due_at().into_iter().chain(self.indexing.due_at()).min();
        match due_at {
            None => job(queue.blocking_recv()),
            Some(at) if at <= Instant::now() => match queue.try_recv() {
                Ok(first) => Woken::Job(first),
                Err(mpsc::error::TryRecvError::Empty) => Woken::Upkeep,
                Err(mpsc::error::TryRecvError::Disconnected) => Woken::Closed,
            },
            Some(at) => timer.block_on(async {
                tokio::select! {
                    received = queue.recv() => job(received),
                    () = tokio::time::sleep_until(at.into()) => Woken::Upkeep,
                }
            }),
        }
    }

    fn write_group(&mut self, mut group: Vec<Box<dyn Job>>) {
        self.check_files();
        let failure = self.health.failure().or_else(|| self.try_group(&mut group).err());
        match &failure {
            Some(_) => self.count_failure(&group),
            None => {
                // A write refused by our own rules says nothing about the disk.
                let written: Vec<u64> = group.iter().filter_map(|job| job.written()).map(|size| size.bytes).collect();
                if !written.is_empty() {
                    self.health.committed(written.into_iter().sum());
                }
                for job in group.iter().filter(|job| job.written().is_some()) {
                    job.adds_to().into_iter().for_each(|session| self.indexing.add(session));
                }
                if group.iter().any(|job| job.deletes() && job.written().is_some()) {
                    self.upkeep.begin();
                }
            }
        }
        for job in group {
            job.answer(failure.as_ref());
        }
    }

    /// Stops all writing if the files are no longer those that were opened.
    fn check_files(&mut self) {
        if self.health.failure().is_some() {
            return;
        }
        if let Some(reason) = self.lock.as_ref().and_then(Lock::lost) {
            self.end(Error::Unknown(reason));
        }
    }

    /// Makes SQLite keep the log when the connection closes. Otherwise SQLite would copy back only the remaining pages
    /// and remove the log. After a failed sync, pages copied earlier may be lost, and the log still has them.
    fn leave_log(&self) {
        if let Err(error) = self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
            tracing::error!(%error, "the write-ahead log will be copied back when the store closes");
        }
    }

    fn count_failure(&mut self, group: &[Box<dyn Job>]) {
        self.health.failed(group.iter().map(|job| job.size().bytes).sum());
        self.stats.failed += 1;
        (self.observer)(self.stats);
    }

    /// Executes a group's writes and commits them. A write that spoils the group is answered and removed, and the rest
    /// is executed again. This repeats once per such write; only damage causes it.
    fn try_group(&mut self, group: &mut Vec<Box<dyn Job>>) -> Result<(), Error> {
        while let Err((at, spoiled)) = self.run_group(group) {
            // Nothing was committed, so the writer can continue, unless it cannot even roll back.
            if !self.db.is_autocommit()
                && let Err(error) = self.db.execute_batch("ROLLBACK")
            {
                return Err(self.end(unknown("roll back", &error)));
            }
            match spoiled {
                Spoiled::Alone => group.remove(at).answer(None),
                Spoiled::Sqlite(error) if is_fatal(&error) => return Err(self.end(unknown("write", &error))),
                Spoiled::Sqlite(error) => return Err(unknown("write", &error)),
            }
        }
        let started = Instant::now();
        if let Err(error) = (self.commit)(&self.db) {
            // Whatever the error says, it is unknown how much of the commit is on the disk. But it is known
            // whether SQLite rolled it back.
            let back = self.db.is_autocommit() || self.db.execute_batch("ROLLBACK").is_ok();
            let failure = unknown("commit", &error);
            // A full disk refuses the write before the sync; there may be room again later.
            let goes_on = back && error.sqlite_error_code() == Some(ErrorCode::DiskFull);
            return Err(if goes_on { failure } else { self.end(failure) });
        }
        let mut written = group.iter().filter_map(|job| job.written()).peekable();
        if written.peek().is_some() {
            self.stats.commits += 1;
            self.stats.last_commit = started.elapsed();
            for size in written {
                self.stats.records += size.records;
                self.stats.bytes += size.bytes;
            }
            (self.observer)(self.stats);
        }
        Ok(())
    }

    fn run_group(&self, group: &mut [Box<dyn Job>]) -> Result<(), (usize, Spoiled)> {
        self.db.execute_batch("BEGIN IMMEDIATE").map_err(|error| (0, Spoiled::Sqlite(error)))?;
        group.iter_mut().enumerate().try_for_each(|(at, job)| job.run(&self.db).map_err(|spoiled| (at, spoiled)))
    }

    /// Stops writing; every later write gets this answer.
    fn end(&mut self, failure: Error) -> Error {
        self.health.end(failure.clone());
        failure
    }
}

/// Returns the first job and further waiting jobs, as many as fit into one group.
fn gather(first: Box<dyn Job>, queue: &mut mpsc::Receiver<Box<dyn Job>>) -> Vec<Box<dyn Job>> {
    let mut bytes = first.size().bytes;
    let mut group = vec![first];
    // `QUEUE_MAX` bounds the group too: writers that return at once must not keep it open indefinitely.
    while bytes < GROUP_BYTES_MAX && group.len() < QUEUE_MAX {
        let Ok(next) = queue.try_recv() else { break };
        bytes += next.size().bytes;
        group.push(next);
    }
    group
}

/// Returns true if nothing more may be written after this error.
fn is_fatal(error: &rusqlite::Error) -> bool {
    let Some(failure) = error.sqlite_error() else { return false };
    matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        || matches!(failure.extended_code, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC)
}

fn unknown(step: &str, error: &rusqlite::Error) -> Error {
    Error::Unknown(format!("{step}: {error}"))
}

#[cfg(test)]
mod tests;
