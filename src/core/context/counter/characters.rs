//! Counts tokens from characters alone, for models with an unknown tokenizer.
//!
//! A text is read as runs of characters of one class: a word, a number, a row of punctuation. A run costs a start price
//! and a price per further character, by class, because byte-pair vocabularies behave that way. A common word is one
//! token, and a long or rare one is several; a Han character is about one, and an emoji one or two. The `README.md`
//! beside this file describes how the weights were found and their errors.
//!
//! Invariants: a text never costs less than a prefix of it; two texts joined cost what they cost separately, within a
//! few tokens; counting takes one pass and no memory.

use super::mix::{SCRIPTS, Script};

/// Weights are in thousandths of a token, so that counts are identical on every machine.
const UNITS_PER_TOKEN: u64 = 1_000;

/// The class of a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Spaces. One before a word belongs to the word.
    Space,
    LineEnd,
    Lower,
    Upper,
    /// Latin letters beyond ASCII.
    Accented,
    /// Latin letters with two diacritics, as in Vietnamese.
    Toned,
    Digit,
    /// ASCII punctuation, of prose and of code.
    Mark,
    Han,
    Hiragana,
    Katakana,
    Hangul,
    Cyrillic,
    Greek,
    Arabic,
    Hebrew,
    /// The scripts of India and its neighbours that write vowels as signs.
    Indic,
    /// Thai, Lao, Khmer, Burmese: no spaces between words.
    Thai,
    /// Full-width and typographic punctuation.
    WideMark,
    /// Emoji of the blocks that vocabularies learned first: in UTF-8 they share their first three bytes with many
    /// others.
    Emoji,
    /// Emoji of newer or rarer blocks: one more byte is a token of its own.
    RareEmoji,
    /// Characters that join or colour emoji: joiners, variation selectors, skin tones.
    Joiner,
    /// Letters that form a flag in pairs.
    FlagLetter,
    /// Everything else: other scripts, symbols, private use.
    Other,
}

/// The rules of a class.
struct Rules {
    /// The script under which reports correct it: classes that most tokenizers treat alike share one.
    script: Script,
    /// The price of the first character of a run, in thousandths of a token.
    first: u64,
    /// The price of each further character before number `late_from`.
    next: u64,
    /// The price of each character from number `late_from` on, counting from 1.
    late: u64,
    late_from: u64,
}

const fn rules(script: Script, first: u64, next: u64, late_from: u64, late: u64) -> Rules {
    Rules { script, first, next, late, late_from }
}

impl Class {
    fn of(c: char) -> Self {
        match c {
            '\n' | '\r' => Self::LineEnd,
            'a'..='z' => Self::Lower,
            'A'..='Z' => Self::Upper,
            '0'..='9' => Self::Digit,
            '!'..='~' => Self::Mark,
            '\u{c0}'..='\u{24f}' | 'ª' | 'º' => Self::Accented,
            '\u{1e00}'..='\u{1eff}' => Self::Toned,
            '\u{370}'..='\u{3ff}' | '\u{1f00}'..='\u{1fff}' => Self::Greek,
            '\u{400}'..='\u{52f}' => Self::Cyrillic,
            '\u{590}'..='\u{5ff}' => Self::Hebrew,
            '\u{600}'..='\u{6ff}'
            | '\u{750}'..='\u{77f}'
            | '\u{8a0}'..='\u{8ff}'
            | '\u{fb50}'..='\u{fdff}'
            | '\u{fe70}'..='\u{feff}' => Self::Arabic,
            '\u{900}'..='\u{dff}' => Self::Indic,
            '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' => Self::Thai,
            '\u{1100}'..='\u{11ff}' | '\u{3130}'..='\u{318f}' | '\u{ac00}'..='\u{d7af}' => Self::Hangul,
            '\u{3041}'..='\u{309f}' => Self::Hiragana,
            '\u{30a0}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{ff66}'..='\u{ff9f}' => Self::Katakana,
            '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{323af}'
            | '々' => Self::Han,
            '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}' | '\u{20e3}' => Self::Joiner,
            '\u{1f1e6}'..='\u{1f1ff}' => Self::FlagLetter,
            '\u{26c0}'..='\u{26ff}'
            | '\u{1f540}'..='\u{1f5ff}'
            | '\u{1f6c0}'..='\u{1f8ff}'
            | '\u{1f980}'..='\u{1faff}' => Self::RareEmoji,
            '\u{2600}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' | '\u{1f300}'..='\u{1f97f}' => Self::Emoji,
            '\u{2010}'..='\u{2027}'
            | '\u{2030}'..='\u{205e}'
            | '\u{3001}'..='\u{3020}'
            | '\u{ff01}'..='\u{ff65}'
            | '«'
            | '»'
            | '·'
            | '¿'
            | '¡' => Self::WideMark,
            _ if c.is_whitespace() => Self::Space,
            _ => Self::Other,
        }
    }

    const fn rules(self) -> Rules {
        match self {
            Self::Space => rules(Script::Mark, 180, 900, 3, 8),
            Self::LineEnd => rules(Script::Mark, 1_460, 60, 2, 60),
            Self::Lower => rules(Script::Latin, 560, 50, 7, 230),
            Self::Upper => rules(Script::Latin, 690, 40, 7, 120),
            Self::Accented => rules(Script::Accented, 300, 930, 7, 1_200),
            Self::Toned => rules(Script::Accented, 340, 200, 7, 290),
            Self::Digit => rules(Script::Digit, 1_400, 10, 4, 740),
            Self::Mark => rules(Script::Mark, 840, 160, 2, 160),
            Self::Han => rules(Script::Han, 750, 745, 2, 745),
            Self::Hiragana => rules(Script::Kana, 1_120, 465, 2, 465),
            Self::Katakana => rules(Script::Kana, 1_160, 485, 2, 485),
            Self::Hangul => rules(Script::Hangul, 1_090, 460, 2, 460),
            Self::Cyrillic => rules(Script::Cyrillic, 1_360, 40, 7, 120),
            Self::Greek => rules(Script::Cyrillic, 490, 350, 7, 350),
            Self::Arabic => rules(Script::Arabic, 590, 275, 8, 780),
            Self::Hebrew => rules(Script::Arabic, 510, 370, 7, 460),
            Self::Indic => rules(Script::Indic, 400, 320, 7, 510),
            Self::Thai => rules(Script::Indic, 1_060, 290, 7, 410),
            Self::WideMark => rules(Script::Other, 1_220, 880, 2, 880),
            Self::Emoji => rules(Script::Emoji, 1_850, 1_850, 2, 1_850),
            Self::RareEmoji => rules(Script::Emoji, 2_900, 2_900, 2, 2_900),
            Self::Joiner => rules(Script::Emoji, 1_000, 1_000, 2, 1_000),
            Self::FlagLetter => rules(Script::Emoji, 2_000, 2_000, 2, 2_000),
            Self::Other => rules(Script::Other, 1_400, 300, 2, 300),
        }
    }

    /// Returns true if a character of this class continues the word or row of a character of class `before`.
    fn continues(self, before: Self) -> bool {
        use Class::{Accented, Lower, Toned, Upper};
        match self {
            _ if self == before => true,
            Lower | Accented | Toned => matches!(before, Lower | Upper | Accented | Toned),
            // An upper-case letter after a lower-case one starts a word: `camelCase`.
            Upper => matches!(before, Accented | Toned),
            _ => false,
        }
    }

    /// Returns the price of a character of this class at this position of its run, from 1. `before` is the class of
    /// the preceding character.
    fn price(self, place: u64, before: Option<Self>) -> u64 {
        let Rules { first, next, late, late_from, .. } = self.rules();
        match (self, before) {
            (Self::LineEnd, Some(Self::Mark)) if place == 1 => LINE_END_AFTER_MARK,
            (Self::Digit, Some(Self::Space)) if place == 1 => first + SPACE_BEFORE_DIGIT,
            _ if place == 1 => first,
            // Vocabularies read numbers in groups of three digits, or digit by digit.
            (Self::Digit, _) if place % 3 != 1 => next,
            _ if place < late_from => next,
            _ => late,
        }
    }
}

/// The price of a line end after punctuation: the two are usually one token, as in `;` and a line end.
const LINE_END_AFTER_MARK: u64 = 100;

/// The price of a space before a number, which is a token of its own: unlike words, numbers are not learned together
/// with it.
const SPACE_BEFORE_DIGIT: u64 = 740;

/// Counts the tokens of a text, rounded up.
pub(super) fn count(text: &str) -> u64 {
    total(&by_script(text))
}

/// Sums the weights of [`by_script`] to tokens, rounded up.
pub(super) fn total(weights: &[u64; SCRIPTS]) -> u64 {
    weights.iter().sum::<u64>().div_ceil(UNITS_PER_TOKEN)
}

/// Returns the weight of a text by script, in thousandths of a token.
pub(super) fn by_script(text: &str) -> [u64; SCRIPTS] {
    let mut units = [0; SCRIPTS];
    let (mut before, mut place) = (None, 0);
    for class in text.chars().map(Class::of) {
        place = if before.is_some_and(|before| class.continues(before)) { place + 1 } else { 1 };
        units[class.rules().script as usize] += class.price(place, before);
        before = Some(class);
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_script_has_its_class() {
        let cases = [
            (Class::Space, " \t\u{a0}\u{3000}\u{2028}"),
            (Class::LineEnd, "\r\n"),
            (Class::Lower, "az"),
            (Class::Upper, "AZ"),
            (Class::Accented, "éßłơđ"),
            (Class::Toned, "ệữẵ"),
            (Class::Digit, "09"),
            (Class::Mark, "!\"{}[]_~`"),
            (Class::Han, "語中々"),
            (Class::Hiragana, "あんゞ"),
            (Class::Katakana, "ンーｱ"),
            (Class::Hangul, "한ㄱ"),
            (Class::Cyrillic, "яЇ"),
            (Class::Greek, "ωΑ"),
            (Class::Arabic, "عپ"),
            (Class::Hebrew, "ש"),
            (Class::Indic, "हिতత"),
            (Class::Thai, "ก็ລ"),
            (Class::WideMark, "“—…、。！«"),
            (Class::Emoji, "🙂🚀✅⚠⭐"),
            (Class::RareEmoji, "🪫🦔🛌⛺"),
            (Class::Joiner, "\u{200d}\u{fe0f}\u{1f3fd}"),
            (Class::FlagLetter, "🇯🇵"),
            (Class::Other, "ა∑→\u{0}\u{e000}"),
        ];
        for (class, characters) in cases {
            for c in characters.chars() {
                assert_eq!(Class::of(c), class, "{c:?}");
            }
        }
    }

    #[test]
    fn known_words_cost_what_tokenizers_make_of_them() {
        // Text, its tokens in o200k, and the tolerance of the weights.
        let cases = [
            ("", 0, 0),
            ("a", 1, 0),
            ("Hello, world!", 4, 1),
            ("The quick brown fox jumps over the lazy dog.", 10, 1),
            ("お誕生日おめでとう", 8, 1),
            ("let mut jars = BTreeMap::new();\n", 10, 2),
            ("                                ", 1, 1),
            ("2025-01-30", 6, 2),
        ];
        for (text, tokens, miss) in cases {
            let counted = count(text);
            assert!(counted.abs_diff(tokens) <= miss, "{text:?}: {counted} for {tokens}");
        }
    }

    /// Generates text of few classes, so that runs, boundaries and rare classes all occur.
    fn texts() -> impl Strategy<Value = String> {
        prop_oneof![any::<String>(), "[a-zA-Z0-9 \n,;語あ한яعहกé🙂\u{200d}]{0,60}", "[a ]{0,200}"]
    }

    proptest! {
        #[test]
        fn appending_never_makes_a_text_cheaper(text in texts()) {
            let mut last = 0;
            for (at, _) in text.char_indices().chain([(text.len(), ' ')]) {
                let tokens = count(&text[..at]);
                prop_assert!(tokens >= last);
                last = tokens;
            }
            prop_assert_eq!(last == 0, text.is_empty());
        }

        #[test]
        fn two_texts_joined_cost_what_they_cost_apart(a in texts(), b in texts()) {
            prop_assert!(count(&[a.as_str(), &b].concat()).abs_diff(count(&a) + count(&b)) <= 5);
        }
    }

    #[test]
    fn endless_texts_cost_in_proportion() {
        for unit in [" ", "\n", "a", "A", "é", "1", "=", "語", "あ", "ع", "🙂", "\u{200d}", "\u{0}", "aЖ語1! ع", " \n"]
        {
            let (short, long) = (count(&unit.repeat(10_000)), count(&unit.repeat(80_000)));
            assert!(long.abs_diff(8 * short) <= 64, "{unit:?}: {long} for 8 times {short}");
        }
    }
}
