//! Levers of operators: what each does to a connected client, who may pull it, and that it happens once.

#[cfg(feature = "postgres")]
mod nodes;
mod retention;
mod rights;
mod users;

use crate::support::{
    client::Client,
    http::{self, Answered},
    json::{present, whole},
    scripted::{Gate, Reply, Scripted},
    server::Server,
    talk::{facts, summaries, summary, text_of, words},
};
use reseed::core::model::Purpose;
use serde_json::{Value, json};

pub(crate) const ANN: &str = "token-of-ann-0123456789";
pub(crate) const BOB: &str = "token-of-bob-0123456789";
pub(crate) const READER: &str = "token-of-reader-0123456789";
pub(crate) const WRITER: &str = "token-of-writer-0123456789";

pub(crate) const SETTINGS: [(&str, &str); 3] = [
    ("AUTH_TOKENS", "ann-of-the-harbour:token-of-ann-0123456789,bob:token-of-bob-0123456789"),
    ("OPERATOR_TOKENS", "reader:token-of-reader-0123456789,writer/write:token-of-writer-0123456789"),
    ("CONTEXT_STRATEGY", "manual"),
];

/// Sends a request of the operator who may write.
pub(crate) async fn pull(address: &str, method: &str, path: &str, body: &str) -> Answered {
    pull_as(address, method, path, &[("Authorization", &format!("Bearer {WRITER}"))], body).await
}

/// Sends a request with a key.
pub(crate) async fn pull_once(address: &str, method: &str, path: &str, body: &str, key: &str) -> Answered {
    let bearer = format!("Bearer {WRITER}");
    pull_as(address, method, path, &[("Authorization", &bearer), ("Idempotency-Key", key)], body).await
}

async fn pull_as(address: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answered {
    http::send(address, method, path, headers, body).await
}

/// Returns a user's client with a session, and the session's id.
pub(crate) async fn session_of(ws: &str, token: &str, open: Value) -> (Client, String) {
    let mut client = Client::connect(ws).await;
    let welcome = client.ask("hello", json!({ "protocolVersion": 2, "token": token })).await;
    assert_eq!(welcome["type"], "welcome", "{welcome}");
    let opened = client.ask("open_session", open).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    let session = present(&opened["payload"]["sessionId"]).as_str().unwrap().to_owned();
    (client, session)
}

/// Returns a user's client with a name of its own.
async fn greeted(ws: &str, token: &str, client_id: &str) -> Client {
    let mut client = Client::connect(ws).await;
    let hello = json!({ "protocolVersion": 2, "token": token, "clientId": client_id });
    assert_eq!(client.ask("hello", hello).await["type"], "welcome");
    client
}

/// Returns a model whose turn hangs after the input `hold`.
fn model() -> Scripted {
    let mut asked = 0;
    Scripted::answering(move |request| {
        asked += 1;
        match request.purpose {
            Purpose::Summary => Reply::text(summary(&facts(&text_of(request)))),
            Purpose::Turn if text_of(request).ends_with("hold") => Reply::text("a beginning").held_by(&Gate::new()),
            Purpose::Turn => Reply::text(words(asked, 60)),
        }
    })
}

#[tokio::test]
async fn each_lever_does_what_a_client_can_do() {
    let model = model();
    let server = Server::start(model.clone(), &SETTINGS).await;
    let (address, ws) = (server.address(), server.ws());
    let (mut ann, session) = session_of(&ws, ANN, json!({})).await;
    for number in 0..6 {
        ann.turn(&words(number, 60)).await;
    }
    let at = |lever: &str| format!("/api/sessions/{session}/{lever}");

    let preview = pull(&address, "POST", &at("preview"), "").await;
    assert_eq!(preview.status, 200, "{preview:?}");
    let shown = preview.json();
    assert!(whole(&shown["tokensAfter"]) < whole(&shown["tokensBefore"]), "{shown}");
    assert!(shown.get("summary").is_none() && shown.get("previewId").is_none(), "{shown}");

    let compact = async |body: &str| pull_once(&address, "POST", &at("compact"), body, "a-key-of-16-chars").await;
    let started = compact(r#"{ "instructions": "Be brief." }"#).await;
    assert_eq!(started.status, 202, "{started:?}");
    let compacted = ann.event("context_compacted").await;
    assert_eq!(present(&compacted["payload"]["jobId"]), present(&started.json()["jobId"]), "{compacted}");
    let made = summaries(&model.requests());
    let again = compact(r#"{ "instructions": "Be brief." }"#).await;
    assert_eq!((again.status, again.json()), (202, started.json()), "the same answer");
    assert_eq!(compact(r#"{ "instructions": "Be long." }"#).await.status, 409, "the key has another body");
    assert_eq!(summaries(&model.requests()), made, "it happened once");

    let undone = pull(&address, "POST", &at("undo"), "").await;
    assert_eq!(undone.status, 200, "{undone:?}");
    ann.event("compaction_undone").await;
    let nothing = pull(&address, "POST", &at("undo"), "").await;
    assert_eq!((nothing.status, &nothing.json()["code"]), (409, &json!("nothing_to_undo")), "{nothing:?}");

    let idle = pull(&address, "POST", &at("cancel"), "").await;
    assert_eq!((idle.status, &idle.json()["code"]), (409, &json!("no_turn")), "{idle:?}");
    ann.ask("user_input", json!({ "input": "hold" })).await;
    ann.event("turn_started").await;
    let cancelled = pull(&address, "POST", &at("cancel"), r#"{ "what": "turn" }"#).await;
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    assert_eq!(ann.event("turn_finished").await["payload"]["status"], "cancelled");

    let closed = pull(&address, "POST", &at("close"), "").await;
    assert_eq!((closed.status, closed.json()), (200, json!({ "sockets": 1 })));
    let told = ann.event("session_closed").await;
    assert_eq!((&told["payload"]["code"], &told["payload"]["retriable"]), (&json!("failed"), &json!(true)), "{told}");
    let nobody = pull(&address, "POST", &at("close"), "").await;
    assert_eq!((nobody.status, nobody.json()), (200, json!({ "sockets": 0 })));
    ann.ask("open_session", json!({ "sessionId": session })).await;
    ann.turn("It goes on.").await;

    let path = format!("/api/sessions/{session}");
    let delete = async || pull_once(&address, "DELETE", &path, "", "another-key-of-16-chars").await;
    let deleted = delete().await;
    assert_eq!((deleted.status, deleted.json()), (200, json!({ "sessionId": session })));
    assert_eq!(ann.event("session_closed").await["payload"]["code"], "deleted");
    assert_eq!(delete().await.status, 200, "the same answer");
    let gone = pull(&address, "DELETE", &path, "").await;
    assert_eq!((gone.status, &gone.json()["code"]), (404, &json!("session_not_found")), "{gone:?}");
    server.service.stop().await;
}

#[tokio::test]
async fn a_lever_takes_nothing_from_the_owners_clients() {
    let model = model();
    let server = Server::start(model.clone(), &SETTINGS).await;
    let look = json!([{ "name": "look", "description": "Looks.", "parameters": { "type": "object" } }]);
    let mut host = greeted(&server.ws(), ANN, "ann-at-home").await;
    let opened = host.ask("open_session", json!({ "tools": look })).await;
    let session = present(&opened["payload"]["sessionId"]).as_str().unwrap().to_owned();
    for number in 0..6 {
        host.turn(&words(number, 60)).await;
    }
    let compact = format!("/api/sessions/{session}/compact");
    assert_eq!(pull(&server.address(), "POST", &compact, "").await.status, 202);
    host.event("context_compacted").await;
    let joined = host.event("presence_changed").await;
    let connection = &joined["payload"]["connection"];
    assert_eq!((&connection["role"], connection.get("offers")), (&json!("observer"), None), "{joined}");
    assert_eq!(present(&connection["client"]["name"]), "operator", "{joined}");
    // A writer beside a host that is away would end its hosting.
    host.hang_up();
    assert_eq!(pull(&server.address(), "POST", &format!("/api/sessions/{session}/undo"), "").await.status, 200);
    let mut back = greeted(&server.ws(), ANN, "ann-at-home").await;
    back.ask("open_session", json!({ "sessionId": session })).await;
    back.turn("Are my tools there?").await;
    let last = model.requests().pop().unwrap();
    assert!(format!("{last:?}").contains("Looks."), "{last:?}");
    server.service.stop().await;
}

#[tokio::test]
async fn a_server_is_drained_over_http() {
    let server = Server::start(model(), &SETTINGS).await;
    let unknown = pull(&server.address(), "POST", "/api/drain", r#"{ "node": "b" }"#).await;
    assert_eq!((unknown.status, &unknown.json()["code"]), (400, &json!("invalid_field")), "{unknown:?}");
    let drained = pull(&server.address(), "POST", "/api/drain", "").await;
    assert_eq!((drained.status, &drained.json()["state"]), (202, &json!("draining")), "{drained:?}");
    server.service.asked_to_stop().await;
    server.service.stop().await;
}
