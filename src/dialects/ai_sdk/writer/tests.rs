//! The chunks of a message, in short.

use super::*;
use DeltaKind::{Arguments, Reasoning, Text};

/// Returns an entry with a message.
fn entry(id: &str, role: &str, content: Value) -> Entry {
    let entry = json!({
        "entryId": id, "parentId": null, "timestamp": "2026-11-21T09:15:00Z", "type": "message", "role": role,
        "content": content,
    });
    serde_json::from_value(entry).unwrap()
}

/// Shows parts of a streamed answer: the index of each, its kind and more of its text.
fn stream(writer: &mut Writer, id: &str, parts: &[(u32, DeltaKind, &str)]) {
    let item: EntryId = id.parse().unwrap();
    for (part, kind, text) in parts {
        let known = writer.answer.as_ref().filter(|answer| answer.item == item);
        if known.is_none_or(|answer| !answer.parts.contains_key(part)) {
            let name = Some("look".to_owned()).filter(|_| *kind == Arguments);
            writer.step(Step::Started { item: item.clone(), part: *part, kind: *kind, name });
        }
        let delta = Delta { item: item.clone(), part: *part, kind: *kind, offset: 0, text: (*text).to_owned() };
        writer.step(Step::Delta(delta));
    }
}

/// Returns the chunks in short.
fn short(writer: &mut Writer) -> Vec<String> {
    let of = |chunk: &Chunk| {
        let chunk = serde_json::to_value(chunk).unwrap();
        let name = chunk["type"].as_str().unwrap().to_owned();
        let keys = ["id", "toolCallId", "delta", "inputTextDelta", "output", "errorText", "input"];
        let shown = keys.iter().filter_map(|key| chunk.get(key)).map(|value| match value {
            Value::String(text) => format!(" {text}"),
            other => format!(" {other}"),
        });
        name + &shown.collect::<String>()
    };
    writer.take().iter().map(of).collect()
}

#[test]
fn an_answer_is_streamed_and_completed_by_its_entry() {
    let mut writer = Writer::default();
    stream(&mut writer, "a", &[(0, Reasoning, "hm"), (1, Text, "Hel")]);
    let content = json!([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "Hello"}]);
    writer.entry(&entry("a", "assistant", content));
    writer.end_step();
    let expected = [
        "start-step",
        "reasoning-start a.0",
        "reasoning-delta a.0 hm",
        "reasoning-end a.0",
        "text-start a.1",
        "text-delta a.1 Hel",
        "text-delta a.1 lo",
        "text-end a.1",
        "finish-step",
    ];
    assert_eq!(short(&mut writer), expected);
}

#[test]
fn calls_have_results_in_the_same_message() {
    let mut writer = Writer::default();
    stream(&mut writer, "a", &[(0, Text, "Look."), (1, Arguments, "{\"x\"")]);
    let content = json!([
        {"type": "text", "text": "Look."},
        {"type": "tool_call", "toolCallId": "c1", "name": "look", "arguments": "{\"x\":1}"},
        {"type": "tool_call", "toolCallId": "c2", "name": "look", "arguments": "no"},
    ]);
    writer.entry(&entry("a", "assistant", content));
    writer.entry(&entry("b", "tool", json!([{"type": "tool_result", "toolCallId": "c1", "output": "sea"}])));
    let failed = json!([{"type": "tool_result", "toolCallId": "c2", "output": "bad", "isError": true}]);
    writer.entry(&entry("c", "tool", failed.clone()));
    writer.entry(&entry("d", "tool", failed));
    writer.entry(&entry("e", "assistant", json!([{"type": "text", "text": "Sea."}])));
    let expected = [
        "start-step",
        "text-start a.0",
        "text-delta a.0 Look.",
        "text-end a.0",
        "tool-input-start a.call0",
        "tool-input-delta a.call0 {\"x\"",
        "tool-input-delta a.call0 :1}",
        "tool-input-start a.call1",
        "tool-input-delta a.call1 no",
        "tool-input-available a.call0 {\"x\":1}",
        "tool-input-error a.call1 the input is not a JSON object no",
        "tool-output-available a.call0 sea",
        "tool-output-error a.call1 bad",
        "finish-step",
        "start-step",
        "text-start e.0",
        "text-delta e.0 Sea.",
        "text-end e.0",
    ];
    assert_eq!(short(&mut writer), expected);
    assert_eq!(named_call("a.call1"), Some(("a".parse().unwrap(), 1)));
    assert_eq!(named_call("toolu_1"), None);
}

#[test]
fn a_void_answer_is_reset_and_its_step_goes_on() {
    let mut writer = Writer::default();
    stream(&mut writer, "a", &[(0, Text, "Fals")]);
    writer.step(Step::Aborted("a".parse().unwrap()));
    writer.step(Step::Aborted("a".parse().unwrap()));
    stream(&mut writer, "b", &[(0, Text, "True")]);
    stream(&mut writer, "c", &[(0, Text, "Truer")]);
    let expected = [
        "start-step",
        "text-start a.0",
        "text-delta a.0 Fals",
        "reset-step",
        "text-start b.0",
        "text-delta b.0 True",
        "reset-step",
        "text-start c.0",
        "text-delta c.0 Truer",
    ];
    assert_eq!(short(&mut writer), expected);
}

#[test]
fn an_entry_that_is_not_what_was_shown_replaces_it() {
    let content = json!([{"type": "text", "text": "Half"}]);
    for shown in [
        vec![(0, Text, "Half"), (1, Arguments, "{")],
        vec![(0, Text, "Half of it")],
        vec![(0, Text, "Ha"), (1, Text, "x")],
    ] {
        let mut writer = Writer::default();
        stream(&mut writer, "a", &shown);
        writer.take();
        writer.entry(&entry("a", "assistant", content.clone()));
        let expected = ["reset-step", "text-start a.0", "text-delta a.0 Half", "text-end a.0"];
        assert_eq!(short(&mut writer), expected, "{shown:?}");
    }
}

#[test]
fn a_message_waits_once_every_call_is_asked_about_or_the_browsers() {
    let approval = |call: &str| -> Approval {
        serde_json::from_value(json!({
            "approvalId": format!("p-{call}"), "toolCallId": call, "turnId": "t", "name": "look",
            "arguments": "{}", "argumentsHash": "0", "display": "{}", "reason": "why", "options": [],
            "generation": 1, "expiresAt": "2026-11-21T09:15:00Z",
        }))
        .unwrap()
    };
    let mut writer = Writer::new(["mine".to_owned()].into(), BTreeSet::new());
    let calls = json!([
        {"type": "tool_call", "toolCallId": "c1", "name": "look", "arguments": "{}"},
        {"type": "tool_call", "toolCallId": "c2", "name": "look", "arguments": "{}"},
        {"type": "tool_call", "toolCallId": "c3", "name": "mine", "arguments": "{}"},
    ]);
    writer.entry(&entry("a", "assistant", calls));
    assert!(!writer.waits_for_page(&[]));
    assert!(!writer.waits_for_page(&[approval("c1")]));
    assert!(writer.waits_for_page(&[approval("c1"), approval("c2")]));
    writer.take();
    writer.approval(&approval("c1"));
    writer.approval(&approval("c1"));
    writer.deny("a.call0".to_owned());
    let result = json!([{"type": "tool_result", "toolCallId": "c1", "output": "no", "isError": true}]);
    writer.entry(&entry("b", "tool", result));
    assert_eq!(short(&mut writer), ["tool-approval-request a.call0", "tool-output-denied a.call0"]);
    assert!(writer.waits_for_page(&[approval("c2")]));
}
