//! The cases of the contract, and helpers to write them.

pub(crate) mod minutes;
pub(crate) mod reading;
pub(crate) mod searching;
pub(crate) mod spending;
pub(crate) mod trees;
pub(crate) mod writing;

use crate::{Append, EntryColumns, Head, NewRecord, SessionStore, StoredRecord};
use reseed_protocol::{SessionId, Timestamp};

/// The time of everything in the suite, unless stated otherwise.
pub(crate) const NOW: Timestamp = Timestamp(1_795_243_504_123);

/// Parses an id of any type.
pub(crate) fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

/// Returns a control record with this body.
pub(crate) fn control(body: &str) -> NewRecord {
    NewRecord { body: body.into(), entry: None }
}

/// Returns an entry whose body is its id. An empty `parent` means that it has none.
pub(crate) fn entry(entry: &str, parent: &str) -> NewRecord {
    let parent_id = (!parent.is_empty()).then(|| id(parent));
    NewRecord {
        body: entry.into(),
        entry: Some(EntryColumns { entry_id: id(entry), parent_id, kind: "message".into() }),
    }
}

/// Returns an append of only these records.
pub(crate) fn append(records: Vec<NewRecord>) -> Append {
    Append { records, marks: Vec::new(), usage: Vec::new(), head: Head::default() }
}

/// Returns an append of control records with these bodies.
pub(crate) fn append_of<const N: usize>(bodies: [&str; N]) -> Append {
    append(bodies.map(control).into())
}

/// Formats records as `seq:body`.
pub(crate) fn short(records: &[StoredRecord]) -> String {
    records.iter().map(|record| format!("{}:{}", record.seq, record.body)).collect::<Vec<_>>().join(" ")
}

/// Returns the whole log as [`short`] text.
pub(crate) async fn log(store: &dyn SessionStore, session: &SessionId) -> String {
    short(&store.read(session, 0, u32::MAX).await.unwrap())
}
