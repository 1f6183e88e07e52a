//! Strategies over the socket: the built-in ones, one that a program adds, and the table of the settings that they
//! read.

use crate::support::{
    client::Client,
    json::whole,
    server::Server,
    talk::{facts, summaries, summary, talker, text_of, words},
};
use reseed::{
    config::{self, Settings},
    core::{
        context::{factory::Strategies, windows::Windows},
        model::Purpose,
    },
    provider::scripted::{Reply, Scripted},
    service,
    store::memory::MemoryStore,
};
use reseed_protocol::{Part, Role, command::StrategySettings};
use serde_json::{Value, json};
use std::{fmt::Write as _, fs, sync::Arc};

#[allow(dead_code, reason = "the example's main is for those who run it")]
#[path = "../examples/strategy.rs"]
mod example;

/// Talks until the session was compacted this many times; returns every compaction's event and the last question.
async fn talk_until(client: &mut Client, compactions: u64) -> (Vec<Value>, String) {
    for number in 0..200 {
        let question = format!("Question {number}: {}", words(number, 60));
        client.ask("user_input", json!({ "input": question })).await;
        let finished = answered(client).await;
        assert_eq!(finished["status"], "completed", "{finished}");
        if whole(&finished["contextInfo"]["compactions"]) >= compactions {
            let mut events = Vec::new();
            for _ in 0..compactions {
                events.push(client.event("context_compacted").await["payload"].clone());
            }
            return (events, question);
        }
    }
    panic!("two hundred turns, and not {compactions} compactions");
}

/// Answers each tool call with its number and a long text until the turn ends.
async fn answered(client: &mut Client) -> Value {
    loop {
        let frame = client.until(|frame| frame["type"] == "tool_call" || frame["type"] == "turn_finished").await;
        if frame["type"] == "turn_finished" {
            return frame["payload"].clone();
        }
        let call_id = &frame["payload"]["callId"];
        let output = format!("RESULT {call_id}: {}", words(whole(&frame["seq"]), 240));
        client.ask("tool_result", json!({ "callId": call_id, "output": output })).await;
    }
}

/// A model that calls the tool `look` once in every turn, and otherwise answers with this many words.
fn looker(answer_words: usize) -> Scripted {
    let mut asked = 0;
    Scripted::answering(move |request| {
        asked += 1;
        let is_answered = request.messages().last().is_some_and(|last| last.message.role == Role::Tool);
        match request.purpose {
            Purpose::Summary => Reply::text(summary(&facts(&text_of(request)))),
            Purpose::Turn if is_answered => Reply::text(words(asked, answer_words)),
            Purpose::Turn => Reply::parts(vec![Part::ToolCall {
                call_id: format!("call_{asked}").parse().unwrap(),
                name: "look".into(),
                arguments: "{}".into(),
            }]),
        }
    })
}

#[tokio::test]
async fn each_strategy_is_chosen_live_and_keeps_the_conversation_going() {
    let (summary, dropped) = (["model_summary", "chunked_summary", "extract"].as_slice(), ["truncate"].as_slice());
    // Once the results are cleared only a summary makes room.
    let cleared = ["clear_tool_results", "model_summary", "extract"].as_slice();
    let table: [(&str, Value, bool, &[&str]); 6] = [
        ("threshold", json!({}), false, summary),
        ("sliding_window", json!({ "keepTurns": 2 }), false, summary),
        ("tool_results", json!({ "keepToolResults": 1 }), true, cleared),
        ("truncate", json!({}), false, dropped),
        ("importance", json!({ "summarise": false }), false, dropped),
        ("pipeline", json!({ "steps": ["tool_results", "importance", "truncate"] }), false, summary),
    ];
    let tool = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    for (strategy, settings, with_tools, rungs) in table {
        let model = if with_tools { looker(10) } else { talker(60) };
        let server = Server::start(model.clone(), &[("CONTEXT_STRATEGY", "manual")]).await;
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        client.ask("register_tools", json!({ "tools": [tool] })).await;
        let chosen = client.ask("set_context_strategy", json!({ "strategy": strategy, "settings": settings })).await;
        assert_eq!(chosen["type"], "ok", "{chosen}");
        let (compactions, question) = talk_until(&mut client, 2).await;
        assert!(rungs != cleared || compactions[0]["rung"] == "clear_tool_results", "{compactions:?}");
        for compacted in compactions {
            assert_eq!(compacted["strategy"], strategy);
            assert!(rungs.contains(&compacted["rung"].as_str().unwrap()), "{strategy}: {compacted}");
        }
        assert!(rungs != dropped || summaries(&model.requests()) == 0, "{strategy} asked the model");
        let last = text_of(model.requests().last().unwrap());
        assert!(last.contains(&question), "{strategy}: the last question is not word for word in {last}");
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
    for compacted in talk_until(&mut client, 3).await.0 {
        assert_eq!(compacted["strategy"], "bookends");
    }
    for request in model.requests().iter().filter(|request| request.purpose == Purpose::Turn) {
        assert!(text_of(request).contains(&first), "the first question is not word for word in every request");
    }
    let refused = client.ask("set_context_strategy", json!({ "strategy": "bookend" })).await;
    let message = refused["payload"]["message"].as_str().unwrap();
    assert!(message.contains("bookends (also called first_and_last)"), "{refused}");
    let steps = json!({ "strategy": "pipeline", "settings": { "steps": ["tool_results", "bookends"] } });
    assert_eq!(client.ask("set_context_strategy", steps).await["type"], "ok");
}

/// A setting: its name on the wire, its variable, the strategies that read it, and a value to try.
type Row = (&'static str, &'static str, &'static str, &'static str);

const ROWS: [Row; 11] = [
    ("threshold", "CONTEXT_COMPACTION_THRESHOLD", "all but `manual`", "0.7"),
    ("reserveTokens", "CONTEXT_RESERVE_TOKENS", "all; `manual` only for summaries of branches", "300"),
    (
        "keepRecentTokens",
        "CONTEXT_KEEP_RECENT_TOKENS",
        "`threshold`, `manual`, `tool_results`, `importance`; \
      `sliding_window` where the last turn is too large or there are fewer turns than it keeps",
        "700",
    ),
    ("target", "CONTEXT_TARGET", "all", "0.3"),
    ("background", "CONTEXT_BACKGROUND", "all but `manual`", "0.5"),
    ("minGain", "CONTEXT_MIN_GAIN", "all", "0.2"),
    ("keepTurns", "CONTEXT_KEEP_TURNS", "`sliding_window`", "3"),
    ("keepToolResults", "CONTEXT_KEEP_TOOL_RESULTS", "`threshold`, `tool_results`", "7"),
    ("summarise", "CONTEXT_IMPORTANCE_SUMMARISE", "`importance`", "false"),
    ("steps", "CONTEXT_PIPELINE", "`pipeline`; its parts read what they read by themselves", "importance,truncate"),
    ("summaryKind", "SUMMARY_KIND", "all that summarise", "code"),
];

/// Returns the settings of strategies, as Markdown.
pub(crate) fn settings_table() -> String {
    let mut table =
        "| setting | variable | default | what it is | read by |\n| --- | --- | --- | --- | --- |\n".to_owned();
    let declared = config::declared();
    for (wire, variable, read_by, _) in ROWS {
        let declared = declared.iter().find(|declared| declared.variable == variable).unwrap();
        let unit = if declared.unit.is_empty() { String::new() } else { format!(" {}", declared.unit) };
        let default = if declared.default.is_empty() { String::new() } else { format!("`{}`{unit}", declared.default) };
        let _ = writeln!(table, "| `{wire}` | `{variable}` | {default} | {} | {read_by} |", declared.about);
    }
    table
}

#[test]
fn the_document_tells_of_every_strategy() {
    const FILE: &str = "src/core/context/README.md";
    let readme = fs::read_to_string(FILE).unwrap();
    let strategies = Strategies::default();
    for name in strategies.names() {
        assert!(readme.contains(&format!("\n| `{name}` ")), "{FILE} has no row for `{name}`");
    }
    for name in strategies.all_names() {
        assert!(readme.contains(&format!("`{name}`")), "{FILE} does not name `{name}`");
    }
}

#[test]
fn a_variable_and_its_name_on_the_wire_set_the_same() {
    let deployed = |variables: Vec<(&str, &str)>| {
        let settings = Settings::from_iter(variables).unwrap();
        service::deployment(&settings, Windows::new(Some(2_000), Vec::new())).unwrap().options
    };
    let defaults = deployed(Vec::new());
    let mut all = serde_json::Map::new();
    for (wire, variable, _, value) in ROWS {
        let on_the_wire = match (wire, serde_json::from_str(value)) {
            ("steps", _) => json!(value.split(',').collect::<Vec<_>>()),
            (_, Ok(parsed)) => parsed,
            (_, Err(_)) => json!(value),
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
        summary_kind: _,
    } = settings;
    assert_eq!(told, Value::Object(all), "a setting has no row");
}
