//! Bad input at every address of the doors: an error in OpenAI's form with the right status, a server that goes on, and
//! conversations of others that nobody has touched.

mod fields;

use super::door::{Door, Lane};
use crate::support::{
    http::{self, Answered},
    scripted::{Reply, Scripted},
    server::Server,
};
use fields::{ADDRESSES, put, wrong_values};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest as _};

const TOKENS: (&str, &str) = ("AUTH_TOKENS", "ann:token-of-ann-16-chars,bob:token-of-bob-16-chars");
const ANN: Option<&str> = Some("token-of-ann-16-chars");
const BOB: Option<&str> = Some("token-of-bob-16-chars");

/// A server with a conversation of Ann's, and Bob, who attacks.
struct Attack {
    server: Server,
    ann: Door,
    bob: Door,
    /// What Ann said, and the ids of it.
    said: Value,
    response: String,
    conversation: String,
    item: String,
    /// A conversation of Bob's.
    own: String,
}

impl Attack {
    async fn new() -> Self {
        let server = Server::start(Scripted::answering(|_| Reply::text("ok")), &[TOKENS]).await;
        let ann = Door { address: server.address(), token: ANN };
        let bob = Door { address: server.address(), token: BOB };
        let conversation = ann.ask("POST", "/v1/conversations", &json!({})).await.json()["id"].clone();
        let response = ann.create(json!({ "input": "My secret.", "conversation": conversation })).await;
        let own = bob.ask("POST", "/v1/conversations", &json!({})).await.json()["id"].clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let conversation = text(&conversation);
        let said = ann.get(&format!("/v1/conversations/{conversation}/items")).await;
        let item = text(&said["data"][0]["id"]);
        Self { server, ann, bob, said, response: text(&response["id"]), conversation, item, own: text(&own) }
    }

    /// Checks that Ann's conversation is as it was, and that Bob is served.
    async fn nothing_has_happened(&self) {
        assert_eq!(self.ann.get(&format!("/v1/conversations/{}/items", self.conversation)).await, self.said);
        let again = self.bob.create(json!({ "input": "Still there?" })).await;
        assert_eq!(again["status"], "completed");
    }
}

/// Checks an error's form.
fn refused(answer: &Answered, status: u16, what: &str) -> Value {
    assert_eq!(answer.status, status, "{what}: {answer:?}");
    let error = answer.json()["error"].clone();
    let is_whole = error["message"].is_string() && error["type"].is_string();
    assert!(is_whole && error.get("param").is_some() && error.get("code").is_some(), "{what}: {error}");
    error
}

#[tokio::test]
async fn a_field_of_a_wrong_type_is_named() {
    let attack = Attack::new().await;
    let mut lane = Lane::open(&format!("ws://{}/v1/responses", attack.server.address()), BOB).await;
    let mut faults = Vec::new();
    for (address, body, fields) in ADDRESSES {
        let path = address.replace("{own}", &attack.own);
        for (field, types) in *fields {
            for value in wrong_values(types) {
                let mut body: Value = serde_json::from_str(body).unwrap();
                put(&mut body, field, value.clone());
                let answer = attack.bob.ask("POST", &path, &body).await;
                let error = &answer.json()["error"];
                let root = field.split('/').next().unwrap();
                let is_named = error["param"].as_str().is_some_and(|param| param.starts_with(root));
                if answer.status != 400 || !is_named || !error["message"].is_string() {
                    faults.push(format!("{address} {field} = {value}: {} {error}", answer.status));
                }
                if *address == "/v1/responses" && !["stream", "background"].contains(field) {
                    body["type"] = "response.create".into();
                    let event = lane.end_of(&body).await;
                    if event["type"] != "error" || event["status"] != 400 {
                        faults.push(format!("on a socket: {field} = {value}: {}", event["type"]));
                    }
                }
            }
        }
    }
    assert_eq!(faults, [""; 0]);
    let after = lane.end_of(&json!({ "type": "response.create", "input": "x" })).await;
    assert_eq!(after["type"], "response.completed", "the socket goes on");
    attack.nothing_has_happened().await;
}

#[tokio::test]
async fn what_belongs_to_another_user_is_not_there() {
    let attack = Attack::new().await;
    let Attack { response, conversation, item, .. } = &attack;
    let nobody = Door { address: attack.server.address(), token: None };
    let (of_response, of_conversation) =
        (format!("/v1/responses/{response}"), format!("/v1/conversations/{conversation}"));
    let table = [
        ("GET", of_response.clone(), Value::Null, 404),
        ("GET", format!("{of_response}?stream=true"), Value::Null, 404),
        ("GET", format!("{of_response}/input_items"), Value::Null, 404),
        ("POST", format!("{of_response}/cancel"), Value::Null, 404),
        ("DELETE", of_response.clone(), Value::Null, 404),
        ("GET", of_conversation.clone(), Value::Null, 404),
        ("POST", of_conversation.clone(), json!({ "metadata": { "a": "b" } }), 404),
        ("DELETE", of_conversation.clone(), Value::Null, 404),
        ("GET", format!("{of_conversation}/items"), Value::Null, 404),
        ("POST", format!("{of_conversation}/items"), json!({ "items": [{ "role": "user", "content": "x" }] }), 404),
        ("GET", format!("{of_conversation}/items/{item}"), Value::Null, 404),
        ("DELETE", format!("{of_conversation}/items/{item}"), Value::Null, 404),
        ("GET", format!("{of_conversation}/context"), Value::Null, 404),
        ("POST", format!("{of_conversation}/compact"), json!({}), 404),
        ("POST", format!("{of_conversation}/compact/preview"), json!({}), 404),
        ("POST", format!("{of_conversation}/undo_compaction"), json!({}), 404),
        ("GET", format!("{of_conversation}/branches"), Value::Null, 404),
        ("POST", format!("{of_conversation}/branches"), json!({ "id": item }), 404),
        ("POST", "/v1/responses".into(), json!({ "input": "x", "conversation": conversation }), 404),
        ("POST", "/v1/responses".into(), json!({ "input": "x", "previous_response_id": response }), 400),
        ("POST", "/v1/responses/input_tokens".into(), json!({ "input": "x", "conversation": conversation }), 404),
        ("POST", "/v1/responses/input_tokens".into(), json!({ "input": "x", "previous_response_id": response }), 400),
        ("POST", "/v1/responses/compact".into(), json!({ "model": "m", "previous_response_id": response }), 400),
    ];
    for (method, path, body, status) in &table {
        let what = format!("{method} {path} {body}");
        let foreign = refused(&attack.bob.ask(method, path, body).await, *status, &what);
        refused(&nobody.ask(method, path, body).await, 401, &what);
        // It differs in nothing from what does not exist.
        let unknown =
            |text: &str| text.replace(&conversation["conv_".len()..], "a22222222222222").replace(&**item, "msg_a_0");
        let body: Value = serde_json::from_str(&unknown(&body.to_string())).unwrap();
        let mut missing = refused(&attack.bob.ask(method, &unknown(path), &body).await, *status, &what);
        missing["message"] = foreign["message"].clone();
        assert_eq!(missing, foreign, "{what}");
    }
    let lane = &mut Lane::open(&format!("ws://{}/v1/responses", attack.server.address()), BOB).await;
    let frame = json!({ "type": "response.create", "input": "x", "previous_response_id": response });
    assert_eq!(lane.end_of(&frame).await["error"]["code"], "previous_response_not_found");
    lane.send(&json!({ "type": "response.steer", "input": "x", "previous_response_id": response })).await;
    assert_eq!(lane.until("response.steer.failed").await["error"]["code"], "response_not_active");
    attack.nothing_has_happened().await;
}

#[tokio::test]
async fn bodies_and_methods_that_cannot_be_used_are_refused() {
    let attack = Attack::new().await;
    let token = format!("Bearer {}", BOB.unwrap());
    let deep = format!("{}1{}", "[".repeat(20_000), "]".repeat(20_000));
    let large = |bytes: usize| format!(r#"{{"model":"scripted","input":"{}"}}"#, "x".repeat(bytes));
    let bodies: [(&[u8], &str, u16); 12] = [
        (b"{", "identity", 400),
        (b"", "identity", 400),
        (b"7", "identity", 400),
        (b"[]", "identity", 400),
        (b"\"words\"", "identity", 400),
        (b"{\"model\":\"\xff\"}", "identity", 400),
        (b"{\"model\":\"m\"} {}", "identity", 400),
        (deep.as_bytes(), "identity", 400),
        (&large(1_048_576).into_bytes(), "identity", 413),
        (&large(2_000_000).into_bytes(), "identity", 413),
        (b"{}", "br", 415),
        (b"{}", "gzip", 400),
    ];
    for (address, ..) in ADDRESSES {
        let path = address.replace("{own}", &attack.own);
        for (body, encoding, status) in bodies {
            // A conversation may be created, and compacted, without a body.
            if body.is_empty() && address.starts_with("/v1/conversations") {
                continue;
            }
            // Stateless clients send everything each time, up to 32 MiB.
            if status == 413 && *address == "/v1/chat/completions" {
                continue;
            }
            let headers = [("Authorization", token.as_str()), ("Content-Type", "application/json")];
            let headers = [&headers[..], &[("Content-Encoding", encoding)]].concat();
            let answer = http::send_bytes(&attack.bob.address, "POST", &path, &headers, body).await;
            let what = format!("{address} {:?} {encoding}", String::from_utf8_lossy(&body[..body.len().min(20)]));
            refused(&answer, status, &what);
        }
        for method in ["PUT", "PATCH"] {
            refused(&attack.bob.ask(method, &path, &json!({})).await, 405, address);
        }
    }
    // Within the limit of a request, and more than the window holds.
    let whole = attack.bob.ask("POST", "/v1/responses", &json!({ "input": "x ".repeat(500_000) })).await;
    assert_eq!(refused(&whole, 413, "1 MB")["code"], "input_too_large");
    for (method, path) in
        [("GET", "/v1/nothing"), ("POST", "/v1/responses/a/b/c"), ("DELETE", "/v1/conversations/a/b/c/d")]
    {
        refused(&attack.bob.ask(method, path, &Value::Null).await, 404, path);
    }
    for (method, path) in [("GET", "/v1/responses"), ("GET", "/v1/chat/completions"), ("POST", "/v1/models")] {
        let answer = attack.bob.ask(method, path, &Value::Null).await;
        refused(&answer, if path == "/v1/responses" { answer.status } else { 405 }, path);
        assert!((400..500).contains(&answer.status), "{answer:?}");
    }
    attack.nothing_has_happened().await;
}

#[tokio::test]
async fn a_compaction_that_was_changed_or_made_elsewhere_is_refused() {
    let attack = Attack::new().await;
    let own = json!({ "model": "scripted", "input": [{ "role": "user", "content": "I am Bob." }] });
    let made = attack.bob.ask("POST", "/v1/responses/compact", &own).await.json();
    let sealed = made["output"][0]["encrypted_content"].as_str().unwrap().to_owned();
    let elsewhere = Server::start(Scripted::answering(|_| Reply::text("ok")), &[("SEAL_KEY", &"7".repeat(64))]).await;
    let foreign = Door::of(&elsewhere).ask("POST", "/v1/responses/compact", &own).await.json();
    let foreign = foreign["output"][0]["encrypted_content"].as_str().unwrap().to_owned();
    let changed: Vec<String> = (0..sealed.len())
        .step_by(7)
        .map(|at| {
            let other = if sealed.as_bytes()[at] == b'A' { "B" } else { "A" };
            format!("{}{other}{}", &sealed[..at], &sealed[at + 1..])
        })
        .collect();
    let mut lane = Lane::open(&format!("ws://{}/v1/responses", attack.server.address()), BOB).await;
    let wrong = ["", "gAAAAABo-from-openai", &foreign, &sealed[1..], &sealed[..sealed.len() - 1]];
    for content in wrong.into_iter().chain(changed.iter().map(String::as_str)) {
        let items =
            json!([{ "type": "compaction", "encrypted_content": content }, { "role": "user", "content": "Who?" }]);
        let bodies = [
            ("/v1/responses", json!({ "input": items })),
            ("/v1/responses/input_tokens", json!({ "input": items })),
            ("/v1/responses/compact", json!({ "model": "scripted", "input": items })),
            ("/v1/conversations", json!({ "items": items })),
        ];
        for (path, body) in bodies {
            let error = refused(&attack.bob.ask("POST", path, &body).await, 400, content);
            assert_eq!((&error["code"], &error["param"]), (&json!("invalid_compaction"), &json!("input")), "{content}");
        }
        let event = lane.end_of(&json!({ "type": "response.create", "input": items })).await;
        assert_eq!(event["error"]["code"], "invalid_compaction", "{content}");
    }
    let items = json!([{ "type": "compaction", "encrypted_content": sealed }, { "role": "user", "content": "Who?" }]);
    assert_eq!(attack.bob.create(json!({ "input": items })).await["status"], "completed");
    attack.nothing_has_happened().await;
}

#[tokio::test]
async fn frames_that_cannot_be_used_end_at_most_their_own_socket() {
    let attack = Attack::new().await;
    let url = format!("ws://{}/v1/responses", attack.server.address());
    let mut lane = Lane::open(&url, BOB).await;
    for text in
        ["{", "", "7", "[]", "null", r#"{"type":7}"#, r#"{"type":"response.cancel"}"#, r#"{"type":"response.create"}"#]
    {
        lane.send_raw(text).await;
        let event = lane.until("error").await;
        assert!(event["error"]["message"].is_string() && event["status"] == 400, "{text}: {event}");
    }
    assert_eq!(lane.end_of(&json!({ "type": "response.create", "input": "x" })).await["type"], "response.completed");
    for (path, frame, codes) in [
        ("/v1/responses", Message::Binary(vec![7].into()), [1002, 1003]),
        ("/v1/responses", Message::Text("x".repeat(1_100_000).into()), [1002, 1009]),
        ("/ai", Message::Binary(vec![7].into()), [1008, 1003]),
        ("/ai", Message::Text("x".repeat(1_100_000).into()), [1008, 1009]),
        ("/ai", Message::Text("{".into()), [1008, 1008]),
        ("/ai", Message::Text(r#"{"type":"surprise"}"#.into()), [1008, 1008]),
    ] {
        let mut request = format!("ws://{}{path}", attack.server.address()).into_client_request().unwrap();
        let token = format!("Bearer {}", BOB.unwrap());
        request.headers_mut().insert("Authorization", token.parse().unwrap());
        let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        let shown = frame.to_string().chars().take(30).collect::<String>();
        let _ = socket.send(frame).await;
        let close = loop {
            match socket.next().await {
                Some(Ok(Message::Close(frame))) => break frame.map(|frame| u16::from(frame.code)),
                Some(Ok(_)) => {}
                // A socket that is ended in the middle of a frame may be reset.
                Some(Err(_)) | None => break None,
            }
        };
        assert!(close.is_none_or(|code| codes.contains(&code)), "{path} {shown}: {close:?}");
    }
    for wrong in [None, Some("token-of-nobody-16-chars")] {
        let mut request = url.as_str().into_client_request().unwrap();
        if let Some(token) = wrong {
            request.headers_mut().insert("Authorization", format!("Bearer {token}").parse().unwrap());
        }
        let refused = tokio_tungstenite::connect_async(request).await;
        assert!(refused.is_err_and(|error| error.to_string().contains("401")), "{wrong:?}");
    }
    attack.nothing_has_happened().await;
}
