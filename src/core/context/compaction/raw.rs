//! What a rebuilt summary is made of: the words of a path themselves, also those that earlier compactions took out.

use crate::core::{
    context::{
        build::Counted,
        patch::list::{Fate, fates},
        replay::uncompacted,
    },
    session::Node,
};
use reseed_protocol::{Entry, EntryId, Message};
use std::{collections::HashSet, sync::Arc};

/// What was said on a path, oldest first, as its patches make it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Raw {
    messages: Vec<Counted>,
    whole: bool,
}

impl Raw {
    /// Of a path's entries, newest first. `whole`: they go back to the root; otherwise the summary there is stands for
    /// what is older.
    #[must_use]
    pub fn of(newest_first: Vec<Entry>, whole: bool) -> Self {
        let path: Vec<Arc<Node>> =
            newest_first.into_iter().rev().map(|entry| Arc::new(Node::uncounted(entry))).collect();
        Self { messages: uncompacted(&path), whole }
    }

    /// Whether nothing older was said.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// What is summarised: everything but what stays, and then what goes of the messages that came since.
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
