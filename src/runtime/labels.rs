//! The labels of entries. For each entry, its newest label entry in the log applies, whatever its branch.

use super::load::entry;
use crate::store::{EntryQuery, Error, SessionStore};
use reseed_protocol::{Entry, EntryData, EntryId, SessionId};
use std::collections::BTreeMap;

/// Label entries read per query.
const LABELS_PAGE: u32 = 500;

/// Returns the label entry in effect for each entry that was ever labelled and that `wanted` accepts. A label entry
/// without a label means that the label was removed.
///
/// # Errors
/// The store's errors.
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

/// Returns the label that a label entry sets; `None` if it removes one.
#[must_use]
pub fn label_of(entry: &Entry) -> Option<&str> {
    match &entry.data {
        EntryData::Label(label) => label.label.as_deref(),
        _ => None,
    }
}
