//! `sliding_window`: the newest turns word for word, what is older in a rolling summary.

use crate::core::context::{
    ContextManager, Decision, RequestCount,
    cut::{find_cut, last_turn_cut, turns_cut},
    strategy::{Options, Planning, Step},
};
use reseed_protocol::event::CompactionTrigger;

/// Turns beyond those kept that come together before they are folded into the summary: half as many as are kept, and at
/// least this many. Folding each turn as it leaves would cost a summary and the provider's cache at every turn.
const SLACK_TURNS_MIN: u64 = 2;

/// Turns that are probably shorter than this together are not folded yet: a summary of them would have as many tokens.
const FOLD_TOKENS_MIN: u64 = 512;

/// Folds turns in the background once there are clearly more than it keeps, and acts by tokens as `threshold` does.
#[derive(Debug, Clone)]
pub struct SlidingWindow {
    options: Options,
}

impl SlidingWindow {
    /// With these settings.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }

    /// Whether there are clearly more turns than are kept, and those that would go are worth a summary. What they cost
    /// is reckoned as their part of all messages: looking at them is not for every request.
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

    fn steps(&self, planning: &Planning<'_>) -> Vec<Step> {
        let Planning { context, structure, keep, .. } = *planning;
        let keep_turns = usize::try_from(self.options.keep_turns).unwrap_or(usize::MAX);
        let turns = structure.units.iter().filter(|unit| unit.is_input && unit.may_begin_tail).count();
        // Whole turns where they fit; otherwise the last one is parted. Only who asks for a compaction though there are
        // no more turns than are kept gets less: about what other strategies keep.
        let asked = || find_cut(context, structure, keep).or_else(|| last_turn_cut(context, structure));
        let cut = turns_cut(context, structure, keep_turns, keep.tokens_max)
            .or_else(|| find_cut(context, structure, keep).filter(|_| structure.tokens() > keep.tokens_max))
            .or_else(|| asked().filter(|_| turns <= keep_turns));
        let truncate = planning.oldest_out();
        cut.map(Step::Summarise).into_iter().chain(truncate.map(Step::Truncate)).collect()
    }
}
