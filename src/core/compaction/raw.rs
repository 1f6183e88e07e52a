//! The source of a rebuilt summary: the original messages of a path, including those that earlier compactions removed.

use crate::context::{
    messages::Counted,
    node::Node,
    patch::list::{Fate, fates},
    replay::uncompacted,
};
use reseed_protocol::{Entry, EntryId, Message};
use std::{collections::HashSet, sync::Arc};

/// The messages of a path, oldest first, with its patches applied.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Raw {
    messages: Vec<Counted>,
    whole: bool,
}

impl Raw {
    /// Reads a path's entries, newest first. `whole` is true if they reach back to the root; otherwise the existing
    /// summary covers the older part.
    #[must_use]
    pub fn of(newest_first: Vec<Entry>, whole: bool) -> Self {
        let path: Vec<Arc<Node>> =
            newest_first.into_iter().rev().map(|entry| Arc::new(Node::uncounted(entry))).collect();
        Self { messages: uncompacted(&path), whole }
    }

    /// Returns true if there are no older messages.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns the messages that a user wrote, except those that stay.
    pub(super) fn inputs(&self, stays: &HashSet<&EntryId>) -> impl Iterator<Item = (Option<&EntryId>, &Message)> {
        let goes =
            |counted: &&Counted| counted.is_input && counted.entry_id.as_ref().is_none_or(|id| !stays.contains(id));
        self.messages.iter().filter(goes).map(|counted| (counted.entry_id.as_ref(), &*counted.message))
    }

    /// Returns the messages to summarise: all except those that stay, then the removed ones among messages added since.
    pub(super) fn without(
        &self,
        stays: &HashSet<&EntryId>,
        goes: impl Iterator<Item = (EntryId, Arc<Message>)>,
    ) -> Vec<Arc<Message>> {
        let known: HashSet<&EntryId> = self.messages.iter().filter_map(|counted| counted.entry_id.as_ref()).collect();
        let fate = |counted: &Counted| match &counted.entry_id {
            Some(id) if stays.contains(id) => Fate::Tail,
            _ => Fate::Gone,
        };
        let fates = fates(&self.messages, fate);
        let raw = self.messages.iter().zip(fates).filter(|(_, fate)| *fate == Fate::Gone);
        let raw = raw.map(|(counted, _)| counted.message.clone());
        raw.chain(goes.filter(|(id, _)| !known.contains(id)).map(|(_, message)| message)).collect()
    }
}
