//! A part of a session's log, as indexes and paths divide it.

/// Records of a session, from the first to the last `seq`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) struct Range {
    pub(in crate::store) first: i64,
    pub(in crate::store) last: i64,
}

impl Range {
    /// Returns the records that are in both ranges, if there are any.
    pub(in crate::store) fn and(self, other: Self) -> Option<Self> {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        (first <= last).then_some(Self { first, last })
    }
}
