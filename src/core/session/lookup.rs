//! The data that a command needs from the store. The runtime reads it before the loop handles the command.

use super::{ended::EndedCall, tree::SessionTree};
use reseed_protocol::{Entry, EntryData, EntryId, Part, Role, tree::NavigatePosition};

/// The data that was read for a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Lookup {
    /// The path to the current leaf as it will be once the command has been executed: what `undo_compaction` restores,
    /// or the entry that `pin_entry` brings back.
    Path(SessionTree),
    /// The destination of a `navigate`, or of a `user_input` with a `parentId`.
    Destination(Destination),
    /// The entries on the path, newest first, for making a summary again from all of them (`rebuild`).
    Entries {
        /// The entries, newest first.
        entries: Vec<Entry>,
        /// True if there are more than one read returns.
        is_cut: bool,
    },
    /// The outcome of the call that a `tool_result` or `call_progress` names, from its mark.
    EndedCall(EndedCall),
    /// The sender of an `approval_response`, and the outcome of an approval that is over.
    Approval {
        /// The sender's client.
        by: Option<String>,
        /// The outcome of the approval, from its mark.
        ended: Option<EndedCall>,
    },
}

impl Lookup {
    /// Returns the path, if it was read.
    #[must_use]
    pub fn path(self) -> Option<SessionTree> {
        if let Self::Path(tree) = self { Some(tree) } else { None }
    }

    /// Returns the outcome of a call, if it was read.
    #[must_use]
    pub fn ended_call(self) -> Option<EndedCall> {
        if let Self::EndedCall(ended) = self { Some(ended) } else { None }
    }

    /// Returns the client that sent the approval's answer, if it is known, and the approval's outcome, if it is over.
    #[must_use]
    pub fn approval(self) -> (Option<String>, Option<EndedCall>) {
        if let Self::Approval { by, ended } = self { (by, ended) } else { (None, None) }
    }

    /// Returns the destination, if it was read.
    #[must_use]
    pub fn destination(self) -> Option<Destination> {
        if let Self::Destination(destination) = self { Some(destination) } else { None }
    }
}

/// Another entry of the tree to continue from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Destination {
    /// The entry that the session would continue from; `None` before the first.
    pub leaf: Option<EntryId>,
    /// The path to that entry, as far back as the model can see.
    pub tree: SessionTree,
    /// The input of the entry before which the session moves, returned for editing.
    pub input: Option<Vec<Part>>,
    /// The branch that the move would leave, newest first, down to the deepest common entry, or as much of it as a
    /// summary could hold. Empty if no summary is requested and no hook is called.
    pub left: Vec<Entry>,
    /// The deepest entry on both paths; `None` if they share none. It is not looked up if only a summary is requested
    /// and `left` was cut.
    pub common: Option<EntryId>,
}

/// Returns the leaf of a session that moves to or before an entry, and the input to return for editing.
/// [`NavigatePosition::Tip`] is the entry itself: the caller passes the newest leaf below it.
#[must_use]
pub fn landing(entry: &Entry, position: NavigatePosition) -> (Option<EntryId>, Option<Vec<Part>>) {
    match position {
        NavigatePosition::At | NavigatePosition::Tip => (Some(entry.entry_id.clone()), None),
        NavigatePosition::Before => (entry.parent_id.clone(), input_of(entry)),
    }
}

/// Returns the content of an entry that a user or client wrote; `None` for content from the model or a tool.
#[must_use]
pub fn input_of(entry: &Entry) -> Option<Vec<Part>> {
    match &entry.data {
        EntryData::Message(message) if message.role == Role::User => Some(message.content.clone()),
        EntryData::CustomMessage(custom) => Some(custom.content.clone()),
        _ => None,
    }
}
