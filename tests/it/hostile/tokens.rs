//! Forged tokens: each is refused, costs little, and makes the identity provider work no more than once.

use crate::support::{
    client::Client,
    http,
    issuer::{Issuer, after, claims, part},
    server::Server,
    talk::talker,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::hmac;
use serde_json::json;

/// Returns the code of the answer to `hello`, and the close code.
async fn greeted(server: &Server, token: &str) -> (String, u16) {
    let mut client = Client::connect(&server.ws()).await;
    let reply = client.ask("hello", json!({ "protocolVersion": 2, "token": token })).await;
    (reply["payload"]["code"].as_str().unwrap_or("welcome").to_owned(), client.closed().await)
}

#[tokio::test]
async fn no_forged_token_opens_a_session() {
    let issuer = Issuer::start().await;
    let server =
        Server::start(talker(5), &issuer.settings(&[("OPERATOR_TOKENS", "ops:token-of-ops-77e3c0d8f4")])).await;
    let stranger = Issuer::start().await;
    let good = claims(json!({}));
    let none = |alg: &str| format!("{}.{}.", part(&json!({ "alg": alg, "kid": "key-1" })), part(&good));
    // The public key, used as the secret of a symmetric signature.
    let confused = |alg: &str| {
        let message = format!("{}.{}", part(&json!({ "alg": alg, "kid": "key-1" })), part(&good));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &issuer.public_key()), message.as_bytes());
        format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
    };
    let brought = json!({ "alg": "EdDSA", "jwk": { "kty": "OKP", "crv": "Ed25519", "x": part(&json!(1)) } });
    let signed = issuer.sign(&good);
    let (message, signature) = signed.rsplit_once('.').unwrap();
    let other_claims = part(&claims(json!({ "sub": "ada" })));
    let huge = issuer.sign(&claims(json!({ "groups": "x".repeat(9_000) })));
    let changed = |changes| issuer.sign(&claims(changes));
    let table = [
        ("not signed", none("none")),
        ("not signed, in capitals", none("NoNe")),
        ("its signature left out", format!("{message}.")),
        ("a public key as a secret", confused("HS256")),
        ("the same under another name", confused("EdDSA")),
        ("an algorithm of another key", issuer.sign_as(&json!({ "alg": "RS256", "kid": "key-1" }), &good)),
        ("an algorithm that is not listed", issuer.sign_as(&json!({ "alg": "ES256", "kid": "key-1" }), &good)),
        ("another's key under the same id", stranger.sign(&good)),
        ("a key that it brings along", stranger.sign_as(&brought, &good)),
        ("other claims", format!("{}.{other_claims}.{signature}", message.split_once('.').unwrap().0)),
        ("a foreign audience", changed(json!({ "aud": "mail" }))),
        ("no audience", changed(json!({ "aud": null }))),
        ("a foreign issuer", changed(json!({ "iss": "https://evil.example" }))),
        ("an issuer among others", changed(json!({ "iss": ["https://id.example", "https://evil.example"] }))),
        ("expired", changed(json!({ "exp": after(-31) }))),
        ("not valid yet", changed(json!({ "nbf": after(120) }))),
        ("never expiring", changed(json!({ "exp": null }))),
        ("an expiry that is text", changed(json!({ "exp": "9999999999" }))),
        ("no user", changed(json!({ "sub": null }))),
        ("a user that is a number", changed(json!({ "sub": 17 }))),
        ("a user with a line break", changed(json!({ "sub": "a\nb" }))),
        ("extensions", issuer.sign_as(&json!({ "alg": "EdDSA", "kid": "key-1", "crit": ["exp"] }), &good)),
        ("of another kind", issuer.sign_as(&json!({ "alg": "EdDSA", "kid": "key-1", "typ": "logout+jwt" }), &good)),
        ("huge", huge),
    ];
    for (what, token) in table {
        assert_eq!(greeted(&server, &token).await, ("unauthenticated".to_owned(), 4401), "{what}");
        let bearer = format!("Bearer {token}");
        let asked = http::ask(&server.address(), "POST", "/api/tickets", &[("Authorization", &bearer)]).await;
        assert_eq!(asked.status, 401, "{what}: {asked:?}");
        let read = http::ask(&server.address(), "GET", "/metrics", &[("Authorization", &bearer)]).await;
        assert_eq!(read.status, 401, "{what}: {read:?}");
    }
    let metrics = http::get_as(&server.address(), "/metrics", "token-of-ops-77e3c0d8f4").await;
    let refused =
        metrics.body.lines().find(|line| line.starts_with("reseed_limits_refused_total{limit=\"token_bytes\"}"));
    assert!(refused.is_some_and(|line| !line.ends_with(" 0")), "{refused:?}");
    let mut client = Client::connect(&server.ws()).await;
    let welcome = client.ask("hello", json!({ "protocolVersion": 2, "token": signed })).await;
    assert_eq!(welcome["type"], "welcome", "the good one: {welcome}");
}

#[tokio::test]
async fn unknown_keys_make_the_provider_work_once() {
    let issuer = Issuer::start().await;
    let server = Server::start(talker(5), &issuer.settings(&[])).await;
    let asked = issuer.asked();
    let one = async |number: usize| {
        let header = json!({ "alg": "EdDSA", "kid": format!("invented-{number}") });
        assert_eq!(greeted(&server, &issuer.sign_as(&header, &claims(json!({})))).await.1, 4401, "{number}");
    };
    futures_util::future::join_all((0..40).map(one)).await;
    assert_eq!(issuer.asked(), asked + 1);
    let mut client = Client::connect(&server.ws()).await;
    let signed = issuer.sign(&claims(json!({})));
    let welcome = client.ask("hello", json!({ "protocolVersion": 2, "token": signed })).await;
    assert_eq!(welcome["type"], "welcome", "known keys go on: {welcome}");
}
