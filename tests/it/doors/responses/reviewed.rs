//! Faults that a review of the door has found.

use super::{Door, function, last};
use crate::support::{
    client::Client,
    http,
    json::present,
    scripted::{Reply, Scripted},
    server::Server,
    talk::text_of,
};
use crate::unstored::{gone, is_on_disk};
use futures_util::{SinkExt as _, StreamExt as _};
use reseed::store::sqlite::SqliteStore;
use reseed_protocol::Part;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_tungstenite::tungstenite::Message;

fn kinds(response: &Value) -> Vec<&str> {
    response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_continuation_that_is_repeated_returns_the_same_response() {
    let model = Scripted::answering(|_| Reply::text("ok"));
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let headers = [("Content-Type", "application/json"), ("Idempotency-Key", "the-same-key-0001")];
    let one = door.create(json!({ "input": "one" })).await;
    let body = json!({ "input": "two", "previous_response_id": one["id"] }).to_string();
    let mut answers = Vec::new();
    for _ in 0..2 {
        let answer = http::send(&door.address, "POST", "/v1/responses", &headers, &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answers.push(answer.json());
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(model.requests().len(), 2, "the model is asked once for each input");
    let headers = [("Content-Type", "application/json"), ("Idempotency-Key", "the-same-key-0002")];
    let first = http::send(&door.address, "POST", "/v1/responses", &headers, r#"{"input":"new"}"#).await.json();
    let again = http::send(&door.address, "POST", "/v1/responses", &headers, r#"{"input":"new"}"#).await.json();
    assert_eq!(first, again, "a new session is made once");
}

#[tokio::test]
async fn a_call_that_the_server_answers_itself_is_not_the_clients() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let parameters = json!({ "type": "object", "properties": { "at": { "type": "string" } }, "required": ["at"] });
    let tool = json!({ "type": "function", "name": "look", "parameters": parameters });
    let call = |arguments: &str| Part::ToolCall {
        call_id: "call_0".parse().unwrap(),
        name: "look".into(),
        arguments: arguments.into(),
    };
    model.push(Reply::parts(vec![call(r#"{"at":1}"#)]));
    model.push(Reply::text("never mind"));
    let one = door.create(json!({ "input": "one", "tools": [tool] })).await;
    assert_eq!(kinds(&one), ["mcp_call", "message"], "{one}");
    assert_eq!(one["output"][0]["status"], "failed");
    model.push(Reply::parts(vec![call(r#"{"at":1}"#), call(r#"{"at":"sea"}"#)]));
    let two = door.create(json!({ "input": "two", "tools": [tool] })).await;
    assert_eq!(kinds(&two), ["mcp_call", "function_call"], "{two}");
    let path = format!("/v1/responses/{}", two["id"].as_str().unwrap());
    assert_eq!(door.get(&path).await, two);
}

#[tokio::test]
async fn sealed_reasoning_is_in_the_events_too() {
    let model = Scripted::new();
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let payload = json!({ "type": "reasoning", "summary": [], "encrypted_content": "sealed" });
    for text in ["", "thought"] {
        let reasoning = Part::Reasoning { text: text.into(), payload: Some(payload.clone()) };
        model.push(Reply::parts(vec![reasoning, Part::Text { text: "hello".into() }]));
        let events = door.stream("POST", "/v1/responses", &json!({ "input": "one", "stream": true })).await;
        let done =
            events.iter().filter(|event| event["type"] == "response.output_item.done").map(|event| &event["item"]);
        let sealed: Vec<&Value> = done.filter(|item| item["type"] == "reasoning").collect();
        assert_eq!(sealed.len(), 1, "{text:?}");
        assert_eq!(*present(&sealed[0]["encrypted_content"]), "sealed", "{text:?}");
        let output = &events.last().unwrap()["response"]["output"];
        for event in events.iter().filter(|event| event["type"] == "response.output_item.done") {
            let place = usize::try_from(event["output_index"].as_u64().unwrap()).unwrap();
            assert_eq!(*present(&event["item"]), output[place], "{text:?}");
        }
    }
}

#[tokio::test]
async fn system_messages_hold_for_the_conversation() {
    let model = Scripted::answering(|_| Reply::text("ok"));
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let items = json!([{ "role": "developer", "content": "Speak French." }, { "role": "user", "content": "Hi." }]);
    for items in [items, json!([{ "type": "message", "role": "developer", "content": "Speak French." }])] {
        let made = door.ask("POST", "/v1/conversations", &json!({ "items": items })).await;
        let id = made.json()["id"].clone();
        door.create(json!({ "input": "one", "conversation": id })).await;
        assert_eq!(last(&model).envelope.system.compiled, "Speak French.", "{items}");
        let input = json!([{ "role": "developer", "content": "Be exact." }, { "role": "user", "content": "x" }]);
        door.create(json!({ "input": input, "conversation": id, "instructions": "Once." })).await;
        assert_eq!(last(&model).envelope.system.compiled, "Once.\n\nSpeak French.\n\nBe exact.");
        door.create(json!({ "input": "again", "conversation": id })).await;
        assert_eq!(last(&model).envelope.system.compiled, "Speak French.\n\nBe exact.");
    }
}

#[tokio::test]
async fn what_others_have_said_is_not_deleted_or_summarised_with_a_response() {
    let model = Scripted::answering(|request| Reply::text(format!("re: {}", text_of(request).lines().last().unwrap())));
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let one = door.create(json!({ "input": "one" })).await;
    let session = one["id"].as_str().unwrap().split('_').nth(1).unwrap().to_owned();
    let mut page = Client::v2(&server.ws()).await;
    page.ask("open_session", json!({ "sessionId": session })).await;
    page.turn("From the page.").await;
    let path = format!("/v1/responses/{}", one["id"].as_str().unwrap());
    assert_eq!(door.ask("DELETE", &path, &Value::Null).await.status, 200);
    assert_eq!(page.ask("get_entries", json!({})).await["type"], "entries", "the page's session stays");

    let one = door.create(json!({ "input": "alpha" })).await;
    door.create(json!({ "input": "beta", "previous_response_id": one["id"] })).await;
    let body = json!({ "model": "test", "previous_response_id": one["id"] });
    let older = door.ask("POST", "/v1/responses/compact", &body).await;
    assert_eq!((older.status, &older.json()["error"]["param"]), (400, &json!("previous_response_id")));
    let count = async |page: &mut Client| {
        page.ask("list_sessions", json!({})).await["payload"]["items"].as_array().unwrap().len()
    };
    let before = count(&mut page).await;
    let made =
        door.ask("POST", "/v1/responses/compact", &json!({ "model": "scripted", "input": "a long story" })).await;
    assert_eq!(made.status, 200, "{made:?}");
    assert_eq!(count(&mut page).await, before, "nothing is left of a compaction of messages");
}

#[tokio::test]
async fn an_unstored_chain_on_a_socket_has_no_end_and_leaves_nothing() {
    let model = Scripted::answering(|_| Reply::text("ok"));
    let server = Server::start(model.clone(), &[]).await;
    let mut page = Client::v2(&server.ws()).await;
    let (mut socket, _) =
        tokio_tungstenite::connect_async(format!("ws://{}/v1/responses", server.address())).await.unwrap();
    let mut previous = Value::Null;
    // More than the server keeps: only the oldest can no longer be continued.
    for turn in 0..70 {
        let frame = json!({
            "type": "response.create", "input": format!("turn {turn}"), "store": false,
            "previous_response_id": previous,
        });
        socket.send(Message::Text(frame.to_string().into())).await.unwrap();
        previous = loop {
            let Message::Text(text) = socket.next().await.unwrap().unwrap() else { continue };
            let event: Value = serde_json::from_str(&text).unwrap();
            assert_ne!(*present(&event["type"]), "error", "turn {turn}: {event}");
            if event["type"] == "response.completed" {
                break event["response"]["id"].clone();
            }
        };
    }
    assert_eq!(text_of(&last(&model)).lines().next(), Some("turn 0"));
    let session = previous.as_str().unwrap().split('_').nth(1).unwrap().to_owned();
    socket.close(None).await.unwrap();
    gone(&mut page, &session).await;
}

#[tokio::test]
async fn what_is_not_to_be_stored_never_reaches_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let model = Scripted::answering(|_| Reply::text("heron-74"));
    let store = Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let server = Server::over(model.clone(), store, &[]).await;
    let door = Door::of(&server);
    let mut page = Client::v2(&server.ws()).await;
    let session = |response: &Value| response["id"].as_str().unwrap().split('_').nth(1).unwrap().to_owned();
    let one = door.create(json!({ "input": "heron-74", "store": false })).await;
    gone(&mut page, &session(&one)).await;
    door.stream("POST", "/v1/responses", &json!({ "input": "heron-74", "store": false, "stream": true })).await;
    let compacted = json!({ "model": "scripted", "input": "heron-74" });
    assert_eq!(door.ask("POST", "/v1/responses/compact", &compacted).await.status, 200);
    assert!(!is_on_disk(folder.path(), "heron-74"));

    // A stored conversation is known to what follows it, and is not changed by it.
    model.push(Reply::text("Hello, Ann."));
    let stored = door.create(json!({ "input": "I am Ann." })).await;
    let asked = json!({
        "input": "heron-74", "store": false, "previous_response_id": stored["id"],
        "tools": [{ "type": "function", "name": "dive", "parameters": { "type": "object" } }],
    });
    let beside = door.create(asked).await;
    assert_eq!(text_of(&last(&model)), "I am Ann.\nHello, Ann.\nheron-74");
    assert_eq!(last(&model).envelope.tools.len(), 1);
    gone(&mut page, &session(&beside)).await;
    assert!(!is_on_disk(folder.path(), "heron-74"));
    model.push(Reply::text("You are Ann."));
    door.create(json!({ "input": "Who?", "previous_response_id": stored["id"] })).await;
    assert_eq!(text_of(&last(&model)), "I am Ann.\nHello, Ann.\nWho?");
}

#[tokio::test]
async fn small_requests_that_were_refused() {
    let model = Scripted::answering(|_| Reply::text("ok"));
    let server = Server::start(model.clone(), &[]).await;
    let door = Door::of(&server);
    let one = door.create(json!({ "input": "one" })).await;
    door.create(json!({ "input": "two", "previous_response_id": one["id"] })).await;
    let stored = json!({ "input": "kept", "generate": false, "previous_response_id": one["id"] });
    let stored = door.create(stored).await;
    door.create(json!({ "input": "on", "previous_response_id": stored["id"] })).await;
    assert_eq!(text_of(&last(&model)), "one\nok\nkept\non");
    let path = format!("/v1/responses/{}?stream=maybe", one["id"].as_str().unwrap());
    let query = door.ask("GET", &path, &Value::Null).await;
    assert_eq!((query.status, &query.json()["error"]["type"]), (400, &json!("invalid_request_error")));
    for path in ["/v1/models/a/b", "/v1/models/a%2Fb"] {
        assert_eq!(door.ask("GET", path, &Value::Null).await.json()["error"]["code"], "model_not_found", "{path}");
    }
    let bare = json!({ "input": "x", "tools": [{ "type": "function", "name": "bare" }, function("look")] });
    door.create(bare).await;
    assert_eq!(last(&model).envelope.tools.len(), 2);
}
