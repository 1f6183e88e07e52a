//! What a strategy is: it decides when to compact, and how much to keep.

use crate::core::context::RequestCount;

/// What a strategy decides about the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It may go out as it is.
    Ready,
    /// It may go out, but the user should know that the window is nearly full.
    Warn,
    /// Summarise first, keeping about so many of the newest tokens.
    Compact {
        /// Tokens to keep word for word.
        keep_tokens: u64,
    },
}

/// Decides before every request, also between tool rounds. Pure; asked with the exact count of the request.
pub trait ContextManager: Send + std::fmt::Debug {
    /// The short name, as settings and the wire have it.
    fn name(&self) -> &'static str;

    /// What to do about the next request, in a window of so many tokens.
    fn before_request(&self, count: &RequestCount, window_tokens: u64) -> Decision;

    /// From which count on it compacts by itself; `None` where it never does.
    fn compact_at_tokens(&self, window_tokens: u64) -> Option<u64>;

    /// Tokens it leaves free for the answer.
    fn reserved_tokens(&self, window_tokens: u64) -> u64;

    /// Tokens that a compaction keeps word for word.
    fn keep_tokens(&self, window_tokens: u64) -> u64;

    /// Whether a refusal of the provider as too large may be answered by compacting.
    fn compacts_on_overflow(&self) -> bool;
}

/// The deployment's settings, under which a session's stand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Defaults {
    /// Compact when more than this share of the window is used; above 0, at most 1.
    pub threshold: f64,
    /// Compact when less than this many tokens are free.
    pub reserve_tokens: u64,
    /// About how many recent tokens stay word for word.
    pub keep_recent_tokens: u64,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { threshold: 0.8, reserve_tokens: 16_384, keep_recent_tokens: 20_000 }
    }
}

impl Defaults {
    /// The reserve in a window: at most 20 % of it, so that a small window is not all reserve.
    #[must_use]
    pub fn reserve_in(&self, window_tokens: u64) -> u64 {
        self.reserve_tokens.min(window_tokens / 5)
    }

    /// What is kept in a window: at most 25 % of it, so that a compaction always gets well below the trigger.
    #[must_use]
    pub fn keep_in(&self, window_tokens: u64) -> u64 {
        self.keep_recent_tokens.min(window_tokens / 4).max(1)
    }
}
