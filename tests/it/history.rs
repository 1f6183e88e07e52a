//! What comes with an input: messages before it, data for programs, and the results of calls that ended the last turn.

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    client::Client,
    json::present,
    server::Server,
    tools::{ask, finished, results},
};
use reseed::{
    core::{hook::HookSpec, model::ModelRequest},
    hooks::on,
    store::sqlite::SqliteStore,
};
use reseed_protocol::{
    Message, Part, Role,
    context::ToolChoice,
    hooks::{HookAnswer, HookCall, HookEvent, HookPoint},
};
use serde_json::{Value, json};
use std::sync::Arc;

/// Returns the role and the text, call or result of each message of a request.
fn told(request: &ModelRequest) -> Vec<String> {
    let part = |part: &Part| match part {
        Part::Text { text } => text.clone(),
        Part::Reasoning { text, .. } => format!("({text})"),
        Part::ToolCall { name, .. } => format!("{name}()"),
        Part::ToolResult { output, .. } => format!("= {output}"),
        Part::Image { .. } => "[image]".to_owned(),
    };
    let line = |message: &Message| {
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        format!("{role}: {}", message.content.iter().map(part).collect::<Vec<_>>().join(" "))
    };
    request.messages().map(|message| line(&message.message)).collect()
}

fn text(role: &str, text: &str) -> Value {
    json!({ "role": role, "content": [{ "type": "text", "text": text }] })
}

fn called(id: &str) -> Value {
    let call = json!({ "type": "tool_call", "toolCallId": id, "name": "look", "arguments": "{}" });
    json!({ "role": "assistant", "content": [call] })
}

fn result(id: &Value, output: &str) -> Value {
    json!({ "role": "tool", "content": [{ "type": "tool_result", "toolCallId": id, "output": output }] })
}

/// A tool whose calls end the turn, and one that this client runs itself.
fn offer() -> Value {
    let tool = |name: &str, ends: bool| {
        let parameters = json!({ "type": "object" });
        json!({ "name": name, "description": name, "parameters": parameters, "endsTurn": ends })
    };
    json!({ "tools": [tool("look", true), tool("count", false)] })
}

fn call(name: &str) -> Part {
    Part::ToolCall { call_id: "call_0".parse().unwrap(), name: name.into(), arguments: "{}".into() }
}

async fn world(model: &Scripted) -> (Server, Client) {
    let server = Server::start(model.clone(), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.ask("register_tools", offer()).await["type"], "ok");
    (server, client)
}

#[tokio::test]
async fn messages_before_an_input_are_stored_with_it_and_sent() {
    let model = Scripted::new();
    let (_server, mut client) = world(&model).await;
    model.push(Reply::text("Alice."));
    let history =
        json!([text("user", "I am Alice."), called("c1"), result(&json!("c1"), "sea"), text("assistant", "Hello!")]);
    let details = json!({ "mine": [1, 2] });
    let accepted =
        client.ask("user_input", json!({ "input": "Who am I?", "history": history, "details": details })).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    assert_eq!(finished(&mut client).await["status"], "completed");
    let all = ["user: I am Alice.", "assistant: look()", "tool: = sea", "assistant: Hello!", "user: Who am I?"];
    assert_eq!(told(&model.requests().pop().unwrap()), all);
    let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
    let entries = entries.as_array().unwrap();
    assert_eq!(entries.len(), 6);
    assert_eq!(*present(&entries[4]["entryId"]), accepted["payload"]["entryId"]);
    assert_eq!(entries[4]["details"], details);
    assert!(entries[..4].iter().all(|entry| entry.get("details").is_none()), "{entries:?}");
    let listed = client.ask("list_sessions", json!({})).await;
    assert_eq!(listed["payload"]["items"][0]["name"], "I am Alice.");
}

#[tokio::test]
async fn a_call_of_such_a_tool_ends_the_turn_and_its_result_comes_with_the_next_input() {
    let model = Scripted::new();
    let (_server, mut client) = world(&model).await;
    // The other call of the same answer has its result first.
    model.push(Reply::parts(vec![call("look"), call("count")]));
    ask(&mut client, "Look and count.").await;
    let counted = client.event("tool_call").await;
    assert_eq!(counted["payload"]["name"], "count");
    let answered = json!({ "toolCallId": counted["payload"]["toolCallId"], "output": "7" });
    assert_eq!(client.ask("tool_result", answered).await["type"], "ok");
    let end = finished(&mut client).await;
    assert_eq!((&end["status"], &end["finishReason"]), (&json!("completed"), &json!("tool_calls")));
    assert_eq!(model.requests().len(), 1, "the model waits for the result");
    let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
    let id = present(&entries[1]["content"][0]["toolCallId"]).clone();

    let refused = json!({ "input": [], "history": [result(&json!("other"), "blue")] });
    let refused = client.ask("user_input", refused).await;
    assert_eq!(refused["payload"]["code"], "unknown_call", "{refused}");
    model.push(Reply::text("It is blue."));
    let given = json!({ "input": [], "history": [result(&id, "blue")], "details": { "n": 2 } });
    let accepted = client.ask("user_input", given.clone()).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    assert_eq!(finished(&mut client).await["finishReason"], "stop");
    let request = model.requests().pop().unwrap();
    assert_eq!(results(&request), [("7".to_owned(), false), ("blue".to_owned(), false)]);
    assert_eq!(told(&request)[0], "user: Look and count.");
    let again = client.ask("user_input", given).await;
    assert_eq!(again["payload"]["code"], "unknown_call", "a call has one result: {again}");

    // Another result for the same call, from the same place, is a branch.
    model.push(Reply::text("It is red."));
    let branch = json!({ "input": "Sure?", "history": [result(&id, "red")], "parentId": entries[2]["entryId"] });
    assert_eq!(client.ask("user_input", branch).await["type"], "accepted");
    assert_eq!(finished(&mut client).await["status"], "completed");
    let request = model.requests().pop().unwrap();
    assert_eq!(results(&request), [("7".to_owned(), false), ("red".to_owned(), false)]);
    assert_eq!(told(&request).last().unwrap(), "user: Sure?");
}

#[tokio::test]
async fn an_input_may_only_be_stored() {
    let model = Scripted::new();
    let (_server, mut client) = world(&model).await;
    let stored = json!({ "input": "I am Alice.", "history": [text("user", "Hello.")], "generate": false });
    let accepted = client.ask("user_input", stored).await;
    assert_eq!((&accepted["type"], &accepted["payload"]["queued"]), (&json!("accepted"), &json!(false)), "{accepted}");
    assert!(accepted["payload"].get("turnId").is_none(), "{accepted}");
    model.push(Reply::text("Alice."));
    ask(&mut client, "Who am I?").await;
    assert_eq!(finished(&mut client).await["status"], "completed");
    assert_eq!(model.requests().len(), 1);
    let request = model.requests().pop().unwrap();
    assert_eq!(told(&request), ["user: Hello.", "user: I am Alice.", "user: Who am I?"]);
    let elsewhere = json!({ "input": "x", "generate": false, "parentId": accepted["payload"]["entryId"] });
    assert_eq!(client.ask("user_input", elsewhere).await["payload"]["details"]["field"], "generate");
}

#[tokio::test]
async fn without_a_result_the_conversation_goes_on() {
    let model = Scripted::new();
    let folder = tempfile::tempdir().unwrap();
    let store = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let server = Server::over(model.clone(), store(), &[]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.ask("register_tools", offer()).await["type"], "ok");
    model.push(Reply::parts(vec![call("look")]));
    ask(&mut client, "Look.").await;
    assert_eq!(finished(&mut client).await["finishReason"], "tool_calls");
    server.service.stop().await;
    drop(server);
    let server = Server::over(model.clone(), store(), &[]).await;
    let mut client = Client::v2(&server.ws()).await;
    let opened = client.ask("open_session", json!({ "sessionId": opened["sessionId"] })).await;
    assert_eq!(opened["payload"]["state"], "idle", "{opened}");
    model.push(Reply::text("Well."));
    ask(&mut client, "Never mind.").await;
    assert_eq!(finished(&mut client).await["status"], "completed");
    let request = model.requests().pop().unwrap();
    assert_eq!(results(&request), [("No result: the call was not finished.".to_owned(), true)]);
}

#[tokio::test]
async fn a_history_that_cannot_be_taken_is_refused_by_field() {
    let model = Scripted::new();
    let (_server, mut client) = world(&model).await;
    let image = |url: &str| json!({ "role": "user", "content": [{ "type": "image", "url": url }] });
    let call_of_user = json!({ "role": "user", "content": [called("c1")["content"][0]] });
    let long = json!("x".repeat(70_000));
    let table = [
        (json!({ "input": [], "history": [] }), "empty_input", "input"),
        (json!({ "input": [], "history": [text("assistant", "Hello!")] }), "empty_input", "input"),
        (
            json!({ "input": "x", "history": [{ "role": "user", "content": [] }] }),
            "invalid_field",
            "history[0].content",
        ),
        (
            json!({ "input": "x", "history": [text("user", "a"), call_of_user] }),
            "invalid_field",
            "history[1].content[0]",
        ),
        (json!({ "input": "x", "history": [image("file:///etc/passwd")] }), "invalid_field", "history[0].content[0]"),
        (json!({ "input": "x", "history": [text("tool", "a")] }), "invalid_field", "history[0].content[0]"),
        (
            json!({ "input": "x", "history": [result(&json!("c1"), "a")] }),
            "unknown_call",
            "history[0].content[0].toolCallId",
        ),
        (
            json!({ "input": "x", "history": [called("c1"), result(&json!("c1"), "a"), result(&json!("c1"), "b")] }),
            "unknown_call",
            "history[2].content[0].toolCallId",
        ),
        (json!({ "input": "x", "history": [text("critic", "a")] }), "invalid_field", "history[0].role"),
        (json!({ "input": "x", "details": long }), "invalid_field", "details"),
    ];
    for (payload, code, field) in table {
        let reply = client.ask("user_input", payload.clone()).await;
        let shown = (&reply["payload"]["code"], &reply["payload"]["details"]["field"]);
        assert_eq!(shown, (&json!(code), &json!(field)), "{payload}: {reply}");
    }
    let gate = Gate::new();
    model.push(Reply::text("one").held_by(&gate));
    ask(&mut client, "one").await;
    let busy = client.ask("user_input", json!({ "input": "two", "history": [text("user", "a")] })).await;
    assert_eq!(busy["payload"]["code"], "turn_running", "{busy}");
    // Data for programs waits with its input.
    model.push(Reply::text("three"));
    let queued = client.ask("user_input", json!({ "input": "three", "details": { "n": 3 } })).await;
    assert_eq!(queued["payload"]["queued"], true, "{queued}");
    gate.open();
    assert_eq!(finished(&mut client).await["status"], "completed");
    assert_eq!(finished(&mut client).await["status"], "completed");
    let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
    assert_eq!(entries[2]["details"], json!({ "n": 3 }));
}

#[tokio::test]
async fn hooks_inspect_each_message_of_a_history() {
    let model = Scripted::new();
    let redact = on([HookSpec::new("redact", HookPoint::Message)], |call: HookCall| async move {
        let HookEvent::Message { message, .. } = call.event else { return Ok(HookAnswer::default()) };
        let part = |part| match part {
            Part::Text { text } => Part::Text { text: text.replace("4711", "[number]") },
            Part::ToolResult { call_id, output, is_error } => {
                Part::ToolResult { call_id, output: output.replace("4711", "[number]"), is_error }
            }
            other => other,
        };
        let content = message.content.into_iter().map(part).collect();
        Ok(HookAnswer::message(Message::new(message.role, content)))
    });
    let server = Server::with_hooks(model.clone(), vec![redact], &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    model.push(Reply::text("Yes."));
    let history =
        json!([text("user", "It is 4711."), called("c1"), result(&json!("c1"), "4711"), text("assistant", "4711!")]);
    let reply = client.ask("user_input", json!({ "input": "Is it 4711?", "history": history })).await;
    assert_eq!(reply["type"], "accepted", "{reply}");
    assert_eq!(finished(&mut client).await["status"], "completed");
    let all = [
        "user: It is [number].",
        "assistant: look()",
        "tool: = [number]",
        "assistant: [number]!",
        "user: Is it [number]?",
    ];
    assert_eq!(told(&model.requests().pop().unwrap()), all);
    let entries = client.ask("get_entries", json!({})).await.to_string();
    assert!(!entries.contains("4711"), "{entries}");
}

#[tokio::test]
async fn options_of_answers_reach_the_model_and_a_forced_call_only_once() {
    let model = Scripted::new();
    let (_server, mut client) = world(&model).await;
    let format = json!({ "type": "json_schema", "name": "sea", "schema": { "type": "object" }, "strict": true });
    let answer = json!({ "toolChoice": { "type": "required" }, "parallelToolCalls": false, "format": format });
    let set = client.ask("set_options", json!({ "topP": 0.5, "answer": answer })).await;
    assert_eq!(set["type"], "ok", "{set}");
    model.push(Reply::parts(vec![call("count")]));
    model.push(Reply::text("{}"));
    ask(&mut client, "Count.").await;
    let counted = client.event("tool_call").await;
    let answered = json!({ "toolCallId": counted["payload"]["toolCallId"], "output": "7" });
    client.ask("tool_result", answered).await;
    assert_eq!(finished(&mut client).await["status"], "completed");
    let choices: Vec<_> = model
        .requests()
        .iter()
        .map(|request| {
            let options = &request.envelope.options;
            let answer = options.answer.clone().unwrap();
            assert_eq!((options.top_p, answer.parallel_tool_calls), (Some(0.5), Some(false)));
            assert!(answer.format.is_some());
            answer.tool_choice
        })
        .collect();
    assert_eq!(choices, [Some(ToolChoice::Required), None]);

    let bad = [
        (json!({ "topP": 2 }), "topP"),
        (json!({ "answer": { "toolChoice": { "type": "tool", "name": "a b" } } }), "answer.toolChoice.name"),
        (json!({ "answer": { "format": { "type": "json_schema", "name": "", "schema": {} } } }), "answer.format.name"),
        (
            json!({ "answer": { "format": { "type": "json_schema", "name": "a", "schema": 1 } } }),
            "answer.format.schema",
        ),
    ];
    for (options, field) in bad {
        let reply = client.ask("set_options", options.clone()).await;
        assert_eq!(reply["payload"]["details"]["field"], field, "{options}: {reply}");
    }
    let reset = client.ask("set_options", json!({})).await;
    assert_eq!(reset["type"], "ok");
    model.push(Reply::text("free"));
    ask(&mut client, "Again.").await;
    finished(&mut client).await;
    assert_eq!(model.requests().pop().unwrap().envelope.options.answer, None);
}
