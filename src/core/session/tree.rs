//! The session tree: entries are appended and never change.
//!
//! Memory holds only what the model can see: the path to the leaf, from the first entry that the newest compaction
//! keeps. Older entries are in the store.
//!
//! Invariants, kept only by the methods here:
//! - the path is a chain: each node's parent is the previous node, except where older entries were dropped from memory;
//! - an entry, once appended, never changes.

mod path_reader;

pub use crate::context::node::{CLEARED, Node, message_of};
pub use path_reader::PathReader;

use super::state::SessionState;
use crate::context::{Context, counter::Counter, patch::CarriedOps, replay::Replay};
use reseed_protocol::{EntryData, EntryId};
use std::{
    collections::HashSet,
    sync::{Arc, OnceLock},
};

/// The path to the leaf, as far back as the model can see.
#[derive(Debug, Clone, Default)]
pub struct SessionTree {
    path: Vec<Arc<Node>>,
    /// The model's view of the path, built on first use and derived from the path alone.
    replay: OnceLock<Replay>,
}

impl PartialEq for SessionTree {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl SessionTree {
    fn of(path: Vec<Arc<Node>>) -> Self {
        Self { path, replay: OnceLock::new() }
    }

    /// Returns the model's view. It is built once, then extended as entries arrive.
    #[must_use]
    pub fn context(&self) -> Arc<Context> {
        self.replay().context()
    }

    /// Returns the context before tool calls and results are paired.
    pub(crate) fn raw_context(&self) -> &Context {
        self.replay().raw()
    }

    /// Returns the system prompt, tools and options after the patches on the path.
    #[must_use]
    pub fn carried(&self) -> &CarriedOps {
        &self.raw_context().carried
    }

    fn replay(&self) -> &Replay {
        self.replay.get_or_init(|| Replay::of(&self.path))
    }

    /// Returns the entry that the session continues from; `None` before the first.
    #[must_use]
    pub fn leaf(&self) -> Option<&EntryId> {
        self.path.last().map(|node| node.id())
    }

    /// Returns the path to the leaf, oldest first.
    #[must_use]
    pub fn path(&self) -> &[Arc<Node>] {
        &self.path
    }

    /// Appends an entry to its parent and makes it the leaf. A parent further up the path starts a new branch: the
    /// entries below the parent leave memory, not the store.
    pub fn append(&mut self, node: Arc<Node>) {
        let keep = match &node.entry.parent_id {
            None => 0,
            Some(parent) => {
                self.path.iter().rposition(|other| other.id() == parent).map_or(self.path.len(), |at| at + 1)
            }
        };
        let extends = keep == self.path.len() && self.replay.get_mut().is_some_and(|replay| replay.extend(&node));
        if !extends {
            self.replay.take();
        }
        self.path.truncate(keep);
        self.path.push(node);
    }

    /// Returns the path up to one of its entries. Returns `None` for an entry before the newest compaction, because the
    /// path in memory then lacks entries that the model would see.
    #[must_use]
    pub fn upto(&self, leaf: &EntryId) -> Option<Self> {
        let at = self.path.iter().rposition(|node| node.id() == leaf)?;
        let newest = self.path.iter().rposition(|node| node.compaction().is_some());
        (newest.is_none_or(|newest| newest <= at)).then(|| Self::of(self.path[..=at].to_vec()))
    }

    /// Recounts every entry for another model.
    pub fn recount(&mut self, counter: &Counter) {
        for node in &mut self.path {
            let tokens = match &node.message {
                Some(message) if node.cleared => counter.entry(&node.entry_with(message), Some(message)),
                message => counter.entry(&node.entry, message.as_deref()),
            };
            let patch = node.patch.as_ref().map(|patch| Arc::new(patch.recounted(counter)));
            *node = Arc::new(Node { tokens, patch, ..(**node).clone() });
        }
        self.replay.take();
    }

    /// Marks the nodes that the session's pins and undone compactions name.
    pub fn mark(&mut self, state: &SessionState) {
        for node in &mut self.path {
            let pinned = state.pins.iter().any(|pin| pin.entry_id == node.entry.entry_id);
            let undone = matches!(node.entry.data, EntryData::Compaction(_)) && state.undone.contains(node.id());
            if node.pinned != pinned || node.undone != undone {
                *node = Arc::new((**node).clone().marked(state));
                self.replay.take();
            }
        }
    }

    /// Replaces the tool results of these entries with a short note.
    pub fn clear(&mut self, entries: &[EntryId], counter: &Counter) {
        let entries: HashSet<&EntryId> = entries.iter().collect();
        for node in self.path.iter_mut().filter(|node| entries.contains(node.id())) {
            if let Some(cleared) = node.without_results(counter) {
                *node = Arc::new(cleared);
                self.replay.take();
            }
        }
    }

    /// Clears the tool results that the newest compaction on the path cleared.
    fn clear_as_compacted(&mut self, counter: &Counter) {
        let newest = self.path.iter().rev().find_map(|node| node.compaction());
        if let Some(cleared) =
            newest.map(|compaction| compaction.cleared_entry_ids.clone()).filter(|ids| !ids.is_empty())
        {
            self.clear(&cleared, counter);
        }
    }

    /// Moves the leaf back to an entry on the path, or before the first. Does nothing for an entry that is not in
    /// memory, because the caller must read it from the store first.
    pub fn move_leaf(&mut self, leaf: Option<&EntryId>) {
        let Some(leaf) = leaf else {
            *self = Self::default();
            return;
        };
        let at = self.path.iter().rposition(|node| node.id() == leaf);
        if let Some(at) = at.filter(|at| at + 1 < self.path.len()) {
            self.path.truncate(at + 1);
            self.replay.take();
        }
    }

    /// Drops from memory the entries that no later request can contain: those before the newest compaction that it does
    /// not keep.
    pub fn forget_before(&mut self, first_kept: Option<&EntryId>, kept: &[EntryId]) {
        let Some(compaction) = self.path.iter().rposition(|node| node.compaction().is_some()) else {
            return;
        };
        let first = first_kept
            .and_then(|first| self.path[..compaction].iter().position(|node| node.id() == first))
            .unwrap_or(compaction);
        let mut at = 0;
        self.path.retain(|node| {
            let keep = at >= first || kept.contains(node.id());
            at += 1;
            keep
        });
        self.replay.take();
    }
}

impl Node {
    /// Applies the session's pins and undone compactions to the node.
    #[must_use]
    pub fn marked(mut self, state: &SessionState) -> Self {
        self.pinned = state.pins.iter().any(|pin| pin.entry_id == self.entry.entry_id);
        if matches!(self.entry.data, EntryData::Compaction(_)) && state.undone.contains(&self.entry.entry_id) {
            return self.passed_over();
        }
        self
    }
}
