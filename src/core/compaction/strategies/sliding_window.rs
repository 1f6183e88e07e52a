//! `sliding_window`: keeps the newest turns verbatim and a rolling summary of older ones.

use crate::{
    compaction::{
        ContextManager, Decision,
        cut::{find_cut, last_turn_cut, turns_cut},
        strategy::{FallbackStep, Options, Planning, Setting},
    },
    context::RequestCount,
};
use reseed_protocol::compaction::CompactionTrigger;

/// Turns that accumulate beyond those kept before they are folded into the summary: half as many as are kept, but at
/// least this many. Folding every turn as it leaves would cost a summary and break the provider's cache each time.
const SLACK_TURNS_MIN: u64 = 2;

/// Turns with fewer estimated tokens than this are not folded yet: their summary would be as long.
const FOLD_TOKENS_MIN: u64 = 512;

/// Folds turns in the background once there are clearly more than it keeps, and compacts by tokens like `threshold`.
#[derive(Debug, Clone)]
pub struct SlidingWindow {
    options: Options,
}

impl SlidingWindow {
    /// Creates the strategy with these settings.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }

    /// Returns true if there are clearly more turns than are kept, and those to be removed are worth a summary. Their
    /// tokens are approximated as a proportion of all messages, because this runs for every request and must not read
    /// them.
    fn is_due(&self, count: &RequestCount) -> bool {
        let keep = self.options.keep_turns;
        let slack = (keep / 2).max(SLACK_TURNS_MIN);
        if count.turns <= keep.saturating_add(slack) {
            return false;
        }
        let parts = &count.breakdown;
        let said = parts.user + parts.assistant + parts.reasoning + parts.tool_results + parts.images;
        u128::from(said) * u128::from(count.turns - keep) >= u128::from(FOLD_TOKENS_MIN) * u128::from(count.turns)
    }
}

impl ContextManager for SlidingWindow {
    fn name(&self) -> &'static str {
        "sliding_window"
    }

    fn about(&self) -> &'static str {
        "Keeps the newest questions and answers word for word, and folds older ones into a summary."
    }

    fn reads(&self) -> &'static [Setting] {
        &[
            Setting::KeepTurns,
            Setting::Threshold,
            Setting::Background,
            Setting::Target,
            Setting::UserShare,
            Setting::SummaryMode,
            Setting::SummaryKind,
            Setting::KeepRecentTokens,
            Setting::MinGain,
            Setting::ReserveTokens,
        ]
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn before_request(&self, count: &RequestCount, window_tokens: u64) -> Decision {
        match self.options.decide(count.tokens, window_tokens) {
            Decision::Ready | Decision::Prepare if self.is_due(count) => Decision::Due,
            by_tokens => by_tokens,
        }
    }

    fn trigger(&self) -> CompactionTrigger {
        CompactionTrigger::Strategy
    }

    fn steps(&self, planning: &Planning<'_>) -> Vec<FallbackStep> {
        let Planning { context, structure, keep, .. } = *planning;
        let keep_turns = usize::try_from(self.options.keep_turns).unwrap_or(usize::MAX);
        let turns = structure.units.iter().filter(|unit| unit.is_input && unit.may_begin_tail).count();
        // Whole turns are kept if they fit; otherwise the last one is split. If a compaction is requested although
        // there are no more turns than are kept, it keeps about what other strategies keep.
        let asked = || find_cut(context, structure, keep).or_else(|| last_turn_cut(context, structure));
        let cut = turns_cut(context, structure, keep_turns, keep.tokens_max)
            .or_else(|| find_cut(context, structure, keep).filter(|_| structure.tokens() > keep.tokens_max))
            .or_else(|| asked().filter(|_| turns <= keep_turns));
        let truncate = planning.oldest_out();
        cut.map(FallbackStep::Summarise).into_iter().chain(truncate.map(FallbackStep::Truncate)).collect()
    }
}
