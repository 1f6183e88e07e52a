//! Required hooks of a client that is gone when they are needed: after a restart or the loss of the host. Also tests
//! what may be said to a session that waits for hooks.

use super::client::{FAR_MS, answer, finished, hook, joined, offered};
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{binary::Binary, client::Client, json::present, server::Server};
use reseed::store::sqlite::SqliteStore;
use reseed_protocol::Part;
use serde_json::{Value, json};
use std::{path::Path, sync::Arc};

async fn over(folder: &Path, model: &Scripted) -> Server {
    let store = Arc::new(SqliteStore::open(&folder.join("reseed.db")).unwrap());
    Server::over(model.clone(), store, &[("SHUTDOWN_GRACE_SECS", "0"), ("HOOK_AWAY_SECS", "1")]).await
}

/// Starts and stops a server with one waiting input, accepted under these hooks; returns the session.
async fn stopped_with_a_queue(folder: &Path, hooks: &Value) -> Value {
    let (model, never) = (Scripted::new(), Gate::new());
    model.push(Reply::text("It is.").held_by(&never));
    let server = over(folder, &model).await;
    let (mut client, opened) = joined(&server, "tab-one", json!({ "hooks": hooks })).await;
    client.send("user_input", json!({ "input": "Is the sea warm?" })).await;
    let call = client.event("hook_call").await["payload"].clone();
    answer(&mut client, &call, json!({})).await;
    model.wait_for_requests(1).await;
    assert_eq!(client.ask("user_input", json!({ "input": "And now?" })).await["payload"]["queued"], true);
    server.service.stop().await;
    opened["sessionId"].clone()
}

#[tokio::test]
async fn an_input_that_waited_over_a_restart_is_asked_with_the_hooks_of_its_client() {
    for required in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let mut policy = hook("policy", "before_agent_start");
        policy["required"] = json!(required);
        let hooks = json!([policy]);
        let session = stopped_with_a_queue(folder.path(), &hooks).await;
        let model = Scripted::answering(|_| Reply::text("It is."));
        let server = over(folder.path(), &model).await;
        if required {
            // Observers register no hooks.
            let watching = json!({ "sessionId": session, "role": "observer" });
            let (mut observer, seen) = joined(&server, "watcher", watching).await;
            assert_eq!(seen["queue"].as_array().unwrap().len(), 1, "{seen}");
            assert_eq!(observer.ask("ping", json!({})).await["type"], "pong");
        }
        let open = json!({ "sessionId": session, "hooks": hooks });
        let (mut client, _) = joined(&server, "tab-one", open).await;
        let call = client.event("hook_call").await["payload"].clone();
        assert_eq!(call["input"][0]["text"], "And now?", "required: {required}");
        assert!(model.requests().is_empty(), "required: {required}");
        answer(&mut client, &call, json!({ "systemPrompt": "Be brief." })).await;
        assert_eq!(finished(&mut client).await["status"], "completed", "required: {required}");
        assert_eq!(model.requests()[0].envelope.system.compiled, "Be brief.");
        server.service.stop().await;
    }
}

#[tokio::test]
async fn an_input_that_waited_over_a_restart_fails_where_nobody_offers_its_hooks() {
    let folder = tempfile::tempdir().unwrap();
    let session = stopped_with_a_queue(folder.path(), &json!([hook("policy", "before_agent_start")])).await;
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = over(folder.path(), &model).await;
    let (mut client, _) = joined(&server, "tab-two", json!({ "sessionId": session })).await;
    let ended = finished(&mut client).await;
    assert_eq!((&ended["error"]["code"], &ended["error"]["retriable"]), (&json!("hook_unavailable"), &json!(true)));
    assert!(model.requests().is_empty(), "the model was not asked");
    // A client that retries without them chooses to.
    assert_eq!(client.ask("retry_turn", json!({})).await["type"], "accepted");
    assert_eq!(finished(&mut client).await["status"], "completed");
    server.service.stop().await;
}

#[tokio::test]
async fn a_turn_whose_host_has_gone_does_not_go_on_without_its_required_hooks() {
    for offers in [json!(null), json!([]), json!([hook("own", "before_compaction")])] {
        let (model, gate) = (Scripted::new(), Gate::new());
        model.push(Reply::text("The number is 4711.").held_by(&gate));
        model.push(Reply::text("Gladly."));
        let server = Server::start(model.clone(), &[("HOOK_AWAY_SECS", "1"), ("HOST_AWAY_SECS", "0")]).await;
        let mut archive = hook("archive", "context");
        archive["reasons"] = json!(["turn_end"]);
        let (mut first, opened) = joined(&server, "tab-one", json!({ "hooks": [archive] })).await;
        first.ask("user_input", json!({ "input": "Which number?" })).await;
        model.wait_for_requests(1).await;
        let mut open = json!({ "sessionId": opened["sessionId"] });
        if !offers.is_null() {
            open["hooks"] = offers.clone();
        }
        first.hang_up();
        let (mut second, _) = joined(&server, "tab-two", open).await;
        gate.open();
        let ended = finished(&mut second).await;
        assert_eq!(ended["status"], "failed", "{offers}: {ended}");
        assert_eq!(ended["error"]["details"]["hook"], "archive", "{offers}: {ended}");
        assert_eq!(ended["error"]["code"], "hook_unavailable", "{offers}: {ended}");
        assert_eq!(second.turn("And now?").await["status"], "completed", "{offers}: its own turn has other hooks");
    }
}

#[tokio::test]
async fn an_input_that_waits_for_a_hook_can_be_withdrawn() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let (mut client, _) = joined(&server, "tab-one", json!({ "hooks": [hook("redact", "message")] })).await;
    let call = offered(&mut client, "Is the sea warm?").await;
    assert_eq!(client.ask("cancel_turn", json!({})).await["type"], "ok");
    let refused = client.until(|frame| frame["type"] == "error").await["payload"].clone();
    assert_eq!((&refused["code"], &refused["retriable"]), (&json!("input_cancelled"), &json!(true)), "{refused}");
    assert_eq!(client.event("hook_cancelled").await["payload"]["hookCallId"], *present(&call["hookCallId"]));
    assert_eq!(client.ask("cancel_turn", json!({})).await["payload"]["code"], "no_turn");
    let entries = client.ask("get_entries", json!({})).await;
    assert!(!entries.to_string().contains("Is the sea warm?"), "{entries}");
}

#[tokio::test]
async fn whoever_waits_for_hooks_of_a_session_that_is_deleted_is_told_so() {
    let server = Server::start(Scripted::answering(|_| Reply::text("It is.")), &[]).await;
    let hooks = json!({ "hooks": [hook("redact", "message"), hook("look", "before_navigate")] });
    // An input before its hook, with another behind it; and a navigation before its own.
    for waiting in ["user_input", "navigate"] {
        let (mut client, opened) = joined(&server, "tab-one", hooks.clone()).await;
        let session = opened["sessionId"].clone();
        let mut ids = Vec::new();
        if waiting == "user_input" {
            for text in ["Is the sea warm?", "And the air?"] {
                ids.push(client.send("user_input", json!({ "input": text })).await);
            }
        } else {
            let entry = client.ask("append_custom", json!({ "customType": "note", "data": 1 })).await;
            let entry = entry["payload"]["entryId"].clone();
            assert!(entry.is_string(), "{entry}");
            ids.push(client.send("navigate", json!({ "entryId": "root", "position": "before" })).await);
        }
        client.event("hook_call").await;
        let (mut other, _) = joined(&server, "tab-two", json!({})).await;
        assert_eq!(other.ask("delete_session", json!({ "sessionId": session })).await["type"], "ok");
        for id in ids {
            let refused = client.until(|frame| frame["re"] == id.as_str()).await;
            assert_eq!(refused["payload"]["code"], "session_not_found", "{waiting}: {refused}");
        }
    }
}

/// A server that is asked to stop, with a grace period longer than any test, stops at once, because nothing was
/// accepted.
#[tokio::test]
async fn an_input_before_its_hook_does_not_hold_a_server_that_stops() {
    let folder = tempfile::tempdir().unwrap();
    let server = Binary::start(folder.path(), &[("SHUTDOWN_GRACE_SECS", "600")]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let hooks = json!({ "hooks": [hook("redact", "message")] });
    assert_eq!(client.ask("register_hooks", hooks).await["type"], "ok");
    let mut ids = Vec::new();
    for text in ["Is the sea warm?", "And the air?"] {
        ids.push(client.send("user_input", json!({ "input": text })).await);
    }
    let call = client.event("hook_call").await["payload"]["hookCallId"].clone();
    server.terminate().await;
    for id in ids {
        let refused = client.until(|frame| frame["re"] == id.as_str()).await;
        assert_eq!(refused["payload"]["code"], "shutting_down", "{refused}");
    }
    assert_eq!(client.event("hook_cancelled").await["payload"]["hookCallId"], *present(&call));
    assert_eq!(server.ended().await, Some(0));
    let server = Binary::start(folder.path(), &[]).await;
    let mut again = Client::v2(&server.ws()).await;
    let opened = again.ask("open_session", json!({ "sessionId": opened["sessionId"] })).await;
    let payload = present(&opened["payload"]);
    assert_eq!((&payload["entries"], &payload["queue"]), (&json!([]), &json!([])), "nothing of it was stored");
    server.stop().await;
}

#[tokio::test]
async fn many_tool_results_at_once_do_not_keep_the_answers_of_their_hook_out() {
    const CALLS: usize = 40;
    let model = Scripted::new();
    let call = |at: usize| Part::ToolCall {
        call_id: format!("call_{at}").parse().unwrap(),
        name: "look".into(),
        arguments: "{}".into(),
    };
    model.push(Reply::parts((0..CALLS).map(call).collect()));
    model.push(Reply::text("I saw them all."));
    let server = Server::start(model.clone(), &[]).await;
    let look =
        json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" }, "timeoutMs": FAR_MS });
    let open = json!({ "tools": [look], "hooks": [hook("redact", "tool_result")] });
    let (mut client, _) = joined(&server, "tab-one", open).await;
    client.ask("user_input", json!({ "input": "Look." })).await;
    let mut sent = std::collections::BTreeMap::new();
    for _ in 0..CALLS {
        let called = client.event("tool_call").await["payload"]["toolCallId"].clone();
        let (id, result) = (client.id(), json!({ "toolCallId": called, "output": "a cat" }));
        sent.insert(id, result);
    }
    for (id, result) in sent.clone() {
        client.send_as(&id, "tool_result", result).await;
    }
    let mut overloaded = 0;
    loop {
        let frame = client.next_frame().await.expect("the server does not hang up");
        match frame["type"].as_str().unwrap() {
            "turn_finished" => {
                assert_eq!(frame["payload"]["status"], "completed", "{frame}");
                break;
            }
            "hook_call" => {
                client
                    .send("hook_result", json!({ "hookCallId": frame["payload"]["hookCallId"], "output": "a dog" }))
                    .await;
            }
            "error" => {
                let error = &frame["payload"];
                assert_eq!((&error["code"], &error["retriable"]), (&json!("overloaded"), &json!(true)), "{frame}");
                overloaded += 1;
                let id = frame["re"].as_str().unwrap().to_owned();
                let result = sent[&id].clone();
                client.send_as(&id, "tool_result", result).await;
            }
            _ => {}
        }
    }
    assert!(overloaded > 0, "the bound was reached");
    let results: Vec<String> = model.requests()[1].messages().map(|message| format!("{:?}", message.message)).collect();
    assert_eq!(results.iter().filter(|said| said.contains("a dog")).count(), CALLS);
    assert!(results.iter().all(|said| !said.contains("a cat")));
}

#[tokio::test]
async fn an_input_that_a_hook_changed_is_told_from_another_one_under_its_id() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let (mut client, _) = joined(&server, "tab-one", json!({ "hooks": [hook("redact", "message")] })).await;
    let id = client.id();
    let say = |text: &str| json!({ "input": text });
    // A withdrawn command leaves its id to the next.
    client.send_as(&id, "user_input", say("My number is 0815.")).await;
    client.event("hook_call").await;
    assert_eq!(client.ask("cancel_turn", json!({})).await["type"], "ok");
    let withdrawn = client.until(|frame| frame["re"] == id.as_str()).await;
    assert_eq!(withdrawn["payload"]["code"], "input_cancelled", "{withdrawn}");
    client.forget("hook_call");
    client.send_as(&id, "user_input", say("My number is 4711.")).await;
    let call = client.event("hook_call").await["payload"].clone();
    let other = json!({ "role": "user", "content": [{ "type": "text", "text": "My number is [number]." }] });
    answer(&mut client, &call, json!({ "message": other })).await;
    let call = client.event("hook_call").await["payload"].clone();
    answer(&mut client, &call, json!({})).await;
    finished(&mut client).await;
    assert_eq!(client.until(|frame| frame["re"] == id.as_str()).await["type"], "accepted");
    for (text, code) in [("My number is 0815.", "idempotency_conflict"), ("My number is 4711.", "")] {
        client.send_as(&id, "user_input", say(text)).await;
        let reply = client.until(|frame| frame["re"] == id.as_str()).await;
        match code {
            "" => assert_eq!(reply["payload"]["duplicate"], true, "{reply}"),
            code => assert_eq!(reply["payload"]["code"], code, "{reply}"),
        }
    }
    assert_eq!(model.requests().len(), 1);
}
