//! How much room the parts of a summary have.

use crate::core::{
    compaction::strategy::share,
    context::messages::{Context, Counted, Kind},
};
use reseed_protocol::command::SummaryMode;

/// The part of a compaction's target that all segments may have of what the model wrote: a fifth.
const TEXT_PART: u64 = 5;
/// Minimum tokens that the model may write of one stretch.
const NEW_TOKENS_MIN: u64 = 256;

/// How much room segments have, in estimated tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// For the user's words.
    pub said_tokens: u64,
    /// For what the model wrote, all segments together.
    pub text_tokens: u64,
    /// For what the model writes of one stretch.
    pub new_tokens: u64,
    /// What becomes of earlier segments.
    pub mode: SummaryMode,
    /// True if the ids of messages are shown: the session offers tools that read them.
    pub shows_ids: bool,
}

impl Room {
    /// Returns the room within a compaction's target. `most` is the longest that a summary may be in this window, and
    /// `user_share` the share of the target for the user's words.
    #[must_use]
    pub fn of(target_tokens: u64, most: u64, user_share: f64, mode: SummaryMode) -> Self {
        let said_tokens = share(target_tokens, user_share);
        let text_tokens = target_tokens / TEXT_PART;
        let new_tokens = match mode {
            SummaryMode::Segments => most.min((text_tokens / 3).max(NEW_TOKENS_MIN)),
            SummaryMode::Rewrite => most,
        };
        Self { said_tokens, text_tokens: text_tokens.max(2 * new_tokens), new_tokens, mode, shows_ids: false }
    }

    /// Returns the same room with or without the user's words. Without them there is one text.
    #[must_use]
    pub fn with_words(self, keeps: bool) -> Self {
        if keeps { self } else { Self { said_tokens: 0, mode: SummaryMode::Rewrite, ..self } }
    }

    /// Returns the tokens that a summary of this context may have: what the present one has, the user's words in the
    /// context, and what the model writes; at most what its parts may have.
    #[must_use]
    pub fn expected(&self, context: &Context) -> u64 {
        let tokens = |is_such: &dyn Fn(&Counted) -> bool| {
            let such = context.messages.iter().filter(|counted| is_such(counted));
            such.map(|counted| counted.tokens.total()).sum::<u64>()
        };
        let now = tokens(&|counted| counted.kind == Kind::Summary);
        let said = if self.said_tokens > 0 { tokens(&|counted| counted.is_input) } else { 0 };
        (now + said + self.new_tokens).min(self.said_tokens + self.text_tokens)
    }

    /// Returns the same room, with or without the ids of messages.
    #[must_use]
    pub fn with_ids(self, shows_ids: bool) -> Self {
        Self { shows_ids, ..self }
    }
}
