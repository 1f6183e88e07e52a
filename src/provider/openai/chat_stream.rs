//! Reads a streamed Chat Completions answer.
//!
//! A `finish_reason` or `[DONE]` ends the answer; usage may follow the former. Servers differ in everything else: usage
//! with `choices: []` or with one empty delta; reasoning under three names; calls without an index, or all with the
//! same; errors mid-stream, nested or flat. No event ends a call, and pieces of several may alternate, so all calls end
//! with the answer.

use super::usage::Usage;
use crate::{
    core::model::{ModelFault, ReportedUsage},
    provider::{
        fault::{classify, fault},
        upstream::{Assembly, Decoder, Ending, Fields, Piece, Progress, Text, lax},
    },
};
use jiff::Timestamp;
use reqwest::header::HeaderMap;
use reseed_protocol::{ErrorCode, StopReason};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Debug, Default)]
pub(super) struct ChatStream {
    stop_reason: Option<StopReason>,
    usage: Option<ReportedUsage>,
    calls: Vec<OpenCall>,
}

/// A call being extended by deltas.
#[derive(Debug)]
struct OpenCall {
    index: Option<u64>,
    id: String,
    part: usize,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default, deserialize_with = "lax")]
    usage: Option<Usage>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// With `code` or `object: "error"` and without choices: an error that is not nested.
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default, deserialize_with = "lax")]
    index: Option<u64>,
    #[serde(borrow, default)]
    delta: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "lax")]
    finish_reason: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default, deserialize_with = "lax")]
    content: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    refusal: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    reasoning: Option<Text<'a>>,
    #[serde(borrow, default)]
    tool_calls: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct CallDelta<'a> {
    #[serde(default, deserialize_with = "lax")]
    index: Option<u64>,
    #[serde(borrow, default, deserialize_with = "lax")]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    function: Option<FunctionDelta<'a>>,
}

#[derive(Deserialize)]
struct FunctionDelta<'a> {
    #[serde(borrow, default, deserialize_with = "lax")]
    name: Option<Text<'a>>,
    /// Text, or the arguments as JSON if a server does not encode them as text.
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl Decoder for ChatStream {
    fn event(&mut self, data: &str, assembly: &mut Assembly<'_>) -> Result<Progress, ModelFault> {
        if data.trim() == "[DONE]" {
            self.stop_reason.get_or_insert(StopReason::Stop);
            return Ok(Progress::Done);
        }
        let chunk: Chunk<'_> = serde_json::from_str(data).map_err(|_| malformed())?;
        if chunk.error.is_some() || (chunk.message.is_some() && chunk.choices.is_none()) {
            return Err(classify(None, &HeaderMap::new(), Timestamp::now(), data.as_bytes()));
        }
        if let Some(usage) = chunk.usage.and_then(Usage::reported) {
            self.usage = Some(usage);
        }
        // We request one choice; if a server sends more, only the first is read.
        for choice in chunk.choices.into_iter().flatten().filter(|choice| choice.index.unwrap_or(0) == 0) {
            if let Some(delta) = choice.delta {
                self.delta(delta, assembly)?;
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.as_str().is_empty()) {
                self.stop_reason = Some(stop_reason(reason.as_str())?);
            }
        }
        Ok(Progress::More)
    }

    fn ending(&self) -> Option<Ending> {
        self.stop_reason.map(|stop_reason| Ending { stop_reason, usage: self.usage })
    }
}

impl ChatStream {
    fn delta(&mut self, raw: &RawValue, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        let delta: Delta<'_> = read(raw)?;
        // A server that sends both names sends the same text under both.
        let [long, short] = [("reasoning_content", &delta.reasoning_content), ("reasoning", &delta.reasoning)];
        if let Some((field, text)) = [long, short].into_iter().find_map(|(field, text)| Some((field, text.as_ref()?))) {
            assembly.set_reasoning_field(field);
            assembly.reasoning(text.as_str())?;
        }
        for (name, value) in Fields::of(raw.get()).iter() {
            assembly.set_message_field(name, value)?;
        }
        for text in [&delta.content, &delta.refusal].into_iter().flatten() {
            assembly.text(text.as_str())?;
        }
        for call in delta.tool_calls.iter().flatten() {
            self.call(call, assembly)?;
        }
        Ok(())
    }

    fn call(&mut self, raw: &RawValue, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        let delta: CallDelta<'_> = read(raw)?;
        let id = delta.id.as_ref().map(Text::as_str).filter(|id| !id.is_empty());
        let part = match self.open_call(delta.index, id) {
            Some(part) => part,
            None => {
                let id = id.unwrap_or_default().to_owned();
                let part = assembly.open(Piece::call(id.as_str()))?;
                self.calls.push(OpenCall { index: delta.index, id, part });
                part
            }
        };
        for (name, value) in Fields::of(raw.get()).iter() {
            assembly.set_call_field(part, name, value)?;
        }
        let Some(function) = &delta.function else { return Ok(()) };
        // Some servers repeat the name with each piece, or send an empty one.
        if let Some(name) = function.name.as_ref().filter(|_| !assembly.is_named(part)) {
            assembly.name_call(part, "", name.as_str());
        }
        let Some(arguments) = function.arguments else { return Ok(()) };
        match serde_json::from_str::<Text<'_>>(arguments.get()) {
            Ok(text) => assembly.extend(part, text.as_str()),
            Err(_) => assembly.extend(part, arguments.get()),
        }
    }

    /// Returns the call that a delta extends: the one with its index, unless its id names another; without an index,
    /// the one with its id; with neither, the last.
    fn open_call(&self, index: Option<u64>, id: Option<&str>) -> Option<usize> {
        let is_it = |call: &&OpenCall| match (index, id) {
            (Some(_), Some(id)) => call.index == index && (call.id.is_empty() || call.id == id),
            (Some(_), None) => call.index == index,
            (None, Some(id)) => call.id == id,
            (None, None) => true,
        };
        self.calls.iter().rev().find(is_it).map(|call| call.part)
    }
}

fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, ModelFault> {
    serde_json::from_str(raw.get()).map_err(|_| malformed())
}

fn malformed() -> ModelFault {
    fault(ErrorCode::UpstreamMalformed, "an event is not a chat completion chunk")
}

fn stop_reason(word: &str) -> Result<StopReason, ModelFault> {
    Ok(match word {
        "length" | "max_tokens" => StopReason::Length,
        "tool_calls" | "function_call" => StopReason::ToolCalls,
        "content_filter" => StopReason::ContentFilter,
        // A router that lost its backend, or a server that gave up.
        "error" | "insufficient_system_resource" => {
            return Err(fault(ErrorCode::UpstreamError, "the server ended the answer with an error"));
        }
        _ => StopReason::Stop,
    })
}
