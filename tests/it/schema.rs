//! What a running server sends fits the committed schema, and each command gets its specified reply.

use crate::support::{client::Client, json::present, server::Server};
use reseed::provider::offline::{Offline, OfflineOptions};
use reseed_protocol::command::Command;
use serde_json::{Value, json};
use std::{collections::BTreeSet, path::Path};

async fn server() -> Server {
    Server::start(Offline::new(OfflineOptions { window_tokens: 8000, pace: None }), &[("CONTEXT_WINDOW", "8000")]).await
}

fn read(path: &str) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("protocol").join(path);
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// Checks every frame that the client received against the dialect's schema; returns the types that were seen.
fn check(dialect: &str, client: &Client) -> BTreeSet<String> {
    let schema = read(&format!("schema/reseed.{dialect}.schema.json"));
    let frames = json!({ "$ref": "#/$defs/ServerFrame", "$defs": schema["$defs"] });
    let frames = jsonschema::validator_for(&frames).unwrap();
    for frame in &client.seen {
        assert!(frames.is_valid(frame), "the {dialect} schema does not know this frame: {frame:#}");
    }
    client.seen.iter().map(|frame| frame["type"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn every_command_of_v2_gets_its_reply_and_every_frame_fits_the_schema() {
    let server = server().await;
    let mut client = Client::v2(&server.ws()).await;
    let tools = read("examples/v2/commands/register_tools.json")["payload"]["tools"].clone();
    let opened = client.ask("open_session", json!({ "tools": tools })).await;
    let session = opened["payload"]["sessionId"].clone();
    client.turn("My ferry leaves at 17:40.").await;
    client.turn("Write 300 words about it.").await;
    let entry = client.ask("get_entries", json!({})).await["payload"]["items"][0]["entryId"].clone();
    client.ask("user_input", json!({ "input": "use weather" })).await;
    let call = client.event("tool_call").await["payload"]["toolCallId"].clone();

    // Refusals that are due in the state of this test; every other command gets its own reply.
    let refused = [
        ("hello", "already_greeted"),
        ("open_session", "session_already_open"),
        ("get_entries", "entry_not_found"),
        ("edit_queue", "not_queued"),
        // The turn is running.
        ("navigate", "turn_running"),
        ("cancel_turn", "no_turn"),
        ("retry_turn", "turn_running"),
        ("approval_response", "no_pending_approval"),
        ("withdraw_approval", "no_pending_approval"),
        ("cancel_compaction", "no_compaction"),
        ("hook_result", "unknown_call"),
        ("tool_result", "too_late"),
    ];
    // The tool is answered last, so that its turn runs until its time limit, for which the compaction waits.
    let last = ["tool_result", "close_session", "delete_session"];
    let first = Command::NAMES.iter().copied().filter(|name| !last.contains(name));
    for name in first.chain(last) {
        let mut payload = read(&format!("examples/v2/commands/{name}.json"))["payload"].take();
        if name == "open_session" {
            payload["sessionId"] = session.clone();
        }
        for (field, real) in [("toolCallId", &call), ("entryId", &entry), ("rootId", &entry)] {
            if payload.get(field).is_some() {
                payload[field] = real.clone();
            }
        }
        if name == "undo_compaction" {
            // The model in effect, whichever that is.
            payload = json!({});
        }
        let reply = client.ask(name, if payload.is_null() { json!({}) } else { payload }).await;
        let promised = Command::spec_of(name).unwrap().reply;
        match refused.iter().find(|(command, _)| *command == name) {
            Some((_, code)) => {
                assert_eq!((&reply["type"], &reply["payload"]["code"]), (&json!("error"), &json!(code)), "{name}")
            }
            None => assert_eq!(reply["type"], promised, "{name}: {reply}"),
        }
        if name == "start_compaction" && reply["type"] == "ok" {
            // Otherwise the next order would be answered with the running compaction.
            client.until(|frame| frame["type"] == "context_compacted" || frame["type"] == "compaction_failed").await;
        }
        if name == "tool_result" {
            client.event("call_resolved").await;
        }
        if name == "register_hooks" {
            // They would be called for everything that follows.
            assert_eq!(client.ask(name, json!({ "hooks": [] })).await["type"], "ok");
        }
        let id = &reply["re"];
        assert_eq!(
            client.seen.iter().filter(|frame| frame["re"] == *present(id)).count(),
            1,
            "{name} got more than one reply"
        );
    }
    client.send_raw("no frame").await;
    client.event("error").await;
    let seen = check("v2", &client);
    for kind in ["entry_appended", "turn_started", "turn_finished", "tool_call", "call_resolved", "session_updated"] {
        assert!(seen.contains(kind), "{kind} was not among {seen:?}");
    }
}

#[tokio::test]
async fn every_frame_of_v1_fits_the_schema() {
    let server = server().await;
    let mut client = Client::connect(&server.ws()).await;
    for name in ["user_input", "get_context_info", "approval_response", "manual_compact", "user_input"] {
        let payload = read(&format!("examples/v1/commands/{name}.json"))["payload"].take();
        client.send(name, payload).await;
        let answer = match name {
            "user_input" => "agent_finished",
            "get_context_info" => "context_info",
            _ => "error",
        };
        client.event(answer).await;
    }
    let seen = check("v1", &client);
    let expected = ["agent_finished", "context_info", "error", "loading_state", "response_item"];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}
