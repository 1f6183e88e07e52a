//! Migrations between SQLite files that are interrupted at every step, and data that cannot be trusted. Whole
//! migrations with real servers and PostgreSQL are in `tests/it/migrate.rs`.

use super::{MigrateError, Migrated, Options, Progress, Size, migrate};
use crate::{
    CommandMark, Database, Error, Head, NewRecord, Secret, SessionStore as _, UNFINISHED,
    conformance::{NOW, append, control, entry, id, log, usage_row},
    restored,
    sqlite::{OpenError, SqliteStore},
};
use reseed_protocol::Timestamp;
use std::{
    future::poll_fn,
    path::{Path, PathBuf},
    pin::pin,
    task::Poll,
};

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
        let append = crate::Append { records, marks: vec![mark], usage: Vec::new(), head };
        store.append(&long, 1 + part * 500, append).await.unwrap();
    }
    let command = id("command-that-created-it");
    store.create_once(&id("tree"), "bob", Some(&command), NOW).await.unwrap();
    let (tree, _) = store.open(&id("tree")).await.unwrap();
    store.append(&tree, 1, append(vec![entry("a", ""), entry("b", "a"), entry("c", "a")])).await.unwrap();
    store.create(&id("empty"), "", NOW).await.unwrap();
    store.create(&id("made"), "ann", UNFINISHED).await.unwrap();
    let gone = store.create(&id("gone"), "ann", NOW).await.unwrap();
    store.append(&gone, 1, append(vec![control("secret")])).await.unwrap();
    store.delete(&id("gone")).await.unwrap();
    store.add_usage(vec![usage_row("e-1-1", "gone", 5), usage_row("e-1-2", "long", 7)]).await.unwrap();
    store.secret("seal", Secret([7; 32])).await.unwrap();
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
    let secrets = "SELECT name, value FROM secret";
    let usage = "SELECT * FROM model_usage ORDER BY id";
    for sql in [sessions, records, marks, rest, secrets, usage] {
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

/// Migrates, but drops the migration when it has been polled this many times.
async fn interrupted(from: &Path, to: &Path, polls: u32) -> Option<Migrated> {
    let mut migration = pin!(moved(from, to, Options::default()));
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        migration.as_mut().poll(context).map(|done| Some(done.unwrap()))
    })
    .await
}

#[tokio::test]
async fn the_secrets_of_the_source_take_the_place_of_the_targets() {
    let (_folder, from, to) = scene().await;
    let server = SqliteStore::open(&to).unwrap();
    server.secret("seal", Secret([8; 32])).await.unwrap();
    server.close().await.unwrap();
    moved(&from, &to, Options::default()).await.unwrap();
    assert_eq!(dump(&to), dump(&from));
}

#[tokio::test]
async fn a_migration_that_ends_at_any_step_leaves_a_target_that_nothing_opens() {
    let (folder, from, to) = scene().await;
    let whole = moved(&from, &to, Options::default()).await.unwrap();
    assert_eq!(whole.verified, Size { sessions: 4, records: 1503, marks: 3 });
    let before = dump(&from);
    assert_eq!(before, dump(&to));
    assert_eq!(column(&from, "id"), column(&to, "id"), "lists keep their order");
    let renamed = column(&to, "epoch");
    assert!(column(&from, "epoch").iter().all(|epoch| !renamed.contains(epoch)), "no log has the name of another one");
    let store = SqliteStore::open(&to).unwrap();
    assert_eq!(log(&store, &id("tree")).await, "1:a 2:b 3:c");
    store.close().await.unwrap();
    let mut marked = 0;
    for polls in 0.. {
        let part = folder.path().join(format!("part{polls}.db"));
        let done = interrupted(&from, &part, polls).await;
        assert_eq!(dump(&from), before, "{polls}: the source is as it was");
        if done.is_some() {
            assert_eq!(dump(&part), before);
            break;
        }
        if !part.exists() || column(&part, "id").is_empty() && SqliteStore::open(&part).is_ok() {
            // Nothing was copied yet. How many polls that takes depends on how quickly the disk answers.
            continue;
        }
        marked += 1;
        let opened =
            [SqliteStore::open(&part).err(), SqliteStore::open_read_only(&part).err(), SqliteStore::check(&part).err()];
        for refused in opened {
            let refused = refused.expect("a part of the sessions passes for all of them");
            assert!(matches!(refused, OpenError::Migrating { .. }), "{polls}: {refused}");
        }
        let refused = restored(&Database::Sqlite(part.clone()), &mut |_, _| {}).await.unwrap_err();
        assert!(refused.to_string().contains("is not complete"), "{polls}: {refused}");
        for (from, to) in [(&from, &part), (&part, &to)] {
            let refused = moved(from, to, Options::default()).await.unwrap_err();
            assert!(refused.to_string().contains("is not complete"), "{polls}: {refused}");
        }
    }
    assert!(marked > 20, "{marked}");
}

#[tokio::test]
async fn a_session_that_is_written_meanwhile_is_noticed() {
    for change in [
        "UPDATE session SET term = term + 1, checksum = NULL WHERE id = 'tree'",
        "DELETE FROM session WHERE id = 'empty'",
    ] {
        let (_folder, from, to) = scene().await;
        let of = |path: &Path| Database::Sqlite(path.to_owned());
        let mut is_changed = false;
        let mut progress = |progress: &Progress| {
            // Only a program that ignores the lock of the file can do this.
            if matches!(progress, Progress::Copying { done, .. } if done.sessions == 4) && !is_changed {
                is_changed = true;
                rusqlite::Connection::open(&from).unwrap().execute_batch(change).unwrap();
            }
        };
        let error = migrate(&of(&from), &of(&to), Options::default(), &mut progress).await.unwrap_err();
        assert!(matches!(error, MigrateError::Changed { .. }), "{change}: {error}");
        assert!(matches!(SqliteStore::open(&to), Err(OpenError::Migrating { .. })), "{change}");
    }
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
        std::fs::remove_file(&to).unwrap();
        let done = moved(&from, &to, Options { skip_damaged: true }).await.unwrap();
        assert_eq!((done.verified.sessions, done.damaged.count), (3, 1), "{damage}");
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
}
