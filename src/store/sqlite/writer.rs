//! The one thread that writes. What waits in its queue goes into one transaction with one `COMMIT`, one sync of the disk;
//! then all are answered.
//!
//! Invariants:
//! - nothing is answered `Ok` before the `COMMIT` that holds it has returned;
//! - after a `COMMIT` that failed nothing more is written: what a disk holds after a failed sync is not known, and a
//!   second sync that succeeds does not mean that the first one's pages are there.

use super::{CommitStats, Fault, lock::Lock};
use crate::store::Error;
use rusqlite::Connection;
use std::{
    io,
    sync::{Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Instant,
};
use tokio::sync::{mpsc, oneshot};

/// Writes that may wait for the thread. A session has one under way at a time, so more wait only where more sessions
/// write at once; their futures then wait for room, and what they carry is bounded by the frames it came in.
const QUEUE_MAX: usize = 1024;

/// Bytes after which a group takes in no more, so that no write waits for a transaction of many large ones: this much is
/// written within some 10 ms.
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

/// A write on its way through the thread, whatever its output.
trait Job: Send {
    /// Does the write and keeps its result. An error is the database's and spoils the transaction.
    fn run(&mut self, db: &Connection) -> rusqlite::Result<()>;

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
    fn run(&mut self, db: &Connection) -> rusqlite::Result<()> {
        self.result = Some(match self.write.write(db) {
            Ok(output) => Ok(output),
            Err(Fault::Refused(error)) => Err(error),
            Err(Fault::Sqlite(error)) => return Err(error),
        });
        Ok(())
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
    /// Set for good by a `COMMIT` that failed.
    poison: Option<Error>,
}

impl Thread {
    fn new(db: Connection, observer: Box<dyn Fn(CommitStats) + Send>) -> Self {
        let commit = Box::new(|db: &Connection| db.execute_batch("COMMIT"));
        Self { db, commit, observer, stats: CommitStats::default(), poison: None }
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
        }
    }

    fn write_group(&mut self, mut group: Vec<Box<dyn Job>>) {
        let failure = self.poison.clone().or_else(|| self.try_group(&mut group).err());
        for job in group {
            job.answer(failure.as_ref());
        }
    }

    fn try_group(&mut self, group: &mut [Box<dyn Job>]) -> Result<(), Error> {
        if let Err(error) = self.run_group(group) {
            // Not committed, so nothing of it is there, and the writer can go on, unless it cannot even go back.
            let failure = unknown("write", &error);
            if !self.db.is_autocommit() && self.db.execute_batch("ROLLBACK").is_err() {
                self.poison = Some(failure.clone());
            }
            return Err(failure);
        }
        let started = Instant::now();
        if let Err(error) = (self.commit)(&self.db) {
            let failure = unknown("commit", &error);
            self.poison = Some(failure.clone());
            // Only to let go of the transaction; it is unknown what of it is on the disk, whatever this says.
            let _ = self.db.execute_batch("ROLLBACK");
            return Err(failure);
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

    fn run_group(&self, group: &mut [Box<dyn Job>]) -> rusqlite::Result<()> {
        self.db.execute_batch("BEGIN IMMEDIATE")?;
        group.iter_mut().try_for_each(|job| job.run(&self.db))
    }
}

fn unknown(step: &str, error: &rusqlite::Error) -> Error {
    Error::Unknown(format!("{step}: {error}"))
}

/// The handle to the thread.
pub(super) struct Writer {
    /// `None` once closed.
    running: Mutex<Option<Running>>,
}

struct Running {
    queue: mpsc::Sender<Box<dyn Job>>,
    thread: JoinHandle<()>,
}

impl Writer {
    /// Starts the thread. It holds `lock` until the connection is closed.
    pub(super) fn start(db: Connection, lock: Lock, observer: Box<dyn Fn(CommitStats) + Send>) -> io::Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE_MAX);
        let thread = thread::Builder::new().name("store-writer".into()).spawn(move || {
            Thread::new(db, observer).run(jobs);
            drop(lock);
        })?;
        Ok(Self { running: Mutex::new(Some(Running { queue, thread })) })
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
mod tests {
    use super::{Call, Fault, Job, Thread, Write, oneshot};
    use crate::store::Error;
    use rusqlite::Connection;
    use std::sync::{Arc, Mutex};

    /// Inserts a row, refuses, or fails as a full disk does.
    enum Step {
        Insert(i64),
        Refuse,
        Fail,
    }

    impl Write for Step {
        type Output = i64;
        fn write(&self, db: &Connection) -> Result<i64, Fault> {
            match self {
                Self::Insert(value) => Ok(db.execute("INSERT INTO t VALUES (?1)", [value]).map(|_| *value)?),
                Self::Refuse => Err(Error::NotFound("s".parse().unwrap()).into()),
                Self::Fail => Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(13), None).into()),
            }
        }
    }

    /// Runs groups; the n-th commit fails for each n in `failing`. Answers as short text, and what the table holds.
    fn check(groups: Vec<Vec<Step>>, failing: &'static [usize], want: &[&str], rows: &[i64], commits: &[u64]) {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t (value)").unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let observed = seen.clone();
        let mut thread = Thread::new(db, Box::new(move |stats| observed.lock().unwrap().push(stats.commits)));
        let (mut at, mut commit) = (0, std::mem::replace(&mut thread.commit, Box::new(|_| Ok(()))));
        thread.commit = Box::new(move |db| {
            at += 1;
            if failing.contains(&at) {
                return Err(rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(10), None));
            }
            commit(db)
        });
        let mut answers = Vec::new();
        for group in groups {
            let mut results = Vec::new();
            let jobs = group.into_iter().map(|write| {
                let (answer, result) = oneshot::channel();
                results.push(result);
                Box::new(Call { write, result: None, answer }) as Box<dyn Job>
            });
            let jobs = jobs.collect();
            thread.write_group(jobs);
            answers.extend(results.into_iter().map(|mut result| match result.try_recv().unwrap() {
                Ok(value) => value.to_string(),
                Err(error) => error.to_string(),
            }));
        }
        assert_eq!(answers, want);
        let mut select = thread.db.prepare("SELECT value FROM t").unwrap();
        let found: Vec<i64> = select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert_eq!(found, rows);
        assert_eq!(*seen.lock().unwrap(), commits);
    }

    const NOT_FOUND: &str = "there is no session `s`";
    const FULL: &str = "the store failed: write: Error code 13: database or disk is full";
    const DISK: &str = "the store failed: commit: Error code 10: disk I/O error";

    #[test]
    fn a_group_is_one_commit_and_each_gets_its_own_answer() {
        use Step::{Insert, Refuse};
        let groups = vec![vec![Insert(1), Refuse, Insert(2)], vec![Insert(3)], vec![Refuse]];
        check(groups, &[], &["1", NOT_FOUND, "2", "3", NOT_FOUND], &[1, 2, 3], &[1, 2]);
    }

    #[test]
    fn a_write_that_fails_takes_its_group_back_and_the_next_group_is_written() {
        use Step::{Fail, Insert};
        let groups = vec![vec![Insert(1), Fail, Insert(2)], vec![Insert(3)]];
        check(groups, &[], &[FULL, FULL, FULL, "3"], &[3], &[1]);
    }

    #[test]
    fn after_a_commit_that_fails_nothing_more_is_written() {
        use Step::Insert;
        let groups = vec![vec![Insert(1)], vec![Insert(2), Insert(3)], vec![Insert(4)]];
        check(groups, &[2], &["1", DISK, DISK, DISK], &[1], &[1]);
    }
}
