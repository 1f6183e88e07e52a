//! Starts and extends a fold: `session_opened`, pages of older entries, and the position to resume from.

use super::{Call, Item, Path, Snapshot, Turn, items::lose};
use reseed_protocol::{
    session::{Resume, ResumeItem, Resumed, SessionOpened},
    tools::PendingCall,
    tree::Entries,
    turn::RunningTurn,
};
use std::sync::Arc;

impl Snapshot {
    /// Creates the snapshot that `session_opened` describes.
    #[must_use]
    pub fn opened(opened: SessionOpened) -> Self {
        let entries = opened.entries.unwrap_or_default();
        let top = entries.first().filter(|_| opened.more == Some(false)).map(|first| first.entry_id.clone());
        let entries = entries.into_iter().collect();
        Self {
            session_id: opened.session_id,
            role: opened.role,
            epoch: opened.epoch,
            seq: opened.as_of_seq,
            state: opened.state,
            name: opened.name.unwrap_or_default(),
            model: opened.model,
            strategy: opened.strategy,
            settings: opened.settings,
            generation: opened.generation,
            warning: opened.context_info.warning.clone(),
            context_info: opened.context_info,
            path: Path::to(&entries, opened.leaf_id.as_ref(), top),
            entries,
            leaf_id: opened.leaf_id,
            turn: opened.turn.as_ref().map(|turn| Turn { turn_id: turn.turn_id.clone() }),
            delayed: None,
            items: running_items(opened.turn),
            last_turn: opened.last_turn,
            unanswered_turns: opened.unanswered_turns,
            failed_compactions: opened.failed_compactions,
            compaction: opened.compaction.map(Into::into),
            held: opened.held,
            undone: opened.undone,
            pins: opened.pins,
            queue: opened.queue,
            pending: opened.pending.into_iter().map(Call::from).collect(),
            approvals: opened.approvals,
            standing_approvals: opened.standing_approvals,
            host: opened.host,
            presence: opened.presence,
            as_of_seq: opened.as_of_seq,
        }
    }

    /// Applies the `session_opened` that answers a resume. With [`Resumed::Replay`], the snapshot continues and the
    /// missed events follow. With [`Resumed::Snapshot`], a new snapshot has replaced it, and the events in between were
    /// not seen.
    pub fn reopened(&mut self, opened: SessionOpened) -> Resumed {
        let is_same = self.session_id == opened.session_id && self.epoch == opened.epoch;
        if opened.resumed != Some(Resumed::Replay) || !is_same {
            let known = std::mem::replace(self, Self::opened(opened));
            self.keep_shown(known);
            return Resumed::Snapshot;
        }
        self.role = opened.role;
        self.delayed = None;
        self.resumed_compaction(opened.compaction);
        self.resumed_calls(opened.pending);
        self.held = opened.held;
        self.host = opened.host;
        self.presence = opened.presence;
        self.as_of_seq = opened.as_of_seq;
        // This is the size after the replay. If there is nothing to replay, no event reports it.
        if opened.as_of_seq == self.seq {
            self.measured(opened.context_info);
        }
        self.resumed_items(opened.turn);
        self.update_state();
        Resumed::Replay
    }

    /// Keeps text that was being written when the connection was lost, if it is neither an entry nor still being
    /// written. It is dropped if this snapshot does not reach back to its position, because it may have become an
    /// earlier entry.
    fn keep_shown(&mut self, known: Self) {
        if known.session_id != self.session_id {
            return;
        }
        let Self { leaf_id, items: mut lost, .. } = known;
        lost.retain(|item| {
            let after = if item.aborted().is_some() { item.after() } else { leaf_id.as_ref() };
            let reaches = after.map_or(!self.path.more(), |after| self.entries.contains(after));
            reaches && !self.entries.contains(item.item_id()) && self.item(item.item_id()).is_none()
        });
        lose(&mut lost, |_| true, "interrupted", leaf_id.as_ref());
        self.items.splice(..0, lost);
    }

    /// Adds new calls, and takes over the current deadlines, because no stored event moves them.
    fn resumed_calls(&mut self, pending: Vec<PendingCall>) {
        for fresh in pending {
            match self.pending.iter_mut().find(|call| call.call_id == fresh.call_id) {
                Some(call) => call.deadline = fresh.deadline,
                None => self.pending.push(fresh.into()),
            }
        }
    }

    /// Keeps the known items, each with the longer text, and adds the new ones. Items of a finished turn stay too. The
    /// following events bring their entries, or report that they were aborted.
    fn resumed_items(&mut self, turn: Option<RunningTurn>) {
        for fresh in running_items(turn) {
            match self.items.iter_mut().find(|item| item.item_id() == fresh.item_id()) {
                Some(known) if fresh.length() > known.length() => *known = fresh,
                Some(_) => {}
                None => self.items.push(fresh),
            }
        }
    }

    /// Returns the position to resume from, for `open_session`.
    #[must_use]
    pub fn resume_point(&self) -> Resume {
        let mut items = Vec::new();
        for item in self.items.iter().filter(|item| item.aborted().is_none()) {
            // An item without text is named too, because the server reports as void only items that it is told about.
            for part in 0..item.parts().len().max(1) {
                let (item_id, offset) = (item.item_id().clone(), item.offset(part));
                items.push(ResumeItem { item_id, part: u32::try_from(part).unwrap_or(u32::MAX), offset });
            }
        }
        Resume { epoch: self.epoch.clone(), seq: self.seq, items: Some(items).filter(|items| !items.is_empty()) }
    }

    /// Adds a page of `get_entries`. Only events move the leaf.
    ///
    /// `is_older` means that the page precedes the oldest known entry of the path. If the server has no more, the path
    /// begins there. Pass `false` if the session may have moved since the page was requested.
    pub fn add_entries(&mut self, page: Entries, is_older: bool) {
        let first = page.items.first().map(|entry| &entry.entry_id);
        let first = first.or(self.path.first().map(|entry| &entry.entry_id));
        let top = first.filter(|_| is_older && !page.more).cloned();
        for entry in page.items {
            self.entries.add(Arc::new(entry));
        }
        match top {
            Some(top) => self.path = Path::to(&self.entries, self.leaf_id.as_ref(), Some(top)),
            None => self.path.extend(&self.entries),
        }
    }

    /// Recomputes the path to the leaf.
    pub(super) fn walk(&mut self) {
        self.path = Path::to(&self.entries, self.leaf_id.as_ref(), self.path.top().cloned());
    }
}

/// Returns the items of a running turn.
fn running_items(turn: Option<RunningTurn>) -> Vec<Item> {
    let Some(RunningTurn { turn_id, items }) = turn else { return Vec::new() };
    items.into_iter().map(|item| Item::running(item, turn_id.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Told, entry, id, opened, read, snapshot};
    use super::super::path::tests::STEPS;
    use super::*;
    use reseed_protocol::session::SessionState;
    use serde_json::{Value, json};

    /// Returns the payload of `entries` with these entries, each with its parent.
    fn page(entries: &[(&str, Option<&str>)], more: bool) -> Entries {
        let items: Vec<_> = entries.iter().map(|(name, parent)| entry(name, *parent)).collect();
        read(json!({"items": items, "leafId": "root", "asOfSeq": 1, "more": more}))
    }

    /// Returns a session whose snapshot contains only the newest entries, `d` and `e`.
    fn newest() -> Told {
        let entries = [entry("d", Some("c")), entry("e", Some("d"))];
        Told::by(Snapshot::opened(opened(json!({"entries": entries, "more": true, "leafId": "e"}))))
    }

    #[test]
    fn a_page_of_older_entries_goes_before_the_path() {
        for (entries, more, is_older, shown, is_more) in [
            (&[("b", Some("a")), ("c", Some("b"))][..], true, true, "b c d e", true),
            (&[("a", None), ("b", Some("a")), ("c", Some("b"))][..], false, true, "a b c d e", false),
            // The records before it are damaged.
            (&[("b", Some("a")), ("c", Some("b"))][..], false, true, "b c d e", false),
            (&[][..], false, true, "d e", false),
            // The page may belong to another branch, so its end is not the end of this one.
            (&[("b", Some("a")), ("c", Some("b"))][..], false, false, "b c d e", true),
            (&[("x", Some("w")), ("y", Some("x"))][..], false, false, "d e", true),
            (&[("d", Some("c"))][..], true, true, "d e", true),
        ] {
            let mut told = newest();
            told.snapshot.add_entries(page(entries, more), is_older);
            assert_eq!(told.path(), (shown.to_owned(), is_more), "{entries:?}, more {more}, older {is_older}");
            assert_eq!(told.snapshot.leaf_id, Some(id("e")));
            assert!(entries.iter().all(|(name, _)| told.snapshot.entries.contains(&id(name))));
        }
    }

    #[test]
    fn the_server_says_where_the_path_begins() {
        for (more, is_more) in [(json!(false), false), (json!(true), true), (Value::Null, true)] {
            let fields = json!({"entries": [entry("d", Some("c"))], "more": more, "leafId": "d"});
            assert_eq!(Told::by(Snapshot::opened(opened(fields))).path(), ("d".to_owned(), is_more), "more {more}");
        }
    }

    #[test]
    fn an_entry_and_a_page_cost_the_same_however_long_the_path_is() {
        let mut told = newest();
        let names: Vec<String> = (0..1000).map(|number| format!("n{number}")).collect();
        let mut parent = "e";
        STEPS.set(0);
        for name in &names {
            told.appended(name, Some(parent));
            parent = name;
        }
        assert_eq!(told.snapshot.path.len(), 1002);
        assert_eq!(STEPS.get(), 0, "entries that were walked over again");
        told.snapshot.add_entries(page(&[("b", Some("a")), ("c", Some("b"))], true), true);
        assert_eq!((told.snapshot.path.len(), STEPS.get()), (1004, 2));
    }

    #[test]
    fn the_resume_point_names_each_part_of_what_is_written() {
        let mut told = Told::by(snapshot());
        assert_eq!(told.snapshot.resume_point().items, None);
        told.ephemeral("item_started", json!({"itemId": "bare", "turnId": "turn", "kind": "message"}));
        told.ephemeral("item_delta", json!({"itemId": "item", "part": 0, "offset": 0, "text": "a🐈"}));
        told.ephemeral("item_delta", json!({"itemId": "item", "part": 2, "offset": 0, "text": "é"}));
        let expected = json!({
            "epoch": "5c3b2f1dec93741a",
            "seq": 1,
            "items": [
                {"itemId": "bare", "part": 0, "offset": 0},
                {"itemId": "item", "part": 0, "offset": 3},
                {"itemId": "item", "part": 1, "offset": 0},
                {"itemId": "item", "part": 2, "offset": 1},
            ],
        });
        assert_eq!(serde_json::to_value(told.snapshot.resume_point()).unwrap(), expected);
    }

    #[test]
    fn a_replay_continues_and_anything_else_begins_anew() {
        let turn = |text: &str| {
            let parts = json!([{"type": "text", "text": text}]);
            json!({"turnId": "turn", "items": [{"itemId": "item", "parts": parts}]})
        };
        for (fields, resumed, shown) in [
            (json!({"resumed": "replay", "turn": turn("so")}), Resumed::Replay, "so far"),
            (json!({"resumed": "replay", "turn": turn("so far and on")}), Resumed::Replay, "so far and on"),
            (json!({"resumed": "replay"}), Resumed::Replay, "so far"),
            (json!({"resumed": "snapshot", "turn": turn("so")}), Resumed::Snapshot, "so"),
            (json!({"turn": turn("so")}), Resumed::Snapshot, "so"),
            (json!({"resumed": "replay", "epoch": "other", "turn": turn("so")}), Resumed::Snapshot, "so"),
            (json!({"resumed": "replay", "sessionId": "other", "turn": turn("so")}), Resumed::Snapshot, "so"),
        ] {
            let mut told = Told::by(Snapshot::opened(opened(json!({"turn": turn("so far"), "state": "running"}))));
            told.durable("session_updated", json!({"name": "kept"}));
            assert_eq!(told.snapshot.reopened(opened(fields.clone())), resumed, "{fields}");
            assert_eq!(told.snapshot.items[0].parts()[0].text(), shown, "{fields}");
            let (name, seq) = if resumed == Resumed::Replay { ("kept", 2) } else { ("", 1) };
            assert_eq!((told.snapshot.name.as_str(), told.snapshot.seq), (name, seq), "{fields}");
            // The text continues where it ends.
            let offset = shown.len();
            told.ephemeral("item_delta", json!({"itemId": "item", "part": 0, "offset": offset, "text": "!"}));
            assert_eq!(told.snapshot.items[0].parts()[0].text(), format!("{shown}!"));
        }
    }

    #[test]
    fn what_was_shown_stays_in_a_new_snapshot_that_reaches_back_to_its_place() {
        let half =
            json!({"turnId": "turn", "items": [{"itemId": "item", "parts": [{"type": "text", "text": "half"}]}]});
        let known = json!({"entries": [entry("a", None)], "leafId": "a", "turn": half, "state": "running"});
        for (entries, shown) in [
            (vec![entry("a", None), entry("b", Some("a"))], true),
            // It has become an entry.
            (vec![entry("a", None), entry("item", Some("a"))], false),
            // It may have become an entry before these.
            (vec![entry("c", Some("b"))], false),
        ] {
            let mut now = Snapshot::opened(opened(known.clone()));
            now.reopened(opened(json!({"resumed": "snapshot", "entries": entries, "more": true, "leafId": "b"})));
            let kept: Vec<_> = now.items.iter().map(|item| (item.aborted(), item.after().cloned())).collect();
            assert_eq!(
                kept,
                if shown { vec![(Some("interrupted"), Some(id("a")))] } else { Vec::new() },
                "{entries:?}"
            );
        }
    }

    #[test]
    fn a_replay_brings_what_no_event_of_the_log_tells() {
        let held = json!({
            "jobId": "j1", "trigger": "threshold", "rung": "extract",
            "tokensBefore": 9, "tokensAfter": 4, "durationMs": 1,
        });
        let fields = json!({
            "resumed": "replay", "asOfSeq": 7, "leafId": "later", "name": "later", "role": "observer", "held": held,
            "host": {"connectionId": "c1"}, "presence": [], "compaction": {"jobId": "j2", "phase": "ordered"},
        });
        let mut now = snapshot();
        let (before, fresh) = (now.clone(), Snapshot::opened(opened(fields.clone())));
        now.reopened(opened(fields));
        assert!(fresh.held.is_some() && fresh.host.is_some() && before.presence != fresh.presence);
        let mut expected = Snapshot { state: SessionState::Compacting, ..before };
        (expected.role, expected.held, expected.host) = (fresh.role, fresh.held, fresh.host);
        (expected.presence, expected.compaction, expected.as_of_seq) = (fresh.presence, fresh.compaction, 7);
        assert_eq!(now, expected);
    }

    #[test]
    fn a_replay_of_nothing_brings_the_size_of_the_context() {
        for (as_of_seq, tokens) in [(1, 77), (2, 42)] {
            let mut told = Told::by(snapshot());
            let mut fresh = opened(json!({"resumed": "replay", "asOfSeq": as_of_seq}));
            fresh.context_info.token_count = 77;
            told.snapshot.reopened(fresh);
            assert_eq!(told.snapshot.context_info.token_count, tokens, "as of {as_of_seq}");
        }
    }
}
