//! Probabilities of tokens: from a model server, through the session, to a client of Chat Completions.

use crate::support::{
    http,
    server::Server,
    upstream::{Reply, Step, Upstream},
};
use reseed::provider::openai::ApiChoice;
use serde_json::{Value, json};

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
