//! Backups while the server runs, and the way back from them.

use crate::support::{
    binary::{self, Binary},
    client::Client,
    http::{self, Answered},
    json::present,
    polling::until,
};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use tempfile::TempDir;
use tokio::task::JoinSet;

const SETTINGS: [(&str, &str); 5] = [
    ("OFFLINE_WORD_MILLIS", "0"),
    ("CONTEXT_WINDOW", "1000000"),
    ("DATABASE_URL", "sqlite://./reseed.db"),
    ("BACKUP_DIR", "backups"),
    ("AUDIT_FILE", "audit"),
];

/// The text of a session that is deleted before the backup.
const GONE: &str = "the phrase that is gone ";

/// A server's folder, with one for backups.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("backups")).unwrap();
    folder
}

async fn start(server: &Binary, key: &str) -> Answered {
    http::ask(&server.address, "POST", "/api/backup", &[("Idempotency-Key", key)]).await
}

async fn newest(server: &Binary) -> Value {
    http::get(&server.address, "/api/backup").await.json()
}

/// Writes turns until told to stop, and keeps what was acknowledged.
async fn write(url: String, texts: Arc<Mutex<Vec<(Value, String)>>>, done: Arc<AtomicBool>) {
    let (mut client, opened) = Client::v2_session(&url).await;
    let mut number = 0;
    while !done.load(Ordering::Relaxed) {
        number += 1;
        let text = format!("turn {number} {}", "of some length ".repeat(2_000));
        client.turn(&text).await;
        texts.lock().unwrap().push((present(&opened["sessionId"]).clone(), text));
    }
}

/// Returns the entries of a session as JSON.
async fn said(url: &str, session: &Value) -> String {
    let mut client = Client::v2(url).await;
    let (mut said, mut asked) = (String::new(), json!({ "sessionId": session, "limit": 50 }));
    loop {
        let page = client.ask("get_entries", asked.clone()).await["payload"].clone();
        said.push_str(&present(&page["items"]).to_string());
        if page["more"] != true {
            return said;
        }
        asked["before"] = present(&page["items"][0]["entryId"]).clone();
    }
}

async fn restore(backup: &Path) -> (TempDir, Binary) {
    let folder = folder();
    fs::copy(backup, folder.path().join("reseed.db")).unwrap();
    let ended = binary::run(folder.path(), &["restored"], &SETTINGS).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let server = Binary::start(folder.path(), &SETTINGS).await;
    (folder, server)
}

#[tokio::test]
async fn what_was_acknowledged_before_a_backup_under_load_is_there_after_a_restore() {
    let folder = folder();
    let server = Binary::start(folder.path(), &SETTINGS).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    client.turn(&GONE.repeat(20_000)).await;
    assert_eq!(newest(&server).await, json!({ "state": "none" }));

    let (texts, done) = (Arc::<Mutex<Vec<(Value, String)>>>::default(), Arc::<AtomicBool>::default());
    let mut writers = JoinSet::new();
    for _ in 0..3 {
        writers.spawn(write(server.ws(), texts.clone(), done.clone()));
    }
    let count = || texts.lock().unwrap().len();
    until("turns are written", async || if count() >= 30 { Ok(()) } else { Err(format!("{} turns", count())) }).await;
    client.ask("delete_session", json!({ "sessionId": opened["sessionId"] })).await;
    let before = texts.lock().unwrap().clone();
    let begun = start(&server, "key-of-the-first-backup").await;
    assert_eq!(begun.status, 202, "{begun:?}");
    let file = present(&begun.json()["file"]).clone();
    let again = start(&server, "key-of-the-first-backup").await;
    assert_eq!((again.status, &again.json()["file"]), (202, &file), "{again:?}");
    let ended = until("the backup ends", async || match newest(&server).await {
        ended if ended["state"] != "running" => Ok(ended),
        running => Err(running.to_string()),
    });
    let ended = ended.await;
    assert_eq!((present(&ended["state"]), &ended["file"]), (&json!("done"), &file), "{ended}");
    assert_eq!(ended["pages"], *present(&ended["pagesDone"]), "{ended}");
    let times = ["startedAt", "progressAt", "endedAt"].map(|time| present(&ended[time]).as_str().unwrap());
    assert!(times.is_sorted() && times[0] < times[1], "{ended}");
    let after = count();
    until("turns go on", async || if count() > after { Ok(()) } else { Err(format!("{after} turns")) }).await;
    done.store(true, Ordering::Relaxed);
    while writers.join_next().await.is_some() {}
    server.stop().await;
    let audit = fs::read_to_string(folder.path().join("audit")).unwrap();
    for outcome in ["asked", "done"] {
        let line =
            |line: &&str| line.contains(r#""what":"backup""#) && line.contains(&format!(r#""outcome":"{outcome}""#));
        let lines: Vec<_> = audit.lines().filter(line).collect();
        assert!(lines.len() == 1 && lines[0].contains(r#""address":"127.0.0.1""#), "{audit}");
    }

    let file = folder.path().join(PathBuf::from(file.as_str().unwrap()));
    assert_eq!(fs::metadata(&file).unwrap().len(), ended["bytes"].as_u64().unwrap());
    let bytes = fs::read(&file).unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains(GONE), "text of a deleted session");
    let left: Vec<_> = fs::read_dir(folder.path().join("backups")).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let (_restored, server) = restore(&file).await;
    let mut sessions: Vec<Value> = before.iter().map(|(session, _)| session.clone()).collect();
    sessions.sort_by_key(Value::to_string);
    sessions.dedup();
    for session in sessions {
        let found = said(&server.ws(), &session).await;
        for (_, text) in before.iter().filter(|(of, _)| *of == session) {
            assert!(found.contains(text), "{} of {session}", &text[..10]);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn the_command_writes_a_new_file_while_a_server_runs() {
    let folder = folder();
    let server = Binary::start(folder.path(), &SETTINGS).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    client.turn("In the backup.").await;
    let run = async |arguments: &[&str], settings: &[(&str, &str)]| {
        binary::run(folder.path(), &[&["backup"], arguments].concat(), settings).await
    };
    let ended = run(&["one.db"], &SETTINGS).await;
    assert_eq!((ended.code, ended.faults.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.printed.contains("one.db: ") && ended.printed.contains("reseed restored"), "{ended:?}");
    let again = run(&["one.db"], &SETTINGS).await;
    assert!(again.code == Some(1) && again.faults.contains("`one.db` exists"), "{again:?}");
    let elsewhere = run(&["two.db"], &[("DATABASE_URL", "postgres://localhost/reseed")]).await;
    assert!(elsewhere.code == Some(1) && elsewhere.faults.contains("pg_basebackup"), "{elsewhere:?}");
    client.turn("After the backup.").await;
    server.stop().await;
    let (_restored, server) = restore(&folder.path().join("one.db")).await;
    let found = said(&server.ws(), present(&opened["sessionId"])).await;
    assert!(found.contains("In the backup.") && !found.contains("After the backup."), "{found}");
    server.stop().await;
}

#[tokio::test]
async fn a_server_without_a_directory_for_backups_says_so() {
    let folder = folder();
    let settings = [("DATABASE_URL", "sqlite://./reseed.db")];
    let server = Binary::start(folder.path(), &settings).await;
    let refused = start(&server, "key-of-the-first-backup").await;
    assert!(refused.status == 403 && refused.body.contains("BACKUP_DIR"), "{refused:?}");
    server.stop().await;
    let server = Binary::start(folder.path(), &SETTINGS).await;
    let refused = start(&server, "short").await;
    assert!(refused.status == 400 && refused.body.contains("Idempotency-Key"), "{refused:?}");
    server.stop().await;
}
