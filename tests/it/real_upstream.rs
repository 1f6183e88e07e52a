//! Conversations past the window of a real upstream server, if `REAL_UPSTREAM` names its address
//! (`http://127.0.0.1:8092/v1`), and rounds of tool calls, if `REAL_TOOL_UPSTREAM` names one whose model calls a tool
//! each time; otherwise the tests say that they did nothing.
//!
//! The model's answers may be nonsense: a server with random weights and a small window is the better test, since its
//! summaries are never of the requested form.

use crate::support::{
    client::Client,
    conversation::{Conversation, Dialect},
    json::whole,
    server::Server,
    talk::words,
};
use reseed::{
    provider::{
        Provider as _,
        openai::{ApiChoice, OpenAi, OpenAiOptions},
    },
    store::memory::MemoryStore,
    tools::{Call, CallFuture, Output, Tool},
};
use reseed_protocol::tools::{ToolAnnotations, ToolOffer};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Instant};

const TURNS: u64 = 60;

/// Failures of a turn that the server causes: a model with random weights may end its answer at its first token, which
/// is no answer.
const NOT_OURS: [&str; 1] = ["upstream_empty"];

/// Talks for 60 turns and prints the result. `window`: the configured window; if empty, the server's own list is used.
#[expect(clippy::print_stdout, reason = "the numbers are what it is run for")]
async fn check(base_url: &str, model: &str, window: &str, api: &str, dialect: Dialect) {
    let began = Instant::now();
    let settings = [("OPENAI_API", api), ("MODEL", model), ("CONTEXT_WINDOW", window)];
    let server = Server::facing(base_url, &settings).await;
    let mut conversation = Conversation::begin(&server.ws(), dialect).await;
    if dialect == Dialect::V2 {
        let ok = conversation.client.ask("set_options", json!({ "maxOutputTokens": 80 })).await;
        assert_eq!(ok["type"], "ok", "{ok}");
    }
    let mut failed: BTreeMap<String, u64> = BTreeMap::new();
    for turn in 0..TURNS {
        let ended = conversation.say(&words(turn, 30 + usize::try_from(turn % 31).unwrap())).await;
        if let Some((code, message)) = ended.error {
            assert!(NOT_OURS.contains(&code.as_str()), "turn {turn}: {code}: {message}");
            *failed.entry(code).or_default() += 1;
        }
    }
    let compactions = conversation.came("context_compacted");
    let mut by: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for compacted in &compactions {
        *by.entry((text(&compacted["trigger"]), text(&compacted["rung"]))).or_default() += 1;
        assert!(whole(&compacted["tokensAfter"]) < whole(&compacted["tokensBefore"]), "{compacted}");
    }
    let took = began.elapsed();
    println!("{dialect:?} {api} window {window:?}: {TURNS} turns in {took:.1?}, failed {failed:?}, compactions {by:?}");
    assert!(compactions.len() >= 3, "{} compactions", compactions.len());
    assert!(failed.values().sum::<u64>() <= TURNS / 10, "{failed:?}");
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[tokio::test]
async fn sixty_turns_pass_the_window_of_a_real_server() {
    let Ok(base_url) = std::env::var("REAL_UPSTREAM") else {
        println!("REAL_UPSTREAM is not set: no real server is talked to");
        return;
    };
    let provider = OpenAi::new(OpenAiOptions { base_url: base_url.clone(), ..OpenAiOptions::default() }).unwrap();
    let listed = provider.models().await.unwrap().remove(0);
    let too_large = (listed.window_tokens.expect("its list tells the window") * 3).to_string();
    for window in ["", &too_large] {
        for api in ["chat", "responses"] {
            for dialect in [Dialect::V1, Dialect::V2] {
                check(&base_url, &listed.id, window, api, dialect).await;
            }
        }
    }
}

/// Rounds of tool calls that the model makes.
const ROUNDS: usize = 30;

/// A tool whose results fill a small window within ten rounds.
struct Look;

impl Tool for Look {
    fn offer(&self) -> ToolOffer {
        let annotations = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
        let parameters = json!({ "type": "object", "properties": { "at": { "type": "string" } } });
        ToolOffer { annotations: Some(annotations), ..ToolOffer::new("look", "Looks at something.", parameters) }
    }

    fn call(&self, call: Call) -> CallFuture<'_> {
        let seed = call.arguments.to_string().len() as u64;
        Box::pin(async move { Output::text(words(seed, 200)) })
    }
}

/// Makes a model that calls its tool each time run this many rounds, and prints the outcome.
#[expect(clippy::print_stdout, reason = "the numbers are what it is run for")]
async fn check_rounds(base_url: &str, model: &str, api: ApiChoice) {
    let began = Instant::now();
    let options = OpenAiOptions { base_url: base_url.to_owned(), api, ..OpenAiOptions::default() };
    let rounds = ROUNDS.to_string();
    let settings = [("MODEL", model), ("CONTEXT_WINDOW", "8192"), ("TOOL_ROUNDS_MAX", &rounds)];
    let provider = OpenAi::new(options).unwrap();
    let server = Server::over_with_tools(provider, Arc::new(MemoryStore::new()), vec![Arc::new(Look)], &settings).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.ask("set_options", json!({ "maxOutputTokens": 120 })).await["type"], "ok");
    let (mut calls, mut results, mut turns) = (0, 0, 0);
    let (mut ends, mut compactions): (BTreeMap<String, u64>, BTreeMap<String, u64>) = Default::default();
    while calls < ROUNDS && turns < 2 * ROUNDS {
        turns += 1;
        let accepted = client.ask("user_input", json!({ "input": "Look around." })).await;
        assert_eq!(accepted["type"], "accepted", "{accepted}");
        loop {
            let frame = client.next_frame().await.expect("the server does not hang up");
            let payload = &frame["payload"];
            match text(&frame["type"]) {
                "entry_appended" => {
                    let parts = payload["entry"]["content"].as_array();
                    let of = |kind: &str| parts.into_iter().flatten().filter(|part| part["type"] == kind).count();
                    calls += of("tool_call");
                    results += of("tool_result");
                }
                "context_compacted" => {
                    *compactions.entry(text(&payload["rung"]).to_owned()).or_default() += 1;
                    assert!(whole(&payload["tokensAfter"]) < whole(&payload["tokensBefore"]), "{payload}");
                }
                "turn_finished" => {
                    let code = payload["error"]["code"].as_str().unwrap_or("completed");
                    let is_expected = NOT_OURS.contains(&code) || ["completed", "too_many_tool_rounds"].contains(&code);
                    assert!(is_expected, "{payload}");
                    *ends.entry(code.to_owned()).or_default() += 1;
                    break;
                }
                _ => {}
            }
        }
    }
    let took = began.elapsed();
    println!("{api:?}: {calls} calls in {turns} turns and {took:.1?}, ends {ends:?}, compactions {compactions:?}");
    assert!(calls >= ROUNDS, "{calls} calls");
    assert_eq!(calls, results, "each call has one result");
    assert!(compactions.values().sum::<u64>() >= 2, "{compactions:?}");
}

#[tokio::test]
async fn thirty_tool_rounds_pass_the_window_of_a_real_server() {
    let Ok(base_url) = std::env::var("REAL_TOOL_UPSTREAM") else {
        println!("REAL_TOOL_UPSTREAM is not set: no real server that calls tools is talked to");
        return;
    };
    let provider = OpenAi::new(OpenAiOptions { base_url: base_url.clone(), ..OpenAiOptions::default() }).unwrap();
    let listed = provider.models().await.unwrap().remove(0);
    for api in [ApiChoice::Chat, ApiChoice::Responses] {
        check_rounds(&base_url, &listed.id, api).await;
    }
}
