//! `pin_entry` and `unpin_entry`.

use super::{Talk, saying};
use crate::support::scripted::{Gate, Reply, Scripted};
use crate::support::talk::{summary, text_of, words};
use reseed::core::model::Purpose;
use reseed_protocol::Part;
use serde_json::{Value, json};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// A model whose summaries forget everything.
fn forgetful() -> Scripted {
    Scripted::answering(|request| match request.purpose {
        Purpose::Summary => Reply::text(summary(&["nothing in particular"])),
        Purpose::Turn => Reply::text(words(3, 60)),
    })
}

async fn filled() -> Talk {
    let mut talk = Talk::with(forgetful()).await;
    for number in 1..=5 {
        talk.say(&format!("Question {number}:")).await;
    }
    talk
}

async fn pin(talk: &mut Talk, entry: &str) -> Vec<Value> {
    talk.ok("pin_entry", json!({ "entryId": entry })).await;
    pins_told(talk).await
}

async fn pins_told(talk: &mut Talk) -> Vec<Value> {
    let told = talk.client.until(|frame| frame["type"] == "session_updated" && frame["payload"]["pins"].is_array());
    told.await["payload"]["pins"].as_array().unwrap().clone()
}

#[tokio::test]
async fn what_is_pinned_stays_word_for_word_through_compactions_and_a_restart() {
    let mut talk = filled().await;
    let entry = talk.entry("Question 2:").await;
    let words = talk.messages().await.into_iter().find(|message| message["entryId"] == *entry).unwrap();
    assert_eq!(pin(&mut talk, &entry).await, [json!({ "entryId": entry })]);
    for round in 0..3 {
        let compacted = talk.compact(json!({})).await;
        assert!(compacted["keptEntryIds"].to_string().contains(&entry), "{compacted}");
        let messages = talk.messages().await;
        assert_eq!(messages.iter().filter(|message| **message == words).count(), 1, "round {round}: {messages:#?}");
        assert_eq!(saying(&messages, "Question 1:"), 0, "{messages:#?}");
        for number in 0..4 {
            talk.say(&format!("Round {round}, {number}:")).await;
        }
    }
    let before = talk.context().await;
    let opened = talk.restart().await;
    assert_eq!(talk.context().await, before);
    assert_eq!(opened["pins"], json!([{ "entryId": entry }]));

    // Once it is unpinned, the next compaction removes it too.
    talk.ok("unpin_entry", json!({ "entryId": entry })).await;
    assert_eq!(pins_told(&mut talk).await, [json!(null); 0]);
    talk.compact(json!({})).await;
    assert_eq!(saying(&talk.messages().await, "Question 2:"), 0);
}

#[tokio::test]
async fn an_entry_that_was_compacted_comes_back_when_it_is_pinned() {
    let mut talk = filled().await;
    let compaction = talk.compact(json!({})).await["entryId"].clone();
    talk.say("More:").await;
    let (before, entry) = (talk.messages().await, talk.entry("Question 1:").await);
    assert_eq!(saying(&before, "Question 1:"), 0);
    assert_eq!(pin(&mut talk, &entry).await, [json!({ "entryId": entry, "under": compaction })]);
    let with = talk.messages().await;
    assert_eq!((with.len(), saying(&with, "Question 1:")), (before.len() + 1, 1));
    assert_eq!(with[1]["entryId"], *entry, "between the summary and the rest");
    assert_eq!((&with[0], &with[2..]), (&before[0], &before[1..]));

    // What is read from the store equals what is in memory.
    talk.restart().await;
    assert_eq!(talk.messages().await, with);
    talk.ok("unpin_entry", json!({ "entryId": entry })).await;
    assert_eq!(talk.messages().await, before);
    talk.restart().await;
    assert_eq!(talk.messages().await, before);

    // Again, and through the next compaction, and with both undone.
    pin(&mut talk, &entry).await;
    for number in 0..4 {
        talk.say(&format!("Later {number}:")).await;
    }
    talk.compact(json!({})).await;
    assert_eq!(saying(&talk.messages().await, "Question 1:"), 1);
    talk.undo(json!({})).await;
    assert_eq!(saying(&talk.messages().await, "Question 1:"), 1);
    talk.restart().await;
    assert_eq!(saying(&talk.messages().await, "Question 1:"), 1);
    talk.undo(json!({})).await;
    let messages = talk.messages().await;
    assert_eq!((saying(&messages, "Question 1:"), saying(&messages, "Question 2:")), (1, 1));
    assert_eq!(messages[0]["entryId"], *entry);
}

#[tokio::test]
async fn a_result_is_pinned_with_its_call_and_what_else_that_answer_called() {
    let mut asked = 0;
    let model = Scripted::answering(move |request| match request.purpose {
        Purpose::Summary => Reply::text(summary(&["nothing in particular"])),
        Purpose::Turn => {
            asked += 1;
            if asked > 1 {
                return Reply::text(words(3, 60));
            }
            let call =
                |id: &str| Part::ToolCall { call_id: id.parse().unwrap(), name: "look".into(), arguments: "{}".into() };
            Reply::parts(vec![call("call_a"), call("call_b")])
        }
    });
    let mut talk = Talk::with(model).await;
    let tool = json!({ "name": "look", "description": "Looks.", "parameters": { "type": "object" } });
    talk.ok("register_tools", json!({ "tools": [tool] })).await;
    talk.client.ask("user_input", json!({ "input": "Look twice." })).await;
    for number in 0..2 {
        let call = talk.client.event("tool_call").await["payload"]["toolCallId"].clone();
        talk.ok(
            "tool_result",
            json!({ "toolCallId": call, "output": format!("Sight {number}: {}", words(number, 100)) }),
        )
        .await;
    }
    talk.client.event("turn_finished").await;
    for number in 0..4 {
        talk.say(&format!("More {number}:")).await;
    }
    let compaction = talk.compact(json!({})).await["entryId"].clone();
    assert_eq!(saying(&talk.messages().await, "Sight"), 0);
    let result = talk.entry("Sight 1:").await;
    let unit: Vec<String> = {
        let path = talk.path().await;
        path[1..4].iter().map(|entry| entry["entryId"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(unit[2], result);
    let pins = pin(&mut talk, &result).await;
    let expected: Vec<Value> = unit
        .iter()
        .map(|id| {
            let mut pin = json!({ "entryId": id, "under": compaction });
            if *id != result {
                pin["with"] = json!(result);
            }
            pin
        })
        .collect();
    assert_eq!(pins, expected);
    for round in 0..2 {
        let messages = talk.messages().await;
        let ids: Vec<&str> = messages[1..4].iter().map(|message| message["entryId"].as_str().unwrap()).collect();
        assert_eq!(ids, unit, "round {round}: {messages:#?}");
        assert_eq!(saying(&messages, "Sight"), 2);
        for number in 0..4 {
            talk.say(&format!("Round {round}, {number}:")).await;
        }
        talk.compact(json!({})).await;
    }
    // Unpinning one of them unpins all of them.
    talk.ok("unpin_entry", json!({ "entryId": unit[0] })).await;
    assert_eq!(pins_told(&mut talk).await, [json!(null); 0]);
}

#[tokio::test]
async fn what_cannot_be_pinned_is_refused_by_name() {
    let mut talk = filled().await;
    let (code, message) = talk.refused("pin_entry", json!({ "entryId": "nosuchentry" })).await;
    assert!(code == "entry_not_found" && message.contains("nosuchentry"), "{message}");
    let (code, message) = talk.refused("unpin_entry", json!({ "entryId": "nosuchentry" })).await;
    assert!(code == "entry_not_found" && message.contains("not pinned"), "{message}");
    let (left, stays) = (talk.entry("Question 5:").await, talk.entry("Question 1:").await);
    let moved = talk.client.ask("navigate", json!({ "entryId": stays })).await;
    assert_eq!(moved["type"], "navigated", "{moved}");
    let (code, message) = talk.refused("pin_entry", json!({ "entryId": left })).await;
    assert!(code == "invalid_field" && message.contains("branch"), "{message}");
    for number in 0..4 {
        talk.say(&format!("Elsewhere {number}:")).await;
    }
    let compaction = talk.compact(json!({})).await["entryId"].clone();
    let (code, message) = talk.refused("pin_entry", json!({ "entryId": compaction })).await;
    assert!(code == "invalid_field" && message.contains("compaction"), "{message}");
    let before = talk.context().await;
    assert_eq!(before, talk.context().await);
}

/// Compacts, and goes from before that to another branch with a compaction of its own. Returns an entry of both
/// branches and the end of the first one.
async fn two_branches(talk: &mut Talk) -> (String, Value) {
    let (root, entry) = (talk.entry("Question 3:").await, talk.entry("Question 1:").await);
    talk.compact(json!({})).await;
    let here = talk.path().await.last().unwrap()["entryId"].clone();
    talk.client.ask("navigate", json!({ "entryId": root })).await;
    for number in 0..4 {
        talk.say(&format!("Elsewhere {number}:")).await;
    }
    talk.compact(json!({})).await;
    talk.client.forget("session_updated");
    (entry, here)
}

#[tokio::test]
async fn a_pin_holds_on_every_branch_that_has_the_entry() {
    let mut talk = filled().await;
    let (entry, here) = two_branches(&mut talk).await;
    pin(&mut talk, &entry).await;
    assert_eq!(saying(&talk.messages().await, "Question 1:"), 1);
    let own = talk.entry("Elsewhere 0:").await;
    pin(&mut talk, &own).await;
    talk.client.ask("navigate", json!({ "entryId": here })).await;
    let messages = talk.messages().await;
    assert_eq!((saying(&messages, "Question 1:"), saying(&messages, "Elsewhere")), (1, 0), "{messages:#?}");
    talk.restart().await;
    assert_eq!(talk.messages().await, messages);
}

#[tokio::test]
async fn pins_are_set_while_a_turn_runs() {
    let gate = Gate::new();
    let held = gate.clone();
    let model = Scripted::answering(move |request| match request.purpose {
        Purpose::Summary => Reply::text(summary(&["none"])),
        Purpose::Turn if text_of(request).contains("Wait here") => Reply::text("Done.").held_by(&held),
        Purpose::Turn => Reply::text(words(3, 60)),
    });
    let mut talk = Talk::with(model).await;
    for number in 1..=5 {
        talk.say(&format!("Question {number}:")).await;
    }
    talk.compact(json!({})).await;
    let entry = talk.entry("Question 1:").await;
    talk.client.forget("session_updated");
    talk.client.ask("user_input", json!({ "input": "Wait here" })).await;
    pin(&mut talk, &entry).await;
    assert_eq!(saying(&talk.messages().await, "Question 1:"), 1);
    gate.open();
    assert_eq!(talk.client.event("turn_finished").await["payload"]["status"], "completed");
    let messages = talk.messages().await;
    assert_eq!((saying(&messages, "Question 1:"), saying(&messages, "Done.")), (1, 1), "{messages:#?}");
}

#[tokio::test]
async fn what_is_pinned_while_a_move_waits_is_seen_where_it_arrives() {
    let (gate, waits) = (Gate::new(), Arc::new(AtomicBool::new(false)));
    let (held, does_wait) = (gate.clone(), waits.clone());
    let model = Scripted::answering(move |request| match request.purpose {
        Purpose::Summary if does_wait.load(Ordering::Relaxed) => Reply::text(summary(&["a branch"])).held_by(&held),
        Purpose::Summary => Reply::text(summary(&["nothing in particular"])),
        Purpose::Turn => Reply::text(words(3, 60)),
    });
    let mut talk = Talk::with(model).await;
    for number in 1..=5 {
        talk.say(&format!("Question {number}:")).await;
    }
    let (entry, here) = two_branches(&mut talk).await;
    // The target of the move is read before the summary of the branch that is left.
    waits.store(true, Ordering::Relaxed);
    let moving = talk.client.send("navigate", json!({ "entryId": here, "summarize": true })).await;
    talk.client.until(|frame| frame["payload"]["phase"] == "summarising_branch").await;
    pin(&mut talk, &entry).await;
    gate.open();
    let moved = talk.client.until(|frame| frame["re"] == json!(moving)).await;
    assert_eq!(moved["type"], "navigated", "{moved}");
    let messages = talk.messages().await;
    assert_eq!(saying(&messages, "Question 1:"), 1, "{messages:#?}");
    talk.restart().await;
    assert_eq!(talk.messages().await, messages);
}
