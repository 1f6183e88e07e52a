//! Whether a text holds an identifier, however it is spelt there.

use crate::core::context::extract::{is_unspaced, words};
use std::collections::{BTreeMap, BTreeSet};

use super::identify::Kind;

/// Share in percent of the words of a task that a line must have to be about it.
const TASK_WORDS_PERCENT: usize = 70;

/// A text, ready to be asked what it holds.
pub(super) struct Held {
    text: String,
    /// Where each word begins, by its first bytes.
    starts: BTreeMap<String, Vec<usize>>,
    /// The words of each line.
    lines: Vec<BTreeSet<String>>,
}

impl Held {
    pub(super) fn new(text: &str) -> Self {
        let lines = text.lines().map(|line| content_words(line).collect()).collect();
        let text = normal(text);
        let mut starts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut is_start = true;
        for (at, c) in text.char_indices() {
            if is_start && c.is_alphanumeric() {
                starts.entry(first_word(&text[at..]).to_owned()).or_default().push(at);
            }
            is_start = !c.is_alphanumeric() || is_unspaced(c);
        }
        Self { text, starts, lines }
    }

    /// Whether this identifier stands in the text, whole.
    pub(super) fn has(&self, identifier: &str, kind: Kind) -> bool {
        if kind == Kind::Task {
            return self.has_words(identifier);
        }
        spellings(identifier).iter().any(|spelling| self.has_spelling(spelling, kind))
    }

    fn has_spelling(&self, spelling: &str, kind: Kind) -> bool {
        let Some(lead) = spelling.find(char::is_alphanumeric) else { return self.text.contains(spelling) };
        let Some(starts) = self.starts.get(first_word(&spelling[lead..])) else { return false };
        starts.iter().any(|start| {
            let Some(begin) = start.checked_sub(lead) else { return false };
            let rest = self.text.get(begin..).unwrap_or_default();
            rest.strip_prefix(spelling).is_some_and(|after| ends_before(after, spelling, kind))
                && begins_after(&self.text[..begin], spelling, kind)
        })
    }

    /// Whether a line of the text is about this.
    pub(super) fn has_words(&self, task: &str) -> bool {
        let wanted: BTreeSet<String> = content_words(task).collect();
        self.lines.iter().any(|line| shares(&wanted, line))
    }
}

/// Whether enough of the words that are wanted are there, and every number: the roof of house 12 is not that of house 14.
pub(super) fn shares(wanted: &BTreeSet<String>, line: &BTreeSet<String>) -> bool {
    if wanted.iter().any(|word| word.contains(char::is_numeric) && !line.contains(word)) {
        return false;
    }
    let found = wanted.iter().filter(|word| line.contains(*word)).count();
    found * 100 >= wanted.len() * TASK_WORDS_PERCENT && found > 0
}

/// The words that say what something is about: short ones are grammar in the languages that have spaces.
pub(super) fn content_words(text: &str) -> impl Iterator<Item = String> {
    words(text)
        .into_iter()
        .filter(|word| word.chars().count() > 3 || word.starts_with(is_unspaced) || word.contains(char::is_numeric))
}

/// What follows must not make it a longer one.
fn ends_before(after: &str, spelling: &str, kind: Kind) -> bool {
    let mut chars = after.chars();
    let (next, second) = (chars.next(), chars.next());
    let Some(next) = next else { return true };
    let goes_on = second.is_some_and(|c| c.is_alphanumeric() && !is_unspaced(c));
    match next {
        next if is_unspaced(next) => true,
        next if next.is_alphanumeric() => !spelling.ends_with(|c: char| c.is_alphanumeric() && !is_unspaced(c)),
        '_' => false,
        '.' | ',' if kind == Kind::Number => !second.is_some_and(|c| c.is_ascii_digit()),
        '.' | '/' | '-' if matches!(kind, Kind::Path | Kind::Url) => !goes_on,
        _ => true,
    }
}

fn begins_after(before: &str, spelling: &str, kind: Kind) -> bool {
    let mut chars = before.chars().rev();
    let (last, second) = (chars.next(), chars.next());
    match last {
        Some(last) if is_unspaced(last) => true,
        Some(last) if last.is_alphanumeric() || last == '_' => !spelling.starts_with(char::is_alphanumeric),
        Some('.' | ',') if kind == Kind::Number => !second.is_some_and(|c| c.is_ascii_digit()),
        _ => true,
    }
}

/// A text as it is compared: lower case, one space, no marks of emphasis or escape.
pub(in crate::core::context::summary) fn normal(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' => {}
            '‘' | '’' => normal.push('\''),
            '“' | '”' | '„' | '«' | '»' => normal.push('"'),
            '–' | '‑' | '−' => normal.push('-'),
            c if c.is_whitespace() => {
                if !normal.ends_with(' ') {
                    normal.push(' ');
                }
            }
            c if c.is_ascii() => normal.push(c.to_ascii_lowercase()),
            c => normal.extend(c.to_lowercase()),
        }
    }
    normal
}

/// How an identifier may be spelt elsewhere: a number with or without a space before its unit, and between thousands.
fn spellings(identifier: &str) -> Vec<String> {
    let normal = normal(identifier);
    let mut spellings = vec![normal.trim().to_owned()];
    if normal.starts_with(|c: char| c.is_ascii_digit()) {
        if let Some((number, unit)) = normal.split_once(' ') {
            spellings.push(format!("{number}{unit}"));
            spellings.push(format!("{number}-{unit}"));
        } else if let Some(at) = normal.find(char::is_alphabetic) {
            spellings.push(format!("{} {}", &normal[..at], &normal[at..]));
        }
        for at in 0..spellings.len() {
            if spellings[at].contains(',') {
                spellings.push(spellings[at].replace(',', ""));
            }
        }
    }
    spellings
}

fn first_word(text: &str) -> &str {
    let mut chars = text.char_indices();
    let Some((_, first)) = chars.next() else { return "" };
    if is_unspaced(first) {
        return &text[..first.len_utf8()];
    }
    let end = chars.find(|(_, c)| !c.is_alphanumeric() || is_unspaced(*c)).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_held_however_it_is_spelt() {
        for (text, identifier, kind, expected) in [
            ("- port 8443.", "8443", Kind::Number, true),
            ("- port 18443.", "8443", Kind::Number, false),
            ("- 8443.5", "8443", Kind::Number, false),
            ("it has 16GB", "16 GB", Kind::Number, true),
            ("it has 16 GB", "16GB", Kind::Number, true),
            ("1200 rows", "1,200 rows", Kind::Number, true),
            ("see **src/Main.rs**", "src/main.rs", Kind::Path, true),
            ("see src/main.rs.bak", "src/main.rs", Kind::Path, false),
            ("see src/main.rs.", "src/main.rs", Kind::Path, true),
            ("see app/src/main.rs", "src/main.rs", Kind::Path, true),
            ("call `parse_line`", "parse_line", Kind::Symbol, true),
            ("call parse_line_2", "parse_line", Kind::Symbol, false),
            ("the “Blue  Moon”", "blue moon", Kind::Quoted, true),
            ("端口是8443。", "8443", Kind::Number, true),
            ("名字是蓝月亮", "蓝月", Kind::Quoted, true),
            ("<\\|x|> C:\\a\\b", "C:\\a\\b", Kind::Path, true),
            ("done: the parser was rewritten in Rust", "rewrite? parser in rust", Kind::Task, false),
            ("done: rewrite of the parser in Rust", "rewrite the parser in Rust", Kind::Task, true),
            ("repaint the roof of house 14", "repaint the roof of house 12", Kind::Task, false),
            ("", "x", Kind::Id, false),
        ] {
            assert_eq!(Held::new(text).has(identifier, kind), expected, "{identifier} in {text}");
        }
    }
}
