//! The one thread that writes. What waits in its queue goes into one transaction with one `COMMIT`, one sync of the
//! disk; then all are answered.
//!
//! Invariants:
//! - nothing is answered `Ok` before the `COMMIT` that holds it has returned;
//! - after a sync that failed nothing more is written: what the disk holds is not known then, and a second sync that
//!   succeeds does not mean that the first one's pages are there. The same after a `COMMIT` that failed otherwise, but
//!   for a full disk, after damage that was found while writing: what other sessions share with it is not known, and
//!   once the lock file or the database file is no longer the one that was opened.

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

/// Writes that may wait for the thread. A session has one under way at a time, so more wait only where more sessions
/// write at once; their futures then wait for room, and what they carry is bounded by the frames it came in.
const QUEUE_MAX: usize = 1024;

/// Bytes after which a group takes in no more, so that no write waits for a transaction of many large ones: this much
/// is written within some 10 ms.
const GROUP_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// What a write puts into the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) records: u64,
    pub(super) bytes: u64,
}

/// One write, done inside a transaction that others share.
pub(super) trait Write: Send + 'static {
    type Output: Send + 'static;

    /// Does it, or refuses without having changed anything.
    fn write(&self, db: &Connection) -> Result<Self::Output, Fault>;

    fn size(&self) -> Size {
        Size::default()
    }
}

/// Why a group cannot be committed as it is.
enum Spoiled {
    /// By this write alone, which has its answer; the others can be done again.
    Alone,
    /// By the database.
    Sqlite(rusqlite::Error),
}

/// A write on its way through the thread, whatever its output.
trait Job: Send {
    /// Does the write and keeps its result. May be called again after all was taken back.
    fn run(&mut self, db: &Connection) -> Result<(), Spoiled>;

    /// What was written; `None` when it was refused.
    fn written(&self) -> Option<Size>;

    fn size(&self) -> Size;

    /// Tells the caller the result, or that the transaction failed.
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
            None => self.result.unwrap_or_else(|| Err(Error::Unknown("it was not tried".into()))),
        };
        // The caller may have gone; the write stands all the same.
        let _ = self.answer.send(result);
    }
}

type Commit = Box<dyn FnMut(&Connection) -> rusqlite::Result<()> + Send>;

/// What the thread owns.
struct Thread {
    db: Connection,
    /// Runs `COMMIT`; a field because a test must let it fail.
    commit: Commit,
    observer: Box<dyn Fn(CommitStats) + Send>,
    stats: CommitStats,
    /// How it goes; others look at it too.
    health: Arc<Health>,
    wal: Wal,
    /// Behind the connection, so that it is dropped after it is closed.
    lock: Option<Lock>,
}

/// How long the write-ahead log is, and when it is copied back next.
struct Wal {
    /// Its pages after the last commit.
    pages: Arc<AtomicU32>,
    /// Pages at which it is copied back.
    checkpoint_pages: u32,
    /// The same, or more where a reader of an old snapshot let only a part be copied the last time.
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
        // In the place of SQLite's own copying, which makes a commit wait for it and says nothing of a sync that
        // failed.
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
            // `QUEUE_MAX` bounds the group too: writers that come back at once must not keep it open for ever.
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
                self.health.refused(bytes);
                self.stats.failed += 1;
                (self.observer)(self.stats);
            }
            None => {
                // What was refused by our own rules says nothing of the disk.
                let written: Vec<u64> = group.iter().filter_map(|job| job.written()).map(|size| size.bytes).collect();
                if !written.is_empty() {
                    self.health.took(written.into_iter().sum());
                }
            }
        }
        for job in group {
            job.answer(failure.as_ref());
        }
    }

    /// Does a group's writes and commits them. One that spoils it is answered and leaves it, and the rest is done
    /// again: as often as there are such, which damage makes and nothing else.
    fn try_group(&mut self, group: &mut Vec<Box<dyn Job>>) -> Result<(), Error> {
        while let Err((at, spoiled)) = self.run_group(group) {
            // Not committed, so nothing of it is there, and the writer can go on, unless it cannot even go back.
            if !self.db.is_autocommit()
                && let Err(error) = self.db.execute_batch("ROLLBACK")
            {
                return Err(self.end(unknown("take a write back", &error)));
            }
            match spoiled {
                Spoiled::Alone => group.remove(at).answer(None),
                Spoiled::Sqlite(error) if is_fatal(&error) => return Err(self.end(unknown("write", &error))),
                Spoiled::Sqlite(error) => return Err(unknown("write", &error)),
            }
        }
        let started = Instant::now();
        if let Err(error) = (self.commit)(&self.db) {
            // It is unknown what of it is on the disk, whatever this says; that SQLite takes it back is known.
            let back = self.db.is_autocommit() || self.db.execute_batch("ROLLBACK").is_ok();
            let failure = unknown("commit", &error);
            // A full disk refuses to write, which is before the sync; there may be room again.
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

    /// Writes no more; every later write gets this answer.
    fn end(&mut self, failure: Error) -> Error {
        tracing::error!(error = %failure, "the store takes no more writes until the server is started again");
        self.health.end(failure.clone());
        failure
    }

    /// Copies the write-ahead log back when it is long, after its writers were answered.
    fn checkpoint_when_due(&mut self) {
        let pages = self.wal.pages.load(Ordering::Relaxed);
        if pages < self.wal.checkpoint_pages {
            // It began anew.
            self.wal.due_at = self.wal.checkpoint_pages;
        }
        if pages < self.wal.due_at || self.health.failure().is_some() {
            return;
        }
        // If it stays long, because a reader needs it or because it cannot be copied, the next try is not at the next
        // commit.
        self.wal.due_at = pages.saturating_add(self.wal.checkpoint_pages.div_ceil(4));
        match to_the_end(&self.db, "PRAGMA wal_checkpoint(PASSIVE)") {
            Ok(_) => {}
            Err(error) if is_fatal(&error) => drop(self.end(unknown("copy the write-ahead log back", &error))),
            Err(error) => tracing::error!(%error, pages, "the write-ahead log could not be copied back; it grows"),
        }
    }
}

/// Whether after this nothing more may be written.
fn is_fatal(error: &rusqlite::Error) -> bool {
    let Some(failure) = error.sqlite_error() else { return false };
    matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        || matches!(failure.extended_code, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC)
}

fn unknown(step: &str, error: &rusqlite::Error) -> Error {
    Error::Unknown(format!("{step}: {error}"))
}

/// The handle to the thread.
pub(super) struct Writer {
    /// `None` once closed.
    running: Mutex<Option<Running>>,
    health: Arc<Health>,
    /// The files of the lock, where there is one.
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

    /// Does a write; durable when `Ok`. Dropping the future does not take back a write that is in the queue.
    pub(super) async fn call<W: Write>(&self, write: W) -> Result<W::Output, Error> {
        let queue = self.running().as_ref().map(|running| running.queue.clone());
        let queue = queue.ok_or_else(closed)?;
        let (answer, result) = oneshot::channel();
        queue.send(Box::new(Call { write, result: None, answer })).await.map_err(|_| closed())?;
        drop(queue);
        result.await.unwrap_or_else(|_| Err(Error::Unknown("the writer has ended".into())))
    }

    /// Why nothing more is written, if so.
    pub(super) fn failure(&self) -> Option<Error> {
        self.health.failure()
    }

    /// Whether a write would be taken now; where that is not known, by writing something. What costs no sync is asked
    /// each time: whether the files are still there, and how much room their disk has.
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

    /// Ends the thread after all that it has accepted. Blocks until then.
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
    Error::Unknown("it is closed".into())
}

#[cfg(test)]
mod tests;
