//! Budgets hold over real sockets: with parallel turns, over a restart, for summaries, and after a reload.

use crate::{
    reload::reload,
    support::{
        binary::{self, Binary, logged},
        client::Client,
        http,
        json::present,
        scripted::Gate,
        talk::{is_summary, reply_to, words},
        upstream::Upstream,
    },
};
use serde_json::{Value, json};
use std::{fs, path::Path, sync::Arc};

const OPERATOR: &str = "operator-token-of-some-length";
const ANN: &str = "token-of-ann-0123456789";
const BOB: &str = "token-of-bob-0123456789";

/// The tokens that each answer costs, whatever is sent: a hundred in, a hundred out.
const TURN_TOKENS: u64 = 200;

async fn upstream(gate: Option<Gate>) -> Upstream {
    let mut number = 0;
    Upstream::start(move |asked| {
        number += 1;
        let reply = reply_to(asked, number, 30).with_usage(100, 100);
        match &gate {
            Some(gate) if !is_summary(asked) => reply.held_by(gate),
            _ => reply,
        }
    })
    .await
}

/// Starts a server with this budgets file.
async fn start(folder: &Path, upstream: &Upstream, budgets: &Value) -> Binary {
    fs::write(folder.join("budgets.json"), budgets.to_string()).unwrap();
    let base_url = upstream.base_url();
    let (tokens, operators) = (format!("ann:{ANN},bob:{BOB}"), format!("ops:{OPERATOR}"));
    let settings = [
        ("OPENAI_BASE_URL", base_url.as_str()),
        ("MODEL", "test"),
        ("MODEL_PRICES", "test=1/1/1"),
        ("CONTEXT_WINDOW", "8000"),
        ("OUTPUT_TOKENS_MAX", "100"),
        ("AUTH_TOKENS", &tokens),
        ("OPERATOR_TOKENS", &operators),
        ("BUDGETS_FILE", "budgets.json"),
        ("LOG_FORMAT", "json"),
    ];
    Binary::start(folder, &settings).await
}

async fn session(server: &Binary, token: &str) -> Client {
    let bearer = format!("Bearer {token}");
    let mut client = Client::connect_with(&server.ws(), &[("Authorization", &bearer)]).await;
    client.ask("hello", json!({ "protocolVersion": 2 })).await;
    let opened = client.ask("open_session", json!({})).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    client
}

async fn spent(server: &Binary, query: &str) -> u64 {
    let answered = http::get_as(&server.address, &format!("/api/usage?by=total&{query}"), OPERATOR).await.json();
    let items = present(&answered["items"]).as_array().unwrap().clone();
    items.iter().map(|item| item["inputTokens"].as_u64().unwrap() + item["outputTokens"].as_u64().unwrap()).sum()
}

/// Returns the error of a turn, which must have failed because of a budget.
#[track_caller]
fn exhausted(finished: &Value) -> Value {
    assert_eq!((&finished["status"], &finished["error"]["code"]), (&json!("failed"), &json!("budget_exhausted")));
    finished["error"].clone()
}

#[tokio::test]
async fn parallel_turns_stay_within_the_budget() {
    let upstream = upstream(None).await;
    let folder = tempfile::tempdir().unwrap();
    let limit = 10 * TURN_TOKENS;
    let budgets = json!({ "classes": { "default": [{ "per": "day", "tokens": limit }] } });
    let server = Arc::new(start(folder.path(), &upstream, &budgets).await);
    let turns = (0..8).map(|_| {
        let server = server.clone();
        tokio::spawn(async move {
            let mut client = session(&server, ANN).await;
            let mut answered = 0;
            loop {
                let finished = client.turn("Hello").await;
                if finished["status"] != "completed" {
                    return (answered, exhausted(&finished));
                }
                answered += 1;
            }
        })
    });
    let ended = futures_util::future::join_all(turns).await;
    let answered: u64 = ended.iter().map(|ended| ended.as_ref().unwrap().0).sum();
    let error = &ended[0].as_ref().unwrap().1;
    assert_eq!(answered * TURN_TOKENS, spent(&server, "owner=ann").await);
    // It is used up, and at most one request went beyond it.
    assert!((limit..limit + TURN_TOKENS).contains(&(answered * TURN_TOKENS)), "{answered}");
    assert_eq!(upstream.requests().len() as u64, answered, "nobody was asked after that");
    assert!(error["message"].as_str().unwrap().contains("is filled again at 20"), "{error}");
    let wait = error["retryAfterMs"].as_u64().unwrap();
    assert!((1..=24 * 60 * 60 * 1_000).contains(&wait), "{error}");
    // Another user has a budget of their own.
    assert_eq!(session(&server, BOB).await.turn("Hello").await["status"], "completed");
    let seen = http::get_as(&server.address, "/api/budgets?owner=ann", OPERATOR).await.json();
    let item = &seen["items"][0];
    assert_eq!((&seen["class"], &item["budget"], &item["per"]), (&json!("default"), &json!("user"), &json!("day")));
    assert_eq!((&item["limitTokens"], &item["reservedTokens"]), (&json!(limit), &json!(0)), "{seen}");
    assert_eq!(item["spentTokens"], answered * TURN_TOKENS);
    assert!(item["refillsAt"].as_str().unwrap().ends_with("T00:00:00.000Z"), "{seen}");
    upstream.assert_clean();
}

#[tokio::test]
async fn clients_and_the_operator_are_told_at_80_and_100_percent_and_a_restart_forgets_nothing() {
    let upstream = upstream(None).await;
    let folder = tempfile::tempdir().unwrap();
    // Dollars: a token costs a millionth.
    let dollars = 10.0 * TURN_TOKENS as f64 / 1e6;
    let budgets = json!({
        "deployment": [{ "per": "month", "dollars": 1000 }],
        "classes": { "default": [], "small": [{ "per": "month", "dollars": dollars }] },
        "users": { "ann": "small" },
    });
    let server = start(folder.path(), &upstream, &budgets).await;
    let mut client = session(&server, ANN).await;
    for turn in 1..=10 {
        client.turn("Hello").await;
        let told: Vec<Value> = client.forget("budget_notice");
        let percents: Vec<&Value> = told.iter().map(|frame| &frame["payload"]["percent"]).collect();
        let expected: &[Value] = match turn {
            8 => &[json!(80)],
            10 => &[json!(100)],
            _ => &[],
        };
        assert_eq!(percents, expected.iter().collect::<Vec<_>>(), "turn {turn}: {told:?}");
        for frame in &told {
            let payload = &frame["payload"];
            assert_eq!((&payload["budget"], &payload["per"]), (&json!("user"), &json!("month")), "{frame}");
            assert!(payload["refillsAt"].as_str().unwrap().ends_with("-01T00:00:00.000Z"), "{frame}");
        }
    }
    let lines = logged(folder.path());
    assert_eq!(lines.lines().filter(|line| line.contains("a budget has reached a share")).count(), 2, "{lines}");
    exhausted(&client.turn("Hello").await);
    server.kill().await;
    let asked = upstream.requests().len();
    let settings = fs::read_to_string(folder.path().join("budgets.json")).unwrap();
    let server = start(folder.path(), &upstream, &serde_json::from_str(&settings).unwrap()).await;
    let mut client = session(&server, ANN).await;
    exhausted(&client.turn("Hello").await);
    assert_eq!(upstream.requests().len(), asked);
    assert_eq!(session(&server, BOB).await.turn("Hello").await["status"], "completed");
    let metrics = http::get_as(&server.address, "/metrics", OPERATOR).await.body;
    assert!(metrics.contains(r#"reseed_budget_refusals_total{budget="user",per="month"} 1"#), "{metrics}");
}

#[tokio::test]
async fn summaries_count_and_fall_back_to_extracts() {
    let mut number = 0;
    let upstream = Upstream::start(move |asked| {
        number += 1;
        reply_to(asked, number, 30)
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let of = |tokens: u64| json!({ "classes": { "default": [{ "per": "session", "tokens": tokens }] } });
    let server = start(folder.path(), &upstream, &of(1_000_000)).await;
    let mut client = session(&server, ANN).await;
    for turn in 0..5 {
        client.turn(&words(turn, 300)).await;
    }
    // Only the summary fits.
    let turns = spent(&server, "").await;
    fs::write(folder.path().join("budgets.json"), of(turns + 1).to_string()).unwrap();
    assert!(reload(&server).await);
    client.ask("start_compaction", json!({})).await;
    let compacted = client.event("context_compacted").await["payload"].clone();
    assert_eq!(compacted["rung"], "model_summary", "{compacted}");
    assert!(spent(&server, "").await > turns);
    let error = exhausted(&client.turn("Hello").await);
    assert!(error.get("retryAfterMs").is_none(), "a session's budget is never filled again: {error}");
    let asked = upstream.requests().len();
    client.ask("undo_compaction", json!({})).await;
    client.ask("start_compaction", json!({ "instructions": "Be brief." })).await;
    let compacted = client.event("context_compacted").await["payload"].clone();
    assert!(["extract", "truncate"].contains(&compacted["rung"].as_str().unwrap()), "{compacted}");
    assert_eq!(compacted["failedRungs"][0]["reason"], "budget_exhausted", "{compacted}");
    assert_eq!(upstream.requests().len(), asked, "nobody was asked");
    // Another session of the same user has a budget of its own.
    assert_eq!(session(&server, ANN).await.turn("Hello").await["status"], "completed");
    upstream.assert_clean();
}

#[tokio::test]
async fn a_request_in_progress_is_reserved_and_survives_a_crash() {
    let gate = Gate::new();
    let upstream = upstream(Some(gate.clone())).await;
    let folder = tempfile::tempdir().unwrap();
    let budgets = json!({ "classes": { "default": [{ "per": "day", "tokens": 100 }] } });
    let server = start(folder.path(), &upstream, &budgets).await;
    let mut first = session(&server, ANN).await;
    first.ask("user_input", json!({ "input": "Hello" })).await;
    upstream.wait_for_requests(1).await;
    let reserved = spent(&server, "").await;
    assert!(reserved > 100, "{reserved}");
    // Another request waits, because the first may use everything up, and is refused once it has.
    let mut second = session(&server, ANN).await;
    second.ask("user_input", json!({ "input": "Hello" })).await;
    second.event("turn_started").await;
    assert_eq!(upstream.requests().len(), 1);
    gate.open();
    exhausted(&second.event("turn_finished").await["payload"]);
    assert_eq!(first.event("turn_finished").await["payload"]["status"], "completed");
    assert_eq!((upstream.requests().len(), spent(&server, "").await), (1, TURN_TOKENS));
    server.stop().await;
}

#[tokio::test]
async fn a_request_that_is_cancelled_before_its_answer_counts_with_its_input() {
    let upstream = upstream(Some(Gate::new())).await;
    let folder = tempfile::tempdir().unwrap();
    let budgets = json!({ "classes": { "default": [{ "per": "day", "tokens": 100 }] } });
    let server = start(folder.path(), &upstream, &budgets).await;
    let mut client = session(&server, ANN).await;
    client.ask("user_input", json!({ "input": words(1, 300) })).await;
    upstream.wait_for_requests(1).await;
    let reserved = spent(&server, "").await;
    client.ask("cancel_turn", json!({})).await;
    assert_eq!(client.event("turn_finished").await["payload"]["status"], "cancelled");
    exhausted(&client.turn("Hello").await);
    let counted = spent(&server, "").await;
    assert!((100..reserved).contains(&counted), "{counted} of {reserved}");
    assert_eq!(upstream.requests().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_killed_server_leaves_its_reservations() {
    let upstream = upstream(Some(Gate::new())).await;
    let folder = tempfile::tempdir().unwrap();
    let budgets = json!({ "classes": { "default": [{ "per": "day", "tokens": 100 }] } });
    let server = start(folder.path(), &upstream, &budgets).await;
    let mut client = session(&server, ANN).await;
    client.ask("user_input", json!({ "input": "Hello" })).await;
    upstream.wait_for_requests(1).await;
    let reserved = spent(&server, "").await;
    server.kill().await;
    let server = start(folder.path(), &upstream, &budgets).await;
    assert_eq!(spent(&server, "").await, reserved);
    exhausted(&session(&server, ANN).await.turn("Hello").await);
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_reload_takes_up_new_budgets_and_keeps_the_old_ones_if_the_file_is_wrong() {
    let upstream = upstream(None).await;
    let folder = tempfile::tempdir().unwrap();
    let of = |tokens: u64| json!({ "classes": { "default": [{ "per": "day", "tokens": tokens }] } });
    let server = start(folder.path(), &upstream, &of(TURN_TOKENS)).await;
    let mut client = session(&server, ANN).await;
    assert_eq!(client.turn("Hello").await["status"], "completed");
    exhausted(&client.turn("Hello").await);
    for (file, is_right, works) in [
        (of(2 * TURN_TOKENS).to_string(), true, true),
        ("{ \"classes\": [] }".to_owned(), false, false),
        (json!({}).to_string(), true, true),
    ] {
        fs::write(folder.path().join("budgets.json"), &file).unwrap();
        assert_eq!(reload(&server).await, is_right, "{file}");
        let finished = client.turn("Hello").await;
        match works {
            true => assert_eq!(finished["status"], "completed", "{file}"),
            false => drop(exhausted(&finished)),
        }
    }
    server.stop().await;
    // A file that is wrong at the start is an error of the settings.
    fs::write(folder.path().join("budgets.json"), r#"{ "users": { "ann": "pro" } }"#).unwrap();
    let ended = binary::run(folder.path(), &["serve"], &[("BUDGETS_FILE", "budgets.json")]).await;
    assert!(ended.faults.contains("`users.ann` names the class `pro`, which `classes` does not have"), "{ended:?}");
}
