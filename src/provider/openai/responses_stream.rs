//! Reads a streamed Responses answer.
//!
//! The answer ends with `response.completed`, `response.incomplete` or `response.failed`. An item is identified by its
//! `output_index`, or else by its id. Without either, the event is about the latest item. Ids are the weaker key,
//! because some servers use one twice or a new one in each event.
//!
//! What was not streamed is taken from the end of the piece, from the finished item or from the finished answer. So
//! nothing is lost, and nothing is shown twice. A server that does not stream sends only the finished answer. Events of
//! other types are skipped.

use crate::{
    core::{
        context::{arguments::meant_arguments, verdict::Diagnosis},
        model::ModelFault,
    },
    provider::{
        fault::{classify, fault},
        upstream::{Assembly, Decoder, Ending, Object, Piece, Progress, Remarks, usage},
    },
};
use jiff::Timestamp;
use reqwest::header::HeaderMap;
use reseed_protocol::{ErrorCode, StopReason};
use serde_json::{Value, value::RawValue};
use std::borrow::Cow;

#[derive(Debug, Default)]
pub(super) struct ResponsesStream {
    /// The unfinished items.
    open: Vec<OpenItem>,
    /// The calls so far: for each, the server's id and its part of the answer.
    calls: Vec<(String, usize)>,
    ending: Option<Ending>,
    remarks: Remarks,
}

/// An item that events can still extend.
#[derive(Debug)]
struct OpenItem {
    index: Option<u64>,
    id: Option<String>,
    /// The positions within the item (of a message's content or a reasoning's summary), and their parts of the answer.
    places: Vec<(u64, usize)>,
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
        let event = Object::read(data).ok_or_else(|| malformed("an event is not a JSON object"))?;
        if self.open.len() >= OPEN_ITEMS_MAX {
            return Err(malformed("too many unfinished items"));
        }
        let kind = event.text("type").unwrap_or_default();
        let (index, id) = (event.position("output_index"), event.text("item_id"));
        let key = Key { index, id: id.as_deref() };
        match &*kind {
            "response.output_item.added" => self.added(index, event.object("item"), assembly)?,
            "response.output_item.done" => self.finished(index, event.raw("item"), assembly)?,
            "response.completed" | "response.incomplete" => self.end(&kind, event.raw("response"), assembly)?,
            "response.failed" | "error" => return Err(failed(data, event.raw("response"))),
            _ if let Some((piece, is_end)) = piece_of(&kind) => {
                let summary = || Some(SUMMARY_PLACES + event.position("summary_index")?);
                let place = event.position("content_index").or_else(summary).unwrap_or(0);
                // The end of a piece has its whole text, refusal or arguments.
                let names: &[&str] = if is_end { &["text", "refusal", "arguments"] } else { &["delta"] };
                let text = names.iter().find_map(|name| event.text(name)).unwrap_or_default();
                let item = self.item(key);
                match is_end {
                    true => item.complete(place, &text, piece, assembly)?,
                    false => item.add(place, &text, piece, assembly)?,
                }
            }
            _ if event.raw("error").is_some() => return Err(failed(data, None)),
            "" if event.text("object").is_some_and(|object| object == "response") => {
                let raw = serde_json::from_str(data).map_err(|_| malformed("an answer is not JSON"))?;
                self.end("response.completed", Some(raw), assembly)?;
            }
            // An error that is not nested.
            "" if ["message", "detail", "errors", "error_message"].iter().any(|name| event.raw(name).is_some()) => {
                return Err(failed(data, None));
            }
            _ => {}
        }
        Ok(Progress::More)
    }

    fn ending(&self) -> Option<Ending> {
        self.ending
    }

    fn take_remarks(&mut self) -> Remarks {
        std::mem::take(&mut self.remarks)
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
        sent: Option<Object<'_>>,
        assembly: &mut Assembly<'_>,
    ) -> Result<(), ModelFault> {
        let Some(sent) = sent else { return Ok(()) };
        let id = sent.text("id");
        // Some servers repeat the start of an item with each of its events.
        let key = Key { index, id: id.as_deref() };
        if key.id.is_some() && self.open.iter().any(|item| item.is_same(key)) {
            return Ok(());
        }
        let mut item = OpenItem { index, id: id.as_deref().map(str::to_owned), places: Vec::new() };
        if sent.text("type").as_deref() == Some("function_call") {
            let part = item.name_call(&sent, assembly)?;
            self.calls.push((sent.text("call_id").unwrap_or_default().into_owned(), part));
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
        let Some((raw, sent)) = raw.and_then(|raw| Some((raw, Object::read(raw.get())?))) else { return Ok(()) };
        let at = self.find(Key { index, id: sent.text("id").as_deref() });
        let item = self.open.remove(at);
        self.close(item, raw, &sent, assembly)
    }

    /// Takes from a finished item what was not streamed.
    fn close(
        &mut self,
        mut item: OpenItem,
        raw: &RawValue,
        sent: &Object<'_>,
        assembly: &mut Assembly<'_>,
    ) -> Result<(), ModelFault> {
        match sent.text("type").as_deref() {
            Some("message") => item.fill(0, sent.objects("content"), text, assembly),
            Some("function_call") => {
                if item.part(0).is_none() && self.known_call(sent, false, assembly).is_some() {
                    return Ok(());
                }
                let part = item.name_call(sent, assembly)?;
                complete_call(part, sent, assembly)?;
                if !self.calls.iter().any(|&(_, known)| known == part) {
                    self.calls.push((sent.text("call_id").unwrap_or_default().into_owned(), part));
                }
                Ok(())
            }
            Some("reasoning") => {
                item.fill(0, sent.objects("content"), reasoning, assembly)?;
                item.fill(SUMMARY_PLACES, sent.objects("summary"), reasoning, assembly)?;
                item.keep_payload(raw, sent, assembly)
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, kind: &str, raw: Option<&RawValue>, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        let response = raw.and_then(|raw| Object::read(raw.get()));
        let response = response.ok_or_else(|| malformed("the final event has no response"))?;
        let status = response.text("status").unwrap_or_default();
        if status == "failed" {
            return Err(failed("{}", raw));
        }
        // Some servers stream only the final event, or leave a part of the answer to it.
        let (nothing, no_text) = (assembly.is_empty(), assembly.text_so_far().is_empty());
        for raw in response.values("output") {
            let Some(sent) = Object::read(raw.get()) else { continue };
            let item = OpenItem { index: None, id: None, places: Vec::new() };
            match (sent.text("type").as_deref(), self.known_call(&sent, true, assembly)) {
                (Some("function_call"), Some(part)) => complete_call(part, &sent, assembly)?,
                (Some("function_call"), None) => self.close(item, raw, &sent, assembly)?,
                (Some("message"), _) if no_text => self.close(item, raw, &sent, assembly)?,
                _ if nothing => self.close(item, raw, &sent, assembly)?,
                _ => {}
            }
        }
        let reason = response.object("incomplete_details").and_then(|details| details.text("reason"));
        let stop_reason = match reason.as_deref() {
            Some("content_filter") => StopReason::ContentFilter,
            _ if kind == "response.incomplete" || status == "incomplete" => StopReason::Length,
            _ => StopReason::Stop,
        };
        let usage = response.object("usage").and_then(|reported| usage(&reported));
        let diagnosis = response.object("prompt_cache_diagnostics").as_ref().map(diagnosis);
        self.remarks = Remarks { id: response.text("id").map(Cow::into_owned), diagnosis };
        self.ending = Some(Ending { stop_reason, usage, is_full: false });
        Ok(())
    }

    /// Returns the part of a call that was already streamed, by its id. With `by_content`, an equal call matches too,
    /// because some servers give calls new ids at the end.
    fn known_call(&self, sent: &Object<'_>, by_content: bool, assembly: &Assembly<'_>) -> Option<usize> {
        let (name, call_id) = (sent.text("name"), sent.text("call_id").unwrap_or_default());
        let arguments = sent.text("arguments").unwrap_or_default();
        let is_it = |(id, part): &&(String, usize)| {
            let (known_name, known) = assembly.call_so_far(*part);
            let same_name = name.as_ref().is_none_or(|name| name == known_name);
            let same_id = !id.is_empty() && *id == call_id;
            // The repetition may be written differently. For example, an object that was sent twice in a row counts as
            // one.
            let same_meaning = known == arguments || meant_arguments(known) == meant_arguments(&arguments);
            let goes_on = !assembly.has_whole_arguments(*part);
            same_name && (same_id && (goes_on || same_meaning) || by_content && known == arguments)
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
    fn fill<'a>(
        &mut self,
        places: u64,
        contents: impl Iterator<Item = Object<'a>>,
        piece: fn() -> Piece,
        assembly: &mut Assembly<'_>,
    ) -> Result<(), ModelFault> {
        for (place, content) in (places..).zip(contents) {
            let text = content.text("text").or_else(|| content.text("refusal")).unwrap_or_default();
            self.complete(place, &text, piece, assembly)?;
        }
        Ok(())
    }

    /// Sets the id and name of the item's call. Opens the call if it is new.
    fn name_call(&mut self, sent: &Object<'_>, assembly: &mut Assembly<'_>) -> Result<usize, ModelFault> {
        let part = match self.part(0) {
            Some(part) => part,
            None => self.open(0, call(), assembly)?,
        };
        let (id, name) = (sent.text("call_id").unwrap_or_default(), sent.text("name").unwrap_or_default());
        assembly.name_call(part, &id, &name);
        assembly.begin_call(part);
        Ok(part)
    }

    /// Keeps a reasoning item if the provider encrypted it. Only then does the provider want the item back.
    fn keep_payload(
        &mut self,
        raw: &RawValue,
        sent: &Object<'_>,
        assembly: &mut Assembly<'_>,
    ) -> Result<(), ModelFault> {
        if sent.text("encrypted_content").is_none_or(|opaque| opaque.is_empty()) {
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

/// Reads the comparison of a request with an earlier one.
fn diagnosis(said: &Object<'_>) -> Diagnosis {
    match said.text("type").as_deref() {
        Some("cache_hit") => Diagnosis::hit(),
        Some("cache_miss") => Diagnosis::because(said.text("reason").as_deref(), said.count("cache_missed_tokens")),
        other => Diagnosis::because(other, None),
    }
}

/// Ends a call, with the finished item's arguments unless they were streamed.
fn complete_call(part: usize, sent: &Object<'_>, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
    if let Some(arguments) = sent.text("arguments").filter(|_| assembly.lacks_arguments(part)) {
        assembly.extend(part, &arguments)?;
    }
    assembly.end_call(part);
    Ok(())
}

/// Returns the kind of part that a piece belongs to, and whether the event is the end of the piece.
fn piece_of(kind: &str) -> Option<(fn() -> Piece, bool)> {
    let (name, is_end) = match kind.strip_prefix("response.")?.rsplit_once('.')? {
        (name, "delta") => (name, false),
        (name, "done") => (name, true),
        _ => return None,
    };
    match name {
        "output_text" | "refusal" => Some((text, is_end)),
        "reasoning_summary_text" | "reasoning_text" => Some((reasoning, is_end)),
        "function_call_arguments" => Some((call, is_end)),
        _ => None,
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

pub(super) fn malformed(note: &str) -> ModelFault {
    fault(ErrorCode::UpstreamMalformed, note)
}

/// Classifies an error. `response.failed` has it inside its response, and `error` in the event itself.
pub(super) fn failed(data: &str, response: Option<&RawValue>) -> ModelFault {
    let body = response.map_or(data, RawValue::get);
    classify(None, &HeaderMap::new(), Timestamp::now(), body.as_bytes())
}
