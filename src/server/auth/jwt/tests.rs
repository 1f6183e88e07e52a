//! Tests with tokens and keys made by PyJWT 2.15, one per algorithm, and which of their variations are refused.

use super::{Jwt, keys::KeySet};
use crate::{config::Settings, server::auth::Refusal};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{fs, path::Path, sync::Arc};

#[derive(Deserialize)]
struct Vector {
    algorithm: String,
    jwk: Value,
    pem: String,
    token: String,
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(include_str!("../../../../tests/fixtures/jwt/signed.json")).unwrap()
}

/// Returns a verifier with these keys.
async fn open(folder: &Path, keys: &str) -> anyhow::Result<Arc<Jwt>> {
    let file = folder.join("keys");
    fs::write(&file, keys).unwrap();
    let settings = Settings::from_iter([
        ("AUTH_JWT_KEY_FILE", file.to_str().unwrap()),
        ("AUTH_JWT_ISSUER", "https://id.example"),
        ("AUTH_JWT_AUDIENCE", "chat"),
    ]);
    Ok(Jwt::open(&settings.unwrap(), None).await?.expect("there are keys"))
}

/// Returns why a token is not accepted; empty if it is.
async fn refusal(jwt: &Jwt, token: &str) -> &'static str {
    jwt.verify(token).await.err().map_or("", Refusal::reason)
}

#[tokio::test]
async fn each_key_verifies_the_tokens_of_its_kind_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let all = vectors();
    for of in &all {
        for keys in [of.pem.clone(), json!({ "keys": [of.jwk] }).to_string()] {
            let jwt = open(folder.path(), &keys).await.unwrap();
            for token in &all {
                let why = refusal(&jwt, &token.token).await;
                // All tokens with RSA are signed with the same key.
                let is_of_key = token.pem == of.pem;
                assert_eq!(why.is_empty(), is_of_key, "{} by {}: {why}", token.algorithm, of.algorithm);
            }
        }
    }
    let everything = json!({ "keys": all.iter().map(|vector| &vector.jwk).collect::<Vec<_>>() }).to_string();
    let jwt = open(folder.path(), &everything).await.unwrap();
    for vector in &all {
        assert_eq!(refusal(&jwt, &vector.token).await, "", "{}", vector.algorithm);
        let (message, signature) = vector.token.rsplit_once('.').unwrap();
        let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
        bytes[7] ^= 1;
        let forged = format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(bytes));
        assert_eq!(refusal(&jwt, &forged).await, "the token's signature is wrong", "{}", vector.algorithm);
        assert_eq!(refusal(&jwt, &format!("{message}.")).await, "the token's signature is wrong");
    }
}

#[tokio::test]
async fn a_header_that_asks_for_something_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let all = vectors();
    let ed = all.iter().find(|vector| vector.algorithm == "EdDSA").unwrap();
    let jwt = open(folder.path(), &json!({ "keys": [ed.jwk] }).to_string()).await.unwrap();
    let (_, rest) = ed.token.split_once('.').unwrap();
    let kid = &ed.jwk["kid"];
    let table = [
        (json!({ "alg": "EdDSA", "kid": kid }), "the token's signature is wrong"),
        (json!({ "alg": "none" }), "the token's algorithm is unknown"),
        (json!({ "alg": "NONE" }), "the token's algorithm is unknown"),
        (json!({ "alg": "" }), "the token's algorithm is unknown"),
        (json!({}), "the token's algorithm is unknown"),
        (json!({ "alg": ["EdDSA"] }), "the token's algorithm is unknown"),
        (json!({ "alg": "HS256", "kid": kid }), "the token is signed with a shared secret"),
        (json!({ "alg": "HS512" }), "the token is signed with a shared secret"),
        (json!({ "alg": "ES256", "kid": kid }), "no known key fits"),
        (json!({ "alg": "EdDSA", "kid": kid, "crit": ["b64"], "b64": false }), "the token has extensions"),
        (json!({ "alg": "EdDSA", "kid": kid, "typ": "logout+jwt" }), "the token is of another kind"),
        (json!({ "alg": "EdDSA", "kid": kid, "typ": "application/AT+JWT" }), "the token's signature is wrong"),
        (json!({ "alg": "EdDSA", "kid": "other" }), "no known key fits"),
        (json!({ "alg": "EdDSA", "kid": 5 }), "the token's algorithm is unknown"),
    ];
    for (header, expected) in table {
        let token = format!("{}.{rest}", BASE64_URL_SAFE_NO_PAD.encode(header.to_string()));
        let why = refusal(&jwt, &token).await;
        assert!(why.starts_with(expected), "{header}: {why}");
    }
    for token in ["..", "a.b.c", "e30.e30.", "💥.💥.💥"] {
        assert!(!refusal(&jwt, token).await.is_empty(), "{token}");
    }
}

#[test]
fn keys_that_cannot_be_used_are_left_out_and_a_set_without_any_is_refused() {
    let all = vectors();
    let changed = |changes: Value| {
        let mut jwk = all[0].jwk.clone();
        jwk.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        jwk
    };
    let short = BASE64_URL_SAFE_NO_PAD.encode([0xc5; 128]);
    let long = BASE64_URL_SAFE_NO_PAD.encode([0xc5; 1024]);
    let table = [
        (changed(json!({})), 1),
        (changed(json!({ "use": "sig", "key_ops": ["verify"], "x5c": ["MII"] })), 1),
        (changed(json!({ "use": "enc" })), 0),
        (changed(json!({ "key_ops": ["encrypt"] })), 0),
        (changed(json!({ "kty": "oct", "k": "c2VjcmV0" })), 0),
        (changed(json!({ "n": short })), 0),
        (changed(json!({ "n": long })), 0),
        (changed(json!({ "n": "?" })), 0),
        (changed(json!({ "n": 5 })), 0),
        (json!({ "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA" }), 0),
        (json!({ "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA" }), 0),
        (json!({ "kty": "OKP", "crv": "Ed25519", "x": "AA" }), 0),
        (json!(null), 0),
    ];
    for (jwk, expected) in table {
        let found = KeySet::parse(json!({ "keys": [jwk] }).to_string().as_bytes());
        assert_eq!(found.map_or(0, |keys| keys.len()), expected, "{jwk}");
    }
    let many = json!({ "keys": vec![&all[0].jwk; 65] }).to_string();
    let private = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n";
    for (text, expected) in [
        ("", "it has no public key"),
        ("{}", "it is not a JWK set"),
        ("{\"keys\":[]}", "it has no public key"),
        ("sesame", "it has no public key"),
        (private, "it has a private key"),
        (&many, "it has 65 keys; at most 64 are allowed"),
    ] {
        let why = KeySet::parse(text.as_bytes()).map(|_| ()).unwrap_err();
        assert!(why.starts_with(expected), "{text}: {why}");
    }
    let few = ["RS256", "ES256", "EdDSA"].map(|name| all.iter().find(|vector| vector.algorithm == name).unwrap());
    let pems: String = few.iter().map(|vector| vector.pem.as_str()).collect();
    assert_eq!(KeySet::parse(pems.as_bytes()).unwrap().len(), few.len(), "a file may hold several");
}

#[tokio::test]
async fn a_key_is_used_only_with_the_algorithm_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let vector = &vectors()[0];
    for (algorithm, expected) in [("RS256", ""), ("PS256", "no known key fits the token")] {
        let mut jwk = vector.jwk.clone();
        jwk["alg"] = algorithm.into();
        let jwt = open(folder.path(), &json!({ "keys": [jwk] }).to_string()).await.unwrap();
        assert_eq!(refusal(&jwt, &vector.token).await, expected, "{algorithm}");
    }
}

#[tokio::test]
async fn the_key_that_a_token_names_is_tried_before_those_without_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let vector = vectors().into_iter().find(|vector| vector.algorithm == "RS256").unwrap();
    let header = vector.token.split('.').next().unwrap();
    let header: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(header).unwrap()).unwrap();
    let mut nameless = vector.jwk.clone();
    nameless.as_object_mut().unwrap().remove("kid");
    // Another modulus of the same length, which has signed none of the tokens.
    let mut modulus = BASE64_URL_SAFE_NO_PAD.decode(vector.jwk["n"].as_str().unwrap()).unwrap();
    modulus[9] ^= 1;
    nameless["n"] = BASE64_URL_SAFE_NO_PAD.encode(modulus).into();
    let mut named = vector.jwk.clone();
    named["kid"] = header["kid"].clone();
    let keys = json!({ "keys": [nameless, nameless, nameless, nameless, named] }).to_string();
    let jwt = open(folder.path(), &keys).await.unwrap();
    assert!(header["kid"].is_string(), "the token names its key");
    assert_eq!(refusal(&jwt, &vector.token).await, "");
    let error = open(folder.path(), &vector.pem.repeat(5)).await.unwrap_err().to_string();
    assert!(error.contains("it has 5 keys of one kind; at most 4 are tried"), "{error}");
}
