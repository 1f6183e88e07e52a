//! Text cut into sentences and words, for any language, without a dictionary.
//!
//! Scripts that write no spaces (Chinese, Japanese, Korean) give one word a character. All of it is linear in the text.

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// Most characters of a sentence; longer ones are cut at a space. Long enough for a fact, short enough that one
/// sentence cannot take a whole section.
pub(crate) const SENTENCE_CHARS_MAX: usize = 240;

/// Short forms whose full stop ends no sentence.
const ABBREVIATIONS: &str = "mr mrs ms dr prof st no nr vs e.g i.e z.b d.h ca";

/// The sentences of a text, trimmed, each with at least one letter or digit.
pub(crate) fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    split(text, |sentence| push(&mut found, sentence));
    found
}

/// The same, however long they are.
pub(crate) fn whole_sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    split(text, |sentence| {
        let sentence = sentence.trim();
        if sentence.contains(char::is_alphanumeric) {
            found.push(sentence);
        }
    });
    found
}

fn split<'a>(text: &'a str, mut push: impl FnMut(&'a str)) {
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let end = at + c.len_utf8();
        let ends = match c {
            '\n' | '。' | '！' | '？' | '；' | '؟' | '।' | '۔' => true,
            '!' | '?' | '…' => chars.peek().is_none_or(|(_, next)| next.is_whitespace()),
            '.' => chars.peek().is_none_or(|(_, next)| next.is_whitespace()) && !is_abbreviated(&text[start..at]),
            _ => false,
        };
        if ends {
            push(&text[start..end]);
            start = end;
        }
    }
    push(&text[start..]);
}

fn push<'a>(found: &mut Vec<&'a str>, sentence: &'a str) {
    let mut rest = sentence.trim();
    while !rest.is_empty() {
        let head = match rest.char_indices().nth(SENTENCE_CHARS_MAX) {
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
    // A list number (`1.`) or an initial (`J.`) ends no sentence, unless it is the sentence's last word after others.
    let is_first_number = before.trim_start().len() == word.len() && word.bytes().all(|b| b.is_ascii_digit());
    let is_initial = word.len() == 1 && word.bytes().all(|b| b.is_ascii_uppercase()) && word != "I";
    is_first_number || is_initial || among(ABBREVIATIONS, &word.to_ascii_lowercase())
}

/// The words of a text in lower case: runs of letters and digits, single characters of scripts without spaces.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    for c in text.chars() {
        if is_unspaced(c) {
            flush(&mut words, &mut word);
            words.push(c.to_string());
        } else if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        } else {
            flush(&mut words, &mut word);
        }
    }
    flush(&mut words, &mut word);
    words
}

fn flush(words: &mut Vec<String>, word: &mut String) {
    if !word.is_empty() {
        words.push(std::mem::take(word));
    }
}

/// Whether the word stands in a list of words with single spaces between them.
pub(crate) fn among(list: &str, word: &str) -> bool {
    list.split(' ').any(|listed| listed == word)
}

/// What finds any of these pieces of text in one pass; built once for each list.
pub(crate) fn any_of(pieces: &[&str]) -> AhoCorasick {
    AhoCorasick::builder()
        .kind(Some(AhoCorasickKind::DFA))
        .build(pieces)
        .expect("a few short words fit into an automaton")
}

/// Whether the character belongs to a script that writes no spaces between words.
pub(crate) fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Whether a sentence asks something.
pub(crate) fn is_question(sentence: &str, words: &[String]) -> bool {
    const ASKING: &str = "what who whom whose where when which why how";
    const AFTER_ASKING: &str = "\
        is s are was were do does did can could should would will has have am old many much long far often about";
    const HELPING: &str = "do does did can could would will are is have has should shall am";
    const AFTER_HELPING: &str = "you i we it there my our the this that he she they";
    const FRAGEND: &str = "wie was wo wer wann welche welcher welches warum wohin";
    const NACH_FRAGEND: &str = "ist sind heißt heisst heiße habe hat hatte war wohne lautet kann alt viele";
    if sentence.trim_end_matches(['"', '\'', '”', '»', ')', ' ']).ends_with(['?', '？', '؟']) {
        return true;
    }
    let [first, second, ..] = words else { return false };
    if second == "me" && among("tell remind show", first) {
        return true;
    }
    let pair = |firsts, seconds| among(firsts, first) && among(seconds, second);
    pair(ASKING, AFTER_ASKING) || pair(HELPING, AFTER_HELPING) || pair(FRAGEND, NACH_FRAGEND)
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

    #[test]
    fn words_are_found_in_any_script() {
        for (text, expected) in [
            ("My cat's name: Miso!", vec!["my", "cat", "s", "name", "miso"]),
            ("我的cat叫咪", vec!["我", "的", "cat", "叫", "咪"]),
            ("Größe ÉCOLE", vec!["größe", "école"]),
            ("🙂 --", vec![]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }

    #[test]
    fn questions_are_told_from_statements() {
        for (sentence, expected) in [
            ("What is my cat called", true),
            ("你好吗？", true),
            ("do you remember it", true),
            ("Wie heißt meine Katze", true),
            ("\"Really?\"", true),
            ("Remind me what my cat is called.", true),
            ("What I like is tea", false),
            ("When I was five we moved to Ulm", false),
            ("Will is my brother", false),
            ("Miso", false),
        ] {
            assert_eq!(is_question(sentence, &words(sentence)), expected, "{sentence}");
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
