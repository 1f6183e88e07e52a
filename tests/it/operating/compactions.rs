//! What operators see of compactions: metrics, the list of sessions, and the log, of the real binary over a scripted
//! upstream server.

use super::{folder, samples};
use crate::support::scripted::Gate;
use crate::support::{
    binary::{Binary, LOG},
    client::Client,
    http,
    json::{present, whole},
    talk::{is_summary, reply_to, words},
    upstream::{Reply, Upstream},
};
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    fs,
    sync::{Arc, Mutex},
};

/// Tokens that make a compaction worthwhile in a window of 2,000.
const WORTH_TOKENS: u64 = 1_000;

async fn fill(client: &mut Client) {
    for number in 0..40 {
        let finished = client.turn(&words(number, 100)).await;
        assert_eq!(finished["status"], "completed", "{finished}");
        if whole(&finished["contextInfo"]["tokenCount"]) >= WORTH_TOKENS {
            return;
        }
    }
    panic!("forty turns did not come to {WORTH_TOKENS} tokens");
}

/// Orders a compaction and returns how it ended.
async fn compact(client: &mut Client, payload: Value) -> Value {
    let ordered = client.ask("start_compaction", payload).await;
    assert_eq!(ordered["type"], "ok", "{ordered}");
    client.event("context_compacted").await["payload"].clone()
}

#[tokio::test]
async fn compactions_of_every_outcome_are_counted_listed_and_logged() {
    // The answers to the next summary requests; if none is queued, a correct one.
    let unusual: Arc<Mutex<VecDeque<Reply>>> = Arc::default();
    let (next, mut number) = (unusual.clone(), 0);
    let model = Upstream::start(move |asked| {
        number += 1;
        let unusual = is_summary(asked).then(|| next.lock().unwrap().pop_front()).flatten();
        unusual.unwrap_or_else(|| reply_to(asked, number, 40))
    })
    .await;
    let base_url = model.base_url();
    let folder = folder();
    let settings = [
        ("OPENAI_BASE_URL", base_url.as_str()),
        ("MODEL", "test"),
        ("CONTEXT_WINDOW", "2000"),
        ("strategy.background", "1"),
        ("strategy.userShare", "0"),
        ("LOG_FORMAT", "json"),
    ];
    let server = Binary::start(folder.path(), &settings).await;
    let (mut client, opened) = Client::v2_session(&server.ws()).await;

    fill(&mut client).await;
    assert_eq!(compact(&mut client, json!({})).await["rung"], "model_summary");

    fill(&mut client).await;
    unusual.lock().unwrap().extend([Reply::text(""), Reply::text("")]);
    assert_eq!(compact(&mut client, json!({})).await["rung"], "extract");

    // One compaction is cancelled, and one is superseded.
    for (stop, payload) in [("cancel_compaction", json!({})), ("set_context_strategy", json!({ "strategy": "manual" }))]
    {
        fill(&mut client).await;
        let asked = model.requests().len();
        unusual.lock().unwrap().push_back(Reply::text("late").held_by(&Gate::new()));
        client.ask("start_compaction", json!({})).await;
        model.wait_for_requests(asked + 1).await;
        assert_eq!(client.ask(stop, payload).await["type"], "ok", "{stop}");
        client.event("compaction_failed").await;
    }

    let preview = client.ask("preview_compaction", json!({})).await["payload"].clone();
    assert_eq!(preview["rung"], "model_summary", "{preview}");
    let applied = compact(&mut client, json!({ "previewId": preview["previewId"] })).await;
    client.ask("undo_compaction", json!({})).await;
    client.event("compaction_undone").await;

    let samples_now = samples(&server.address).await;
    let ended = |rung: &str, outcome: &str| {
        format!(r#"reseed_compactions_total{{trigger="manual",rung="{rung}",outcome="{outcome}",mode="foreground"}}"#)
    };
    let table = [
        (ended("model_summary", "committed"), Some(2.0)),
        (ended("extract", "committed"), Some(1.0)),
        (ended("none", "cancelled"), Some(1.0)),
        (ended("none", "void"), Some(1.0)),
        (r#"reseed_compaction_rungs_failed_total{rung="model_summary",reason="empty"}"#.to_owned(), Some(2.0)),
        ("reseed_compaction_reduction_ratio_count".to_owned(), Some(3.0)),
        ("reseed_compaction_paused_seconds_count".to_owned(), Some(5.0)),
        (r#"reseed_compaction_duration_seconds_count{mode="foreground"}"#.to_owned(), Some(5.0)),
        ("reseed_compaction_tokens_saved_total".to_owned(), None),
        (r#"reseed_tokens_total{purpose="summary",model="test",kind="input"}"#.to_owned(), None),
        (r#"reseed_compaction_previews_total{outcome="shown"}"#.to_owned(), Some(1.0)),
        (r#"reseed_compaction_previews_total{outcome="applied"}"#.to_owned(), Some(1.0)),
        ("reseed_compactions_undone_total".to_owned(), Some(1.0)),
        (r#"reseed_breakers_open{reason="undone"}"#.to_owned(), Some(1.0)),
    ];
    for (name, expected) in table {
        let value = samples_now.get(&name).copied().unwrap_or(0.0);
        assert!(expected.map_or(value > 0.0, |expected| (value - expected).abs() < 0.5), "{name} is {value}");
    }

    let path = format!("/api/sessions/{}/requests", opened["sessionId"].as_str().unwrap());
    let requests = http::get(&server.address, &path).await.json();
    let mut made = requests["items"].as_array().unwrap().iter().filter(|item| item["type"] == "compaction");
    let failed =
        json!([{ "rung": "model_summary", "reason": "empty" }, { "rung": "model_summary", "reason": "empty" }]);
    assert!(made.any(|made| made["rung"] == "extract" && made["failedRungs"] == failed), "{requests}");
    let listed = http::get(&server.address, "/api/sessions").await.json()["items"][0]["compaction"].clone();
    assert_eq!((&listed["count"], &listed["rests"]), (&json!(3), &json!("undone")), "{listed}");
    let last = &listed["last"];
    assert_eq!(
        (&last["outcome"], &last["trigger"], &last["rung"], &last["reductionPercent"]),
        (&json!("committed"), &json!("manual"), present(&applied["rung"]), present(&applied["reductionPercent"])),
        "{listed}"
    );

    // A deleted session is no longer counted there.
    client.ask("delete_session", json!({ "sessionId": opened["sessionId"] })).await;
    let left = async {
        while samples(&server.address).await[r#"reseed_breakers_open{reason="undone"}"#] > 0.0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), left).await.expect("it is counted for ever");
    assert_eq!(http::get(&server.address, "/api/sessions").await.json()["items"], json!([]));

    server.stop().await;
    let log = fs::read_to_string(folder.path().join(LOG)).unwrap();
    assert!(!log.contains("lovely") && !log.contains(&words(1, 5)), "{log}");
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let lines: Vec<Value> = lines.filter(|line| line["target"] == "reseed::compaction").collect();
    assert!(lines.iter().all(|line| line["session"] == *present(&opened["sessionId"])), "{lines:#?}");
    let ends: Vec<(&str, &str, &str)> = lines
        .iter()
        .filter(|line| line["message"] == "compaction ended")
        .map(|line| {
            let word = |field: &str| line[field].as_str().unwrap_or_default();
            (word("outcome"), word("rung"), word("failed"))
        })
        .collect();
    let expected = [
        ("committed", "model_summary", ""),
        ("committed", "extract", "model_summary:empty,model_summary:empty"),
        ("cancelled", "", ""),
        ("void", "", ""),
        ("committed", "model_summary", ""),
    ];
    assert_eq!(ends, expected, "{lines:#?}");
    model.assert_clean();
}

/// Starts a server on this model, with a window of 2,000 tokens and the defaults, and these settings.
async fn small(folder: &std::path::Path, base_url: &str, more: &[(&str, &str)]) -> Binary {
    // Without the user's own words a compaction in this small window saves most of what it replaces.
    let settings =
        [("OPENAI_BASE_URL", base_url), ("MODEL", "test"), ("CONTEXT_WINDOW", "2000"), ("strategy.userShare", "0")];
    Binary::start(folder, &[&settings[..], more].concat()).await
}

#[tokio::test]
async fn how_far_from_the_trigger_compactions_happen_is_told_of_automatic_ones() {
    let mut number = 0;
    let model = Upstream::start(move |asked| {
        number += 1;
        reply_to(asked, number, 40)
    })
    .await;
    let folder = folder();
    let server = small(folder.path(), &model.base_url(), &[]).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    fill(&mut client).await;
    compact(&mut client, json!({})).await;
    assert_eq!(samples(&server.address).await["reseed_compaction_trigger_ratio_count"], 0.0, "a person chose when");
    let (mut ratios, mut seen) = (Vec::new(), client.seen.len());
    for turn in 100..140 {
        client.turn(&words(turn, 100)).await;
        for compacted in client.seen[seen..].iter().filter(|frame| frame["type"] == "context_compacted") {
            let told = &compacted["payload"];
            #[expect(clippy::cast_precision_loss, reason = "tokens of a small window")]
            ratios.push(whole(&told["tokensBefore"]) as f64 / whole(&told["compactAtTokens"]) as f64);
        }
        seen = client.seen.len();
        if ratios.len() == 2 {
            break;
        }
    }
    assert_eq!(ratios.len(), 2, "forty turns did not fill the window twice");
    assert!(ratios.iter().all(|ratio| *ratio > 1.0), "committed above the trigger: {ratios:?}");
    let told = samples(&server.address).await;
    let (sum, count) = (told["reseed_compaction_trigger_ratio_sum"], told["reseed_compaction_trigger_ratio_count"]);
    assert!((count - 2.0).abs() < f64::EPSILON && (sum - ratios.iter().sum::<f64>()).abs() < 1e-6, "{sum} {ratios:?}");
    for (name, value) in told.iter().filter(|(name, _)| name.starts_with("reseed_compaction_trigger_ratio_bucket")) {
        let bound = name.split('"').nth(1).unwrap();
        let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() };
        let expected = ratios.iter().filter(|ratio| **ratio <= bound).count();
        assert_eq!(*value as usize, expected, "{name}: {ratios:?}");
    }
    server.stop().await;
    model.assert_clean();
}

#[tokio::test]
async fn a_file_of_instructions_takes_the_place_of_the_prompt() {
    const PROMPT: &str = "Write the log of this voyage, one line a day, and name every ship.";
    const LOG: &str = "Day one: the Aurora lay in the harbour while copper and timber were weighed.";
    let mut number = 0;
    let model = Upstream::start(move |asked| {
        number += 1;
        if asked.last_user_text().contains(PROMPT) { Reply::text(LOG) } else { reply_to(asked, number, 40) }
    })
    .await;
    let folder = folder();
    fs::write(folder.path().join("prompt.txt"), format!("{PROMPT}\n")).unwrap();
    let named = [("SUMMARY_INSTRUCTIONS_FILE", "prompt.txt"), ("SUMMARY_REQUEST", "quoted")];
    let server = small(folder.path(), &model.base_url(), &named).await;
    let (mut client, _) = Client::v2_session(&server.ws()).await;
    fill(&mut client).await;
    let compacted = compact(&mut client, json!({ "instructions": "Mind the weather." })).await;
    assert_eq!((&compacted["rung"], &compacted["form"]), (&json!("model_summary"), &json!("free")), "{compacted}");
    assert!(compacted["summary"].as_str().unwrap().contains(LOG), "{compacted}");
    let asked: Vec<String> = model.requests().iter().map(|asked| asked.last_user_text()).collect();
    let asked: Vec<&String> = asked.iter().filter(|text| text.contains(PROMPT)).collect();
    let [asked] = asked.as_slice() else { panic!("it is asked once: {asked:?}") };
    assert!(asked.contains("Mind the weather."), "a person's words stand beside it: {asked}");
    assert!(!asked.contains("## Key Decisions"), "nothing is said of other headings: {asked}");
    // A client's own prompt replaces the file's.
    fill(&mut client).await;
    let replaced = json!({ "instructions": "One word.", "replaceInstructions": true });
    client.ask("preview_compaction", replaced).await;
    let last = model.requests().last().unwrap().last_user_text();
    assert!(last.contains("One word.") && !last.contains(PROMPT), "{last}");
    server.stop().await;
    model.assert_clean();

    // A missing file keeps the server from starting, and is named.
    let ended = crate::support::binary::run(folder.path(), &[], &[("SUMMARY_INSTRUCTIONS_FILE", "nothing.txt")]).await;
    assert_ne!(ended.code, Some(0));
    assert!(
        ended.faults.contains("SUMMARY_INSTRUCTIONS_FILE") && ended.faults.contains("nothing.txt"),
        "{}",
        ended.faults
    );
}
