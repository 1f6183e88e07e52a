//! Approvals of tool calls by a person, in v2.

use super::{Seen, ask, call, finished, over, results, start, tool};
use crate::support::scripted::{Reply, Scripted};
use crate::support::{client::Client, json::present, server::Server};
use reseed::{
    core::{approval::call_hash, tool::ToolPlace},
    store::sqlite::SqliteStore,
};
use serde_json::{Value, json};
use std::sync::{Arc, atomic::Ordering};

/// Answers an approval. Returns the reply.
async fn decide(client: &mut Client, approval: &Value, review: &str, message: Option<&str>) -> Value {
    let mut payload = json!({
        "approvalId": approval["approvalId"],
        "argumentsHash": approval["argumentsHash"],
        "review": review,
    });
    if let Some(message) = message {
        payload["customDenyMessage"] = json!(message);
    }
    client.ask("approval_response", payload).await
}

async fn asked(client: &mut Client) -> Value {
    client.event("approval_request").await["payload"].clone()
}

/// Lets the model call `dig` with these arguments, and then say something.
fn will_dig(model: &Scripted, arguments: &str) {
    model.push(Reply::parts(vec![call(0, "dig", arguments)]));
    model.push(Reply::text("Done."));
}

async fn with_dig(model: &Scripted, seen: &Arc<Seen>, settings: &[(&str, &str)]) -> Server {
    start(model, vec![tool("dig", false, seen)], settings).await
}

#[tokio::test]
async fn each_answer_does_what_it_says() {
    let table = [
        ("allow_once", None, "allowed", 1, "called with", "completed"),
        ("reject_once", None, "rejected", 0, "the user rejected this call.", "completed"),
        ("reject_once", Some("Not on a Sunday."), "rejected", 0, "Not on a Sunday.", "completed"),
        ("reject_and_stop", None, "rejected", 0, "", "cancelled"),
    ];
    for (review, message, outcome, runs, says, status) in table {
        let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
        let server = with_dig(&model, &seen, &[]).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        will_dig(&model, r#"{"at":"sea\u202e"}"#);
        ask(&mut client, "Dig!").await;
        let approval = asked(&mut client).await;
        assert_eq!(approval["argumentsHash"], call_hash(ToolPlace::Server, "dig", r#"{"at":"sea\u202e"}"#));
        assert_eq!(approval["options"], json!(["allow_once", "allow_always", "reject_once", "reject_always"]));
        assert_eq!(seen.started.load(Ordering::SeqCst), 0, "nothing runs before it is allowed");
        let wrong = json!({ "approvalId": approval["approvalId"], "argumentsHash": "00", "review": review });
        let refused = client.ask("approval_response", wrong).await;
        assert_eq!(refused["payload"]["code"], "invalid_field", "another call was shown: {refused}");
        assert_eq!(decide(&mut client, &approval, review, message).await["type"], "ok");
        let resolved = client.event("call_resolved").await["payload"].clone();
        assert_eq!(resolved["outcome"], outcome);
        assert_eq!(resolved["approvalId"], *present(&approval["approvalId"]));
        assert_eq!(finished(&mut client).await["status"], status, "{review}");
        assert_eq!(seen.started.load(Ordering::SeqCst), runs, "{review}");
        if status == "completed" {
            let told = results(&model.requests()[1]);
            assert!(matches!(&told[..], [(text, _)] if text.contains(says)), "{review}: {told:?}");
        }
        let again = decide(&mut client, &approval, review, message).await;
        assert_eq!((&again["type"], &again["payload"]["duplicate"]), (&json!("ok"), &json!(true)), "{again}");
        let other = if review == "allow_once" { "reject_once" } else { "allow_once" };
        let late = decide(&mut client, &approval, other, None).await;
        assert_eq!(late["payload"]["code"], "too_late", "{late}");
    }
}

#[tokio::test]
async fn what_hides_in_a_call_is_written_out() {
    let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
    let server = with_dig(&model, &seen, &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    will_dig(&model, "{\"command\":[\"rm\",\"\\u202egpj.exe\",\"a\u{200b}b\"]}");
    ask(&mut client, "Dig!").await;
    let approval = asked(&mut client).await;
    assert_eq!(approval["display"], "{\"command\":[\"rm\",\"\\u202egpj.exe\",\"a⟨U+200B⟩b\"]}");
    assert_eq!(decide(&mut client, &approval, "reject_once", None).await["type"], "ok");
    assert_eq!(finished(&mut client).await["status"], "completed");
}

#[tokio::test]
async fn an_answer_for_good_holds_for_exactly_this_call_and_can_be_withdrawn() {
    let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
    let server = with_dig(&model, &seen, &[]).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let mut standing = Value::Null;
    for (arguments, review) in [(r#"{"at":"a"}"#, "allow_always"), (r#"{"at":"b"}"#, "reject_always")] {
        will_dig(&model, arguments);
        ask(&mut client, "Dig!").await;
        let approval = asked(&mut client).await;
        assert_eq!(decide(&mut client, &approval, review, None).await["type"], "ok");
        let updated = |frame: &Value| !frame["payload"]["standingApprovals"].is_null();
        standing = client.until(updated).await["payload"]["standingApprovals"].clone();
        assert_eq!(finished(&mut client).await["status"], "completed");
    }
    assert_eq!(standing.as_array().map(Vec::len), Some(2), "{standing}");
    // The same calls come again, and nobody is asked. A call that differs by a space is another call.
    for (arguments, runs, is_asked) in
        [(r#"{"at":"a"}"#, 2, false), (r#"{"at":"b"}"#, 2, false), (r#"{"at": "a"}"#, 3, true)]
    {
        will_dig(&model, arguments);
        ask(&mut client, "Dig again!").await;
        if is_asked {
            let approval = asked(&mut client).await;
            assert_eq!(decide(&mut client, &approval, "allow_once", None).await["type"], "ok");
        }
        assert_eq!(finished(&mut client).await["status"], "completed");
        assert_eq!(seen.started.load(Ordering::SeqCst), runs, "{arguments}");
        assert_eq!(client.forget("approval_request").len(), 0, "{arguments}");
    }
    let approval_id = &present(&standing[0])["approvalId"];
    assert_eq!(client.ask("withdraw_approval", json!({ "approvalId": approval_id })).await["type"], "ok");
    let gone = client.ask("withdraw_approval", json!({ "approvalId": approval_id })).await;
    assert_eq!(gone["payload"]["code"], "no_pending_approval");
    will_dig(&model, r#"{"at":"a"}"#);
    ask(&mut client, "And again!").await;
    let approval = asked(&mut client).await;
    // A client that joins now sees the open approvals and the standing ones.
    let mut other = Client::v2(&server.ws()).await;
    let joined = other.ask("open_session", json!({ "sessionId": opened["sessionId"] })).await["payload"].clone();
    assert_eq!(joined["approvals"][0]["approvalId"], *present(&approval["approvalId"]));
    assert_eq!(joined["standingApprovals"][0]["option"], "reject_always");
    // Two clients decide at once, and the first decision counts.
    assert_eq!(decide(&mut other, &approval, "reject_once", None).await["type"], "ok");
    assert_eq!(decide(&mut client, &approval, "allow_once", None).await["payload"]["code"], "too_late");
    assert_eq!(finished(&mut client).await["status"], "completed");
}

#[tokio::test]
async fn rules_decide_and_a_session_can_only_be_stricter() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("approvals.json");
    let rules = json!({ "rules": [
        { "tool": "dig", "arguments": { "/at": "garden.*" }, "policy": "auto" },
        { "tool": "dig", "arguments": { "/at": "street" }, "policy": "deny" },
    ] });
    std::fs::write(&file, rules.to_string()).unwrap();
    let settings = [("APPROVALS_FILE", file.to_str().unwrap())];
    let own = json!({ "rules": [
        { "tool": "dig", "arguments": { "/at": "garden of roses" }, "policy": "deny" },
        { "tool": "dig", "policy": "auto" },
    ] });
    for (approvals, at, runs, is_asked) in [
        (None, "garden", 1, false),
        (None, "street", 0, false),
        (None, "sea", 0, true),
        (Some(&own), "garden", 1, false),
        (Some(&own), "garden of roses", 0, false),
        // The session says `auto`, and cannot loosen the deployment's policy.
        (Some(&own), "street", 0, false),
        (Some(&own), "sea", 0, true),
    ] {
        let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
        let server = with_dig(&model, &seen, &settings).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        if let Some(approvals) = approvals {
            assert_eq!(client.ask("set_tools", json!({ "approvals": approvals })).await["type"], "ok");
        }
        will_dig(&model, &json!({ "at": at }).to_string());
        ask(&mut client, "Dig!").await;
        if is_asked {
            let approval = asked(&mut client).await;
            assert_eq!(decide(&mut client, &approval, "reject_once", None).await["type"], "ok");
        }
        assert_eq!(finished(&mut client).await["status"], "completed");
        assert_eq!(client.forget("approval_request").len(), 0, "{at}");
        assert_eq!(seen.started.load(Ordering::SeqCst), runs, "{at}");
    }
    let model = Scripted::new();
    let server = with_dig(&model, &Arc::new(Seen::default()), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let wrong = json!({ "rules": [{ "tool": "dig", "arguments": { "/at": "(" }, "policy": "auto" }] });
    let refused = client.ask("set_tools", json!({ "approvals": wrong })).await;
    assert_eq!(refused["payload"]["code"], "invalid_policy");
    assert_eq!(refused["payload"]["details"]["field"], "approvals.rules[0].arguments./at");
}

#[tokio::test]
async fn no_answer_in_time_is_a_refusal() {
    let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
    let server = with_dig(&model, &seen, &[("APPROVAL_EXPIRY_SECS", "1")]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    will_dig(&model, "{}");
    ask(&mut client, "Dig!").await;
    let approval = asked(&mut client).await;
    assert_eq!(client.event("call_resolved").await["payload"]["outcome"], "expired");
    assert_eq!(finished(&mut client).await["status"], "completed");
    let told = results(&model.requests()[1]);
    assert!(matches!(&told[..], [(text, true)] if text.contains("nobody allowed this call in time")), "{told:?}");
    assert_eq!(decide(&mut client, &approval, "allow_once", None).await["payload"]["code"], "too_late");
    assert_eq!(seen.started.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_approval_outlives_the_connection_the_server_and_the_time_limit_of_its_turn() {
    let folder = tempfile::tempdir().unwrap();
    let (model, seen) = (Scripted::new(), Arc::new(Seen::default()));
    let settings = [("TURN_TIMEOUT_SECS", "1"), ("DETACHED_TURN_SECS", "0")];
    let store = || Arc::new(SqliteStore::open(&folder.path().join("reseed.db")).unwrap());
    let server = over(&model, store(), vec![tool("dig", false, &seen), tool("peek", true, &seen)], &settings).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    model.push(Reply::parts(vec![call(0, "dig", r#"{"at":"a"}"#), call(1, "peek", "{}"), call(2, "dig", "{}")]));
    ask(&mut client, "Dig!").await;
    let (first, second) = (asked(&mut client).await, asked(&mut client).await);
    // Calls that need no approval run meanwhile.
    let answered = |frame: &Value| frame["type"] == "call_resolved" && frame["payload"]["outcome"] == "answered";
    client.until(answered).await;
    client.hang_up();
    server.service.stop().await;
    drop(server);

    let server = over(&model, store(), vec![tool("dig", false, &seen)], &settings).await;
    let mut client = Client::v2(&server.ws()).await;
    let open = json!({ "sessionId": opened["sessionId"] });
    let reopened = client.ask("open_session", open).await["payload"].clone();
    assert_eq!(reopened["state"], "running", "{reopened}");
    let ids: Vec<&Value> = reopened["approvals"].as_array().unwrap().iter().map(|one| &one["approvalId"]).collect();
    assert_eq!(ids, [&first["approvalId"], &second["approvalId"]]);
    model.push(Reply::text("Done."));
    assert_eq!(decide(&mut client, &first, "allow_once", None).await["type"], "ok");
    assert_eq!(decide(&mut client, &second, "reject_once", None).await["type"], "ok");
    assert_eq!(finished(&mut client).await["status"], "completed");
    let told: Vec<String> = results(&model.requests().pop().unwrap()).into_iter().map(|(text, _)| text).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.iter().any(|text| text == r#"called with {"at":"a"}"#), "{told:?}");
    assert!(told.iter().any(|text| text.contains("rejected")), "{told:?}");
    assert_eq!(seen.started.load(Ordering::SeqCst), 2, "peek, and dig once");
}
