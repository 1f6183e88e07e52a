//! A range of a session's log; indexes and paths divide the log into such ranges.

/// Records of a session, from the first to the last `seq`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct Range {
    pub(in crate::store) first: i64,
    pub(in crate::store) last: i64,
}

impl Range {
    /// Returns the intersection of both ranges, unless it is empty.
    pub(in crate::store) fn and(self, other: Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(Self { first, last })
    }
}
