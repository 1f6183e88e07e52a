//! Approvals of tool calls by a person, in v1, as the original client needs them.

use super::{Seen, call, results, start, tool};
use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, json::present};
use serde_json::{Value, json};
use std::sync::{Arc, atomic::Ordering};

fn said(text: &str) -> Value {
    json!({ "input": [{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }] }] })
}

/// Summarises a frame in a word or two.
fn short(frame: &Value) -> String {
    match frame["type"].as_str().unwrap() {
        "loading_state" => format!("loading {}", frame["payload"]["loading"]),
        "response_item" => frame["payload"]["type"].as_str().unwrap().to_owned(),
        other => other.to_owned(),
    }
}

/// Returns every frame up to and including the first of this type.
async fn through(client: &mut Client, kind: &str) -> Vec<Value> {
    let mut frames = Vec::new();
    loop {
        let frame = client.next_frame().await.expect("the server does not hang up on v1");
        let is_last = frame["type"] == kind;
        frames.push(frame);
        if is_last {
            return frames;
        }
    }
}

fn shorts(frames: &[Value]) -> Vec<String> {
    frames.iter().map(short).collect()
}

#[tokio::test]
async fn each_review_is_mapped_to_an_answer() {
    let end = ["loading false", "context_info", "agent_finished"];
    let table: [(&str, Value, usize, &str, &[&str]); 5] = [
        ("yes", Value::Null, 1, "called with", &["function_call_output", "message"]),
        ("ALWAYS", Value::Null, 1, "called with", &["function_call_output", "message"]),
        ("no-continue", json!("Not now."), 0, "Not now.", &["function_call_output", "message"]),
        ("no-continue", Value::Null, 0, "rejected this call.", &["function_call_output", "message"]),
        ("no-exit", Value::Null, 0, "", &["function_call_output"]),
    ];
    for (review, message, runs, says, middle) in table {
        let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
        let server = start(&model, vec![tool("dig", false, &seen)], &[]).await;
        let mut client = Client::connect(&format!("ws://{}/", server.address())).await;
        model.push(Reply::parts(vec![call(0, "dig", r#"{"at":"a"}"#)]));
        model.push(Reply::text("Done."));
        client.send("user_input", said("Dig!")).await;
        let frames = through(&mut client, "approval_request").await;
        assert_eq!(shorts(&frames), ["loading true", "function_call", "approval_request"]);
        let request = &frames[2]["payload"];
        assert_eq!(request["command"], json!(["dig", r#"{"at":"a"}"#]));
        assert!(request["approvalId"].is_string(), "{request}");
        let mut payload = json!({ "review": review });
        if !message.is_null() {
            payload["customDenyMessage"] = message;
        }
        client.send("approval_response", payload).await;
        let frames = through(&mut client, "agent_finished").await;
        assert_eq!(shorts(&frames), [middle, &end].concat(), "{review}");
        assert_eq!(seen.started.load(Ordering::SeqCst), runs, "{review}");
        if review != "no-exit" {
            let told = results(&model.requests()[1]);
            assert!(matches!(&told[..], [(text, _)] if text.contains(says)), "{review}: {told:?}");
        }
    }
}

#[tokio::test]
async fn one_request_is_outstanding_and_an_explanation_requests_it_again() {
    let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
    let server = start(&model, vec![tool("dig", false, &seen)], &[]).await;
    let mut client = Client::connect(&server.ws()).await;
    model.push(Reply::parts(vec![call(0, "dig", r#"{"at":"a"}"#), call(1, "dig", r#"{"at":"b"}"#)]));
    model.push(Reply::text("Done."));
    client.send("user_input", said("Dig!")).await;
    let first = through(&mut client, "approval_request").await.pop().unwrap();
    // A meter and a compaction in between leave the approval as it is.
    client.send("get_context_info", json!({})).await;
    client.send("manual_compact", json!({})).await;
    let meter = through(&mut client, "context_info").await;
    assert!(meter.iter().all(|frame| frame["type"] != "approval_request"), "one is outstanding: {meter:?}");
    client.send("approval_response", json!({ "review": "explain" })).await;
    let explained = through(&mut client, "approval_request").await;
    let item = explained.iter().find(|frame| frame["type"] == "response_item").expect("an item explains");
    let text = present(&item["payload"]["content"][0]["text"]).as_str().unwrap().to_owned();
    assert!(text.contains("`dig`") && text.contains(r#"{"at":"a"}"#), "{text}");
    let again = explained.last().unwrap();
    assert_eq!(present(&again["payload"]), &first["payload"], "the same request");
    client.send("approval_response", json!({ "review": "yes" })).await;
    let second = through(&mut client, "approval_request").await.pop().unwrap();
    assert_eq!(second["payload"]["command"], json!(["dig", r#"{"at":"b"}"#]));
    client.send("approval_response", json!({ "review": "no-continue" })).await;
    let frames = through(&mut client, "agent_finished").await;
    assert_eq!(frames.iter().filter(|frame| frame["type"] == "agent_finished").count(), 1);
    assert_eq!(seen.started.load(Ordering::SeqCst), 1);
    client.send("approval_response", json!({ "review": "yes" })).await;
    let refused = client.until(|frame| frame["type"] == "error").await;
    assert_eq!(refused["payload"]["details"]["code"], "no_pending_approval");
}
