//! `threshold`: summarise when the window is nearly full. The default.

use crate::core::context::{
    ContextManager,
    clearing::old_results,
    cut::{find_cut, last_turn_cut},
    strategy::{Options, Planning, Step},
};

/// Compacts above a share of the window, or when too little is free for the answer, whichever comes first.
#[derive(Debug, Clone)]
pub struct Threshold {
    options: Options,
}

impl Threshold {
    /// With these settings.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl ContextManager for Threshold {
    fn name(&self) -> &'static str {
        "threshold"
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn steps(&self, planning: &Planning<'_>) -> Vec<Step> {
        let results = old_results(planning, self.options.keep_tool_results);
        let clear = (!results.is_empty()).then_some(Step::Clear { results, any_gain: false });
        clear.into_iter().chain(summary_steps(planning)).collect()
    }
}

/// Summarises what is older than the budget, or all but the last turn where everything is within it. If that saves too
/// little, the oldest turns are left out until the target is met.
pub(super) fn summary_steps(planning: &Planning<'_>) -> impl Iterator<Item = Step> {
    let (context, structure) = (planning.context, planning.structure);
    let cut = find_cut(context, structure, planning.keep).or_else(|| last_turn_cut(context, structure));
    let summarise = cut.map(Step::Summarise);
    summarise.into_iter().chain(planning.oldest_out().map(Step::Truncate))
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
            let manager = Threshold::new(Options { threshold, reserve_tokens, ..Options::default() });
            assert_eq!(manager.compact_at_tokens(window), Some(trigger), "{threshold} {reserve_tokens} {window}");
        }
    }
}
