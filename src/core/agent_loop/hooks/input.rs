//! `message` hooks on what a user says, and on the messages that clients add: asked before the command is accepted, so
//! that what they take out of it is stored nowhere and shown to nobody.
//!
//! Inputs of a session are looked at one after the other, in the order in which they came: those that come while hooks
//! look at one wait in line behind it, and so do messages of clients. Nothing of this is durable: a process that ends,
//! or a hook that fails, leaves the command unanswered or refused, and its client sends it again.

use super::super::step::Step;
use super::{
    super::{
        AgentLoop, Origin,
        commands::Caller,
        stage::Stage,
        turn::queue::{How, Said},
    },
    Chain, Subject,
    request::{ANOTHER_ROLE, refused},
};
use crate::agent_loop::hooks::Hooks;
use crate::agent_loop::workspace::Workspace;
use crate::{hook::HookFault, session::input::is_picture_address};
use reseed_protocol::{
    CommandId, EntryId, ErrorBody, ErrorCode, Message, Part, Role,
    command::{Command, UserInput, WhenBusy},
    hook::{HookAnswer, HookEvent},
    reply::{QueuedCustom, Reply},
};

/// Inputs that may wait in line. A connection reads no commands beyond 32 unanswered ones, and a client whose own hook
/// is asked must get its answer through beside its inputs.
const LINE_MAX: usize = 16;

/// A command that waits until hooks have looked at an input before it.
#[derive(Debug)]
pub(in crate::agent_loop) struct InLine {
    pub(in crate::agent_loop) caller: Caller,
    command: Command,
}

/// What a user says, as hooks made it so far.
#[derive(Debug)]
pub(in crate::agent_loop) struct Offered {
    pub(in crate::agent_loop) caller: Caller,
    entry_id: EntryId,
    parts: Vec<Part>,
    what: What,
    /// The session does nothing else meanwhile: it did nothing when the input came.
    pub(super) holds: bool,
}

/// What becomes of it once hooks have looked at it.
#[derive(Debug)]
pub(in crate::agent_loop) enum What {
    /// It begins a turn, or waits for one.
    Said(Box<How>),
    /// A client's message: the model is told it without being asked.
    Custom(Box<QueuedCustom>),
}

impl What {
    /// The command that brought it.
    fn command(&self) -> &'static str {
        match self {
            Self::Said(_) => "user_input",
            Self::Custom(_) => "append_custom_message",
        }
    }
}

impl Offered {
    pub(super) fn event(&self) -> HookEvent {
        let message = Message::new(Role::User, self.parts.clone());
        HookEvent::Message { entry_id: self.entry_id.clone(), message }
    }
}

impl AgentLoop {
    /// Puts a command in line that comes while hooks look at an input, or hands back one that need not wait.
    ///
    /// # Errors
    /// `queue_full`; `turn_running` for an input that may not wait.
    pub(in crate::agent_loop) fn waits_in_line(
        &mut self,
        caller: &Caller,
        command: Command,
    ) -> Result<Option<Command>, ErrorBody> {
        // A hook that looks at an input would wait for itself.
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
            let message = format!("{LINE_MAX} inputs wait for hooks already; wait for their answers first");
            return Err(ErrorBody::new(ErrorCode::QueueFull, message));
        }
        self.hooks.line.push_back(InLine { caller: caller.clone(), command });
        self.hooks.note_waiting(&mut self.ws);
        Ok(None)
    }

    /// All hooks have seen an input: it is accepted as they made it.
    pub(super) fn input_seen(&mut self, offered: Offered) {
        let Offered { caller, entry_id, parts, what, holds: _ } = offered;
        let taken = match (self.ws.holding, what) {
            (true, _) => Err(stopping()),
            (false, What::Said(how)) => self.take_input(&caller, Said { entry_id, parts }, *how),
            (false, What::Custom(custom)) => self.take_custom_message(&caller, parts, *custom),
        };
        if let Err(error) = taken {
            self.ws.reply(&caller, Reply::Error(error));
        }
        self.ws.then(Step::AfterInput);
    }
}

impl Hooks {
    /// Whether hooks are looking at an input.
    pub(in crate::agent_loop) fn looks_at_input(&self) -> bool {
        self.chains.iter().any(Chain::is_of_input)
    }

    /// Tells the roster which inputs are not accepted yet.
    pub(super) fn note_waiting(&mut self, ws: &mut Workspace) {
        let waiting = self.inputs_waiting().cloned().collect();
        ws.roster.note_waiting(waiting);
    }

    /// The input that hooks look at, and those behind it.
    pub(in crate::agent_loop) fn inputs_waiting(&self) -> impl Iterator<Item = &CommandId> {
        let asked = self.chains.iter().filter_map(Chain::input_id);
        asked.chain(self.line.iter().map(|waiting| &waiting.caller.id))
    }

    /// Goes on with the commands that waited behind an input, up to the next one that hooks look at.
    pub(in crate::agent_loop) fn next_in_line(&mut self, ws: &mut Workspace) {
        if ws.stage.is(Stage::Done) || self.looks_at_input() {
            return;
        }
        let Some(InLine { caller, command }) = self.line.pop_front() else { return };
        self.note_waiting(ws);
        ws.then(Step::Command(caller, Box::new(command)));
        ws.then(Step::NextInLine);
    }

    /// The user does not want the input that hooks look at. Those behind it are looked at next.
    pub(in crate::agent_loop) fn withdraw_input(&mut self, ws: &mut Workspace) {
        for subject in self.cancel_hooks(ws, |subject| matches!(subject, Subject::Input(_))) {
            if subject.holds_the_stage() {
                ws.stage.enter(Stage::Idle);
            }
            if let Subject::Input(offered) = subject {
                let message = "cancel_turn withdrew the input while hooks looked at it; nothing of it is stored";
                ws.refuse_input(&offered, ErrorBody::new(ErrorCode::InputCancelled, message));
            }
        }
    }

    /// Nothing is accepted any more: what hooks look at, and what waits behind it, is refused with this error.
    pub(in crate::agent_loop) fn refuse_inputs(&mut self, ws: &mut Workspace, error: &ErrorBody) {
        let line = std::mem::take(&mut self.line);
        self.note_waiting(ws);
        for waiting in line {
            ws.reply(&waiting.caller, Reply::Error(error.clone()));
        }
        for subject in self.cancel_hooks(ws, |subject| matches!(subject, Subject::Input(_))) {
            if subject.holds_the_stage() {
                ws.stage.enter(Stage::Idle);
            }
            if let Subject::Input(offered) = subject {
                ws.reply(&offered.caller, Reply::Error(error.clone()));
            }
        }
    }
}

impl Workspace {
    /// Asks the hooks about what a user says.
    pub(in crate::agent_loop) fn look_at_input(&mut self, caller: &Caller, parts: Vec<Part>, what: What) {
        let entry_id = match &what {
            What::Said(_) => self.ids.next_id(),
            What::Custom(custom) => custom.entry_id.clone(),
        };
        let holds = self.stage.is(Stage::Idle);
        let offered = Offered { caller: caller.clone(), entry_id, parts, what, holds };
        self.then(Step::Ask(Subject::Input(Box::new(offered))));
    }

    pub(super) fn take_input_answer(&self, offered: &mut Offered, answer: HookAnswer) -> Result<bool, HookFault> {
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
            return Err(HookFault::failed("its message has parts that a user does not say"));
        }
        if !message.content.iter().any(says_something) {
            return Err(HookFault::failed("its message has no text and no picture"));
        }
        self.check_fits(&message.content).map_err(refused)?;
        let changed = message.content != offered.parts;
        if changed {
            // Also what the command is remembered by says nothing of what it said.
            offered.caller = offered.caller.without_content(offered.what.command());
            offered.parts = message.content;
        }
        Ok(changed)
    }

    /// A required hook could not look at an input: it is refused, and nothing of it is kept.
    pub(super) fn refuse_input(&mut self, offered: &Offered, error: ErrorBody) {
        self.reply(&offered.caller, Reply::Error(error));
        self.then(Step::AfterInput);
    }

    /// What had to wait while hooks looked at an input may begin, in a session that does nothing else.
    pub(in crate::agent_loop) fn go_on_after_input(&mut self) {
        if self.stage.is(Stage::Idle) {
            self.then(Step::Proceed);
        }
        self.then(Step::NextInLine);
    }

    pub(super) fn refuse_unseen(&mut self, caller: &Caller) {
        self.reply(caller, self.ending_or(stopping()));
    }
}

fn stopping() -> ErrorBody {
    ErrorBody::new(ErrorCode::ShuttingDown, "the session stops before hooks have seen the input; send it again")
}
