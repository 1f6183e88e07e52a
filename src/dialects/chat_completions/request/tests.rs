//! Tests of reading bodies.

use super::*;
use serde_json::json;

fn read_value(body: Value) -> Result<Request, (String, String)> {
    read(body.to_string().as_bytes())
        .map_err(|failure| (failure.code.unwrap_or_default(), failure.param.unwrap_or_default()))
}

fn with(fields: Value) -> Value {
    let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body
}

fn user(text: &str) -> Said {
    Said::User(vec![Part::Text { text: text.into() }])
}

#[test]
fn messages_become_a_list_and_system_prompts_instructions() {
    let messages = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "developer", "content": [{ "type": "text", "text": "In English." }] },
        { "role": "user", "content": [{ "type": "text", "text": "What is this?" },
            { "type": "image_url", "image_url": { "url": "https://a.example/x.png", "detail": "low" } }] },
        { "role": "assistant", "content": null, "tool_calls": [
            { "id": "c", "type": "function", "function": { "name": "look", "arguments": "{}" } }] },
        { "role": "tool", "tool_call_id": "c", "content": "a boat" },
        { "role": "assistant", "content": "" },
        { "role": "assistant", "content": "A boat.", "reasoning_content": "hm" },
        { "role": "user", "content": "Whose?", "name": "ann" },
    ]);
    let read = read_value(with(json!({ "messages": messages }))).unwrap();
    assert_eq!(read.instructions.as_deref(), Some("Be brief.\n\nIn English."));
    let image = Part::Image { url: "https://a.example/x.png".into(), detail: Some("low".into()) };
    let call = Call { id: "c".into(), name: "look".into(), arguments: "{}".into() };
    assert_eq!(
        read.list,
        [
            Said::User(vec![Part::Text { text: "What is this?".into() }, image]),
            Said::Answer { text: String::new(), calls: vec![call] },
            Said::Result { call: "c".into(), output: "a boat".into() },
            Said::Answer { text: "A boat.".into(), calls: Vec::new() },
            user("Whose?"),
        ]
    );
    let only = read_value(with(json!({ "messages": [{ "role": "system", "content": "Say hello." }] }))).unwrap();
    assert_eq!((only.list, only.instructions), (vec![user("Say hello.")], None));
}

#[test]
fn fields_become_options() {
    let schema = json!({ "type": "object" });
    let read = read_value(with(json!({
        "stream": true, "stream_options": { "include_usage": true }, "temperature": 0.5, "top_p": 0.9,
        "max_tokens": 9, "max_completion_tokens": 7, "logprobs": true, "top_logprobs": 3, "reasoning_effort": "low", "parallel_tool_calls": false,
        "tool_choice": { "type": "function", "function": { "name": "look" } },
        "response_format": { "type": "json_schema", "json_schema": { "name": "s", "schema": schema, "strict": true } },
        "tools": [{ "type": "function", "function": { "name": "look", "description": "Looks.", "parameters": schema } }],
    })))
    .unwrap();
    assert!(read.stream && read.include_usage);
    let format = AnswerFormat::JsonSchema { name: "s".into(), description: None, schema, strict: Some(true) };
    let answer = AnswerOptions {
        tool_choice: Some(ToolChoice::Tool { name: "look".into() }),
        parallel_tool_calls: Some(false),
        format: Some(format),
        top_logprobs: Some(3),
    };
    let options =
        SetOptions { temperature: Some(0.5), top_p: Some(0.9), max_output_tokens: Some(7), answer: Some(answer) };
    assert_eq!(read.options, options);
    assert_eq!((read.functions(), read.tools[0].ends_turn), (vec!["look".to_owned()], Some(true)));
    assert_eq!(read.reasoning_effort.as_deref(), Some("low"));
    let plain = read_value(with(json!({ "response_format": { "type": "text" } }))).unwrap();
    assert_eq!((plain.options, plain.stream), (SetOptions::default(), false));
}

#[test]
fn what_is_harmless_or_unknown_is_accepted() {
    let harmless = json!({
        "n": 1, "logprobs": false, "top_logprobs": 0, "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {},
        "stop": null, "audio": null, "modalities": ["text"], "functions": [], "function_call": "none", "seed": 1,
        "user": "u", "metadata": {}, "store": true, "verbosity": "low", "another": [1], "tools": null,
        "tool_choice": null, "stream": null, "temperature": null,
    });
    read_value(with(harmless)).unwrap();
}

#[test]
fn what_cannot_be_done_is_refused_by_field() {
    let message = |message: Value| json!({ "messages": [message] });
    let content = |part: Value| message(json!({ "role": "user", "content": [part] }));
    let table = [
        (json!({ "n": 2 }), "unsupported_parameter", "n"),
        (json!({ "logprobs": "yes" }), "invalid_type", "logprobs"),
        (json!({ "presence_penalty": 0.1 }), "unsupported_parameter", "presence_penalty"),
        (json!({ "stop": ["x"] }), "unsupported_parameter", "stop"),
        (json!({ "stop": "x" }), "unsupported_parameter", "stop"),
        (json!({ "modalities": ["text", "audio"] }), "unsupported_parameter", "modalities"),
        (json!({ "model": null }), "missing_required_parameter", "model"),
        (json!({ "model": 1 }), "invalid_type", "model"),
        (json!({ "temperature": "hot" }), "invalid_type", "temperature"),
        (json!({ "max_tokens": -1 }), "invalid_type", "max_tokens"),
        (json!({ "tools": [1] }), "invalid_type", "tools[0]"),
        (json!({ "tools": [{ "type": "custom" }] }), "unsupported_parameter", "tools[0].type"),
        (json!({ "tools": [{ "type": "function" }] }), "missing_required_parameter", "tools[0].function"),
        (json!({ "tool_choice": "some" }), "invalid_type", "tool_choice"),
        (json!({ "response_format": { "type": "xml" } }), "unsupported_parameter", "response_format.type"),
        (json!({ "messages": null }), "missing_required_parameter", "messages"),
        (json!({ "messages": [] }), "invalid_type", "messages"),
        (message(json!({ "role": "user" })), "missing_required_parameter", "messages[0].content"),
        (message(json!({ "role": "judge", "content": "x" })), "invalid_type", "messages[0].role"),
        (message(json!({ "role": "assistant", "content": "x" })), "unsupported_parameter", "messages"),
        (message(json!({ "role": "tool", "content": "x" })), "missing_required_parameter", "messages[0].tool_call_id"),
        (content(json!({ "type": "input_audio" })), "unsupported_parameter", "messages[0].content[0].type"),
        (
            content(json!({ "type": "image_url", "image_url": { "url": "file:///etc/passwd" } })),
            "invalid_type",
            "messages[0].content[0].image_url.url",
        ),
    ];
    for (fields, code, param) in table {
        let refused = read_value(with(fields.clone())).unwrap_err();
        assert_eq!(refused, (code.to_owned(), param.to_owned()), "{fields}");
    }
    assert_eq!(read(b"{").unwrap_err().code.as_deref(), Some("invalid_json"));
    assert_eq!(read(b"[]").unwrap_err().code.as_deref(), Some("invalid_json"));
}
