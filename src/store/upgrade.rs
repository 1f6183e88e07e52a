//! Translates records of older versions to the current form. The log is never rewritten: a record is translated
//! whenever it is read.
//!
//! Versions 1 and 2 store the whole queue in `queue_changed`, which is read as it is. The events that replaced it
//! describe one input each. Version 1 was written until the v2 protocol got its final names. The renamed fields are
//! translated here. Those of receipts and branch summaries are not, because exported files contain them too, so their
//! types read both names. Data of clients, tools or providers is left unchanged.

use reseed_protocol::{ErrorBody, ErrorCode, event::Event};
use serde_json::{Map, Value};

/// Fields whose content belongs to clients, tools or providers.
const FOREIGN: [&str; 5] = ["details", "hookDetails", "data", "parameters", "payload"];

/// The version of records written now.
pub(crate) const RECORD_VERSION: i64 = 3;

/// Returns a record's body in the current form, or `None` if there is no such version.
pub(crate) fn upgraded(version: i64, body: &str) -> Option<String> {
    match version {
        2 | RECORD_VERSION => Some(body.to_owned()),
        1 => Some(from_1(body)),
        _ => None,
    }
}

/// Translates a body of version 1. One that is not a known event is returned unchanged.
fn from_1(body: &str) -> String {
    let Ok(Value::Object(mut event)) = serde_json::from_str(body) else { return body.to_owned() };
    let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(Value::Object(payload)) = event.get_mut("payload") {
        rename_in_payload(&kind, payload);
    }
    if kind == "request_resolved" {
        event.insert("type".to_owned(), "call_resolved".into());
    }
    match serde_json::from_value::<Event>(Value::Object(event)) {
        // An unknown kind of record is returned unchanged.
        Ok(Event::Unknown(_)) | Err(_) => body.to_owned(),
        Ok(event) => serde_json::to_string(&event).expect("wire types have text keys and finite numbers"),
    }
}

fn rename_in_payload(kind: &str, payload: &mut Map<String, Value>) {
    match kind {
        "entry_appended" => {
            if let Some(Value::Object(entry)) = payload.get_mut("entry") {
                rename_in_parts(entry);
            }
        }
        "tool_call" | "request_resolved" => rename(payload, "callId", "toolCallId"),
        "context_compacted" => {
            rename(payload, "oldTokenCount", "tokensBefore");
            rename(payload, "newTokenCount", "tokensAfter");
        }
        "compaction_failed" => {
            rename(payload, "unusedUsage", "summaryUsage");
            nest_error(payload);
        }
        "session_updated" => {
            for hook in list(payload, "hooks") {
                rename_point(hook);
            }
        }
        "turn_finished" => {
            let error = payload.get_mut("error").and_then(|error| error.get_mut("details"));
            if let Some(Value::Object(details)) = error.filter(|details| details.get("hook").is_some()) {
                rename_point(details);
            }
        }
        _ => {}
    }
}

/// Renames the field that names a hook's point, and the one point that was renamed.
fn rename_point(object: &mut Map<String, Value>) {
    rename(object, "event", "point");
    if object.get("point").is_some_and(|point| point == "before_compact") {
        object.insert("point".to_owned(), "before_compaction".into());
    }
}

/// Renames the field of tool calls and their results, in messages and in the messages of patches.
fn rename_in_parts(object: &mut Map<String, Value>) {
    if matches!(object.get("type").and_then(Value::as_str), Some("tool_call" | "tool_result")) {
        rename(object, "callId", "toolCallId");
    }
    for (_, value) in object.iter_mut().filter(|(name, _)| !FOREIGN.contains(&name.as_str())) {
        match value {
            Value::Object(inner) => rename_in_parts(inner),
            Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).for_each(rename_in_parts),
            _ => {}
        }
    }
}

fn rename(object: &mut Map<String, Value>, from: &str, to: &str) {
    if let Some(value) = object.remove(from) {
        object.insert(to.to_owned(), value);
    }
}

fn list<'a>(object: &'a mut Map<String, Value>, name: &str) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let items = object.get_mut(name).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Moves `code` and `message` into `error`.
fn nest_error(payload: &mut Map<String, Value>) {
    let code = payload.get("code").cloned().map(serde_json::from_value::<ErrorCode>);
    let (Some(Ok(code)), Some(Value::String(message))) = (code, payload.remove("message")) else { return };
    payload.remove("code");
    let error = serde_json::to_value(ErrorBody::new(code, message)).expect("an error has text keys");
    payload.insert("error".to_owned(), error);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A message with a call in version 1, and today.
    fn called(name: &str) -> Value {
        json!([{ "type": "tool_call", name: "c1", "name": "look", "arguments": "{\"callId\":1}" }])
    }

    fn entry(data: Value) -> Value {
        let mut entry = json!({ "entryId": "e1", "parentId": null, "timestamp": "2026-11-21T09:15:00.300Z" });
        entry.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
        json!({ "type": "entry_appended", "payload": { "entry": entry } })
    }

    #[test]
    fn records_of_version_1_read_as_if_written_today() {
        let said = |content: Value| entry(json!({ "type": "message", "role": "assistant", "content": content }));
        let usage = json!({ "inputTokens": 1, "cachedTokens": 0, "outputTokens": 2, "source": "reported" });
        let summary = |name: &str| {
            entry(json!({ "type": "branch_summary", "fromId": null, "summary": "s", name: usage.clone() }))
        };
        let patch = |name: &str| {
            entry(json!({ "type": "context_transform", "schemaVersion": 1, "transformerName": "t", "patch": [
                { "op": "messages_uncached_append", "messages": [{ "role": "assistant", "content": called(name) }] },
            ] }))
        };
        let failed = json!({ "jobId": "j", "trigger": "manual", "durationMs": 1, "pausedMs": 0 });
        let failed = |more: Value| {
            let mut payload = failed.clone();
            payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({ "type": "compaction_failed", "payload": payload })
        };
        let offered = |name: &str, point: &str| json!({ "type": "session_updated", "payload": { "hooks": [{ "name": "a", name: point }] } });
        let error = json!({ "code": "compaction_void", "message": "m", "retriable": true });
        let table = [
            (said(called("callId")), said(called("toolCallId"))),
            (patch("callId"), patch("toolCallId")),
            (summary("usage"), summary("summaryUsage")),
            (offered("event", "message"), offered("point", "message")),
            (offered("event", "before_compact"), offered("point", "before_compaction")),
            (
                json!({ "type": "request_resolved", "payload": { "callId": "c1", "outcome": "answered" } }),
                json!({ "type": "call_resolved", "payload": { "toolCallId": "c1", "outcome": "answered" } }),
            ),
            (
                failed(json!({ "code": "compaction_void", "message": "m", "unusedUsage": usage.clone() })),
                failed(json!({ "error": error, "summaryUsage": usage.clone() })),
            ),
        ];
        for (old, new) in table {
            let read = upgraded(1, &old.to_string()).unwrap();
            assert!(read.starts_with("{\"type\":"), "{read}");
            assert_eq!(serde_json::from_str::<Value>(&read).unwrap(), new);
            for version in [2, RECORD_VERSION] {
                assert_eq!(upgraded(version, &new.to_string()).unwrap(), new.to_string());
            }
        }
    }

    #[test]
    fn data_of_clients_tools_and_providers_is_unchanged() {
        let custom = entry(json!({ "type": "custom", "customType": "mine", "data": called("callId") }));
        let unknown = json!({ "type": "from_the_future", "payload": { "callId": 1 } });
        for body in [custom, unknown] {
            let read: Value = serde_json::from_str(&upgraded(1, &body.to_string()).unwrap()).unwrap();
            assert_eq!(read, body);
        }
        assert_eq!(upgraded(RECORD_VERSION + 1, "{}"), None);
        assert_eq!(upgraded(1, "no JSON").as_deref(), Some("no JSON"));
    }
}
