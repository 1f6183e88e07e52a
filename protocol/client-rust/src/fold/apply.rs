//! Applies events to a snapshot.

use super::{Call, Snapshot, Turn, context::remember};
use reseed_protocol::{
    EntryData, Role,
    event::{EphemeralEvent, Event},
    session::{PresenceChanged, SessionUpdated},
    tools::{CallProgressed, CallResolved, ToolCall},
    tree::EntryAppended,
    turn::{EndedTurn, RequestDelayed, TurnFinished, TurnStarted, TurnStatus, UnansweredTurn},
};
use std::sync::Arc;

/// The result of applying a durable event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "an event that was seen must not be passed on again, and a gap is closed by a resume"]
pub enum Applied {
    /// It was the next event, and is now in the snapshot.
    Next,
    /// It was already in the snapshot. Nothing has changed.
    Seen,
    /// An earlier event is missing. Nothing has changed. Open the session again with [`Snapshot::resume_point`].
    Gap,
}

impl Snapshot {
    /// Applies a durable event with its `seq`.
    pub fn apply(&mut self, seq: u64, event: &Event) -> Applied {
        let applied = self.count(seq);
        if applied == Applied::Next {
            self.change(event);
            self.as_of_seq = self.as_of_seq.max(seq);
            self.update_state();
        }
        applied
    }

    /// Counts a durable event.
    fn count(&mut self, seq: u64) -> Applied {
        match seq.checked_sub(self.seq) {
            None | Some(0) => Applied::Seen,
            Some(1) => {
                self.seq = seq;
                Applied::Next
            }
            Some(_) => Applied::Gap,
        }
    }

    fn change(&mut self, event: &Event) {
        match event {
            Event::EntryAppended(appended) => self.entry_appended(appended),
            Event::TurnStarted(started) => self.turn_started(started),
            Event::TurnFinished(finished) => self.turn_finished(finished),
            Event::ToolCall(call) => self.tool_called(call),
            Event::ApprovalRequest(approval) => self.approvals.push((**approval).clone()),
            Event::CallResolved(resolved) => self.call_resolved(resolved),
            Event::QueueItemAdded(added) => self.queue_item_added(added),
            Event::QueueItemRemoved(removed) => self.queue_item_removed(removed),
            Event::QueueReordered(reordered) => self.queue_reordered(reordered),
            Event::QueueReleased(_) => self.queue_released(),
            // No server sends this event.
            Event::QueueChanged(_) => {}
            // It takes its `seq`, and changes nothing else.
            Event::Unknown(_) => {}
            Event::SessionUpdated(updated) => self.session_updated(updated),
            Event::ContextCompacted(report) => self.compacted(report),
            Event::CompactionUndone(undone) => self.compaction_undone(undone),
            Event::CompactionFailed(failed) => self.compaction_failed(failed),
        }
    }

    /// Applies an ephemeral event.
    pub fn apply_ephemeral(&mut self, event: &EphemeralEvent) {
        match event {
            EphemeralEvent::RequestDelayed(delayed) => self.request_delayed(delayed),
            EphemeralEvent::ItemStarted(started) => {
                self.delayed = None;
                self.item_started(started);
            }
            EphemeralEvent::ItemDelta(delta) => self.item_delta(delta),
            EphemeralEvent::ItemFinished(finished) => self.item_finished(finished),
            EphemeralEvent::ItemAborted(aborted) => self.item_aborted(aborted),
            EphemeralEvent::CallProgressed(progressed) => self.call_progressed(progressed),
            EphemeralEvent::CompactionStarted(started) => self.compaction_started(started),
            EphemeralEvent::CompactionProgress(progress) => self.compaction_progressed(progress),
            EphemeralEvent::CompactionPrepared(prepared) => self.compaction_prepared(prepared),
            EphemeralEvent::ContextWarning(warning) => self.warning = Some(warning.message.clone()),
            EphemeralEvent::ContextUpdated(updated) => self.measured(updated.context_info.clone()),
            EphemeralEvent::HostChanged(changed) => self.host.clone_from(&changed.host),
            EphemeralEvent::PresenceChanged(changed) => self.presence_changed(changed),
            // These are for the host, for the list of sessions, or for the subscription.
            EphemeralEvent::RunTool(_)
            | EphemeralEvent::HookCall(_)
            | EphemeralEvent::HookCancelled(_)
            | EphemeralEvent::HookFailed(_)
            | EphemeralEvent::ToolCancelled(_)
            | EphemeralEvent::SessionClosed(_)
            | EphemeralEvent::SessionChanged(_)
            | EphemeralEvent::TokenExpiring(_)
            | EphemeralEvent::BudgetNotice(_)
            | EphemeralEvent::Unknown(_) => return,
        }
        self.update_state();
    }

    /// Adds an entry to the tree, which becomes the leaf.
    fn entry_appended(&mut self, EntryAppended { entry, .. }: &EntryAppended) {
        if let EntryData::SessionInfo(info) = &entry.data {
            self.name.clone_from(&info.name);
        }
        // The answer was not streamed, because a hook inspected it first.
        if matches!(&entry.data, EntryData::Message(message) if message.role == Role::Assistant) {
            self.delayed = None;
        }
        self.items.retain(|item| *item.item_id() != entry.entry_id);
        let is_next = entry.parent_id == self.leaf_id;
        let fresh = self.entries.add(Arc::new(entry.clone())).cloned();
        self.leaf_id = Some(entry.entry_id.clone());
        match fresh {
            Some(fresh) if is_next => self.path.push(fresh),
            _ => self.walk(),
        }
    }

    /// This ephemeral event may arrive after the durable events that end the wait.
    fn request_delayed(&mut self, delayed: &RequestDelayed) {
        let is_running = self.turn.as_ref().is_some_and(|turn| turn.turn_id == delayed.turn_id);
        self.delayed = is_running.then(|| delayed.clone());
    }

    fn turn_started(&mut self, started: &TurnStarted) {
        self.turn = Some(Turn { turn_id: started.turn_id.clone() });
        self.last_turn = None;
    }

    fn turn_finished(&mut self, finished: &TurnFinished) {
        self.turn = None;
        self.delayed = None;
        self.items.retain(|item| item.aborted().is_some() || item.turn_id() != Some(&finished.turn_id));
        self.pending.retain(|call| call.turn_id != finished.turn_id);
        self.approvals.retain(|approval| approval.turn_id != finished.turn_id);
        let TurnFinished { turn_id, status, error, context_info, .. } = finished.clone();
        self.last_turn = (status != TurnStatus::Completed).then_some(EndedTurn { turn_id, status, error });
        if let Some(EndedTurn { turn_id, status, error }) = self.last_turn.clone() {
            let leaf_id = self.leaf_id.clone();
            remember(&mut self.unanswered_turns, UnansweredTurn { turn_id, status, error, leaf_id });
        }
        self.measured(context_info);
    }

    fn tool_called(&mut self, call: &ToolCall) {
        // The deadline of a call that the last `session_opened` reported may have moved since this event.
        if self.is_replayed() && self.call(&call.call_id).is_some() {
            return;
        }
        self.pending.retain(|known| known.call_id != call.call_id);
        self.pending.push(Call::from(call.clone()));
    }

    fn call_resolved(&mut self, resolved: &CallResolved) {
        match &resolved.approval_id {
            Some(decided) => self.approvals.retain(|approval| approval.approval_id != *decided),
            None => self.pending.retain(|call| call.call_id != resolved.call_id),
        }
    }

    fn call_progressed(&mut self, progressed: &CallProgressed) {
        for call in &mut self.pending {
            if Some(&call.call_id) == progressed.tool_call_id.as_ref() {
                call.message.clone_from(&progressed.message);
                call.deadline = progressed.deadline;
            }
        }
    }

    fn session_updated(&mut self, updated: &SessionUpdated) {
        if let Some(leaf_id) = &updated.leaf_id {
            self.arrived();
            if *leaf_id != self.leaf_id {
                self.leaf_id.clone_from(leaf_id);
                self.walk();
                // The turn that `retry_turn` would repeat is on the branch that was left.
                self.last_turn = None;
            }
        }
        replace(&mut self.name, &updated.name);
        replace(&mut self.model, &updated.model);
        replace(&mut self.strategy, &updated.strategy);
        replace(&mut self.settings, &updated.settings);
        replace(&mut self.pins, &updated.pins);
        replace(&mut self.standing_approvals, &updated.standing_approvals);
        replace(&mut self.generation, &updated.generation);
    }

    fn presence_changed(&mut self, PresenceChanged { connection, left }: &PresenceChanged) {
        let known = self.presence.iter_mut().find(|known| known.connection_id == connection.connection_id);
        match known {
            _ if *left => self.presence.retain(|known| known.connection_id != connection.connection_id),
            Some(known) => known.clone_from(connection),
            None => self.presence.push(connection.clone()),
        }
    }
}

/// Replaces a field by the event's new value, if there is one.
fn replace<T: Clone>(field: &mut T, new: &Option<T>) {
    if let Some(new) = new {
        field.clone_from(new);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Told, entry, id, opened, snapshot};
    use super::*;
    use reseed_protocol::tagged::Unknown;
    use serde_json::{Value, json};

    #[test]
    fn a_durable_event_is_the_next_was_seen_or_leaves_a_gap() {
        for (seq, applied, name) in [
            (0, Applied::Seen, ""),
            (1, Applied::Seen, ""),
            (2, Applied::Next, "other"),
            (3, Applied::Gap, ""),
            (u64::MAX, Applied::Gap, ""),
        ] {
            let mut told = Told::by(snapshot());
            let before = told.snapshot.clone();
            assert_eq!(told.at(seq, "session_updated", json!({"name": "other"})), applied, "seq {seq}");
            assert_eq!(told.snapshot.name, name);
            assert_eq!(told.snapshot == before, applied != Applied::Next, "seq {seq}");
        }
    }

    #[test]
    fn an_event_that_is_not_known_only_counts() {
        let surprise = Event::Unknown(Unknown { name: "surprise".into(), payload: json!({}) });
        let mut told = Told::by(snapshot());
        let before = told.snapshot.clone();
        assert_eq!(told.snapshot.apply(3, &surprise), Applied::Gap);
        assert_eq!(told.snapshot, before);
        assert_eq!(told.snapshot.apply(2, &surprise), Applied::Next);
        assert_eq!(told.snapshot, Snapshot { seq: 2, as_of_seq: 2, ..before });
        assert_eq!(told.snapshot.apply(2, &surprise), Applied::Seen);
    }

    #[test]
    fn the_path_follows_entries_and_moves() {
        let mut told = Told::by(snapshot());
        let moved = |told: &mut Told, to: &str| told.durable("session_updated", json!({"leafId": to}));
        told.appended("a", None);
        told.appended("b", Some("a"));
        told.appended("c", Some("b"));
        assert_eq!(told.path(), ("a b c".to_owned(), false));
        moved(&mut told, "a");
        assert_eq!(told.path(), ("a".to_owned(), false));
        told.appended("d", Some("a"));
        assert_eq!(told.path(), ("a d".to_owned(), false));
        moved(&mut told, "c");
        assert_eq!(told.path(), ("a b c".to_owned(), false));
        moved(&mut told, "root");
        assert_eq!((told.path(), told.snapshot.leaf_id.clone()), ((String::new(), false), None));
        told.appended("e", None);
        assert_eq!(told.path(), ("e".to_owned(), false));

        // A move to an unknown entry.
        moved(&mut told, "x");
        assert_eq!(told.path(), (String::new(), true));
        told.appended("y", Some("x"));
        assert_eq!(told.path(), ("y".to_owned(), true));
        // A move to an entry's parent is not reported if the entry follows at once.
        told.appended("z", Some("b"));
        assert_eq!(told.path(), ("a b z".to_owned(), false));
        told.appended("v", Some("u"));
        assert_eq!(told.path(), ("v".to_owned(), true));
        assert_eq!(told.snapshot.entries.len(), 8);
    }

    #[test]
    fn an_entry_is_stored_once() {
        let mut told = Told::by(Snapshot::opened(opened(json!({"entries": [entry("a", None)], "leafId": "a"}))));
        told.appended("b", Some("a"));
        for name in ["a", "b"] {
            let known = told.snapshot.entries.get(&id(name)).expect("it was told");
            assert!(told.snapshot.path.iter().any(|shown| Arc::ptr_eq(shown, known)), "{name} is shared with the path");
        }
    }

    #[test]
    fn a_turn_that_ends_without_an_answer_is_remembered_until_something_is_said() {
        let size = serde_json::to_value(snapshot().context_info).unwrap();
        for (status, unanswered) in [("completed", 0), ("failed", 1), ("cancelled", 1), ("interrupted", 1)] {
            let mut told = Told::by(snapshot());
            told.appended("a", None);
            told.durable("turn_started", json!({"turnId": "t1", "commandIds": [], "generation": 1}));
            let call = json!({
                "toolCallId": "c1", "turnId": "t1", "name": "weather", "arguments": "{}",
                "deadline": "2026-11-21T09:16:00Z",
            });
            told.durable("tool_call", call);
            told.durable("turn_finished", json!({"turnId": "t1", "status": status, "contextInfo": size.clone()}));
            let now = &told.snapshot;
            assert_eq!(
                (now.unanswered_turns.len(), now.last_turn.is_some()),
                (unanswered, unanswered == 1),
                "{status}"
            );
            assert!(now.unanswered_turns.iter().all(|turn| turn.leaf_id == Some(id("a"))));
            assert_eq!((&now.turn, now.pending.as_slice()), (&None, [].as_slice()));
            told.durable("session_updated", json!({"leafId": "a"}));
            assert_eq!(told.snapshot.last_turn.is_some(), unanswered == 1, "it has not moved");
            told.durable("session_updated", json!({"leafId": "root"}));
            assert_eq!((&told.snapshot.last_turn, told.snapshot.unanswered_turns.len()), (&None, unanswered));
        }
    }

    #[test]
    fn a_call_that_is_pending_is_told_once_reports_and_is_resolved() {
        let mut told = Told::by(snapshot());
        for number in ["c1", "c2", "c1"] {
            let call = json!({
                "toolCallId": number, "turnId": "t1", "name": "weather", "arguments": "{}",
                "deadline": "2026-11-21T09:16:00Z",
            });
            told.durable("tool_call", call);
        }
        let deadline = "2026-11-21T09:20:00Z";
        told.ephemeral("call_progressed", json!({"toolCallId": "c1", "message": "asking", "deadline": deadline}));
        told.ephemeral("call_progressed", json!({"hookCallId": "h1", "message": "hooked", "deadline": deadline}));
        let calls: Vec<_> = told.snapshot.pending.iter().map(|call| (call.call_id.as_str(), &call.message)).collect();
        assert_eq!(calls, [("c2", &None), ("c1", &Some("asking".to_owned()))]);
        assert!(told.snapshot.pending[0].deadline < told.snapshot.pending[1].deadline);
        told.durable("call_resolved", json!({"toolCallId": "c2", "outcome": "answered"}));
        assert_eq!(told.snapshot.pending.len(), 1);
    }

    #[test]
    fn a_delay_lasts_until_the_answer_starts_or_the_turn_is_over() {
        let turn = |number: &str| json!({"turnId": number, "commandIds": [], "generation": 1});
        let wait =
            |number: &str| json!({"turnId": number, "attempt": 2, "waitMs": 12000, "reason": "upstream_overloaded"});
        let started = json!({"itemId": "a1", "turnId": "t9", "kind": "message"});
        let answer = json!({"entry": {
            "entryId": "a1", "parentId": null, "timestamp": "2026-11-21T09:16:00Z", "type": "message",
            "role": "assistant", "content": [],
        }});
        let info = serde_json::to_value(&snapshot().context_info).unwrap();
        let finished = json!({"turnId": "t9", "status": "failed", "contextInfo": info});
        type Tell = fn(&mut Told, &str, Value);
        let ends: [(&str, Tell, Value); 3] = [
            ("item_started", Told::ephemeral, started),
            ("entry_appended", Told::durable, answer),
            ("turn_finished", Told::durable, finished),
        ];
        for (kind, tell, payload) in ends {
            let mut told = Told::by(snapshot());
            told.durable("turn_started", turn("t9"));
            told.ephemeral("request_delayed", wait("t8"));
            assert_eq!(told.snapshot.delayed, None);
            told.ephemeral("request_delayed", wait("t9"));
            assert_eq!(told.snapshot.delayed.as_ref().map(|delayed| delayed.wait_ms), Some(12_000));
            tell(&mut told, kind, payload);
            assert_eq!(told.snapshot.delayed, None, "{kind}");
        }
    }

    #[test]
    fn a_warning_lasts_until_the_context_is_measured() {
        let mut told = Told::by(snapshot());
        let size = serde_json::to_value(&told.snapshot.context_info).unwrap();
        told.ephemeral("context_warning", json!({"usageRatio": 0.95, "message": "nearly full"}));
        assert_eq!(told.snapshot.warning.as_deref(), Some("nearly full"));
        told.ephemeral("context_updated", json!({"turnId": "t1", "contextInfo": size}));
        assert_eq!(told.snapshot.warning, None);
    }
}
