//! Splits text into words, in any language, without a dictionary, in linear time.
//!
//! In scripts without spaces (Chinese, Japanese, Korean) each character counts as a word.

use aho_corasick::{AhoCorasick, AhoCorasickKind, packed};
use std::sync::OnceLock;

/// The words of a text in lower case: runs of letters and digits, and single characters of scripts without spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    spaced: String,
}

impl Words {
    /// Splits a text into words.
    pub fn of(text: &str) -> Self {
        if text.is_ascii() {
            return Self { spaced: ascii_words(text) };
        }
        let mut spaced = String::with_capacity(text.len());
        // True if the next letter continues the last word.
        let mut within = false;
        let mut rest = text;
        while !rest.is_empty() {
            // Most text: copied a word at a time.
            let ascii = rest.bytes().position(|byte| !byte.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let (word, behind) = rest.split_at(ascii);
            if !word.is_empty() {
                if !within && !spaced.is_empty() {
                    spaced.push(' ');
                }
                spaced.push_str(word);
                within = true;
            }
            let mut chars = behind.chars();
            let Some(c) = chars.next() else { break };
            rest = chars.as_str();
            if c.is_ascii() {
                within = false;
                continue;
            }
            let is_alone = is_unspaced(c);
            if !is_alone && !c.is_alphanumeric() {
                within = false;
                continue;
            }
            if (is_alone || !within) && !spaced.is_empty() {
                spaced.push(' ');
            }
            within = !is_alone;
            spaced.extend(c.to_lowercase());
        }
        spaced.make_ascii_lowercase();
        Self { spaced }
    }

    /// Returns the words joined by single spaces.
    pub fn spaced(&self) -> &str {
        &self.spaced
    }

    /// Iterates over the words.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.spaced.split_ascii_whitespace()
    }

    /// Returns the words.
    pub fn list(&self) -> Vec<&str> {
        self.iter().collect()
    }
}

/// Returns the words of an ASCII text in lower case, joined by single spaces.
fn ascii_words(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len());
    let mut ends_word = false;
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            if ends_word && !spaced.is_empty() {
                spaced.push(' ');
            }
            spaced.push(char::from(byte.to_ascii_lowercase()));
            ends_word = false;
        } else {
            ends_word = true;
        }
    }
    spaced
}

/// Splits a text at white space; returns each piece with its position.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &text[at..];
        let rest = if rest.as_bytes().first()?.is_ascii_graphic() { rest } else { rest.trim_start() };
        let start = text.len() - rest.len();
        let ascii = rest.bytes().position(|byte| !byte.is_ascii_graphic()).unwrap_or(rest.len());
        let end = match rest.as_bytes().get(ascii) {
            // Most pieces.
            None | Some(b' ' | b'\n') => ascii,
            Some(_) => rest[ascii..].find(char::is_whitespace).map_or(rest.len(), |end| ascii + end),
        };
        at = start + end;
        if text.as_bytes().get(at) == Some(&b' ') {
            at += 1;
        }
        (end > 0).then(|| (start, &rest[..end]))
    })
}

/// A fixed list of words with fast lookup.
pub struct Listed {
    /// The words, separated by single spaces.
    words: &'static str,
    /// For each bucket, one more than the byte offset of its first word; 0 if the bucket is empty.
    buckets: [u16; Self::BUCKETS],
}

impl Listed {
    /// Number of buckets: many more than words in a list, so that few words share one and most other words hit an empty
    /// one.
    const BUCKETS: usize = 512;

    /// Creates a list of lower-case words separated by single spaces.
    pub const fn new(words: &'static str) -> Self {
        let bytes = words.as_bytes();
        assert!(bytes.len() < u16::MAX as usize, "a list is a few hundred words");
        let mut buckets = [0; Self::BUCKETS];
        let (mut start, mut at) = (0, 0);
        while at <= bytes.len() {
            if at == bytes.len() || bytes[at] == b' ' {
                if at > start {
                    let bucket = Self::bucket(bytes[start], bytes[at - 1], at - start);
                    if buckets[bucket] == 0 {
                        buckets[bucket] = start as u16 + 1;
                    }
                }
                start = at + 1;
            }
            at += 1;
        }
        Self { words, buckets }
    }

    const fn bucket(first: u8, last: u8, bytes: usize) -> usize {
        (first.to_ascii_lowercase() as usize * 31 + last.to_ascii_lowercase() as usize * 7 + bytes) % Self::BUCKETS
    }

    /// Returns true if the word is in the list.
    pub fn has(&self, word: &str) -> bool {
        self.words_from_bucket(word).any(|listed| listed == word)
    }

    /// Returns true if the word is in the list, ignoring ASCII case.
    pub fn has_any_case(&self, word: &str) -> bool {
        self.words_from_bucket(word).any(|listed| listed.eq_ignore_ascii_case(word))
    }

    /// Iterates over the list from the first word in this word's bucket.
    fn words_from_bucket(&self, word: &str) -> impl Iterator<Item = &'static str> {
        let bytes = word.as_bytes();
        let begin = |(first, last): (&u8, &u8)| usize::from(self.buckets[Self::bucket(*first, *last, bytes.len())]);
        let from = bytes.first().zip(bytes.last()).and_then(|ends| begin(ends).checked_sub(1));
        from.and_then(|from| self.words.get(from..)).into_iter().flat_map(|words| words.split(' '))
    }
}

/// Phrases that are searched for together.
pub(crate) struct Phrases {
    phrases: &'static [&'static str],
    search: OnceLock<Search>,
}

/// Finds phrases in one pass.
enum Search {
    /// Compares many bytes at once, where the processor can.
    Packed(packed::Searcher),
    /// Reads byte by byte.
    Automaton(AhoCorasick),
}

impl Search {
    fn new(phrases: &[&str]) -> Self {
        if let Some(searcher) = packed::Searcher::new(phrases) {
            return Self::Packed(searcher);
        }
        let automaton = AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).prefilter(false).build(phrases);
        Self::Automaton(automaton.expect("a few short words fit into an automaton"))
    }

    fn is_match(&self, text: &str) -> bool {
        match self {
            Self::Packed(searcher) => searcher.find(text).is_some(),
            Self::Automaton(automaton) => automaton.is_match(text),
        }
    }
}

impl Phrases {
    /// Creates a set of phrases. [`any_among`](Self::any_among) needs lower-case words separated by single spaces,
    /// [`any_in_any_case`](Self::any_in_any_case) lower-case text.
    pub(crate) const fn new(phrases: &'static [&'static str]) -> Self {
        Self { phrases, search: OnceLock::new() }
    }

    /// Returns true if a text contains one of them.
    pub(crate) fn any_in(&self, text: &str) -> bool {
        self.search.get_or_init(|| Search::new(self.phrases)).is_match(text)
    }

    /// Returns true if a text contains one of them, ignoring case.
    pub(crate) fn any_in_any_case(&self, text: &str) -> bool {
        self.any_in(&if text.is_ascii() { text.to_ascii_lowercase() } else { text.to_lowercase() })
    }

    /// Returns true if space-separated words contain one of them at word boundaries.
    pub(crate) fn any_among(&self, spaced: &str) -> bool {
        self.any_in(spaced) && self.phrases.iter().any(|phrase| contains_words(spaced, phrase))
    }

    /// Iterates over the phrases.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static str> {
        self.phrases.iter().copied()
    }
}

/// Returns true if space-separated words contain this phrase at word boundaries.
fn contains_words(spaced: &str, phrase: &str) -> bool {
    spaced.match_indices(phrase).any(|(at, _)| {
        let before = at == 0 || spaced.as_bytes()[at - 1] == b' ';
        let end = at + phrase.len();
        before && (end == spaced.len() || spaced.as_bytes()[end] == b' ')
    })
}

/// Returns true if the character belongs to a script without spaces between words.
pub fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Returns true if a sentence is a question.
pub fn is_question(sentence: &str, words: &[&str]) -> bool {
    static ASKING: Listed = Listed::new("what who whom whose where when which why how");
    static AFTER_ASKING: Listed = Listed::new(
        "is s are was were do does did can could should would will has have am old many much long far often about",
    );
    static HELPING: Listed = Listed::new("do does did can could would will are is have has should shall am");
    static AFTER_HELPING: Listed = Listed::new("you i we it there my our the this that he she they");
    static FRAGEND: Listed = Listed::new("wie was wo wer wann welche welcher welches warum wohin");
    static NACH_FRAGEND: Listed =
        Listed::new("ist sind heißt heisst heiße habe hat hatte war wohne lautet kann alt viele");
    if sentence.trim_end_matches(['"', '\'', '”', '»', ')', ' ']).ends_with(['?', '？', '؟']) {
        return true;
    }
    let [first, second, ..] = words else { return false };
    if *second == "me" && matches!(*first, "tell" | "remind" | "show") {
        return true;
    }
    let pair = |firsts: &Listed, seconds: &Listed| firsts.has(first) && seconds.has(second);
    pair(&ASKING, &AFTER_ASKING) || pair(&HELPING, &AFTER_HELPING) || pair(&FRAGEND, &NACH_FRAGEND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_any_script() {
        for (text, expected) in [
            ("My cat's name: Miso!", vec!["my", "cat", "s", "name", "miso"]),
            ("我的cat叫咪", vec!["我", "的", "cat", "叫", "咪"]),
            ("cat叫", vec!["cat", "叫"]),
            ("Größe ÉCOLE", vec!["größe", "école"]),
            ("🙂 --", vec![]),
        ] {
            assert_eq!(Words::of(text).list(), expected, "{text}");
        }
    }

    #[test]
    fn pieces_are_those_of_the_standard_library() {
        for text in
            ["", " ", "a", " a  b\n", "é\u{a0}b c\u{2003}", "x\u{b}y\u{c}z \u{1f}", "我 的\u{3000}猫\r\n", "a\tb "]
        {
            let found: Vec<&str> = pieces(text).map(|(at, piece)| &text[at..at + piece.len()]).collect();
            assert_eq!(found, text.split_whitespace().collect::<Vec<_>>(), "{text:?}");
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
            assert_eq!(is_question(sentence, &Words::of(sentence).list()), expected, "{sentence}");
        }
    }

    #[test]
    fn a_list_has_its_words_and_no_others() {
        static LIST: Listed = Listed::new("no ist heißt über 叫");
        for (word, expected, any_case) in [
            ("no", true, true),
            ("No", false, true),
            ("heißt", true, true),
            ("HEIßT", false, true),
            ("叫", true, true),
            ("n", false, false),
            ("nö", false, false),
            ("no ist", false, false),
            ("", false, false),
            (" ", false, false),
        ] {
            assert_eq!((LIST.has(word), LIST.has_any_case(word)), (expected, any_case), "{word}");
        }
    }
}
