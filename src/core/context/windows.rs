//! Which window each model has in this deployment.

use crate::core::context::window::resolve;

/// No model worth the name has a smaller window, and no system prompt with a question fits into less.
pub const WINDOW_TOKENS_MIN: u64 = 512;

/// The window that is taken for a session whose model is no longer known, so that it can still be opened and given
/// another model.
const WINDOW_TOKENS_UNKNOWN: u64 = 8_192;

/// What is known of windows: configuration first, then the provider's list, then a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Windows {
    configured: Option<u64>,
    listed: Vec<(String, Option<u64>)>,
}

impl Windows {
    /// The window that configuration sets for every model, if it does, and the provider's list.
    #[must_use]
    pub fn new(configured: Option<u64>, listed: Vec<(String, Option<u64>)>) -> Self {
        Self { configured, listed }
    }

    /// Whether the window of this model is known.
    #[must_use]
    pub fn knows(&self, model: &str) -> bool {
        resolve(model, self.configured, &self.listed).is_some()
    }

    /// The window of this model, in tokens.
    #[must_use]
    pub fn tokens(&self, model: &str) -> u64 {
        let known = resolve(model, self.configured, &self.listed).map(|window| window.tokens);
        known.unwrap_or(WINDOW_TOKENS_UNKNOWN).max(WINDOW_TOKENS_MIN)
    }
}
