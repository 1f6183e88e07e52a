//! `tool_results`: clears old tool results first, as soon as that is worthwhile; then works like `threshold`.

use super::threshold::summary_steps;
use crate::compaction::{
    ContextManager,
    clearing::old_results,
    cut::Keep,
    strategy::{FallbackStep, Options, Planning, Setting},
};

/// Replaces all except the newest tool results with a short note, including those in the tail that other strategies
/// keep verbatim, and accepts the minimum gain of a compaction. A tool result can be obtained again by calling the
/// tool; a message cannot. It summarises only if clearing gains less.
#[derive(Debug, Clone)]
pub struct ToolResults {
    options: Options,
}

impl ToolResults {
    /// Creates the strategy with these settings.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl ContextManager for ToolResults {
    fn name(&self) -> &'static str {
        "tool_results"
    }

    fn about(&self) -> &'static str {
        "Clears old tool results as soon as that saves enough, then works like threshold."
    }

    fn reads(&self) -> &'static [Setting] {
        &[
            Setting::Threshold,
            Setting::KeepToolResults,
            Setting::MinGain,
            Setting::Target,
            Setting::Background,
            Setting::KeepRecentTokens,
            Setting::UserShare,
            Setting::SummaryMode,
            Setting::SummaryKind,
            Setting::ReserveTokens,
        ]
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn steps(&self, planning: &Planning<'_>) -> Vec<FallbackStep> {
        let everywhere = Planning { keep: Keep { tokens: 0, ..planning.keep }, ..*planning };
        let results = old_results(&everywhere, self.options.keep_tool_results);
        let clear = (!results.is_empty()).then_some(FallbackStep::Clear { results, any_gain: true });
        clear.into_iter().chain(summary_steps(planning)).collect()
    }
}
