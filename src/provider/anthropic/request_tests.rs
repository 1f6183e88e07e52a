//! Requests as they are sent to the Messages API.

use super::{models::Limits, request::MessagesRequest};
use crate::{
    config::CacheTtl,
    core::{
        model::{Compacts, ModelRequest, Purpose},
        need::{Need, Needs},
    },
    provider::adapt::{Form, Plan, ResultImages},
};
use reseed_protocol::{
    EntryId, Message, NativeCompaction, Part, Payload, Role,
    context::{
        AnswerFormat, AnswerOptions, ContextEnvelope, ContextMessage, EnvelopeMessages, EnvelopeMeta, RequestOptions,
        SystemPrompt, ToolChoice, ToolDefinition,
    },
};
use serde_json::{Value, json};
use std::sync::Arc;

const PICTURE: &str = "data:image/png;base64,AA==";

fn text(text: &str) -> Part {
    Part::Text { text: text.into() }
}

fn picture() -> Part {
    Part::Image { url: PICTURE.into(), detail: Some("low".into()) }
}

fn call(id: &str) -> Part {
    Part::ToolCall { call_id: id.parse().unwrap(), name: "look".into(), arguments: r#"{"b":1.50,"a":2}"#.into() }
}

fn result(id: &str, is_error: bool) -> Part {
    Part::ToolResult { call_id: id.parse().unwrap(), output: "seen".into(), is_error }
}

fn thinking() -> Value {
    json!({ "type": "thinking", "thinking": "hm", "signature": "c2ln" })
}

fn thought(payload: Value) -> Part {
    Part::Reasoning { text: "hm".into(), payload: Some(payload) }
}

fn answer(content: Vec<Part>, server: &str) -> Message {
    let payload = Some(Box::new(Payload { server: server.into(), ..Payload::default() }));
    Message { model: Some("claude".into()), payload, ..Message::new(Role::Assistant, content) }
}

fn sent(message: Message) -> ContextMessage {
    let entry_id = Some("entry-000000000000000000000000".parse::<EntryId>().unwrap());
    ContextMessage { entry_id, message: Arc::new(message) }
}

fn request(messages: Vec<Message>) -> ModelRequest {
    let tool = ToolDefinition { name: "look".into(), description: "Looks.".into(), parameters: json!({}) };
    ModelRequest {
        model: "claude".into(),
        envelope: ContextEnvelope {
            system: SystemPrompt { parts: Vec::new(), compiled: "be brief".into() },
            tools: vec![tool],
            messages: EnvelopeMessages { cached: messages.into_iter().map(sent).collect(), uncached: Vec::new() },
            options: RequestOptions::default(),
            meta: EnvelopeMeta::default(),
        },
        purpose: Purpose::Turn,
        compared_with: None,
        compacts: None,
    }
}

fn body(request: &ModelRequest) -> Value {
    written(request, &[], Limits::default(), CacheTtl::Minutes, &[]).0
}

fn written(
    request: &ModelRequest,
    needs: &[Need],
    limits: Limits,
    ttl: CacheTtl,
    begun: &[Value],
) -> (Value, Vec<&'static str>) {
    let plan = Plan::new(request, &Form::of(Needs::of(needs)), "here", (ResultImages::Inside, Some("messages")));
    let body = serde_json::to_string(&MessagesRequest::new(&plan, limits, ttl, begun)).unwrap();
    (serde_json::from_str(&body).unwrap(), plan.shown().iter().map(Need::name).collect())
}

/// The messages without marks, and the places of the marks as `message.block`.
fn unmarked(body: &Value) -> (Value, Vec<String>) {
    let (mut messages, mut marks) = (body["messages"].clone(), Vec::new());
    for (at, message) in messages.as_array_mut().unwrap().iter_mut().enumerate() {
        for (place, block) in message["content"].as_array_mut().unwrap().iter_mut().enumerate() {
            marks.extend(block.as_object_mut().unwrap().remove("cache_control").map(|_| format!("{at}.{place}")));
        }
    }
    (messages, marks)
}

#[test]
fn a_conversation_is_written_in_turns_with_what_belongs_together() {
    let redacted = json!({ "type": "redacted_thinking", "data": "eHh4" });
    let request = request(vec![
        Message::new(Role::User, vec![text("one"), picture()]),
        answer(vec![thought(thinking()), text("I look."), thought(redacted.clone()), call("a"), call("b")], "here"),
        Message::new(Role::Tool, vec![result("a", false), picture()]),
        Message::new(Role::Tool, vec![result("b", true)]),
        Message::new(Role::User, vec![picture(), text("and?")]),
        answer(vec![text("two"), thought(thinking())], "here"),
        answer(vec![text("three")], "there"),
        Message::user("four"),
        Message::user("five"),
    ]);
    let image = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AA==" } });
    let said = |text: &str| json!({ "type": "text", "text": text });
    let used = |id: &str| json!({ "type": "tool_use", "id": id, "name": "look", "input": { "b": 1.5, "a": 2 } });
    let body = body(&request);
    assert_eq!(
        unmarked(&body).0,
        json!([
            { "role": "user", "content": [said("one"), image] },
            { "role": "assistant", "content": [thinking(), said("I look."), redacted, used("a"), used("b")] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "a", "content": [said("seen"), image] },
                { "type": "tool_result", "tool_use_id": "b", "content": [said("seen")], "is_error": true },
                image,
                said("and?"),
            ] },
            // An answer does not end with thinking.
            { "role": "assistant", "content": [said("two"), said("three")] },
            { "role": "user", "content": [said("four"), said("five")] },
        ])
    );
    assert_eq!(
        body["system"],
        json!([{ "type": "text", "text": "be brief", "cache_control": { "type": "ephemeral" } }])
    );
    assert_eq!(
        body["tools"],
        json!([{ "name": "look", "description": "Looks.", "input_schema": { "type": "object" },
            "cache_control": { "type": "ephemeral" } }])
    );
    assert_eq!((&body["model"], &body["max_tokens"], &body["stream"]), (&json!("claude"), &json!(8192), &json!(true)));
    let names: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(names, ["max_tokens", "messages", "model", "stream", "system", "tools"]);
}

#[test]
fn what_a_model_sealed_goes_back_to_it_alone() {
    let message = |server: &str| answer(vec![thought(thinking()), call("a")], server);
    let messages =
        |server: &str| vec![Message::user("x"), message(server), Message::new(Role::Tool, vec![result("a", false)])];
    let sealed = |request: &ModelRequest, needs: &[Need]| {
        let (body, shown) = written(request, needs, Limits::default(), CacheTtl::Minutes, &[]);
        (body["messages"][1]["content"][0]["type"] == "thinking", shown)
    };
    assert_eq!(sealed(&request(messages("here")), &[]), (true, vec![]));
    assert_eq!(sealed(&request(messages("there")), &[]), (false, vec!["foreign_reasoning"]));
    assert_eq!(sealed(&request(messages("here")), &[Need::NoSealed]), (false, vec!["encrypted_reasoning"]));
    let other = ModelRequest { model: "another".into(), ..request(messages("here")) };
    assert_eq!(sealed(&other, &[]), (false, vec!["foreign_reasoning"]));
}

#[test]
fn a_model_with_a_budget_thinks_if_the_first_answer_of_the_loop_began_with_thinking() {
    let budget = Limits { needs_budget: true, ..Limits::default() };
    let thinks = |first: Vec<Part>, rest: Vec<Part>| {
        let mut messages = vec![Message::user("x"), answer(first, "here")];
        for (id, next) in [("a", Some(rest)), ("b", Some(vec![call("c")])), ("c", None)] {
            messages.push(Message::new(Role::Tool, vec![result(id, false)]));
            messages.extend(next.map(|content| answer(content, "here")));
        }
        let mut request = request(messages);
        request.envelope.options.reasoning_effort = Some("low".into());
        written(&request, &[], budget, CacheTtl::Minutes, &[]).0["thinking"].is_object()
    };
    assert!(thinks(vec![thought(thinking()), call("a")], vec![call("b")]));
    assert!(!thinks(vec![call("a")], vec![thought(thinking()), call("b")]));
}

#[test]
fn images_of_failed_calls_follow_the_results_and_types_are_normalised() {
    let image = |url: &str| Part::Image { url: url.into(), detail: None };
    let request = request(vec![
        Message::user("x"),
        answer(vec![call("a"), call("b")], "here"),
        Message::new(Role::Tool, vec![result("a", true), image("data:image/jpg;charset=utf-8;base64,AA==")]),
        Message::new(Role::Tool, vec![result("b", false), picture()]),
        Message::user("and?"),
    ]);
    let inline =
        |kind: &str| json!({ "type": "image", "source": { "type": "base64", "media_type": kind, "data": "AA==" } });
    let seen = json!({ "type": "text", "text": "seen" });
    assert_eq!(
        unmarked(&body(&request)).0[2]["content"],
        json!([
            { "type": "tool_result", "tool_use_id": "a", "content": [seen], "is_error": true },
            { "type": "tool_result", "tool_use_id": "b", "content": [seen, inline("image/png")] },
            inline("image/jpeg"),
            { "type": "text", "text": "and?" },
        ])
    );
}

#[test]
fn the_objects_of_a_schema_are_closed_unless_it_says_otherwise() {
    let schema = json!({
        "type": "object",
        "properties": {
            "type": { "type": "string" },
            "several": { "type": "array", "items": { "properties": { "a": {} } } },
            "either": { "anyOf": [{ "type": ["object", "null"] }, { "$ref": "#/$defs/open" }] },
        },
        "$defs": { "open": { "type": "object", "additionalProperties": true } },
    });
    let mut request = request(vec![Message::user("x")]);
    let format = AnswerFormat::JsonSchema { name: "form".into(), description: None, schema, strict: None };
    request.envelope.options.answer =
        Some(AnswerOptions { tool_choice: None, parallel_tool_calls: None, format: Some(format), top_logprobs: None });
    assert_eq!(
        body(&request)["output_config"]["format"]["schema"],
        json!({
            "type": "object",
            "properties": {
                "type": { "type": "string" },
                "several": {
                    "type": "array",
                    "items": { "properties": { "a": {} }, "additionalProperties": false },
                },
                "either": { "anyOf": [
                    { "type": ["object", "null"], "additionalProperties": false },
                    { "$ref": "#/$defs/open" },
                ] },
            },
            "$defs": { "open": { "type": "object", "additionalProperties": true } },
            "additionalProperties": false,
        })
    );
}

#[test]
fn a_user_comes_first_and_last_except_where_an_answer_goes_on() {
    let request = request(vec![answer(vec![text("hello")], "here")]);
    let roles = |body: &Value| -> Vec<String> {
        body["messages"].as_array().unwrap().iter().map(|turn| turn["role"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(roles(&body(&request)), ["user", "assistant", "user"]);
    let begun = [json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": { "q": 1 } })];
    let (going_on, _) = written(&request, &[], Limits::default(), CacheTtl::Minutes, &begun);
    assert_eq!(roles(&going_on), ["user", "assistant"]);
    assert_eq!(going_on["messages"][1]["content"][1], begun[0]);
}

#[test]
fn at_most_four_blocks_are_marked_where_later_requests_begin_alike() {
    let marks = |request: &ModelRequest| unmarked(&body(request)).1;
    let mut short = request(vec![Message::user("one"), answer(vec![text("two")], "here"), Message::user("three")]);
    assert_eq!(marks(&short), ["2.0"]);
    // What is sent once is not marked.
    short.envelope.messages.uncached.push(sent(Message::user("only now")));
    assert_eq!(marks(&short), ["2.0"]);
    // A summary has no entry.
    short.envelope.messages.cached[0].entry_id = None;
    assert_eq!(marks(&short), ["0.0", "2.0"]);
    short.envelope.messages.cached.clear();
    assert_eq!(marks(&short), [""; 0]);
    // From a mark, the server looks back over 20 blocks.
    let mut long = request(
        (0..50).map(|n| if n % 2 == 0 { Message::user("x") } else { answer(vec![text("y")], "here") }).collect(),
    );
    assert_eq!(marks(&long), ["31.0", "49.0"]);
    long.envelope.tools.clear();
    long.envelope.system.compiled.clear();
    assert_eq!(marks(&long), ["13.0", "31.0", "49.0"]);
    // Thinking cannot be marked.
    let mut thinks = request(vec![Message::user("x")]);
    thinks.envelope.messages.uncached.push(sent(Message::user("only now")));
    thinks.envelope.messages.cached.push(sent(answer(vec![text("y"), thought(thinking()), call("a")], "here")));
    assert_eq!(marks(&thinks), ["1.2"]);
    let hour = written(&short, &[], Limits::default(), CacheTtl::Hour, &[]).0;
    assert_eq!(hour["system"][0]["cache_control"], json!({ "type": "ephemeral", "ttl": "1h" }));
}

#[test]
fn options_are_written_as_the_model_takes_them() {
    let budget = Limits { output_tokens: Some(20_000), needs_budget: true, lacks_effort: true, ..Limits::default() };
    let newer = Limits { output_tokens: Some(64_000), ..Limits::default() };
    let adaptive = json!({ "type": "adaptive", "display": "summarized" });
    let enabled = |tokens: u64| json!({ "type": "enabled", "budget_tokens": tokens });
    for (effort, limits, max_output_tokens, thinking, sent_effort) in [
        ("high", newer, None, adaptive.clone(), json!("high")),
        ("minimal", newer, None, adaptive, json!("low")),
        ("none", newer, None, json!({ "type": "disabled" }), Value::Null),
        ("4000", newer, None, enabled(4_000), Value::Null),
        ("medium", budget, None, enabled(8_192), Value::Null),
        ("max", budget, Some(4_000), enabled(2_000), Value::Null),
        ("max", budget, Some(2_047), Value::Null, Value::Null),
        ("max", budget, Some(500), Value::Null, Value::Null),
    ] {
        let mut request = request(vec![Message::user("x")]);
        let options = &mut request.envelope.options;
        (options.reasoning_effort, options.max_output_tokens) = (Some(effort.into()), max_output_tokens);
        (options.temperature, options.top_p) = (Some(0.5), Some(0.9));
        let (body, shown) = written(&request, &[], limits, CacheTtl::Minutes, &[]);
        assert_eq!((&body["thinking"], &body["output_config"]["effort"]), (&thinking, &sent_effort), "{effort}");
        // A model that thinks takes no temperature, and others one of the two.
        let thinks = thinking["budget_tokens"].is_u64() || thinking["type"] == "adaptive";
        assert_eq!(
            (&body["temperature"], &body["top_p"]),
            (&if thinks { Value::Null } else { json!(0.5) }, &Value::Null)
        );
        let left_out: &[&str] = match (thinks, &thinking) {
            (true, _) => &["temperature", "top_p"],
            (false, Value::Null) => &["top_p", "thinking"],
            (false, _) => &["top_p"],
        };
        assert_eq!(shown, left_out, "{effort}");
    }
    let mut request = request(vec![Message::user("x")]);
    request.envelope.options.temperature = Some(1.7);
    request.envelope.options.reasoning_effort = Some("low".into());
    let answer = AnswerOptions {
        tool_choice: Some(ToolChoice::Required),
        parallel_tool_calls: Some(false),
        format: Some(AnswerFormat::JsonObject),
        top_logprobs: Some(3),
    };
    request.envelope.options.answer = Some(answer);
    let (forced, shown) = written(&request, &[], newer, CacheTtl::Minutes, &[]);
    assert_eq!(forced["tool_choice"], json!({ "type": "any", "disable_parallel_tool_use": true }));
    assert_eq!((&forced["thinking"], &forced["temperature"]), (&Value::Null, &json!(1.0)));
    assert_eq!(shown, ["thinking", "format", "logprobs"]);
    let summary = ModelRequest { purpose: Purpose::Summary, ..request };
    let (summary, shown) = written(&summary, &[], newer, CacheTtl::Minutes, &[]);
    assert_eq!((&summary["tool_choice"], summary["tools"].is_array()), (&Value::Null, true));
    assert_eq!(shown, ["temperature"]);
}

#[test]
fn the_choice_of_tools_and_the_format_are_translated() {
    let schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    for (choice, parallel, expected) in [
        (None, None, Value::Null),
        (None, Some(true), Value::Null),
        (None, Some(false), json!({ "type": "auto", "disable_parallel_tool_use": true })),
        (Some(ToolChoice::Auto), None, json!({ "type": "auto" })),
        (Some(ToolChoice::None), Some(false), json!({ "type": "none" })),
        (Some(ToolChoice::Tool { name: "look".into() }), None, json!({ "type": "tool", "name": "look" })),
    ] {
        let mut request = request(vec![Message::user("x")]);
        let name = "form".to_owned();
        let format = AnswerFormat::JsonSchema { name, description: None, schema: schema.clone(), strict: None };
        let answer = AnswerOptions {
            tool_choice: choice,
            parallel_tool_calls: parallel,
            format: Some(format),
            top_logprobs: None,
        };
        request.envelope.options.answer = Some(answer);
        let body = body(&request);
        assert_eq!(body["tool_choice"], expected);
        assert_eq!(body["output_config"], json!({ "format": { "type": "json_schema", "schema": schema } }));
    }
}

#[test]
fn an_output_limit_is_always_sent() {
    let limits = Limits { output_tokens: Some(64_000), ..Limits::default() };
    for (limit, needs, limits, (window_tokens, tokens), expected) in [
        (None, &[][..], limits, (0, 0), 64_000),
        (None, &[], limits, (200_000, 80_000), 64_000),
        (None, &[], limits, (200_000, 160_000), 20_000),
        (None, &[], limits, (200_000, 199_000), 1_024),
        (None, &[], Limits::default(), (200_000, 80_000), 8_192),
        (Some(100), &[], limits, (0, 0), 100),
        (Some(100_000), &[], limits, (0, 0), 64_000),
        (None, &[Need::NoLimit], limits, (0, 0), 4_096),
    ] {
        let mut request = request(vec![Message::user("x")]);
        request.envelope.options.max_output_tokens = limit;
        request.envelope.meta = EnvelopeMeta { window_tokens, tokens, ..EnvelopeMeta::default() };
        let (body, _) = written(&request, needs, limits, CacheTtl::Minutes, &[]);
        assert_eq!(body["max_tokens"], expected, "{limit:?} {needs:?}");
    }
}

/// A summary with the provider's own form of it.
fn compacted(server: &str, api: &str, model: &str) -> Message {
    let items = r#"[{"type":"compaction","content":"so far","signature":"c2ln"}]"#.into();
    let native =
        NativeCompaction { server: server.into(), api: api.into(), model: model.into(), items, tokens: Some(3) };
    let payload = Payload { compaction: Some(Box::new(native)), ..Payload::default() };
    Message { payload: Some(Box::new(payload)), ..Message::user("so far, in words") }
}

#[test]
fn a_compaction_goes_back_to_its_server_api_and_model_only() {
    let block = json!({ "type": "compaction", "content": "so far", "signature": "c2ln" });
    let said = |text: &str| json!({ "type": "text", "text": text });
    let readable = json!([{ "role": "user", "content": [said("so far, in words"), said("one")] }]);
    let native = json!([{ "role": "assistant", "content": [block] }, { "role": "user", "content": [said("one")] }]);
    for (server, api, model, needs, expected, shown) in [
        ("here", "messages", "claude", &[][..], &native, &[][..]),
        ("here", "messages", "claude", &[Need::NoNative], &readable, &["compaction_item"]),
        ("there", "messages", "claude", &[], &readable, &[]),
        ("here", "responses", "claude", &[], &readable, &[]),
        ("here", "messages", "another", &[], &readable, &[]),
    ] {
        let request = request(vec![compacted(server, api, model), Message::user("one")]);
        let (body, named) = written(&request, needs, Limits::default(), CacheTtl::Minutes, &[]);
        assert_eq!((&unmarked(&body).0, &named[..]), (expected, shown), "{server} {api} {model} {needs:?}");
        let plan = Plan::new(&request, &Form::of(Needs::of(needs)), "here", (ResultImages::Inside, Some("messages")));
        let betas = (*expected == native).then_some("compact-2026-09-04");
        assert_eq!(MessagesRequest::betas(&plan), betas);
    }
    // It comes first, so it is not sent where another message does.
    let request = request(vec![Message::user("one"), compacted("here", "messages", "claude")]);
    assert!(!body(&request).to_string().contains("compaction"));
}

#[test]
fn an_answer_after_a_compaction_follows_it_and_does_not_count_as_thinking() {
    let turn = |content| request(vec![compacted("here", "messages", "claude"), answer(content, "here"), tool("a")]);
    let budget = Limits { needs_budget: true, ..Limits::default() };
    for (content, thinks) in [(vec![call("a")], false), (vec![thought(thinking()), call("a")], true)] {
        let mut request = turn(content);
        request.envelope.options.reasoning_effort = Some("low".into());
        let (body, _) = written(&request, &[], budget, CacheTtl::Minutes, &[]);
        let roles: Vec<&Value> = body["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
        assert_eq!(roles, ["assistant", "user"]);
        assert_eq!(body["messages"][0]["content"][0]["type"], "compaction");
        assert_eq!(body["thinking"].is_object(), thinks);
    }
}

fn tool(id: &str) -> Message {
    Message::new(Role::Tool, vec![result(id, false)])
}

#[test]
fn a_compaction_is_requested_of_the_messages_alone() {
    let mut request = request(vec![Message::user("one"), answer(vec![text("two")], "here")]);
    request.purpose = Purpose::Summary;
    for instructions in [None, Some("Mind the ropes.")] {
        request.compacts = Some(Compacts { instructions: instructions.map(str::to_owned) });
        let body = body(&request);
        let mut expected = json!({ "type": "summarize" });
        if let Some(instructions) = instructions {
            expected["instructions"] = json!(instructions);
        }
        assert_eq!(
            (&body["compaction"], &body["tool_choice"], &body["stream"]),
            (&expected, &Value::Null, &json!(true))
        );
        let last = body["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(last["role"], "assistant", "nothing is added");
    }
}
