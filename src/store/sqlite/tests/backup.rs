//! Backups of a file that is being written.

use super::{erasure::holders, place};
use crate::{
    SessionStore,
    conformance::{NOW, append, append_of, entry, id},
    sqlite::{BackupError, SqliteStore, backup},
};
use std::{fs, sync::Arc};
use tokio::{runtime::Handle, task::spawn_blocking};

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_of_one_moment_and_has_nothing_of_deleted_sessions() {
    let (dir, path) = place();
    let (folder, store) = (tempfile::tempdir().unwrap(), Arc::new(SqliteStore::open(&path).unwrap()));
    let mut long = entry("e1", "");
    long.body = "a long text ".repeat(400_000).into();
    let kept = store.create(&id("kept"), "ann", NOW).await.unwrap();
    store.append(&kept, 1, append(vec![long])).await.unwrap();
    let gone = store.create(&id("gone"), "ann", NOW).await.unwrap();
    let mut secret = entry("e1", "");
    secret.body = "a secret ".repeat(200_000).into();
    store.append(&gone, 1, append(vec![secret])).await.unwrap();
    store.delete(&id("gone")).await.unwrap();
    assert!(!holders(dir.path(), "a secret a secret").is_empty(), "its rows are not removed yet");

    let (file, writer, runtime) = (folder.path().join("backup.db"), store.clone(), Handle::current());
    let (from, to) = (path.clone(), file.clone());
    let mut steps = Vec::new();
    let made = spawn_blocking(move || {
        let mut seq = 2;
        let made = backup(&from, &to, |progress| {
            // Each of these commits would make SQLite begin again.
            runtime.block_on(writer.append(&kept, seq, append_of(["later"]))).unwrap();
            seq += 1;
            steps.push(progress);
            true
        });
        (made.unwrap(), seq, steps)
    });
    let (bytes, seq, steps) = made.await.unwrap();
    assert!(steps.len() > 4 && steps.windows(2).all(|two| two[0].pages_done < two[1].pages_done), "{steps:?}");
    assert!(steps.last().is_some_and(|last| last.pages_done == last.pages && last.pages > 1_000), "{steps:?}");
    assert_eq!(store.head(&id("kept")).await.unwrap().last_seq, seq - 1);
    assert_eq!(fs::metadata(&file).unwrap().len(), bytes);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    assert_eq!(holders(folder.path(), "a secret"), [""; 0]);

    let restored = SqliteStore::open(&file).unwrap();
    let read = restored.read(&id("kept"), 0, 99).await.unwrap();
    assert!(read.len() == 1 && read[0].body.starts_with("a long text"), "{} records", read.len());
    assert_eq!(
        restored.list(crate::ListQuery { limit: 9, ..crate::ListQuery::default() }).await.unwrap().items.len(),
        1
    );
}

#[tokio::test]
async fn a_backup_that_is_stopped_or_has_no_place_leaves_nothing() {
    let (dir, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    store.create(&id("s"), "ann", NOW).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("backup.db");
    assert!(matches!(backup(&path, &file, |_| false), Err(BackupError::Stopped)));
    assert!(matches!(backup(&dir.path().join("missing.db"), &file, |_| true), Err(BackupError::Open(_))));
    let nowhere = folder.path().join("nowhere/backup.db");
    assert!(matches!(backup(&path, &nowhere, |_| true), Err(BackupError::Io { .. })));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    fs::write(&file, "another one").unwrap();
    assert!(matches!(backup(&path, &file, |_| true), Err(BackupError::Exists(_))));
    assert_eq!(fs::read_to_string(&file).unwrap(), "another one");
    fs::write(folder.path().join("second.db.partial"), "of an attempt that was interrupted").unwrap();
    backup(&path, &folder.path().join("second.db"), |_| true).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}
