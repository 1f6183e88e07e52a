//! Reads a Chat Completions answer, streamed or whole.
//!
//! A `finish_reason` or `[DONE]` ends the answer, and usage may follow a `finish_reason`. Servers differ in everything
//! else. Usage comes with `choices: []` or with an empty delta. Reasoning has three names. Errors mid-stream are nested
//! or flat. Some pieces are under `message` instead of `delta`. No event ends a call, and pieces of several calls may
//! alternate, so all calls end with the answer.

use super::chat_calls::Calls;
use crate::{
    core::model::{ModelFault, ReportedUsage},
    provider::{
        fault::{classify, fault},
        upstream::{Assembly, Decoder, Ending, Finish, Object, Progress, finish, usage},
    },
};
use jiff::Timestamp;
use reqwest::header::HeaderMap;
use reseed_protocol::ErrorCode;
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Debug, Default)]
pub(super) struct ChatStream {
    finish: Option<Finish>,
    usage: Option<ReportedUsage>,
    calls: Calls,
}

/// Whether a piece repeats what came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeats {
    /// It repeats nothing.
    No,
    /// It repeats the earlier text if it begins with it.
    Maybe,
    /// It is the whole answer.
    All,
}

impl Decoder for ChatStream {
    fn event(&mut self, data: &str, assembly: &mut Assembly<'_>) -> Result<Progress, ModelFault> {
        if data.trim() == "[DONE]" {
            self.finish.get_or_insert(Finish::STOP);
            return Ok(Progress::Done);
        }
        let malformed = || fault(ErrorCode::UpstreamMalformed, "an event is not a chat completion chunk");
        let chunk = Object::read(data).ok_or_else(malformed)?;
        let choices = chunk.raw("choices");
        if choices.is_some_and(|choices| !choices.get().starts_with(['[', '{'])) {
            return Err(malformed());
        }
        // An error that is not nested comes without choices.
        let is_flat_error = choices.is_none()
            && ["message", "detail", "errors", "error_message"].iter().any(|name| chunk.raw(name).is_some());
        if chunk.raw("error").is_some_and(says) || is_flat_error {
            return Err(classify(None, &HeaderMap::new(), Timestamp::now(), data.as_bytes()));
        }
        self.usage = chunk.object("usage").and_then(|reported| usage(&reported)).or(self.usage);
        let is_whole = chunk.text("object").is_some_and(|object| object == "chat.completion");
        for choice in chunk.objects("choices") {
            if let Some(error) = choice.raw("error").filter(|error| says(error)) {
                let body = format!(r#"{{"error":{}}}"#, error.get());
                return Err(classify(None, &HeaderMap::new(), Timestamp::now(), body.as_bytes()));
            }
            // We request one choice. If a server sends more, only the first is read.
            if choice.position("index").is_none_or(|index| index == 0) {
                self.choice(&choice, is_whole, assembly)?;
            }
        }
        Ok(Progress::More)
    }

    fn ending(&self) -> Option<Ending> {
        let usage = self.usage;
        self.finish.map(|Finish { stop_reason, is_full }| Ending { stop_reason, usage, is_full })
    }
}

impl ChatStream {
    /// Starts with an empty answer. `offered` has the names of the offered tools.
    pub(super) fn new(offered: Vec<String>) -> Self {
        Self { calls: Calls::new(offered), ..Self::default() }
    }

    fn choice(&mut self, choice: &Object<'_>, is_whole: bool, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        let reason = choice.text("finish_reason").filter(|reason| !reason.is_empty());
        // Some servers put the pieces under `message`, or repeat the whole answer there at the end.
        let message = choice.object("message");
        let delta = choice.object("delta").filter(|delta| message.is_none() || says_something(delta));
        let repeats = match &reason {
            _ if is_whole => Repeats::All,
            Some(_) => Repeats::Maybe,
            None => Repeats::No,
        };
        let is_new = delta.is_some() || !assembly.has_logprobs();
        if let Some(tokens) = choice.object("logprobs").filter(|_| is_new).and_then(|logprobs| logprobs.raw("content"))
        {
            assembly.logprobs(tokens);
        }
        match (&delta, &message) {
            (Some(delta), _) => self.delta(delta, Repeats::No, assembly)?,
            (None, Some(message)) => self.delta(message, repeats, assembly)?,
            (None, None) => {}
        }
        match reason {
            Some(reason) => self.finish = Some(finish(&reason)?),
            None if is_whole && message.is_some() => self.finish = Some(Finish::STOP),
            None => {}
        }
        Ok(())
    }

    fn delta(&mut self, delta: &Object<'_>, repeats: Repeats, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        for (name, value) in delta.fields() {
            if repeats == Repeats::No || !assembly.has_message_field(name) {
                assembly.set_message_field(name, value)?;
            }
        }
        if let Some((field, _)) = plain_reasoning(delta) {
            assembly.set_reasoning_field(field);
        }
        let reasoning = reasoning(delta);
        assembly.reasoning(repeats.unsaid(&reasoning, || assembly.reasoning_so_far()))?;
        let text = text(delta);
        assembly.text(repeats.unsaid(&text, || assembly.text_so_far()))?;
        if delta.raw("tool_calls").is_some() {
            self.calls.pieces(delta.objects("tool_calls"), repeats != Repeats::No, assembly)
        } else if let Some(call) = delta.object("function_call") {
            self.calls.only(&call, assembly)
        } else {
            Ok(())
        }
    }
}

fn says_something(delta: &Object<'_>) -> bool {
    let has_calls = delta.objects("tool_calls").next().is_some() || delta.object("function_call").is_some();
    has_calls || !text(delta).is_empty() || !reasoning(delta).is_empty()
}

/// Returns the text or the refusal in a piece. Mistral's reasoning models send a list of parts.
fn text<'a>(delta: &Object<'a>) -> Cow<'a, str> {
    let refusal = delta.text("refusal").unwrap_or_default();
    let text = delta
        .text("content")
        .unwrap_or_else(|| delta.objects("content").filter_map(|part| part.text("text")).collect::<String>().into());
    if refusal.is_empty() { text } else { text + refusal }
}

/// Returns reasoning that is in a field of its own, and the name of that field.
fn plain_reasoning<'a>(delta: &Object<'a>) -> Option<(&'static str, Cow<'a, str>)> {
    let mut fields = ["reasoning_content", "reasoning"].into_iter().filter_map(|name| Some((name, delta.text(name)?)));
    fields.find(|(_, text)| !text.is_empty())
}

/// Returns the reasoning in a piece. A server that uses several names sends the same text under each.
fn reasoning<'a>(delta: &Object<'a>) -> Cow<'a, str> {
    if let Some((_, text)) = plain_reasoning(delta) {
        return text;
    }
    let said = |detail: Object<'a>| detail.text("text").or_else(|| detail.text("summary"));
    let parts = delta.objects("content").flat_map(|part| part.objects("thinking").collect::<Vec<_>>());
    delta.objects("reasoning_details").chain(parts).filter_map(said).collect::<String>().into()
}

impl Repeats {
    /// Returns the part of a text that was not sent before.
    fn unsaid(self, text: &str, said: impl FnOnce() -> String) -> &str {
        let said = if self == Self::No || text.is_empty() { String::new() } else { said() };
        match text.strip_prefix(&said) {
            Some(new) => new,
            // If the whole answer is worded differently, it is not shown a second time.
            None if self == Self::All || text.trim() == said.trim() => "",
            None => text,
        }
    }
}

/// Returns true if the field contains an error. Some servers always send the field.
fn says(error: &RawValue) -> bool {
    !matches!(error.get(), "null" | "\"\"" | "{}" | "[]" | "false")
}
