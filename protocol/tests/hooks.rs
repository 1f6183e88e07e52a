//! Hook answers: which fields and ops are parsed, which are refused and under which name, and that data of another
//! version is preserved.

use reseed_protocol::{
    Entry, EntryData, ErrorCode, Message,
    command::Command,
    context::PatchOp,
    frame,
    hooks::{HookAnswer, HookPoint},
    tree::Kept,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns an answer with every field.
fn full() -> Value {
    json!({
        "error": "no",
        "patch": [],
        "transformerName": "policy",
        "display": { "title": "Policy" },
        "message": { "role": "user", "content": [] },
        "systemPrompt": "Be brief.",
        "customMessage": { "customType": "note", "content": "Hear.", "display": true },
        "entries": [{ "customType": "note", "data": null }],
        "cancel": false,
        "summary": "Short.",
        "firstKeptEntryId": "p3v8x2kq7mna",
        "details": { "sentences": 1 },
        "model": "small-1",
        "instructions": "Keep the prices.",
        "replaceInstructions": true,
        "label": "by bus",
        "block": true,
        "reason": "not here",
        "arguments": "{}",
        "output": "done",
        "isError": false,
    })
}

#[test]
fn an_op_is_read_or_refused_by_what_is_wrong_with_it() {
    let why = "the policy has changed";
    let table: &[(Value, Result<Option<&str>, &str>)] = &[
        (json!({ "op": "tools_remove", "toolNames": ["a"], "invalidateCacheReason": why }), Ok(Some(why))),
        // A blank or missing reason is refused when applied, by index and name.
        (json!({ "op": "tools_remove", "toolNames": ["a"], "invalidateCacheReason": " " }), Ok(Some(" "))),
        (json!({ "op": "tools_remove", "toolNames": ["a"] }), Ok(Some(""))),
        (json!({ "op": "options_set" }), Ok(Some(""))),
        (json!({ "op": "messages_uncached_append", "messages": [] }), Ok(None)),
        (
            json!({ "op": "messages_uncached_append", "messages": [], "invalidateCacheReason": why }),
            Err("unknown field `invalidateCacheReason`"),
        ),
        (json!({ "op": "messages_cached_append", "messages": [] }), Err("unknown variant `messages_cached_append`")),
        (json!({ "op": "tools_remove", "toolNames": [], "toolName": "a" }), Err("unknown field `toolName`")),
        (json!({ "op": "system_part_set", "partName": "policy" }), Err("missing field `text`")),
        (json!({ "op": "system_part_set", "partName": 7, "text": "" }), Err("invalid type: integer `7`")),
        (
            json!({ "op": "messages_cached_edit", "edits": [{ "entryId": "e1", "text": "x" }] }),
            Err("unknown field `text`"),
        ),
        (json!({ "op": "messages_cached_replace", "messages": [{ "entry": "e1" }] }), Err("unknown field `entry`")),
        (json!({ "partName": "policy" }), Err("missing field `op`")),
    ];
    for (op, expected) in table {
        let read = serde_json::from_value::<PatchOp>(op.clone());
        match (&read, expected) {
            (Ok(read), Ok(reason)) => {
                assert_eq!(read.invalidate_cache_reason(), *reason, "{op}");
                assert_eq!(op["op"], read.name());
            }
            (Err(error), Err(expected)) => {
                assert!(error.to_string().starts_with(expected), "{op}: {error}");
            }
            _ => panic!("{op}: {read:?}"),
        }
    }
}

#[test]
fn what_an_answer_may_not_hold_is_named_with_its_place() {
    let table: &[(Value, ErrorCode, &str)] = &[
        (json!({ "pach": [] }), ErrorCode::UnknownField, "pach"),
        (json!({ "system_prompt": "" }), ErrorCode::UnknownField, "system_prompt"),
        (json!({ "display": { "title": "T", "titel": "T" } }), ErrorCode::UnknownField, "display.titel"),
        (json!({ "display": {} }), ErrorCode::MissingField, "display.title"),
        (json!({ "entries": [{ "customType": "a", "value": 1 }] }), ErrorCode::UnknownField, "entries[0].value"),
        (json!({ "message": { "role": "model", "content": [] } }), ErrorCode::InvalidField, "message.role"),
        (json!({ "message": { "role": "user", "content": [], "text": "x" } }), ErrorCode::UnknownField, "message.text"),
        (
            json!({ "message": { "role": "user", "content": [{ "type": "text", "text": "x", "txt": "y" }] } }),
            ErrorCode::UnknownField,
            "message.content[0].txt",
        ),
        (
            json!({ "message": { "role": "user", "content": [{ "type": "text", "text": "x" }, { "type": "image", "url": "u", "size": 1 }] } }),
            ErrorCode::UnknownField,
            "message.content[1].size",
        ),
        (json!({ "message": { "role": "user" } }), ErrorCode::MissingField, "message.content"),
        (json!({ "cancel": "yes" }), ErrorCode::InvalidField, "cancel"),
    ];
    for (fields, code, field) in table {
        let mut payload = fields.clone();
        payload["hookCallId"] = json!("f2x7k4wm9qtc");
        let text = json!({ "id": "61", "sessionId": "s", "type": "hook_result", "payload": payload }).to_string();
        let refused = frame::parse_v2(&text).unwrap_err();
        assert_eq!(refused.id.unwrap().as_str(), "61");
        assert_eq!((refused.error.code, &refused.error.details.unwrap()["field"]), (*code, &json!(field)), "{fields}");
        // A webhook's answer is parsed by the same rules.
        assert!(serde_json::from_value::<HookAnswer>(fields.clone()).is_err(), "{fields}");
    }
    let nameless = json!({ "id": "61", "sessionId": "s", "type": "hook_result", "payload": {} }).to_string();
    assert_eq!(frame::parse_v2(&nameless).unwrap_err().error.code, ErrorCode::MissingField);
}

/// Every field of a message is known in an answer too, and stored messages with other fields are still parsed.
#[test]
fn a_message_is_read_strictly_in_an_answer_and_leniently_where_it_is_stored() {
    let whole = json!({
        "role": "assistant",
        "content": [
            { "type": "reasoning", "text": "Hm.", "payload": { "id": 1 } },
            { "type": "text", "text": "Look." },
            { "type": "image", "url": "https://example.org/a.png", "detail": "low" },
            { "type": "tool_call", "toolCallId": "f2x7k4wm9qtc", "name": "look", "arguments": "{}" },
            { "type": "tool_result", "toolCallId": "f2x7k4wm9qtc", "output": "seen", "isError": true },
        ],
        "model": "small-1",
        "usage": { "inputTokens": 2, "cachedTokens": 1, "outputTokens": 1, "source": "reported" },
        "envelopeKey": "k",
        "stopReason": "stop",
        "incomplete": true,
    });
    let stored: Message = serde_json::from_value(whole.clone()).unwrap();
    let answer: HookAnswer = serde_json::from_value(json!({ "message": whole })).unwrap();
    assert_eq!(answer.message, Some(stored.clone()));
    assert_eq!(serde_json::to_value(&stored).unwrap(), whole);

    let mut newer = whole.clone();
    newer["mood"] = json!("calm");
    for part in newer["content"].as_array_mut().unwrap() {
        part["shade"] = json!(1);
    }
    assert_eq!(serde_json::from_value::<Message>(newer.clone()).unwrap(), stored);
    assert!(serde_json::from_value::<HookAnswer>(json!({ "message": newer })).is_err());
}

#[test]
fn an_answer_tells_its_fields_as_the_wire_calls_them() {
    let names = |value: &Value| -> BTreeSet<String> { value.as_object().unwrap().keys().cloned().collect() };
    let told = |answer: &HookAnswer| answer.fields().into_iter().map(str::to_owned).collect::<BTreeSet<_>>();

    let answer: HookAnswer = serde_json::from_value(full()).unwrap();
    assert_eq!(told(&answer), names(&full()));
    assert_eq!(serde_json::to_value(&answer).unwrap(), full());
    for (name, value) in full().as_object().unwrap() {
        let alone: HookAnswer = serde_json::from_value(json!({ name: value })).unwrap();
        assert_eq!(alone.fields(), [name.as_str()]);
    }
    assert!(HookAnswer::default().fields().is_empty());

    let mut payload = full();
    payload["hookCallId"] = json!("f2x7k4wm9qtc");
    let text = json!({ "id": "61", "sessionId": "s", "type": "hook_result", "payload": payload }).to_string();
    let command = frame::parse_v2(&text).unwrap().command;
    let Command::HookResult(result) = command else { panic!("{command:?}") };
    let (call_id, same) = result.into_answer();
    assert_eq!((call_id.as_str(), &same), ("f2x7k4wm9qtc", &answer));
}

#[test]
fn each_field_of_an_answer_is_for_some_point_and_each_point_is_called_as_on_the_wire() {
    let fields: BTreeSet<&str> = HookPoint::ALL.iter().flat_map(|point| point.answer_fields()).copied().collect();
    let full = full();
    let known: BTreeSet<&str> = full.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(fields, known.into_iter().filter(|field| *field != "error").collect());
    for point in HookPoint::ALL {
        assert_eq!(serde_json::to_value(point).unwrap(), point.as_str());
    }
    let refused = serde_json::from_value::<HookPoint>(json!("tool")).unwrap_err().to_string();
    for point in HookPoint::ALL {
        assert!(refused.contains(&format!("`{}`", point.as_str())), "{refused}");
    }
    assert_eq!(refused.matches('`').count() / 2, 1 + HookPoint::ALL.len(), "{refused}");
}

/// The table in README.md has one row per point, in the order of the types.
#[test]
fn the_readme_says_what_each_point_may_answer() {
    let readme = include_str!("../README.md");
    let table = readme.split_once("| point | called | receives | may answer |").unwrap().1;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    for (row, point) in rows.iter().zip(HookPoint::ALL) {
        assert_eq!(row[0], format!("`{}`", point.as_str()));
        let said: Vec<&str> = row[3].split('`').skip(1).step_by(2).collect();
        assert_eq!(said, point.answer_fields(), "{}", point.as_str());
    }
    assert_eq!(rows.len(), HookPoint::ALL.len());
}

/// Stored entries: unknown fields are in alphabetical order.
#[test]
fn what_another_version_wrote_is_carried_along_whole() {
    let ops = r#""patch":[{"op":"tools_remove","toolNames":["a"],"invalidateCacheReason":"r"}]"#;
    let newer_op = r#""patch":[{"op":"tools_sort"}]"#;
    let sorted = r#""patch":[{"invalidateCacheReason":"r","op":"tools_remove","toolNames":["a"]}]"#;
    let newer_field = r#""patch":[{"invalidateCacheReason":"r","op":"tools_remove","order":1,"toolNames":["a"]}]"#;
    let table: &[(String, bool)] = &[
        (format!(r#""type":"context_transform","schemaVersion":1,"transformerName":"t",{ops}"#), true),
        (
            format!(
                r#""type":"context_transform","schemaVersion":1,"transformerName":"t",{ops},"display":{{"title":"T"}}"#
            ),
            true,
        ),
        (format!(r#""type":"context_transform",{sorted},"schemaVersion":2,"transformerName":"t""#), false),
        (format!(r#""type":"context_transform",{newer_op},"schemaVersion":1,"transformerName":"t""#), false),
        (format!(r#""type":"context_transform",{newer_field},"schemaVersion":1,"transformerName":"t""#), false),
        (
            format!(
                r#""type":"context_transform","extra":{{"b":[1,2.5,null]}},{sorted},"schemaVersion":1,"transformerName":"t""#
            ),
            false,
        ),
        (r#""type":"context_transform""#.to_owned(), false),
        (format!(r#""type":"ephemeral","transformerName":"t",{ops}"#), true),
        (format!(r#""type":"ephemeral",{newer_op},"transformerName":"t""#), false),
        (r#""type":"ephemeral","messages":[{"content":"It is noon.","role":"user"}]"#.to_owned(), false),
    ];
    for (data, is_known) in table {
        let stored = format!(r#"{{"entryId":"e2","parentId":"e1","timestamp":"2026-11-21T09:20:00.310Z",{data}}}"#);
        let entry: Entry = serde_json::from_str(&stored).unwrap();
        let known = match &entry.data {
            EntryData::ContextTransform(kept) => kept.known().is_some(),
            EntryData::Ephemeral(kept) => kept.known().is_some(),
            other => panic!("{other:?}"),
        };
        assert_eq!(known, *is_known, "{data}");
        assert_eq!(serde_json::to_string(&entry).unwrap(), stored);
        // Through a value as well, as in an assembled page of entries.
        let value = serde_json::to_value(&entry).unwrap();
        assert_eq!(serde_json::from_value::<Entry>(value).unwrap(), entry);
        if let EntryData::ContextTransform(kept) = &entry.data
            && let Kept::Other(other) = &**kept
        {
            assert!(!other.fields.contains_key("entryId") && !other.fields.contains_key("type"), "{other:?}");
        }
    }
}
