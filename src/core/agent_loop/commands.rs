//! What clients ask of a session: one arm a command.

use super::{AgentLoop, Effect, Mark, Origin, Seen, Stage, compact::cancelled, info};
use crate::core::{
    context::{
        compaction::Order,
        envelope::{envelope, markdown},
        factory::{resolve, strategy},
    },
    session::input,
};
use reseed_protocol::{
    CommandId, EntryData, ErrorBody, ErrorCode, Part, Timestamp,
    command::{
        CancelCompaction, CancelTurn, Command, ContextFormat, GetContext, ManualCompact, RetryTurn, SetContextStrategy,
        SetModel, SetOptions, UserInput, WhenBusy,
    },
    event::{CompactionTrigger, Event, QueueChanged, SessionUpdated, TurnStatus},
    reply::{Accepted, Context, QueueItem, Reply},
};

/// Most tokens that any setting may name: ten times what the largest windows of 2026 have.
const TOKENS_MAX: u64 = 100_000_000;

/// Longest name of a session, in characters.
const NAME_CHARS_MAX: usize = 200;

/// Longest name of a model or of a reasoning effort, in characters.
const MODEL_CHARS_MAX: usize = 200;

/// Bytes that the waiting inputs of a session may have together: each change of the queue is written whole.
const QUEUE_BYTES_MAX: usize = 4 * 1024 * 1024;

fn part_bytes(part: &Part) -> usize {
    match part {
        Part::Text { text } => text.len(),
        Part::Image { url, .. } => url.len(),
        // Users send no others.
        Part::Reasoning { .. } | Part::ToolCall { .. } | Part::ToolResult { .. } => 0,
    }
}

/// A command's sender, id and content hash: what its mark is made of.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) origin: Origin,
    pub(super) id: CommandId,
    pub(super) fingerprint: u64,
}

impl Caller {
    pub(super) fn mark(&self, reply: Reply) -> Mark {
        Mark { origin: self.origin, id: self.id.clone(), fingerprint: self.fingerprint, reply }
    }
}

impl AgentLoop {
    pub(super) fn on_command(&mut self, now: Timestamp, caller: Caller, command: Command) {
        let refused = match command {
            Command::UserInput(input) => self.on_user_input(now, &caller, input),
            Command::CancelTurn(cancel) => self.on_cancel_turn(now, &caller, &cancel),
            Command::RetryTurn(retry) => self.on_retry_turn(now, &caller, &retry),
            Command::ManualCompact(compact) => self.on_manual_compact(now, &caller, compact),
            Command::CancelCompaction(cancel) => self.on_cancel_compaction(now, &caller, &cancel),
            Command::SetContextStrategy(set) => self.on_set_strategy(now, &caller, set),
            Command::SetModel(set) => self.on_set_model(now, &caller, set),
            Command::SetOptions(set) => self.on_set_options(&caller, &set),
            Command::SetInstructions(set) if self.counter.system(&set.instructions) > self.window_tokens() / 2 => {
                let message = "the instructions take more than half of the model's window; shorten them".to_owned();
                Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("instructions"))
            }
            Command::SetInstructions(set) => {
                let mut settings = self.session.state.settings.clone();
                settings.instructions = Some(set.instructions);
                self.update(&caller, |updated| updated.settings = Some(settings));
                self.refresh_fixed();
                Ok(())
            }
            Command::RenameSession(rename) => self.on_rename(&caller, &rename.name),
            Command::GetContextInfo(_) => {
                let info = Box::new(self.context_info());
                self.reply(&caller, Reply::ContextInfo(info));
                Ok(())
            }
            Command::GetContext(get) => {
                self.on_get_context(&caller, &get);
                Ok(())
            }
            Command::RegisterTools(register) => {
                self.on_register_tools(&caller, register.tools);
                Ok(())
            }
            Command::ToolResult(result) => {
                self.on_tool_result(now, &caller, result);
                Ok(())
            }
            Command::CallProgress(progress) => {
                self.on_call_progress(now, &caller, progress);
                Ok(())
            }
            Command::ApprovalResponse(_) => {
                Err(ErrorBody::new(ErrorCode::NoPendingApproval, "no approval waits for an answer"))
            }
            // Answered by the socket or the store before they get here.
            Command::Hello(_)
            | Command::OpenSession(_)
            | Command::CloseSession(_)
            | Command::ListSessions(_)
            | Command::DeleteSession(_)
            | Command::GetEntries(_)
            | Command::ForkSession(_)
            | Command::GetTree(_)
            | Command::EditQueue(_)
            | Command::Navigate(_)
            | Command::SetLabel(_)
            | Command::AppendCustom(_)
            | Command::AppendCustomMessage(_)
            | Command::Ping(_) => Err(ErrorBody::new(
                ErrorCode::NotSupported,
                format!("`{}` is not a session's business", command.name()),
            )),
        };
        if let Err(error) = refused {
            self.reply(&caller, Reply::Error(error));
        }
    }

    /// Answers a command that wrote nothing.
    pub(super) fn reply(&mut self, caller: &Caller, reply: Reply) {
        self.out.push(Effect::Reply { origin: caller.origin, id: caller.id.clone(), reply });
    }

    /// Writes a change of the session and answers `ok`.
    fn update(&mut self, caller: &Caller, change: impl FnOnce(&mut SessionUpdated)) {
        let mark = caller.mark(info::done(Some(self.session.state.seq)));
        let event = info::session_updated(|updated| {
            updated.command_id = Some(caller.id.clone());
            change(updated);
        });
        self.append(vec![event], vec![mark]);
    }

    /// Remembers a command that writes no event, and answers `ok`.
    fn remember(&mut self, caller: &Caller) {
        let mark = caller.mark(info::done(Some(self.session.state.seq)));
        self.append(Vec::new(), vec![mark]);
    }

    fn on_user_input(&mut self, now: Timestamp, caller: &Caller, command: UserInput) -> Result<(), ErrorBody> {
        let parts = input::parts(command.input)?;
        self.check_fits(&parts)?;
        if !self.is_busy() {
            self.start_turn(now, caller.clone(), parts);
            return Ok(());
        }
        if command.when_busy == Some(WhenBusy::Reject) {
            return Err(ErrorBody::new(
                ErrorCode::TurnRunning,
                "a turn is running, and the input came with whenBusy: reject",
            ));
        }
        let mut items = self.session.state.queue.clone();
        let max = self.deployment.queue_items_max;
        if items.len() >= max {
            return Err(ErrorBody::new(
                ErrorCode::QueueFull,
                format!("{max} inputs are waiting already, as many as may"),
            ));
        }
        items.push(QueueItem { command_id: caller.id.clone(), content: parts, steer: false, custom: None });
        let bytes: usize = items.iter().flat_map(|item| &item.content).map(part_bytes).sum();
        if bytes > QUEUE_BYTES_MAX {
            let message =
                format!("the waiting inputs would have {bytes} bytes together, they may have {QUEUE_BYTES_MAX}");
            return Err(ErrorBody::new(ErrorCode::QueueFull, message));
        }
        let as_of_seq = self.session.state.seq;
        let reply =
            Reply::Accepted(Accepted { entry_id: None, turn_id: None, queued: true, as_of_seq, duplicate: None });
        self.append(vec![Event::QueueChanged(QueueChanged { items })], vec![caller.mark(reply)]);
        Ok(())
    }

    fn on_cancel_turn(&mut self, now: Timestamp, caller: &Caller, cancel: &CancelTurn) -> Result<(), ErrorBody> {
        let running = self.session.state.turn.as_ref().map(|turn| &turn.turn_id);
        match (running, &cancel.turn_id) {
            (None, _) => return Err(ErrorBody::new(ErrorCode::NoTurn, "no turn is running")),
            (Some(running), Some(asked)) if running != asked => {
                let message = format!("turn `{asked}` is not running, turn `{running}` is");
                return Err(ErrorBody::new(ErrorCode::NoTurn, message).with_field("turnId"));
            }
            _ => {}
        }
        self.remember(caller);
        self.stop_turn(now, TurnStatus::Cancelled);
        Ok(())
    }

    fn on_retry_turn(&mut self, now: Timestamp, caller: &Caller, retry: &RetryTurn) -> Result<(), ErrorBody> {
        if self.is_busy() {
            return Err(ErrorBody::new(ErrorCode::TurnRunning, "the session is busy; retry when it is idle"));
        }
        let last = self.session.state.last_turn.as_ref().ok_or_else(|| {
            ErrorBody::new(ErrorCode::NothingToRetry, "the last turn ended with an answer, or there is none")
        })?;
        if let Some(asked) = retry.turn_id.as_ref().filter(|asked| **asked != last.turn_id) {
            let message = format!("turn `{asked}` is not the last one, `{}` is", last.turn_id);
            return Err(ErrorBody::new(ErrorCode::NothingToRetry, message).with_field("turnId"));
        }
        let as_of_seq = self.session.state.seq;
        let mut events = Vec::new();
        // What a cancelled answer had shown stays in the tree, on a branch of its own.
        let incomplete = self
            .session
            .tree
            .path()
            .last()
            .filter(|node| matches!(&node.entry.data, EntryData::Message(message) if message.incomplete));
        if let Some(parent) = incomplete.and_then(|node| node.entry.parent_id.clone()) {
            events.push(info::session_updated(|updated| updated.leaf_id = Some(Some(parent))));
        }
        let turn_id: reseed_protocol::TurnId = self.ids.next_id();
        events.push(self.turn_started(turn_id.clone(), vec![caller.id.clone()]));
        let accepted = Accepted { entry_id: None, turn_id: Some(turn_id), queued: false, as_of_seq, duplicate: None };
        self.append(events, vec![caller.mark(Reply::Accepted(accepted))]);
        self.proceed(now);
        Ok(())
    }

    fn on_manual_compact(&mut self, now: Timestamp, caller: &Caller, compact: ManualCompact) -> Result<(), ErrorBody> {
        let running = match &self.stage {
            Stage::Compacting { job, .. } => Some(job.order.job_id.clone()),
            _ => self.ordered.as_ref().map(|order| order.job_id.clone()),
        };
        if let Some(job) = running {
            let error = ErrorBody::new(ErrorCode::CompactionRunning, format!("compaction `{job}` is at work already"));
            return Err(error.with_details(serde_json::json!({ "jobId": job })));
        }
        if self.ordered_cut().is_none() {
            let tokens = self.context_info().token_count;
            let message =
                format!("the next request has about {tokens} tokens, and too few of them are older than the last turn");
            return Err(ErrorBody::new(ErrorCode::NothingToCompact, message));
        }
        let order = Order {
            job_id: self.ids.next_id(),
            trigger: CompactionTrigger::Manual,
            command_id: Some(caller.id.clone()),
            instructions: compact.instructions.filter(|text| !text.trim().is_empty()),
        };
        let mut reply = info::done(Some(self.session.state.seq));
        if let Reply::Ok(done) = &mut reply {
            done.job_id = Some(order.job_id.clone());
        }
        self.append(Vec::new(), vec![caller.mark(reply)]);
        self.ordered = Some(order);
        // In a turn it is made before the next request: what was asked for is not lost, and the answer is not cut.
        if matches!(self.stage, Stage::Idle) {
            self.proceed(now);
        }
        Ok(())
    }

    fn on_cancel_compaction(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        cancel: &CancelCompaction,
    ) -> Result<(), ErrorBody> {
        let running = match &self.stage {
            Stage::Compacting { job, .. } => Some(&job.order),
            _ => self.ordered.as_ref(),
        };
        let Some(running) = running else {
            return Err(ErrorBody::new(ErrorCode::NoCompaction, "no compaction is running"));
        };
        if let Some(asked) = cancel.job_id.as_ref().filter(|asked| **asked != running.job_id) {
            let message = format!("compaction `{asked}` is not running, `{}` is", running.job_id);
            return Err(ErrorBody::new(ErrorCode::NoCompaction, message).with_field("jobId"));
        }
        self.remember(caller);
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Compacting { request, job } => {
                self.cancel_job(request, &job);
                self.without_compaction(now, &job, cancelled());
            }
            other => {
                self.stage = other;
                self.cancel_ordered();
            }
        }
        Ok(())
    }

    fn on_set_strategy(&mut self, now: Timestamp, caller: &Caller, set: SetContextStrategy) -> Result<(), ErrorBody> {
        strategy(&set.strategy, set.settings.as_ref(), self.deployment.defaults)?;
        let name = resolve(&set.strategy).unwrap_or("threshold").to_owned();
        let mut settings = self.session.state.settings.clone();
        settings.strategy_settings = set.settings;
        self.update(caller, |updated| {
            updated.strategy = Some(name);
            updated.settings = Some(settings);
        });
        self.reseed_soon(now);
        Ok(())
    }

    fn on_set_model(&mut self, now: Timestamp, caller: &Caller, set: SetModel) -> Result<(), ErrorBody> {
        for (field, text) in [("model", Some(&set.model)), ("reasoningEffort", set.reasoning_effort.as_ref())] {
            if text.is_some_and(|text| text.trim().is_empty() || text.chars().count() > MODEL_CHARS_MAX) {
                let message = format!("`{field}` has 1 to {MODEL_CHARS_MAX} characters");
                return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field(field));
            }
        }
        if !self.deployment.windows.knows(&set.model) {
            let message = format!("the window of `{}` is not known; set CONTEXT_WINDOW on the server", set.model);
            return Err(ErrorBody::new(ErrorCode::UnknownModel, message).with_field("model"));
        }
        let mut settings = self.session.state.settings.clone();
        settings.reasoning_effort = set.reasoning_effort;
        if set.model != self.session.state.model {
            settings.learned_window_tokens = None;
            self.seen = super::Seen::default();
            self.seen = Seen::default();
        }
        self.update(caller, |updated| {
            updated.model = Some(set.model);
            updated.settings = Some(settings);
        });
        self.reseed_soon(now);
        Ok(())
    }

    /// Ends this loop now, or at the next request where something is running.
    fn reseed_soon(&mut self, now: Timestamp) {
        self.reseed_due = true;
        if matches!(self.stage, Stage::Idle) {
            self.proceed(now);
        }
    }

    fn on_set_options(&mut self, caller: &Caller, set: &SetOptions) -> Result<(), ErrorBody> {
        if let Some(temperature) = set.temperature.filter(|temperature| !(0.0..=2.0).contains(temperature)) {
            let message = format!("the temperature is 0 to 2, not {temperature}");
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("temperature"));
        }
        if set.max_output_tokens.is_some_and(|tokens| tokens == 0 || tokens > TOKENS_MAX) {
            let message = format!("maxOutputTokens is 1 to {TOKENS_MAX}");
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("maxOutputTokens"));
        }
        let mut settings = self.session.state.settings.clone();
        settings.temperature = set.temperature;
        settings.max_output_tokens = set.max_output_tokens;
        self.update(caller, |updated| updated.settings = Some(settings));
        Ok(())
    }

    fn on_rename(&mut self, caller: &Caller, name: &str) -> Result<(), ErrorBody> {
        let name = name.trim();
        if name.chars().any(char::is_control) {
            let message = "a name has no control characters".to_owned();
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("name"));
        }
        if name.is_empty() || name.chars().count() > NAME_CHARS_MAX {
            let message = format!("a name has 1 to {NAME_CHARS_MAX} characters, not {}", name.chars().count());
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("name"));
        }
        self.update(caller, |updated| updated.name = Some(name.to_owned()));
        Ok(())
    }

    fn on_get_context(&mut self, caller: &Caller, get: &GetContext) {
        let context = self.context();
        let tokens = self.count(&context).tokens;
        let envelope = envelope(&self.system, self.tools.definitions(), &context, &self.options());
        let context = match get.format {
            Some(ContextFormat::Markdown) => Context { envelope: None, markdown: Some(markdown(&envelope)), tokens },
            _ => Context { envelope: Some(envelope), markdown: None, tokens },
        };
        self.reply(caller, Reply::Context(Box::new(context)));
    }
}
