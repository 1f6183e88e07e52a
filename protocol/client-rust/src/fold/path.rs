//! The path to a leaf, which is what a client shows of a session.
//!
//! Invariants:
//! - The last entry of the path is the leaf, unless nothing of the path is known.
//! - Each entry is the parent of the next one.
//! - The path reaches as far back as the known entries do.

use super::KnownEntries;
use reseed_protocol::{Entry, EntryId};
use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

/// The path to a leaf, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Path {
    entries: VecDeque<Arc<Entry>>,
    /// The unknown entry before the first one of the path, if there is one.
    missing: Option<EntryId>,
    top: Option<EntryId>,
}

impl Path {
    /// Computes the path to a leaf.
    pub(super) fn to(known: &KnownEntries, leaf_id: Option<&EntryId>, top: Option<EntryId>) -> Self {
        let mut path = Self { entries: VecDeque::new(), missing: leaf_id.cloned(), top };
        path.extend(known);
        path
    }

    /// Iterates over the entries, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Entry>> + ExactSizeIterator {
        self.entries.iter()
    }

    /// Returns the oldest known entry.
    #[must_use]
    pub fn first(&self) -> Option<&Arc<Entry>> {
        self.entries.front()
    }

    /// Returns the newest entry, which is the leaf.
    #[must_use]
    pub fn last(&self) -> Option<&Arc<Entry>> {
        self.entries.back()
    }

    /// Returns the entry at this index, counted from the oldest known one.
    #[must_use]
    pub fn get(&self, place: usize) -> Option<&Arc<Entry>> {
        self.entries.get(place)
    }

    /// Returns the number of known entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if no entry of the path is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns true if the path has older, unknown entries. `get_entries` before the first entry fetches them.
    #[must_use]
    pub fn more(&self) -> bool {
        self.missing.is_some()
    }

    /// Returns the entry before which the server has nothing, whatever the entry's parent is.
    #[must_use]
    pub fn top(&self) -> Option<&EntryId> {
        self.top.as_ref()
    }

    /// Appends the entry that follows the leaf.
    pub(super) fn push(&mut self, entry: Arc<Entry>) {
        self.entries.push_back(entry);
    }

    /// Prepends entries before the first one that have become known.
    pub(super) fn extend(&mut self, known: &KnownEntries) {
        // A path contains each entry at most once. Without this, entries that are each other's parents would cause an
        // endless loop.
        while self.entries.len() < known.len() {
            let Some(entry) = self.missing.as_ref().and_then(|id| known.get(id)) else { return };
            #[cfg(test)]
            tests::STEPS.with(|steps| steps.set(steps.get() + 1));
            // The records before the top are damaged, so nobody has them.
            let is_top = self.top.as_ref() == Some(&entry.entry_id);
            self.missing = entry.parent_id.clone().filter(|_| !is_top);
            self.entries.push_front(Arc::clone(entry));
        }
        if self.missing.as_ref().is_some_and(|id| known.contains(id)) {
            self.end_circle();
        }
    }

    /// Drops entries that are on the path a second time, because some are each other's parents.
    fn end_circle(&mut self) {
        let mut seen = HashSet::new();
        let once = self.entries.iter().rev().take_while(|entry| seen.insert(entry.entry_id.clone())).count();
        self.entries.drain(..self.entries.len() - once);
        self.missing = self.entries.front().and_then(|first| first.parent_id.clone());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::fixture::{entry, id};
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// The number of entries visited in this thread, which runs one test.
        pub(in crate::fold) static STEPS: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn a_path_reaches_as_far_back_as_what_is_known() {
        // root ← a ← b ← c, and b ← d beside c. The parent of x is unknown.
        let tree = [("a", None), ("b", Some("a")), ("c", Some("b")), ("d", Some("b")), ("x", Some("w"))];
        let known: KnownEntries = tree.map(|(name, parent)| entry(name, parent)).into_iter().collect();
        for (leaf, top, shown, more) in [
            (None, None, "", false),
            (Some("c"), None, "a b c", false),
            (Some("d"), None, "a b d", false),
            (Some("x"), None, "x", true),
            (Some("y"), None, "", true),
            (Some("x"), Some("x"), "x", false),
            (Some("c"), Some("b"), "b c", false),
        ] {
            let path = Path::to(&known, leaf.map(id).as_ref(), top.map(id));
            let names: Vec<&str> = path.iter().map(|entry| entry.entry_id.as_str()).collect();
            assert_eq!((names.join(" ").as_str(), path.more()), (shown, more), "leaf {leaf:?}, top {top:?}");
            assert_eq!(path.len(), names.len());
            assert_eq!(path.is_empty(), shown.is_empty());
            let ends = [path.first(), path.last()].map(|entry| entry.map(|entry| entry.entry_id.as_str()));
            assert_eq!(ends, [names.first().copied(), names.last().copied()]);
        }
    }

    #[test]
    fn entries_that_are_each_others_parents_are_there_once() {
        let tree = [("a", Some("b")), ("b", Some("a")), ("c", Some("b")), ("d", None), ("e", None), ("f", Some("f"))];
        let known: KnownEntries = tree.map(|(name, parent)| entry(name, parent)).into_iter().collect();
        for (leaf, shown) in [("a", "b a"), ("b", "a b"), ("c", "a b c"), ("f", "f")] {
            let path = Path::to(&known, Some(&id(leaf)), None);
            let names: Vec<&str> = path.iter().map(|entry| entry.entry_id.as_str()).collect();
            assert_eq!((names.join(" ").as_str(), path.more()), (shown, true), "leaf {leaf}");
        }
    }
}
