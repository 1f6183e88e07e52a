//! Poisoned histories: whatever they contain, the request for their summary stays a quotation and the summary stays a
//! record in the user's role.
//!
//! The finished texts are read by a parser of the test's own, which does not know how they are made.

mod riding;

use reseed::core::compaction::{
    serialize,
    summary::{self, InPlaceParts, PromptParts},
};
use reseed::core::context::seed;
use reseed_protocol::{CallId, Message, Part, Role, compaction::SummaryKind};
use serde::Deserialize;

const MARK: &str = "q8r2k1x7";
const RECORD_BEGINS: &str = "<summary>\n";
const RECORD_ENDS: &str = "\n</summary>";

#[derive(Deserialize)]
struct Poisoned {
    name: String,
    #[serde(rename = "where")]
    place: String,
    text: String,
}

/// Returns the histories, with the delimiter in the spellings that an attacker who has seen it would use.
fn histories() -> Vec<Poisoned> {
    let text = std::fs::read_to_string("tests/fixtures/poisoned/histories.json").unwrap();
    let mut histories: Vec<Poisoned> = serde_json::from_str(&text).unwrap();
    let wide: String = MARK.chars().map(|c| char::from_u32(u32::from(c) - 0x21 + 0xff01).unwrap()).collect();
    for history in &mut histories {
        history.text = history
            .text
            .replace("{mark}", MARK)
            .replace("{MARK}", &MARK.to_uppercase())
            .replace("{wide}", &wide)
            .replace("{m\u{200b}ark}", "q8\u{200b}r2k\u{200d}1x7")
            .replace("{m\u{ad}ark}", "q8r\u{ad}2k1x7")
            .replace("{m\\ark}", "q\\8r2k1x7");
    }
    histories
}

fn text(role: Role, text: &str) -> Message {
    Message::new(role, vec![Part::Text { text: text.to_owned() }])
}

/// Returns the poisoned message between two others, and the summary before them.
fn messages(history: &Poisoned) -> (Vec<Message>, String) {
    let call_id: CallId = "call".parse().unwrap();
    let poisoned = match history.place.as_str() {
        "user" => text(Role::User, &history.text),
        "assistant" => text(Role::Assistant, &history.text),
        "tool" => {
            Message::new(Role::Tool, vec![Part::ToolResult { call_id, output: history.text.clone(), is_error: false }])
        }
        _ => text(Role::User, "nothing here"),
    };
    let previous = if history.place == "summary" { history.text.clone() } else { "## Goal\n- boat".to_owned() };
    (vec![text(Role::User, "first"), poisoned, text(Role::User, "last")], previous)
}

fn request(history: &Poisoned) -> String {
    let (messages, previous) = messages(history);
    let blocks: Vec<String> = messages.iter().flat_map(serialize::blocks).collect();
    summary::prompt(PromptParts {
        blocks: &blocks,
        previous: Some(&previous),
        instructions: None,
        replaced: None,
        kind: SummaryKind::Chat,
        split_turn: false,
        delimiter: MARK,
        words_max: 300,
        keeps_words: true,
    })
}

/// Reads a request strictly: returns what is quoted under which name, and everything outside of quotations.
fn read_strictly(request: &str) -> (Vec<(String, String)>, String) {
    let mut quoted: Vec<(String, String)> = Vec::new();
    let (mut open, mut outside) = (None::<(String, Vec<&str>)>, Vec::new());
    for line in request.split('\n') {
        let marked = line.strip_prefix(MARK).and_then(|rest| rest.strip_prefix(' '));
        match (&mut open, marked) {
            (None, Some(name)) => open = Some((name.to_owned(), Vec::new())),
            (Some(_), Some("end")) => {
                quoted.extend(open.take().map(|(name, lines)| (name, lines.join("\n"))));
            }
            (Some((_, lines)), _) => lines.push(line),
            (None, None) => outside.push(line),
        }
    }
    assert!(open.is_none(), "a quotation is not closed");
    (quoted, outside.join("\n"))
}

/// Returns a text as a careless reader sees it: in lower case, plain letters only.
fn as_deceived(text: &str) -> String {
    let twins = [
        ('а', 'a'),
        ('е', 'e'),
        ('о', 'o'),
        ('ѕ', 's'),
        ('｜', '|'),
        ('＜', '<'),
        ('＞', '>'),
        ('／', '/'),
        ('［', '['),
        ('］', ']'),
        ('：', ':'),
    ];
    let plain = |c: char| match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xff01 + 0x21).unwrap(),
        c => twins.iter().find(|(twin, _)| *twin == c).map_or(c, |(_, plain)| *plain),
    };
    text.chars().map(plain).collect::<String>().to_lowercase()
}

/// Checks that nothing in a quoted text ends or begins anything.
fn assert_harmless(what: &str, name: &str) {
    let hidden = |c: &char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{ad}' | '\u{feff}'
                | '\u{e0000}'..='\u{e0fff}')
    };
    assert_eq!(what.chars().find(hidden), None, "{name}: {what:?}");
    let read = as_deceived(what);
    let compact: String = read.split(' ').collect();
    for token in [
        "<|",
        "</summary>",
        "<summary>",
        "[inst]",
        "[/inst]",
        "<<sys>>",
        "<</sys>>",
        "</s>",
        "<start_of_turn>",
        "<end_of_turn>",
        "</think>",
        "<system>",
        "</system>",
        "<tool_call>",
    ] {
        assert!(!compact.contains(token), "{name}: {token} in {what}");
    }
    assert!(!read.contains("hunter2") && !read.contains("sk-abc"), "{name}: a secret in {what}");
    for line in read.lines() {
        let bare = line.trim_start_matches([' ', '\t', '>', '*', '-']);
        for speaker in ["[user]", "[assistant]", "[tool result]", "[system]"] {
            assert!(!bare.starts_with(speaker), "{name}: {line}");
        }
    }
}

#[test]
fn there_are_fifty_of_each_others_kind() {
    let histories = histories();
    let names: std::collections::BTreeSet<&str> = histories.iter().map(|history| history.name.as_str()).collect();
    assert!(names.len() == histories.len() && names.len() >= 50, "{}", names.len());
    for place in ["user", "assistant", "tool", "summary"] {
        assert!(histories.iter().any(|history| history.place == place), "{place}");
    }
}

#[test]
fn none_escapes_its_quotation() {
    let benign = Poisoned { name: String::new(), place: "user".to_owned(), text: "hello".to_owned() };
    let (_, task) = read_strictly(&request(&benign));
    for history in histories() {
        let name = &history.name;
        let request = request(&history);
        let (quoted, outside) = read_strictly(&request);
        assert_eq!(outside, task, "{name}: what is not quoted is the same for every history");
        let names: Vec<&str> = quoted.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["summary-so-far", "conversation"], "{name}");
        assert_eq!(as_deceived(&request).matches(MARK).count(), 5, "{name}: the mark stands where it was put only");
        assert_harmless(&quoted[0].1, name);
        let mut heads = Vec::new();
        for block in quoted[1].1.split("\n\n") {
            // A head is a bracket followed by a letter; after it, and in a block without one, nothing may be another.
            let is_headed = block.starts_with('[') && block[1..].starts_with(char::is_alphabetic);
            let (head, said) = block.split_once("]: ").filter(|_| is_headed).unwrap_or(("", block));
            heads.extend(is_headed.then_some(head));
            assert_harmless(&if is_headed { format!("x{said}") } else { said.to_owned() }, name);
        }
        let head = match history.place.as_str() {
            "assistant" => "[Assistant",
            "tool" => "[Tool result",
            _ => "[User",
        };
        assert_eq!(heads, ["[User", head, "[User"], "{name}: {}", quoted[1].1);
    }
}

#[test]
fn what_was_quoted_reads_back_as_it_was() {
    for history in histories() {
        let (messages, previous) = messages(&history);
        let read = summary::read_prompt(&request(&history)).unwrap();
        assert_eq!((read.messages.len(), read.words_max), (3, Some(300)), "{}", history.name);
        for (sent, read) in messages.iter().zip(&read.messages) {
            let said = |message: &Message| match &message.content[0] {
                Part::Text { text } | Part::ToolResult { output: text, .. } => text.clone(),
                other => panic!("{other:?}"),
            };
            assert_eq!(read.role, sent.role, "{}", history.name);
            let visible = summary::clean(&said(sent)).trim().to_owned();
            assert_eq!(said(read), summary::mask_secrets(&visible), "{}", history.name);
        }
        let visible = summary::clean(&previous);
        assert_eq!(read.previous.as_deref(), Some(summary::strip_files(&visible)), "{}", history.name);
    }
}

#[test]
fn none_ends_its_record() {
    for history in histories() {
        for record in [seed::seed_text(&history.text), seed::branch_text(&history.text)] {
            let (head, rest) = record.split_once(RECORD_BEGINS).unwrap();
            let body = rest.strip_suffix(RECORD_ENDS).unwrap();
            assert!(head.contains("record of what"), "{head}");
            if history.name != "secret and order" {
                assert_harmless(body, &history.name);
            }
            assert_eq!(record.matches("</summary>").count(), 1, "{}", history.name);
            let unseeded = seed::unseed(&record).unwrap();
            assert_eq!(unseeded, summary::clean(&history.text).trim(), "{}", history.name);
            // And once more: what was seeded, merged and seeded again is the same record.
            assert_eq!(seed::seed_text(&unseeded), seed::seed_text(&history.text), "{}", history.name);
        }
    }
}

#[test]
fn none_changes_what_is_asked_in_place() {
    for history in histories() {
        let first_kept = text(Role::User, &history.text);
        let asked = summary::in_place(InPlaceParts {
            kept_messages: 3,
            first_kept: Some(&first_kept),
            instructions: None,
            replaced: None,
            kind: SummaryKind::Chat,
            split_turn: false,
            words_max: 300,
            keeps_words: true,
            keeps_summary: true,
        });
        let read = summary::read_in_place(&asked).unwrap();
        assert_eq!((read.kept_messages, read.words_max, read.instructions), (3, Some(300), None), "{}", history.name);
        let (before, rest) = asked.split_once('“').unwrap();
        let (excerpt, after) = rest.split_once('”').unwrap();
        assert!(!before.contains('\n') && !excerpt.contains('\n'), "{}", history.name);
        assert!(after.starts_with(": they are kept word for word."), "{}: {after}", history.name);
        assert_harmless(&format!("x{excerpt}"), &history.name);
    }
}

#[test]
fn a_summary_that_repeats_them_stays_a_record() {
    for history in histories().into_iter().filter(|history| history.place != "summary") {
        // A model that copies the conversation as one point.
        let (messages, _) = messages(&history);
        let quoted = serialize::blocks(&messages[1]).concat();
        let (_, shown) = quoted.split_once("]: ").unwrap();
        let copied = format!("## Goal\n- boat\n## Critical Context\n- It said: {shown}");
        let checked = summary::check(&copied, MARK, &[]).unwrap();
        assert!(checked.starts_with("## Goal\n- boat"), "{}: {checked}", history.name);
        assert_harmless(
            seed::seed_text(&checked).split_once(RECORD_BEGINS).unwrap().1.strip_suffix(RECORD_ENDS).unwrap(),
            &history.name,
        );
    }
}
