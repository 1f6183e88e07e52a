//! Hooks of a client that is away, comes back, or has gone for good.

use super::client::{FAR_MS, answer, asked, finished, hook, joined};
use crate::support::server::Server;
use reseed::provider::scripted::{Gate, Reply, Scripted};
use serde_json::{Value, json};

fn required(name: &str, event: &str, timeout_ms: u64) -> Value {
    json!({ "name": name, "event": event, "timeoutMs": timeout_ms, "required": true })
}

#[tokio::test]
async fn a_client_that_comes_back_is_asked_again() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let open = json!({ "hooks": [required("policy", "before_agent_start", FAR_MS)] });
    let (mut first, opened) = joined(&server, "tab-one", open.clone()).await;
    let session = json!({ "sessionId": opened["sessionId"] });
    let call = asked(&mut first, "Is the sea warm?").await;
    first.hang_up();

    // Somebody watches: it is not theirs to answer.
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
        assert_eq!(again["payload"], call);
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
    assert_eq!(first.closed().await, 1000);
    assert_eq!(second.event("hook_call").await["payload"], call, "it was not passed over");
    answer(&mut second, &call, json!({ "systemPrompt": "Be brief." })).await;
    assert_eq!(finished(&mut second).await["status"], "completed");
    assert_eq!(model.requests()[0].envelope.system.compiled, "Be brief.");
}

#[tokio::test]
async fn hooks_leave_with_the_client_that_offered_them() {
    // Taken over from, or gone before another one came.
    for hangs_up in [false, true] {
        let model = Scripted::answering(|_| Reply::text("It is."));
        let server = Server::start(model.clone(), &[]).await;
        let open = json!({ "hooks": [hook("policy", "before_agent_start")] });
        let (mut first, opened) = joined(&server, "tab-one", open).await;
        let watching = json!({ "sessionId": opened["sessionId"], "role": "observer" });
        let (mut observer, _) = joined(&server, "watcher", watching).await;
        let call = asked(&mut first, "Is the sea warm?").await;
        if hangs_up {
            first.hang_up();
        }
        let open = json!({ "sessionId": opened["sessionId"], "takeover": true });
        let (mut second, _) = joined(&server, "tab-two", open).await;
        assert_eq!(answer(&mut second, &call, json!({})).await["payload"]["code"], "unknown_call");
        assert_eq!(finished(&mut observer).await["status"], "completed", "it was passed over");
        second.ask("user_input", json!({ "input": "And now?" })).await;
        assert_eq!(finished(&mut observer).await["status"], "completed");
        assert!(second.seen.iter().all(|frame| frame["type"] != "hook_call"), "{:?}", second.seen);
        assert_eq!(model.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_required_hook_of_another_client_is_not_asked_of_who_took_over() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let open = json!({ "hooks": [required("policy", "before_agent_start", FAR_MS)] });
    let (mut first, opened) = joined(&server, "tab-one", open.clone()).await;
    let call = asked(&mut first, "Is the sea warm?").await;
    let mut takeover = json!({ "sessionId": opened["sessionId"], "takeover": true, "hooks": [hook("own", "message")] });
    let (mut second, back) = joined(&server, "tab-two", takeover.clone()).await;
    assert_eq!(back["state"], "running", "the turn still waits for it");
    assert_eq!(second.ask("ping", json!({})).await["type"], "pong");
    assert!(second.seen.iter().all(|frame| frame["type"] != "hook_call"));
    // Back, and offering it again, its client is asked.
    takeover["hooks"] = open["hooks"].clone();
    let (mut third, _) = joined(&server, "tab-one", takeover).await;
    assert_eq!(third.event("hook_call").await["payload"], call);
    answer(&mut third, &call, json!({ "systemPrompt": "Be brief." })).await;
    assert_eq!(finished(&mut third).await["status"], "completed");
    assert_eq!(model.requests()[0].envelope.system.compiled, "Be brief.");
}

#[tokio::test]
async fn a_turn_waits_for_a_required_hook_until_its_limit_and_passes_over_any_other() {
    for (is_required, status) in [(true, "failed"), (false, "completed")] {
        let (model, gate) = (Scripted::new(), Gate::new());
        model.push(Reply::text("It is.").held_by(&gate));
        let server = Server::start(model.clone(), &[]).await;
        let archive = json!({
            "name": "archive", "event": "context", "reasons": ["turn_end"], "timeoutMs": 50, "required": is_required,
        });
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
        }
        assert!(client.seen.iter().all(|frame| frame["type"] != "hook_call"), "it had left");
    }
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_is_passed_over() {
    let model = Scripted::answering(|_| Reply::text("It is."));
    let server = Server::start(model.clone(), &[]).await;
    let hooks = json!([hook("policy", "before_agent_start"), hook("censor", "message"), hook("more", "message")]);
    let (mut client, opened) = joined(&server, "tab-one", json!({ "hooks": hooks })).await;
    let watching = json!({ "sessionId": opened["sessionId"], "role": "observer" });
    let (mut observer, _) = joined(&server, "watcher", watching).await;
    asked(&mut client, "Is the sea warm?").await;
    client.hang_up();
    assert_eq!(finished(&mut observer).await["status"], "completed");
    // Its hooks are still its own once it is back.
    let (mut client, _) = joined(&server, "tab-one", json!({ "sessionId": opened["sessionId"] })).await;
    assert_eq!(asked(&mut client, "And now?").await["hook"], "policy");
}
