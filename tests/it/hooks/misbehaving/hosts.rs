//! The same hook in three places: in Rust, as a webhook, and at a client. It misbehaves in one session only.

use super::super::client::joined;
use crate::support::scripted::Scripted;
use crate::support::{client::Client, server::Server, webhook};
use axum::{
    Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::post,
};
use reseed::{
    core::hook::{HookFault, HookSpec},
    hooks::{Hook, on},
};
use reseed_protocol::hooks::{HookCall, HookOffer};
use serde_json::{Value, json};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

/// The hook's name.
pub(super) const NAME: &str = "trouble";

/// The host of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Host {
    Rust,
    Webhook,
    Client,
}

/// The hook's action in the session where it misbehaves.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Act {
    /// Answers this.
    Says(Value),
    /// Sends this text instead of a webhook's answer.
    Sends(&'static str),
    /// Never answers.
    Hangs,
    /// Fails: a panic, an HTTP error, a lost connection.
    Breaks,
}

impl Act {
    fn nothing() -> Self {
        Self::Says(json!({}))
    }
}

/// The session in which the hook does what, and the number of its calls there.
struct Role {
    session: Mutex<String>,
    act: Mutex<Act>,
    asked: AtomicUsize,
}

impl Role {
    /// Returns what to do about this call.
    fn at(&self, session: &str) -> Act {
        if *self.session.lock().unwrap() != session {
            return Act::nothing();
        }
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.act.lock().unwrap().clone()
    }
}

/// A server with the hook, a session in which it misbehaves, and another one.
pub(super) struct Scene {
    pub(super) server: Server,
    pub(super) model: Scripted,
    /// The affected session.
    pub(super) client: Client,
    /// An observer of it.
    pub(super) watcher: Client,
    pub(super) session: Value,
    /// Another session.
    pub(super) other: Client,
    host: Host,
    role: Arc<Role>,
}

impl Scene {
    /// Builds the scene. `events`: the events of the hook, as in an offer without the name.
    pub(super) async fn set(host: Host, events: &[Value], act: Act, model: &Scripted) -> Self {
        let role = Arc::new(Role { session: Mutex::default(), act: Mutex::new(act), asked: AtomicUsize::new(0) });
        // A client that fails is waited for no longer than the shortest time that can be set.
        let settings = [("CONTEXT_WINDOW", "8000"), ("HOOK_AWAY_SECS", "1")];
        let mut open = json!({});
        let server = match host {
            Host::Rust => Server::with_hooks(model.clone(), vec![in_rust(events, role.clone())], &settings).await,
            Host::Webhook => {
                let folder = tempfile::tempdir().unwrap();
                let url = served(role.clone()).await;
                let file = webhook::file(folder.path(), &[webhook::hook(NAME, &url, json!(events))]);
                Server::start(model.clone(), &[&settings[..], &[("HOOKS_FILE", &file)]].concat()).await
            }
            Host::Client => {
                open["hooks"] = events.iter().map(offer).collect();
                Server::start(model.clone(), &settings).await
            }
        };
        let (client, session) = joined(&server, "suffers", open).await;
        let session = session["sessionId"].clone();
        *role.session.lock().unwrap() = session.as_str().unwrap().to_owned();
        let watching = json!({ "sessionId": session, "role": "observer" });
        let (watcher, _) = joined(&server, "watches", watching).await;
        let (other, _) = joined(&server, "thrives", json!({})).await;
        Self { server, model: model.clone(), client, watcher, session, other, host, role }
    }

    /// Changes what the hook does.
    pub(super) fn now(&self, act: Act) {
        *self.role.act.lock().unwrap() = act;
    }

    /// Returns the number of calls for the session.
    pub(super) fn asked(&self) -> usize {
        self.role.asked.load(Ordering::Relaxed)
    }

    /// Says something in the session and waits for the end of the turn.
    pub(super) async fn turn(&mut self, text: &str) -> Value {
        self.begin(text).await;
        self.end().await
    }

    pub(super) async fn begin(&mut self, text: &str) {
        // A hook at the client may be called before the input is accepted.
        self.client.send("user_input", json!({ "input": text })).await;
    }

    /// Waits for the end of the turn; plays the client's hook, and the tool that it offers, meanwhile.
    pub(super) async fn end(&mut self) -> Value {
        loop {
            let frame = self.client.next_frame().await.expect("the server does not hang up");
            match frame["type"].as_str().unwrap() {
                "turn_finished" => break,
                "tool_call" => {
                    let result = json!({ "toolCallId": frame["payload"]["toolCallId"], "output": "a cat" });
                    self.client.send("tool_result", result).await;
                }
                "hook_call" => match self.role.at(self.session.as_str().unwrap()) {
                    Act::Says(mut answer) => {
                        answer["hookCallId"] = frame["payload"]["hookCallId"].clone();
                        self.client.send("hook_result", answer).await;
                    }
                    Act::Sends(_) | Act::Hangs => {}
                    Act::Breaks => {
                        let (gone, _) = joined(&self.server, "is-away", json!({})).await;
                        std::mem::replace(&mut self.client, gone).hang_up();
                        break;
                    }
                },
                _ => {}
            }
        }
        self.watcher.event("turn_finished").await["payload"].clone()
    }

    /// Reconnects the client if it was gone.
    pub(super) async fn back(&mut self) {
        if self.host == Host::Client {
            let open = json!({ "sessionId": self.session });
            (self.client, _) = joined(&self.server, "suffers", open).await;
        }
    }
}

fn offer(event: &Value) -> Value {
    let mut offer = event.clone();
    offer["name"] = json!(NAME);
    offer
}

fn in_rust(events: &[Value], role: Arc<Role>) -> Arc<dyn Hook> {
    let spec = |event: &Value| {
        let offer: HookOffer = serde_json::from_value(event.clone()).unwrap();
        HookSpec {
            reasons: offer.reasons.unwrap_or_default(),
            timeout_ms: offer.timeout_ms,
            observe: offer.observe.unwrap_or(false),
            required: offer.required.unwrap_or(true),
            ..HookSpec::new(NAME, offer.point)
        }
    };
    let specs: Vec<HookSpec> = events.iter().map(spec).collect();
    on(specs, move |call: HookCall| {
        let act = role.at(call.session_id.as_str());
        async move {
            match act {
                Act::Says(answer) => {
                    serde_json::from_value(answer).map_err(|_| HookFault::failed("it cannot say such a thing"))
                }
                Act::Sends(_) => unreachable!("only webhooks send texts"),
                Act::Hangs => std::future::pending().await,
                Act::Breaks => panic!("the hook breaks down, as it should"),
            }
        }
    })
}

async fn served(role: Arc<Role>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new().route("/", post(answered)).with_state(role);
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

async fn answered(State(role): State<Arc<Role>>, call: axum::Json<Value>) -> Response {
    let json = [("content-type", "application/json")];
    match role.at(call["sessionId"].as_str().unwrap()) {
        Act::Says(answer) => (json, answer.to_string()).into_response(),
        Act::Sends(text) => (json, text).into_response(),
        Act::Hangs => std::future::pending().await,
        Act::Breaks => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
