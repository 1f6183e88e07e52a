//! A range of a session's log; indexes and paths divide the log into such ranges.

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
