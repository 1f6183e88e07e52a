//! Streams as servers send them, with one line per outcome.

use super::{chat_stream::ChatStream, responses_stream::ResponsesStream};
use crate::{
    core::model::{Delta, ModelFault},
    provider::{
        DeltaSink,
        upstream::{Assembly, Decoder, Framing, Progress, marked},
    },
};
use reseed_protocol::Part;

#[derive(Default)]
struct Shown(Vec<String>);

impl DeltaSink for Shown {
    fn delta(&mut self, delta: Delta<'_>) {
        let part = delta.part();
        self.0.resize(self.0.len().max(part + 1), String::new());
        match delta {
            Delta::Call { name, .. } => {
                assert_eq!(self.0[part], "", "a call begins once");
                self.0[part] = format!("{name} ");
            }
            Delta::CallEnd { .. } => self.0[part].push('.'),
            _ => self.0[part].push_str(delta.text()),
        }
    }
}

/// Formats an answer's parts, end and usage, or its fault. An answer that never ended is also reported.
pub(in crate::provider) fn outcome(decoder: impl Decoder, events: &[&str]) -> String {
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    outcome_of(decoder, body.as_bytes(), body.len().max(1))
}

/// Like [`outcome`], but for a body that arrives in chunks of `size` bytes.
pub(super) fn outcome_of(mut decoder: impl Decoder, body: &[u8], size: usize) -> String {
    let mut shown = Shown::default();
    let mut assembly = Assembly::new(&mut shown);
    let mut framing = Framing::default();
    let mut chunks = body.chunks(size);
    loop {
        let has_event = loop {
            if framing.advance() {
                break true;
            }
            match chunks.next() {
                Some(chunk) => framing.push(chunk).unwrap(),
                None => break framing.end(),
            }
        };
        if !has_event {
            break;
        }
        let (event, has_marks) = marked(framing.data());
        assembly.expect_marks(has_marks);
        match decoder.event(&event, &mut assembly) {
            Ok(Progress::More) => {}
            Ok(Progress::Done) => break,
            Err(ModelFault { code, .. }) => return format!("fault {code}"),
        }
    }
    let Some(ending) = decoder.ending() else { return "no end".to_owned() };
    let answer = match assembly.finish(ending) {
        Ok(answer) => answer,
        Err(fault) => return format!("fault {}", fault.code),
    };
    let mut words = Vec::new();
    for (at, part) in answer.parts.iter().enumerate() {
        let shown = shown.0.get(at).map_or("", String::as_str);
        match part {
            Part::Text { text } => {
                assert_eq!(text, shown, "what is kept was shown");
                words.push(format!("text({text})"));
            }
            Part::Reasoning { text, payload } => {
                assert_eq!(text, shown, "what is kept was shown");
                words.push(format!("reasoning({text}{})", if payload.is_some() { ", sealed" } else { "" }));
            }
            Part::ToolCall { call_id, name, arguments } => {
                assert_eq!(format!("{name} {arguments}."), shown, "what is kept was shown");
                words.push(format!("call({call_id} {name} {arguments})"));
            }
            other => panic!("{other:?}"),
        }
    }
    words.push(format!("{:?}", answer.stop_reason));
    words.extend(answer.usage.map(|usage| format!("{}+{}", usage.input_tokens, usage.output_tokens)));
    words.join(" ")
}

#[test]
fn chat_streams() {
    const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    for (events, expected) in [
        (
            &[
                r#"{"choices":[{"delta":{"content":"a"}}]}"#,
                r#"{"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}"#,
            ][..],
            "text(ab) Stop",
        ),
        (&[r#"{"choices":[{"delta":{"content":"a"}}]}"#, "[DONE]"], "text(a) Stop"),
        (&[r#"{"choices":[{"delta":{"content":"a"}}]}"#], "no end"),
        (&["[DONE]"], "fault upstream_empty"),
        (&[STOP, "[DONE]"], "fault upstream_empty"),
        (&[r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"length"}]}"#], "text(a) Length"),
        (&[r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"content_filter"}]}"#], "text(a) ContentFilter"),
        (&[r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"eos_token"}]}"#], "text(a) Stop"),
        (&[r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"error"}]}"#], "fault upstream_error"),
        // usage in a chunk without choices, with an empty delta, or with the finish reason; odd values count as absent
        (
            &[
                r#"{"choices":[{"delta":{"content":"a"}}]}"#,
                STOP,
                r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#,
            ],
            "text(a) Stop 9+1",
        ),
        (
            &[
                r#"{"choices":[{"delta":{"content":"a"}}]}"#,
                STOP,
                r#"{"choices":[{"index":0,"delta":{}}],"usage":{"prompt_tokens":9,"completion_tokens":1,"completion_tokens_details":null}}"#,
            ],
            "text(a) Stop 9+1",
        ),
        (
            &[r#"{"choices":[{"delta":{"content":"a"}}],"usage":null}"#, r#"{"choices":null,"usage":"none"}"#, STOP],
            "text(a) Stop",
        ),
        // fields that other servers add or omit
        (
            &[
                r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null}}]}"#,
                r#"{"choices":[{"delta":{"content":[{"type":"text"}]}}]}"#,
                r#"{"choices":[{"delta":{"content":"é\n"},"finish_reason":null}]}"#,
                STOP,
            ],
            "text(é\n) Stop",
        ),
        (
            &[r#"{"choices":[{"index":1,"delta":{"content":"other"}},{"index":0,"delta":{"content":"a"}}]}"#, STOP],
            "text(a) Stop",
        ),
        (
            &[r#"{"prompt_filter_results":[],"choices":[]}"#, r#"{"choices":[{"delta":{"refusal":"no"}}]}"#, STOP],
            "text(no) Stop",
        ),
        (
            &[
                r#"{"choices":[{"delta":{"reasoning_content":"h"}}]}"#,
                r#"{"choices":[{"delta":{"reasoning_content":"m"}}]}"#,
                r#"{"choices":[{"delta":{"content":"a"}}]}"#,
                STOP,
            ],
            "reasoning(hm) text(a) Stop",
        ),
        (&[r#"{"choices":[{"delta":{"reasoning":"hm","content":""}}]}"#, STOP], "reasoning(hm) Stop"),
        // calls
        (
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"look","arguments":""}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}"#,
                r#"{"choices":[{"finish_reason":"tool_calls"}]}"#,
            ],
            r#"call(c1 look {"a":1}) ToolCalls"#,
        ),
        (
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"a","arguments":"{}"}},{"index":1,"id":"c2","function":{"name":"b","arguments":"{}"}}]}}]}"#,
                STOP,
            ],
            "call(c1 a {}) call(c2 b {}) ToolCalls",
        ),
        (
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"a","arguments":"{}"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c2","function":{"name":"b","arguments":"{}"}}]}}]}"#,
                STOP,
            ],
            "call(c1 a {}) call(c2 b {}) ToolCalls",
        ),
        (
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"id":"c1","function":{"name":"a","arguments":{"x":1}}}]}}]}"#,
                STOP,
            ],
            r#"call(c1 a {"x":1}) ToolCalls"#,
        ),
        (&[r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"a"}}]}}]}"#, STOP], "call(call_0 a ) ToolCalls"),
        (&[r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1"}]}}]}"#, STOP], "fault upstream_empty"),
        (
            &[r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}"#, STOP],
            "fault upstream_malformed",
        ),
        (
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"a","arguments":"{\"x"}}]},"finish_reason":"length"}]}"#,
            ],
            r#"call(c1 a {"x) Length"#,
        ),
        // errors mid-stream
        (
            &[
                r#"{"choices":[{"delta":{"content":"a"}}]}"#,
                r#"{"error":{"message":"x","code":"context_length_exceeded"}}"#,
            ],
            "fault context_overflow",
        ),
        (&[r#"{"error":"broken"}"#], "fault upstream_error"),
        (&[r#"{"object":"error","message":"x","code":429}"#], "fault upstream_rate_limited"),
        (&[r#"{"error":null,"choices":[{"delta":{"content":"a"}}]}"#, STOP], "text(a) Stop"),
        (&["{\"choices\":["], "fault upstream_malformed"),
        (&["<html>"], "fault upstream_malformed"),
        (&[r#"{"choices":7}"#], "fault upstream_malformed"),
    ] {
        assert_eq!(outcome(ChatStream::default(), events), expected, "{events:#?}");
    }
}

#[test]
fn responses_streams() {
    const DONE: &str = r#"{"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":9,"output_tokens":1}}}"#;
    for (events, expected) in [
        // OpenAI's, with every field; llama-server's, without an index; and one without index and id
        (
            &[
                r#"{"type":"response.created","sequence_number":0,"response":{"id":"r"}}"#,
                r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m","content":[]}}"#,
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"item_id":"m","delta":"a"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"m","content":[{"type":"output_text","text":"a"}]}}"#,
                DONE,
            ][..],
            "text(a) Stop 9+1",
        ),
        (
            &[
                r#"{"type":"response.output_item.added","item":{"type":"message","id":"m"}}"#,
                r#"{"type":"response.output_text.delta","item_id":"m","delta":"a"}"#,
                r#"{"type":"response.output_text.delta","item_id":"m","delta":"b"}"#,
                r#"{"type":"response.output_item.done","item":{"type":"message","id":"m","content":[{"text":"ab"}]}}"#,
                DONE,
            ],
            "text(ab) Stop 9+1",
        ),
        (
            &[
                r#"{"type":"response.output_text.delta","delta":"a"}"#,
                r#"{"type":"response.output_text.delta","delta":"b"}"#,
                DONE,
            ],
            "text(ab) Stop 9+1",
        ),
        // two contents of one message; a new id in each event; one id for two items
        (
            &[
                r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"a"}"#,
                r#"{"type":"response.refusal.delta","output_index":0,"content_index":1,"delta":"no"}"#,
                DONE,
            ],
            "text(a) text(no) Stop 9+1",
        ),
        (
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"x"}}"#,
                r#"{"type":"response.output_text.delta","output_index":0,"item_id":"y","delta":"a"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"z","content":[{"text":"a"}]}}"#,
                DONE,
            ],
            "text(a) Stop 9+1",
        ),
        (
            &[
                r#"{"type":"response.output_text.delta","item_id":"m","delta":"a"}"#,
                r#"{"type":"response.output_item.done","item":{"type":"message","id":"m","content":[{"text":"a"}]}}"#,
                r#"{"type":"response.output_text.delta","item_id":"m","delta":"b"}"#,
                r#"{"type":"response.output_item.done","item":{"type":"message","id":"m","content":[{"text":"b"}]}}"#,
                DONE,
            ],
            "text(a) text(b) Stop 9+1",
        ),
        // what was not streamed is in the finished item, or only in the final event
        (
            &[
                r#"{"type":"response.output_item.done","item":{"type":"message","id":"m","content":[{"text":"a"}]}}"#,
                DONE,
            ],
            "text(a) Stop 9+1",
        ),
        (
            &[
                r#"{"type":"response.completed","response":{"output":[{"type":"message","content":[{"text":"a"}]},{"type":"function_call","call_id":"c","name":"look","arguments":"{}"}]}}"#,
            ],
            "text(a) call(c look {}) ToolCalls",
        ),
        // reasoning, encrypted and not
        (
            &[
                r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"hm"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"r","summary":[{"text":"hm"}],"encrypted_content":"x"}}"#,
                r#"{"type":"response.output_text.delta","output_index":1,"delta":"a"}"#,
                DONE,
            ],
            "reasoning(hm, sealed) text(a) Stop 9+1",
        ),
        (
            &[
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"r","summary":[],"encrypted_content":"x"}}"#,
                r#"{"type":"response.output_text.delta","output_index":1,"delta":"a"}"#,
                DONE,
            ],
            "reasoning(, sealed) text(a) Stop 9+1",
        ),
        (
            &[
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"r","summary":[],"encrypted_content":"x"}}"#,
                DONE,
            ],
            "fault upstream_empty",
        ),
        (
            &[
                r#"{"type":"response.reasoning_text.delta","item_id":"r","content_index":0,"delta":"hm"}"#,
                r#"{"type":"response.output_item.done","item":{"type":"reasoning","id":"r","content":[{"text":"hm"}],"encrypted_content":""}}"#,
                r#"{"type":"response.output_text.delta","item_id":"m","delta":"a"}"#,
                DONE,
            ],
            "reasoning(hm) text(a) Stop 9+1",
        ),
        // calls
        (
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"f","call_id":"c","name":"look","arguments":""}}"#,
                r#"{"type":"response.function_call_arguments.delta","output_index":0,"item_id":"f","delta":"{}"}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"f","call_id":"c","name":"look","arguments":"{}"}}"#,
                DONE,
            ],
            "call(c look {}) ToolCalls 9+1",
        ),
        (
            &[
                r#"{"type":"response.output_item.added","item":{"type":"function_call","id":"f","call_id":"c","name":"look"}}"#,
                r#"{"type":"response.output_item.added","item":{"type":"function_call","id":"g","call_id":"d","name":"see"}}"#,
                r#"{"type":"response.function_call_arguments.delta","item_id":"f","delta":"{\"f\":1}"}"#,
                r#"{"type":"response.function_call_arguments.delta","item_id":"g","delta":"{\"g\":1}"}"#,
                DONE,
            ],
            r#"call(c look {"f":1}) call(d see {"g":1}) ToolCalls 9+1"#,
        ),
        (
            &[
                r#"{"type":"response.function_call_arguments.delta","item_id":"f","delta":"{}"}"#,
                r#"{"type":"response.output_item.done","item":{"type":"function_call","id":"f","call_id":"c","name":"look","arguments":"{}"}}"#,
                DONE,
            ],
            "call(c look {}) ToolCalls 9+1",
        ),
        (
            &[r#"{"type":"response.function_call_arguments.delta","item_id":"f","delta":"{}"}"#, DONE],
            "fault upstream_malformed",
        ),
        // ends
        (
            &[
                r#"{"type":"response.output_text.delta","delta":"a"}"#,
                r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}"#,
            ],
            "text(a) Length",
        ),
        (
            &[
                r#"{"type":"response.output_text.delta","delta":"a"}"#,
                r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"content_filter"}}}"#,
            ],
            "text(a) ContentFilter",
        ),
        (
            &[
                r#"{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"},"usage":{"input_tokens":2048,"output_tokens":0}}}"#,
            ],
            "fault context_overflow",
        ),
        (&[r#"{"type":"response.output_text.delta","delta":"a"}"#, "[DONE]"], "no end"),
        (&[DONE], "fault upstream_empty"),
        (&[r#"{"type":"response.completed"}"#], "fault upstream_malformed"),
        // errors
        (
            &[
                r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"context_length_exceeded","message":"x"}}}"#,
            ],
            "fault context_overflow",
        ),
        (
            &[r#"{"type":"response.failed","response":{"error":{"code":"server_error","message":"x"}}}"#],
            "fault upstream_error",
        ),
        (
            &[r#"{"type":"error","code":"rate_limit_exceeded","message":"x","param":null}"#],
            "fault upstream_rate_limited",
        ),
        (
            &[
                r#"{"type":"error","error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"x"}}"#,
            ],
            "fault context_overflow",
        ),
        (&[r#"{"error":{"code":401,"message":"x"}}"#], "fault upstream_auth"),
        (&["nonsense"], "fault upstream_malformed"),
        // unknown types
        (
            &[
                r#"{"type":"response.new_thing.delta","delta":"?"}"#,
                r#"{"type":7}"#,
                "{}",
                r#"{"type":"response.output_text.delta","delta":"a"}"#,
                r#"{"type":"response.output_item.done","item":{"type":"web_search_call","id":"w"}}"#,
                DONE,
            ],
            "text(a) Stop 9+1",
        ),
    ] {
        assert_eq!(outcome(ResponsesStream::default(), events), expected, "{events:#?}");
    }
}
