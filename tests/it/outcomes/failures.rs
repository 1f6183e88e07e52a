//! Failures of what a command waits for: the model that summarises a branch, a hook, the store.

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::{
    commands::example,
    support::{client::Client, server::Server, talk::words},
};
use reseed::core::model::{ModelFault, Purpose};
use reseed_protocol::{
    ErrorCode,
    command::{
        Command,
        outcomes::{OF_HOOKS, OF_THE_MODEL},
    },
};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// Returns the commands whose row has this group of errors.
fn commands_of(group: &'static [ErrorCode]) -> Vec<&'static str> {
    let rows = Command::TABLE.iter().filter(|spec| spec.groups.contains(&group));
    let commands: Vec<_> = rows.map(|spec| spec.name).collect();
    assert!(!commands.is_empty(), "{group:?} is a group of no row");
    commands
}

/// Returns the payload with which the command leaves a branch that is summarised.
fn leaving(command: &str) -> Value {
    match command {
        "navigate" => json!({ "entryId": "root", "summarize": true }),
        "user_input" => json!({ "input": "once more", "parentId": "root", "summarize": true }),
        other => panic!("`{other}` is answered only after the model was asked: say how"),
    }
}

#[tokio::test]
async fn commands_that_wait_for_the_model_say_how_it_failed() {
    let fault = Arc::new(Mutex::new(ErrorCode::Internal));
    let fails_with = fault.clone();
    let model = Scripted::answering(move |request| match request.purpose {
        Purpose::Turn => Reply::text("Noted."),
        Purpose::Summary => Reply::fault(ModelFault::new(*fails_with.lock().unwrap(), "scripted")),
    });
    let server = Server::start(model, &[("UPSTREAM_RETRIES_MAX", "0")]).await;
    for command in commands_of(OF_THE_MODEL) {
        for code in OF_THE_MODEL {
            *fault.lock().unwrap() = *code;
            let (mut client, _) = Client::v2_session(&server.ws()).await;
            client.turn("hello").await;
            let reply = client.ask(command, leaving(command)).await;
            assert_eq!(reply["payload"]["code"], code.as_str(), "{command}: {reply}");
            let failed = client.event("compaction_failed").await;
            assert_eq!(failed["payload"]["error"]["code"], code.as_str(), "{command}: {failed}");
        }
    }
}

#[tokio::test]
async fn a_turn_ends_with_what_the_model_did_wrong() {
    let table = [ErrorCode::UpstreamEmpty, ErrorCode::ContentFiltered];
    let mut faults = table.into_iter();
    let model = Scripted::answering(move |_| match faults.next() {
        Some(code) => Reply::fault(ModelFault::new(code, "scripted")),
        None => Reply::text("Noted."),
    });
    let server = Server::start(model, &[("UPSTREAM_RETRIES_MAX", "0")]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for code in table {
        let finished = client.turn("hello").await;
        assert_eq!(finished["error"]["code"], code.as_str(), "{finished}");
    }
}

/// Milliseconds that no test reaches.
const FAR_MS: u64 = 600_000;

/// Milliseconds until a hook that does not answer has failed; a test waits for them.
const SOON_MS: u64 = 20;

/// Returns the point at which the command waits for hooks, and its payload.
fn inspected(command: &str) -> (&'static str, Value) {
    match command {
        "user_input" => ("message", json!({ "input": "hello" })),
        "append_custom_message" => ("message", example(command)),
        "navigate" => ("before_navigate", json!({ "entryId": "root" })),
        // The text shown before a cancel is left on a branch of its own.
        "retry_turn" => ("before_navigate", json!({})),
        "preview_compaction" => ("before_compaction", json!({})),
        other => panic!("`{other}` waits for hooks: say at which point"),
    }
}

/// Begins a turn and cancels it after some of its answer was shown.
async fn cancelled(client: &mut Client) {
    client.ask("user_input", json!({ "input": "hold" })).await;
    client.event("item_delta").await;
    client.ask("cancel_turn", json!({})).await;
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "cancelled");
}

#[tokio::test]
async fn commands_that_wait_for_a_required_hook_say_how_it_failed() {
    let never = Gate::new();
    let model = Scripted::answering(move |request| match request.messages().last() {
        Some(last) if last.message.text() == "hold" => Reply::text("At long last.").in_pieces(3).held_by(&never),
        _ => Reply::text("Noted."),
    });
    let settings = [("CONTEXT_WINDOW", "8000"), ("CONTEXT_STRATEGY", "manual"), ("HOOK_AWAY_SECS", "0")];
    let server = Server::start(model, &settings).await;
    for command in commands_of(OF_HOOKS) {
        for code in OF_HOOKS {
            let (mut client, opened) = Client::v2_session(&server.ws()).await;
            for number in 0..3 {
                client.turn(&words(number, 200)).await;
            }
            if command == "retry_turn" {
                cancelled(&mut client).await;
            }
            let (point, payload) = inspected(command);
            let timeout_ms = if *code == ErrorCode::HookTimeout { SOON_MS } else { FAR_MS };
            let hook = json!({ "name": "policy", "point": point, "timeoutMs": timeout_ms });
            let mut host = Client::v2(&server.ws()).await;
            host.ask("open_session", json!({ "sessionId": opened["sessionId"], "hooks": [hook] })).await;
            client.event("host_changed").await;
            let id = if *code == ErrorCode::HookUnavailable {
                host.hang_up();
                client.until(|frame| frame["payload"]["host"]["away"] == true).await;
                client.send(command, payload).await
            } else {
                let id = client.send(command, payload).await;
                let call = host.event("hook_call").await["payload"]["hookCallId"].clone();
                if *code == ErrorCode::HookFailed {
                    host.ask("hook_result", json!({ "hookCallId": call, "error": "scripted" })).await;
                }
                id
            };
            let reply = client.until(|frame| frame["re"] == id.as_str()).await;
            assert_eq!(reply["payload"]["code"], code.as_str(), "{command}: {reply}");
        }
    }
}
