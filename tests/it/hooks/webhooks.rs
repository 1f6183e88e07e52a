//! Webhooks of a running server, as its users see them.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{
    binary::{self, Binary},
    client::Client,
    server::Server,
    talk::{text_of, words},
    webhook::{self, Webhook},
};
use reseed::hooks;
use reseed_protocol::hooks::{HookAnswer, HookPoint};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

/// Starts a server on this model with these webhooks, and a client in a new session.
async fn talking(model: &Scripted, hooks: &[Value]) -> (Server, Client) {
    let folder = tempfile::tempdir().unwrap();
    // The file is read at the start and never again.
    let file = webhook::file(folder.path(), hooks);
    let server = Server::start(model.clone(), &[("HOOKS_FILE", &file)]).await;
    let (client, _) = Client::v2_session(&server.ws()).await;
    (server, client)
}

fn answering() -> Scripted {
    Scripted::answering(|_| Reply::text("It is calm.").in_pieces(2))
}

#[tokio::test]
async fn a_webhook_is_asked_about_what_the_model_says_and_changes_it_before_anybody_sees_it() {
    let webhook = Webhook::answering(|call| {
        let mut message = call["message"].clone();
        if message["role"] == "assistant" {
            message["content"][0]["text"] = json!("It is stormy.");
        }
        (200, json!({ "message": message }))
    })
    .await;
    let model = answering();
    let (_server, mut client) =
        talking(&model, &[webhook::hook("weather", &webhook.url, json!([{ "point": "message" }]))]).await;
    assert_eq!(client.turn("How is the sea?").await["status"], "completed");
    let entries: Vec<Value> = client.seen.iter().filter(|frame| frame["type"] == "entry_appended").cloned().collect();
    let said: Vec<&str> =
        entries.iter().filter_map(|frame| frame["payload"]["entry"]["content"][0]["text"].as_str()).collect();
    assert_eq!(said, ["How is the sea?", "It is stormy."]);
    let shown = client.seen.iter().any(|frame| frame.to_string().contains("calm"));
    assert!(!shown, "{:#?}", client.seen);
    let calls = webhook.calls();
    let roles: Vec<&str> = calls.iter().filter_map(|call| call["message"]["role"].as_str()).collect();
    assert_eq!(roles, ["user", "assistant"]);
    for call in &calls {
        assert_eq!((&call["point"], &call["hook"]), (&json!("message"), &json!("weather")));
        assert!(call["deadline"].is_string() && call["sessionId"].is_string(), "{call}");
    }
}

#[tokio::test]
async fn a_context_webhook_that_fails_ends_the_request_and_not_the_session() {
    let failing = Webhook::answering(|_| (500, json!({ "error": "secret words" }))).await;
    let garbage = Webhook::answering(|_| (200, json!({ "patsh": "secret words" }))).await;
    for (webhook, told) in [(failing, "it answered with HTTP 500"), (garbage, "it has an unknown field")] {
        let model = answering();
        let events = json!([{ "point": "context", "reasons": ["before_request"] }]);
        let (_server, mut client) = talking(&model, &[webhook::hook("notes", &webhook.url, events)]).await;
        for _ in 0..2 {
            let finished = client.turn("How is the sea?").await;
            assert_eq!((&finished["status"], &finished["error"]["code"]), (&json!("failed"), &json!("hook_failed")));
            let message = finished["error"]["message"].as_str().unwrap();
            assert!(message.contains("`notes`") && message.contains(told), "{message}");
            assert!(!finished.to_string().contains("secret") && !finished.to_string().contains("hunter2"));
        }
        assert_eq!((webhook.calls().len(), model.requests().len()), (2, 0));
    }
}

#[tokio::test]
async fn a_webhook_is_given_the_conversation_before_a_compaction_and_can_read_the_whole_branch() {
    let webhook = Webhook::answering(|_| (200, json!({ "summary": "The ferry is called Aurora." }))).await;
    let folder = tempfile::tempdir().unwrap();
    let hooks = [webhook::hook("summariser", &webhook.url, json!([{ "point": "before_compaction" }]))];
    let file = webhook::file(folder.path(), &hooks);
    let server = Server::start(answering(), &[("HOOKS_FILE", &file), ("CONTEXT_WINDOW", "8000")]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let strategy = json!({ "strategy": "manual", "settings": { "keepRecentTokens": 200 } });
    assert_eq!(client.ask("set_context_strategy", strategy).await["type"], "ok");
    let mut calls = Vec::new();
    for round in 0..2 {
        client.turn(&format!("Question {round}, about the ferry.")).await;
        client.turn(&words(1, 300)).await;
        client.turn("Thank you.").await;
        assert_eq!(client.ask("start_compaction", json!({})).await["type"], "ok", "{round}");
        let compacted = client.event("context_compacted").await["payload"].clone();
        assert_eq!(compacted["rung"], "hook_summary", "{compacted}");
        calls.push(webhook.calls().pop().unwrap());
        let said = calls[round]["conversation"].as_str().unwrap();
        assert!(said.contains(&format!("[User]: Question {round}, about the ferry.")), "{said}");
        assert!(calls[round]["branchEntries"].to_string().contains(&format!("Question {round}")));
    }
    // What the first compaction removed from the context is read page by page, over any socket.
    let first = calls[1]["branchEntries"][0].clone();
    assert!(first["parentId"].is_string() && !calls[1]["branchEntries"].to_string().contains("Question 0"), "{first}");
    let mut reader = Client::v2(&server.ws()).await;
    reader.ask("open_session", json!({ "sessionId": opened["sessionId"], "role": "observer" })).await;
    let older = json!({ "path": true, "before": first["entryId"] });
    let page = reader.ask("get_entries", older).await["payload"]["items"].to_string();
    assert!(page.contains("Question 0, about the ferry."), "{page}");
}

#[tokio::test]
async fn a_message_webhook_that_fails_refuses_the_input_unless_it_is_not_required() {
    let webhook = Webhook::answering(|_| (503, Value::Null)).await;
    let failed = (json!("weather"), json!("hook_failed"));
    let model = answering();
    let (_server, mut client) =
        talking(&model, &[webhook::hook("weather", &webhook.url, json!([{ "point": "message" }]))]).await;
    let refused = client.ask("user_input", json!({ "input": "How is the sea?" })).await;
    assert_eq!(refused["type"], "error", "{refused}");
    let details = &refused["payload"]["details"];
    assert_eq!((details["hook"].clone(), refused["payload"]["code"].clone()), failed, "{refused}");
    assert_eq!(refused["payload"]["retriable"], true);
    let told = client.event("hook_failed").await["payload"].clone();
    assert_eq!((told["hook"].clone(), told["error"]["code"].clone()), failed);
    assert_eq!(client.ask("get_entries", json!({})).await["payload"]["items"], json!([]), "nothing of it is kept");
    assert_eq!(model.requests().len(), 0);

    let optional = json!([{ "point": "message", "required": false }]);
    let (_server, mut client) = talking(&model, &[webhook::hook("weather", &webhook.url, optional)]).await;
    assert_eq!(client.turn("How is the sea?").await["status"], "completed");
    let told = client.event("hook_failed").await["payload"].clone();
    assert_eq!((told["hook"].clone(), told["error"]["code"].clone()), failed);
    assert_eq!(text_of(&model.requests()[0]), "How is the sea?");
}

#[tokio::test]
async fn a_webhook_that_does_not_answer_in_time_ends_the_request() {
    // This accepts connections and never reads from them.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let events = json!([{ "point": "context", "reasons": ["ephemeral"], "timeoutMs": 50 }]);
    let (_server, mut client) = talking(&answering(), &[webhook::hook("slow", &url, events)]).await;
    let finished = client.turn("How is the sea?").await;
    assert_eq!(finished["error"]["code"], "hook_timeout", "{finished}");
}

#[tokio::test]
async fn a_turn_that_is_cancelled_hangs_up_on_its_webhook() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let events = json!([{ "point": "context", "reasons": ["before_request"] }]);
    let model = answering();
    let (_server, mut client) = talking(&model, &[webhook::hook("slow", &url, events)]).await;
    let accepted = client.ask("user_input", json!({ "input": "How is the sea?" })).await;
    let (mut asked, _) = listener.accept().await.unwrap();
    let turn = json!({ "turnId": accepted["payload"]["turnId"] });
    assert_eq!(client.ask("cancel_turn", turn).await["type"], "ok");
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "cancelled");
    // This ends only when the server has closed the connection.
    let mut call = Vec::new();
    let _ = asked.read_to_end(&mut call).await;
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn an_observing_webhook_is_told_and_waited_for_by_nobody() {
    let (told, mut telling) = tokio::sync::mpsc::unbounded_channel();
    let webhook = Webhook::answering(move |call| {
        let _ = told.send(call.clone());
        (200, json!({ "message": { "role": "assistant", "content": [] } }))
    })
    .await;
    let events = json!([{ "point": "message", "observe": true }]);
    let (_server, mut client) = talking(&answering(), &[webhook::hook("ear", &webhook.url, events)]).await;
    assert_eq!(client.turn("How is the sea?").await["status"], "completed");
    let mut heard = Vec::new();
    for _ in 0..2 {
        let call = telling.recv().await.unwrap();
        assert_eq!(call.get("deadline"), None, "{call}");
        heard.push(call["message"]["content"][0]["text"].as_str().unwrap().to_owned());
    }
    heard.sort();
    assert_eq!(heard, ["How is the sea?", "It is calm."]);
    assert_eq!(client.seen.iter().filter(|frame| frame["type"] == "hook_failed").count(), 0);
    // What is shown anyway is not held back for the hook.
    assert!(client.seen.iter().any(|frame| frame["type"] == "item_delta"));
}

#[tokio::test]
async fn hooks_of_the_program_are_asked_before_those_of_the_file() {
    let webhook = Webhook::answering(|call| {
        let prompt = format!("{} Third.", call["systemPrompt"].as_str().unwrap());
        (200, json!({ "systemPrompt": prompt }))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let events = json!([{ "point": "before_agent_start" }]);
    let file = webhook::file(folder.path(), &[webhook::hook("third", &webhook.url, events)]);
    let point = HookPoint::BeforeAgentStart;
    let second = hooks::on([reseed::core::hook::HookSpec::new("second", point)], |call| async move {
        let reseed_protocol::hooks::HookEvent::BeforeAgentStart { system_prompt, .. } = call.event else {
            return Ok(HookAnswer::default());
        };
        Ok(HookAnswer { system_prompt: Some(format!("{system_prompt} Second.")), ..HookAnswer::default() })
    });
    let model = answering();
    let settings = [("HOOKS_FILE", file.as_str()), ("INSTRUCTIONS", "First.")];
    let server = Server::with_hooks(model.clone(), vec![second], &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.turn("Hello").await["status"], "completed");
    assert_eq!(model.requests()[0].envelope.system.compiled, "First. Second. Third.");
}

#[tokio::test]
async fn the_start_tells_of_hooks_and_refuses_a_file_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let events = json!([{ "point": "message" }]);
    let named = json!({ "name": "b", "url": "https://h.example.org/", "points": events, "secretEnv": "HOOK_SECRET" });
    webhook::file(folder.path(), &[webhook::hook("a", "http://127.0.0.1:9/?key=hunter2", events), named]);
    let settings = [("HOOKS_FILE", "hooks.json"), ("HOOK_SECRET", webhook::SECRET)];
    let checked = binary::run(folder.path(), &["check"], &settings).await;
    assert!(checked.printed.contains("\nwebhooks    2, not called\n"), "{checked:?}");
    let server = Binary::start(folder.path(), &settings).await;
    server.stop().await;

    let ended = binary::run(folder.path(), &[], &settings[..1]).await;
    assert_ne!(ended.code, Some(0));
    let expected = "HOOKS_FILE ./hooks.json: `hooks[1].secretEnv` names `HOOK_SECRET`, which is not set";
    assert!(ended.faults.contains(expected), "{ended:?}");
    assert!(!format!("{ended:?}").contains("hunter2"));
}
