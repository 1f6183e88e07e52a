//! What hooks say is not in the log or the metrics.

use super::super::client::{answer, asked, finished, hook};
use crate::support::{
    binary::{self, Binary},
    client::Client,
    http,
    talk::{summary, words},
    upstream::{self, Upstream},
    webhook::{self, Webhook},
};
use serde_json::{Value, json};

/// Returns an answer of a webhook to this call, full of private words.
fn full_of_words(call: &Value) -> Value {
    let part = json!({
        "op": "system_part_set", "partName": "policy", "text": "gannet-part", "invalidateCacheReason": "gannet-reason",
    });
    let said = json!({ "role": "user", "content": [{ "type": "text", "text": "gannet-added" }] });
    match call["point"].as_str().unwrap() {
        "before_agent_start" => json!({
            "systemPrompt": "gannet-prompt",
            "customMessage": { "customType": "gannet-kind", "content": "gannet-message", "display": true },
            "entries": [{ "customType": "gannet-kind", "data": { "note": "gannet-data" } }],
        }),
        "message" => {
            let mut message = call["message"].clone();
            message["content"][0]["text"] = json!("gannet-redacted");
            json!({ "message": message })
        }
        "context" if call["reason"] == "ephemeral" => {
            json!({ "patch": [{ "op": "messages_uncached_append", "messages": [said] }] })
        }
        "context" => json!({ "patch": [part], "display": { "title": "gannet-title" } }),
        "before_compaction" => json!({ "summary": "gannet-summary", "details": { "note": "gannet-details" } }),
        "before_navigate" => json!({ "label": "gannet-label" }),
        other => panic!("{other} is not asked for"),
    }
}

/// Returns invalid answers of a client's hook, each with its own private words.
fn wrong_words() -> Vec<Value> {
    let part = |name: &str, reason: &str| json!({ "patch": [{ "op": "system_part_set", "partName": name, "text": "x", "invalidateCacheReason": reason }] });
    vec![
        json!({ "error": "gannet-error" }),
        json!({ "patch": [{ "op": "gannet-op" }] }),
        json!({ "patch": ["gannet-string"] }),
        part("gannet part", "gannet-reason"),
        json!({ "patch": [{ "op": "messages_cached_edit", "edits": [{ "entryId": "gannet-entry" }], "invalidateCacheReason": "x" }] }),
        json!({ "transformerName": "gannet name", "patch": [] }),
        json!({ "output": "gannet-output" }),
    ]
}

#[tokio::test]
async fn what_hooks_say_is_not_in_the_log_or_the_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let webhook = Webhook::answering(|call| (200, full_of_words(call))).await;
    let broken = Webhook::answering(|_| (400, json!({ "error": "gannet-refused" }))).await;
    let events = [
        json!({ "point": "before_agent_start" }),
        json!({ "point": "message" }),
        json!({ "point": "context" }),
        json!({ "point": "before_compaction" }),
        json!({ "point": "before_navigate" }),
    ];
    let hooks = [
        webhook::hook("words", &webhook.url, json!(events)),
        webhook::hook("broken", &broken.url, json!([{ "point": "message", "required": false }])),
    ];
    let file = webhook::file(folder.path(), &hooks);
    let upstream = Upstream::start(|asked| match crate::support::talk::is_summary(asked) {
        true => upstream::Reply::text(summary(&["none"])),
        false => upstream::Reply::text(words(1, 100)),
    })
    .await;
    let base_url = upstream.base_url();
    let settings = [
        ("LOG_LEVEL", "trace"),
        ("OPENAI_API_KEY", "otter-key"),
        ("OPENAI_BASE_URL", &base_url),
        // By its tokenizer there is just enough to compact.
        ("MODEL", "gpt-4.1-mini"),
        ("CONTEXT_WINDOW", "8000"),
        ("CONTEXT_STRATEGY", "manual"),
        ("HOOKS_FILE", &file),
    ];
    let server = Binary::start(folder.path(), &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for number in 0..4 {
        let finished = client.turn(&words(number, 200)).await;
        assert_eq!(finished["status"], "completed", "{finished}");
    }
    let first = client.event("entry_appended").await["payload"]["entry"]["entryId"].clone();
    let ordered = client.ask("start_compaction", json!({})).await;
    assert_eq!(ordered["type"], "ok", "{ordered}");
    client.until(|frame| frame["type"] == "context_compacted" || frame["type"] == "compaction_failed").await;
    assert_eq!(client.ask("navigate", json!({ "entryId": first })).await["type"], "navigated");
    client.ask("register_hooks", json!({ "hooks": [hook("own", "context")] })).await;
    for wrong in wrong_words() {
        client.forget("turn_finished");
        let call = asked(&mut client, "And now?").await;
        let shown = wrong.to_string();
        assert_eq!(answer(&mut client, &call, wrong).await["type"], "ok", "{shown}");
        let ended = finished(&mut client).await;
        assert_eq!(ended["status"], "failed", "{shown}: {ended}");
    }
    // An answer that is not even accepted.
    client.ask("hook_result", json!({ "hookCallId": "gannet-call", "gannet-field": "gannet" })).await;
    client.ask("register_hooks", json!({ "hooks": [{ "name": "gannet name", "point": "gannet" }] })).await;
    client.ask("register_hooks", json!({ "hooks": [{ "name": "gannet name", "point": "message" }] })).await;
    let metrics = http::get(&server.address, "/metrics").await.body;
    server.stop().await;
    let log = binary::logged(folder.path());
    assert!(log.contains("hook=\"broken\"") || log.contains("\"hook\":\"broken\""), "faults are logged:\n{log}");
    for (name, text) in [("log", &log), ("metrics", &metrics)] {
        let found = text.lines().find(|line| line.contains("gannet") || line.contains("hunter2"));
        assert_eq!(found, None, "of what a hook said, in the {name}");
    }
    assert!(upstream.requests().iter().any(|asked| asked.contains("gannet-added") && asked.contains("gannet-part")));
}
