//! Shared by tests of tools: says something, waits for the end of the turn, and returns what the model received.

use super::client::Client;
use reseed::core::model::ModelRequest;
use reseed_protocol::{Part, Role};
use serde_json::{Value, json};

/// Says something. Returns once it is accepted.
pub(crate) async fn ask(client: &mut Client, text: &str) {
    let accepted = client.ask("user_input", json!({ "input": text })).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
}

/// Waits for the end of the turn. Returns the payload of `turn_finished`.
pub(crate) async fn finished(client: &mut Client) -> Value {
    client.event("turn_finished").await["payload"].clone()
}

/// Returns the tool results in a request, in order: their texts, and true for errors.
pub(crate) fn results(request: &ModelRequest) -> Vec<(String, bool)> {
    let parts = request.messages().filter(|message| message.message.role == Role::Tool);
    parts
        .flat_map(|message| message.message.content.clone())
        .filter_map(|part| match part {
            Part::ToolResult { output, is_error, .. } => Some((output, is_error)),
            _ => None,
        })
        .collect()
}
