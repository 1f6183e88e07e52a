//! What a hook removes from a message is nowhere.

mod words;

use super::client::{answer, asked, finished, hook, joined};
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    binary::{self, Binary},
    client::Client,
    json::present,
    server::Server,
    talk::text_of,
    upstream::{self, Upstream},
    webhook::{self, Webhook},
};
use reseed::{
    core::hook::HookSpec,
    hooks::{Hook, on},
    store::sqlite::SqliteStore,
};
use reseed_protocol::{
    Message, Part, Role,
    hooks::{HookAnswer, HookCall, HookEvent, HookPoint},
};
use serde_json::{Value, json};
use std::{fs, path::Path, sync::Arc};

/// The text that must not be seen.
const SECRET: &str = "4711-0815";

/// Replaces the secret, wherever a message contains it.
fn redacted(message: Message) -> Message {
    let redact = |text: String| text.replace(SECRET, "[number]");
    let part = |part| match part {
        Part::Text { text } => Part::Text { text: redact(text) },
        Part::Reasoning { text, payload } => Part::Reasoning { text: redact(text), payload },
        other => other,
    };
    Message { content: message.content.into_iter().map(part).collect(), ..message }
}

/// Redacts once the gate is open.
fn redactor(gate: &Gate) -> Arc<dyn Hook> {
    let gate = gate.clone();
    on([HookSpec::new("redact", HookPoint::Message)], move |call: HookCall| {
        let gate = gate.clone();
        async move {
            let HookEvent::Message { message, .. } = call.event else { return Ok(HookAnswer::default()) };
            if message.role == Role::Assistant {
                gate.passed().await;
            }
            Ok(HookAnswer::message(redacted(message)))
        }
    })
}

/// A model that says the secret, in many pieces.
fn teller() -> Scripted {
    Scripted::answering(|_| {
        let thought = Part::Reasoning { text: format!("I know {SECRET}."), payload: None };
        let said = Part::Text { text: format!("The number is {SECRET}, and the sea is calm.") };
        Reply::parts(vec![thought, said]).in_pieces(20)
    })
}

/// Returns true if any file in this folder contains these bytes.
fn holds(folder: &Path, text: &str) -> bool {
    fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).any(|path| {
        if path.is_dir() {
            return holds(&path, text);
        }
        // Comparing window by window takes a minute in a debug build.
        String::from_utf8_lossy(&fs::read(path).unwrap()).contains(text)
    })
}

/// A server that redacts, over a store in this folder.
async fn redacting(model: &Scripted, gate: &Gate, folder: &Path) -> Server {
    let store = SqliteStore::open(&folder.join("reseed.db")).unwrap();
    Server::over_with_hooks(model.clone(), Arc::new(store), vec![redactor(gate)], &[]).await
}

#[tokio::test]
async fn what_a_hook_takes_out_of_an_answer_is_shown_to_nobody_and_stored_nowhere() {
    let (folder, gate, model) = (tempfile::tempdir().unwrap(), Gate::new(), teller());
    let server = redacting(&model, &gate, folder.path()).await;
    let (mut client, opened) = joined(&server, "tab-one", json!({})).await;
    let watching = json!({ "sessionId": opened["sessionId"], "role": "observer", "deltas": true });
    let (mut observer, _) = joined(&server, "watcher", watching.clone()).await;

    // An answer that is cancelled while the hook inspects it never existed.
    let accepted = client.ask("user_input", json!({ "input": "Which number?" })).await;
    model.wait_for_requests(1).await;
    assert_eq!(client.ask("user_input", json!({ "input": "Which?" })).await["payload"]["queued"], true);
    let turn = json!({ "turnId": accepted["payload"]["turnId"] });
    assert_eq!(client.ask("cancel_turn", turn).await["type"], "ok");
    assert_eq!(finished(&mut client).await["status"], "cancelled");

    // A client that connects while the hook inspects it sees nothing either.
    model.wait_for_requests(2).await;
    let (mut late, joined_late) = joined(&server, "latecomer", watching).await;
    assert!(!joined_late.to_string().contains(SECRET), "{joined_late}");
    gate.open();
    assert_eq!(finished(&mut client).await["status"], "completed");
    assert_eq!(client.turn("And the sea?").await["status"], "completed");
    for watcher in [&mut observer, &mut late] {
        watcher.until(|frame| frame.to_string().contains("And the sea?")).await;
        watcher.event("turn_finished").await;
    }
    let context = client.ask("get_context", json!({})).await;
    let entries = client.ask("get_entries", json!({ "sessionId": opened["sessionId"] })).await;
    for (name, told) in [("context", &context), ("entries", &entries)] {
        let told = told.to_string();
        assert!(told.contains("The number is [number], and the sea is calm."), "{name}: {told}");
        assert!(told.contains("I know [number]."), "{name}: {told}");
    }
    for seen in [&client.seen, &observer.seen, &late.seen] {
        for frame in seen {
            assert!(!frame.to_string().contains(SECRET), "{frame}");
            assert!(
                !["item_started", "item_delta", "item_aborted"].contains(&frame["type"].as_str().unwrap()),
                "{frame}"
            );
        }
    }
    assert!(!model.requests().iter().any(|request| text_of(request).contains(SECRET)), "it is not told what it told");
    server.service.stop().await;
    drop(server);
    assert!(holds(folder.path(), "The number is [number]") && !holds(folder.path(), SECRET));
}

#[tokio::test]
async fn an_answer_whose_hook_fails_is_shown_to_nobody_unless_the_hook_is_not_required() {
    let about_answers = |call: HookCall| async move {
        match call.event {
            HookEvent::Message { message, .. } if message.role == Role::Assistant => panic!("it cannot"),
            _ => Ok(HookAnswer::default()),
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let failing = on([HookSpec::new("redact", HookPoint::Message)], about_answers);
    let server = Server::over_with_hooks(teller(), store, vec![failing], &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let ended = client.turn("Which number?").await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("hook_failed")), "{ended}");
    assert_eq!(ended["error"]["retriable"], true, "{ended}");
    assert!(!client.seen.iter().any(|frame| frame.to_string().contains(SECRET)), "{:#?}", client.seen);
    server.service.stop().await;
    drop(server);
    assert!(holds(folder.path(), "Which number?") && !holds(folder.path(), SECRET));

    let failing = on([HookSpec::new("redact", HookPoint::Message).optional()], async |_| panic!("it cannot"));
    let server = Server::with_hooks(teller(), vec![failing], &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.turn("Which number?").await["status"], "completed");
    let said: Vec<&Value> = client.seen.iter().filter(|frame| frame["type"] == "entry_appended").collect();
    let parts = &said[1]["payload"]["entry"]["content"];
    assert_eq!(parts[1]["text"], format!("The number is {SECRET}, and the sea is calm."), "{parts}");
    let kinds: Vec<&str> = client.seen.iter().filter_map(|frame| frame["type"].as_str()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "hook_failed").count(), 2, "of what was said, and of the answer");
    assert!(!kinds.contains(&"item_delta"), "{kinds:?}");
}

/// A server in a process of its own that logs everything, with a webhook that redacts, and its settings.
async fn redacting_binary(folder: &Path, webhook: &Webhook, upstream: &Upstream) -> Binary {
    let file = webhook::file(folder, &[webhook::hook("redact", &webhook.url, json!([{ "point": "message" }]))]);
    let base_url = upstream.base_url();
    let settings = [
        ("LOG_LEVEL", "trace"),
        ("OPENAI_API_KEY", "otter-key"),
        ("OPENAI_BASE_URL", &base_url),
        ("CONTEXT_WINDOW", "8000"),
        ("HOOKS_FILE", &file),
    ];
    Binary::start(folder, &settings).await
}

/// Answers a call with the message without the secret.
fn redact(call: &Value) -> Value {
    let mut message = call["message"].clone();
    for part in message["content"].as_array_mut().unwrap() {
        for field in ["text", "output"] {
            if let Some(text) = part[field].as_str() {
                part[field] = json!(text.replace(SECRET, "[number]"));
            }
        }
    }
    json!({ "message": message })
}

#[tokio::test]
async fn what_a_hook_takes_out_of_an_input_or_a_result_is_stored_logged_and_shown_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let webhook = Webhook::answering(|call| (200, redact(call))).await;
    let gate = Gate::new();
    let upstream = {
        let gate = gate.clone();
        Upstream::start(move |asked| match (asked.ends_with_result(), asked.last_user_text().contains("look")) {
            (false, true) => upstream::Reply::call("look", "{}"),
            (true, _) => upstream::Reply::text("I saw it."),
            (false, false) => upstream::Reply::text("It is calm.").held_by(&gate),
        })
        .await
    };
    let server = redacting_binary(folder.path(), &webhook, &upstream).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let session = json!({ "sessionId": opened["sessionId"] });
    let mut observer = Client::v2(&server.ws()).await;
    let watching = json!({ "sessionId": opened["sessionId"], "role": "observer", "deltas": true });
    assert_eq!(observer.ask("open_session", watching).await["type"], "session_opened");
    let look = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    assert_eq!(client.ask("register_tools", json!({ "tools": [look] })).await["type"], "ok");

    // One input begins a turn, one waits, one is steered, one begins a branch, and one comes from a tool.
    let say = |what: &str| json!({ "input": format!("{what} {SECRET}") });
    let first_id = client.id();
    client.send_as(&first_id, "user_input", say("begins")).await;
    let accepted = client.until(|frame| frame["re"] == first_id.as_str()).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    assert_eq!(client.ask("user_input", say("waits")).await["payload"]["queued"], true);
    let mut steered = say("is steered");
    steered["whenBusy"] = json!("steer");
    assert_eq!(client.ask("user_input", steered).await["payload"]["queued"], true);
    assert!(!holds(folder.path(), SECRET), "while all of it waits");
    gate.open();
    finished(&mut client).await;
    finished(&mut client).await;
    finished(&mut client).await;
    let mut branch = say("branches off");
    branch["parentId"] = Value::Null;
    assert_eq!(client.ask("user_input", branch).await["type"], "accepted");
    finished(&mut client).await;
    assert_eq!(client.ask("user_input", json!({ "input": "look" })).await["type"], "accepted");
    let called = client.event("tool_call").await["payload"]["toolCallId"].clone();
    let result = json!({ "toolCallId": called, "output": format!("It says {SECRET}.") });
    let result_id = client.id();
    client.send_as(&result_id, "tool_result", result.clone()).await;
    finished(&mut client).await;
    observer.until(|frame| frame.to_string().contains("I saw it.")).await;

    // An input that is sent again after a restart is recognised, and answered as before.
    assert!(!holds(folder.path(), SECRET), "in the write-ahead log too");
    server.kill().await;
    let server = redacting_binary(folder.path(), &webhook, &upstream).await;
    let mut again = Client::v2(&server.ws()).await;
    assert_eq!(again.ask("open_session", session).await["type"], "session_opened");
    for (id, kind, payload) in [(&first_id, "user_input", say("begins")), (&result_id, "tool_result", result)] {
        again.send_as(id, kind, payload).await;
        let reply = again.until(|frame| frame["re"] == id.as_str()).await;
        assert_eq!(reply["payload"]["duplicate"], true, "{reply}");
    }
    again.send_as(&first_id, "rename_session", json!({ "name": "other" })).await;
    let conflict = again.until(|frame| frame["re"] == first_id.as_str()).await;
    assert_eq!(conflict["payload"]["code"], "idempotency_conflict", "{conflict}");
    server.stop().await;

    for seen in [&client.seen, &observer.seen, &again.seen] {
        assert!(seen.iter().all(|frame| !frame.to_string().contains(SECRET)), "{seen:#?}");
    }
    for said in ["begins", "waits", "is steered", "branches off"] {
        let redacted = format!("{said} [number]");
        assert!(holds(folder.path(), &redacted), "{said} is stored as the hook made it");
        assert!(upstream.requests().iter().any(|asked| asked.contains(&redacted)), "{said} is sent so");
    }
    assert!(upstream.requests().iter().any(|asked| asked.contains("It says [number].")));
    assert!(upstream.requests().iter().all(|asked| !asked.contains(SECRET)));
    assert!(!holds(folder.path(), SECRET));
    let log = binary::logged(folder.path());
    assert!(!log.contains(SECRET) && log.len() > 10_000, "the log tells of everything, and of no text");
    let asked = webhook.calls();
    for said in ["begins", "waits", "is steered", "branches off", "It says"] {
        let times = asked.iter().filter(|call| call.to_string().contains(&format!("{said} {SECRET}"))).count();
        assert_eq!(times, 1, "{said}: once a command");
    }
}

/// A hook's invalid answer is reported only by position, because its text may be what the hook was to remove.
#[tokio::test]
async fn what_a_hook_repeats_in_a_wrong_answer_is_stored_logged_and_shown_nowhere() {
    let said = |text: &str| json!({ "role": "user", "content": [{ "type": "text", "text": text }] });
    let mut in_message = said("x");
    in_message[SECRET] = json!(SECRET);
    let mut in_part = said("x");
    in_part["content"][0][SECRET] = json!(SECRET);
    let wrong = [
        json!({ SECRET: SECRET }),
        json!({ "message": in_message }),
        json!({ "message": in_part }),
        json!({ "message": { "role": SECRET, "content": SECRET } }),
        json!({ "message": { "role": "user", "content": [{ "type": SECRET }] } }),
        json!({ "message": { "role": "user", "content": SECRET } }),
        json!({ "message": { "role": "user", "content": [{ "type": "image", "url": SECRET }] } }),
        json!({ "error": SECRET }),
        json!({ "label": SECRET }),
    ];
    let folder = tempfile::tempdir().unwrap();
    let webhook = {
        let wrong = wrong.clone();
        Webhook::answering(move |call| {
            let text = call["message"]["content"][0]["text"].as_str().unwrap();
            let number = text.split(' ').next().and_then(|word| word.parse::<usize>().ok());
            (200, number.and_then(|number| wrong.get(number)).cloned().unwrap_or_else(|| redact(call)))
        })
        .await
    };
    let upstream = Upstream::start(|_| upstream::Reply::text("It is calm.")).await;
    let server = redacting_binary(folder.path(), &webhook, &upstream).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let mut observer = Client::v2(&server.ws()).await;
    let watching = json!({ "sessionId": opened["sessionId"], "role": "observer" });
    assert_eq!(observer.ask("open_session", watching).await["type"], "session_opened");
    for (number, answer) in wrong.iter().enumerate() {
        let refused = client.ask("user_input", json!({ "input": format!("{number} {SECRET}") })).await;
        assert_eq!(refused["payload"]["code"], "hook_failed", "{answer}: {refused}");
    }
    // The same holds for a client's own hook: an answer of the wrong form is refused to that client alone.
    client.ask("register_hooks", json!({ "hooks": [hook("own", "message")] })).await;
    for answer in &wrong {
        let id = client.id();
        client.send_as(&id, "user_input", json!({ "input": format!("99 {SECRET}") })).await;
        let call = client.event("hook_call").await["payload"]["hookCallId"].clone();
        let mut result = answer.clone();
        result["hookCallId"] = call.clone();
        if client.ask("hook_result", result).await["type"] == "error" {
            assert_eq!(client.ask("hook_result", json!({ "hookCallId": call, "error": "no" })).await["type"], "ok");
        }
        let refused = client.until(|frame| frame["re"] == id.as_str()).await;
        assert_eq!(refused["payload"]["code"], "hook_failed", "{answer}: {refused}");
        assert!(!refused.to_string().contains(SECRET), "{answer}: {refused}");
        client.forget("hook_call");
    }
    assert_eq!(client.ask("register_hooks", json!({ "hooks": [] })).await["type"], "ok");
    assert_eq!(client.turn("99 seen").await["status"], "completed");
    observer.event("turn_finished").await;
    server.stop().await;

    for frame in &observer.seen {
        assert!(!frame.to_string().contains(SECRET), "{frame}");
    }
    let failures = observer.seen.iter().filter(|frame| frame["type"] == "hook_failed").count();
    assert_eq!(failures, 2 * wrong.len(), "{:#?}", observer.seen);
    assert!(holds(folder.path(), "99 seen") && !holds(folder.path(), SECRET));
    assert!(!binary::logged(folder.path()).contains(SECRET));
}

#[tokio::test]
async fn a_client_may_do_anything_in_the_middle_of_its_call() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let offers = json!({ "hooks": [hook("policy", "before_agent_start"), hook("policy", "context"), hook("policy", "tool_call")] });
    let (mut client, _) = joined(&server, "tab-one", offers.clone()).await;
    let call = asked(&mut client, "Is the sea warm?").await;
    // These are nested more and more deeply. The hook is not called for any of them before this call is answered.
    for _ in 0..20 {
        assert_eq!(client.ask("register_hooks", offers.clone()).await["type"], "ok");
    }
    assert_eq!(client.ask("user_input", json!({ "input": "And now?" })).await["payload"]["queued"], true);
    assert_eq!(client.ask("set_instructions", json!({ "instructions": "Be brief." })).await["type"], "ok");
    assert_eq!(client.ask("get_context", json!({})).await["type"], "context");
    assert_eq!(client.ask("get_context_info", json!({})).await["type"], "context_info");
    assert_eq!(client.ask("start_compaction", json!({})).await["payload"]["code"], "nothing_to_compact");
    assert_eq!(client.ask("navigate", json!({ "entryId": "root" })).await["payload"]["code"], "turn_running");
    assert_eq!(client.ask("retry_turn", json!({})).await["payload"]["code"], "turn_running");
    let calls = client.seen.iter().filter(|frame| frame["type"] == "hook_call");
    assert!(
        calls.clone().all(|frame| frame["payload"]["hookCallId"] == *present(&call["hookCallId"])),
        "{:?}",
        calls.collect::<Vec<_>>()
    );
    assert_eq!(answer(&mut client, &call, json!({})).await["type"], "ok");
    client.forget("hook_call");
    let mut ended = 0;
    while ended < 2 {
        let frame = client.next_frame().await.unwrap();
        match frame["type"].as_str().unwrap() {
            "hook_call" => {
                let result = json!({ "hookCallId": frame["payload"]["hookCallId"] });
                client.send("hook_result", result).await;
            }
            "turn_finished" => {
                assert_eq!(frame["payload"]["status"], "completed", "{frame}");
                ended += 1;
            }
            _ => {}
        }
    }
    assert_eq!(model.requests().len(), 2);
    assert_eq!(model.requests()[0].envelope.system.compiled, "Be brief.");
}
