//! A strict reader of a session's events. Durable events must come in order, each once. Text must come where the
//! previous text ended. What was shown of an answer must be a prefix of its entry, or be declared void before its turn
//! is over.
//!
//! It checks the server, so it shares nothing with the client, whose snapshot is compared with it.

use crate::support::client::Client;
use reseed_client::fold::Snapshot;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// An answer that is partly shown and whose entry has not come.
#[derive(Debug, Clone, Default, PartialEq)]
struct Item {
    turn: Option<String>,
    parts: Vec<String>,
}

/// A client's view of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fold {
    pub(super) session: String,
    pub(super) epoch: String,
    /// The last durable event that was received.
    pub(super) seq: u64,
    /// The durable events by their `seq`, as `{ type, payload }`.
    pub(super) log: BTreeMap<u64, Value>,
    items: BTreeMap<String, Item>,
    /// Answers that were declared void.
    pub(super) void: Vec<String>,
    /// The running turn.
    pub(super) turn: Option<String>,
    /// The number of waiting inputs.
    pub(super) queued: usize,
    /// The ids of open calls.
    pub(super) pending: Vec<String>,
    /// The compaction that runs or was ordered.
    pub(super) compaction: Option<String>,
    /// The number of times that the session was opened with a snapshot, the first time included.
    pub(super) snapshots: usize,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// Returns the text of a part, or the arguments of a call.
fn text_of(part: &Value) -> &str {
    part["text"].as_str().or(part["arguments"].as_str()).unwrap_or_default()
}

fn utf16(text: &str) -> u64 {
    text.encode_utf16().count() as u64
}

impl Fold {
    /// Applies the reply to `open_session`.
    pub(super) fn opened(&mut self, opened: &Value) {
        let replay = opened["resumed"] == "replay";
        if replay {
            assert_eq!((&self.session, &self.epoch), (&text(&opened["sessionId"]), &text(&opened["epoch"])));
            assert!(opened["asOfSeq"].as_u64().unwrap() >= self.seq, "{opened} at {}", self.seq);
            assert!(opened.get("entries").is_none(), "a replay needs no state: {opened}");
        } else {
            let snapshots = self.snapshots + 1;
            *self = Self {
                session: text(&opened["sessionId"]),
                epoch: text(&opened["epoch"]),
                seq: opened["asOfSeq"].as_u64().unwrap(),
                snapshots,
                ..Self::default()
            };
            // A replay repeats what was queued meanwhile.
            self.queued = opened["queue"].as_array().unwrap().len();
            let turn = &opened["turn"];
            for item in turn["items"].as_array().into_iter().flatten() {
                let parts = item["parts"].as_array().unwrap();
                let parts = parts.iter().map(|part| text_of(part).to_owned()).collect();
                let turn = turn["turnId"].as_str().map(str::to_owned);
                self.items.insert(text(&item["itemId"]), Item { turn, parts });
            }
        }
        self.turn = opened["turn"]["turnId"].as_str().map(str::to_owned);
        self.pending = opened["pending"].as_array().unwrap().iter().map(|call| text(&call["toolCallId"])).collect();
        self.compaction = opened["compaction"]["jobId"].as_str().map(str::to_owned);
    }

    /// Applies an event.
    pub(super) fn take(&mut self, frame: &Value) {
        let payload = &frame["payload"];
        if let Some(seq) = frame["seq"].as_u64() {
            assert_eq!(seq, self.seq + 1, "a hole or a double: {frame}");
            self.seq = seq;
            self.log.insert(seq, json!({ "type": frame["type"], "payload": payload }));
        }
        match frame["type"].as_str().unwrap() {
            "entry_appended" => self.entry(&payload["entry"]),
            "turn_started" => self.turn = Some(text(&payload["turnId"])),
            "turn_finished" => {
                let id = text(&payload["turnId"]);
                let open = self.items.iter().find(|(_, item)| item.turn.as_ref() == Some(&id));
                assert_eq!(open, None, "an answer that was shown has neither an entry nor an end: {self:#?}");
                self.turn = self.turn.take().filter(|turn| *turn != id);
                self.pending.clear();
            }
            "tool_call" => {
                let id = text(&payload["toolCallId"]);
                self.pending.retain(|known| *known != id);
                self.pending.push(id);
            }
            "call_resolved" => self.pending.retain(|id| *id != payload["toolCallId"]),
            "queue_item_added" => self.queued += 1,
            "queue_item_removed" => self.queued -= 1,
            "item_started" if payload["kind"] == "tool_call" => self.call_started(frame),
            "item_started" => {
                let item = self.items.entry(text(&payload["itemId"])).or_default();
                assert!(item.parts.iter().all(String::is_empty), "begun twice: {frame}");
                item.turn = payload["turnId"].as_str().map(str::to_owned);
            }
            "item_delta" => self.delta(frame),
            "item_finished" => {
                let has_begun = self.items.contains_key(payload["itemId"].as_str().unwrap());
                assert!(has_begun, "it has not begun: {frame}");
            }
            "item_aborted" => {
                let id = text(&payload["itemId"]);
                assert!(self.items.remove(&id).is_some(), "nothing was shown of it: {frame}");
                self.void.push(id);
            }
            "compaction_started" => self.compaction = Some(text(&payload["jobId"])),
            // A prepared result is held, so the compaction is no longer running.
            "compaction_prepared" | "context_compacted" | "compaction_failed" => {
                self.compaction = self.compaction.take().filter(|job| *job != payload["jobId"]);
            }
            _ => {}
        }
    }

    /// Handles a call that begins, or is named again after a resume. Only its name may be known so far.
    fn call_started(&mut self, frame: &Value) {
        let payload = &frame["payload"];
        let item = self.items.get_mut(payload["itemId"].as_str().unwrap());
        let item = item.unwrap_or_else(|| panic!("its answer has not begun: {frame}"));
        let part = usize::try_from(payload["part"].as_u64().unwrap()).unwrap();
        if item.parts.len() <= part {
            item.parts.resize(part + 1, String::new());
        }
        assert_eq!(item.parts[part], "", "begun twice: {frame}");
        assert!(payload["name"].is_string(), "a call without a name: {frame}");
    }

    fn delta(&mut self, frame: &Value) {
        let payload = &frame["payload"];
        let item = self.items.get_mut(payload["itemId"].as_str().unwrap());
        let item = item.unwrap_or_else(|| panic!("it has not begun: {frame}"));
        let part = usize::try_from(payload["part"].as_u64().unwrap()).unwrap();
        if item.parts.len() <= part {
            item.parts.resize(part + 1, String::new());
        }
        let shown = &mut item.parts[part];
        assert_eq!(payload["offset"].as_u64().unwrap(), utf16(shown), "text out of place: {frame} after {shown:?}");
        shown.push_str(payload["text"].as_str().unwrap());
    }

    fn entry(&mut self, entry: &Value) {
        let Some(item) = self.items.remove(&text(&entry["entryId"])) else { return };
        for (part, shown) in item.parts.iter().enumerate() {
            let whole = text_of(&entry["content"][part]);
            assert!(whole.starts_with(shown.as_str()), "shown was {shown:?}, the entry is {entry}");
        }
    }

    /// Returns true if nothing is running and nothing waits, as far as this client knows.
    pub(super) fn is_idle(&self) -> bool {
        self.turn.is_none() && self.queued == 0 && self.compaction.is_none()
    }

    /// Returns the number of events of this type in the log.
    pub(super) fn count(&self, kind: &str) -> usize {
        self.log.values().filter(|event| event["type"] == kind).count()
    }

    /// Returns the user entries in the log: the command that sent each, and its text.
    pub(super) fn asked(&self) -> Vec<(String, String)> {
        let entries = self.log.values().filter(|event| event["type"] == "entry_appended");
        let users = entries.filter(|event| event["payload"]["entry"]["role"] == "user");
        users
            .filter_map(|event| {
                let said = event["payload"]["entry"]["content"][0]["text"].as_str()?;
                Some((event["payload"]["commandId"].as_str()?.to_owned(), said.to_owned()))
            })
            .collect()
    }

    /// Checks that a client's snapshot agrees. While events are replayed, this reader already knows what is running and
    /// waiting after them.
    pub(super) fn check(&self, snapshot: &Snapshot, is_replaying: bool) {
        assert_eq!((snapshot.seq, &snapshot.epoch), (self.seq, &self.epoch));
        let shown = snapshot.items.iter().filter(|item| item.aborted().is_none()).map(|item| {
            let texts: Vec<&str> = item.parts().iter().map(|part| part.text()).collect();
            (item.item_id().as_str(), texts)
        });
        let expected =
            self.items.iter().map(|(id, item)| (id.as_str(), item.parts.iter().map(String::as_str).collect()));
        assert_eq!(shown.collect::<BTreeMap<&str, Vec<&str>>>(), expected.collect());
        if is_replaying {
            return;
        }
        assert_eq!(snapshot.turn.as_ref().map(|turn| turn.turn_id.to_string()), self.turn);
        assert_eq!(snapshot.compaction.as_ref().map(|job| job.job_id.to_string()), self.compaction);
        let pending: Vec<String> = snapshot.pending.iter().map(|call| call.call_id.to_string()).collect();
        assert_eq!(pending, self.pending);
        assert_eq!(snapshot.queue.len(), self.queued);
    }
}

/// Returns the view of a client that opens the session now, from its first event on.
pub(super) async fn fresh(url: &str, fold: &Fold) -> Fold {
    let mut client = Client::v2(url).await;
    let resume = json!({ "epoch": fold.epoch, "seq": 0 });
    let open = json!({ "sessionId": fold.session, "role": "observer", "resume": resume });
    let opened = client.ask("open_session", open).await;
    let mut read = Fold { session: fold.session.clone(), epoch: fold.epoch.clone(), ..Fold::default() };
    read.opened(&opened["payload"]);
    while read.seq < fold.seq {
        read.take(&client.next_frame().await.expect("the rest of the events follows"));
    }
    read
}
