//! `manual` (also `dummy`, `none`): never compacts by itself, also not on overflow. Off means off.

use crate::core::context::{ContextManager, Decision, RequestCount, strategy::Defaults};

/// From this share of the window on the user is warned, in percent.
pub const WARN_PERCENT: u64 = 90;

/// Only a client's `manual_compact` compacts.
#[derive(Debug, Clone, Copy)]
pub struct Manual {
    limits: Defaults,
}

impl Manual {
    /// With these limits; only what is kept and what is reserved matter here.
    #[must_use]
    pub fn new(limits: Defaults) -> Self {
        Self { limits }
    }
}

impl ContextManager for Manual {
    fn name(&self) -> &'static str {
        "manual"
    }

    fn before_request(&self, count: &RequestCount, window_tokens: u64) -> Decision {
        if count.tokens.saturating_mul(100) >= window_tokens.saturating_mul(WARN_PERCENT) {
            Decision::Warn
        } else {
            Decision::Ready
        }
    }

    fn compact_at_tokens(&self, _window_tokens: u64) -> Option<u64> {
        None
    }

    fn reserved_tokens(&self, window_tokens: u64) -> u64 {
        self.limits.reserve_in(window_tokens)
    }

    fn keep_tokens(&self, window_tokens: u64) -> u64 {
        self.limits.keep_in(window_tokens)
    }

    fn compacts_on_overflow(&self) -> bool {
        false
    }
}
