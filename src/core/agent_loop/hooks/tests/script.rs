//! The actions of a test in the world: client commands, and the answers of hooks, model and tools.

use super::World;
use crate::{
    agent_loop::{Input, Origin, RequestId, check_offers},
    hook::{HookFault, HookPlace, check_hooks},
    model::{Answer, ModelFault},
    session::{Destination, Lookup},
};
use reseed_protocol::{
    CallId, ErrorCode, Part, StopReason,
    command::SessionCommand,
    content::Input as Said,
    hooks::{HookAnswer, HookCall, HookOffer},
    tools::{ToolOffer, ToolResult},
    turn::{CancelTurn, UserInput},
};
use serde_json::{Value, json};

impl World {
    pub(super) fn command(&mut self, command: SessionCommand) -> &mut Self {
        self.command_to(command, None)
    }

    pub(super) fn command_to(&mut self, command: SessionCommand, destination: Option<Destination>) -> &mut Self {
        self.commands += 1;
        let (id, command) = (format!("command-{:012}", self.commands).parse().unwrap(), Box::new(command));
        let lookup = destination.map(|destination| Box::new(Lookup::Destination(destination)));
        self.tell(Input::Command { origin: Origin(1), id, fingerprint: 0, command, lookup })
    }

    pub(super) fn say(&mut self, text: &str) -> &mut Self {
        self.command(SessionCommand::UserInput(UserInput::plain(Said::Text(text.into()))))
    }

    pub(super) fn cancel(&mut self) -> &mut Self {
        self.command(SessionCommand::CancelTurn(CancelTurn { turn_id: None }))
    }

    /// Offers the model the tool `look`, which requires the argument `where`.
    pub(super) fn offer_tool(&mut self) -> &mut Self {
        let parameters = json!({
            "type": "object", "properties": { "where": { "type": "string" } }, "required": ["where"],
        });
        let offer = ToolOffer::new("look", "Looks.", parameters);
        self.tell(Input::ToolsOffered(check_offers(vec![offer]).unwrap()))
    }

    /// Offers these hooks as the host.
    pub(super) fn offer_hooks(&mut self, offers: Value) -> &mut Self {
        let hooks: Vec<HookOffer> = serde_json::from_value(offers).unwrap();
        self.tell(Input::HooksOffered(check_hooks(hooks).unwrap().into()));
        self.tell(Input::AskAgain { only_away: true })
    }

    /// Advances time, and sends a tick if a deadline has passed.
    pub(super) fn wait(&mut self, millis: u64) -> &mut Self {
        self.now = self.now.plus_millis(millis);
        if self.agent.next_deadline().is_some_and(|due| due <= self.now) {
            self.tell(Input::Tick);
        }
        self
    }

    /// Answers the oldest pending call.
    pub(super) fn answer(&mut self, answer: Value) -> &mut Self {
        let (place, call) = self.open.pop_front().expect("a hook is asked");
        self.answer_to(place, call, answer)
    }

    pub(super) fn answer_to(&mut self, place: HookPlace, call: HookCall, mut answer: Value) -> &mut Self {
        match place {
            HookPlace::Client => {
                answer["hookCallId"] = json!(call.call_id);
                self.command(SessionCommand::HookResult(Box::new(serde_json::from_value(answer).unwrap())))
            }
            HookPlace::Server => self.hear(call.call_id, Ok(serde_json::from_value(answer).unwrap())),
        }
    }

    /// Fails the oldest pending call.
    pub(super) fn fails(&mut self, fault: HookFault) -> &mut Self {
        let (_, call) = self.open.pop_front().expect("a hook is asked");
        self.hear(call.call_id, Err(fault))
    }

    pub(super) fn hear(&mut self, call_id: CallId, answer: Result<HookAnswer, HookFault>) -> &mut Self {
        self.tell(Input::HookAnswered { call_id, answer: Box::new(answer) })
    }

    /// Answers every call with no change.
    pub(super) fn pass(&mut self) -> &mut Self {
        while !self.open.is_empty() {
            self.answer(json!({}));
        }
        self
    }

    /// Answers the model request with this text.
    pub(super) fn model(&mut self, text: &str) -> &mut Self {
        self.model_says(vec![Part::Text { text: text.into() }])
    }

    /// Answers the model request with calls to `look`, one for each of these arguments.
    pub(super) fn model_calls(&mut self, arguments: &[&str]) -> &mut Self {
        let call = |arguments: &&str| Part::ToolCall {
            call_id: "call_0".parse().unwrap(),
            name: "look".into(),
            arguments: (*arguments).into(),
        };
        self.model_says(arguments.iter().map(call).collect())
    }

    pub(super) fn model_says(&mut self, parts: Vec<Part>) -> &mut Self {
        let request = self.asked.take().expect("the model is asked");
        self.tell(Input::Answered { request, answer: Answer::new(parts, StopReason::Stop) })
    }

    pub(super) fn model_fails(&mut self, code: ErrorCode) -> &mut Self {
        let request = self.asked.take().expect("the model is asked");
        self.tell(Input::Failed { request, fault: ModelFault::new(code, "a fault"), shown: Vec::new() })
    }

    /// Answers the summary request with all sections, in as many parts as are requested.
    pub(super) fn summary(&mut self) -> &mut Self {
        assert!(self.summarising.is_some(), "a summary is asked for");
        while let Some(request) = self.summarising.take() {
            self.summary_piece(request);
            self.took.retain(|line| line != "summary");
        }
        self
    }

    /// Answers the summary request with this text.
    pub(super) fn summary_says(&mut self, text: &str) -> &mut Self {
        let request = self.summarising.take().expect("the model is asked for a summary");
        let parts = vec![Part::Text { text: text.into() }];
        let answer = Answer::new(parts, StopReason::Stop);
        self.took.retain(|line| line != "summary");
        self.tell(Input::Answered { request, answer })
    }

    pub(super) fn summary_piece(&mut self, request: RequestId) {
        let sections = crate::compaction::summary::SECTIONS.iter();
        let text = sections.map(|section| format!("## {section}\n- x\n")).collect();
        let answer = Answer::new(vec![Part::Text { text }], StopReason::Stop);
        self.tell(Input::Answered { request, answer });
    }

    /// Answers the oldest pending tool call.
    pub(super) fn tool(&mut self, output: &str) -> &mut Self {
        let call_id = self.calls.pop_front().expect("a tool is called");
        self.command(SessionCommand::ToolResult(ToolResult { call_id, output: output.into(), is_error: None }))
    }
}
