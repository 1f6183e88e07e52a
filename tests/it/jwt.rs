//! Users of an identity provider: as whom its tokens identify them, what they may do, and for how long.

use crate::support::{
    client::Client,
    http,
    issuer::{Issuer, after, claims},
    server::Server,
    talk::talker,
};
use serde_json::{Value, json};

const ADA: &str = "token-of-ada-4d1f9a73c2";
const SHOP: &str = "token-of-shop-c2ab5e01f7";

async fn start(issuer: &Issuer, more: &[(&str, &str)]) -> Server {
    Server::start(talker(5), &issuer.settings(more)).await
}

/// Says `hello`; returns the client with the reply.
async fn hello(server: &Server, credentials: Value) -> (Client, Value) {
    let mut client = Client::connect(&server.ws()).await;
    let mut payload = json!({ "protocolVersion": 2 });
    payload.as_object_mut().unwrap().extend(credentials.as_object().unwrap().clone());
    let reply = client.ask("hello", payload).await;
    (client, reply)
}

async fn connect(server: &Server, token: &str) -> Client {
    let (client, welcome) = hello(server, json!({ "token": token })).await;
    assert_eq!(welcome["type"], "welcome", "{welcome}");
    client
}

async fn new_session(client: &mut Client) -> Value {
    client.ask("open_session", json!({})).await["payload"]["sessionId"].clone()
}

/// Asks over HTTP with a token.
async fn call(server: &Server, method: &str, path: &str, token: &str, body: &str) -> http::Answered {
    let bearer = format!("Bearer {token}");
    http::send(&server.address(), method, path, &[("Authorization", &bearer)], body).await
}

#[tokio::test]
async fn a_signed_token_opens_its_user_s_sessions_in_every_way() {
    let issuer = Issuer::start().await;
    let server = start(&issuer, &[]).await;
    let token = issuer.sign(&claims(json!({})));
    let mut first = connect(&server, &token).await;
    let session = new_session(&mut first).await;
    first.turn("hello").await;

    let bearer = format!("Bearer {token}");
    let mut by_header = Client::connect_with(&server.ws(), &[("Authorization", &bearer)]).await;
    let welcome = by_header.ask("hello", json!({ "protocolVersion": 2 })).await;
    assert_eq!(welcome["payload"]["scopes"], json!(["sessions"]), "{welcome}");
    let ticket = call(&server, "POST", "/api/tickets", &token, "").await.json();
    let left = ticket["validForSecs"].as_u64().unwrap();
    assert!((500..=630).contains(&left), "no longer than the token: {ticket}");
    let (mut by_ticket, _) = hello(&server, json!({ "ticket": ticket["ticket"] })).await;
    for client in [&mut by_header, &mut by_ticket] {
        let entries = client.ask("get_entries", json!({ "sessionId": session })).await;
        assert_eq!(entries["type"], "entries", "{entries}");
    }
}

#[tokio::test]
async fn no_signed_name_is_another_s() {
    let issuer = Issuer::start().await;
    let tokens = [("AUTH_TOKENS", "ada:token-of-ada-4d1f9a73c2"), ("SERVICE_TOKENS", "shop:token-of-shop-c2ab5e01f7")];
    let server = start(&issuer, &tokens).await;
    let minted = call(&server, "POST", "/api/tickets", SHOP, &json!({ "principal": "17" }).to_string()).await.json();
    let (mut of_shop, _) = hello(&server, json!({ "ticket": minted["ticket"] })).await;
    let mut ada = connect(&server, ADA).await;
    let mut sessions = vec![new_session(&mut ada).await, new_session(&mut of_shop).await];
    for name in ["ada", "|ada", "17", "service:shop|17", "https://id.example|17"] {
        let mut signed = connect(&server, &issuer.sign(&claims(json!({ "sub": name })))).await;
        for session in &sessions {
            let refused = signed.ask("get_entries", json!({ "sessionId": session })).await;
            assert_eq!(refused["payload"]["code"], "session_not_found", "{name}: {refused}");
        }
        sessions.push(new_session(&mut signed).await);
        let listed = signed.ask("list_sessions", json!({})).await;
        assert_eq!(listed["payload"]["items"].as_array().unwrap().len(), 1, "{name}: {listed}");
    }
}

#[tokio::test]
async fn a_socket_does_not_outlive_its_token_unless_it_is_renewed() {
    let issuer = Issuer::start().await;
    let server = start(&issuer, &[("AUTH_JWT_LEEWAY_SECS", "0")]).await;
    let short = issuer.sign(&claims(json!({ "exp": after(4) })));
    let mut renewed = connect(&server, &short).await;
    let mut left = connect(&server, &short).await;
    let session = new_session(&mut renewed).await;
    let others = issuer.sign(&claims(json!({ "sub": "18" })));
    let refused = renewed.ask("authenticate", json!({ "token": others })).await;
    assert_eq!(refused["payload"]["code"], "forbidden", "{refused}");
    let expiring = renewed.event("token_expiring").await;
    assert!((1..=2_000).contains(&expiring["payload"]["expiresInMs"].as_u64().unwrap()), "{expiring}");
    let reply = renewed.ask("authenticate", json!({ "token": issuer.sign(&claims(json!({}))) })).await;
    assert_eq!(reply["type"], "ok", "{reply}");
    left.event("token_expiring").await;
    assert_eq!(left.closed().await, 4401);
    let entries = renewed.ask("get_entries", json!({ "sessionId": session })).await;
    assert_eq!(entries["type"], "entries", "{entries}");
}

#[tokio::test]
async fn scopes_come_from_a_claim() {
    let issuer = Issuer::start().await;
    let roles = [
        ("AUTH_JWT_SCOPES_CLAIM", "/access/roles"),
        ("AUTH_JWT_SCOPES", "u=sessions,r=read,o=operator,c=operator.content"),
    ];
    let server = start(&issuer, &roles).await;
    let token = |roles: &[&str]| issuer.sign(&claims(json!({ "access": { "roles": roles } })));
    let mut owner = connect(&server, &token(&["u"])).await;
    let session = new_session(&mut owner).await;
    owner.turn("hello").await;
    let tree = format!("/api/sessions/{}/tree", session.as_str().unwrap());
    let table: [(&[&str], Value, u16); 6] = [
        (&["u"], json!(["sessions"]), 401),
        (&["r", "other"], json!(["read"]), 401),
        (&["u", "o"], json!(["sessions", "operator"]), 200),
        (&["o"], json!("forbidden"), 200),
        (&["c"], json!("forbidden"), 200),
        (&[], json!("forbidden"), 401),
    ];
    for (roles, expected, status) in table {
        let (_, reply) = hello(&server, json!({ "token": token(roles) })).await;
        let payload = &reply["payload"];
        let got = if reply["type"] == "welcome" { &payload["scopes"] } else { &payload["code"] };
        assert_eq!(*got, expected, "{roles:?}: {reply}");
        for path in ["/metrics", "/api/sessions", &tree] {
            assert_eq!(call(&server, "GET", path, &token(roles), "").await.status, status, "{roles:?} {path}");
        }
    }
    let previews = async |role: &str| {
        let tree = call(&server, "GET", &tree, &token(&[role]), "").await.json();
        let previews: Vec<Value> =
            tree["nodes"].as_array().unwrap().iter().map(|node| node["preview"].clone()).collect();
        previews
    };
    assert!(previews("o").await.iter().all(|preview| preview == "" || preview.is_null()));
    assert!(previews("c").await.contains(&json!("hello")), "operator.content reads what was said");
}

#[tokio::test]
async fn a_new_key_is_fetched_when_a_token_names_it() {
    let issuer = Issuer::start().await;
    let server = start(&issuer, &[]).await;
    assert_eq!(issuer.asked(), 1);
    connect(&server, &issuer.sign(&claims(json!({})))).await;
    issuer.rotate();
    connect(&server, &issuer.sign(&claims(json!({})))).await;
    assert_eq!(issuer.asked(), 2);
}

#[tokio::test]
async fn keys_are_refreshed_in_the_background_and_kept_through_an_outage() {
    let issuer = Issuer::start().await;
    let server = start(&issuer, &[("AUTH_JWKS_REFRESH_SECS", "1")]).await;
    let token = issuer.sign(&claims(json!({})));
    let large = " ".repeat(300 * 1024);
    for answer in [(500, ""), (200, "{\"keys\":[]}"), (200, "<html>"), (200, large.as_str()), (302, "")] {
        issuer.answers(Some(answer));
        // When the second request arrives, the first answer has been read.
        issuer.asked_times(issuer.asked() + 2).await;
        connect(&server, &token).await;
    }
    issuer.rotate();
    issuer.answers(None);
    issuer.asked_times(issuer.asked() + 2).await;
    let (_, refused) = hello(&server, json!({ "token": token })).await;
    assert_eq!(refused["payload"]["code"], "unauthenticated", "its key is gone: {refused}");
    connect(&server, &issuer.sign(&claims(json!({})))).await;
}

#[tokio::test]
async fn a_provider_that_is_down_at_the_start_lets_nobody_in_until_it_is_back() {
    let issuer = Issuer::start().await;
    issuer.answers(Some((503, "")));
    let server = start(&issuer, &[("AUTH_JWKS_REFRESH_SECS", "1")]).await;
    let token = issuer.sign(&claims(json!({})));
    let (_, refused) = hello(&server, json!({ "token": token })).await;
    assert_eq!(refused["payload"]["code"], "unauthenticated", "{refused}");
    issuer.answers(None);
    issuer.asked_times(issuer.asked() + 2).await;
    connect(&server, &token).await;
}
