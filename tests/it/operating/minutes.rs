//! The ring of minutes, and what the list of sessions shows while they run.

use super::{QUICK, folder};
use crate::support::{
    binary::{self, Binary},
    client::Client,
    http,
    json::present,
    scripted::{Gate, Reply, Scripted},
    server::Server,
    talk::words,
};
use reseed::store::{MinuteRow, SessionStore as _, memory::MemoryStore};
use reseed_protocol::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

#[tokio::test]
async fn what_a_server_counted_is_there_after_it_was_started_again() {
    let folder = folder();
    let settings = [&QUICK[..], &[("NODE_NAME", "north")]].concat();
    let server = Binary::start(folder.path(), &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for turn in 1..4 {
        client.turn(&words(turn, 100)).await;
    }
    client.ask("start_compaction", json!({})).await;
    client.event("context_compacted").await;
    // The last part of a minute is written when the server stops.
    server.stop().await;
    let server = Binary::start(folder.path(), &settings).await;
    let page = http::get(&server.address, "/api/minutes").await.json();
    let items = present(&page["items"]).as_array().unwrap();
    let sum = |path: &str| -> i64 {
        items
            .iter()
            .map(|item| item.pointer(path).unwrap_or_else(|| panic!("no {path} in {item}")))
            .map(|n| n.as_i64().unwrap())
            .sum()
    };
    for (path, expected) in [
        ("/turns", 3),
        ("/compactions/committed", 1),
        ("/compactions/failed", 0),
        ("/compactions/no_gain", 0),
        ("/compactions/cancelled", 0),
        ("/compactions/void", 0),
        ("/failures/turns", 0),
        ("/failures/requests", 0),
        ("/failures/store", 0),
        ("/failures/hooks", 0),
        ("/failures/tools", 0),
        ("/waiting", 0),
        ("/firstDelta/count", 3),
    ] {
        assert_eq!(sum(path), expected, "{path}: {items:?}");
    }
    assert!(sum("/requests") >= 3 && sum("/pauses/totalMs") >= 0 && sum("/firstDelta/totalMs") >= 0, "{items:?}");
    let last = items.last().unwrap();
    assert_eq!((&last["node"], &last["sessionsOpen"], &last["connections"]), (&json!("north"), &json!(0), &json!(0)));
    let log = binary::logged(folder.path());
    assert!(!log.contains("counted in a minute"), "{log}");
}

#[tokio::test]
async fn operators_page_through_minutes() {
    let store = Arc::new(MemoryStore::new());
    for minute in 0..5 {
        for (process, node) in [("p1", "a"), ("p2", "b")] {
            let body = json!({ "node": node, "turns": minute }).to_string();
            store.put_minute(MinuteRow { minute, process: process.to_owned(), body }).await.unwrap();
        }
    }
    let server = Server::over(Scripted::new(), store, &[]).await;
    let ask = async |query: &str| http::get(&server.address(), &format!("/api/minutes{query}")).await;
    let shown = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap();
        items.iter().map(|item| format!("{} {}", &item["minute"].as_str().unwrap()[14..16], item["node"])).collect()
    };
    let (mut found, mut query) = (Vec::new(), "?from=1970-01-01T00:00:30Z&to=1970-01-01T00:04:00Z&limit=4".to_owned());
    let first = query.clone();
    loop {
        let page = ask(&query).await.json();
        found.extend(shown(&page));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        query = format!("{first}&cursor={cursor}");
    }
    // A minute that began before the first bound is not meant.
    assert_eq!(found, ["01 \"a\"", "01 \"b\"", "02 \"a\"", "02 \"b\"", "03 \"a\"", "03 \"b\""]);
    let page = ask("?from=1970-01-01&limit=10").await.json();
    assert_eq!((shown(&page).len(), page.get("nextCursor")), (10, None));
    assert_eq!(page["items"][9], json!({ "minute": Timestamp(240_000).to_string(), "node": "b", "turns": 4 }));
    assert_eq!(shown(&ask("").await.json()), [""; 0], "without bounds, only the last hour");
    for (query, field) in [
        ("?from=yesterday", "from"),
        ("?to=2026-13-01", "to"),
        ("?limit=0", "limit"),
        ("?limit=10081", "limit"),
        ("?cursor=p1", "cursor"),
        ("?cursor=x.p1", "cursor"),
    ] {
        let refused = ask(query).await;
        assert_eq!((refused.status, &refused.json()["details"]["field"]), (400, &json!(field)), "{query}");
    }
    assert_eq!(ask("?node=a").await.status, 400, "an unknown parameter");
}

#[tokio::test]
async fn the_newest_page_shows_what_sessions_do_and_run_with() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = Scripted::answering(move |_| Reply::text(words(1, 5)).held_by(&held));
    let server = Server::start(model, &[("CONTEXT_STRATEGY", "sliding_window")]).await;
    let newest = async || {
        let page = http::get(&server.address(), "/api/sessions?limit=1").await.json();
        present(&page["items"])[0].clone()
    };
    let (mut first, opened) = Client::v2_session(&server.ws()).await;
    let item = newest().await;
    assert_eq!((&item["model"], &item["strategy"]), (&json!("test"), &json!("sliding_window")), "{item}");
    let (mut other, _) = Client::v2_session(&server.ws()).await;
    other.ask("set_model", json!({ "model": "large" })).await;
    other.ask("set_context_strategy", json!({ "strategy": "manual" })).await;
    let item = newest().await;
    assert_eq!((&item["model"], &item["strategy"]), (&json!("large"), &json!("manual")), "{item}");
    // A turn moves its session to the top when it begins, and shows that it has ended.
    first.ask("user_input", json!({ "input": "Hello." })).await;
    let item = newest().await;
    assert_eq!((&item["sessionId"], &item["state"]), (present(&opened["sessionId"]), &json!("running")), "{item}");
    gate.open();
    first.event("turn_finished").await;
    let item = newest().await;
    assert_eq!((&item["sessionId"], &item["state"]), (present(&opened["sessionId"]), &json!("idle")), "{item}");
    assert!(item["tokenCount"].as_u64().unwrap() > 0 && item["windowTokens"] == 2_000, "{item}");
}
