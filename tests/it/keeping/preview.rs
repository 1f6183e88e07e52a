//! `preview_compaction`, then `start_compaction { previewId }`.

use super::{Talk, saying};
use crate::support::scripted::Reply;
use crate::support::{
    client::Client,
    json::{present, whole},
    talk::{summary, talker},
};
use reseed::core::model::ModelFault;
use reseed_protocol::ErrorCode;
use serde_json::json;

async fn filled() -> Talk {
    let mut talk = Talk::with(talker(60)).await;
    for number in 1..=5 {
        talk.say(&format!("FACT {number}: the ship has {number} decks\n")).await;
    }
    talk
}

#[tokio::test]
async fn a_preview_changes_nothing_and_is_applied_as_it_was_shown() {
    let mut talk = filled().await;
    let before = (talk.context().await, talk.info().await, talk.path().await);
    // It reports its usage, so there is a cost to compare.
    talk.model.push(Reply::text(summary(&["FACT 1: the ship has 1 decks"])).usage(900, 30));
    let preview = talk.preview(json!({ "instructions": "the decks" })).await;
    assert_eq!((talk.context().await, talk.info().await, talk.path().await), before, "a preview changes nothing");
    assert_eq!(talk.summaries(), 1);
    assert_eq!(*present(&preview["tokensBefore"]), before.1["tokenCount"]);
    assert!(whole(&preview["tokensAfter"]) < whole(&preview["tokensBefore"]), "{preview}");
    let count = |name: &str| preview[name]["count"].as_u64().unwrap();
    assert_eq!(json!(count("dropped") + count("kept")), before.1["transcriptLength"]);
    assert_eq!(*present(&preview["dropped"]["from"]), before.2[0]["entryId"]);
    assert_eq!(*present(&preview["kept"]["to"]), before.2.last().unwrap()["entryId"]);
    assert!(preview["summary"].as_str().unwrap().contains("FACT 1"), "{preview}");

    let applied = talk.compact(json!({ "previewId": preview["previewId"] })).await;
    assert_eq!(talk.summaries(), 1, "the model is not asked again");
    for (shown, done) in [
        ("previewId", "jobId"),
        ("summary", "summary"),
        ("firstKeptEntryId", "firstKeptEntryId"),
        ("keptEntryIds", "keptEntryIds"),
        ("tokensBefore", "tokensBefore"),
        ("tokensAfter", "tokensAfter"),
        ("rung", "rung"),
        ("summaryUsage", "summaryUsage"),
    ] {
        let there = preview.get(shown).unwrap_or_else(|| panic!("`{shown}` is absent from {preview}"));
        assert_eq!(*there, applied[done], "{shown}");
    }
    let failed = [&preview, &applied].map(|told| told.get("failedRungs"));
    assert_eq!(failed, [None, None], "the first step was the last");
    assert_eq!(applied["pausedMs"], 0);
    assert_eq!(talk.info().await["tokenCount"], *present(&preview["tokensAfter"]));
    let (code, _) = talk.refused("start_compaction", json!({ "previewId": preview["previewId"] })).await;
    assert_eq!(code, "preview_not_found", "it is applied once");
}

#[tokio::test]
async fn where_the_model_fails_a_preview_takes_the_next_step_as_the_compaction_does() {
    for code in [ErrorCode::UpstreamError, ErrorCode::UpstreamRateLimited, ErrorCode::ContentFiltered] {
        let mut talk = filled().await;
        // If the provider filters an answer, it is requested once more.
        let times = if code == ErrorCode::ContentFiltered { 2 } else { 1 };
        let fail =
            |talk: &Talk| (0..times).for_each(|_| talk.model.push(Reply::fault(ModelFault::new(code, "it broke"))));
        fail(&talk);
        let preview = talk.preview(json!({})).await;
        fail(&talk);
        let made = talk.compact(json!({})).await;
        assert_eq!(preview["rung"], "extract", "{code}: {preview}");
        for field in ["rung", "failedRungs", "summary", "tokensBefore", "tokensAfter", "keptEntryIds"] {
            assert_eq!(*present(&preview[field]), made[field], "{code}: {field}");
        }
    }
}

#[tokio::test]
async fn what_was_said_since_a_preview_is_kept() {
    let mut talk = filled().await;
    let preview = talk.preview(json!({})).await;
    talk.say("FACT 9: said since\n").await;
    let pinned = talk.entry("FACT 2").await;
    talk.ok("pin_entry", json!({ "entryId": pinned })).await;
    let applied = talk.compact(json!({ "previewId": preview["previewId"] })).await;
    assert_eq!(*present(&applied["summary"]), preview["summary"]);
    let messages = talk.messages().await;
    assert_eq!(saying(&messages[1..], "FACT 9"), 1, "{messages:#?}");
    assert_eq!(saying(&messages[1..], "FACT 2"), 1, "what was pinned since stays too: {messages:#?}");
}

#[tokio::test]
async fn a_preview_that_does_not_hold_any_more_is_refused() {
    let mut talk = filled().await;
    let (code, message) = talk.refused("start_compaction", json!({ "previewId": "nosuchpreview" })).await;
    assert!(code == "preview_not_found" && message.contains("nosuchpreview"), "{message}");

    // A new preview replaces it.
    let first = talk.preview(json!({})).await["previewId"].clone();
    let second = talk.preview(json!({})).await["previewId"].clone();
    assert_eq!(talk.refused("start_compaction", json!({ "previewId": first })).await.0, "preview_not_found");

    // It is applied as it was shown, or not at all.
    let (code, message) = talk.refused("start_compaction", json!({ "previewId": second, "rebuild": true })).await;
    assert!(code == "invalid_field" && message.contains("rebuild"), "{message}");

    // This is another branch, which lacks some of what the summary covers.
    let old = talk.path().await[1]["entryId"].clone();
    let moved = talk.client.ask("navigate", json!({ "entryId": old })).await;
    assert_eq!(moved["type"], "navigated", "{moved}");
    let before = talk.context().await;
    assert_eq!(talk.refused("start_compaction", json!({ "previewId": second })).await.0, "history_moved");
    assert_eq!(talk.context().await, before);

    // Another compaction, and an undo.
    let mut talk = filled().await;
    let preview = talk.preview(json!({})).await["previewId"].clone();
    talk.compact(json!({})).await;
    assert_eq!(talk.refused("start_compaction", json!({ "previewId": preview })).await.0, "history_moved");
    talk.say("And on.").await;
    let preview = talk.preview(json!({})).await["previewId"].clone();
    talk.undo(json!({})).await;
    assert_eq!(talk.refused("start_compaction", json!({ "previewId": preview })).await.0, "history_moved");

    // It does not survive a restart of the server.
    let preview = talk.preview(json!({})).await["previewId"].clone();
    talk.restart().await;
    assert_eq!(talk.refused("start_compaction", json!({ "previewId": preview })).await.0, "preview_not_found");
}

#[tokio::test]
async fn where_there_is_nothing_to_gain_a_preview_says_so() {
    let mut talk = Talk::with(talker(5)).await;
    talk.client.turn("Hello").await;
    assert_eq!(talk.refused("preview_compaction", json!({})).await.0, "nothing_to_compact");
    let (code, message) = talk.refused("preview_compaction", json!({ "strategy": "magic" })).await;
    assert!(code == "unknown_strategy" && message.contains("magic"), "{message}");
    assert_eq!(talk.model.requests().len(), 1, "the model was asked for the turn alone");
}

#[tokio::test]
async fn observers_may_not_decide_and_v1_knows_nothing_of_it() {
    let mut talk = filled().await;
    let entry = talk.entry("FACT 1").await;
    let mut observer = Client::v2(&talk.server.ws()).await;
    let join = json!({ "sessionId": talk.session, "role": "observer" });
    assert_eq!(observer.ask("open_session", join).await["type"], "session_opened");
    for (command, payload) in [
        ("preview_compaction", json!({})),
        ("undo_compaction", json!({})),
        ("pin_entry", json!({ "entryId": entry })),
        ("unpin_entry", json!({ "entryId": entry })),
    ] {
        let reply = observer.ask(command, payload).await;
        assert_eq!(reply["payload"]["code"], "read_only", "{command}: {reply}");
    }
    assert_eq!(talk.summaries(), 0);

    let mut old = Client::connect(&talk.server.ws()).await;
    for command in ["preview_compaction", "undo_compaction", "pin_entry", "unpin_entry"] {
        old.send(command, json!({})).await;
        let told = old.event("error").await;
        assert_eq!(told["payload"]["details"]["code"], "unknown_command", "{command}: {told}");
    }
    old.send("user_input", json!({ "input": [{ "type": "message", "role": "user", "content": "Still there?" }] }))
        .await;
    old.event("agent_finished").await;
}
