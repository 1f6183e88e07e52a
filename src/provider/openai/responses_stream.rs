//! Reads a streamed Responses answer.
//!
//! The answer ends with `response.completed`, `response.incomplete` or `response.failed`. An item is identified by its
//! `output_index`, or else by its id. Without either, the event is about the latest item. Ids are the weaker key,
//! because some servers use one twice or a new one in each event.
//!
//! What was not streamed is taken from the end of the piece, from the finished item or from the finished answer. So
//! nothing is lost, and nothing is shown twice. A server that does not stream sends only the finished answer. Events of
//! other types are skipped.

use super::usage::Usage;
use crate::{
    core::{context::arguments::meant_arguments, model::ModelFault},
    provider::{
        fault::{classify, fault},
        upstream::{Assembly, Decoder, Ending, Piece, Position, Progress, Text, is_whole, lax},
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
    /// The calls so far: for each, the server's id and its part of the answer.
    calls: Vec<(String, usize)>,
    ending: Option<Ending>,
}

/// An item that events can still extend.
#[derive(Debug)]
struct OpenItem {
    index: Option<u64>,
    id: Option<String>,
    /// The positions within the item (of a message's content or a reasoning's summary), and their parts of the answer.
    places: Vec<(u64, usize)>,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow, default, deserialize_with = "lax")]
    kind: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    item_id: Option<Text<'a>>,
    #[serde(default, deserialize_with = "lax")]
    output_index: Option<Position>,
    #[serde(default, deserialize_with = "lax")]
    content_index: Option<Position>,
    #[serde(default, deserialize_with = "lax")]
    summary_index: Option<Position>,
    #[serde(borrow, default, deserialize_with = "lax")]
    delta: Option<Text<'a>>,
    /// At the end of a piece: its whole text, refusal or arguments.
    #[serde(borrow, default, deserialize_with = "lax")]
    text: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    refusal: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    arguments: Option<Text<'a>>,
    /// `response` for a whole answer.
    #[serde(borrow, default, deserialize_with = "lax")]
    object: Option<Text<'a>>,
    #[serde(borrow, default)]
    item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// If none of the other fields is present, an error that is not nested.
    #[serde(borrow, default, alias = "detail", alias = "errors", alias = "error_message")]
    message: Option<&'a RawValue>,
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

/// Identifies the item to which an event refers.
#[derive(Clone, Copy)]
struct Key<'a> {
    index: Option<u64>,
    id: Option<&'a str>,
}

/// Maximum number of unfinished items. Models work on one, or on some calls in parallel.
const OPEN_ITEMS_MAX: usize = 1024;
/// The offset that separates the positions of summaries from those of contents.
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
        let index = event.output_index.map(|Position(index)| index);
        let key = Key { index, id: event.item_id.as_ref().map(Text::as_str) };
        let summary = event.summary_index.map(|Position(place)| SUMMARY_PLACES + place);
        let place = event.content_index.map(|Position(place)| place).or(summary).unwrap_or(0);
        let delta = event.delta.as_ref().map_or("", Text::as_str);
        let whole = [&event.text, &event.refusal, &event.arguments].into_iter().flatten().next();
        let whole = whole.map_or("", Text::as_str);
        match kind {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.item(key).add(place, delta, text, assembly)?
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.item(key).add(place, delta, reasoning, assembly)?;
            }
            "response.function_call_arguments.delta" => self.item(key).add(place, delta, call, assembly)?,
            "response.output_text.done" | "response.refusal.done" => {
                self.item(key).complete(place, whole, text, assembly)?;
            }
            "response.reasoning_summary_text.done" | "response.reasoning_text.done" => {
                self.item(key).complete(place, whole, reasoning, assembly)?;
            }
            "response.function_call_arguments.done" => self.item(key).complete(place, whole, call, assembly)?,
            "response.output_item.added" => self.added(index, event.item, assembly)?,
            "response.output_item.done" => self.finished(index, event.item, assembly)?,
            "response.completed" | "response.incomplete" => self.end(kind, event.response, assembly)?,
            "response.failed" | "error" => return Err(failed(data, event.response)),
            _ if event.error.is_some() => return Err(failed(data, None)),
            "" if event.object.is_some_and(|object| object.as_str() == "response") => {
                let raw = serde_json::from_str(data).map_err(|_| malformed("an answer is not JSON"))?;
                self.end("response.completed", Some(raw), assembly)?;
            }
            "" if event.message.is_some() => return Err(failed(data, None)),
            _ => {}
        }
        Ok(Progress::More)
    }

    fn ending(&self) -> Option<Ending> {
        self.ending
    }
}

impl ResponsesStream {
    /// Returns the index of the open item to which a key refers. Opens a new one if there is none.
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

    /// Handles the start of an item. A call gets its part of the answer now, because its name is known and its
    /// arguments may be empty.
    fn added(
        &mut self,
        index: Option<u64>,
        raw: Option<&RawValue>,
        assembly: &mut Assembly<'_>,
    ) -> Result<(), ModelFault> {
        let Some(sent) = raw.and_then(Item::read) else { return Ok(()) };
        // Some servers repeat the start of an item with each of its events.
        let key = Key { index, id: sent.id.as_ref().map(Text::as_str) };
        if key.id.is_some() && self.open.iter().any(|item| item.is_same(key)) {
            return Ok(());
        }
        let mut item = OpenItem { index, id: key.id.map(str::to_owned), places: Vec::new() };
        if sent.kind() == "function_call" {
            let part = item.name_call(&sent, assembly)?;
            self.calls.push((sent.call_id().to_owned(), part));
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
        let item = self.open.remove(at);
        self.close(item, raw, &sent, assembly)
    }

    /// Takes from a finished item what was not streamed.
    fn close(
        &mut self,
        mut item: OpenItem,
        raw: &RawValue,
        sent: &Item<'_>,
        assembly: &mut Assembly<'_>,
    ) -> Result<(), ModelFault> {
        match sent.kind() {
            "message" => item.fill(0, sent.content.as_deref(), text, assembly),
            "function_call" => {
                if item.part(0).is_none() && self.known_call(sent, false, assembly).is_some() {
                    return Ok(());
                }
                let part = item.name_call(sent, assembly)?;
                complete_call(part, sent, assembly)?;
                if !self.calls.iter().any(|&(_, known)| known == part) {
                    self.calls.push((sent.call_id().to_owned(), part));
                }
                Ok(())
            }
            "reasoning" => {
                item.fill(0, sent.content.as_deref(), reasoning, assembly)?;
                item.fill(SUMMARY_PLACES, sent.summary.as_deref(), reasoning, assembly)?;
                item.keep_payload(raw, sent, assembly)
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, kind: &str, raw: Option<&RawValue>, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        let response: Response<'_> = raw
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .ok_or_else(|| malformed("the final event has no response"))?;
        let status = response.status.as_ref().map_or("", Text::as_str);
        if status == "failed" {
            return Err(failed(raw.map_or("{}", RawValue::get), raw));
        }
        // Some servers stream only the final event, or leave a part of the answer to it.
        let (nothing, no_text) = (assembly.is_empty(), assembly.text_so_far().is_empty());
        for raw in response.output.iter().flatten() {
            let Some(sent) = Item::read(raw) else { continue };
            let item = OpenItem { index: None, id: None, places: Vec::new() };
            match (sent.kind(), self.known_call(&sent, true, assembly)) {
                ("function_call", Some(part)) => complete_call(part, &sent, assembly)?,
                ("function_call", None) => self.close(item, raw, &sent, assembly)?,
                ("message", _) if no_text => self.close(item, raw, &sent, assembly)?,
                _ if nothing => self.close(item, raw, &sent, assembly)?,
                _ => {}
            }
        }
        let reason = response.incomplete_details.as_ref().and_then(|details| details.reason.as_ref());
        let stop_reason = match reason.map(Text::as_str) {
            Some("content_filter") => StopReason::ContentFilter,
            _ if kind == "response.incomplete" || status == "incomplete" => StopReason::Length,
            _ => StopReason::Stop,
        };
        let usage = response.usage.and_then(Usage::reported);
        self.ending = Some(Ending { stop_reason, usage, is_full: false });
        Ok(())
    }

    /// Returns the part of a call that was already streamed, by its id. With `by_content`, an equal call matches too,
    /// because some servers give calls new ids at the end.
    fn known_call(&self, sent: &Item<'_>, by_content: bool, assembly: &Assembly<'_>) -> Option<usize> {
        let arguments = sent.arguments.as_ref().map_or("", Text::as_str);
        let is_it = |(id, part): &&(String, usize)| {
            let (name, known) = assembly.call_so_far(*part);
            let same_name = sent.name.as_ref().is_none_or(|sent| sent.as_str() == name);
            let same_id = !id.is_empty() && id == sent.call_id();
            // The repetition may be written differently. For example, an object that was sent twice in a row counts as
            // one.
            let same_meaning = known == arguments || meant_arguments(known) == meant_arguments(arguments);
            same_name && (same_id && (!is_whole(known) || same_meaning) || by_content && known == arguments)
        };
        self.calls.iter().find(is_it).map(|&(_, part)| part)
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

    /// Returns true if a key has the same id, and the same index if both have one.
    fn is_same(&self, key: Key<'_>) -> bool {
        let same_index = self.index.zip(key.index).is_none_or(|(ours, theirs)| ours == theirs);
        same_index && self.id.as_deref() == key.id
    }

    fn part(&self, place: u64) -> Option<usize> {
        self.places.iter().find(|(at, _)| *at == place).map(|&(_, part)| part)
    }

    fn open(&mut self, place: u64, piece: Piece, assembly: &mut Assembly<'_>) -> Result<usize, ModelFault> {
        let part = assembly.open(piece)?;
        self.places.push((place, part));
        Ok(part)
    }

    /// Appends text to the part at a position. Opens the part if it is new.
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

    /// Adds a finished piece, unless it was streamed.
    fn complete(
        &mut self,
        place: u64,
        whole: &str,
        piece: fn() -> Piece,
        assembly: &mut Assembly<'_>,
    ) -> Result<(), ModelFault> {
        match self.part(place) {
            None => self.add(place, whole, piece, assembly),
            Some(part) if assembly.lacks_arguments(part) => assembly.extend(part, whole),
            Some(_) => Ok(()),
        }
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

    /// Sets the id and name of the item's call. Opens the call if it is new.
    fn name_call(&mut self, sent: &Item<'_>, assembly: &mut Assembly<'_>) -> Result<usize, ModelFault> {
        let part = match self.part(0) {
            Some(part) => part,
            None => self.open(0, call(), assembly)?,
        };
        assembly.name_call(part, sent.call_id(), sent.name.as_ref().map_or("", Text::as_str));
        assembly.begin_call(part);
        Ok(part)
    }

    /// Keeps a reasoning item if the provider encrypted it. Only then does the provider want the item back.
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

    fn call_id(&self) -> &str {
        self.call_id.as_ref().map_or("", Text::as_str)
    }
}

/// Ends a call, with the finished item's arguments unless they were streamed.
fn complete_call(part: usize, sent: &Item<'_>, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
    if let Some(arguments) = sent.arguments.as_ref().filter(|_| assembly.lacks_arguments(part)) {
        assembly.extend(part, arguments.as_str())?;
    }
    assembly.end_call(part);
    Ok(())
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

/// Classifies an error. `response.failed` has it inside its response, and `error` in the event itself.
fn failed(data: &str, response: Option<&RawValue>) -> ModelFault {
    let body = response.map_or(data, RawValue::get);
    classify(None, &HeaderMap::new(), Timestamp::now(), body.as_bytes())
}
