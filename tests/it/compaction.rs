//! Compaction over v2: when it happens, what it sends, and that its reports are true.

mod background;
mod breaker;
mod context;
mod failure;
mod form;
mod held;
mod ladder;
mod native;
mod one_slot;
mod orders;
mod overflow;
mod prefix;
mod rambling;
mod thresholds;
mod words;

use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    client::Client,
    json::{present, whole},
    server::Server,
    talk::{facts, summaries, summary, talker, text_of, words},
};
use reseed::core::{
    compaction::summary::read_prompt,
    model::{ModelRequest, Purpose},
};
use reseed_protocol::Part;
use serde_json::{Value, json};

/// The trigger of `threshold` in the usual window of 2,000 tokens: a fifth of it is kept for the answer.
const TRIGGER_TOKENS: u64 = 1_600;

/// Disables preparation in the background: compactions are waited for.
const WAITED_FOR: (&str, &str) = ("strategy.background", "1");

/// Opens a session on this model, in which compactions are waited for.
async fn session(model: &Scripted, settings: &[(&str, &str)]) -> (Server, Client) {
    let settings: Vec<(&str, &str)> = [WAITED_FOR].iter().chain(settings).copied().collect();
    let server = Server::start(model.clone(), &settings).await;
    let (client, _) = Client::v2_session(&server.ws()).await;
    (server, client)
}

async fn info(client: &mut Client) -> Value {
    client.ask("get_context_info", json!({})).await["payload"].clone()
}

async fn tokens(client: &mut Client) -> u64 {
    info(client).await["tokenCount"].as_u64().unwrap()
}

async fn context(client: &mut Client) -> Value {
    client.ask("get_context", json!({})).await["payload"].clone()
}

/// Talks in turns of a hundred words until this many tokens are used.
async fn fill(client: &mut Client, until_tokens: u64) {
    for number in 0..40 {
        let finished = client.turn(&words(number, 100)).await;
        assert_eq!(finished["status"], "completed", "{finished}");
        if whole(&finished["contextInfo"]["tokenCount"]) >= until_tokens {
            return;
        }
    }
    panic!("forty turns did not come to {until_tokens} tokens");
}

/// Requests a compaction and waits for its outcome.
async fn compact(client: &mut Client, payload: Value) -> Value {
    let ok = client.ask("start_compaction", payload).await;
    assert_eq!(ok["type"], "ok", "{ok}");
    let compacted = client.event("context_compacted").await["payload"].clone();
    assert_eq!(*present(&compacted["jobId"]), ok["payload"]["jobId"]);
    assert_eq!(*present(&compacted["commandId"]), ok["re"]);
    compacted
}

fn purposes(requests: &[ModelRequest]) -> Vec<Purpose> {
    requests.iter().map(|request| request.purpose).collect()
}

fn texts(request: &ModelRequest) -> Vec<String> {
    request.messages().map(|message| message.message.text()).collect()
}

fn breakdown_sum(breakdown: &Value) -> u64 {
    breakdown.as_object().unwrap().values().map(|tokens| tokens.as_u64().unwrap()).sum()
}

/// Checks that every call of a request is followed by its result.
fn assert_paired(request: &ModelRequest) {
    let mut open = Vec::new();
    for message in request.messages() {
        let results = message.message.content.iter().any(|part| matches!(part, Part::ToolResult { .. }));
        assert!(results || open.is_empty(), "calls {open:?} have no result");
        for part in &message.message.content {
            match part {
                Part::ToolCall { call_id, .. } => open.push(call_id.clone()),
                Part::ToolResult { call_id, .. } => {
                    let at = open.iter().position(|open| open == call_id);
                    open.remove(at.expect("a result has its call"));
                }
                _ => {}
            }
        }
    }
    assert!(open.is_empty(), "calls {open:?} have no result");
}

#[tokio::test]
async fn the_threshold_counts_the_pending_input_and_compacts_before_the_request() {
    let model = talker(100);
    let (_server, mut client) = session(&model, &[]).await;
    fill(&mut client, 1_250).await;
    let before = info(&mut client).await;
    assert_eq!(before["compactAtTokens"], TRIGGER_TOKENS);
    assert!(whole(&before["tokenCount"]) < TRIGGER_TOKENS);
    let asked = model.requests().len();
    assert_eq!(summaries(&model.requests()), 0);

    let question = words(99, 450);
    client.turn(&question).await;
    let requests = model.requests();
    let asked: Vec<Purpose> = purposes(&requests).split_off(asked);
    assert!(asked[0] == Purpose::Summary && asked.last() == Some(&Purpose::Turn), "the summary first: {asked:?}");
    assert_eq!(asked.iter().filter(|purpose| **purpose == Purpose::Turn).count(), 1);
    let compacted = client.event("context_compacted").await["payload"].clone();
    assert_eq!(compacted["trigger"], "threshold");
    assert!(compacted["rung"].as_str().unwrap().ends_with("_summary"), "{compacted}");
    assert!(whole(&compacted["tokensBefore"]) > TRIGGER_TOKENS, "{compacted}");
    assert!(whole(&compacted["tokensAfter"]) < TRIGGER_TOKENS, "{compacted}");
    let sent = texts(requests.last().unwrap());
    assert!(sent[0].contains("<summary>") && sent.last() == Some(&question), "{sent:?}");
    let compactions = client.seen.iter().filter(|frame| frame["type"] == "context_compacted").count();
    assert_eq!(compactions, 1, "one crossing, one compaction");
}

#[tokio::test]
async fn the_threshold_holds_between_tool_rounds() {
    let mut rounds = 0;
    let model = Scripted::answering(move |request| match request.purpose {
        Purpose::Summary => Reply::text(summary(&facts(&text_of(request)))),
        Purpose::Turn if rounds < 7 => {
            rounds += 1;
            let call_id = "call_0".parse().unwrap();
            Reply::parts(vec![Part::ToolCall { call_id, name: "look".into(), arguments: "{}".into() }])
        }
        Purpose::Turn => Reply::text("That is all."),
    });
    let (_server, mut client) = session(&model, &[]).await;
    let tool = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    client.ask("register_tools", json!({ "tools": [tool] })).await;
    client.ask("user_input", json!({ "input": "Look seven times." })).await;
    for round in 0..7 {
        let call = client.event("tool_call").await["payload"]["toolCallId"].clone();
        let output = format!("FACT {round}: the lamp is lit\n{}", words(round, 220));
        assert_eq!(client.ask("tool_result", json!({ "toolCallId": call, "output": output })).await["type"], "ok");
    }
    let finished = client.event("turn_finished").await["payload"].clone();
    assert_eq!(finished["status"], "completed", "{finished}");
    assert_eq!(client.seen.iter().filter(|frame| frame["type"] == "turn_finished").count(), 1);
    let requests = model.requests();
    assert!(summaries(&requests) >= 1 && requests.last().unwrap().purpose == Purpose::Turn);
    requests.iter().for_each(assert_paired);
    let last = requests.last().unwrap();
    assert!(texts(last).contains(&"Look seven times.".to_owned()), "the question stays word for word");
    assert_eq!(facts(&text_of(last)).len(), 7, "what the tools answered is in the summary or the tail");
}

#[tokio::test]
async fn manual_warns_once_and_never_compacts_by_itself() {
    let model = talker(100);
    let (_server, mut client) = session(&model, &[("CONTEXT_STRATEGY", "manual")]).await;
    let mut failed = None;
    for number in 0..40 {
        let finished = client.turn(&words(number, 100)).await;
        if finished["status"] == "failed" {
            failed = Some(finished);
            break;
        }
    }
    let failed = failed.expect("forty turns pass a window of 2,000 tokens");
    let error = &failed["error"];
    assert_eq!(error["code"], "context_overflow", "{error}");
    for word in ["compact the context", "retry_turn"] {
        assert!(error["message"].as_str().unwrap().contains(word), "{error}");
    }
    let warnings = client.seen.iter().filter(|frame| frame["type"] == "context_warning").count();
    assert_eq!(warnings, 1);
    let warning = client.event("context_warning").await["payload"].clone();
    assert!(warning["usageRatio"].as_f64().is_some_and(|ratio| (0.9..=1.0).contains(&ratio)), "{warning}");
    let asked = model.requests();
    assert_eq!(summaries(&asked), 0);

    // The same happens again, until the user has done what the message says.
    client.ask("retry_turn", json!({})).await;
    assert_eq!(client.event("turn_finished").await["payload"]["error"]["code"], "context_overflow");
    assert_eq!(model.requests().len(), asked.len(), "what cannot fit is not sent");
    compact(&mut client, json!({})).await;
    client.ask("retry_turn", json!({})).await;
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
    assert!(summaries(&model.requests()) >= 1);
}

#[tokio::test]
async fn instructions_reach_the_summary() {
    let model = talker(150);
    let (_server, mut client) = session(&model, &[]).await;
    fill(&mut client, 700).await;
    compact(&mut client, json!({ "instructions": "the name of the ship" })).await;
    let requests = model.requests();
    let prompt = read_prompt(&text_of(requests.last().unwrap())).unwrap();
    assert_eq!(prompt.instructions.as_deref(), Some("the name of the ship"));
    assert_eq!(prompt.previous, None);
}

#[tokio::test]
async fn the_second_summary_takes_up_the_first() {
    let model = talker(150);
    let (_server, mut client) =
        session(&model, &[("strategy.summaryMode", "rewrite"), ("strategy.userShare", "0")]).await;
    for fact in ["FACT 1: the ship is called Aurora", "FACT 2: the captain is Odile"] {
        client.turn(fact).await;
        fill(&mut client, 700).await;
        compact(&mut client, json!({})).await;
    }
    let requests = model.requests();
    let prompt = read_prompt(&text_of(requests.last().unwrap())).unwrap();
    assert_eq!(facts(&prompt.previous.unwrap()), ["FACT 1: the ship is called Aurora"]);
    let quoted: String = prompt.messages.iter().map(|message| message.text() + "\n").collect();
    assert!(!quoted.contains("Aurora") && !quoted.contains("<summary>"), "the first summary is merged, not quoted");
    let now = context(&mut client).await["envelope"]["messages"]["cached"].to_string();
    assert_eq!(now.matches("<summary>").count(), 1);
    assert!(now.contains("Aurora") && now.contains("Odile"), "{now}");
}

#[tokio::test]
async fn what_is_told_of_a_compaction_is_true() {
    let model = talker(150);
    let (_server, mut client) = session(&model, &[]).await;
    fill(&mut client, 1_000).await;
    let (before, asked) = (info(&mut client).await, model.requests().len());
    let compacted = compact(&mut client, json!({})).await;
    let after = info(&mut client).await;
    let (old, new) = (compacted["tokensBefore"].as_u64().unwrap(), compacted["tokensAfter"].as_u64().unwrap());
    assert_eq!((json!(old), json!(new)), (before["tokenCount"].clone(), after["tokenCount"].clone()));
    let percent = (old - new) as f64 * 100.0 / old as f64;
    assert!((compacted["reductionPercent"].as_f64().unwrap() - percent).abs() < 0.06 && percent < 100.0);
    for (name, info, sum) in [("before", &before, old), ("after", &after, new)] {
        assert_eq!(*present(&compacted["breakdown"][name]), info["breakdown"], "{name}");
        assert_eq!(breakdown_sum(&info["breakdown"]), sum, "{name}");
    }
    assert!(whole(&after["breakdown"]["summary"]) > 0 && before["breakdown"]["summary"] == 0);
    for name in ["generation", "compactions"] {
        assert_eq!(whole(&after[name]), whole(&before[name]) + 1, "{name}");
    }
    assert_eq!(*present(&compacted["generation"]), after["generation"]);
    let envelope = context(&mut client).await["envelope"].clone();
    let sent = envelope["messages"]["cached"].as_array().unwrap();
    assert_eq!(*present(&sent[0]["entryId"]), compacted["entryId"]);
    assert_eq!(*present(&sent[1]["entryId"]), compacted["firstKeptEntryId"]);
    assert!(
        sent[0]["message"]["content"][0]["text"].as_str().unwrap().contains(compacted["summary"].as_str().unwrap())
    );
    assert_eq!(model.requests().len(), asked + 1, "seeding calls no model");
}

#[tokio::test]
async fn before_and_after_count_the_same_pending_request() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = Scripted::answering(move |request| match request.purpose {
        Purpose::Summary => Reply::text(summary(&["none"])),
        Purpose::Turn if text_of(request).contains("And now?") => Reply::text("Nothing.").held_by(&held),
        Purpose::Turn => Reply::text(words(1, 100)),
    });
    let (_server, mut client) = session(&model, &[]).await;
    fill(&mut client, 1_250).await;
    let before = tokens(&mut client).await;
    client.ask("user_input", json!({ "input": words(99, 450) + " And now?" })).await;
    let compacted = client.event("context_compacted").await["payload"].clone();
    let pending = info(&mut client).await;
    assert_eq!(*present(&compacted["tokensAfter"]), pending["tokenCount"], "with the input that waits for its answer");
    assert!(whole(&compacted["tokensBefore"]) > before + 400, "{before} and {compacted}");
    assert!(whole(&compacted["pausedMs"]) <= whole(&compacted["durationMs"]));
    gate.open();
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "completed");
}
