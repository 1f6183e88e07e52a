//! Sessions are trees: reading them, continuing from another entry, and forking their branches, over real sockets.

mod forking;
mod looking;

use crate::support::client::Client;
use serde_json::{Value, json};

/// Asks a question, from an entry or from the session's leaf, and waits for the end of its turn; returns the ids of the
/// entries of the question and the answer.
async fn ask(client: &mut Client, text: &str, parent: Option<&Value>) -> (Value, Value) {
    let mut payload = json!({ "input": text });
    if let Some(parent) = parent {
        payload["parentId"] = parent.clone();
    }
    let accepted = client.ask("user_input", payload).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    let question = accepted["payload"]["entryId"].clone();
    let finished = client.event("turn_finished").await;
    assert_eq!(finished["payload"]["status"], "completed", "{finished}");
    (question, finished["payload"]["contextInfo"]["leafId"].clone())
}

/// Sends a command that must be answered by `kind`; returns the reply's payload.
async fn get(client: &mut Client, command: &str, payload: Value, kind: &str) -> Value {
    let reply = client.ask(command, payload).await;
    assert_eq!(reply["type"], kind, "{command}: {reply}");
    reply["payload"].clone()
}

/// Returns the error code with which a command is refused.
async fn refused(client: &mut Client, command: &str, payload: Value) -> Value {
    get(client, command, payload, "error").await["code"].clone()
}
