//! Deleted sessions: hidden at once, removed in slices, and erased from every file.

use super::{place, tamper};
use crate::{
    Append, CommandMark, Error, Head, ListQuery, SessionStore,
    conformance::{NOW, append, append_of, control, entry, id},
    sqlite::{CommitStats, OpenError, Options, SqliteStore, VacuumError, vacuum},
};
use rusqlite::Connection;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

/// Returns the names of the files in a folder that contain a text.
pub(super) fn holders(folder: &Path, text: &str) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let holds = |path: &PathBuf| String::from_utf8_lossy(&fs::read(path).unwrap()).contains(text);
    files.filter(holds).map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

/// SQLite moves rows between pages and leaves copies of them in unused bytes. To provoke that, sessions grow in turns
/// with rows of all sizes, so that each has rows on pages of the others.
async fn check_that_no_byte_stays(checkpoint_pages: u32) {
    const SESSIONS: u64 = 24;
    let (dir, path) = place();
    let store = SqliteStore::open_with(&path, Options { checkpoint_pages, ..Options::default() }).unwrap();
    let mut random = fastrand::Rng::with_seed(14);
    let mut leases = Vec::new();
    for session in 0..SESSIONS {
        leases.push(store.create(&id(&format!("s{session}")), "ann", NOW).await.unwrap());
    }
    let mark = |session: usize| format!("marker-of-{session:02}-");
    for seq in 1..=40 {
        for (session, lease) in leases.iter().enumerate() {
            let text = mark(session).repeat(random.usize(1..60) * if random.u32(0..20) == 0 { 100 } else { 1 });
            let mut record = entry(&format!("e{session}x{seq}"), "");
            record.body = text.clone().into();
            let reply = CommandMark { command_id: format!("c{seq}"), fingerprint: 1, reply: text.clone().into() };
            let head = Head { name: mark(session), state: Some(text.into()), updated_at: NOW, ..Head::default() };
            store.append(lease, seq, Append { marks: vec![reply], head, ..append(vec![record]) }).await.unwrap();
        }
    }
    let order: Vec<usize> = (0..leases.len()).step_by(3).chain((1..leases.len()).step_by(3)).collect();
    for session in order {
        assert!(!holders(dir.path(), &mark(session)).is_empty(), "{session}");
        store.delete(&leases[session].session).await.unwrap();
        store.settled().await;
        assert_eq!(holders(dir.path(), &mark(session)), [""; 0], "{session}");
    }
    let left = store.read(&id("s2"), 0, 99).await.unwrap();
    assert_eq!(left.len(), 40);
    assert!(left.iter().all(|record| record.body.starts_with("marker-of-02-")));
    store.append(&leases[2], 41, append_of(["more"])).await.unwrap();
}

#[tokio::test]
async fn no_byte_of_a_deleted_session_stays_in_any_file() {
    check_that_no_byte_stays(Options::default().checkpoint_pages).await;
}

/// Pages are cleared a part at a time while others are written.
#[tokio::test]
async fn no_byte_of_it_stays_if_the_log_is_copied_back_all_the_time() {
    check_that_no_byte_stays(8).await;
}

/// Deleted text is also gone from a closed store, whatever was being copied when it was told to close.
#[tokio::test]
async fn no_byte_of_it_stays_in_a_store_that_is_closed_at_once() {
    for round in 0..8 {
        let (dir, path) = place();
        let store = SqliteStore::open_with(&path, Options { checkpoint_pages: 8, ..Options::default() }).unwrap();
        create(&store, "gone", 10 + 40 * round, 700).await;
        create(&store, "kept", 1, 9).await;
        store.delete(&id("gone")).await.unwrap();
        store.close().await.unwrap();
        let secret = "a secret ".repeat(9);
        assert_eq!(holders(dir.path(), &secret), [""; 0], "round {round}");
        assert_eq!(rows(&path, "session"), 1, "round {round}");
    }
}

/// Many sessions write as fast as they can.
#[tokio::test]
async fn the_log_stays_short_however_much_is_written() {
    const PAGES: u32 = 64;
    let (_dir, path) = place();
    let store = SqliteStore::open_with(&path, Options { checkpoint_pages: PAGES, ..Options::default() }).unwrap();
    let writes = (0..8).map(async |session| {
        let lease = store.create(&id(&format!("s{session}")), "ann", NOW).await.unwrap();
        for seq in 1..=150 {
            store.append(&lease, seq, append(vec![control(&"a".repeat(4_000))])).await.unwrap();
        }
    });
    futures_util::future::join_all(writes).await;
    let log = fs::metadata(path.with_extension("db-wal")).unwrap().len() / 8_216;
    // A group of eight may come on top, and a slice of the index.
    assert!(log < u64::from(PAGES) + 300, "{log} frames");
    store.close().await.unwrap();
    assert_eq!(rows(&path, "record"), 1_200);
}

/// Creates a session with this many records, each with a body of this many bytes.
async fn create(store: &SqliteStore, session: &str, records: usize, bytes: usize) {
    let lease = store.create(&id(session), "ann", NOW).await.unwrap();
    let body = "a secret ".repeat(bytes.div_ceil(9));
    store.append(&lease, 1, append(vec![control(&body); records])).await.unwrap();
}

fn rows(path: &Path, table: &str) -> u64 {
    let db = Connection::open(path).unwrap();
    db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
}

#[tokio::test]
async fn a_session_is_hidden_at_once_and_removed_in_slices() {
    let (_dir, path) = place();
    let seen = Arc::new(Mutex::new(CommitStats::default()));
    let observed = seen.clone();
    let store = SqliteStore::open_observed(&path, move |stats| *observed.lock().unwrap() = stats).unwrap();
    let commits = || seen.lock().unwrap().commits;
    // Slices are bounded by the number of rows and by their size: 256 rows or a MiB each.
    for (name, records, bytes, slices) in [("rows", 2_000, 10, 8), ("bytes", 40, 300_000, 10), ("one", 1, 9, 1)] {
        create(&store, name, records, bytes).await;
        let before = commits();
        store.delete(&id(name)).await.unwrap();
        assert_eq!(store.head(&id(name)).await, Err(Error::NotFound(id(name))), "{name}");
        assert_eq!(store.read(&id(name), 0, 9).await, Err(Error::NotFound(id(name))), "{name}");
        assert_eq!(store.command(&id(name), "c").await, Ok(None), "{name}");
        let list = store.list(ListQuery { limit: 9, ..ListQuery::default() }).await.unwrap();
        assert_eq!(list.items, [], "{name}");
        // Its id is free at once, and a session stored under it now stays.
        create(&store, name, 3, 5).await;
        store.settled().await;
        assert!(commits() - before >= slices, "{name}: {} commits", commits() - before);
        assert_eq!(store.read(&id(name), 0, 9).await.unwrap().len(), 3, "{name}");
        store.delete(&id(name)).await.unwrap();
        store.settled().await;
    }
    let tables = ["session", "session_state", "deletion", "record", "mark", "words"];
    for table in tables {
        assert_eq!(rows(&path, table), 0, "{table}");
    }
}

/// Many short conversations that are deleted one after the other must not cost one commit each.
#[tokio::test]
async fn short_sessions_are_removed_together() {
    let (dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    for session in 0..100 {
        create(&store, &format!("s{session}"), 5, 9).await;
    }
    create(&store, "kept", 5, 9).await;
    store.indexed().await;
    store.close().await.unwrap();
    tamper(
        &path,
        "INSERT INTO deletion SELECT number, id FROM session WHERE id != 'kept'; \
         DELETE FROM session WHERE id != 'kept'",
    );
    let seen = Arc::new(Mutex::new(CommitStats::default()));
    let observed = seen.clone();
    let store = SqliteStore::open_observed(&path, move |stats| *observed.lock().unwrap() = stats).unwrap();
    store.settled().await;
    let commits = seen.lock().unwrap().commits;
    // These are 500 records, and a row of the search index for each session, in slices of 256 rows.
    assert!((2..=6).contains(&commits), "{commits}");
    assert_eq!((rows(&path, "record"), rows(&path, "deletion")), (5, 0));
    store.delete(&id("kept")).await.unwrap();
    store.settled().await;
    assert_eq!(holders(dir.path(), "a secret"), [""; 0]);
}

#[tokio::test]
async fn a_removal_goes_on_after_a_restart() {
    let (dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    create(&store, "s", 600, 100).await;
    create(&store, "t", 1, 1).await;
    store.close().await.unwrap();
    // A process that is killed right after hiding the session leaves this state.
    tamper(
        &path,
        "INSERT INTO deletion SELECT number, id FROM session WHERE id = 's'; DELETE FROM session WHERE id = 's'",
    );
    assert!(!holders(dir.path(), "a secret").is_empty());
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.open(&id("s")).await.unwrap_err(), Error::NotFound(id("s")));
    store.settled().await;
    let lease = store.open(&id("t")).await.unwrap().0;
    assert_eq!(rows(&path, "record"), 1);
    store.delete(&lease.session).await.unwrap();
    // Closing finishes the rest of a small deletion.
    store.close().await.unwrap();
    assert_eq!((rows(&path, "record"), holders(dir.path(), "a secret").len()), (0, 0));
}

#[tokio::test]
async fn a_file_shrinks_when_sessions_are_deleted() {
    let (_dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let mib = || fs::metadata(&path).unwrap().len() / (1024 * 1024);
    create(&store, "kept", 10, 1000).await;
    create(&store, "s", 16, 1024 * 1024).await;
    create(&store, "later", 10, 1000).await;
    store.delete(&id("later")).await.unwrap();
    store.settled().await;
    assert!(mib() >= 16, "{} MiB", mib());
    store.delete(&id("s")).await.unwrap();
    store.settled().await;
    // It keeps 4 MiB for later writes.
    assert!(mib() <= 5, "{} MiB", mib());
    assert_eq!(store.read(&id("kept"), 0, 99).await.unwrap().len(), 10);
    let check: String =
        Connection::open(&path).unwrap().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

/// A program that reads an older snapshot of the file needs the log. The text is erased as soon as it is done.
#[tokio::test]
async fn a_reader_of_an_older_snapshot_delays_the_erasure() {
    let (dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    create(&store, "s", 3, 100).await;
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN; SELECT count(*) FROM record").unwrap();
    store.delete(&id("s")).await.unwrap();
    store.settled().await;
    assert!(!holders(dir.path(), "a secret").is_empty(), "the other still reads it");
    // Writes continue meanwhile.
    create(&store, "t", 1, 1).await;
    store.delete(&id("t")).await.unwrap();
    other.execute_batch("COMMIT").unwrap();
    let erased = async {
        while !holders(dir.path(), "a secret").is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), erased).await.unwrap();
}

/// A file created by an older program cannot be shortened, and may contain bytes of deleted text.
#[tokio::test]
async fn a_rewritten_file_is_short_shrinks_later_and_has_no_bytes_of_what_was_deleted() {
    let (dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    create(&store, "s", 4, 1024 * 1024).await;
    create(&store, "kept", 10, 1000).await;
    store.close().await.unwrap();
    tamper(
        &path,
        "PRAGMA secure_delete = 0; PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = 0; VACUUM; DELETE FROM record \
         WHERE session = 1; DELETE FROM session WHERE number = 1; INSERT INTO deletion VALUES (1, 's')",
    );
    fs::write(dir.path().join("reseed.db.vacuum"), "of an attempt that was interrupted").unwrap();
    let length = || fs::metadata(&path).unwrap().len();
    let before = length();
    assert!(before > 4 * 1024 * 1024);

    // The test uses WAL mode, in which readers block no one.
    tamper(&path, "PRAGMA journal_mode = WAL");
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN; SELECT count(*) FROM record").unwrap();
    assert!(matches!(vacuum(&path), Err(VacuumError::InUse(_))));
    drop(other);
    let done = vacuum(&path).unwrap();
    assert_eq!((done.before, done.after), (before, length()));
    assert!(done.after < 370_000, "{done:?}");
    let files = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    assert!(files.into_iter().all(|name| !name.contains("vacuum")));

    let store = SqliteStore::open(&path).unwrap();
    assert!(matches!(vacuum(&path), Err(VacuumError::Open(OpenError::InUse { .. }))));
    assert_eq!(store.read(&id("kept"), 0, 99).await.unwrap().len(), 10);
    store.delete(&id("kept")).await.unwrap();
    create(&store, "s", 16, 1024 * 1024).await;
    store.delete(&id("s")).await.unwrap();
    store.close().await.unwrap();
    assert!(length() <= 5 * 1024 * 1024, "it shrinks while it is in use: {}", length());
    assert_eq!(holders(dir.path(), "a secret"), [""; 0]);
    assert!(matches!(vacuum(&dir.path().join("none.db")), Err(VacuumError::Open(OpenError::Io { .. }))));
}
