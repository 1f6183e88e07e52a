//! Cuts: what a compaction removes from the model's context and what it keeps verbatim.
//!
//! Cuts consist of whole units ([`Structure`]), so a call and its results are never separated. The last user message
//! and pinned messages always stay: if the tail starts after them, they are kept beside it.

use crate::{
    compaction::structure::{Structure, Unit},
    context::{
        messages::{Context, Counted, Kind},
        patch::list::{Fate, fates},
    },
};
use reseed_protocol::{EntryId, Role};
use std::collections::HashSet;

/// The messages of a context that a compaction removes and keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Indexes of the removed messages, without the previous summary.
    pub summarised: Vec<usize>,
    /// The first of them that belongs to the turn whose end is kept.
    pub turn_prefix: Option<usize>,
    /// Index of the previous summary, which the new one absorbs.
    pub previous: Option<usize>,
    /// The first entry of the tail; `None` if the tail is empty.
    pub first_kept: Option<EntryId>,
    /// Older entries kept verbatim.
    pub kept: Vec<EntryId>,
    /// Estimated tokens of the removed messages and the previous summary.
    pub dropped_tokens: u64,
    /// Estimated tokens of the messages that stay.
    pub kept_tokens: u64,
}

/// Minimum tokens removed for a compaction to be worth a request.
pub const GAIN_TOKENS_MIN: u64 = 64;

/// How much a compaction should keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// The preferred amount, in estimated tokens.
    pub tokens: u64,
    /// The limit, unless no legal cut keeps less. Above it, the next request would trigger a compaction again.
    pub tokens_max: u64,
}

/// Finds the legal cut that keeps the amount closest to the preferred one, including messages that must stay. Keeping
/// too little weighs twice as much as keeping too much, because a summary is no substitute for recent messages. Returns
/// `None` if the whole context is smaller than that amount, or if nothing can be gained.
#[must_use]
pub fn find_cut(context: &Context, structure: &Structure, keep: Keep) -> Option<Cut> {
    let (units, all) = (&structure.units, structure.tokens());
    if all < keep.tokens {
        return None;
    }
    let stays = must_stay(context, structure);
    let tokens_max = keep.tokens_max.max(keep.tokens);
    let mut beside: u64 = units.iter().zip(&stays).filter(|(_, stays)| **stays).map(|(unit, _)| unit.tokens).sum();
    let must = beside;
    let mut tail = 0;
    let mut best: Option<((bool, u64), usize)> = None;
    for at in (1..units.len()).rev() {
        if !units[at].may_begin_tail {
            break;
        }
        tail += units[at].tokens;
        if stays[at] {
            beside -= units[at].tokens;
        }
        let kept = tail + beside;
        if all - kept < GAIN_TOKENS_MIN {
            break;
        }
        let off = if kept >= keep.tokens { kept - keep.tokens } else { 2 * (keep.tokens - kept) };
        let cost = (kept > tokens_max, off);
        // Among equals the earlier cut wins, because it splits fewer turns.
        if best.is_none_or(|(least, _)| cost <= least) {
            best = Some((cost, at));
        }
    }
    let last = units.last()?;
    match best {
        Some(((false, _), at)) => cut_from(context, structure, at),
        // The messages that must stay are too large by themselves; the newest unit is not the cause.
        Some((_, at)) if must > tokens_max && last.tokens <= tokens_max => cut_from(context, structure, at),
        // Every tail is too large, so none is kept.
        _ => cut_units(context, structure, &stays),
    }
}

/// Keeps only the last turn, for a user who requests a compaction below the budget.
#[must_use]
pub fn last_turn_cut(context: &Context, structure: &Structure) -> Option<Cut> {
    cut_from(context, structure, structure.last_input(context)?)
}

/// Keeps the newest whole turns: at most `turns_max`, and at most `tokens_max` together with what must stay. Returns
/// `None` if that is everything, or if not even the last turn fits.
#[must_use]
pub fn turns_cut(context: &Context, structure: &Structure, turns_max: usize, tokens_max: u64) -> Option<Cut> {
    let units = &structure.units;
    let stays = must_stay(context, structure);
    let mut beside: u64 = units.iter().zip(&stays).filter(|(_, stays)| **stays).map(|(unit, _)| unit.tokens).sum();
    let (mut tail, mut turns, mut from) = (0, 0, None);
    for at in (0..units.len()).rev().take_while(|at| units[*at].may_begin_tail) {
        tail += units[at].tokens;
        if stays[at] {
            beside -= units[at].tokens;
        }
        if tail + beside > tokens_max || turns == turns_max {
            break;
        }
        if at == 0 || units[at - 1].turn != units[at].turn {
            turns += 1;
            from = Some(at);
        }
    }
    cut_from(context, structure, from?)
}

/// Drops the oldest turns until at most `tokens_max` remain: whole turns if that suffices, otherwise also the beginning
/// of the last turn. Drops no more than necessary. Returns `None` if everything fits or nothing may be dropped.
#[must_use]
pub fn oldest_out(context: &Context, structure: &Structure, tokens_max: u64) -> Option<Cut> {
    let (units, all) = (&structure.units, structure.tokens());
    if all <= tokens_max {
        return None;
    }
    let stays = must_stay(context, structure);
    let (mut gone, mut at) = (0, 0);
    while at < units.len() {
        let turn = units[at].turn;
        while at < units.len() && units[at].turn == turn {
            gone += if stays[at] { 0 } else { units[at].tokens };
            at += 1;
        }
        let is_legal = units.get(at).is_some_and(|next| next.may_begin_tail);
        if is_legal && gone >= GAIN_TOKENS_MIN && all - gone <= tokens_max {
            return cut_from(context, structure, at);
        }
    }
    find_cut(context, structure, Keep { tokens: tokens_max, tokens_max })
}

/// Keeps the tail that starts with this unit.
#[must_use]
pub fn cut_from(context: &Context, structure: &Structure, from: usize) -> Option<Cut> {
    let mut kept = must_stay(context, structure);
    kept.iter_mut().skip(from).for_each(|kept| *kept = true);
    cut_units(context, structure, &kept)
}

/// Returns, for each unit, whether every cut keeps it: that is true for pinned units and the last user message.
#[must_use]
pub fn must_stay(context: &Context, structure: &Structure) -> Vec<bool> {
    let last = structure.last_input(context);
    structure.units.iter().enumerate().map(|(at, unit)| unit.pinned || Some(at) == last).collect()
}

/// Removes nothing and only replaces the existing summary.
#[must_use]
pub fn summary_cut(context: &Context, structure: &Structure) -> Option<Cut> {
    structure.summary?;
    Some(keeping(context, structure, &vec![true; structure.units.len()]))
}

/// Keeps the units that are flagged. Returns `None` if the gain is too small.
#[must_use]
pub fn cut_units(context: &Context, structure: &Structure, kept: &[bool]) -> Option<Cut> {
    let cut = keeping(context, structure, kept);
    (cut.dropped_tokens - structure.summary_tokens >= GAIN_TOKENS_MIN).then_some(cut)
}

fn keeping(context: &Context, structure: &Structure, kept: &[bool]) -> Cut {
    let (units, messages) = (&structure.units, &context.messages);
    // The tail reaches back as far as everything is kept without a gap, including gaps left by earlier compactions.
    let keeps = |at: &usize| kept[*at] && units[*at].may_begin_tail;
    let tail = (0..units.len()).rev().take_while(keeps).last().unwrap_or(units.len());
    let mut cut = Cut {
        // Messages that a patch added before the summary are removed with it.
        summarised: (0..structure.summary.unwrap_or(0)).collect(),
        turn_prefix: None,
        previous: structure.summary,
        first_kept: None,
        kept: Vec::new(),
        dropped_tokens: 0,
        kept_tokens: 0,
    };
    for (at, unit) in units.iter().enumerate() {
        let ids = messages[unit.messages.clone()].iter().filter_map(|counted| counted.entry_id.clone());
        if !kept[at] {
            cut.summarised.extend(unit.messages.clone());
            cut.dropped_tokens += unit.tokens;
            continue;
        }
        cut.kept_tokens += unit.tokens;
        if at < tail {
            cut.kept.extend(ids);
        } else if cut.first_kept.is_none() {
            cut.first_kept = ids.into_iter().next();
        }
    }
    // If nothing of the tail stays, the turn may still be running: the results await an answer.
    let is_due = |unit: &&Unit| messages[unit.messages.end - 1].message.role == Role::Tool;
    let parted = match units.get(tail) {
        Some(first) => (!first.is_input).then_some(first),
        None => units.last().filter(is_due),
    };
    cut.turn_prefix = parted.and_then(|parted| {
        let begins = units.iter().enumerate().find(|(at, unit)| unit.turn == parted.turn && !kept[*at]);
        begins.map(|(_, unit)| unit.messages.start)
    });
    cut.dropped_tokens += structure.summary_tokens;
    cut
}

/// Removes the messages of these entries and the messages that a patch attached to them. Nothing is kept besides the
/// tail, and no turn counts as split. Returns `None` if nothing would be summarised.
#[must_use]
pub fn cut_entries(context: &Context, removed: &HashSet<&EntryId>, first_kept: EntryId) -> Option<Cut> {
    let messages = &context.messages;
    let previous = messages.iter().position(|counted| counted.kind == Kind::Summary);
    let fate = |counted: &Counted| match &counted.entry_id {
        Some(id) if removed.contains(id) => Fate::Gone,
        _ => Fate::Tail,
    };
    let fates = fates(messages, fate);
    let places = (0..messages.len()).filter(|at| Some(*at) != previous);
    let (summarised, kept): (Vec<usize>, Vec<usize>) = places.partition(|at| fates[*at] == Fate::Gone);
    if summarised.is_empty() {
        return None;
    }
    let cost = |places: &mut dyn Iterator<Item = &usize>| places.map(|at| messages[*at].tokens.total()).sum::<u64>();
    Some(Cut {
        dropped_tokens: cost(&mut summarised.iter().chain(&previous)),
        kept_tokens: cost(&mut kept.iter()),
        summarised,
        turn_prefix: None,
        previous,
        first_kept: Some(first_kept),
        kept: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{build::build_context, counter::Counter, testing::path};

    /// Repeats a word of the test model to a known size.
    fn long(words: usize) -> String {
        "apple ".repeat(words)
    }

    fn check(entries: &[String], keep_tokens: u64, expected: Option<(&[usize], Option<&str>, &[&str])>) {
        let lines: Vec<&str> = entries.iter().map(String::as_str).collect();
        let context = build_context(&path(&lines, &Counter::for_model("test")));
        let structure = Structure::of(&context);
        let cut = find_cut(&context, &structure, Keep { tokens: keep_tokens, tokens_max: u64::MAX });
        let cut = cut.as_ref().map(|cut| {
            let kept: Vec<&str> = cut.kept.iter().map(EntryId::as_str).collect();
            (cut.summarised.as_slice(), cut.first_kept.as_ref().map(EntryId::as_str), kept)
        });
        assert_eq!(cut, expected.map(|(s, f, k)| (s, f, k.to_vec())), "{lines:?} keeping {keep_tokens}");
    }

    #[test]
    fn a_cut_is_legal_and_keeps_the_last_question() {
        let big = long(200);
        let e = |text: &str| text.replace("BIG", &big);
        check(
            &[e("a:user BIG"), e("b:assistant BIG"), e("c:user BIG"), e("d:assistant x")],
            150,
            Some((&[0, 1], Some("c"), &[])),
        );
        // Everything fits the budget: nothing to cut.
        check(&[e("a:user x"), e("b:assistant y")], 150, None);
        // The cut is inside a turn: the question stays beside the tail.
        check(
            &[e("a:user BIG"), e("b:call x"), e("c:result x BIG"), e("d:call y"), e("e:result y BIG")],
            150,
            Some((&[1, 2], Some("d"), &["a"])),
        );
        // A client's note is not the user's question, which stays verbatim.
        check(
            &[e("a:user x"), e("b:call x"), e("c:result x BIG"), e("d:call y"), e("e:result y BIG"), e("f:note z")],
            150,
            Some((&[1, 2], Some("d"), &["a"])),
        );
        // A trailing result larger than the budget keeps its call, and something is still summarised.
        check(
            &[e("a:user BIG"), e("b:assistant BIG"), e("c:user x"), e("d:call x"), e("e:result x BIG")],
            150,
            Some((&[0, 1], Some("c"), &[])),
        );
        // Of two large answers, keeping the newest suffices.
        check(
            &[e("a:user x"), e("b:assistant BIG"), e("c:user x"), e("d:assistant BIG"), e("e:user x")],
            250,
            Some((&[0, 1], Some("c"), &[])),
        );
        // The previous summary is merged, not cut.
        check(
            &[e("a:user BIG"), e("b:compaction S first=zz"), e("c:user BIG"), e("d:assistant BIG"), e("e:user x")],
            100,
            Some((&[1], Some("d"), &[])),
        );
        // Messages that were kept individually stay individual: those that an earlier compaction removed in between
        // must not return.
        check(
            &[
                e("a:user x"),
                e("b:assistant BIG"),
                e("c:call p"),
                e("d:result p BIG"),
                e("e:compaction S first=c keep=a"),
                e("f:assistant BIG"),
            ],
            250,
            Some((&[2, 3], Some("f"), &["a"])),
        );
    }
}
