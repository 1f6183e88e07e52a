//! Reads the path to a leaf from the store.

use super::SessionTree;
use crate::{
    context::{counter::Counter, node::Node},
    session::state::SessionState,
};
use reseed_protocol::{Entry, EntryData, EntryId, compaction::Pin, context::PatchOp};
use std::{collections::HashSet, sync::Arc};

/// Decides, while walking from the leaf to the root, how far back a session must be read to rebuild the model's view.
#[derive(Debug)]
pub struct PathReader<'a> {
    state: &'a SessionState,
    counter: &'a Counter,
    nodes: Vec<Arc<Node>>,
    boundary: Option<CompactionBoundary>,
}

#[derive(Debug)]
struct CompactionBoundary {
    first_kept: Option<EntryId>,
    /// Individual entries on the path that were not reached yet.
    missing: Vec<EntryId>,
    /// Pinned entries that were not reached yet and may be on another branch.
    sought: Vec<EntryId>,
    kept: Vec<EntryId>,
    /// Index of the compaction among the nodes.
    at: usize,
}

impl<'a> PathReader<'a> {
    /// Creates a reader for a session with the pins and undone compactions of `state`.
    #[must_use]
    pub fn new(state: &'a SessionState, counter: &'a Counter) -> Self {
        Self { state, counter, nodes: Vec::new(), boundary: None }
    }

    /// Takes the next entry towards the root. Returns `false` once nothing further back is needed.
    pub fn take(&mut self, entry: Entry) -> bool {
        let id = entry.entry_id.clone();
        let mut keep = true;
        match &mut self.boundary {
            None => {
                let undone = self.state.undone.contains(&id);
                if let EntryData::Compaction(compaction) = &entry.data
                    && !undone
                {
                    let met: HashSet<&EntryId> = self.nodes.iter().map(|node| node.id()).collect();
                    let mut kept = compaction.kept_entry_ids.clone();
                    // Entries pinned after this compaction had already hidden them are restored, unless a message patch
                    // preceded it.
                    let settles = compaction.carried_patch.iter().any(PatchOp::is_on_messages);
                    let pins = self.state.pins.iter().filter(|_| !settles);
                    let (later, others): (Vec<&Pin>, Vec<&Pin>) = pins.partition(|pin| pin.under.as_ref() == Some(&id));
                    kept.extend(later.into_iter().map(|pin| pin.entry_id.clone()));
                    let others = others.into_iter().map(|pin| &pin.entry_id);
                    let sought =
                        others.filter(|pinned| !met.contains(pinned) && !kept.contains(pinned)).cloned().collect();
                    let missing = kept.iter().filter(|kept| !met.contains(kept)).cloned().collect();
                    let first_kept = compaction.first_kept_entry_id.clone();
                    self.boundary =
                        Some(CompactionBoundary { first_kept, missing, sought, kept, at: self.nodes.len() });
                }
            }
            Some(boundary) => {
                keep = boundary.first_kept.is_some() || boundary.missing.contains(&id) || boundary.sought.contains(&id);
                boundary.missing.retain(|missing| *missing != id);
                boundary.sought.retain(|sought| *sought != id);
                if boundary.first_kept.as_ref() == Some(&id) {
                    boundary.first_kept = None;
                }
            }
        }
        if keep {
            self.nodes.push(Arc::new(Node::counted(entry, self.counter).marked(self.state)));
        }
        self.wants_more()
    }

    /// Returns true if something further back is needed.
    #[must_use]
    pub fn wants_more(&self) -> bool {
        self.boundary.as_ref().is_none_or(|boundary| {
            boundary.first_kept.is_some() || !boundary.missing.is_empty() || !boundary.sought.is_empty()
        })
    }

    /// Returns the missing entries once only individual older ones are missing. A caller that can read by id then need
    /// not continue the walk. It passes them to [`Self::take`] like the others, newest first.
    #[must_use]
    pub fn missing(&self) -> Option<&[EntryId]> {
        let single = |boundary: &&CompactionBoundary| boundary.first_kept.is_none() && boundary.sought.is_empty();
        self.boundary.as_ref().filter(single).map(|boundary| &*boundary.missing)
    }

    /// Returns pinned entries that are still being looked for further back and may be on another branch.
    #[must_use]
    pub fn sought(&self) -> &[EntryId] {
        self.boundary.as_ref().map_or(&[], |boundary| &*boundary.sought)
    }

    /// Stops looking for a pinned entry that turned out to be on another branch.
    pub fn give_up(&mut self, pinned: &EntryId) {
        if let Some(boundary) = &mut self.boundary {
            boundary.sought.retain(|sought| sought != pinned);
        }
    }

    /// Returns true if no compaction was reached yet, so that the nodes can extend a known path
    /// ([`Self::finish_with`]).
    #[must_use]
    pub fn may_join(&self) -> bool {
        self.boundary.is_none()
    }

    /// Returns the path that was read.
    #[must_use]
    pub fn finish(mut self) -> SessionTree {
        // Another program's compaction may name a first kept entry that is not on its path; it then keeps nothing.
        if let Some(CompactionBoundary { first_kept: Some(_), kept, at, .. }) = &self.boundary {
            let mut place = 0;
            self.nodes.retain(|node| {
                let keep = place <= *at || node.pinned || kept.contains(node.id());
                place += 1;
                keep
            });
        }
        self.nodes.reverse();
        let mut tree = SessionTree::of(self.nodes);
        tree.clear_as_compacted(self.counter);
        tree
    }

    /// Returns the path that was read, appended to a known one.
    #[must_use]
    pub fn finish_with(self, known: SessionTree) -> SessionTree {
        let mut path = known.path;
        path.extend(self.nodes.into_iter().rev());
        SessionTree::of(path)
    }
}
