//! `truncate`: drops the oldest turns as wholes. The model is never asked.

use crate::compaction::{
    ContextManager,
    strategy::{FallbackStep, Options, Planning, Setting},
};

/// Drops the oldest turns until the target is met, and no more. Messages that must stay, and a summary that another
/// strategy made, are kept.
#[derive(Debug, Clone)]
pub struct Truncate {
    options: Options,
}

impl Truncate {
    /// Creates the strategy with these settings.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl ContextManager for Truncate {
    fn name(&self) -> &'static str {
        "truncate"
    }

    fn about(&self) -> &'static str {
        "Drops the oldest questions and answers, without asking the model."
    }

    fn reads(&self) -> &'static [Setting] {
        &[Setting::Threshold, Setting::Target, Setting::Background, Setting::MinGain, Setting::ReserveTokens]
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn summarises(&self) -> bool {
        false
    }

    fn steps(&self, planning: &Planning<'_>) -> Vec<FallbackStep> {
        planning.oldest_out().map(FallbackStep::Truncate).into_iter().collect()
    }
}
