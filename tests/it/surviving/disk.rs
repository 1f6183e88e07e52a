//! A full disk: the real binary, whose files may not grow beyond a limit. Nothing is acknowledged that is not stored,
//! everyone is informed, and with room again everything acknowledged is there.

use super::{fold::fresh, folder::Folder};
use crate::support::{binary::Binary, client::Client, http, json::present, talk::words};
use serde_json::json;
use std::{fs, time::Duration};

/// The offline model without pauses, in a window that holds the whole conversation.
const SETTINGS: [(&str, &str); 2] = [("OFFLINE_WORD_MILLIS", "0"), ("CONTEXT_WINDOW", "1000000")];

/// KiB that no file of the server may exceed.
const FILE_KIB: u64 = 2_000;

/// The time that a server may take to notice: it relies on a successful write for ten seconds.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn what_a_full_disk_does_not_take_is_not_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let server = Binary::start_with_file_limit(folder.path(), &SETTINGS, FILE_KIB).await;
    assert_eq!(http::get(&server.address, "/readyz").await.status, 200);
    let mut client = Folder::new("owner-0000000000", json!({})).unwitnessed().timed();
    client.connect(&server.ws()).await;
    let (mut said, mut last) = (Vec::new(), None);
    let closed = loop {
        if client.unanswered() == 0 && client.fold.is_idle() && !client.fold.session.is_empty() {
            let text = format!("Input {}: {}", said.len(), words(said.len() as u64, 2_000));
            let id = client.command("user_input", json!({ "input": text })).await;
            said.push((id, text));
            assert!(said.len() < 1_000, "the disk is never full");
        }
        match client.step().await {
            Ok(frame) if frame["type"] == "error" => last = Some(frame["payload"].clone()),
            Ok(frame) if frame["type"] == "session_closed" => break frame["payload"].clone(),
            frame => drop(frame.unwrap()),
        }
    };
    assert_eq!(closed["retriable"], true, "open it again, and resume: {closed}");
    client.cut();
    assert!(last.is_none() || client.unanswered() == 1, "what may be stored is sent again: {last:?}");
    if let Some(told) = &last {
        assert_eq!((&told["code"], &told["retriable"]), (&json!("store_failed"), &json!(true)), "{told}");
    }
    let acknowledged = |client: &Folder| {
        let replies = client.replies.values().filter(|reply| reply["type"] == "accepted");
        replies.map(|reply| reply["re"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = acknowledged(&client);
    assert!(before.len() > 3, "{before:?}");

    // Everyone is informed: load balancers, clients that come back, new clients. The process keeps running.
    for (path, status) in [("/readyz", 503), ("/healthz", 200)] {
        assert_eq!(http::get(&server.address, path).await.status, status, "{path}");
    }
    let mut newcomer = Folder::new("newcomer-0000000", json!({}));
    for client in [&mut client, &mut newcomer] {
        client.connect(&server.ws()).await;
        while client.step().await.unwrap()["type"] != "welcome" {}
        let refused = client.step().await.unwrap()["payload"].clone();
        assert_eq!((&refused["code"], &refused["retriable"]), (&json!("store_failed"), &json!(true)), "{refused}");
        client.cut();
    }
    server.stop().await;

    let server = Binary::start(folder.path(), &SETTINGS).await;
    assert_eq!(http::get(&server.address, "/readyz").await.status, 200);
    // The client sends again what was refused, and what has no reply: it may be stored.
    client.connect(&server.ws()).await;
    while !(client.unanswered() == 0 && client.fold.is_idle()) || client.fold.asked().len() < said.len() {
        let frame = client.step().await.unwrap();
        assert_ne!(*present(&frame["type"]), "error", "{frame}");
    }
    assert_eq!(client.fold.snapshots, 1, "a replay: the log goes on where it was");
    // What was acknowledged is there. So is, each once, what was sent again for lack of a reply.
    assert_eq!(client.fold.asked(), said);
    assert!(acknowledged(&client).len() >= before.len());
    client.settled(&["contextInfo"]).await;
    let read = fresh(&server.ws(), &client.fold).await;
    assert_eq!(client.fold.log, read.log.clone().split_off(client.fold.log.keys().next().unwrap()));
    server.stop().await;
}

/// Waits until load balancers see this status.
async fn told(server: &Binary, status: u16) {
    let asked = async {
        while http::get(&server.address, "/readyz").await.status != status {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(PATIENCE, asked).await.is_err() {
        panic!("/readyz does not come to {status}: {}", http::get(&server.address, "/readyz").await.body);
    }
}

/// A disk that fills up while nobody writes is reported too. To SQLite, a file that may not grow is a disk fault rather
/// than a full disk, so the server is restarted here, as it requests. On a full disk it recovers by itself once there
/// is room, as the tests in `tests/disk` show.
#[tokio::test]
async fn a_disk_that_fills_up_while_the_server_is_idle_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = Binary::start_with_file_limit(folder.path(), &SETTINGS, FILE_KIB).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.turn("Is the sea warm?").await["status"], "completed");
    told(&server, 200).await;
    // Existing bytes may be overwritten, but nothing grows.
    let files = fs::read_dir(folder.path().join("data")).unwrap();
    let largest = files.map(|file| file.unwrap().metadata().unwrap().len()).max().unwrap();
    server.limit_files(largest / 1024).await;
    told(&server, 503).await;
    assert_eq!(http::get(&server.address, "/healthz").await.status, 200);
    server.stop().await;
    let server = Binary::start(folder.path(), &SETTINGS).await;
    told(&server, 200).await;
    server.stop().await;
}
