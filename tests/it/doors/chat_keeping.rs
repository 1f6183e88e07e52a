//! What the door for Chat Completions keeps of clients that never asked to keep anything.

use crate::support::{
    client::Client,
    http::{self, Answered},
    json::present,
    scripted::{Gate, Reply, Scripted},
    server::Server,
};
use crate::unstored::{gone, is_on_disk};
use reseed::store::sqlite::SqliteStore;
use serde_json::{Value, json};
use std::{collections::BTreeSet, sync::Arc};

fn model() -> Scripted {
    Scripted::answering(|_| Reply::text("Aye."))
}

async fn complete(server: &Server, headers: &[(&str, &str)], messages: Value) -> Answered {
    let body = json!({ "model": "test", "messages": messages }).to_string();
    let answered = http::send(&server.address(), "POST", "/v1/chat/completions", headers, &body).await;
    assert_eq!(answered.status, 200, "{answered:?}");
    answered
}

/// Says something in a conversation of its own. Returns its session.
async fn say(server: &Server, headers: &[(&str, &str)], text: &str) -> String {
    session(&complete(server, headers, json!([{ "role": "user", "content": text }])).await)
}

fn session(answered: &Answered) -> String {
    let line = answered.head.lines().find_map(|line| line.strip_prefix("x-reseed-session: "));
    line.unwrap_or_else(|| panic!("no session in {}", answered.head)).to_owned()
}

async fn listed(client: &mut Client) -> BTreeSet<String> {
    let listed = client.ask("list_sessions", json!({})).await;
    let items = present(&listed["payload"]["items"]).as_array().unwrap();
    items.iter().map(|item| item["sessionId"].as_str().unwrap().to_owned()).collect()
}

/// Returns a client that hears of sessions that are deleted.
async fn watcher(server: &Server) -> Client {
    let mut client = Client::v2(&server.ws()).await;
    client.ask("list_sessions", json!({ "watch": true })).await;
    client
}

async fn deleted(client: &mut Client) -> String {
    let frame = client.until(|frame| frame["type"] == "session_changed" && frame["payload"]["deleted"] == true).await;
    frame["payload"]["sessionId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn unnamed_sessions_are_bounded_and_the_oldest_by_use_goes() {
    let folder = tempfile::tempdir().unwrap();
    let store = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let settings = [("STATELESS_SESSIONS", "2")];
    let server = Server::over(model(), store(), &settings).await;
    let mut client = watcher(&server).await;
    let named = say(&server, &[("X-Session", "mine")], "named").await;
    let (own, _) = Client::v2_session(&server.ws()).await;
    let first = say(&server, &[], "one").await;
    let second = say(&server, &[], "two").await;
    // The first one is used again.
    let more = json!([
        { "role": "user", "content": "one" },
        { "role": "assistant", "content": "Aye." },
        { "role": "user", "content": "more" },
    ]);
    assert_eq!(session(&complete(&server, &[], more).await), first);
    let third = say(&server, &[], "three").await;
    assert_eq!(deleted(&mut client).await, second);
    let own = own.session.unwrap();
    assert_eq!(listed(&mut client).await, BTreeSet::from([named.clone(), own.clone(), first.clone(), third.clone()]));
    server.service.stop().await;
    drop(server);

    // Which ones they are is known after a restart.
    let server = Server::over(model(), store(), &settings).await;
    let mut client = watcher(&server).await;
    let fourth = say(&server, &[], "four").await;
    assert_eq!(deleted(&mut client).await, first);
    assert_eq!(listed(&mut client).await, BTreeSet::from([named, own, third, fourth]));
}

#[tokio::test]
async fn what_is_used_elsewhere_or_running_stays() {
    let gate = Gate::new();
    let model = model();
    let server = Server::start(model.clone(), &[("STATELESS_SESSIONS", "1")]).await;
    let mut client = watcher(&server).await;
    let page = say(&server, &[], "one").await;
    let mut other = Client::v2(&server.ws()).await;
    other.ask("open_session", json!({ "sessionId": page })).await;
    other.session = Some(page.clone());
    other.turn("from the page").await;
    let entries = other.ask("get_entries", json!({})).await;
    // Its newest input has the mark of the session that it comes from.
    let answer = present(&entries["payload"]["items"][1]["entryId"]);
    let forked = other.ask("fork_session", json!({ "entryId": answer, "position": "at" })).await;
    let forked = forked["payload"]["sessionId"].as_str().unwrap().to_owned();

    model.push(Reply::text("two").held_by(&gate));
    let running = tokio::spawn({
        let address = server.address();
        async move {
            let body = json!({ "model": "test", "messages": [{ "role": "user", "content": "two" }] }).to_string();
            http::send(&address, "POST", "/v1/chat/completions", &[], &body).await
        }
    });
    model.wait_for_requests(3).await;
    let third = say(&server, &[], "three").await;
    let fourth = say(&server, &[], "four").await;
    assert_eq!(deleted(&mut client).await, third, "the others are in use");
    gate.open();
    let second = session(&running.await.unwrap());
    assert_eq!(listed(&mut client).await, BTreeSet::from([page, forked, second, fourth]));
}

#[tokio::test]
async fn nothing_is_kept_if_the_client_or_the_operator_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let store = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let server = Server::over(model(), store(), &[]).await;
    let mut client = Client::v2(&server.ws()).await;
    let refused = say(&server, &[("X-Reseed-Store", "none"), ("X-Session", "mine")], "heron-74").await;
    gone(&mut client, &refused).await;
    server.service.stop().await;
    drop(server);

    let server = Server::over(model(), store(), &[("STATELESS_SESSIONS", "0")]).await;
    let mut client = Client::v2(&server.ws()).await;
    let unnamed = say(&server, &[], "heron-74").await;
    gone(&mut client, &unnamed).await;
    assert!(!is_on_disk(folder.path(), "heron-74"));
    let named = say(&server, &[("X-Session", "mine")], "one").await;
    assert_eq!(listed(&mut client).await, BTreeSet::from([named]));
}
