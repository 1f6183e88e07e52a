//! Migrations between SQLite files that are interrupted at every step, and data that cannot be trusted. Whole
//! migrations with real servers and PostgreSQL are in `tests/it/migrate.rs`.

use super::{
    Begun, Listed, Mark, MigrateError, Migrated, Options, Progress, Record, Session, Size, Source, Target, User,
    migrate, run,
};
use crate::{
    CommandMark, Database, Error, Head, NewRecord, SessionStore as _, StoreFuture, UNFINISHED,
    conformance::{NOW, append, control, entry, id, log},
    restored,
    sqlite::{OpenError, SqliteStore, transfer::SqliteSide},
};
use reseed_protocol::{SessionId, Timestamp};
use std::path::{Path, PathBuf};

/// Fills a file with sessions of every kind: a log longer than a page with marks and a state, one with branches, an
/// empty one, one still being created, and a deleted one.
async fn filled(path: &Path) {
    let store = SqliteStore::open(path).unwrap();
    let long = store.create(&id("long"), "ann", NOW).await.unwrap();
    for part in 0..3_u64 {
        let records: Vec<NewRecord> = (0..500).map(|n| control(&format!("record {part} {n}"))).collect();
        let mark = CommandMark {
            command_id: format!("command-{part}"),
            fingerprint: u64::MAX - part,
            reply: format!("{{\"n\":{part}}}").into(),
        };
        let head = Head {
            name: "Ünïcode".to_owned(),
            created_at: NOW,
            updated_at: Timestamp(NOW.0 + 1),
            cost_nano_usd: Some(7),
            running: true,
            state: Some("s".repeat(3000).into()),
            ..Head::default()
        };
        let append = crate::Append { records, marks: vec![mark], head };
        store.append(&long, 1 + part * 500, append).await.unwrap();
    }
    let command = id("command-that-created-it");
    store.create_once(&id("tree"), "bob", &command, NOW).await.unwrap();
    let (tree, _) = store.open(&id("tree")).await.unwrap();
    store.append(&tree, 1, append(vec![entry("a", ""), entry("b", "a"), entry("c", "a")])).await.unwrap();
    store.create(&id("empty"), "", NOW).await.unwrap();
    store.create(&id("made"), "ann", UNFINISHED).await.unwrap();
    let gone = store.create(&id("gone"), "ann", NOW).await.unwrap();
    store.append(&gone, 1, append(vec![control("secret")])).await.unwrap();
    store.delete(&id("gone")).await.unwrap();
    store.close().await.unwrap();
}

/// Returns everything that a file holds about its sessions, except numbers and epochs.
fn dump(path: &Path) -> String {
    let db = rusqlite::Connection::open(path).unwrap();
    let sessions = "SELECT id, owner, term, last_seq, name, name_folded, created_at, updated_at, entries, token_count, \
                    window_tokens, running, last_entry, cost_nano_usd, unpriced_requests, created_by, bytes, \
                    (SELECT state FROM session_state t WHERE t.session = s.number) FROM session s ORDER BY id";
    let records = "SELECT s.id, seq, version, r.checksum, entry, parent, kind, body, follows FROM record r \
                   JOIN session s ON s.number = r.session ORDER BY s.id, seq";
    let marks = "SELECT s.id, command, fingerprint, reply, m.checksum FROM mark m \
                 JOIN session s ON s.number = m.session ORDER BY s.id, command";
    let rest = "SELECT (SELECT count(*) FROM record), (SELECT count(*) FROM mark), (SELECT count(*) FROM deletion), \
                (SELECT group_concat(owner || sessions || ',' || empty || ',' || bytes, ' ') FROM usage)";
    let mut text = String::new();
    for sql in [sessions, records, marks, rest] {
        let mut statement = db.prepare(sql).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            for column in 0..columns {
                text.push_str(&format!("{:?} ", row.get_ref(column).unwrap()));
            }
            text.push('\n');
        }
    }
    text
}

/// Returns a column of the sessions, in the order of their numbers.
fn column(path: &Path, column: &str) -> Vec<String> {
    let db = rusqlite::Connection::open(path).unwrap();
    let mut statement = db.prepare(&format!("SELECT {column} FROM session ORDER BY number")).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

/// A target that fails at one call.
struct Failing {
    inner: SqliteSide,
    calls_left: u32,
}

impl Failing {
    fn side(&mut self) -> Result<&mut SqliteSide, Error> {
        let Some(left) = self.calls_left.checked_sub(1) else { return Err(Error::Unknown("killed".to_owned())) };
        self.calls_left = left;
        Ok(&mut self.inner)
    }
}

macro_rules! forward {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $output:ty;)*) => {
        $(fn $name<'a>(&'a mut self, $($argument: $kind),*) -> StoreFuture<'a, Result<$output, Error>> {
            match self.side() {
                Ok(side) => side.$name($($argument),*),
                Err(error) => Box::pin(async { Err(error) }),
            }
        })*
    };
}

impl Source for Failing {
    fn size(&mut self) -> StoreFuture<'_, Result<Size, Error>> {
        self.inner.size()
    }

    fn list(&mut self, after: i64) -> StoreFuture<'_, Result<Vec<Listed>, Error>> {
        self.inner.list(after)
    }

    fn users(&mut self) -> StoreFuture<'_, Result<Vec<User>, Error>> {
        self.inner.users()
    }

    forward! {
        find(id: &'a str) -> Option<Listed>;
        session(session: &'a SessionId) -> Session;
        records(number: i64, session: &'a SessionId, after: i64) -> Vec<Record>;
        marks(number: i64, session: &'a SessionId, after: &'a str) -> Vec<Mark>;
    }
}

impl Target for Failing {
    fn sweep(&mut self) -> StoreFuture<'_, Result<(), Error>> {
        self.inner.sweep()
    }

    forward! {
        begin(source: &'a str) -> Begun;
        reserve(session: &'a SessionId) -> i64;
        put_records(number: i64, records: &'a [Record]) -> ();
        put_marks(number: i64, marks: &'a [Mark]) -> ();
        publish(number: i64, session: &'a Session, bytes: u64) -> ();
        withdraw(session: &'a str) -> ();
    }

    fn finish(&mut self) -> StoreFuture<'_, Result<(), Error>> {
        match self.side() {
            Ok(side) => side.finish(),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}

async fn moved(from: &Path, to: &Path, options: Options) -> Result<Migrated, MigrateError> {
    let of = |path: &Path| Database::Sqlite(path.to_owned());
    migrate(&of(from), &of(to), options, &mut |_: &Progress| {}).await
}

async fn scene() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from.db"), folder.path().join("to.db"));
    filled(&from).await;
    (folder, from, to)
}

#[tokio::test]
async fn a_migration_that_ends_at_any_step_is_finished_by_the_next_with_the_same_result() {
    let (folder, from, to) = scene().await;
    let whole = moved(&from, &to, Options::default()).await.unwrap();
    assert_eq!(whole.verified, Size { sessions: 4, records: 1503, marks: 3 });
    assert_eq!(dump(&from), dump(&to));
    assert_eq!(column(&from, "id"), column(&to, "id"), "lists keep their order");
    let renamed = column(&to, "epoch");
    assert!(column(&from, "epoch").iter().all(|epoch| !renamed.contains(epoch)), "no log has the name of another one");
    let mut ended = false;
    for calls in 0.. {
        let part = folder.path().join(format!("part{calls}.db"));
        let mut source = SqliteSide::open(&from).unwrap();
        let mut target = Failing { inner: SqliteSide::open(&part).unwrap(), calls_left: calls };
        let database = Database::Sqlite(from.clone());
        let done = run::run((&mut source, &mut target), &database, Options::default(), &mut |_| {}).await;
        drop((source, target));
        if let Err(error) = &done {
            assert!(error.to_string().contains("killed"), "{calls}: {error}");
            if calls > 0 {
                let opened = [
                    SqliteStore::open(&part).err(),
                    SqliteStore::open_read_only(&part).err(),
                    SqliteStore::check(&part).err(),
                ];
                for refused in opened {
                    let refused = refused.expect("a part of the sessions passes for all of them");
                    assert!(matches!(refused, OpenError::Migrating { .. }), "{calls}: {refused}");
                }
                let refused = restored(&Database::Sqlite(part.clone()), &mut |_, _| {}).await.unwrap_err();
                assert!(refused.to_string().contains("is not complete"), "{calls}: {refused}");
            }
        }
        ended = done.is_ok();
        let again = if let Ok(done) = done { done } else { moved(&from, &part, Options::default()).await.unwrap() };
        assert_eq!((again.verified, &again.digest), (whole.verified, &whole.digest), "{calls}");
        assert_eq!(dump(&from), dump(&part), "{calls}");
        let store = SqliteStore::open(&part).unwrap();
        assert_eq!(log(&store, &id("tree")).await, "1:a 2:b 3:c");
        store.close().await.unwrap();
        if ended {
            break;
        }
    }
    assert!(ended);
}

#[tokio::test]
async fn sessions_changed_since_an_earlier_run_are_copied_again_or_removed() {
    let (_folder, from, to) = scene().await;
    // All sessions are there; only the last step is missing.
    moved(&from, &to, Options::default()).await.unwrap();
    mark_again(&to, &from);
    let store = SqliteStore::open(&from).unwrap();
    let (lease, _) = store.open(&id("tree")).await.unwrap();
    store.append(&lease, 4, append(vec![entry("d", "c")])).await.unwrap();
    store.delete(&id("empty")).await.unwrap();
    store.close().await.unwrap();
    // A byte of the copy has changed on the disk.
    let db = rusqlite::Connection::open(&to).unwrap();
    db.execute("UPDATE record SET body = 'record 0 X' WHERE body = 'record 0 0'", []).unwrap();
    drop(db);
    let done = moved(&from, &to, Options::default()).await.unwrap();
    assert_eq!((done.kept, done.replaced, done.removed), (1, 2, 1));
    assert_eq!(dump(&from), dump(&to));
}

#[tokio::test]
async fn a_complete_migration_ends_with_the_same_result_until_either_side_changes() {
    for (is_of_source, change, sessions) in [
        (true, "DELETE FROM session WHERE id = 'empty'", 4),
        (true, "UPDATE session SET term = term + 1 WHERE id = 'tree'", 4),
        (false, "DELETE FROM session WHERE id = 'empty'", 3),
        (false, "UPDATE session SET updated_at = updated_at + 1 WHERE id = 'tree'", 4),
        (false, "UPDATE record SET body = 'record 0 X' WHERE body = 'record 0 0'", 4),
    ] {
        let (_folder, from, to) = scene().await;
        let first = moved(&from, &to, Options::default()).await.unwrap();
        let again = moved(&from, &to, Options::default()).await.unwrap();
        assert_eq!(again, Migrated { kept: 4, ..first }, "{change}");
        let changed = if is_of_source { &from } else { &to };
        rusqlite::Connection::open(changed).unwrap().execute_batch(change).unwrap();
        let before = dump(&to);
        let error = moved(&from, &to, Options::default()).await.unwrap_err();
        assert!(matches!(error, MigrateError::NotEmpty { sessions: found } if found == sessions), "{change}: {error}");
        assert_eq!(dump(&to), before, "{change}: nothing is written");
        SqliteStore::open(&to).unwrap().close().await.unwrap();
    }
}

/// Marks a complete target again, as if its migration had been interrupted before the last step.
fn mark_again(to: &Path, from: &Path) {
    let db = rusqlite::Connection::open(to).unwrap();
    db.execute_batch("CREATE TABLE IF NOT EXISTS migration (source TEXT NOT NULL); DELETE FROM migration").unwrap();
    db.execute("INSERT INTO migration VALUES (?1)", [from.canonicalize().unwrap().to_str().unwrap()]).unwrap();
}

#[tokio::test]
async fn damage_in_the_source_is_reported_and_skipped_only_on_request() {
    for damage in [
        "UPDATE record SET body = 'record 1 X' WHERE body = 'record 1 7'",
        "DELETE FROM record WHERE body = 'record 1 7'",
        "DELETE FROM record WHERE body = 'record 2 499'",
        "UPDATE mark SET reply = '{}'",
        "UPDATE session SET owner = 'bob' WHERE id = 'long'",
        "UPDATE session SET id = 'no id' WHERE id = 'long'",
    ] {
        let (_folder, from, to) = scene().await;
        rusqlite::Connection::open(&from).unwrap().execute_batch(damage).unwrap();
        let error = moved(&from, &to, Options::default()).await.unwrap_err();
        let MigrateError::Damaged(damaged) = &error else { panic!("{damage}: {error}") };
        assert_eq!(damaged.count, 1, "{damage}: {error}");
        assert!(error.to_string().contains("--skip-damaged") && !error.to_string().contains("record 1 X"), "{error}");
        assert!(matches!(SqliteStore::open(&to), Err(OpenError::Migrating { .. })), "{damage}");
        let done = moved(&from, &to, Options { skip_damaged: true }).await.unwrap();
        assert_eq!((done.verified.sessions, done.kept, done.damaged.count), (3, 3, 1), "{damage}");
        // The caller may not have received the result.
        let again = moved(&from, &to, Options { skip_damaged: true }).await.unwrap();
        assert_eq!(again, done, "{damage}");
        let error = moved(&from, &to, Options::default()).await.unwrap_err();
        assert!(matches!(error, MigrateError::NotEmpty { sessions: 3 }), "{damage}: {error}");
        let store = SqliteStore::open(&to).unwrap();
        assert_eq!(store.head(&id("long")).await.unwrap_err(), Error::NotFound(id("long")), "{damage}");
        assert_eq!(log(&store, &id("tree")).await, "1:a 2:b 3:c");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_target_that_serves_something_else_is_left_alone() {
    let (folder, from, to) = scene().await;
    let error = moved(&from, &from, Options::default()).await.unwrap_err();
    assert!(matches!(error, MigrateError::Same(_)), "{error}");
    let missing = folder.path().join("missing.db");
    let error = moved(&missing, &to, Options::default()).await.unwrap_err();
    assert!(error.to_string().starts_with("open the source"), "{error}");
    assert!(!missing.exists() && !to.exists(), "nothing was made");

    let store = SqliteStore::open(&to).unwrap();
    let error = moved(&from, &to, Options::default()).await.unwrap_err();
    assert!(error.to_string().contains("is in use by process"), "{error}");
    store.create(&id("mine"), "ann", NOW).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let error = moved(&from, &to, Options::default()).await.unwrap_err();
    assert!(matches!(error, MigrateError::NotEmpty { sessions: 1 }), "{error}");
    SqliteStore::open(&to).unwrap().close().await.unwrap();

    let store = SqliteStore::open(&from).unwrap();
    let error = moved(&from, &missing, Options::default()).await.unwrap_err();
    assert!(error.to_string().starts_with("open the source") && error.to_string().contains("in use"), "{error}");
    store.close().await.unwrap();
    drop(store);

    let other = folder.path().join("other.db");
    filled(&other).await;
    mark_again(&missing_target(&folder), &other);
    let error = moved(&from, &missing_target(&folder), Options::default()).await.unwrap_err();
    assert!(matches!(&error, MigrateError::Other { source_name } if source_name.ends_with("other.db")), "{error}");
}

/// Returns a file with tables and no sessions.
fn missing_target(folder: &tempfile::TempDir) -> PathBuf {
    let path = folder.path().join("third.db");
    drop(SqliteSide::open(&path).unwrap());
    path
}
