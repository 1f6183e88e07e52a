//! Splits a sentence into words and quotations.

use super::found::{Found, IdentifierKind};
use crate::core::text::words::is_unspaced;

/// Maximum characters of a quotation; a longer one is a text, not a name.
const QUOTED_CHARS_MAX: usize = 80;
/// Average bytes of a word and the following space; sets the capacity of the list of words.
const WORD_BYTES: usize = 5;

/// A word of a sentence without surrounding punctuation, or a quotation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Word {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) quoted: Option<Found>,
}

impl Word {
    pub(super) fn text<'a>(&self, sentence: &'a str) -> &'a str {
        &sentence[self.start..self.end]
    }
}

/// Returns the words and quotations of a sentence, in order.
pub(super) fn split(sentence: &str) -> Vec<Word> {
    let mut words = Vec::with_capacity(sentence.len() / WORD_BYTES);
    let mut at = 0;
    // Closing marks that were not found are not searched for again.
    let mut unclosed: Vec<char> = Vec::new();
    let bytes = sentence.as_bytes();
    while at < bytes.len() {
        // Most words: letters and digits up to a space.
        let plain = bytes[at..].iter().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(bytes.len() - at);
        if matches!(bytes.get(at + plain), None | Some(b' ')) {
            if plain > 0 {
                words.push(Word { start: at, end: at + plain, quoted: None });
            }
            at += plain + 1;
            continue;
        }
        let Some(c) = sentence[at..].chars().next() else { break };
        if !c.is_ascii_alphanumeric()
            && let Some((close, kind)) = quotation(c, sentence[..at].chars().next_back())
            && !unclosed.contains(&close)
        {
            let start = at + c.len_utf8();
            match closing(&sentence[start..], close, c == '\'') {
                Some(bytes) => {
                    let quoted = Found { kind, start, end: start + bytes };
                    words.push(Word { start: at, end: start + bytes + close.len_utf8(), quoted: Some(quoted) });
                    at = start + bytes + close.len_utf8();
                    continue;
                }
                None => unclosed.push(close),
            }
        }
        if is_gap(c) {
            at += c.len_utf8();
            continue;
        }
        let bytes = word_bytes(&sentence[at..]);
        if let Some((start, end)) = trimmed(&sentence[at..at + bytes]) {
            words.push(Word { start: at + start, end: at + end, quoted: None });
        }
        at += bytes;
    }
    words
}

/// Returns the bytes of the word at the start of a text.
fn word_bytes(text: &str) -> usize {
    let ends = |c: char| is_gap(c) || matches!(c, '`' | '"' | '“' | '«' | '「');
    // Most words end at a space.
    let ascii = text.bytes().position(|byte| !byte.is_ascii_graphic() || matches!(byte, b'`' | b'"'));
    match ascii {
        None => text.len(),
        Some(at) if at > 0 && text.as_bytes()[at] == b' ' => at,
        Some(at) => {
            // The first character belongs to the word, whatever it is.
            let rest = text[at..].char_indices().skip(usize::from(at == 0));
            rest.map(|(more, c)| (at + more, c)).find(|(_, c)| ends(*c)).map_or(text.len(), |(at, _)| at)
        }
    }
}

fn is_gap(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_whitespace() || c == '\u{b}';
    }
    c.is_whitespace() || is_unspaced(c) || matches!(c, '，' | '。' | '：' | '；' | '、' | '（' | '）' | '！' | '？')
}

/// Returns the closing mark for a character that opens a quotation, and the quotation's kind.
fn quotation(c: char, before: Option<char>) -> Option<(char, IdentifierKind)> {
    let within = before.is_some_and(|c| c.is_alphanumeric() && !is_unspaced(c));
    match c {
        '`' => Some(('`', IdentifierKind::Symbol)),
        '"' if !within => Some(('"', IdentifierKind::Quoted)),
        '\'' if !within => Some(('\'', IdentifierKind::Quoted)),
        '“' => Some(('”', IdentifierKind::Quoted)),
        '„' => Some(('“', IdentifierKind::Quoted)),
        '«' => Some(('»', IdentifierKind::Quoted)),
        '‘' => Some(('’', IdentifierKind::Quoted)),
        '「' => Some(('」', IdentifierKind::Quoted)),
        '『' => Some(('』', IdentifierKind::Quoted)),
        '《' => Some(('》', IdentifierKind::Quoted)),
        _ => None,
    }
}

/// Returns the bytes before the closing mark, if the quotation is neither empty nor too long.
fn closing(rest: &str, close: char, is_apostrophe: bool) -> Option<usize> {
    let mut chars = rest.char_indices().take(QUOTED_CHARS_MAX + 1).peekable();
    while let Some((at, c)) = chars.next() {
        let ends = c == close && !(is_apostrophe && chars.peek().is_some_and(|(_, next)| next.is_alphanumeric()));
        if ends {
            let inner = &rest[..at];
            return (inner.contains(char::is_alphanumeric) && inner.trim() == inner).then_some(at);
        }
    }
    None
}

/// Returns the span of the word without surrounding punctuation.
fn trimmed(word: &str) -> Option<(usize, usize)> {
    if word.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Some((0, word.len()));
    }
    let is_home = word.starts_with("~/");
    let start = word.len() - word.trim_start_matches(|c| opens(c) && !(c == '~' && is_home)).len();
    let mut inner = &word[start..];
    loop {
        let mut shorter = inner.trim_end_matches(closes);
        for (open, close) in [('(', ')'), ('[', ']'), ('{', '}')] {
            if shorter.ends_with(close) && !shorter.contains(open) {
                shorter = &shorter[..shorter.len() - 1];
            }
        }
        let shorter = shorter.strip_suffix("'s").or_else(|| shorter.strip_suffix("’s")).unwrap_or(shorter);
        if shorter.len() == inner.len() {
            break;
        }
        inner = shorter;
    }
    let is_word = inner.contains(char::is_alphanumeric) || matches!(inner, "%" | "€" | "$" | "£" | "°");
    is_word.then_some((start, start + inner.len()))
}

/// Returns true for leading marks that are not part of a word.
fn opens(c: char) -> bool {
    is_beside(c) || matches!(c, '(' | '[' | '{' | '<' | '~')
}

/// Returns true for trailing marks that are not part of a word.
fn closes(c: char) -> bool {
    is_beside(c) || c == '.'
}

/// Returns true for marks on either side that are not part of a word.
fn is_beside(c: char) -> bool {
    matches!(c, '"' | '\'' | '*' | ',' | ';' | ':' | '!' | '?' | '>' | '|')
        || matches!(c, '“' | '”' | '„' | '«' | '»' | '‘' | '’' | '…')
}
