//! Splits text into sentences, in any language, without a dictionary, in linear time.

use super::words::Listed;

/// Maximum characters of a sentence. Longer ones are split at a space. This is long enough for a fact, and short enough
/// that one sentence cannot fill a section.
pub(super) const SENTENCE_CHARS_MAX: usize = 240;

/// Abbreviations whose full stop does not end a sentence.
static ABBREVIATIONS: Listed = Listed::new("mr mrs ms dr prof st no nr vs e.g i.e z.b d.h ca");

/// Returns the sentences of a text, trimmed, each with at least one letter or digit.
pub(super) fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    split(text, |sentence| push(&mut found, sentence));
    found
}

fn split<'a>(text: &'a str, mut push: impl FnMut(&'a str)) {
    let (mut start, mut at) = (0, 0);
    while let Some(byte) = text.as_bytes().get(at) {
        // Fast path: most characters do not end a sentence.
        if byte.is_ascii() && !matches!(byte, b'\n' | b'!' | b'?' | b'.') {
            at += 1;
            continue;
        }
        let mut chars = text[at..].chars();
        let Some(c) = chars.next() else { break };
        let is_last = || chars.as_str().chars().next().is_none_or(char::is_whitespace);
        let ends = match c {
            '\n' | '。' | '！' | '？' | '；' | '؟' | '।' | '۔' => true,
            '!' | '?' | '…' => is_last(),
            '.' => is_last() && !is_abbreviated(&text[start..at]),
            _ => false,
        };
        at += c.len_utf8();
        if ends {
            push(&text[start..at]);
            start = at;
        }
    }
    push(&text[start..]);
}

fn push<'a>(found: &mut Vec<&'a str>, sentence: &'a str) {
    let mut rest = sentence.trim();
    while !rest.is_empty() {
        // The number of bytes is an upper bound on the number of characters.
        let limit = if rest.len() > SENTENCE_CHARS_MAX { rest.char_indices().nth(SENTENCE_CHARS_MAX) } else { None };
        let head = match limit {
            None => rest,
            Some((limit, _)) => match rest[..limit].rfind(char::is_whitespace) {
                Some(space) if space > 0 => &rest[..space],
                _ => &rest[..limit],
            },
        };
        if head.contains(char::is_alphanumeric) {
            found.push(head.trim());
        }
        rest = rest[head.len()..].trim_start();
    }
}

fn is_abbreviated(before: &str) -> bool {
    let word = before.rsplit(|c: char| c.is_whitespace() || c == '(').next().unwrap_or(before);
    // A list number (`1.`) or an initial (`J.`) does not end a sentence, unless it is the last word.
    let is_first_number = before.trim_start().len() == word.len() && word.bytes().all(|b| b.is_ascii_digit());
    let is_initial = word.len() == 1 && word.bytes().all(|b| b.is_ascii_uppercase()) && word != "I";
    is_first_number || is_initial || ABBREVIATIONS.has_any_case(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sentences_end_where_they_end() {
        for (text, expected) in [
            ("My cat is Miso. I like it!", vec!["My cat is Miso.", "I like it!"]),
            ("Version 1.2 is in src/main.rs now", vec!["Version 1.2 is in src/main.rs now"]),
            ("Dr. Who met J. Doe. Then", vec!["Dr. Who met J. Doe.", "Then"]),
            ("1. first\n2. second", vec!["1. first", "2. second"]),
            ("It is 5. Yes.", vec!["It is 5.", "Yes."]),
            ("我的猫叫咪咪。你好！", vec!["我的猫叫咪咪。", "你好！"]),
            ("…\n\n---\n", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(sentences(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_sentence_is_too_long_and_none_is_lost(text in "(\\PC|\n|。|\\. ){0,400}") {
            let found = sentences(&text);
            prop_assert!(found.iter().all(|sentence| sentence.chars().count() <= SENTENCE_CHARS_MAX));
            let letters = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>();
            prop_assert_eq!(letters(&found.concat()), letters(&text));
        }
    }
}
