//! A session: one append-only tree of entries, and the fold of its log.
//!
//! Everything here follows from the log: [`Session::apply`] is the only way in which either changes, so a session can
//! be dropped at any moment and made again from the store.

pub mod fingerprint;
pub mod fork;
pub mod ids;
pub mod input;
pub mod place;
pub mod preview;
pub mod state;
pub mod tree;
pub mod unit;

#[cfg(test)]
mod random_trees;

pub use ids::IdSource;
pub use place::Place;
pub use state::{HeldAt, OpenTurn, SessionState, Strategy};
pub use tree::{Node, SessionTree};

use crate::core::context::{compaction::Held, counter::Counter};
use reseed_protocol::{EntryData, SessionId, Timestamp, event::Event};
use std::sync::Arc;

/// A session as far as it is in memory: where it stands, and the path to its leaf.
#[derive(Debug, Clone)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// When it was made.
    pub created_at: Timestamp,
    /// The fold of its log.
    pub state: SessionState,
    /// The part of its tree that the model sees.
    pub tree: SessionTree,
    /// The compaction that is held until it is due; absent also where its record is of a form that is not known.
    pub held: Option<Arc<Held>>,
}

impl Session {
    /// A session without a log.
    #[must_use]
    pub fn new(id: SessionId, created_at: Timestamp) -> Self {
        Self { id, created_at, state: SessionState::default(), tree: SessionTree::default(), held: None }
    }

    /// Takes one event of the log, in order. A new entry is counted once, here.
    pub fn apply(&mut self, event: &Event, counter: &Counter) {
        self.state.apply(event);
        match event {
            Event::EntryAppended(appended) => {
                self.tree.append(Arc::new(Node::counted(appended.entry.clone(), counter)));
                if let EntryData::Compaction(compaction) = &appended.entry.data {
                    self.tree.forget_before(compaction.first_kept_entry_id.as_ref(), &compaction.kept_entry_ids);
                    self.tree.clear(&compaction.cleared_entry_ids, counter);
                }
            }
            Event::SessionUpdated(updated) => {
                if let Some(leaf) = &updated.leaf_id {
                    self.tree.move_leaf(leaf.as_ref());
                }
                if updated.pins.is_some() {
                    self.tree.mark(&self.state);
                }
                if let Some(held) = &updated.held {
                    self.held = Held::read_back(held).map(Arc::new);
                }
            }
            Event::ContextCompacted(_) => self.held = None,
            Event::CompactionFailed(failed) => drop(self.held.take_if(|held| held.job_id == failed.job_id)),
            // What it brings back was read from the store: see `Place`.
            Event::CompactionUndone(_) => self.tree.mark(&self.state),
            _ => {}
        }
    }
}
