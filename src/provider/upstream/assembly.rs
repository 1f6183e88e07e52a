//! Assembles an answer as it arrives. Pieces go to the sink at once and are kept until the answer is complete.
//!
//! Invariants:
//! - Everything that is kept was passed to the sink under its final part number.
//! - A part is opened only when it has content, so none is empty and none must be removed again.
//! - A call is passed on once its name is certain. Arguments that arrived before that follow the name.

use super::{arguments::Arguments, fields::Fields, halves::joined};
use crate::{
    core::model::{Answer, Delta, ModelFault, ReportedUsage},
    provider::{DeltaSink, fault::fault},
};
use reseed_protocol::{CallId, CallPayload, ErrorCode, Part, Payload, StopReason};
use serde_json::{Value, value::RawValue};
use std::borrow::Cow;

/// Maximum bytes of text, reasoning and arguments in one answer. The largest known output limit is 128,000 tokens, well
/// below 1 MiB. A server that sends more than this maximum does not stop.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Maximum bytes of an answer's probabilities: some thousand tokens with 20 alternatives each. They are stored with the
/// answer.
const LOGPROBS_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Maximum parts of one answer. Models produce a handful, or some dozens of calls.
const PARTS_MAX: usize = 1024;

/// Fields of a message that are its parts, or that describe the event rather than the content. They are never sent
/// back.
const MESSAGE_FIELDS: &[&str] = &[
    "role",
    "content",
    "refusal",
    "tool_calls",
    "function_call",
    "reasoning_content",
    "reasoning",
    "annotations",
    "audio",
    "name",
    "index",
    "finish_reason",
    "logprobs",
];
/// Fields of a call that are its parts.
const CALL_FIELDS: &[&str] = &["id", "index", "type", "function", "name", "arguments"];

/// A part that is being filled.
#[derive(Debug)]
pub(crate) enum Piece {
    Text(String),
    Reasoning { text: String, payload: Option<Value> },
    Call { id: String, name: String, arguments: Arguments, shown: CallShown, fields: Fields },
}

/// How much of a call the sink has received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum CallShown {
    /// Nothing, because its name is not certain.
    #[default]
    Nothing,
    /// Its beginning.
    Begun,
    /// All of it.
    Ended,
}

impl Piece {
    /// Returns a call whose name is not known yet.
    pub(crate) fn call(id: impl Into<String>) -> Self {
        Self::Call {
            id: id.into(),
            name: String::new(),
            arguments: Arguments::default(),
            shown: CallShown::Nothing,
            fields: Fields::default(),
        }
    }
}

/// How an answer ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) stop_reason: StopReason,
    pub(crate) usage: Option<ReportedUsage>,
    /// True if it ended because the context window was full.
    pub(crate) is_full: bool,
}

pub(crate) struct Assembly<'s> {
    pieces: Vec<Piece>,
    bytes: usize,
    shown: bool,
    /// The field in which the server sent reasoning.
    reasoning: Option<&'static str>,
    /// Fields of the answer that the server has sent for its own use.
    fields: Fields,
    /// The probabilities of the tokens so far, as the server has sent them, and their bytes.
    logprobs: Vec<Value>,
    logprobs_bytes: usize,
    /// True while the text of the current event may contain marks for halves of characters.
    has_marks: bool,
    /// The parts that end in half of a character, with that half.
    halves: Vec<(usize, u16)>,
    sink: &'s mut dyn DeltaSink,
}

impl<'s> Assembly<'s> {
    pub(crate) fn new(sink: &'s mut dyn DeltaSink) -> Self {
        Self {
            pieces: Vec::new(),
            bytes: 0,
            shown: false,
            reasoning: None,
            fields: Fields::default(),
            logprobs: Vec::new(),
            logprobs_bytes: 0,
            has_marks: false,
            halves: Vec::new(),
            sink,
        }
    }

    pub(crate) fn shown(&self) -> bool {
        self.shown
    }

    /// Returns true if nothing has arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Sets whether the following texts may contain marks for halves of characters.
    pub(crate) fn expect_marks(&mut self, has_marks: bool) {
        self.has_marks = has_marks;
    }

    /// Opens an empty part and returns its number.
    pub(crate) fn open(&mut self, piece: Piece) -> Result<usize, ModelFault> {
        if self.pieces.len() == PARTS_MAX {
            return Err(endless());
        }
        self.pieces.push(piece);
        Ok(self.pieces.len() - 1)
    }

    /// Appends to the last part if it is text. Otherwise, opens a new part.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), ModelFault> {
        self.extend_last(text, |last| matches!(last, Piece::Text(_)), || Piece::Text(String::new()))
    }

    /// Appends to the last part if it is reasoning. Otherwise, opens a new part.
    pub(crate) fn reasoning(&mut self, text: &str) -> Result<(), ModelFault> {
        let new = || Piece::Reasoning { text: String::new(), payload: None };
        self.extend_last(text, |last| matches!(last, Piece::Reasoning { .. }), new)
    }

    fn extend_last(&mut self, text: &str, continues: fn(&Piece) -> bool, new: fn() -> Piece) -> Result<(), ModelFault> {
        if text.is_empty() {
            return Ok(());
        }
        let part = match self.pieces.last() {
            Some(last) if continues(last) => self.pieces.len() - 1,
            _ => self.open(new())?,
        };
        self.extend(part, text)
    }

    /// Appends to a part, which is visible text or arguments.
    pub(crate) fn extend(&mut self, part: usize, text: &str) -> Result<(), ModelFault> {
        self.count(text.len())?;
        if text.is_empty() {
            return Ok(());
        }
        if self.has_marks || !self.halves.is_empty() {
            let waiting = self.halves.iter().position(|(at, _)| *at == part);
            let half = waiting.map(|at| self.halves.swap_remove(at).1);
            let (text, half) = joined(half, text);
            self.halves.extend(half.map(|half| (part, half)));
            self.append(part, &text);
        } else {
            self.append(part, text);
        }
        Ok(())
    }

    fn append(&mut self, part: usize, text: &str) {
        if text.is_empty() {
            return;
        }
        match &mut self.pieces[part] {
            Piece::Text(kept) => {
                kept.push_str(text);
                self.shown = true;
                self.sink.delta(Delta::Text { part, text });
            }
            Piece::Reasoning { text: kept, .. } => {
                kept.push_str(text);
                self.shown = true;
                self.sink.delta(Delta::Reasoning { part, text });
            }
            Piece::Call { arguments, shown, .. } => {
                let new = arguments.add(text);
                if *shown == CallShown::Begun && !new.is_empty() {
                    self.sink.delta(Delta::Arguments { part, text: &arguments.text()[new] });
                }
            }
        }
    }

    /// Returns the text of the answer so far, without reasoning.
    pub(crate) fn text_so_far(&self) -> String {
        let texts = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(text.as_str()),
            Piece::Reasoning { .. } | Piece::Call { .. } => None,
        });
        texts.collect()
    }

    /// Returns the reasoning so far.
    pub(crate) fn reasoning_so_far(&self) -> String {
        let texts = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Reasoning { text, .. } => Some(text.as_str()),
            Piece::Text(_) | Piece::Call { .. } => None,
        });
        texts.collect()
    }

    /// Returns the name and the arguments of a call so far. Both are empty if the part is not a call.
    pub(crate) fn call_so_far(&self, part: usize) -> (&str, &str) {
        match self.pieces.get(part) {
            Some(Piece::Call { name, arguments, .. }) => (name, arguments.text()),
            _ => ("", ""),
        }
    }

    /// Returns true if the part is a call whose arguments are complete.
    pub(crate) fn has_whole_arguments(&self, part: usize) -> bool {
        matches!(self.pieces.get(part), Some(Piece::Call { arguments, .. }) if arguments.is_whole())
    }

    /// Returns true if the part is a call without arguments so far.
    pub(crate) fn lacks_arguments(&self, part: usize) -> bool {
        matches!(self.pieces.get(part), Some(Piece::Call { arguments, .. }) if arguments.is_empty())
    }

    /// Sets the id and the name of a call, unless they are empty. The sink receives nothing yet, because the name may
    /// change.
    pub(crate) fn name_call(&mut self, part: usize, sent_id: &str, sent_name: &str) {
        let Some(Piece::Call { id, name, .. }) = self.pieces.get_mut(part) else { return };
        for (kept, sent) in [(id, sent_id), (name, sent_name)] {
            if !sent.is_empty() {
                sent.clone_into(kept);
            }
        }
    }

    /// Begins a call for the sink if it has a name, which is certain now.
    pub(crate) fn begin_call(&mut self, part: usize) {
        let Some(Piece::Call { name, arguments, shown, .. }) = self.pieces.get_mut(part) else { return };
        if *shown == CallShown::Nothing && !name.is_empty() {
            *shown = CallShown::Begun;
            self.shown = true;
            self.sink.delta(Delta::Call { part, name });
            if !arguments.is_empty() {
                self.sink.delta(Delta::Arguments { part, text: arguments.text() });
            }
        }
    }

    /// Ends a call, whose arguments are complete.
    pub(crate) fn end_call(&mut self, part: usize) {
        self.begin_call(part);
        if let Some(Piece::Call { shown: shown @ CallShown::Begun, .. }) = self.pieces.get_mut(part) {
            *shown = CallShown::Ended;
            self.sink.delta(Delta::CallEnd { part });
        }
    }

    /// Remembers the message field that contains the reasoning, so that the text is sent back in it.
    pub(crate) fn set_reasoning_field(&mut self, name: &'static str) {
        self.reasoning.get_or_insert(name);
    }

    /// Returns true if the server has sent probabilities.
    pub(crate) fn has_logprobs(&self) -> bool {
        self.logprobs_bytes > 0
    }

    /// Keeps the probabilities of some tokens, a list. If there are too many, none are kept.
    pub(crate) fn logprobs(&mut self, tokens: &RawValue) {
        self.logprobs_bytes += tokens.get().len();
        if self.logprobs_bytes > LOGPROBS_BYTES_MAX {
            self.logprobs.clear();
        } else if let Ok(tokens) = serde_json::from_str::<Vec<Value>>(tokens.get()) {
            self.logprobs.extend(tokens);
        }
    }

    /// Keeps a field of the message that is the provider's own. A field that arrives in pieces is assembled.
    pub(crate) fn set_message_field(&mut self, name: &str, value: &RawValue) -> Result<(), ModelFault> {
        if MESSAGE_FIELDS.contains(&name) {
            return Ok(());
        }
        self.count(name.len() + value.get().len())?;
        self.fields.add(name, &self.without_marks(value));
        Ok(())
    }

    /// Keeps a field of a call that is the provider's own.
    pub(crate) fn set_call_field(&mut self, part: usize, name: &str, value: &RawValue) -> Result<(), ModelFault> {
        if CALL_FIELDS.contains(&name) {
            return Ok(());
        }
        self.count(name.len() + value.get().len())?;
        let value = self.without_marks(value);
        if let Some(Piece::Call { fields, .. }) = self.pieces.get_mut(part) {
            // Some servers send the field with each piece of the call.
            if !fields.has_value(name, &value) {
                fields.add(name, &value);
            }
        }
        Ok(())
    }

    /// Returns true if the message has this field.
    pub(crate) fn has_message_field(&self, name: &str) -> bool {
        self.fields.has(name)
    }

    /// Returns a value without marks for halves of characters.
    fn without_marks<'v>(&self, value: &'v RawValue) -> Cow<'v, RawValue> {
        if !self.has_marks {
            return Cow::Borrowed(value);
        }
        // A half is inside a JSON string, so it never comes last.
        let (text, _) = joined(None, value.get());
        RawValue::from_string(text).map_or(Cow::Borrowed(value), Cow::Owned)
    }

    /// Counts bytes that are kept.
    pub(crate) fn count(&mut self, bytes: usize) -> Result<(), ModelFault> {
        self.bytes += bytes;
        if self.bytes > ANSWER_BYTES_MAX { Err(endless()) } else { Ok(()) }
    }

    /// Sets the opaque payload of a reasoning part.
    pub(crate) fn set_payload(&mut self, part: usize, value: Value) {
        if let Some(Piece::Reasoning { payload, .. }) = self.pieces.get_mut(part) {
            *payload = Some(value);
        }
    }

    /// Returns the complete answer.
    ///
    /// An empty answer is a fault, because the model ended without text, call or reasoning. If it was cut off before
    /// its first token, the request filled the window. A stream that ends without any event never gets here.
    /// llama-cpp-python does that on overflow.
    pub(crate) fn finish(mut self, ending: Ending) -> Result<Answer, ModelFault> {
        for (part, _) in std::mem::take(&mut self.halves) {
            self.append(part, "\u{fffd}");
        }
        let says_something = self.pieces.iter().any(|piece| match piece {
            Piece::Text(text) | Piece::Reasoning { text, .. } => !text.is_empty(),
            Piece::Call { .. } => true,
        });
        if !says_something {
            return Err(nothing_said(ending));
        }
        if self.pieces.iter().any(|piece| matches!(piece, Piece::Call { name, .. } if name.is_empty())) {
            return Err(fault(ErrorCode::UpstreamMalformed, "a tool call without a name"));
        }
        (0..self.pieces.len()).for_each(|part| self.end_call(part));
        let mut ids: Vec<CallId> = Vec::new();
        let mut calls: Vec<CallPayload> = Vec::new();
        let mut parts = Vec::with_capacity(self.pieces.len());
        for piece in self.pieces {
            parts.push(match piece {
                Piece::Text(text) => Part::Text { text },
                Piece::Reasoning { text, payload } => Part::Reasoning { text, payload },
                Piece::Call { id, name, arguments, fields, .. } => {
                    let call_id = call_id(&id, &ids);
                    ids.push(call_id.clone());
                    let fields = fields.into_json();
                    if !id.is_empty() || fields.is_some() {
                        calls.push(CallPayload { call_id: call_id.clone(), id, fields });
                    }
                    Part::ToolCall { call_id, name, arguments: arguments.text().to_owned() }
                }
            });
        }
        let stop_reason = match ending.stop_reason {
            StopReason::Stop if !ids.is_empty() => StopReason::ToolCalls,
            other => other,
        };
        let has_reasoning = parts.iter().any(|part| matches!(part, Part::Reasoning { .. }));
        let payload = Payload {
            server: String::new(),
            reasoning: self.reasoning.filter(|_| has_reasoning).map(str::to_owned),
            fields: self.fields.into_json(),
            calls,
            compaction: None,
        };
        let payload = (payload != Payload::default()).then(|| Box::new(payload));
        let logprobs = (!self.logprobs.is_empty()).then_some(Value::Array(self.logprobs));
        let answer = Answer::new(parts, stop_reason);
        Ok(Answer { usage: ending.usage, payload, filled_window: ending.is_full, logprobs, ..answer })
    }
}

/// Returns the upstream's id if it is valid and not yet used in this answer, and otherwise one of ours.
fn call_id(id: &str, taken: &[CallId]) -> CallId {
    let ours = (taken.len()..)
        .map(|n| format!("call_{n}").parse().expect("letters, an underscore and a short number are an id"));
    id.parse().ok().into_iter().chain(ours).find(|id| !taken.contains(id)).expect("the numbers do not end")
}

fn endless() -> ModelFault {
    fault(ErrorCode::UpstreamMalformed, "the answer does not end")
}

fn nothing_said(ending: Ending) -> ModelFault {
    let usage = ending.usage;
    let mut fault = why_nothing_was_said(ending);
    fault.origin.usage = usage;
    fault
}

fn why_nothing_was_said(ending: Ending) -> ModelFault {
    match (ending.stop_reason, ending.usage) {
        (StopReason::ContentFilter, _) => fault(ErrorCode::ContentFiltered, "the whole answer was filtered"),
        (StopReason::Length, usage) if ending.is_full || usage.is_some_and(|usage| usage.output_tokens == 0) => {
            let prompt_tokens = usage.map(|usage| usage.input_tokens);
            let note = match prompt_tokens {
                Some(tokens) => format!("{tokens} prompt tokens left no room for an answer"),
                None => "the window left no room for an answer".to_owned(),
            };
            let mut fault = fault(ErrorCode::ContextOverflow, &note);
            fault.overflow.prompt_tokens = prompt_tokens;
            fault
        }
        (StopReason::Length, _) => {
            let fault = fault(ErrorCode::UpstreamEmpty, "the output limit was reached before any text");
            ModelFault { ran_out: true, ..fault }
        }
        _ => fault(ErrorCode::UpstreamEmpty, "it finished without text or calls"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shown(Vec<String>);

    impl DeltaSink for Shown {
        fn delta(&mut self, delta: Delta<'_>) {
            self.0.push(match delta {
                Delta::Text { part, text } => format!("{part} text {text}"),
                Delta::Reasoning { part, text } => format!("{part} reasoning {text}"),
                Delta::Call { part, name } => format!("{part} call {name}"),
                Delta::Arguments { part, text } => format!("{part} arguments {text}"),
                Delta::CallEnd { part } => format!("{part} end"),
            });
        }
    }

    fn ending(stop_reason: StopReason, output_tokens: Option<u64>) -> Ending {
        let usage =
            output_tokens.map(|output_tokens| ReportedUsage { input_tokens: 9, output_tokens, ..Default::default() });
        Ending { stop_reason, usage, is_full: false }
    }

    #[test]
    fn pieces_are_shown_under_the_numbers_of_their_parts() {
        let mut shown = Shown(Vec::new());
        let mut assembly = Assembly::new(&mut shown);
        assembly.text("").unwrap();
        assembly.reasoning("hm").unwrap();
        assembly.text("a").unwrap();
        assembly.text("b").unwrap();
        for id in ["up:1", "up:1", "no id!"] {
            let part = assembly.open(Piece::call(id)).unwrap();
            assembly.name_call(part, "", "look");
            assembly.begin_call(part);
            assembly.extend(part, "{}").unwrap();
        }
        let answer = assembly.finish(ending(StopReason::Stop, None)).unwrap();
        let ids: Vec<&str> = answer
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::ToolCall { call_id, .. } => Some(call_id.as_str()),
                _ => None,
            })
            .collect();
        assert_eq!(ids, ["up:1", "call_1", "call_2"]);
        assert_eq!(answer.stop_reason, StopReason::ToolCalls);
        assert_eq!(answer.parts[1], Part::Text { text: "ab".into() });
        let texts = ["0 reasoning hm", "1 text a", "1 text b"].map(str::to_owned).into_iter();
        let begun = (2..5).flat_map(|part| [format!("{part} call look"), format!("{part} arguments {{}}")]);
        let ended = (2..5).map(|part| format!("{part} end"));
        assert_eq!(shown.0, texts.chain(begun).chain(ended).collect::<Vec<_>>());
    }

    #[test]
    fn a_call_is_shown_once_its_name_is_certain() {
        let mut shown = Shown(Vec::new());
        let mut assembly = Assembly::new(&mut shown);
        let part = assembly.open(Piece::call("c")).unwrap();
        assembly.extend(part, "{\"a\"").unwrap();
        assert!(!assembly.shown());
        assembly.name_call(part, "", "look");
        assert!(!assembly.shown());
        assembly.begin_call(part);
        assert!(assembly.shown());
        assembly.extend(part, ":1}").unwrap();
        assembly.end_call(part);
        assembly.end_call(part);
        let answer = assembly.finish(ending(StopReason::Stop, None)).unwrap();
        assert!(matches!(&answer.parts[0], Part::ToolCall { arguments, .. } if arguments == "{\"a\":1}"));
        assert_eq!(shown.0, ["0 call look", "0 arguments {\"a\"", "0 arguments :1}", "0 end"]);
    }

    #[test]
    fn an_answer_that_says_nothing_is_a_fault() {
        for (ending, expected) in [
            (ending(StopReason::Stop, Some(3)), ErrorCode::UpstreamEmpty),
            (ending(StopReason::Length, None), ErrorCode::UpstreamEmpty),
            (ending(StopReason::Length, Some(3)), ErrorCode::UpstreamEmpty),
            (ending(StopReason::Length, Some(0)), ErrorCode::ContextOverflow),
            (Ending { is_full: true, ..ending(StopReason::Length, Some(1)) }, ErrorCode::ContextOverflow),
            (Ending { is_full: true, ..ending(StopReason::Length, None) }, ErrorCode::ContextOverflow),
            (ending(StopReason::ContentFilter, None), ErrorCode::ContentFiltered),
        ] {
            let mut shown = Shown(Vec::new());
            assert_eq!(Assembly::new(&mut shown).finish(ending).unwrap_err().code, expected, "{ending:?}");
        }
    }

    #[test]
    fn an_answer_without_end_is_cut_off() {
        let mut shown = Shown(Vec::new());
        let mut assembly = Assembly::new(&mut shown);
        let piece = "x".repeat(1024 * 1024);
        let fault = (0..10).find_map(|_| assembly.text(&piece).err()).unwrap();
        assert_eq!(fault.code, ErrorCode::UpstreamMalformed);
    }
}
