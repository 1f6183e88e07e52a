//! Levers on what another node holds.

use super::{ANN, SETTINGS, WRITER, pull, session_of};
use crate::support::{
    cluster::{LONG_LEASE, Node, database},
    http,
    json::present,
    polling::until,
    postgres,
    talk::words,
};
use serde_json::json;

/// Returns how often a text is in any table, whatever its column.
async fn in_tables(database: &str, text: &str) -> String {
    let name = database.rsplit('/').next().unwrap().to_owned();
    // Texts of people are shown as hexadecimal bytes.
    let bytes: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    let text = text.to_owned();
    tokio::task::spawn_blocking(move || {
        let tables =
            postgres::sql(&name, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'reseed'");
        let tables: Vec<&str> = tables.split_whitespace().collect();
        assert!(tables.len() > 10, "{tables:?}");
        let mut found = Vec::new();
        for table in tables {
            let sql = format!(
                "SELECT count(*) FROM reseed.\"{table}\" t WHERE t::text LIKE '%{text}%' OR t::text LIKE '%{bytes}%'"
            );
            let count = postgres::sql(&name, &sql);
            if count.trim() != "0" {
                found.push(format!("{table} {}", count.trim()));
            }
        }
        found.join(", ")
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_lever_reaches_the_session_of_another_node() {
    let database = database().await;
    let settings = [&SETTINGS[..], &[LONG_LEASE, ("CONTEXT_WINDOW", "2000")]].concat();
    let (a, b) = (Node::start(&database, "a", &settings).await, Node::start(&database, "b", &settings).await);
    let (mut ann, session) = session_of(&b.server.ws(), ANN, json!({})).await;
    for number in 0..6 {
        ann.turn(&words(number, 80)).await;
    }
    let (at_a, at) = (&a.server.address, |lever: &str| format!("/api/sessions/{session}/{lever}"));
    let started = pull(at_a, "POST", &at("compact"), "").await;
    assert_eq!(started.status, 202, "{started:?}");
    let compacted = ann.event("context_compacted").await;
    assert_eq!(present(&compacted["payload"]["jobId"]), present(&started.json()["jobId"]), "{compacted}");
    let undone = pull(at_a, "POST", &at("undo"), "").await;
    assert_eq!(undone.status, 200, "{undone:?}");
    ann.event("compaction_undone").await;
    let closed = pull(at_a, "POST", &at("close"), "").await;
    assert_eq!((closed.status, closed.json()), (200, json!({ "sockets": 1 })));
    assert_eq!(ann.event("session_closed").await["payload"]["code"], "failed");
    ann.ask("open_session", json!({ "sessionId": session })).await;
    let deleted = pull(at_a, "DELETE", &format!("/api/sessions/{session}"), "").await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    assert_eq!(ann.event("session_closed").await["payload"]["code"], "deleted");
}

#[tokio::test]
async fn a_user_is_deleted_on_all_nodes() {
    let database = database().await;
    let settings = [&SETTINGS[..], &[LONG_LEASE]].concat();
    let (a, b) = (Node::start(&database, "a", &settings).await, Node::start(&database, "b", &settings).await);
    let (mut at_a, one) = session_of(&a.server.ws(), ANN, json!({})).await;
    let (mut at_b, two) = session_of(&b.server.ws(), ANN, json!({})).await;
    let (mut unstored, _) = session_of(&b.server.ws(), ANN, json!({ "store": false })).await;
    // This client's session is held by the other node.
    let (mut relayed, _) = session_of(&a.server.ws(), ANN, json!({ "sessionId": two })).await;
    for client in [&mut at_a, &mut at_b, &mut unstored, &mut relayed] {
        client.turn("Hello").await;
    }
    let gone = at_a.ask("open_session", json!({})).await["payload"]["sessionId"].as_str().unwrap().to_owned();
    at_a.ask("delete_session", json!({ "sessionId": gone })).await;
    let bearer = format!("Bearer {ANN}");
    let ticket = http::send(&b.server.address, "POST", "/api/tickets", &[("Authorization", &bearer)], "").await;
    assert_eq!(ticket.status, 200, "{ticket:?}");
    assert!(!in_tables(&database, "ann-of-the-harbour").await.is_empty(), "or the search finds nothing");
    let shown = http::get_as(&a.server.address, "/api/users/ann-of-the-harbour", WRITER).await.json();
    assert_eq!((&shown["sockets"], &shown["sessions"]["open"]), (&json!(4), &json!(3)), "{shown}");

    let deleted = pull(&a.server.address, "DELETE", "/api/users/ann-of-the-harbour", "").await;
    assert_eq!(deleted.status, 200, "{deleted:?}");
    let proof = deleted.json();
    let counts = ["sessions", "tickets", "sockets"].map(|name| present(&proof[name]).clone());
    assert_eq!(counts, [json!(3), json!(1), json!(4)], "{proof}");
    assert_eq!(proof["search"]["found"], 0, "{proof}");
    assert!(proof.get("unanswered").is_none(), "{proof}");
    for client in [&mut at_a, &mut at_b, &mut unstored, &mut relayed] {
        assert_eq!(client.closed().await, 4403);
    }
    for text in ["ann-of-the-harbour", &one, &two, &gone] {
        assert_eq!(in_tables(&database, text).await, "", "{text}");
    }
}

#[tokio::test]
async fn a_node_is_drained_through_another() {
    let database = database().await;
    let settings = [&SETTINGS[..], &[("NODE_LEASE_SECS", "2")]].concat();
    let (a, b) = (Node::start(&database, "a", &settings).await, Node::start(&database, "b", &settings).await);
    let unknown = pull(&a.server.address, "POST", "/api/drain", r#"{ "node": "c" }"#).await;
    assert_eq!(unknown.status, 400, "{unknown:?}");
    let drained = pull(&a.server.address, "POST", "/api/drain", r#"{ "node": "b" }"#).await;
    assert_eq!((drained.status, &drained.json()["node"]), (202, &json!("b")), "{drained:?}");
    assert_eq!(b.server.ended().await, Some(0));
    until("its row is gone", async || {
        let nodes = http::get_as(&a.server.address, "/api/nodes", WRITER).await.json();
        if nodes["items"].as_array().is_some_and(|items| items.len() == 1) { Ok(()) } else { Err(nodes.to_string()) }
    })
    .await;
}
