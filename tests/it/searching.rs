//! `search_history`: what was said is found in one session or in all of the user's sessions, and by no other user.

use crate::support::{client::Client, json::present, server::Server, talk::talker};
use reseed::store::sqlite::SqliteStore;
use serde_json::{Value, json};
use std::sync::Arc;

const TOKENS: [(&str, &str); 1] = [("AUTH_TOKENS", "ada:token-of-ada-4d1f9a73c2,bob:token-of-bob-93be07ac51")];

async fn known(server: &Server, token: &str) -> Client {
    let mut client = Client::connect(&server.ws()).await;
    client.ask("hello", json!({ "protocolVersion": 2, "token": token })).await;
    client
}

/// Says something in a session of its own. Returns the session.
async fn says(client: &mut Client, text: &str) -> Value {
    let session = client.ask("open_session", json!({})).await["payload"]["sessionId"].clone();
    client.session = session.as_str().map(str::to_owned);
    assert_eq!(client.turn(text).await["status"], "completed");
    session
}

/// Returns what is found: the sessions and authors.
async fn found(client: &mut Client, payload: Value) -> Vec<(Value, Value)> {
    let reply = client.ask("search_history", payload).await;
    assert_eq!(reply["type"], "history_hits", "{reply}");
    let items = reply["payload"]["items"].as_array().unwrap();
    items.iter().map(|item| (item["sessionId"].clone(), item["role"].clone())).collect()
}

#[tokio::test]
async fn what_was_said_is_found_by_its_user_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let server = Server::over(talker(5), store.clone(), &TOKENS).await;
    let mut ada = known(&server, "token-of-ada-4d1f9a73c2").await;
    let mut bob = known(&server, "token-of-bob-93be07ac51").await;
    let first = says(&mut ada, "The ferry Aurora leaves from src/pier_7.rs").await;
    let second = says(&mut ada, "極光号のフェリーは Aurora です").await;
    let other = says(&mut bob, "Aurora is a name of mine too").await;
    let user = |session: &Value| (session.clone(), json!("user"));
    // Before and after the index has them.
    for _ in 0..2 {
        let cases = [
            (json!({ "query": "aurora" }), vec![user(&second), user(&first)]),
            (json!({ "query": "aurora", "limit": 1 }), vec![user(&second)]),
            (json!({ "query": "AURORA", "sessionId": first }), vec![user(&first)]),
            (json!({ "query": "src/pier_7" }), vec![user(&first)]),
            (json!({ "query": "フェリー" }), vec![user(&second)]),
            (json!({ "query": "\"ferry leaves\"" }), vec![]),
        ];
        for (payload, want) in cases {
            assert_eq!(found(&mut ada, payload.clone()).await, want, "{payload}");
        }
        assert_eq!(found(&mut bob, json!({ "query": "aurora" })).await, [user(&other)]);
        let foreign = bob.ask("search_history", json!({ "query": "aurora", "sessionId": first })).await;
        assert_eq!(foreign["payload"]["code"], "session_not_found", "{foreign}");
        store.indexed().await;
    }
    let hit = ada.ask("search_history", json!({ "query": "pier_7", "sessionId": first })).await["payload"].clone();
    let entries = ada.ask("get_entries", json!({ "sessionId": first })).await["payload"]["items"].clone();
    let want = json!({
        "items": [{
            "sessionId": present(&first),
            "name": "The ferry Aurora leaves from src/pier_7.rs",
            "entryId": present(&entries[0]["entryId"]),
            "timestamp": present(&entries[0]["timestamp"]),
            "role": "user",
            "snippet": "The ferry Aurora leaves from src/pier_7.rs",
        }],
        "more": false,
    });
    assert_eq!(hit, want);
    assert_eq!(ada.ask("delete_session", json!({ "sessionId": first })).await["type"], "ok");
    assert_eq!(found(&mut ada, json!({ "query": "aurora" })).await, [user(&second)]);
}

#[tokio::test]
async fn a_search_without_words_is_refused() {
    let server = Server::start(talker(5), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let long = "word ".repeat(201);
    for (payload, field) in [
        (json!({ "query": "" }), "query"),
        (json!({ "query": "\" … \"" }), "query"),
        (json!({ "query": long }), "query"),
        (json!({ "query": "word", "limit": 0 }), "limit"),
        (json!({ "query": "word", "limit": 101 }), "limit"),
    ] {
        let refused = client.ask("search_history", payload.clone()).await["payload"].clone();
        let seen = (&refused["code"], &refused["details"]["field"]);
        assert_eq!(seen, (&json!("invalid_field"), &json!(field)), "{payload}: {refused}");
    }
    let hostile = json!({ "query": "NEAR(a\" OR col:x* NOT (; \u{0} DROP TABLE record" });
    assert_eq!(found(&mut client, hostile).await, []);
}
