//! An identity provider: it signs tokens with Ed25519, and serves its public keys as a JWK set.

use axum::{Router, body::Body, extract::State, http::StatusCode, response::Response, routing::get};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair as _},
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{net::TcpListener, sync::watch, time::timeout};

/// The issuer and the audience of its tokens.
pub(crate) const ISSUER: &str = "https://id.example";
pub(crate) const AUDIENCE: &str = "chat";

/// The time limit for a request of the server under test; only a failing test reaches it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The current key and its number, and the answer instead of the keys.
struct Serves {
    key: Ed25519KeyPair,
    number: u32,
    instead: Option<(StatusCode, String)>,
}

/// A running provider; it runs as long as the test's runtime.
pub(crate) struct Issuer {
    pub(crate) url: String,
    serves: Arc<Mutex<Serves>>,
    asked: watch::Receiver<usize>,
}

fn new_key() -> Ed25519KeyPair {
    let made = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    Ed25519KeyPair::from_pkcs8(made.as_ref()).unwrap()
}

/// Encodes a part of a token.
pub(crate) fn part(value: &Value) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(value.to_string())
}

/// Returns a time of day this many seconds from now.
pub(crate) fn after(secs: i64) -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64 + secs
}

/// Returns the claims of a token that is accepted, with these changes; `null` removes one.
pub(crate) fn claims(changes: Value) -> Value {
    let mut claims = json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": "17", "exp": after(600) });
    for (name, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
            value => claims[name] = value.clone(),
        }
    }
    claims
}

impl Issuer {
    /// Starts a provider with one key.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let serves = Arc::new(Mutex::new(Serves { key: new_key(), number: 1, instead: None }));
        let (count, asked) = watch::channel(0);
        let router = Router::new().route("/keys", get(keys)).with_state((serves.clone(), Arc::new(count)));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, serves, asked }
    }

    /// Returns the settings of a server that accepts its tokens, and these.
    pub(crate) fn settings<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let own = [("AUTH_JWKS_URL", self.url.as_str()), ("AUTH_JWT_ISSUER", ISSUER), ("AUTH_JWT_AUDIENCE", AUDIENCE)];
        [&own, more].concat()
    }

    /// Returns a token with these claims, signed with the current key.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let kid = format!("key-{}", self.serves.lock().unwrap().number);
        self.sign_as(&json!({ "alg": "EdDSA", "kid": kid }), claims)
    }

    /// Returns a token with this header.
    pub(crate) fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", part(header), part(claims));
        let signature = self.serves.lock().unwrap().key.sign(message.as_bytes());
        format!("{message}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    /// Returns the bytes of its public key.
    pub(crate) fn public_key(&self) -> Vec<u8> {
        self.serves.lock().unwrap().key.public_key().as_ref().to_vec()
    }

    /// Replaces its key by another with another id.
    pub(crate) fn rotate(&self) {
        let mut serves = self.serves.lock().unwrap();
        (serves.key, serves.number) = (new_key(), serves.number + 1);
    }

    /// Answers with this instead of the keys; `None` for the keys.
    pub(crate) fn answers(&self, instead: Option<(u16, &str)>) {
        let instead = instead.map(|(status, body)| (StatusCode::from_u16(status).unwrap(), body.to_owned()));
        self.serves.lock().unwrap().instead = instead;
    }

    /// Returns how often its keys were requested.
    pub(crate) fn asked(&self) -> usize {
        *self.asked.borrow()
    }

    /// Waits until its keys were requested this often.
    pub(crate) async fn asked_times(&self, count: usize) {
        let mut asked = self.asked.clone();
        timeout(PATIENCE, asked.wait_for(|asked| *asked >= count)).await.expect("its keys are asked for").unwrap();
    }
}

type Served = (Arc<Mutex<Serves>>, Arc<watch::Sender<usize>>);

async fn keys(State((serves, count)): State<Served>) -> Response {
    let (status, body) = {
        let serves = serves.lock().unwrap();
        let x = BASE64_URL_SAFE_NO_PAD.encode(serves.key.public_key());
        let kid = format!("key-{}", serves.number);
        let keys = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": kid, "use": "sig", "x": x }] });
        serves.instead.clone().unwrap_or((StatusCode::OK, keys.to_string()))
    };
    count.send_modify(|count| *count += 1);
    Response::builder().status(status).body(Body::from(body)).unwrap()
}
