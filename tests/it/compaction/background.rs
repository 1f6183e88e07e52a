//! Background compactions: made while turns continue, committed at the threshold, between two requests.

use super::{assert_paired, session, texts};
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    client::Client,
    json::{present, whole},
    talk::{summary, words},
};
use reseed::core::model::Purpose;
use reseed_protocol::Part;
use serde_json::{Value, json};

/// In the window of 2,000 tokens a compaction is prepared from 1,200 on and waited for from 1,600 on.
/// Without the user's own words a compaction in this small window saves most of what it replaces.
const SOON: &[(&str, &str)] = &[("strategy.background", "0.7"), ("strategy.userShare", "0")];

/// Returns a model whose summaries arrive when the gate is opened.
fn held_at(gate: &Gate) -> Scripted {
    let (gate, mut number) = (gate.clone(), 0);
    Scripted::answering(move |request| match request.purpose {
        Purpose::Summary => Reply::text(summary(&["The ship is called Aurora."])).held_by(&gate),
        Purpose::Turn => {
            number += 1;
            Reply::text(words(1_000 + number, 40))
        }
    })
}

/// Talks in small turns until a background compaction is running; returns its job.
async fn until_prepared(client: &mut Client) -> Value {
    for number in 0..40 {
        assert_eq!(client.turn(&words(number, 50)).await["status"], "completed");
        if let Some(job) = client.ask("get_context_info", json!({})).await["payload"]["tokenCount"].as_u64()
            && job > 1_200
        {
            let started = client.event("compaction_started").await["payload"].clone();
            assert_eq!((&started["background"], &started["trigger"]), (&json!(true), &json!("threshold")));
            return started["jobId"].clone();
        }
    }
    panic!("forty turns did not come near the limit");
}

#[tokio::test]
async fn turns_go_on_while_it_is_made_and_what_they_say_stays() {
    let gate = Gate::new();
    let model = held_at(&gate);
    let (_server, mut client) = session(&model, SOON).await;
    let job = until_prepared(&mut client).await;
    let said = "What is the ship called?";
    assert_eq!(client.turn(said).await["status"], "completed", "a turn does not wait for it");
    gate.open();
    let prepared = client.event("compaction_prepared").await["payload"].clone();
    assert_eq!((&prepared["jobId"], &prepared["rung"]), (&job, &json!("model_summary")), "{prepared}");
    assert!(client.seen.iter().all(|frame| frame["type"] != "context_compacted"), "it is held until it is due");
    for number in 100..120 {
        assert_eq!(client.turn(&words(number, 50)).await["status"], "completed");
        if client.seen.iter().any(|frame| frame["type"] == "context_compacted") {
            break;
        }
    }
    let compacted = client.event("context_compacted").await["payload"].clone();
    assert_eq!((&compacted["jobId"], &compacted["background"]), (&job, &json!(true)));
    assert_eq!(compacted["pausedMs"], 0, "{compacted}");
    assert!(whole(&compacted["tokensBefore"]) > whole(&prepared["compactAtTokens"]), "{compacted}");
    assert_eq!(compacted["rung"], "model_summary", "{compacted}");
    client.turn("And now?").await;
    let sent = texts(model.requests().last().unwrap());
    assert!(sent[0].contains("Aurora") && sent.contains(&said.to_owned()), "{sent:?}");
    assert_eq!(client.seen.iter().filter(|frame| frame["type"] == "context_compacted").count(), 1);
}

#[tokio::test]
async fn it_is_committed_in_the_middle_of_a_turn_with_tools() {
    let mut rounds = 0;
    let model = Scripted::answering(move |request| match request.purpose {
        Purpose::Summary => Reply::text(summary(&["The lamp is lit."])),
        Purpose::Turn if rounds < 12 => {
            rounds += 1;
            let call_id = "call_0".parse().unwrap();
            Reply::parts(vec![Part::ToolCall { call_id, name: "look".into(), arguments: "{}".into() }])
        }
        Purpose::Turn => Reply::text("That is all."),
    });
    // Nothing is cleared: a summary must be made.
    let (_server, mut client) = session(&model, &[SOON[0], SOON[1], ("strategy.keepToolResults", "100")]).await;
    let tool = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    client.ask("register_tools", json!({ "tools": [tool] })).await;
    client.ask("user_input", json!({ "input": "Look twelve times." })).await;
    let mut prepared = 0;
    for round in 0..12 {
        let call = client.event("tool_call").await["payload"]["toolCallId"].clone();
        // Waits for what has started, so that it is ready when needed and nothing waits for it.
        client.ask("get_context_info", json!({})).await;
        while prepared < client.seen.iter().filter(|frame| frame["type"] == "compaction_started").count() {
            client.event("compaction_prepared").await;
            prepared += 1;
        }
        let answer = json!({ "toolCallId": call, "output": words(round, 110) });
        assert_eq!(client.ask("tool_result", answer).await["type"], "ok");
    }
    let finished = client.event("turn_finished").await["payload"].clone();
    assert_eq!(finished["status"], "completed", "{finished}");
    let compactions: Vec<&Value> = client.seen.iter().filter(|frame| frame["type"] == "context_compacted").collect();
    assert!(!compactions.is_empty(), "the window is crossed more than once");
    for compacted in compactions {
        let payload = &compacted["payload"];
        assert_eq!((&payload["background"], &payload["pausedMs"]), (&json!(true), &json!(0)), "{payload}");
    }
    model.requests().iter().for_each(assert_paired);
    assert!(texts(model.requests().last().unwrap()).contains(&"Look twelve times.".to_owned()));
}

#[tokio::test]
async fn only_the_hard_limit_waits_for_it() {
    let gate = Gate::new();
    let model = held_at(&gate);
    let (_server, mut client) = session(&model, SOON).await;
    let job = until_prepared(&mut client).await;
    let asked = model.requests().len();
    let question = words(77, 420);
    client.ask("user_input", json!({ "input": question })).await;
    let info = client.ask("get_context_info", json!({})).await["payload"].clone();
    assert!(whole(&info["tokenCount"]) > 1_600, "{info}");
    assert_eq!(model.requests().len(), asked, "the request waits for room");
    gate.open();
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    let compacted = client.seen.iter().find(|frame| frame["type"] == "context_compacted").unwrap()["payload"].clone();
    assert_eq!((&compacted["jobId"], &compacted["background"]), (&job, &json!(true)), "the same one, not another");
    let sent = texts(model.requests().last().unwrap());
    assert!(sent[0].contains("Aurora") && sent.last() == Some(&question), "{sent:?}");
}

#[tokio::test]
async fn one_that_was_planned_before_the_input_and_frees_too_little_is_followed_by_another() {
    let gate = Gate::new();
    let model = held_at(&gate);
    let settings = [("CONTEXT_WINDOW", "32000"), ("MODEL_WINDOWS", "small=4000"), ("strategy.background", "0.85")];
    let (_server, mut client) = session(&model, &settings).await;
    for number in 0..8 {
        assert_eq!(client.turn(&words(number, 1_500)).await["status"], "completed");
    }
    // The compaction that is prepared now must keep the last message, and a request waits above 3,488 tokens.
    client.ask("set_model", json!({ "model": "small" })).await;
    let job = client.event("compaction_started").await["payload"]["jobId"].clone();
    client.ask("user_input", json!({ "input": "And now?" })).await;
    gate.open();
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    let compacted: Vec<&Value> = client
        .seen
        .iter()
        .filter(|frame| frame["type"] == "context_compacted")
        .map(|frame| &frame["payload"])
        .collect();
    let [first, second] = compacted[..] else { panic!("{compacted:?}") };
    assert_eq!((present(&first["jobId"]), present(&first["background"])), (&job, &json!(true)));
    assert_eq!(second.get("background"), None, "the turn waits for it");
    assert!(whole(&first["tokensAfter"]) > 3_488 && whole(&second["tokensAfter"]) < 3_200, "{compacted:?}");
}

#[tokio::test]
async fn what_changes_its_ground_makes_it_void() {
    let table = [
        ("set_context_strategy", json!({ "strategy": "truncate", "settings": { "background": 1 } })),
        ("set_model", json!({ "model": "another" })),
        ("user_input", json!({ "input": "From the beginning.", "parentId": "root" })),
        ("navigate", json!({ "entryId": "root" })),
        ("preview_compaction", json!({})),
    ];
    for (command, payload) in table {
        let gate = Gate::new();
        let model = held_at(&gate);
        let (_server, mut client) = session(&model, SOON).await;
        let job = until_prepared(&mut client).await;
        client.send(command, payload).await;
        let failed = client.event("compaction_failed").await["payload"].clone();
        assert_eq!((&failed["jobId"], &failed["error"]["code"]), (&job, &json!("compaction_void")), "{command}");
        model.wait_for_dropped(1).await;
        gate.open();
        client.ask("get_context_info", json!({})).await;
        let mut compactions = client.seen.iter().filter(|frame| frame["type"] == "context_compacted");
        assert!(compactions.all(|frame| frame["payload"]["jobId"] != job), "{command}: what is void is never written");
    }
}

#[tokio::test]
async fn what_cannot_fit_is_told_by_its_parts() {
    let mut number = 0;
    let model = Scripted::answering(move |request| match request.purpose {
        Purpose::Summary => Reply::text(summary(&["Nothing."])),
        Purpose::Turn => {
            number += 1;
            Reply::text(words(1_000 + number, 5))
        }
    });
    let (_server, mut client) = session(&model, &[]).await;
    for seed in [1, 2] {
        assert_eq!(client.turn(&words(seed, 1_000)).await["status"], "completed");
        let entries = client.ask("get_entries", json!({ "limit": 500 })).await["payload"]["items"].clone();
        let entries = entries.as_array().unwrap();
        let said = entries.iter().rfind(|entry| entry["role"] == "user").unwrap()["entryId"].clone();
        assert_eq!(client.ask("pin_entry", json!({ "entryId": said })).await["type"], "ok");
    }
    let finished = client.turn(&words(3, 1_000)).await;
    assert_eq!(finished["error"]["code"], "context_overflow", "{finished}");
    let parts = &finished["error"]["details"];
    assert_eq!(parts["windowTokens"], 2_000);
    let of = |name: &str| parts[name].as_u64().unwrap();
    assert!(of("pinned") > 1_200 && of("lastInput") > 600, "{parts}");
    let sum = of("system") + of("tools") + of("pinned") + of("lastInput") + of("rest");
    assert!(sum.abs_diff(of("tokens")) <= 8, "{parts}");
    let message = finished["error"]["message"].as_str().unwrap();
    assert!(message.contains("pinned entries") && message.contains("no compaction can make that fit"), "{message}");
}
