//! `pipeline`: several strategies in one, gentle to drastic.

use crate::{
    compaction::{
        ContextManager, Decision,
        strategy::{FallbackStep, Options, Planning, Setting},
    },
    context::RequestCount,
};
use reseed_protocol::compaction::CompactionTrigger;

/// Compacts as soon as one of its parts would, then takes their steps in the listed order, each once. All parts share
/// the same settings.
#[derive(Debug)]
pub struct Pipeline {
    options: Options,
    parts: Vec<Box<dyn ContextManager>>,
}

impl Pipeline {
    /// Creates a pipeline of these strategies, gentle to drastic.
    #[must_use]
    pub fn new(options: Options, parts: Vec<Box<dyn ContextManager>>) -> Self {
        Self { options, parts }
    }
}

impl ContextManager for Pipeline {
    fn name(&self) -> &'static str {
        "pipeline"
    }

    fn about(&self) -> &'static str {
        "Uses several strategies in order, gentle to drastic."
    }

    fn reads(&self) -> &'static [Setting] {
        &[
            Setting::Steps,
            Setting::Threshold,
            Setting::Target,
            Setting::Background,
            Setting::KeepTurns,
            Setting::KeepToolResults,
            Setting::KeepRecentTokens,
            Setting::Summarise,
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
        let decisions = self.parts.iter().map(|part| part.before_request(count, window_tokens));
        decisions.max_by_key(|decision| urgency(*decision)).unwrap_or(Decision::Ready)
    }

    fn compact_at_tokens(&self, window_tokens: u64) -> Option<u64> {
        self.parts.iter().filter_map(|part| part.compact_at_tokens(window_tokens)).min()
    }

    fn target_tokens(&self, window_tokens: u64) -> u64 {
        let targets = self.parts.iter().map(|part| part.target_tokens(window_tokens));
        targets.min().unwrap_or_else(|| self.options.target_in(window_tokens))
    }

    fn trigger(&self) -> CompactionTrigger {
        let triggers = self.parts.iter().map(|part| part.trigger());
        triggers
            .into_iter()
            .find(|trigger| *trigger != CompactionTrigger::Threshold)
            .unwrap_or(CompactionTrigger::Threshold)
    }

    fn summarises(&self) -> bool {
        self.parts.iter().any(|part| part.summarises())
    }

    fn steps(&self, planning: &Planning<'_>) -> Vec<FallbackStep> {
        let mut steps: Vec<FallbackStep> = Vec::new();
        for step in self.parts.iter().flat_map(|part| part.steps(planning)) {
            match &step {
                // The last resort of one part waits until all other parts have had their turn.
                FallbackStep::Truncate(_) => steps.retain(|earlier| *earlier != step),
                FallbackStep::Summarise(_) if steps.contains(&step) => continue,
                FallbackStep::Clear { results, any_gain } if is_cleared(&steps, results, *any_gain) => continue,
                FallbackStep::Summarise(_) | FallbackStep::Clear { .. } => {}
            }
            steps.push(step);
        }
        steps
    }
}

/// Returns true if an earlier step that accepts as little gain clears all of these.
fn is_cleared(steps: &[FallbackStep], results: &[usize], any_gain: bool) -> bool {
    steps.iter().any(|step| match step {
        // Indexes are sorted.
        FallbackStep::Clear { results: more, any_gain: content } if *content || !any_gain => {
            results.iter().all(|at| more.binary_search(at).is_ok())
        }
        _ => false,
    })
}

fn urgency(decision: Decision) -> u8 {
    match decision {
        Decision::Ready => 0,
        Decision::Warn => 1,
        Decision::Prepare => 2,
        Decision::Due => 3,
        Decision::Compact => 4,
    }
}
