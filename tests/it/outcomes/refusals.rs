//! Refusals that the table derives for many commands from their columns.

use super::scene::{
    Before::{self, *},
    Stage,
};
use crate::support::scripted::{Reply, Scripted};
use crate::{
    commands::example,
    support::{client::Client, server::Server, talk::words},
};
use reseed::{
    internals::Faulty,
    store::{Append, CommandMark, Head, SessionStore, memory::MemoryStore, sqlite::SqliteStore},
};
use reseed_protocol::{
    Timestamp,
    command::{Address, Command, Does, Scope},
};
use serde_json::{Value, json};
use std::{path::Path, sync::Arc, time::SystemTime};

fn model() -> Scripted {
    Scripted::answering(|_| Reply::text("Noted."))
}

/// Entries that may be pinned.
const PINS_MAX: usize = 200;

/// Commands sent together: fewer than a connection may have unanswered, and than a session's mailbox holds.
const TOGETHER: usize = 16;

#[tokio::test]
async fn commands_about_a_subscription_need_one_and_others_a_session() {
    let server = Server::start(model(), &[]).await;
    let mut client = Client::v2(&server.ws()).await;
    for spec in Command::TABLE.iter().filter(|spec| spec.address != Address::None) {
        let mut payload = example(spec.name);
        payload["sessionId"] = json!("nowhere");
        let code = client.ask(spec.name, payload).await["payload"]["code"].clone();
        let expected = if spec.needs_subscription() { "no_session" } else { "session_not_found" };
        assert_eq!(code, expected, "{}", spec.name);
    }
}

#[tokio::test]
async fn commands_that_wait_while_their_session_is_deleted_do_not_find_it() {
    let store = Arc::new(Faulty::new(MemoryStore::new()));
    let server = Server::over(model(), store.clone(), &[]).await;
    let of_sessions = |scope| matches!(scope, Scope::Session | Scope::Hosting);
    let specs: Vec<_> = Command::TABLE.iter().filter(|spec| of_sessions(spec.scope)).collect();
    let mut other = Client::v2(&server.ws()).await;
    for specs in specs.chunks(TOGETHER) {
        let (mut client, opened) = Client::v2_session(&server.ws()).await;
        // The session is busy with an append. What arrives waits in its mailbox: the deletion first, then the commands.
        let held = store.hold_appends().await;
        client.send("set_instructions", example("set_instructions")).await;
        client.ask("ping", json!({})).await;
        let deletes = other.send("delete_session", json!({ "sessionId": opened["sessionId"] })).await;
        // The first round shows that the other connection's frame has arrived, the second that its task has run.
        for _ in 0..2 {
            client.ask("ping", json!({})).await;
        }
        let mut sent = Vec::new();
        for spec in specs {
            sent.push((spec.name, client.send(spec.name, example(spec.name)).await));
        }
        client.ask("ping", json!({})).await;
        drop(held);
        for (name, id) in sent {
            let reply = client.until(|frame| frame["re"] == id.as_str()).await;
            assert_eq!(reply["payload"]["code"], "session_not_found", "{name}: {reply}");
        }
        assert_eq!(other.until(|frame| frame["re"] == deletes.as_str()).await["type"], "ok");
    }
}

#[tokio::test]
async fn a_fork_that_waits_while_its_session_is_deleted_does_not_find_it() {
    let store = Arc::new(Faulty::new(MemoryStore::new()));
    let server = Server::over(model(), store.clone(), &[]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    client.turn("hello").await;
    let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
    let fork = json!({ "entryId": entries[1]["entryId"], "position": "at" });
    let held = store.hold_appends().await;
    // The first fork copies, and the second waits for it.
    let forks = [client.send("fork_session", fork.clone()).await, client.send("fork_session", fork).await];
    let mut other = Client::v2(&server.ws()).await;
    let deleted = other.ask("delete_session", json!({ "sessionId": opened["sessionId"] })).await;
    assert_eq!(deleted["type"], "ok", "{deleted}");
    drop(held);
    for id in forks {
        let reply = client.until(|frame| frame["re"] == id.as_str()).await;
        assert_eq!(reply["payload"]["code"], "session_not_found", "{reply}");
    }
}

/// Changes the stored text of an entry.
fn spoil(database: &Path, entry: &Value) {
    let database = rusqlite::Connection::open(database).unwrap();
    let spoil = "UPDATE record SET body = replace(body, 'hello', 'jello') WHERE entry = ?1";
    assert_eq!(database.execute(spoil, [entry["entryId"].as_str().unwrap()]).unwrap(), 1);
}

#[tokio::test]
async fn a_damaged_session_takes_no_command_that_begins_something() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("reseed.db");
    let store = Arc::new(SqliteStore::open(&database).unwrap());
    let server = Server::over(model(), store, &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.turn("hello").await;
    let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
    spoil(&database, &entries[0]);
    let read = client.ask("get_entries", json!({})).await;
    assert_eq!(read["payload"]["damaged"].as_array().map(Vec::len), Some(1), "{read}");
    for spec in Command::TABLE.iter().filter(|spec| spec.address == Address::Required) {
        // These end the subscription.
        if matches!(spec.name, "close_session" | "delete_session") {
            continue;
        }
        let mut payload = example(spec.name);
        if spec.name == "fork_session" {
            // A fork reads the path that it copies, and nothing else.
            payload["entryId"] = entries[1]["entryId"].clone();
        }
        let reply = client.ask(spec.name, payload).await;
        let is_refused = reply["payload"]["code"] == "session_damaged";
        assert_eq!(is_refused, spec.does == Does::Writes, "{}: {reply}", spec.name);
    }
    for (command, payload) in [("get_entries", json!({ "entryId": entries[0]["entryId"] })), ("get_tree", json!({}))] {
        let reply = client.ask(command, payload).await;
        assert_eq!(reply["payload"]["code"], "session_damaged", "{command}: {reply}");
    }
}

/// This may be the reply of a newer version, for instance.
#[tokio::test]
async fn a_stored_reply_that_cannot_be_read_is_an_internal_error() {
    let store = Arc::new(MemoryStore::new());
    let server = Server::over(model(), store.clone(), &[]).await;
    let id = "00000000-of-a-newer-version";
    // An old session without entries would be swept.
    let now = Timestamp(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64);
    let lease = store.create(&"newer".parse().unwrap(), "", now).await.unwrap();
    let mark = CommandMark { command_id: id.to_owned(), fingerprint: 0, reply: r#"{"type":"new"}"#.into() };
    let append = Append {
        records: Vec::new(),
        marks: vec![mark],
        usage: Vec::new(),
        head: Head { created_at: now, ..Head::default() },
    };
    store.append(&lease, 1, append).await.unwrap();
    let mut client = Client::v2(&server.ws()).await;
    let opened = client.ask("open_session", json!({ "sessionId": "newer" })).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    client.send_as(id, "set_options", json!({})).await;
    let reply = client.until(|frame| frame["re"] == id).await;
    assert_eq!(reply["payload"]["code"], "internal", "{reply}");
}

/// Returns a client's message of this text.
fn custom(text: &str) -> Value {
    let mut payload = example("append_custom_message");
    payload["content"] = json!(text);
    payload
}

/// A command, what was done before, its payload, the command that causes the refusal if the first one waits, and the
/// code.
type Case = (&'static str, Before, fn() -> Value, Option<&'static str>, &'static str);

const CASES: &[Case] = &[
    ("append_custom_message", Talk, || custom(&words(1, 9_000)), None, "input_too_large"),
    ("append_custom_message", Queued, || custom("hello"), None, "queue_full"),
    ("append_custom_message", Hooks, || custom("hello"), Some("cancel_turn"), "input_cancelled"),
    ("user_input", Talk, again_from_root, Some("cancel_compaction"), "navigation_cancelled"),
    ("retry_turn", CancelledHooks, || json!({}), Some("cancel_compaction"), "navigation_cancelled"),
    ("preview_compaction", Talk, || json!({}), Some("cancel_compaction"), "compaction_cancelled"),
    ("preview_compaction", Talk, || json!({}), Some("preview_compaction"), "compaction_void"),
    ("preview_compaction", Compacting, || json!({}), None, "compaction_running"),
    ("start_compaction", Talk, || json!({ "strategy": "magic" }), None, "unknown_strategy"),
    ("undo_compaction", Compacting, || json!({}), None, "compaction_running"),
];

fn again_from_root() -> Value {
    json!({ "input": "once more", "parentId": "root", "summarize": true })
}

#[tokio::test]
async fn commands_that_a_session_cannot_do_now_say_why() {
    let stage = Stage::new().await;
    for (command, before, payload, then, code) in CASES {
        let mut scene = stage.scene(*before).await;
        let id = scene.client.send(command, payload()).await;
        if let Some(then) = then {
            scene.other.send(then, json!({})).await;
        }
        let reply = scene.client.until(|frame| frame["re"] == id.as_str()).await;
        assert_eq!(reply["payload"]["code"], *code, "{command}, {before:?}: {reply}");
        scene.let_go();
    }
}

#[tokio::test]
async fn a_session_has_so_many_pins() {
    let server = Server::start(model(), &[("CONTEXT_WINDOW", "100000")]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let mut code = Value::Null;
    for number in 0..=PINS_MAX {
        let said = client.ask("append_custom_message", custom(&format!("note {number}"))).await;
        let pinned = client.ask("pin_entry", json!({ "entryId": said["payload"]["entryId"] })).await;
        code = pinned["payload"]["code"].clone();
        assert_eq!(code.is_null(), number < PINS_MAX, "{number}: {pinned}");
    }
    assert_eq!(code, "too_many_pins");
}
