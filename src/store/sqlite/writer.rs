//! The only thread that commits. It commits all writes waiting in its queue in one transaction, with one `COMMIT` and
//! one sync of the disk, and then answers them. A second thread copies committed pages from the write-ahead log back
//! into the database (`copying.rs`).
//!
//! Invariants:
//! - nothing is answered `Ok` before the `COMMIT` that holds it has returned;
//! - after a failed sync nothing more is written: the contents of the disk are then unknown, and a second sync that
//!   succeeds does not prove that the first one's pages are on the disk. The same applies after a `COMMIT` that failed
//!   for any reason but a full disk, after damage found while writing (other sessions may share it), and once the lock
//!   file or the database file is no longer the one that was opened.
//!
//! Between two groups it moves new rows to the main tables (`moving.rs`), does a step of the work that deleted sessions
//! leave (`upkeep.rs`), or indexes some entries (`indexing.rs`).

mod copying;
mod handle;
mod indexing;
mod job;
mod moving;
mod upkeep;
mod wal;

pub(super) use copying::{Copiers, CopyingPlace};
pub(super) use handle::Writer;
pub(super) use job::{Size, Write};

use super::{
    CommitStats, checkpoint, health::Health, history::Suspects, lock::Lock, readers::Pool, reserve::Reserve,
    staging::Staged, watched::Lost,
};
use crate::Error;
use copying::{Copying, Outcome, Round};
use indexing::Indexing;
use job::{Job, Spoiled};
use moving::Moving;
use rusqlite::{Connection, ErrorCode, config::DbConfig, ffi};
use std::{
    future, io,
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

/// The answer to other writes while the reserve is used to delete sessions.
const FULL: &str = "the disk is full, and its reserve is used to delete sessions: make room on it";

type Commit = Box<dyn FnMut(&Connection) -> rusqlite::Result<()> + Send>;

/// The parts from which the thread is built.
pub(super) struct Parts {
    pub(super) db: Connection,
    /// The connections that copy the write-ahead log back, and where that runs; with `None` the writer's thread does
    /// it.
    pub(super) copying: Option<(Copiers, CopyingPlace)>,
    pub(super) lock: Option<Lock>,
    pub(super) observer: Box<dyn Fn(CommitStats) + Send>,
    /// As in [`super::Options`].
    pub(super) checkpoint_pages: u32,
    /// The time before the first retry of a failed upkeep step.
    pub(super) retry: Duration,
    pub(super) reserve: Reserve,
    pub(super) readers: Pool,
    /// True if rows of deleted sessions are still to be removed.
    pub(super) has_deletions: bool,
    /// The number of rows in the stages of the file.
    pub(super) staged: Staged,
    pub(super) suspects: Suspects,
    /// True if entries are indexed.
    pub(super) index: bool,
}

/// The state that the thread owns.
struct Thread {
    /// It is declared before the connection: the connection that closes last copies the log back and removes it.
    copying: Option<Copying>,
    db: Connection,
    /// Runs `COMMIT`; a field, so that a test can make it fail.
    commit: Commit,
    observer: Box<dyn Fn(CommitStats) + Send>,
    stats: CommitStats,
    /// Shared with the handle.
    health: Arc<Health>,
    wal: Wal,
    moving: Moving,
    upkeep: Upkeep,
    indexing: Indexing,
    reserve: Reserve,
    readers: Pool,
    /// It is declared after the connection, so that it is dropped after the connection closes.
    lock: Option<Lock>,
}

/// The reason a group was not committed.
struct Failed {
    error: Error,
    /// True if the disk is full and nothing else is wrong.
    is_full: bool,
}

/// The event that wakes the thread.
enum Woken {
    Job(Box<dyn Job>),
    /// An upkeep step is due.
    Upkeep,
    /// A round of copying the write-ahead log back has ended.
    Copied(Round, Outcome),
    /// All senders of jobs are gone.
    Closed,
}

impl Thread {
    fn new(parts: Parts) -> io::Result<Self> {
        let Parts { mut db, copying, lock, observer, checkpoint_pages, retry, reserve, readers, has_deletions, .. } =
            parts;
        let Parts { staged, suspects, index, .. } = parts;
        let (stats, health) = (CommitStats::default(), Arc::<Health>::default());
        let commit = Box::new(|db: &Connection| db.execute_batch("COMMIT"));
        let watched = || lock.as_ref().map(|lock| lock.watched().clone());
        let limits = Wal::limits(checkpoint_pages);
        let start = |(copiers, place)| Copying::start(copiers, place, limits, watched(), health.clone());
        let copying = copying.map(start).transpose()?;
        let wal = Wal::watch(&mut db, checkpoint_pages).map_err(io::Error::other)?;
        let moving = Moving::new(staged);
        let upkeep = Upkeep::new(has_deletions, retry);
        let indexing = Indexing::new(suspects, index);
        Ok(Self { copying, db, commit, observer, stats, health, wal, moving, upkeep, indexing, reserve, readers, lock })
    }

    fn run(mut self, mut queue: mpsc::Receiver<Box<dyn Job>>, timer: &Runtime) {
        loop {
            match self.wait(&mut queue, timer) {
                Woken::Job(first) => {
                    self.write_group(gather(first, &mut queue));
                    self.checkpoint_when_due();
                    self.move_when_due();
                    self.upkeep_when_due();
                    self.index_when_due(true);
                }
                Woken::Upkeep => {
                    self.upkeep_when_due();
                    self.index_when_due(false);
                }
                Woken::Copied(round, outcome) => self.after_round(round, outcome),
                Woken::Closed => break,
            }
        }
        // From here on this thread does everything itself, one thing after the other.
        self.settle_copying();
        self.copying = None;
        self.check_files();
        self.upkeep_at_the_end();
        self.move_at_the_end();
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
            None if !self.is_copying() => job(queue.blocking_recv()),
            Some(at) if at <= Instant::now() => match queue.try_recv() {
                Ok(first) => Woken::Job(first),
                Err(mpsc::error::TryRecvError::Empty) => Woken::Upkeep,
                Err(mpsc::error::TryRecvError::Disconnected) => Woken::Closed,
            },
            _ => timer.block_on(async {
                tokio::select! {
                    received = queue.recv() => job(received),
                    (round, outcome) = next_of(self.copying.as_mut()) => Woken::Copied(round, outcome),
                    () = until(due_at) => Woken::Upkeep,
                }
            }),
        }
    }

    fn write_group(&mut self, mut group: Vec<Box<dyn Job>>) {
        self.check_files();
        self.reserve.restore();
        if self.reserve.is_spent() && !self.upkeep.is_idle() {
            // Only deletions may use the room until they are done.
            group = self.refuse_others(group, &Error::Unknown(FULL.into()));
        }
        if group.is_empty() {
            return;
        }
        let mut failed = self.health.failure().map(|error| Failed { error, is_full: false });
        if failed.is_none() {
            failed = self.try_group(&mut group).err();
        }
        if let Some(Failed { error, is_full: true }) = &failed
            && group.iter().any(|job| job.deletes())
            && self.reserve.spend()
        {
            group = self.refuse_others(group, error);
            // Once copied back, the log restarts from its beginning, which takes no more room.
            failed = self.checkpoint().err().or_else(|| self.try_group(&mut group).err());
        }
        match &failed {
            Some(_) => self.count_failure(&group),
            None => {
                // A write refused by our own rules says nothing about the disk.
                let written: Vec<u64> = group.iter().filter_map(|job| job.written()).map(|size| size.bytes).collect();
                if !written.is_empty() {
                    self.health.committed(written.into_iter().sum());
                }
                group.iter().for_each(|job| self.moving.add(job.staged()));
                for job in group.iter().filter(|job| job.written().is_some()) {
                    job.adds_to().into_iter().for_each(|session| self.indexing.add(session));
                }
                if group.iter().any(|job| job.deletes() && job.written().is_some()) {
                    self.upkeep.begin();
                }
            }
        }
        let failure = failed.map(|failed| failed.error);
        for job in group {
            job.answer(failure.as_ref());
        }
    }

    /// Stops all writing if the files are no longer those that were opened, or were changed by others.
    fn check_files(&mut self) {
        if self.health.failure().is_some() {
            return;
        }
        let Some(lost) = self.lock.as_ref().and_then(|lock| lock.watched().lost()) else { return };
        if let Lost::Changed(_) = &lost {
            self.leave_log();
        }
        self.end(Error::Unknown(lost.reason()));
    }

    /// Makes SQLite keep the log when the connection closes. Otherwise SQLite would copy back only the remaining pages
    /// and remove the log. After a failed sync, pages copied earlier may be lost, and the log still has them.
    fn leave_log(&self) {
        if let Err(error) = self.db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true) {
            tracing::error!(%error, "the write-ahead log will be copied back when the store closes");
        }
    }

    /// Answers the writes that delete nothing, and returns the others.
    fn refuse_others(&mut self, group: Vec<Box<dyn Job>>, error: &Error) -> Vec<Box<dyn Job>> {
        let (deleting, others): (Vec<_>, Vec<_>) = group.into_iter().partition(|job| job.deletes());
        if !others.is_empty() {
            self.count_failure(&others);
            others.into_iter().for_each(|job| job.answer(Some(error)));
        }
        deleting
    }

    fn count_failure(&mut self, group: &[Box<dyn Job>]) {
        self.health.failed(group.iter().map(|job| job.size().bytes).sum());
        self.stats.failed += 1;
        (self.observer)(self.stats);
    }

    /// Executes a group's writes and commits them. A write that spoils the group is answered and removed, and the rest
    /// is executed again. This repeats once per such write; only damage causes it.
    fn try_group(&mut self, group: &mut Vec<Box<dyn Job>>) -> Result<(), Failed> {
        while let Err((at, spoiled)) = self.run_group(group) {
            // Nothing was committed, so the writer can continue, unless it cannot even roll back.
            if !self.db.is_autocommit()
                && let Err(error) = self.db.execute_batch("ROLLBACK")
            {
                return Err(self.ended(unknown("roll back", &error)));
            }
            match spoiled {
                Spoiled::Alone => group.remove(at).answer(None),
                Spoiled::Sqlite(error) if is_fatal(&error) => return Err(self.ended(unknown("write", &error))),
                Spoiled::Sqlite(error) => {
                    return Err(Failed { error: unknown("write", &error), is_full: is_full(&error) });
                }
            }
        }
        let started = Instant::now();
        if let Err(error) = (self.commit)(&self.db) {
            // Whatever the error says, it is unknown how much of the commit is on the disk. What is known is whether
            // SQLite rolled it back.
            let back = self.db.is_autocommit() || self.db.execute_batch("ROLLBACK").is_ok();
            let failure = unknown("commit", &error);
            // A full disk refuses the write before the sync; there may be room again later.
            let goes_on = back && is_full(&error);
            return Err(if goes_on { Failed { error: failure, is_full: true } } else { self.ended(failure) });
        }
        // Copying the log back may have failed meanwhile in a way that leaves the disk in an unknown state.
        if let Some(error) = self.health.failure() {
            return Err(Failed { error, is_full: false });
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

    fn ended(&mut self, failure: Error) -> Failed {
        Failed { error: self.end(failure), is_full: false }
    }
}

/// Returns the next round that ends.
async fn next_of(copying: Option<&mut Copying>) -> (Round, Outcome) {
    match copying {
        Some(copying) => copying.next().await,
        None => future::pending().await,
    }
}

/// Waits until this time; forever without one.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => future::pending().await,
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

/// Returns true if the disk is full; there may be room again later.
fn is_full(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DiskFull)
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
