//! Guarantees that only the SQLite store gives: its file, its lock and its columns.

mod backup;
mod damage;
mod erasure;
mod history;
mod read_only;

use super::{CommitStats, Fault, OpenError, SqliteStore, open::FILE_PAGE_BYTES, schema, writer::Write};
use crate::{
    Append, CommandMark, Error, Head, Secret, SessionStore, Usage,
    conformance::{NOW, Subject, append, append_of, contract_suite, control, entry, id, log},
};
use futures_util::future::join_all;
use rusqlite::Connection;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use tempfile::TempDir;

async fn build() -> Subject {
    let (dir, path) = place();
    Subject::new(SqliteStore::open(&path).unwrap(), dir)
}

contract_suite!(build());

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("reseed.db");
    (dir, path)
}

/// Returns a file with one closed session `s` of three entries, `e1` to `e3`.
async fn written() -> (TempDir, PathBuf) {
    let (dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let lease = store.create(&id("s"), "alice", NOW).await.unwrap();
    let records = vec![entry("e1", ""), entry("e2", "e1"), entry("e3", "e2")];
    store.append(&lease, 1, append(records)).await.unwrap();
    store.close().await.unwrap();
    (dir, path)
}

/// Turns the tables of a closed file into those of an older program.
const OLDER: &str = "DROP VIEW record_all; DROP VIEW mark_all; DROP TABLE words; DROP TABLE secret; DROP TABLE model_usage; \
     DROP TABLE minute;";

/// Changes the file behind the store's back.
fn tamper(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn once_the_file_or_its_lock_is_replaced_nothing_more_is_written() {
    for replaced in ["reseed.db.lock", "reseed.db"] {
        let (dir, path) = place();
        let store = SqliteStore::open(&path).unwrap();
        let lease = store.create(&id("s"), "alice", NOW).await.unwrap();
        assert_eq!(store.check_writable().await, Ok(()));
        fs::rename(dir.path().join(replaced), dir.path().join("elsewhere")).unwrap();
        let refused = store.append(&lease, 1, append_of(["a"])).await.unwrap_err();
        assert!(refused.to_string().contains(&format!("{replaced}` was ")), "{refused}");
        assert_eq!(store.check_writable().await, Err(refused.clone()));
        assert_eq!(store.failure(), Some(refused));
    }
}

/// The tables that files of version 10 have beside those of today.
const STAGES: &str = "
CREATE TABLE staging (
    stage   INTEGER PRIMARY KEY,
    written INTEGER NOT NULL,
    moved   INTEGER NOT NULL
);
INSERT INTO staging (stage, written, moved) VALUES (1, 1, 0), (2, 0, 0);
CREATE TABLE record_staged_1 (
    session  INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    entry    TEXT,
    parent   TEXT,
    kind     TEXT,
    body     TEXT NOT NULL,
    follows  INTEGER
);
CREATE UNIQUE INDEX record_staged_1_seq ON record_staged_1 (session, seq);
CREATE UNIQUE INDEX record_staged_1_entry ON record_staged_1 (session, entry) WHERE entry IS NOT NULL;
CREATE INDEX record_staged_1_parent ON record_staged_1 (session, parent, seq)
    WHERE parent IS NOT NULL AND follows IS NULL;
CREATE INDEX record_staged_1_root ON record_staged_1 (session, seq) WHERE parent IS NULL AND entry IS NOT NULL;
CREATE INDEX record_staged_1_kind ON record_staged_1 (session, kind, seq) WHERE kind <> 'message';
CREATE TABLE mark_staged_1 (
    session     INTEGER NOT NULL,
    command     TEXT NOT NULL,
    fingerprint INTEGER NOT NULL,
    reply       TEXT NOT NULL,
    checksum    INTEGER
);
CREATE UNIQUE INDEX mark_staged_1_command ON mark_staged_1 (session, command);
CREATE TABLE record_staged_2 (
    session  INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    version  INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    entry    TEXT,
    parent   TEXT,
    kind     TEXT,
    body     TEXT NOT NULL,
    follows  INTEGER
);
CREATE UNIQUE INDEX record_staged_2_seq ON record_staged_2 (session, seq);
CREATE UNIQUE INDEX record_staged_2_entry ON record_staged_2 (session, entry) WHERE entry IS NOT NULL;
CREATE INDEX record_staged_2_parent ON record_staged_2 (session, parent, seq)
    WHERE parent IS NOT NULL AND follows IS NULL;
CREATE INDEX record_staged_2_root ON record_staged_2 (session, seq) WHERE parent IS NULL AND entry IS NOT NULL;
CREATE INDEX record_staged_2_kind ON record_staged_2 (session, kind, seq) WHERE kind <> 'message';
CREATE TABLE mark_staged_2 (
    session     INTEGER NOT NULL,
    command     TEXT NOT NULL,
    fingerprint INTEGER NOT NULL,
    reply       TEXT NOT NULL,
    checksum    INTEGER
);
CREATE UNIQUE INDEX mark_staged_2_command ON mark_staged_2 (session, command);
CREATE VIEW record_all AS
    SELECT session, seq, version, checksum, entry, parent, kind, body, follows FROM record
    UNION ALL SELECT session, seq, version, checksum, entry, parent, kind, body, follows FROM record_staged_1
    WHERE session > (SELECT moved FROM staging WHERE stage = 1)
    UNION ALL SELECT session, seq, version, checksum, entry, parent, kind, body, follows FROM record_staged_2
    WHERE session > (SELECT moved FROM staging WHERE stage = 2);
CREATE VIEW record_root_all AS
    SELECT session, seq FROM record INDEXED BY record_root WHERE parent IS NULL AND entry IS NOT NULL
    UNION ALL SELECT session, seq FROM record_staged_1 INDEXED BY record_staged_1_root
    WHERE session > (SELECT moved FROM staging WHERE stage = 1) AND parent IS NULL AND entry IS NOT NULL
    UNION ALL SELECT session, seq FROM record_staged_2 INDEXED BY record_staged_2_root
    WHERE session > (SELECT moved FROM staging WHERE stage = 2) AND parent IS NULL AND entry IS NOT NULL;
CREATE VIEW mark_all AS
    SELECT session, command, fingerprint, reply, checksum FROM mark
    UNION ALL SELECT session, command, fingerprint, reply, checksum FROM mark_staged_1
    WHERE session > (SELECT moved FROM staging WHERE stage = 1)
    UNION ALL SELECT session, command, fingerprint, reply, checksum FROM mark_staged_2
    WHERE session > (SELECT moved FROM staging WHERE stage = 2);
";

/// A program of version 10 was killed. It left rows in both stages; some had moved already, and some were of a deleted
/// session.
#[tokio::test]
async fn rows_that_wait_in_stages_are_moved_when_the_file_is_opened() {
    let (dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    for session in ["moved", "waits", "half", "gone"] {
        let lease = store.create(&id(session), "ann", NOW).await.unwrap();
        let mark = CommandMark { command_id: format!("of-{session}"), fingerprint: 7, reply: "{}".into() };
        let records = vec![entry("e1", ""), control(&"secret ".repeat(9)), entry("e3", "e1")];
        store.append(&lease, 1, Append { marks: vec![mark], ..append(records) }).await.unwrap();
    }
    store.close().await.unwrap();
    tamper(
        &path,
        &format!(
            "{OLDER} {} \
             INSERT INTO record_staged_1 SELECT * FROM record WHERE session <= 2; \
             INSERT INTO mark_staged_1 SELECT * FROM mark WHERE session <= 2; \
             UPDATE staging SET moved = 1 WHERE stage = 1; \
             INSERT INTO record_staged_2 SELECT * FROM record WHERE session = 3 AND seq > 1 OR session = 4; \
             INSERT INTO mark_staged_2 SELECT * FROM mark WHERE session > 2; \
             DELETE FROM record WHERE session IN (2, 4) OR session = 3 AND seq > 1; \
             DELETE FROM mark WHERE session > 1; \
             INSERT INTO deletion VALUES (4, 'gone'); DELETE FROM session WHERE number = 4; \
             PRAGMA user_version = 10;",
            STAGES
        ),
    );
    let store = SqliteStore::open(&path).unwrap();
    let whole = format!("1:e1 2:{} 3:e3", "secret ".repeat(9));
    for session in ["moved", "waits", "half"] {
        assert_eq!(log(&store, &id(session)).await, whole, "{session}");
        assert!(store.command(&id(session), &format!("of-{session}")).await.unwrap().is_some(), "{session}");
        let (lease, _) = store.open(&id(session)).await.unwrap();
        let again = store.append(&lease, 4, append(vec![entry("e3", "e1")])).await.unwrap_err();
        assert!(matches!(again, Error::DuplicateEntry { .. }), "{session}: {again}");
        store.delete(&id(session)).await.unwrap();
    }
    store.settled().await;
    assert_eq!(erasure::holders(dir.path(), "secret secret"), [""; 0]);
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_reopened_file_has_everything_and_its_terms_go_on() {
    let (_dir, path) = place();
    let mut term = 0;
    for round in 0..3 {
        let store = SqliteStore::open(&path).unwrap();
        if round == 0 {
            store.create(&id("s"), "alice", NOW).await.unwrap();
        }
        let (lease, head) = store.open(&id("s")).await.unwrap();
        assert!(lease.term > term);
        term = lease.term;
        assert_eq!((head.last_seq, head.owner.as_str()), (round, "alice"));
        let full = Append {
            marks: vec![CommandMark { command_id: format!("c{round}"), fingerprint: u64::MAX, reply: "{}".into() }],
            head: Head { state: Some(format!("{round}").into()), ..Head::default() },
            ..append(vec![entry(&format!("e{round}"), "")])
        };
        store.append(&lease, round + 1, full).await.unwrap();
        for earlier in 0..=round {
            assert!(store.command(&id("s"), &format!("c{earlier}")).await.unwrap().is_some());
            assert_eq!(store.entry_seq(&id("s"), &id(&format!("e{earlier}"))).await, Ok(Some(earlier + 1)));
        }
        assert_eq!(store.head(&id("s")).await.unwrap().head.state.as_deref(), Some(&*round.to_string()));
        // The last round only drops the store.
        if round < 2 {
            store.close().await.unwrap();
            assert!(!path.with_extension("db-wal").exists(), "a closed store leaves one file and its lock");
        }
    }
    assert_eq!(log(&SqliteStore::open(&path).unwrap(), &id("s")).await, "1:e0 2:e1 3:e2");
}

/// A killed process leaves its files as they are at that moment, so this opens copies of them.
#[tokio::test]
async fn acknowledged_writes_are_in_the_files_immediately() {
    let (dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let copy_of = |round: u64| {
        let copy = dir.path().join(format!("copy{round}.db"));
        fs::copy(&path, &copy).unwrap();
        // There is no WAL before the first write.
        let wal = fs::copy(path.with_extension("db-wal"), copy.with_extension("db-wal"));
        assert_eq!(wal.is_ok(), round > 0);
        copy
    };
    assert!(SqliteStore::open(&copy_of(0)).is_ok(), "a file just made is known as ours");
    let lease = store.create(&id("s"), "", NOW).await.unwrap();
    for round in 1..=5 {
        store.append(&lease, round, append_of(["a"])).await.unwrap();
        let copy = SqliteStore::open(&copy_of(round)).unwrap();
        assert_eq!(copy.read(&id("s"), 0, 9).await.unwrap(), store.read(&id("s"), 0, 9).await.unwrap());
        assert_eq!(copy.head(&id("s")).await.unwrap().last_seq, round);
    }
}

#[tokio::test]
async fn a_file_that_is_open_is_refused_under_each_of_its_names() {
    let (dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let link = dir.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for name in [path.clone(), dir.path().join("./reseed.db"), link] {
        let error = SqliteStore::open(&name).err().map(|error| error.to_string());
        let want = format!("is in use by process {};", std::process::id());
        assert!(error.as_ref().is_some_and(|error| error.contains(&want)), "{name:?}: {error:?}");
    }
    store.close().await.unwrap();
    let store = SqliteStore::open(&path).unwrap();
    drop(store);
    SqliteStore::open(&path).unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_that_is_open_is_refused_by_a_hard_link_and_without_its_lock_file() {
    let (dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let link = dir.path().join("hard.db");
    fs::hard_link(&path, &link).unwrap();
    fs::remove_file(dir.path().join("reseed.db.lock")).unwrap();
    for name in [&link, &path] {
        assert!(matches!(SqliteStore::open(name).err(), Some(OpenError::InUse { .. })), "{name:?}");
    }
    store.close().await.unwrap();
    drop(store);
    SqliteStore::open(&path).unwrap();
}

#[tokio::test]
async fn a_file_that_is_not_ours_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let sqlite = dir.path().join("sqlite");
    tamper(&sqlite, "PRAGMA journal_mode=WAL; PRAGMA user_version=1; CREATE TABLE session (id)");
    let contents = [
        ("text", b"a letter to my mother".to_vec()),
        ("zeros", vec![0; FILE_PAGE_BYTES as usize]),
        ("short", b"SQLite format 3\0rsed".to_vec()),
        ("other", fs::read(&sqlite).unwrap()),
    ];
    for (name, content) in contents {
        let path = dir.path().join(name);
        fs::write(&path, &content).unwrap();
        let before = fs::read_dir(dir.path()).unwrap().count();
        let error = SqliteStore::open(&path).err();
        assert!(matches!(error, Some(OpenError::NotOurs { .. })), "{name}: {error:?}");
        assert_eq!(fs::read(&path).unwrap(), content, "{name}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), before, "{name}: nothing is put beside it");
    }
    let error = SqliteStore::open(dir.path()).err();
    assert!(matches!(error, Some(OpenError::Io { .. })), "a directory: {error:?}");
}

#[tokio::test]
async fn sessions_stored_before_usage_was_counted_are_counted() {
    let (_dir, path) = written().await;
    tamper(&path, OLDER);
    tamper(
        &path,
        "DROP TRIGGER usage_of_created; DROP TRIGGER usage_of_appended; DROP TRIGGER usage_of_deleted; \
         DROP TABLE history_part; DROP TABLE history_shard; DROP TABLE usage; DROP INDEX session_empty; \
         ALTER TABLE session DROP COLUMN bytes; PRAGMA user_version = 7;",
    );
    let store = SqliteStore::open(&path).unwrap();
    let counted = Usage { sessions: 1, empty: 0, bytes: 6 };
    assert_eq!(store.usage("alice").await.unwrap(), Some(counted));
    let (lease, _) = store.open(&id("s")).await.unwrap();
    store.append(&lease, lease.next_seq, append_of(["more"])).await.unwrap();
    assert_eq!(store.usage("alice").await.unwrap(), Some(Usage { bytes: 10, ..counted }));
}

#[tokio::test]
async fn a_newer_file_is_refused_and_left_as_it_is() {
    let (_dir, path) = written().await;
    tamper(&path, "PRAGMA user_version = 99");
    let before = fs::read(&path).unwrap();
    let error = SqliteStore::open(&path).err().unwrap();
    assert!(matches!(error, OpenError::Newer { version: 99, known: schema::VERSION, .. }), "{error:?}");
    let expected = format!("has version 99, this program supports versions up to {}", schema::VERSION);
    assert!(error.to_string().contains(&expected), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// The columns of a stored record of version 3. Records of older versions differ only in the number, and are read from
/// files of older programs in `tests/fixtures/stored`. These are the bytes on users' disks: a change of the format is a
/// new version, never another line here.
#[tokio::test]
async fn a_record_of_version_3_has_these_columns() {
    let (_dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let lease = store.create(&id("golden"), "", NOW).await.unwrap();
    let body = r#"{"type":"entry_appended","payload":{"text":"Grüße 🦀"}}"#;
    let mut records = vec![entry("e_1", ""), entry("e_2", "e_1"), control(body)];
    records[1].body = body.into();
    store.append(&lease, 1, append(records)).await.unwrap();

    let db = Connection::open(&path).unwrap();
    let mut select = db
        .prepare(
            "SELECT concat_ws(' ', session, seq, version, checksum, quote(entry), quote(parent), quote(kind), \
             hex(body), typeof(body)) FROM record_all ORDER BY seq",
        )
        .unwrap();
    let rows: Vec<String> = select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let hex: String = body.bytes().map(|byte| format!("{byte:02X}")).collect();
    let want = [
        "1 1 3 2965396023 'e_1' NULL 'message' 655F31 text".to_owned(),
        format!("1 2 3 3202296012 'e_2' 'e_1' 'message' {hex} text"),
        format!("1 3 3 605175533 NULL NULL NULL {hex} text"),
    ];
    assert_eq!(rows, want);
    let header: (i64, i64, i64, String) = db
        .query_row(
            "SELECT application_id, user_version, page_size, journal_mode FROM pragma_application_id, \
             pragma_user_version, pragma_page_size, pragma_journal_mode",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
        )
        .unwrap();
    assert_eq!(header, (0x7273_6564, schema::VERSION, FILE_PAGE_BYTES, "wal".to_owned()));
}

/// The row is on users' disks, as those of records are.
#[tokio::test]
async fn a_secret_of_a_file_is_kept_and_read() {
    let (_dir, path) = written().await;
    tamper(&path, "DROP TABLE secret; DROP TABLE model_usage; DROP TABLE minute; PRAGMA user_version = 12;");
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.secret("new", Secret([8; 32])).await, Ok(Secret([8; 32])));
    store.close().await.unwrap();
    let value = "07".repeat(32);
    tamper(&path, &format!("INSERT INTO secret (name, value, created_at) VALUES ('seal', x'{value}', 1764400000000)"));
    let store = SqliteStore::open(&path).unwrap();
    let reader = SqliteStore::open_read_only(&path).unwrap();
    for store in [&store, &reader] {
        assert_eq!(store.secret("seal", Secret([9; 32])).await, Ok(Secret([7; 32])));
        assert_eq!(store.secret("new", Secret([9; 32])).await, Ok(Secret([8; 32])));
    }
    assert_eq!(reader.secret("other", Secret([9; 32])).await, Err(Error::ReadOnly));
    tamper(&path, "UPDATE secret SET value = x'07'");
    let damaged = store.secret("seal", Secret([9; 32])).await.unwrap_err().to_string();
    assert!(damaged.contains("the secret `seal` in the database is damaged"), "{damaged}");
    let row = "SELECT count(*) FROM secret WHERE typeof(created_at) = 'integer' AND created_at > 1700000000000";
    assert_eq!(Connection::open(&path).unwrap().query_row(row, [], |row| row.get(0)), Ok(2));
}

/// Reads a setting of the connection that commits.
struct Setting(&'static str);

impl Write for Setting {
    type Output = i64;

    fn write(&self, db: &Connection) -> Result<i64, Fault> {
        Ok(db.pragma_query_value(None, self.0, |row| row.get(0))?)
    }
}

/// `tests/disk` cuts the power of a disk that keeps only what was synced; this finds the same fault within a moment.
#[tokio::test]
async fn a_commit_syncs_the_log() {
    let (_dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    // 2 is FULL; 1, NORMAL, syncs only when the log is copied back.
    assert_eq!(store.write(Setting("synchronous")).await, Ok(2));
}

#[tokio::test]
async fn appends_that_wait_share_a_commit_and_each_commit_is_observed() {
    const SESSIONS: u64 = 200;
    const APPENDS: u64 = 5;
    let (_dir, path) = place();
    let seen = Arc::new(Mutex::new(Vec::<CommitStats>::new()));
    let observed = seen.clone();
    let store = SqliteStore::open_observed(&path, move |stats| observed.lock().unwrap().push(stats)).unwrap();
    join_all((0..SESSIONS).map(|n| {
        let store = &store;
        async move {
            let lease = store.create(&id(&format!("s{n}")), "", NOW).await.unwrap();
            for seq in 1..=APPENDS {
                store.append(&lease, seq, append_of(["12345"])).await.unwrap();
            }
        }
    }))
    .await;
    let seen = seen.lock().unwrap();
    let last = *seen.last().unwrap();
    assert_eq!((last.records, last.bytes), (SESSIONS * APPENDS, 5 * SESSIONS * APPENDS));
    assert_eq!(last.commits, seen.len() as u64);
    assert!(
        last.commits * 4 < SESSIONS * (APPENDS + 1),
        "{} commits for {} writes",
        last.commits,
        SESSIONS * (APPENDS + 1)
    );
    assert!(seen.iter().all(|stats| !stats.last_commit.is_zero()));
}

#[tokio::test]
async fn reads_do_not_wait_for_a_writer_that_is_stuck() {
    let (_dir, path) = written().await;
    let store = SqliteStore::open(&path).unwrap();
    let (lease, _) = store.open(&id("s")).await.unwrap();
    // Another process holds the file's write lock, so the append must wait for it.
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut append = store.append(&lease, 4, append_of(["a"]));
    assert!(futures_util::poll!(&mut append).is_pending());
    assert_eq!(log(&store, &id("s")).await, "1:e1 2:e2 3:e3");
    assert!(futures_util::poll!(&mut append).is_pending());
    other.execute_batch("ROLLBACK").unwrap();
    append.await.unwrap();
    assert_eq!(store.head(&id("s")).await.unwrap().last_seq, 4);
}

#[cfg(unix)]
#[tokio::test]
async fn the_file_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    for was_there in [false, true] {
        let (_dir, path) = place();
        if was_there {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        }
        let store = SqliteStore::open(&path).unwrap();
        store.create(&id("s"), "", NOW).await.unwrap();
        for file in [path.clone(), path.with_extension("db-wal")] {
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{file:?}, {was_there}");
        }
    }
}
