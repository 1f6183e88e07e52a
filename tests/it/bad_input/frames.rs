//! Frames that are not commands: not JSON, other shapes, ids, fields, depth, duplicate keys.

use super::bench::{
    At::{self, Greeted, Negotiated, Open, Running, Said},
    Bench,
};

/// State, frame, error code, field.
const FRAMES: &[(At, &str, &str, &str)] = &[
    // Not JSON
    (Said, "", "invalid_json", ""),
    (Said, " \n", "invalid_json", ""),
    (Said, "hello", "invalid_json", ""),
    (Running, r#"{"id":"$ID","type":"user_input","payload":{"input":"hi"}"#, "invalid_json", ""),
    (Said, r#"{"id":"$ID","type":"ping",}"#, "invalid_json", ""),
    (Said, r#"{"id":"$ID","type":"ping"} {}"#, "invalid_json", ""),
    (Said, r#"{'id':'$ID','type':'ping'}"#, "invalid_json", ""),
    (Said, r#"{"id":"$ID","type":"ping","payload":{"seq":NaN}}"#, "invalid_json", ""),
    (Said, r#"{"id":"$ID","type":"ping","payload":{"seq":1e999}}"#, "invalid_json", ""),
    (Said, "{\"id\":\"$ID\",\"type\":\"user_input\",\"payload\":{\"input\":\"a\u{1}b\"}}", "invalid_json", ""),
    (Said, "\u{feff}{\"id\":\"$ID\",\"type\":\"ping\"}", "invalid_json", ""),
    // Lone surrogates
    (Said, r#"{"id":"$ID","type":"user_input","payload":{"input":"\ud83d"}}"#, "invalid_json", ""),
    (Said, r#"{"id":"$ID","type":"user_input","payload":{"input":"\ude00 first"}}"#, "invalid_json", ""),
    (Said, r#"{"id":"$ID","type":"user_input","payload":{"\ud83d":"input"}}"#, "invalid_json", ""),
    // JSON of another shape
    (Said, "[]", "invalid_frame", ""),
    (Said, "null", "invalid_frame", ""),
    (Said, r#""ping""#, "invalid_frame", ""),
    (Said, "42", "invalid_frame", ""),
    (Said, r#"[{"id":"$ID","type":"ping"}]"#, "invalid_frame", ""),
    (Said, "{}", "invalid_frame", "id"),
    (Said, r#"{"type":"ping"}"#, "invalid_frame", "id"),
    (Said, r#"{"id":"$ID"}"#, "invalid_frame", "type"),
    (Said, r#"{"id":7,"type":"ping"}"#, "invalid_frame", "id"),
    (Said, r#"{"id":null,"type":"ping"}"#, "invalid_frame", "id"),
    (Said, r#"{"id":"$ID","type":["ping"]}"#, "invalid_frame", "type"),
    (Said, r#"{"id":"$ID","type":"ping","seq":1}"#, "unknown_field", "seq"),
    (Said, r#"{"id":"$ID","type":"delete_session","sessionId":null}"#, "missing_field", "sessionId"),
    (Said, r#"{"id":"$ID","type":"delete_session","sessionId":7}"#, "invalid_field", "sessionId"),
    (Said, r#"{"id":"$ID","type":"list_sessions","sessionId":"$SESSION"}"#, "unknown_field", "sessionId"),
    (Said, r#"{"id":"$ID","type":"ping","payload":{"seq":1}}"#, "missing_field", "sessionId"),
    (Greeted, r#"{"id":"1","type":"open_session"}"#, "invalid_id", "id"),
    (Said, r#"{"id":"$ID","type":"ping","payload":[]}"#, "invalid_field", "payload"),
    (Said, r#"{"id":"$ID","type":"ping","payload":"{}"}"#, "invalid_field", "payload"),
    (Said, r#"{"id":"$ID","type":"ping","payload":7}"#, "invalid_field", "payload"),
    // Unknown types and fields
    (Said, r#"{"id":"$ID","type":"fly"}"#, "unknown_command", "type"),
    (Said, r#"{"id":"$ID","type":"USER_INPUT","payload":{"input":"hi"}}"#, "unknown_command", "type"),
    (Said, r#"{"id":"$ID","type":"turn_started","payload":{}}"#, "unknown_command", "type"),
    (Said, r#"{"id":"$ID","type":"praise_entry","payload":{"entryId":"x"}}"#, "unknown_command", "type"),
    (Negotiated, r#"{"id":"$ID","type":"fly"}"#, "not_greeted", ""),
    (Said, r#"{"id":"$ID","type":"ping","parentId":null}"#, "unknown_field", "parentId"),
    (Said, r#"{"id":"$ID","type":"ping","payload":{"sequence":1}}"#, "unknown_field", "sequence"),
    // Ids
    (Said, r#"{"id":"","type":"ping"}"#, "invalid_id", "id"),
    (Said, r#"{"id":"two words","type":"ping"}"#, "invalid_id", "id"),
    (Said, r#"{"id":"grün","type":"ping"}"#, "invalid_id", "id"),
    (Said, r#"{"id":"a/b\u0000","type":"ping"}"#, "invalid_id", "id"),
    (Said, r#"{"id":"s_1","type":"ping"}"#, "invalid_id", "id"),
    (Said, r#"{"id":"s_0123456789abcdef","type":"user_input","payload":{"input":"hi"}}"#, "invalid_id", "id"),
    (Said, r#"{"id":"0123456789abcde","type":"user_input","payload":{"input":"hi"}}"#, "invalid_id", "id"),
    (Running, r#"{"id":"1","type":"cancel_turn"}"#, "invalid_id", "id"),
    // Duplicate keys
    (Said, r#"{"id":"$ID","id":"other","type":"ping"}"#, "duplicate_key", "id"),
    (Said, r#"{"id":"$ID","type":"ping","type":"ping"}"#, "duplicate_key", "type"),
    (Said, r#"{"id":"$ID","type":"ping","payload":{},"payload":{"seq":1}}"#, "duplicate_key", "payload"),
    (Said, r#"{"id":"$ID","type":"user_input","payload":{"input":"a","input":"b"}}"#, "duplicate_key", "input"),
    (Said, r#"{"id":"$ID","type":"user_input","payload":{"input":"a","\u0069nput":"b"}}"#, "duplicate_key", "input"),
    (
        Said,
        r#"{"id":"$ID","type":"user_input","payload":{"input":[{"role":"user","content":"a","content":"b"}]}}"#,
        "duplicate_key",
        "content",
    ),
    (
        Said,
        r#"{"id":"$ID","type":"register_tools","payload":{"tools":[{"name":"a","description":"b","parameters":{"type":"object","properties":{"x":{},"x":{}}}}]}}"#,
        "duplicate_key",
        "x",
    ),
    // The first frame
    (Negotiated, r#"{"id":"$ID","type":"user_input","payload":{"input":"hi"}}"#, "not_greeted", ""),
    (Negotiated, r#"{"id":"short","type":"user_input","payload":{"input":"hi"}}"#, "not_greeted", ""),
    (Negotiated, r#"{"id":"$ID","type":"ping","surprise":1}"#, "not_greeted", ""),
    (Negotiated, "nope", "invalid_json", ""),
    (Negotiated, r#"{"id":"$ID","type":"hello","payload":{}}"#, "missing_field", "protocolVersion"),
    (Negotiated, r#"{"id":"$ID","type":"hello"}"#, "missing_field", "protocolVersion"),
    (
        Negotiated,
        r#"{"id":"$ID","type":"hello","payload":{"protocolVersion":1}}"#,
        "unsupported_version",
        "protocolVersion",
    ),
    (
        Negotiated,
        r#"{"id":"$ID","type":"hello","payload":{"protocolVersion":"2"}}"#,
        "invalid_field",
        "protocolVersion",
    ),
    (
        Negotiated,
        r#"{"id":"$ID","type":"hello","payload":{"protocolVersion":2,"clientId":""}}"#,
        "invalid_field",
        "clientId",
    ),
    (
        Negotiated,
        r#"{"id":"$ID","type":"hello","payload":{"protocolVersion":2,"client":{"name":"x"}}}"#,
        "missing_field",
        "client.version",
    ),
    (Greeted, r#"{"id":"$ID","type":"hello","payload":{"protocolVersion":2}}"#, "already_greeted", ""),
    (Open, r#"{"id":"$ID","type":"hello","payload":{"protocolVersion":2}}"#, "already_greeted", ""),
];

#[tokio::test]
async fn a_frame_that_is_no_command_gets_an_error_that_says_why() {
    let mut bench = Bench::start().await;
    for (at, text, code, field) in FRAMES {
        bench.check(*at, text, code, field).await;
    }
}

#[tokio::test]
async fn long_and_deep_frames_are_refused_and_their_neighbours_taken() {
    let mut bench = Bench::start().await;
    let id = |length: usize| format!(r#"{{"id":"{}","type":"ping"}}"#, "x".repeat(length));
    // A frame, its payload and this many arrays in it.
    let deep = |arrays: usize| {
        let (open, close) = ("[".repeat(arrays), "]".repeat(arrays));
        format!(r#"{{"id":"$ID","type":"ping","payload":{{"seq":{open}{close}}}}}"#)
    };
    let cases = [
        (id(65), "invalid_id", "id"),
        (id(1024 * 1024), "invalid_id", "id"),
        (format!(r#"{{"id":"$ID","type":"{}"}}"#, "x".repeat(1024 * 1024)), "unknown_command", "type"),
        (deep(30), "invalid_field", "seq"),
        (deep(31), "too_deep", ""),
        (deep(1_000), "too_deep", ""),
        (deep(500_000), "too_deep", ""),
        ("[".repeat(1_000_000), "invalid_json", ""),
        (format!("{}{}", "[".repeat(500_000), "]".repeat(500_000)), "invalid_frame", ""),
        (r#"{"a":"#.repeat(200_000), "too_deep", ""),
    ];
    for (text, code, field) in &cases {
        bench.check(Said, text, code, field).await;
    }
}
