//! The subjects of hooks: how each is described to them, how an answer is applied, and what follows once all were
//! asked.

use super::super::step::Step;
use super::{
    super::{AgentLoop, compaction::hooks as compaction, navigation::hooks as navigation, stage::Stage},
    ERROR_CHARS_MAX, Open, answer, input, request, result,
};
use crate::hook::HookFault;
use reseed_protocol::hook::{ContextReason, HookAnswer, HookEvent, HookPoint};

/// The subject of a hook chain, as the earlier hooks left it.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a session has one or two at a time, and the largest is the usual one")]
pub(in crate::agent_loop) enum Subject {
    Input(Box<input::Offered>),
    Start(Box<request::Start>),
    BeforeRequest,
    Ephemeral(Box<request::Overlay>),
    TurnEnd(request::Ended),
    Answer(Box<answer::Whole>),
    Calls(Box<answer::Calls>),
    Result(Box<result::Given>),
    Compaction(compaction::Decision),
    Navigation(Box<navigation::Wish>),
}

impl Subject {
    pub(super) fn point(&self) -> (HookPoint, Option<ContextReason>) {
        match self {
            Self::Start(_) => (HookPoint::BeforeAgentStart, None),
            Self::Input(_) | Self::Answer(_) => (HookPoint::Message, None),
            Self::BeforeRequest => (HookPoint::Context, Some(ContextReason::BeforeRequest)),
            Self::Ephemeral(_) => (HookPoint::Context, Some(ContextReason::Ephemeral)),
            Self::TurnEnd(_) => (HookPoint::Context, Some(ContextReason::TurnEnd)),
            Self::Calls(_) => (HookPoint::ToolCall, None),
            Self::Result(given) if given.as_message.is_some() => (HookPoint::Message, None),
            Self::Result(_) => (HookPoint::ToolResult, None),
            Self::Compaction(_) => (HookPoint::BeforeCompact, None),
            Self::Navigation(_) => (HookPoint::BeforeNavigate, None),
        }
    }

    /// Returns the hook point and its reason as text.
    pub(super) fn event(&self) -> &'static str {
        match self {
            Self::Start(_) => "before_agent_start",
            Self::Input(_) | Self::Answer(_) => "message",
            Self::BeforeRequest => "context:before_request",
            Self::Ephemeral(_) => "context:ephemeral",
            Self::TurnEnd(_) => "context:turn_end",
            Self::Calls(_) => "tool_call",
            Self::Result(given) if given.as_message.is_some() => "message",
            Self::Result(_) => "tool_result",
            Self::Compaction(_) => "before_compact",
            Self::Navigation(_) => "before_navigate",
        }
    }

    /// Returns true if the turn or the session waits for this chain.
    pub(super) fn holds_the_stage(&self) -> bool {
        match self {
            Self::Result(_) | Self::Compaction(_) => false,
            Self::Input(offered) => offered.holds,
            _ => true,
        }
    }

    /// Returns true if it is part of the running turn, if one is running.
    pub(super) fn is_of_turn(&self) -> bool {
        !matches!(self, Self::Input(_))
    }

    /// Returns true if its hooks belong to a request.
    pub(super) fn is_of_request(&self) -> bool {
        !matches!(self, Self::Input(_) | Self::Compaction(_) | Self::Navigation(_))
    }

    /// Returns true if no further answer can change anything.
    pub(super) fn is_settled(&self) -> bool {
        match self {
            Self::Calls(calls) => calls.is_blocked(),
            Self::Compaction(decision) => decision.is_cancelled(),
            Self::Navigation(wish) => wish.is_cancelled(),
            _ => false,
        }
    }
}

impl AgentLoop {
    /// Returns the event that hooks of this subject receive.
    pub(super) fn hook_event(&self, subject: &Subject) -> HookEvent {
        match subject {
            Subject::Start(start) => start.event(),
            Subject::Input(offered) => offered.event(),
            Subject::BeforeRequest => self.ws.context_event(ContextReason::BeforeRequest, &self.ws.context()),
            Subject::Ephemeral(overlay) => self.ws.context_event(ContextReason::Ephemeral, &overlay.context),
            Subject::TurnEnd(_) => self.ws.context_event(ContextReason::TurnEnd, &self.ws.context()),
            Subject::Answer(whole) => whole.event(),
            Subject::Calls(calls) => calls.event(),
            Subject::Result(given) => given.event(),
            Subject::Compaction(decision) => self.compaction.compaction_event(&self.ws, decision),
            Subject::Navigation(wish) => wish.event(self),
        }
    }

    /// Applies an answer to the subject. Returns true if that changed anything.
    pub(super) fn take_answer(
        &mut self,
        subject: &mut Subject,
        open: &Open,
        answer: HookAnswer,
    ) -> Result<bool, HookFault> {
        match subject {
            Subject::Start(start) => self.ws.take_start(start, &open.spec.name, answer),
            Subject::Input(offered) => self.ws.take_input_answer(offered, answer),
            Subject::BeforeRequest | Subject::TurnEnd(_) => {
                let is_sent_next = matches!(subject, Subject::BeforeRequest);
                self.take_transform(&open.spec.name, answer, is_sent_next)
            }
            Subject::Ephemeral(overlay) => self.ws.take_overlay(overlay, &open.spec.name, answer),
            Subject::Answer(whole) => whole.take(answer),
            Subject::Calls(calls) => self.ws.take_call(calls, answer),
            Subject::Result(given) => given.take(answer),
            Subject::Compaction(decision) => self.compaction.take_decision(&self.ws, decision, &open.spec.name, answer),
            Subject::Navigation(wish) => wish.take(&open.spec.name, answer),
        }
    }

    /// Continues after all hooks of a point were asked.
    pub(in crate::agent_loop) fn hooked(&mut self, subject: Subject) {
        if subject.holds_the_stage() {
            self.ws.stage.enter(Stage::Idle);
        }
        match subject {
            Subject::Start(start) => self.ws.started(*start),
            Subject::Input(offered) => self.input_seen(*offered),
            Subject::BeforeRequest => self.ws.then(Step::Proceed),
            Subject::Ephemeral(overlay) => self.overlaid(*overlay),
            Subject::TurnEnd(ended) => self.ended(ended),
            Subject::Answer(whole) => self.on_whole_answer(*whole),
            Subject::Calls(calls) => self.next_call(*calls),
            Subject::Result(given) => self.turn.result_seen(&mut self.ws, *given),
            Subject::Compaction(decision) => self.compaction_decided(decision),
            Subject::Navigation(wish) => self.navigate_as_wished(*wish),
        }
    }
}

/// Checks that the answer has only the fields that its point allows and does not report an error.
pub(super) fn check_answer(subject: &Subject, answer: &HookAnswer) -> Result<(), HookFault> {
    if let Some(error) = &answer.error {
        if matches!(subject.point().0, HookPoint::Message | HookPoint::ToolResult) {
            // The error text may contain what the hook was meant to remove.
            return Err(HookFault::failed("it answered with an error"));
        }
        let said: String = error.chars().filter(|c| !c.is_control()).take(ERROR_CHARS_MAX).collect();
        return Err(HookFault::failed(format!("it says: {said}")));
    }
    let allowed = subject.point().0.answer_fields();
    match answer.fields().into_iter().find(|field| !allowed.contains(field)) {
        Some(field) => Err(HookFault::failed(format!(
            "`{}` does not take the field `{field}`; it takes {}",
            subject.event(),
            allowed.join(", ")
        ))),
        None => Ok(()),
    }
}
