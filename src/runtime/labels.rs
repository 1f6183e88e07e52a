//! The names of entries: label entries, of which the newest of the log counts for each entry, whatever its branch.

use super::load::entry;
use crate::store::{EntryQuery, Error, SessionStore};
use reseed_protocol::{Entry, EntryData, EntryId, SessionId};
use std::collections::BTreeMap;

/// Label entries read at once.
const LABELS_PAGE: u32 = 500;

/// For each entry that was ever named and that `wanted` accepts, the label entry that counts. One without a label took the
/// name away.
///
/// # Errors
/// The store's.
pub async fn newest_labels(
    store: &dyn SessionStore,
    session: &SessionId,
    wanted: impl Fn(&EntryId) -> bool,
) -> Result<BTreeMap<EntryId, Entry>, Error> {
    let mut newest = BTreeMap::new();
    let mut after_seq = 0;
    loop {
        let query = EntryQuery::Kind { kind: "label".to_owned(), after_seq, limit: LABELS_PAGE };
        let page = store.entries(session, query).await?;
        let full = page.len() == LABELS_PAGE as usize;
        for record in page {
            after_seq = record.seq;
            let Some(found) = entry(session, &record)? else { continue };
            if let EntryData::Label(label) = &found.data
                && wanted(&label.target_id)
            {
                newest.insert(label.target_id.clone(), found);
            }
        }
        if !full {
            return Ok(newest);
        }
    }
}

/// The name that a label entry gives; `None` where it takes one away.
#[must_use]
pub fn label_of(entry: &Entry) -> Option<&str> {
    match &entry.data {
        EntryData::Label(label) => label.label.as_deref(),
        _ => None,
    }
}
