//! A session: one append-only tree of entries, and the state folded from its log.
//!
//! Everything here is derived from the log. Once there is a log, only [`Session::apply`] changes it. So a session can
//! be dropped at any moment and rebuilt from the store.

pub(crate) mod carry;
pub mod ended;
pub mod fork;
pub mod ids;
pub mod input;
pub mod lookup;
pub mod preview;
pub mod state;
pub mod tree;
pub mod unit;

#[cfg(test)]
mod golden;
#[cfg(test)]
mod random_compactions;
#[cfg(test)]
mod random_patches;
#[cfg(test)]
mod random_trees;

pub use crate::{context::node::Node, fingerprint};
pub use ended::EndedCall;
pub use ids::IdSource;
pub use lookup::{Destination, Lookup};
pub use state::{HeldAt, OpenTurn, Queued, QueuedAt, SessionState, StoredState, Strategy};
pub use tree::SessionTree;

use crate::{
    compaction::Held,
    context::counter::{Calibration, Counter},
};
use reseed_protocol::{EntryData, JobId, SessionId, Timestamp, event::Event};
use std::sync::Arc;

/// The in-memory part of a session: its state, and the path to its leaf.
#[derive(Debug, Clone)]
pub struct Session {
    /// The session's id.
    pub id: SessionId,
    /// When the session was created.
    pub created_at: Timestamp,
    /// The state folded from its log. Shared with the copy that is stored while the session is idle.
    pub state: Arc<SessionState>,
    /// The part of its tree that the model sees.
    pub tree: SessionTree,
    /// The held compaction, applied when it becomes due. It is also `None` if its record has an unknown form.
    pub held: Option<Arc<Held>>,
    /// The calibration of its model's counter when the session was read from the store. The store keeps it beside the
    /// state, because the log alone does not show what was learned on other branches and in other sessions.
    pub calibration: Option<Calibration>,
}

impl Session {
    /// Creates a session without a log.
    #[must_use]
    pub fn new(id: SessionId, created_at: Timestamp) -> Self {
        Self { id, created_at, state: Arc::default(), tree: SessionTree::default(), held: None, calibration: None }
    }

    /// Returns the state for modification, copied if it is shared. For a session without a log, and for tests.
    #[must_use]
    pub fn state_mut(&mut self) -> &mut SessionState {
        Arc::make_mut(&mut self.state)
    }

    /// Returns true if this job made the held compaction.
    pub(crate) fn is_held(&self, job: &JobId) -> bool {
        self.state.held.as_ref().is_some_and(|held| held.job_id == *job)
    }

    /// Applies one event of the log, in order. A new entry is counted here, once.
    pub fn apply(&mut self, event: &Event, counter: &Counter) {
        self.state_mut().apply(event);
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
            // The entries that an undo restores were read from the store: see `Lookup`.
            Event::CompactionUndone(_) => self.tree.mark(&self.state),
            _ => {}
        }
    }
}
