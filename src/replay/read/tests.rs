//! Each format of a record in its smallest form, and the conversation that is read from it.

use super::{Source, lines};
use crate::{
    core::context::counter::Counter,
    replay::recorded::{Recorded, Turn},
};
use flate2::{Compression, write::GzEncoder};
use reseed_protocol::Part;
use std::io::{BufReader, Cursor, Write as _};

/// Returns the conversations and faults that are read from a source, each as one text.
fn read(bytes: &[u8]) -> Vec<String> {
    let kind = lines(Box::new(BufReader::new(Cursor::new(bytes.to_vec())))).unwrap();
    let mut source = Source { name: "in".to_owned(), counter: Counter::by_characters(), kind, line: 0 };
    let mut read = Vec::new();
    loop {
        match source.next_line() {
            Some(Ok(recorded)) => read.push(printed(&recorded)),
            Some(Err(why)) => read.push(why),
            None => return read,
        }
    }
}

fn printed(recorded: &Recorded) -> String {
    let mut text = format!("[{}]", recorded.name);
    if !recorded.instructions.is_empty() {
        text += &format!(" system: {};", recorded.instructions);
    }
    recorded.turns.iter().for_each(|turn| text += &printed_turn(turn));
    let wanted: Vec<u64> = recorded.texts.iter().map(|said| said.wanted).collect();
    if recorded.questions > 0 {
        text += &format!(" wanted {wanted:?} by {}", recorded.questions);
    }
    for (at, summary) in &recorded.summaries {
        text += &format!(" summary of {at}: {summary}");
    }
    recorded.notes.iter().for_each(|note| text += &format!(" ({note})"));
    text
}

fn printed_turn(turn: &Turn) -> String {
    let part = |part: &Part| match part {
        Part::Text { text } => text.clone(),
        Part::Image { url, .. } => format!("picture {url}"),
        Part::ToolCall { name, arguments, .. } => format!("{name}{arguments}"),
        other => format!("{other:?}"),
    };
    let parts = |parts: &[Part]| parts.iter().map(part).collect::<Vec<_>>().join(" + ");
    let mut text = format!(" {}>", parts(&turn.input.content));
    for step in &turn.steps {
        text += &format!(" {}", parts(&step.answer.content));
        for part in step.results.iter().flat_map(|result| &result.content) {
            if let Part::ToolResult { output, is_error, .. } = part {
                text += &format!(" = {}{output}", if *is_error { "! " } else { "" });
            }
        }
        text += ";";
    }
    text
}

#[test]
fn every_format_is_read_and_broken_lines_are_reported_by_number() {
    let corpus = r#"{"chat":"c/1","messages":[{"id":0,"role":"user","text":"My  cat\nis Miso."},{"id":1,"role":"assistant","text":"Nice."},{"id":2,"role":"user","text":"Bye."}],"questions":[{"kind":"k","question":"q","sources":[0,1]},{"sources":[0,7]},{"sources":[]}]}"#;
    let chat = r#"[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"https://e.org/p.png"}}]},{"role":"assistant","content":null,"tool_calls":[{"id":"call/1","type":"function","function":{"name":"see","arguments":"{\"x\":1}"}},{"id":"2","type":"function","function":{"name":"see","arguments":"{}"}}]},{"role":"tool","tool_call_id":"2","content":"two"},{"role":"assistant","content":"A cat."}]"#;
    let tuning = r#"{"messages":[{"role":"assistant","content":"Hi."},{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"assistant","content":"c"}]}"#;
    for (bytes, expected) in [
        (
            corpus.to_owned(),
            vec!["[c/1] My  cat\nis Miso.> Nice.; Bye.> wanted [2, 1, 0] by 2 (1 sources name no message of it)"],
        ),
        (
            chat.to_owned(),
            vec![
                "[in:1] system: Be brief.; What is it? + picture https://e.org/p.png> see{\"x\":1} + see{} = ! No \
                 result was recorded. = two; A cat.;",
            ],
        ),
        (
            format!("{tuning}\n\nnot json\n{{\"a\":1}}\n[{{\"role\":\"judge\"}}]\n{tuning}"),
            vec![
                "[in:1] a> b + c; (1 messages before the first one of a user are left out)",
                "in: line 3: it is not JSON: expected ident at line 1 column 2",
                "in: line 4: it has no list `messages`",
                "in: line 5: message 1: its role is `judge`; known are system, developer, user, assistant and tool",
                "[in:6] a> b + c; (1 messages before the first one of a user are left out)",
            ],
        ),
        (String::new(), vec![]),
    ] {
        assert_eq!(read(bytes.as_bytes()), expected, "{bytes}");
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(tuning.as_bytes()).unwrap();
    assert_eq!(read(&gzip.finish().unwrap()).len(), 1);
    assert_eq!(read(b"\xff\xfe\n[]\n"), ["in: line 1: it is not UTF-8", "[in:2]"]);
}
