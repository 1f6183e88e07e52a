//! The examples do what they claim.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{
    client::Client,
    server::Server,
    talk::{summaries, text_of, words},
    webhook,
};
use reseed::core::model::{ModelRequest, Purpose};
use reseed_protocol::Message;
use serde_json::{Value, json};
use std::{path::Path, process::Stdio};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

#[allow(dead_code, reason = "the example's main is for those who run it")]
#[path = "../../examples/hooks.rs"]
mod example;

/// Returns the texts of the messages after everything cacheable.
fn uncached(request: &ModelRequest) -> Vec<String> {
    request.envelope.messages.uncached.iter().map(|one| one.message.text()).collect()
}

fn cached(request: &ModelRequest) -> Vec<&Message> {
    request.envelope.messages.cached.iter().map(|one| &*one.message).collect()
}

/// Returns the entries of this type that the client received.
fn entries(client: &Client, kind: &str) -> Vec<Value> {
    let entries = client.seen.iter().filter(|frame| frame["type"] == "entry_appended");
    let entries = entries.map(|frame| &frame["payload"]["entry"]);
    entries.filter(|entry| entry["type"] == kind).cloned().collect()
}

#[tokio::test]
async fn the_examples_in_rust() {
    let model = Scripted::answering(|request| {
        assert_eq!(request.purpose, Purpose::Turn, "no model is asked for a summary");
        Reply::text("Write to master@harbour.example, or come by.").in_pieces(3)
    });
    let server = Server::with_hooks(model.clone(), example::all(), &[("CONTEXT_WINDOW", "4000")]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for text in ["I am ann@ships.example.", "Is there a free slip?", "And a buoy?"] {
        assert_eq!(client.turn(text).await["status"], "completed", "{:#?}", client.seen);
    }
    let requests = model.requests();
    assert_eq!(requests.len(), 3);

    // Redaction, for everyone.
    assert!(text_of(&requests[0]).starts_with("I am [redacted]."), "{}", text_of(&requests[0]));
    let said = entries(&client, "message");
    assert_eq!(said[0]["content"][0]["text"], "I am [redacted].");
    assert_eq!(said[1]["content"][0]["text"], "Write to [redacted], or come by.");
    let addresses = ["master@", "ann@"];
    assert!(!client.seen.iter().any(|frame| addresses.iter().any(|address| frame.to_string().contains(address))));

    // The house rules: given once, in every request.
    let transforms = entries(&client, "context_transform");
    let named = |name: &str| transforms.iter().filter(|entry| entry["transformerName"] == name).count();
    assert_eq!((named("policy"), transforms.len()), (1, 1), "{transforms:#?}");
    for request in &requests {
        assert!(request.envelope.system.compiled.ends_with("Answer in at most three sentences."));
    }

    // For one request: the marker always, the glossary entry only where it applies.
    for (request, words_known) in requests.iter().zip([false, true, false]) {
        let added = uncached(request);
        assert_eq!(added.len(), 1 + usize::from(words_known), "{added:?}");
        assert_eq!(added[0].contains("slip: a berth of ours"), words_known, "{added:?}");
        let marker = added.last().unwrap();
        assert!(marker.starts_with("[request 1, ") && marker.ends_with(" of 4000 tokens]"), "{marker}");
    }
    // What was for one request is in no later one, and what stays is the prefix of the next.
    for pair in requests.windows(2) {
        assert!(cached(&pair[1]).starts_with(&cached(&pair[0])));
    }

    // A summary without a model.
    for number in 0..4 {
        assert_eq!(client.turn(&words(number, 300)).await["status"], "completed");
    }
    let reply = client.ask("start_compaction", json!({})).await;
    assert_eq!(reply["type"], "ok", "{reply}");
    let compacted = client.event("context_compacted").await["payload"].clone();
    assert_eq!(summaries(&model.requests()), 0);
    assert!(compacted["summary"].as_str().unwrap().contains("- The user: I am [redacted]."), "{compacted}");
}

/// A process that is ended with the test.
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
    let events = json!([{ "point": "message" }, { "point": "tool_call", "observe": true }]);
    let file = webhook::file(folder.path(), &[webhook::hook("redact", &python.url, events)]);
    let model = Scripted::answering(|_| Reply::text("Write to master@harbour.example."));
    let server = Server::start(model.clone(), &[("HOOKS_FILE", &file)]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.turn("I am ann@ships.example, häfen@").await["status"], "completed", "{:#?}", client.seen);
    assert_eq!(client.turn("No address here").await["status"], "completed");
    assert_eq!(cached(&model.requests()[0])[0].text(), "I am [redacted], häfen@");
    let said = entries(&client, "message");
    assert_eq!(said[0]["content"][0]["text"], "I am [redacted], häfen@");
    assert_eq!(said[1]["content"][0]["text"], "Write to [redacted].");
    assert_eq!(client.seen.iter().filter(|frame| frame["type"] == "hook_failed").count(), 0, "{:#?}", client.seen);
}

#[tokio::test]
async fn the_webhook_in_python_answers_nobody_but_the_server() {
    let python = redact_in_python().await;
    let folder = tempfile::tempdir().unwrap();
    let other = json!({
        "name": "redact", "url": python.url, "points": [{ "point": "message" }],
        "secret": "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
    });
    let file = webhook::file(folder.path(), &[other]);
    let server = Server::start(Scripted::answering(|_| Reply::text("Hello.")), &[("HOOKS_FILE", &file)]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let refused = client.ask("user_input", json!({ "input": "Hello" })).await["payload"].clone();
    assert_eq!(refused["code"], "hook_failed", "{refused}");
    let failed = client.event("hook_failed").await;
    assert_eq!(failed["payload"]["error"]["message"], "it answered with HTTP 401", "{failed}");
}
