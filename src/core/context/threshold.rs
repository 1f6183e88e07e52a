//! `threshold`: summarise when the window is nearly full. The default.

use crate::core::context::{ContextManager, Decision, RequestCount, strategy::Defaults};

/// Compacts above a share of the window, or when too little is free for the answer, whichever comes first.
#[derive(Debug, Clone, Copy)]
pub struct Threshold {
    limits: Defaults,
}

impl Threshold {
    /// With these limits.
    #[must_use]
    pub fn new(limits: Defaults) -> Self {
        Self { limits }
    }

    fn trigger(&self, window_tokens: u64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a window, far below 2^53"
        )]
        let share = (window_tokens as f64 * self.limits.threshold) as u64;
        share.min(window_tokens - self.limits.reserve_in(window_tokens))
    }
}

impl ContextManager for Threshold {
    fn name(&self) -> &'static str {
        "threshold"
    }

    fn before_request(&self, count: &RequestCount, window_tokens: u64) -> Decision {
        if count.tokens > self.trigger(window_tokens) {
            Decision::Compact { keep_tokens: self.keep_tokens(window_tokens) }
        } else {
            Decision::Ready
        }
    }

    fn compact_at_tokens(&self, window_tokens: u64) -> Option<u64> {
        Some(self.trigger(window_tokens))
    }

    fn reserved_tokens(&self, window_tokens: u64) -> u64 {
        self.limits.reserve_in(window_tokens)
    }

    fn keep_tokens(&self, window_tokens: u64) -> u64 {
        self.limits.keep_in(window_tokens)
    }

    fn compacts_on_overflow(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trigger_is_the_earlier_of_share_and_reserve() {
        let table = [
            // threshold, reserve, window, trigger
            (0.8, 16_384, 200_000, 160_000),
            (0.95, 16_384, 200_000, 183_616),
            (0.8, 16_384, 8_000, 6_400),
            (1.0, 16_384, 8_000, 6_400),
            (1.0, 0, 8_000, 8_000),
            (0.5, 16_384, 2_000, 1_000),
        ];
        for (threshold, reserve_tokens, window, trigger) in table {
            let manager = Threshold::new(Defaults { threshold, reserve_tokens, ..Defaults::default() });
            assert_eq!(manager.compact_at_tokens(window), Some(trigger), "{threshold} {reserve_tokens} {window}");
        }
    }
}
