//! Selects the tool results to replace with a short note: old ones that are large enough to matter.

use crate::{compaction::strategy::Planning, context::messages::Counted};

/// Results with fewer tokens are left unchanged, because the note that replaces one has about seventy.
const RESULT_TOKENS_MIN: u64 = 140;

/// An upper bound for the tokens of that note, so that clearing does not stop short of the target.
const NOTE_TOKENS_MAX: u64 = 100;

/// Returns the indexes of tool results that may be cleared, oldest first. Excluded are the newest `keep` results,
/// pinned ones, those in the tail to be kept, and short or already cleared ones. Results that the model has not read
/// yet are excluded too, because it would only call again. Stops once the target is met.
#[must_use]
pub fn old_results(planning: &Planning<'_>, keep: u64) -> Vec<usize> {
    let messages = &planning.context.messages;
    let is_result = |counted: &Counted| counted.is_result && counted.entry_id.is_some();
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    let mut seen = 0;
    let mut tail_tokens = 0;
    let mut found = Vec::new();
    for (age, unit) in planning.structure.units.iter().rev().enumerate() {
        tail_tokens += unit.tokens;
        let in_tail = age == 0 || tail_tokens <= planning.keep.tokens;
        for at in unit.messages.clone().rev().filter(|at| is_result(&messages[*at])) {
            seen += 1;
            let counted = &messages[at];
            let is_large = counted.tokens.total() >= RESULT_TOKENS_MIN;
            if seen > keep && !in_tail && !unit.pinned && !counted.cleared && is_large {
                found.push(at);
            }
        }
    }
    found.reverse();
    let structure = planning.structure;
    let mut left = structure.tokens() + structure.summary_tokens;
    found
        .into_iter()
        .take_while(|at| {
            let is_above = left > planning.target_tokens;
            left = left.saturating_sub(messages[*at].tokens.total().saturating_sub(NOTE_TOKENS_MAX));
            is_above
        })
        .collect()
}
