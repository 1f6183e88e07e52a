//! The addresses that take a body, and the fields of each body with their types.

use serde_json::{Value, json};

/// The JSON types that a field may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Flag,
    Number,
    List,
    Object,
}

use Type::{Flag, List, Number, Object, Text};

/// An address, a body that it takes, and the fields of the body with their types. A field is a path in the body.
pub(super) type Address = (&'static str, &'static str, &'static [(&'static str, &'static [Type])]);

/// The fields of a request for a response.
const CREATE: &[(&str, &[Type])] = &[
    ("model", &[Text]),
    ("input", &[Text, List]),
    ("input/0", &[Object]),
    ("input/0/type", &[Text]),
    ("input/0/role", &[Text]),
    ("input/0/content", &[Text, List]),
    ("input/0/content/0", &[Object]),
    ("input/0/content/0/type", &[Text]),
    ("input/0/content/0/text", &[Text]),
    ("input/1/call_id", &[Text]),
    ("input/1/name", &[Text]),
    ("input/1/arguments", &[Text]),
    ("previous_response_id", &[Text]),
    ("conversation", &[Text, Object]),
    ("instructions", &[Text]),
    ("stream", &[Flag]),
    ("store", &[Flag]),
    ("background", &[Flag]),
    ("generate", &[Flag]),
    ("metadata", &[Object]),
    ("metadata/a", &[Text]),
    ("temperature", &[Number]),
    ("top_p", &[Number]),
    ("presence_penalty", &[Number]),
    ("frequency_penalty", &[Number]),
    ("top_logprobs", &[Number]),
    ("max_output_tokens", &[Number]),
    ("max_tool_calls", &[Number]),
    ("tools", &[List]),
    ("tools/0", &[Object]),
    ("tools/0/type", &[Text]),
    ("tools/0/name", &[Text]),
    ("tools/0/description", &[Text]),
    ("tools/0/parameters", &[Object, Flag]),
    ("tools/0/strict", &[Flag]),
    ("tool_choice", &[Text, Object]),
    ("parallel_tool_calls", &[Flag]),
    ("text", &[Object]),
    ("text/format", &[Object]),
    ("text/format/type", &[Text]),
    ("text/format/name", &[Text]),
    ("text/format/schema", &[Object]),
    ("truncation", &[Text]),
    ("reasoning", &[Object]),
    ("reasoning/effort", &[Text]),
    ("service_tier", &[Text]),
    ("safety_identifier", &[Text]),
    ("prompt_cache_key", &[Text]),
    ("context_management", &[List]),
    ("context_management/0", &[Object]),
    ("context_management/0/type", &[Text]),
    ("context_management/0/compact_threshold", &[Number]),
];

const CREATE_BODY: &str = r#"{
    "input": [
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "x" }] },
        { "type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}" },
        { "type": "function_call_output", "call_id": "call_1", "output": "calm" }
    ],
    "metadata": { "a": "b" },
    "tools": [{ "type": "function", "name": "look", "parameters": { "type": "object" } }],
    "text": { "format": { "type": "json_schema", "name": "sea", "schema": { "type": "object" } } },
    "reasoning": { "effort": "low" },
    "context_management": [{ "type": "compaction" }]
}"#;

pub(super) const ADDRESSES: &[Address] = &[
    ("/v1/responses", CREATE_BODY, CREATE),
    ("/v1/responses/input_tokens", CREATE_BODY, CREATE),
    (
        "/v1/responses/compact",
        r#"{ "model": "scripted", "input": "x" }"#,
        &[("model", &[Text]), ("input", &[Text, List]), ("previous_response_id", &[Text]), ("instructions", &[Text])],
    ),
    (
        "/v1/conversations",
        r#"{ "metadata": { "a": "b" }, "items": [{ "role": "user", "content": "x" }] }"#,
        &[
            ("metadata", &[Object]),
            ("metadata/a", &[Text]),
            ("items", &[List]),
            ("items/0", &[Object]),
            ("items/0/role", &[Text]),
            ("items/0/content", &[Text, List]),
        ],
    ),
    ("/v1/conversations/{own}", r#"{ "metadata": { "a": "b" } }"#, &[("metadata", &[Object]), ("metadata/a", &[Text])]),
    (
        "/v1/conversations/{own}/items",
        r#"{ "items": [{ "role": "user", "content": "x" }] }"#,
        &[("items", &[List]), ("items/0", &[Object]), ("items/0/type", &[Text]), ("items/0/content", &[Text, List])],
    ),
    ("/v1/conversations/{own}/compact", "{}", &[("instructions", &[Text]), ("strategy", &[Text])]),
    ("/v1/conversations/{own}/compact/preview", "{}", &[("instructions", &[Text]), ("strategy", &[Text])]),
    (
        "/v1/conversations/{own}/branches",
        "{}",
        &[("id", &[Text]), ("position", &[Text]), ("summarize", &[Flag]), ("instructions", &[Text])],
    ),
    (
        "/v1/chat/completions",
        r#"{
            "model": "scripted", "stream_options": {}, "response_format": { "type": "text" },
            "messages": [{ "role": "user", "content": [{ "type": "text", "text": "x" }] }],
            "tools": [{ "type": "function", "function": { "name": "look", "parameters": {} } }]
        }"#,
        &[
            ("model", &[Text]),
            ("messages", &[List]),
            ("messages/0", &[Object]),
            ("messages/0/role", &[Text]),
            ("messages/0/content", &[Text, List]),
            ("messages/0/content/0", &[Object]),
            ("messages/0/content/0/text", &[Text]),
            ("tools", &[List]),
            ("tools/0", &[Object]),
            ("tools/0/type", &[Text]),
            ("tools/0/function", &[Object]),
            ("tools/0/function/name", &[Text]),
            ("tools/0/function/description", &[Text]),
            ("tools/0/function/parameters", &[Object]),
            ("stream", &[Flag]),
            ("stream_options", &[Object]),
            ("stream_options/include_usage", &[Flag]),
            ("temperature", &[Number]),
            ("top_p", &[Number]),
            ("max_tokens", &[Number]),
            ("max_completion_tokens", &[Number]),
            ("tool_choice", &[Text, Object]),
            ("parallel_tool_calls", &[Flag]),
            ("response_format", &[Object]),
            ("response_format/type", &[Text]),
            ("reasoning_effort", &[Text]),
            ("prompt_cache_key", &[Text]),
        ],
    ),
];

pub(super) fn wrong_values(types: &[Type]) -> Vec<Value> {
    let values = [
        (Text, json!("words")),
        (Flag, json!(true)),
        (Number, json!(7)),
        (List, json!([7])),
        (Object, json!({ "surprise": 7 })),
    ];
    values.into_iter().filter(|(kind, _)| !types.contains(kind)).map(|(_, value)| value).collect()
}

/// Puts a value at a path, and makes the last field if there is none.
pub(super) fn put(body: &mut Value, path: &str, value: Value) {
    let mut place = body;
    for step in path.split('/') {
        place = match step.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[step],
        };
    }
    *place = value;
}
