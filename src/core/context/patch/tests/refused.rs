//! Rejected patches, by op and with the reason.

use super::*;

#[test]
fn invalid_ops_are_refused_by_index_and_name() {
    let u = |text: &str| json!({ "role": "user", "content": [{ "type": "text", "text": text }] });
    let with = |mut op: Value| {
        op["invalidateCacheReason"] = json!("r");
        op
    };
    let good = || with(json!({ "op": "system_part_remove", "partName": "skills" }));
    let replace = |messages: Value| with(json!({ "op": "messages_cached_replace", "messages": messages }));
    let edit = |edits: Value| with(json!({ "op": "messages_cached_edit", "edits": edits }));
    let result = json!({ "role": "tool", "content": [{ "type": "tool_result", "toolCallId": "x", "output": "" }] });
    let call = json!({ "role": "assistant", "content": [
        { "type": "tool_call", "toolCallId": "x", "name": "t", "arguments": "{}" },
        { "type": "tool_call", "toolCallId": "z", "name": "t", "arguments": "{}" },
    ] });
    let many: Vec<Value> = (0..=MESSAGES_MAX).map(|at| json!({ "entryId": format!("e{at}") })).collect();
    // An op, and words that its rejection must contain.
    let durable: Vec<(Value, &str)> = vec![
        (json!({ "op": "system_part_set", "partName": "x", "text": "y" }), "invalidateCacheReason"),
        (json!({ "op": "tools_remove", "toolNames": ["x"], "invalidateCacheReason": " \n" }), "invalidateCacheReason"),
        (json!({ "op": "tools_remove", "toolNames": ["x"], "invalidateCacheReason": "r".repeat(501) }), "500"),
        (json!({ "op": "tools_remove", "toolNames": ["x"], "invalidateCacheReason": 5 }), "invalid type"),
        (with(json!({ "op": "shout" })), "unknown variant"),
        (json!({ "partName": "x" }), "missing field `op`"),
        (json!("system_part_set"), "invalid type"),
        (with(json!({ "op": "system_part_set", "partName": "x", "text": "y", "shade": 1 })), "unknown field"),
        (with(json!({ "op": "system_part_set", "partName": "x", "text": "y", "scope": "uncached" })), "`scope`"),
        (with(json!({ "op": "tools_remove", "toolNames": ["x"], "scope": 5 })), "`scope` is `cached`"),
        (json!({ "op": "messages_uncached_append", "messages": [u("x")], "scope": "cached" }), "`scope` is `uncached`"),
        (with(json!({ "op": "options_set", "maxTokens": 5, "maxOutputTokens": 5 })), "both"),
        (with(json!({ "op": "options_set", "maxTokens": 0 })), "maxOutputTokens"),
        (with(json!({ "op": "system_part_set", "partName": "a b", "text": "" })), "name of a part"),
        (with(json!({ "op": "system_part_set", "partName": "", "text": "" })), "name of a part"),
        (
            with(
                json!({ "op": "system_parts_replace", "parts": [{ "name": "x", "text": "" }, { "name": "x", "text": "" }] }),
            ),
            "twice",
        ),
        (
            with(json!({ "op": "system_part_set", "partName": "x", "text": "y".repeat(SYSTEM_BYTES_MAX - 100) })),
            "bytes",
        ),
        (with(json!({ "op": "tools_replace", "tools": [tool("fly")] })), "nobody offers the tool `fly`"),
        (with(json!({ "op": "tools_replace", "tools": [tool("read"), tool("read")] })), "twice"),
        (
            with(json!({ "op": "tools_replace",
                      "tools": [{ "name": "read", "description": "", "parameters": 1 }] })),
            "JSON Schema",
        ),
        (
            with(json!({ "op": "tools_replace", "tools": [
                { "name": "read", "description": "", "parameters": { "$ref": "#/nowhere" } }] })),
            "reference `#/nowhere`",
        ),
        (with(json!({ "op": "options_set", "temperature": 2.5 })), "0 to 2"),
        (with(json!({ "op": "options_set", "maxOutputTokens": 0 })), "maxOutputTokens"),
        (with(json!({ "op": "options_set", "maxOutputTokens": -1 })), "invalid value"),
        (with(json!({ "op": "options_set", "reasoningEffort": "a\nb" })), "reasoningEffort"),
        (replace(json!([{ "entryId": "nobody" }])), "`nobody` is not among"),
        (replace(json!([{ "entryId": "a" }, { "entryId": "a" }])), "twice"),
        (replace(json!([{}])), "neither"),
        (replace(json!([{ "message": { "role": "user", "content": [] } }])), "says nothing"),
        (replace(json!([{ "message": u("  ") }])), "says nothing"),
        (replace(json!([{ "message": { "role": "user", "content": 5 } }])), "invalid type"),
        (replace(json!([{ "role": "user", "content": " " }])), "says nothing"),
        (replace(json!([{ "entryId": "a", "role": "user", "content": "x" }])), "unknown field"),
        (replace(json!([{ "entryId": "c" }, { "entryId": "b" }, { "entryId": "d" }])), "without its call"),
        (
            replace(json!([{ "entryId": "b" }, { "entryId": "a" }, { "entryId": "c" }, { "entryId": "d" }])),
            "right behind",
        ),
        (
            replace(json!([{ "message": { "role": "user", "content": [{ "type": "image", "url": "file:///x" }] } }])),
            "image URL",
        ),
        (replace(json!([{ "message": { "role": "tool", "content": [{ "type": "text", "text": "x" }] } }])), "role"),
        (replace(json!(many)), "10000 messages"),
        (replace(json!([{ "entryId": "b" }, { "entryId": "c" }])), "without its result"),
        (replace(json!([{ "entryId": "c" }])), "without its call"),
        (replace(json!([{ "message": result }])), "without its call"),
        (
            replace(json!([{ "entryId": "b" }, { "message": u("x") }, { "entryId": "c" }, { "entryId": "d" }])),
            "right behind",
        ),
        (edit(json!([{ "entryId": "b" }])), "without its call"),
        (edit(json!([{ "entryId": "c" }])), "without its result"),
        (edit(json!([{ "entryId": "a" }, { "entryId": "a" }])), "twice"),
        (edit(json!([{ "entryId": "e", "message": u("x") }])), "another role"),
        (edit(json!([{ "entryId": "b", "message": call }])), "other calls"),
        (json!({ "op": "messages_uncached_append", "messages": [u("x")] }), "one request only"),
        (
            with(
                json!({ "op": "compaction_apply", "summary": "S", "timestamp": "2026-01-01T00:00:00Z", "tokensBefore": 1 }),
            ),
            "start_compaction",
        ),
    ];
    for (op, words) in durable {
        let name = op["op"].as_str().unwrap_or_default().to_owned();
        let (_, refused) = apply(TALK, vec![good(), op.clone()], Boundary::Durable);
        let refused = refused.expect_err(&op.to_string());
        assert_eq!((refused.index, refused.op.as_str()), (1, &*name), "{op}");
        assert!(refused.why.contains(words), "{op}: {refused}");
        let body = serde_json::to_value(refused.body()).unwrap();
        assert_eq!(body["code"], "invalid_patch");
        assert_eq!((&body["details"]["index"], &body["details"]["op"]), (&json!(1), &json!(name)), "{body}");
    }
    let ephemeral: Vec<(Value, &str)> = vec![
        (json!({ "op": "messages_uncached_append", "messages": [u(" ")] }), "says nothing"),
        (json!({ "op": "messages_uncached_append", "messages": [result] }), "without its call"),
        (json!({ "op": "messages_uncached_append", "messages": [call] }), "without its result"),
        (
            with(json!({ "op": "compaction_apply", "summary": "S", "firstKeptEntryId": "c",
                      "timestamp": "2026-01-01T00:00:00Z", "tokensBefore": 1 })),
            "without its call",
        ),
        (
            with(
                json!({ "op": "compaction_apply", "summary": "", "timestamp": "2026-01-01T00:00:00Z", "tokensBefore": 1 }),
            ),
            "keeps nothing",
        ),
        (
            with(json!({ "op": "compaction_apply", "summary": "S", "firstKeptEntryId": "a", "keptEntryIds": ["f"],
                      "timestamp": "2026-01-01T00:00:00Z", "tokensBefore": 1 })),
            "not older",
        ),
    ];
    for (op, words) in ephemeral {
        let (_, refused) = apply(TALK, vec![op.clone()], Boundary::Ephemeral);
        assert!(refused.as_ref().is_err_and(|refused| refused.why.contains(words)), "{op}: {refused:?}");
    }
    let (_, refused) = apply(TALK, vec![good(); OPS_MAX + 1], Boundary::Durable);
    assert_eq!(refused.unwrap_err().index, OPS_MAX);
    let large = with(json!({ "op": "system_part_set", "partName": "x", "text": "y".repeat(PATCH_BYTES_MAX / 2) }));
    let (_, refused) = apply(TALK, vec![good(), large.clone(), large], Boundary::Durable);
    assert_eq!(refused.unwrap_err().index, 2);
}
