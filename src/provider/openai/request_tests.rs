//! One conversation in both dialects, at OpenAI and elsewhere, compared as a whole.

use super::{chat_request::ChatRequest, responses_request::ResponsesRequest};
use crate::core::model::{ModelRequest, Purpose};
use reseed_protocol::{
    Message, Part, Role,
    context::{
        ContextEnvelope, ContextMessage, EnvelopeMessages, EnvelopeMeta, RequestOptions, SystemPrompt, ToolDefinition,
    },
};
use serde_json::{Value, json};
use std::sync::Arc;

fn text(text: &str) -> Part {
    Part::Text { text: text.into() }
}

fn request() -> ModelRequest {
    let sealed = json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" });
    let call = Part::ToolCall { call_id: "c.1".parse().unwrap(), name: "look".into(), arguments: r#"{"at":1}"#.into() };
    let result = Part::ToolResult { call_id: "c.1".parse().unwrap(), output: "seen".into(), is_error: false };
    let picture = Part::Image { url: "data:image/png;base64,AA==".into(), detail: Some("low".into()) };
    let mut messages = vec![
        Message::user("one"),
        Message::new(Role::Assistant, vec![Part::Reasoning { text: "hm".into(), payload: Some(sealed) }, call]),
        Message::new(Role::Tool, vec![result]),
        Message::new(Role::Assistant, vec![text("two"), text("three")]),
        Message::new(Role::User, vec![text("four"), picture]),
    ];
    let last = messages.pop().unwrap();
    let message = |message| ContextMessage { entry_id: None, message: Arc::new(message) };
    ModelRequest {
        model: "m".into(),
        envelope: ContextEnvelope {
            system: SystemPrompt { parts: Vec::new(), compiled: "be brief".into() },
            tools: vec![ToolDefinition {
                name: "look".into(),
                description: "Looks.".into(),
                parameters: json!({ "type": "object" }),
            }],
            messages: EnvelopeMessages {
                cached: messages.into_iter().map(message).collect(),
                uncached: vec![message(last)],
            },
            options: RequestOptions {
                temperature: Some(0.5),
                max_output_tokens: Some(64),
                reasoning_effort: Some("low".into()),
            },
            meta: EnvelopeMeta::default(),
        },
        purpose: Purpose::Turn,
    }
}

fn bare() -> ModelRequest {
    let mut request = request();
    request.envelope.system = SystemPrompt::default();
    request.envelope.tools.clear();
    request.envelope.options = RequestOptions::default();
    request.envelope.messages.cached.truncate(1);
    request.envelope.messages.uncached.clear();
    request
}

fn chat(request: &ModelRequest, at_openai: bool) -> Value {
    serde_json::to_value(ChatRequest::new(request, at_openai)).unwrap()
}

fn responses(request: &ModelRequest, at_openai: bool) -> Value {
    serde_json::to_value(ResponsesRequest::new(request, at_openai)).unwrap()
}

#[test]
fn a_conversation_in_chat() {
    let function = json!({ "name": "look", "arguments": r#"{"at":1}"# });
    let mut expected = json!({
        "model": "m",
        "messages": [
            { "role": "system", "content": "be brief" },
            { "role": "user", "content": "one" },
            { "role": "assistant", "tool_calls": [{ "id": "c.1", "type": "function", "function": function }] },
            { "role": "tool", "tool_call_id": "c.1", "content": "seen" },
            { "role": "assistant", "content": "two\nthree" },
            { "role": "user", "content": [
                { "type": "text", "text": "four" },
                { "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==", "detail": "low" } },
            ] },
        ],
        "tools": [{ "type": "function", "function": { "name": "look", "description": "Looks.", "parameters": { "type": "object" } } }],
        "stream": true,
        "stream_options": { "include_usage": true },
        "temperature": 0.5,
        "max_tokens": 64,
        "reasoning_effort": "low",
    });
    assert_eq!(chat(&request(), false), expected);
    let limit = expected.as_object_mut().unwrap().remove("max_tokens").unwrap();
    expected["max_completion_tokens"] = limit;
    assert_eq!(chat(&request(), true), expected);
}

#[test]
fn a_conversation_in_responses() {
    let mut expected = json!({
        "model": "m",
        "instructions": "be brief",
        "input": [
            { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "one" }] },
            { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" },
            { "type": "function_call", "call_id": "c.1", "name": "look", "arguments": r#"{"at":1}"# },
            { "type": "function_call_output", "call_id": "c.1", "output": "seen" },
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "two\nthree" }] },
            { "type": "message", "role": "user", "content": [
                { "type": "input_text", "text": "four" },
                { "type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low" },
            ] },
        ],
        "tools": [{ "type": "function", "name": "look", "description": "Looks.", "parameters": { "type": "object" }, "strict": false }],
        "stream": true,
        "temperature": 0.5,
        "max_output_tokens": 64,
        "reasoning": { "effort": "low" },
    });
    assert_eq!(responses(&request(), false), expected);
    expected["store"] = json!(false);
    expected["include"] = json!(["reasoning.encrypted_content"]);
    assert_eq!(responses(&request(), true), expected);
}

#[test]
fn nothing_is_sent_that_was_not_asked_for() {
    let messages = json!([{ "role": "user", "content": "one" }]);
    let usage = json!({ "include_usage": true });
    assert_eq!(
        chat(&bare(), false),
        json!({ "model": "m", "messages": messages, "stream": true, "stream_options": usage })
    );
    let input = json!([{ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "one" }] }]);
    assert_eq!(responses(&bare(), false), json!({ "model": "m", "input": input, "stream": true }));
}

#[test]
fn images_in_a_tools_result_go_where_the_api_takes_them() {
    let call = |id: &str| Part::ToolCall { call_id: id.parse().unwrap(), name: "look".into(), arguments: "{}".into() };
    let result = |id: &str| Part::ToolResult { call_id: id.parse().unwrap(), output: id.into(), is_error: false };
    let picture = || Part::Image { url: "data:image/png;base64,AA==".into(), detail: None };
    let mut request = bare();
    let said = [
        Message::new(Role::Assistant, vec![call("a"), call("b")]),
        Message::new(Role::Tool, vec![result("a"), picture()]),
        Message::new(Role::Tool, vec![result("b")]),
        Message::new(Role::Assistant, vec![text("done")]),
    ];
    let message = |message| ContextMessage { entry_id: None, message: Arc::new(message) };
    request.envelope.messages.cached.extend(said.into_iter().map(message));
    let url = "data:image/png;base64,AA==";
    let shown = [json!({ "type": "input_text", "text": "a" }), json!({ "type": "input_image", "image_url": url })];
    let input = responses(&request, true)["input"].clone();
    assert_eq!(input[3], json!({ "type": "function_call_output", "call_id": "a", "output": shown }));
    assert_eq!(input[4], json!({ "type": "function_call_output", "call_id": "b", "output": "b" }));
    // Both results come before the user's message: a call must have its result before anything else is said.
    let messages = chat(&request, true)["messages"].clone();
    let roles: Vec<&str> = messages.as_array().unwrap().iter().map(|said| said["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "user", "assistant"]);
    assert_eq!(messages[2], json!({ "role": "tool", "tool_call_id": "a", "content": "a" }));
    assert_eq!(messages[4]["content"][1], json!({ "type": "image_url", "image_url": { "url": url } }));
}

#[test]
fn a_summary_that_carries_tools_may_not_call_them() {
    for (purpose, expected) in [(Purpose::Turn, None), (Purpose::Summary, Some("none"))] {
        let request = ModelRequest { purpose, ..request() };
        for body in [chat(&request, true), responses(&request, true)] {
            assert_eq!(body.get("tool_choice").and_then(Value::as_str), expected, "{purpose:?}");
        }
        let without_tools = ModelRequest { purpose, ..bare() };
        assert!(chat(&without_tools, true).get("tool_choice").is_none());
    }
}
