//! The cut point: what a compaction summarises and what it keeps word for word.
//!
//! A cut is legal before any message but a tool result, so a call and its results are never parted. The last user
//! message always stays word for word: where the cut falls after it, it is kept beside the tail.

use crate::core::context::build::{Context, Kind};
use reseed_protocol::{EntryId, Role};
use std::ops::Range;

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

/// Finds the cut that keeps about `keep_tokens` of the newest messages. `None`: nothing to gain.
#[must_use]
pub fn find_cut(context: &Context, keep_tokens: u64) -> Option<Cut> {
    let messages = &context.messages;
    let body = body(context);
    let legal = |at: usize| messages[at].message.role != Role::Tool;
    let mut sum = 0;
    let mut reached = body.start;
    for at in body.clone().rev() {
        sum += messages[at].tokens.total();
        if sum >= keep_tokens {
            reached = at;
            break;
        }
    }
    if sum < keep_tokens {
        return None;
    }
    // At or after where the budget is full; when only tool results follow, at the call they belong to: the budget is
    // passed rather than nothing summarised.
    let at = (reached..body.end).find(|at| legal(*at)).or_else(|| body.clone().rev().find(|at| legal(*at)))?;
    cut_at(context, at)
}

/// The cut that keeps the last turn only, for a user who asks for a compaction below the budget.
#[must_use]
pub fn last_turn_cut(context: &Context) -> Option<Cut> {
    let body = body(context);
    let at = body.rev().find(|at| context.messages[*at].message.role == Role::User)?;
    cut_at(context, at)
}

fn body(context: &Context) -> Range<usize> {
    let start = usize::from(context.messages.first().is_some_and(|first| first.kind == Kind::Summary));
    start..context.messages.len()
}

fn cut_at(context: &Context, at: usize) -> Option<Cut> {
    let messages = &context.messages;
    let body = body(context);
    let last_user = body.clone().rev().find(|at| messages[*at].message.role == Role::User);
    let kept_user = last_user.filter(|user| *user < at);
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
        let cut = find_cut(&context, keep_tokens);
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
        // A trailing result larger than the budget keeps its call.
        check(
            &[e("a:user BIG"), e("b:assistant BIG"), e("c:user x"), e("d:call x"), e("e:result x BIG")],
            150,
            Some((&[0, 1], Some("d"), &["c"])),
        );
        // The previous summary is merged, not cut.
        check(
            &[e("a:user BIG"), e("b:compaction S first=zz"), e("c:user BIG"), e("d:assistant BIG"), e("e:user x")],
            100,
            Some((&[1], Some("d"), &[])),
        );
    }
}
