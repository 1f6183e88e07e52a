//! The rows in the main tables and in both stages are one log: for reads, for checks, for deletions and after a crash.

use super::{place, tamper};
use crate::{
    Append, CommandMark, EntryQuery, Error, Head, Lease, NewRecord, SessionStore,
    conformance::{NOW, append, append_of, entry, id, log, short},
    sqlite::{
        SqliteStore,
        staging::{LARGE_BYTES, MARK_TABLES, RECORD_TABLES},
    },
};
use futures_util::future::join_all;
use rusqlite::Connection;
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// There are enough sessions that some have moved while others have not.
const SESSIONS: usize = 24;

/// Records of an append, the last of which answers a command.
const RECORDS: u64 = 16;

/// The sessions of a store, and what was appended to each.
struct Talks {
    leases: Vec<Lease>,
    last_seq: Vec<u64>,
}

impl Talks {
    async fn create(store: &SqliteStore) -> Self {
        let create = async |at: usize| store.create(&id(&format!("s{at}")), "ann", NOW).await.unwrap();
        let leases = join_all((0..SESSIONS).map(create)).await;
        Self { leases, last_seq: vec![0; SESSIONS] }
    }

    /// Takes over the sessions in another store, or in another file.
    async fn open(&mut self, store: &SqliteStore) {
        for (lease, last_seq) in self.leases.iter_mut().zip(&self.last_seq) {
            let head;
            (*lease, head) = store.open(&lease.session).await.unwrap();
            assert_eq!(head.last_seq, *last_seq, "{}", lease.session);
        }
    }

    /// Makes all sessions append at once, so that they share commits.
    async fn append(&mut self, store: &SqliteStore) {
        let appends = self.leases.iter().zip(&self.last_seq).map(async |(lease, last_seq)| {
            store.append(lease, last_seq + 1, next(&lease.session, *last_seq)).await.unwrap();
        });
        join_all(appends).await;
        self.last_seq.iter_mut().for_each(|last_seq| *last_seq += RECORDS);
    }

    /// Checks the results of every kind of read of a session.
    async fn check(&self, store: &SqliteStore, at: usize) {
        let (session, last_seq) = (&self.leases[at].session, self.last_seq[at]);
        let want: Vec<String> = (1..=last_seq).map(|seq| format!("{seq}:{}", name(seq))).collect();
        assert_eq!(log(store, session).await, want.join(" "), "{session}");
        let path = EntryQuery::Path { from: id(&name(last_seq)), limit: u32::MAX };
        let mut backwards = want.clone();
        backwards.reverse();
        assert_eq!(short(&store.entries(session, path).await.unwrap()), backwards.join(" "), "{session}");
        let newest = EntryQuery::Log { before_seq: None, after_seq: None, limit: 3 };
        let found = short(&store.entries(session, newest).await.unwrap());
        assert_eq!(found, want[want.len() - 3..].join(" "), "{session}");
        let roots = EntryQuery::Children { of: None, after_seq: 0, limit: 9 };
        assert_eq!(short(&store.entries(session, roots).await.unwrap()), want[0], "{session}");
        for seq in [1, last_seq / 2, last_seq] {
            let below = EntryQuery::Children { of: Some(id(&name(seq))), after_seq: 0, limit: 9 };
            let child = if seq == last_seq { String::new() } else { format!("{}:{}", seq + 1, name(seq + 1)) };
            assert_eq!(short(&store.entries(session, below).await.unwrap()), child, "{session} {seq}");
        }
        for seq in (RECORDS..=last_seq).step_by(RECORDS as usize) {
            let found = store.command(session, &command(seq)).await.unwrap().unwrap();
            assert_eq!(*found.reply, format!("{session}-{seq}"), "{session}");
        }
    }
}

fn name(seq: u64) -> String {
    format!("e{seq}")
}

fn command(seq: u64) -> String {
    format!("command-{seq}")
}

fn next(session: &reseed_protocol::SessionId, last_seq: u64) -> Append {
    let parent = |seq: u64| if seq == 1 { String::new() } else { name(seq - 1) };
    let records = (last_seq + 1..=last_seq + RECORDS).map(|seq| entry(&name(seq), &parent(seq)));
    let seq = last_seq + RECORDS;
    let mark = CommandMark { command_id: command(seq), fingerprint: seq, reply: format!("{session}-{seq}").into() };
    Append {
        marks: vec![mark],
        head: Head { updated_at: NOW, entries: seq, ..Head::default() },
        ..append(records.collect())
    }
}

fn rows(path: &Path, table: &str) -> u64 {
    let count = format!("SELECT count(*) FROM {table}");
    Connection::open(path).unwrap().query_row(&count, [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
}

/// Returns the number of rows in each table of records: in the stages, and in the main table.
fn spread(path: &Path) -> [u64; 3] {
    RECORD_TABLES.map(|table| rows(path, table))
}

/// Appends until rows of the first session are in the main tables and in both stages, some of them copies.
async fn half_moved() -> (TempDir, PathBuf, SqliteStore, Talks) {
    let (dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let mut talks = Talks::create(&store).await;
    let moved = || {
        let file = Connection::open(&path).unwrap();
        file.query_row("SELECT max(moved) FROM staging", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    // On a busy machine a round takes several commits, and the stages may swap roles between two of them.
    let of_first = || RECORD_TABLES.map(|table| rows(&path, &format!("{table} WHERE session = 1")));
    while moved() == 0 || of_first().contains(&0) {
        talks.append(&store).await;
        // Rows move after the appends are answered and before the next write is.
        let late = store.append(&talks.leases[0], 1, append_of(["late"])).await;
        assert!(matches!(late, Err(Error::Fenced { .. })), "{late:?}");
        assert!(talks.last_seq[0] < 10_000, "nothing is moved: {:?}", of_first());
    }
    (dir, path, store, talks)
}

#[tokio::test]
async fn a_log_is_complete_wherever_its_rows_are_and_closing_moves_them_to_the_main_tables() {
    let (_dir, path, store, mut talks) = half_moved().await;
    let mut emptied = 0;
    let mut before = spread(&path);
    for _ in 0..40 {
        talks.append(&store).await;
        talks.check(&store, 3).await;
        let now = spread(&path);
        emptied += usize::from(now[0] < before[0]) + usize::from(now[1] < before[1]);
        before = now;
    }
    assert!(emptied > 1, "stages are emptied while it is used: {before:?}");
    for at in 0..SESSIONS {
        talks.check(&store, at).await;
    }
    store.close().await.unwrap();
    let appended = talks.last_seq.iter().sum::<u64>();
    assert_eq!(spread(&path), [0, 0, appended]);
    assert_eq!(MARK_TABLES.map(|table| rows(&path, table)), [0, 0, appended / RECORDS]);
}

/// A copy of a database and its log at any moment equals what a crash leaves.
#[tokio::test]
async fn a_crash_loses_and_duplicates_nothing_and_the_next_start_continues() {
    let (dir, path, store, mut talks) = half_moved().await;
    let (_crashed, copy) = crash(dir.path());
    assert!(!spread(&path).contains(&0));
    drop(store);
    let store = SqliteStore::open(&copy).unwrap();
    assert!(!spread(&copy).contains(&0), "opening moves nothing");
    talks.open(&store).await;
    for at in 0..SESSIONS {
        talks.check(&store, at).await;
    }
    for _ in 0..30 {
        talks.append(&store).await;
        talks.check(&store, 7).await;
    }
    store.close().await.unwrap();
    assert_eq!(spread(&copy), [0, 0, talks.last_seq.iter().sum::<u64>()]);
}

#[tokio::test]
async fn an_entry_or_a_command_that_is_stored_is_refused_wherever_it_is() {
    let (_dir, path, store, talks) = half_moved().await;
    let (lease, last_seq) = (&talks.leases[0], talks.last_seq[0]);
    let mut places: Vec<&str> = Vec::new();
    for seq in (RECORDS..=last_seq).step_by(RECORDS as usize) {
        let find = |table: &str| {
            let find = format!("SELECT count(*) FROM {table} WHERE session = 1 AND seq = {seq}");
            Connection::open(&path).unwrap().query_row(&find, [], |row| row.get::<_, i64>(0)).unwrap() > 0
        };
        places.extend(RECORD_TABLES.iter().copied().filter(|table| find(table)));
        let again = append(vec![entry(&name(seq), &name(last_seq))]);
        let want = Error::DuplicateEntry { session: lease.session.clone(), entry: id(&name(seq)) };
        assert_eq!(store.append(lease, last_seq + 1, again).await, Err(want));
        let mark = CommandMark { command_id: command(seq), fingerprint: 1, reply: "{}".into() };
        let again = Append { marks: vec![mark], ..append_of(["x"]) };
        let want = Error::DuplicateCommand { session: lease.session.clone(), command_id: command(seq) };
        assert_eq!(store.append(lease, last_seq + 1, again).await, Err(want));
    }
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), RECORD_TABLES.len(), "{places:?}");
    talks.check(&store, 0).await;
}

#[tokio::test]
async fn a_deleted_session_leaves_rows_nowhere_while_others_are_moved() {
    let (_dir, path, store, mut talks) = half_moved().await;
    // One session's rows are copies, and the other's have not moved yet.
    for at in [SESSIONS - 1, 0] {
        let lease = talks.leases.remove(at);
        talks.last_seq.remove(at);
        let (deleted, ()) = tokio::join!(store.delete(&lease.session), talks.append(&store));
        deleted.unwrap();
    }
    store.settled().await;
    for number in [1, SESSIONS] {
        for table in RECORD_TABLES.iter().chain(&MARK_TABLES) {
            let left = format!("(SELECT 1 FROM {table} WHERE session = {number})");
            assert_eq!(rows(&path, &left), 0, "{left}");
        }
    }
    for _ in 0..30 {
        talks.append(&store).await;
    }
    for at in 0..talks.leases.len() {
        talks.check(&store, at).await;
    }
    store.close().await.unwrap();
    assert_eq!(spread(&path), [0, 0, talks.last_seq.iter().sum::<u64>()]);
}

#[tokio::test]
async fn a_large_record_is_written_once() {
    let (_dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let lease = store.create(&id("s"), "ann", NOW).await.unwrap();
    let large = NewRecord { body: "b".repeat(LARGE_BYTES).into(), ..entry("e2", "e1") };
    store.append(&lease, 1, append(vec![entry("e1", ""), large, entry("e3", "e2")])).await.unwrap();
    assert_eq!(spread(&path), [2, 0, 1]);
    let read = store.read(&id("s"), 0, 9).await.unwrap();
    assert_eq!(read.iter().map(|record| record.body.len()).collect::<Vec<_>>(), [2, LARGE_BYTES, 2]);
    let path = EntryQuery::Path { from: id("e3"), limit: 9 };
    assert_eq!(store.entries(&id("s"), path).await.unwrap().len(), 3);
}

/// A row that already exists in the main table looks like damage. Nothing is lost, and all sessions keep working.
#[tokio::test]
async fn rows_that_cannot_be_moved_stay_where_they_are_found() {
    let (_dir, path, store, mut talks) = half_moved().await;
    drop(store);
    let last = talks.last_seq[5] + 1;
    tamper(&path, &format!("INSERT INTO record VALUES (6, {last}, 3, 0, 'in-the-way', NULL, 'message', 'x', NULL)"));
    let store = SqliteStore::open(&path).unwrap();
    talks.open(&store).await;
    let before = rows(&path, "record");
    for _ in 0..40 {
        talks.append(&store).await;
        talks.check(&store, 7).await;
    }
    assert_eq!(store.failure(), None);
    assert!(spread(&path)[2] < before + SESSIONS as u64 * RECORDS * 40, "some could not be moved");
    for at in (0..SESSIONS).filter(|at| *at != 5) {
        talks.check(&store, at).await;
    }
    store.close().await.unwrap();
    let store = SqliteStore::open_read_only(&path).unwrap();
    talks.check(&store, 7).await;
}

/// Returns what a crash of a store leaves: copies of its database and its log.
fn crash(dir: &Path) -> (TempDir, PathBuf) {
    let crashed = tempfile::tempdir().unwrap();
    for name in ["reseed.db", "reseed.db-wal"] {
        fs::copy(dir.join(name), crashed.path().join(name)).unwrap();
    }
    let path = crashed.path().join("reseed.db");
    (crashed, path)
}

/// A stage that was half moved, and then lost all its rows to deletions before the server ended, hides no new row.
#[tokio::test]
async fn a_stage_that_deletions_have_emptied_takes_new_rows_after_a_crash() {
    let (_dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let mut talks = Talks::create(&store).await;
    drop(store);
    // The stage was moved up to the last of these sessions. The other sessions, of which it had more rows, are deleted.
    tamper(&path, &format!("UPDATE staging SET moved = {SESSIONS} WHERE NOT written"));
    let store = SqliteStore::open(&path).unwrap();
    talks.open(&store).await;
    for _ in 0..40 {
        talks.append(&store).await;
        talks.check(&store, 0).await;
    }
    store.close().await.unwrap();
    assert_eq!(spread(&path), [0, 0, talks.last_seq.iter().sum::<u64>()]);
}

#[tokio::test]
async fn a_stage_of_marks_alone_is_moved() {
    let (_dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let lease = store.create(&id("s"), "ann", NOW).await.unwrap();
    let reply = "r".repeat(LARGE_BYTES / 2);
    let mark = |n: u64, reply: &str| CommandMark { command_id: command(n), fingerprint: n, reply: reply.into() };
    let marks = |range: std::ops::Range<u64>| range.map(|n| mark(n, &reply)).collect();
    let alone = |marks| Append { marks, ..append(Vec::new()) };
    for at in 0..10 {
        store.append(&lease, 1, alone(marks(at * 100..(at + 1) * 100))).await.unwrap();
    }
    store.append(&lease, 1, alone(vec![mark(5000, &"r".repeat(LARGE_BYTES))])).await.unwrap();
    let staged = MARK_TABLES.map(|table| rows(&path, table));
    assert!(staged[2] > 1, "they are moved while it is used: {staged:?}");
    for n in (0..1000).chain([5000]) {
        assert!(store.command(&id("s"), &command(n)).await.unwrap().is_some(), "{n}");
    }
    store.close().await.unwrap();
    assert_eq!(MARK_TABLES.map(|table| rows(&path, table)), [0, 0, 1001]);
}

/// Damage in a stage does not keep the file from being opened, and heads can be read.
#[tokio::test]
async fn a_file_with_a_damaged_stage_is_opened() {
    let (dir, _path, store, talks) = half_moved().await;
    let (_crashed, copy) = crash(dir.path());
    drop(store);
    tamper(&copy, "PRAGMA wal_checkpoint(TRUNCATE)");
    let root = |table: &str| -> usize {
        let root = format!("SELECT rootpage FROM sqlite_master WHERE name = '{table}'");
        let file = Connection::open(&copy).unwrap();
        file.query_row(&root, [], |row| row.get::<_, i64>(0)).unwrap().try_into().unwrap()
    };
    let damaged = [root("record_staged_1"), root("record_staged_2")];
    let mut file = fs::read(&copy).unwrap();
    for page in damaged {
        file[(page - 1) * 8192..page * 8192].fill(0xa5);
    }
    fs::write(&copy, file).unwrap();
    let store = SqliteStore::open(&copy).unwrap();
    let found = store.head(&talks.leases[0].session).await.unwrap();
    assert_eq!(found.last_seq, talks.last_seq[0]);
    assert!(matches!(store.read(&id("s0"), 0, 9).await, Err(Error::Damaged { .. })));
    store.close().await.unwrap();
}
