//! The subjects of hooks: how each is described to them, and which answers are allowed.
//!
//! A subject is a plain value. It knows neither the session nor a machine, so a step can carry it between them.

pub(crate) mod answer;
pub(crate) mod compaction;
pub(crate) mod input;
pub(crate) mod navigation;
pub(crate) mod request;
pub(crate) mod result;

use crate::hook::HookFault;
use reseed_protocol::hooks::{ContextReason, HookAnswer, HookPoint};

/// Maximum characters of a hook's own error message that are passed on.
const ERROR_CHARS_MAX: usize = 500;

/// The subject of a hook chain, as the earlier hooks left it.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a session has one or two at a time, and the largest is the usual one")]
pub(crate) enum Subject {
    Input(Box<input::ProposedInput>),
    Start(Box<request::Start>),
    BeforeRequest,
    Ephemeral(Box<request::Overlay>),
    TurnEnd(request::Ended),
    Answer(Box<answer::CompleteAnswer>),
    Calls(Box<answer::Calls>),
    Result(Box<result::ToolAnswer>),
    Compaction(compaction::ProposedCompaction),
    Navigation(Box<navigation::ProposedMove>),
}

impl Subject {
    pub(crate) fn point(&self) -> (HookPoint, Option<ContextReason>) {
        match self {
            Self::Start(_) => (HookPoint::BeforeAgentStart, None),
            Self::Input(_) | Self::Answer(_) => (HookPoint::Message, None),
            Self::BeforeRequest => (HookPoint::Context, Some(ContextReason::BeforeRequest)),
            Self::Ephemeral(_) => (HookPoint::Context, Some(ContextReason::Ephemeral)),
            Self::TurnEnd(_) => (HookPoint::Context, Some(ContextReason::TurnEnd)),
            Self::Calls(_) => (HookPoint::ToolCall, None),
            Self::Result(result) if result.as_message.is_some() => (HookPoint::Message, None),
            Self::Result(_) => (HookPoint::ToolResult, None),
            Self::Compaction(_) => (HookPoint::BeforeCompaction, None),
            Self::Navigation(_) => (HookPoint::BeforeNavigate, None),
        }
    }

    /// Returns the hook point and its reason as text.
    pub(crate) fn event(&self) -> &'static str {
        match self.point() {
            (point, None) => point.as_str(),
            (_, Some(ContextReason::BeforeRequest)) => "context:before_request",
            (_, Some(ContextReason::Ephemeral)) => "context:ephemeral",
            (_, Some(ContextReason::TurnEnd)) => "context:turn_end",
        }
    }

    /// Returns true if the turn or the session waits for this chain.
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::Result(_) | Self::Compaction(_) => false,
            Self::Input(offered) => offered.holds,
            _ => true,
        }
    }

    /// Returns true if it belongs to the running turn, if there is one.
    pub(crate) fn is_of_turn(&self) -> bool {
        !matches!(self, Self::Input(_))
    }

    /// Returns true if its hooks belong to a request.
    pub(crate) fn is_of_request(&self) -> bool {
        !matches!(self, Self::Input(_) | Self::Compaction(_) | Self::Navigation(_))
    }

    /// Returns true if no further answer can change anything.
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Calls(calls) => calls.is_blocked(),
            Self::Compaction(decision) => decision.is_cancelled(),
            Self::Navigation(proposed) => proposed.is_cancelled(),
            _ => false,
        }
    }
}

/// Checks that the answer has only fields that its point allows, and that it does not report an error.
pub(crate) fn check_answer(subject: &Subject, answer: &HookAnswer) -> Result<(), HookFault> {
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
