//! Finds the part of a session that the model already sees when it makes a call. Searching it would only return the
//! model's own question.

use crate::{
    store::{EntryQuery, Error, SessionStore},
    tools::Call,
};
use reseed_protocol::{EntryData, Role, event::Event};

/// The entries and bytes of one read, and the maximum entries that are read back. A context of more has no compaction.
const PAGE: u32 = 128;
const PAGE_BYTES_MAX: usize = 1024 * 1024;
const ENTRIES_MAX: usize = 4096;

/// Positions on the path to a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// The first entry that the newest compaction kept, or that came after it; `None` if there is no compaction.
    pub(super) first_seq: Option<u64>,
    /// The newest message of the user, with which the turn of the call began.
    pub(super) asked_seq: Option<u64>,
}

impl Seen {
    pub(super) async fn of(store: &dyn SessionStore, call: &Call) -> Result<Self, Error> {
        let (mut seen, mut next, mut count) = (Self::default(), call.leaf.clone(), 0);
        while let Some(from) = next.take() {
            let query = EntryQuery::Path { from, limit: PAGE };
            let records = match store.entries_page(&call.session, query, PAGE_BYTES_MAX).await {
                Ok(page) => page.records,
                // Damage also ends the visible part.
                Err(Error::Damaged { .. }) => return Ok(seen),
                Err(error) => return Err(error),
            };
            count += records.len();
            for record in records {
                let Ok(Event::EntryAppended(appended)) = serde_json::from_str(&record.body) else { continue };
                let entry = appended.entry;
                next = entry.parent_id;
                match entry.data {
                    EntryData::Message(message) if message.role == Role::User => {
                        seen.asked_seq.get_or_insert(record.seq);
                    }
                    EntryData::Compaction(compaction) => {
                        let kept = match &compaction.first_kept_entry_id {
                            Some(kept) => store.entry_seq(&call.session, kept).await?,
                            None => None,
                        };
                        seen.first_seq = Some(kept.unwrap_or(record.seq));
                        return Ok(seen);
                    }
                    _ => {}
                }
            }
            if count >= ENTRIES_MAX {
                break;
            }
        }
        Ok(seen)
    }
}
