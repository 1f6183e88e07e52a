//! Reading a file that a server has open.

use super::{place, tamper};
use crate::{
    Error, ListQuery, SessionStore, SubtreeQuery,
    conformance::{NOW, append, append_of, entry, id, log},
    sqlite::{OpenError, SqliteStore, schema},
};
use std::fs;

#[tokio::test]
async fn a_file_that_is_open_and_written_to_can_be_read_beside_it() {
    let (_dir, path) = place();
    let server = SqliteStore::open(&path).unwrap();
    let lease = server.create(&id("s"), "alice", NOW).await.unwrap();
    let viewer = SqliteStore::open_read_only(&path).unwrap();
    assert_eq!(log(&viewer, &id("s")).await, "");
    let mut want = Vec::new();
    for n in 1..=50 {
        let (name, parent) = (format!("e{n}"), if n == 1 { String::new() } else { format!("e{}", n - 1) });
        server.append(&lease, n, append(vec![entry(&name, &parent)])).await.unwrap();
        want.push(format!("{n}:{name}"));
        assert_eq!(log(&viewer, &id("s")).await, want.join(" "), "what is acknowledged is seen at once");
    }
    // This is a second reader, opened while most of the data is still in the write-ahead log.
    let second = SqliteStore::open_read_only(&path).unwrap();
    assert_eq!(second.head(&id("s")).await.unwrap().last_seq, 50);
    let whole = SubtreeQuery { root: None, depth: 99, limit: 99, bytes_max: usize::MAX };
    assert_eq!(second.subtree(&id("s"), whole).await.unwrap().len(), 50);

    for store in [&viewer, &second] {
        assert_eq!(store.append(&lease, 51, append_of(["x"])).await, Err(Error::ReadOnly));
        assert_eq!(store.create(&id("t"), "", NOW).await, Err(Error::ReadOnly));
        assert_eq!(store.open(&id("s")).await, Err(Error::ReadOnly));
        assert_eq!(store.delete(&id("s")).await, Err(Error::ReadOnly));
    }
    // It does not disturb the server, neither while open nor by closing.
    viewer.close().await.unwrap();
    drop(second);
    server.append(&lease, 51, append_of(["x"])).await.unwrap();
    server.close().await.unwrap();

    // It also works without a server.
    let after = SqliteStore::open_read_only(&path).unwrap();
    assert_eq!(after.list(ListQuery { limit: 9, ..ListQuery::default() }).await.unwrap().items[0].last_seq, 51);
    // A server can start meanwhile.
    let server = SqliteStore::open(&path).unwrap();
    let (lease, _) = server.open(&id("s")).await.unwrap();
    server.append(&lease, 52, append_of(["y"])).await.unwrap();
    assert_eq!(after.head(&id("s")).await.unwrap().last_seq, 52);
}

#[tokio::test]
async fn unreadable_files_are_refused_and_nothing_is_created() {
    let (dir, path) = place();
    let missing = SqliteStore::open_read_only(&path).err();
    assert!(matches!(missing, Some(OpenError::Io { .. })), "{missing:?}");
    fs::write(&path, "a letter").unwrap();
    let foreign = SqliteStore::open_read_only(&path).err();
    assert!(matches!(foreign, Some(OpenError::NotOurs { .. })), "{foreign:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    fs::remove_file(&path).unwrap();

    drop(SqliteStore::open(&path).unwrap());
    for (version, want) in
        [(schema::VERSION - 1, "start the server with it once"), (schema::VERSION + 1, "run a newer reseed")]
    {
        tamper(&path, &format!("PRAGMA user_version = {version}"));
        let error = SqliteStore::open_read_only(&path).err().unwrap().to_string();
        assert!(error.contains(want), "{error}");
    }
}
