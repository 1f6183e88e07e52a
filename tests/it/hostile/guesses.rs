//! Someone who guesses tokens, and others who have good ones.

use super::shares::{ADA, server};
use crate::support::scripted::Scripted;
use crate::support::{client::Client, http, server::Server};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const WRONG: &str = "token-of-nobody-77aa19c3d0";

/// Documentation addresses (RFC 5737), as a trusted proxy reports them.
const GUESSER: &str = "203.0.113.5";
const OTHER: &str = "198.51.100.7";

async fn guarded() -> Server {
    let settings = [
        ("TRUSTED_PROXIES", "127.0.0.1"),
        ("WRONG_CREDENTIALS_PER_MINUTE", "3"),
        ("OPERATOR_TOKENS", "opal:token-of-opal-19f6d2c8b4"),
    ];
    server(Scripted::new(), &settings).await
}

/// Sends `hello` for this address. Returns the reply.
async fn hello(server: &Server, address: &str, token: &str) -> (Client, Value) {
    let mut client = Client::connect_with(&server.ws(), &[("X-Forwarded-For", address)]).await;
    let reply = client.ask("hello", json!({ "protocolVersion": 2, "token": token })).await;
    (client, reply)
}

fn is_refused(error: &Value) {
    assert_eq!(error["code"], "limit_reached", "{error}");
    assert_eq!(error["details"], json!({ "limit": "wrong_credentials_per_minute", "max": 3 }), "{error}");
    let wait = error["retryAfterMs"].as_u64().expect("when to come back");
    assert!((1..=60_000).contains(&wait), "{error}");
}

#[tokio::test]
async fn who_guesses_is_refused_and_good_credentials_of_the_same_address_are_not() {
    let server = guarded().await;
    for attempt in 0..6 {
        let (mut client, reply) = hello(&server, GUESSER, WRONG).await;
        match attempt {
            0..3 => assert_eq!(reply["payload"]["code"], "unauthenticated", "{reply}"),
            _ => is_refused(&reply["payload"]),
        }
        assert_eq!(client.closed().await, 4401);
    }
    // Only the proxy's own report of the client's address counts.
    let (_, reply) = hello(&server, &format!("{OTHER}, {GUESSER}"), WRONG).await;
    is_refused(&reply["payload"]);
    let (client, reply) = hello(&server, GUESSER, ADA).await;
    assert_eq!(reply["type"], "welcome", "{reply}");
    assert_eq!(hello(&server, OTHER, WRONG).await.1["payload"]["code"], "unauthenticated");
    drop(client);
}

#[tokio::test]
async fn who_guesses_over_http_is_refused_too() {
    let server = guarded().await;
    let (address, wrong) = (server.address(), format!("Bearer {WRONG}"));
    let ask = async |method: &str, path: &str, from: &str, token: Option<&str>| {
        let mut headers = vec![("X-Forwarded-For", from)];
        headers.extend(token.map(|token| ("Authorization", token)));
        http::ask(&address, method, path, &headers).await
    };
    let paths = [("POST", "/api/tickets"), ("GET", "/metrics"), ("GET", "/api/sessions")];
    for (method, path) in paths {
        assert_eq!(ask(method, path, GUESSER, Some(&wrong)).await.status, 401, "{path}");
    }
    for (method, path) in paths {
        let answered = ask(method, path, GUESSER, Some(&wrong)).await;
        assert_eq!(answered.status, 429, "{path}");
        assert!(answered.head.contains("retry-after:"), "{path}");
        is_refused(&answered.json());
        // A missing token is not a guess.
        assert_eq!(ask(method, path, GUESSER, None).await.status, 401, "{path}");
        assert_eq!(ask(method, path, OTHER, None).await.status, 401, "{path}");
    }
    let good = "Bearer token-of-opal-19f6d2c8b4";
    assert_eq!(ask("GET", "/metrics", GUESSER, Some(good)).await.status, 200);
    assert!(ask("GET", "/metrics", GUESSER, Some(good)).await.body.contains("limit=\"wrong_credentials_per_minute\""));
}

#[tokio::test]
async fn clients_behind_a_shared_address_do_not_pay_for_one_of_them() {
    let server = guarded().await;
    for shared in ["127.0.0.1", "10.1.2.3"] {
        for _ in 0..8 {
            let (_, reply) = hello(&server, shared, WRONG).await;
            assert_eq!(reply["payload"]["code"], "unauthenticated", "{shared}: {reply}");
        }
        let (_one, one) = hello(&server, shared, ADA).await;
        let (_two, two) = hello(&server, shared, ADA).await;
        assert_eq!([&one["type"], &two["type"]], ["welcome", "welcome"], "{shared}: no connections of an address");
    }
}

#[tokio::test]
async fn a_refused_guess_is_answered_as_slowly_as_others() {
    let server = guarded().await;
    for _ in 0..3 {
        hello(&server, GUESSER, WRONG).await;
    }
    let began = Instant::now();
    is_refused(&hello(&server, GUESSER, WRONG).await.1["payload"]);
    assert!(began.elapsed() >= Duration::from_secs(1), "an answer at once tells whoever guesses as much as a welcome");
}

#[tokio::test]
async fn who_is_known_guesses_no_others_credentials() {
    let server = guarded().await;
    let (mut client, reply) = hello(&server, GUESSER, ADA).await;
    assert_eq!(reply["type"], "welcome", "{reply}");
    for _ in 0..3 {
        let reply = client.ask("authenticate", json!({ "token": WRONG })).await;
        assert_eq!(reply["payload"]["code"], "unauthenticated", "{reply}");
    }
    is_refused(&client.ask("authenticate", json!({ "token": WRONG })).await["payload"]);
    assert_eq!(client.ask("authenticate", json!({ "token": ADA })).await["type"], "ok", "its own stay valid");
}
