//! A user who stores as much as it can get, and another one who finds that there is something left.

use super::shares::{ADA, BOB, hello, is_refused, server, session};
use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, json::present};
use serde_json::{Value, json};

/// Opens a new session on a connection and closes it. Returns the reply to the first.
async fn create(client: &mut Client) -> Value {
    let opened = client.ask("open_session", json!({})).await;
    if opened["type"] == "session_opened" {
        client.ask("close_session", json!({})).await;
    }
    opened
}

#[tokio::test]
async fn sessions_in_which_nothing_is_said_are_bounded() {
    let model = Scripted::answering(|_| Reply::text("yes"));
    let server = server(model, &[("EMPTY_SESSIONS_PER_USER_MAX", "2")]).await;
    let mut ada = hello(&server, ADA).await.0;
    assert_eq!(create(&mut ada).await["type"], "session_opened");
    assert_eq!(ada.ask("open_session", json!({})).await["type"], "session_opened");
    let mut other = hello(&server, ADA).await.0;
    is_refused(&create(&mut other).await, "empty_sessions_per_user", 2);
    session(&server, BOB).await;
    assert_eq!(ada.turn("something").await["status"], "completed");
    assert_eq!(create(&mut other).await["type"], "session_opened", "one of them is none any more");
    is_refused(&create(&mut other).await, "empty_sessions_per_user", 2);
}

#[tokio::test]
async fn stored_sessions_are_bounded_and_deleting_one_makes_room() {
    let model = Scripted::answering(|_| Reply::text("yes"));
    let server = server(model, &[("STORED_SESSIONS_PER_USER_MAX", "2")]).await;
    let (mut first, mut second) = (session(&server, ADA).await, session(&server, ADA).await);
    for client in [&mut first, &mut second] {
        assert_eq!(client.turn("something").await["status"], "completed");
    }
    let mut third = hello(&server, ADA).await.0;
    is_refused(&create(&mut third).await, "stored_sessions_per_user", 2);
    let entry = first.ask("get_entries", json!({})).await["payload"]["leafId"].clone();
    let fork = json!({ "entryId": entry, "position": "at" });
    is_refused(&first.ask("fork_session", fork.clone()).await, "stored_sessions_per_user", 2);
    assert_eq!(second.ask("delete_session", json!({})).await["type"], "ok");
    assert_eq!(first.ask("fork_session", fork).await["type"], "forked");
    is_refused(&create(&mut third).await, "stored_sessions_per_user", 2);
}

#[tokio::test]
async fn stored_bytes_are_bounded_for_all_that_begins_something() {
    let model = Scripted::answering(|_| Reply::text("yes"));
    let server = server(model, &[("STORED_BYTES_PER_USER_MAX", "8000"), ("CONTEXT_WINDOW", "20000")]).await;
    let mut ada = session(&server, ADA).await;
    assert_eq!(ada.turn(&"a long text ".repeat(1_000)).await["status"], "completed", "what is begun is finished");
    let entry = ada.ask("get_entries", json!({})).await["payload"]["leafId"].clone();
    let begun = [
        ("user_input", json!({ "input": "more" })),
        ("retry_turn", json!({})),
        ("append_custom", json!({ "customType": "note", "data": 1 })),
        ("append_custom_message", json!({ "customType": "note", "content": "more", "display": true })),
        ("set_instructions", json!({ "instructions": "Be brief." })),
        ("set_options", json!({ "temperature": 0.5 })),
        ("set_context_strategy", json!({ "strategy": "manual" })),
        ("fork_session", json!({ "entryId": entry, "position": "at" })),
    ];
    for (command, payload) in begun {
        is_refused(&ada.ask(command, payload).await, "stored_bytes_per_user", 8_000);
    }
    let mut other = hello(&server, ADA).await.0;
    is_refused(&create(&mut other).await, "stored_bytes_per_user", 8_000);
    // Reading continues to work, and so does what frees space.
    assert_eq!(ada.ask("get_entries", json!({})).await["type"], "entries");
    assert_eq!(ada.ask("set_label", json!({ "entryId": entry, "label": "here" })).await["type"], "ok");
    assert_eq!(session(&server, BOB).await.turn("mine").await["status"], "completed");
    assert_eq!(ada.ask("delete_session", json!({})).await["type"], "ok");
    assert_eq!(ada.ask("open_session", json!({})).await["type"], "session_opened");
    assert_eq!(ada.turn("something").await["status"], "completed");
}

/// Sends a command under this id, as often as it is called.
async fn repeat(client: &mut Client, id: &str, command: &str, payload: &Value) -> Value {
    client.send_as(id, command, payload.clone()).await;
    client.until(|frame| frame["re"] == id).await
}

#[tokio::test]
async fn what_was_acknowledged_is_so_again_at_every_bound() {
    let model = Scripted::answering(|_| Reply::text("yes"));
    let bounds = [
        ("STORED_SESSIONS_PER_USER_MAX", "1"),
        ("STORED_BYTES_PER_USER_MAX", "8000"),
        ("SESSIONS_OPEN_MAX", "4"),
        ("CONTEXT_WINDOW", "20000"),
    ];
    let server = server(model, &bounds).await;
    let mut ada = hello(&server, ADA).await.0;
    let opened = repeat(&mut ada, "opened-once-by-ada-1", "open_session", &json!({})).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    let long = json!({ "input": "a long text ".repeat(1_000) });
    let accepted = repeat(&mut ada, "said-once-by-ada-001", "user_input", &long).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    ada.until(|frame| frame["type"] == "turn_finished").await;
    is_refused(&ada.ask("user_input", json!({ "input": "more" })).await, "stored_bytes_per_user", 8_000);

    let again = repeat(&mut ada, "said-once-by-ada-001", "user_input", &long).await;
    assert_eq!(again["payload"]["duplicate"], true, "{again}");
    assert_eq!(again["payload"]["entryId"], *present(&accepted["payload"]["entryId"]), "{again}");
    // On another connection, as after a reply that was lost.
    let mut back = hello(&server, ADA).await.0;
    let again = repeat(&mut back, "opened-once-by-ada-1", "open_session", &json!({})).await;
    assert_eq!(again["type"], "session_opened", "{again}");
    assert_eq!(again["payload"]["sessionId"], *present(&opened["payload"]["sessionId"]));
}
