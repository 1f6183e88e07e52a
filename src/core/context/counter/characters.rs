//! Counts tokens from characters alone, for models whose tokenizer is not known.
//!
//! A text is read as runs of characters of one class (a word, a number, a row of marks). A run costs something to
//! begin and something for each further character, by class, because that is how byte-pair vocabularies behave: a
//! common word is one token, a long or a rare one several; a Han character is about one, an emoji one or two.
//! How the weights were found and what they miss is in `README.md` beside this file.
//!
//! What always holds: a text never costs less than a beginning of it; two texts joined cost what they cost apart,
//! within a few tokens; one pass, no memory.

/// Weights are in thousandths of a token, so that counts are the same on every machine.
const UNITS_PER_TOKEN: u64 = 1_000;

/// What a character is to a tokenizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Space and its kin. One before a word belongs to the word.
    Space,
    LineEnd,
    Lower,
    Upper,
    /// Latin letters beyond ASCII.
    Accented,
    Digit,
    /// ASCII marks, of prose and of code.
    Mark,
    Han,
    Kana,
    Hangul,
    Cyrillic,
    Greek,
    Arabic,
    Hebrew,
    /// The scripts of India and their neighbours that write vowels as signs.
    Indic,
    /// Thai, Lao, Khmer, Burmese: no spaces between words.
    Thai,
    /// Full-width and typographic marks.
    WideMark,
    Emoji,
    /// What joins or colours emoji: joiners, variation selectors, skin tones, flag letters.
    Joiner,
    /// Everything else: other scripts, symbols, private use.
    Other,
}

/// What a run of one class costs, in thousandths of a token.
struct Weights {
    /// Its first character.
    first: u16,
    /// Each further one, up to the `late_from`th.
    next: u16,
    /// Each one from there on, the first being number 1.
    late_from: u16,
    late: u16,
}

const fn weights(first: u16, next: u16, late_from: u16, late: u16) -> Weights {
    Weights { first, next, late_from, late }
}

impl Class {
    fn of(c: char) -> Self {
        match c {
            '\n' | '\r' => Self::LineEnd,
            'a'..='z' => Self::Lower,
            'A'..='Z' => Self::Upper,
            '0'..='9' => Self::Digit,
            '!'..='~' => Self::Mark,
            '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' | 'ª' | 'º' => Self::Accented,
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
            '\u{3041}'..='\u{30ff}' | '\u{31f0}'..='\u{31ff}' | '\u{ff66}'..='\u{ff9f}' => Self::Kana,
            '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{323af}'
            | '々' => Self::Han,
            '\u{200d}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{1f3fb}'..='\u{1f3ff}'
            | '\u{1f1e6}'..='\u{1f1ff}'
            | '\u{20e3}' => Self::Joiner,
            '\u{2600}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}' | '\u{1f300}'..='\u{1faff}' => Self::Emoji,
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

    fn weights(self) -> Weights {
        match self {
            Self::Space => weights(0, 800, 3, 20),
            Self::LineEnd => weights(600, 100, 3, 50),
            Self::Lower => weights(950, 30, 7, 160),
            Self::Upper => weights(950, 350, 7, 350),
            Self::Accented => weights(1_000, 500, 7, 500),
            Self::Digit => weights(950, 100, 4, 334),
            Self::Mark => weights(900, 350, 3, 350),
            Self::Han => weights(800, 700, 3, 700),
            Self::Kana => weights(700, 600, 3, 600),
            Self::Hangul => weights(900, 600, 3, 600),
            Self::Cyrillic => weights(900, 150, 7, 200),
            Self::Greek => weights(900, 300, 7, 300),
            Self::Arabic => weights(900, 250, 7, 250),
            Self::Hebrew => weights(900, 300, 7, 300),
            Self::Indic => weights(900, 250, 7, 250),
            Self::Thai => weights(900, 300, 7, 300),
            Self::WideMark => weights(900, 500, 3, 500),
            Self::Emoji => weights(1_600, 1_600, 3, 1_600),
            Self::Joiner => weights(1_000, 1_000, 3, 1_000),
            Self::Other => weights(1_500, 1_500, 3, 1_500),
        }
    }

    /// Whether a character of this class goes on with the word or the row that one of class `before` is in.
    fn continues(self, before: Self) -> bool {
        use Class::{Accented, Lower, Upper};
        self == before || matches!((before, self), (Lower | Upper | Accented, Lower | Accented) | (Accented, Upper))
    }
}

/// Tokens of a text, rounded up.
pub(super) fn count(text: &str) -> u64 {
    let mut units = 0;
    let mut before = None;
    // Place in the run, from 1; a run longer than this many characters is priced `late` throughout.
    let mut place = 0u16;
    for c in text.chars() {
        let class = Class::of(c);
        place = if before.is_some_and(|before| class.continues(before)) { place.saturating_add(1) } else { 1 };
        before = Some(class);
        let weights = class.weights();
        units += u64::from(match place {
            1 => weights.first,
            place if place < weights.late_from => weights.next,
            _ => weights.late,
        });
    }
    units.div_ceil(UNITS_PER_TOKEN)
}
