//! Valid commands at the wrong moment, or for what belongs to others.

use super::bench::{
    At::{self, Compacting, Greeted, Observing, Open, Running, Said, Silent},
    Bench,
};
use crate::support::scripted::Scripted;
use crate::support::{client::Client, server::Server};
use serde_json::json;

/// State, command, payload, error code, field.
const COMMANDS: &[(At, &str, &str, &str, &str)] = &[
    // Without a session
    (Greeted, "user_input", r#"{"input":"hi"}"#, "no_session", "sessionId"),
    (Greeted, "get_context_info", "{}", "no_session", "sessionId"),
    (Greeted, "get_entries", "{}", "session_not_found", "sessionId"),
    (Greeted, "cancel_turn", "{}", "no_session", "sessionId"),
    (Greeted, "rename_session", r#"{"name":"mine"}"#, "session_not_found", "sessionId"),
    (Greeted, "close_session", "{}", "no_session", "sessionId"),
    // With a session already open
    (Said, "open_session", r#"{"sessionId":"$SESSION"}"#, "session_already_open", "sessionId"),
    // Sessions that do not exist
    (Greeted, "open_session", r#"{"sessionId":"nowhere"}"#, "session_not_found", "sessionId"),
    (Greeted, "open_session", r#"{"sessionId":"nowhere"}"#, "session_not_found", "sessionId"),
    (Greeted, "get_entries", r#"{"sessionId":"nowhere"}"#, "session_not_found", "sessionId"),
    (Greeted, "rename_session", r#"{"sessionId":"nowhere","name":"mine"}"#, "session_not_found", "sessionId"),
    (Greeted, "delete_session", r#"{"sessionId":"nowhere"}"#, "session_not_found", "sessionId"),
    // Another user's do not exist
    (Greeted, "open_session", r#"{"sessionId":"$FOREIGN"}"#, "session_not_found", "sessionId"),
    (Greeted, "open_session", r#"{"sessionId":"$FOREIGN"}"#, "session_not_found", "sessionId"),
    (Greeted, "open_session", r#"{"sessionId":"$FOREIGN","role":"observer"}"#, "session_not_found", "sessionId"),
    (Said, "get_entries", r#"{"sessionId":"$FOREIGN"}"#, "session_not_found", "sessionId"),
    (Said, "rename_session", r#"{"sessionId":"$FOREIGN","name":"mine"}"#, "session_not_found", "sessionId"),
    (Said, "delete_session", r#"{"sessionId":"$FOREIGN"}"#, "session_not_found", "sessionId"),
    // Turns
    (Open, "cancel_turn", "{}", "no_turn", ""),
    (Said, "cancel_turn", "{}", "no_turn", ""),
    (Said, "cancel_turn", r#"{"turnId":"$TURN"}"#, "no_turn", ""),
    (Running, "cancel_turn", r#"{"turnId":"another"}"#, "no_turn", "turnId"),
    (Open, "retry_turn", "{}", "nothing_to_retry", ""),
    (Said, "retry_turn", r#"{"turnId":"$TURN"}"#, "nothing_to_retry", "turnId"),
    (Running, "retry_turn", "{}", "turn_running", ""),
    (Running, "user_input", r#"{"input":"hi","whenBusy":"reject"}"#, "turn_running", ""),
    (Compacting, "user_input", r#"{"input":"hi","whenBusy":"reject"}"#, "compaction_running", ""),
    // Tools and approvals
    (Said, "tool_result", r#"{"toolCallId":"none","output":"x"}"#, "unknown_call", "toolCallId"),
    (Running, "tool_result", r#"{"toolCallId":"none","output":"x","isError":true}"#, "unknown_call", "toolCallId"),
    (Running, "call_progress", r#"{"toolCallId":"none"}"#, "unknown_call", "toolCallId"),
    (Said, "approval_response", r#"{"approvalId":"a","review":"yes"}"#, "no_pending_approval", "approvalId"),
    // Compaction
    (Open, "start_compaction", "{}", "nothing_to_compact", ""),
    (Said, "cancel_compaction", "{}", "no_compaction", ""),
    (Compacting, "start_compaction", "{}", "compaction_running", ""),
    (Compacting, "cancel_compaction", r#"{"jobId":"another"}"#, "no_compaction", "jobId"),
    (Compacting, "cancel_turn", "{}", "no_turn", ""),
    (Compacting, "retry_turn", "{}", "compaction_running", ""),
    // Observers only read
    (Observing, "user_input", r#"{"input":"hi"}"#, "read_only", ""),
    (Observing, "cancel_turn", "{}", "read_only", ""),
    (Observing, "start_compaction", "{}", "read_only", ""),
    (Observing, "set_options", r#"{"temperature":1}"#, "read_only", ""),
    (Observing, "register_tools", r#"{"tools":[]}"#, "read_only", ""),
    (Observing, "tool_result", r#"{"toolCallId":"none","output":"x"}"#, "read_only", ""),
    (Observing, "rename_session", r#"{"name":"mine"}"#, "read_only", ""),
    (Observing, "rename_session", r#"{"sessionId":"$SESSION","name":"mine"}"#, "read_only", ""),
    (Observing, "delete_session", r#"{"sessionId":"$SESSION"}"#, "read_only", ""),
    (Observing, "open_session", r#"{"sessionId":"$SESSION"}"#, "session_already_open", "sessionId"),
    // The first frame was not `hello`: the connection uses v1
    (Silent, "get_entries", "{}", "unknown_command", "type"),
];

#[tokio::test]
async fn a_command_at_the_wrong_moment_is_refused_and_changes_nothing() {
    let mut bench = Bench::start().await;
    for (at, kind, payload, code, field) in COMMANDS {
        bench.check_command(*at, kind, payload, code, field).await;
    }
}

#[tokio::test]
async fn an_id_is_good_for_one_content() {
    let mut bench = Bench::start().await;
    for (at, kind, payload) in [
        (Said, "user_input", r#"{"input":"something else"}"#),
        (Said, "rename_session", r#"{"name":"mine"}"#),
        (Running, "user_input", r#"{"input":"hold on"}"#),
        (Running, "cancel_turn", "{}"),
    ] {
        let text = format!(r#"{{"id":"$USED","type":"{kind}","payload":{payload}}}"#);
        bench.check(at, &text, "idempotency_conflict", "id").await;
    }
}

#[tokio::test]
async fn a_strategy_that_is_unknown_is_told_those_there_are() {
    let server = Server::start(Scripted::new(), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let error = client.ask("set_context_strategy", json!({ "strategy": "clever" })).await;
    let message = error["payload"]["message"].as_str().unwrap();
    for name in ["clever", "threshold", "manual", "dummy", "none"] {
        assert!(message.contains(name), "{message}");
    }
}

#[tokio::test]
async fn a_model_whose_window_is_not_known_is_taken_with_a_warning() {
    let server = Server::start(Scripted::new(), &[("CONTEXT_WINDOW", ""), ("MODEL", "gpt-4.1")]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.ask("set_model", json!({ "model": "model-of-tomorrow" })).await["type"], "ok");
    let info = client.ask("get_context_info", json!({})).await;
    assert_eq!(info["payload"]["maxTokens"], 8_192, "{info}");
    assert_eq!(client.ask("set_model", json!({ "model": "gpt-4o" })).await["type"], "ok");
}
