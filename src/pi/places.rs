//! The positions of messages in pi's context at an entry. A compaction in a patch refers to messages by position.
//!
//! Only the data that shifts positions is remembered per entry, since a file is read line by line and may be large.

use reseed_protocol::{Entry, EntryData, EntryId, context::PatchOp, tree::Kept};
use std::collections::HashMap;

/// The entries added so far.
#[derive(Debug, Default)]
pub(super) struct Places {
    entries: HashMap<EntryId, Place>,
}

#[derive(Debug)]
struct Place {
    parent: Option<EntryId>,
    adds: Adds,
}

/// The effect of an entry on the list of messages.
#[derive(Debug)]
enum Adds {
    Nothing,
    Message,
    /// Replaces everything before the first kept entry by a summary.
    Summary(Option<EntryId>),
    /// Edits the list as a patch says.
    Patch(Vec<Edit>),
}

#[derive(Debug)]
enum Edit {
    /// Replaces the list: messages of entries, and messages without one.
    Replace(Vec<Option<EntryId>>),
    Remove(EntryId),
}

impl Places {
    /// Returns true if this entry was added.
    pub(super) fn has(&self, id: &EntryId) -> bool {
        self.entries.contains_key(id)
    }

    /// Remembers an entry.
    pub(super) fn add(&mut self, entry: &Entry) {
        let place = Place { parent: entry.parent_id.clone(), adds: adds(&entry.data) };
        self.entries.insert(entry.entry_id.clone(), place);
    }

    /// Returns the messages of the context at an entry: the entry of each, or `None` for a message that a patch or a
    /// summary inserted.
    pub(super) fn messages(&self, leaf: Option<&EntryId>) -> Vec<Option<EntryId>> {
        let up = |id: &EntryId| self.entries.get(id)?.parent.as_ref();
        let mut path: Vec<&EntryId> = std::iter::successors(leaf, |id| up(id)).collect();
        path.reverse();
        let mut messages: Vec<Option<EntryId>> = Vec::new();
        for id in path {
            match self.entries.get(id).map(|place| &place.adds) {
                None | Some(Adds::Nothing) => {}
                Some(Adds::Message) => messages.push(Some(id.clone())),
                Some(Adds::Summary(kept)) => {
                    let at = kept.as_ref().and_then(|kept| messages.iter().position(|id| id.as_ref() == Some(kept)));
                    messages.drain(..at.unwrap_or(messages.len()));
                    messages.insert(0, None);
                }
                Some(Adds::Patch(edits)) => {
                    for edit in edits {
                        match edit {
                            Edit::Replace(list) => messages.clone_from(list),
                            Edit::Remove(id) => messages.retain(|other| other.as_ref() != Some(id)),
                        }
                    }
                }
            }
        }
        messages
    }
}

fn adds(data: &EntryData) -> Adds {
    match data {
        EntryData::Message(_) | EntryData::CustomMessage(_) => Adds::Message,
        EntryData::BranchSummary(summary) if !summary.summary.is_empty() => Adds::Message,
        EntryData::Compaction(compaction) => Adds::Summary(compaction.first_kept_entry_id.clone()),
        EntryData::ContextTransform(kept) => match &**kept {
            Kept::Known(transform) => Adds::Patch(transform.patch.iter().flat_map(edits).collect()),
            Kept::Other(_) => Adds::Nothing,
        },
        _ => Adds::Nothing,
    }
}

fn edits(op: &PatchOp) -> Vec<Edit> {
    match op {
        PatchOp::MessagesCachedReplace { messages, .. } => {
            vec![Edit::Replace(messages.iter().map(|message| message.entry_id.clone()).collect())]
        }
        PatchOp::MessagesCachedEdit { edits, .. } => {
            let removed = edits.iter().filter(|edit| edit.message.is_none());
            removed.map(|edit| Edit::Remove(edit.entry_id.clone())).collect()
        }
        _ => Vec::new(),
    }
}
