//! `importance`: removes the least important content first, wherever it is.

mod score;

use crate::compaction::{
    ContextManager,
    cut::{Cut, cut_units, find_cut, last_turn_cut, must_stay},
    strategy::{FallbackStep, Options, Planning, Setting},
};
use score::scores;
use std::cmp::Reverse;

/// Maximum older units that are kept individually: the compaction's entry names each, and opening the session looks
/// each up.
const KEPT_UNITS_MAX: usize = 100;

/// Keeps the newest messages up to the budget, then the most important older ones while the target has room. The rest
/// is summarised, or dropped if `summarise` is off. If the summary keeps the user's words, the user's older messages
/// are not chosen: chosen individually, an older value could follow a newer one.
#[derive(Debug, Clone)]
pub struct Importance {
    options: Options,
}

impl Importance {
    /// Creates the strategy with these settings.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl ContextManager for Importance {
    fn name(&self) -> &'static str {
        "importance"
    }

    fn about(&self) -> &'static str {
        "Removes what matters least first, wherever it is."
    }

    fn reads(&self) -> &'static [Setting] {
        &[
            Setting::Threshold,
            Setting::Target,
            Setting::Summarise,
            Setting::KeepRecentTokens,
            Setting::Background,
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

    fn summarises(&self) -> bool {
        self.options.summarise
    }

    fn steps(&self, planning: &Planning<'_>) -> Vec<FallbackStep> {
        let (context, structure) = (planning.context, planning.structure);
        let (first, last) = if self.options.summarise {
            // If everything fits, a requested summary covers what other strategies would summarise.
            let scores = scores(context, structure);
            let limits = Limits {
                tail_tokens: planning.keep.tokens,
                // The newest messages stay also where the user's words leave them no room.
                tokens: planning.keep.tokens_max.max(planning.keep.tokens),
                chooses_input: self.options.user_share == 0.0,
            };
            let kept = choose(planning, &scores, limits);
            let cut = cut_units(context, structure, &kept)
                .or_else(|| find_cut(context, structure, planning.keep))
                .or_else(|| last_turn_cut(context, structure));
            (cut.map(FallbackStep::Summarise), planning.oldest_out().map(FallbackStep::Truncate))
        } else {
            let cut = if planning.meets_target() { None } else { least_important(planning) };
            (cut.map(FallbackStep::Truncate), None)
        };
        first.into_iter().chain(last).collect()
    }
}

/// Drops the least important content until the target is met.
fn least_important(planning: &Planning<'_>) -> Option<Cut> {
    let Planning { context, structure, keep, .. } = *planning;
    let scores = scores(context, structure);
    let limits = Limits { tail_tokens: keep.tokens, tokens: planning.room_without_summary(), chooses_input: true };
    cut_units(context, structure, &choose(planning, &scores, limits))
}

/// Limits on what may be kept.
struct Limits {
    /// Tokens of the newest units together.
    tail_tokens: u64,
    /// Tokens of all units together.
    tokens: u64,
    /// True if the user's older messages are chosen like others.
    chooses_input: bool,
}

/// Keeps the newest units, then the most important older ones. Returns one flag per unit.
fn choose(planning: &Planning<'_>, scores: &[i64], limits: Limits) -> Vec<bool> {
    let Planning { context, structure, .. } = *planning;
    let units = &structure.units;
    let mut kept = must_stay(context, structure);
    let stays: u64 = units.iter().zip(&kept).filter(|(_, stays)| **stays).map(|(unit, _)| unit.tokens).sum();
    let mut room = limits.tokens.saturating_sub(stays);
    // The newest messages belong together, whatever their content.
    let mut tail = units.len();
    let mut tail_tokens = 0;
    for at in (0..units.len()).rev() {
        let cost = if kept[at] { 0 } else { units[at].tokens };
        tail_tokens += units[at].tokens;
        if cost > room || tail_tokens > limits.tail_tokens {
            break;
        }
        room -= cost;
        kept[at] = true;
        tail = at;
    }
    let can_be_chosen = |at: &usize| !kept[*at] && (limits.chooses_input || !units[*at].is_input);
    let mut older: Vec<usize> = (0..tail).filter(can_be_chosen).collect();
    // Among equals the newer one comes first.
    older.sort_unstable_by_key(|at| Reverse((scores[*at], *at)));
    let mut chosen = 0;
    for at in older {
        if units[at].tokens > room {
            continue;
        }
        if chosen == KEPT_UNITS_MAX {
            break;
        }
        room -= units[at].tokens;
        kept[at] = true;
        chosen += 1;
    }
    kept
}
