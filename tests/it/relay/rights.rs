//! A client may do the same at every server. Also tests which servers may send commands to another on behalf of a
//! client.

use super::open;
use crate::support::{
    client::Client,
    cluster::{Node, TOKEN, database},
    gate::{self, Gate},
    http,
    polling::until,
};
use crate::tls::Wss;
use serde_json::{Value, json};

const ADA: &str = "token-of-ada-4f1c9a7be2d3";
const SHOP: &str = "token-of-shop-c2ab5e01f7";

const OPS: &str = "token-of-ops-77d01b3fae5c";

const USERS: [(&str, &str); 4] = [
    ("AUTH_TOKENS", "ada:token-of-ada-4f1c9a7be2d3"),
    ("SERVICE_TOKENS", "shop:token-of-shop-c2ab5e01f7"),
    ("OPERATOR_TOKENS", "ops:token-of-ops-77d01b3fae5c"),
    // It beats twice a second.
    ("NODE_LEASE_SECS", "2"),
];

pub(super) async fn greeted(node: &Node, credentials: Value) -> Client {
    let mut client = Client::connect(&node.server.ws()).await;
    let mut hello = credentials;
    hello["protocolVersion"] = json!(2);
    let welcome = client.ask("hello", hello).await;
    assert_eq!(welcome["type"], "welcome", "{welcome}");
    client
}

async fn ticket(node: &Node, wanted: Value) -> Value {
    let authorization = format!("Bearer {SHOP}");
    let headers = [("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    let minted = http::send(&node.server.address, "POST", "/api/tickets", &headers, &wanted.to_string()).await;
    assert_eq!(minted.status, 200, "{minted:?}");
    json!({ "ticket": minted.json()["ticket"] })
}

#[tokio::test]
async fn a_ticket_s_rights_travel_with_the_relay() {
    let database = database().await;
    let (a, b) = (Node::start(&database, "a", &USERS).await, Node::start(&database, "b", &USERS).await);
    let mut owner = greeted(&a, ticket(&a, json!({ "principal": "17" })).await).await;
    let opened = owner.ask("open_session", json!({})).await;
    let session = opened["payload"]["sessionId"].clone();
    let other = owner.ask("open_session", json!({})).await["payload"]["sessionId"].clone();
    // This ticket is bound to one session.
    let mut bound = greeted(&b, ticket(&b, json!({ "principal": "17", "sessionId": session })).await).await;
    open(&mut bound, &session).await;
    bound.turn("My cat is called Miso.").await;
    let refused = bound.ask("open_session", json!({ "sessionId": other })).await;
    assert_eq!(refused["payload"]["code"], "forbidden", "{refused}");
    let leaf = bound.ask("get_entries", json!({ "limit": 1 })).await["payload"]["leafId"].clone();
    let refused = bound.ask("fork_session", json!({ "entryId": leaf, "position": "at" })).await;
    assert_eq!(refused["payload"]["code"], "forbidden", "{refused}");
    // This ticket is only for reading.
    let mut reader = greeted(&b, ticket(&b, json!({ "principal": "17", "scopes": ["read"] })).await).await;
    assert_eq!(open(&mut reader, &session).await["role"], "observer");
    let refused = reader.ask("user_input", json!({ "input": "No." })).await;
    assert_eq!(refused["payload"]["code"], "read_only", "{refused}");
    // Another user does not learn that it exists.
    let mut stranger = greeted(&b, json!({ "token": ADA })).await;
    let refused = stranger.ask("open_session", json!({ "sessionId": session })).await;
    assert_eq!(refused["payload"]["code"], "session_not_found", "{refused}");
}

#[tokio::test]
async fn renewed_credentials_reach_the_holder() {
    let database = database().await;
    let (a, b) = (Node::start(&database, "a", &USERS).await, Node::start(&database, "b", &USERS).await);
    let mut owner = greeted(&a, ticket(&a, json!({ "principal": "17" })).await).await;
    let session = owner.ask("open_session", json!({})).await["payload"]["sessionId"].clone();
    let short = json!({ "principal": "17", "validForSecs": 4 });
    let mut renewed = greeted(&b, ticket(&b, short.clone()).await).await;
    let mut left = greeted(&b, ticket(&b, short).await).await;
    open(&mut renewed, &session).await;
    open(&mut left, &session).await;
    renewed.event("token_expiring").await;
    let fresh = ticket(&b, json!({ "principal": "17" })).await;
    assert_eq!(renewed.ask("authenticate", fresh).await["type"], "ok");
    assert_eq!(left.closed().await, 4401);
    // The holder has ended what was not renewed by then, and continues with what was.
    renewed.turn("My cat is called Miso.").await;
    assert_eq!(renewed.seen.iter().filter(|frame| frame["type"] == "token_expiring").count(), 1, "it is told once");
}

#[tokio::test]
async fn only_servers_with_the_secret_bring_clients() {
    let database = database().await;
    let a = Node::start(&database, "a", &[]).await;
    let stranger = [("NODE_TOKEN", "another-secret-of-more-than-32-characters")];
    let b = Node::start(&database, "b", &stranger).await;
    let (mut at_a, session) = a.session().await;
    let refused = b.client().await.ask("open_session", json!({ "sessionId": session })).await;
    assert_eq!(refused["payload"]["code"], "overloaded", "{refused}");
    assert!(b.log().contains("401 Unauthorized: NODE_TOKEN differs"), "{}", b.log());
    assert!(a.log().contains("not NODE_TOKEN"), "{}", a.log());
    at_a.turn("Hello!").await;
    let upgrade = [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ("Sec-WebSocket-Protocol", "reseed.node.v2"),
    ];
    let right = format!("Bearer {TOKEN}");
    let origin = format!("http://{}", a.server.address);
    let table: [(&[(&str, &str)], u16); 4] = [
        (&[], 401),
        (&[("Authorization", "Bearer wrong")], 401),
        (&[("Authorization", &right), ("Origin", &origin)], 403),
        (&[("Authorization", &right), ("Sec-WebSocket-Protocol", "reseed.v2")], 400),
    ];
    for (more, status) in table {
        let kept = upgrade.iter().filter(|(name, _)| !more.iter().any(|(other, _)| other == name));
        let headers: Vec<_> = kept.chain(more).copied().collect();
        let answered = http::ask(&a.server.address, "GET", "/internal/relay", &headers).await;
        assert_eq!(answered.status, status, "{more:?}: {answered:?}");
    }
    for node in [&a, &b] {
        assert!(!node.log().contains(TOKEN), "{}", node.log());
    }
    // A server that is alone has no such address.
    let folder = tempfile::tempdir().unwrap();
    let alone = crate::support::binary::Binary::start(folder.path(), &[]).await;
    let headers: Vec<_> = upgrade.into_iter().chain([("Authorization", right.as_str())]).collect();
    let answered = http::ask(&alone.address, "GET", "/internal/relay", &headers).await;
    assert_eq!(answered.status, 404, "{answered:?}");
}

#[tokio::test]
async fn a_ticket_is_used_at_another_server_once_and_withdrawn_at_any() {
    let database = database().await;
    let (a, b) = (Node::start(&database, "a", &USERS).await, Node::start(&database, "b", &USERS).await);
    let once = ticket(&a, json!({ "principal": "17", "scopes": ["read"] })).await;
    let mut reader = greeted(&b, once.clone()).await;
    assert_eq!(reader.seen[0]["payload"]["scopes"], json!(["read"]), "{:?}", reader.seen);
    let refused = reader.ask("open_session", json!({})).await;
    assert_eq!(refused["payload"]["code"], "read_only", "{refused}");
    let taken = ticket(&a, json!({ "principal": "17" })).await;
    let authorization = format!("Bearer {SHOP}");
    let headers = [("Authorization", authorization.as_str())];
    let revoked = http::ask(&b.server.address, "DELETE", "/api/principals/17", &headers).await;
    assert_eq!(revoked.json()["tickets"], 1, "{revoked:?}");
    for (node, given) in [(&a, &once), (&b, &once), (&a, &taken), (&b, &taken)] {
        let mut late = Client::connect(&node.server.ws()).await;
        let mut hello = given.clone();
        hello["protocolVersion"] = json!(2);
        let refused = late.ask("hello", hello).await;
        assert_eq!(refused["payload"]["code"], "unauthenticated", "{refused}");
    }
}

#[tokio::test]
async fn what_is_taken_back_at_one_server_ends_at_all() {
    let database = database().await;
    let (a, b) = (Node::start(&database, "a", &USERS).await, Node::start(&database, "b", &USERS).await);
    let mut at_a = greeted(&a, ticket(&a, json!({ "principal": "17" })).await).await;
    let mut at_b = greeted(&b, ticket(&b, json!({ "principal": "17" })).await).await;
    let session = at_a.ask("open_session", json!({})).await["payload"]["sessionId"].clone();
    open(&mut at_b, &session).await;
    let mut other = greeted(&b, ticket(&b, json!({ "principal": "18" })).await).await;
    let authorization = format!("Bearer {SHOP}");
    let headers = [("Authorization", authorization.as_str())];
    // A server learns of others with its beats.
    until("both know each other", async || {
        let lines = http::get_as(&a.server.address, "/metrics", OPS).await.body;
        if lines.contains("reseed_nodes{state=\"living\"} 2") { Ok(()) } else { Err(lines) }
    })
    .await;
    let revoked = http::ask(&a.server.address, "DELETE", "/api/principals/17", &headers).await;
    assert_eq!(revoked.json(), json!({ "tickets": 0, "sockets": 2 }));
    assert_eq!((at_a.closed().await, at_b.closed().await), (4403, 4403));
    assert_eq!(other.ask("ping", json!({})).await["type"], "pong");
    b.gate.close();
    let revoked = http::ask(&a.server.address, "DELETE", "/api/principals/18", &headers).await;
    assert_eq!(revoked.json(), json!({ "tickets": 0, "sockets": 0, "unanswered": ["b"] }));
    let refused = http::ask(&a.server.address, "POST", "/internal/revoke", &headers).await;
    assert_eq!(refused.status, 401, "{refused:?}");
}

#[tokio::test]
async fn servers_meet_over_tls_if_they_trust_the_certificate() {
    let (database, gate) = (database().await, Gate::with_tls().await);
    let address = format!("wss://localhost:{}", gate.address.port());
    let a = Node::behind(gate, &address, &database, "a", &[]).await;
    let authority = format!("{}/ca.pem", gate::TLS);
    let b = Node::start(&database, "b", &[("SSL_CERT_FILE", &authority)]).await;
    let c = Node::start(&database, "c", &[]).await;
    let (mut at_a, session) = a.session().await;
    let mut at_b = b.client().await;
    open(&mut at_b, &session).await;
    at_b.turn("My cat is called Miso.").await;
    at_a.event("turn_finished").await;
    let refused = c.client().await.ask("open_session", json!({ "sessionId": session })).await;
    assert_eq!(refused["payload"]["code"], "overloaded", "{refused}");
    assert!(c.log().contains("certificate"), "{}", c.log());
}

#[tokio::test]
async fn servers_meet_over_their_own_tls() {
    let (database, gate) = (database().await, Gate::new().await);
    let address = format!("wss://localhost:{}", gate.address.port());
    let [authority, certificate, key] =
        ["ca.pem", "server.pem", "server.key"].map(|name| format!("{}/{name}", gate::TLS));
    let files = [("TLS_CERT_FILE", &*certificate), ("TLS_KEY_FILE", &*key)];
    let a = Node::behind(gate, &address, &database, "a", &files).await;
    let b = Node::start(&database, "b", &[("SSL_CERT_FILE", &authority)]).await;
    let mut at_a = Wss::connect(&a.server.address, "ca.pem").await;
    at_a.ask("hello", json!({ "protocolVersion": 2 })).await;
    let opened = at_a.ask("open_session", json!({})).await;
    let mut at_b = b.client().await;
    open(&mut at_b, &opened["payload"]["sessionId"]).await;
    assert_eq!(at_b.turn("My cat is called Miso.").await["status"], "completed");
}
