//! The steps of a random script.

use super::{World, summary};
use crate::{
    agent_loop::{Input, RequestId, check_offers, pins_without, undo_target},
    compaction::factory::Strategies,
    model::{Answer, ModelFault, OverflowHint, Purpose, ReportedUsage},
    session::{Lookup, lookup::landing},
};
use fastrand::Rng;
use reseed_protocol::{
    CommandId, EntryId, ErrorBody, ErrorCode, JobId, Part, StopReason,
    command::{Empty, SessionCommand},
    compaction::{
        CancelCompaction, Pin, PinEntry, PreviewCompaction, SetContextStrategy, StartCompaction, UndoCompaction,
    },
    content::{Input as Said, InputContent},
    session::{RenameSession, SetInstructions, SetModel},
    tools::{ToolOffer, ToolResult},
    tree::{AppendCustom, AppendCustomMessage, Navigate, NavigatePosition, SetLabel},
    turn::{CancelTurn, EditQueue, RetryTurn, UserInput, WhenBusy},
};
use std::collections::HashSet;

/// Returns the error for commands that are pending when the server stops.
fn stopping() -> ErrorBody {
    ErrorBody::new(ErrorCode::ShuttingDown, "stopping")
}

impl World {
    pub(super) fn step(&mut self) {
        self.now = self.now.plus_millis(self.rng.u64(1..4_000));
        if !self.hook_calls.is_empty() && self.rng.u8(..100) < 60 {
            self.hook_speaks();
            return;
        }
        if self.held.is_some() && self.rng.u8(..100) < 12 {
            self.crash();
            return;
        }
        // Otherwise most sessions would spend most of the time waiting for a person.
        if !self.agent.ledger.session.state.approvals.is_empty() && self.rng.u8(..100) < 40 {
            self.somebody_decides();
            return;
        }
        if !self.running.is_empty() && self.rng.u8(..100) < 30 {
            self.server_tool_speaks();
            return;
        }
        match self.rng.u8(..100) {
            0..40 => self.model_speaks(),
            40..60 => {
                let words = self.rng.usize(1..120);
                let input = Said::Text(format!("said{} {}", self.commands + 1, "word ".repeat(words)));
                let when_busy = [None, None, Some(WhenBusy::Steer), Some(WhenBusy::Reject)][self.rng.usize(..4)];
                let summarize = self.rng.u8(..4) == 0;
                let mut said = UserInput { when_busy, ..UserInput::plain(input) };
                let mut lookup = None;
                match self.rng.u8(..10) {
                    0 | 1 => {
                        let parent = self.some_entry().map(|entry| entry.entry_id);
                        lookup = Some(self.destination(parent.clone(), None));
                        said.parent_id = Some(parent);
                        said.summarize = Some(summarize);
                    }
                    2 => said.if_leaf = Some(self.some_entry().map(|entry| entry.entry_id)),
                    _ => {}
                }
                self.command_to(SessionCommand::UserInput(said), lookup);
            }
            60..64 => self.tool_answers(),
            64..67 => self.server_tool_speaks(),
            67..70 => self.somebody_decides(),
            70..74 => self.command(SessionCommand::CancelTurn(CancelTurn { turn_id: None })),
            74..78 => self.command(SessionCommand::RetryTurn(RetryTurn { turn_id: None })),
            78 => self.compact(),
            79..81 => self.keep(),
            81..82 => self.move_about(),
            82..84 => self.command(SessionCommand::CancelCompaction(CancelCompaction { job_id: None })),
            84..86 => {
                let names = Strategies::default().all_names();
                let strategy = names[self.rng.usize(..names.len())].to_owned();
                self.command(SessionCommand::SetContextStrategy(SetContextStrategy { strategy, settings: None }));
            }
            86..88 => {
                let model = format!("test-{}", self.rng.u8(..3));
                self.command(SessionCommand::SetModel(SetModel { model, reasoning_effort: None }));
            }
            88..90 => {
                self.command(SessionCommand::SetInstructions(SetInstructions { instructions: Some("Be kind.".into()) }))
            }
            90 if self.rng.u8(..4) == 0 => self.reconfigure(),
            90 => self.register_tools(),
            91 => self.register_hooks(),
            92..94 => self.annotate(),
            94..96 => self.tell(Input::Tick),
            96 => self.stale_response(),
            97 if self.rng.bool() => self.client_is_back(),
            97 => self.late_hook(),
            98 => match self.rng.u8(..4) {
                0 => self.tell(Input::Hold(Box::new(stopping()))),
                1 if self.rng.bool() => self.tell(Input::Stop(Box::new(stopping()))),
                1 => self.tell(Input::Abandon(Box::new(stopping()))),
                2 => self.tell(Input::Go),
                _ => self.crash(),
            },
            _ => self.command(SessionCommand::GetContextInfo(Empty {})),
        }
    }

    fn move_about(&mut self) {
        let Some(entry) = self.some_entry() else { return };
        let position = [NavigatePosition::At, NavigatePosition::Before][self.rng.usize(..2)];
        let to_start = self.rng.u8(..8) == 0;
        let (leaf, input) = if to_start { (None, None) } else { landing(&entry, position) };
        let navigate = Navigate {
            entry_id: (!to_start).then(|| entry.entry_id.clone()),
            position: Some(position),
            summarize: Some(self.rng.bool()),
            instructions: self.rng.bool().then(|| "Mind the cat.".into()),
            replace_instructions: Some(self.rng.bool()),
            label: self.rng.bool().then(|| "there".into()),
        };
        let lookup = self.destination(leaf, input);
        self.command_to(SessionCommand::Navigate(navigate), Some(lookup));
    }

    fn annotate(&mut self) {
        let waiting: Vec<CommandId> =
            self.agent.ledger.session.state.queue.iter().map(|item| item.command_id.clone()).collect();
        match self.rng.u8(..6) {
            0 => self.command(SessionCommand::RenameSession(RenameSession { name: "A name".into() })),
            1 => {
                let Some(entry) = self.some_entry() else { return };
                let set = SetLabel { entry_id: entry.entry_id, label: self.rng.bool().then(|| "here".into()) };
                self.command(SessionCommand::SetLabel(set));
            }
            2 => {
                let data = serde_json::json!({ "at": 1 });
                self.command(SessionCommand::AppendCustom(AppendCustom { custom_type: "mark".into(), data }));
            }
            3 | 4 => {
                let content = InputContent::Text("note ".repeat(self.rng.usize(1..20)));
                let details = self.rng.bool().then(|| serde_json::json!({ "at": 1 }));
                let note = AppendCustomMessage { custom_type: "note".into(), content, display: true, details };
                self.command(SessionCommand::AppendCustomMessage(note));
            }
            _ => {
                let mut order = waiting.clone();
                self.rng.shuffle(&mut order);
                let steered: HashSet<CommandId> = self
                    .agent
                    .ledger
                    .session
                    .state
                    .queue
                    .iter()
                    .filter(|item| item.steer)
                    .map(|item| item.command_id.clone())
                    .collect();
                order.sort_by_key(|id| !steered.contains(id));
                let removed = order.pop().filter(|_| self.rng.bool());
                let remove = removed.clone().map(|id| vec![id]);
                let order = if removed.is_some() { order } else { waiting };
                self.command(SessionCommand::EditQueue(EditQueue { remove, order: Some(order) }));
            }
        }
    }

    fn model_speaks(&mut self) {
        let asked: Vec<RequestId> = self.asked.keys().copied().collect();
        let Some(request) = self.rng.choice(asked) else { return };
        let Some(purpose) = self.asked.remove(&request) else { return };
        self.forgotten.push(request);
        if self.rng.u8(..100) < 12 {
            let codes = [
                ErrorCode::ContextOverflow,
                ErrorCode::UpstreamError,
                ErrorCode::UpstreamEmpty,
                ErrorCode::UpstreamAuth,
            ];
            let mut fault = ModelFault::new(codes[self.rng.usize(..codes.len())], "a fault");
            let is_shown = purpose == Purpose::Turn && self.rng.bool();
            let shown = if is_shown { vec![Part::Text { text: "half".into() }] } else { Vec::new() };
            if self.rng.bool() {
                fault.overflow =
                    OverflowHint { prompt_tokens: Some(self.rng.u64(1..3_000)), window_tokens: Some(1_000) };
            }
            self.tell(Input::Failed { request, fault, shown });
            return;
        }
        let text = "said ".repeat(self.rng.usize(1..60));
        let parts = match purpose {
            Purpose::Summary if self.rng.bool() => vec![Part::Text { text: summary() }],
            Purpose::Turn if self.rng.u8(..100) < 35 => self.some_calls(),
            _ => vec![Part::Text { text }],
        };
        let stop_reason = if self.rng.u8(..100) < 8 { StopReason::Length } else { StopReason::Stop };
        let usage = self.rng.bool().then(|| ReportedUsage {
            input_tokens: self.rng.u64(..2_000),
            output_tokens: self.rng.u64(..200),
            ..ReportedUsage::default()
        });
        self.tell(Input::Answered { request, answer: Answer { usage, ..Answer::new(parts, stop_reason) } });
    }

    fn some_calls(&mut self) -> Vec<Part> {
        let one = |rng: &mut Rng| {
            let (name, arguments) = [
                ("look", r#"{"at":"x"}"#),
                ("look", "{}"),
                ("look", "{"),
                ("nothing", "{}"),
                ("peek", "{}"),
                ("dig", r#"{"deep":1}"#),
                ("dig", "{}"),
                ("fell", "{}"),
            ][rng.usize(..8)];
            // Providers reuse the same call id in every answer.
            Part::ToolCall { call_id: "call_0".parse().unwrap(), name: name.into(), arguments: arguments.into() }
        };
        (0..self.rng.usize(1..4)).map(|_| one(&mut self.rng)).collect()
    }

    fn tool_answers(&mut self) {
        let call_id = match self.rng.choice(&self.calls) {
            Some(call) => call.clone(),
            None => "unknown".parse().unwrap(),
        };
        let output = "result ".repeat(self.rng.usize(1..80));
        let is_error = Some(self.rng.bool());
        self.command(SessionCommand::ToolResult(ToolResult { call_id, output, is_error }));
    }

    fn register_tools(&mut self) {
        let parameters =
            serde_json::json!({ "type": "object", "properties": { "at": { "type": "string" } }, "required": ["at"] });
        let offer = ToolOffer::new("look", "Looks.", parameters);
        self.tell(Input::ToolsOffered(check_offers(vec![offer]).unwrap()));
    }

    fn compact(&mut self) {
        let preview_id: Option<JobId> = self.agent.compaction.preview_id().cloned();
        match self.rng.u8(..4) {
            0 => self.command(SessionCommand::PreviewCompaction(PreviewCompaction::default())),
            1 if preview_id.is_some() => {
                self.command(SessionCommand::StartCompaction(StartCompaction {
                    preview_id,
                    ..StartCompaction::default()
                }));
            }
            _ => self.command(SessionCommand::StartCompaction(StartCompaction::default())),
        }
    }

    fn keep(&mut self) {
        // An undo is refused while the session is busy, which it usually is.
        let is_undo = !self.agent.is_busy() && self.rng.bool();
        match self.rng.u8(..4) {
            _ if is_undo => {
                let path = self.agent.ledger.session.tree.path();
                let Ok(target) = undo_target(path, None) else { return };
                let mut state = self.folded();
                state.undone.push(target.clone());
                let tree = self.path_in(&state, state.leaf.as_ref());
                // This includes the pins under it, which an older compaction may have hidden too.
                state.pins = pins_without(target, &state.pins, tree.path());
                let tree = self.path_in(&state, state.leaf.as_ref());
                let lookup = Lookup::Path(tree);
                self.command_to(SessionCommand::UndoCompaction(UndoCompaction::default()), Some(Box::new(lookup)));
            }
            0 => {
                let pins = &self.agent.ledger.session.state.pins;
                let Some(pin) = self.rng.choice(pins).cloned() else { return };
                self.command(SessionCommand::UnpinEntry(PinEntry { entry_id: pin.entry_id }));
            }
            _ => self.pin(),
        }
    }

    fn pin(&mut self) {
        let Some(entry) = self.some_entry() else { return };
        let id = entry.entry_id;
        let command = SessionCommand::PinEntry(PinEntry { entry_id: id.clone() });
        let path = self.agent.ledger.session.tree.path();
        let leaf = self.agent.ledger.session.state.leaf.clone();
        let is_on_path = self.way_back(leaf.as_ref()).iter().any(|entry| entry.entry_id == id);
        if path.iter().any(|node| *node.id() == id) || !is_on_path {
            self.command(command);
            return;
        }
        // As in the actor, the unit is found by walking back, and is read together with the path.
        let under = path.iter().rev().find(|node| node.compaction().is_some()).map(|node| node.id().clone());
        let mut state = self.folded();
        let pins = self.unit_of(&id).into_iter().map(|entry_id| Pin { entry_id, with: None, under: under.clone() });
        state.pins.extend(pins);
        let tree = self.path_in(&state, state.leaf.as_ref());
        self.command_to(command, Some(Box::new(Lookup::Path(tree))));
    }

    /// Returns the entry, or all entries of its call and results.
    fn unit_of(&self, id: &EntryId) -> Vec<EntryId> {
        let leaf = self.agent.ledger.session.state.leaf.clone();
        let path: Vec<_> = self.way_back(leaf.as_ref()).into_iter().rev().collect();
        let Some(at) = path.iter().position(|entry| entry.entry_id == *id) else { return vec![id.clone()] };
        let is_result =
            |at: usize| path[at].message().is_some_and(|message| message.role == reseed_protocol::Role::Tool);
        let begins = (0..=at).rev().find(|at| !is_result(*at)).unwrap_or(at);
        let mut ends = begins + 1;
        while ends < path.len() && is_result(ends) {
            ends += 1;
        }
        let begins = if is_result(at) || ends > begins + 1 { begins } else { at };
        path[begins..ends.max(at + 1)].iter().map(|entry| entry.entry_id.clone()).collect()
    }
}
