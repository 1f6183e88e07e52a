//! The known entries of a session, on any branch.

use reseed_protocol::{Entry, EntryId};
use std::{collections::HashMap, sync::Arc};

/// The known entries by id. An entry never changes, so it is stored once and shared.
#[derive(Debug, Clone, Default)]
pub struct KnownEntries {
    places: HashMap<EntryId, usize>,
    list: Vec<Arc<Entry>>,
}

impl KnownEntries {
    /// Returns the entry with this id.
    #[must_use]
    pub fn get(&self, id: &EntryId) -> Option<&Arc<Entry>> {
        self.places.get(id).map(|place| &self.list[*place])
    }

    /// Returns true if the entry is known.
    #[must_use]
    pub fn contains(&self, id: &EntryId) -> bool {
        self.places.contains_key(id)
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns true if no entry is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Iterates over the entries in the order in which they became known.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Entry>> + ExactSizeIterator {
        self.list.iter()
    }

    /// Adds an entry and returns it; `None` if it was already known.
    pub(super) fn add(&mut self, entry: Arc<Entry>) -> Option<&Arc<Entry>> {
        if self.contains(&entry.entry_id) {
            return None;
        }
        self.places.insert(entry.entry_id.clone(), self.list.len());
        self.list.push(entry);
        self.list.last()
    }
}

impl FromIterator<Entry> for KnownEntries {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        let mut known = Self::default();
        for entry in entries {
            known.add(Arc::new(entry));
        }
        known
    }
}

/// Two collections are equal if they contain the same entries in the same order.
impl PartialEq for KnownEntries {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}
