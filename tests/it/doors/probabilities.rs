//! Probabilities of tokens: from a model server, through the session, to a client of Chat Completions.

use crate::{
    support::{
        http,
        server::Server,
        upstream::{Reply, Step, Upstream},
    },
    unstored::is_on_disk,
};
use reseed::{core::hook::HookSpec, hooks::on, provider::openai::ApiChoice, store::sqlite::SqliteStore};
use reseed_protocol::{
    Message, Part, Role,
    hooks::{HookAnswer, HookCall, HookEvent, HookPoint},
};
use serde_json::{Value, json};
use std::sync::Arc;

const PATH: &str = "/v1/chat/completions";

fn token(text: &str) -> Value {
    json!({ "token": text, "logprob": -0.5, "bytes": null, "top_logprobs": [{ "token": "x", "logprob": -3.0, "bytes": null }] })
}

#[tokio::test]
async fn probabilities_are_passed_through_whole_and_in_a_stream() {
    let event = |delta: Value, token: Option<Value>, end: Option<&str>| {
        let logprobs = token.map(|token| json!({ "content": [token], "refusal": null }));
        let choice = json!({ "index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": end });
        format!("data: {}\n\n", json!({ "object": "chat.completion.chunk", "choices": [choice] }))
    };
    let body = [
        event(json!({ "content": "Aye" }), Some(token("Aye")), None),
        event(json!({ "content": "." }), Some(token(".")), None),
        event(json!({}), None, Some("stop")),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n", body.len());
    let reply = || Reply::Raw(vec![Step::Bytes((head.clone() + &body).into_bytes())]);
    let upstream = Upstream::replying([reply(), reply(), reply(), reply()]).await;
    let provider = crate::provider::provider(&upstream, ApiChoice::Chat);
    let server = Server::start(provider, &[]).await;
    let headers = [("Content-Type", "application/json")];
    let asked = |fields: Value| {
        let mut body = json!({ "model": "test-model", "messages": [{ "role": "user", "content": "Aye?" }] });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body.to_string()
    };
    let wanted = json!({ "logprobs": true, "top_logprobs": 1 });
    let expected = json!([token("Aye"), token(".")]);
    let whole = http::send(&server.address(), "POST", PATH, &headers, &asked(wanted)).await.json();
    assert_eq!(whole["choices"][0]["logprobs"]["content"], expected, "{whole}");
    let streamed = asked(json!({ "logprobs": true, "stream": true }));
    let chunks = http::events(&server.address(), "POST", PATH, &headers, &streamed).await;
    let found: Vec<&Value> =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array()).flatten().collect();
    assert_eq!(json!(found), expected, "{chunks:?}");
    let without = http::send(&server.address(), "POST", PATH, &headers, &asked(json!({}))).await.json();
    assert_eq!(without["choices"][0]["message"]["content"], "Aye.");
    // An answer with probabilities is no input: a repeated request finds it.
    let keyed = [("Content-Type", "application/json"), ("Idempotency-Key", "the-key-of-this-request")];
    let repeated = asked(json!({ "logprobs": true }));
    for _ in 0..2 {
        let answer = http::send(&server.address(), "POST", PATH, &keyed, &repeated).await.json();
        assert_eq!(answer["choices"][0]["logprobs"]["content"], expected, "{answer}");
    }
    let sent: Vec<(Value, Value)> = upstream
        .requests()
        .iter()
        .map(|asked| (asked.body["logprobs"].clone(), asked.body["top_logprobs"].clone()))
        .collect();
    let null = Value::Null;
    assert_eq!(
        sent,
        [(json!(true), json!(1)), (json!(true), null.clone()), (null.clone(), null.clone()), (json!(true), null)]
    );
    let wrong =
        http::send(&server.address(), "POST", PATH, &headers, &asked(json!({ "logprobs": true, "top_logprobs": 21 })))
            .await;
    assert_eq!(wrong.status, 400, "{wrong:?}");
}

#[tokio::test]
async fn what_a_hook_takes_out_of_an_answer_is_taken_out_of_its_probabilities() {
    const SECRET: &str = "heron-74";
    let delta = json!({ "content": SECRET });
    let choice =
        json!({ "index": 0, "delta": delta, "logprobs": { "content": [token(SECRET)] }, "finish_reason": "stop" });
    let body =
        format!("data: {}\n\ndata: [DONE]\n\n", json!({ "object": "chat.completion.chunk", "choices": [choice] }));
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n", body.len());
    let reply = || Reply::Raw(vec![Step::Bytes((head.clone() + &body).into_bytes())]);
    let upstream = Upstream::replying([reply(), reply()]).await;
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let hook = on([HookSpec::new("redact", HookPoint::Message)], |call: HookCall| async move {
        let bird = Message::new(Role::Assistant, vec![Part::Text { text: "a bird".into() }]);
        Ok(match call.event {
            HookEvent::Message { message, .. } if message.role == bird.role => HookAnswer::message(bird),
            _ => HookAnswer::default(),
        })
    });
    let provider = crate::provider::provider(&upstream, ApiChoice::Chat);
    let server = Server::over_with_hooks(provider, store, vec![hook], &[]).await;
    let mut asked = json!({
        "model": "test-model", "messages": [{ "role": "user", "content": "Which?" }], "logprobs": true,
    });
    let headers = [("Content-Type", "application/json"), ("X-Session", "mine")];
    let whole = http::send(&server.address(), "POST", PATH, &headers, &asked.to_string()).await;
    let choice = &whole.json()["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["logprobs"]), (&json!("a bird"), &Value::Null));
    asked["stream"] = true.into();
    let chunks = http::events(&server.address(), "POST", PATH, &headers, &asked.to_string()).await;
    assert!(json!(chunks).to_string().contains("a bird"), "{chunks:?}");
    assert!(!whole.body.contains(SECRET) && !json!(chunks).to_string().contains(SECRET), "{whole:?} {chunks:?}");
    assert_eq!(upstream.requests().len(), 2);
    server.service.stop().await;
    drop(server);
    assert!(!is_on_disk(folder.path(), SECRET));
}
