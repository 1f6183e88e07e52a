//! Writes one assistant's message as chunks, from the steps of its turns and from entries that are stored.
//!
//! An answer of the model is a step. A tool call is known to the page by the answer's entry and its number among the
//! calls of that answer, because the call has no id of its own while it is streamed.

use super::{
    chunks::{Chunk, CompactionState, Runs},
    messages::{media_type, shown_parts},
};
use crate::exchange::{Compaction, Delta, Step};
use reseed_protocol::{
    CallId, Entry, EntryData, EntryId,
    content::{Message, Part, Role},
    tools::Approval,
    turn::DeltaKind,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Writes the chunks of a message.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The tools that the browser runs.
    browser_tools: BTreeSet<String>,
    /// Calls whose end the page knows already.
    known: BTreeSet<String>,
    /// True between `start-step` and `finish-step`.
    in_step: bool,
    /// True if the step was reset, and nothing was shown in it since.
    is_reset: bool,
    /// The answer that is shown but has no entry yet.
    answer: Option<Answer>,
    /// The calls of the message that have no result yet.
    open: BTreeMap<CallId, Open>,
    /// The approvals that the page was asked for.
    asked: BTreeSet<String>,
    /// True while the page shows a running compaction.
    is_compacting: bool,
    chunks: Vec<Chunk>,
}

/// An answer, as far as it was shown.
#[derive(Debug)]
struct Answer {
    item: EntryId,
    parts: BTreeMap<u32, Shown>,
}

/// A part of an answer, as far as it was shown.
#[derive(Debug)]
struct Shown {
    kind: DeltaKind,
    /// The part or the call, as the page knows it.
    name: String,
    bytes: usize,
    ended: bool,
}

/// A call without a result.
#[derive(Debug)]
struct Open {
    /// The call, as the page knows it.
    id: String,
    is_browsers: bool,
}

impl Writer {
    /// Creates a writer for a page with these tools, which knows the end of these calls.
    pub(super) fn new(browser_tools: BTreeSet<String>, known: BTreeSet<String>) -> Self {
        Self { browser_tools, known, ..Self::default() }
    }

    /// Takes what was written.
    pub(super) fn take(&mut self) -> Vec<Chunk> {
        std::mem::take(&mut self.chunks)
    }

    /// Adds a chunk.
    pub(super) fn add(&mut self, chunk: Chunk) {
        self.chunks.push(chunk);
    }

    /// Shows a step of the turn.
    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Started { item, part, kind, name } => self.start(&item, part, kind, &name.unwrap_or_default()),
            Step::Delta(delta) => self.delta(delta),
            Step::Aborted(item) => {
                if self.answer.as_ref().is_some_and(|answer| answer.item == item) {
                    self.reset();
                }
            }
            Step::Entry(entry) => self.entry(&entry),
            Step::Approval(approval) => self.approval(&approval),
            Step::Compaction(Compaction::Started { background: false }) => self.compacting(None, None),
            Step::Compaction(Compaction::Progress { done, total }) => self.compacting(Some(done), Some(total)),
            Step::Compaction(Compaction::Failed(error)) => {
                if std::mem::take(&mut self.is_compacting) {
                    self.add(CompactionState::Failed { error_text: error.message }.chunk());
                }
            }
            Step::Compaction(Compaction::Committed(compacted)) => {
                self.compacted(&compacted.entry_id, compacted.tokens_before, Some(compacted.tokens_after))
            }
            Step::Compaction(Compaction::Started { background: true })
            | Step::Delayed(_)
            | Step::Finished(_)
            | Step::Failed(_) => {}
        }
    }

    /// Notes the calls of an answer that the page has already.
    pub(super) fn seen(&mut self, entry: &Entry) {
        let Some(message) = entry.message() else { return };
        match message.role {
            Role::Assistant => {
                for (number, (call_id, name, _)) in message.tool_calls().enumerate() {
                    self.opened(call_id.clone(), call_name(&entry.entry_id, number), name);
                }
            }
            Role::Tool => self.result(message),
            Role::User => {}
        }
    }

    /// Shows an entry.
    pub(super) fn entry(&mut self, entry: &Entry) {
        match &entry.data {
            EntryData::Message(message) => match message.role {
                Role::Assistant => self.answer(&entry.entry_id, message),
                Role::Tool => self.result(message),
                Role::User => self.steered(&entry.entry_id, message),
            },
            EntryData::Compaction(compaction) => {
                self.compacted(&entry.entry_id, compaction.tokens_before, compaction.tokens_after);
            }
            _ => {}
        }
    }

    fn compacting(&mut self, done: Option<u64>, total: Option<u64>) {
        self.is_compacting = true;
        self.add(CompactionState::Running { done, total }.chunk());
    }

    fn compacted(&mut self, entry: &EntryId, tokens_before: u64, tokens_after: Option<u64>) {
        self.is_compacting = false;
        let entry_id = entry.to_string();
        self.add(CompactionState::Done { entry_id, tokens_before, tokens_after }.chunk());
    }

    /// Asks a person to allow a call, once.
    pub(super) fn approval(&mut self, approval: &Approval) {
        let Some(open) = self.open.get(&approval.call_id) else { return };
        let (approval_id, tool_call_id) = (approval.approval_id.to_string(), open.id.clone());
        if self.asked.insert(approval_id.clone()) {
            self.add(Chunk::ToolApprovalRequest { approval_id, tool_call_id, reason: approval.reason.clone() });
        }
    }

    /// Returns true if every open call waits for the page: for its tool, or for one of these approvals.
    pub(super) fn waits_for_page(&self, approvals: &[Approval]) -> bool {
        let is_asked = |call: &CallId| approvals.iter().any(|approval| approval.call_id == *call);
        !approvals.is_empty() && self.open.iter().all(|(call, open)| open.is_browsers || is_asked(call))
    }

    /// Notes that a person has refused a call.
    pub(super) fn deny(&mut self, call: String) {
        if self.known.insert(call.clone()) {
            self.add(Chunk::ToolOutputDenied { tool_call_id: call });
        }
    }

    /// Ends the step, if there is one.
    pub(super) fn end_step(&mut self) {
        if std::mem::take(&mut self.in_step) {
            self.add(Chunk::FinishStep);
        }
        self.is_reset = false;
        self.answer = None;
    }

    /// Shows the rest of an answer that is complete.
    fn answer(&mut self, entry_id: &EntryId, message: &Message) {
        if let Some(answer) = &self.answer
            && answer.item == *entry_id
            && !answer.is_beginning_of(message)
        {
            self.reset();
        }
        self.begin(entry_id);
        for (part, content) in (0..).zip(&message.content) {
            let Some((kind, tool, text)) = streamed(content) else { continue };
            let shown = self.answer.as_ref().and_then(|answer| answer.parts.get(&part)).map(|shown| shown.bytes);
            if shown.is_none() && (kind == DeltaKind::Arguments || !text.is_empty()) {
                self.start(entry_id, part, kind, tool);
            }
            // If the arguments differ from what was streamed, the whole of them comes next.
            let rest = text.get(shown.unwrap_or(0)..).unwrap_or_default().to_owned();
            if !rest.is_empty() {
                self.delta(Delta { item: entry_id.clone(), part, kind, offset: 0, text: rest });
            }
        }
        self.end_texts();
        self.answer = None;
        for (number, (call_id, name, arguments)) in message.tool_calls().enumerate() {
            self.called(call_id, call_name(entry_id, number), name, arguments);
        }
    }

    /// Begins an answer, unless it is being shown.
    fn begin(&mut self, item: &EntryId) {
        match &self.answer {
            Some(answer) if answer.item == *item => return,
            // Its end was missed.
            Some(_) => self.add(Chunk::ResetStep),
            None => {
                if !std::mem::take(&mut self.is_reset) {
                    self.end_step();
                    self.in_step = true;
                    self.add(Chunk::StartStep);
                }
            }
        }
        self.answer = Some(Answer { item: item.clone(), parts: BTreeMap::new() });
    }

    /// Begins a part of an answer. Texts before it are complete.
    fn start(&mut self, item: &EntryId, part: u32, kind: DeltaKind, tool: &str) {
        self.begin(item);
        self.end_texts();
        let runs = self.runs(tool);
        let Some(answer) = &mut self.answer else { return };
        let calls = answer.parts.range(..part).filter(|(_, shown)| shown.kind == DeltaKind::Arguments).count();
        let is_call = kind == DeltaKind::Arguments;
        let name = if is_call { call_name(item, calls) } else { format!("{item}.{part}") };
        answer.parts.insert(part, Shown { kind, name: name.clone(), bytes: 0, ended: false });
        self.add(match kind {
            DeltaKind::Text => Chunk::TextStart { id: name },
            DeltaKind::Reasoning => Chunk::ReasoningStart { id: name },
            DeltaKind::Arguments => Chunk::ToolInputStart { tool_call_id: name, tool_name: tool.to_owned(), runs },
        });
    }

    fn delta(&mut self, Delta { item, part, kind, text: delta, .. }: Delta) {
        let Some(answer) = self.answer.as_mut().filter(|answer| answer.item == item) else { return };
        let Some(shown) = answer.parts.get_mut(&part).filter(|shown| !shown.ended) else { return };
        shown.bytes += delta.len();
        let id = shown.name.clone();
        self.add(match kind {
            DeltaKind::Text => Chunk::TextDelta { id, delta },
            DeltaKind::Reasoning => Chunk::ReasoningDelta { id, delta },
            DeltaKind::Arguments => Chunk::ToolInputDelta { tool_call_id: id, input_text_delta: delta },
        });
    }

    /// Ends the texts of the answer that are open.
    fn end_texts(&mut self) {
        for shown in self.answer.iter_mut().flat_map(|answer| answer.parts.values_mut()) {
            if shown.kind != DeltaKind::Arguments && !std::mem::replace(&mut shown.ended, true) {
                let id = shown.name.clone();
                let is_text = shown.kind == DeltaKind::Text;
                self.chunks.push(if is_text { Chunk::TextEnd { id } } else { Chunk::ReasoningEnd { id } });
            }
        }
    }

    /// Shows the complete input of a call.
    fn called(&mut self, call_id: &CallId, tool_call_id: String, name: &str, arguments: &str) {
        let (tool_name, runs) = (name.to_owned(), self.runs(name));
        let input: Option<Value> = serde_json::from_str(arguments).ok().filter(Value::is_object);
        self.opened(call_id.clone(), tool_call_id.clone(), name);
        self.add(match input {
            Some(input) => Chunk::ToolInputAvailable { tool_call_id, tool_name, input, runs },
            None => Chunk::ToolInputError {
                tool_call_id,
                tool_name,
                input: json!(arguments),
                error_text: "the input is not a JSON object".to_owned(),
                runs,
            },
        });
    }

    fn opened(&mut self, call_id: CallId, id: String, name: &str) {
        let is_browsers = self.browser_tools.contains(name);
        self.open.insert(call_id, Open { id, is_browsers });
    }

    /// Shows the results of calls of this message.
    fn result(&mut self, message: &Message) {
        for part in &message.content {
            match part {
                Part::ToolResult { call_id, output, is_error } => {
                    let Some(open) = self.open.remove(call_id) else { continue };
                    if self.known.contains(&open.id) {
                        continue;
                    }
                    let tool_call_id = open.id;
                    self.add(if *is_error {
                        Chunk::ToolOutputError { tool_call_id, error_text: output.clone() }
                    } else {
                        let output = if open.is_browsers { given_output(output) } else { json!(output) };
                        Chunk::ToolOutputAvailable { tool_call_id, output }
                    });
                }
                Part::Image { url, .. } => {
                    self.add(Chunk::File { url: url.clone(), media_type: media_type(url).to_owned() });
                }
                _ => {}
            }
        }
    }

    /// Shows a message of the user that joined the turn.
    fn steered(&mut self, id: &EntryId, message: &Message) {
        self.add(Chunk::SteeringMessage { id: id.to_string(), parts: shown_parts(message) });
    }

    /// Takes back the answer that is being shown. Its step goes on with another one.
    fn reset(&mut self) {
        self.answer = None;
        self.is_reset = true;
        self.add(Chunk::ResetStep);
    }

    fn runs(&self, tool: &str) -> Runs {
        if self.browser_tools.contains(tool) { Runs::BROWSER } else { Runs::ELSEWHERE }
    }
}

impl Answer {
    /// Returns true if what was shown is the beginning of this message.
    fn is_beginning_of(&self, message: &Message) -> bool {
        self.parts.iter().all(|(part, shown)| {
            let content = usize::try_from(*part).ok().and_then(|part| message.content.get(part));
            let Some((kind, _, text)) = content.and_then(streamed) else { return false };
            let goes_on = shown.bytes == text.len() || !shown.ended && text.is_char_boundary(shown.bytes);
            kind == shown.kind && (kind == DeltaKind::Arguments || goes_on)
        })
    }
}

/// Returns the kind, the tool and the text of a part that is streamed.
fn streamed(part: &Part) -> Option<(DeltaKind, &str, &str)> {
    match part {
        Part::Text { text } => Some((DeltaKind::Text, "", text)),
        Part::Reasoning { text, .. } => Some((DeltaKind::Reasoning, "", text)),
        Part::ToolCall { name, arguments, .. } => Some((DeltaKind::Arguments, name, arguments)),
        Part::Image { .. } | Part::ToolResult { .. } => None,
    }
}

/// Returns the output of a tool of the page as the page has given it.
fn given_output(text: &str) -> Value {
    let given: Option<Value> = serde_json::from_str(text).ok();
    given.filter(|given| given.is_object() || given.is_array()).unwrap_or_else(|| json!(text))
}

/// Returns the name by which the page knows a call.
fn call_name(of: &EntryId, number: usize) -> String {
    format!("{of}.call{number}")
}

/// Returns the answer's entry and the number of the call that the page knows by this name.
pub(super) fn named_call(name: &str) -> Option<(EntryId, usize)> {
    let (entry, number) = name.rsplit_once(".call")?;
    Some((entry.parse().ok()?, number.parse().ok()?))
}

#[cfg(test)]
mod tests;
