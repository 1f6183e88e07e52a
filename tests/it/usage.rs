//! The account of requests to models: every request that costs something is in it once, and stays.

use crate::support::{
    binary::{self, Binary},
    client::Client,
    http,
    json::present,
    scripted::Gate,
    talk::{is_summary, reply_to, words},
    upstream::{Reply, Upstream},
};
use reseed::{
    core::usage_row::{UsagePurpose, UsageRow, UsageTokens},
    store::{SessionStore as _, UsageBy, UsageQuery, sqlite::SqliteStore},
};
use reseed_protocol::{Timestamp, UsageSource};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

const OPERATOR: &str = "operator-token-of-some-length";
const ANN: &str = "token-of-ann-0123456789";
const BOB: &str = "token-of-bob-0123456789";

/// Output tokens that the upstream reports for each answer.
const OUTPUT: u64 = 30;

/// What the upstream has reported: requests, input tokens and cached tokens, by model.
type Told = Arc<Mutex<BTreeMap<String, [u64; 3]>>>;

/// An upstream that counts what it reports. `hold` is never answered to the end, and `nothing` is answered with
/// nothing.
async fn upstream() -> (Upstream, Told) {
    let told = Told::default();
    let (counts, mut number) = (told.clone(), 0);
    let upstream = Upstream::start(move |asked| {
        number += 1;
        let said = if is_summary(asked) { String::new() } else { asked.last_user_text() };
        if said == "hold" {
            return Reply::text("a beginning and more").in_pieces(4).held_by(&Gate::new());
        }
        let mut counts = counts.lock().unwrap();
        let [requests, input, cached] = counts.entry(asked.body["model"].as_str().unwrap().to_owned()).or_default();
        (*requests, *input, *cached) = (*requests + 1, *input + asked.tokens, *cached + asked.tokens / 3);
        let reply = match said.as_str() {
            "nothing" => Reply::text(""),
            "look" if !asked.ends_with_result() => Reply::call("look", "{}"),
            _ => reply_to(asked, number, 30),
        };
        reply.with_usage(asked.tokens, OUTPUT).with_cached(asked.tokens / 3)
    })
    .await;
    (upstream, told)
}

fn settings(base_url: &str) -> Vec<(&'static str, String)> {
    [
        ("OPENAI_BASE_URL", base_url.to_owned()),
        ("MODEL", "test".to_owned()),
        ("SUMMARY_MODEL", "clerk".to_owned()),
        ("MODEL_PRICES", "test=2/0.5/8, clerk=1/0.25/4".to_owned()),
        ("CONTEXT_WINDOW", "4000".to_owned()),
        ("CONTEXT_STRATEGY", "manual".to_owned()),
        ("AUTH_TOKENS", format!("ann:{ANN},bob:{BOB}")),
        ("OPERATOR_TOKENS", format!("ops:{OPERATOR}")),
    ]
    .into()
}

async fn session(server: &Binary, token: &str, open: Value) -> (Client, Value) {
    let bearer = format!("Bearer {token}");
    let mut client = Client::connect_with(&server.ws(), &[("Authorization", &bearer)]).await;
    client.ask("hello", json!({ "protocolVersion": 2 })).await;
    let opened = client.ask("open_session", open).await;
    assert_eq!(opened["type"], "session_opened", "{opened}");
    (client, opened["payload"]["sessionId"].clone())
}

async fn usage(server: &Binary, query: &str) -> Vec<Value> {
    let answered = http::get_as(&server.address, &format!("/api/usage?{query}"), OPERATOR).await;
    assert_eq!(answered.status, 200, "{}", answered.body);
    present(&answered.json()["items"]).as_array().unwrap().clone()
}

/// Returns the sum of a number over these items.
fn sum(items: &[Value], name: &str) -> u64 {
    items.iter().map(|item| item[name].as_u64().unwrap_or_else(|| panic!("no {name} in {item}"))).sum()
}

#[tokio::test]
async fn every_request_is_in_the_account_once_and_stays() {
    let (upstream, told) = upstream().await;
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(&upstream.base_url());
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let server = Binary::start(folder.path(), &settings).await;
    let (mut ann, of_ann) = session(&server, ANN, json!({})).await;
    let tool = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    ann.ask("register_tools", json!({ "tools": [tool] })).await;
    ann.ask("user_input", json!({ "input": "look" })).await;
    let call = ann.event("tool_call").await["payload"]["toolCallId"].clone();
    ann.ask("tool_result", json!({ "toolCallId": call, "output": words(1, 40) })).await;
    ann.event("turn_finished").await;
    let first = ann.turn(&words(2, 100)).await;
    for number in 3..8 {
        ann.turn(&words(number, 100)).await;
    }
    // A preview that is never applied, a compaction, and the summary of a branch.
    let preview = ann.ask("preview_compaction", json!({})).await;
    assert_eq!(preview["type"], "compaction_preview", "{preview}");
    ann.ask("start_compaction", json!({ "instructions": "Be brief." })).await;
    ann.event("context_compacted").await;
    ann.turn(&words(9, 60)).await;
    let target = first["contextInfo"]["leafId"].clone();
    ann.ask("navigate", json!({ "entryId": target, "summarize": true })).await;
    ann.until(|frame| frame["payload"]["entry"].get("summaryUsage").is_some()).await;
    // A deleted session, and one that is not stored.
    let (mut bob, of_bob) = session(&server, BOB, json!({})).await;
    bob.turn("Hello").await;
    bob.ask("delete_session", json!({ "sessionId": of_bob })).await;
    let (mut unstored, _) = session(&server, BOB, json!({ "store": false })).await;
    unstored.turn("Hello again").await;
    // What was cancelled is estimated.
    unstored.forget("item_delta");
    unstored.ask("user_input", json!({ "input": "hold" })).await;
    unstored.event("item_delta").await;
    unstored.ask("cancel_turn", json!({})).await;
    assert_eq!(unstored.event("turn_finished").await["payload"]["status"], "cancelled");
    // An answer without text is billed too.
    let (mut empty, _) = session(&server, BOB, json!({})).await;
    assert_eq!(empty.turn("nothing").await["error"]["code"], "upstream_empty");

    let told = told.lock().unwrap().clone();
    let [requests, input, cached] = told.values().fold([0; 3], |sum, of| [0, 1, 2].map(|n| sum[n] + of[n]));
    assert!(requests > 14 && told.len() == 2, "{told:?}");
    let check = async |server: &Binary| {
        for by in ["user", "model", "day", "session", "total"] {
            let items = usage(server, &format!("by={by}")).await;
            assert_eq!(sum(&items, "estimatedRequests"), 1, "{items:?}");
            assert_eq!(sum(&items, "requests"), requests + 1, "{by}: {items:?}");
            assert_eq!(sum(&items, "cachedTokens"), cached, "{by}");
            assert_eq!(sum(&items, "unpricedRequests"), 0, "{by}");
            for step in ["minute", "hour", "day"].into_iter().filter(|_| by != "day") {
                let items = usage(server, &format!("by={by}&step={step}")).await;
                assert_eq!(sum(&items, "requests"), requests + 1, "{by} {step}: {items:?}");
                assert!(items.iter().all(|item| item["from"].is_string()), "{items:?}");
            }
        }
    };
    check(&server).await;
    let models = usage(&server, "by=model").await;
    let names: Vec<&str> = models.iter().map(|item| item["model"].as_str().unwrap()).collect();
    assert_eq!(names, ["clerk", "test"]);
    let [summaries, read, kept] = told["clerk"];
    assert_eq!(models[0]["requests"], summaries);
    assert_eq!(models[0]["inputTokens"], read);
    let cost = |[_, input, cached]: [u64; 3], requests: u64, [fresh, read, out]: [u64; 3]| {
        (input - cached) * fresh + cached * read + requests * OUTPUT * out
    };
    assert_eq!(models[0]["costNanoUsd"], cost([0, read, kept], summaries, [1_000, 250, 4_000]));
    assert_eq!(models[1]["costNanoUsd"], cost(told["test"], told["test"][0], [2_000, 500, 8_000]));
    assert!(models[1]["estimatedCostNanoUsd"].as_u64().unwrap() > 0, "{models:?}");

    // The metrics agree, without the estimate.
    let metrics = http::get_as(&server.address, "/metrics", OPERATOR).await.body;
    let counted = |name: &str| -> u64 {
        let samples = metrics.lines().filter(|line| line.starts_with(name));
        samples.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    };
    let of_kind = |purpose: &str, model: &str, kind: &str| {
        counted(&format!(r#"reseed_tokens_total{{purpose="{purpose}",model="{model}",kind="{kind}"}}"#))
    };
    assert_eq!(of_kind("turn", "test", "input") + of_kind("summary", "clerk", "input"), input);
    assert_eq!(counted("reseed_model_cost_nano_usd_total"), sum(&models, "costNanoUsd"));

    // It holds for the deleted session, over a crash, and in the terminal.
    let sessions = usage(&server, "by=session&owner=bob").await;
    assert_eq!(sessions.len(), 3, "{sessions:?}");
    assert!(sessions.iter().any(|item| item["session"] == of_bob), "{sessions:?}");
    let of_anns = usage(&server, "by=session&owner=ann").await;
    assert_eq!((of_anns.len(), &of_anns[0]["session"]), (1, &of_ann));
    server.kill().await;
    let server = Binary::start(folder.path(), &settings).await;
    check(&server).await;
    let printed = binary::run(folder.path(), &["usage"], &settings).await.printed;
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].starts_with("USER ") && lines[0].ends_with("COST"), "{printed}");
    assert!(lines[1].starts_with("ann ") && lines[1].ends_with(&"█".repeat(30)), "{printed}");
    assert!(lines[2].starts_with("bob ") && lines[2].ends_with('█'), "{printed}");
    let as_json = binary::run(folder.path(), &["usage", "--by", "model", "--json"], &settings).await.printed;
    assert_eq!(serde_json::from_str::<Value>(&as_json).unwrap()["items"], Value::from(models));
    // It has names and numbers, and nothing that was said.
    let rows = sqlite(folder.path(), "SELECT group_concat(DISTINCT purpose) FROM model_usage");
    assert_eq!(rows, "turn,preview,summary,branch");
    upstream.assert_clean();
}

fn sqlite(folder: &std::path::Path, sql: &str) -> String {
    let db = rusqlite::Connection::open(folder.join("data/reseed.db")).unwrap();
    db.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Fills the database with rows: one per day and user from the first day on.
async fn filled(folder: &std::path::Path, days: i64) {
    std::fs::create_dir_all(folder.join("data")).unwrap();
    let store = SqliteStore::open(&folder.join("data/reseed.db")).unwrap();
    let rows = (0..days).flat_map(|day| {
        ["ann", "bob, \"the builder\""].map(|owner| UsageRow {
            id: format!("{owner}-{day}"),
            at: Timestamp(day * 86_400_000),
            owner: owner.to_owned(),
            session: "k7m2q9xw4hfatz8n".parse().unwrap(),
            model: "m".to_owned(),
            purpose: UsagePurpose::Turn,
            tokens: UsageTokens { input: 10, output: 1, ..UsageTokens::default() },
            source: UsageSource::Reported,
            cost_nano_usd: None,
        })
    });
    store.add_usage(rows.collect()).await.unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn operators_page_through_sums_and_get_csv() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path(), 40).await;
    let settings = [("OPERATOR_TOKENS", format!("ops:{OPERATOR}")), ("USAGE_RETENTION_DAYS", "0".to_owned())];
    let settings: Vec<(&str, &str)> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let server = Binary::start(folder.path(), &settings).await;
    let (mut days, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/usage?by=day&owner=ann&limit=7&from=1970-01-03{cursor}");
        let page = http::get_as(&server.address, &path, OPERATOR).await.json();
        let items = present(&page["items"]).as_array().unwrap().clone();
        days.extend(items.iter().map(|item| item["day"].as_str().unwrap().to_owned()));
        let Some(next) = page["nextCursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!((days.len(), days[0].as_str(), days[37].as_str()), (38, "1970-01-03", "1970-02-09"));

    let csv = http::get_as(&server.address, "/api/usage?by=user&format=csv&to=1970-01-02T00:00:00Z", OPERATOR).await;
    assert!(csv.head.contains("text/csv"), "{}", csv.head);
    let expected = "user,requests,estimatedRequests,unpricedRequests,inputTokens,cachedTokens,cacheWriteTokens,\
                    cacheWriteHourTokens,outputTokens,reasoningTokens,costNanoUsd,estimatedCostNanoUsd\r\n\
                    ann,1,0,1,10,0,0,0,1,0,0,0\r\n\"bob, \"\"the builder\"\"\",1,0,1,10,0,0,0,1,0,0,0\r\n";
    assert_eq!(csv.body, expected);
    let first = http::get_as(&server.address, "/api/usage?by=day&format=csv&limit=1", OPERATOR).await;
    assert!(first.head.to_ascii_lowercase().contains("x-next-cursor: 1970-01-01"), "{}", first.head);

    // In steps, the limit holds for periods and users together.
    let page =
        http::get_as(&server.address, "/api/usage?by=user&step=day&limit=3&to=1970-01-04", OPERATOR).await.json();
    let shown = |page: &Value| -> Vec<(Value, Value)> {
        let items = page["items"].as_array().unwrap();
        items.iter().map(|item| (item["from"].clone(), item["user"].clone())).collect()
    };
    let days = ["1970-01-01", "1970-01-02", "1970-01-03"].map(|day| json!(format!("{day}T00:00:00.000Z")));
    let [ann, bob] = [json!("ann"), json!("bob, \"the builder\"")];
    let of = |day: usize, user: &Value| (days[day].clone(), user.clone());
    assert_eq!(shown(&page), [of(0, &ann), of(0, &bob), of(1, &ann)]);
    let path =
        format!("/api/usage?by=user&step=day&limit=3&to=1970-01-04&cursor={}", page["nextCursor"].as_str().unwrap());
    let page = http::get_as(&server.address, &path, OPERATOR).await.json();
    assert_eq!(shown(&page), [of(1, &bob), of(2, &ann), of(2, &bob)]);
    assert_eq!(page.get("nextCursor"), None);
    let csv = http::get_as(&server.address, "/api/usage?by=total&step=hour&format=csv&limit=1", OPERATOR).await.body;
    assert!(csv.starts_with("from,total,requests,"), "{csv}");
    assert!(csv.ends_with("\r\n1970-01-01T00:00:00.000Z,,2,0,2,20,0,0,0,2,0,0,0\r\n"), "{csv}");

    for (query, field) in [
        ("step=week", "step"),
        ("by=day&step=hour", "step"),
        ("step=hour&cursor=ann", "cursor"),
        ("by=team", "by"),
        ("from=yesterday", "from"),
        ("to=2026-13-01", "to"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("by=day&cursor=x", "cursor"),
    ] {
        let refused = http::get_as(&server.address, &format!("/api/usage?{query}"), OPERATOR).await;
        assert_eq!(
            (refused.status, &refused.json()["details"]["field"]),
            (400, &json!(field)),
            "{query}: {}",
            refused.body
        );
    }
    assert_eq!(http::get_as(&server.address, "/api/usage", ANN).await.status, 401);
}

#[tokio::test]
async fn usage_is_kept_for_as_long_as_the_settings_say() {
    let folder = tempfile::tempdir().unwrap();
    filled(folder.path(), 3).await;
    let operators = format!("ops:{OPERATOR}");
    let server = Binary::start(folder.path(), &[("OPERATOR_TOKENS", operators.as_str())]).await;
    // A server looks for old rows when it starts.
    let none = async {
        while !usage(&server, "by=total").await.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), none).await.expect("they are removed");
    server.stop().await;
    let store = SqliteStore::open(&folder.path().join("data/reseed.db")).unwrap();
    let query = UsageQuery { by: UsageBy::Total, limit: 1, ..UsageQuery::default() };
    assert!(store.usage_sums(query).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn an_unknown_parameter_is_refused_by_name_at_every_address() {
    let folder = tempfile::tempdir().unwrap();
    let (operators, services) = (format!("ops:{OPERATOR}"), format!("shop:{BOB}"));
    let tokens = format!("ann:{ANN}");
    let settings =
        [("OPERATOR_TOKENS", operators.as_str()), ("SERVICE_TOKENS", &services), ("AUTH_TOKENS", tokens.as_str())];
    let server = Binary::start(folder.path(), &settings).await;
    let (client, of_ann) = session(&server, ANN, json!({})).await;
    let id = of_ann.as_str().unwrap();
    for (method, path, token) in [
        ("GET", "/api/sessions".to_owned(), OPERATOR),
        ("GET", format!("/api/sessions/{id}/context"), OPERATOR),
        ("GET", format!("/api/sessions/{id}/tree"), OPERATOR),
        ("GET", "/api/usage".to_owned(), OPERATOR),
        ("GET", "/api/budgets".to_owned(), OPERATOR),
        ("GET", "/api/nodes".to_owned(), OPERATOR),
        ("GET", "/api/mcp".to_owned(), OPERATOR),
        ("POST", "/api/tickets".to_owned(), ANN),
        ("DELETE", "/api/tickets/0123456789abcdef".to_owned(), BOB),
        ("DELETE", "/api/principals/ann".to_owned(), BOB),
    ] {
        let bearer = format!("Bearer {token}");
        let path = format!("{path}?colour=blue");
        let refused = http::ask(&server.address, method, &path, &[("Authorization", &bearer)]).await;
        assert_eq!(refused.status, 400, "{method} {path}: {}", refused.body);
        assert_eq!(refused.json()["code"], "invalid_field", "{path}");
        assert!(refused.json()["message"].as_str().unwrap().contains("`colour`"), "{}", refused.body);
    }
    // What is known holds.
    for (owner, expected) in [("ann", 1), ("bob", 0), ("", 0)] {
        let path = format!("/api/sessions?owner={owner}");
        let listed = http::get_as(&server.address, &path, OPERATOR).await.json();
        assert_eq!(present(&listed["items"]).as_array().unwrap().len(), expected, "{owner}");
    }
    client.hang_up();
}
