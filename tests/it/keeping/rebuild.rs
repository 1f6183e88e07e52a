//! `rebuild: true`: a summary from the original messages.

use super::{Talk, saying};
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    json::present,
    talk::{facts, summary, text_of, words},
};
use reseed::core::{compaction::summary::read_prompt, model::Purpose};
use serde_json::json;

/// A model that keeps the facts only when it is asked to.
fn careless() -> Scripted {
    Scripted::answering(|request| match request.purpose {
        Purpose::Summary => {
            let text = text_of(request);
            let careful = read_prompt(&text).is_some_and(|prompt| prompt.instructions.is_some());
            Reply::text(if careful { summary(&facts(&text)) } else { summary(&["the weather was fine"]) })
        }
        Purpose::Turn => Reply::text(words(3, 60)),
    })
}

async fn compacted_twice() -> Talk {
    let mut talk = Talk::with(careless()).await;
    for round in 0..2 {
        for number in 1..=4 {
            talk.say(&format!("FACT {round}{number}: the deck is painted\n")).await;
        }
        talk.compact(json!({})).await;
    }
    talk
}

#[tokio::test]
async fn the_summary_is_made_anew_from_what_was_said() {
    let mut talk = compacted_twice().await;
    let before = talk.messages().await;
    assert!(before[0].to_string().contains("the weather was fine"));
    let ask = json!({ "rebuild": true, "instructions": "the decks" });
    let preview = talk.preview(ask.clone()).await;
    assert_eq!(talk.messages().await, before, "a preview changes nothing");
    let requests = talk.model.requests();
    let prompt = read_prompt(&text_of(requests.last().unwrap())).unwrap();
    assert_eq!(prompt.previous, None, "the summary there is does not go in");
    let quoted: String = prompt.messages.iter().map(|message| message.text() + "\n").collect();
    assert!(!quoted.contains("the weather was fine"), "{quoted}");
    let kept: Vec<String> =
        facts(&before[1..].iter().map(|message| message.to_string().replace("\\n", "\n") + "\n").collect::<String>());
    let read = facts(&quoted);
    assert_eq!(read.len() + kept.len(), 8, "each is read or kept: {read:?}, {kept:?}");
    assert!(read.windows(2).all(|pair| pair[0] < pair[1]), "in order: {read:?}");
    for fact in &read {
        assert!(preview["summary"].as_str().unwrap().contains(fact.as_str()), "{preview}");
    }
    talk.compact(json!({ "previewId": preview["previewId"] })).await;
    let after = talk.messages().await;
    assert_eq!(after[1..], before[1..], "what was kept stays");
    assert!(!after[0].to_string().contains("the weather was fine") && after[0].to_string().contains("FACT 01"));

    // And without a preview.
    talk.say("And on.").await;
    talk.compact(ask).await;
    assert!(talk.messages().await[0].to_string().contains("FACT 01"));
    let again = talk.messages().await;
    talk.restart().await;
    assert_eq!(talk.messages().await, again);
}

#[tokio::test]
async fn without_a_compaction_there_is_nothing_to_make_anew() {
    let mut talk = Talk::with(careless()).await;
    talk.client.turn("Hello").await;
    assert_eq!(talk.refused("start_compaction", json!({ "rebuild": true })).await.0, "nothing_to_compact");
}

#[tokio::test]
async fn a_summary_is_made_anew_after_the_answer_that_is_on_its_way() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = Scripted::answering(move |request| match request.purpose {
        Purpose::Summary => {
            let text = text_of(request);
            let careful = read_prompt(&text).is_some_and(|prompt| prompt.instructions.is_some());
            Reply::text(if careful { summary(&facts(&text)) } else { summary(&["the weather was fine"]) })
        }
        Purpose::Turn if text_of(request).contains("Wait here") => Reply::text("FACT 99: done").held_by(&held),
        Purpose::Turn => Reply::text(words(3, 60)),
    });
    let mut talk = Talk::with(model).await;
    for number in 1..=4 {
        talk.say(&format!("FACT {number}: the deck is painted\n")).await;
    }
    talk.compact(json!({})).await;
    talk.client.ask("user_input", json!({ "input": "Wait here" })).await;
    talk.ok("start_compaction", json!({ "rebuild": true, "instructions": "the decks" })).await;
    gate.open();
    let compacted =
        talk.client.until(|frame| frame["type"] == "context_compacted" && frame["payload"]["generation"] != 2);
    let compacted = compacted.await["payload"].clone();
    let messages = talk.messages().await;
    assert_eq!(*present(&messages[0]["entryId"]), compacted["entryId"]);
    assert!(messages[0].to_string().contains("FACT 1:"), "{messages:#?}");
    assert_eq!(saying(&messages, "FACT 99"), 1, "{messages:#?}");
    assert!(!messages[0].to_string().contains("the weather was fine"));
}
