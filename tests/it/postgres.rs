//! The real server on a real PostgreSQL: a compacted conversation, a killed server, a restarted database, and the
//! commands that read the database.

use crate::support::{
    binary::{Binary, logged, run},
    client::Client,
    json::present,
    postgres,
};
use serde_json::{Value, json};

/// Returns the settings of a server on a new database.
async fn settings() -> Vec<(&'static str, String)> {
    let address = tokio::task::spawn_blocking(postgres::database).await.unwrap();
    let given = [
        ("DATABASE_URL", address.as_str()),
        ("UNSAFE_STORE", "true"),
        ("STORE_PATIENCE_SECS", "60"),
        ("NODE_LEASE_SECS", "2"),
        ("OFFLINE_WORD_MILLIS", "0"),
        ("CONTEXT_STRATEGY", "manual"),
    ];
    given.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

fn borrowed<'a>(settings: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    settings.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

fn texts(opened: &Value) -> Vec<String> {
    let entries = opened["payload"]["entries"].as_array().unwrap();
    entries.iter().map(|entry| entry["content"].to_string()).collect()
}

#[tokio::test]
async fn a_conversation_is_compacted_and_survives_a_kill_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings().await;
    let server = Binary::start(folder.path(), &borrowed(&settings)).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let session = present(&opened["sessionId"]).clone();
    for n in 0..6 {
        client.turn(&format!("The cat number {n} is called Miso{n}, and it likes tea.")).await;
    }
    let set = json!({ "strategy": "manual", "settings": { "keepRecentTokens": 20 } });
    assert_eq!(client.ask("set_context_strategy", set).await["type"], "ok");
    client.ask("start_compaction", json!({})).await;
    let compacted = client.event("context_compacted").await;
    let seq = compacted["seq"].as_u64().expect("it is durable");
    client.turn("What is the newest cat called?").await;
    server.kill().await;

    let server = Binary::start(folder.path(), &borrowed(&settings)).await;
    let mut client = Client::v2(&server.ws()).await;
    let resume = json!({ "epoch": opened["epoch"], "seq": seq });
    let open = json!({ "sessionId": session, "resume": resume, "entries": 50 });
    // Until its lease has run out, the killed server might still be alive.
    let mut back = client.ask("open_session", open.clone()).await;
    while back["payload"]["code"] == "overloaded" {
        let wait = back["payload"]["retryAfterMs"].as_u64().expect("it says when to try again");
        tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
        back = client.ask("open_session", open.clone()).await;
    }
    assert_eq!(back["payload"]["resumed"], "replay", "{back}");
    // What was said since is replayed, and the conversation continues.
    let said = client.until(|frame| frame["type"] == "turn_finished").await;
    assert!(said["seq"].as_u64().is_some_and(|next| next > seq), "{said}");
    client.turn("And the first?").await;
    let found = client.ask("search_history", json!({ "query": "Miso3" })).await;
    // What was said, what was answered, and the summary of both.
    assert_eq!(found["payload"]["items"].as_array().map(Vec::len), Some(3), "{found}");
    client.ask("close_session", json!({})).await;
    let again = client.ask("open_session", json!({ "sessionId": session, "entries": 50 })).await;
    assert!(texts(&again).iter().any(|text| text.contains("And the first?")), "{again}");
    server.stop().await;
    assert!(!logged(folder.path()).contains("Miso"), "the log holds no text");
}

#[tokio::test]
async fn check_says_what_the_settings_of_the_server_mean() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings().await;
    let name = settings[0].1.rsplit('/').next().unwrap().to_owned();
    let sql = format!("ALTER DATABASE {name} SET synchronous_commit = off");
    tokio::task::spawn_blocking(move || postgres::sql(&name, &sql)).await.unwrap();
    let ended = run(folder.path(), &["check"], &borrowed(&settings)).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for line in [
        "database    PostgreSQL at ",
        "; no tables yet in the schema reseed",
        "durability  fsync off, full_page_writes off, data_checksums off: a crash of the machine can lose all sessions",
        "commits     synchronous_commit on (the role's default is off; ",
        "standbys    synchronous_standby_names is empty, none is connected: ",
        "backups     wal_level replica, archive_mode off: ",
        "recovery    checkpoint_timeout 5min, max_wal_size 1GB, wal_compression off: ",
    ] {
        assert!(ended.printed.contains(line), "{line}: {}", ended.printed);
    }
    // A server outside of tests refuses it like this.
    settings.retain(|(name, _)| *name != "UNSAFE_STORE");
    let ended = run(folder.path(), &["check"], &borrowed(&settings)).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.faults.contains("`fsync` is `off` on the server"), "{ended:?}");
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [("DATABASE_URL", "postgres://reseed:hunter22@127.0.0.1:1/sessions"), ("STORE_PATIENCE_SECS", "1")];
    for arguments in [
        &["serve"][..],
        &["check"],
        &["sessions"],
        &["nodes"],
        &["nodes", "--drain", "a"],
        &["export", "a"],
        &["import", "x.jsonl"],
        &["restored"],
    ] {
        let ended = run(folder.path(), arguments, &settings).await;
        assert_eq!(ended.code, Some(1), "{arguments:?}: {ended:?}");
        assert!(ended.faults.contains("PostgreSQL at 127.0.0.1:1/sessions"), "{arguments:?}: {ended:?}");
        for wrong in ["hunter22", "creates it", "stop the server"] {
            assert!(!ended.faults.contains(wrong), "{arguments:?}: {ended:?}");
        }
    }
}

#[tokio::test]
async fn the_commands_read_the_database_and_hide_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings().await;
    // The tests' server requires no password.
    settings[0].1 = settings[0].1.replace("reseed@", "reseed:hunter2@");
    let server = Binary::start(folder.path(), &borrowed(&settings)).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    client.turn("My cat is called Miso.").await;
    assert!(!server.start_line.contains("hunter2"), "{}", server.start_line);
    let settings = borrowed(&settings);
    let exported = folder.path().join("out.jsonl").display().to_string();
    for (arguments, wanted) in [
        (vec!["sessions"], session.as_str()),
        (vec!["inspect", &session], "Miso"),
        (vec!["export", &session, "--output", &exported], ""),
        (vec!["check"], "database    PostgreSQL at "),
    ] {
        let ended = run(folder.path(), &arguments, &settings).await;
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
        assert!(ended.printed.contains(wanted), "{arguments:?}: {ended:?}");
        assert!(!format!("{ended:?}").contains("hunter2"), "{arguments:?}: {ended:?}");
    }
    let ended = run(folder.path(), &["vacuum"], &settings).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.faults.contains("is for SQLite") && !ended.faults.contains("hunter2"), "{ended:?}");
    // This runs beside the server.
    let ended = run(folder.path(), &["import", "--new-id", &exported], &settings).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    server.stop().await;
    let ended = run(folder.path(), &["sessions", "--json"], &settings).await;
    let listed: Value = serde_json::from_str(&ended.printed).unwrap();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(2), "{listed}");
    assert!(!logged(folder.path()).contains("hunter2"));
}
