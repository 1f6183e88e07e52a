//! The cut point: what a compaction summarises and what it keeps word for word.
//!
//! A cut is legal before any message but a tool result, so a call and its results are never parted. The last user
//! message always stays word for word: where the cut falls after it, it is kept beside the tail.

use crate::core::{
    context::build::{Context, Kind},
    pi,
    session::Node,
};
use reseed_protocol::{EntryId, Role};
use std::{collections::HashSet, ops::Range, sync::Arc};

/// Whose rule says where a compaction cuts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CutRule {
    /// [`find_cut`].
    #[default]
    Own,
    /// [`pi_cut`].
    Pi,
}

/// What a compaction would do with a context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The messages that the summary will stand for, as places in the context, the previous summary left out.
    pub summarised: Vec<usize>,
    /// The place of the previous summary, which the new one merges.
    pub previous: Option<usize>,
    /// The first entry of the tail; absent where the tail is empty.
    pub first_kept: Option<EntryId>,
    /// Older entries kept word for word.
    pub kept: Vec<EntryId>,
    /// What the summarised messages and the previous summary cost, as estimated.
    pub dropped_tokens: u64,
}

/// Least that must be summarised for a compaction to be worth a request.
pub const GAIN_TOKENS_MIN: u64 = 64;

/// How much a compaction should keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// About so many tokens, in units of the estimate.
    pub tokens: u64,
    /// Not more than so many where any legal cut keeps less: beyond, the next request would call for a compaction again.
    pub tokens_max: u64,
}

/// Finds the legal cut that keeps what is closest to the wish, the last user message counted in. Too little kept weighs
/// twice as much as too much: a summary is no substitute for what was just said. `None`: all of it is less than that, or
/// there is nothing to gain.
#[must_use]
pub fn find_cut(context: &Context, keep: Keep) -> Option<Cut> {
    let keep_tokens = keep.tokens;
    let messages = &context.messages;
    let body = body(context);
    let last_user = last_user(context);
    let beside = last_user.map_or(0, |at| messages[at].tokens.total());
    let mut tail = 0;
    let mut best: Option<((bool, u64), usize)> = None;
    for at in body.clone().rev() {
        tail += messages[at].tokens.total();
        if messages[at].message.role == Role::Tool || at == body.start {
            continue;
        }
        let kept = if last_user.is_some_and(|user| user < at) { tail + beside } else { tail };
        let off = if kept >= keep_tokens { kept - keep_tokens } else { 2 * (keep_tokens - kept) };
        let cost = (kept > keep.tokens_max.max(keep_tokens), off);
        // Of equals the earlier one, which parts fewer turns.
        if best.is_none_or(|(least, _)| cost <= least) {
            best = Some((cost, at));
        }
    }
    if tail < keep_tokens {
        return None;
    }
    cut_at(context, best?.1)
}

/// The cut that keeps the last turn only, for a user who asks for a compaction below the budget.
#[must_use]
pub fn last_turn_cut(context: &Context) -> Option<Cut> {
    cut_at(context, last_user(context)?)
}

/// The cut that pi makes of this path, whose context this is: backwards until `keep_tokens` of messages are kept, by
/// pi's estimate. `None`: nothing would be summarised; pi then asks for a summary of nothing.
///
/// The beginning of a turn that the cut parts is summarised with what came before it; nothing is kept beside the tail.
#[must_use]
pub fn pi_cut(path: &[Arc<Node>], context: &Context, keep_tokens: u64) -> Option<Cut> {
    let lines: Vec<pi::json::Object> = path.iter().map(|node| pi::export::object(&node.entry)).collect();
    let prepared = pi::prepare::prepare(&lines, keep_tokens)?;
    let said: HashSet<&EntryId> =
        prepared.summarised.iter().chain(&prepared.turn_prefix).map(|at| path[*at].id()).collect();
    let messages = &context.messages;
    let summarised: Vec<usize> =
        body(context).filter(|at| messages[*at].entry_id.as_ref().is_some_and(|id| said.contains(id))).collect();
    if summarised.is_empty() {
        return None;
    }
    let previous = (body(context).start == 1).then_some(0);
    let dropped = summarised.iter().chain(&previous).map(|at| messages[*at].tokens.total());
    Some(Cut {
        dropped_tokens: dropped.sum(),
        summarised,
        previous,
        first_kept: Some(path[prepared.cut.first_kept].id().clone()),
        kept: Vec::new(),
    })
}

fn last_user(context: &Context) -> Option<usize> {
    // A note of a client's stands in the user's place and is none of the user's words.
    let said = body(context).rev().find(|at| context.messages[*at].is_input);
    said.or_else(|| body(context).rev().find(|at| context.messages[*at].message.role == Role::User))
}

fn body(context: &Context) -> Range<usize> {
    let start = usize::from(context.messages.first().is_some_and(|first| first.kind == Kind::Summary));
    start..context.messages.len()
}

fn cut_at(context: &Context, at: usize) -> Option<Cut> {
    let messages = &context.messages;
    let body = body(context);
    let kept_user = last_user(context).filter(|user| *user < at);
    let summarised: Vec<usize> = (body.start..at).filter(|index| Some(*index) != kept_user).collect();
    let previous = (body.start == 1).then_some(0);
    let gain: u64 = summarised.iter().map(|index| messages[*index].tokens.total()).sum();
    if gain < GAIN_TOKENS_MIN {
        return None;
    }
    let dropped_tokens = gain + previous.map_or(0, |index| messages[index].tokens.total());
    let first_kept = messages[at..].iter().find_map(|counted| counted.entry_id.clone());
    let kept = kept_user.and_then(|index| messages[index].entry_id.clone()).into_iter().collect();
    Some(Cut { summarised, previous, first_kept, kept, dropped_tokens })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::context::{build::build_context, counter::Counter, testing::path};

    /// A word of the test model's, repeated to a known size.
    fn long(words: usize) -> String {
        "apple ".repeat(words)
    }

    fn check(entries: &[String], keep_tokens: u64, expected: Option<(&[usize], Option<&str>, &[&str])>) {
        let lines: Vec<&str> = entries.iter().map(String::as_str).collect();
        let context = build_context(&path(&lines, &Counter::for_model("test")));
        let cut = find_cut(&context, Keep { tokens: keep_tokens, tokens_max: u64::MAX });
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
        // Nothing fits into less than the budget: nothing to cut.
        check(&[e("a:user x"), e("b:assistant y")], 150, None);
        // Inside a turn: the question stays beside the tail.
        check(
            &[e("a:user BIG"), e("b:call x"), e("c:result x BIG"), e("d:call y"), e("e:result y BIG")],
            150,
            Some((&[1, 2], Some("d"), &["a"])),
        );
        // A client's note is not the user's question, which stays word for word.
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
        // Of two large answers the newest is enough.
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
    }
}
