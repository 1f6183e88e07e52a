//! Writes one assistant's message as chunks: what it has so far, then what is added.
//!
//! An answer of the model is a step. A tool call is known to the page by the answer's entry and its number among the
//! calls of that answer, because the call has no id of its own while it is streamed.

use super::{
    chunks::{Chunk, CompactionState, Runs},
    messages::{media_type, shown_parts},
};
use reseed_client::fold::Item;
use reseed_protocol::{
    CallId, Entry, EntryData, EntryId,
    content::{Message, Part, Role},
    tools::{Approval, CallOutcome, CallResolved},
    turn::RunningPart,
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
    /// The answer that is shown but has no entry yet, with its parts.
    answer: Option<(EntryId, Vec<Shown>)>,
    /// The calls of the message that have no result yet.
    open: BTreeMap<CallId, Open>,
    /// True while the page shows a running compaction.
    is_compacting: bool,
    chunks: Vec<Chunk>,
}

/// A part of an answer, as far as it was shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Shown {
    kind: Option<Kind>,
    bytes: usize,
    ended: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
    Call,
}

/// A call without a result.
#[derive(Debug)]
struct Open {
    /// The call, as the page knows it.
    id: String,
    is_browsers: bool,
    is_denied: bool,
}

/// A part of an answer, whether it is being streamed or complete.
struct Piece<'a> {
    kind: Kind,
    name: &'a str,
    text: &'a str,
    call_id: Option<&'a CallId>,
}

impl<'a> Piece<'a> {
    fn running(part: &'a RunningPart) -> Option<Self> {
        let (kind, name) = match part {
            RunningPart::Text { .. } => (Kind::Text, ""),
            RunningPart::Reasoning { .. } => (Kind::Reasoning, ""),
            RunningPart::ToolCall { name, .. } => (Kind::Call, name.as_str()),
        };
        Some(Self { kind, name, text: part.text(), call_id: None })
    }

    fn complete(part: &'a Part) -> Option<Self> {
        match part {
            Part::Text { text } => Some(Self { kind: Kind::Text, name: "", text, call_id: None }),
            Part::Reasoning { text, .. } => Some(Self { kind: Kind::Reasoning, name: "", text, call_id: None }),
            Part::ToolCall { call_id, name, arguments } => {
                Some(Self { kind: Kind::Call, name, text: arguments, call_id: Some(call_id) })
            }
            Part::Image { .. } | Part::ToolResult { .. } => None,
        }
    }
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
                self.is_compacting = false;
                let done = CompactionState::Done {
                    entry_id: entry.entry_id.to_string(),
                    tokens_before: compaction.tokens_before,
                    tokens_after: compaction.tokens_after,
                };
                self.add(done.chunk());
            }
            _ => {}
        }
    }

    /// Shows what is new of an answer that is being streamed.
    pub(super) fn item(&mut self, item: &Item) {
        if item.aborted().is_some() {
            self.aborted(item.item_id());
            return;
        }
        let pieces: Vec<_> = item.parts().iter().map(Piece::running).collect();
        self.show(item.item_id(), &pieces);
    }

    /// Takes back an answer that will not become an entry.
    pub(super) fn aborted(&mut self, item_id: &EntryId) {
        if self.answer.as_ref().is_some_and(|(shown, _)| shown == item_id) {
            self.reset();
        }
    }

    /// Asks a person to allow a call.
    pub(super) fn approval(&mut self, approval: &Approval) {
        let Some(open) = self.open.get(&approval.call_id) else { return };
        let (approval_id, tool_call_id) = (approval.approval_id.to_string(), open.id.clone());
        self.add(Chunk::ToolApprovalRequest { approval_id, tool_call_id, reason: approval.reason.clone() });
    }

    /// Notes what a person has decided about a call.
    pub(super) fn resolved(&mut self, resolved: &CallResolved) {
        let is_denied = matches!(resolved.outcome, CallOutcome::Rejected | CallOutcome::Expired);
        let Some(open) = self.open.get_mut(&resolved.call_id).filter(|_| is_denied) else { return };
        open.is_denied = true;
        let tool_call_id = open.id.clone();
        self.add(Chunk::ToolOutputDenied { tool_call_id });
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

    /// Shows that the answer waits for a compaction.
    pub(super) fn compacting(&mut self, done: Option<u64>, total: Option<u64>) {
        self.is_compacting = true;
        self.add(CompactionState::Running { done, total }.chunk());
    }

    /// Shows that the compaction which the answer waits for has failed.
    pub(super) fn compaction_failed(&mut self, error_text: String) {
        if std::mem::take(&mut self.is_compacting) {
            self.add(CompactionState::Failed { error_text }.chunk());
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

    fn answer(&mut self, entry_id: &EntryId, message: &Message) {
        let pieces: Vec<_> = message.content.iter().map(Piece::complete).collect();
        if let Some((shown_id, shown)) = &self.answer
            && shown_id == entry_id
            && !is_beginning(shown, &pieces)
        {
            self.reset();
        }
        self.show(entry_id, &pieces);
        let Some((_, shown)) = self.answer.take() else { return };
        let mut number = 0;
        for (index, (piece, shown)) in pieces.iter().zip(&shown).enumerate() {
            let Some(piece) = piece else { continue };
            match piece.kind {
                Kind::Text | Kind::Reasoning if shown.kind.is_some() && !shown.ended => {
                    self.end_text(entry_id, index, piece.kind);
                }
                Kind::Text | Kind::Reasoning => {}
                Kind::Call => {
                    self.called(call_name(entry_id, number), piece);
                    number += 1;
                }
            }
        }
    }

    /// Shows what is new of an answer.
    fn show(&mut self, id: &EntryId, pieces: &[Option<Piece<'_>>]) {
        let mut shown = match self.answer.take() {
            Some((shown_id, shown)) if shown_id == *id => shown,
            Some(_) => {
                // Its end was missed.
                self.add(Chunk::ResetStep);
                Vec::new()
            }
            None => {
                if !std::mem::take(&mut self.is_reset) {
                    self.end_step();
                    self.in_step = true;
                    self.add(Chunk::StartStep);
                }
                Vec::new()
            }
        };
        shown.resize(shown.len().max(pieces.len()), Shown::default());
        // Texts before the newest part are complete. Looking only at the parts since the last open one keeps a delta's
        // cost the same however many parts there are.
        let from = shown.iter().rposition(|part| part.kind.is_some()).unwrap_or(0);
        for index in from..pieces.len() {
            let Some(piece) = &pieces[index] else { continue };
            if piece.kind != Kind::Call && piece.text.len() <= shown[index].bytes {
                continue;
            }
            for (before, part) in shown[..index].iter_mut().enumerate().skip(from) {
                if let Some(kind @ (Kind::Text | Kind::Reasoning)) = part.kind.filter(|_| !part.ended) {
                    part.ended = true;
                    self.end_text(id, before, kind);
                }
            }
            let number = pieces[..index].iter().flatten().filter(|piece| piece.kind == Kind::Call).count();
            self.show_piece((id, index, number), piece, &mut shown[index]);
        }
        self.answer = Some((id.clone(), shown));
    }

    /// Shows what is new of a part: the one with this index, and if it is a call, the one with this number.
    fn show_piece(&mut self, (of, index, number): (&EntryId, usize, usize), piece: &Piece<'_>, shown: &mut Shown) {
        if piece.kind == Kind::Call && piece.name.is_empty() {
            // The beginning of the call was missed. Its entry has the name.
            return;
        }
        let is_new = shown.kind.replace(piece.kind).is_none();
        let Some(delta) = piece.text.get(shown.bytes..).map(str::to_owned) else { return };
        shown.bytes = piece.text.len();
        let (id, tool_call_id) = (part_name(of, index), call_name(of, number));
        if is_new {
            let id = id.clone();
            let (tool_call_id, tool_name) = (tool_call_id.clone(), piece.name.to_owned());
            self.add(match piece.kind {
                Kind::Text => Chunk::TextStart { id },
                Kind::Reasoning => Chunk::ReasoningStart { id },
                Kind::Call => Chunk::ToolInputStart { tool_call_id, tool_name, runs: self.runs(piece.name) },
            });
        }
        if !delta.is_empty() {
            self.add(match piece.kind {
                Kind::Text => Chunk::TextDelta { id, delta },
                Kind::Reasoning => Chunk::ReasoningDelta { id, delta },
                Kind::Call => Chunk::ToolInputDelta { tool_call_id, input_text_delta: delta },
            });
        }
    }

    fn end_text(&mut self, of: &EntryId, index: usize, kind: Kind) {
        let id = part_name(of, index);
        self.add(if kind == Kind::Text { Chunk::TextEnd { id } } else { Chunk::ReasoningEnd { id } });
    }

    /// Shows the complete input of a call.
    fn called(&mut self, tool_call_id: String, piece: &Piece<'_>) {
        let (tool_name, runs) = (piece.name.to_owned(), self.runs(piece.name));
        let input: Option<Value> = serde_json::from_str(piece.text).ok().filter(Value::is_object);
        if let Some(call_id) = piece.call_id {
            self.opened(call_id.clone(), tool_call_id.clone(), piece.name);
        }
        self.add(match input {
            Some(input) => Chunk::ToolInputAvailable { tool_call_id, tool_name, input, runs },
            None => Chunk::ToolInputError {
                tool_call_id,
                tool_name,
                input: json!(piece.text),
                error_text: "the input is not a JSON object".to_owned(),
                runs,
            },
        });
    }

    fn opened(&mut self, call_id: CallId, id: String, name: &str) {
        let is_browsers = self.browser_tools.contains(name);
        self.open.insert(call_id, Open { id, is_browsers, is_denied: false });
    }

    /// Shows the results of calls of this message.
    fn result(&mut self, message: &Message) {
        for part in &message.content {
            match part {
                Part::ToolResult { call_id, output, is_error } => {
                    let Some(open) = self.open.remove(call_id) else { continue };
                    if open.is_denied || self.known.contains(&open.id) {
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

/// Returns true if what was shown is the beginning of an answer.
fn is_beginning(shown: &[Shown], pieces: &[Option<Piece<'_>>]) -> bool {
    shown.iter().enumerate().all(|(index, part)| match (part.kind, pieces.get(index).and_then(Option::as_ref)) {
        (None, _) => true,
        (Some(kind), Some(piece)) if kind == piece.kind => {
            let is_complete = part.bytes == piece.text.len();
            kind == Kind::Call || is_complete || !part.ended && piece.text.is_char_boundary(part.bytes)
        }
        (Some(_), _) => false,
    })
}

/// Returns the output of a tool of the page as the page has given it.
fn given_output(text: &str) -> Value {
    let given: Option<Value> = serde_json::from_str(text).ok();
    given.filter(|given| given.is_object() || given.is_array()).unwrap_or_else(|| json!(text))
}

/// Returns the name of a part in chunks.
fn part_name(of: &EntryId, index: usize) -> String {
    format!("{of}.{index}")
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
mod tests {
    use super::*;

    /// Returns an entry with a message.
    fn entry(id: &str, role: &str, content: Value) -> Entry {
        let entry = json!({
            "entryId": id, "parentId": null, "timestamp": "2026-11-21T09:15:00Z", "type": "message", "role": role,
            "content": content,
        });
        serde_json::from_value(entry).unwrap()
    }

    fn text(text: &str) -> RunningPart {
        RunningPart::Text { text: text.to_owned() }
    }

    fn call(arguments: &str) -> RunningPart {
        RunningPart::ToolCall { name: "look".to_owned(), arguments: arguments.to_owned(), finished: false }
    }

    /// Shows parts of a streamed answer.
    fn stream(writer: &mut Writer, id: &str, parts: &[RunningPart]) {
        let pieces: Vec<_> = parts.iter().map(Piece::running).collect();
        writer.show(&id.parse().unwrap(), &pieces);
    }

    /// Returns the chunks in short.
    fn short(writer: &mut Writer) -> Vec<String> {
        let of = |chunk: &Chunk| {
            let chunk = serde_json::to_value(chunk).unwrap();
            let name = chunk["type"].as_str().unwrap().to_owned();
            let keys = ["id", "toolCallId", "delta", "inputTextDelta", "output", "errorText", "input"];
            let shown = keys.iter().filter_map(|key| chunk.get(key)).map(|value| match value {
                Value::String(text) => format!(" {text}"),
                other => format!(" {other}"),
            });
            name + &shown.collect::<String>()
        };
        writer.take().iter().map(of).collect()
    }

    #[test]
    fn an_answer_is_streamed_and_completed_by_its_entry() {
        let mut writer = Writer::default();
        stream(&mut writer, "a", &[RunningPart::Reasoning { text: "hm".to_owned() }]);
        stream(&mut writer, "a", &[RunningPart::Reasoning { text: "hm".to_owned() }, text("Hel")]);
        stream(&mut writer, "a", &[RunningPart::Reasoning { text: "hm".to_owned() }, text("Hel")]);
        let content = json!([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "Hello"}]);
        writer.entry(&entry("a", "assistant", content));
        writer.end_step();
        let expected = [
            "start-step",
            "reasoning-start a.0",
            "reasoning-delta a.0 hm",
            "reasoning-end a.0",
            "text-start a.1",
            "text-delta a.1 Hel",
            "text-delta a.1 lo",
            "text-end a.1",
            "finish-step",
        ];
        assert_eq!(short(&mut writer), expected);
    }

    #[test]
    fn calls_have_results_in_the_same_message() {
        let mut writer = Writer::default();
        stream(&mut writer, "a", &[text("Look."), call("{\"x\"")]);
        let content = json!([
            {"type": "text", "text": "Look."},
            {"type": "tool_call", "toolCallId": "c1", "name": "look", "arguments": "{\"x\":1}"},
            {"type": "tool_call", "toolCallId": "c2", "name": "look", "arguments": "no"},
        ]);
        writer.entry(&entry("a", "assistant", content));
        writer.entry(&entry("b", "tool", json!([{"type": "tool_result", "toolCallId": "c1", "output": "sea"}])));
        let failed = json!([{"type": "tool_result", "toolCallId": "c2", "output": "bad", "isError": true}]);
        writer.entry(&entry("c", "tool", failed.clone()));
        writer.entry(&entry("d", "tool", failed));
        writer.entry(&entry("e", "assistant", json!([{"type": "text", "text": "Sea."}])));
        let expected = [
            "start-step",
            "text-start a.0",
            "text-delta a.0 Look.",
            "text-end a.0",
            "tool-input-start a.call0",
            "tool-input-delta a.call0 {\"x\"",
            "tool-input-delta a.call0 :1}",
            "tool-input-start a.call1",
            "tool-input-delta a.call1 no",
            "tool-input-available a.call0 {\"x\":1}",
            "tool-input-error a.call1 the input is not a JSON object no",
            "tool-output-available a.call0 sea",
            "tool-output-error a.call1 bad",
            "finish-step",
            "start-step",
            "text-start e.0",
            "text-delta e.0 Sea.",
            "text-end e.0",
        ];
        assert_eq!(short(&mut writer), expected);
        assert_eq!(named_call("a.call1"), Some(("a".parse().unwrap(), 1)));
        assert_eq!(named_call("toolu_1"), None);
    }

    #[test]
    fn a_void_answer_is_reset_and_its_step_goes_on() {
        let mut writer = Writer::default();
        stream(&mut writer, "a", &[text("Fals")]);
        writer.aborted(&"a".parse().unwrap());
        writer.aborted(&"a".parse().unwrap());
        stream(&mut writer, "b", &[text("True")]);
        stream(&mut writer, "c", &[text("Truer")]);
        let expected = [
            "start-step",
            "text-start a.0",
            "text-delta a.0 Fals",
            "reset-step",
            "text-start b.0",
            "text-delta b.0 True",
            "reset-step",
            "text-start c.0",
            "text-delta c.0 Truer",
        ];
        assert_eq!(short(&mut writer), expected);
    }

    #[test]
    fn an_entry_that_is_not_what_was_shown_replaces_it() {
        let content = json!([{"type": "text", "text": "Half"}]);
        for shown in [vec![text("Half"), call("{")], vec![text("Half of it")], vec![text("Ha"), text("x")]] {
            let mut writer = Writer::default();
            stream(&mut writer, "a", &shown);
            writer.take();
            writer.entry(&entry("a", "assistant", content.clone()));
            let expected = ["reset-step", "text-start a.0", "text-delta a.0 Half", "text-end a.0"];
            assert_eq!(short(&mut writer), expected, "{shown:?}");
        }
    }

    #[test]
    fn a_message_waits_once_every_call_is_asked_about_or_the_browsers() {
        let approval = |call: &str| -> Approval {
            serde_json::from_value(json!({
                "approvalId": format!("p-{call}"), "toolCallId": call, "turnId": "t", "name": "look",
                "arguments": "{}", "argumentsHash": "0", "display": "{}", "reason": "why", "options": [],
                "generation": 1, "expiresAt": "2026-11-21T09:15:00Z",
            }))
            .unwrap()
        };
        let mut writer = Writer::new(["mine".to_owned()].into(), BTreeSet::new());
        let calls = json!([
            {"type": "tool_call", "toolCallId": "c1", "name": "look", "arguments": "{}"},
            {"type": "tool_call", "toolCallId": "c2", "name": "look", "arguments": "{}"},
            {"type": "tool_call", "toolCallId": "c3", "name": "mine", "arguments": "{}"},
        ]);
        writer.entry(&entry("a", "assistant", calls));
        assert!(!writer.waits_for_page(&[]));
        assert!(!writer.waits_for_page(&[approval("c1")]));
        assert!(writer.waits_for_page(&[approval("c1"), approval("c2")]));
        writer.take();
        writer.approval(&approval("c1"));
        let denied = json!({"toolCallId": "c1", "outcome": "rejected", "approvalId": "p-c1"});
        writer.resolved(&serde_json::from_value(denied).unwrap());
        let result = json!([{"type": "tool_result", "toolCallId": "c1", "output": "no", "isError": true}]);
        writer.entry(&entry("b", "tool", result));
        assert_eq!(short(&mut writer), ["tool-approval-request a.call0", "tool-output-denied a.call0"]);
        assert!(writer.waits_for_page(&[approval("c2")]));
    }
}
