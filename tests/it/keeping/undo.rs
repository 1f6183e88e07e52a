//! `undo_compaction`: the old context comes back, with everything said since.

use super::{Talk, saying};
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::{
    json::{present, whole},
    talk::{summary, talker, text_of},
};
use reseed::core::model::Purpose;
use serde_json::{Value, json};

async fn filled(from: u32) -> Talk {
    let mut talk = Talk::with(talker(60)).await;
    say(&mut talk, from..from + 4).await;
    talk
}

async fn say(talk: &mut Talk, numbers: std::ops::Range<u32>) {
    for number in numbers {
        talk.say(&format!("FACT {number}: the ship has {number} decks\n")).await;
    }
}

/// Returns the messages of the newest entries of the path, as a request sends them.
async fn newest(talk: &mut Talk, count: usize) -> Vec<Value> {
    let messages = talk.messages().await;
    messages[messages.len() - count..].to_vec()
}

#[tokio::test]
async fn the_old_context_comes_back_word_for_word_with_what_was_said_since() {
    let mut talk = filled(1).await;
    let old = talk.messages().await;
    let compacted = talk.compact(json!({})).await;
    say(&mut talk, 8..10).await;
    let since = newest(&mut talk, 4).await;
    let (entries, tokens) = (talk.path().await.len(), talk.info().await["tokenCount"].clone());

    let undone = talk.undo(json!({ "entryId": compacted["entryId"] })).await;
    let expected = [old, since].concat();
    assert_eq!(talk.messages().await, expected);
    assert_eq!(*present(&undone["entryId"]), compacted["entryId"]);
    let info = talk.info().await;
    assert_eq!(undone["contextInfo"], info, "what the event says of the context is what it is from then on");
    assert!(whole(&info["tokenCount"]) > whole(&tokens), "{info}");
    assert_eq!(*present(&undone["generation"]), info["generation"]);
    assert_eq!(info["breaker"]["reason"], "undone", "{info}");
    assert_eq!(talk.path().await.len(), entries, "nothing is deleted and nothing is added");

    // That is what the model receives next.
    talk.say("And now?").await;
    let sent = talk.model.requests().pop().unwrap();
    let sent: Vec<Value> =
        sent.messages().map(|message| serde_json::to_value(message).unwrap()).take(expected.len()).collect();
    assert_eq!(sent, expected);

    // This also holds in another process, which read everything from the store.
    let before = talk.context().await;
    let opened = talk.restart().await;
    assert_eq!(talk.context().await, before);
    assert_eq!(opened["undone"], json!([compacted["entryId"]]));
    assert_eq!(talk.refused("undo_compaction", json!({})).await.0, "nothing_to_undo");
}

#[tokio::test]
async fn several_are_taken_back_newest_first_also_after_a_restart() {
    let mut talk = filled(1).await;
    let whole = talk.messages().await;
    let first = talk.compact(json!({})).await["entryId"].clone();
    say(&mut talk, 5..9).await;
    let middle = talk.messages().await;
    let said = newest(&mut talk, 8).await;
    let second = talk.compact(json!({})).await["entryId"].clone();
    say(&mut talk, 9..10).await;
    let last = newest(&mut talk, 2).await;

    talk.restart().await;
    let (code, message) = talk.refused("undo_compaction", json!({ "entryId": first })).await;
    assert_eq!(code, "nothing_to_undo");
    assert!(message.contains(second.as_str().unwrap()), "it says which: {message}");
    talk.undo(json!({})).await;
    assert_eq!(talk.messages().await, [middle, last.clone()].concat());
    talk.restart().await;
    assert_eq!(talk.undo(json!({})).await["entryId"], *present(&first));
    assert_eq!(talk.messages().await, [whole, said, last].concat());
    assert_eq!(talk.refused("undo_compaction", json!({})).await.0, "nothing_to_undo");

    // It can be compacted again from the restored context.
    let again = talk.compact(json!({})).await;
    let opened = talk.restart().await;
    assert_eq!(opened["undone"], json!([second, first]));
    assert_eq!(talk.messages().await[0]["entryId"], *present(&again["entryId"]));
    talk.undo(json!({})).await;
    assert_eq!(saying(&talk.messages().await, "FACT"), 9 + 9 - 9, "each question once");
}

#[tokio::test]
async fn a_busy_session_refuses_an_undo() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = Scripted::answering(move |request| match request.purpose {
        Purpose::Summary => Reply::text(summary(&["none"])),
        Purpose::Turn if text_of(request).contains("Wait here") => Reply::text("Done.").held_by(&held),
        Purpose::Turn => Reply::text("Yes."),
    });
    let mut talk = Talk::with(model).await;
    say(&mut talk, 1..5).await;
    talk.compact(json!({})).await;
    talk.client.ask("user_input", json!({ "input": "Wait here" })).await;
    assert_eq!(talk.refused("undo_compaction", json!({})).await.0, "turn_running");
    gate.open();
    talk.client.event("turn_finished").await;
    talk.undo(json!({})).await;
}

#[tokio::test]
async fn a_fork_has_what_was_undone_and_pinned() {
    let mut talk = filled(1).await;
    talk.compact(json!({})).await;
    let pinned = talk.entry("FACT 1").await;
    talk.ok("pin_entry", json!({ "entryId": pinned })).await;
    say(&mut talk, 5..9).await;
    let second = talk.compact(json!({})).await["entryId"].clone();
    talk.undo(json!({})).await;
    let messages = talk.messages().await;
    assert_eq!(saying(&messages[1..], "FACT 1:"), 1, "{messages:#?}");
    let leaf = talk.path().await.last().unwrap()["entryId"].clone();
    let forked = talk.client.ask("fork_session", json!({ "entryId": leaf, "position": "at" })).await;
    assert_eq!(forked["type"], "forked", "{forked}");
    talk.session = forked["payload"]["sessionId"].as_str().unwrap().to_owned();
    let opened = talk.restart().await;
    assert_eq!(talk.messages().await, messages);
    assert_eq!((&opened["undone"], &opened["pins"][0]["entryId"]), (&json!([second]), &json!(pinned)));
    talk.undo(json!({})).await;
    assert_eq!(saying(&talk.messages().await, "FACT"), 8);
}
