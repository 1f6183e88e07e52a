//! The files of the database: their owner, their permissions, and the removal of deleted data.

use super::{QUICK, folder};
use crate::support::{
    binary::{self, Binary},
    client::Client,
};
use serde_json::json;
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};

/// The offline model without pauses, in a window for long texts.
const LARGE: [(&str, &str); 2] = [("OFFLINE_WORD_MILLIS", "0"), ("CONTEXT_WINDOW", "1000000")];

/// The time within which no byte of a deleted session may be left.
const ERASED_WITHIN: Duration = Duration::from_secs(60);

/// Returns the names of the files in the data folder that contain a text.
fn holders(folder: &Path, text: &str) -> Vec<String> {
    let files = fs::read_dir(folder.join("data")).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).contains(text));
    files.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn of_a_deleted_session_no_byte_stays_in_the_data_folder() {
    let folder = folder();
    let server = Binary::start(folder.path(), &LARGE).await;
    let (mut neighbour, _) = Client::v2_session(&server.ws()).await;
    let mut deleted = Vec::new();
    for said in ["Marker: Aurora.".to_owned(), "Marker: Aurora. ".repeat(2_000)] {
        let (mut client, opened) = Client::v2_session(&server.ws()).await;
        client.ask("rename_session", json!({ "name": "Marker: Aurora" })).await;
        client.turn(&said).await;
        neighbour.turn("A neighbour.").await;
        deleted.push((client, opened["sessionId"].clone()));
    }
    assert!(!holders(folder.path(), "Marker: Aurora").is_empty());
    for (mut client, session) in deleted {
        assert_eq!(client.ask("delete_session", json!({ "sessionId": session })).await["type"], "ok");
    }
    let erased = async {
        while !holders(folder.path(), "Marker: Aurora").is_empty() {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(ERASED_WITHIN, erased).await.is_err() {
        panic!("it is still in {:?}", holders(folder.path(), "Marker: Aurora"));
    }
    assert!(!holders(folder.path(), "A neighbour.").is_empty());
    assert_eq!(neighbour.turn("Another turn.").await["status"], "completed");
    server.stop().await;
}

#[tokio::test]
async fn the_data_folder_is_for_its_owner_alone() {
    let folder = folder();
    let server = Binary::start(folder.path(), &QUICK).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.turn("Is the sea warm?").await;
    let data = folder.path().join("data");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    let files: Vec<_> = fs::read_dir(&data).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{file:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_second_server_is_refused_under_every_name_and_without_the_lock_file() {
    let folder = folder();
    let server = Binary::start(folder.path(), &QUICK).await;
    let data = folder.path().join("data");
    fs::hard_link(data.join("reseed.db"), data.join("hard.db")).unwrap();
    std::os::unix::fs::symlink("reseed.db", data.join("soft.db")).unwrap();
    let refused = async |name: &str, command: &[&str]| {
        let address = format!("sqlite://data/{name}");
        let ended = binary::run(folder.path(), command, &[("DATABASE_URL", &address)]).await;
        assert_eq!(ended.code, Some(1), "{name}: {ended:?}");
        assert!(ended.faults.contains("is in use by"), "{name}: {ended:?}");
    };
    for name in ["reseed.db", "hard.db", "soft.db"] {
        refused(name, &[]).await;
    }
    refused("reseed.db", &["vacuum"]).await;
    fs::remove_file(data.join("reseed.db.lock")).unwrap();
    refused("reseed.db", &[]).await;
    server.stop().await;

    // Nobody has it open any more.
    let done = binary::run(folder.path(), &["vacuum"], &[]).await;
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.printed.contains(" MiB before, "), "{done:?}");
    Binary::start(folder.path(), &QUICK).await.stop().await;
}

/// An append writes only what it adds, however much waits in the session's queue.
#[tokio::test]
async fn a_small_append_behind_a_long_queue_writes_little() {
    const INPUTS: usize = 30;
    let folder = folder();
    // The first word of the answer takes a minute, which no test reaches.
    let settings = [("OFFLINE_WORD_MILLIS", "60000"), ("CONTEXT_WINDOW", "9000000")];
    let server = Binary::start(folder.path(), &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.ask("user_input", json!({ "input": "Is the sea warm?" })).await;
    client.event("turn_started").await;
    let log = || fs::metadata(folder.path().join("data/reseed.db-wal")).unwrap().len();
    let empty = log();
    for _ in 0..INPUTS {
        let reply = client.ask("user_input", json!({ "input": "w ".repeat(60_000) })).await;
        assert_eq!(reply["type"], "accepted", "{reply}");
    }
    assert!(log() - empty > INPUTS as u64 * 120_000, "the queue holds 3.6 MB");
    let commands = [
        ("rename_session", "ok", json!({ "name": "The ferry" })),
        ("user_input", "accepted", json!({ "input": "x".repeat(100) })),
        ("append_custom", "ok", json!({ "customType": "note", "data": { "text": "x".repeat(100) } })),
    ];
    for (command, answer, payload) in commands {
        let before = log();
        let reply = client.ask(command, payload).await;
        assert_eq!(reply["type"], answer, "{command}: {reply}");
        let written = log() - before;
        assert!((1..256 * 1024).contains(&written), "{command} wrote {written} bytes");
    }
    server.kill().await;
}
