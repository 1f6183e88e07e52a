//! Sessions in memory whose response never began: they are deleted at once.

use super::Door;
use crate::{
    support::{
        client::Client,
        scripted::{Reply, Scripted},
        server::Server,
        talk::words,
    },
    unstored::gone,
};
use futures_util::{SinkExt as _, StreamExt as _};
use reseed::{
    core::{
        hook::{HookFault, HookSpec},
        model::{ModelFault, Purpose},
    },
    hooks::on,
};
use reseed_protocol::{
    ErrorCode,
    hooks::{HookAnswer, HookCall, HookEvent, HookPoint},
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use tokio_tungstenite::tungstenite::Message;

#[tokio::test]
async fn a_session_in_memory_goes_with_a_request_that_fails() {
    let sessions = Arc::new(Mutex::new(Vec::new()));
    let seen = sessions.clone();
    // Learns the session of each input, and refuses some.
    let hook = on([HookSpec::new("inspect", HookPoint::Message)], move |call: HookCall| {
        seen.lock().unwrap().push(call.session_id.to_string());
        let is_refused =
            matches!(&call.event, HookEvent::Message { message, .. } if message.text().contains("refused"));
        async move { if is_refused { Err(HookFault::failed("no")) } else { Ok(HookAnswer::default()) } }
    });
    let model = Scripted::answering(|request| match request.purpose {
        Purpose::Turn => Reply::text("ok"),
        Purpose::Summary => Reply::fault(ModelFault::new(ErrorCode::UpstreamOverloaded, "no")),
    });
    let server = Server::with_hooks(model, vec![hook], &[]).await;
    let door = Door::of(&server);
    let mut page = Client::v2(&server.ws()).await;
    let stored = door.create(json!({ "input": "I am Ann." })).await;
    let conversation = door.ask("POST", "/v1/conversations", &json!({})).await.json()["id"].clone();
    door.create(json!({ "input": "Hello.", "conversation": conversation })).await;
    sessions.lock().unwrap().clear();

    let long = json!([
        { "role": "user", "content": words(1, 900) },
        { "role": "assistant", "content": "ok" },
        { "role": "user", "content": "Sum it up." },
    ]);
    let mut triggered = long.clone();
    triggered.as_array_mut().unwrap().push(json!({ "type": "compaction_trigger" }));
    let requests = [
        ("/v1/responses", json!({ "input": "refused", "store": false })),
        ("/v1/responses", json!({ "input": "refused", "store": false, "previous_response_id": stored["id"] })),
        ("/v1/responses", json!({ "input": triggered, "store": false })),
        ("/v1/responses/input_tokens", json!({ "input": "refused" })),
        ("/v1/responses/input_tokens", json!({ "input": "refused", "conversation": conversation })),
        ("/v1/responses/input_tokens", json!({ "input": "counted" })),
        ("/v1/responses/compact", json!({ "model": "scripted", "input": long })),
    ];
    for (path, body) in requests {
        let answer = door.ask("POST", path, &body).await;
        assert_eq!(answer.status == 200, body["input"] == "counted", "{path} {body}: {answer:?}");
        forgotten(&sessions, &mut page, &format!("{path} {body}")).await;
    }
    let url = format!("ws://{}/v1/responses", server.address());
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let frame = json!({ "type": "response.create", "input": "refused", "store": false });
    socket.send(Message::Text(frame.to_string().into())).await.unwrap();
    let Message::Text(text) = socket.next().await.unwrap().unwrap() else { panic!("no text") };
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["type"], "error");
    forgotten(&sessions, &mut page, "the socket").await;
}

/// Waits until the sessions that the hook has seen are deleted.
async fn forgotten(sessions: &Mutex<Vec<String>>, page: &mut Client, what: &str) {
    let seen = std::mem::take(&mut *sessions.lock().unwrap());
    assert!(!seen.is_empty(), "{what}");
    for session in seen {
        gone(page, &session).await;
    }
}
