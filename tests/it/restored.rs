//! Restored backups: a client that has seen more than the backup holds gets a snapshot, never what follows its position
//! in another log.

use crate::support::{
    binary::{Binary, run},
    client::Client,
    json::present,
    postgres,
};
use serde_json::{Value, json};
use std::{fs, path::Path};

const SETTINGS: [(&str, &str); 4] =
    [("UNSAFE_STORE", "true"), ("STORE_PATIENCE_SECS", "60"), ("NODE_LEASE_SECS", "2"), ("OFFLINE_WORD_MILLIS", "0")];

fn settings(address: &str) -> Vec<(&str, &str)> {
    [&SETTINGS[..], &[("DATABASE_URL", address)]].concat()
}

async fn serve(folder: &Path, address: &str) -> Binary {
    Binary::start(folder, &settings(address)).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

fn name(address: &str) -> String {
    address.rsplit('/').next().unwrap().to_owned()
}

/// A client's position in a session.
struct Place {
    session: Value,
    epoch: Value,
    seq: u64,
}

/// Runs one turn before the backup and one after it, and returns the client's position at the end.
async fn seen_beyond(folder: &Path, address: &str, backup: impl AsyncFnOnce()) -> Place {
    let server = serve(folder, address).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    client.turn("In the backup.").await;
    client.ask("close_session", json!({})).await;
    server.stop().await;
    backup().await;
    let server = serve(folder, address).await;
    let mut client = Client::v2(&server.ws()).await;
    let session = present(&opened["sessionId"]).clone();
    let back = client.ask("open_session", json!({ "sessionId": session })).await;
    client.turn("Lost with the restore.").await;
    let seq = client.newest_seq();
    server.stop().await;
    Place { session, epoch: present(&back["payload"]["epoch"]).clone(), seq }
}

/// Lets another client continue the session past a position, and resumes there. Returns the reply's payload.
async fn resumed(folder: &Path, address: &str, place: &Place) -> Value {
    let server = serve(folder, address).await;
    let mut other = Client::v2(&server.ws()).await;
    other.ask("open_session", json!({ "sessionId": place.session })).await;
    while other.newest_seq() <= place.seq {
        other.turn("Another turn.").await;
    }
    let mut client = Client::v2(&server.ws()).await;
    let resume = json!({ "epoch": place.epoch, "seq": place.seq });
    let open = json!({ "sessionId": place.session, "resume": resume, "entries": 50 });
    let back = client.ask("open_session", open).await;
    server.stop().await;
    back["payload"].clone()
}

fn assert_is_snapshot(back: &Value, place: &Place) {
    assert_eq!(back["resumed"], "snapshot", "{back}");
    assert_ne!(present(&back["epoch"]), &place.epoch, "{back}");
    let texts = present(&back["entries"]).to_string();
    assert!(texts.contains("In the backup.") && texts.contains("Another turn."), "{back}");
    assert!(!texts.contains("Lost with the restore."), "{back}");
}

#[tokio::test]
async fn a_dump_in_another_database_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (address, other) = (blocking(postgres::database).await, blocking(postgres::database).await);
    let (from, to) = (name(&address), name(&other));
    let place = seen_beyond(folder.path(), &address, async || {
        blocking(move || postgres::dump(&from, "noticed.dump")).await;
    });
    let place = place.await;
    blocking(move || postgres::restore(&to, "noticed.dump", &[])).await;
    let back = resumed(folder.path(), &other, &place).await;
    assert_is_snapshot(&back, &place);
}

#[tokio::test]
async fn a_restore_that_cannot_be_noticed_is_told_by_a_command() {
    let folder = tempfile::tempdir().unwrap();
    let address = blocking(postgres::database).await;
    let database = name(&address);
    let from = database.clone();
    let place = seen_beyond(folder.path(), &address, async || {
        blocking(move || postgres::dump(&from, "told.dump")).await;
    });
    let place = place.await;
    // The server, the database and the tables are the same; only their content is older.
    let to = database.clone();
    blocking(move || {
        postgres::sql(
            &to,
            "DELETE FROM reseed.session; DELETE FROM reseed.head; DELETE FROM reseed.state; \
             DELETE FROM reseed.record; DELETE FROM reseed.mark; DELETE FROM reseed.words; \
             DELETE FROM reseed.removal; DELETE FROM reseed.node; DELETE FROM reseed.ticket; \
             DELETE FROM reseed.deletion; DELETE FROM reseed.secret; DELETE FROM reseed.model_usage; \
             DELETE FROM reseed.minute; \
             DELETE FROM reseed.schema_step;",
        );
        postgres::restore(&to, "told.dump", &["--data-only"]);
        // It had a server, whose row is as old.
        postgres::sql(
            &to,
            "INSERT INTO reseed.node (name, version, lease_millis) VALUES ('old', '0', 2000); \
             UPDATE reseed.session SET holder = (SELECT max(incarnation) FROM reseed.node)",
        );
    })
    .await;
    let epoch = "SELECT epoch FROM reseed.session";
    let of = database.clone();
    assert_eq!(blocking(move || postgres::sql(&of, epoch)).await.trim(), place.epoch, "nothing shows it");
    let ended = run(folder.path(), &["restored"], &settings(&address)).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.printed.contains("sessions with a new epoch: 1;"), "{ended:?}");
    assert!(ended.faults.contains("lists server") && ended.faults.contains("(`old`)"), "{ended:?}");
    let (rest, of) = ("SELECT count(*) FROM reseed.node", database.clone());
    assert_eq!(blocking(move || postgres::sql(&of, rest)).await.trim(), "0");
    let back = resumed(folder.path(), &address, &place).await;
    assert_is_snapshot(&back, &place);
    // A damaged session does not count as renewed, whether its head is wrong or missing.
    for damage in ["UPDATE reseed.head SET checksum = checksum + 1", "DELETE FROM reseed.head"] {
        let of = database.clone();
        blocking(move || postgres::sql(&of, damage)).await;
        let ended = run(folder.path(), &["restored"], &settings(&address)).await;
        assert!(ended.printed.contains("sessions with a new epoch: 0;"), "{damage}: {ended:?}");
        assert!(ended.printed.contains("damaged, so that they cannot be opened: 1"), "{damage}: {ended:?}");
    }
}

#[tokio::test]
async fn a_copied_back_file_is_told_by_a_command() {
    let folder = tempfile::tempdir().unwrap();
    let (file, backup) = (folder.path().join("reseed.db"), folder.path().join("backup.db"));
    let address = format!("sqlite://{}", file.display());
    let place = seen_beyond(folder.path(), &address, async || {
        fs::copy(&file, &backup).unwrap();
    });
    let place = place.await;
    fs::copy(&backup, &file).unwrap();
    let ended = run(folder.path(), &["restored"], &settings(&address)).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.printed.contains("sessions with a new epoch: 1;"), "{ended:?}");
    let back = resumed(folder.path(), &address, &place).await;
    assert_is_snapshot(&back, &place);
}

#[tokio::test]
async fn a_database_in_use_is_not_taken_for_a_restored_one() {
    let folder = tempfile::tempdir().unwrap();
    let postgres = blocking(postgres::database).await;
    let sqlite = format!("sqlite://{}", folder.path().join("reseed.db").display());
    for (address, said) in [(&postgres, "is in use by server"), (&sqlite, "is in use by process")] {
        let server = serve(folder.path(), address).await;
        let ended = run(folder.path(), &["restored"], &settings(address)).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.faults.contains(said), "{ended:?}");
        server.stop().await;
    }
    let missing = folder.path().join("missing.db");
    let address = format!("sqlite://{}", missing.display());
    let ended = run(folder.path(), &["restored"], &settings(&address)).await;
    assert_eq!((ended.code, missing.exists()), (Some(1), false), "{ended:?}");
}
