//! Lists, watches and operators see all servers from any of them.

use super::{faults::resumed, nodes, open, rights::greeted};
use crate::support::{
    binary::run,
    cluster::{LONG_LEASE, Node, SHORT_LEASE, database},
    http::get,
    json::present,
    polling::until,
    postgres,
};
use serde_json::{Value, json};
use std::time::Instant;

/// Accepts the frame that tells a watcher that a session is in this state.
fn tells(session: &Value, state: &str) -> impl Fn(&Value) -> bool {
    move |frame| {
        let item = &frame["payload"];
        frame["type"] == "session_changed" && item["sessionId"] == *session && item["state"] == state
    }
}

#[tokio::test]
async fn a_watched_list_tells_what_other_servers_do() {
    let [a, b] = nodes(&[("OFFLINE_WORD_MILLIS", "20")]).await;
    let mut watching = b.client().await;
    let listed = watching.ask("list_sessions", json!({ "watch": true })).await;
    assert_eq!(listed["payload"]["items"], json!([]), "{listed}");
    let (mut at_a, session) = a.session().await;
    at_a.ask("user_input", json!({ "input": "Tell me a story about my cat, who is called Miso." })).await;
    watching.until(tells(&session, "running")).await;
    let listed = watching.ask("list_sessions", json!({})).await;
    assert_eq!(listed["payload"]["items"][0]["sessionId"], session, "{listed}");
    at_a.event("turn_finished").await;
    watching.until(tells(&session, "idle")).await;
    assert_eq!(at_a.ask("rename_session", json!({ "name": "Cats" })).await["type"], "ok");
    watching.until(|frame| frame["type"] == "session_changed" && frame["payload"]["name"] == "Cats").await;
    assert_eq!(at_a.ask("delete_session", json!({})).await["type"], "ok");
    watching.until(|frame| frame["type"] == "session_changed" && frame["payload"]["deleted"] == true).await;
}

#[tokio::test]
async fn a_watched_list_tells_of_a_session_that_changes_its_server() {
    let [a, b, c] = nodes(&[SHORT_LEASE, ("OFFLINE_WORD_MILLIS", "200")]).await;
    let mut watching = b.client().await;
    watching.ask("list_sessions", json!({ "watch": true })).await;
    let (mut at_a, session) = a.session().await;
    at_a.ask("user_input", json!({ "input": "Tell me a story about my cat, who is called Miso." })).await;
    watching.until(tells(&session, "running")).await;
    a.server.kill().await;
    // Nothing is written in this case.
    watching.until(tells(&session, "idle")).await;
    let mut at_c = c.client().await;
    let before = json!({ "epoch": "none", "asOfSeq": 0 });
    resumed(&mut at_c, &session, &before).await;
    assert_eq!(at_c.ask("rename_session", json!({ "name": "Cats" })).await["type"], "ok");
    watching.until(|frame| frame["type"] == "session_changed" && frame["payload"]["name"] == "Cats").await;
}

/// Users who watch their lists.
const WATCHERS: usize = 80;

#[tokio::test]
async fn a_look_for_many_watchers_costs_as_much_as_for_one() {
    let tokens: Vec<String> = (0..WATCHERS).map(|n| format!("user{n}:token-of-user-{n}-4f1c9a7be2d3")).collect();
    let tokens = tokens.join(",");
    let settings = [LONG_LEASE, ("AUTH_TOKENS", tokens.as_str())];
    let database = database().await;
    let (a, b) = (Node::start(&database, "a", &settings).await, Node::start(&database, "b", &settings).await);
    let token = |n: usize| json!({ "token": format!("token-of-user-{n}-4f1c9a7be2d3") });
    let mut watching = Vec::new();
    for n in 0..WATCHERS {
        let mut client = greeted(&b, token(n)).await;
        assert_eq!(client.ask("list_sessions", json!({ "watch": true })).await["type"], "sessions");
        watching.push(client);
    }
    let (mut at_a, mut last) = (greeted(&a, token(WATCHERS - 1)).await, watching.pop().unwrap());
    at_a.ask("open_session", json!({})).await;
    let name = database.rsplit('/').next().unwrap().to_owned();
    let committed = async || {
        let name = name.clone();
        let of_this = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
        let count = tokio::task::spawn_blocking(move || postgres::sql(&name, of_this)).await.unwrap();
        count.trim().parse::<u128>().unwrap()
    };
    let (before, began) = (committed().await, Instant::now());
    for round in 0..8 {
        let renamed = at_a.ask("rename_session", json!({ "name": format!("round {round}") })).await;
        assert_eq!(renamed["type"], "ok", "{renamed}");
        last.until(|frame| frame["payload"]["name"] == format!("round {round}")).await;
    }
    let looks = began.elapsed().as_millis() / 500 + 1;
    let statements = committed().await - before;
    // Each poll takes two statements, and the renamings and the servers themselves need some.
    assert!(statements < looks * WATCHERS as u128 / 2, "{statements} statements in {looks} looks");
}

#[tokio::test]
async fn operators_see_every_server_from_any() {
    let database = database().await;
    let (a, b) = (Node::start(&database, "a", &[]).await, Node::start(&database, "b", &[]).await);
    let (mut at_a, session) = a.session().await;
    at_a.turn("My cat is called Miso.").await;
    let mut client = b.client().await;
    open(&mut client, &session).await;
    // Two beats later, every server has reported its numbers.
    let shown = until("both servers are listed", async || {
        let shown = get(&b.server.address, "/api/nodes").await.json();
        let items = present(&shown["items"]).as_array().unwrap().clone();
        if items.len() == 2 { Ok(items) } else { Err(shown.to_string()) }
    })
    .await;
    let of = |name: &str| shown.iter().find(|item| item["name"] == name).unwrap_or_else(|| panic!("{shown:?}"));
    assert_eq!((&of("a")["self"], &of("b")["self"]), (&json!(false), &json!(true)), "{shown:?}");
    assert_eq!(of("a")["state"], "living", "{shown:?}");
    assert_eq!(of("a")["address"], json!(format!("ws://{}", a.gate.address)), "{shown:?}");
    let listed = get(&b.server.address, "/api/sessions").await.json();
    let item = &listed["items"][0];
    assert_eq!((&item["node"], &item["open"]), (&json!("a"), &json!(true)), "{listed}");
    assert_eq!(item["compaction"]["count"], 0, "its holder is asked: {listed}");
    let context = get(&b.server.address, &format!("/api/sessions/{}/context", session.as_str().unwrap())).await;
    assert!(context.json()["tokenCount"].as_u64().is_some_and(|count| count > 0), "{context:?}");
    for (node, side, dialect) in [(&a, "holder", "relay"), (&b, "edge", "v2")] {
        let metrics = get(&node.server.address, "/metrics").await.body;
        for line in [
            format!("reseed_relayed_connections{{side=\"{side}\"}} 1"),
            format!("reseed_connections{{dialect=\"{dialect}\"}} 1"),
        ] {
            assert!(metrics.contains(&line), "{line}: {metrics}");
        }
    }
    // Without its holder, the list lacks only that.
    a.gate.close();
    let listed = get(&b.server.address, "/api/sessions").await.json();
    let item = &listed["items"][0];
    assert_eq!((&item["node"], item.get("compaction")), (&json!("a"), None), "{listed}");
    a.gate.open(&a.server.address);
    let settings = [("DATABASE_URL", database.as_str())];
    let told = run(a.folder.path(), &["nodes", "--json"], &settings).await;
    let told: Value = serde_json::from_str(&told.printed).unwrap_or_else(|_| panic!("{told:?}"));
    assert_eq!(told["items"].as_array().map(Vec::len), Some(2), "{told}");
    let told = run(a.folder.path(), &["nodes"], &settings).await;
    assert!(told.printed.contains("NAME") && told.printed.contains("living"), "{told:?}");
    b.server.stop().await;
    let told = run(a.folder.path(), &["nodes", "--json"], &settings).await;
    assert!(!told.printed.contains("\"b\""), "one that has stopped is not listed: {told:?}");
}
