//! Input from users and programs: from the command, through the hooks that inspect it, until it starts a turn or is
//! queued.

use crate::agent_loop::checks::{check_custom_type, check_details, custom_parts};
use crate::agent_loop::subject::input::{InputKind, InputOptions, ProposedInput, Said};
use crate::agent_loop::{
    AgentLoop, hooks::input::stopping, io::Caller, io::Origin, records::appended, stage::Stage, step::Step,
    subject::Subject, subject::navigation::Ask, turn::queue, turn::start_turn,
};
use crate::session::{Destination, Lookup, Queued, input};
use reseed_protocol::{
    ErrorBody, ErrorCode, Message, Part, Role,
    command::SessionCommand,
    content::Input,
    event::Event,
    reply::{Done, Reply},
    tree::AppendCustomMessage,
    turn::{Accepted, QueueItem, QueuedCustom, UserInput, WhenBusy},
};

impl AgentLoop {
    pub(super) fn on_user_input(
        &mut self,
        caller: &Caller,
        command: UserInput,
        lookup: Option<Lookup>,
    ) -> Result<(), ErrorBody> {
        let destination = lookup.and_then(Lookup::destination);
        let (history, details) = (command.history.unwrap_or_default(), command.details);
        let has_history = !history.is_empty();
        let generates = command.generate != Some(false);
        let said = self.said(command.input, history, details, (generates, destination.as_ref()))?;
        let summarize = command.summarize == Some(true);
        if summarize && command.parent_id.is_none() {
            let message = "`summarize` is for input that continues elsewhere; send `parentId` with it";
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("summarize"));
        }
        if command.generate == Some(false) && command.parent_id.is_some() {
            let message = "input that only is stored goes to the leaf; leave `parentId` out";
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("generate"));
        }
        self.planner().wanted(command.instructions.clone(), command.replace_instructions)?;
        let how = InputOptions {
            parent_id: command.parent_id,
            when_busy: command.when_busy,
            if_leaf: command.if_leaf,
            generates,
            has_history,
            destination,
            summarize,
            instructions: command.instructions,
            replace_instructions: command.replace_instructions,
        };
        if !self.roster.inspects_input(&self.ledger, &caller.id) {
            return self.take_input(caller, said, how);
        }
        // Input that will be refused anyway is not sent to hooks.
        self.check_input(&how)?;
        self.look_at_input(caller, said, InputKind::Said(Box::new(how)));
        Ok(())
    }

    /// Returns the messages of an input, which would continue from this destination or from the leaf. If the model is
    /// asked, the last one must be something to answer.
    fn said(
        &mut self,
        input: Input,
        history: Vec<Message>,
        details: Option<serde_json::Value>,
        (generates, destination): (bool, Option<&Destination>),
    ) -> Result<Said, ErrorBody> {
        check_details(details.as_ref())?;
        let mut messages = input::history(history)?;
        let may_be_last = messages.last().is_some_and(|message| message.role != Role::Assistant || !generates);
        match input::parts(input) {
            Ok(parts) => messages.push(Message::new(Role::User, parts)),
            Err(error) if error.code == ErrorCode::EmptyInput && may_be_last => {}
            Err(error) => return Err(error),
        }
        let path = destination.map_or_else(|| self.ledger.path(), |to| to.tree.path());
        input::check_results(path.iter().rev().filter_map(|node| node.entry.message()), &messages)?;
        if let Some(last) = messages.last_mut() {
            last.details = details.map(Box::new);
        }
        let mut said = Vec::with_capacity(messages.len());
        for mut message in messages {
            let entry_id = self.ledger.new_id();
            match message.role {
                Role::User => self.prompt.check_input_fits(&self.ledger, &message.content)?,
                Role::Tool => self.prompt.fit_result(&self.ledger, &entry_id, &mut message),
                Role::Assistant => {}
            }
            said.push((entry_id, message));
        }
        Ok(Said { messages: said })
    }

    /// Checks that an input may start a turn now, or wait for one.
    fn check_input(&self, how: &InputOptions) -> Result<(), ErrorBody> {
        if let Some(expected) = &how.if_leaf {
            queue::check_leaf(&self.ledger, expected.as_ref())?;
        }
        if !self.keeps_waiting() {
            return Ok(());
        }
        if how.parent_id.is_some() {
            return Err(self.busy("input with a parentId cannot wait: the branch that it leaves is still growing"));
        }
        if how.has_history || !how.generates {
            return Err(self.busy("input with a history, or without an answer, cannot wait"));
        }
        match how.when_busy {
            Some(WhenBusy::Reject) => Err(self.busy("the input came with whenBusy: reject")),
            _ => Ok(()),
        }
    }

    /// Returns true if an input must wait for its turn. Messages that hooks added while inspecting it do not delay it,
    /// because they go to the model with it.
    fn keeps_waiting(&self) -> bool {
        let waits = |item: &Queued| item.after.is_none() && item.custom.is_none();
        let is_at_rest = self.stage() == Stage::Idle && self.ledger.state().turn.is_none();
        !is_at_rest
            || self.hooks.looks_at_input()
            || (!self.ledger.is_holding() && self.ledger.state().queue.iter().any(waits))
    }

    /// Starts a turn on an input that its hooks have passed, or queues it.
    fn take_input(&mut self, caller: &Caller, said: Said, mut how: InputOptions) -> Result<(), ErrorBody> {
        self.check_input(&how)?;
        if !how.generates {
            self.store_input(caller, said);
            return Ok(());
        }
        if !self.keeps_waiting() {
            let Some(destination) = how.destination.take() else {
                start_turn(&mut self.ledger, &mut self.roster, caller.clone(), said);
                return Ok(());
            };
            let navigate = how.navigate(destination.leaf.clone());
            let turn_id = self.ledger.new_id();
            return self.move_and_ask(caller, navigate, destination, Ask { turn_id, said: Some(said) });
        }
        let steer = how.when_busy == Some(WhenBusy::Steer);
        let after = self.meant_for();
        // An input that may wait has one message.
        let item = said.messages.into_iter().next_back().map(|(entry_id, message)| QueueItem {
            command_id: caller.id.clone(),
            content: message.content,
            steer,
            custom: None,
            after,
            entry_id: Some(entry_id),
            details: message.details,
        });
        let Some(item) = item else { return Ok(()) };
        let as_of_seq = self.ledger.state().seq;
        let reply =
            Reply::Accepted(Accepted { entry_id: None, turn_id: None, queued: true, as_of_seq, duplicate: None });
        self.enqueue(caller, item, reply)
    }

    /// Appends an input that asks for no answer.
    fn store_input(&mut self, caller: &Caller, said: Said) {
        let (as_of_seq, leaf) = (self.ledger.state().seq, self.ledger.state().leaf.clone());
        let entries = said.into_entries(&mut self.ledger, leaf);
        let entry_id = entries.last().map(|entry| entry.entry_id.clone());
        let reply = Reply::Accepted(Accepted { entry_id, turn_id: None, queued: false, as_of_seq, duplicate: None });
        let events = entries.into_iter().map(|entry| appended(entry, None, Some(caller.id.clone()))).collect();
        self.ledger.append(events, vec![caller.mark(reply)]);
    }

    /// Returns the error for a command that cannot run now, with a suggestion.
    pub(super) fn busy(&self, what: &str) -> ErrorBody {
        if self.ledger.state().turn.is_none()
            && let Some(job) = self.running_job()
        {
            let message = format!("{what}; job `{job}` is running: wait for it, or send cancel_compaction");
            let error = ErrorBody::new(ErrorCode::CompactionRunning, message);
            return error.with_details(serde_json::json!({ "jobId": job }));
        }
        if self.ledger.state().turn.is_none() && self.hooks.looks_at_input() {
            let message = format!("{what}; hooks are inspecting an input: wait for its answer");
            return ErrorBody::new(ErrorCode::TurnRunning, message);
        }
        if self.ledger.state().turn.is_none() && self.hooks.proposed_move().is_some() {
            let message = format!("{what}; hooks are inspecting a move of the session: wait for its answer");
            return ErrorBody::new(ErrorCode::TurnRunning, message);
        }
        let message = format!("{what}; a turn is running: wait for its end, or send cancel_turn");
        ErrorBody::new(ErrorCode::TurnRunning, message)
    }

    fn enqueue(&mut self, caller: &Caller, item: QueueItem, reply: Reply) -> Result<(), ErrorBody> {
        queue::enqueue(&mut self.ledger, &mut self.roster, caller, item, reply)?;
        self.compaction.waits_from(self.ledger.now);
        Ok(())
    }

    /// Appends a client's message for the model without requesting an answer. While the session is busy, the message is
    /// queued, because it must not come between a call and its result.
    pub(super) fn on_append_custom_message(
        &mut self,
        caller: &Caller,
        message: AppendCustomMessage,
    ) -> Result<(), ErrorBody> {
        check_custom_type(&message.custom_type)?;
        check_details(message.details.as_ref())?;
        let parts = custom_parts(message.content.clone())?;
        self.prompt.check_input_fits(&self.ledger, &parts).map_err(|error| error.with_field("content"))?;
        let AppendCustomMessage { custom_type, display, details, content: _ } = message;
        let custom = QueuedCustom { entry_id: self.ledger.new_id(), custom_type, display, details };
        // Hooks are not called for messages that hooks add: a hook would wait for itself.
        if caller.origin == Origin::HOOK || !self.roster.inspects_input(&self.ledger, &caller.id) {
            return self.take_custom_message(caller, parts, custom);
        }
        let said = Said::one(custom.entry_id.clone(), parts);
        self.look_at_input(caller, said, InputKind::Custom(Box::new(custom)));
        Ok(())
    }

    /// Appends a client's message that its hooks have passed, or queues it.
    fn take_custom_message(
        &mut self,
        caller: &Caller,
        parts: Vec<Part>,
        custom: QueuedCustom,
    ) -> Result<(), ErrorBody> {
        let as_of_seq = Some(self.ledger.state().seq);
        let reply = Reply::Ok(Done { entry_id: Some(custom.entry_id.clone()), as_of_seq, ..Done::default() });
        let after = self.meant_for();
        let item = QueueItem {
            command_id: caller.id.clone(),
            content: parts,
            steer: true,
            custom: Some(custom),
            after,
            entry_id: None,
            details: None,
        };
        if self.is_busy() {
            return self.enqueue(caller, item, reply);
        }
        let leaf = self.ledger.state().leaf.clone();
        let entry = queue::delivered(&mut self.ledger, item, None, leaf);
        self.ledger.append(vec![Event::EntryAppended(Box::new(entry))], vec![caller.mark(reply)]);
        Ok(())
    }

    /// Puts a command in line if hooks are inspecting an input. Returns a command that need not wait.
    ///
    /// # Errors
    /// `queue_full`; `turn_running` for an input that may not wait.
    pub(super) fn waits_in_line(
        &mut self,
        caller: &Caller,
        command: SessionCommand,
    ) -> Result<Option<SessionCommand>, ErrorBody> {
        // A message from the hook that is inspecting the input would wait for itself.
        let waits = matches!(command, SessionCommand::UserInput(_) | SessionCommand::AppendCustomMessage(_))
            && caller.origin != Origin::HOOK;
        if !waits || !self.hooks.looks_at_input() {
            return Ok(Some(command));
        }
        if let SessionCommand::UserInput(UserInput { parent_id, when_busy, history, generate, .. }) = &command {
            if parent_id.is_some() {
                return Err(self.busy("input with a parentId cannot wait: the branch that it leaves is still growing"));
            }
            if history.as_ref().is_some_and(|history| !history.is_empty()) || *generate == Some(false) {
                return Err(self.busy("input with a history, or without an answer, cannot wait"));
            }
            if *when_busy == Some(WhenBusy::Reject) {
                return Err(self.busy("the input came with whenBusy: reject"));
            }
        }
        self.hooks.line_up(caller, command)?;
        Ok(None)
    }

    /// Starts the hooks' inspection of an input.
    fn look_at_input(&mut self, caller: &Caller, said: Said, what: InputKind) {
        let holds = self.stage() == Stage::Idle;
        let offered = ProposedInput { caller: caller.clone(), said, at: 0, what, holds };
        self.ledger.then(Step::Ask(Subject::Input(Box::new(offered))));
    }

    /// Accepts an input as its hooks changed it.
    pub(super) fn accept_input(&mut self, mut offered: ProposedInput) {
        if offered.at + 1 < offered.said.messages.len() && !self.ledger.is_holding() {
            offered.at += 1;
            self.ledger.then(Step::Ask(Subject::Input(Box::new(offered))));
            return;
        }
        let ProposedInput { caller, said, at: _, what, holds: _ } = offered;
        let taken = match (self.ledger.is_holding(), what) {
            (true, _) => Err(stopping()),
            (false, InputKind::Said(how)) => self.take_input(&caller, said, *how),
            (false, InputKind::Custom(custom)) => {
                let parts = said.messages.into_iter().flat_map(|(_, message)| message.content).collect();
                self.take_custom_message(&caller, parts, *custom)
            }
        };
        if let Err(error) = taken {
            self.ledger.reply(&caller, Reply::Error(error));
        }
        self.ledger.then(Step::AfterInput);
    }
}
