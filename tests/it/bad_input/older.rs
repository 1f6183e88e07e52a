//! The same over v1: every error has a message, and non-empty details with a code.

use super::bench::{
    At::{self, Silent, V1, V1Said},
    Bench,
};

/// State, frame, error code, field.
const FRAMES: &[(At, &str, &str, &str)] = &[
    (Silent, "hello", "invalid_json", ""),
    (Silent, "{}", "invalid_frame", "id"),
    (Silent, r#"{"id":"$ID","type":"fly"}"#, "unknown_command", "type"),
    (V1, "", "invalid_json", ""),
    (V1, "{\"id\":\"1\",", "invalid_json", ""),
    (V1Said, "[]", "invalid_frame", ""),
    (V1Said, "null", "invalid_frame", ""),
    (V1Said, r#"{"type":"user_input"}"#, "invalid_frame", "id"),
    (V1Said, r#"{"id":"1"}"#, "invalid_frame", "type"),
    (V1Said, r#"{"id":1,"type":"user_input"}"#, "invalid_frame", "id"),
    (V1Said, r#"{"id":"","type":"user_input"}"#, "invalid_id", "id"),
    (V1Said, r#"{"id":"s_1","type":"get_context_info"}"#, "invalid_id", "id"),
    (V1Said, r#"{"id":"1","type":"fly"}"#, "unknown_command", "type"),
    (V1Said, r#"{"id":"1","type":"open_session","payload":{}}"#, "unknown_command", "type"),
    (V1Said, r#"{"id":"1","type":"hello","payload":{"protocolVersion":2}}"#, "already_greeted", ""),
    (V1, r#"{"id":"1","type":"user_input"}"#, "missing_field", "input"),
    (V1, r#"{"id":"1","type":"user_input","payload":{"input":[]}}"#, "empty_input", "input"),
    (
        V1Said,
        r#"{"id":"1","type":"user_input","payload":{"input":[{"role":"user","content":" "}]}}"#,
        "empty_input",
        "input",
    ),
    (V1Said, r#"{"id":"1","type":"user_input","payload":{"input":"text"}}"#, "invalid_field", "input"),
    (V1Said, r#"{"id":"1","type":"user_input","payload":{"input":[7]}}"#, "invalid_field", "input[0]"),
    (
        V1Said,
        r#"{"id":"1","type":"user_input","payload":{"input":[{"content":"hi"}]}}"#,
        "missing_field",
        "input[0].role",
    ),
    (
        V1,
        r#"{"id":"1","type":"user_input","payload":{"input":[{"role":"system","content":"hi"}]}}"#,
        "invalid_field",
        "input[0].role",
    ),
    (V1Said, r#"{"id":"1","type":"user_input","payload":[]}"#, "invalid_field", "payload"),
    (
        V1Said,
        r#"{"id":"1","type":"user_input","payload":{"input":[{"role":"user","content":"\udc00"}]}}"#,
        "invalid_json",
        "",
    ),
    (V1Said, r#"{"id":"1","type":"get_context_info","type":"fly"}"#, "duplicate_key", "type"),
    (V1, r#"{"id":"1","type":"approval_response","payload":{"review":"yes"}}"#, "no_pending_approval", ""),
    (V1Said, r#"{"id":"1","type":"approval_response","payload":{"review":"NO_CONTINUE"}}"#, "no_pending_approval", ""),
    (V1Said, r#"{"id":"1","type":"approval_response","payload":{"review":"maybe"}}"#, "invalid_field", "review"),
    (V1Said, r#"{"id":"1","type":"approval_response","payload":{}}"#, "missing_field", "review"),
    (V1, r#"{"id":"1","type":"manual_compact"}"#, "nothing_to_compact", ""),
    (V1Said, r#"{"id":"1","type":"manual_compact"}"#, "nothing_to_compact", ""),
];

#[tokio::test]
async fn a_bad_frame_of_v1_gets_an_error_with_details() {
    let mut bench = Bench::start().await;
    for (at, text, code, field) in FRAMES {
        bench.check(*at, text, code, field).await;
    }
    let deep = format!(r#"{{"id":"1","type":"get_context_info","payload":{}{}}}"#, "[".repeat(40), "]".repeat(40));
    bench.check(V1Said, &deep, "too_deep", "").await;
    let long = format!(r#"{{"id":"{}","type":"get_context_info"}}"#, "x".repeat(1024 * 1024));
    bench.check(V1Said, &long, "invalid_id", "id").await;
}
