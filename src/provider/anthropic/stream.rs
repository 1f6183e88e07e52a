//! Reads a streamed answer of the Messages API.
//!
//! An answer consists of blocks, each with an index. It ends with a `stop_reason`, and `message_stop` follows. A server
//! may pause a long answer (`pause_turn`). It continues the answer if the blocks so far are sent back. Blocks and
//! events of other kinds are skipped; blocks are sent back to a paused answer all the same.

use crate::{
    core::{
        context::verdict::Diagnosis,
        model::{Answer, ModelFault, ReportedUsage},
    },
    provider::{
        fault::{classify, fault},
        upstream::{Assembly, Decoder, Ending, Finish, Object, Piece, Progress, Remarks, Reports, as_further, finish},
    },
};
use jiff::Timestamp;
use reqwest::header::HeaderMap;
use reseed_protocol::{ErrorCode, FurtherUsage, NativeCompaction, Part, Payload, StopReason};
use serde_json::{Map, Value, value::RawValue};
use std::borrow::Cow;

/// The name of the API in its own compactions.
pub(super) const API: &str = "messages";
/// The most times that a paused answer is continued. Each time, the server works for minutes.
const PAUSES_MAX: u32 = 16;
/// The most blocks that can be unfinished. Models work on one.
const OPEN_MAX: usize = 64;
/// The most blocks of an answer.
const BLOCKS_MAX: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct MessagesStream {
    open: Vec<OpenBlock>,
    /// The finished blocks as the server wants them back, if it pauses.
    blocks: Vec<Value>,
    finish: Option<Finish>,
    reports: Reports,
    /// The usage by these reports.
    usage: Option<ReportedUsage>,
    /// The usage of the streams before this one.
    before: Option<ReportedUsage>,
    is_paused: bool,
    pauses: u32,
    /// True if the server is asked to compare the request with an earlier one.
    is_compared: bool,
    /// What the first stream said about the answer.
    remarks: Remarks,
}

/// A block that events can still extend.
#[derive(Debug)]
struct OpenBlock {
    index: Option<u64>,
    /// The block so far.
    block: Map<String, Value>,
    /// The arguments of a call so far.
    input: String,
    /// Its part of the answer, once it has content that is shown.
    part: Option<usize>,
}

impl Decoder for MessagesStream {
    fn event(&mut self, data: &str, assembly: &mut Assembly<'_>) -> Result<Progress, ModelFault> {
        let event = Object::read(data).ok_or_else(|| malformed("an event is not a JSON object"))?;
        let kind = event.text("type").unwrap_or_default();
        let index = event.position("index");
        match &*kind {
            "message_start" => {
                let message = event.object("message");
                self.count(message.as_ref());
                message.iter().for_each(|message| self.remark(message));
            }
            "content_block_start" => {
                if self.open.len() == OPEN_MAX {
                    return Err(malformed("too many unfinished blocks"));
                }
                if let Some(block) = event.raw("content_block") {
                    self.open.push(OpenBlock::begin(index, block, assembly)?);
                }
            }
            "content_block_delta" => {
                if let (Some(block), Some(delta)) = (self.block(index), event.object("delta")) {
                    block.extend(&delta, assembly)?;
                }
            }
            "content_block_stop" => {
                if let Some(at) = self.open.iter().rposition(|block| block.index == index) {
                    let block = self.open.remove(at);
                    self.keep(block.end(assembly)?)?;
                }
            }
            "message_delta" => {
                self.count(Some(&event));
                self.stop(event.object("delta").as_ref())?;
            }
            "message_stop" => {
                self.finish.get_or_insert(Finish::STOP);
                return Ok(Progress::Done);
            }
            // A server that does not stream sends the whole message.
            "message" => {
                for raw in event.values("content") {
                    let block = OpenBlock::begin(None, raw, assembly)?;
                    self.keep(block.end(assembly)?)?;
                }
                self.count(Some(&event));
                self.remark(&event);
                self.stop(Some(&event))?;
                self.finish.get_or_insert(Finish::STOP);
                return Ok(Progress::Done);
            }
            _ if event.raw("error").is_some() => {
                return Err(classify(None, &HeaderMap::new(), Timestamp::now(), data.as_bytes()));
            }
            _ => {}
        }
        Ok(Progress::More)
    }

    fn ending(&self) -> Option<Ending> {
        let usage = match (self.before, self.usage) {
            (Some(before), Some(now)) => Some(continued(before, now)),
            (before, now) => before.or(now),
        };
        self.finish.map(|Finish { stop_reason, is_full }| Ending { stop_reason, usage, is_full })
    }

    fn take_remarks(&mut self) -> Remarks {
        std::mem::take(&mut self.remarks)
    }
}

impl MessagesStream {
    /// Starts an answer to a request that the server is asked to compare with an earlier one, or not.
    pub(super) fn new(is_compared: bool) -> Self {
        Self { is_compared, ..Self::default() }
    }

    /// Reads the id of the message and the comparison. The server says `null` if nothing differs, and leaves out the
    /// reason if it is not ready. The streams after a pause are about other requests.
    fn remark(&mut self, message: &Object<'_>) {
        if self.remarks.id.is_some() {
            return;
        }
        self.remarks.id = message.text("id").map(Cow::into_owned);
        let said = message.fields().find(|(name, _)| *name == "diagnostics").map(|(_, said)| said.get());
        self.remarks.diagnosis = said.filter(|_| self.is_compared).map(|said| match Object::read(said) {
            None => Diagnosis::hit(),
            Some(said) => {
                let reason = said.object("cache_miss_reason");
                let lost = reason.as_ref().and_then(|reason| reason.count("cache_missed_input_tokens"));
                Diagnosis::because(reason.and_then(|reason| reason.text("type")).as_deref(), lost)
            }
        });
    }

    /// Returns the blocks that the server wants back to continue the answer; empty unless it has paused.
    pub(super) fn begun(&self) -> &[Value] {
        if self.pauses > 0 { &self.blocks } else { &[] }
    }

    /// Returns the compaction that the answer is.
    pub(super) fn compaction(&self) -> Result<Answer, ModelFault> {
        let Ending { stop_reason, usage, .. } = self.ending().ok_or_else(|| malformed("it did not end"))?;
        if stop_reason == StopReason::ContentFilter {
            return Err(fault(ErrorCode::ContentFiltered, "no compaction was made"));
        }
        let [block] = &self.blocks[..] else { return Err(malformed("the answer is not one compaction")) };
        let text = block["content"].as_str().unwrap_or_default();
        if block["type"] != "compaction" || stop_reason != StopReason::Stop {
            return Err(malformed("the answer is not one compaction"));
        }
        if text.trim().is_empty() {
            return Err(fault(ErrorCode::UpstreamEmpty, "the compaction has no text"));
        }
        let native = NativeCompaction {
            api: API.to_owned(),
            items: Value::Array(self.blocks.clone()).to_string(),
            ..NativeCompaction::default()
        };
        let payload = Payload { compaction: Some(Box::new(native)), ..Payload::default() };
        let answer = Answer::new(vec![Part::Text { text: text.to_owned() }], StopReason::Stop);
        Ok(Answer { usage, payload: Some(Box::new(payload)), ..answer })
    }

    /// Returns true if the server has paused the answer, which now goes on in another stream.
    pub(super) fn goes_on(&mut self) -> bool {
        if !std::mem::take(&mut self.is_paused) || self.blocks.is_empty() {
            return false;
        }
        if self.pauses == PAUSES_MAX {
            tracing::warn!("the model server paused an answer {PAUSES_MAX} times; it is cut off");
            self.finish = Some(Finish { stop_reason: StopReason::Length, is_full: false });
            return false;
        }
        self.before = self.ending().and_then(|ending| ending.usage);
        (self.reports, self.usage, self.finish) = (Reports::default(), None, None);
        self.open.clear();
        self.pauses += 1;
        true
    }

    fn block(&mut self, index: Option<u64>) -> Option<&mut OpenBlock> {
        self.open.iter_mut().rev().find(|block| block.index == index)
    }

    /// Keeps a finished block.
    fn keep(&mut self, block: Value) -> Result<(), ModelFault> {
        if self.blocks.len() == BLOCKS_MAX {
            return Err(malformed("too many blocks"));
        }
        self.blocks.push(block);
        Ok(())
    }

    fn count(&mut self, report: Option<&Object<'_>>) {
        if let Some(reported) = report.and_then(|report| report.object("usage")) {
            self.usage = self.reports.add(&reported);
        }
    }

    fn stop(&mut self, delta: Option<&Object<'_>>) -> Result<(), ModelFault> {
        match delta.and_then(|delta| delta.text("stop_reason")).as_deref() {
            None => {}
            Some("pause_turn") => {
                self.is_paused = true;
                self.finish = Some(Finish::STOP);
            }
            Some(word) => self.finish = Some(finish(word)?),
        }
        Ok(())
    }
}

impl OpenBlock {
    /// Begins a block. A call gets its part of the answer now, because its name is known and its arguments may be
    /// empty.
    fn begin(index: Option<u64>, raw: &RawValue, assembly: &mut Assembly<'_>) -> Result<Self, ModelFault> {
        assembly.count(raw.get().len())?;
        let block: Map<String, Value> =
            serde_json::from_str(raw.get()).map_err(|_| malformed("a block is not a JSON object"))?;
        let of = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (kind, text, thinking, id, name) = (of("type"), of("text"), of("thinking"), of("id"), of("name"));
        let mut open = Self { index, block, input: String::new(), part: None };
        match &*kind {
            "text" => open.show(&text, written, assembly)?,
            "thinking" => open.show(&thinking, thought, assembly)?,
            "tool_use" => {
                let part = assembly.open(Piece::call(id))?;
                assembly.name_call(part, "", &name);
                assembly.begin_call(part);
                open.part = Some(part);
            }
            _ => {}
        }
        Ok(open)
    }

    fn extend(&mut self, delta: &Object<'_>, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        let text = |name| delta.text(name).unwrap_or_default();
        match delta.text("type").as_deref() {
            Some("text_delta") => {
                self.join("text", &text("text"));
                self.show(&text("text"), written, assembly)
            }
            Some("thinking_delta") => {
                self.join("thinking", &text("thinking"));
                self.show(&text("thinking"), thought, assembly)
            }
            Some("signature_delta") => {
                let signature = text("signature");
                assembly.count(signature.len())?;
                self.block.insert("signature".to_owned(), Value::String(signature.into_owned()));
                Ok(())
            }
            Some("compaction_delta") => {
                let piece = text("content");
                assembly.count(piece.len())?;
                self.join("content", &piece);
                Ok(())
            }
            Some("input_json_delta") => {
                let piece = text("partial_json");
                self.input.push_str(&piece);
                match self.part {
                    Some(part) => assembly.extend(part, &piece),
                    // The calls of server tools are not ours.
                    None => assembly.count(piece.len()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Shows a piece of text in the block's own part of the answer.
    fn show(&mut self, text: &str, piece: fn() -> Piece, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        if text.is_empty() {
            return Ok(());
        }
        let part = match self.part {
            Some(part) => part,
            None => *self.part.insert(assembly.open(piece())?),
        };
        assembly.extend(part, text)
    }

    fn join(&mut self, name: &str, piece: &str) {
        match self.block.get_mut(name) {
            Some(Value::String(text)) => text.push_str(piece),
            _ => drop(self.block.insert(name.to_owned(), Value::String(piece.to_owned()))),
        }
    }

    /// Ends the block, and returns it whole.
    fn end(mut self, assembly: &mut Assembly<'_>) -> Result<Value, ModelFault> {
        if let Ok(input) = serde_json::from_str(&self.input) {
            self.block.insert("input".to_owned(), input);
        }
        let has = |name: &str| self.block.get(name).and_then(Value::as_str).is_some_and(|text| !text.is_empty());
        match self.block.get("type").and_then(Value::as_str) {
            Some("tool_use") => {
                let part = self.part.unwrap_or_default();
                // A server that does not stream sends the arguments with the block.
                let whole = self.block.get("input").filter(|input| input.as_object().is_some_and(|it| !it.is_empty()));
                if let Some(input) = whole.filter(|_| assembly.lacks_arguments(part)) {
                    assembly.extend(part, &input.to_string())?;
                }
                assembly.end_call(part);
            }
            // What is sealed goes back with the next requests.
            Some("thinking") if has("signature") => self.seal(assembly)?,
            Some("redacted_thinking") if has("data") => self.seal(assembly)?,
            _ => {}
        }
        Ok(Value::Object(self.block))
    }

    fn seal(&self, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        let part = match self.part {
            Some(part) => part,
            None => assembly.open(thought())?,
        };
        assembly.set_payload(part, Value::Object(self.block.clone()));
        Ok(())
    }
}

fn written() -> Piece {
    Piece::Text(String::new())
}

fn thought() -> Piece {
    Piece::Reasoning { text: String::new(), payload: None }
}

fn malformed(note: &str) -> ModelFault {
    fault(ErrorCode::UpstreamMalformed, note)
}

/// Returns the usage of an answer that went on in another stream. The answer is all that was written. What was read
/// again is billed, but says nothing about the size of the request.
fn continued(before: ReportedUsage, now: ReportedUsage) -> ReportedUsage {
    let read_again = FurtherUsage { output_tokens: 0, ..as_further(ReportedUsage { further: None, ..now }) };
    let further = [before.further, now.further, Some(read_again)].into_iter().flatten().reduce(FurtherUsage::and);
    let reasoning_tokens = match (before.reasoning_tokens, now.reasoning_tokens) {
        (None, None) => None,
        (before, now) => Some(before.unwrap_or(0) + now.unwrap_or(0)),
    };
    let output_tokens = before.output_tokens.saturating_add(now.output_tokens);
    ReportedUsage { output_tokens, reasoning_tokens, further, ..before }
}
