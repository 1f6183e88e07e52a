//! Hooks that a client hosts over its own socket: called, answered, and every way in which that fails.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, json::present, server::Server};
use reseed::core::model::ModelRequest;
use reseed_protocol::{Part, Role};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A time limit that no test reaches.
pub(super) const FAR_MS: u64 = 600_000;

/// A hook for this event, as it is registered.
pub(super) fn hook(name: &str, event: &str) -> Value {
    json!({ "name": name, "point": event, "timeoutMs": FAR_MS })
}

/// Connects as this client and opens a session; returns also the reply's payload.
pub(super) async fn joined(server: &Server, client_id: &str, open: Value) -> (Client, Value) {
    let mut client = Client::connect(&server.ws()).await;
    client.ask("hello", json!({ "protocolVersion": 2, "clientId": client_id })).await;
    let opened = client.ask("open_session", open).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    (client, opened["payload"].clone())
}

/// Says something and returns the first hook call, without waiting for others.
pub(super) async fn asked(client: &mut Client, text: &str) -> Value {
    let accepted = client.ask("user_input", json!({ "input": text })).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    client.event("hook_call").await["payload"].clone()
}

/// Says something to a session with a `message` hook; returns the hook's call.
pub(super) async fn offered(client: &mut Client, text: &str) -> Value {
    client.send("user_input", json!({ "input": text })).await;
    client.event("hook_call").await["payload"].clone()
}

/// Answers a call.
pub(super) async fn answer(client: &mut Client, call: &Value, mut result: Value) -> Value {
    result["hookCallId"] = call["hookCallId"].clone();
    client.ask("hook_result", result).await
}

pub(super) async fn finished(client: &mut Client) -> Value {
    client.event("turn_finished").await["payload"].clone()
}

fn system(request: &ModelRequest) -> &str {
    &request.envelope.system.compiled
}

#[tokio::test]
async fn a_call_comes_after_the_events_of_its_turn_that_were_before_it() {
    let server = Server::start(Scripted::answering(|_| Reply::text("It is.")), &[]).await;
    let points = ["before_agent_start", "context"].map(|point| hook("policy", point));
    let (mut client, _) = joined(&server, "tab-one", json!({ "hooks": points })).await;
    for text in ["Is the sea warm?", "And the air?"] {
        client.send("user_input", json!({ "input": text })).await;
        // One before the turn's first request, and three about requests.
        for _ in 0..4 {
            let call = client.event("hook_call").await["payload"].clone();
            let kinds = |kind: &str| {
                client
                    .seen
                    .iter()
                    .position(|frame| frame["type"] == kind && *present(&frame["payload"]["turnId"]) == call["turnId"])
            };
            let (started, asked) = (kinds("turn_started"), client.seen.len() - 1);
            assert!(started.is_some_and(|started| started < asked), "{call}: {:?}", client.seen);
            answer(&mut client, &call, json!({})).await;
        }
        finished(&mut client).await;
    }
}

#[tokio::test]
async fn what_a_clients_hook_answers_is_sent_and_nobody_else_is_asked() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let open = json!({ "hooks": [hook("policy", "before_agent_start")] });
    let (mut client, opened) = joined(&server, "tab-one", open).await;
    let watching = json!({ "sessionId": opened["sessionId"], "role": "observer" });
    let (mut observer, _) = joined(&server, "watcher", watching).await;

    client.send("user_input", json!({ "input": "Is the sea warm?" })).await;
    let frame = client.event("hook_call").await;
    let call = &frame["payload"];
    assert!(frame.get("re").is_none() && frame.get("seq").is_none(), "{frame}");
    assert_eq!(*present(&frame["sessionId"]), opened["sessionId"]);
    assert_eq!((&call["hook"], &call["point"]), (&json!("policy"), &json!("before_agent_start")));
    assert_eq!(*present(&call["sessionId"]), opened["sessionId"]);
    assert_eq!(call["input"][0]["text"], "Is the sea warm?");
    assert!(call["turnId"].is_string() && call["deadline"].is_string(), "{call}");
    assert!(model.requests().is_empty(), "the model is asked once the hook has answered");
    for (kind, payload) in
        [("hook_result", json!({ "hookCallId": call["hookCallId"] })), ("register_hooks", json!({ "hooks": [] }))]
    {
        assert_eq!(observer.ask(kind, payload).await["payload"]["code"], "read_only", "{kind}");
    }
    let done = answer(&mut client, call, json!({ "systemPrompt": "Never tell anybody to swim." })).await;
    assert_eq!(done["type"], "ok", "{done}");
    assert_eq!(finished(&mut client).await["status"], "completed");
    assert_eq!(system(&model.requests()[0]), "Never tell anybody to swim.");

    // Others are registered instead, and then none: the system prompt was for one turn.
    let ok = client.ask("register_hooks", json!({ "hooks": [hook("censor", "message")] })).await;
    assert_eq!(ok["type"], "ok", "{ok}");
    client.forget("accepted");
    let said = offered(&mut client, "And now?").await;
    assert_eq!((&said["hook"], &said["point"], said.get("turnId")), (&json!("censor"), &json!("message"), None));
    assert_eq!(client.seen.iter().filter(|frame| frame["type"] == "accepted").count(), 1, "it is not accepted yet");
    answer(&mut client, &said, json!({})).await;
    assert_eq!(client.event("accepted").await["payload"]["entryId"], *present(&said["entryId"]));
    let whole = client.event("hook_call").await["payload"].clone();
    assert_eq!(whole["message"]["content"][0]["text"], "It is.", "{whole}");
    let other = json!({ "role": "assistant", "content": [{ "type": "text", "text": "Ask the office." }] });
    assert_eq!(answer(&mut client, &whole, json!({ "message": other })).await["type"], "ok");
    assert_eq!(finished(&mut client).await["status"], "completed");
    assert_eq!(client.ask("register_hooks", json!({ "hooks": [] })).await["type"], "ok");
    assert_eq!(client.turn("Thank you.").await["status"], "completed");
    let requests = model.requests();
    assert!(requests[1..].iter().all(|request| system(request) != "Never tell anybody to swim."));
    let last: Vec<String> = requests[2].messages().map(|message| message.message.text()).collect();
    assert_eq!(last, ["Is the sea warm?", "It is.", "And now?", "Ask the office.", "Thank you."]);
    observer.until(|frame| frame["payload"]["entry"]["content"][0]["text"] == "Thank you.").await;
    assert!(observer.seen.iter().all(|frame| frame["type"] != "hook_call"), "observers are not asked");
}

#[tokio::test]
async fn a_hook_that_observes_is_told_and_not_waited_for() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model, &[]).await;
    let observing = json!({ "point": "before_agent_start", "observe": true });
    let (mut client, _) = joined(&server, "tab-one", json!({ "hooks": [observing] })).await;
    let told = asked(&mut client, "Is the sea warm?").await;
    assert_eq!((&told["hook"], told.get("deadline")), (&json!("client"), None), "{told}");
    assert_eq!(finished(&mut client).await["status"], "completed");
    let refused = answer(&mut client, &told, json!({})).await;
    assert_eq!(refused["payload"]["code"], "unknown_call", "nobody waits for it");
}

#[tokio::test]
async fn a_call_is_answered_once_and_in_time() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let (mut client, _) = joined(&server, "tab-one", json!({})).await;
    let unknown = client.ask("hook_result", json!({ "hookCallId": "nobody" })).await;
    let expected = (&json!("unknown_call"), &json!("hookCallId"));
    assert_eq!((&unknown["payload"]["code"], &unknown["payload"]["details"]["field"]), expected);

    client.ask("register_hooks", json!({ "hooks": [hook("policy", "before_agent_start")] })).await;
    let call = asked(&mut client, "Is the sea warm?").await;
    assert_eq!(answer(&mut client, &call, json!({})).await["type"], "ok");
    assert_eq!(answer(&mut client, &call, json!({})).await["payload"]["duplicate"], true);
    let other = answer(&mut client, &call, json!({ "systemPrompt": "Swim." })).await["payload"].clone();
    assert_eq!((&other["code"], &other["details"]["outcome"]), (&json!("too_late"), &json!("answered")));
    assert_eq!(finished(&mut client).await["status"], "completed");

    let quick = json!({ "name": "quick", "point": "before_agent_start", "timeoutMs": 30 });
    client.ask("register_hooks", json!({ "hooks": [quick] })).await;
    let call = asked(&mut client, "And now?").await;
    let ended = finished(&mut client).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("hook_timeout")));
    assert_eq!(ended["error"]["details"]["hook"], "quick", "{ended}");
    let late = answer(&mut client, &call, json!({})).await["payload"].clone();
    assert_eq!((&late["code"], &late["details"]["outcome"]), (&json!("too_late"), &json!("timed_out")));
    assert_eq!(model.requests().len(), 1);

    // Its answer may be invalid, and it may report a failure: that ends a turn, not the session.
    client.ask("register_hooks", json!({ "hooks": [hook("policy", "before_agent_start")] })).await;
    for (result, says) in [(json!({ "block": true }), "block"), (json!({ "error": "out of ink" }), "out of ink")] {
        let call = asked(&mut client, "And now?").await;
        assert_eq!(answer(&mut client, &call, result).await["type"], "ok");
        let ended = finished(&mut client).await;
        assert_eq!(ended["error"]["code"], "hook_failed", "{ended}");
        assert!(ended["error"]["message"].as_str().unwrap().contains(says), "{ended}");
    }
    client.ask("register_hooks", json!({ "hooks": [] })).await;
    assert_eq!(client.turn("Still there?").await["status"], "completed");
}

#[tokio::test]
async fn progress_moves_a_hooks_time_limit() {
    /// Long enough for a busy machine to get one command through, short enough to wait for.
    const LIMIT: Duration = Duration::from_secs(5);
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model, &[]).await;
    let slow = json!({ "name": "slow", "point": "before_agent_start", "timeoutMs": LIMIT.as_millis() as u64 });
    let (mut client, _) = joined(&server, "tab-one", json!({ "hooks": [slow] })).await;
    let call = asked(&mut client, "Is the sea warm?").await;
    let (began, mut deadline) = (Instant::now(), call["deadline"].as_str().unwrap().to_owned());
    let first = deadline.clone();
    while began.elapsed() < LIMIT + LIMIT / 4 {
        let progress = json!({ "hookCallId": call["hookCallId"], "message": "still reading" });
        assert_eq!(client.ask("call_progress", progress).await["type"], "ok");
        let progressed = client.event("call_progressed").await["payload"].clone();
        assert_eq!(progressed["message"], "still reading");
        let moved = progressed["deadline"].as_str().unwrap().to_owned();
        assert!(moved >= deadline, "{progressed} after {deadline}");
        deadline = moved;
    }
    assert!(deadline > first);
    assert_eq!(answer(&mut client, &call, json!({})).await["type"], "ok");
    assert_eq!(finished(&mut client).await["status"], "completed");
    let late = client.ask("call_progress", json!({ "hookCallId": call["hookCallId"] })).await;
    assert_eq!(late["payload"]["code"], "too_late");
}

#[tokio::test]
async fn what_may_not_be_offered_is_refused_by_name_and_nothing_changes() {
    let server = Server::start(Scripted::answering(|_| Reply::text("It is.")), &[]).await;
    let mut client = Client::v2(&server.ws()).await;
    let many: Vec<Value> = (0..33).map(|_| hook("policy", "message")).collect();
    let table = [
        (json!([{ "name": "no space", "point": "message" }]), "invalid_hooks", "hooks[0].name"),
        (json!([hook("fine", "message"), { "name": "", "point": "message" }]), "invalid_hooks", "hooks[1].name"),
        (json!([{ "point": "message", "timeoutMs": 0 }]), "invalid_hooks", "hooks[0].timeoutMs"),
        (json!([{ "point": "message", "timeoutMs": FAR_MS + 1 }]), "invalid_hooks", "hooks[0].timeoutMs"),
        (json!([{ "point": "message", "reasons": ["turn_end"] }]), "invalid_hooks", "hooks[0].reasons"),
        (json!([{ "point": "message", "required": true, "observe": true }]), "invalid_hooks", "hooks[0].required"),
        (json!([{ "point": "after_dinner" }]), "invalid_field", "hooks[0].point"),
        (json!(many), "invalid_hooks", "hooks"),
    ];
    for (hooks, code, field) in &table {
        let refused = client.ask("open_session", json!({ "hooks": hooks })).await["payload"].clone();
        assert_eq!((&refused["code"], &refused["details"]["field"]), (&json!(code), &json!(field)), "{hooks}");
    }
    assert_eq!(client.ask("list_sessions", json!({})).await["payload"]["items"], json!([]), "none was made for it");
    let open = json!({ "hooks": [hook("policy", "before_agent_start")] });
    let opened = client.ask("open_session", open).await["payload"].clone();
    for (hooks, code, field) in &table {
        let refused = client.ask("register_hooks", json!({ "hooks": hooks })).await["payload"].clone();
        assert_eq!((&refused["code"], &refused["details"]["field"]), (&json!(code), &json!(field)), "{hooks}");
    }
    let mut observer = Client::v2(&server.ws()).await;
    let open = json!({ "sessionId": opened["sessionId"], "role": "observer", "hooks": [] });
    let refused = observer.ask("open_session", open).await["payload"].clone();
    assert_eq!((&refused["code"], &refused["details"]["field"]), (&json!("read_only"), &json!("hooks")));
    let call = asked(&mut client, "Is the sea warm?").await;
    assert_eq!(call["hook"], "policy", "the one before is still there");
}

#[tokio::test]
async fn a_client_may_offer_others_while_one_is_asked() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let policy = json!({ "hooks": [hook("policy", "before_agent_start")] });
    let (mut client, _) = joined(&server, "tab-one", policy.clone()).await;
    // The same hooks and one more are registered: the call stays open, and the new hook is called from the next
    // question on.
    let call = asked(&mut client, "Is the sea warm?").await;
    let mut both = policy.clone();
    both["hooks"].as_array_mut().unwrap().insert(0, hook("first", "before_agent_start"));
    assert_eq!(client.ask("register_hooks", both).await["type"], "ok");
    assert_eq!(answer(&mut client, &call, json!({ "systemPrompt": "Be brief." })).await["type"], "ok");
    assert_eq!(finished(&mut client).await["status"], "completed");
    assert_eq!(system(&model.requests()[0]), "Be brief.");
    // Another hook replaces it, and its call waits for a client that offers it again.
    let call = asked(&mut client, "And now?").await;
    assert_eq!(call["hook"], "first");
    assert_eq!(client.ask("register_hooks", policy.clone()).await["type"], "ok");
    assert_eq!(answer(&mut client, &call, json!({})).await["payload"]["code"], "unknown_call");
    let mut both = policy;
    both["hooks"].as_array_mut().unwrap().insert(0, hook("first", "before_agent_start"));
    assert_eq!(client.ask("register_hooks", both).await["type"], "ok");
    let again = client.event("hook_call").await["payload"].clone();
    assert_eq!(
        (present(&again["hookCallId"]), present(&again["input"])),
        (&call["hookCallId"], &call["input"]),
        "the same call"
    );
    assert_eq!(answer(&mut client, &call, json!({})).await["type"], "ok");
    let call = client.event("hook_call").await["payload"].clone();
    assert_eq!(call["hook"], "policy");
    answer(&mut client, &call, json!({})).await;
    assert_eq!(finished(&mut client).await["status"], "completed");
    assert_eq!(model.requests().len(), 2);
}

/// Returns the tool results in a request, in order.
fn results(request: &ModelRequest) -> Vec<String> {
    let tools = request.messages().filter(|message| message.message.role == Role::Tool);
    let parts = tools.flat_map(|message| message.message.content.clone());
    parts
        .filter_map(|part| match part {
            Part::ToolResult { output, .. } => Some(output),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn tools_answers_wait_for_their_hooks_side_by_side() {
    let model = Scripted::new();
    let call = |at: &str| {
        let arguments = json!({ "at": at }).to_string();
        Part::ToolCall { call_id: at.parse().unwrap(), name: "look".into(), arguments }
    };
    model.push(Reply::parts(vec![call("sea"), call("sky"), call("sand")]));
    model.push(Reply::text("Blue."));
    let server = Server::start(model.clone(), &[]).await;
    let look = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    let open = json!({ "tools": [look], "hooks": [hook("censor", "tool_result")] });
    let (mut client, opened) = joined(&server, "tab-one", open).await;
    client.ask("user_input", json!({ "input": "How is it?" })).await;
    let mut commands = Vec::new();
    let mut asked = Vec::new();
    for _ in 0..3 {
        let called = client.event("tool_call").await["payload"].clone();
        let result = json!({ "toolCallId": called["toolCallId"], "output": called["arguments"] });
        let id = client.send("tool_result", result.clone()).await;
        let question = client.event("hook_call").await["payload"].clone();
        assert_eq!(
            (present(&question["toolCallId"]), present(&question["output"])),
            (&called["toolCallId"], &called["arguments"])
        );
        commands.push((id, result));
        asked.push(question);
    }
    // All three wait. A result that is sent again waits with its first copy; with other content it is another command.
    let (id, result) = &commands[0];
    client.send_as(id, "tool_result", result.clone()).await;
    let mut other = result.clone();
    other["output"] = json!("other");
    client.send_as(id, "tool_result", other).await;
    let conflict = client.until(|frame| frame["re"] == id.as_str()).await;
    assert_eq!(conflict["payload"]["code"], "idempotency_conflict", "{conflict}");
    assert_eq!(
        client.ask("get_context_info", json!({})).await["type"],
        "context_info",
        "others are answered meanwhile"
    );
    // The same holds on the connection that replaces this one.
    let (mut next, _) = joined(&server, "tab-one", json!({ "sessionId": opened["sessionId"] })).await;
    client.event("host_changed").await;
    assert!(client.seen.iter().filter(|frame| frame["type"] == "ok").count() == 0, "none was answered");
    for (id, result) in &commands {
        next.send_as(id, "tool_result", result.clone()).await;
    }
    let again: Vec<Value> =
        [next.event("hook_call").await, next.event("hook_call").await, next.event("hook_call").await]
            .map(|frame| frame["payload"]["hookCallId"].clone())
            .into();
    assert!(asked.iter().all(|call| again.contains(&call["hookCallId"])), "{again:?}");
    for ((id, _), call) in commands.iter().zip(&asked).rev() {
        let output = format!("seen {}", call["arguments"].as_str().unwrap());
        assert_eq!(answer(&mut next, call, json!({ "output": output })).await["type"], "ok");
        let done = next.until(|frame| frame["re"] == id.as_str()).await;
        assert_eq!((&done["type"], &done["payload"]["duplicate"]), (&json!("ok"), &json!(true)), "{done}");
    }
    assert_eq!(finished(&mut next).await["status"], "completed");
    let seen = ["sand", "sky", "sea"].map(|at| format!("seen {}", json!({ "at": at })));
    assert_eq!(results(&model.requests()[1]), seen, "each once");
}

#[tokio::test]
async fn a_move_waits_for_its_hook_which_is_told_what_is_left() {
    let server = Server::start(Scripted::answering(|_| Reply::text("Yes.")), &[]).await;
    let (mut client, _) = joined(&server, "tab-one", json!({})).await;
    for text in ["one", "two", "three"] {
        client.turn(text).await;
    }
    let path = client.ask("get_entries", json!({ "path": true })).await["payload"]["items"].clone();
    let id_of = |at: usize| path[at]["entryId"].clone();
    client.ask("register_hooks", json!({ "hooks": [hook("guide", "before_navigate")] })).await;

    // No summary is wanted, and the hook is called nevertheless.
    let back = json!({ "entryId": id_of(1) });
    let id = client.send("navigate", back.clone()).await;
    let call = client.event("hook_call").await["payload"].clone();
    let left: Vec<&Value> =
        call["entriesToSummarize"].as_array().unwrap().iter().map(|entry| &entry["entryId"]).collect();
    assert_eq!(left, [&id_of(2), &id_of(3), &id_of(4), &id_of(5)], "oldest first");
    for (field, expected) in [
        ("targetId", id_of(1)),
        ("newLeafId", id_of(1)),
        ("oldLeafId", id_of(5)),
        ("commonAncestorId", id_of(1)),
        ("userWantsSummary", json!(false)),
    ] {
        assert_eq!(call[field], expected, "{field}");
    }
    // It waits; the same command waits with it, and runs once.
    client.send_as(&id, "navigate", back).await;
    assert_eq!(client.ask("get_context_info", json!({})).await["type"], "context_info");
    assert_eq!(answer(&mut client, &call, json!({ "label": "here" })).await["type"], "ok");
    let replies = [(); 2].map(|()| id.clone());
    let mut moved = Vec::new();
    for id in &replies {
        moved.push(client.until(|frame| frame["re"] == id.as_str()).await);
    }
    assert_eq!([&moved[0]["type"], &moved[1]["type"]], ["navigated", "navigated"], "{moved:?}");
    assert_eq!((moved[0]["payload"].get("duplicate"), &moved[1]["payload"]["duplicate"]), (None, &json!(true)));
    assert_eq!(client.ask("get_context_info", json!({})).await["type"], "context_info");
    let moves = client.forget("session_updated").into_iter().filter(|frame| frame["payload"].get("leafId").is_some());
    assert_eq!(moves.count(), 1);

    // The move goes to another branch, from where the two diverge, and the hook may refuse it.
    client.send("navigate", json!({ "entryId": id_of(5) })).await;
    let call = client.event("hook_call").await["payload"].clone();
    assert_eq!(call["commonAncestorId"], id_of(1), "{call}");
    assert_eq!(call["entriesToSummarize"][0]["type"], "label", "{call}");
    answer(&mut client, &call, json!({ "cancel": true })).await;
    let refused = client.event("error").await;
    assert_eq!(refused["payload"]["code"], "navigation_cancelled", "{refused}");
    client.send("navigate", json!({ "entryId": "root" })).await;
    let call = client.event("hook_call").await["payload"].clone();
    assert_eq!((&call["commonAncestorId"], &call["newLeafId"]), (&Value::Null, &Value::Null), "{call}");
    assert_eq!(call["entriesToSummarize"].as_array().unwrap().len(), 3, "{call}");
}
