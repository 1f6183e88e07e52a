//! Splits a text into words for indexing and searching, the same in every store.
//!
//! A word is a run of letters and digits, in lower case and without accents; everything else separates words. So
//! `src/core/mod.rs`, a UUID and `snake_case` are several words each, and are found as a phrase. Some scripts put no
//! spaces between words (Chinese, Japanese, Thai and similar), and Korean attaches particles to words. Their runs are
//! split into overlapping pairs of characters, and the last character alone. So any part of a run is a phrase of pairs.

use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use std::ops::Range;

/// The most characters of a word; a longer one counts as several. This bounds the size of index entries, whatever a
/// tool returns.
const WORD_CHARS_MAX: usize = 64;

/// The kind of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A word of a script with spaces.
    Plain,
    /// A character and the next one.
    Pair,
    /// The last character of a run that has others before it.
    Last,
    /// A run of one character.
    Alone,
}

/// The class of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    /// A letter of a script without spaces.
    Dense,
    Break,
}

fn class(c: char) -> Class {
    match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' => Class::Letter,
        '\0'..='\u{7f}' => Class::Break,
        // These are combining accents, which follow their letter.
        '\u{300}'..='\u{36f}' => Class::Letter,
        // Thai, Lao, Myanmar and Khmer, with vowel and tone signs, without punctuation and digits.
        '\u{e01}'..='\u{e3a}'
        | '\u{e40}'..='\u{e4e}'
        | '\u{e81}'..='\u{ecd}'
        | '\u{1000}'..='\u{103f}'
        | '\u{1780}'..='\u{17d3}' => Class::Dense,
        // 々〆〇, Hiragana and Katakana, Han, Hangul, and their compatibility forms.
        '\u{3005}'..='\u{3007}'
        | '\u{3041}'..='\u{309f}'
        | '\u{30a1}'..='\u{30fa}'
        | '\u{30fc}'..='\u{30ff}'
        | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ff9f}'
        | '\u{20000}'..='\u{323af}' => Class::Dense,
        _ if c.is_alphanumeric() => Class::Letter,
        _ => Class::Break,
    }
}

/// Calls `word` with each word of the text, its byte range in the text, and its kind, until it returns false.
pub(super) fn each(text: &str, mut word: impl FnMut(&str, Range<usize>, Kind) -> bool) {
    let mut folded = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((start, first)) = chars.next() {
        let of = class(first);
        if of == Class::Break {
            continue;
        }
        let (mut end, mut count, mut is_ascii) = (start + first.len_utf8(), 1, first.is_ascii());
        while let Some((at, next)) = chars.peek().copied() {
            if class(next) != of || of == Class::Letter && count == WORD_CHARS_MAX {
                break;
            }
            (end, count, is_ascii) = (at + next.len_utf8(), count + 1, is_ascii && next.is_ascii());
            chars.next();
        }
        let run = &text[start..end];
        let goes_on = match of {
            Class::Dense => each_of_dense(run, start, &mut folded, &mut word),
            _ => {
                folded.clear();
                if is_ascii {
                    folded.push_str(run);
                    folded.make_ascii_lowercase();
                } else {
                    fold(run, &mut folded);
                }
                folded.is_empty() || word(&folded, start..end, Kind::Plain)
            }
        };
        if !goes_on {
            return;
        }
    }
}

/// Adds a word of a script with spaces, in lower case and without accents. It goes through upper case, which has one
/// form where lower case has two (`ς` and `σ`).
fn fold(run: &str, into: &mut String) {
    let decomposed = DecomposingNormalizerBorrowed::new_nfkd().normalize_iter(run.chars());
    let plain = decomposed.filter(|c| !matches!(c, '\u{300}'..='\u{36f}'));
    into.extend(plain.flat_map(char::to_uppercase).flat_map(char::to_lowercase).filter(|c| c.is_alphanumeric()));
}

fn each_of_dense(
    run: &str,
    start: usize,
    pair: &mut String,
    word: &mut impl FnMut(&str, Range<usize>, Kind) -> bool,
) -> bool {
    let whole = start..start + run.len();
    let composed = ComposingNormalizerBorrowed::new_nfkc().normalize(run);
    // Compatibility forms such as half-width Katakana were replaced, so positions no longer match the text.
    let is_same = composed == run;
    let mut chars = composed.char_indices().peekable();
    let mut is_first = true;
    while let Some((at, c)) = chars.next() {
        pair.clear();
        pair.push(c);
        let mut end = at + c.len_utf8();
        let kind = match chars.peek() {
            Some((at, next)) => {
                pair.push(*next);
                end = at + next.len_utf8();
                Kind::Pair
            }
            None if is_first => Kind::Alone,
            None => Kind::Last,
        };
        is_first = false;
        let place = if is_same { start + at..start + end } else { whole.clone() };
        if !word(pair, place, kind) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::each;

    fn spaced(text: &str) -> String {
        let mut words = Vec::new();
        each(text, |word, _, _| {
            words.push(word.to_owned());
            true
        });
        words.join(" ")
    }

    #[test]
    fn a_text_is_cut_into_words() {
        let cases = [
            ("The quick fox's den", "the quick fox s den"),
            ("src/core/mod.rs", "src core mod rs"),
            ("MAX_TOKENS kebab-case a1b2", "max tokens kebab case a1b2"),
            ("550e8400-e29b-41d4-a716-446655440000", "550e8400 e29b 41d4 a716 446655440000"),
            ("Café cafe\u{301} ΟΔΟΣ οδος Ёлка", "cafe cafe οδοσ οδοσ елка"),
            ("ﬁle ２０２６ Ａｂ", "file 2026 ab"),
            ("東京都は晴れ", "東京 京都 都は は晴 晴れ れ"),
            ("在GitHub上", "在 github 上"),
            ("ｶﾞｲﾄﾞ", "ガイ イド ド"),
            ("ราคา น้ำ", "รา าค คา า น้ ้ํ ํา า"),
            ("안녕하세요", "안녕 녕하 하세 세요 요"),
            ("\0 -- \u{200b} 🦀 …", ""),
        ];
        for (text, want) in cases {
            assert_eq!(spaced(text), want, "{text}");
        }
        assert_eq!(spaced(&"x".repeat(130)), format!("{} {} xx", "x".repeat(64), "x".repeat(64)));
    }
}
