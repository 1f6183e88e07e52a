//! JSON that can just be parsed on arrival, but not again as part of a stored record.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, server::Server, webhook};
use reseed::{
    core::hook::{HookFault, HookSpec},
    hooks::{Hook, on_session},
    store::{SessionStore, memory::MemoryStore},
};
use reseed_protocol::{
    Part,
    hooks::{HookAnswer, HookPoint},
    tree::AppendCustom,
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Depths of nesting. The server accepts those with `true`; a JSON reader by itself would accept all of them.
const DEPTHS: [(usize, bool); 5] = [(20, true), (60, false), (122, false), (124, false), (126, false)];

/// Returns lists in each other.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

/// Runs one turn on a server with this model and these hooks, and returns how it ended. The session must then open on
/// another server, and continue.
async fn turn(model: Scripted, hooks: Vec<Arc<dyn Hook>>, settings: &[(&str, &str)]) -> Value {
    let store: Arc<dyn SessionStore> = Arc::new(MemoryStore::new());
    let server = Server::over_with_hooks(model, store.clone(), hooks, settings).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let ended = client.turn("go on").await;
    client.hang_up();
    drop(server);
    let server = Server::over(Scripted::answering(|_| Reply::text("still here")), store, &[]).await;
    let mut client = Client::v2(&server.ws()).await;
    let reopened = client.ask("open_session", json!({ "sessionId": opened["sessionId"] })).await;
    assert_eq!(reopened["type"], "session_opened", "{reopened}");
    assert_eq!(client.turn("and again").await["status"], "completed");
    ended
}

/// Checks that the turn failed with this code, or ended well.
fn is_refused(ended: &Value, refused: bool, code: &str, what: &str) {
    let want = if refused { ("failed", Some(code)) } else { ("completed", None) };
    assert_eq!((ended["status"].as_str().unwrap(), ended["error"]["code"].as_str()), want, "{what}: {ended}");
}

#[tokio::test]
async fn a_webhooks_answer() {
    for (depth, fits) in DEPTHS {
        let answer = json!({ "entries": [{ "customType": "deep", "data": nested(depth) }] });
        let hook = webhook::Webhook::answering(move |_| (200, answer.clone())).await;
        let folder = tempfile::tempdir().unwrap();
        let deep = webhook::hook("deep", &hook.url, json!([{ "point": "before_agent_start", "required": true }]));
        let file = webhook::file(folder.path(), &[deep]);
        let ended = turn(Scripted::answering(|_| Reply::text("yes")), Vec::new(), &[("HOOKS_FILE", &file)]).await;
        is_refused(&ended, !fits, "hook_failed", &format!("{depth}"));
    }
}

#[tokio::test]
async fn what_a_hook_in_rust_appends() {
    for (depth, fits) in DEPTHS {
        let spec = HookSpec::new("deep", HookPoint::BeforeAgentStart);
        let hook = on_session([spec], move |_, session| async move {
            let custom = AppendCustom { custom_type: "deep".into(), data: nested(depth) };
            let fault = |error: reseed_protocol::ErrorBody| HookFault::failed(error.code.to_string());
            session.append_custom(custom).await.map_err(fault).map(|_| HookAnswer::default())
        });
        let ended = turn(Scripted::answering(|_| Reply::text("yes")), vec![hook], &[]).await;
        is_refused(&ended, !fits, "hook_failed", &format!("{depth}"));
        assert!(fits || ended["error"]["message"].as_str().unwrap().contains("too_deep"), "{ended}");
    }
}

#[tokio::test]
async fn what_a_model_wants_back() {
    for (depth, fits) in DEPTHS {
        let model = Scripted::answering(|_| Reply::text("yes"));
        let text = "thinking".to_owned();
        let reasoning = Part::Reasoning { text, payload: Some(nested(depth)) };
        model.push(Reply::parts(vec![reasoning, Part::Text { text: "thought".into() }]));
        let ended = turn(model, Vec::new(), &[]).await;
        is_refused(&ended, !fits, "upstream_malformed", &format!("{depth}"));
    }
}
