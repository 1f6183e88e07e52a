//! The alerts about several servers on one PostgreSQL, and about a slow PostgreSQL.

use super::{fires, has_promtool, samples};
use crate::support::{
    client::Client,
    cluster::{LONG_LEASE, Node, database},
    gate::Gate,
    polling::until,
    postgres,
};
use futures_util::future::join_all;
use serde_json::json;
use std::time::Duration;

/// The number of simultaneous reads on a server that may have two connections for them.
const READERS: usize = 40;

/// The delay each way. A commit then takes longer than the half second of the rule.
const SLOW: Duration = Duration::from_millis(300);

/// Returns a proxy before the database, and the address through it.
async fn through_gate(database: &str) -> (Gate, String) {
    let gate = Gate::new().await;
    gate.open(postgres::socket().to_str().unwrap());
    let address = format!("postgres://reseed@{}/{}", gate.address, database.rsplit('/').next().unwrap());
    (gate, address)
}

#[tokio::test]
async fn a_server_that_is_cut_off_and_loses_its_sessions() {
    if !has_promtool() {
        return;
    }
    let address = database().await;
    let (gate, through) = through_gate(&address).await;
    let (a, b) = (Node::alone(&through, "a", &[]).await, Node::alone(&address, "b", &[]).await);
    let (mut at_a, session) = a.session().await;
    at_a.turn("My cat is called Miso.").await;
    let before = [samples(&a.server.address).await, samples(&b.server.address).await];
    gate.freeze();
    let mut at_b = b.client().await;
    until("another server has the session", async || {
        let opened = at_b.ask("open_session", json!({ "sessionId": session })).await;
        if opened["type"] == "session_opened" { Ok(()) } else { Err(opened.to_string()) }
    })
    .await;
    let at_b = samples(&b.server.address).await;
    fires("ReseedTakeovers", 2, &before[1], &at_b);
    fires("ReseedNodeSilent", 4, &before[1], &at_b);
    gate.thaw();
    a.ready().await;
    fires("ReseedLeaseLost", 2, &before[0], &samples(&a.server.address).await);
}

#[tokio::test]
async fn reads_that_wait_for_a_connection() {
    if !has_promtool() {
        return;
    }
    let node = Node::alone(&database().await, "a", &[LONG_LEASE, ("DATABASE_READERS", "2")]).await;
    let (mut client, session) = node.session().await;
    client.turn("My cat is called Miso.").await;
    let before = samples(&node.server.address).await;
    let mut readers = join_all((0..READERS).map(|_| node.client())).await;
    until("so many reads have waited", async || {
        let reads = readers.iter_mut().map(async |client: &mut Client| {
            let page = client.ask("get_entries", json!({ "sessionId": session })).await;
            assert_eq!(page["type"], "entries", "{page}");
        });
        join_all(reads).await;
        let waited = node.metric("reseed_store_reads_waited_total").await;
        if waited > 300 { Ok(()) } else { Err(waited.to_string()) }
    })
    .await;
    fires("ReseedReadersBusy", 8, &before, &samples(&node.server.address).await);
}

#[tokio::test]
async fn a_database_that_is_slow() {
    if !has_promtool() {
        return;
    }
    let (gate, through) = through_gate(&database().await).await;
    let node = Node::alone(&through, "a", &[LONG_LEASE]).await;
    let (mut client, _) = node.session().await;
    let before = samples(&node.server.address).await;
    gate.delay(SLOW);
    for number in 0..12 {
        let said = json!({ "customType": "t", "content": format!("number {number}"), "display": true });
        assert_eq!(client.ask("append_custom_message", said).await["type"], "ok");
    }
    fires("ReseedStoreSlow", 8, &before, &samples(&node.server.address).await);
}
