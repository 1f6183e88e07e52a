//! Commands whose values are missing, of the wrong type or not allowed.

use super::bench::{
    At::{self, Greeted, Open, Said},
    Bench,
};
use serde_json::json;

/// State, command, payload, error code, field.
const COMMANDS: &[(At, &str, &str, &str, &str)] = &[
    // Input
    (Said, "user_input", "{}", "missing_field", "input"),
    (Open, "user_input", r#"{"input":""}"#, "empty_input", "input"),
    (Said, "user_input", r#"{"input":" \n\t\u00a0"}"#, "empty_input", "input"),
    (Said, "user_input", r#"{"input":[]}"#, "empty_input", "input"),
    (Said, "user_input", r#"{"input":[{"role":"user","content":[]}]}"#, "empty_input", "input"),
    (Said, "user_input", r#"{"input":5}"#, "invalid_field", "input"),
    (Said, "user_input", r#"{"input":null}"#, "invalid_field", "input"),
    (Said, "user_input", r#"{"input":[{"role":"user"}]}"#, "missing_field", "input[0].content"),
    (Said, "user_input", r#"{"input":[{"role":"user","content":"a","mood":"b"}]}"#, "unknown_field", "input[0].mood"),
    (Said, "user_input", r#"{"input":[{"role":"system","content":"x"}]}"#, "invalid_field", "input[0].role"),
    (
        Said,
        "user_input",
        r#"{"input":[{"type":"reasoning","role":"user","content":"x"}]}"#,
        "invalid_field",
        "input[0].type",
    ),
    (
        Said,
        "user_input",
        r#"{"input":[{"role":"user","content":[{"type":"input_image","image_url":"file:///etc/passwd"}]}]}"#,
        "invalid_field",
        "input[0].content.image_url",
    ),
    (Said, "user_input", r#"{"input":"hi","whenBusy":"later"}"#, "invalid_field", "whenBusy"),
    (Said, "user_input", r#"{"input":"hi","parentID":null}"#, "unknown_field", "parentID"),
    (Said, "user_input", r#"{"input":"hi","parentId":"nowhere"}"#, "entry_not_found", "parentId"),
    (Said, "user_input", r#"{"input":"hi","parentId":7}"#, "invalid_field", "parentId"),
    (Said, "user_input", r#"{"input":"hi","ifLeaf":"root"}"#, "leaf_moved", "ifLeaf"),
    (Said, "edit_queue", r#"{"remove":"x"}"#, "invalid_field", "remove"),
    (Said, "edit_queue", r#"{"order":["nobody-waits-here"]}"#, "invalid_field", "order"),
    (Said, "navigate", r#"{"position":"at"}"#, "missing_field", "entryId"),
    (Said, "navigate", r#"{"entryId":"root","position":"up"}"#, "invalid_field", "position"),
    (Said, "navigate", r#"{"entryId":"nowhere"}"#, "entry_not_found", "entryId"),
    (Said, "navigate", r#"{"entryId":"nowhere","position":"tip"}"#, "entry_not_found", "entryId"),
    (Said, "navigate", r#"{"entryId":"a b"}"#, "invalid_field", "entryId"),
    (Said, "navigate", r#"{"entryId":"root","summarise":true}"#, "unknown_field", "summarise"),
    (Said, "set_label", r#"{"entryId":"nowhere","label":"x"}"#, "entry_not_found", "entryId"),
    (Said, "append_custom", r#"{"customType":"x"}"#, "missing_field", "data"),
    (Said, "append_custom_message", r#"{"customType":"x","content":"","display":true}"#, "empty_input", "content"),
    (Said, "append_custom_message", r#"{"customType":"x","content":"y"}"#, "missing_field", "display"),
    // Sessions and lists
    (Greeted, "open_session", r#"{"sessionId":""}"#, "invalid_field", "sessionId"),
    (Greeted, "open_session", r#"{"role":"king"}"#, "invalid_field", "role"),
    (Greeted, "open_session", r#"{"role":"owner"}"#, "invalid_field", "role"),
    (Greeted, "open_session", r#"{"takeover":true}"#, "unknown_field", "takeover"),
    (Greeted, "open_session", r#"{"role":"observer"}"#, "missing_field", "sessionId"),
    (Greeted, "open_session", r#"{"resume":{"epoch":"x","seq":1}}"#, "missing_field", "sessionId"),
    (Greeted, "open_session", r#"{"entries":-1}"#, "invalid_field", "entries"),
    (Greeted, "open_session", r#"{"resume":{"epoch":"x"}}"#, "missing_field", "resume.seq"),
    (
        Greeted,
        "open_session",
        r#"{"tools":[{"name":"a b","description":"","parameters":{}}]}"#,
        "invalid_tools",
        "tools[0].name",
    ),
    (Greeted, "list_sessions", r#"{"limit":0}"#, "invalid_field", "limit"),
    (Greeted, "list_sessions", r#"{"limit":201}"#, "invalid_field", "limit"),
    (Greeted, "list_sessions", r#"{"limit":2.5}"#, "invalid_field", "limit"),
    (Greeted, "list_sessions", r#"{"cursor":"from elsewhere"}"#, "invalid_field", "cursor"),
    (Greeted, "list_sessions", r#"{"watch":"yes"}"#, "invalid_field", "watch"),
    (Said, "get_entries", r#"{"limit":501}"#, "invalid_field", "limit"),
    (Said, "get_entries", r#"{"limit":18446744073709551616}"#, "invalid_field", "limit"),
    (Said, "get_entries", r#"{"before":"nobody"}"#, "entry_not_found", "before"),
    (Said, "get_entries", r#"{"after":"nobody","path":true}"#, "entry_not_found", "after"),
    (Said, "get_entries", r#"{"before":"a","after":"b"}"#, "invalid_field", "after"),
    (Said, "rename_session", "{}", "missing_field", "name"),
    (Said, "rename_session", r#"{"name":"  "}"#, "invalid_field", "name"),
    (Said, "ping", r#"{"seq":-1}"#, "invalid_field", "seq"),
    // Settings
    (Said, "set_options", r#"{"temperature":2.1}"#, "invalid_field", "temperature"),
    (Said, "set_options", r#"{"temperature":-0.1}"#, "invalid_field", "temperature"),
    (Said, "set_options", r#"{"temperature":"warm"}"#, "invalid_field", "temperature"),
    (Said, "set_options", r#"{"maxOutputTokens":0}"#, "invalid_field", "maxOutputTokens"),
    (Said, "set_options", r#"{"topP":1.1}"#, "invalid_field", "topP"),
    (Said, "set_options", r#"{"topK":1}"#, "unknown_field", "topK"),
    (Said, "set_options", r#"{"answer":{"toolChoice":"auto"}}"#, "invalid_field", "answer.toolChoice"),
    (Said, "set_options", r#"{"answer":{"mood":"good"}}"#, "unknown_field", "answer.mood"),
    (Said, "user_input", r#"{"input":"hi","history":{}}"#, "invalid_field", "history"),
    (Said, "user_input", r#"{"input":"hi","history":[{"role":"user"}]}"#, "missing_field", "history[0].content"),
    (Said, "set_context_strategy", r#"{"strategy":"clever"}"#, "unknown_strategy", "strategy"),
    (
        Said,
        "set_context_strategy",
        r#"{"strategy":"threshold","settings":{"threshold":-0.1}}"#,
        "invalid_field",
        "settings.threshold",
    ),
    (
        Said,
        "set_context_strategy",
        r#"{"strategy":"threshold","settings":{"threshold":1.5}}"#,
        "invalid_field",
        "settings.threshold",
    ),
    (
        Said,
        "set_context_strategy",
        r#"{"strategy":"threshold","settings":{"keepRecentTokens":0}}"#,
        "invalid_field",
        "settings.keepRecentTokens",
    ),
    (
        Said,
        "set_context_strategy",
        r#"{"strategy":"threshold","settings":{"reserveTokens":-5}}"#,
        "invalid_field",
        "settings.reserveTokens",
    ),
    (
        Said,
        "set_context_strategy",
        r#"{"strategy":"manual","settings":{"trigger":1}}"#,
        "unknown_field",
        "settings.trigger",
    ),
    (Said, "set_model", r#"{"model":""}"#, "invalid_field", "model"),
    (Said, "set_model", r#"{"model":"test","reasoningEffort":" "}"#, "invalid_field", "reasoningEffort"),
    (Said, "set_instructions", r#"{"instructions":7}"#, "invalid_field", "instructions"),
    (Said, "get_context", r#"{"format":"pdf"}"#, "invalid_field", "format"),
    (Said, "start_compaction", r#"{"previewed":"p"}"#, "unknown_field", "previewed"),
    (Said, "start_compaction", r#"{"previewId":"p"}"#, "preview_not_found", "previewId"),
    (Said, "start_compaction", r#"{"instructions":7}"#, "invalid_field", "instructions"),
    // Tools
    (Said, "register_tools", "{}", "missing_field", "tools"),
    (Said, "register_tools", r#"{"tools":[{"name":"a"}]}"#, "missing_field", "tools[0].description"),
    (
        Said,
        "register_tools",
        r#"{"tools":[{"name":"","description":"","parameters":{}}]}"#,
        "invalid_tools",
        "tools[0].name",
    ),
    (
        Said,
        "register_tools",
        r#"{"tools":[{"name":"a","description":"","parameters":7}]}"#,
        "invalid_tools",
        "tools[0].parameters",
    ),
    (
        Said,
        "register_tools",
        r#"{"tools":[{"name":"a","description":"","parameters":{"type":"banana"}}]}"#,
        "invalid_tools",
        "tools[0].parameters",
    ),
    (
        Said,
        "register_tools",
        r#"{"tools":[{"name":"a","description":"","parameters":{}},{"name":"a","description":"","parameters":{}}]}"#,
        "invalid_tools",
        "tools[1].name",
    ),
    (
        Said,
        "register_tools",
        r#"{"tools":[{"name":"a","description":"","parameters":{},"timeoutMs":0}]}"#,
        "invalid_tools",
        "tools[0].timeoutMs",
    ),
    (
        Said,
        "register_tools",
        r#"{"tools":[{"name":"a","description":"","parameters":{},"approval":true}]}"#,
        "unknown_field",
        "tools[0].approval",
    ),
    (Said, "tool_result", r#"{"toolCallId":"c"}"#, "missing_field", "output"),
    (Said, "tool_result", r#"{"toolCallId":"c","output":{}}"#, "invalid_field", "output"),
];

#[tokio::test]
async fn a_wrong_value_is_refused_by_the_name_of_its_field() {
    let mut bench = Bench::start().await;
    for (at, kind, payload, code, field) in COMMANDS {
        bench.check_command(*at, kind, payload, code, field).await;
    }
}

#[tokio::test]
async fn too_much_of_something_is_refused() {
    let mut bench = Bench::start().await;
    let tool = |at: usize| json!({ "name": format!("tool_{at}"), "description": "", "parameters": {} });
    let tools: Vec<_> = (0..129).map(tool).collect();
    let cases = [
        ("user_input", json!({ "input": "word ".repeat(100_000) }), "input_too_large", "input"),
        ("rename_session", json!({ "name": "n".repeat(201) }), "invalid_field", "name"),
        ("list_sessions", json!({ "search": "s".repeat(201) }), "invalid_field", "search"),
        ("set_model", json!({ "model": "m".repeat(201) }), "invalid_field", "model"),
        ("open_session", json!({ "sessionId": "s".repeat(65) }), "invalid_field", "sessionId"),
        ("register_tools", json!({ "tools": tools }), "invalid_tools", "tools"),
        ("get_entries", json!({ "before": "e".repeat(1024 * 1024) }), "invalid_field", "before"),
    ];
    for (kind, payload, code, field) in &cases {
        bench.check_command(Said, kind, &payload.to_string(), code, field).await;
    }
}
