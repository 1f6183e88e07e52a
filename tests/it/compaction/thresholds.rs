//! The ends of the threshold's range: 0 neither loops nor forgets, 1 does not overflow.

use super::session;
use crate::support::scripted::{Reply, Scripted};
use crate::support::{
    client::Client,
    json::whole,
    server::Server,
    talk::{facts, is_summary, reply_to, summaries, summary, text_of, words},
    upstream::{Setup, Upstream},
};
use reseed::{core::model::Purpose, store::memory::MemoryStore};
use serde_json::json;
use std::sync::Arc;

/// A model that summarises by keeping facts and some words of its own, as models do.
fn wordy() -> Scripted {
    let mut number = 0;
    Scripted::answering(move |request| {
        number += 1;
        Reply::text(match request.purpose {
            Purpose::Turn => words(1_000 + number, 30),
            Purpose::Summary => summary(&[facts(&text_of(request)), vec![words(number, 40)]].concat()),
        })
    })
}

#[tokio::test]
async fn a_threshold_of_0_compacts_only_where_it_gains_and_forgets_nothing() {
    let model = wordy();
    let (_server, mut client) =
        session(&model, &[("CONTEXT_COMPACTION_THRESHOLD", "0"), ("CONTEXT_WINDOW", "8000")]).await;
    let turns = 25;
    for turn in 0..turns {
        let said = if turn == 0 { "FACT The ship is called Aurora.".to_owned() } else { words(turn, 20) };
        let finished = client.turn(&said).await;
        assert_eq!(finished["status"], "completed", "{finished}");
        let info = &finished["contextInfo"];
        assert_eq!((&info["compactAtTokens"], &info["compactAtRule"]), (&json!(0), &json!("threshold")), "{info}");
    }
    let compacted: Vec<_> = client.seen.iter().filter(|frame| frame["type"] == "context_compacted").collect();
    let forgets = compacted.iter().find(|frame| !frame["payload"]["summary"].to_string().contains("Aurora"));
    assert!(forgets.is_none(), "it was forgotten by {:#}", forgets.unwrap());
    assert!(text_of(model.requests().last().unwrap()).contains("FACT The ship is called Aurora."), "it was forgotten");
    assert!(!compacted.is_empty(), "it is above 0 all the time");
    for frame in &compacted {
        let count = |name: &str| frame["payload"][name].as_u64().unwrap();
        let (before, after) = (count("tokensBefore"), count("tokensAfter"));
        assert!(after + before / 20 <= before, "it saves less than the least gain: {frame}");
    }
    // A request for a summary at every turn, needed or not, would be a loop.
    let asked = summaries(&model.requests());
    assert!(asked <= turns as usize, "{asked} summaries in {turns} turns, {} of them used", compacted.len());
}

#[tokio::test]
async fn where_nothing_can_be_gained_a_threshold_of_0_rests() {
    // Summaries as long as the conversation gain nothing.
    let model = Scripted::answering(|request| match request.purpose {
        // The answers are short, so that there is little to gain.
        Purpose::Turn => Reply::text("Yes."),
        Purpose::Summary => Reply::text(summary(&[words(7, 600)])),
    });
    let settings = [("CONTEXT_COMPACTION_THRESHOLD", "0"), ("CONTEXT_WINDOW", "8000"), ("strategy.minGain", "0.9")];
    let (_server, mut client) = session(&model, &settings).await;
    for turn in 0..30 {
        assert_eq!(client.turn(&words(turn, 4)).await["status"], "completed");
    }
    let info = client.ask("get_context_info", json!({})).await["payload"].clone();
    let asked = summaries(&model.requests());
    assert!(asked <= 6, "{asked} summaries in 30 turns that gained nothing; {info}");
    assert_eq!(client.seen.iter().filter(|frame| frame["type"] == "context_compacted").count(), 0);
}

#[tokio::test]
async fn a_threshold_of_1_fits_into_windows_of_every_size_and_both_dialects() {
    for (window, said, api) in [
        (1_000, 12, "chat"),
        (2_000, 25, "responses"),
        (8_000, 120, "chat"),
        (8_000, 120, "responses"),
        (40_000, 600, "chat"),
        (128_000, 2_000, "responses"),
    ] {
        let mut number = 0;
        let setup = Setup { window_tokens: Some(window), ..Setup::default() };
        let upstream = Upstream::start_with(setup, move |asked| {
            number += 1;
            if is_summary(asked) { reply_to(asked, number, 0) } else { reply_to(asked, number, said / 2) }
        })
        .await;
        let (base_url, window_text) = (upstream.base_url(), window.to_string());
        let settings = reseed::config::Settings::from_iter([
            ("WS_PORT", "0"),
            ("OPENAI_BASE_URL", base_url.as_str()),
            ("OPENAI_API", api),
            ("MODEL", "test"),
            ("CONTEXT_WINDOW", window_text.as_str()),
            ("CONTEXT_COMPACTION_THRESHOLD", "1"),
        ])
        .unwrap();
        let provider = reseed::service::provider(&settings).unwrap();
        let server = Server::of(&settings, provider, Arc::new(MemoryStore::new())).await;
        let (mut client, opened) = Client::v2_session(&server.ws()).await;
        assert_eq!(opened["contextInfo"]["compactAtRule"], "answer_room", "{opened}");
        let trigger = opened["contextInfo"]["compactAtTokens"].as_u64().unwrap();
        let mut highest = 0;
        for turn in 0..200 {
            let finished = client.turn(&words(turn, said)).await;
            assert_eq!(finished["status"], "completed", "{window} {api}: {finished}");
            let info = &finished["contextInfo"];
            highest = highest.max(info["tokenCount"].as_u64().unwrap());
            if whole(&info["compactions"]) >= 2 {
                break;
            }
            assert!(turn < 199, "{window} {api}: it was never compacted twice, {highest} of {trigger}");
        }
        assert_eq!(upstream.refused(), 0, "{window} {api}: a request did not fit");
        assert!(highest > trigger / 10 * 7, "{window} {api}: compacted at {highest} of {trigger} already");
        upstream.assert_clean();
    }
}
