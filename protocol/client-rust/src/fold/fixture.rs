//! Shared by the tests of the fold: an empty session, and events as the server sends them.

use super::{Applied, Snapshot};
use reseed_protocol::{Entry, EntryId, session::SessionOpened};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Parses a value in its wire format.
pub(super) fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error} in {value}"))
}

/// Returns the id of an entry.
pub(super) fn id(name: &str) -> EntryId {
    name.parse().expect("the tests name entries by valid ids")
}

/// Returns an entry whose text is its own name.
pub(super) fn entry(name: &str, parent: Option<&str>) -> Entry {
    let content = json!([{"type": "text", "text": name}]);
    read(json!({
        "entryId": name, "parentId": parent, "timestamp": "2026-11-21T09:15:00Z",
        "type": "message", "role": "user", "content": content,
    }))
}

/// Returns an empty session from the example frame, with other values for these fields.
pub(super) fn opened(fields: Value) -> SessionOpened {
    let frame = include_str!("../../../examples/v2/replies/session_opened.json");
    let mut frame: Value = serde_json::from_str(frame).expect("the example is JSON");
    for (field, value) in fields.as_object().expect("fields are an object") {
        frame["payload"][field] = value.clone();
    }
    read(frame["payload"].take())
}

/// Returns the snapshot of an empty session, which is at `seq` 1.
pub(super) fn snapshot() -> Snapshot {
    Snapshot::opened(opened(json!({})))
}

/// A snapshot to which a test applies events.
pub(super) struct Told {
    pub(super) snapshot: Snapshot,
}

impl Told {
    pub(super) fn by(snapshot: Snapshot) -> Self {
        Self { snapshot }
    }

    /// Applies the next durable event.
    pub(super) fn durable(&mut self, kind: &str, payload: Value) {
        let seq = self.snapshot.seq + 1;
        assert_eq!(self.at(seq, kind, payload), Applied::Next);
    }

    /// Applies a durable event with this `seq`.
    pub(super) fn at(&mut self, seq: u64, kind: &str, payload: Value) -> Applied {
        self.snapshot.apply(seq, &read(json!({"type": kind, "payload": payload})))
    }

    pub(super) fn ephemeral(&mut self, kind: &str, payload: Value) {
        self.snapshot.apply_ephemeral(&read(json!({"type": kind, "payload": payload})));
    }

    pub(super) fn appended(&mut self, name: &str, parent: Option<&str>) {
        self.durable("entry_appended", json!({"entry": entry(name, parent)}));
    }

    /// Returns the names of the entries on the path, and whether there are older ones.
    pub(super) fn path(&self) -> (String, bool) {
        let names: Vec<&str> = self.snapshot.path.iter().map(|entry| entry.entry_id.as_str()).collect();
        (names.join(" "), self.snapshot.path.more())
    }
}
