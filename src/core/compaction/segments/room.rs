//! The room of each part of a summary.

use crate::{
    compaction::strategy::share,
    context::messages::{Context, Counted, Kind},
};
use reseed_protocol::compaction::SummaryMode;

/// The model's text in all segments together may take one part in this many of a compaction's target: a fifth.
const TEXT_PART: u64 = 5;
/// Words and text together may exceed the target by one part in this many, and so stay well below the trigger.
const OVER_PART: u64 = 8;
/// Minimum tokens that the model may write about one stretch.
const NEW_TOKENS_MIN: u64 = 256;

/// The room of segments, in estimated tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The room for the user's words.
    pub said_tokens: u64,
    /// The most room for the model's text in all segments together.
    pub text_tokens: u64,
    /// The room for words and text together.
    pub all_tokens: u64,
    /// The room for the model's text about one stretch.
    pub new_tokens: u64,
    /// How earlier segments are treated.
    pub mode: SummaryMode,
    /// True if message ids are shown, because the session offers tools that read them.
    pub shows_ids: bool,
}

impl Room {
    /// Returns the room within a compaction's target. `most` is the longest that a summary may be in this window, and
    /// `user_share` the share of the target for the user's words.
    #[must_use]
    pub fn of(target_tokens: u64, most: u64, user_share: f64, mode: SummaryMode) -> Self {
        let text_tokens = target_tokens / TEXT_PART;
        let new_tokens = match mode {
            SummaryMode::Segments => most.min((text_tokens / 3).max(NEW_TOKENS_MIN)),
            SummaryMode::Rewrite => most,
        };
        // In a small target the words need room too.
        let new_tokens = new_tokens.min((target_tokens / 3).max(NEW_TOKENS_MIN / 2));
        // The words may take the room of older text, but not that of the next.
        let next_tokens = match mode {
            SummaryMode::Segments => 2 * new_tokens,
            SummaryMode::Rewrite => new_tokens,
        };
        let all_tokens = target_tokens + target_tokens / OVER_PART;
        let wanted = share(target_tokens, user_share);
        let said_tokens = wanted.min(all_tokens.saturating_sub(next_tokens).max(wanted / 4));
        let all_tokens = target_tokens.max(said_tokens + next_tokens);
        Self {
            said_tokens,
            text_tokens: text_tokens.max(2 * new_tokens),
            all_tokens,
            new_tokens,
            mode,
            shows_ids: false,
        }
    }

    /// Returns the same room with or without the user's words. Without them the summary is one text.
    #[must_use]
    pub fn with_words(self, keeps: bool) -> Self {
        if keeps {
            self
        } else {
            Self { said_tokens: 0, all_tokens: self.text_tokens, mode: SummaryMode::Rewrite, ..self }
        }
    }

    /// Returns the same room for a summary that is rewritten as a whole.
    #[must_use]
    pub fn rewritten(self) -> Self {
        Self { mode: SummaryMode::Rewrite, new_tokens: self.new_tokens.max(self.text_tokens / 2), ..self }
    }

    /// Returns the room for the model's text beside this many tokens of the user's words.
    #[must_use]
    pub fn text_beside(&self, words_tokens: u64) -> u64 {
        self.text_tokens.min(self.all_tokens.saturating_sub(words_tokens).max(2 * self.new_tokens))
    }

    /// Returns the tokens that a summary of this context may have: those of the present one, the user's words in the
    /// context, and the model's new text, but at most what its parts may have.
    #[must_use]
    pub fn expected(&self, context: &Context) -> u64 {
        let tokens = |is_such: &dyn Fn(&Counted) -> bool| {
            let such = context.messages.iter().filter(|counted| is_such(counted));
            such.map(|counted| counted.tokens.total()).sum::<u64>()
        };
        let now = tokens(&|counted| counted.kind == Kind::Summary);
        let said = if self.said_tokens > 0 { tokens(&|counted| counted.is_input) } else { 0 };
        (now + said + self.new_tokens).min(self.all_tokens)
    }

    /// Returns the same room, with or without message ids.
    #[must_use]
    pub fn with_ids(self, shows_ids: bool) -> Self {
        Self { shows_ids, ..self }
    }
}
