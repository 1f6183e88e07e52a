//! `message` hooks on user input and on custom messages: called before the command is accepted, so that what they
//! remove is never stored or shown.
//!
//! A session's inputs are inspected one at a time, in the order of arrival: while hooks inspect one, later inputs and
//! custom messages wait in line. None of this is durable: if the process ends or a hook fails, the command is
//! unanswered or refused, and its client sends it again.

use crate::{
    agent_loop::{
        AgentLoop,
        checks::{ANOTHER_ROLE, refused},
        hooks::{
            Hooks,
            chain::{Chain, InLine},
        },
        io::{Caller, Origin},
        stage::Stage,
        step::Step,
        subject::{
            Subject,
            input::{InputKind, ProposedInput, Said},
        },
        workspace::Workspace,
    },
    hook::HookFault,
    session::input::is_picture_address,
};
use reseed_protocol::{
    CommandId, ErrorBody, ErrorCode, Part, Role,
    command::{Command, UserInput, WhenBusy},
    hook::HookAnswer,
    reply::Reply,
};

/// Maximum number of commands in line. A connection stops reading at 32 unanswered commands, and a client whose own
/// hook is called must get its answer through besides its inputs.
const LINE_MAX: usize = 16;

impl AgentLoop {
    /// Puts a command in line if hooks are inspecting an input; returns a command that need not wait.
    ///
    /// # Errors
    /// `queue_full`; `turn_running` for an input that may not wait.
    pub(in crate::agent_loop) fn waits_in_line(
        &mut self,
        caller: &Caller,
        command: Command,
    ) -> Result<Option<Command>, ErrorBody> {
        // A message from the hook that is inspecting the input would wait for itself.
        let waits =
            matches!(command, Command::UserInput(_) | Command::AppendCustomMessage(_)) && caller.origin != Origin::HOOK;
        if !waits || !self.hooks.looks_at_input() {
            return Ok(Some(command));
        }
        if let Command::UserInput(UserInput { parent_id, when_busy, .. }) = &command {
            if parent_id.is_some() {
                return Err(self.busy("input with a parentId cannot wait: the branch that it leaves is still growing"));
            }
            if *when_busy == Some(WhenBusy::Reject) {
                return Err(self.busy("the input came with whenBusy: reject"));
            }
        }
        if self.hooks.line.len() >= LINE_MAX {
            let message = format!("{LINE_MAX} inputs are already waiting for hooks; wait for their answers first");
            return Err(ErrorBody::new(ErrorCode::QueueFull, message));
        }
        self.hooks.line.push_back(InLine { caller: caller.clone(), command });
        Ok(None)
    }

    /// Accepts an input as its hooks changed it.
    pub(super) fn accept_input(&mut self, offered: ProposedInput) {
        let ProposedInput { caller, entry_id, parts, what, holds: _ } = offered;
        let taken = match (self.ws.is_holding(), what) {
            (true, _) => Err(stopping()),
            (false, InputKind::Said(how)) => self.take_input(&caller, Said { entry_id, parts }, *how),
            (false, InputKind::Custom(custom)) => self.take_custom_message(&caller, parts, *custom),
        };
        if let Err(error) = taken {
            self.ws.reply(&caller, Reply::Error(error));
        }
        self.ws.then(Step::AfterInput);
    }
}

impl Hooks {
    /// Returns true if hooks are inspecting an input.
    pub(in crate::agent_loop) fn looks_at_input(&self) -> bool {
        self.chains.iter().any(Chain::is_of_input)
    }

    /// Updates the roster with the inputs that are not accepted yet.
    pub(in crate::agent_loop) fn note_waiting(&mut self, ws: &mut Workspace) {
        let waiting = self.inputs_waiting().cloned().collect();
        ws.roster.note_waiting(waiting);
    }

    /// Returns the commands of the input being inspected and of those in line behind it.
    pub(in crate::agent_loop) fn inputs_waiting(&self) -> impl Iterator<Item = &CommandId> {
        let asked = self.chains.iter().filter_map(Chain::input_id);
        asked.chain(self.line.iter().map(|waiting| &waiting.caller.id))
    }

    /// Continues with the commands in line, up to the next one that hooks inspect.
    pub(in crate::agent_loop) fn next_in_line(&mut self, ws: &mut Workspace) {
        if ws.is_over() || self.looks_at_input() {
            return;
        }
        let Some(InLine { caller, command }) = self.line.pop_front() else { return };
        ws.then(Step::Command(caller, Box::new(command)));
        ws.then(Step::NextInLine);
    }

    /// Withdraws the input that hooks are inspecting, for the user. The next one in line follows.
    pub(in crate::agent_loop) fn withdraw_input(&mut self, ws: &mut Workspace) {
        for subject in self.cancel_hooks(ws, |subject| matches!(subject, Subject::Input(_))) {
            if let Subject::Input(offered) = subject {
                let message = "cancel_turn withdrew the input while hooks were inspecting it; nothing of it is stored";
                ws.refuse_input(&offered, ErrorBody::new(ErrorCode::InputCancelled, message));
            }
        }
    }

    /// Refuses the input being inspected and everything in line with this error.
    pub(in crate::agent_loop) fn refuse_inputs(&mut self, ws: &mut Workspace, error: &ErrorBody) {
        let line = std::mem::take(&mut self.line);
        for waiting in line {
            ws.reply(&waiting.caller, Reply::Error(error.clone()));
        }
        for subject in self.cancel_hooks(ws, |subject| matches!(subject, Subject::Input(_))) {
            if let Subject::Input(offered) = subject {
                ws.reply(&offered.caller, Reply::Error(error.clone()));
            }
        }
    }
}

impl AgentLoop {
    /// Starts the hooks' inspection of an input.
    pub(in crate::agent_loop) fn look_at_input(&mut self, caller: &Caller, parts: Vec<Part>, what: InputKind) {
        let entry_id = match &what {
            InputKind::Said(_) => self.ws.new_id(),
            InputKind::Custom(custom) => custom.entry_id.clone(),
        };
        let holds = self.stage() == Stage::Idle;
        let offered = ProposedInput { caller: caller.clone(), entry_id, parts, what, holds };
        self.ws.then(Step::Ask(Subject::Input(Box::new(offered))));
    }
}

impl Workspace {
    pub(super) fn take_input_answer(&self, offered: &mut ProposedInput, answer: HookAnswer) -> Result<bool, HookFault> {
        let Some(message) = answer.message else { return Ok(false) };
        if message.role != Role::User {
            return Err(HookFault::failed(ANOTHER_ROLE));
        }
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
        self.check_input_fits(&message.content).map_err(refused)?;
        let changed = message.content != offered.parts;
        if changed {
            // The stored command must not reveal the original text either.
            offered.caller = offered.caller.without_content(offered.what.command());
            offered.parts = message.content;
        }
        Ok(changed)
    }

    /// Refuses an input that a required hook could not inspect. Nothing of it is kept.
    pub(super) fn refuse_input(&mut self, offered: &ProposedInput, error: ErrorBody) {
        self.reply(&offered.caller, Reply::Error(error));
        self.then(Step::AfterInput);
    }

    pub(super) fn refuse_unseen(&mut self, caller: &Caller) {
        self.reply(caller, self.ending_or(stopping()));
    }
}

fn stopping() -> ErrorBody {
    ErrorBody::new(ErrorCode::ShuttingDown, "the session stopped before hooks had inspected the input; send it again")
}
