//! Repeated commands: executed once, answered twice, also over another connection and after a restart.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, json::present, server::Server};
use reseed::store::sqlite::SqliteStore;
use serde_json::{Value, json};
use std::{path::Path, sync::Arc};

async fn server(database: &Path) -> Server {
    let store = SqliteStore::open(database).unwrap_or_else(|error| panic!("{error}"));
    Server::over(Scripted::answering(|_| Reply::text("Noted.")), Arc::new(store), &[]).await
}

/// Every writing command that can be sent to an idle session.
fn writing() -> Vec<(&'static str, Value, Value)> {
    vec![
        ("user_input", json!({ "input": "once" }), json!({ "input": "twice" })),
        ("rename_session", json!({ "name": "one" }), json!({ "name": "two" })),
        ("set_instructions", json!({ "instructions": "be brief" }), json!({ "instructions": "be long" })),
        ("set_options", json!({ "temperature": 0.5 }), json!({ "temperature": 1.5 })),
        ("set_options", json!({ "maxOutputTokens": 64 }), json!({})),
        ("set_model", json!({ "model": "test" }), json!({ "model": "other" })),
        ("set_context_strategy", json!({ "strategy": "manual" }), json!({ "strategy": "threshold" })),
    ]
}

/// Returns what was written to the session so far: its entries and the seq of its newest event. First waits until the
/// session has handled everything sent before.
async fn written(client: &mut Client) -> Value {
    client.ask("get_context_info", json!({})).await;
    client.ask("get_entries", json!({})).await["payload"].clone()
}

/// Sends a command that was executed before: the reply must be the first one, marked as a duplicate, and nothing may be
/// written.
async fn check_repeated(client: &mut Client, id: &str, kind: &str, payload: &Value, first: &Value) {
    let before = written(client).await;
    client.send_as(id, kind, payload.clone()).await;
    let mut again = client.until(|frame| frame["re"] == id).await;
    assert_eq!(again["payload"]["duplicate"], true, "{kind}: {again}");
    again["payload"].as_object_mut().unwrap().remove("duplicate");
    assert_eq!(again, *first, "{kind}");
    assert_eq!(written(client).await, before, "{kind}: done twice");
}

#[tokio::test]
async fn a_repeated_command_is_done_once_whatever_happened_in_between() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("reseed.db");
    let first_server = server(&database).await;
    let (mut client, opened) = Client::v2_session(&first_server.ws()).await;
    let join = json!({ "sessionId": opened["sessionId"] });

    let mut done = Vec::new();
    for (kind, payload, other) in writing() {
        let id = client.send(kind, payload.clone()).await;
        let first = client.until(|frame| frame["re"] == id.as_str()).await;
        assert_ne!(*present(&first["type"]), "error", "{first}");
        if kind == "user_input" {
            client.event("turn_finished").await;
        }
        check_repeated(&mut client, &id, kind, &payload, &first).await;
        done.push((id, kind, payload, other, first));
    }

    let mut client = Client::v2(&first_server.ws()).await;
    client.ask("open_session", join.clone()).await;
    for (id, kind, payload, _, first) in &done {
        check_repeated(&mut client, id, kind, payload, first).await;
    }
    first_server.service.stop().await;
    assert_eq!(client.closed().await, 1012);

    let second_server = server(&database).await;
    let mut client = Client::v2(&second_server.ws()).await;
    client.ask("open_session", join).await;
    for (id, kind, payload, other, first) in &done {
        check_repeated(&mut client, id, kind, payload, first).await;
        let before = written(&mut client).await;
        client.send_as(id, kind, other.clone()).await;
        let refused = client.until(|frame| frame["re"] == id.as_str()).await;
        assert_eq!(refused["payload"]["code"], "idempotency_conflict", "{kind}: {refused}");
        assert_eq!(refused["payload"]["details"]["field"], "id", "{kind}");
        assert_eq!(written(&mut client).await, before, "{kind}: a refused command was done");
    }
    assert_eq!(client.turn("and on").await["status"], "completed");
}
