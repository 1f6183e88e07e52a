//! `parentId` and `ifLeaf` of `user_input`.

use super::{Talk, refused};
use crate::support::json::{present, whole};
use serde_json::{Value, json};

#[tokio::test]
async fn asking_from_an_earlier_entry_branches_in_one_step() {
    let mut talk = Talk::of(&["one", "two"]).await;
    let after_one = talk.entries[1].clone();
    let accepted = talk.client.ask("user_input", json!({ "input": "three", "parentId": after_one })).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    let moved = talk.client.event("session_updated").await;
    assert_eq!(moved["payload"]["leafId"], after_one.as_str(), "the leaf moves first");
    let asked = talk.client.until(|frame| frame["payload"]["entry"]["content"][0]["text"] == "three").await;
    assert_eq!(asked["payload"]["entry"]["parentId"], after_one.as_str());
    assert_eq!(whole(&asked["seq"]), whole(&moved["seq"]) + 1);
    let started = talk.client.until(|frame| frame["seq"].as_u64() == Some(whole(&moved["seq"]) + 2)).await;
    assert_eq!(*present(&started["payload"]["generation"]), moved["payload"]["generation"], "a loop of its own");
    assert_eq!(talk.client.event("turn_finished").await["payload"]["status"], "completed");
    assert_eq!(talk.last_said(), ["one", "re: one", "three"]);
    assert_eq!(talk.texts().await, ["one", "re: one", "three", "re: three"]);

    // Nothing was deleted, and a reopened session has the same leaf.
    let all = talk.client.ask("get_entries", json!({})).await;
    assert_eq!(all["payload"]["items"].as_array().unwrap().len(), 6);
    let leaf = talk.path().await.pop().unwrap().0;
    let (_server, model, mut client, opened) = talk.reopened().await;
    assert_eq!(opened["leafId"], leaf.as_str());
    client.turn("four").await;
    assert_eq!(super::said(model.requests().last().unwrap()), ["one", "re: one", "three", "re: three", "four"]);
}

#[tokio::test]
async fn where_input_may_go_and_where_not() {
    let mut talk = Talk::of(&["one", "two"]).await;
    let [first, _, second, last] = [0, 1, 2, 3].map(|at| talk.entries[at].clone());
    // What is asked, and the messages sent to the model, or the error.
    type Outcome<'a> = Result<&'a [&'a str], (&'a str, &'a str)>;
    let table: &[(Value, Outcome<'_>)] = &[
        (json!({ "parentId": "nowhere" }), Err(("entry_not_found", "parentId"))),
        (json!({ "ifLeaf": first }), Err(("leaf_moved", "ifLeaf"))),
        (json!({ "ifLeaf": "root" }), Err(("leaf_moved", "ifLeaf"))),
        (json!({ "ifLeaf": "nowhere" }), Err(("leaf_moved", "ifLeaf"))),
        (json!({ "ifLeaf": last, "parentId": second }), Ok(&["one", "re: one", "two", "new"])),
        (json!({ "parentId": "root", "ifLeaf": null }), Ok(&["new"])),
        (json!({ "parentId": last, "whenBusy": "queue" }), Ok(&["one", "re: one", "two", "re: two", "new"])),
    ];
    for (wish, expected) in table {
        let mut payload = wish.clone();
        payload["input"] = json!("new");
        let reply = talk.client.ask("user_input", payload).await;
        match expected {
            Err((code, field)) => refused(&reply, code, Some(field)),
            Ok(told) => {
                assert_eq!(reply["type"], "accepted", "{wish}: {reply}");
                talk.client.event("turn_finished").await;
                assert_eq!(talk.last_said(), *told, "{wish}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_no_message_does_not_move_the_leaf_for_if_leaf() {
    let mut talk = Talk::of(&["one"]).await;
    let leaf = talk.entries[1].clone();
    talk.client.ask("set_label", json!({ "entryId": leaf, "label": "here" })).await;
    talk.client.ask("append_custom", json!({ "customType": "mark", "data": 1 })).await;
    let accepted = talk.client.ask("user_input", json!({ "input": "two", "ifLeaf": leaf })).await;
    assert_eq!(accepted["type"], "accepted", "{accepted}");
    talk.client.event("turn_finished").await;
    let custom = json!({ "customType": "note", "content": "now it is late", "display": true });
    let leaf = talk.path().await.pop().unwrap().0;
    talk.client.ask("append_custom_message", custom).await;
    refused(
        &talk.client.ask("user_input", json!({ "input": "three", "ifLeaf": leaf })).await,
        "leaf_moved",
        Some("ifLeaf"),
    );
}

#[tokio::test]
async fn a_branch_is_not_begun_twice() {
    let mut talk = Talk::of(&["one", "two"]).await;
    let payload = json!({ "input": "three", "parentId": talk.entries[1] });
    let id = talk.client.send("user_input", payload.clone()).await;
    let first = talk.client.until(|frame| frame["re"] == id.as_str()).await;
    talk.client.event("turn_finished").await;
    talk.client.send_as(&id, "user_input", payload).await;
    let again = talk.client.until(|frame| frame["re"] == id.as_str()).await;
    assert_eq!(again["payload"]["duplicate"], true);
    assert_eq!(*present(&again["payload"]["entryId"]), first["payload"]["entryId"]);
    let all = talk.client.ask("get_entries", json!({})).await;
    assert_eq!(all["payload"]["items"].as_array().unwrap().len(), 6);
}
