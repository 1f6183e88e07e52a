//! Clients' entries in the tree: labels, names, their own data and messages, changes of the model.

use super::{Talk, refused};
use crate::support::json::present;
use serde_json::{Value, json};

#[tokio::test]
async fn each_is_an_entry_and_only_messages_are_told_to_the_model() {
    let mut talk = Talk::of(&["one"]).await;
    let first = talk.entries[0].clone();
    // What is sent, and what the entry then contains.
    let table: &[(&str, Value, Value)] = &[
        (
            "set_label",
            json!({ "entryId": first, "label": " here " }),
            json!({ "type": "label", "targetId": first, "label": "here" }),
        ),
        ("set_label", json!({ "entryId": first }), json!({ "type": "label", "targetId": first })),
        (
            "append_custom",
            json!({ "customType": "mark", "data": { "at": [1, null] } }),
            json!({ "type": "custom", "customType": "mark", "data": { "at": [1, null] } }),
        ),
        (
            "append_custom_message",
            json!({ "customType": "note", "content": "it rains", "display": false }),
            json!({ "type": "custom_message", "customType": "note", "display": false,
                    "content": [{ "type": "text", "text": "it rains" }] }),
        ),
        ("rename_session", json!({ "name": "Rain" }), json!({ "type": "session_info", "name": "Rain" })),
        ("set_model", json!({ "model": "gpt-4o" }), json!({ "type": "model_change", "model": "gpt-4o" })),
        (
            "set_model",
            json!({ "model": "gpt-4o", "reasoningEffort": "low" }),
            json!({ "type": "thinking_level_change", "thinkingLevel": "low" }),
        ),
        (
            "set_model",
            json!({ "model": "gpt-4o" }),
            json!({ "type": "thinking_level_change", "thinkingLevel": "default" }),
        ),
    ];
    for (kind, payload, expected) in table {
        let reply = talk.client.ask(kind, payload.clone()).await;
        assert_eq!(reply["type"], "ok", "{kind}: {reply}");
        let wanted = expected["type"].clone();
        let appended = talk.client.until(|frame| frame["payload"]["entry"]["type"] == *present(&wanted)).await;
        assert_eq!(*present(&appended["payload"]["commandId"]), reply["re"], "{kind}");
        let entry = &appended["payload"]["entry"];
        for (field, value) in expected.as_object().unwrap() {
            assert_eq!(entry[field], *value, "{kind}: {entry}");
        }
        if !matches!(*kind, "rename_session" | "set_model") {
            assert_eq!(*present(&reply["payload"]["entryId"]), entry["entryId"], "{kind}");
        }
    }
    talk.client.turn("two").await;
    assert_eq!(talk.last_said(), ["one", "re: one", "it rains", "two"]);
    assert_eq!(talk.model.requests().last().unwrap().model, "gpt-4o");
    let types: Vec<String> = talk.texts().await;
    assert_eq!(types[2..5], ["label", "label", "custom"]);
}

#[tokio::test]
async fn what_is_wrong_is_refused_by_field() {
    let mut talk = Talk::of(&["one"]).await;
    let first = talk.entries[0].clone();
    let long = "x".repeat(201);
    let table: &[(&str, Value, &str, &str)] = &[
        ("set_label", json!({ "entryId": "nowhere", "label": "x" }), "entry_not_found", "entryId"),
        ("set_label", json!({ "entryId": first, "label": " " }), "invalid_field", "label"),
        ("set_label", json!({ "entryId": first, "label": long }), "invalid_field", "label"),
        ("append_custom", json!({ "customType": "", "data": 1 }), "invalid_field", "customType"),
        ("append_custom", json!({ "customType": "x" }), "missing_field", "data"),
        (
            "append_custom_message",
            json!({ "customType": "x", "content": " ", "display": true }),
            "empty_input",
            "content",
        ),
        (
            "append_custom_message",
            json!({ "customType": long, "content": "x", "display": true }),
            "invalid_field",
            "customType",
        ),
        ("rename_session", json!({ "name": "a\u{7}b" }), "invalid_field", "name"),
        ("navigate", json!({ "entryId": first, "label": long }), "invalid_field", "label"),
        ("navigate", json!({ "entryId": "root", "label": "x" }), "invalid_field", "label"),
        (
            "navigate",
            json!({ "entryId": first, "summarize": true, "replaceInstructions": true }),
            "missing_field",
            "instructions",
        ),
    ];
    for (kind, payload, code, field) in table {
        let reply = talk.client.ask(kind, payload.clone()).await;
        assert_eq!(reply["type"], "error", "{kind} {payload}");
        refused(&reply, code, Some(field));
    }
    assert_eq!(talk.texts().await, ["one", "re: one"], "nothing was written");
}

#[tokio::test]
async fn the_name_follows_the_newest_entry_also_after_reopening() {
    let mut talk = Talk::of(&["one", "two"]).await;
    let re_one = talk.entries[1].clone();
    talk.client.ask("rename_session", json!({ "name": "First" })).await;
    talk.client.ask("navigate", json!({ "entryId": re_one })).await;
    talk.client.ask("rename_session", json!({ "name": "Second" })).await;
    talk.client.ask("navigate", json!({ "entryId": re_one })).await;
    let (_server, _model, mut client, opened) = talk.reopened().await;
    assert_eq!(opened["name"], "Second");
    let list = client.ask("list_sessions", json!({})).await;
    assert_eq!(list["payload"]["items"][0]["name"], "Second");
}
