//! A client at a server that does not hold its session.

use super::{CLIENT, outside::Outside, tree};
use crate::support::{
    client::Client,
    cluster::{LONG_LEASE, Node, database},
    polling::until,
};
use serde_json::json;

#[tokio::test]
async fn the_context_of_a_client_goes_along_to_the_holder() {
    let (outside, database) = (Outside::start().await, database().await);
    let endpoint = outside.url("");
    let settings = [LONG_LEASE, ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint), ("OTEL_BSP_SCHEDULE_DELAY", "50")];
    let holder = Node::start(&database, "a", &settings).await;
    let edge = Node::start(&database, "b", &settings).await;
    let (_at_holder, session) = holder.session().await;
    let mut client = Client::connect_with(&edge.server.ws(), &[("traceparent", CLIENT)]).await;
    client.ask("hello", json!({ "protocolVersion": 2 })).await;
    client.ask("open_session", json!({ "sessionId": session })).await;
    client.turn("Aye?").await;
    let expected = "relay open_session\nrelay user_input\nturn\n  chat offline\n";
    until("all spans are there", async || {
        let found = tree(&outside.spans(), &CLIENT[36..52], 0);
        if found == expected { Ok(()) } else { Err(found) }
    })
    .await;
    let log = edge.log();
    assert!(!log.contains("is not a setting"), "{log}");
}
