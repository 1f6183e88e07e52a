//! The answer to a request, from the steps of its turn.
//!
//! Text goes out as it comes. Calls go out at the end of the turn: only then is it certain that the server has neither
//! refused them nor waits for a person's approval. Calls of other tools than the client's stay within the server.

use crate::exchange::{Delta, Ended, Step};
use reseed_protocol::{
    CallId, Entry, EntryId, ErrorBody, ErrorCode, Message, Part, Role, StopReason, Usage,
    turn::{DeltaKind, TurnStatus},
};
use serde_json::Value;
use std::collections::HashMap;

/// A piece of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// Text.
    Text(String),
    /// The model's reasoning.
    Reasoning(String),
    /// A call.
    Call {
        /// Its place among the calls.
        index: usize,
        /// Its id.
        id: String,
        /// The tool.
        name: String,
        /// The arguments, as JSON text.
        arguments: String,
    },
}

/// The end of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    /// Why it ended, in OpenAI's words.
    pub(super) finish_reason: &'static str,
    /// The tokens of the turn's requests together, as the provider counted them.
    pub(super) usage: Option<Usage>,
    /// The probabilities of the tokens, if they were asked for and the provider has sent them.
    pub(super) logprobs: Vec<Value>,
}

/// Turns steps to pieces.
#[derive(Debug)]
pub(super) struct Answer {
    functions: Vec<String>,
    /// The text and the reasoning of each message that were shown before it was complete.
    shown: HashMap<EntryId, Shown>,
    has_text: bool,
    calls: Vec<Open>,
    logprobs: Vec<Value>,
}

#[derive(Debug, Default)]
struct Shown {
    text: String,
    reasoning: String,
}

/// A call of the last message of the answer.
#[derive(Debug)]
struct Open {
    call_id: CallId,
    name: String,
    arguments: String,
}

impl Answer {
    /// Begins an answer to a client with these tools.
    pub(super) fn new(functions: Vec<String>) -> Self {
        Self { functions, shown: HashMap::new(), has_text: false, calls: Vec::new(), logprobs: Vec::new() }
    }

    /// Takes a step. Returns the end after the last one.
    ///
    /// # Errors
    /// Returns the error of a turn that failed, or whose answer cannot go on.
    pub(super) fn step(&mut self, step: Step, pieces: &mut Vec<Piece>) -> Result<Option<End>, ErrorBody> {
        match step {
            Step::Delta(delta) => self.delta(delta, pieces),
            Step::Entry(entry) => {
                if let Some(message) = entry.message() {
                    self.message(&entry, message, pieces);
                }
            }
            // What was shown cannot be taken back.
            Step::Aborted(item) => {
                let shown = self.shown.remove(&item).unwrap_or_default();
                if !shown.text.is_empty() {
                    let message = "the answer was interrupted in its middle; send the request again";
                    return Err(ErrorBody::new(ErrorCode::UpstreamTruncated, message));
                }
            }
            Step::Finished(ended) => return self.end(*ended, pieces).map(Some),
            Step::Failed(error) => return Err(error),
            Step::Started { .. } | Step::Delayed(_) | Step::Compaction(_) | Step::Approval(_) => {}
        }
        Ok(None)
    }

    fn delta(&mut self, delta: Delta, pieces: &mut Vec<Piece>) {
        let Delta { item, kind, text, .. } = delta;
        match kind {
            DeltaKind::Text => {
                if self.begins_text(&item) {
                    pieces.push(Piece::Text("\n\n".to_owned()));
                }
                self.shown.entry(item).or_default().text.push_str(&text);
                pieces.push(Piece::Text(text));
            }
            DeltaKind::Reasoning => {
                self.shown.entry(item).or_default().reasoning.push_str(&text);
                pieces.push(Piece::Reasoning(text));
            }
            DeltaKind::Arguments => {}
        }
    }

    /// Returns true if the text of this message follows that of an earlier one.
    fn begins_text(&mut self, item: &EntryId) -> bool {
        let begins = self.shown.get(item).is_none_or(|shown| shown.text.is_empty());
        let follows = self.has_text && begins;
        self.has_text = true;
        follows
    }

    /// Takes a complete message: passes on what was not shown, and keeps its calls.
    fn message(&mut self, entry: &Entry, message: &Message, pieces: &mut Vec<Piece>) {
        if message.role == Role::Tool {
            let answers = |call: &CallId| {
                message.content.iter().any(|part| matches!(part, Part::ToolResult { call_id, .. } if call_id == call))
            };
            self.calls.retain(|call| !answers(&call.call_id));
            return;
        }
        // An answer without a model came with the input.
        if message.role != Role::Assistant || message.model.is_none() {
            return;
        }
        let logprobs = message.details.as_ref().and_then(|details| details["logprobs"].as_array());
        self.logprobs.extend(logprobs.into_iter().flatten().cloned());
        let shown = self.shown.remove(&entry.entry_id).unwrap_or_default();
        let (mut text, mut reasoning) = (String::new(), String::new());
        self.calls.clear();
        for part in &message.content {
            match part {
                Part::Text { text: more } => text.push_str(more),
                Part::Reasoning { text: more, .. } => reasoning.push_str(more),
                Part::ToolCall { call_id, name, arguments } if self.functions.contains(name) => {
                    let (name, arguments) = (name.clone(), arguments.clone());
                    self.calls.push(Open { call_id: call_id.clone(), name, arguments });
                }
                Part::ToolCall { .. } | Part::Image { .. } | Part::ToolResult { .. } => {}
            }
        }
        // If a hook has changed the text, what was shown stays.
        if let Some(more) = reasoning.strip_prefix(&shown.reasoning).filter(|more| !more.is_empty()) {
            pieces.push(Piece::Reasoning(more.to_owned()));
        }
        if let Some(more) = text.strip_prefix(&shown.text).filter(|more| !more.is_empty()) {
            if shown.text.is_empty() && self.has_text {
                pieces.push(Piece::Text("\n\n".to_owned()));
            }
            self.has_text = true;
            pieces.push(Piece::Text(more.to_owned()));
        }
    }

    fn end(&mut self, ended: Ended, pieces: &mut Vec<Piece>) -> Result<End, ErrorBody> {
        let Ended { status, finish_reason, error, usage } = ended;
        match (status, error) {
            (TurnStatus::Completed | TurnStatus::Cancelled, _) => {}
            (_, Some(error)) => return Err(error),
            (_, None) => return Err(ErrorBody::new(ErrorCode::Interrupted, "the server stopped during the answer")),
        }
        let calls = std::mem::take(&mut self.calls).into_iter().filter(|_| status == TurnStatus::Completed);
        let before = pieces.len();
        pieces.extend(calls.enumerate().map(|(index, call)| Piece::Call {
            index,
            id: call.call_id.as_str().to_owned(),
            name: call.name,
            arguments: call.arguments,
        }));
        let finish_reason = match finish_reason {
            _ if pieces.len() > before => "tool_calls",
            Some(StopReason::Length) => "length",
            Some(StopReason::ContentFilter) => "content_filter",
            _ => "stop",
        };
        Ok(End { finish_reason, usage, logprobs: std::mem::take(&mut self.logprobs) })
    }
}

#[cfg(test)]
mod tests;
