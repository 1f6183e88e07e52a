//! The only thread that writes. It commits everything waiting in its queue in one transaction with one `COMMIT` and one
//! sync of the disk, then answers all of it.
//!
//! Invariants:
//! - nothing is answered `Ok` before the `COMMIT` that holds it has returned;
//! - after a failed sync nothing more is written: what the disk holds is then unknown, and a second sync that succeeds
//!   does not mean that the first one's pages are on the disk. The same applies after a `COMMIT` that failed for any
//!   reason but a full disk, after damage found while writing (what other sessions share with it is unknown), and once
//!   the lock file or the database file is no longer the one that was opened.

use super::{
    CommitStats, Fault,
    health::{Health, Probe},
    lock::{Lock, Watched},
    open::to_the_end,
};
use crate::store::Error;
use rusqlite::{Connection, ErrorCode, ffi};
use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, JoinHandle},
    time::Instant,
};
use tokio::sync::{mpsc, oneshot};

/// Writes that may wait for the thread. A session has one at a time, so the queue fills only if many sessions write at
/// once; their futures then wait for room, and the size of what they carry is bounded by their frames.
const QUEUE_MAX: usize = 1024;

/// A group that reaches this many bytes takes in no more, so that no write waits for a transaction of many large ones:
/// this much is written in about 10 ms.
const GROUP_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The size of what a write puts into the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) records: u64,
    pub(super) bytes: u64,
}

/// One write, executed inside a transaction that others share.
pub(super) trait Write: Send + 'static {
    type Output: Send + 'static;

    /// Executes the write, or refuses it without having changed anything.
    fn write(&self, db: &Connection) -> Result<Self::Output, Fault>;

    fn size(&self) -> Size {
        Size::default()
    }
}

/// The reason a group cannot be committed as it is.
enum Spoiled {
    /// Only this write failed, and it has its answer; the others can be executed again.
    Alone,
    /// The database failed.
    Sqlite(rusqlite::Error),
}

/// A queued write of any output type.
trait Job: Send {
    /// Executes the write and keeps its result. May be called again after a rollback.
    fn run(&mut self, db: &Connection) -> Result<(), Spoiled>;

    /// Returns the size of what was written; `None` if the write was refused.
    fn written(&self) -> Option<Size>;

    fn size(&self) -> Size;

    /// Sends the caller the result, or the failure of the transaction.
    fn answer(self: Box<Self>, failure: Option<&Error>);
}

struct Call<W: Write> {
    write: W,
    result: Option<Result<W::Output, Error>>,
    answer: oneshot::Sender<Result<W::Output, Error>>,
}

impl<W: Write> Job for Call<W> {
    fn run(&mut self, db: &Connection) -> Result<(), Spoiled> {
        let (result, spoiled) = match self.write.write(db) {
            Ok(output) => (Ok(output), Ok(())),
            Err(Fault::Refused(error)) => (Err(error), Ok(())),
            Err(Fault::Undone(error)) => (Err(error), Err(Spoiled::Alone)),
            Err(Fault::Sqlite(error)) => return Err(Spoiled::Sqlite(error)),
        };
        self.result = Some(result);
        spoiled
    }

    fn written(&self) -> Option<Size> {
        matches!(self.result, Some(Ok(_))).then(|| self.write.size())
    }

    fn size(&self) -> Size {
        self.write.size()
    }

    fn answer(self: Box<Self>, failure: Option<&Error>) {
        let result = match failure {
            Some(error) => Err(error.clone()),
            None => self.result.unwrap_or_else(|| Err(Error::Unknown("the write was not executed".into()))),
        };
        // The caller may be gone; the write stands all the same.
        let _ = self.answer.send(result);
    }
}

type Commit = Box<dyn FnMut(&Connection) -> rusqlite::Result<()> + Send>;

/// The state that the thread owns.
struct Thread {
    db: Connection,
    /// Runs `COMMIT`; a field so that a test can make it fail.
    commit: Commit,
    observer: Box<dyn Fn(CommitStats) + Send>,
    stats: CommitStats,
    /// Shared with the handle.
    health: Arc<Health>,
    wal: Wal,
    /// Declared after the connection, so that it is dropped after the connection closes.
    lock: Option<Lock>,
}

/// The length of the write-ahead log, and when it is copied back next.
struct Wal {
    /// Its pages after the last commit.
    pages: Arc<AtomicU32>,
    /// Pages at which it is copied back.
    checkpoint_pages: u32,
    /// The same, or more if a reader of an old snapshot let only a part be copied last time.
    due_at: u32,
}

impl Thread {
    fn new(
        mut db: Connection,
        lock: Option<Lock>,
        observer: Box<dyn Fn(CommitStats) + Send>,
        checkpoint_pages: u32,
    ) -> rusqlite::Result<Self> {
        let commit = Box::new(|db: &Connection| db.execute_batch("COMMIT"));
        let pages = Arc::new(AtomicU32::new(0));
        let seen = pages.clone();
        // Replaces SQLite's own checkpointing, which makes a commit wait for it and hides a failed sync.
        db.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: i32| {
            seen.store(pages.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        let wal = Wal { pages, checkpoint_pages, due_at: checkpoint_pages };
        Ok(Self { db, commit, observer, stats: CommitStats::default(), health: Arc::default(), wal, lock })
    }

    fn run(mut self, mut queue: mpsc::Receiver<Box<dyn Job>>) {
        while let Some(first) = queue.blocking_recv() {
            let mut bytes = first.size().bytes;
            let mut group = vec![first];
            // `QUEUE_MAX` bounds the group too: writers that return at once must not keep it open indefinitely.
            while bytes < GROUP_BYTES_MAX && group.len() < QUEUE_MAX {
                let Ok(next) = queue.try_recv() else { break };
                bytes += next.size().bytes;
                group.push(next);
            }
            self.write_group(group);
            self.checkpoint_when_due();
        }
    }

    fn write_group(&mut self, mut group: Vec<Box<dyn Job>>) {
        let bytes = group.iter().map(|job| job.size().bytes).sum();
        if self.health.failure().is_none()
            && let Some(lost) = self.lock.as_ref().and_then(|lock| lock.watched().lost())
        {
            self.end(Error::Unknown(lost));
        }
        let failure = self.health.failure().or_else(|| self.try_group(&mut group).err());
        match &failure {
            Some(_) => {
                self.health.failed(bytes);
                self.stats.failed += 1;
                (self.observer)(self.stats);
            }
            None => {
                // A write refused by our own rules says nothing about the disk.
                let written: Vec<u64> = group.iter().filter_map(|job| job.written()).map(|size| size.bytes).collect();
                if !written.is_empty() {
                    self.health.committed(written.into_iter().sum());
                }
            }
        }
        for job in group {
            job.answer(failure.as_ref());
        }
    }

    /// Executes a group's writes and commits them. A write that spoils the group is answered and removed, and the rest
    /// is executed again. This repeats once per such write; only damage causes them.
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
            // Whatever the error says, it is unknown how much of the commit is on the disk; that SQLite rolls it back
            // is known.
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
        tracing::error!(error = %failure, "the store accepts no more writes until the server restarts");
        self.health.end(failure.clone());
        failure
    }

    /// Copies the write-ahead log back if it is long, after its writers were answered.
    fn checkpoint_when_due(&mut self) {
        let pages = self.wal.pages.load(Ordering::Relaxed);
        if pages < self.wal.checkpoint_pages {
            // The log restarted.
            self.wal.due_at = self.wal.checkpoint_pages;
        }
        if pages < self.wal.due_at || self.health.failure().is_some() {
            return;
        }
        // If the log stays long, because a reader needs it or copying fails, do not retry at the very next commit.
        self.wal.due_at = pages.saturating_add(self.wal.checkpoint_pages.div_ceil(4));
        match to_the_end(&self.db, "PRAGMA wal_checkpoint(PASSIVE)") {
            Ok(_) => {}
            Err(error) if is_fatal(&error) => drop(self.end(unknown("copy the write-ahead log back", &error))),
            Err(error) => {
                tracing::error!(%error, pages, "the write-ahead log could not be copied back and keeps growing")
            }
        }
    }
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

/// The handle of the writer thread.
pub(super) struct Writer {
    /// `None` once closed.
    running: Mutex<Option<Running>>,
    health: Arc<Health>,
    /// The files that the lock covers, if there is a lock.
    watched: Option<Watched>,
}

struct Running {
    queue: mpsc::Sender<Box<dyn Job>>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Starts the thread. It holds `lock` until the connection is closed.
    pub(super) fn start(
        db: Connection,
        lock: Option<Lock>,
        observer: Box<dyn Fn(CommitStats) + Send>,
        checkpoint_pages: u32,
    ) -> io::Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let watched = lock.as_ref().map(|lock| lock.watched().clone());
        let writing = Thread::new(db, lock, observer, checkpoint_pages).map_err(io::Error::other)?;
        let health = writing.health.clone();
        let thread = thread::Builder::new().name("store-writer".into()).spawn(move || writing.run(jobs))?;
        Ok(Self { running: Mutex::new(Some(Running { queue, thread })), health, watched })
    }

    /// Executes a write, which is durable when this returns `Ok`. Dropping the future does not undo a queued write.
    pub(super) async fn call<W: Write>(&self, write: W) -> Result<W::Output, Error> {
        let queue = self.running().as_ref().map(|running| running.queue.clone());
        let queue = queue.ok_or_else(closed)?;
        let (answer, result) = oneshot::channel();
        queue.send(Box::new(Call { write, result: None, answer })).await.map_err(|_| closed())?;
        drop(queue);
        result.await.unwrap_or_else(|_| Err(Error::Unknown("the writer has ended".into())))
    }

    /// Returns why nothing more is written, if so.
    pub(super) fn failure(&self) -> Option<Error> {
        self.health.failure()
    }

    /// Checks whether a write would succeed now, if necessary by writing something. Checks that cost no sync run every
    /// time: whether the files are still there, and how much space their disk has.
    pub(super) async fn check(&self) -> Result<(), Error> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        if self.running().is_none() {
            return Err(closed());
        }
        if let Some(lost) = self.watched.as_ref().and_then(Watched::lost) {
            return Err(Error::Unknown(lost));
        }
        let free_bytes = self.watched.as_ref().and_then(Watched::free_bytes);
        let Some(bytes) = self.health.probe_due(free_bytes) else { return self.health.probed() };
        let outcome = self.call(Probe { bytes }).await;
        self.health.was_probed(outcome.clone());
        outcome
    }

    /// Ends the thread after everything it has accepted. Blocks until then.
    pub(super) fn close(&self) -> Result<(), Error> {
        let Some(running) = self.running().take() else { return Ok(()) };
        drop(running.queue);
        running.thread.join().map_err(|_| Error::Unknown("the writer has panicked".into()))
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed() -> Error {
    Error::Unknown("the store is closed".into())
}

#[cfg(test)]
mod tests;
