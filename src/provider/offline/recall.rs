//! Recalls what was said: finds the sentence of the context that shares the most words with a question.
//!
//! It searches only the request: the user's own words, summaries, tool results and the system prompt. It skips the
//! model's own answers, because it would otherwise quote itself.

use crate::core::{
    compaction::{serialize::prefix, summary::strip_files},
    context::seed::unseed,
    model::ModelRequest,
};
use reseed_protocol::{Part, Role};
use std::collections::BTreeSet;

/// Characters of a sentence that are quoted.
const QUOTED_CHARS_MAX: usize = 240;

/// Words that carry no meaning in a question.
const STOP_WORDS: &str = "a an the is are was were am do does did has have had can could will would you i me my mine \
                          we our us your it its this that of in on at to for from with about and or what who where \
                          when which why how there please remember remind tell told said say again now 我 的 什 么 是 \
                          吗 了";

/// Returns the last question of a text.
pub(super) fn question(text: &str) -> Option<&str> {
    sentences(text).into_iter().rev().find(|sentence| is_question(sentence))
}

/// Returns the answer to a question: the sentence of this request that has the most of its words, and more than half.
/// Of several, the newest one is taken.
pub(super) fn recall(question: &str, request: &ModelRequest) -> Option<String> {
    let asked: BTreeSet<String> = words(question).collect();
    let mut best = (asked.len() / 2, None);
    let mut search = |origin: &'static str, text: &str| {
        for sentence in sentences(text).into_iter().filter(|sentence| !is_question(sentence)) {
            let shared = words(sentence).filter(|word| asked.contains(word)).collect::<BTreeSet<_>>().len();
            if shared > best.0 || shared == best.0 && best.1.is_some() {
                best = (shared, Some(format!("{origin}: {}", prefix(sentence, QUOTED_CHARS_MAX))));
            }
        }
    };
    search("My instructions say", &request.envelope.system.compiled);
    for message in request.messages() {
        for part in &message.message.content {
            match part {
                Part::Text { text } if message.message.role == Role::User => match unseed(text) {
                    Some(summary) => {
                        let lines = strip_files(&summary).lines().map(|line| line.trim_start_matches(['-', '*', ' ']));
                        for line in lines.filter(|line| !line.starts_with("Assistant")) {
                            let said = line.strip_prefix("User: ").unwrap_or(line);
                            search("The summary of our earlier conversation says", said);
                        }
                    }
                    None => search("You told me", text),
                },
                Part::ToolResult { output, .. } => search("A tool said", output),
                _ => {}
            }
        }
    }
    best.1
}

fn is_question(sentence: &str) -> bool {
    sentence.ends_with(['?', '？', '؟'])
}

/// Returns the sentences of a text, trimmed.
fn sentences(text: &str) -> Vec<&str> {
    let (mut found, mut start) = (Vec::new(), 0);
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        let is_end = match c {
            '\n' | '。' | '！' | '？' | '؟' => true,
            '.' | '!' | '?' => text[end..].starts_with(char::is_whitespace),
            _ => false,
        };
        if is_end {
            found.push(text[start..end].trim());
            start = end;
        }
    }
    found.push(text[start..].trim());
    found
}

/// Returns the meaningful words in lower case, without the `s` of the plural. In scripts without spaces, each character
/// is a word.
fn words(sentence: &str) -> impl Iterator<Item = String> {
    let is_unspaced = |c: char| matches!(c, '\u{2e80}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..);
    let mut spaced = String::with_capacity(sentence.len());
    for c in sentence.chars().flat_map(char::to_lowercase) {
        match c {
            c if is_unspaced(c) => spaced.extend([' ', c, ' ']),
            c if c.is_alphanumeric() => spaced.push(c),
            _ => spaced.push(' '),
        }
    }
    let words: Vec<String> = spaced
        .split_ascii_whitespace()
        .filter(|word| !STOP_WORDS.split_ascii_whitespace().any(|stop| stop == *word))
        .map(|word| match word {
            "call" | "called" | "names" | "named" | "叫" => "name",
            word => word.strip_suffix('s').filter(|stem| stem.len() > 2).unwrap_or(word),
        })
        .map(str::to_owned)
        .collect();
    words.into_iter()
}
