//! `threshold`: summarises when the window is nearly full. The default.

use crate::compaction::{
    ContextManager,
    clearing::old_results,
    cut::{find_cut, last_turn_cut},
    strategy::{FallbackStep, Options, Planning, Setting},
};

/// Compacts above a share of the window, or when too little is free for an answer, whichever comes first.
#[derive(Debug, Clone)]
pub struct Threshold {
    options: Options,
}

impl Threshold {
    /// Creates the strategy with these settings.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl ContextManager for Threshold {
    fn name(&self) -> &'static str {
        "threshold"
    }

    fn about(&self) -> &'static str {
        "Summarises the older part when the window is nearly full."
    }

    fn reads(&self) -> &'static [Setting] {
        &[
            Setting::Threshold,
            Setting::Target,
            Setting::Background,
            Setting::KeepRecentTokens,
            Setting::UserShare,
            Setting::SummaryMode,
            Setting::SummaryKind,
            Setting::KeepToolResults,
            Setting::MinGain,
            Setting::ReserveTokens,
        ]
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn steps(&self, planning: &Planning<'_>) -> Vec<FallbackStep> {
        let results = old_results(planning, self.options.keep_tool_results);
        let clear = (!results.is_empty()).then_some(FallbackStep::Clear { results, any_gain: false });
        clear.into_iter().chain(summary_steps(planning)).collect()
    }
}

/// Summarises everything older than the budget, or everything except the last turn if it is all within the budget. If
/// that saves too little, drops the oldest turns until the target is met.
pub(super) fn summary_steps(planning: &Planning<'_>) -> impl Iterator<Item = FallbackStep> {
    let (context, structure) = (planning.context, planning.structure);
    let cut = find_cut(context, structure, planning.keep).or_else(|| last_turn_cut(context, structure));
    let summarise = cut.map(FallbackStep::Summarise);
    summarise.into_iter().chain(planning.oldest_out().map(FallbackStep::Truncate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reseed_protocol::context::CompactAtRule;

    /// Creates settings with the values that affect the trigger.
    fn options(threshold: f64, reserve_tokens: Option<u64>, max_output_tokens: Option<u64>) -> Options {
        Options { threshold, reserve_tokens, max_output_tokens, ..Options::default() }
    }

    #[test]
    fn the_trigger_is_the_earlier_of_the_share_and_the_room_for_an_answer() {
        use CompactAtRule::{AnswerRoom, MaxOutputTokens, ReserveTokens, Threshold as Share};
        let table = [
            // The columns are threshold, reserve, longest answer and window, then trigger, rule and target.
            (0.8, None, None, 200_000, 160_000, Share, 120_000),
            (0.95, None, None, 200_000, 190_000, Share, 120_000),
            (0.99, None, None, 200_000, 196_000, AnswerRoom, 120_000),
            (1.0, None, None, 1_000_000, 980_000, AnswerRoom, 600_000),
            (1.0, None, None, 40_000, 39_200, AnswerRoom, 24_000),
            (0.95, None, None, 40_000, 38_000, Share, 24_000),
            (0.9, None, None, 8_000, 7_200, Share, 4_800),
            (1.0, None, None, 8_000, 7_488, AnswerRoom, 4_800),
            // In a small window the reserve is capped.
            (0.8, None, None, 2_000, 1_600, Share, 1_200),
            (1.0, None, None, 2_000, 1_600, AnswerRoom, 1_200),
            (1.0, None, None, 2_560, 2_048, AnswerRoom, 1_536),
            (1.0, None, None, 512, 410, AnswerRoom, 306),
            (0.8, None, None, 512, 409, Share, 306),
            (0.5, None, None, 2_000, 1_000, Share, 750),
            // Explicit settings are used in full.
            (0.8, None, Some(16_000), 40_000, 24_000, MaxOutputTokens, 18_000),
            (0.8, None, Some(100), 8_000, 6_400, Share, 4_800),
            (1.0, None, Some(100), 8_000, 7_900, MaxOutputTokens, 4_800),
            (1.0, None, Some(128_000), 128_000, 32_000, MaxOutputTokens, 24_000),
            (0.95, Some(16_384), None, 200_000, 183_616, ReserveTokens, 120_000),
            (0.95, Some(16_384), Some(4_000), 40_000, 23_616, ReserveTokens, 17_712),
            (1.0, Some(16_384), None, 8_000, 4_000, ReserveTokens, 3_000),
            (1.0, Some(0), Some(100), 8_000, 8_000, Share, 4_800),
            // A threshold below the target lowers the target.
            (0.6, None, None, 40_000, 24_000, Share, 18_000),
            (0.1, None, None, 40_000, 4_000, Share, 3_000),
            (0.0, None, None, 40_000, 0, Share, 0),
        ];
        for (threshold, reserve, answer, window, trigger, rule, target) in table {
            let manager = Threshold::new(options(threshold, reserve, answer));
            let told =
                (manager.compact_at_tokens(window), manager.compact_at_rule(window), manager.target_tokens(window));
            let row = format!("{threshold} {reserve:?} {answer:?} {window}");
            assert_eq!(told, (Some(trigger), Some(rule), target), "{row}");
        }
    }

    #[test]
    fn the_trigger_follows_the_threshold_and_leaves_every_window_usable() {
        for window in [512, 600, 1_000, 1_500, 2_000, 8_192, 40_000, 128_000, 400_000, 1_000_000, 100_000_000] {
            for answer in [None, Some(1), Some(4_096), Some(1_000_000)] {
                let mut before = 0;
                for percent in 0..=100u32 {
                    let options = options(f64::from(percent) / 100.0, None, answer);
                    let (trigger, target) = (options.trigger_in(window), options.target_in(window));
                    assert!(trigger >= before, "{window} {answer:?} {percent}: a higher threshold compacts earlier");
                    assert!(trigger < window, "{window} {answer:?} {percent}: no room is left for an answer");
                    assert!(percent == 0 || target < trigger, "{window} {answer:?} {percent}: {target} of {trigger}");
                    before = trigger;
                }
                let room = answer.map_or(window / 2, |answer: u64| window - answer.min(window / 4 * 3));
                assert!(before >= window / 4 && before >= room.min(window / 2), "{window} {answer:?}: {before}");
            }
        }
    }
}
