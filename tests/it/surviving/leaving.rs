//! A session that no client has open rests in memory once its turn is over. It does not matter how its clients left.
//! Then it is unloaded. It is loaded once, however many come back at the same time.

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{client::Client, http, server::Server};
use futures_util::future::join_all;
use reseed::store::{SessionStore as _, sqlite::SqliteStore};
use serde_json::json;
use std::sync::Arc;

const OPERATOR: &str = "correct-horse-battery-staple";

/// Returns the number of sessions in memory.
async fn in_memory(server: &Server) -> u64 {
    http::get_as(&server.address(), "/api/sessions", OPERATOR).await.json()["openSessions"].as_u64().unwrap()
}

/// Waits until this many sessions are in memory, without those that only rest.
async fn open(server: &Server, count: u64) {
    while in_memory(server).await != count {
        server.service.unload_resting().await;
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_session_without_a_connection_leaves_memory_when_its_turn_is_over() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let server = Server::start(model.clone(), &[("OPERATOR_TOKENS", &format!("op:{OPERATOR}"))]).await;
    let (mut owner, opened) = Client::v2_session(&server.ws()).await;
    let session = opened["sessionId"].clone();
    let mut watch = Client::v2(&server.ws()).await;
    watch.ask("open_session", json!({ "sessionId": session, "role": "observer" })).await;
    open(&server, 1).await;
    // An observer keeps it loaded, even when its owner leaves. When the last one leaves, it is unloaded.
    owner.ask("close_session", json!({})).await;
    watch.ask("get_context_info", json!({})).await;
    assert_eq!(in_memory(&server).await, 1);
    watch.hang_up();
    open(&server, 0).await;

    // A running turn keeps it loaded, and no longer than it runs.
    model.push(Reply::text("Here I am.").held_by(&gate));
    owner.ask("open_session", json!({ "sessionId": session })).await;
    owner.ask("user_input", json!({ "input": "Are you there?" })).await;
    owner.hang_up();
    model.wait_for_requests(1).await;
    assert_eq!(in_memory(&server).await, 1);
    gate.open();
    open(&server, 0).await;

    // Listing, reading and an operator's requests load nothing.
    let mut client = Client::v2(&server.ws()).await;
    client.ask("list_sessions", json!({})).await;
    let entries = client.ask("get_entries", json!({ "sessionId": session })).await;
    assert_eq!(entries["payload"]["items"].as_array().map(Vec::len), Some(2), "{entries}");
    assert_eq!(in_memory(&server).await, 0);
}

/// Each finds the session in the store and not in memory, so without taking turns each would load it.
#[tokio::test]
async fn clients_that_come_back_at_once_find_one_loop() {
    let folder = tempfile::tempdir().unwrap();
    // Its reads take a moment, as those of memory do not.
    let store = Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let model = Scripted::answering(|_| Reply::text("Noted."));
    let server = Server::over(model, store, &[("OPERATOR_TOKENS", &format!("op:{OPERATOR}"))]).await;
    let (mut first, opened) = Client::v2_session(&server.ws()).await;
    first.turn("My cat is called Miso.").await;
    first.hang_up();
    open(&server, 0).await;

    let mut clients = join_all((0..8).map(async |_| Client::v2(&server.ws()).await)).await;
    let session = json!({ "sessionId": opened["sessionId"] });
    let joined = join_all(clients.iter_mut().map(|client| client.ask("open_session", session.clone()))).await;
    let present = joined.iter().filter_map(|opened| opened["payload"]["presence"].as_array()).map(Vec::len);
    assert_eq!(present.max(), Some(clients.len()), "the last to join sees all of them: {joined:#?}");
    assert_eq!(clients[0].turn("Who is Miso?").await["status"], "completed");
    for client in &mut clients[1..] {
        client.event("turn_finished").await;
    }
}

/// Returns the number of times that the session was opened in the store.
async fn term(store: &SqliteStore, session: &serde_json::Value) -> u64 {
    store.head(&session.as_str().unwrap().parse().unwrap()).await.unwrap().term
}

#[tokio::test]
async fn a_client_that_comes_back_soon_finds_the_session_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let model = Scripted::answering(|_| Reply::text("Noted."));
    let settings = [("OPERATOR_TOKENS", &*format!("op:{OPERATOR}")), ("SESSIONS_OPEN_MAX", "2")];
    let server = Server::over(model, store.clone(), &settings).await;
    let (mut first, opened) = Client::v2_session(&server.ws()).await;
    let session = opened["sessionId"].clone();
    first.turn("My cat is called Miso.").await;
    first.hang_up();

    let mut client = Client::v2(&server.ws()).await;
    client.ask("open_session", json!({ "sessionId": session })).await;
    assert_eq!(client.turn("Who is Miso?").await["status"], "completed");
    assert_eq!(term(&store, &session).await, 1, "it was not opened again");

    // A session that rests makes room for others.
    client.hang_up();
    let mut others = Vec::new();
    for _ in 0..2 {
        others.push(Client::v2_session(&server.ws()).await);
    }
    assert_eq!(in_memory(&server).await, 2);
    let mut late = Client::v2(&server.ws()).await;
    let refused = late.ask("open_session", json!({ "sessionId": session })).await;
    assert_eq!(refused["payload"]["code"], "overloaded", "{refused}");
    others.remove(0).0.hang_up();
    while late.ask("open_session", json!({ "sessionId": session })).await["type"] != "session_opened" {
        tokio::task::yield_now().await;
    }
    assert_eq!(term(&store, &session).await, 2, "it had left memory");
    assert_eq!(late.turn("Who is Miso?").await["status"], "completed");
}

#[tokio::test]
async fn only_so_many_sessions_rest() {
    let model = Scripted::answering(|_| Reply::text("Noted."));
    let server = Server::start(model, &[("OPERATOR_TOKENS", &format!("op:{OPERATOR}"))]).await;
    let clients = join_all((0..80).map(async |_| Client::v2_session(&server.ws()).await.0)).await;
    assert_eq!(in_memory(&server).await, 80);
    drop(clients);
    while in_memory(&server).await > 64 {
        tokio::task::yield_now().await;
    }
    server.service.unload_resting().await;
    open(&server, 0).await;
}

#[tokio::test]
async fn whoever_comes_while_a_session_rests_may_host() {
    let model = Scripted::answering(|_| Reply::text("Noted."));
    let server = Server::start(model.clone(), &[]).await;
    let tools = |name: &str| json!([{ "name": name, "description": "Looks.", "parameters": { "type": "object" } }]);
    let mut first = Client::v2(&server.ws()).await;
    let opened = first.ask("open_session", json!({ "tools": tools("one") })).await["payload"].clone();
    first.turn("My cat is called Miso.").await;
    first.hang_up();

    let mut second = Client::v2(&server.ws()).await;
    let opening = json!({ "sessionId": opened["sessionId"], "tools": tools("two") });
    // Until the server has seen that the first is gone.
    while second.ask("open_session", opening.clone()).await["payload"]["presence"].as_array().unwrap().len() > 1 {
        second.ask("close_session", json!({})).await;
    }
    second.turn("Who is Miso?").await;
    let requests = model.requests();
    let offered: Vec<&str> = requests.last().unwrap().envelope.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(offered, ["two"]);
}
