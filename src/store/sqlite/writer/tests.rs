//! Tests of the writer thread: groups, commits and failures.

use super::{
    super::{Fault, health::Probe, history::Broken, readers::Readers},
    CommitStats, Parts, Thread, Write, ffi,
    job::Call,
};
use crate::Error;
use rusqlite::Connection;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

fn thread(db: Connection, observer: Box<dyn Fn(CommitStats) + Send>) -> Thread {
    Thread::new(Parts {
        db,
        lock: None,
        observer,
        checkpoint_pages: 1000,
        retry: Duration::ZERO,
        readers: Readers::new(Vec::new()).pool(),
        has_deletions: false,
        broken: Broken::default(),
        index: false,
    })
    .unwrap()
}

/// Inserts a row, is refused, inserts a row that must be rolled back, or fails with a SQLite code.
enum Step {
    Insert(i64),
    Refuse,
    Undo(i64),
    Fail(i32),
}

fn failure(code: i32) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
}

impl Write for Step {
    type Output = i64;
    fn write(&self, db: &Connection) -> Result<i64, Fault> {
        match self {
            Self::Insert(value) => Ok(db.execute("INSERT INTO t VALUES (?1)", [value]).map(|_| *value)?),
            Self::Refuse => Err(Error::NotFound("s".parse().unwrap()).into()),
            Self::Undo(value) => {
                db.execute("INSERT INTO t VALUES (?1)", [value])?;
                Err(Fault::Undone(Error::NotFound("undone".parse().unwrap())))
            }
            Self::Fail(code) => Err(failure(*code).into()),
        }
    }
}

/// Runs groups. For each `(n, code)` in `failing`, the n-th commit fails with `code`. Compares the answers as short
/// text, and the rows of the table.
fn check(groups: Vec<Vec<Step>>, failing: &'static [(usize, i32)], want: &[&str], rows: &[i64], commits: &[u64]) {
    let db = Connection::open_in_memory().unwrap();
    db.execute_batch("CREATE TABLE t (value)").unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let observed = seen.clone();
    let observer = Box::new(move |stats: CommitStats| {
        let mut seen = observed.lock().unwrap();
        // Each group is reported once: as a commit or as a failure.
        assert_eq!(stats.commits + stats.failed, seen.len() as u64 + 1);
        seen.push(stats.commits);
    });
    let mut thread = thread(db, observer);
    let (mut at, mut commit) = (0, std::mem::replace(&mut thread.commit, Box::new(|_| Ok(()))));
    thread.commit = Box::new(move |db| {
        at += 1;
        if let Some((_, code)) = failing.iter().find(|(commit, _)| *commit == at) {
            return Err(failure(*code));
        }
        commit(db)
    });
    let mut answers = Vec::new();
    for group in groups {
        let mut results = Vec::new();
        let jobs = group.into_iter().map(|write| {
            let (job, result) = Call::boxed(write);
            results.push(result);
            job
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
    let mut seen = seen.lock().unwrap().clone();
    let groups = seen.len() as u64;
    assert_eq!(groups, thread.stats.commits + thread.stats.failed, "every failed group is reported");
    seen.dedup();
    seen.retain(|commits| *commits > 0);
    assert_eq!(seen, commits);
}

const NOT_FOUND: &str = "there is no session `s`";
const UNDONE: &str = "there is no session `undone`";
const CORRUPT: &str = "the store failed: write: Error code 11: database disk image is malformed";
const SYNC: &str = "the store failed: write: Error code 1034: disk I/O error";
const FULL: &str = "the store failed: write: Error code 13: database or disk is full";
const DISK: &str = "the store failed: commit: Error code 10: disk I/O error";

#[test]
fn a_group_is_one_commit_and_each_gets_its_own_answer() {
    use Step::{Insert, Refuse};
    let groups = vec![vec![Insert(1), Refuse, Insert(2)], vec![Insert(3)], vec![Refuse]];
    check(groups, &[], &["1", NOT_FOUND, "2", "3", NOT_FOUND], &[1, 2, 3], &[1, 2]);
}

#[test]
fn a_failed_write_rolls_its_group_back_and_the_next_group_is_written() {
    use Step::{Fail, Insert};
    let groups = vec![vec![Insert(1), Fail(ffi::SQLITE_FULL), Insert(2)], vec![Insert(3)]];
    check(groups, &[], &[FULL, FULL, FULL, "3"], &[3], &[1]);
}

#[test]
fn a_write_that_must_be_rolled_back_does_not_fail_its_group() {
    use Step::{Insert, Refuse, Undo};
    let groups = vec![vec![Insert(1), Undo(2), Refuse, Undo(3), Insert(4)], vec![Undo(5)], vec![Insert(6)]];
    check(groups, &[], &["1", UNDONE, NOT_FOUND, UNDONE, "4", UNDONE, "6"], &[1, 4, 6], &[1, 2]);
}

#[test]
fn after_a_sync_that_fails_and_after_damage_nothing_more_is_written() {
    use Step::{Fail, Insert};
    let groups = vec![vec![Insert(1), Fail(ffi::SQLITE_CORRUPT)], vec![Insert(2)]];
    check(groups, &[], &[CORRUPT, CORRUPT, CORRUPT], &[], &[]);
    let groups = vec![vec![Insert(1), Fail(ffi::SQLITE_IOERR_FSYNC)], vec![Insert(2)]];
    check(groups, &[], &[SYNC, SYNC, SYNC], &[], &[]);
}

#[test]
fn after_a_commit_that_fails_nothing_more_is_written_but_where_the_disk_is_full() {
    use Step::Insert;
    let groups = || vec![vec![Insert(1)], vec![Insert(2), Insert(3)], vec![Insert(4)]];
    check(groups(), &[(2, ffi::SQLITE_IOERR)], &["1", DISK, DISK, DISK], &[1], &[1]);
    let full = "the store failed: commit: Error code 13: database or disk is full";
    check(groups(), &[(2, ffi::SQLITE_FULL)], &["1", full, full, "4"], &[1, 4], &[1, 2]);
}

/// The log may be the only valid copy, so it is kept as it is.
#[test]
fn after_a_failure_nothing_is_written_and_the_log_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (value)").unwrap();
    let mut thread = thread(db, Box::new(|_| {}));
    let run = |thread: &mut Thread, value| {
        let (job, mut result) = Call::boxed(Step::Insert(value));
        thread.write_group(vec![job]);
        result.try_recv().unwrap()
    };
    let unknown = Error::Unknown("a failed sync".into());
    assert_eq!(run(&mut thread, 1), Ok(1));
    thread.health.end(unknown.clone());
    assert_eq!(run(&mut thread, 2), Err(unknown.clone()));
    assert_eq!((thread.stats.commits, thread.stats.failed), (1, 1));
    let log = || std::fs::metadata(path.with_extension("db-wal")).unwrap().len();
    let before = log();
    assert_eq!(thread.checkpoint(), Err(unknown));
    assert!(before > 0 && log() == before);
    let count = thread.db.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0));
    assert_eq!(count, Ok(1));
}

#[test]
fn a_full_disk_is_known_until_as_much_fits_again() {
    let db = Connection::open_in_memory().unwrap();
    db.pragma_update(None, "secure_delete", true).unwrap();
    db.execute_batch("CREATE TABLE mark (session, command, fingerprint, reply, checksum)").unwrap();
    db.pragma_update(None, "max_page_count", 4).unwrap();
    let mut thread = thread(db, Box::new(|_| {}));
    let mut probe = |pages_max: u32| {
        thread.db.pragma_update(None, "max_page_count", pages_max).unwrap();
        let (job, mut result) = Call::boxed(Probe { bytes: 100_000 });
        thread.write_group(vec![job]);
        let left: i64 = thread.db.query_row("SELECT count(*) FROM mark", [], |row| row.get(0)).unwrap();
        assert_eq!(left, 0, "it leaves nothing behind");
        let outcome = result.try_recv().unwrap().map_err(|error| error.to_string().contains("disk is full"));
        (outcome, thread.health.probe_due(), thread.health.failure(), thread.stats.failed)
    };
    assert_eq!(probe(4), (Err(true), Some(100_000), None, 1));
    assert_eq!(probe(1_000), (Ok(()), None, None, 1));
}

#[test]
fn a_deletion_during_a_pass_is_followed_by_another_pass_and_puts_nothing_off() {
    let mut upkeep = super::Upkeep::new(false, Duration::from_secs(1));
    upkeep.begin();
    upkeep.reached_erasing();
    upkeep.begin();
    assert!(upkeep.is_erasing(), "what was deleted before is erased first");
    upkeep.finish_pass();
    assert!(!upkeep.is_idle() && !upkeep.is_erasing(), "another pass");
    upkeep.finish_pass();
    assert!(upkeep.is_idle());
}
