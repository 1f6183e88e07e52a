//! A client that requests large replies and does not read them.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, http, server::Server};
use serde_json::json;

/// Each reply is larger than this. All of them together exceed the budget of a connection and what the kernel buffers.
const CONTEXT_BYTES: usize = 1_500_000;
const ASKED: usize = 40;

#[tokio::test]
async fn large_replies_that_nobody_reads_wait_within_a_budget() {
    let settings = [("CONTEXT_WINDOW", "10000000"), ("MESSAGE_BYTES_MAX", "4194304")];
    let server = Server::start(Scripted::answering(|_| Reply::text("Long.")), &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.turn(&"sea ".repeat(CONTEXT_BYTES / 4)).await["status"], "completed");
    let mut asked = Vec::new();
    for _ in 0..ASKED {
        asked.push(client.send("get_context", json!({})).await);
    }
    // At last it reads on. Every command has its reply: the context, or that there was no room for it.
    let (mut told, mut refused) = (0, 0);
    for id in &asked {
        let reply = client.until(|frame| frame["re"] == id.as_str()).await;
        if reply["type"] == "context" {
            told += 1;
            continue;
        }
        let payload = &reply["payload"];
        assert_eq!((&payload["code"], &payload["retriable"]), (&json!("limit_reached"), &json!(true)), "{payload}");
        assert_eq!(payload["details"], json!({ "limit": "reply_bytes", "max": 16 * 1024 * 1024 }));
        refused += 1;
    }
    assert!(told >= 2 && refused >= 1, "{told} told, {refused} refused");
    // Once it reads, it is answered again.
    assert_eq!(client.ask("get_context", json!({})).await["type"], "context");
    let metrics = http::get(&server.address(), "/metrics").await.body;
    assert!(!metrics.contains("reseed_limits_refused_total{limit=\"reply_bytes\"} 0\n"), "refusals are counted");
}
