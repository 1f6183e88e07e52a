//! A place in the tree that a session can move to, and what comes back from the way there.

use super::SessionTree;
use reseed_protocol::{Entry, EntryData, EntryId, Part, Role, command::NavigatePosition};

/// A place in the tree, read from the store for a command that goes there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Place {
    /// The entry from which the session would go on; `None` before the first.
    pub leaf: Option<EntryId>,
    /// The path to it, as far back as the model can see.
    pub tree: SessionTree,
    /// What an entry that is moved before says, to be edited.
    pub input: Option<Vec<Part>>,
    /// The branch that would be left, newest first, down to the deepest entry that both paths have, or as much of it as
    /// a summary could hold. Empty where neither a summary is wanted nor a hook is asked. For a summary that is made
    /// anew: the whole path.
    pub left: Vec<Entry>,
    /// `left` ends before its time: there is more than is read at once.
    pub left_cut: bool,
    /// The deepest entry that both paths have; `None` where they have none, and unknown where only a summary is wanted of
    /// a branch that is cut.
    pub common: Option<EntryId>,
}

/// Where a session goes on that moves to or before an entry, and the input that is handed back for editing.
/// [`NavigatePosition::Tip`] is the entry itself: whoever moves there names the newest leaf below it.
#[must_use]
pub fn landing(entry: &Entry, position: NavigatePosition) -> (Option<EntryId>, Option<Vec<Part>>) {
    match position {
        NavigatePosition::At | NavigatePosition::Tip => (Some(entry.entry_id.clone()), None),
        NavigatePosition::Before => (entry.parent_id.clone(), input_of(entry)),
    }
}

/// What a person or a client said in an entry; nothing for what the model or a tool said.
#[must_use]
pub fn input_of(entry: &Entry) -> Option<Vec<Part>> {
    match &entry.data {
        EntryData::Message(message) if message.role == Role::User => Some(message.content.clone()),
        EntryData::CustomMessage(custom) => Some(custom.content.clone()),
        _ => None,
    }
}

/// Whether an entry is a message: what `ifLeaf` looks for.
#[must_use]
pub fn is_message(entry: &Entry) -> bool {
    matches!(entry.data, EntryData::Message(_) | EntryData::CustomMessage(_))
}
