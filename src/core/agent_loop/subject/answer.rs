//! The model's answer and its tool calls.

use crate::agent_loop::{checks::ANOTHER_ROLE, tools::SentTools, tools::Tools};
use crate::{hook::HookFault, tool::Terms};
use reseed_protocol::{
    CallId, EntryId, Message, Part, Role, StopReason,
    hooks::{HookAnswer, HookEvent},
};
use std::collections::VecDeque;

/// Maximum bytes of a hook's message: more than models answer, and no more than a session should store.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1024 * 1024;

/// Maximum bytes of the arguments that a hook may give a call.
const ARGUMENTS_BYTES_MAX: usize = 256 * 1024;

/// Maximum characters of a hook's reason that are passed to the model.
const REASON_CHARS_MAX: usize = 2_000;

/// A complete answer of the model, as changed by hooks so far.
#[derive(Debug)]
pub(crate) struct CompleteAnswer {
    pub(crate) item: EntryId,
    pub(crate) message: Message,
    pub(crate) stop_reason: StopReason,
    /// The tools that the request sent.
    pub(crate) tools: SentTools,
}

impl CompleteAnswer {
    pub(crate) fn event(&self) -> HookEvent {
        let message = Message::new(Role::Assistant, self.message.content.clone());
        HookEvent::Message { entry_id: self.item.clone(), message }
    }

    pub(crate) fn take(&mut self, answer: HookAnswer) -> Result<bool, HookFault> {
        let Some(message) = answer.message else { return Ok(false) };
        if message.role != Role::Assistant {
            return Err(HookFault::failed(ANOTHER_ROLE));
        }
        if !message.tool_calls().eq(self.message.tool_calls()) {
            return Err(HookFault::failed("its message has other tool calls; `tool_call` hooks change those"));
        }
        if message.content.iter().any(|part| matches!(part, Part::Image { .. } | Part::ToolResult { .. })) {
            return Err(HookFault::failed("its message has a part that an answer cannot have"));
        }
        let sealed = |part: &&Part| matches!(part, Part::Reasoning { payload: Some(_), .. });
        if message.content.iter().filter(sealed).any(|part| !self.message.content.contains(part)) {
            return Err(HookFault::failed("its message has opaque reasoning that is not the model's own"));
        }
        let bytes: usize = message.content.iter().map(part_bytes).sum();
        if bytes == 0 || bytes > MESSAGE_BYTES_MAX {
            let message = format!("its message has {bytes} bytes of text; 1 to {MESSAGE_BYTES_MAX} are allowed");
            return Err(HookFault::failed(message));
        }
        let changed = message.content != self.message.content;
        self.message.content = message.content;
        if changed {
            // The provider's usage describes an answer that is not sent back: it is billed, but must not calibrate the
            // next request.
            self.message.envelope_key = None;
            // The probabilities have the tokens that the hook has replaced.
            self.message.details = None;
            self.message.payload = self.message.payload.take().map(|payload| Box::new(payload.of_changed()));
        }
        Ok(changed)
    }
}

fn part_bytes(part: &Part) -> usize {
    match part {
        Part::Text { text } | Part::Reasoning { text, .. } => text.len(),
        Part::ToolCall { name, arguments, .. } => name.len() + arguments.len(),
        Part::Image { .. } | Part::ToolResult { .. } => 0,
    }
}

/// A tool call in an answer, and whether it may be made.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) call_id: CallId,
    pub(crate) name: String,
    pub(crate) arguments: String,
    /// The arguments as the model wrote them, if a hook has changed them.
    pub(crate) proposed: Option<String>,
    /// The terms of the call, or the reason for the model why it is not made.
    pub(crate) verdict: Result<Terms, String>,
}

/// The calls of an answer. Hooks are called for the first one in `to_do`.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) to_do: VecDeque<Called>,
    pub(crate) done: Vec<Called>,
    pub(crate) tools: SentTools,
}

impl Calls {
    pub(crate) fn event(&self) -> HookEvent {
        let called = self.to_do.front().expect("hooks are asked only where there is a call");
        HookEvent::ToolCall {
            tool_call_id: called.call_id.clone(),
            name: called.name.clone(),
            arguments: called.arguments.clone(),
        }
    }

    /// Blocks the call that hooks are inspecting.
    pub(crate) fn block(&mut self, why: String) {
        if let Some(called) = self.to_do.front_mut() {
            called.verdict = Err(why);
        }
    }

    /// Returns true if the current call is blocked, whatever other hooks answer.
    pub(crate) fn is_blocked(&self) -> bool {
        self.to_do.front().is_some_and(|called| called.verdict.is_err())
    }

    /// Applies a hook's answer to the current call. `tools` are those that the client offers.
    pub(crate) fn take(&mut self, answer: HookAnswer, tools: &Tools) -> Result<bool, HookFault> {
        let Some(called) = self.to_do.front_mut() else { return Ok(false) };
        if answer.block == Some(true) {
            let reason: String = answer.reason.unwrap_or_default().chars().take(REASON_CHARS_MAX).collect();
            let why = if reason.trim().is_empty() { "it is not allowed here." } else { reason.trim() };
            called.verdict = Err(format!("Not called: {why}"));
            return Ok(true);
        }
        let Some(arguments) = answer.arguments else { return Ok(false) };
        if arguments.len() > ARGUMENTS_BYTES_MAX {
            let message =
                format!("its arguments have {} bytes; at most {ARGUMENTS_BYTES_MAX} are allowed", arguments.len());
            return Err(HookFault::failed(message));
        }
        let Ok(terms) = tools.check_call(&self.tools, &called.name, &arguments) else {
            return Err(HookFault::failed("its arguments do not fit the tool's schema"));
        };
        called.verdict = Ok(terms);
        let changed = arguments != called.arguments;
        let before = std::mem::replace(&mut called.arguments, arguments);
        if changed {
            called.proposed.get_or_insert(before);
        }
        Ok(changed)
    }
}
