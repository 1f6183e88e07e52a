//! Strategies over the socket: the built-in ones, one that a program adds, and the table of what they read.

use crate::support::{
    client::Client,
    server::Server,
    talk::{summaries, talker, text_of, words},
};
use reseed::{
    cli::serve,
    config::{self, Settings},
    core::context::{factory::Strategies, windows::Windows},
    store::memory::MemoryStore,
};
use reseed_protocol::command::StrategySettings;
use serde_json::{Value, json};
use std::{fmt::Write as _, fs, sync::Arc};

#[allow(dead_code, reason = "the example's main is for those who run it")]
#[path = "../examples/strategy.rs"]
mod example;

/// Talks until the session was compacted so often; returns every compaction's event.
async fn talk_until(client: &mut Client, compactions: u64) -> Vec<Value> {
    for number in 0..200 {
        let finished = client.turn(&format!("Question {number}: {}", words(number, 60))).await;
        assert_eq!(finished["status"], "completed", "{finished}");
        if finished["contextInfo"]["compactions"].as_u64() >= Some(compactions) {
            let mut events = Vec::new();
            for _ in 0..compactions {
                events.push(client.event("context_compacted").await["payload"].clone());
            }
            return events;
        }
    }
    panic!("two hundred turns, and not {compactions} compactions");
}

#[tokio::test]
async fn each_strategy_is_chosen_live_and_keeps_the_conversation_going() {
    let (summary, dropped) = (["model_summary", "chunked_summary", "extract"].as_slice(), ["truncate"].as_slice());
    let table: [(&str, Value, &[&str]); 6] = [
        ("threshold", json!({}), summary),
        ("sliding_window", json!({ "keepTurns": 2 }), summary),
        ("tool_results", json!({}), summary),
        ("truncate", json!({}), dropped),
        ("importance", json!({ "summarise": false }), dropped),
        ("pipeline", json!({ "steps": ["tool_results", "importance", "truncate"] }), summary),
    ];
    for (strategy, settings, rungs) in table {
        let model = talker(60);
        let server = Server::start(model.clone(), &[("CONTEXT_STRATEGY", "manual")]).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        let chosen = client.ask("set_context_strategy", json!({ "strategy": strategy, "settings": settings })).await;
        assert_eq!(chosen["type"], "ok", "{chosen}");
        for compacted in talk_until(&mut client, 2).await {
            assert_eq!(compacted["strategy"], strategy);
            assert!(rungs.contains(&compacted["rung"].as_str().unwrap()), "{strategy}: {compacted}");
        }
        assert!(rungs == summary || summaries(&model.requests()) == 0, "{strategy} asked the model");
        let last = text_of(model.requests().last().unwrap());
        assert!(last.contains("Question"), "{strategy}: the last question is not there");
    }
}

#[tokio::test]
async fn a_program_adds_a_strategy_of_its_own() {
    let settings = |strategy: &str| {
        let variables =
            [("WS_PORT", "0"), ("CONTEXT_WINDOW", "2000"), ("MODEL", "test"), ("CONTEXT_STRATEGY", strategy)];
        Settings::with_strategies(example::strategies().unwrap(), variables)
    };
    let fault = settings("frist_and_last").unwrap_err().to_string();
    assert!(fault.contains("pipeline, bookends, first_and_last"), "{fault}");
    assert!(Settings::from_iter([("CONTEXT_STRATEGY", "bookends")]).is_err());

    let model = talker(60);
    let store = Arc::new(MemoryStore::new());
    let server = Server::of(&settings("first_and_last").unwrap(), Arc::new(model.clone()), store).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let first = format!("Question 0: {}", words(0, 60));
    for compacted in talk_until(&mut client, 3).await {
        assert_eq!(compacted["strategy"], "bookends");
    }
    for request in model.requests().iter().filter(|request| request.purpose == reseed::core::model::Purpose::Turn) {
        assert!(text_of(request).contains(&first), "the first question is not word for word in every request");
    }
    let refused = client.ask("set_context_strategy", json!({ "strategy": "bookend" })).await;
    let message = refused["payload"]["message"].as_str().unwrap();
    assert!(message.contains("bookends (also called first_and_last)"), "{refused}");
    let steps = json!({ "strategy": "pipeline", "settings": { "steps": ["tool_results", "bookends"] } });
    assert_eq!(client.ask("set_context_strategy", steps).await["type"], "ok");
}

/// A setting: its name on the wire, its variable, what reads it, and a value to try.
type Row = (&'static str, &'static str, &'static str, &'static str);

const ROWS: [Row; 10] = [
    ("threshold", "CONTEXT_COMPACTION_THRESHOLD", "all but `manual`", "0.7"),
    ("reserveTokens", "CONTEXT_RESERVE_TOKENS", "all; `manual` only for summaries of branches", "300"),
    (
        "keepRecentTokens",
        "CONTEXT_KEEP_RECENT_TOKENS",
        "`threshold`, `manual`, `tool_results`, `importance`; \
      `sliding_window` where the last turn is too large",
        "700",
    ),
    ("target", "CONTEXT_TARGET", "all", "0.3"),
    ("background", "CONTEXT_BACKGROUND", "all but `manual`", "0.5"),
    ("minGain", "CONTEXT_MIN_GAIN", "all", "0.2"),
    ("keepTurns", "CONTEXT_KEEP_TURNS", "`sliding_window`", "3"),
    ("keepToolResults", "CONTEXT_KEEP_TOOL_RESULTS", "`threshold`, `tool_results`", "7"),
    ("summarise", "CONTEXT_IMPORTANCE_SUMMARISE", "`importance`", "false"),
    ("steps", "CONTEXT_PIPELINE", "`pipeline`; its parts read what they read by themselves", "importance,truncate"),
];

/// What strategies read, as Markdown.
pub(crate) fn settings_table() -> String {
    let mut table =
        "| setting | variable | default | what it is | read by |\n| --- | --- | --- | --- | --- |\n".to_owned();
    let declared = config::declared();
    for (wire, variable, read_by, _) in ROWS {
        let declared = declared.iter().find(|declared| declared.variable == variable).unwrap();
        let unit = if declared.unit.is_empty() { String::new() } else { format!(" {}", declared.unit) };
        let _ = writeln!(
            table,
            "| `{wire}` | `{variable}` | `{}`{unit} | {} | {read_by} |",
            declared.default, declared.about
        );
    }
    table
}

#[test]
fn the_readme_tells_of_every_strategy() {
    let Ok(readme) = fs::read_to_string("README.md") else { return };
    let strategies = Strategies::default();
    for name in strategies.names() {
        assert!(readme.contains(&format!("\n| `{name}` ")), "README.md has no row for `{name}`");
    }
    for name in strategies.all_names() {
        assert!(readme.contains(&format!("`{name}`")), "README.md does not name `{name}`");
    }
}

#[test]
fn a_variable_and_its_name_on_the_wire_set_the_same() {
    let deployed = |variables: Vec<(&str, &str)>| {
        let settings = Settings::from_iter(variables).unwrap();
        serve::deployment(&settings, Windows::new(Some(2_000), Vec::new())).unwrap().options
    };
    let defaults = deployed(Vec::new());
    let mut all = serde_json::Map::new();
    for (wire, variable, _, value) in ROWS {
        let on_the_wire = match (wire, serde_json::from_str(value)) {
            ("steps", _) => json!(value.split(',').collect::<Vec<_>>()),
            (_, parsed) => parsed.unwrap(),
        };
        all.insert(wire.to_owned(), on_the_wire.clone());
        let settings: StrategySettings = serde_json::from_value(json!({ wire: on_the_wire })).unwrap();
        let set = Strategies::default().options(Some(&settings), &defaults).unwrap();
        assert_eq!(set, deployed(vec![(variable, value)]), "{variable} and {wire}");
        assert_ne!(set, defaults, "{variable} sets nothing");
    }
    let settings: StrategySettings = serde_json::from_value(Value::Object(all.clone())).unwrap();
    let told = serde_json::to_value(&settings).unwrap();
    let StrategySettings {
        threshold: _,
        reserve_tokens: _,
        keep_recent_tokens: _,
        target: _,
        background: _,
        min_gain: _,
        keep_turns: _,
        keep_tool_results: _,
        summarise: _,
        steps: _,
    } = settings;
    assert_eq!(told, Value::Object(all), "a setting has no row");
}
