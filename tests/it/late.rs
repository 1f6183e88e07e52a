//! Answers to calls that are over: a copy of the one that was taken is a duplicate, any other is too late, and a call
//! that never was is unknown. All of it also holds after a restart, on another branch and after a compaction.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{
    client::Client,
    json::present,
    server::Server,
    talk::{summary, words},
};
use reseed::{core::model::Purpose, store::sqlite::SqliteStore};
use reseed_protocol::Part;
use serde_json::{Value, json};
use std::sync::Arc;

/// A time limit that no test reaches.
const FAR_MS: u64 = 600_000;

fn look(timeout_ms: u64) -> Value {
    json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" }, "timeoutMs": timeout_ms })
}

fn call() -> Part {
    Part::ToolCall { call_id: "call_0".parse().unwrap(), name: "look".into(), arguments: "{}".into() }
}

/// Opens a session of a client that offers `look`.
async fn opened(server: &Server, timeout_ms: u64) -> (Client, Value) {
    let mut client = Client::v2(&server.ws()).await;
    let opened = client.ask("open_session", json!({ "tools": [look(timeout_ms)] })).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    (client, opened["payload"]["sessionId"].clone())
}

/// A model that calls `look` when it is asked to, and otherwise says a word.
fn looking() -> Scripted {
    Scripted::answering(|request| match request.messages().last() {
        _ if request.purpose == Purpose::Summary => Reply::text(summary(&["Looked."])),
        Some(last) if last.message.text() == "Look!" => Reply::parts(vec![call()]),
        _ => Reply::text("I see."),
    })
}

/// Asks the model to call `look`; returns the call's id.
async fn called(client: &mut Client) -> Value {
    client.ask("user_input", json!({ "input": "Look!" })).await;
    client.event("tool_call").await["payload"]["toolCallId"].clone()
}

fn result(call: &Value, output: &str) -> Value {
    json!({ "toolCallId": call, "output": output })
}

/// Returns the essential part of the reply to an answer: `ok`, `duplicate`, or the error's code with how the call
/// ended.
async fn reply(client: &mut Client, kind: &str, payload: Value) -> String {
    let reply = client.ask(kind, payload).await;
    let payload = &reply["payload"];
    match reply["type"].as_str() {
        Some("ok") if payload["duplicate"] == true => "duplicate".to_owned(),
        Some("ok") => "ok".to_owned(),
        _ => {
            assert_eq!(payload["retriable"], false, "{reply}");
            let details = &payload["details"];
            let field = details["field"].as_str().unwrap();
            if payload["code"] == "too_late" {
                assert!(details[field].is_string(), "it names the call: {reply}");
            }
            let outcome = details["outcome"].as_str().unwrap_or("-");
            format!("{} {field} {outcome}", payload["code"].as_str().unwrap())
        }
    }
}

async fn tool(client: &mut Client, payload: Value) -> String {
    reply(client, "tool_result", payload).await
}

#[tokio::test]
async fn an_answered_call_takes_copies_and_nothing_else() {
    let model = looking();
    let server = Server::start(model, &[]).await;
    let (mut client, _) = opened(&server, FAR_MS).await;
    let call = called(&mut client).await;
    let id = client.id();
    for _ in 0..2 {
        client.send_as(&id, "tool_result", result(&call, "blue")).await;
    }
    let replies = [client.event("ok").await, client.event("ok").await];
    assert_eq!(replies.map(|ok| ok["payload"]["duplicate"].clone()), [Value::Null, json!(true)]);
    client.event("turn_finished").await;
    let plain = json!({ "toolCallId": call, "output": "blue", "isError": false });
    assert_eq!(tool(&mut client, result(&call, "blue")).await, "duplicate", "under an id of its own");
    assert_eq!(tool(&mut client, plain).await, "duplicate", "`isError: false` is what its absence means");
    let failed = json!({ "toolCallId": call, "output": "blue", "isError": true });
    for other in [result(&call, "green"), failed] {
        assert_eq!(tool(&mut client, other).await, "too_late toolCallId answered");
    }
    assert_eq!(tool(&mut client, result(&json!("nobody"), "blue")).await, "unknown_call toolCallId -");
    let progress = json!({ "toolCallId": call });
    assert_eq!(reply(&mut client, "call_progress", progress).await, "too_late toolCallId answered");
    let progress = json!({ "toolCallId": "nobody" });
    assert_eq!(reply(&mut client, "call_progress", progress).await, "unknown_call toolCallId -");
    // Nothing of it was written.
    let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
    let outputs: Vec<&Value> = entries.as_array().unwrap().iter().map(|entry| &entry["content"][0]["output"]).collect();
    assert_eq!(outputs, [&Value::Null, &Value::Null, &json!("blue"), &Value::Null]);
}

#[tokio::test]
async fn how_a_call_ended_is_known_after_a_restart_a_move_and_a_compaction() {
    let folder = tempfile::tempdir().unwrap();
    let store = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let model = looking();
    let settings = [("SHUTDOWN_GRACE_SECS", "0"), ("CONTEXT_WINDOW", "8000")];
    let server = Server::over(model.clone(), store(), &settings).await;
    let (mut client, session) = opened(&server, FAR_MS).await;

    let answered = called(&mut client).await;
    assert_eq!(tool(&mut client, result(&answered, "blue")).await, "ok");
    client.event("turn_finished").await;
    let cancelled = called(&mut client).await;
    client.ask("cancel_turn", json!({})).await;
    client.event("turn_finished").await;
    client.ask("register_tools", json!({ "tools": [look(30)] })).await;
    let timed_out = called(&mut client).await;
    client.event("turn_finished").await;
    client.ask("register_tools", json!({ "tools": [look(FAR_MS)] })).await;
    let interrupted = called(&mut client).await;

    let ends = [
        (&answered, "too_late toolCallId answered"),
        (&cancelled, "too_late toolCallId dropped"),
        (&timed_out, "too_late toolCallId timed_out"),
    ];
    for (call, expected) in &ends {
        assert_eq!(tool(&mut client, result(call, "late")).await, *expected);
    }
    server.service.stop().await;
    drop(server);
    let server = Server::over(model.clone(), store(), &settings).await;
    let mut client = Client::v2(&server.ws()).await;
    client.ask("open_session", json!({ "sessionId": session, "tools": [look(FAR_MS)] })).await;
    let ends: Vec<_> = ends.into_iter().chain([(&interrupted, "too_late toolCallId dropped")]).collect();
    // The call is on the path; then the path is summarised; then the session moves to a branch without it.
    for step in ["restart", "compaction", "move"] {
        match step {
            "compaction" => {
                for number in 0..8 {
                    client.turn(&words(number, 200)).await;
                }
                let ok = client.ask("start_compaction", json!({})).await;
                assert_eq!(ok["type"], "ok", "{ok}");
                client.event("context_compacted").await;
                let context = client.ask("get_context", json!({})).await["payload"]["envelope"]["messages"].to_string();
                assert!(!context.contains(r#""role":"tool""#), "the results are summarised: {context}");
            }
            "move" => {
                let moved = client.ask("navigate", json!({ "entryId": "root" })).await;
                assert_eq!(moved["type"], "navigated", "{moved}");
            }
            _ => {}
        }
        for (call, expected) in &ends {
            assert_eq!(tool(&mut client, result(call, "late")).await, *expected, "after a {step}");
        }
        assert_eq!(tool(&mut client, result(&answered, "blue")).await, "duplicate", "after a {step}");
        assert_eq!(tool(&mut client, result(&json!("nobody"), "x")).await, "unknown_call toolCallId -");
    }
    server.service.stop().await;
}

#[tokio::test]
async fn a_fork_knows_the_calls_of_its_source_by_their_results() {
    let model = looking();
    let server = Server::start(model, &[]).await;
    let (mut client, _) = opened(&server, FAR_MS).await;
    let call = called(&mut client).await;
    tool(&mut client, result(&call, "blue")).await;
    let leaf = client.event("turn_finished").await["payload"]["contextInfo"]["leafId"].clone();
    let forked = client.ask("fork_session", json!({ "entryId": leaf, "position": "at" })).await;
    assert_eq!(forked["type"], "forked", "{forked}");
    let mut client = Client::v2(&server.ws()).await;
    client.ask("open_session", json!({ "sessionId": forked["payload"]["sessionId"] })).await;
    assert_eq!(tool(&mut client, result(&call, "blue")).await, "duplicate");
    assert_eq!(tool(&mut client, result(&call, "green")).await, "too_late toolCallId -", "how it ended is not known");
}

#[tokio::test]
async fn an_answer_that_hooks_inspect_is_taken_once() {
    let model = looking();
    let server = Server::start(model, &[]).await;
    let (mut client, _) = opened(&server, FAR_MS).await;
    let hook = json!({ "name": "redact", "point": "tool_result", "timeoutMs": FAR_MS });
    client.ask("register_hooks", json!({ "hooks": [hook] })).await;
    let call = called(&mut client).await;
    let first = client.send("tool_result", result(&call, "my number is 7")).await;
    let asked = client.event("hook_call").await["payload"]["hookCallId"].clone();
    assert_eq!(tool(&mut client, result(&call, "my number is 7")).await, "duplicate", "the same is under way");
    assert_eq!(tool(&mut client, result(&call, "mine is 8")).await, "too_late toolCallId -");
    let redacted = json!({ "hookCallId": asked, "output": "my number is [number]" });
    assert_eq!(reply(&mut client, "hook_result", redacted.clone()).await, "ok");
    assert_eq!(client.until(|frame| frame["re"] == first.as_str()).await["type"], "ok");
    client.event("turn_finished").await;
    // A repeat of what the tool sent is a copy, although a hook has changed what was stored.
    assert_eq!(tool(&mut client, result(&call, "my number is 7")).await, "duplicate");
    assert_eq!(tool(&mut client, result(&call, "mine is 8")).await, "too_late toolCallId answered");
    assert_eq!(reply(&mut client, "hook_result", redacted).await, "duplicate");

    // The call is cancelled while its answer is inspected. Nothing of the answer was stored, and its sender learns of
    // it.
    let call = called(&mut client).await;
    let first = client.send("tool_result", result(&call, "my number is 7")).await;
    let asked = client.event("hook_call").await["payload"]["hookCallId"].clone();
    client.ask("cancel_turn", json!({})).await;
    let refused = client.until(|frame| frame["re"] == first.as_str()).await;
    assert_eq!(
        (&refused["payload"]["code"], &refused["payload"]["details"]["outcome"]),
        (&json!("too_late"), &json!("dropped"))
    );
    client.send_as(&first, "tool_result", result(&call, "my number is 7")).await;
    let again = client.until(|frame| frame["re"] == first.as_str()).await;
    assert_eq!(*present(&again["payload"]), refused["payload"], "sent again, it is refused again");
    let late = json!({ "hookCallId": asked, "output": "nothing" });
    assert_eq!(reply(&mut client, "hook_result", late).await, "too_late hookCallId dropped");
}

#[tokio::test]
async fn of_hook_calls_the_newest_are_remembered() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model, &[]).await;
    let mut client = Client::v2(&server.ws()).await;
    let hook = json!({ "name": "policy", "point": "before_agent_start", "timeoutMs": FAR_MS });
    client.ask("open_session", json!({ "hooks": [hook] })).await;
    let mut calls = Vec::new();
    for _ in 0..65 {
        client.send("user_input", json!({ "input": "Is the sea warm?" })).await;
        let call = client.event("hook_call").await["payload"]["hookCallId"].clone();
        client.ask("hook_result", json!({ "hookCallId": call })).await;
        client.event("turn_finished").await;
        calls.push(call);
    }
    assert_eq!(reply(&mut client, "hook_result", json!({ "hookCallId": calls[0] })).await, "unknown_call hookCallId -");
    for call in &calls[1..] {
        assert_eq!(reply(&mut client, "hook_result", json!({ "hookCallId": call })).await, "duplicate");
        let other = json!({ "hookCallId": call, "systemPrompt": "Swim." });
        assert_eq!(reply(&mut client, "hook_result", other).await, "too_late hookCallId answered");
    }
}
