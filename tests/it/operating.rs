//! What operators rely on, mostly of the real binary: numbers, health, the command line, starting and stopping.

pub(crate) mod alerts;
mod compactions;
mod files;
mod looking;
mod minutes;
mod reading;
mod restart;
mod stopping;
mod strangers;

use crate::support::{
    binary::{self, Binary},
    client::Client,
    http,
    json::present,
    server::Server,
    talk::{talker, words},
};
use reseed::internals;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tempfile::TempDir;

/// The offline model without pauses, in a window that a few answers fill.
const QUICK: [(&str, &str); 2] = [("OFFLINE_WORD_MILLIS", "0"), ("CONTEXT_WINDOW", "2000")];

/// Creates a folder for one server.
fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Returns the samples of `/metrics`, each by its name and labels.
pub(crate) async fn samples(address: &str) -> BTreeMap<String, f64> {
    let text = http::get(address, "/metrics").await.body;
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
            (name.to_owned(), value.parse().unwrap_or_else(|error| panic!("{error}: {line}")))
        })
        .collect()
}

#[tokio::test]
async fn health_says_that_it_is_there_and_readiness_that_it_takes_sessions() {
    let server = Server::start(talker(5), &[]).await;
    let table = [("/healthz", 200, "ok\n"), ("/readyz", 200, "ready\n"), ("/api/nothing", 404, "")];
    for (path, status, body) in table {
        let answered = http::get(&server.address(), path).await;
        assert_eq!((answered.status, answered.body.as_str()), (status, body), "{path}");
    }
    server.service.stop().await;
}

#[tokio::test]
async fn a_request_that_was_cancelled_is_counted_as_that() {
    let folder = folder();
    let server = Binary::start(folder.path(), &[("OFFLINE_WORD_MILLIS", "60000")]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.ask("user_input", json!({ "input": "My ferry is called Aurora." })).await;
    client.event("turn_started").await;
    client.ask("cancel_turn", json!({})).await;
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "cancelled");
    let name = r#"reseed_model_requests_total{purpose="turn",outcome="cancelled"}"#;
    // The request's task ends after the turn.
    let counted = async {
        while samples(&server.address).await.get(name) != Some(&1.0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), counted).await.expect("it is never counted");
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let folder = folder();
    let server = Binary::start(folder.path(), &QUICK).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.turn("My ferry is called Aurora.").await;
    let before = samples(&server.address).await;

    client.turn("Write a text of 700 words.").await;
    client.turn("Write a text of 20 words.").await;
    client.ask("start_compaction", json!({})).await;
    client.event("context_compacted").await;
    client.ask("user_input", json!({ "input": "" })).await;
    client.send_raw("no JSON").await;
    client.event("error").await;
    let mut old = Client::connect(&server.ws()).await;
    old.ask("get_context_info", json!({})).await;
    let after = samples(&server.address).await;

    for name in after.keys() {
        assert!(name.starts_with("reseed_") || name.starts_with("gen_ai_client_"), "{name}");
    }
    let told = http::get(&server.address, "/metrics").await.body;
    for line in told.lines().filter(|line| line.starts_with('#')) {
        let is_ours = ["# HELP reseed_", "# TYPE reseed_", "# HELP gen_ai_client_", "# TYPE gen_ai_client_"];
        assert!(is_ours.iter().any(|ours| line.starts_with(ours)), "{line}");
    }
    // The exact growth of each sample; `None` if only its presence is checked.
    let table: [(&str, Option<f64>); 22] = [
        (r#"reseed_turns_total{status="completed"}"#, Some(2.0)),
        ("reseed_turn_duration_seconds_count", Some(2.0)),
        ("reseed_first_delta_seconds_count", Some(2.0)),
        (r#"reseed_model_requests_total{purpose="turn",outcome="ok"}"#, Some(2.0)),
        (r#"reseed_model_requests_total{purpose="summary",outcome="ok"}"#, Some(1.0)),
        (r#"reseed_tokens_total{purpose="turn",model="offline",kind="input"}"#, None),
        (r#"reseed_tokens_total{purpose="summary",model="offline",kind="output"}"#, None),
        (
            r#"reseed_compactions_total{trigger="manual",rung="model_summary",outcome="committed",mode="foreground"}"#,
            Some(1.0),
        ),
        (r#"reseed_compaction_duration_seconds_count{mode="foreground"}"#, Some(1.0)),
        ("reseed_compaction_tokens_saved_total", None),
        (r#"reseed_store_commits_total{outcome="ok"}"#, None),
        ("reseed_store_commit_seconds_count", None),
        ("reseed_store_records_total", None),
        ("reseed_connections_total", Some(1.0)),
        (r#"reseed_connections{dialect="v2"}"#, Some(0.0)),
        (r#"reseed_connections{dialect="v1"}"#, Some(1.0)),
        ("reseed_sessions_open", Some(0.0)),
        (r#"reseed_commands_total{type="user_input",outcome="ok"}"#, Some(2.0)),
        (r#"reseed_commands_total{type="user_input",outcome="empty_input"}"#, Some(1.0)),
        (r#"reseed_commands_total{type="start_compaction",outcome="ok"}"#, Some(1.0)),
        (r#"reseed_commands_total{type="get_context_info",outcome="ok"}"#, Some(1.0)),
        (r#"reseed_frames_refused_total{code="invalid_json"}"#, Some(1.0)),
    ];
    let value = |samples: &BTreeMap<String, f64>, name: &str| samples.get(name).copied().unwrap_or(0.0);
    for (name, expected) in table {
        assert!(after.contains_key(name), "{name} is missing in {after:#?}");
        let grew = value(&after, name) - value(&before, name);
        match expected {
            Some(expected) => assert_eq!(grew, expected, "{name}"),
            None => assert!(grew > 0.0, "{name}"),
        }
    }
    let saved = value(&after, "reseed_compaction_tokens_saved_total");
    let compacted = client.seen.iter().find(|frame| frame["type"] == "context_compacted").unwrap();
    let of = |name: &str| compacted["payload"][name].as_f64().unwrap();
    assert_eq!(saved, of("tokensBefore") - of("tokensAfter"));
}

#[tokio::test]
async fn operators_page_through_sessions_and_wrong_questions_are_told_what_is_right() {
    let server = Server::start(talker(5), &[]).await;
    let mut made = Vec::new();
    for _ in 0..5 {
        let (mut client, opened) = Client::v2_session(&server.ws()).await;
        client.turn("Hello").await;
        made.push(opened["sessionId"].as_str().unwrap().to_owned());
    }
    let mut found = Vec::new();
    let mut path = "/api/sessions?limit=2".to_owned();
    loop {
        let page = http::get(&server.address(), &path).await.json();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 2, "{page}");
        found.extend(items.iter().map(|item| item["sessionId"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        path = format!("/api/sessions?limit=2&cursor={cursor}");
    }
    made.reverse();
    assert_eq!(found, made, "each once, the newest first");
    let table = [
        ("/api/sessions?limit=0", 400, "invalid_field"),
        ("/api/sessions?limit=1001", 400, "invalid_field"),
        ("/api/sessions?cursor=none", 400, "invalid_field"),
        ("/api/sessions?limit=many", 400, "invalid_field"),
        ("/api/sessions?limit=2&limit=3", 400, "invalid_field"),
        ("/api/sessions?Limit=2", 400, "invalid_field"),
        ("/api/sessions?limit=2&user=ann", 400, "invalid_field"),
        ("/api/sessions/nosuchsession2345/context?fromat=envelope", 400, "invalid_field"),
        ("/api/sessions/nosuchsession2345/tree?dept=2", 400, "invalid_field"),
        ("/api/sessions/nosuchsession2345/requests?after=x", 400, "invalid_field"),
        ("/api/sessions/nosuchsession2345/requests", 404, "session_not_found"),
        ("/api/nodes?all=true", 400, "invalid_field"),
        ("/api/mcp?server=x", 400, "invalid_field"),
        ("/api/sessions/nosuchsession2345/context", 404, "session_not_found"),
        ("/api/sessions/not%20an%20id/context", 404, "session_not_found"),
    ];
    for (path, status, code) in table {
        let answered = http::get(&server.address(), path).await;
        assert_eq!((answered.status, &answered.json()["code"]), (status, &json!(code)), "{path}");
    }
    for (method, path) in [("POST", "/api/tickets?validForSecs=60"), ("DELETE", "/api/principals/ann?force=1")] {
        let answered = http::ask(&server.address(), method, path, &[]).await;
        assert_eq!((answered.status, &answered.json()["code"]), (400, &json!("invalid_field")), "{path}");
    }
    let answered = http::get(&server.address(), "/api/sessions?limt=2").await.json();
    let expected = "the query parameters of this address are wrong: limt: unknown field `limt`, expected one of `owner`, \
                    `limit`, `cursor`";
    assert_eq!(answered["message"], expected);
}

#[tokio::test]
async fn an_operator_is_told_of_a_session_what_its_own_client_is_told() {
    let folder = folder();
    let mut server = Binary::start(folder.path(), &QUICK).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let id = opened["sessionId"].as_str().unwrap();
    let path = format!("/api/sessions/{id}/context");
    let mut told: Option<Value> = None;
    for step in ["empty", "talked", "compacted"] {
        match step {
            "talked" => {
                client.ask("set_instructions", json!({ "instructions": "Be brief." })).await;
                client.turn("My ferry is called Aurora.").await;
                client.turn(&words(1, 300)).await;
                client.turn(&words(2, 30)).await;
            }
            "compacted" => {
                client.ask("start_compaction", json!({})).await;
                client.event("context_compacted").await;
                client.turn("And what is my ferry called?").await;
            }
            _ => {}
        }
        let own = client.ask("get_context_info", json!({})).await["payload"].clone();
        let shown = http::get(&server.address, &path).await.json();
        assert_eq!(shown, own, "{step}, the session open");
        assert_ne!(Some(&own), told.as_ref(), "{step} changed something");
        told = Some(own);
        let listed = http::get(&server.address, "/api/sessions").await.json();
        // The list shows the token count at the end of the last turn.
        let counted = if step == "empty" { &json!(0) } else { &shown["tokenCount"] };
        assert_eq!((&listed["items"][0]["tokenCount"], &listed["items"][0]["open"]), (counted, &json!(true)), "{step}");

        server.stop().await;
        server = Binary::start(folder.path(), &QUICK).await;
        let shown = http::get(&server.address, &path).await.json();
        assert_eq!(*present(&shown["tokenCount"]), told.as_ref().unwrap()["tokenCount"], "{step}, the session closed");
        let listed = http::get(&server.address, "/api/sessions").await.json();
        assert_eq!((&listed["items"][0]["open"], &listed["openSessions"]), (&json!(false), &json!(0)), "{step}");
        client = Client::v2(&server.ws()).await;
        client.ask("open_session", json!({ "sessionId": id })).await;
        let own = client.ask("get_context_info", json!({})).await["payload"].clone();
        assert_eq!(shown, own, "{step}, closed and opened again");
    }
}

#[tokio::test]
async fn health_is_told_by_the_exit_code() {
    let folder = folder();
    let server = Binary::start(folder.path(), &QUICK).await;
    let port = server.address.rsplit_once(':').unwrap().1.to_owned();
    for host in ["127.0.0.1", "localhost"] {
        let ended = binary::run(folder.path(), &["health"], &[("WS_PORT", &port), ("HOST", host)]).await;
        assert_eq!((ended.code, ended.printed.as_str(), ended.faults.as_str()), (Some(0), "ok\n", ""));
    }
    server.stop().await;
    let ended = binary::run(folder.path(), &["health"], &[("WS_PORT", &port)]).await;
    assert_eq!((ended.code, ended.printed.as_str()), (Some(1), ""));
    assert!(ended.faults.contains(&format!("ask 127.0.0.1:{port}")), "{}", ended.faults);
}

#[tokio::test]
async fn check_tries_the_model_and_prints_what_it_found() {
    let folder = folder();
    let ended = binary::run(folder.path(), &["check"], &[("CONTEXT_WINDOW", "3000")]).await;
    assert_eq!((ended.code, ended.faults.as_str()), (Some(0), ""), "{}", ended.printed);
    let expected = [
        "provider    offline (built in)",
        "model       offline",
        "window      3000 tokens",
        "strategy    threshold",
        "listens on  127.0.0.1:0",
        "answer      first piece after ",
        "usage       reported: ",
    ];
    for expected in expected {
        assert!(ended.printed.lines().any(|line| line.starts_with(expected)), "{expected:?} in\n{}", ended.printed);
    }
    assert!(ended.printed.contains("database    ./data/reseed.db"), "{}", ended.printed);
    assert!(!folder.path().join("data").exists(), "it only looks");
    let nobody = ("OPENAI_BASE_URL", "http://127.0.0.1:1/v1");
    let ended = binary::run(folder.path(), &["check"], &[nobody, ("CONTEXT_WINDOW", "2000")]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.printed);
    assert!(ended.faults.starts_with("reseed: send the request: "), "{}", ended.faults);
}

#[tokio::test]
async fn the_start_and_check_say_from_which_count_on_it_compacts_and_what_decides_that() {
    let threshold = |share: &'static str| ("CONTEXT_COMPACTION_THRESHOLD", share);
    let table: [(&[(&str, &str)], &str); 6] = [
        (&[], "above 6400 tokens, 80 % of the window; set by CONTEXT_COMPACTION_THRESHOLD 0.8"),
        (&[threshold("0")], "above 0 tokens, 0 % of the window; set by CONTEXT_COMPACTION_THRESHOLD 0"),
        (
            &[threshold("1")],
            "above 7488 tokens, 93.6 % of the window; set by the room for an answer, 512 tokens; \
             change it with `reserveTokens` of CONTEXT_STRATEGY",
        ),
        (
            &[("CONTEXT_STRATEGY", "threshold:reserveTokens=2000")],
            "above 6000 tokens, 75 % of the window; set by `reserveTokens` of CONTEXT_STRATEGY: 2000 are kept for an \
             answer",
        ),
        (
            &[("CONTEXT_STRATEGY", "pipeline"), threshold("0.9")],
            "above 7200 tokens, 90 % of the window; set by CONTEXT_COMPACTION_THRESHOLD 0.9",
        ),
        (&[("CONTEXT_STRATEGY", "none")], "only on request: the strategy is `manual`"),
    ];
    for (settings, expected) in table {
        let folder = folder();
        let settings: Vec<_> = [("OFFLINE_WORD_MILLIS", "0")].iter().chain(settings).copied().collect();
        let ended = binary::run(folder.path(), &["check"], &settings).await;
        assert!(ended.printed.contains(&format!("\ncompacts    {expected}\n")), "{settings:?}\n{}", ended.printed);
        let mut server = Binary::start(folder.path(), &settings).await;
        let model = server.next_line().await;
        assert!(model.contains("window 8000 tokens"), "{model}");
        assert_eq!(server.next_line().await, format!("  compacts  {expected}"), "{settings:?}");
        server.stop().await;
    }
}

#[tokio::test]
async fn each_model_that_a_session_chooses_has_its_own_window() {
    let settings = [("CONTEXT_WINDOW", "6000"), ("MODEL_WINDOWS", "small=2000, gpt-4o=60000")];
    let server = Server::start(talker(10), &settings).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    assert_eq!(opened["contextInfo"]["maxTokens"], 6_000, "CONTEXT_WINDOW is that of MODEL");
    let table =
        [("small", 2_000, false), ("gpt-4o", 60_000, false), ("gpt-4.1", 1_047_576, false), ("mystery", 6_000, true)];
    for (model, window, is_warned) in table {
        assert_eq!(client.ask("set_model", json!({ "model": model })).await["type"], "ok", "{model}");
        let info = client.ask("get_context_info", json!({})).await["payload"].clone();
        assert_eq!(info["maxTokens"], window, "{model}");
        let warnings = client.forget("context_warning");
        let says = |frame: &Value| {
            let message = frame["payload"]["message"].as_str().unwrap();
            message.contains("`mystery`") && message.contains("6000") && message.contains("MODEL_WINDOWS")
        };
        assert_eq!(
            (warnings.len(), warnings.iter().all(says)),
            (usize::from(is_warned), true),
            "{model}: {warnings:?}"
        );
    }
    // The reserve for an answer follows the session's own limit.
    client.ask("set_model", json!({ "model": "small" })).await;
    client.ask("set_options", json!({ "maxOutputTokens": 700 })).await;
    let info = client.ask("get_context_info", json!({})).await["payload"].clone();
    let told = (&info["reservedTokens"], &info["compactAtTokens"], &info["compactAtRule"]);
    assert_eq!(told, (&json!(700), &json!(1_300), &json!("max_output_tokens")), "{info}");
    let settings =
        json!({ "strategy": "threshold", "settings": { "reserveTokens": 900, "threshold": 1.0, "target": 1.0 } });
    assert_eq!(client.ask("set_context_strategy", settings).await["type"], "ok");
    let info = client.ask("get_context_info", json!({})).await["payload"].clone();
    let told = (&info["reservedTokens"], &info["compactAtTokens"], &info["compactAtRule"]);
    assert_eq!(told, (&json!(900), &json!(1_100), &json!("reserve_tokens")), "{info}");
    let settings = json!({ "strategy": "manual" });
    assert_eq!(client.ask("set_context_strategy", settings).await["type"], "ok");
    let info = client.ask("get_context_info", json!({})).await["payload"].clone();
    assert_eq!((info.get("compactAtTokens"), info.get("compactAtRule")), (None, None), "{info}");
    for wrong in [-0.1, 1.01] {
        let settings = json!({ "strategy": "threshold", "settings": { "threshold": wrong } });
        let refused = client.ask("set_context_strategy", settings).await["payload"].clone();
        assert_eq!(
            (&refused["code"], &refused["details"]["field"]),
            (&json!("invalid_field"), &json!("settings.threshold"))
        );
    }
}

#[tokio::test]
async fn help_names_every_command_and_setting() {
    let folder = folder();
    let ended = binary::run(folder.path(), &["--help"], &[]).await;
    assert_eq!((ended.code, ended.faults.as_str()), (Some(0), ""));
    for command in ["serve", "check", "health", "sessions", "inspect", "chat"] {
        assert!(ended.printed.contains(&format!("\n  {command} ")), "{command} in\n{}", ended.printed);
        let of_command = binary::run(folder.path(), &[command, "--help"], &[]).await;
        assert_eq!(of_command.code, Some(0), "{command}");
        assert!(of_command.printed.contains(&format!("Usage: reseed {command}")), "{}", of_command.printed);
        assert!(!of_command.printed.contains("see `--help`"), "it has no settings: {}", of_command.printed);
    }
    for declared in internals::declared() {
        assert!(ended.printed.contains(&format!("\n  {} [", declared.variable)), "{}", declared.variable);
    }
    let ended = binary::run(folder.path(), &["--version"], &[]).await;
    assert_eq!(ended.printed, format!("reseed {}\n", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn wrong_settings_stop_the_start_with_what_is_allowed() {
    let table = [
        ("CONTEXT_STRATEGY", "clever", "CONTEXT_STRATEGY is `clever`; allowed: threshold, manual, dummy, none"),
        ("CONTEXT_COMPACTION_THRESHOLD", "1.5", "CONTEXT_COMPACTION_THRESHOLD is `1.5`; allowed: a number from 0 to 1"),
        ("CONTEXT_COMPACTION_THRESHOLD", "NaN", "CONTEXT_COMPACTION_THRESHOLD is `NaN`; allowed: a number from 0 to 1"),
        ("CONTEXT_WINDOW", "100", "CONTEXT_WINDOW is `100`; allowed: a whole number from 512 to 100000000"),
        ("OPENAI_API", "soap", "OPENAI_API is `soap`; allowed: auto, responses, chat"),
        ("WS_PORT", "65536", "WS_PORT is `65536`; allowed: a whole number from 0 to 65535"),
        ("HOST", "example.org", "HOST is `example.org`; allowed: an IP address"),
        ("MESSAGE_BYTES_MAX", "1MB", "MESSAGE_BYTES_MAX is `1MB`; allowed: a whole number from 1024 to 67108864"),
        ("DATABASE_URL", "data/x.db", "DATABASE_URL is `data/x.db`; allowed: sqlite:// and the path of a file"),
        (
            "DATABASE_URL",
            "postgres://db",
            "DATABASE_URL is set to a value that is not allowed (it names no database); allowed: sqlite://",
        ),
        ("LOG_LEVEL", "loud", "LOG_LEVEL is `loud`; allowed: off, error, warn, info, debug, trace"),
        ("AUTH_TOKENS", "secret-without-a-name", "AUTH_TOKENS is set to a value that is not allowed"),
        (
            "OPENAI_API_KEY",
            "a secret",
            "OPENAI_API_KEY is set to a value that is not allowed (it contains other characters); allowed:",
        ),
    ];
    let folder = folder();
    for (variable, value, expected) in table {
        let ended = binary::run(folder.path(), &[], &[(variable, value)]).await;
        assert_eq!((ended.code, ended.printed.as_str()), (Some(1), ""), "{variable}={value}");
        assert!(ended.faults.contains(&format!("\n  {expected}")), "{variable}={value}: {}", ended.faults);
        assert!(!ended.faults.contains("secret"), "{}", ended.faults);
    }
    let both: Vec<(&str, &str)> = table.iter().take(2).map(|(variable, value, _)| (*variable, *value)).collect();
    let ended = binary::run(folder.path(), &[], &both).await;
    assert_eq!(ended.faults.matches("; allowed: ").count(), 2, "every fault at once: {}", ended.faults);
    assert_eq!(ended.faults.matches("reseed: ").count(), 1, "in one message: {}", ended.faults);
}
