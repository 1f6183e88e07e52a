//! Rates the importance of each part of a context by rule. The work is linear in the text read, which is bounded.

use crate::{
    compaction::structure::{Structure, Unit},
    context::messages::{Context, Counted},
    text::clip::prefix,
};
use reseed_protocol::{Part, Role};
use std::collections::HashSet;

/// Characters read per part of a message. Its beginning names things as often as any other part.
const PART_CHARS_MAX: usize = 2_000;

/// Bytes read in total, newest first; older messages are rated by role, age and size alone. A window of a quarter of a
/// million tokens holds this much text.
const READ_BYTES_MAX: usize = 1_000_000;

/// Points for a user's message, a client's note, an answer, and a call with its results.
const INPUT: i64 = 600;
const NOTE: i64 = 200;
const ANSWER: i64 = 150;
const CALL: i64 = 100;
/// Points for each name, path or number that is mentioned again later, and the maximum number of these.
const REFERENCE: i64 = 60;
const REFERENCES_MAX: usize = 8;
/// Points of the newest unit for its age; older ones get proportionally fewer.
const RECENCY: i64 = 200;
/// Points deducted per doubling of the size above this many tokens, because one large result takes the room of many
/// messages.
const SIZE: i64 = 50;
const SIZE_TOKENS: u64 = 128;

/// Returns the points of each unit.
pub(super) fn scores(context: &Context, structure: &Structure) -> Vec<i64> {
    let units = &structure.units;
    let mut scores = vec![0; units.len()];
    let mut later: HashSet<u64> = HashSet::new();
    let mut left = READ_BYTES_MAX;
    let (mut texts, mut own) = (Vec::new(), Vec::new());
    for (at, unit) in units.iter().enumerate().rev() {
        let messages = &context.messages[unit.messages.clone()];
        texts.clear();
        for text in messages.iter().flat_map(|counted| &counted.message.content).filter_map(text) {
            let text = prefix(text, PART_CHARS_MAX);
            if text.len() <= left {
                left -= text.len();
                texts.push(text);
            }
        }
        own.clear();
        own.extend(texts.iter().flat_map(|text| terms(text)).map(hashed));
        own.sort_unstable();
        own.dedup();
        let references = own.iter().filter(|term| later.contains(*term)).take(REFERENCES_MAX).count();
        let references = i64::try_from(references).unwrap_or_default();
        let age = i64::try_from(RECENCY.unsigned_abs() * (at as u64 + 1) / units.len() as u64).unwrap_or(RECENCY);
        let doublings = i64::from((unit.tokens / SIZE_TOKENS + 1).ilog2());
        // A message that a patch added before an entry says nothing about the entry's role.
        let first = messages.iter().find(|counted| counted.entry_id.is_some()).unwrap_or(&messages[0]);
        let role = role(unit, first);
        scores[at] = role + REFERENCE * references + age - SIZE * doublings;
        later.extend(own.iter().copied());
    }
    scores
}

fn role(unit: &Unit, first: &Counted) -> i64 {
    match first.message.role {
        Role::User if unit.is_input => INPUT,
        Role::User => NOTE,
        Role::Assistant if first.message.tool_calls().next().is_none() => ANSWER,
        Role::Assistant | Role::Tool => CALL,
    }
}

/// Returns the text of a part that can name things.
fn text(part: &Part) -> Option<&str> {
    match part {
        Part::Text { text } => Some(text),
        Part::ToolCall { arguments, .. } => Some(arguments),
        Part::ToolResult { output, .. } => Some(output),
        Part::Image { .. } | Part::Reasoning { .. } => None,
    }
}

/// Returns the names, paths, numbers and identifiers in a text: words that do not occur in prose.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    const LENGTHS: std::ops::RangeInclusive<usize> = 3..=200;
    let ends = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`,;()[]{}<>=|".contains(byte);
    let around = |c| matches!(c, '.' | ':' | '!' | '?' | '-' | '*' | '#');
    // Splitting only at ASCII keeps the pieces valid UTF-8.
    text.as_bytes()
        .split(move |byte| ends(byte))
        .filter(|word| LENGTHS.contains(&word.len()) && is_name(word))
        .filter_map(|word| std::str::from_utf8(word).ok())
        .map(move |word| word.trim_matches(around))
        .filter(|word| word.len() >= *LENGTHS.start() && is_name(word.as_bytes()))
}

/// Hashes a word. Two words of one conversation practically never collide.
fn hashed(word: &str) -> u64 {
    word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn is_name(bytes: &[u8]) -> bool {
    let camel = bytes.windows(2).any(|two| two[0].is_ascii_lowercase() && two[1].is_ascii_uppercase());
    camel || bytes.iter().any(|byte| byte.is_ascii_digit() || b"_/.:@\\-".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{build::build_context, counter::Counter, testing::path};

    #[test]
    fn names_are_distinguished_from_prose() {
        let table: &[(&str, &[&str])] = &[
            ("the cat sat on the mat.", &[]),
            ("see src/main.rs: it calls readFile(x_1), twice.", &["src/main.rs", "readFile", "x_1"]),
            (r#"{"path":"/etc/hosts","line":120}"#, &["/etc/hosts", "120"]),
            ("Order A-7719 of 2026!", &["A-7719", "2026"]),
        ];
        for (text, expected) in table {
            assert_eq!(terms(text).collect::<Vec<_>>(), *expected, "{text}");
        }
    }

    #[test]
    fn user_messages_and_later_references_score_higher() {
        let lines = [
            "a:user My cat is called Miso.",
            "b:assistant How nice.",
            "c:user Look around.",
            "d:call p",
            "e:result p found src/harbour/tides.rs and 17 others",
            "f:call q",
            "g:result q nothing",
            "h:user Mend src/harbour/tides.rs please.",
        ];
        let context = build_context(&path(&lines, &Counter::for_model("test")));
        let scores = scores(&context, &Structure::of(&context));
        // Units: a, b, c, d e, f g, h.
        assert!(scores[0] > scores[1] && scores[2] > scores[1], "{scores:?}");
        assert!(scores[3] > scores[4], "{scores:?}");
    }
}
