//! Tests of the pieces and the end of answers.

use super::*;
use reseed_protocol::{EntryData, Timestamp};

fn id(text: &str) -> EntryId {
    text.parse().unwrap()
}

fn delta(item: &str, kind: DeltaKind, text: &str) -> Step {
    Step::Delta(Delta { item: id(item), part: 0, kind, offset: 0, text: text.into() })
}

fn entry(item: &str, message: Message) -> Step {
    Step::Entry(Box::new(Entry {
        entry_id: id(item),
        parent_id: None,
        timestamp: serde_json::from_str::<Timestamp>("\"2026-11-29T12:00:00.000Z\"").unwrap(),
        imported: None,
        data: EntryData::message(message),
    }))
}

fn answer(parts: Vec<Part>) -> Message {
    Message { model: Some("m".into()), ..Message::new(Role::Assistant, parts) }
}

fn text(text: &str) -> Part {
    Part::Text { text: text.into() }
}

fn call(id: &str, name: &str) -> Part {
    Part::ToolCall { call_id: id.parse().unwrap(), name: name.into(), arguments: "{}".into() }
}

fn result(call: &str) -> Message {
    let part = Part::ToolResult { call_id: call.parse().unwrap(), output: "x".into(), is_error: true };
    Message::new(Role::Tool, vec![part])
}

fn finished(status: TurnStatus, finish_reason: Option<StopReason>) -> Step {
    Step::Finished(Box::new(Ended { status, finish_reason, error: None, usage: None }))
}

/// Returns the pieces as short text, and the finish reason or the error's code.
fn play(steps: Vec<Step>) -> (Vec<String>, String) {
    let mut answer = Answer::new(vec!["look".into()]);
    let mut pieces = Vec::new();
    let mut last = "it goes on".to_owned();
    for step in steps {
        match answer.step(step, &mut pieces) {
            Ok(Some(end)) => last = end.finish_reason.to_owned(),
            Ok(None) => {}
            Err(error) => last = error.code.to_string(),
        }
    }
    let shown = pieces.into_iter().map(|piece| match piece {
        Piece::Text(text) => text,
        Piece::Reasoning(text) => format!("({text})"),
        Piece::Call { index, id, name, arguments } => format!("{index}:{id}:{name}{arguments}"),
    });
    (shown.collect(), last)
}

#[test]
fn text_goes_out_once_and_calls_at_the_end() {
    let steps = vec![
        delta("a", DeltaKind::Reasoning, "hm"),
        delta("a", DeltaKind::Text, "One "),
        delta("a", DeltaKind::Arguments, "{"),
        entry(
            "a",
            answer(vec![
                Part::Reasoning { text: "hm".into(), payload: None },
                text("One two."),
                call("c1", "look"),
                call("s1", "search"),
                call("c2", "look"),
            ]),
        ),
        entry("t", result("s1")),
        entry("u", result("c1")),
        finished(TurnStatus::Completed, Some(StopReason::ToolCalls)),
    ];
    let (pieces, last) = play(steps);
    assert_eq!(pieces, ["(hm)", "One ", "two.", "0:c2:look{}"]);
    assert_eq!(last, "tool_calls");
}

#[test]
fn the_answers_before_and_after_the_servers_calls_are_one() {
    let steps = vec![
        delta("a", DeltaKind::Text, "Wait."),
        entry("a", answer(vec![text("Wait."), call("s1", "search")])),
        entry("t", result("s1")),
        delta("b", DeltaKind::Text, "Do"),
        delta("b", DeltaKind::Text, "ne."),
        entry("b", answer(vec![text("Done.")])),
        entry("c", answer(vec![text("Really.")])),
        finished(TurnStatus::Completed, Some(StopReason::Length)),
    ];
    let (pieces, last) = play(steps);
    assert_eq!(pieces.concat(), "Wait.\n\nDone.\n\nReally.");
    assert_eq!(last, "length");
}

#[test]
fn an_imported_answer_is_not_the_answer() {
    let imported = Message::new(Role::Assistant, vec![text("old"), call("c0", "look")]);
    let steps = vec![entry("h", imported), finished(TurnStatus::Completed, Some(StopReason::Stop))];
    assert_eq!(play(steps), (Vec::new(), "stop".to_owned()));
}

#[test]
fn ends_without_an_answer_are_errors() {
    assert_eq!(play(vec![finished(TurnStatus::Interrupted, None)]).1, "interrupted");
    assert_eq!(play(vec![finished(TurnStatus::Cancelled, None)]).1, "stop");
    assert_eq!(play(vec![delta("a", DeltaKind::Text, "x"), Step::Aborted(id("a"))]).1, "upstream_truncated");
    let again = vec![delta("a", DeltaKind::Reasoning, "x"), Step::Aborted(id("a")), delta("b", DeltaKind::Text, "y")];
    assert_eq!(play(again).1, "it goes on");
}
