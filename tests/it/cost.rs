//! The cost of requests: reported with every answer and summary, added up for a session, and the same after a restart.

use crate::support::{
    binary::{self, Binary},
    client::Client,
    http,
    json::present,
    talk::{is_summary, reply_to, words},
    upstream::{Reply, Upstream},
};
use serde_json::{Value, json};

const OPERATOR: &str = "operator-token-of-some-length";

/// Nanodollars per token of input, cached input, output and cache writes: of `test=2/0.5/8/2.5` and of
/// `clerk=1/0.25/4`.
const TEST: [u64; 4] = [2_000, 500, 8_000, 2_500];
const CLERK: [u64; 4] = [1_000, 250, 4_000, 1_000];

/// Returns the cost that a usage must have at these prices.
fn due(usage: &Value, [input, cached, output, written]: [u64; 4]) -> u64 {
    let tokens = |name: &str| usage[name].as_u64().unwrap_or_else(|| panic!("no {name} in {usage}"));
    let (read, wrote) = (tokens("cachedTokens"), tokens("cacheWriteTokens"));
    assert!(wrote > 0, "{usage}");
    (tokens("inputTokens") - read - wrote) * input + read * cached + wrote * written + tokens("outputTokens") * output
}

/// Returns the cost that a usage states, which must match these prices.
#[track_caller]
fn paid(usage: &Value, prices: [u64; 4]) -> u64 {
    assert_eq!(usage["costNanoUsd"].as_u64(), Some(due(usage, prices)), "{usage}");
    due(usage, prices)
}

/// An upstream server that has a third of each request in its cache, and writes a fifth to it.
async fn upstream() -> Upstream {
    let mut number = 0;
    Upstream::start(move |asked| {
        number += 1;
        let reply = match asked {
            asked if !is_summary(asked) && asked.last_user_text() == "look" && !asked.ends_with_result() => {
                Reply::call("look", "{}")
            }
            asked => reply_to(asked, number, 30),
        };
        reply.with_cached(asked.tokens / 3).with_cache_write(asked.tokens / 5)
    })
    .await
}

async fn listed(client: &mut Client, session: &Value) -> Value {
    let list = client.ask("list_sessions", json!({})).await["payload"]["items"].clone();
    let found = list.as_array().unwrap().iter().find(|item| item["sessionId"] == *session).cloned();
    found.unwrap_or_else(|| panic!("{session} is not in {list}"))
}

/// A sample of `/metrics`.
async fn sample(server: &Binary, name: &str) -> u64 {
    let metrics = http::get_as(&server.address, "/metrics", OPERATOR).await.body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in {metrics}")).trim().parse().unwrap()
}

#[tokio::test]
async fn every_answer_and_summary_is_paid_for_and_a_session_is_the_sum() {
    let upstream = upstream().await;
    let folder = tempfile::tempdir().unwrap();
    let base_url = upstream.base_url();
    let settings = [
        ("OPENAI_BASE_URL", base_url.as_str()),
        ("MODEL", "test"),
        ("SUMMARY_MODEL", "clerk"),
        ("MODEL_PRICES", "test=2/0.5/8/2.5, clerk=1/0.25/4"),
        ("CONTEXT_WINDOW", "4000"),
        ("CONTEXT_STRATEGY", "manual"),
        ("OPERATOR_TOKENS", &format!("ops:{OPERATOR}")),
    ];
    let server = Binary::start(folder.path(), &settings).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    let session = opened["sessionId"].clone();
    let tool = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    client.ask("register_tools", json!({ "tools": [tool] })).await;
    assert_eq!(listed(&mut client, &session).await.get("costNanoUsd"), None);

    // The cost of a turn is the sum of its requests.
    let mut spent = 0;
    client.ask("user_input", json!({ "input": "look" })).await;
    let call = client.event("tool_call").await["payload"]["toolCallId"].clone();
    client.ask("tool_result", json!({ "toolCallId": call, "output": words(1, 40) })).await;
    spent += paid(&client.event("turn_finished").await["payload"]["usage"], TEST);
    let first = client.turn(&words(2, 100)).await;
    spent += paid(&first["usage"], TEST);
    for number in 3..8 {
        spent += paid(&client.turn(&words(number, 100)).await["usage"], TEST);
    }
    assert_eq!(listed(&mut client, &session).await["costNanoUsd"], spent);
    let entries = client.ask("get_entries", json!({})).await["payload"]["items"].clone();
    let answers = entries.as_array().unwrap().iter().filter(|entry| entry["role"] == "assistant");
    assert_eq!(answers.map(|entry| paid(&entry["usage"], TEST)).sum::<u64>(), spent);

    // A preview costs what its summary does, and counts for the session only once it is applied.
    let preview = client.ask("preview_compaction", json!({})).await["payload"].clone();
    let summary = paid(&preview["summaryUsage"], CLERK);
    assert_eq!(listed(&mut client, &session).await["costNanoUsd"], spent);
    client.ask("start_compaction", json!({ "previewId": preview["previewId"] })).await;
    let compacted = client.event("context_compacted").await["payload"].clone();
    assert_eq!(paid(&compacted["summaryUsage"], CLERK), summary);
    spent += summary;

    // A branch is left with a summary.
    let left = client.turn(&words(9, 60)).await;
    spent += paid(&left["usage"], TEST);
    let target = first["contextInfo"]["leafId"].clone();
    let moved = client.ask("navigate", json!({ "entryId": target, "summarize": true })).await;
    let entry = moved["payload"]["branchSummaryEntryId"].clone();
    let appended = client.until(|frame| frame["payload"]["entry"]["entryId"] == *present(&entry)).await;
    spent += paid(&appended["payload"]["entry"]["summaryUsage"], CLERK);
    assert_eq!(listed(&mut client, &session).await["costNanoUsd"], spent);

    // Usage without a known price is reported as such, and no sum hides it.
    client.ask("set_model", json!({ "model": "another" })).await;
    let unpriced = client.turn("Who are you?").await;
    assert_eq!(unpriced["usage"].get("costNanoUsd"), None, "{unpriced}");
    let item = listed(&mut client, &session).await;
    assert_eq!((&item["costNanoUsd"], &item["unpricedRequests"]), (&json!(spent), &json!(1)));

    // A fork is not charged again.
    let at = json!({ "entryId": unpriced["contextInfo"]["leafId"], "position": "at" });
    let forked = client.ask("fork_session", at).await["payload"]["sessionId"].clone();
    assert_eq!(listed(&mut client, &forked).await.get("costNanoUsd"), None);

    // Operators see the same, and what it was spent on; discarded previews would appear only there.
    let seen = http::get_as(&server.address, "/api/sessions", OPERATOR).await.json();
    let items = seen["items"].as_array().unwrap();
    let item = items.iter().find(|item| item["sessionId"] == *present(&session)).unwrap();
    assert_eq!((&item["costNanoUsd"], &item["unpricedRequests"]), (&json!(spent), &json!(1)));
    let turns = sample(&server, r#"reseed_model_cost_nano_usd_total{purpose="turn",model="test"}"#).await;
    let summaries = sample(&server, r#"reseed_model_cost_nano_usd_total{purpose="summary",model="clerk"}"#).await;
    assert_eq!(turns + summaries, spent);
    assert!(sample(&server, r#"reseed_tokens_total{purpose="turn",model="test",kind="cache_write"}"#).await > 0);
    assert_eq!(sample(&server, r#"reseed_model_unpriced_requests_total{purpose="turn",model="other"}"#).await, 1);

    // The cost is as durable as the requests it belongs to.
    server.kill().await;
    let server = Binary::start(folder.path(), &settings).await;
    let mut client = Client::v2(&server.ws()).await;
    assert_eq!(listed(&mut client, &session).await["costNanoUsd"], spent);
    client.ask("open_session", json!({ "sessionId": session })).await;
    client.ask("set_model", json!({ "model": "test" })).await;
    spent += paid(&client.turn("And now?").await["usage"], TEST);
    assert_eq!(listed(&mut client, &session).await["costNanoUsd"], spent);
    let listed = binary::run(folder.path(), &["sessions"], &settings).await;
    let dollars = format!("${:.4}+", spent as f64 / 1e9);
    assert!(listed.printed.lines().any(|line| line.contains(&dollars)), "{dollars} in {}", listed.printed);
    let drawn = binary::run(folder.path(), &["inspect", session.as_str().unwrap()], &settings).await.printed;
    assert!(drawn.lines().any(|line| line.ends_with("the cost of 1 of its requests is unknown")), "{drawn}");
    let compacted = |line: &&str| line.contains(" assistant ") && line.contains("changed: compaction, ");
    assert!(drawn.lines().filter(compacted).count() == 1, "{drawn}");
    let answer = drawn.lines().find(|line| line.contains(" assistant ")).unwrap();
    assert!(answer.contains(" sent, 0 as before, ") && answer.contains(" written to the cache, $0.00"), "{answer}");
    upstream.assert_clean();
}

#[tokio::test]
async fn nothing_is_told_where_no_price_is_known() {
    let upstream = upstream().await;
    let folder = tempfile::tempdir().unwrap();
    let base_url = upstream.base_url();
    let settings = [("OPENAI_BASE_URL", base_url.as_str()), ("MODEL", "test"), ("CONTEXT_WINDOW", "4000")];
    let server = Binary::start(folder.path(), &settings).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;
    assert_eq!(client.turn("Hello").await["usage"].get("costNanoUsd"), None);
    let item = listed(&mut client, &opened["sessionId"]).await;
    assert_eq!((item.get("costNanoUsd"), item.get("unpricedRequests")), (None, None));
    assert_eq!(sample(&server, r#"reseed_model_unpriced_requests_total{purpose="turn",model="test"}"#).await, 1);
}
