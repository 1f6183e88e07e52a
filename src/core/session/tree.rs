//! The session tree: entries that only ever get appended.
//!
//! In memory is only what the model can see: the path to the leaf, from the first entry that the newest compaction
//! keeps. What came before is in the store.
//!
//! Invariants, kept by the methods here and nothing else:
//! - the path is a chain: each node's parent is the one before it, except where older entries were forgotten;
//! - an entry, once appended, never changes.

use crate::core::context::counter::{Counter, MessageTokens};
use reseed_protocol::{Entry, EntryData, EntryId};
use std::sync::Arc;

/// An entry with its count, made once.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The entry.
    pub entry: Entry,
    /// The message as it is sent, for entries that hold one: shared with every request.
    pub message: Option<Arc<reseed_protocol::Message>>,
    /// What the entry adds to a request, as estimated, not corrected.
    pub tokens: MessageTokens,
}

impl Node {
    /// The entry, counted.
    #[must_use]
    pub fn counted(entry: Entry, counter: &Counter) -> Self {
        let message = match &entry.data {
            EntryData::Message(message) => Some(Arc::new(message.clone())),
            EntryData::Compaction(compaction) => Some(Arc::new(reseed_protocol::Message::user(
                crate::core::context::summary::seed_text(&compaction.summary),
            ))),
            EntryData::CustomMessage(custom) => {
                Some(Arc::new(reseed_protocol::Message::new(reseed_protocol::Role::User, custom.content.clone())))
            }
            EntryData::BranchSummary(branch) if !branch.summary.is_empty() => Some(Arc::new(
                reseed_protocol::Message::user(crate::core::context::summary::branch_text(&branch.summary)),
            )),
            _ => None,
        };
        let tokens = counter.entry(&entry, message.as_deref());
        // What another program wrote is told as it wrote it, also in its own arithmetic.
        let entry = if entry.imported.is_some() { entry } else { without_ballast(entry) };
        Self { entry, message, tokens }
    }

    /// The entry's id.
    #[must_use]
    pub fn id(&self) -> &EntryId {
        &self.entry.entry_id
    }
}

/// An entry without what is never sent: it is in the store, and a session that keeps much data of its clients'
/// must not hold it all in memory.
fn without_ballast(mut entry: Entry) -> Entry {
    match &mut entry.data {
        EntryData::Custom(custom) => custom.data = None,
        EntryData::CustomMessage(custom) => custom.details = None,
        _ => {}
    }
    entry
}

/// The path to the leaf, as far as the model can see it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionTree {
    path: Vec<Arc<Node>>,
}

impl SessionTree {
    /// The entry from which the session goes on; `None` before the first.
    #[must_use]
    pub fn leaf(&self) -> Option<&EntryId> {
        self.path.last().map(|node| node.id())
    }

    /// The path to the leaf, oldest first.
    #[must_use]
    pub fn path(&self) -> &[Arc<Node>] {
        &self.path
    }

    /// Hangs an entry from the leaf and makes it the leaf. An entry whose parent is further up the path begins a new
    /// branch there; the entries below it leave memory, not the store.
    pub fn append(&mut self, node: Arc<Node>) {
        let keep = match &node.entry.parent_id {
            None => 0,
            Some(parent) => {
                self.path.iter().rposition(|other| other.id() == parent).map_or(self.path.len(), |at| at + 1)
            }
        };
        self.path.truncate(keep);
        self.path.push(node);
    }

    /// The path to an entry of it, where that is the whole of what the model would see there: not before the newest
    /// compaction, whose older entries were forgotten.
    #[must_use]
    pub fn upto(&self, leaf: &EntryId) -> Option<Self> {
        let at = self.path.iter().rposition(|node| node.id() == leaf)?;
        let newest = self.path.iter().rposition(|node| matches!(node.entry.data, EntryData::Compaction(_)));
        (newest.is_none_or(|newest| newest <= at)).then(|| Self { path: self.path[..=at].to_vec() })
    }

    /// Counts every entry anew, for another model.
    pub fn recount(&mut self, counter: &Counter) {
        for node in &mut self.path {
            let tokens = counter.entry(&node.entry, node.message.as_deref());
            *node = Arc::new(Node { entry: node.entry.clone(), message: node.message.clone(), tokens });
        }
    }

    /// Goes back to an entry on the path, or before the first. An entry that is not in memory leaves the path as it is: whoever moves there
    /// reads it from the store first.
    pub fn move_leaf(&mut self, leaf: Option<&EntryId>) {
        let Some(leaf) = leaf else {
            self.path.clear();
            return;
        };
        if let Some(at) = self.path.iter().rposition(|node| node.id() == leaf) {
            self.path.truncate(at + 1);
        }
    }

    /// Forgets what no request can hold any more: the entries before the newest compaction that it does not keep.
    pub fn forget_before(&mut self, first_kept: Option<&EntryId>, kept: &[EntryId]) {
        let Some(compaction) = self.path.iter().rposition(|node| matches!(node.entry.data, EntryData::Compaction(_)))
        else {
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
    }
}

/// Finds, walking from the leaf to the root, how far back a session must be read so that the model sees all it should.
#[derive(Debug, Default)]
pub struct PathReader {
    nodes: Vec<Arc<Node>>,
    boundary: Option<Boundary>,
}

#[derive(Debug)]
struct Boundary {
    first_kept: Option<EntryId>,
    missing: Vec<EntryId>,
    kept: Vec<EntryId>,
    /// Where the compaction stands among the nodes.
    at: usize,
}

impl PathReader {
    /// Takes the next entry towards the root. `false`: nothing further back is needed.
    pub fn take(&mut self, node: Node) -> bool {
        let id = node.id().clone();
        let mut keep = true;
        match (&mut self.boundary, &node.entry.data) {
            (None, EntryData::Compaction(compaction)) => {
                self.boundary = Some(Boundary {
                    first_kept: compaction.first_kept_entry_id.clone(),
                    missing: compaction.kept_entry_ids.clone(),
                    kept: compaction.kept_entry_ids.clone(),
                    at: self.nodes.len(),
                });
            }
            (None, _) => {}
            (Some(boundary), _) => {
                keep = boundary.first_kept.is_some() || boundary.missing.contains(&id);
                boundary.missing.retain(|missing| *missing != id);
                if boundary.first_kept.as_ref() == Some(&id) {
                    boundary.first_kept = None;
                }
            }
        }
        if keep {
            self.nodes.push(Arc::new(node));
        }
        match &self.boundary {
            None => true,
            Some(boundary) => boundary.first_kept.is_some() || !boundary.missing.is_empty(),
        }
    }

    /// Whether what came so far holds no compaction, so that a path that is known can follow ([`Self::finish_with`]).
    #[must_use]
    pub fn may_join(&self) -> bool {
        self.boundary.is_none()
    }

    /// The path that was read.
    #[must_use]
    pub fn finish(mut self) -> SessionTree {
        // A compaction of another program's may keep from an entry that is not on its path: then it keeps nothing.
        if let Some(Boundary { first_kept: Some(_), kept, at, .. }) = &self.boundary {
            let mut place = 0;
            self.nodes.retain(|node| {
                let keep = place <= *at || kept.contains(node.id());
                place += 1;
                keep
            });
        }
        self.nodes.reverse();
        SessionTree { path: self.nodes }
    }

    /// The path that was read, hanging from the end of one that is known.
    #[must_use]
    pub fn finish_with(self, known: SessionTree) -> SessionTree {
        let mut path = known.path;
        path.extend(self.nodes.into_iter().rev());
        SessionTree { path }
    }
}
