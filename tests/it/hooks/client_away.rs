//! Hooks of a client that is away, comes back, or never comes back.

use super::client::{FAR_MS, answer, asked, finished, hook, joined, offered};
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{json::present, server::Server};
use reseed_protocol::Part;
use serde_json::{Value, json};

fn optional(name: &str, event: &str) -> Value {
    json!({ "name": name, "point": event, "timeoutMs": FAR_MS, "required": false })
}

/// Returns true if this is the same call as before, with a deadline postponed by the time that nobody was connected.
fn is_again(again: &Value, call: &Value) -> bool {
    let without = |call: &Value| {
        let mut call = call.clone();
        call.as_object_mut().unwrap().remove("deadline");
        call
    };
    without(again) == without(call) && again["deadline"].as_str().unwrap() >= call["deadline"].as_str().unwrap()
}

#[tokio::test]
async fn a_client_that_comes_back_is_asked_again() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let open = json!({ "hooks": [hook("policy", "before_agent_start")] });
    let (mut first, opened) = joined(&server, "tab-one", open.clone()).await;
    let session = json!({ "sessionId": opened["sessionId"] });
    let call = asked(&mut first, "Is the sea warm?").await;
    first.hang_up();

    // An observer is connected: it may not answer the call.
    let watching = json!({ "sessionId": opened["sessionId"], "role": "observer" });
    let (mut observer, back) = joined(&server, "watcher", watching).await;
    assert_eq!(back["state"], "running", "it waits, and stays in memory");
    for offers_again in [false, true] {
        let mut open = if offers_again { open.clone() } else { json!({}) };
        open["sessionId"] = opened["sessionId"].clone();
        let (mut client, _) = joined(&server, "tab-one", open).await;
        let again = client.event("hook_call").await;
        let types: Vec<&Value> = client.seen.iter().map(|frame| &frame["type"]).collect();
        assert_eq!(types[..3], ["welcome", "session_opened", "hook_call"], "not before it knows of the session");
        assert!(is_again(&again["payload"], &call), "{again} and {call}");
        client.hang_up();
    }
    let (mut last, _) = joined(&server, "tab-one", session).await;
    let again = last.event("hook_call").await["payload"].clone();
    assert_eq!(answer(&mut last, &again, json!({ "systemPrompt": "Be brief." })).await["type"], "ok");
    assert_eq!(finished(&mut last).await["status"], "completed");
    assert_eq!(model.requests()[0].envelope.system.compiled, "Be brief.");
    finished(&mut observer).await;
    assert!(observer.seen.iter().all(|frame| frame["type"] != "hook_call"));
}

#[tokio::test]
async fn a_connection_that_takes_the_place_of_a_half_open_one_is_asked_in_its_place() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let (mut first, opened) =
        joined(&server, "tab-one", json!({ "hooks": [hook("policy", "before_agent_start")] })).await;
    let call = asked(&mut first, "Is the sea warm?").await;
    let (mut second, _) = joined(&server, "tab-one", json!({ "sessionId": opened["sessionId"] })).await;
    first.event("host_changed").await;
    let again = second.event("hook_call").await["payload"].clone();
    assert!(is_again(&again, &call), "it was not passed over: {again}");
    answer(&mut second, &call, json!({ "systemPrompt": "Be brief." })).await;
    assert_eq!(finished(&mut second).await["status"], "completed");
    assert_eq!(model.requests()[0].envelope.system.compiled, "Be brief.");
}

#[tokio::test]
async fn hooks_that_are_not_required_leave_with_the_client_that_offered_them() {
    // Another client has become the host, or it has disconnected for too long.
    for hangs_up in [false, true] {
        let model = Scripted::answering(|_| Reply::text("It is."));
        let server = Server::start(model.clone(), &[("HOST_AWAY_SECS", "0")]).await;
        let open = json!({ "hooks": [optional("policy", "before_agent_start")] });
        let (mut first, opened) = joined(&server, "tab-one", open).await;
        let watching = json!({ "sessionId": opened["sessionId"], "role": "observer" });
        let (mut observer, _) = joined(&server, "watcher", watching).await;
        let call = asked(&mut first, "Is the sea warm?").await;
        if hangs_up {
            first.hang_up();
        }
        let open = json!({ "sessionId": opened["sessionId"], "hooks": [optional("own", "tool_call")] });
        let (mut second, _) = joined(&server, "tab-two", open).await;
        assert_eq!(second.ask("take_over_host", json!({})).await["type"], "ok");
        assert_eq!(answer(&mut second, &call, json!({})).await["payload"]["code"], "too_late");
        assert_eq!(finished(&mut observer).await["status"], "completed", "it was passed over");
        second.ask("user_input", json!({ "input": "And now?" })).await;
        assert_eq!(finished(&mut observer).await["status"], "completed");
        assert!(second.seen.iter().all(|frame| frame["type"] != "hook_call"), "{:?}", second.seen);
        assert_eq!(model.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_host_without_hooks_leaves_the_open_call_to_its_client_which_counts_as_away() {
    for (required, status) in [(true, "failed"), (false, "completed")] {
        let model = Scripted::answering(|_| Reply::text("It is."));
        let server = Server::start(model.clone(), &[("HOOK_AWAY_SECS", "1")]).await;
        let mut policy = hook("policy", "before_agent_start");
        policy["required"] = json!(required);
        let (mut first, opened) = joined(&server, "tab-one", json!({ "hooks": [policy] })).await;
        let call = asked(&mut first, "Is the sea warm?").await;
        let look = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
        let open = json!({ "sessionId": opened["sessionId"], "tools": [look] });
        let (mut second, _) = joined(&server, "tab-two", open).await;
        assert_eq!(second.ask("take_over_host", json!({})).await["type"], "ok");
        let told = first.event("hook_cancelled").await["payload"].clone();
        assert_eq!(*present(&told["hookCallId"]), call["hookCallId"]);
        let ended = finished(&mut second).await;
        assert_eq!(ended["status"], status, "{ended}");
        if required {
            assert_eq!(ended["error"]["code"], "hook_unavailable", "{ended}");
        }
    }
}

#[tokio::test]
async fn a_client_that_comes_back_with_its_hooks_is_asked_once() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let open = json!({ "hooks": [hook("policy", "before_agent_start")] });
    let (mut first, opened) = joined(&server, "tab-one", open.clone()).await;
    let call = asked(&mut first, "Is the sea warm?").await;
    first.hang_up();
    let again = json!({ "sessionId": opened["sessionId"], "hooks": open["hooks"] });
    let (mut back, _) = joined(&server, "tab-one", again).await;
    back.event("hook_call").await;
    answer(&mut back, &call, json!({})).await;
    assert_eq!(finished(&mut back).await["status"], "completed");
    assert_eq!(back.seen.iter().filter(|frame| frame["type"] == "hook_call").count(), 1, "{:?}", back.seen);
}

#[tokio::test]
async fn a_required_hook_of_another_client_is_not_asked_of_the_new_host() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let open = json!({ "hooks": [hook("policy", "before_agent_start")] });
    let (mut first, opened) = joined(&server, "tab-one", open.clone()).await;
    let call = asked(&mut first, "Is the sea warm?").await;
    let mut offers = json!({ "sessionId": opened["sessionId"], "hooks": [hook("own", "tool_call")] });
    let (mut second, back) = joined(&server, "tab-two", offers.clone()).await;
    assert_eq!(second.ask("take_over_host", json!({})).await["type"], "ok");
    assert_eq!(back["state"], "running", "the turn still waits for it");
    assert_eq!(second.ask("ping", json!({})).await["type"], "pong");
    assert!(second.seen.iter().all(|frame| frame["type"] != "hook_call"));
    assert_eq!(answer(&mut second, &call, json!({})).await["payload"]["code"], "unknown_call", "it is not its own");
    // A client that offers it again is called, the same one or another.
    offers["hooks"] = open["hooks"].clone();
    let (mut third, _) = joined(&server, "tab-three", offers).await;
    third.send("take_over_host", json!({})).await;
    let again = third.event("hook_call").await["payload"].clone();
    assert!(is_again(&again, &call), "{again} and {call}");
    answer(&mut third, &call, json!({ "systemPrompt": "Be brief." })).await;
    assert_eq!(finished(&mut third).await["status"], "completed");
    assert_eq!(model.requests()[0].envelope.system.compiled, "Be brief.");
}

#[tokio::test]
async fn a_turn_waits_for_a_client_that_is_away_and_passes_over_a_hook_that_is_not_required() {
    for (required, status) in [(json!(true), "failed"), (Value::Null, "failed"), (json!(false), "completed")] {
        let is_required = required != json!(false);
        let (model, gate) = (Scripted::new(), Gate::new());
        model.push(Reply::text("It is.").held_by(&gate));
        let server = Server::start(model.clone(), &[("HOOK_AWAY_SECS", "1")]).await;
        let mut archive = json!({ "name": "archive", "point": "context", "reasons": ["turn_end"], "timeoutMs": 50 });
        if !required.is_null() {
            archive["required"] = required;
        }
        let (mut client, opened) = joined(&server, "tab-one", json!({ "hooks": [archive] })).await;
        client.ask("user_input", json!({ "input": "Is the sea warm?" })).await;
        let watching = json!({ "sessionId": opened["sessionId"], "role": "observer" });
        let (mut observer, _) = joined(&server, "watcher", watching).await;
        model.wait_for_requests(1).await;
        assert_eq!(client.ask("close_session", json!({})).await["type"], "ok");
        gate.open();
        let ended = finished(&mut observer).await;
        assert_eq!(ended["status"], status, "{ended}");
        if is_required {
            assert_eq!(ended["error"]["code"], "hook_unavailable", "{ended}");
            assert_eq!(ended["error"]["details"]["hook"], "archive", "{ended}");
            assert_eq!(ended["error"]["retriable"], true, "{ended}");
        }
        assert!(client.seen.iter().all(|frame| frame["type"] != "hook_call"), "it had left");
    }
}

#[tokio::test]
async fn an_answer_that_a_client_which_is_away_should_redact_is_shown_to_nobody() {
    let (model, gate) = (Scripted::new(), Gate::new());
    model.push(Reply::text("The number is 4711.").held_by(&gate));
    let server = Server::start(model.clone(), &[("HOOK_AWAY_SECS", "1")]).await;
    let (mut client, opened) = joined(&server, "tab-one", json!({ "hooks": [hook("redact", "message")] })).await;
    let watching = json!({ "sessionId": opened["sessionId"], "role": "observer", "deltas": true });
    let (mut observer, _) = joined(&server, "watcher", watching).await;
    let call = offered(&mut client, "Which number?").await;
    answer(&mut client, &call, json!({})).await;
    model.wait_for_requests(1).await;
    client.hang_up();
    gate.open();
    let ended = finished(&mut observer).await;
    assert_eq!((&ended["status"], &ended["error"]["code"]), (&json!("failed"), &json!("hook_unavailable")), "{ended}");
    assert!(observer.seen.iter().all(|frame| !frame.to_string().contains("4711")), "{:#?}", observer.seen);
    // Nor is an input accepted without it.
    let (mut client, _) = joined(&server, "tab-one", json!({ "sessionId": opened["sessionId"] })).await;
    client.send("user_input", json!({ "input": "And 0815?" })).await;
    client.event("hook_call").await;
    client.hang_up();
    let failed = observer.event("hook_failed").await;
    assert_eq!(failed["payload"]["error"]["code"], "hook_unavailable", "{failed}");
    let entries = observer.ask("get_entries", json!({})).await;
    assert!(!entries.to_string().contains("0815") && entries.to_string().contains("Which number?"), "{entries}");
}

#[tokio::test]
async fn a_client_is_told_of_calls_that_nobody_waits_for_any_more() {
    let model = Scripted::new();
    let call = |at: &str| Part::ToolCall { call_id: at.parse().unwrap(), name: "look".into(), arguments: "{}".into() };
    model.push(Reply::parts(vec![call("sea")]));
    let server = Server::start(model.clone(), &[]).await;
    let look = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    let open = json!({ "tools": [look], "hooks": [hook("policy", "before_agent_start")] });
    let (mut client, opened) = joined(&server, "tab-one", open).await;
    let watching = json!({ "sessionId": opened["sessionId"], "role": "observer" });
    let (mut observer, _) = joined(&server, "watcher", watching).await;
    let asked_for = asked(&mut client, "Is the sea warm?").await;
    assert_eq!(client.ask("cancel_turn", json!({})).await["type"], "ok");
    let told = client.event("hook_cancelled").await;
    let expected = json!({ "hookCallId": asked_for["hookCallId"], "outcome": "dropped" });
    assert_eq!(told["payload"], expected, "{told}");
    finished(&mut client).await;
    // A hook that was too slow.
    let slow = json!({ "name": "slow", "point": "before_agent_start", "timeoutMs": 50 });
    client.ask("register_hooks", json!({ "hooks": [slow] })).await;
    let asked_for = asked(&mut client, "And now?").await;
    let told = client.event("hook_cancelled").await;
    assert_eq!(
        (present(&told["payload"]["hookCallId"]), &told["payload"]["outcome"]),
        (&asked_for["hookCallId"], &json!("timed_out"))
    );
    finished(&mut client).await;
    // A tool's call.
    client.ask("register_hooks", json!({ "hooks": [] })).await;
    client.ask("user_input", json!({ "input": "Look at it." })).await;
    let called = client.event("tool_call").await["payload"].clone();
    assert_eq!(client.ask("cancel_turn", json!({})).await["type"], "ok");
    for client in [&mut client, &mut observer] {
        let told = client.event("tool_cancelled").await["payload"].clone();
        let expected = json!({
            "toolCallId": called["toolCallId"], "name": "look", "turnId": called["turnId"], "outcome": "dropped",
        });
        assert_eq!(told, expected);
    }
    assert!(observer.seen.iter().all(|frame| frame["type"] != "hook_cancelled"), "a hook is its client's own business");
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_is_passed_over_where_its_hooks_are_not_required() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let hooks =
        json!([optional("policy", "before_agent_start"), optional("call", "tool_call"), optional("more", "message")]);
    let (mut client, opened) = joined(&server, "tab-one", json!({ "hooks": hooks })).await;
    let watching = json!({ "sessionId": opened["sessionId"], "role": "observer" });
    let (mut observer, _) = joined(&server, "watcher", watching).await;
    let call = offered(&mut client, "Is the sea warm?").await;
    answer(&mut client, &call, json!({})).await;
    assert_eq!(client.event("hook_call").await["payload"]["hook"], "policy");
    client.hang_up();
    assert_eq!(finished(&mut observer).await["status"], "completed");
    // Its hooks are still registered once it is back.
    let (mut client, _) = joined(&server, "tab-one", json!({ "sessionId": opened["sessionId"] })).await;
    assert_eq!(offered(&mut client, "And now?").await["hook"], "more");
}
