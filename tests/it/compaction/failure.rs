//! A compaction that fails, is cancelled or concurrent: the context is unchanged, and nothing that was said is lost.

use super::{TRIGGER_TOKENS, compact, context, fill, session, tokens};
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    client::Client,
    json::{present, whole},
    server::Server,
    talk::{facts, summaries, summary, talker, words},
};
use reseed::{
    core::model::{ModelFault, Purpose},
    store::sqlite::SqliteStore,
};
use reseed_protocol::{ErrorCode, Part, StopReason};
use serde_json::{Value, json};
use std::{path::Path, sync::Arc};

fn held_summary(gate: &Gate) -> Reply {
    Reply::text(summary(&["late"])).held_by(gate)
}

fn fault(code: ErrorCode) -> Reply {
    Reply::fault(ModelFault::new(code, "it broke"))
}

/// Returns what was said on the path to the leaf, oldest first, and the types of the entries.
async fn path(client: &mut Client) -> (Vec<String>, Vec<String>) {
    let entries = client.ask("get_entries", json!({ "path": true, "limit": 500 })).await;
    let items = entries["payload"]["items"].as_array().unwrap().clone();
    let said = items.iter().filter_map(|entry| entry["content"][0]["text"].as_str()).map(str::to_owned).collect();
    (said, items.iter().map(|entry| entry["type"].as_str().unwrap().to_owned()).collect())
}

#[tokio::test]
async fn a_cancelled_compaction_leaves_the_context_as_it_was() {
    let (model, gate) = (talker(100), Gate::new());
    let (_server, mut client) = session(&model, &[]).await;
    fill(&mut client, 1_000).await;
    let (before, asked) = (context(&mut client).await, model.requests().len());
    model.push(held_summary(&gate));
    let ordered = client.ask("start_compaction", json!({})).await;
    let job = ordered["payload"]["jobId"].clone();
    model.wait_for_requests(asked + 1).await;
    let wrong = client.ask("cancel_compaction", json!({ "jobId": "another" })).await;
    assert_eq!(wrong["payload"]["code"], "no_compaction");
    assert_eq!(client.ask("cancel_compaction", json!({ "jobId": job })).await["type"], "ok");
    let failed = client.event("compaction_failed").await["payload"].clone();
    assert_eq!((present(&failed["jobId"]), present(&failed["commandId"])), (&job, &ordered["re"]));
    assert_eq!(failed["error"]["code"], "compaction_cancelled");
    model.wait_for_dropped(1).await;
    assert_eq!(context(&mut client).await, before);
    assert_eq!(client.ask("cancel_compaction", json!({})).await["payload"]["code"], "no_compaction");
    let asked = model.requests().len();
    assert_eq!(client.turn("Go on.").await["status"], "completed");
    assert_eq!(model.requests().len(), asked + 1, "and it does not begin again by itself");
}

#[tokio::test]
async fn a_turn_goes_on_when_its_compaction_is_cancelled_or_fails() {
    for cancel in [true, false] {
        let (model, gate) = (talker(100), Gate::new());
        let (_server, mut client) = session(&model, &[]).await;
        fill(&mut client, TRIGGER_TOKENS - 250).await;
        assert_eq!(summaries(&model.requests()), 0);
        let asked = model.requests().len();
        model.push(if cancel { held_summary(&gate) } else { fault(ErrorCode::UpstreamError) });
        let question = words(99, 200);
        client.ask("user_input", json!({ "input": question })).await;
        if cancel {
            model.wait_for_requests(asked + 1).await;
            assert_eq!(client.ask("cancel_compaction", json!({})).await["type"], "ok");
            let failed = client.event("compaction_failed").await["payload"].clone();
            assert_eq!(failed["error"]["code"], "compaction_cancelled");
        } else {
            let compacted = client.event("context_compacted").await["payload"].clone();
            assert_eq!(compacted["rung"], "extract", "{compacted}");
            assert_eq!(compacted["failedRungs"][0]["reason"], "upstream_error", "{compacted}");
        }
        let finished = client.event("turn_finished").await["payload"].clone();
        assert_eq!(finished["status"], "completed", "{finished}");
        let requests = model.requests();
        assert_eq!(requests.len(), asked + 2, "the summary once, then the request");
        if cancel {
            let as_it_was = requests[asked - 1].messages().count() + 2;
            assert_eq!(requests[asked + 1].messages().count(), as_it_was);
            // The next turn tries again.
            assert_eq!(client.turn("Go on.").await["status"], "completed");
            client.event("context_compacted").await;
            assert!(summaries(&model.requests()) >= 2);
        }
    }
}

#[tokio::test]
async fn what_waits_for_a_compaction_goes_on_when_another_strategy_is_chosen() {
    for in_turn in [true, false] {
        let (model, gate) = (talker(100), Gate::new());
        let (_server, mut client) = session(&model, &[]).await;
        fill(&mut client, TRIGGER_TOKENS - 250).await;
        let asked = model.requests().len();
        model.push(held_summary(&gate));
        if in_turn {
            client.ask("user_input", json!({ "input": words(99, 200) })).await;
        } else {
            client.ask("start_compaction", json!({})).await;
        }
        model.wait_for_requests(asked + 1).await;
        client.ask("set_context_strategy", json!({ "strategy": "manual" })).await;
        assert_eq!(client.event("compaction_failed").await["payload"]["error"]["code"], "compaction_void");
        if !in_turn {
            client.ask("user_input", json!({ "input": "Go on." })).await;
        }
        let finished = client.event("turn_finished").await["payload"].clone();
        assert_eq!(finished["status"], "completed", "{finished}");
        assert_eq!(model.requests().len(), asked + 2, "the request goes out as it was");
    }
}

#[tokio::test]
async fn a_summary_that_fails_is_made_by_rule_and_can_be_taken_back() {
    for code in [
        ErrorCode::UpstreamError,
        ErrorCode::UpstreamTimeout,
        ErrorCode::UpstreamAuth,
        ErrorCode::UpstreamRateLimited,
        ErrorCode::UpstreamTruncated,
    ] {
        let model = talker(100);
        let (_server, mut client) = session(&model, &[]).await;
        fill(&mut client, 1_000).await;
        let before = context(&mut client).await;
        model.push(fault(code));
        let compacted = compact(&mut client, json!({})).await;
        assert_eq!(compacted["rung"], "extract", "{code}");
        let failed = json!([{ "rung": "model_summary", "reason": code.as_str() }]);
        assert_eq!(compacted["failedRungs"], failed, "{code}");
        assert_eq!(client.ask("undo_compaction", json!({})).await["type"], "ok", "{code}");
        assert_eq!(context(&mut client).await["envelope"], *present(&before["envelope"]), "{code}");
    }
}

#[tokio::test]
async fn a_turn_goes_on_by_rule_when_its_summary_fails() {
    let model = talker(100);
    let (_server, mut client) = session(&model, &[]).await;
    fill(&mut client, TRIGGER_TOKENS - 250).await;
    model.push(fault(ErrorCode::UpstreamOverloaded));
    let asked = model.requests().len();
    let finished = client.turn(&words(99, 1_200)).await;
    assert_eq!(finished["status"], "completed", "{finished}");
    assert_eq!(model.requests().len(), asked + 2, "the summary that failed, and the request");
}

#[tokio::test]
async fn what_is_no_summary_is_never_stored() {
    let call = Part::ToolCall { call_id: "call_0".parse().unwrap(), name: "look".into(), arguments: "{}".into() };
    let table = [
        ("cut at the output limit", Reply::text(summary(&["the cut one"])).stopping(StopReason::Length)),
        ("going on with the same", Reply::text("and so on and so forth ".repeat(100))),
        ("a thought without an end", Reply::text("<think>I am sorry")),
        ("every section empty", Reply::text("## Goal\n\n## Next Steps\n")),
        ("turns that it plays", Reply::text("[User]: And now?\n[Assistant]: I am sorry.")),
        ("a call", Reply::parts(vec![call])),
        ("nothing", fault(ErrorCode::UpstreamEmpty)),
        ("filtered", fault(ErrorCode::ContentFiltered)),
    ];
    for (name, reply) in table {
        let model = talker(100);
        let (_server, mut client) = session(&model, &[]).await;
        client.turn("My ship is called Aurora.").await;
        fill(&mut client, 1_000).await;
        model.push(reply.clone());
        model.push(reply);
        let asked = model.requests().len();
        let compacted = compact(&mut client, json!({})).await;
        assert_eq!(compacted["rung"], "extract", "{name}");
        let stored = compacted["summary"].as_str().unwrap();
        assert!(stored.contains("- My ship is called Aurora."), "{name}: {stored}");
        assert!(!stored.contains("sorry") && !stored.contains("the cut one"), "{name}: {stored}");
        assert_eq!(model.requests().len(), asked + 2, "{name}: asked for once more");
        assert!(whole(&compacted["tokensAfter"]) < whole(&compacted["tokensBefore"]), "{name}");
    }
}

#[tokio::test]
async fn input_meanwhile_waits_in_order_and_a_second_compaction_is_refused() {
    let (model, gate) = (talker(40), Gate::new());
    let (_server, mut client) = session(&model, &[]).await;
    fill(&mut client, 1_000).await;
    let asked = model.requests().len();
    model.push(held_summary(&gate));
    let job = client.ask("start_compaction", json!({})).await["payload"]["jobId"].clone();
    model.wait_for_requests(asked + 1).await;
    for text in ["one", "two", "three"] {
        let accepted = client.ask("user_input", json!({ "input": text })).await;
        assert_eq!((&accepted["type"], &accepted["payload"]["queued"]), (&json!("accepted"), &json!(true)));
    }
    let second = client.ask("start_compaction", json!({})).await;
    assert_eq!(second["payload"]["code"], "compaction_running", "{second}");
    assert_eq!(*present(&second["payload"]["details"]["jobId"]), job);
    gate.open();
    for _ in 0..3 {
        assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    }
    let (said, kinds) = path(&mut client).await;
    let waited: Vec<&str> =
        said.iter().map(String::as_str).filter(|text| ["one", "two", "three"].contains(text)).collect();
    assert_eq!(waited, ["one", "two", "three"]);
    let last: Vec<&str> = kinds.iter().rev().take(7).map(String::as_str).collect();
    assert_eq!(last, ["message", "message", "message", "message", "message", "message", "compaction"]);
    let requests = model.requests();
    let later: Vec<Purpose> = requests[asked..].iter().map(|request| request.purpose).collect();
    let made = later.iter().take_while(|purpose| **purpose == Purpose::Summary).count();
    assert_eq!(later[made..], [Purpose::Turn; 3], "one compaction, then what waited");
}

/// A server on a runtime of its own, which can be ended at any moment like a crash.
struct Doomed {
    runtime: tokio::runtime::Runtime,
    server: Server,
}

impl Doomed {
    async fn start(model: &Scripted, path: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let store = Arc::new(SqliteStore::open(path).unwrap());
        let model = model.clone();
        let server =
            runtime.spawn(async move { Server::over(model, store, &[super::WAITED_FOR]).await }).await.unwrap();
        Self { runtime, server }
    }

    /// Ends every task immediately; nothing is finished, released or reported.
    fn crash(self) {
        let Self { runtime, server } = self;
        std::thread::spawn(move || drop(runtime)).join().unwrap();
        drop(server);
    }
}

#[tokio::test]
async fn a_crash_in_the_middle_of_a_compaction_leaves_the_old_context() {
    for in_turn in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reseed.db");
        let (model, gate) = (talker(100), Gate::new());
        let doomed = Doomed::start(&model, &file).await;
        let (mut client, opened) = Client::v2_session(&doomed.server.ws()).await;
        client.turn("FACT 1: the ship is called Aurora").await;
        fill(&mut client, TRIGGER_TOKENS - 250).await;
        let (before, asked) = (context(&mut client).await, model.requests().len());
        model.push(held_summary(&gate));
        if in_turn {
            client.ask("user_input", json!({ "input": words(99, 200) })).await;
        } else {
            client.ask("start_compaction", json!({})).await;
            client.ask("user_input", json!({ "input": "I wait." })).await;
        }
        model.wait_for_requests(asked + 1).await;
        doomed.crash();

        let server = Doomed::start(&model, &file).await;
        let mut client = Client::v2(&server.server.ws()).await;
        let open = json!({ "sessionId": opened["sessionId"] });
        let reopened = client.ask("open_session", open).await["payload"].clone();
        let compaction = reopened["entries"].as_array().unwrap().iter().any(|entry| entry["type"] == "compaction");
        assert!(!compaction, "{reopened}");
        if in_turn {
            assert_eq!(reopened["lastTurn"]["status"], "interrupted", "{reopened}");
            let now = context(&mut client).await;
            let (now, before) = (messages(&now), messages(&before));
            assert_eq!(now[..before.len()], before[..], "the old context, and the question behind it");
            assert_eq!(now.len(), before.len() + 1);
            client.ask("retry_turn", json!({})).await;
        }
        // The queued input is sent now; either way the turn compacts again and is answered.
        let finished = client.event("turn_finished").await["payload"].clone();
        assert_eq!(finished["status"], "completed", "{finished}");
        assert!(tokens(&mut client).await < 2_000);
        let last = model.requests().last().cloned().unwrap();
        assert_eq!(facts(&super::text_of(&last)), ["FACT 1: the ship is called Aurora"], "{in_turn}");
        server.crash();
    }
}

fn messages(context: &Value) -> Vec<Value> {
    context["envelope"]["messages"]["cached"].as_array().unwrap().clone()
}
