//! The shapes in which servers send calls, texts and whole answers, with one line per outcome. Each body is also read
//! byte by byte and cut in other ways, which must not change the outcome.

use super::{chat_stream::ChatStream, responses_stream::ResponsesStream, stream_tests::outcome_of};
use serde_json::{Value, json};

const TOOLS: [&str; 4] = ["look", "look_up", "hear", "now"];

fn chat() -> ChatStream {
    ChatStream::new(TOOLS.map(str::to_owned).to_vec())
}

/// Checks the outcome of a body, however it is cut.
fn check(body: &[u8], expected: &str) {
    for size in [body.len().max(1), 1, 2, 3, 7, 64] {
        let read = outcome_of(chat(), body, size);
        assert_eq!(read, expected, "by {size}: {}", String::from_utf8_lossy(body));
    }
}

/// Returns a stream of these deltas that ends with this reason.
fn stream(deltas: &[Value], reason: &str) -> Vec<u8> {
    let last = json!({ "choices": [{ "delta": {}, "finish_reason": reason }] });
    let chunks = deltas.iter().map(|delta| json!({ "choices": [{ "index": 0, "delta": delta }] })).chain([last]);
    chunks.map(|chunk| format!("data: {chunk}\n\n")).collect::<String>().into_bytes()
}

/// Checks the calls that result from pieces. Each item is one event, with one piece or a list of them.
fn calls(events: &[Value], expected: &str) {
    let deltas: Vec<Value> = events
        .iter()
        .map(|event| json!({ "tool_calls": if event.is_array() { event.clone() } else { json!([event]) } }))
        .collect();
    check(&stream(&deltas, "tool_calls"), &format!("{expected} ToolCalls"));
}

/// Returns a piece with these fields and this name and arguments.
fn piece(fields: Value, name: impl Into<Value>, arguments: impl Into<Value>) -> Value {
    let mut piece = fields;
    let (name, arguments) = (name.into(), arguments.into());
    for (field, value) in [("name", name), ("arguments", arguments)] {
        if !value.is_null() {
            piece["function"][field] = value;
        }
    }
    piece
}

const NONE: Value = Value::Null;

#[test]
fn pieces_find_their_call() {
    let both = "call(call_0 look {\"at\":1}) call(call_1 hear {\"at\":2})";
    let bare = |name: &str, arguments: &str| piece(json!({}), name, arguments);
    // without an index and an id
    calls(&[json!([bare("look", r#"{"at":1}"#), bare("hear", r#"{"at":2}"#)])], both);
    calls(&[bare("look", r#"{"at":1}"#), bare("hear", r#"{"at":2}"#)], both);
    calls(
        &[
            bare("look", ""),
            piece(json!({}), NONE, "{\"at\""),
            piece(json!({}), NONE, ":1}"),
            bare("hear", r#"{"at":2}"#),
        ],
        both,
    );
    let two = "call(call_0 look {\"at\":1}) call(call_1 look {\"at\":2})";
    calls(&[bare("look", r#"{"at":1}"#), bare("look", r#"{"at":2}"#)], two);
    calls(&[json!([bare("look", r#"{"at":1}"#), bare("look", r#"{"at":2}"#)])], two);
    calls(
        &[
            bare("look", ""),
            piece(json!({}), NONE, r#"{"at":1}"#),
            bare("look", ""),
            piece(json!({}), NONE, r#"{"at":2}"#),
        ],
        two,
    );
    calls(
        &[json!([bare("look", r#"{"at":1}"#), bare("look", r#"{"at":1}"#)])],
        "call(call_0 look {\"at\":1}) call(call_1 look {\"at\":1})",
    );
    calls(&[bare("now", ""), bare("look", r#"{"at":1}"#)], "call(call_0 now ) call(call_1 look {\"at\":1})");
    calls(&[json!([bare("now", ""), bare("now", "")])], "call(call_0 now ) call(call_1 now )");
    // one index for all
    for id in [json!({}), json!({ "id": "" }), json!({ "id": null })] {
        let zero = |name: &str, arguments: &str| {
            let mut fields = id.clone();
            fields["index"] = json!(0);
            piece(fields, name, arguments)
        };
        calls(&[zero("look", r#"{"at":1}"#), zero("hear", r#"{"at":2}"#)], both);
        calls(&[json!([zero("look", r#"{"at":1}"#), zero("hear", r#"{"at":2}"#)])], both);
        calls(&[zero("look", r#"{"at":1}"#), zero("look", r#"{"at":2}"#)], two);
        // sent twice
        calls(&[zero("look", r#"{"at":1}"#), zero("look", r#"{"at":1}"#)], "call(call_0 look {\"at\":1})");
    }
    let of = |id: &str, name: &str, arguments: &str| piece(json!({ "index": 0, "id": id }), name, arguments);
    let own = "call(c1 look {\"at\":1}) call(c2 hear {\"at\":2})";
    calls(&[of("c1", "look", r#"{"at":1}"#), of("c2", "hear", r#"{"at":2}"#)], own);
    calls(&[of("c1", "look", ""), of("c2", "hear", ""), of("c1", "", r#"{"at":1}"#), of("c2", "", r#"{"at":2}"#)], own);
    calls(&[of("c1", "look", ""), of("c1", "look", r#"{"at""#), of("c1", "look", ":1}")], "call(c1 look {\"at\":1})");
    // an index as a string, with a decimal point, or counted from 1
    for at in [[json!("0"), json!("1")], [json!(0.0), json!(1.0)], [json!(1), json!(2)], [json!("a"), json!("b")]] {
        let [first, second] = &at;
        calls(
            &[
                piece(json!({ "index": first, "id": "c1" }), "look", "{\"at\""),
                piece(json!({ "index": first }), NONE, ":1}"),
                piece(json!({ "index": second, "id": "c2" }), "hear", r#"{"at":2}"#),
            ],
            own,
        );
    }
    // one id for all, or a new one in each piece
    let same = |index: u64, name: &str, arguments: &str| piece(json!({ "index": index, "id": "x" }), name, arguments);
    calls(
        &[same(0, "look", ""), same(0, "", r#"{"at":1}"#), same(1, "look", ""), same(1, "", r#"{"at":2}"#)],
        "call(x look {\"at\":1}) call(call_1 look {\"at\":2})",
    );
    calls(
        &[of("a", "look", ""), of("b", "", "{\"at\""), of("c", "", ":1}"), of("d", "", "")],
        "call(a look {\"at\":1})",
    );
    calls(&[of("a", "look", "{\"at\""), of("b", "look", ":1}")], "call(a look {\"at\":1})");
    calls(&[piece(json!({ "id": 7 }), "look", r#"{"at":1}"#)], "call(7 look {\"at\":1})");
}

#[test]
fn names_come_whole_in_pieces_or_again() {
    let zero = |name: &str, arguments: &str| piece(json!({ "index": 0, "id": "c" }), name, arguments);
    for (events, expected) in [
        (vec![zero("lo", ""), zero("ok", ""), zero("", "{}")], "call(c look {})"),
        (vec![zero("look", ""), zero("_up", ""), zero("", "{}")], "call(c look_up {})"),
        (vec![zero("lo", ""), zero("look", ""), zero("look", "{}")], "call(c look {})"),
        (vec![zero("look", ""), zero("look", ""), zero("", "{}")], "call(c look {})"),
        (vec![zero("look", "{"), zero("look", "}"), zero("look", "")], "call(c look {})"),
        (vec![zero("look", "")], "call(c look )"),
        (vec![zero("un", ""), zero("known", "{}")], "call(c unknown {})"),
    ] {
        calls(&events, expected);
    }
}

#[test]
fn arguments_come_in_pieces_grown_again_or_as_an_object() {
    let zero = |arguments: Value| piece(json!({ "index": 0, "id": "c" }), "look", arguments);
    let rest = |arguments: Value| piece(json!({ "index": 0 }), NONE, arguments);
    let harbour = r#"call(c look {"at":"harbour"})"#;
    for (events, expected) in [
        (vec![zero(json!("{\"at\"")), zero(json!("{\"at\":\"har")), zero(json!("{\"at\":\"harbour\"}"))], harbour),
        (vec![zero(json!("")), rest(json!("{\"at\":\"har")), rest(json!("{\"at\":\"harbour\"}"))], harbour),
        (vec![zero(json!("{\"at\":\"har")), rest(json!("bour\"}")), zero(json!("{\"at\":\"harbour\"}"))], harbour),
        (vec![zero(json!("{\"at\":\"harbour\"}")), rest(json!("{\"at\":\"harbour\"}"))], harbour),
        (vec![zero(json!({ "at": "harbour" }))], harbour),
        (vec![zero(json!({ "at": "harbour" })), zero(json!({ "at": "harbour" }))], harbour),
        (vec![zero(NONE), rest(json!({ "at": "harbour" }))], harbour),
        (vec![zero(NONE)], "call(c look )"),
    ] {
        calls(&events, expected);
    }
    let only = |fields: Value| json!({ "function_call": fields });
    let old =
        [only(json!({ "name": "look" })), only(json!({ "arguments": "{\"at\"" })), only(json!({ "arguments": ":1}" }))];
    check(&stream(&old, "function_call"), "call(call_0 look {\"at\":1}) ToolCalls");
}

#[test]
fn characters_come_in_halves() {
    let halves = |lines: &[&[u8]]| {
        let mut body: Vec<u8> = lines.iter().flat_map(|line| [b"data: ", *line, b"\n\n"].concat()).collect();
        body.extend_from_slice(b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n");
        body
    };
    check(
        &halves(&[
            br#"{"choices":[{"delta":{"content":"It floats \ud83d"}}]}"#,
            br#"{"choices":[{"delta":{"content":"\udea2 well."}}]}"#,
        ]),
        "text(It floats 🚢 well.) Stop",
    );
    check(&halves(&[br#"{"choices":[{"delta":{"content":"a \ud99c b"}}]}"#]), "text(a \u{fffd} b) Stop");
    check(&halves(&[br#"{"choices":[{"delta":{"content":"a \ud83d"}}]}"#]), "text(a \u{fffd}) Stop");
    check(
        &halves(&[
            br#"{"choices":[{"delta":{"reasoning_content":"\ud83d"}}]}"#,
            br#"{"choices":[{"delta":{"reasoning_content":"\udea2"}}]}"#,
        ]),
        "reasoning(🚢) Stop",
    );
    check(
        &halves(&[
            br#"{"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"name":"look","arguments":"{\"at\":\"\ud83d"}}]}}]}"#,
            br#"{"choices":[{"delta":{"tool_calls":[{"id":"c","function":{"arguments":"\udea2 \ud99c\"}"}}]}}]}"#,
        ]),
        "call(c look {\"at\":\"🚢 \u{fffd}\"}) ToolCalls",
    );
}

#[test]
fn answers_come_under_other_names_and_whole() {
    let message = |object: &str, message: Value, reason: Value| {
        let choice = json!({ "index": 0, "message": message, "finish_reason": reason });
        json!({ "object": object, "choices": [choice], "usage": { "prompt_tokens": 9, "completion_tokens": 1 } })
    };
    let call = json!({ "id": "c", "type": "function", "function": { "name": "look", "arguments": "{\"at\":1}" } });
    let said = json!({ "role": "assistant", "content": "Hello.", "reasoning_content": "hm", "tool_calls": [call] });
    let whole = message("chat.completion", said.clone(), json!("tool_calls"));
    let expected = "reasoning(hm) text(Hello.) call(c look {\"at\":1}) ToolCalls 9+1";
    // a body that is not streamed, on one line or several; as an event; without a reason
    check(whole.to_string().as_bytes(), expected);
    check(serde_json::to_string_pretty(&whole).unwrap().as_bytes(), expected);
    check(format!("data: {whole}\n\ndata: [DONE]\n\n").as_bytes(), expected);
    check(format!("[{whole}]").as_bytes(), expected);
    let endless = message("chat.completion", json!({ "content": "Hello." }), Value::Null);
    check(endless.to_string().as_bytes(), "text(Hello.) Stop 9+1");
    // a streamed answer that is repeated as a whole
    let events = |deltas: &[Value], last: &Value| {
        let deltas = deltas.iter().map(|delta| json!({ "choices": [{ "delta": delta }] }).to_string());
        deltas.chain([last.to_string()]).map(|event| format!("data: {event}\n\n")).collect::<String>()
    };
    let streamed = [
        json!({ "reasoning_content": "hm" }),
        json!({ "content": "Hel" }),
        json!({ "content": "lo." }),
        json!({ "tool_calls": [piece(json!({ "index": 0, "id": "other" }), "look", "{\"at\":1}")] }),
    ];
    let once = "reasoning(hm) text(Hello.) call(other look {\"at\":1}) ToolCalls 9+1";
    check(events(&streamed, &whole).as_bytes(), once);
    check(events(&streamed, &message("chat.completion.chunk", said, json!("tool_calls"))).as_bytes(), once);
    check(events(&streamed[..2], &whole).as_bytes(), expected);
    // pieces under `message`; one object per line
    let pieces = [("Hel", Value::Null), ("lo.", json!("stop"))]
        .map(|(text, reason)| message("chat.completion.chunk", json!({ "content": text }), reason));
    check(events(&[], &json!({})).as_bytes(), "no end");
    check(format!("{}\n{}\n", pieces[0], pieces[1]).as_bytes(), "text(Hello.) Stop 9+1");
    check(format!("data: {}\r\rdata: {}\r\r", pieces[0], pieces[1]).as_bytes(), "text(Hello.) Stop 9+1");
    // content in parts, in Mistral's form
    let thought = json!([{ "type": "thinking", "thinking": [{ "type": "text", "text": "hm" }] }]);
    let parts = [json!({ "content": thought }), json!({ "content": [{ "type": "text", "text": "Hello." }] })];
    check(&stream(&parts, "stop"), "reasoning(hm) text(Hello.) Stop");
    let details =
        [json!({ "reasoning_details": [{ "type": "reasoning.text", "text": "hm" }] }), json!({ "content": "a" })];
    check(&stream(&details, "stop"), "reasoning(hm) text(a) Stop");
}

#[test]
fn ends_and_errors_come_in_many_words() {
    let said = [json!({ "content": "half of" })];
    for (reason, expected) in [
        ("model_context_window_exceeded", "text(half of) Length"),
        ("MAX_TOKENS", "text(half of) Length"),
        ("end_turn", "text(half of) Stop"),
        ("network_error", "fault upstream_error"),
        ("abort", "fault upstream_error"),
    ] {
        check(&stream(&said, reason), expected);
    }
    check(&stream(&[], "model_context_window_exceeded"), "fault context_overflow");
    for (event, expected) in [
        (json!({ "choices": [], "error": { "code": 502, "message": "x" } }), "fault upstream_error"),
        (json!({ "choices": [{ "error": { "code": 429, "message": "x" } }] }), "fault upstream_rate_limited"),
        (json!({ "choices": null, "error_message": "x", "error_type": "y" }), "fault upstream_error"),
        (json!({ "detail": "x" }), "fault upstream_error"),
        (json!({ "error": { "type": "overloaded_error", "message": "Overloaded" } }), "fault upstream_overloaded"),
    ] {
        check(format!("data: {event}\n\n").as_bytes(), expected);
        check(event.to_string().as_bytes(), expected);
    }
    let fine = json!({ "error": "", "choices": [{ "delta": { "content": "a" }, "finish_reason": "stop" }] });
    check(format!("data: {fine}\n\n").as_bytes(), "text(a) Stop");
}

#[test]
fn responses_come_whole_and_in_parts() {
    let call = json!({ "type": "function_call", "id": "f", "call_id": "c", "name": "look", "arguments": "{}" });
    let text = json!({ "type": "message", "id": "m", "content": [{ "type": "output_text", "text": "Hello." }] });
    let usage = json!({ "input_tokens": 9, "output_tokens": 1 });
    let whole = json!({ "object": "response", "status": "completed", "output": [text, call], "usage": usage });
    let done =
        |output: Value| json!({ "type": "response.completed", "response": { "output": output, "usage": usage } });
    let added = |id: &str| json!({ "type": "response.output_item.added", "output_index": "1", "item": { "type": "function_call", "id": id, "call_id": "c", "name": "look" } });
    let delta = json!({ "type": "response.output_text.delta", "output_index": "0", "delta": "Hello." });
    let finished = json!({ "type": "response.output_item.done", "output_index": 1, "item": call });
    let ended = |kind: &str, field: &str, text: &str| json!({ "type": kind, "output_index": 1, field: text });
    let both = "text(Hello.) call(c look {}) ToolCalls 9+1";
    let failed =
        json!({ "object": "response", "status": "failed", "error": { "code": "server_error", "message": "x" } });
    for (events, expected) in [
        (vec![whole], both),
        (vec![failed], "fault upstream_error"),
        // the call comes only at the end, or is repeated there, possibly under another id
        (vec![delta.clone(), done(json!([text, call]))], both),
        (vec![delta.clone(), added("f"), finished.clone(), done(json!([text, call]))], both),
        (vec![delta.clone(), added("f"), added("f"), finished.clone(), finished.clone(), done(json!([]))], both),
        (
            vec![
                delta.clone(),
                finished,
                done(
                    json!([{ "type": "function_call", "id": "g", "call_id": "d", "name": "look", "arguments": "{}" }]),
                ),
            ],
            both,
        ),
        // arguments and texts come only at the end of their piece
        (
            vec![
                delta,
                added("f"),
                ended("response.function_call_arguments.done", "arguments", "{}"),
                done(json!([text, call])),
            ],
            both,
        ),
        (
            vec![
                json!({ "type": "response.output_text.done", "output_index": 0, "text": "Hello." }),
                added("f"),
                done(json!([text, call])),
            ],
            both,
        ),
    ] {
        let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        for size in [body.len(), 1, 5] {
            assert_eq!(outcome_of(ResponsesStream::default(), body.as_bytes(), size), expected, "{body}");
        }
        if let [event] = &events[..] {
            assert_eq!(outcome_of(ResponsesStream::default(), event.to_string().as_bytes(), 3), expected);
        }
    }
}
