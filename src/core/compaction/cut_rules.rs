//! Cut rules: which steps an ordered compaction may take.

use crate::{
    compaction::{
        cut::{GAIN_TOKENS_MIN, Keep, summary_cut},
        strategy::{ContextManager, FallbackStep, Planning, share},
        structure::Structure,
    },
    context::{Context, counter::Calibration, node::Node},
};
use reseed_protocol::compaction::CompactionTrigger;
use std::sync::Arc;

/// A compaction to be planned.
#[derive(Debug, Clone, Copy)]
pub struct Ordered<'a> {
    /// The strategy that plans it.
    pub manager: &'a dyn ContextManager,
    /// True if the order named the strategy.
    pub names_strategy: bool,
    /// The trigger.
    pub trigger: CompactionTrigger,
    /// True if the existing summary must be made again from the original messages.
    pub is_rebuild: bool,
    /// The path, from the root or the last compaction to the leaf.
    pub path: &'a [Arc<Node>],
    /// The model's view of the path.
    pub context: &'a Context,
    /// The count of the next request.
    pub tokens: u64,
    /// The model's window.
    pub window_tokens: u64,
    /// The window to plan for: smaller than the model's if the provider refused a request as too large.
    pub planned_window_tokens: u64,
    /// Estimated tokens of system prompt and tools.
    pub fixed_tokens: u64,
    /// Estimated tokens that the summary may take.
    pub summary_tokens: u64,
    /// Converts the model's tokens to estimated ones, the unit of cuts.
    pub calibration: &'a Calibration,
}

/// The rules by which a deployment's compactions cut.
pub trait CutRules: std::fmt::Debug + Send + Sync {
    /// Returns their name. It is stored with a held compaction, so it must never change.
    fn name(&self) -> &'static str;

    /// Returns the fallback steps by which a compaction could make room now; none if there is nothing to gain.
    fn steps(&self, ordered: &Ordered<'_>) -> Vec<FallbackStep>;

    /// Returns true if summaries may have segments and keep the user's words, as the settings say. Otherwise a summary
    /// is a single text that is brought up to date.
    fn keeps_words(&self) -> bool {
        true
    }
}

/// The part of the wanted recent messages that an automatic compaction keeps, even if the target has no room for it.
const KEPT_PART_MIN: u64 = 4;

/// Our own rules: the strategy's steps, as far as the order allows them.
#[derive(Debug)]
pub struct ByStrategy;

impl CutRules for ByStrategy {
    fn name(&self) -> &'static str {
        "Own"
    }

    fn steps(&self, ordered: &Ordered<'_>) -> Vec<FallbackStep> {
        let Ordered { manager, context, calibration, summary_tokens, .. } = *ordered;
        let window = ordered.planned_window_tokens;
        let structure = Structure::of(context);
        let target_tokens =
            calibration.in_estimates(manager.target_tokens(window)).saturating_sub(ordered.fixed_tokens);
        let wanted = calibration.in_estimates(manager.keep_tokens(window));
        let room = target_tokens.saturating_sub(summary_tokens);
        // The user's words may take the room of recent messages, down to a part of them: otherwise what is left could
        // be above the trigger again.
        let tokens = match ordered.trigger {
            CompactionTrigger::Manual => wanted,
            _ => wanted.min(room.max(wanted / KEPT_PART_MIN)),
        };
        let keep = Keep { tokens, tokens_max: room };
        let planning = Planning { context, structure: &structure, keep, target_tokens, summary_tokens };
        let mut steps = manager.steps(&planning);
        // A summary made for a larger window has to shrink, even if no message can leave.
        let has_summary_step = steps.iter().any(|step| matches!(step, FallbackStep::Summarise(_)));
        if !has_summary_step && manager.summarises() && structure.summary_tokens > summary_tokens + GAIN_TOKENS_MIN {
            let gentle = steps.iter().take_while(|step| matches!(step, FallbackStep::Clear { .. })).count();
            steps.splice(gentle..gentle, summary_cut(context, &structure).map(FallbackStep::Summarise));
        }
        // With a low threshold, a compaction may be due although there is room. Then nothing is truncated.
        let has_room = ordered.trigger == CompactionTrigger::Threshold
            && manager.summarises()
            && ordered.tokens <= share(window, manager.options().target);
        if planning.meets_target() || has_room {
            // Below the target, nothing is dropped without a summary, even if a custom strategy asks for that.
            steps.retain(|step| !matches!(step, FallbackStep::Truncate(_)));
        }
        if ordered.trigger == CompactionTrigger::Manual && manager.summarises() {
            // A compaction ordered by a person must be a summary, except that naming `tool_results` allows clearing.
            steps.retain(|step| match step {
                FallbackStep::Summarise(_) => true,
                FallbackStep::Clear { any_gain, .. } => ordered.names_strategy && *any_gain,
                FallbackStep::Truncate(_) => false,
            });
        }
        if ordered.is_rebuild {
            steps.retain(|step| matches!(step, FallbackStep::Summarise(_)));
            if steps.is_empty() {
                steps.extend(summary_cut(context, &structure).map(FallbackStep::Summarise));
            }
        }
        steps
    }
}
