//! Streams of the Messages API, with one line per outcome.

use super::stream::MessagesStream;
use crate::{
    core::model::{Delta, ReportedUsage},
    provider::{
        DeltaSink,
        openai::stream_tests::outcome,
        upstream::{Assembly, Decoder},
    },
};
use reseed_protocol::{ErrorCode, FurtherUsage, Part, StopReason};
use serde_json::json;

const START: &str = r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","content":[],"usage":{"input_tokens":5,"cache_read_input_tokens":3,"cache_creation_input_tokens":2,"cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":2},"output_tokens":1}}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

fn begin(index: u64, block: &str) -> String {
    format!(r#"{{"type":"content_block_start","index":{index},"content_block":{block}}}"#)
}

fn delta(index: u64, delta: &str) -> String {
    format!(r#"{{"type":"content_block_delta","index":{index},"delta":{delta}}}"#)
}

fn end(index: u64) -> String {
    format!(r#"{{"type":"content_block_stop","index":{index}}}"#)
}

fn stop(reason: &str, output_tokens: u64) -> String {
    format!(
        r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}","stop_sequence":null}},"usage":{{"output_tokens":{output_tokens}}}}}"#
    )
}

fn told(events: &[String]) -> String {
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    outcome(MessagesStream::default(), &events)
}

fn text(index: u64, text: &str) -> [String; 3] {
    let piece = format!(r#"{{"type":"text_delta","text":"{text}"}}"#);
    [begin(index, r#"{"type":"text","text":""}"#), delta(index, &piece), end(index)]
}

struct Ignored;

impl DeltaSink for Ignored {
    fn delta(&mut self, _: Delta<'_>) {}
}

fn fault_in(events: &[String]) -> Option<ErrorCode> {
    let mut sink = Ignored;
    let (mut assembly, mut stream) = (Assembly::new(&mut sink), MessagesStream::default());
    events.iter().find_map(|event| stream.event(event, &mut assembly).err()).map(|fault| fault.code)
}

fn read(events: &[String], stream: &mut MessagesStream, assembly: &mut Assembly<'_>) {
    for event in events {
        stream.event(event, assembly).unwrap();
    }
}

#[test]
fn every_end_and_every_block_is_read() {
    let whole =
        |reason: &str| told(&[&[START.to_owned()][..], &text(0, "hi"), &[stop(reason, 4), STOP.to_owned()]].concat());
    for (reason, expected) in [
        ("end_turn", "Stop"),
        ("stop_sequence", "Stop"),
        ("max_tokens", "Length"),
        ("model_context_window_exceeded", "Length"),
        ("refusal", "ContentFilter"),
        ("something_new", "Stop"),
    ] {
        let found = whole(reason);
        assert!(found.contains("hi") && found.contains(expected), "{reason}: {found}");
    }
    let thought = [
        begin(0, r#"{"type":"thinking","thinking":"","signature":""}"#),
        delta(0, r#"{"type":"thinking_delta","thinking":"I "}"#),
        delta(0, r#"{"type":"thinking_delta","thinking":"wonder."}"#),
        delta(0, r#"{"type":"signature_delta","signature":"c2ln"}"#),
        end(0),
        begin(1, r#"{"type":"redacted_thinking","data":"eHh4"}"#),
        end(1),
    ];
    let calls = [
        begin(2, r#"{"type":"tool_use","id":"toolu_1","name":"look","input":{}}"#),
        delta(2, r#"{"type":"input_json_delta","partial_json":""}"#),
        delta(2, r#"{"type":"input_json_delta","partial_json":"{\"at\""}"#),
        delta(2, r#"{"type":"input_json_delta","partial_json":":1}"}"#),
        end(2),
        begin(3, r#"{"type":"tool_use","id":"toolu_2","name":"rest","input":{}}"#),
        end(3),
    ];
    let unknown = [
        r#"{"type":"ping"}"#.to_owned(),
        r#"{"type":"a_new_event","x":1}"#.to_owned(),
        begin(4, r#"{"type":"a_new_block","x":1}"#),
        delta(4, r#"{"type":"a_new_delta","x":1}"#),
        end(4),
    ];
    let events =
        [&[START.to_owned()][..], &thought, &unknown, &calls, &[stop("tool_use", 9), STOP.to_owned()]].concat();
    let mut sink = Ignored;
    let (mut assembly, mut stream) = (Assembly::new(&mut sink), MessagesStream::default());
    read(&events, &mut stream, &mut assembly);
    let ending = stream.ending().unwrap();
    let reported = ReportedUsage {
        input_tokens: 10,
        cached_tokens: Some(3),
        cache_write_tokens: Some(2),
        cache_write_hour_tokens: Some(2),
        output_tokens: 9,
        ..ReportedUsage::default()
    };
    assert_eq!(ending.usage, Some(reported));
    let answer = assembly.finish(ending).unwrap();
    let thinking = json!({ "type": "thinking", "thinking": "I wonder.", "signature": "c2ln" });
    let redacted = json!({ "type": "redacted_thinking", "data": "eHh4" });
    let call = |id: &str, name: &str, arguments: &str| Part::ToolCall {
        call_id: id.parse().unwrap(),
        name: name.into(),
        arguments: arguments.into(),
    };
    assert_eq!(
        answer.parts,
        [
            Part::Reasoning { text: "I wonder.".into(), payload: Some(thinking) },
            Part::Reasoning { text: String::new(), payload: Some(redacted) },
            call("toolu_1", "look", r#"{"at":1}"#),
            call("toolu_2", "rest", ""),
        ]
    );
    assert_eq!(answer.stop_reason, StopReason::ToolCalls);
}

#[test]
fn an_error_in_the_middle_and_a_stream_without_its_end_are_faults() {
    let error =
        |kind: &str, message: &str| format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}}}}"#);
    for (last, expected) in [
        (error("overloaded_error", "Overloaded"), "upstream_overloaded"),
        (error("rate_limit_error", "Slow down"), "upstream_rate_limited"),
        (error("api_error", "Internal server error"), "upstream_error"),
        (error("invalid_request_error", "no"), "upstream_rejected"),
        ("not JSON".to_owned(), "upstream_malformed"),
    ] {
        let events = [&[START.to_owned()][..], &text(0, "hi"), &[last]].concat();
        let found = told(&events);
        assert!(found.contains(expected), "{found}");
    }
    let endless: Vec<String> = (0..65).map(|n| begin(n, r#"{"type":"text","text":""}"#)).collect();
    assert!(told(&endless).contains("upstream_malformed"));
    // A message that is not streamed.
    let whole = r#"{"type":"message","content":[{"type":"text","text":"hi"},{"type":"tool_use","id":"t","name":"look","input":{"at":1}}],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":2}}"#;
    let found = told(&[whole.to_owned()]);
    assert!(found.contains("hi") && found.contains(r#"look {"at":1}"#), "{found}");
}

#[test]
fn a_paused_answer_goes_on_and_what_is_read_again_is_billed() {
    let search = [
        begin(1, r#"{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}"#),
        delta(1, r#"{"type":"input_json_delta","partial_json":"{\"query\":\"x\"}"}"#),
        end(1),
    ];
    let first =
        [&[START.to_owned()][..], &text(0, "I search."), &search, &[stop("pause_turn", 6), STOP.to_owned()]].concat();
    let second = [&[START.to_owned()][..], &text(0, "Found."), &[stop("end_turn", 4), STOP.to_owned()]].concat();
    let mut sink = Ignored;
    let (mut assembly, mut stream) = (Assembly::new(&mut sink), MessagesStream::default());
    read(&first, &mut stream, &mut assembly);
    assert!(stream.begun().is_empty() && stream.goes_on());
    assert_eq!(
        stream.begun(),
        [
            json!({ "type": "text", "text": "I search." }),
            json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": { "query": "x" } }),
        ]
    );
    assert!(stream.ending().is_none());
    read(&second, &mut stream, &mut assembly);
    assert!(!stream.goes_on());
    let ending = stream.ending().unwrap();
    let usage = ending.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.output_tokens), (10, 10));
    let again = FurtherUsage {
        input_tokens: 10,
        cached_tokens: 3,
        cache_write_tokens: 2,
        cache_write_hour_tokens: 2,
        output_tokens: 0,
    };
    assert_eq!(usage.further, Some(again));
    let said = |text: &str| Part::Text { text: text.into() };
    assert_eq!(assembly.finish(ending).unwrap().parts, [said("I search."), said("Found.")]);
    // It does not go on without end.
    let (mut assembly, mut stream) = (Assembly::new(&mut sink), MessagesStream::default());
    let pauses = std::iter::repeat_with(|| {
        read(&first, &mut stream, &mut assembly);
        stream.goes_on()
    });
    assert_eq!(pauses.take_while(|goes_on| *goes_on).count(), 16);
    assert_eq!(stream.ending().unwrap().stop_reason, StopReason::Length);
}

#[test]
fn an_answer_without_end_is_a_fault_whatever_it_consists_of() {
    let long = "x".repeat(1024 * 1024);
    let block = |kind: &str| begin(0, &format!(r#"{{"type":"{kind}","data":"{long}"}}"#));
    let piece = |kind: &str, name: &str| delta(0, &format!(r#"{{"type":"{kind}","{name}":"{long}"}}"#));
    let search = begin(0, r#"{"type":"server_tool_use","id":"s","name":"web_search","input":{}}"#);
    for (first, again) in [
        (String::new(), vec![block("redacted_thinking"), end(0)]),
        (String::new(), vec![block("web_search_tool_result"), end(0)]),
        (begin(0, r#"{"type":"thinking","thinking":""}"#), vec![piece("signature_delta", "signature")]),
        (search, vec![piece("input_json_delta", "partial_json")]),
    ] {
        let begun = [START.to_owned(), first].into_iter().filter(|event| !event.is_empty());
        let events: Vec<String> = begun.chain(again.iter().cycle().take(again.len() * 8).cloned()).collect();
        assert_eq!(fault_in(&events), Some(ErrorCode::UpstreamMalformed), "{}", &again[0][..80]);
    }
    let many = (0..1_025).flat_map(|_| [begin(0, r#"{"type":"a_new_block"}"#), end(0)]).collect::<Vec<_>>();
    assert_eq!((fault_in(&many[..2_048]), fault_in(&many)), (None, Some(ErrorCode::UpstreamMalformed)));
}

#[test]
fn a_later_report_without_the_counts_of_the_cache_keeps_them() {
    for (last, input_tokens, output_tokens) in [
        (r#"{"input_tokens":5,"output_tokens":9}"#, 10, 9),
        (r#"{"input_tokens":7,"output_tokens":9,"cache_read_input_tokens":null}"#, 12, 9),
        (r#"{"input_tokens":0,"output_tokens":0,"cache_read_input_tokens":0}"#, 10, 1),
        (r#"{"input_tokens":6,"output_tokens":9,"cache_read_input_tokens":1}"#, 9, 9),
    ] {
        let last = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{last}}}"#);
        let mut sink = Ignored;
        let (mut assembly, mut stream) = (Assembly::new(&mut sink), MessagesStream::default());
        read(&[START.to_owned(), last], &mut stream, &mut assembly);
        let usage = stream.ending().and_then(|ending| ending.usage).unwrap();
        assert_eq!((usage.input_tokens, usage.output_tokens), (input_tokens, output_tokens));
    }
}

#[test]
fn a_compaction_is_one_block_with_a_text() {
    let block = |content: &str| {
        format!(r#"{{"type":"compaction","content":{content},"encrypted_content":"eA==","signature":"c2ln"}}"#)
    };
    let made = |contents: &[&str], reason: &str| -> Result<String, ErrorCode> {
        let usage = r#"{"input_tokens":0,"output_tokens":0,"iterations":[{"type":"compaction","input_tokens":70,"output_tokens":6}]}"#;
        let blocks = contents.iter().zip(0..).flat_map(|(content, index)| [begin(index, &block(content)), end(index)]);
        let last = format!(r#"{{"type":"message_delta","delta":{{"stop_reason":"{reason}"}},"usage":{usage}}}"#);
        let events: Vec<String> = blocks.chain([last, STOP.to_owned()]).collect();
        let mut sink = Ignored;
        let (mut assembly, mut stream) = (Assembly::new(&mut sink), MessagesStream::default());
        read(&events, &mut stream, &mut assembly);
        let answer = stream.compaction().map_err(|fault| fault.code)?;
        let native = answer.payload.unwrap().compaction.unwrap();
        let further = answer.usage.unwrap().further.unwrap();
        Ok(format!(
            "{:?} {} {} {}+{}",
            answer.parts, native.api, native.items, further.input_tokens, further.output_tokens
        ))
    };
    let whole = r#"[Text { text: "so far" }] messages [{"content":"so far","encrypted_content":"eA==","signature":"c2ln","type":"compaction"}] 70+6"#;
    for (contents, reason, expected) in [
        (&["\"so far\""][..], "compaction", Ok(whole.to_owned())),
        (&[], "end_turn", Err(ErrorCode::UpstreamMalformed)),
        (&["\"so\"", "\"far\""], "compaction", Err(ErrorCode::UpstreamMalformed)),
        (&["\"so far\""], "max_tokens", Err(ErrorCode::UpstreamMalformed)),
        (&["\" \""], "compaction", Err(ErrorCode::UpstreamEmpty)),
        (&["null"], "compaction", Err(ErrorCode::UpstreamEmpty)),
        (&[], "refusal", Err(ErrorCode::ContentFiltered)),
    ] {
        assert_eq!(made(contents, reason), expected, "{contents:?} {reason}");
    }
}
