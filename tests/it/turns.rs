//! Turns over v2: streaming, queue, cancel, retry, tools.

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{client::Client, server::Server};
use reseed::provider::Delay;
use reseed_protocol::ErrorCode;
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn a_turn_streams_and_ends_once() {
    let (model, gate) = (Scripted::new(), Gate::new());
    // The last of four pieces of five letters waits for the gate.
    model.push(Reply::text("Hello there, friend!").in_pieces(4).usage(20, 5).held_by(&gate));
    let server = Server::start(model.clone(), &[]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    assert_eq!(opened["asOfSeq"], 1);
    let accepted = client.ask("user_input", json!({ "input": "Hi" })).await;
    assert_eq!(accepted["payload"]["queued"], false);
    let mut shown = String::new();
    while shown != "Hello there, fr" {
        let delta = client.event("item_delta").await["payload"].clone();
        assert_eq!(delta["offset"], shown.encode_utf16().count());
        shown.push_str(delta["text"].as_str().unwrap());
        assert!("Hello there, fr".starts_with(&shown), "{shown}");
    }
    gate.open();
    let finished = client.event("turn_finished").await;
    assert_eq!(finished["payload"]["status"], "completed");
    let seqs: Vec<u64> = client.seen.iter().filter_map(|frame| frame["seq"].as_u64()).collect();
    assert_eq!(seqs, (2..2 + seqs.len() as u64).collect::<Vec<_>>(), "no gap");
    let said: Vec<&str> = client
        .seen
        .iter()
        .filter(|frame| frame["type"] == "entry_appended")
        .map(|frame| frame["payload"]["entry"]["content"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(said, ["Hi", "Hello there, friend!"]);
    assert_eq!(client.seen.iter().filter(|frame| frame["type"] == "turn_finished").count(), 1);
    assert_eq!(model.requests().len(), 1);
}

#[tokio::test]
async fn a_wait_for_the_model_server_is_told_if_it_is_worth_it() {
    let (model, gate) = (Scripted::new(), Gate::new());
    let reason = ErrorCode::UpstreamRateLimited;
    let delay = |attempt, millis| Delay { attempt, wait: Duration::from_millis(millis), reason };
    let server = Server::start(model.clone(), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    // This also holds for an answer that is not shown before a hook has inspected it.
    for hooks in [json!([]), json!([{ "point": "message" }])] {
        client.ask("register_hooks", json!({ "hooks": hooks })).await;
        model.push(Reply::text("at last").delayed(&[delay(2, 999), delay(3, 12_000)]).held_by(&gate));
        client.send("user_input", json!({ "input": "Hi" })).await;
        if hooks != json!([]) {
            let call = client.event("hook_call").await["payload"]["hookCallId"].clone();
            client.ask("hook_result", json!({ "hookCallId": call })).await;
        }
        let turn_id = client.event("turn_started").await["payload"]["turnId"].clone();
        let told = client.event("request_delayed").await["payload"].clone();
        let expected = json!({ "turnId": turn_id, "attempt": 3, "waitMs": 12_000, "reason": "upstream_rate_limited" });
        assert_eq!(told, expected);
        client.send("cancel_turn", json!({})).await;
        client.event("turn_finished").await;
    }
}

#[tokio::test]
async fn input_during_a_turn_waits_in_order() {
    let (model, gate) = (Scripted::new(), Gate::new());
    model.push(Reply::text("first answer").held_by(&gate));
    model.push(Reply::text("second answer"));
    model.push(Reply::text("third answer"));
    let server = Server::start(model.clone(), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.ask("user_input", json!({ "input": "one" })).await;
    for text in ["two", "three"] {
        let accepted = client.ask("user_input", json!({ "input": text })).await;
        assert_eq!(accepted["payload"]["queued"], true);
    }
    gate.open();
    for _ in 0..3 {
        assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    }
    let entries = client.ask("get_entries", json!({ "path": true })).await;
    let said: Vec<String> = entries["payload"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["content"][0]["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(said, ["one", "first answer", "two", "second answer", "three", "third answer"]);
}
