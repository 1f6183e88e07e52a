//! Strategies over the socket: the built-in ones and one that a program adds; and what is printed from their
//! declarations: the tables of strategies and of their settings, and the page's module of settings.

use crate::support::scripted::{Reply, Scripted};
use crate::support::{
    client::Client,
    json::whole,
    server::Server,
    talk::{facts, summaries, summary, talker, text_of, words},
};
use reseed::{
    config::Settings,
    core::{
        compaction::{
            factory::{Offered, Strategies},
            strategy::Options,
        },
        context::windows::Windows,
        model::Purpose,
    },
    internals,
    store::memory::MemoryStore,
};
use reseed_protocol::{Part, Role, compaction::StrategySettings};
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
        let call_id = &frame["payload"]["toolCallId"];
        let output = format!("RESULT {call_id}: {}", words(whole(&frame["seq"]), 240));
        client.ask("tool_result", json!({ "toolCallId": call_id, "output": output })).await;
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
        let last = text_of(model.requests().iter().rfind(|asked| asked.purpose == Purpose::Turn).unwrap());
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

/// Every setting by its name on the wire, with a value to try, as it is written in CONTEXT_STRATEGY.
const ROWS: [(&str, &str); 13] = [
    ("threshold", "0.7"),
    ("reserveTokens", "300"),
    ("keepRecentTokens", "700"),
    ("target", "0.3"),
    ("background", "0.5"),
    ("minGain", "0.2"),
    ("keepTurns", "3"),
    ("keepToolResults", "7"),
    ("summarise", "false"),
    ("steps", "[importance,truncate]"),
    ("userShare", "0.2"),
    ("summaryMode", "rewrite"),
    ("summaryKind", "code"),
];

/// Returns the strategies, as Markdown.
pub(crate) fn strategies_table() -> String {
    let strategies = Strategies::default();
    let mut table = "| strategy | what it does |\n| --- | --- |\n".to_owned();
    for Offered { name, aliases, about, .. } in strategies.offered() {
        let aliases: Vec<String> = aliases.iter().map(|alias| format!("`{alias}`")).collect();
        let also = if aliases.is_empty() { String::new() } else { format!(" (also {})", aliases.join(", ")) };
        let _ = writeln!(table, "| `{name}`{also} | {about} |");
    }
    table
}

/// Returns the strategies that read a setting, in words.
fn read_by(setting: &Value) -> String {
    let reads = |offered: &Offered| json!(offered.settings).as_array().unwrap().contains(setting);
    let strategies = Strategies::default();
    let (readers, others): (Vec<Offered>, Vec<Offered>) = strategies.offered().partition(reads);
    let names = |of: &[Offered]| of.iter().map(|one| format!("`{}`", one.name)).collect::<Vec<_>>().join(", ");
    match (readers.len(), others.len()) {
        (_, 0) => "all".to_owned(),
        (_, 1) => format!("all but {}", names(&others)),
        _ => names(&readers),
    }
}

/// Returns the settings of strategies, as Markdown.
pub(crate) fn settings_table() -> String {
    let mut table = "| setting | default | what it is | read by |\n| --- | --- | --- | --- |\n".to_owned();
    let (fields, _) = schema();
    let defaults = serde_json::to_value(Options::default().on_the_wire()).unwrap();
    for (wire, _) in ROWS {
        let default = match &defaults[wire] {
            Value::Null => String::new(),
            Value::String(word) => format!("`{word}`"),
            value => format!("`{value}`"),
        };
        let about = fields[wire]["description"].as_str().unwrap().replace('\n', " ");
        let _ = writeln!(table, "| `{wire}` | {default} | {about} | {} |", read_by(&json!(wire)));
    }
    table
}

/// Returns the JSON Schema of the settings, and the definitions that it refers to.
fn schema() -> (Value, Value) {
    let schema: Value =
        serde_json::from_str(&fs::read_to_string("protocol/schema/reseed.v2.schema.json").unwrap()).unwrap();
    (schema["$defs"]["StrategySettings"]["properties"].clone(), schema["$defs"].clone())
}

/// Returns the schema of a field without the `null` that counts as absent.
fn without_null(field: &Value) -> Value {
    let mut field = field.clone();
    if let Some(kind) = field["type"].as_array().and_then(|kinds| kinds.iter().find(|kind| *kind != "null")).cloned() {
        field["type"] = kind;
    }
    let other = field["anyOf"].as_array().and_then(|any| any.iter().find(|schema| schema["type"] != "null")).cloned();
    for (key, value) in other.iter().filter_map(Value::as_object).flatten() {
        field[key] = value.clone();
    }
    field
}

/// Returns the page's module of the settings, which has their names, documentation, types and bounds from the schema.
fn settings_module() -> String {
    let (fields, definitions) = schema();
    let mut module = "/**\n * The settings of strategies, from the JSON Schema of `StrategySettings` in `protocol/`.\n *\n \
                      * Written by `UPDATE=1 cargo test --test it strategies`. Do not edit.\n */\n\n\
                      /** @type {Record<import(\"./strategies.js\").SettingName, import(\"./strategies.js\").Setting>} */\n\
                      export const SETTINGS = "
        .to_owned();
    let mut settings = serde_json::Map::new();
    for (name, field) in fields.as_object().unwrap() {
        let field = &without_null(field);
        let definition = field["$ref"].as_str().map(|path| &definitions[path.trim_start_matches("#/$defs/")]);
        let options = definition.map(|definition| {
            let variants = definition["oneOf"].as_array().expect("an enumeration");
            variants.iter().map(|variant| variant["const"].clone()).collect::<Vec<_>>()
        });
        let kind = match (field["type"].as_str(), &options) {
            (Some("number"), _) => "share",
            (Some("integer"), _) => "count",
            (Some("boolean"), _) => "choice",
            (Some("array"), _) => "names",
            (None, Some(_)) => "option",
            other => panic!("the page has no field for {name}: {other:?}"),
        };
        let about = field["description"].as_str().unwrap().replace('\n', " ");
        let mut setting = json!({ "label": field["title"], "about": about, "kind": kind });
        // A form field cannot have an exclusive bound, so it gets an inclusive one. The server says what is allowed.
        let least = [&field["minimum"], &field["exclusiveMinimum"]].into_iter().find(|bound| bound.is_number());
        for (key, value) in [("min", least), ("max", Some(&field["maximum"]).filter(|bound| bound.is_number()))] {
            if let Some(value) = value {
                setting[key] = value.clone();
            }
        }
        if let Some(options) = options {
            setting["options"] = json!(options);
        }
        settings.insert(name.clone(), setting);
    }
    module.push_str(&serde_json::to_string_pretty(&settings).unwrap());
    module.push_str(";\n");
    module
}

#[test]
fn the_page_shows_the_settings_of_the_schema() {
    const FILE: &str = "src/server/web/strategy-settings.js";
    let printed = settings_module();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(FILE, &printed).unwrap();
    }
    let committed = fs::read_to_string(FILE).unwrap_or_default();
    assert!(committed == printed, "{FILE} is out of date: run UPDATE=1 cargo test --test it strategies");
}

#[test]
fn the_server_keeps_to_the_bounds_of_the_schema() {
    let allows = |name: &str, value: &Value| {
        let settings: Result<StrategySettings, _> = serde_json::from_value(json!({ name: value }));
        settings.is_ok_and(|settings| Strategies::default().options(Some(&settings), &Options::default()).is_ok())
    };
    for (name, field) in schema().0.as_object().unwrap() {
        let is_count = field["type"] == "integer";
        // A number next to the bound: below it, or above.
        let beside = |bound: &Value, below: bool| match (is_count, below) {
            (true, true) => json!(whole(bound).checked_sub(1)),
            (true, false) => json!(whole(bound) + 1),
            (false, true) => json!(bound.as_f64().unwrap() - 0.001),
            (false, false) => json!(bound.as_f64().unwrap() + 0.001),
        };
        let (least, excluded, most) = (&field["minimum"], &field["exclusiveMinimum"], &field["maximum"]);
        if is_count || field["type"] == "number" {
            assert!((least.is_number() || excluded.is_number()) && most.is_number(), "{name} has no bounds");
            assert!(allows(name, most) && !allows(name, &beside(most, false)), "{name}: {most}");
        }
        if least.is_number() {
            assert!(allows(name, least), "{name}: {least}");
            assert!(beside(least, true).is_null() || !allows(name, &beside(least, true)), "{name}: below {least}");
        }
        if excluded.is_number() {
            assert!(!allows(name, excluded) && allows(name, &beside(excluded, false)), "{name}: {excluded}");
        }
    }
}

#[test]
fn a_variable_and_its_name_on_the_wire_set_the_same() {
    let deployed = |variables: Vec<(&str, &str)>| {
        let settings = Settings::from_iter(variables).unwrap();
        internals::deployment(&settings, Windows::new(Some(2_000), Vec::new())).unwrap().options
    };
    let defaults = deployed(Vec::new());
    let mut all = serde_json::Map::new();
    for (wire, value) in ROWS {
        let written = if wire == "threshold" {
            ("CONTEXT_COMPACTION_THRESHOLD", value.to_owned())
        } else {
            ("CONTEXT_STRATEGY", format!("threshold:{wire}={value}"))
        };
        let on_the_wire = match serde_json::from_str(value) {
            _ if wire == "steps" => json!(["importance", "truncate"]),
            Ok(parsed) => parsed,
            Err(_) => json!(value),
        };
        all.insert(wire.to_owned(), on_the_wire.clone());
        let settings: StrategySettings = serde_json::from_value(json!({ wire: on_the_wire })).unwrap();
        let set = Strategies::default().options(Some(&settings), &defaults).unwrap();
        assert_eq!(set, deployed(vec![(written.0, &written.1)]), "{written:?} and {wire}");
        assert_ne!(set, defaults, "{written:?} sets nothing");
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
        user_share: _,
        summary_mode: _,
    } = settings;
    assert_eq!(told, Value::Object(all), "a setting has no row");
}
