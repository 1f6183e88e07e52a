//! Every kind of hook at once: in Rust, as a webhook and at a client. A conversation that is interrupted and continues
//! in another process ends with the same envelope as one that is not.

use super::client::joined;
use crate::support::scripted::{Reply, Scripted};
use crate::support::{
    client::Client,
    server::Server,
    webhook::{self, Webhook},
};
use reseed::{
    core::hook::HookSpec,
    hooks::{Hook, on},
    store::sqlite::SqliteStore,
};
use reseed_protocol::{
    Part, Role,
    hooks::{ContextReason, HookAnswer, HookCall, HookEvent, HookPoint},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, path::Path, sync::Arc};

/// The inputs, one turn each.
const SAID: [&str; 8] = ["one", "look two", "three 4711", "four", "look five", "six", "look seven", "eight"];
/// The conversation is compacted after this many turns.
const COMPACTED_AFTER: usize = 4;
/// After this many it goes back to an earlier entry, and continues from there.
const MOVED_AFTER: usize = 6;

fn patch(ops: Value) -> HookAnswer {
    HookAnswer { patch: ops.as_array().cloned(), ..HookAnswer::default() }
}

/// The hooks in Rust: a policy, text for one request, options at the end of a turn, a summary, and the start of a turn.
fn in_rust() -> Arc<dyn Hook> {
    let context = |reason| HookSpec::new("policy", HookPoint::Context).for_reasons(&[reason]);
    let specs = vec![
        context(ContextReason::BeforeRequest),
        HookSpec::new("request-only", HookPoint::Context).for_reasons(&[ContextReason::Ephemeral]),
        HookSpec::new("options", HookPoint::Context).for_reasons(&[ContextReason::TurnEnd]),
        HookSpec::new("summary", HookPoint::BeforeCompaction),
        HookSpec::new("start", HookPoint::BeforeAgentStart),
        HookSpec::new("moves", HookPoint::BeforeNavigate),
    ];
    on(specs, |call: HookCall| async move {
        Ok(match call.event {
            HookEvent::Context { reason: ContextReason::BeforeRequest, envelope } => {
                let turns = envelope.messages.cached.iter().filter(|said| said.message.role == Role::User).count();
                let text = format!("Be brief. {}", turns / 3);
                patch(json!([{ "op": "system_part_set", "partName": "policy", "text": text,
                               "invalidateCacheReason": "the policy changed" }]))
            }
            HookEvent::Context { reason: ContextReason::Ephemeral, .. } => {
                let words = json!({ "role": "user", "content": [{ "type": "text", "text": "It is noon." }] });
                patch(json!([{ "op": "messages_uncached_append", "messages": [words] }]))
            }
            HookEvent::Context { reason: ContextReason::TurnEnd, envelope } => {
                let said = envelope.messages.cached.len() as u64;
                patch(json!([{ "op": "options_set", "maxOutputTokens": 500 + said / 5,
                               "invalidateCacheReason": "the end of a turn" }]))
            }
            HookEvent::BeforeCompaction(told) => HookAnswer::summary(format!("{} were said.", told.messages.len())),
            HookEvent::BeforeAgentStart { input, .. } => {
                let Some(Part::Text { text }) = input.first() else { return Ok(HookAnswer::default()) };
                let note = json!({ "customType": "note", "content": format!("about {text}"), "display": false });
                serde_json::from_value(json!({ "customMessage": note })).unwrap()
            }
            HookEvent::BeforeNavigate(_) => HookAnswer { label: Some("moved".into()), ..HookAnswer::default() },
            _ => HookAnswer::default(),
        })
    })
}

/// The webhook: removes a number from what users say, and turns tool results into capitals.
async fn redacting() -> Webhook {
    Webhook::answering(|call| {
        if call["point"] == "tool_result" {
            return (200, json!({ "output": call["output"].as_str().unwrap().to_uppercase() }));
        }
        let mut message = call["message"].clone();
        for part in message["content"].as_array_mut().unwrap() {
            if let Some(text) = part["text"].as_str() {
                part["text"] = json!(text.replace("4711", "[number]"));
            }
        }
        (200, json!({ "message": message }))
    })
    .await
}

/// A model that calls the tool if it is asked to look, and then repeats the result.
fn model() -> Scripted {
    Scripted::answering(|request| {
        let last = request.envelope.messages.cached.last().map(|said| said.message.clone()).unwrap();
        match last.content.first() {
            Some(Part::ToolResult { output, .. }) => Reply::text(format!("I saw {output}.")),
            _ if last.text().contains("about look") => Reply::parts(vec![Part::ToolCall {
                call_id: "upstream".parse().unwrap(),
                name: "look".into(),
                arguments: "{}".into(),
            }]),
            _ => Reply::text(format!("4711 to {}", last.text())),
        }
    })
}

async fn serving(folder: &Path, webhook: &Webhook, model: &Scripted) -> Server {
    let events = json!([{ "point": "message" }, { "point": "tool_result" }]);
    let file = webhook::file(folder, &[webhook::hook("redact", &webhook.url, events)]);
    let store = Arc::new(SqliteStore::open(&folder.join("reseed.db")).unwrap());
    let settings = [("HOOKS_FILE", file.as_str()), ("CONTEXT_WINDOW", "8000")];
    Server::over_with_hooks(model.clone(), store, vec![in_rust()], &settings).await
}

/// The client's part: a tool, and a hook on its calls.
fn opening(session: Option<&Value>) -> Value {
    let schema = json!({ "type": "object", "properties": { "at": { "type": "string" } } });
    let mut open = json!({
        "tools": [{ "name": "look", "description": "Looks.", "parameters": schema }],
        "hooks": [{ "name": "aim", "point": "tool_call" }],
    });
    if let Some(session) = session {
        open["sessionId"] = session.clone();
    }
    open
}

async fn turn(client: &mut Client, text: &str) -> Value {
    client.send("user_input", json!({ "input": text })).await;
    loop {
        let frame = client.next_frame().await.expect("the server does not hang up");
        let payload = &frame["payload"];
        match frame["type"].as_str().unwrap() {
            "hook_call" => {
                let result = json!({ "hookCallId": payload["hookCallId"], "arguments": r#"{"at":"the sea"}"# });
                client.send("hook_result", result).await;
            }
            "tool_call" => {
                assert_eq!(payload["arguments"], r#"{"at":"the sea"}"#);
                client.send("tool_result", json!({ "toolCallId": payload["toolCallId"], "output": "a boat" })).await;
            }
            "turn_finished" => return payload.clone(),
            _ => {}
        }
    }
}

/// Runs the whole conversation, stopped after this many turns; returns its envelope at the end and its ids in the order
/// of their first appearance.
async fn conversation(stopped_after: Option<usize>) -> (String, Vec<String>) {
    let (folder, model, webhook) = (tempfile::tempdir().unwrap(), model(), redacting().await);
    let mut server = serving(folder.path(), &webhook, &model).await;
    let (mut client, opened) = joined(&server, "tab-one", opening(None)).await;
    let session = opened["sessionId"].clone();
    let mut first_answer = Value::Null;
    for (at, said) in SAID.into_iter().enumerate() {
        if stopped_after == Some(at) {
            server.service.stop().await;
            server = serving(folder.path(), &webhook, &model).await;
            (client, _) = joined(&server, "tab-one", opening(Some(&session))).await;
        }
        let finished = turn(&mut client, said).await;
        assert_eq!(finished["status"], "completed", "{said}: {finished}");
        if at == COMPACTED_AFTER {
            assert_eq!(client.ask("start_compaction", json!({})).await["type"], "ok");
            let compacted = client.event("context_compacted").await;
            assert_eq!(compacted["payload"]["rung"], "hook_summary", "{compacted}");
            first_answer = compacted["payload"]["entryId"].clone();
        }
        if at == MOVED_AFTER {
            let to = json!({ "entryId": first_answer, "position": "at" });
            assert_eq!(client.ask("navigate", to).await["type"], "navigated");
        }
    }
    let told = client.ask("get_context", json!({})).await["payload"]["envelope"].clone();
    server.service.stop().await;
    (normal(&told), model.requests().iter().map(|request| request.envelope.system.compiled.clone()).collect())
}

/// Returns the envelope as text, without token counts (a restart forgets what was learnt about them), with ids named by
/// their order.
fn normal(envelope: &Value) -> String {
    let mut envelope = envelope.clone();
    envelope.as_object_mut().unwrap().remove("meta");
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    rename(&mut envelope, &mut names);
    serde_json::to_string_pretty(&envelope).unwrap()
}

fn rename(value: &mut Value, names: &mut BTreeMap<String, String>) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| rename(value, names)),
        Value::Object(fields) => {
            // What an answer reports of its request belongs to that request, not to this envelope.
            for field in ["usage", "receipt", "envelopeKey"] {
                fields.remove(field);
            }
            for (key, value) in fields.iter_mut() {
                match value.as_str() {
                    Some(id) if key == "entryId" || key == "toolCallId" || key == "hookCallId" => {
                        let next = format!("id-{}", names.len());
                        *value = json!(names.entry(id.to_owned()).or_insert(next).clone());
                    }
                    _ => rename(value, names),
                }
            }
        }
        _ => {}
    }
}

#[tokio::test]
async fn with_every_kind_of_hook_a_conversation_that_is_stopped_comes_to_the_same_envelope() {
    let (undisturbed, sent) = conversation(None).await;
    for wanted in ["Be brief.", "[number]", "A BOAT", "were said.", "about eight", "maxOutputTokens"] {
        assert!(undisturbed.contains(wanted), "{wanted} is missing: {undisturbed}");
    }
    assert!(!undisturbed.contains("4711") && !undisturbed.contains("It is noon."), "{undisturbed}");
    for stopped_after in [1, COMPACTED_AFTER, COMPACTED_AFTER + 1, MOVED_AFTER + 1] {
        let (disturbed, also_sent) = conversation(Some(stopped_after)).await;
        assert_eq!(disturbed, undisturbed, "stopped after {stopped_after} turns");
        assert_eq!(also_sent, sent, "stopped after {stopped_after} turns");
    }
}
