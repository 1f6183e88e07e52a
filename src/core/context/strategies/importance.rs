//! `importance`: what matters least goes first, wherever it stands.

mod score;

use crate::core::context::{
    ContextManager,
    cut::{Cut, cut_units, find_cut, last_turn_cut, must_stay},
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

    fn summarises(&self) -> bool {
        self.options.summarise
    }

    fn steps(&self, planning: &Planning<'_>) -> Vec<Step> {
        let (context, structure) = (planning.context, planning.structure);
        let (first, last) = if self.options.summarise {
            // Where everything has room, who asks for a summary gets it of what other strategies summarise.
            let scores = scores(context, structure);
            let kept = choose(planning, &scores, planning.keep.tokens, planning.keep.tokens_max).kept;
            let cut = cut_units(context, structure, &kept)
                .or_else(|| find_cut(context, structure, planning.keep))
                .or_else(|| last_turn_cut(context, structure));
            (cut.map(Step::Summarise), planning.oldest_out().map(Step::Truncate))
        } else {
            let cut = if planning.meets_target() { None } else { least_important(planning) };
            (cut.map(Step::Truncate), None)
        };
        first.into_iter().chain(last).collect()
    }
}

/// The cut that drops what matters least until the target is met.
fn least_important(planning: &Planning<'_>) -> Option<Cut> {
    let Planning { context, structure, keep, .. } = *planning;
    let scores = scores(context, structure);
    let tokens_max = planning.room_without_summary();
    let mut tail_tokens_max = keep.tokens;
    loop {
        let chosen = choose(planning, &scores, tail_tokens_max, tokens_max);
        // Where more single units would fit than may be named, the tail grows into the room that they leave.
        if !chosen.is_capped || tail_tokens_max >= tokens_max {
            return cut_units(context, structure, &chosen.kept);
        }
        tail_tokens_max = tail_tokens_max.saturating_mul(2).max(tail_tokens_max + chosen.room);
    }
}

/// Which units stay, one flag for each.
struct Chosen {
    kept: Vec<bool>,
    /// Tokens that are left of what may stay.
    room: u64,
    /// More units would fit than may be kept one by one.
    is_capped: bool,
}

/// Keeps a tail of about so many tokens, then of the older units those that matter most.
fn choose(planning: &Planning<'_>, scores: &[i64], tail_tokens_max: u64, tokens_max: u64) -> Chosen {
    let Planning { context, structure, .. } = *planning;
    let units = &structure.units;
    let mut kept = must_stay(context, structure);
    let stays: u64 = units.iter().zip(&kept).filter(|(_, stays)| **stays).map(|(unit, _)| unit.tokens).sum();
    let mut room = tokens_max.saturating_sub(stays);
    // What was said last belongs together, whatever it says.
    let mut tail = units.len();
    let mut tail_tokens = 0;
    for at in (0..units.len()).rev() {
        let cost = if kept[at] { 0 } else { units[at].tokens };
        tail_tokens += units[at].tokens;
        if cost > room || tail_tokens > tail_tokens_max {
            break;
        }
        room -= cost;
        kept[at] = true;
        tail = at;
    }
    let mut older: Vec<usize> = (0..tail).filter(|at| !kept[*at]).collect();
    // Of equals the newer one.
    older.sort_unstable_by_key(|at| Reverse((scores[*at], *at)));
    let mut chosen = 0;
    for at in older {
        if units[at].tokens > room {
            continue;
        }
        if chosen == KEPT_UNITS_MAX {
            return Chosen { kept, room, is_capped: true };
        }
        room -= units[at].tokens;
        kept[at] = true;
        chosen += 1;
    }
    Chosen { kept, room, is_capped: false }
}
