//! What is left of a user who was deleted.

use std::{collections::BTreeMap, time::Duration};

/// How long a search waits until texts are erased.
pub(super) const ERASED_WITHIN: Duration = Duration::from_secs(60);

/// The length from which on a name is searched for inside of texts. A shorter one is found in any text.
const NAME_BYTES_MIN: usize = 8;

/// What a search for a user and their sessions has looked at, and found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traces {
    /// The files, tables or columns.
    pub searched: Vec<String>,
    /// How often something was found, by its place.
    pub found: BTreeMap<String, u64>,
}

impl Traces {
    /// Adds what was found in a place.
    pub(super) fn add(&mut self, place: &str, count: u64) {
        self.searched.push(place.to_owned());
        if count > 0 {
            self.found.insert(place.to_owned(), count);
        }
    }
}

/// Returns true if texts are searched for a name too.
pub(super) fn is_searched_in_texts(name: &str) -> bool {
    name.len() >= NAME_BYTES_MIN
}
