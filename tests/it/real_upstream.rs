//! Conversations past the window of a real upstream server, if `REAL_UPSTREAM` names its address
//! (`http://127.0.0.1:8092/v1`); otherwise the test says that it did nothing.
//!
//! The model's answers may be nonsense: a server with random weights and a small window is the better test, since its
//! summaries are never of the requested form.

use crate::support::{
    conversation::{Conversation, Dialect},
    json::whole,
    server::Server,
    talk::words,
};
use reseed::provider::{
    Provider as _,
    openai::{OpenAi, OpenAiOptions},
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, time::Instant};

const TURNS: u64 = 60;

/// Failures of a turn for the server's reasons: a model of random weights may end its answer at its first token, which
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
