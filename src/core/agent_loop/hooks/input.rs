//! `message` hooks on user input and on custom messages. They are called before the command is accepted, so that text
//! they remove is never stored or shown.
//!
//! A session's inputs are inspected one at a time, in the order of arrival. While hooks inspect one, later inputs and
//! custom messages wait in line. None of this is durable: if the process ends or a hook fails, the command is
//! unanswered or refused, and its client sends it again.

use crate::agent_loop::{
    checks::ANOTHER_ROLE, checks::refused, hooks::Hooks, hooks::chain::Chain, hooks::chain::InLine, io::Caller,
    ledger::Ledger, prompt::Prompt, roster::Roster, step::Step, subject::Subject, subject::input::ProposedInput,
};
use crate::{hook::HookFault, model::is_picture_address};
use reseed_protocol::{
    CallId, CommandId, ErrorBody, ErrorCode, Message, Part, Role, command::SessionCommand, hooks::HookAnswer,
    reply::Reply,
};

/// Maximum number of commands in line. A connection stops reading at 32 unanswered commands. A client whose own hook is
/// called must still get its answer through.
const LINE_MAX: usize = 16;

impl Hooks {
    /// Puts a command in line behind the input that hooks are inspecting.
    ///
    /// # Errors
    /// `queue_full`.
    pub(crate) fn line_up(&mut self, caller: &Caller, command: SessionCommand) -> Result<(), ErrorBody> {
        if self.line.len() >= LINE_MAX {
            let message = format!("{LINE_MAX} inputs are already waiting for hooks; wait for their answers first");
            return Err(ErrorBody::new(ErrorCode::QueueFull, message));
        }
        self.line.push_back(InLine { caller: caller.clone(), command });
        Ok(())
    }

    /// Returns true if hooks are inspecting an input.
    pub(crate) fn looks_at_input(&self) -> bool {
        self.chains.iter().any(Chain::is_of_input)
    }

    /// Updates the roster with the inputs that are not accepted yet.
    pub(crate) fn note_waiting(&self, roster: &mut Roster) {
        let waiting = self.inputs_waiting().cloned().collect();
        roster.note_waiting(waiting);
    }

    /// Returns the commands of the input being inspected and of the inputs in line behind it.
    pub(crate) fn inputs_waiting(&self) -> impl Iterator<Item = &CommandId> {
        let asked = self.chains.iter().filter_map(Chain::input_id);
        asked.chain(self.line.iter().map(|waiting| &waiting.caller.id))
    }

    /// Continues with the commands in line, up to the next one that hooks inspect.
    pub(crate) fn next_in_line(&mut self, ledger: &mut Ledger) {
        if ledger.is_over() || self.looks_at_input() {
            return;
        }
        let Some(InLine { caller, command }) = self.line.pop_front() else { return };
        ledger.then(Step::Command(caller, Box::new(command)));
        ledger.then(Step::NextInLine);
    }

    /// Withdraws the input that hooks are inspecting, because its user asked for that. The next one in line follows.
    pub(crate) fn withdraw_input(&mut self, ledger: &mut Ledger) {
        for subject in self.cancel_hooks(ledger, |subject| matches!(subject, Subject::Input(_))) {
            if let Subject::Input(offered) = subject {
                let message = "cancel_turn withdrew the input while hooks were inspecting it; nothing of it is stored";
                refuse_input(ledger, &offered, ErrorBody::new(ErrorCode::InputCancelled, message));
            }
        }
    }

    /// Refuses the input being inspected, and everything in line, with this error.
    pub(crate) fn refuse_inputs(&mut self, ledger: &mut Ledger, error: &ErrorBody) {
        let line = std::mem::take(&mut self.line);
        for waiting in line {
            ledger.reply(&waiting.caller, Reply::Error(error.clone()));
        }
        for subject in self.cancel_hooks(ledger, |subject| matches!(subject, Subject::Input(_))) {
            if let Subject::Input(offered) = subject {
                ledger.reply(&offered.caller, Reply::Error(error.clone()));
            }
        }
    }
}

pub(crate) fn stopping() -> ErrorBody {
    ErrorBody::new(ErrorCode::ShuttingDown, "the session stopped before hooks had inspected the input; send it again")
}

pub(crate) fn take_input_answer(
    ledger: &Ledger,
    prompt: &Prompt,
    offered: &mut ProposedInput,
    answer: HookAnswer,
) -> Result<bool, HookFault> {
    let Some(message) = answer.message else { return Ok(false) };
    let (_, looked_at) = &offered.said.messages[offered.at];
    if message.role != looked_at.role {
        return Err(HookFault::failed(ANOTHER_ROLE));
    }
    match looked_at.role {
        Role::User => check_said(ledger, prompt, &message)?,
        // Of an earlier answer, or a result, only texts may change.
        Role::Assistant | Role::Tool if calls_of(&message) != calls_of(looked_at) => {
            return Err(HookFault::failed("its message has other calls or results than the one that it inspects"));
        }
        Role::Assistant | Role::Tool => {}
    }
    let changed = message.content != looked_at.content;
    if changed {
        // The stored command must not reveal the original text either.
        offered.caller = offered.caller.without_content(offered.what.command());
        offered.said.messages[offered.at].1.content = message.content;
    }
    Ok(changed)
}

/// Returns the calls and results of a message, in order.
fn calls_of(message: &Message) -> Vec<(bool, &CallId)> {
    fn of_part(part: &Part) -> Option<(bool, &CallId)> {
        match part {
            Part::ToolCall { call_id, .. } => Some((true, call_id)),
            Part::ToolResult { call_id, .. } => Some((false, call_id)),
            Part::Text { .. } | Part::Image { .. } | Part::Reasoning { .. } => None,
        }
    }
    message.content.iter().filter_map(of_part).collect()
}

/// Checks a message of the user that a hook has changed.
fn check_said(ledger: &Ledger, prompt: &Prompt, message: &Message) -> Result<(), HookFault> {
    let says_something = |part: &Part| !matches!(part, Part::Text { text } if text.trim().is_empty());
    let is_sayable = |part: &Part| match part {
        Part::Text { .. } => true,
        Part::Image { url, .. } => is_picture_address(url),
        Part::Reasoning { .. } | Part::ToolCall { .. } | Part::ToolResult { .. } => false,
    };
    if !message.content.iter().all(is_sayable) {
        return Err(HookFault::failed("its message has parts that a user message cannot have"));
    }
    if !message.content.iter().any(says_something) {
        return Err(HookFault::failed("its message has no text and no picture"));
    }
    prompt.check_input_fits(ledger, &message.content).map_err(refused)
}

/// Refuses an input that a required hook could not inspect. Nothing of the input is stored.
pub(crate) fn refuse_input(ledger: &mut Ledger, offered: &ProposedInput, error: ErrorBody) {
    ledger.reply(&offered.caller, Reply::Error(error));
    ledger.then(Step::AfterInput);
}
