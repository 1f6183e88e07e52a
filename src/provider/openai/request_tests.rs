//! Compares one whole conversation in both dialects, at OpenAI and elsewhere.

use super::{chat_request::ChatRequest, compact::CompactRequest, responses_request::ResponsesRequest};
use crate::{
    core::{
        model::{Compacts, ModelRequest, Purpose},
        need::{Need, Needs},
    },
    provider::adapt::{Form, Plan, ResultImages},
};
use reseed_protocol::{
    CallPayload, Message, NativeCompaction, Part, Payload, Role,
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
                ..RequestOptions::default()
            },
            meta: EnvelopeMeta::default(),
        },
        purpose: Purpose::Turn,
        compared_with: None,
        compacts: None,
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
    chat_with(request, if at_openai { &[Need::NewLimit] } else { &[] })
}

fn chat_with(request: &ModelRequest, needs: &[Need]) -> Value {
    let plan = Plan::new(request, &Form::of(Needs::of(needs)), "here", (ResultImages::After, None));
    serde_json::from_str(&serde_json::to_string(&ChatRequest::new(&plan)).unwrap()).unwrap()
}

fn responses(request: &ModelRequest, at_openai: bool) -> Value {
    responses_with(request, at_openai, &[])
}

fn responses_with(request: &ModelRequest, at_openai: bool, needs: &[Need]) -> Value {
    let plan = Plan::new(request, &Form::of(Needs::of(needs)), "here", (ResultImages::Inside, Some("responses")));
    serde_json::to_value(ResponsesRequest::new(&plan, at_openai)).unwrap()
}

/// A conversation of these messages, without tools and options.
fn said(messages: Vec<Message>) -> ModelRequest {
    let mut request = bare();
    let message = |message| ContextMessage { entry_id: None, message: Arc::new(message) };
    request.envelope.messages.cached = messages.into_iter().map(message).collect();
    request
}

fn call(id: &str) -> Part {
    Part::ToolCall { call_id: id.parse().unwrap(), name: "look".into(), arguments: "{}".into() }
}

fn result(id: &str, output: &str) -> Message {
    let result = Part::ToolResult { call_id: id.parse().unwrap(), output: output.into(), is_error: false };
    Message::new(Role::Tool, vec![result])
}

fn assistant(content: Vec<Part>) -> Message {
    Message { model: Some("m".into()), ..Message::new(Role::Assistant, content) }
}

fn picture() -> Part {
    Part::Image { url: "data:image/png;base64,AA==".into(), detail: None }
}

/// An outline of the messages: the first letter of the role, `*` for calls, and the text.
fn outline(body: &Value) -> Vec<String> {
    let line = |said: &Value| {
        let calls = if said.get("tool_calls").is_some() { "*" } else { "" };
        let content = match said.get("content") {
            None => "-".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        format!("{}{calls} {content}", &said["role"].as_str().unwrap()[..1])
    };
    body["messages"].as_array().unwrap().iter().map(line).collect()
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
    // Both results come before the user's message, because a call must be followed by its result.
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

#[test]
fn messages_have_a_form_that_every_server_takes() {
    let request = said(vec![
        Message::user("one"),
        Message::new(Role::User, vec![text(" \n"), text("two")]),
        assistant(vec![text("\n\n"), call("a")]),
        result("a", " "),
        Message::user("three"),
        assistant(vec![Part::Reasoning { text: "hm".into(), payload: None }]),
        Message::user("four"),
    ]);
    assert_eq!(outline(&chat(&request, false)), ["u one\ntwo", "a* -", "t (no output)", "u three\nfour"]);
}

#[test]
fn each_need_changes_what_it_names() {
    let talk = || {
        said(vec![
            assistant(vec![text("hello")]),
            Message::user("look"),
            assistant(vec![call("a"), call("b")]),
            result("a", "sea"),
            Message::new(Role::Tool, vec![result("b", "sky").content.remove(0), picture()]),
            Message::new(Role::User, vec![text("and?"), picture()]),
        ])
    };
    let mut request = talk();
    request.envelope.system.compiled = "be brief".into();
    let with = |needs: &[Need]| outline(&chat_with(&request, needs));
    assert_eq!(with(&[Need::NoSystem])[..2], ["u be brief", "a hello"]);
    let note = "[An image was here. It is left out because this model takes no images.]";
    assert_eq!(with(&[Need::NoImages])[4..], ["t sea".to_owned(), format!("t sky\n{note}"), format!("u and?\n{note}")]);
    assert_eq!(with(&[Need::EmptyContent])[3], "a* ");
    assert_eq!(with(&[Need::NullContent])[3], "a* null");
    let one = with(&[Need::OneCall, Need::NoImages]);
    assert_eq!(one[3..7], ["a* -".to_owned(), "t sea".to_owned(), "a* -".to_owned(), format!("t sky\n{note}")]);
    let turns = with(&[Need::Alternate, Need::NoImages]);
    assert_eq!(turns[1..3], ["u (The conversation goes on.)", "a hello"]);
    assert_eq!(turns[7..], ["a (The user wrote before I answered.)".to_owned(), format!("u and?\n{note}")]);
    let toolless = with(&[Need::NoTools, Need::NoImages]);
    assert_eq!(toolless[3], "a (I called the tool `look` with {}.)\n(I called the tool `look` with {}.)");
    assert!(toolless[4].starts_with("u (The tool answered: sea)\n(The tool answered: sky)"), "{toolless:?}");
    let fields = [
        (Need::NoTemperature, "temperature"),
        (Need::NoEffort, "reasoning_effort"),
        (Need::NoStreamOptions, "stream_options"),
        (Need::NoTools, "tools"),
        (Need::NoLimit, "max_tokens"),
    ];
    let whole = crate::provider::openai::request_tests::request();
    for (need, field) in fields {
        assert!(chat(&whole, false).get(field).is_some() && chat_with(&whole, &[need]).get(field).is_none(), "{field}");
    }
    let strict = |needs: &[Need]| responses_with(&whole, true, needs)["tools"][0].get("strict").cloned();
    assert_eq!((strict(&[]), strict(&[Need::NoStrict])), (Some(json!(false)), None));
    let unsealed = responses_with(&whole, true, &[Need::NoSealed]);
    assert!(unsealed.get("include").is_none() && !unsealed["input"].to_string().contains("encrypted_content"));
}

#[test]
fn the_needs_that_changed_a_request_are_those_without_which_it_is_another() {
    let mut mixed = request();
    mixed.envelope.messages.cached.extend(
        said(vec![
            Message::user("and"),
            Message::user("then"),
            assistant(vec![call("a"), call("b")]),
            result("a", ""),
            result("b", "sky"),
            Message::user("so"),
            assistant(vec![text("yes")]),
            assistant(vec![text("no")]),
        ])
        .envelope
        .messages
        .cached,
    );
    let summary = ModelRequest { purpose: Purpose::Summary, ..request() };
    for request in [request(), bare(), mixed, summary] {
        for need in Need::ALL {
            let (with, without) = (Form::of(Needs::of(&[*need])), Form::default());
            let chat = |form: &Form| {
                let plan = Plan::new(&request, form, "here", (ResultImages::After, None));
                (serde_json::to_string(&ChatRequest::new(&plan)).unwrap(), plan.shown())
            };
            let responses = |form: &Form| {
                let plan = Plan::new(&request, form, "here", (ResultImages::Inside, Some("responses")));
                (serde_json::to_string(&ResponsesRequest::new(&plan, true)).unwrap(), plan.shown())
            };
            for (api, (changed, shown), (plain, _)) in
                [("chat", chat(&with), chat(&without)), ("responses", responses(&with), responses(&without))]
            {
                // Without any need, the name is `max_tokens` too.
                let is_expected = changed != plain || (*need == Need::OldLimit && shown.has(*need));
                assert_eq!(shown.has(*need), is_expected, "{need} {api}");
            }
        }
    }
}

#[test]
fn what_came_with_an_answer_goes_back_to_its_server_and_model_only() {
    let extra = r#"{"extra_content":{"google":{"thought_signature":"c2ln","n":1.50}}}"#;
    let payload = Payload {
        server: "here".into(),
        reasoning: Some("reasoning_content".into()),
        fields: Some(r#"{"b":[1.0,{"z":1,"a":2}],"odd":1e3}"#.into()),
        calls: vec![CallPayload { call_id: "c".parse().unwrap(), id: "call_1".into(), fields: Some(extra.into()) }],
        compaction: None,
    };
    let thought = Part::Reasoning { text: "hm".into(), payload: None };
    let answer = Message { payload: Some(Box::new(payload)), ..assistant(vec![thought, call("c")]) };
    let request = said(vec![Message::user("one"), answer, result("c", "sea")]);
    let body = |request: &ModelRequest, server: &str, needs: &[Need]| {
        let plan = Plan::new(request, &Form::of(Needs::of(needs)), server, (ResultImages::After, None));
        serde_json::to_string(&ChatRequest::new(&plan)).unwrap()
    };
    let sent = body(&request, "here", &[]);
    // Byte for byte, including the order of fields and the form of numbers.
    for part in [
        r#""b":[1.0,{"z":1,"a":2}]"#,
        r#""odd":1e3"#,
        r#""reasoning_content":"hm""#,
        r#""id":"call_1""#,
        r#""tool_call_id":"call_1""#,
        &extra[1..extra.len() - 1],
    ] {
        assert!(sent.contains(part), "{part}: {sent}");
    }
    let elsewhere = ModelRequest { model: "other".into(), ..request.clone() };
    let without =
        [body(&request, "there", &[]), body(&elsewhere, "here", &[]), body(&request, "here", &[Need::NoOwnFields])];
    for sent in without {
        for part in ["reasoning_content", "extra_content", "odd"] {
            assert!(!sent.contains(part), "{part}: {sent}");
        }
    }
    assert!(body(&request, "there", &[]).contains(r#""tool_call_id":"c""#));
    let asked = body(&elsewhere, "here", &[Need::ReasoningBack, Need::Signature]);
    assert!(asked.contains("\"reasoning_content\":\"(not recorded)\"") && asked.contains("skip_thought_signature"));
}

#[test]
fn reasoning_is_not_sent_without_what_it_led_to() {
    let sealed = json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" });
    let thought = || Part::Reasoning { text: String::new(), payload: Some(sealed.clone()) };
    let request = said(vec![
        Message::user("one"),
        assistant(vec![thought()]),
        Message::user("two"),
        assistant(vec![text("so"), thought()]),
    ]);
    let kinds: Vec<String> = responses(&request, true)["input"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds, ["message", "message"]);
}

#[test]
fn a_compaction_comes_first_and_in_place_of_its_summary() {
    let items = r#"[{"type":"message","role":"user","content":"kept"},{"type":"compaction","encrypted_content":"x"}]"#;
    let native = NativeCompaction {
        server: "here".into(),
        api: "responses".into(),
        model: "m".into(),
        items: items.into(),
        tokens: None,
    };
    let payload = Payload { compaction: Some(Box::new(native)), ..Payload::default() };
    let summary = Message { payload: Some(Box::new(payload)), ..Message::user("so far, in words") };
    let mut request = said(vec![summary, assistant(vec![text("two")]), Message::user("three")]);
    request.envelope.system.compiled = "be brief".into();
    let types = |input: &Value| -> Vec<String> {
        let items = input.as_array().unwrap().iter();
        items.map(|item| item["type"].as_str().unwrap_or("-").to_owned()).collect()
    };
    let sent = responses(&request, true);
    assert_eq!(types(&sent["input"]), ["message", "compaction", "message", "message"]);
    assert_eq!(sent["input"][1], json!({ "type": "compaction", "encrypted_content": "x" }));
    assert!(!sent.to_string().contains("in words"));
    let without = responses_with(&request, true, &[Need::NoNative]);
    assert!(types(&without["input"]).len() == 3 && without.to_string().contains("in words"));
    assert!(chat(&request, true).to_string().contains("in words"));

    request.compacts = Some(Compacts { instructions: Some("Mind the ropes.".into()) });
    let plan = Plan::new(&request, &Form::default(), "here", (ResultImages::Inside, Some("responses")));
    let asked = serde_json::to_value(CompactRequest::new(&plan)).unwrap();
    let fields: Vec<&String> = asked.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["input", "instructions", "model"]);
    assert_eq!(asked["instructions"], "be brief\n\nMind the ropes.");
    assert_eq!(types(&asked["input"]), types(&sent["input"]));
}
