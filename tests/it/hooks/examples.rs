//! The examples do what they say they do.

use crate::support::{client::Client, server::Server, webhook};
use reseed::{
    core::model::ModelRequest,
    provider::scripted::{Reply, Scripted},
};
use reseed_protocol::Message;
use serde_json::{Value, json};
use std::{path::Path, process::Stdio};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

fn cached(request: &ModelRequest) -> Vec<&Message> {
    request.envelope.messages.cached.iter().map(|one| &*one.message).collect()
}

/// The entries of this type that the client was told of.
fn entries(client: &Client, kind: &str) -> Vec<Value> {
    let entries = client.seen.iter().filter(|frame| frame["type"] == "entry_appended");
    let entries = entries.map(|frame| &frame["payload"]["entry"]);
    entries.filter(|entry| entry["type"] == kind).cloned().collect()
}

/// A process that ends with the test.
struct Running {
    _child: Child,
    url: String,
}

/// Starts the webhook in Python on a free port.
async fn redact_in_python() -> Running {
    // `tests/run` names a Python, which `tests/run quick` does not install.
    let named = std::env::var_os("PYTHON").filter(|python| Path::new(python).exists());
    let python = named.unwrap_or_else(|| "python3".into());
    let mut command = Command::new(python);
    command.arg("tests/examples/redact_webhook.py").env("REDACT_SECRET", webhook::SECRET);
    let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("Python can be run");
    let mut printed = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = printed.next_line().await.unwrap().expect("it tells its address");
    let url = line.strip_prefix("listening on ").unwrap().to_owned();
    Running { _child: child, url }
}

#[tokio::test]
async fn the_webhook_in_python_redacts_what_users_and_the_model_say() {
    let python = redact_in_python().await;
    let folder = tempfile::tempdir().unwrap();
    let events = json!([{ "event": "message" }, { "event": "tool_call", "observe": true }]);
    let file = webhook::file(folder.path(), &[webhook::hook("redact", &python.url, events)]);
    let model = Scripted::answering(|_| Reply::text("Write to master@harbour.example."));
    let server = Server::start(model.clone(), &[("HOOKS_FILE", &file)]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.turn("I am ann@ships.example, häfen@").await["status"], "completed", "{:#?}", client.seen);
    assert_eq!(client.turn("No address here").await["status"], "completed");
    assert_eq!(cached(&model.requests()[0])[0].text(), "I am [redacted], häfen@");
    let said = entries(&client, "message");
    assert_eq!(said[1]["content"][0]["text"], "Write to [redacted].");
    assert_eq!(client.seen.iter().filter(|frame| frame["type"] == "hook_failed").count(), 0, "{:#?}", client.seen);
}

#[tokio::test]
async fn the_webhook_in_python_answers_nobody_but_the_server() {
    let python = redact_in_python().await;
    let folder = tempfile::tempdir().unwrap();
    let other = json!({
        "name": "redact", "url": python.url, "events": [{ "event": "message" }],
        "secret": "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
    });
    let file = webhook::file(folder.path(), &[other]);
    let server = Server::start(Scripted::answering(|_| Reply::text("Hello.")), &[("HOOKS_FILE", &file)]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.turn("Hello").await["status"], "completed");
    let failed = client.event("hook_failed").await;
    assert_eq!(failed["payload"]["message"], "it answered with HTTP 401", "{failed}");
}
