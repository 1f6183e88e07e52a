//! Each format of a record in its smallest form, and the conversation that is read from it.

use super::{Kind, Source, lines};
use crate::{
    core::context::counter::Counter,
    replay::recorded::{Recorded, Turn},
};
use flate2::{Compression, write::GzEncoder};
use reseed_protocol::Part;
use std::io::{BufReader, Cursor, Write as _};

/// A session of pi: an abandoned branch, a call with its result, an aborted answer, and a compaction.
const PI: &str = r#"{"type":"session","version":3,"id":"p1","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}
{"type":"message","id":"a","parentId":null,"timestamp":"2026-01-01T00:00:01.000Z","message":{"role":"user","content":"List the files.","timestamp":1}}
{"type":"message","id":"x","parentId":"a","timestamp":"2026-01-01T00:00:02.000Z","message":{"role":"assistant","content":[{"type":"text","text":"Left."}],"stopReason":"stop","timestamp":2}}
{"type":"message","id":"b","parentId":"a","timestamp":"2026-01-01T00:00:03.000Z","message":{"role":"assistant","content":[{"type":"thinking","thinking":"Hm."},{"type":"text","text":"I look."},{"type":"toolCall","id":"t|1","name":"ls","arguments":{"path":"."}}],"stopReason":"toolUse","timestamp":3}}
not json
{"type":"message","id":"c","parentId":"b","timestamp":"2026-01-01T00:00:04.000Z","message":{"role":"toolResult","toolCallId":"t|1","toolName":"ls","content":[{"type":"text","text":"a.txt"}],"isError":false,"timestamp":4}}
{"type":"message","id":"d","parentId":"c","timestamp":"2026-01-01T00:00:05.000Z","message":{"role":"assistant","content":[{"type":"text","text":"One file."}],"stopReason":"stop","timestamp":5}}
{"type":"compaction","id":"e","parentId":"d","timestamp":"2026-01-01T00:00:06.000Z","summary":"They listed files.","firstKeptEntryId":"d","tokensBefore":9}
{"type":"message","id":"f","parentId":"e","timestamp":"2026-01-01T00:00:07.000Z","message":{"role":"user","content":[{"type":"text","text":"And now?"}],"timestamp":6}}
{"type":"message","id":"g","parentId":"f","timestamp":"2026-01-01T00:00:08.000Z","message":{"role":"assistant","content":[{"type":"toolCall","id":"t2","name":"ls","arguments":{}}],"stopReason":"aborted","timestamp":7}}
"#;

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
        (
            PI.to_owned(),
            vec![
                "[p1] List the files.> I look. + ls{\"path\":\".\"} = a.txt; One file.; And now?> summary of 3: They \
                 listed files. (1 entries are on other branches) (in: line 5 is broken: expected ident at character 2)",
            ],
        ),
        ("{\"type\":\"session\"}\n".to_owned(), vec!["in: line 1: not a pi session: the header has no `id`"]),
        (String::new(), vec![]),
    ] {
        assert_eq!(read(bytes.as_bytes()), expected, "{bytes}");
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(tuning.as_bytes()).unwrap();
    assert_eq!(read(&gzip.finish().unwrap()).len(), 1);
    assert_eq!(read(b"\xff\xfe\n[]\n"), ["in: line 1: it is not UTF-8", "[in:2]"]);
}

#[test]
fn lines_after_a_pi_header_belong_to_its_session() {
    let kind = lines(Box::new(BufReader::new(Cursor::new(PI.as_bytes())))).unwrap();
    let mut source = Source { name: "in".to_owned(), counter: Counter::by_characters(), kind, line: 0 };
    assert!(source.next_line().unwrap().is_ok());
    assert!(matches!(source.kind, Kind::Ended));
}
