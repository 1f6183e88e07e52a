//! Reads a Chat Completions answer, streamed or whole.
//!
//! A `finish_reason` or `[DONE]` ends the answer, and usage may follow a `finish_reason`. Servers differ in everything
//! else. Usage comes with `choices: []` or with an empty delta. Reasoning has three names. Errors mid-stream are nested
//! or flat. Some pieces are under `message` instead of `delta`. No event ends a call, and pieces of several calls may
//! alternate, so all calls end with the answer.

use super::{
    chat_calls::{CallDelta, Calls, FunctionDelta},
    finish::{Finish, finish},
    usage::Usage,
};
use crate::{
    core::model::{ModelFault, ReportedUsage},
    provider::{
        fault::{classify, fault},
        upstream::{Assembly, Decoder, Ending, Fields, Many, Position, Progress, Text, lax},
    },
};
use jiff::Timestamp;
use reqwest::header::HeaderMap;
use reseed_protocol::ErrorCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Debug, Default)]
pub(super) struct ChatStream {
    finish: Option<Finish>,
    usage: Option<ReportedUsage>,
    calls: Calls,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    /// `chat.completion` for a whole answer.
    #[serde(borrow, default, deserialize_with = "lax")]
    object: Option<Text<'a>>,
    #[serde(borrow, default)]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(default, deserialize_with = "lax")]
    usage: Option<Usage>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// If there are no choices, an error that is not nested.
    #[serde(borrow, default, alias = "detail", alias = "errors", alias = "error_message")]
    message: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default, deserialize_with = "lax")]
    index: Option<Position>,
    #[serde(borrow, default, deserialize_with = "lax")]
    delta: Option<Delta<'a>>,
    /// A piece under another name, or the whole answer.
    #[serde(borrow, default, deserialize_with = "lax")]
    message: Option<Delta<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    finish_reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// A piece, and its JSON, which may contain fields for the server itself.
struct Delta<'a> {
    said: DeltaFields<'a>,
    raw: &'a RawValue,
}

impl<'de> Deserialize<'de> for Delta<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        let said = serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
        Ok(Self { said, raw })
    }
}

#[derive(Deserialize)]
struct DeltaFields<'a> {
    #[serde(borrow, default, deserialize_with = "lax")]
    content: Option<Content<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    refusal: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    reasoning: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    reasoning_details: Option<Many<Detail<'a>>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    tool_calls: Option<Many<CallDelta<'a>>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    function_call: Option<FunctionDelta<'a>>,
}

/// The content of a piece: a string, or a list of parts, which Mistral sends for its reasoning models.
enum Content<'a> {
    Text(Text<'a>),
    Parts(Many<ContentPart<'a>>),
}

impl<'de> Deserialize<'de> for Content<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?.get();
        let read = match raw.starts_with('"') {
            true => serde_json::from_str(raw).map(Self::Text),
            false => serde_json::from_str(raw).map(Self::Parts),
        };
        read.map_err(serde::de::Error::custom)
    }
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

#[derive(Deserialize)]
struct ContentPart<'a> {
    #[serde(borrow, default, deserialize_with = "lax")]
    text: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    thinking: Option<Many<Detail<'a>>>,
}

/// A piece of reasoning, in the form of OpenRouter and Mistral.
#[derive(Deserialize)]
struct Detail<'a> {
    #[serde(borrow, default, deserialize_with = "lax")]
    text: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "lax")]
    summary: Option<Text<'a>>,
}

impl Decoder for ChatStream {
    fn event(&mut self, data: &str, assembly: &mut Assembly<'_>) -> Result<Progress, ModelFault> {
        if data.trim() == "[DONE]" {
            self.finish.get_or_insert(Finish::STOP);
            return Ok(Progress::Done);
        }
        let chunk: Chunk<'_> = serde_json::from_str(data)
            .map_err(|_| fault(ErrorCode::UpstreamMalformed, "an event is not a chat completion chunk"))?;
        let choices = chunk.choices.as_deref();
        let choice_error = choices.into_iter().flatten().find_map(|choice| choice.error.filter(|error| says(error)));
        if let Some(error) = choice_error {
            let body = format!(r#"{{"error":{}}}"#, error.get());
            return Err(classify(None, &HeaderMap::new(), Timestamp::now(), body.as_bytes()));
        }
        if chunk.error.is_some_and(says) || (chunk.message.is_some() && choices.is_none()) {
            return Err(classify(None, &HeaderMap::new(), Timestamp::now(), data.as_bytes()));
        }
        if let Some(usage) = chunk.usage.and_then(Usage::reported) {
            self.usage = Some(usage);
        }
        let is_whole = chunk.object.is_some_and(|object| object.as_str() == "chat.completion");
        // We request one choice. If a server sends more, only the first is read.
        let is_first = |choice: &Choice<'_>| choice.index.is_none_or(|Position(index)| index == 0);
        for choice in chunk.choices.into_iter().flatten().filter(is_first) {
            self.choice(&choice, is_whole, assembly)?;
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

    fn choice(&mut self, choice: &Choice<'_>, is_whole: bool, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        let reason = choice.finish_reason.as_ref().map(Text::as_str).filter(|reason| !reason.is_empty());
        let delta = choice.delta.as_ref().filter(|delta| choice.message.is_none() || delta.said.says_something());
        // Some servers stream pieces, and repeat the whole answer at the end.
        let repeats = match (is_whole, reason) {
            (true, _) => Repeats::All,
            (false, Some(_)) => Repeats::Maybe,
            (false, None) => Repeats::No,
        };
        match (delta, &choice.message) {
            (Some(delta), _) => self.delta(delta, Repeats::No, assembly)?,
            (None, Some(message)) => self.delta(message, repeats, assembly)?,
            (None, None) => {}
        }
        match reason {
            Some(reason) => self.finish = Some(finish(reason)?),
            None if is_whole && choice.message.is_some() => self.finish = Some(Finish::STOP),
            None => {}
        }
        Ok(())
    }

    fn delta(&mut self, delta: &Delta<'_>, repeats: Repeats, assembly: &mut Assembly<'_>) -> Result<(), ModelFault> {
        let Delta { said: delta, raw } = delta;
        if let Some((field, _)) = delta.plain_reasoning() {
            assembly.set_reasoning_field(field);
        }
        for (name, value) in Fields::of(raw.get()).iter() {
            if repeats == Repeats::No || !assembly.has_message_field(name) {
                assembly.set_message_field(name, value)?;
            }
        }
        let reasoning = delta.reasoning();
        let new = repeats.unsaid(&reasoning, || assembly.reasoning_so_far());
        assembly.reasoning(new)?;
        let text = delta.text();
        let new = repeats.unsaid(&text, || assembly.text_so_far());
        assembly.text(new)?;
        if let Some(calls) = &delta.tool_calls {
            self.calls.pieces(calls, repeats != Repeats::No, assembly)?;
        } else if let Some(call) = &delta.function_call {
            self.calls.only(call, assembly)?;
        }
        Ok(())
    }
}

impl DeltaFields<'_> {
    fn says_something(&self) -> bool {
        let calls = self.tool_calls.as_ref().is_some_and(|calls| !calls.0.is_empty()) || self.function_call.is_some();
        calls || !self.text().is_empty() || !self.reasoning().is_empty()
    }

    /// Returns the text or the refusal in this piece.
    fn text(&self) -> Cow<'_, str> {
        let refusal = self.refusal.as_ref().map_or("", Text::as_str);
        match &self.content {
            Some(Content::Text(text)) if refusal.is_empty() => Cow::Borrowed(text.as_str()),
            Some(Content::Text(text)) => Cow::Owned([text.as_str(), refusal].concat()),
            Some(Content::Parts(parts)) => {
                let texts = parts.0.iter().filter_map(|part| part.text.as_ref().map(Text::as_str));
                Cow::Owned(texts.chain([refusal]).collect())
            }
            None => Cow::Borrowed(refusal),
        }
    }

    /// Returns reasoning that is in a separate field, and the name of that field.
    fn plain_reasoning(&self) -> Option<(&'static str, &str)> {
        let [long, short] = [("reasoning_content", &self.reasoning_content), ("reasoning", &self.reasoning)];
        let mut fields = [long, short].into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?.as_str())));
        fields.find(|(_, text)| !text.is_empty())
    }

    /// Returns the reasoning in this piece. A server that uses several names sends the same text under each.
    fn reasoning(&self) -> Cow<'_, str> {
        if let Some((_, text)) = self.plain_reasoning() {
            return Cow::Borrowed(text);
        }
        let details = self.reasoning_details.iter().flat_map(|details| &details.0);
        let parts = match &self.content {
            Some(Content::Parts(parts)) => parts.0.as_slice(),
            _ => &[],
        };
        let thoughts = parts.iter().flat_map(|part| part.thinking.iter().flat_map(|thinking| &thinking.0));
        let texts = details.chain(thoughts).filter_map(|detail| detail.text.as_ref().or(detail.summary.as_ref()));
        let mut texts = texts.map(Text::as_str);
        match (texts.next(), texts.next()) {
            (first, None) => Cow::Borrowed(first.unwrap_or_default()),
            (first, second) => Cow::Owned(first.into_iter().chain(second).chain(texts).collect()),
        }
    }
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
