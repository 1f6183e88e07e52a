//! Reads a streamed Responses answer.
//!
//! The answer ends with `response.completed`, `response.incomplete` or `response.failed`. An item is identified by its
//! `output_index`; if a server omits that, by its id; if it omits both, the latest item is meant. Ids are the weaker
//! key, because some servers use one twice or a new one in each event. What was not streamed is taken from the finished
//! item, so that nothing is lost and nothing shown twice. Events of other types are skipped.

use super::usage::Usage;
use crate::{
    core::model::ModelFault,
    provider::{
        fault::{classify, fault},
        upstream::{Assembly, Decoder, Ending, Piece, Progress, Text, lax},
    },
};
use jiff::Timestamp;
use reqwest::header::HeaderMap;
use reseed_protocol::{ErrorCode, StopReason};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

#[derive(Debug, Default)]
pub(super) struct ResponsesStream {
    /// The unfinished items.
    open: Vec<OpenItem>,
    ending: Option<Ending>,
}

/// An item being extended by events.
#[derive(Debug)]
struct OpenItem {
    index: Option<u64>,
    id: Option<String>,
    /// The positions within the item (of a message's content, of a reasoning's summary) and their parts of the answer.
    places: Vec<(u64, usize)>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow, default, deserialize_with = "lax")]
    kind: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    item_id: Option<Text<'a>>,
    #[serde(default, deserialize_with = "lax")]
    output_index: Option<u64>,
    #[serde(default, deserialize_with = "lax")]
    content_index: Option<u64>,
    #[serde(default, deserialize_with = "lax")]
    summary_index: Option<u64>,
    #[serde(borrow, default, deserialize_with = "lax")]
    delta: Option<Text<'a>>,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(rename = "type", borrow, default, deserialize_with = "lax")]
    kind: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    id: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    call_id: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    name: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    arguments: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    content: Option<Vec<Content<'a>>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    summary: Option<Vec<Content<'a>>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    encrypted_content: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow, default, deserialize_with = "lax")]
    text: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    refusal: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow, default, deserialize_with = "lax")]
    status: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    incomplete_details: Option<Incomplete<'a>>,
    #[serde(default, deserialize_with = "lax")]
    usage: Option<Usage>,
    #[serde(borrow, default, deserialize_with = "lax")]
    output: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct Incomplete<'a> {
    #[serde(borrow, default, deserialize_with = "lax")]
    reason: Option<Text<'a>>,
}

/// Identifies the item that an event refers to.
#[derive(Clone, Copy)]
struct Key<'a> {
    index: Option<u64>,
    id: Option<&'a str>,
}

/// Most items that may be unfinished at once. Models work on one, or on some calls in parallel.
const OPEN_ITEMS_MAX: usize = 1024;
/// Offset that keeps the positions of summaries apart from those of contents.
const SUMMARY_PLACES: u64 = 1 << 32;

impl Decoder for ResponsesStream {
    fn event(&mut self, data: &str, assembly: &mut Assembly<'_>) -> Result<Progress, ModelFault> {
        if data.trim() == "[DONE]" {
            return Ok(Progress::Done);
        }
        let event: Event<'_> = serde_json::from_str(data).map_err(|_| malformed("an event is not a JSON object"))?;
        if self.open.len() >= OPEN_ITEMS_MAX {
            return Err(malformed("too many unfinished items"));
        }
        let kind = event.kind.as_ref().map_or("", Text::as_str);
        let key = Key { index: event.output_index, id: event.item_id.as_ref().map(Text::as_str) };
        let place = event.content_index.or(event.summary_index.map(|n| SUMMARY_PLACES + n)).unwrap_or(0);
        let delta = event.delta.as_ref().map_or("", Text::as_str);
        match kind {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.item(key).add(place, delta, text, assembly)?
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.item(key).add(place, delta, reasoning, assembly)?;
            }
            "response.function_call_arguments.delta" => self.item(key).add(place, delta, call, assembly)?,
            "response.output_item.added" => self.added(event.output_index, event.item, assembly)?,
            "response.output_item.done" => self.finished(event.output_index, event.item, assembly)?,
            "response.completed" | "response.incomplete" => self.end(kind, event.response, assembly)?,
            "response.failed" | "error" => return Err(failed(data, event.response)),
            _ if event.error.is_some() => return Err(failed(data, None)),
            _ => {}
        }
        Ok(Progress::More)
    }

    fn ending(&self) -> Option<Ending> {
        self.ending
    }
}

impl ResponsesStream {
    /// Returns the index of the open item that a key refers to; opens a new one if there is none.
    fn find(&mut self, key: Key<'_>) -> usize {
        let last = self.open.len().checked_sub(1).filter(|&at| self.open[at].is_named(key).is_none());
        let at = self.open.iter().rposition(|item| item.is_named(key) == Some(true)).or(last);
        at.unwrap_or_else(|| {
            self.open.push(OpenItem { index: key.index, id: key.id.map(str::to_owned), places: Vec::new() });
            self.open.len() - 1
        })
    }

    fn item(&mut self, key: Key<'_>) -> &mut OpenItem {
        let at = self.find(key);
        &mut self.open[at]
    }

    /// Handles the start of an item. A call gets its part of the answer now: its name is known, its arguments may be
    /// empty.
    fn added(
        &mut self,
        index: Option<u64>,
        raw: Option<&RawValue>,
        assembly: &mut Assembly<'_>,
    ) -> Result<(), ModelFault> {
        let Some(sent) = raw.and_then(Item::read) else { return Ok(()) };
        let mut item = OpenItem { index, id: sent.id.as_ref().map(|id| id.as_str().to_owned()), places: Vec::new() };
        if sent.kind() == "function_call" {
            item.name_call(&sent, assembly)?;
        }
        self.open.push(item);
        Ok(())
    }

    /// Handles the end of an item.
    fn finished(
        &mut self,
        index: Option<u64>,
        raw: Option<&RawValue>,
        assembly: &mut Assembly<'_>,
    ) -> Result<(), ModelFault> {
        let Some((raw, sent)) = raw.and_then(|raw| Some((raw, Item::read(raw)?))) else { return Ok(()) };
        let key = Key { index, id: sent.id.as_ref().map(Text::as_str) };
        let at = self.find(key);
        let mut item = self.open.remove(at);
        match sent.kind() {
            "message" => item.fill(0, sent.content.as_deref(), text, assembly),
            "function_call" => {
                let part = item.name_call(&sent, assembly)?;
                if let Some(whole) = sent.arguments.as_ref().filter(|_| assembly.lacks_arguments(part)) {
                    assembly.extend(part, whole.as_str())?;
                }
                assembly.end_call(part);
                Ok(())
            }
            "reasoning" => {
                item.fill(0, sent.content.as_deref(), reasoning, assembly)?;
                item.fill(SUMMARY_PLACES, sent.summary.as_deref(), reasoning, assembly)?;
                item.keep_payload(raw, &sent, assembly)
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, kind: &str, raw: Option<&RawValue>, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        let response: Response<'_> = raw
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .ok_or_else(|| malformed("the final event has no response"))?;
        // For a server that streams only the final event.
        if assembly.is_empty() {
            for (at, item) in response.output.iter().flatten().enumerate() {
                self.finished(Some(at as u64), Some(item), assembly)?;
            }
        }
        let status = response.status.as_ref().map_or("", Text::as_str);
        let reason = response.incomplete_details.as_ref().and_then(|details| details.reason.as_ref());
        let stop_reason = match reason.map(Text::as_str) {
            Some("content_filter") => StopReason::ContentFilter,
            _ if kind == "response.incomplete" || status == "incomplete" => StopReason::Length,
            _ => StopReason::Stop,
        };
        self.ending = Some(Ending { stop_reason, usage: response.usage.and_then(Usage::reported) });
        Ok(())
    }
}

impl OpenItem {
    /// Returns true if a key refers to this item; `None` if they have no kind of key in common.
    fn is_named(&self, key: Key<'_>) -> Option<bool> {
        match (self.index, key.index, self.id.as_deref(), key.id) {
            (Some(ours), Some(theirs), _, _) => Some(ours == theirs),
            (_, _, Some(ours), Some(theirs)) => Some(ours == theirs),
            _ => None,
        }
    }

    fn part(&self, place: u64) -> Option<usize> {
        self.places.iter().find(|(at, _)| *at == place).map(|&(_, part)| part)
    }

    fn open(&mut self, place: u64, piece: Piece, assembly: &mut Assembly<'_>) -> Result<usize, ModelFault> {
        let part = assembly.open(piece)?;
        self.places.push((place, part));
        Ok(part)
    }

    /// Appends text to the part at a position, opening the part if it is the first.
    fn add(
        &mut self,
        place: u64,
        text: &str,
        piece: fn() -> Piece,
        assembly: &mut Assembly<'_>,
    ) -> Result<(), ModelFault> {
        if text.is_empty() {
            return Ok(());
        }
        let part = match self.part(place) {
            Some(part) => part,
            None => self.open(place, piece(), assembly)?,
        };
        assembly.extend(part, text)
    }

    /// Adds the contents of the finished item that were not streamed.
    fn fill(
        &mut self,
        places: u64,
        contents: Option<&[Content<'_>]>,
        piece: fn() -> Piece,
        assembly: &mut Assembly<'_>,
    ) -> Result<(), ModelFault> {
        for (place, content) in (places..).zip(contents.into_iter().flatten()) {
            if let Some(text) =
                content.text.as_ref().or(content.refusal.as_ref()).filter(|_| self.part(place).is_none())
            {
                self.add(place, text.as_str(), piece, assembly)?;
            }
        }
        Ok(())
    }

    /// Sets the id and name of the item's call, opening it if it is new.
    fn name_call(&mut self, sent: &Item<'_>, assembly: &mut Assembly<'_>) -> Result<usize, ModelFault> {
        let part = match self.part(0) {
            Some(part) => part,
            None => self.open(0, call(), assembly)?,
        };
        let [id, name] = [&sent.call_id, &sent.name].map(|sent| sent.as_ref().map_or("", Text::as_str));
        assembly.name_call(part, id, name);
        Ok(part)
    }

    /// Keeps a reasoning item if the provider encrypted it: only then does it want the item back.
    fn keep_payload(&mut self, raw: &RawValue, sent: &Item<'_>, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        if sent.encrypted_content.as_ref().is_none_or(|opaque| opaque.as_str().is_empty()) {
            return Ok(());
        }
        let payload: Value = serde_json::from_str(raw.get()).map_err(|_| malformed("an item is not JSON"))?;
        let part = match self.places.first() {
            Some(&(_, part)) => part,
            None => self.open(0, reasoning(), assembly)?,
        };
        assembly.set_payload(part, payload);
        Ok(())
    }
}

impl<'a> Item<'a> {
    fn read(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    fn kind(&self) -> &str {
        self.kind.as_ref().map_or("", Text::as_str)
    }
}

fn text() -> Piece {
    Piece::Text(String::new())
}

fn reasoning() -> Piece {
    Piece::Reasoning { text: String::new(), payload: None }
}

fn call() -> Piece {
    Piece::call("")
}

fn malformed(note: &str) -> ModelFault {
    fault(ErrorCode::UpstreamMalformed, note)
}

/// Classifies an error: that of `response.failed` is inside its response, that of `error` in the event.
fn failed(data: &str, response: Option<&RawValue>) -> ModelFault {
    let body = response.map_or(data, RawValue::get);
    classify(None, &HeaderMap::new(), Timestamp::now(), body.as_bytes())
}
