//! The fields that responses, their items and their events must have.

use serde_json::Value;

/// A check of a field.
pub(super) type Is = fn(&Value) -> bool;

fn nullable_text(value: &Value) -> bool {
    value.is_null() || value.is_string()
}

fn nullable_count(value: &Value) -> bool {
    value.is_null() || value.is_u64()
}

fn nullable_object(value: &Value) -> bool {
    value.is_null() || value.is_object()
}

pub(super) fn counts(value: &Value) -> bool {
    let names = ["input_tokens", "output_tokens", "total_tokens"];
    value.is_null()
        || names.iter().all(|name| value[name].is_u64())
            && value["input_tokens_details"]["cached_tokens"].is_u64()
            && value["output_tokens_details"]["reasoning_tokens"].is_u64()
}

/// The fields that every response must have, and what they are.
pub(super) const RESPONSE: &[(&str, Is)] = &[
    ("id", Value::is_string),
    ("object", |value| value == "response"),
    ("created_at", Value::is_u64),
    ("completed_at", nullable_count),
    ("status", Value::is_string),
    ("incomplete_details", nullable_object),
    ("model", Value::is_string),
    ("previous_response_id", nullable_text),
    ("instructions", nullable_text),
    ("output", Value::is_array),
    ("error", nullable_object),
    ("tools", Value::is_array),
    ("tool_choice", |value| value.is_string() || value.is_object()),
    ("truncation", |value| value == "auto" || value == "disabled"),
    ("parallel_tool_calls", Value::is_boolean),
    ("text", |value| value["format"]["type"].is_string()),
    ("top_p", Value::is_number),
    ("presence_penalty", Value::is_number),
    ("frequency_penalty", Value::is_number),
    ("top_logprobs", Value::is_u64),
    ("temperature", Value::is_number),
    ("reasoning", nullable_object),
    ("usage", counts),
    ("max_output_tokens", nullable_count),
    ("max_tool_calls", nullable_count),
    ("store", Value::is_boolean),
    ("background", Value::is_boolean),
    ("service_tier", Value::is_string),
    ("metadata", Value::is_object),
    ("safety_identifier", nullable_text),
    ("prompt_cache_key", nullable_text),
];

/// The fields of each item, by its type.
const ITEMS: &[(&str, &[(&str, Is)])] = &[
    (
        "message",
        &[
            ("id", Value::is_string),
            ("status", Value::is_string),
            ("role", |role| role == "assistant"),
            ("content", texts),
        ],
    ),
    (
        "function_call",
        &[
            ("id", Value::is_string),
            ("call_id", Value::is_string),
            ("name", Value::is_string),
            ("arguments", |text| serde_json::from_str::<Value>(text.as_str().unwrap_or_default()).is_ok()),
            ("status", Value::is_string),
        ],
    ),
    ("compaction", &[("id", Value::is_string), ("encrypted_content", Value::is_string)]),
];

fn texts(content: &Value) -> bool {
    let is_text =
        |part: &Value| part["type"] == "output_text" && part["text"].is_string() && part["annotations"].is_array();
    content.as_array().is_some_and(|parts| parts.iter().all(is_text))
}

pub(super) fn check(test: &str, value: &Value, fields: &[(&str, Is)]) {
    for (name, is_right) in fields {
        let field = value.get(name).unwrap_or_else(|| panic!("{test}: {name} is missing in {value}"));
        assert!(is_right(field), "{test}: {name} is {field}");
    }
}

pub(super) fn check_items(test: &str, output: &Value) {
    for item in output.as_array().unwrap() {
        let (_, fields) =
            ITEMS.iter().find(|(kind, _)| item["type"] == *kind).unwrap_or_else(|| panic!("{test}: {item}"));
        check(test, item, fields);
    }
}

/// Checks a stream, and returns the response at its end.
pub(super) fn check_events(test: &str, events: &[Value]) -> Value {
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..2], ["response.created", "response.in_progress"], "{test}");
    let numbers: Vec<u64> = events.iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{test}: {numbers:?}");
    for event in events {
        if let Some(response) = event.get("response") {
            check(test, response, RESPONSE);
        }
        let kind = event["type"].as_str().unwrap();
        if kind.starts_with("response.output_item.") {
            assert!(event["item"]["type"].is_string() && event["output_index"].is_u64(), "{test}: {event}");
        }
        if kind.ends_with(".delta") {
            assert!(event["delta"].is_string() && event["item_id"].is_string(), "{test}: {event}");
        }
    }
    let of_call = events.iter().any(|event| event["item"]["type"] == "function_call");
    if of_call {
        let order = ["response.output_item.added", "response.function_call_arguments.delta"];
        let order = [&order[..], &["response.function_call_arguments.done", "response.output_item.done"]].concat();
        let places = order.iter().map(|name| kinds.iter().position(|kind| kind == name).unwrap());
        assert!(places.collect::<Vec<_>>().is_sorted(), "{test}: {kinds:?}");
    }
    events.last().unwrap()["response"].clone()
}
