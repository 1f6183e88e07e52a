//! `importance`: what matters least goes first, wherever it stands.

mod score;

use crate::core::context::{
    ContextManager,
    cut::{Cut, cut_units, last_turn_cut, least_cut, must_stay},
    strategy::{Options, Planning, Step},
};
use score::scores;
use std::cmp::Reverse;

/// Older units that are kept one by one: each is named in the compaction's entry, and is looked for when the session is
/// opened.
const KEPT_UNITS_MAX: usize = 100;

/// Keeps the newest messages up to the budget, and of the older ones those that matter most, as far as the target has
/// room. What goes is summarised, or dropped where `summarise` is off.
#[derive(Debug, Clone)]
pub struct Importance {
    options: Options,
}

impl Importance {
    /// With these settings.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

impl ContextManager for Importance {
    fn name(&self) -> &'static str {
        "importance"
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn steps(&self, planning: &Planning<'_>) -> Vec<Step> {
        let (context, structure) = (planning.context, planning.structure);
        let cut = least_important(planning).or_else(|| last_turn_cut(context, structure));
        let least = least_cut(context, structure).map(Step::Truncate);
        let step = if self.options.summarise { Step::Summarise } else { Step::Truncate };
        let first = cut.map(step);
        let least = least.filter(|least| first.as_ref() != Some(least));
        first.into_iter().chain(least).collect()
    }
}

/// The cut that takes out what matters least; `None` where all of it may stay.
fn least_important(planning: &Planning<'_>) -> Option<Cut> {
    let Planning { context, structure, keep, .. } = *planning;
    let units = &structure.units;
    let mut kept = must_stay(context, structure);
    let stays: u64 = units.iter().zip(&kept).filter(|(_, stays)| **stays).map(|(unit, _)| unit.tokens).sum();
    let mut room = keep.tokens_max.saturating_sub(stays);
    // What was said last belongs together, whatever it says.
    let mut tail = units.len();
    let mut tail_tokens = 0;
    for at in (0..units.len()).rev() {
        let cost = if kept[at] { 0 } else { units[at].tokens };
        tail_tokens += units[at].tokens;
        if cost > room || tail_tokens > keep.tokens {
            break;
        }
        room -= cost;
        kept[at] = true;
        tail = at;
    }
    let scores = scores(context, structure);
    let mut older: Vec<usize> = (0..tail).filter(|at| !kept[*at]).collect();
    // Of equals the newer one.
    older.sort_unstable_by_key(|at| Reverse((scores[*at], *at)));
    let mut chosen = 0;
    for at in older {
        if chosen == KEPT_UNITS_MAX {
            break;
        }
        if units[at].tokens <= room {
            room -= units[at].tokens;
            kept[at] = true;
            chosen += 1;
        }
    }
    cut_units(context, structure, &kept)
}
