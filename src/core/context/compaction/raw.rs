//! What a rebuilt summary is made of: the words of a path themselves, also those that earlier compactions took out.

use crate::core::session::tree::message_of;
use reseed_protocol::{Entry, EntryData, EntryId, Message};
use std::{collections::HashSet, sync::Arc};

/// What was said on a path, oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Raw {
    messages: Vec<(EntryId, Arc<Message>)>,
    whole: bool,
}

impl Raw {
    /// Of a path's entries, newest first. `whole`: they go back to the root; otherwise the summary there is stands for
    /// what is older.
    #[must_use]
    pub fn of(newest_first: Vec<Entry>, whole: bool) -> Self {
        let said = newest_first.into_iter().rev().filter(|entry| !matches!(entry.data, EntryData::Compaction(_)));
        let messages =
            said.filter_map(|entry| message_of(&entry).map(|message| (entry.entry_id, Arc::new(message)))).collect();
        Self { messages, whole }
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
        let known: HashSet<&EntryId> = self.messages.iter().map(|(id, _)| id).collect();
        let raw = self.messages.iter().filter(|(id, _)| !stays.contains(id)).map(|(_, message)| message.clone());
        raw.chain(goes.filter(|(id, _)| !known.contains(id)).map(|(_, message)| message)).collect()
    }
}
