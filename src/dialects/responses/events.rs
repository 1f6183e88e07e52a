//! The events of a streamed response, with numbers that follow from its content.
//!
//! A client that lost its stream continues after the last number that it has seen, on any server and after a restart.
//! So an event's number is not counted as it is sent: pieces of a text differ each time. It is the event's place in the
//! response, in which each UTF-16 code unit of streamed text takes one number, and every other event takes one. The
//! number of a delta is that of its last unit, and numbers rise from event to event.

use super::{
    items::{Body, Item, reasoning_part, text_part},
    tools::Kind,
};
use crate::exchange::after_units;
use serde_json::{Value, json};

/// Writes the events of one response.
#[derive(Debug)]
pub(super) struct Events {
    /// The number of the next event that is not a delta.
    next: u64,
    /// The client has the events up to this number.
    seen: Option<u64>,
    /// The number of items that have started.
    started: u64,
    open: Option<Open>,
    ready: Vec<Value>,
}

/// The item that is being streamed.
#[derive(Debug)]
struct Open {
    item: Item,
    place: u64,
    /// The units of its text that were written.
    units: u64,
}

/// Returns the length of a text in UTF-16 code units.
fn units(text: &str) -> u64 {
    text.encode_utf16().count() as u64
}

impl Events {
    /// Starts a stream, for a client that has the events up to `seen`.
    pub(super) fn new(seen: Option<u64>) -> Self {
        Self { next: 0, seen, started: 0, open: None, ready: Vec::new() }
    }

    /// Takes the events that are ready, in order.
    pub(super) fn take(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.ready)
    }

    /// Returns the number of the newest event that was no delta.
    pub(super) fn number(&self) -> u64 {
        self.next.saturating_sub(1)
    }

    /// Adds an event that takes one number.
    fn event(&mut self, mut event: Value) {
        let number = self.next;
        self.next += 1;
        if self.seen.is_none_or(|seen| number > seen) {
            event["sequence_number"] = number.into();
            self.ready.push(event);
        }
    }

    /// Adds an event with the response as it is now, such as `response.created`.
    pub(super) fn response(&mut self, name: &str, response: &Value) {
        self.event(json!({ "type": name, "response": response }));
    }

    /// Starts an item, and returns its place in the output. Texts are streamed one after another.
    pub(super) fn start(&mut self, item: Item) -> u64 {
        let place = self.started;
        self.started += 1;
        self.event(json!({ "type": "response.output_item.added", "output_index": place, "item": item.started() }));
        let part = match &item.body {
            Body::Message(_) => Some(text_part("")),
            Body::Reasoning(..) => Some(reasoning_part("")),
            Body::Call { .. } | Body::Made { .. } | Body::Asked { .. } | Body::Compaction(..) => None,
        };
        if let Some(part) = part {
            self.event(json!({
                "type": "response.content_part.added", "item_id": item.id, "output_index": place,
                "content_index": 0, "part": part,
            }));
        }
        self.open = Some(Open { item, place, units: 0 });
        place
    }

    /// Writes the text of the open item up to here: `text` begins at this offset, in UTF-16 code units.
    pub(super) fn text(&mut self, offset: u64, text: &str) {
        let Some(open) = &mut self.open else { return };
        let text = after_units(text, open.units.saturating_sub(offset));
        let (from, length) = (open.units, units(text));
        if length == 0 {
            return;
        }
        open.units += length;
        // What the client has of it is left out.
        let had = self.seen.map_or(0, |seen| (seen + 1).saturating_sub(self.next + from)).min(length);
        let rest = after_units(text, had);
        if rest.is_empty() {
            return;
        }
        let name = match &open.item.body {
            Body::Message(_) => "response.output_text.delta",
            Body::Reasoning(..) => "response.reasoning.delta",
            Body::Call { tool, .. } => &format!("{}.delta", tool.event()),
            Body::Made { .. } | Body::Asked { .. } | Body::Compaction(..) => return,
        };
        let mut event = json!({
            "type": name, "item_id": open.item.id, "output_index": open.place, "delta": rest,
            "sequence_number": self.next + open.units - 1,
        });
        match &open.item.body {
            Body::Message(_) => {
                event["content_index"] = 0.into();
                event["logprobs"] = json!([]);
            }
            Body::Reasoning(..) => event["content_index"] = 0.into(),
            Body::Call { .. } | Body::Made { .. } | Body::Asked { .. } | Body::Compaction(..) => {}
        }
        self.ready.push(event);
    }

    /// Ends the text of the open item, which is now this one's.
    pub(super) fn close(&mut self, body: &Body) {
        let text = match body {
            Body::Message(text) | Body::Reasoning(text, _) => text,
            Body::Call { tool, given, .. } if tool.kind != Kind::Search => given,
            Body::Call { .. } | Body::Made { .. } | Body::Asked { .. } | Body::Compaction(..) => "",
        };
        self.text(0, text);
        let Some(Open { item, place, units }) = self.open.take() else { return };
        self.next += units;
        let id = item.id;
        match body {
            Body::Message(_) => {
                self.event(json!({
                    "type": "response.output_text.done", "item_id": id, "output_index": place, "content_index": 0,
                    "text": text, "logprobs": [],
                }));
                self.event(json!({
                    "type": "response.content_part.done", "item_id": id, "output_index": place, "content_index": 0,
                    "part": text_part(text),
                }));
            }
            Body::Reasoning(..) => {
                self.event(json!({
                    "type": "response.reasoning.done", "item_id": id, "output_index": place, "content_index": 0,
                    "text": text,
                }));
                self.event(json!({
                    "type": "response.content_part.done", "item_id": id, "output_index": place, "content_index": 0,
                    "part": reasoning_part(text),
                }));
            }
            Body::Call { tool, .. } if tool.kind != Kind::Search => self.event(json!({
                "type": format!("{}.done", tool.event()), "item_id": id, "output_index": place, tool.kind().1: text,
            })),
            Body::Call { .. } | Body::Made { .. } | Body::Asked { .. } | Body::Compaction(..) => {}
        }
    }

    /// Writes that the item at this place is complete. What came with a text, such as sealed reasoning, is known only
    /// once the whole answer is, so this may come after later items have started.
    pub(super) fn done(&mut self, place: u64, item: &Item) {
        self.event(json!({ "type": "response.output_item.done", "output_index": place, "item": item.shown() }));
    }

    /// Writes a whole item.
    pub(super) fn whole(&mut self, item: &Item) {
        let place = self.start(item.clone());
        self.close(&item.body);
        self.done(place, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responses::tools::Named;

    fn items() -> Vec<Item> {
        let item = |id: &str, body| Item { id: id.to_owned(), order: (0, 0), is_whole: true, body };
        vec![
            item("rs_a_0", Body::Reasoning("The tide… 🌊 turns.".to_owned(), None)),
            item("msg_a_1", Body::Message("At five. ⛵ Go early.".to_owned())),
            item(
                "fc_a_2",
                Body::Call {
                    call_id: "call".to_owned(),
                    tool: Named { name: "look".to_owned(), namespace: None, kind: Kind::Function },
                    given: r#"{"at":"sea"}"#.to_owned(),
                },
            ),
            item(
                "ctc_a_3",
                Body::Call {
                    call_id: "code".to_owned(),
                    tool: Named {
                        name: "exec".to_owned(),
                        namespace: Some("functions".to_owned()),
                        kind: Kind::Custom,
                    },
                    given: "text(\"⛵\")".to_owned(),
                },
            ),
            item(
                "mcp_b_0",
                Body::Made {
                    name: "look".to_owned(),
                    arguments: "{}".to_owned(),
                    output: "calm".to_owned(),
                    is_error: false,
                },
            ),
        ]
    }

    fn streamed(body: &Body) -> &str {
        match body {
            Body::Message(text) | Body::Reasoning(text, _) => text,
            Body::Call { given, .. } => given,
            Body::Made { .. } | Body::Asked { .. } | Body::Compaction(..) => "",
        }
    }

    /// Returns all events, with texts in pieces of this many characters.
    fn all(piece: usize, seen: Option<u64>) -> Vec<Value> {
        let mut events = Events::new(seen);
        events.response("response.created", &json!({}));
        for item in items() {
            let place = events.start(item.clone());
            let text: Vec<char> = streamed(&item.body).chars().collect();
            let mut offset = 0;
            for piece in text.chunks(piece) {
                let piece: String = piece.iter().collect();
                events.text(offset, &piece);
                offset += units(&piece);
            }
            events.close(&item.body);
            events.done(place, &item);
        }
        events.response("response.completed", &json!({}));
        events.take()
    }

    fn number(event: &Value) -> u64 {
        event["sequence_number"].as_u64().expect("a number")
    }

    /// Returns what a client knows after these events: the texts by item, and the other events.
    fn folded(events: &[Value]) -> (std::collections::BTreeMap<String, String>, Vec<Value>) {
        let (mut texts, mut others) = (std::collections::BTreeMap::<String, String>::new(), Vec::new());
        for event in events {
            match (event["item_id"].as_str(), event["delta"].as_str()) {
                (Some(id), Some(delta)) => texts.entry(id.to_owned()).or_default().push_str(delta),
                _ => others.push(event.clone()),
            }
        }
        (texts, others)
    }

    #[test]
    fn numbers_rise_and_do_not_depend_on_the_pieces() {
        let whole = all(usize::MAX, None);
        for piece in 1..9 {
            let events = all(piece, None);
            assert!(events.is_sorted_by(|a, b| number(a) < number(b)), "{piece}");
            assert_eq!(folded(&events), folded(&whole), "{piece}");
        }
    }

    #[test]
    fn a_stream_continues_exactly_after_any_number_whatever_the_pieces() {
        for before in 1..6 {
            let events = all(before, None);
            let (texts, others) = folded(&events);
            for (count, last) in events.iter().enumerate() {
                for after in [1, 2, 5, usize::MAX] {
                    let rest = all(after, Some(number(last)));
                    let had = [&events[..=count], &rest[..]].concat();
                    assert_eq!(folded(&had), (texts.clone(), others.clone()), "{before} {count} {after}");
                }
            }
        }
    }
}
