//! A range of a session's log; indexes and paths divide the log into such ranges.

use std::collections::BTreeMap;

/// Records of a session, from the first to the last `seq`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) first: i64,
    pub(crate) last: i64,
}

impl Range {
    /// Returns the intersection of both ranges, unless it is empty.
    pub(crate) fn and(self, other: Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(Self { first, last })
    }
}

/// Returns the ranges in which all entries are on a path, newest first. Nearly every entry is a child of the previous
/// one in the log, so a path is a few ranges. Each starts at an entry that is not: one of `starts`, with the `seq` of
/// its parent.
pub(crate) fn on_path(mut starts: BTreeMap<i64, Option<i64>>, to: i64) -> Vec<Range> {
    let (mut ranges, mut next) = (Vec::new(), Some(to));
    while let Some(last) = next {
        // Each start is visited once, even in a cycle.
        let Some(first) = starts.range(..=last).next_back().map(|(first, _)| *first) else { break };
        next = starts.remove(&first).flatten();
        ranges.push(Range { first, last });
    }
    // In an imported file, a parent may come after its child.
    ranges.sort_by_key(|range| std::cmp::Reverse(range.first));
    ranges
}
