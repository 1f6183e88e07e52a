//! Navigation targets: a point in the tree that a session can move to, and what the move needs from the store.

use super::SessionTree;
use reseed_protocol::{Entry, EntryData, EntryId, Part, Role, command::NavigatePosition};

/// A navigation target, read from the store for a command that moves there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Place {
    /// The entry that the session would continue from; `None` before the first.
    pub leaf: Option<EntryId>,
    /// The path to that entry, as far back as the model can see.
    pub tree: SessionTree,
    /// The input of the entry that is moved before, handed back for editing.
    pub input: Option<Vec<Part>>,
    /// The branch that the move would leave, newest first, down to the deepest common entry, or as much of it as a
    /// summary could hold. Empty if no summary is wanted and no hook is asked. To redo a summary: the whole path.
    pub left: Vec<Entry>,
    /// True if `left` was cut because there is more than one read returns.
    pub left_cut: bool,
    /// The deepest entry on both paths; `None` if they share none. Not looked up if only a summary is wanted and `left`
    /// was cut.
    pub common: Option<EntryId>,
}

/// Returns the leaf of a session that moves to or before an entry, and the input to hand back for editing.
/// [`NavigatePosition::Tip`] is the entry itself: the caller passes the newest leaf below it.
#[must_use]
pub fn landing(entry: &Entry, position: NavigatePosition) -> (Option<EntryId>, Option<Vec<Part>>) {
    match position {
        NavigatePosition::At | NavigatePosition::Tip => (Some(entry.entry_id.clone()), None),
        NavigatePosition::Before => (entry.parent_id.clone(), input_of(entry)),
    }
}

/// Returns the content of an entry that a user or client wrote; `None` for what the model or a tool wrote.
#[must_use]
pub fn input_of(entry: &Entry) -> Option<Vec<Part>> {
    match &entry.data {
        EntryData::Message(message) if message.role == Role::User => Some(message.content.clone()),
        EntryData::CustomMessage(custom) => Some(custom.content.clone()),
        _ => None,
    }
}
