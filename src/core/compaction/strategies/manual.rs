//! `manual` (also `dummy`, `none`): never compacts by itself, not even on overflow. Off means off.

use crate::{
    compaction::{
        ContextManager, Decision,
        cut::{find_cut, last_turn_cut},
        strategy::{FallbackStep, Options, Planning, Setting},
    },
    context::RequestCount,
};

/// Percentage of the window above which the user is warned.
pub const WARN_PERCENT: u64 = 90;

/// Compacts only on a client's `start_compaction`.
#[derive(Debug, Clone)]
pub struct Manual {
    options: Options,
}

impl Manual {
    /// Creates the strategy. Of the settings, only the budget, the reserve and the target matter here.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl ContextManager for Manual {
    fn name(&self) -> &'static str {
        "manual"
    }

    fn about(&self) -> &'static str {
        "Off: never compacts by itself, not even when the window is full."
    }

    fn reads(&self) -> &'static [Setting] {
        &[
            Setting::KeepRecentTokens,
            Setting::Target,
            Setting::UserShare,
            Setting::SummaryMode,
            Setting::SummaryKind,
            Setting::MinGain,
            Setting::ReserveTokens,
        ]
    }

    fn options(&self) -> &Options {
        &self.options
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

    fn is_automatic(&self) -> bool {
        false
    }

    fn steps(&self, planning: &Planning<'_>) -> Vec<FallbackStep> {
        let (context, structure) = (planning.context, planning.structure);
        let cut = find_cut(context, structure, planning.keep).or_else(|| last_turn_cut(context, structure));
        cut.map(FallbackStep::Summarise).into_iter().collect()
    }
}
