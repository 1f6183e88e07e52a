//! The summary of a branch that is left: what goes into it.

use super::{
    build::{Context, Kind, build_context},
    counter::Counter,
    cut::Cut,
    summary,
};
use crate::core::session::Node;
use reseed_protocol::{
    Entry, EntryData,
    entry::{BranchSummary, CompactionDetails},
};
use std::sync::Arc;

/// What the summary of a branch is made of: the newest messages that fit into a budget, in units of the estimate, and
/// the summary that the branch itself begins with, if it was compacted. `None`: the branch says nothing.
///
/// `left` is the branch, newest first, without what both branches share.
#[must_use]
pub fn to_summarise(left: &[Entry], budget_tokens: u64, counter: &Counter) -> Option<(Context, Cut)> {
    let path: Vec<Arc<Node>> = left.iter().rev().map(|entry| Arc::new(Node::counted(entry.clone(), counter))).collect();
    let context = build_context(&path);
    let previous = context.messages.first().filter(|first| first.kind == Kind::Summary).map(|_| 0);
    let body = previous.map_or(0, |at| at + 1)..context.messages.len();
    let mut tokens = previous.map_or(0, |at: usize| context.messages[at].tokens.total());
    let mut summarised = Vec::new();
    for at in body.rev() {
        tokens += context.messages[at].tokens.total();
        // The newest message always goes in: the summary's own bounds cut what is too long for one request.
        if tokens > budget_tokens && !summarised.is_empty() {
            break;
        }
        summarised.push(at);
    }
    summarised.reverse();
    if summarised.is_empty() && previous.is_none() {
        return None;
    }
    let cut = Cut { summarised, previous, first_kept: None, kept: Vec::new(), dropped_tokens: tokens };
    Some((context, cut))
}

/// Files that a branch touched: all that its calls name, also what is too old to be summarised, and what the summaries of
/// branches that it came back from noted.
#[must_use]
pub fn files(left: &[Entry]) -> CompactionDetails {
    let mut noted = CompactionDetails::default();
    for entry in left {
        if let EntryData::BranchSummary(BranchSummary { details: Some(details), .. }) = &entry.data {
            noted.read_files.extend_from_slice(&details.read_files);
            noted.modified_files.extend_from_slice(&details.modified_files);
        }
    }
    summary::file_operations(left.iter().filter_map(Entry::message), Some(&noted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::context::testing::path;

    #[test]
    fn the_newest_that_fit_and_the_summary_before_them() {
        let big = "apple ".repeat(200);
        /// Lines of the branch, the budget, and the places that are summarised with that of the summary before them.
        type Case<'a> = (&'a [&'a str], u64, Option<(&'a [usize], Option<usize>)>);
        let table: &[Case<'_>] = &[
            (&[], 1_000, None),
            (&["a:user one", "b:assistant two"], 1_000, Some((&[0, 1], None))),
            (&["a:user BIG", "b:assistant BIG", "c:user BIG"], 450, Some((&[1, 2], None))),
            (&["a:user BIG"], 10, Some((&[0], None))),
            (&["a:user BIG", "b:compaction S first=zz", "c:user BIG"], 300, Some((&[1], Some(0)))),
        ];
        for (lines, budget, expected) in table {
            let lines: Vec<String> = lines.iter().map(|line| line.replace("BIG", &big)).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let counter = Counter::for_model("test");
            let left: Vec<Entry> = path(&lines, &counter).iter().rev().map(|node| node.entry.clone()).collect();
            let found = to_summarise(&left, *budget, &counter);
            let found = found.as_ref().map(|(_, cut)| (cut.summarised.as_slice(), cut.previous));
            assert_eq!(found, *expected, "{lines:?} within {budget}");
        }
    }
}
