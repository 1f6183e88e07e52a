//! Turns the steps of a turn into the events of a response, and into the response itself.

use super::{
    events::Events,
    ids::item_id,
    items::{AT_THE_END, Body, Calls, Item, Items},
    resource::Resource,
    tools::Names,
};
use crate::exchange::{Ended, Step, added};
use reseed_protocol::{
    Entry, EntryId, Timestamp,
    turn::{DeltaKind, TurnStatus},
};
use serde_json::Value;

/// Writes one response.
#[derive(Debug)]
pub(super) struct Writer {
    resource: Resource,
    events: Events,
    names: Names,
    calls: Calls,
    /// The number of entries so far.
    entries: usize,
    /// True once a person was asked to allow a call.
    asks: bool,
    /// True if the turn began with an earlier response.
    goes_on: bool,
    /// The answer that is being streamed.
    streamed: Option<Streamed>,
    last_at: Timestamp,
}

/// The part of an answer that was streamed before its entry is known.
#[derive(Debug)]
struct Streamed {
    entry: EntryId,
    /// The items whose text is complete, with their places.
    closed: Vec<(u64, Item)>,
    /// The place, the kind, the part and the text of the item that is being streamed.
    open: Option<(u64, DeltaKind, u32, String)>,
    /// True once a call has started: what follows is written when the entry is known.
    waits: bool,
}

impl Writer {
    /// Begins to write a response, for a client that has the events up to `seen`.
    pub(super) fn new(resource: Resource, seen: Option<u64>) -> Self {
        let names = Names::of_stored(&resource.stored);
        let mut events = Events::new(seen);
        events.response("response.created", &resource.streamed());
        events.response("response.in_progress", &resource.streamed());
        let last_at = resource.created_at;
        Self {
            resource,
            events,
            names,
            calls: Calls::new(),
            entries: 0,
            asks: false,
            goes_on: false,
            streamed: None,
            last_at,
        }
    }

    /// Takes the events that are ready.
    pub(super) fn take(&mut self) -> Vec<Value> {
        self.events.take()
    }

    /// Ends a response that is a summary.
    pub(super) fn ends_with_summary(&mut self, sealed: String, summary: String) {
        let body = Body::Compaction(sealed, summary);
        let id = item_id(&self.resource.id.session, &self.resource.id.entry, 0, body.prefix());
        self.put(Item { id, order: AT_THE_END, is_whole: true, body });
        self.ends_without_answer();
    }

    /// Ends a response that only stores its input, or whose turn goes on with the next one.
    pub(super) fn ends_without_answer(&mut self) {
        self.end(Ended { status: TurnStatus::Completed, finish_reason: None, error: None, usage: None });
    }

    /// Goes on with a turn in which these calls are open.
    pub(super) fn goes_on(&mut self, calls: Calls) {
        self.calls = calls;
        self.goes_on = true;
    }

    /// Returns true if a person must allow a call before the turn goes on.
    pub(super) fn is_asking(&self) -> bool {
        self.asks && !self.is_over()
    }

    /// Returns the number of the newest event that was no delta.
    pub(super) fn number(&self) -> u64 {
        self.events.number()
    }

    /// Returns what the client must give before the conversation goes on: the results of its functions, and what people
    /// decide.
    pub(super) fn required_input(&self) -> Vec<Value> {
        self.resource.required_input()
    }

    /// Returns true if the response is part of a conversation that has an id of its own.
    pub(super) fn in_conversation(&self) -> bool {
        self.resource.stored["in_conversation"] == true
    }

    /// Returns the names of the client's tools.
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    /// Returns the time of the input.
    pub(super) fn created_at(&self) -> Timestamp {
        self.resource.created_at
    }

    /// Returns the response as it is now.
    pub(super) fn shown(&self) -> Value {
        self.resource.shown()
    }

    /// Returns true once the response has ended.
    pub(super) fn is_over(&self) -> bool {
        self.resource.ended.is_some()
    }

    /// Returns true if the response has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.resource.status().0 == "failed"
    }

    /// Takes the next step of the turn.
    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Started { item, part, kind, .. } => self.start(&item, part, kind),
            Step::Delta(delta) => {
                let Some(streamed) = self.streamed.as_mut().filter(|streamed| streamed.entry == delta.item) else {
                    return;
                };
                let Some((_, _, part, text)) = streamed.open.as_mut() else { return };
                if *part == delta.part {
                    text.push_str(&delta.text);
                    self.events.text(delta.offset, &delta.text);
                }
            }
            Step::Aborted(item) => {
                if self.streamed.as_ref().is_some_and(|streamed| streamed.entry == item) {
                    self.give_up();
                }
            }
            Step::Entry(entry) => self.entry(&entry),
            Step::Approval(approval) => {
                self.asks = true;
                self.put(Item::of_approval(&approval));
            }
            Step::Finished(ended) => self.end(*ended),
            Step::Failed(error) => {
                self.end(Ended {
                    status: TurnStatus::Interrupted,
                    finish_reason: None,
                    error: Some(error),
                    usage: None,
                });
            }
            Step::Delayed(_) | Step::Compaction(_) => {}
        }
    }

    fn start(&mut self, entry: &EntryId, part: u32, kind: DeltaKind) {
        if self.streamed.as_ref().is_none_or(|streamed| streamed.entry != *entry) {
            self.give_up();
            self.streamed = Some(Streamed { entry: entry.clone(), closed: Vec::new(), open: None, waits: false });
        }
        self.close_open(true);
        let Some(streamed) = &mut self.streamed else { return };
        streamed.waits |= kind == DeltaKind::Arguments;
        if streamed.waits {
            return;
        }
        let body = body_of(kind, String::new());
        let id = item_id(&self.resource.id.session, entry, streamed.closed.len(), body.prefix());
        let place = self.events.start(Item { id, order: (self.entries, streamed.closed.len()), is_whole: true, body });
        streamed.open = Some((place, kind, part, String::new()));
    }

    /// Ends the text that is being streamed.
    fn close_open(&mut self, is_whole: bool) {
        let Some(streamed) = &mut self.streamed else { return };
        let Some((place, kind, _, text)) = streamed.open.take() else { return };
        let body = body_of(kind, text);
        self.events.close(&body);
        let id = item_id(&self.resource.id.session, &streamed.entry, streamed.closed.len(), body.prefix());
        let order = (self.entries, streamed.closed.len());
        streamed.closed.push((place, Item { id, order, is_whole, body }));
    }

    /// Ends an answer that will not become an entry, with what was shown of it.
    fn give_up(&mut self) {
        self.close_open(false);
        for (place, item) in self.streamed.take().into_iter().flat_map(|streamed| streamed.closed) {
            let item = Item { is_whole: false, ..item };
            self.events.done(place, &item);
            self.resource.output.push(item);
        }
    }

    fn entry(&mut self, entry: &Entry) {
        // Marks and labels may be put behind an answer long after it.
        let Some(message) = entry.message() else { return };
        self.last_at = entry.timestamp;
        if let Some(usage) = &message.usage {
            self.resource.usage = Some(added(self.resource.usage.take(), usage));
        }
        if let Some(model) = &message.model {
            self.resource.model.clone_from(model);
        }
        let Items { streamed: texts, others } = Item::of_entry(
            (&self.resource.id.session, &entry.entry_id, self.entries),
            message,
            &self.names,
            &mut self.calls,
        );
        let is_other = |streamed: &Streamed| streamed.entry != entry.entry_id;
        if self.streamed.as_ref().is_some_and(is_other) {
            self.give_up();
        }
        let mut closed = Vec::new();
        if let Some(Streamed { closed: earlier, open, .. }) = self.streamed.take() {
            closed = earlier;
            if let Some((place, kind, _, text)) = open {
                let known = texts.get(closed.len()).map(|item| item.body.clone());
                let body = known.unwrap_or_else(|| body_of(kind, text));
                self.events.close(&body);
                let id = item_id(&self.resource.id.session, &entry.entry_id, closed.len(), body.prefix());
                closed.push((place, Item { id, order: (self.entries, closed.len()), is_whole: true, body }));
            }
        }
        for item in texts.iter().skip(closed.len()) {
            let place = self.events.start(item.clone());
            self.events.close(&item.body);
            closed.push((place, item.clone()));
        }
        for (at, (place, shown)) in closed.into_iter().enumerate() {
            let item = texts.get(at).cloned().unwrap_or(shown);
            self.events.done(place, &item);
            self.resource.output.push(item);
        }
        others.into_iter().for_each(|item| self.put(item));
        self.entries += 1;
    }

    fn put(&mut self, item: Item) {
        self.events.whole(&item);
        self.resource.output.push(item);
    }

    fn end(&mut self, ended: Ended) {
        if self.is_over() {
            return;
        }
        self.give_up();
        if ended.status == TurnStatus::Completed {
            let calls = std::mem::take(&mut self.calls);
            Item::of_calls(calls).for_each(|item| self.put(item));
        }
        if ended.usage.is_some() && !self.goes_on {
            self.resource.usage.clone_from(&ended.usage);
        }
        self.resource.ended = Some((ended, self.last_at));
        let (_, name) = self.resource.status();
        let shown = self.resource.streamed();
        self.events.response(name, &shown);
    }
}

fn body_of(kind: DeltaKind, text: String) -> Body {
    match kind {
        DeltaKind::Reasoning => Body::Reasoning(text, None),
        DeltaKind::Text | DeltaKind::Arguments => Body::Message(text),
    }
}
