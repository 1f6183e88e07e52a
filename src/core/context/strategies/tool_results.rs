//! `tool_results`: old tool results give way first, as soon as that gains anything worth it; then as `threshold`.

use super::threshold::summary_steps;
use crate::core::context::{
    ContextManager,
    clearing::old_results,
    cut::Keep,
    strategy::{Options, Planning, Step},
};

/// Puts a short note in the place of every tool result but the newest ones, also in the tail that other strategies keep
/// word for word, and is content with the least gain that a compaction must have: what a tool answered can be had again
/// by calling it, and what was said cannot. It summarises only where clearing gains less.
#[derive(Debug, Clone)]
pub struct ToolResults {
    options: Options,
}

impl ToolResults {
    /// With these settings.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl ContextManager for ToolResults {
    fn name(&self) -> &'static str {
        "tool_results"
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn steps(&self, planning: &Planning<'_>) -> Vec<Step> {
        let everywhere = Planning { keep: Keep { tokens: 0, ..planning.keep }, ..*planning };
        let results = old_results(&everywhere, self.options.keep_tool_results);
        let clear = (!results.is_empty()).then_some(Step::Clear { results, any_gain: true });
        clear.into_iter().chain(summary_steps(planning)).collect()
    }
}
