//! Identifiers that tools and the model produced: paths, URLs, hashes, ids, errors, numbers with units.
//!
//! A summary reproduces them badly, and later turns need them exactly. In two recorded coding sessions, two thirds of
//! the older identifiers that the model wrote again were among the newest ones that such a list has room for. They are
//! listed, newest first, never put into sentences.

use crate::text::presentable;
use regex::{Regex, RegexSet};
use reseed_protocol::{Message, Part, Role};
use std::{collections::HashSet, sync::LazyLock};

/// The beginning of the line that lists them.
const HEAD: &str = "Identifiers: ";
/// Separates them.
const BETWEEN: &str = ", ";
/// The most bytes that are read, newest first: several windows' worth of text is enough to fill any list.
const READ_BYTES_MAX: usize = 400_000;
/// The length of an identifier in characters: shorter ones say nothing, and longer ones take the room of many.
const CHARS: std::ops::RangeInclusive<usize> = 4..=120;

/// The kinds of identifiers, each with its pattern.
const PATTERNS: [&str; 7] = [
    // URLs.
    r#"\bhttps?://[^\s"'<>()\[\]{}`\\|]+"#,
    // Paths with a folder and a name with an extension, and paths from the root.
    r"(?:[\w.@~+-]+/)+[\w@+-]+\.[A-Za-z]\w{0,7}\b",
    r"(?:^|[\s\x22'`(=:])(~?(?:/[\w.@+-]+){2,})",
    // Hashes and UUIDs.
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]{7,64}\b",
    // Names with a number after a dash, and versions.
    r"\b[A-Z][A-Z0-9]*-\d[\w-]*\b|\bv?\d+\.\d+\.\d+(?:-[\w.]+)?\b",
    // Errors by name or code.
    r"\b[A-Z][A-Za-z]*(?:Error|Exception)\b|\bE[A-Z]{4,}\b|\bE\d{4}\b",
    // Numbers with a unit.
    r"\b\d[\d.,]*\s?(?:ms|µs|s|min|KB|MB|GB|TB|KiB|MiB|GiB|kHz|MHz|GHz|px|km|kg|mm|cm)\b|\b\d[\d.,]*\s?%",
];

static ANY: LazyLock<RegexSet> = LazyLock::new(|| RegexSet::new(PATTERNS).expect("the patterns are valid"));
static EACH: LazyLock<Vec<Regex>> =
    LazyLock::new(|| PATTERNS.iter().map(|pattern| Regex::new(pattern).expect("the patterns are valid")).collect());

/// Returns the line that lists the newest identifiers of these messages (oldest first) that `is_known` does not accept,
/// then the earlier ones (`earlier`), in at most `tokens_max` tokens. Returns `None` if there are none.
#[must_use]
pub fn line<'a>(
    messages: impl DoubleEndedIterator<Item = &'a Message>,
    earlier: Vec<String>,
    is_known: impl Fn(&str) -> bool,
    (tokens_max, count): (u64, &dyn Fn(&str) -> u64),
) -> Option<String> {
    let mut line = HEAD.to_owned();
    let mut left = tokens_max.saturating_sub(count(HEAD));
    let (mut listed, mut known) = (HashSet::new(), HashSet::new());
    let mut list = |identifier: &str| {
        if listed.contains(identifier) || known.contains(identifier) {
            return true;
        }
        if is_known(identifier) {
            known.insert(identifier.to_owned());
            return true;
        }
        let tokens = count(identifier) + 1;
        if tokens > left {
            return false;
        }
        left -= tokens;
        if !listed.is_empty() {
            line.push_str(BETWEEN);
        }
        line.push_str(identifier);
        listed.insert(identifier.to_owned());
        true
    };
    let mut read = 0;
    let texts =
        messages.rev().filter(|message| message.role != Role::User).flat_map(|message| message.content.iter().rev());
    let mut goes_on = true;
    for text in texts.filter_map(text) {
        let text = &presentable(text);
        read += text.len();
        if read > READ_BYTES_MAX || !goes_on {
            break;
        }
        goes_on = found(text).iter().all(|identifier| list(identifier));
    }
    if goes_on {
        let _ = earlier.iter().all(|identifier| list(identifier));
    }
    (!listed.is_empty()).then_some(line)
}

/// Returns the text of a part that may contain identifiers.
fn text(part: &Part) -> Option<&str> {
    match part {
        Part::Text { text } => Some(text),
        Part::ToolCall { arguments, .. } => Some(arguments),
        Part::ToolResult { output, .. } => Some(output),
        Part::Image { .. } | Part::Reasoning { .. } => None,
    }
}

/// Returns the distinct identifiers of a text, last one first.
fn found(text: &str) -> Vec<&str> {
    let mut found: Vec<(usize, &str)> = Vec::new();
    for kind in ANY.matches(text) {
        let captures = EACH[kind].captures_iter(text).filter_map(|captures| captures.get(1).or(captures.get(0)));
        found
            .extend(captures.map(|at| (at.start(), at.as_str().trim_end_matches(['.', ',', ':', ';', '!', '?', '/']))));
    }
    // If two kinds overlap, the longer match counts.
    found.sort_by_key(|(start, identifier)| (*start, std::cmp::Reverse(identifier.len())));
    let mut end = 0;
    found.retain(|(start, identifier)| {
        let is_free = *start >= end;
        if is_free {
            end = start + identifier.len();
        }
        is_free && CHARS.contains(&identifier.chars().count()) && !is_plain(identifier)
    });
    found.into_iter().rev().map(|(_, identifier)| identifier).collect()
}

/// Returns true for hexadecimal digits that are an ordinary word or number.
fn is_plain(identifier: &str) -> bool {
    let is_hex = identifier.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex
        && !(identifier.contains(|c: char| c.is_ascii_digit())
            && identifier.contains(|c: char| c.is_ascii_alphabetic()))
}

/// Splits a text into its prose and the identifiers listed in its last line.
#[must_use]
pub fn split(text: &str) -> (&str, Vec<String>) {
    let (before, last) = text.rsplit_once('\n').unwrap_or(("", text));
    match last.strip_prefix(HEAD) {
        Some(listed) => (before.trim_end(), listed.split(BETWEEN).map(str::to_owned).collect()),
        None => (text, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::CallId;

    fn words(text: &str) -> u64 {
        text.split_whitespace().count() as u64
    }

    #[test]
    fn identifiers_are_found_and_nothing_else() {
        for (text, expected) in [
            ("see src/main.rs: it calls readFile, twice", &["src/main.rs"][..]),
            (r#"{"path":"/etc/hosts/a","line":120}"#, &["/etc/hosts/a"]),
            (
                "at https://example.org/a?b=1, and (https://example.org/c)",
                &["https://example.org/c", "https://example.org/a?b=1"],
            ),
            ("commit 3f2a9c1d0b by 2026, decade 1234567", &["3f2a9c1d0b"]),
            ("Order A-7719, version 1.95.0!", &["1.95.0", "A-7719"]),
            ("TypeError: x; ENOENT, E0308", &["E0308", "ENOENT", "TypeError"]),
            ("took 41.5 ms, 12 % of 3 GB", &["3 GB", "12 %", "41.5 ms"]),
            ("Tool: 207. Assistant: 3. Back. Changed 464 characters to 365 characters.", &[]),
            ("either/or, and/or, 24/7", &[]),
            ("[… 4341 characters left out …]", &[]),
            ("src/a.rs src/b.rs src/a.rs", &["src/a.rs", "src/b.rs", "src/a.rs"]),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }

    #[test]
    fn the_newest_identifiers_are_listed_while_there_is_room() {
        let call_id: CallId = "c".parse().unwrap();
        let result = |output: &str| {
            Message::new(
                Role::Tool,
                vec![Part::ToolResult { call_id: call_id.clone(), output: output.into(), is_error: false }],
            )
        };
        let messages = [result("a/1.rs"), Message::user("u/0.rs"), result("a/2.rs a/3.rs"), result("a/2.rs")];
        let earlier = || vec!["a/0.rs".to_owned()];
        for (tokens, expected) in [
            (100, Some("Identifiers: a/2.rs, a/3.rs, a/1.rs, a/0.rs")),
            (7, Some("Identifiers: a/2.rs, a/3.rs, a/1.rs")),
            (3, Some("Identifiers: a/2.rs")),
            (2, None),
        ] {
            let made = line(messages.iter(), earlier(), |_| false, (tokens, &words));
            assert_eq!(made.as_deref(), expected, "{tokens}");
        }
        let made = line(messages.iter(), earlier(), |identifier| identifier.ends_with("2.rs"), (100, &words)).unwrap();
        assert_eq!(
            split(&format!("Read them.\n\n{made}")),
            ("Read them.", vec!["a/3.rs".into(), "a/1.rs".into(), "a/0.rs".into()])
        );
        assert_eq!(split("Read them."), ("Read them.", vec![]));
    }
}
