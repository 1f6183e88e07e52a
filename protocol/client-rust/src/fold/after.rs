//! Determines what to request from the server after an event that does not carry everything it changed.

use super::Snapshot;
use reseed_protocol::{EntryData, EntryId, event::Event, session::SessionUpdated};

/// Returns true if an event changes the size of the context without reporting it. [`Snapshot::context_info`] is then
/// outdated: send `get_context_info`, and pass the reply to [`Snapshot::measured`]. Do so when no turn is running,
/// because a turn's events report the size, and when [`Snapshot::is_replaying`] returns false.
#[must_use]
pub fn changes_context(event: &Event) -> bool {
    match event {
        Event::ContextCompacted(_) => true,
        // A failure may open the circuit breaker. If a background compaction fails, this event is the only sign.
        Event::CompactionFailed(failed) => failed.trigger.is_some(),
        Event::EntryAppended(appended) => {
            matches!(appended.entry.data, EntryData::CustomMessage(_) | EntryData::BranchSummary(_))
        }
        Event::SessionUpdated(updated) => {
            let SessionUpdated { leaf_id, model, strategy, settings, pins, .. } = &**updated;
            leaf_id.is_some() || model.is_some() || strategy.is_some() || settings.is_some() || pins.is_some()
        }
        _ => false,
    }
}

impl Snapshot {
    /// Returns true if missed events are still to come after a resume.
    #[must_use]
    pub fn is_replaying(&self) -> bool {
        self.seq < self.as_of_seq
    }

    /// Returns true if this event, which was applied last, has moved the session to an unknown entry, so that none of
    /// its history can be shown. Send `get_entries` for a page, and pass it to [`Snapshot::add_entries`].
    #[must_use]
    pub fn is_moved_away_by(&self, event: &Event) -> bool {
        let is_unknown = |place: &Option<EntryId>| place.as_ref().is_some_and(|id| !self.entries.contains(id));
        match event {
            Event::SessionUpdated(updated) => updated.leaf_id.as_ref().is_some_and(is_unknown),
            Event::EntryAppended(appended) => is_unknown(&appended.entry.parent_id),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Told, entry, opened, read};
    use super::*;
    use serde_json::{Value, json};

    fn event(kind: &str, payload: Value) -> Event {
        read(json!({"type": kind, "payload": payload}))
    }

    fn example(text: &str) -> Event {
        read(serde_json::from_str(text).expect("the example is JSON"))
    }

    #[test]
    fn some_events_change_the_size_without_telling_it() {
        let error = json!({"code": "upstream_error", "message": "it failed", "retriable": true});
        for (event, changes) in [
            (example(include_str!("../../../examples/v2/events/context_compacted.json")), true),
            (event("compaction_failed", json!({"jobId": "j1", "trigger": "threshold", "error": error})), true),
            (event("compaction_failed", json!({"jobId": "j1", "error": error})), false),
            (event("session_updated", json!({"leafId": "root"})), true),
            (event("session_updated", json!({"model": "offline"})), true),
            (event("session_updated", json!({"strategy": "manual"})), true),
            (event("session_updated", json!({"settings": {}})), true),
            (event("session_updated", json!({"pins": []})), true),
            (event("session_updated", json!({"name": "other", "generation": 2})), false),
            (event("entry_appended", json!({"entry": entry("a", None)})), false),
            (event("turn_started", json!({"turnId": "t1", "commandIds": [], "generation": 1})), false),
        ] {
            assert_eq!(changes_context(&event), changes, "{event:?}");
        }
        for (kind, changes) in [("custom_message", true), ("custom", false)] {
            let entry = json!({
                "entryId": "a", "parentId": null, "timestamp": "2026-11-21T09:15:00Z",
                "type": kind, "customType": "map", "content": [], "display": true,
            });
            assert_eq!(changes_context(&event("entry_appended", json!({"entry": entry}))), changes, "{kind}");
        }
    }

    #[test]
    fn a_session_may_move_to_where_nothing_is_known() {
        let known = json!({"entries": [entry("b", Some("a"))], "leafId": "b", "more": true});
        for (event, is_away) in [
            (event("session_updated", json!({"leafId": "b"})), false),
            (event("session_updated", json!({"leafId": "root"})), false),
            (event("session_updated", json!({"leafId": "a"})), true),
            (event("session_updated", json!({"name": "other"})), false),
            (event("entry_appended", json!({"entry": entry("c", Some("b"))})), false),
            (event("entry_appended", json!({"entry": entry("c", None)})), false),
            (event("entry_appended", json!({"entry": entry("c", Some("a"))})), true),
        ] {
            let mut told = Told::by(Snapshot::opened(opened(known.clone())));
            let seq = told.snapshot.seq + 1;
            let _ = told.snapshot.apply(seq, &event);
            assert_eq!(told.snapshot.is_moved_away_by(&event), is_away, "{event:?}");
        }
    }
}
