//! Keeps the trees of sessions that are in use, so that they are not read again with each request.

use super::tree::Tree;
use reseed_protocol::SessionId;
use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

/// Entries of all trees together: about 30 MB. The tree of a session that was not used for longest is dropped first,
/// and read again when it is needed.
const ENTRIES_MAX: usize = 100_000;

/// Trees. Each one is small beside its session, but they are searched in order.
const TREES_MAX: usize = 1_000;

/// The trees, the last used one at the end.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<VecDeque<(SessionId, Tree)>>);

impl Memory {
    /// Takes a session's tree out. It is empty if it is not here, or if another request has it.
    pub(super) fn take(&self, session: &SessionId) -> Tree {
        let mut trees = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = trees.iter().position(|(known, _)| known == session);
        at.and_then(|at| trees.remove(at)).map(|(_, tree)| tree).unwrap_or_default()
    }

    /// Puts a session's tree back.
    pub(super) fn put(&self, session: SessionId, tree: Tree) {
        let mut trees = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Another request may have read the same tree meanwhile.
        trees.retain(|(known, _)| *known != session);
        trees.push_back((session, tree));
        let mut entries: usize = trees.iter().map(|(_, tree)| tree.len()).sum();
        while trees.len() > TREES_MAX || entries > ENTRIES_MAX {
            entries -= trees.pop_front().map_or(entries, |(_, tree)| tree.len());
        }
    }
}
