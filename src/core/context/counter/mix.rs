//! The composition of a count, as far as tokenizers and providers treat its components differently.
//!
//! Two models may agree on English and differ by half on Arabic, on images or on the framing of messages. So the
//! corrections are kept separately for each component, and an estimate is a sum with one row per component.

/// Kinds of text that tokenizers treat alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    /// Latin letters as in English.
    Latin,
    /// Latin letters with diacritics: German, French, Vietnamese.
    Accented,
    /// Spaces, line ends and ASCII punctuation: more frequent in code than in prose.
    Mark,
    /// Digits.
    Digit,
    /// Chinese characters, also in Japanese.
    Han,
    /// Japanese syllables.
    Kana,
    /// Korean.
    Hangul,
    /// Cyrillic and Greek.
    Cyrillic,
    /// Arabic and Hebrew.
    Arabic,
    /// The scripts of India and South-East Asia.
    Indic,
    /// Emoji and their joiners.
    Emoji,
    /// Typographic and full-width punctuation, symbols, other scripts.
    Other,
}

/// Number of scripts.
pub const SCRIPTS: usize = Script::Other as usize + 1;

/// Rows of a [`Mix`]: the scripts, then the rows defined below.
pub(super) const ROWS: usize = SCRIPTS + 4;
/// The framing of messages, tool calls and the answer.
pub(super) const FRAME: usize = SCRIPTS;
/// Tool definitions, which each provider renders in its own way.
pub(super) const TOOLS: usize = SCRIPTS + 1;
/// Images.
pub(super) const IMAGES: usize = SCRIPTS + 2;
/// Opaque reasoning.
pub(super) const SEALED: usize = SCRIPTS + 3;

/// Tokens of a text by script.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scripts([u32; SCRIPTS]);

impl Scripts {
    /// Distributes `tokens` in proportion to the weights without losing any to rounding.
    pub(super) fn dealt(tokens: u64, weights: &[u64; SCRIPTS]) -> Self {
        let all = weights.iter().map(|weight| u128::from(*weight)).sum::<u128>().max(1);
        let (mut dealt, mut weighed, mut given) = (Self::default(), 0, 0);
        for (share, weight) in dealt.0.iter_mut().zip(weights) {
            weighed += u128::from(*weight);
            let due = u128::from(tokens) * weighed / all;
            *share = u32::try_from(due - given).unwrap_or(u32::MAX);
            given = due;
        }
        dealt
    }

    /// Adds the tokens of another text.
    pub(super) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, tokens)| *sum = sum.saturating_add(tokens));
    }

    pub(super) fn total(&self) -> u64 {
        self.0.iter().map(|tokens| u64::from(*tokens)).sum()
    }
}

/// Tokens of a message by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageTokens {
    /// Text, tool calls, tool results, and the message's framing.
    pub text: u64,
    /// Reasoning that is sent back.
    pub reasoning: u64,
    /// Images.
    pub images: u64,
    /// The written part of `text`, by script.
    pub scripts: Scripts,
    /// The framing part of `text`.
    pub frame: u32,
    /// Reasoning that no request sends back; not included in the others.
    pub unsent: u32,
}

impl MessageTokens {
    /// Returns the sum of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.text + self.reasoning + self.images
    }
}

/// An uncorrected estimate by component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mix(pub(super) [u64; ROWS]);

impl Mix {
    /// Creates the mix of a text alone.
    #[must_use]
    pub fn of_text(scripts: &Scripts) -> Self {
        let mut mix = Self::default();
        mix.add_text(scripts);
        mix
    }

    /// Adds a message.
    pub fn add_message(&mut self, tokens: &MessageTokens) {
        self.add_text(&tokens.scripts);
        self.add_frame(u64::from(tokens.frame));
        self.add(IMAGES, tokens.images);
        let read = tokens.scripts.total().saturating_add(u64::from(tokens.frame));
        self.add(SEALED, tokens.text.saturating_add(tokens.reasoning).saturating_sub(read));
    }

    /// Adds a text.
    pub fn add_text(&mut self, scripts: &Scripts) {
        for (row, tokens) in scripts.0.iter().enumerate() {
            self.add(row, u64::from(*tokens));
        }
    }

    /// Adds framing.
    pub fn add_frame(&mut self, tokens: u64) {
        self.add(FRAME, tokens);
    }

    /// Adds tool definitions.
    pub fn add_tools(&mut self, tokens: u64) {
        self.add(TOOLS, tokens);
    }

    /// Returns the sum.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, tokens| sum.saturating_add(*tokens))
    }

    fn add(&mut self, row: usize, tokens: u64) {
        self.0[row] = self.0[row].saturating_add(tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn distributed_tokens_add_up(tokens in 0..u64::from(u32::MAX), weights in any::<[u32; SCRIPTS]>()) {
            let weights = weights.map(u64::from);
            let dealt = Scripts::dealt(tokens, &weights);
            let all: u64 = weights.iter().sum();
            prop_assert_eq!(dealt.total(), if all == 0 { 0 } else { tokens });
            for (share, weight) in dealt.0.iter().zip(weights) {
                let fair = tokens as f64 * weight as f64 / all.max(1) as f64;
                prop_assert!((f64::from(*share) - fair).abs() <= 1.0);
            }
        }
    }

    #[test]
    fn a_message_adds_up_to_its_total() {
        let scripts = Scripts::dealt(90, &[1; SCRIPTS]);
        let tokens = MessageTokens { text: 100, reasoning: 7, images: 85, scripts, frame: 8, unsent: 50 };
        let mut mix = Mix::default();
        mix.add_message(&tokens);
        assert_eq!((mix.total(), mix.0[FRAME], mix.0[IMAGES], mix.0[SEALED]), (tokens.total(), 8, 85, 9));
        mix.add_message(&MessageTokens { text: u64::MAX, ..tokens });
        assert_eq!(mix.total(), u64::MAX);
    }
}
