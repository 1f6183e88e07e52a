//! An in-process webhook, and the file that lists it.

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};
use tokio::net::TcpListener;

/// A secret in the format of the specification.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

type Script = dyn Fn(&Value) -> (u16, Value) + Send + Sync;

/// The script, and the calls received.
type Asked = (Arc<Script>, Arc<Mutex<Vec<Value>>>);

/// A scripted webhook. It runs as long as the test's runtime.
pub(crate) struct Webhook {
    pub(crate) url: String,
    calls: Arc<Mutex<Vec<Value>>>,
}

impl Webhook {
    /// Answers each call with this status and value.
    pub(crate) async fn answering(script: impl Fn(&Value) -> (u16, Value) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?key=hunter2", listener.local_addr().unwrap());
        let calls: Arc<Mutex<Vec<Value>>> = Arc::default();
        let state: Asked = (Arc::new(script), calls.clone());
        let router = Router::new().route("/hook", post(asked)).with_state(state);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, calls }
    }

    /// Returns the calls received, in order.
    pub(crate) fn calls(&self) -> Vec<Value> {
        self.calls.lock().unwrap().clone()
    }
}

async fn asked(State((script, calls)): State<Asked>, Json(call): Json<Value>) -> (StatusCode, Json<Value>) {
    let (status, answer) = script(&call);
    calls.lock().unwrap().push(call);
    (StatusCode::from_u16(status).unwrap(), Json(answer))
}

/// Returns a hook for the file: called at this address for these events.
pub(crate) fn hook(name: &str, url: &str, events: Value) -> Value {
    json!({ "name": name, "url": url, "points": events, "secret": SECRET })
}

/// Writes a file with these hooks; returns the value for `HOOKS_FILE`.
pub(crate) fn file(folder: &Path, hooks: &[Value]) -> String {
    let file = folder.join("hooks.json");
    fs::write(&file, json!({ "hooks": hooks }).to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}
