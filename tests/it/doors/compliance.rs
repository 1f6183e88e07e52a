//! Our own equivalents of the tests of the Open Responses specification (2026-04-24), under the names of its suite.
//! Each is a row of a table: what a client sends, and how that ends.

mod shape;

use super::door::{Door, Lane};
use crate::support::{
    scripted::{Reply, Scripted},
    server::Server,
    talk::text_of,
};
use reseed::core::model::ModelRequest;
use reseed_protocol::{Part, Role};
use serde_json::{Value, json};
use shape::{Is, RESPONSE, check, check_events, check_items, counts};

/// What a client does. In what it sends, `"$0"` stands for the id of the response of the first step, and an item
/// `"$output 0"` for the items of its output.
enum Step {
    Create(Value),
    Stream(Value),
    Frame(Value),
    Compact(Value),
    /// Opens another WebSocket.
    Reconnect,
    /// Checks a response that the client has from elsewhere.
    Check(Value),
}

/// How a step ends.
enum Ends {
    /// With a response that is complete and has items of these types.
    Completed(&'static [&'static str]),
    /// With a compaction.
    Compacted,
    /// With this error code.
    Error(&'static str),
    /// With this status, and an error about this field.
    Refused(u16, &'static str),
    /// Without an answer.
    Silent,
}

use Ends::{Compacted, Completed, Error, Refused, Silent};
use Step::{Check, Compact, Create, Frame, Reconnect, Stream};

const MESSAGE: Ends = Completed(&["message"]);

fn frame(mut body: Value) -> Step {
    body["type"] = "response.create".into();
    body["model"] = "scripted".into();
    Frame(body)
}

fn said(role: &str, content: impl Into<Value>) -> Value {
    json!({ "type": "message", "role": role, "content": content.into() })
}

/// Returns the tests by name.
fn tests() -> Vec<(&'static str, Vec<(Step, Ends)>)> {
    let weather = json!([{
        "type": "function", "name": "get_weather", "description": "Returns the weather at a place.",
        "parameters": { "type": "object", "properties": { "place": { "type": "string" } }, "required": ["place"] },
    }]);
    let with_phase = |phase: &str, text: &str| {
        let mut message = said("assistant", text);
        message["phase"] = phase.into();
        message
    };
    let unknown_output = json!([{ "type": "function_call_output", "call_id": "call_nobody", "output": "nothing" }]);
    let launch = json!([said("user", "We launch on Tuesday."), said("assistant", "Noted: on Tuesday.")]);
    let image = json!([
        { "type": "input_text", "text": "What is in this image?" },
        { "type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=" },
    ]);
    vec![
        ("basic-response", vec![(Create(json!({ "input": [said("user", "Say hello.")] })), MESSAGE)]),
        (
            "assistant-phase",
            vec![(
                Create(json!({ "input": [
                    with_phase("commentary", "The number was stored."), with_phase("final_answer", "It is four."),
                    said("user", "Which number?"),
                ] })),
                MESSAGE,
            )],
        ),
        ("response-output-phase-schema", vec![(Check(with_phases()), MESSAGE)]),
        ("streaming-response", vec![(Stream(json!({ "input": [said("user", "Count to 5.")] })), MESSAGE)]),
        ("websocket-response", vec![(frame(json!({ "input": [said("user", "Count to 3.")] })), MESSAGE)]),
        (
            "websocket-sequential-responses",
            vec![
                (frame(json!({ "store": false, "input": "first" })), MESSAGE),
                (frame(json!({ "store": false, "input": "second" })), MESSAGE),
            ],
        ),
        (
            "websocket-continuation",
            vec![
                (frame(json!({ "store": false, "input": "The word is cobalt." })), MESSAGE),
                (frame(json!({ "store": false, "previous_response_id": "$0", "input": "Which word?" })), MESSAGE),
            ],
        ),
        (
            "websocket-reconnect-store-false-recovery",
            vec![
                (frame(json!({ "store": false, "input": "The word is copper." })), MESSAGE),
                (Reconnect, Silent),
                (
                    frame(json!({ "store": false, "previous_response_id": "$0", "input": "Which word?" })),
                    Error("previous_response_not_found"),
                ),
                (frame(json!({ "store": false, "input": [said("user", "Then anew.")] })), MESSAGE),
            ],
        ),
        (
            "websocket-generate-false",
            vec![
                (frame(json!({ "store": false, "generate": false, "input": "The word is zinc." })), Completed(&[])),
                (frame(json!({ "store": false, "previous_response_id": "$0", "input": "Which word?" })), MESSAGE),
            ],
        ),
        (
            "websocket-previous-response-not-found",
            vec![(
                frame(json!({ "store": false, "previous_response_id": "resp_missing_1764967971", "input": "x" })),
                Error("previous_response_not_found"),
            )],
        ),
        (
            "websocket-failed-continuation-evicts-cache",
            vec![
                (frame(json!({ "store": false, "input": "The word is ember." })), MESSAGE),
                (
                    frame(json!({ "store": false, "previous_response_id": "$0", "input": unknown_output })),
                    Error("unknown_call"),
                ),
                (
                    frame(json!({ "store": false, "previous_response_id": "$0", "input": "Which word?" })),
                    Error("previous_response_not_found"),
                ),
            ],
        ),
        (
            "websocket-compact-new-chain",
            vec![
                (Compact(json!({ "model": "scripted", "input": launch })), Compacted),
                (
                    frame(json!({ "store": false, "input": ["$output 0", said("user", "Go on.")], "tools": [] })),
                    MESSAGE,
                ),
            ],
        ),
        (
            "system-prompt",
            vec![(
                Create(json!({ "input": [said("system", "You are a pirate."), said("user", "Say hello.")] })),
                MESSAGE,
            )],
        ),
        (
            "tool-calling",
            vec![
                (
                    Create(json!({ "input": [said("user", "The weather, please.")], "tools": weather })),
                    Completed(&["function_call"]),
                ),
                (
                    Stream(json!({ "input": [said("user", "The weather, please.")], "tools": weather })),
                    Completed(&["function_call"]),
                ),
            ],
        ),
        ("image-input", vec![(Create(json!({ "input": [said("user", image)] })), MESSAGE)]),
        (
            "multi-turn",
            vec![(
                Create(json!({ "input": [
                    said("user", "My name is Alice."), said("assistant", "Hello Alice!"), said("user", "Who am I?"),
                ] })),
                MESSAGE,
            )],
        ),
        (
            "compact-response",
            vec![(Compact(json!({ "model": "scripted", "prompt_cache_key": "a-key", "input": launch })), Compacted)],
        ),
        ("compact-missing-model", vec![(Compact(json!({ "input": launch })), Refused(400, "model"))]),
    ]
}

/// Returns a response whose messages have a phase.
fn with_phases() -> Value {
    let message = |id: &str, phase: &str| {
        json!({
            "id": id, "type": "message", "status": "completed", "role": "assistant", "phase": phase,
            "content": [{ "type": "output_text", "text": "Four.", "annotations": [] }],
        })
    };
    json!({
        "id": "resp_1", "object": "response", "created_at": 1, "completed_at": 2, "status": "completed",
        "incomplete_details": null, "model": "m", "previous_response_id": null, "instructions": null,
        "output": [message("msg_1", "commentary"), message("msg_2", "final_answer")], "error": null, "tools": [],
        "tool_choice": "auto", "truncation": "disabled", "parallel_tool_calls": true,
        "text": { "format": { "type": "text" } }, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0,
        "top_logprobs": 0, "temperature": 1, "reasoning": null, "usage": null, "max_output_tokens": null,
        "max_tool_calls": null, "store": true, "background": false, "service_tier": "default", "metadata": {},
        "safety_identifier": null, "prompt_cache_key": null,
    })
}

/// Calls a tool if there is one, and otherwise repeats what it was told.
fn answer(request: &ModelRequest) -> Reply {
    let has_image =
        request.messages().flat_map(|said| &said.message.content).any(|part| matches!(part, Part::Image { .. }));
    let is_asked = request.messages().last().is_some_and(|said| said.message.role == Role::User);
    if is_asked && !request.envelope.tools.is_empty() {
        let arguments = r#"{"place":"San Francisco"}"#.to_owned();
        let (call_id, name) = ("call_0".parse().unwrap(), "get_weather".to_owned());
        return Reply::parts(vec![Part::ToolCall { call_id, name, arguments }]).in_pieces(3);
    }
    let seen = if has_image { "An image. " } else { "" };
    Reply::text(format!("{seen}{} {}", request.envelope.system.compiled, text_of(request))).in_pieces(4).usage(9, 3)
}

fn filled(value: &Value, made: &[Value]) -> Value {
    let of = |text: &str, before: &str| text.strip_prefix(before)?.parse::<usize>().ok();
    match value {
        Value::String(text) => match of(text, "$") {
            Some(step) => made[step]["id"].clone(),
            None => value.clone(),
        },
        Value::Array(items) => {
            let item = |item: &Value| match item.as_str().and_then(|text| of(text, "$output ")) {
                Some(step) => made[step]["output"].as_array().unwrap().clone(),
                None => vec![filled(item, made)],
            };
            Value::Array(items.iter().flat_map(item).collect())
        }
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, field)| (name.clone(), filled(field, made))).collect())
        }
        _ => value.clone(),
    }
}

async fn run(test: &str, steps: Vec<(Step, Ends)>) {
    let server = Server::start(Scripted::answering(answer), &[]).await;
    let (door, mut lane) = (Door::of(&server), Lane::of(&server).await);
    let mut made: Vec<Value> = Vec::new();
    for (step, ends) in steps {
        let (status, ended) = match step {
            Create(body) => {
                let answer = door.ask("POST", "/v1/responses", &filled(&body, &made)).await;
                (answer.status, answer.json())
            }
            Compact(body) => {
                let answer = door.ask("POST", "/v1/responses/compact", &filled(&body, &made)).await;
                (answer.status, answer.json())
            }
            Stream(mut body) => {
                body["stream"] = true.into();
                (200, check_events(test, &door.stream("POST", "/v1/responses", &filled(&body, &made)).await))
            }
            Frame(body) => {
                let events = lane.ask(&filled(&body, &made)).await;
                let last = events.last().unwrap();
                match last["type"].as_str() {
                    Some("error") => (u16::try_from(last["status"].as_u64().unwrap()).unwrap(), last.clone()),
                    _ => (200, check_events(test, &events)),
                }
            }
            Reconnect => {
                lane = Lane::of(&server).await;
                (200, Value::Null)
            }
            Check(response) => (200, response),
        };
        match ends {
            Silent => {}
            Completed(kinds) => {
                assert_eq!((status, ended["status"].as_str()), (200, Some("completed")), "{test}: {ended}");
                check(test, &ended, RESPONSE);
                check_items(test, &ended["output"]);
                let mut found: Vec<&str> =
                    ended["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
                found.dedup();
                assert_eq!(found, kinds, "{test}");
            }
            Compacted => {
                assert_eq!((status, ended["object"].as_str()), (200, Some("response.compaction")), "{test}: {ended}");
                let fields: &[(&str, Is)] = &[
                    ("id", Value::is_string),
                    ("created_at", Value::is_u64),
                    ("output", Value::is_array),
                    ("usage", counts),
                ];
                check(test, &ended, fields);
                check_items(test, &ended["output"]);
                let mut output = ended["output"].as_array().unwrap().iter();
                assert!(output.any(|item| item["type"] == "compaction"), "{test}: {ended}");
            }
            Error(code) => assert_eq!(ended["error"]["code"], code, "{test}: {ended}"),
            Refused(expected, param) => {
                assert_eq!((status, ended["error"]["param"].as_str()), (expected, Some(param)), "{test}: {ended}");
            }
        }
        made.push(ended);
    }
}

#[tokio::test]
async fn the_tests_of_the_specification_pass() {
    let tests = tests();
    assert_eq!(tests.len(), 18);
    for (test, steps) in tests {
        run(test, steps).await;
    }
}
