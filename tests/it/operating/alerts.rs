//! The alerts of `docker/observability/rules.yaml`. A real server does what the alert is about, and its `/metrics` are
//! read before and after. promtool decides: the rule must fire on the second samples and not on the first.

mod cluster;

use super::folder;
pub(crate) use super::samples;
use crate::support::scripted::Gate;
use crate::support::{
    binary::Binary,
    client::Client,
    talk::{is_summary, reply_to, summary, words},
    upstream::{Reply, Upstream},
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

type Samples = BTreeMap<String, f64>;

/// The minute at which the event happens, after an hour without it.
const HAPPENS_AT: usize = 60;

/// The alerts that have a test below, in `cluster.rs`, or where a standby takes over (`tests/it/cluster/failover.rs`).
const TESTED: [&str; 14] = [
    "ReseedDown",
    "ReseedStoreFailing",
    "ReseedStoreSlow",
    "ReseedLeaseLost",
    "ReseedTakeovers",
    "ReseedNodeSilent",
    "ReseedReadersBusy",
    "ReseedTimelineChanged",
    "ReseedCompactionsFailing",
    "ReseedCompactionRests",
    "ReseedCompactionsPauseUsers",
    "ReseedSummariesByRule",
    "ReseedTruncatedUpstream",
    "ReseedCacheGivenUp",
];

fn rules() -> String {
    format!("{}/docker/observability/rules.yaml", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_alert_has_a_test() {
    let rules = fs::read_to_string(rules()).unwrap();
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(!alerts.is_empty());
    for alert in alerts {
        assert!(TESTED.contains(&alert), "{alert} has no test in tests/it/operating/alerts.rs");
    }
}

/// Returns true if promtool is installed. If `tests/run` has installed it, its absence is a failure.
pub(crate) fn has_promtool() -> bool {
    let found = Command::new("promtool").arg("--version").output().is_ok_and(|output| output.status.success());
    assert!(found || std::env::var_os("RESEED_TOOLS").is_none(), "promtool is missing: install Debian's `prometheus`");
    if !found {
        eprintln!("skipped: promtool is missing; `tests/run` installs it");
    }
    found
}

/// Returns a sample's series labelled with this server.
fn labelled(series: &str) -> String {
    match series.strip_suffix('}') {
        Some(labels) => format!("{labels},instance=\"a\",job=\"reseed\"}}"),
        None => format!("{series}{{instance=\"a\",job=\"reseed\"}}"),
    }
}

/// Checks that an alert does not fire on the samples before, and does this many minutes after they changed to those
/// after.
#[track_caller]
pub(crate) fn fires(alert: &str, minutes: usize, before: &Samples, after: &Samples) {
    let rules_text = fs::read_to_string(rules()).unwrap();
    let mut test = format!("rule_files: ['{}']\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n", rules());
    test += "    input_series:\n";
    for (series, now) in after {
        let name = series.split('{').next().unwrap();
        if rules_text.contains(name) {
            let then = before.get(series).copied().unwrap_or_else(|| panic!("{series} was not there from the start"));
            let values = format!("{then}x{} {now}x120", HAPPENS_AT - 1);
            let _ = writeln!(test, "      - series: '{}'\n        values: '{values}'", labelled(series));
        }
    }
    test += "    promql_expr_test:\n";
    for (minute, expected) in [(HAPPENS_AT - 1, None), (HAPPENS_AT + minutes, Some(alert))] {
        let expr = format!("max by (alertname) (ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})");
        let _ = writeln!(test, "      - expr: '{expr}'\n        eval_time: {minute}m");
        if let Some(alert) = expected {
            let labels = format!("{{alertname=\"{alert}\"}}");
            let _ = writeln!(test, "        exp_samples:\n          - labels: '{labels}'\n            value: 1");
        }
    }
    let folder = folder();
    let file = folder.path().join("alert.test.yaml");
    fs::write(&file, &test).unwrap();
    let output = Command::new("promtool").args(["test", "rules"]).arg(&file).output().unwrap();
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{alert}:\n{told}\n{test}");
}

/// Starts a server on this upstream, with a window of this many tokens.
async fn server(folder: &tempfile::TempDir, upstream: &Upstream, window: &str, settings: &[(&str, &str)]) -> Binary {
    let base_url = upstream.base_url();
    let model = [("OPENAI_BASE_URL", base_url.as_str()), ("MODEL", "test"), ("CONTEXT_WINDOW", window)];
    let all = [&model[..], settings].concat();
    Binary::start(folder.path(), &all).await
}

/// An upstream server with these summaries.
async fn summarising(mut make: impl FnMut() -> Reply + Send + 'static) -> Upstream {
    let mut number = 0;
    Upstream::start(move |asked| {
        number += 1;
        if is_summary(asked) { make() } else { reply_to(asked, number, 60) }
    })
    .await
}

/// Compacts five times by a client's order, each time after three turns with the inputs `said(turn)`.
async fn five_compactions(client: &mut Client, said: impl Fn(u64) -> String) {
    for round in 0..5 {
        for turn in 0..3 {
            let text = said(round * 3 + turn);
            assert_eq!(client.turn(&text).await["status"], "completed");
        }
        let ordered = client.ask("start_compaction", json!({})).await;
        assert_eq!(ordered["type"], "ok", "{ordered}");
        client.event("context_compacted").await;
    }
}

#[tokio::test]
async fn a_server_that_is_gone() {
    if !has_promtool() {
        return;
    }
    let folder = folder();
    let server = Binary::start(folder.path(), &super::QUICK).await;
    let address = server.address.clone();
    samples(&address).await;
    server.kill().await;
    assert!(tokio::net::TcpStream::connect(&address).await.is_err());
    let up = |value| Samples::from([("up".to_owned(), value)]);
    fires("ReseedDown", 3, &up(1.0), &up(0.0));
}

#[tokio::test]
async fn a_store_that_cannot_write() {
    if !has_promtool() {
        return;
    }
    let folder = folder();
    let settings = [("OFFLINE_WORD_MILLIS", "0"), ("CONTEXT_WINDOW", "1000000")];
    let server = Binary::start_with_file_limit(folder.path(), &settings, 600).await;
    let before = samples(&server.address).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    client.send("user_input", json!({ "input": words(0, 1_000) })).await;
    let mut said = 0;
    // This runs until the server closes the session, because the input could not be stored.
    while let Some(frame) = client.next_frame().await {
        if frame["type"] == "session_closed" {
            break;
        }
        if frame["type"] == "turn_finished" {
            said += 1;
            assert!(said < 1_000, "the disk is never full");
            client.send("user_input", json!({ "input": words(said, 1_000) })).await;
        }
    }
    let after = samples(&server.address).await;
    assert!(after[r#"reseed_store_commits_total{outcome="failed"}"#] >= 1.0);
    fires("ReseedStoreFailing", 2, &before, &after);
}

#[tokio::test]
async fn a_model_server_that_cuts_what_it_is_sent() {
    if !has_promtool() {
        return;
    }
    let upstream = Upstream::start(|asked| {
        let choice = json!({ "delta": { "content": "Noted." }, "finish_reason": "stop" });
        let usage = json!({ "prompt_tokens": asked.tokens.min(1_500), "completion_tokens": 2 });
        Reply::Stream(format!("data: {}\n\n", json!({ "choices": [choice], "usage": usage })), Vec::new())
    })
    .await;
    let folder = folder();
    let server = server(&folder, &upstream, "30000", &[("OPENAI_API", "chat")]).await;
    let before = samples(&server.address).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    while !client.seen.iter().any(|frame| frame["type"] == "context_warning") {
        assert_eq!(client.turn(&words(1, 300)).await["status"], "completed");
    }
    fires("ReseedTruncatedUpstream", 1, &before, &samples(&server.address).await);
}

#[tokio::test]
async fn summaries_that_cannot_be_made_and_the_rest_that_follows() {
    if !has_promtool() {
        return;
    }
    let refusal = r#"{"error":{"message":"no","type":"authentication_error"}}"#;
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let upstream = summarising(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Reply::error(401, refusal)
    })
    .await;
    let folder = folder();
    let server = server(&folder, &upstream, "8000", &[("strategy.background", "0.7")]).await;
    let before = samples(&server.address).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    let mut failed = 0;
    for turn in 0..100 {
        client.turn(&words(turn, 80)).await;
        // Nothing more is said before a failure is known. At the trigger, an extract would make room, which is no
        // failure.
        if asked.load(Ordering::Relaxed) > failed {
            client.event("compaction_failed").await;
            failed += 1;
        }
        if failed == 3 {
            break;
        }
    }
    let after = samples(&server.address).await;
    assert!(after[r#"reseed_breakers_open{reason="failures"}"#] > 0.0, "{failed} failures did not open the breaker");
    fires("ReseedCompactionsFailing", 8, &before, &after);
    fires("ReseedCompactionRests", 12, &before, &after);
}

#[tokio::test]
async fn users_who_wait_for_compactions() {
    if !has_promtool() {
        return;
    }
    let gate = Gate::new();
    let held = gate.clone();
    let upstream = summarising(move || Reply::text(summary(&["The ship is called Aurora."])).held_by(&held)).await;
    let folder = folder();
    let server = server(&folder, &upstream, "8000", &[("CONTEXT_STRATEGY", "manual")]).await;
    let before = samples(&server.address).await;
    let mut clients = Vec::new();
    for session in 0..5 {
        let (mut client, _) = Client::v2_session(&server.ws()).await;
        for turn in 0..4 {
            client.turn(&words(10 * session + turn, 200)).await;
        }
        assert_eq!(client.ask("start_compaction", json!({})).await["type"], "ok");
        assert_eq!(client.ask("user_input", json!({ "input": "And now?" })).await["type"], "accepted");
        clients.push(client);
    }
    // This waits in real time, longer than the rule's five seconds.
    let nothing = tokio::time::timeout(Duration::from_millis(5_200), std::future::pending::<()>());
    assert!(nothing.await.is_err());
    gate.open();
    for client in &mut clients {
        client.event("context_compacted").await;
        client.event("turn_finished").await;
    }
    let after = samples(&server.address).await;
    fires("ReseedCompactionsPauseUsers", 12, &before, &after);
}

#[tokio::test]
async fn summaries_that_are_not_the_models() {
    if !has_promtool() {
        return;
    }
    let upstream = summarising(|| Reply::text("")).await;
    let folder = folder();
    let settings = [("CONTEXT_STRATEGY", "manual"), ("strategy.userShare", "0")];
    let server = server(&folder, &upstream, "8000", &settings).await;
    let before = samples(&server.address).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    five_compactions(&mut client, |turn| words(turn, 300)).await;
    fires("ReseedSummariesByRule", 20, &before, &samples(&server.address).await);
}

#[tokio::test]
async fn a_prompt_that_changes_with_every_request() {
    if !has_promtool() {
        return;
    }
    let upstream = summarising(|| Reply::text("")).await;
    let folder = folder();
    let server = server(&folder, &upstream, "100000", &[]).await;
    let before = samples(&server.address).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    for minute in 0..24 {
        let instructions = format!("It is 12:{minute} now. Answer briefly.");
        assert_eq!(client.ask("set_instructions", json!({ "instructions": instructions })).await["type"], "ok");
        client.turn(&words(minute, 40)).await;
    }
    fires("ReseedCacheGivenUp", 20, &before, &samples(&server.address).await);
}
