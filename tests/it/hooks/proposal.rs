//! Handlers written for the proposal that patches follow (pull request 383 of pi-mono) work unchanged: with scopes,
//! plain strings as content, bare messages with times, and answers that return everything that was shown.

use super::client::{answer, joined};
use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, server::Server};
use serde_json::{Value, json};

/// The answers of the three handlers: a marker before every request, a note for one request, a policy for later turns.
fn handled(reason: &str, envelope: &Value) -> Value {
    match reason {
        "before_request" => {
            let mut messages = envelope["messages"]["cached"].as_array().unwrap().clone();
            messages.push(json!({ "role": "user", "content": "[marker]", "timestamp": 1_767_603_600_000_i64 }));
            json!({ "transformerName": "marker", "patch": [{
                "op": "messages_cached_replace", "scope": "cached", "messages": messages,
                "invalidateCacheReason": "add marker",
            }] })
        }
        "ephemeral" => json!({ "patch": [{
            "op": "messages_uncached_append", "scope": "uncached",
            "messages": [{ "role": "user", "content": "[request-only]", "timestamp": 1_767_603_600_000_i64 }],
        }] }),
        "turn_end" => json!({ "transformerName": "system-policy", "patch": [{
            "op": "system_part_set", "scope": "cached", "partName": "policy", "text": "\n\n# Policy\n\nBe discreet.",
            "invalidateCacheReason": "add policy section",
        }] }),
        other => panic!("asked with {other}"),
    }
}

async fn turn(client: &mut Client, text: &str) {
    let accepted = client.ask("user_input", json!({ "input": text })).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    loop {
        let frame = client.until(|frame| frame["type"] == "hook_call" || frame["type"] == "turn_finished").await;
        let payload = &frame["payload"];
        if frame["type"] == "turn_finished" {
            assert_eq!(payload["status"], "completed", "{payload}");
            return;
        }
        let result = handled(payload["reason"].as_str().unwrap(), &payload["envelope"]);
        let done = answer(client, payload, result).await;
        assert_eq!(done["type"], "ok", "{done}");
    }
}

#[tokio::test]
async fn handlers_of_the_proposal_run_as_they_are() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let open = json!({ "hooks": [{ "name": "handlers", "point": "context" }] });
    let (mut client, _) = joined(&server, "tab-one", open).await;
    turn(&mut client, "Is the sea warm?").await;
    turn(&mut client, "And now?").await;
    let requests = model.requests();
    let said = |at: usize| requests[at].messages().map(|sent| sent.message.text()).collect::<Vec<_>>();
    assert_eq!(said(0), ["Is the sea warm?", "[marker]", "[request-only]"]);
    let later = ["Is the sea warm?", "[marker]", "It is.", "And now?", "[marker]", "[request-only]"];
    assert_eq!(said(1), later);
    let systems: Vec<bool> =
        requests.iter().map(|sent| sent.envelope.system.compiled.ends_with("Be discreet.")).collect();
    assert_eq!(systems, [false, true]);
    // What was returned unchanged is stored by its entry id alone.
    let is_marker = |frame: &&Value| frame["payload"]["entry"]["transformerName"] == "marker";
    let markers: Vec<&Value> = client.seen.iter().filter(is_marker).collect();
    let stored = markers.last().unwrap()["payload"]["entry"]["patch"][0]["messages"].as_array().unwrap();
    let carried: Vec<&str> = stored.iter().filter_map(|item| item["message"]["content"][0]["text"].as_str()).collect();
    assert_eq!((stored.len(), carried), (5, vec!["[marker]", "[marker]"]));
}
