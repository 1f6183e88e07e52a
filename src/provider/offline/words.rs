//! Splits text into words, in any language, without a dictionary, in linear time.
//!
//! In scripts without spaces (Chinese, Japanese, Korean) each character counts as a word.

/// The words of a text in lower case: runs of letters and digits, and single characters of scripts without spaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Words {
    spaced: String,
}

impl Words {
    /// Splits a text into words.
    pub(super) fn of(text: &str) -> Self {
        if text.is_ascii() {
            return Self { spaced: ascii_words(text) };
        }
        let mut spaced = String::with_capacity(text.len());
        // True if the next letter continues the last word.
        let mut within = false;
        let mut rest = text;
        while !rest.is_empty() {
            // Most text is ASCII, and is copied a word at a time.
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
    pub(super) fn spaced(&self) -> &str {
        &self.spaced
    }

    /// Iterates over the words.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.spaced.split_ascii_whitespace()
    }

    /// Returns the words.
    pub(super) fn list(&self) -> Vec<&str> {
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

/// A fixed list of words with fast lookup.
pub(super) struct Listed {
    /// The words, separated by single spaces.
    words: &'static str,
    /// For each bucket, one more than the byte offset of its first word. 0 means that the bucket is empty.
    buckets: [u16; Self::BUCKETS],
}

impl Listed {
    /// The number of buckets. It far exceeds the number of words in a list, so few words share a bucket and most other
    /// words hit an empty one.
    const BUCKETS: usize = 512;

    /// Creates a list of lower-case words separated by single spaces.
    pub(super) const fn new(words: &'static str) -> Self {
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
    pub(super) fn has(&self, word: &str) -> bool {
        self.words_from_bucket(word).any(|listed| listed == word)
    }

    /// Returns true if the word is in the list, ignoring ASCII case.
    pub(super) fn has_any_case(&self, word: &str) -> bool {
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

/// Returns true if the character belongs to a script without spaces between words.
pub(super) fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Returns true if a sentence is a question.
pub(super) fn is_question(sentence: &str, words: &[&str]) -> bool {
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
