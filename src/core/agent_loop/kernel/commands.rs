//! Session commands: dispatches each to its machine, one arm per command.
//!
//! `src/README.md` says how to add a command. The compiler does not check the special needs of some: data read from the
//! store first (`runtime/lookups.rs`), a separate thread because the command may take long (`kernel/weight.rs`), or
//! waiting behind an input that hooks inspect (`waits_in_line`).

use crate::{
    agent_loop::{
        AgentLoop, annotate, checks::check_answer_options, io::Caller, records::done, stage::Stage, step::Step,
        subject::navigation::Ask, turn::Turn, turn::approvals, turn::queue, turn::results,
    },
    compaction::machine::{fail::cancelled, keep},
};
use crate::{
    context::window::TOKENS_MAX,
    session::{Destination, Lookup},
};
use reseed_protocol::{
    ErrorBody, ErrorCode, JobId, Message, Role, StopReason,
    command::SessionCommand,
    compaction::{CancelCompaction, SetContextStrategy},
    event::EphemeralEvent,
    reply::Reply,
    session::SetOptions,
    tools::{CallProgress, CallProgressed},
    tree::{Navigate, NavigatePosition},
    turn::{Accepted, CancelTurn, RetryTurn, TurnStatus},
};

impl AgentLoop {
    pub(in crate::agent_loop) fn on_command(
        &mut self,
        caller: Caller,
        command: SessionCommand,
        lookup: Option<Lookup>,
    ) {
        if command.spec().does.writes() && self.on_same_id(&caller) {
            return;
        }
        let command = match self.waits_in_line(&caller, command) {
            Ok(None) => return,
            Ok(Some(command)) => command,
            Err(error) => return self.ledger.reply(&caller, Reply::Error(error)),
        };
        let refused = match command {
            SessionCommand::UserInput(input) => self.on_user_input(&caller, input, lookup),
            SessionCommand::EditQueue(edit) => {
                let is_moving = self.meant_for().is_some();
                queue::edit_queue(&mut self.ledger, &caller, edit, is_moving).map(|()| self.proceed_if_idle())
            }
            SessionCommand::Navigate(navigate) => self.on_navigate(&caller, navigate, lookup),
            SessionCommand::SetLabel(set) => annotate::set_label(&mut self.ledger, &caller, set),
            SessionCommand::AppendCustom(custom) => annotate::append_custom(&mut self.ledger, &caller, custom),
            SessionCommand::AppendCustomMessage(message) => self.on_append_custom_message(&caller, message),
            SessionCommand::CancelTurn(cancel) => self.on_cancel_turn(&caller, &cancel),
            SessionCommand::RetryTurn(retry) => self.on_retry_turn(&caller, &retry),
            SessionCommand::StartCompaction(compact) => {
                self.may_compact().and_then(|()| self.compacting().on_manual_compact(&caller, compact, lookup))
            }
            SessionCommand::PreviewCompaction(preview) => {
                self.may_compact().and_then(|()| self.compacting().on_preview_compact(&caller, preview, lookup))
            }
            SessionCommand::CancelCompaction(cancel) => self.on_cancel_compaction(&caller, &cancel),
            SessionCommand::UndoCompaction(_) if self.is_busy() => {
                Err(self.busy("a compaction can be undone only when the session is idle"))
            }
            SessionCommand::UndoCompaction(undo) => self.compacting().on_undo_compaction(&caller, &undo, lookup),
            SessionCommand::PinEntry(pin) => keep::pin(&mut self.ledger, &caller, &pin, lookup),
            SessionCommand::UnpinEntry(pin) => keep::unpin(&mut self.ledger, &caller, &pin),
            SessionCommand::SetContextStrategy(set) => self.on_set_strategy(&caller, set),
            SessionCommand::SetModel(set) => {
                annotate::set_model(&mut self.ledger, &self.prompt, &caller, set).map(|is_other| {
                    if is_other {
                        self.turn.forget_window();
                    }
                    self.reseed_soon();
                })
            }
            SessionCommand::SetOptions(set) => self.on_set_options(&caller, &set),
            SessionCommand::SetInstructions(set)
                if set.instructions.as_ref().is_some_and(|text| !self.ledger.fits_as_system_prompt(text)) =>
            {
                let message = "the instructions take more than half of the model's window; shorten them".to_owned();
                Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("instructions"))
            }
            SessionCommand::SetInstructions(set) => {
                let mut settings = self.ledger.state().settings.clone();
                settings.instructions = set.instructions;
                self.ledger.update(&caller, Vec::new(), |updated| updated.settings = Some(settings));
                self.prompt.refresh(&self.ledger);
                Ok(())
            }
            SessionCommand::RenameSession(rename) => annotate::rename(&mut self.ledger, &caller, &rename.name),
            SessionCommand::GetContextInfo(_) => {
                let info = Box::new(self.compaction.context_info(self.planner()));
                self.ledger.reply(&caller, Reply::ContextInfo(info));
                Ok(())
            }
            SessionCommand::GetContext(get) => self.next_request(&get).map(|context| {
                self.ledger.reply(&caller, Reply::Context(Box::new(context)));
            }),
            SessionCommand::HookResult(result) => self.on_hook_result(&caller, *result),
            SessionCommand::ToolResult(result) => {
                let inspected = self.hooks.inspected_answer(&result.call_id);
                Turn::on_tool_result(&mut self.ledger, &caller, result, inspected, lookup).map(|answer| {
                    if let Some(answer) = answer {
                        self.turn.take_answer(&mut self.ledger, &self.prompt, &self.roster, answer);
                    }
                })
            }
            SessionCommand::CallProgress(progress) => self.on_call_progress(&caller, progress, lookup),
            SessionCommand::ApprovalResponse(response) => {
                self.turn.on_approval(&mut self.ledger, &self.prompt, &caller, response, lookup)
            }
            SessionCommand::ListTools(_) => {
                let tools = self.prompt.listed_tools(&self.ledger);
                self.ledger.reply(&caller, Reply::Tools(tools));
                Ok(())
            }
            SessionCommand::SetTools(set) => approvals::set_tools(&mut self.ledger, &mut self.prompt, &caller, set),
            SessionCommand::WithdrawApproval(withdraw) => {
                approvals::withdraw_approval(&mut self.ledger, &caller, &withdraw)
            }
        };
        if let Err(error) = refused {
            self.ledger.reply(&caller, Reply::Error(error));
        }
    }

    /// Handles a command whose id is that of one in progress: a move, or an input or tool answer that hooks are
    /// inspecting. The same command, sent again after a lost connection, is answered on its newest connection. A
    /// different one is refused, since it would write under an id that is already in use.
    pub(super) fn on_same_id(&mut self, caller: &Caller) -> bool {
        let mut waiting = self.navigation.caller().into_iter().chain(self.hooks.callers());
        let Some(waiting) = waiting.find(|waiting| waiting.id == caller.id) else { return false };
        if waiting.fingerprint == caller.fingerprint {
            waiting.origin = caller.origin;
            return true;
        }
        self.ledger.reply(caller, Reply::Error(ErrorBody::id_reused(&caller.id)));
        true
    }

    fn on_cancel_turn(&mut self, caller: &Caller, cancel: &CancelTurn) -> Result<(), ErrorBody> {
        let running = self.ledger.state().turn.as_ref().map(|turn| &turn.turn_id);
        match (running, &cancel.turn_id) {
            (None, None) if self.hooks.looks_at_input() => {
                self.ledger.remember(caller);
                self.hooks.withdraw_input(&mut self.ledger);
                return Ok(());
            }
            (None, _) => return Err(ErrorBody::new(ErrorCode::NoTurn, "no turn is running")),
            (Some(running), Some(asked)) if running != asked => {
                let message = format!("turn `{asked}` is not running, turn `{running}` is");
                return Err(ErrorBody::new(ErrorCode::NoTurn, message).with_field("turnId"));
            }
            _ => {}
        }
        self.ledger.remember(caller);
        self.stop_turn(TurnStatus::Cancelled);
        Ok(())
    }

    /// Retries the last turn, or answers the question at the session's position after a move.
    fn on_retry_turn(&mut self, caller: &Caller, retry: &RetryTurn) -> Result<(), ErrorBody> {
        if self.is_busy() {
            return Err(self.busy("a turn can be retried only when the session is idle"));
        }
        let last = self.ledger.state().last_turn.as_ref().map(|last| &last.turn_id);
        if let Some(asked) = retry.turn_id.as_ref().filter(|asked| Some(*asked) != last) {
            let message = match last {
                Some(last) => format!("turn `{asked}` is not the last one, `{last}` is"),
                None => format!("turn `{asked}` ended with an answer, is not of this session, or was moved away from"),
            };
            return Err(ErrorBody::new(ErrorCode::NothingToRetry, message).with_field("turnId"));
        }
        let said = self.ledger.path().iter().rev().find(|node| node.message.is_some());
        let said = said.and_then(|node| node.entry.message().map(|message| (node, message)));
        let unanswered = said.is_some_and(|(_, message)| message.role == Role::User || message.incomplete);
        if last.is_none() && !unanswered {
            let message = "the last turn ended with an answer, or there is none; move to a question to ask it again";
            return Err(ErrorBody::new(ErrorCode::NothingToRetry, message));
        }
        let as_of_seq = self.ledger.state().seq;
        // The text shown before a cancel stays in the tree, on a branch of its own.
        let incomplete = said.filter(|(_, message)| message.incomplete).map(|(node, _)| node.entry.parent_id.clone());
        let answered = said.and_then(|(_, message)| whole_answer(message));
        let turn_id: reseed_protocol::TurnId = self.ledger.new_id();
        if let Some(Some(parent)) = incomplete {
            let left = self.ledger.path().iter().rev().take_while(|node| *node.id() != parent);
            let destination = Destination {
                tree: self.ledger.session.tree.upto(&parent).unwrap_or_default(),
                left: left.map(|node| node.entry.clone()).collect(),
                common: Some(parent.clone()),
                leaf: Some(parent.clone()),
                ..Destination::default()
            };
            let navigate = Navigate {
                entry_id: Some(parent),
                position: Some(NavigatePosition::At),
                summarize: None,
                instructions: None,
                replace_instructions: None,
                label: None,
            };
            return self.move_and_ask(caller, navigate, destination, Ask { turn_id, said: None });
        }
        let accepted =
            Accepted { entry_id: None, turn_id: Some(turn_id.clone()), queued: false, as_of_seq, duplicate: None };
        let mark = caller.mark(Reply::Accepted(accepted));
        let started = self.ledger.turn_started(turn_id, vec![caller.id.clone()]);
        let hooks = self.roster.hooks_to_keep(self.ledger.state());
        self.ledger.append_work(vec![started], hooks, vec![mark]);
        match answered {
            Some(stop_reason) => Turn::answered(&mut self.ledger, &self.roster, stop_reason),
            None => self.ledger.then(Step::Proceed),
        }
        Ok(())
    }

    fn on_cancel_compaction(&mut self, caller: &Caller, cancel: &CancelCompaction) -> Result<(), ErrorBody> {
        if cancel.job_id.is_none() && self.running_job().is_none() && self.hooks.proposed_move().is_some() {
            // A move that waits for hooks has no job yet.
            self.ledger.remember(caller);
            self.cancel_awaited();
            self.ledger.then(Step::Proceed);
            return Ok(());
        }
        // A held compaction can be cancelled by its id at any time, or without an id if nothing is running. A job that
        // builds on it is cancelled with it.
        let held = self.ledger.state().held.as_ref().map(|held| &held.job_id);
        let is_meant = match &cancel.job_id {
            Some(asked) => held == Some(asked),
            None => held.is_some() && self.running_job().is_none(),
        };
        if is_meant {
            self.ledger.remember(caller);
            let tokens = self.compaction.context_info(self.planner()).token_count;
            self.compaction.declined(tokens);
            self.compacting().drop_held(cancelled());
            return Ok(());
        }
        let Some(running) = self.running_job().cloned() else {
            return Err(ErrorBody::new(ErrorCode::NoCompaction, "no compaction is running"));
        };
        if let Some(asked) = cancel.job_id.as_ref().filter(|asked| **asked != running) {
            let message = format!("compaction `{asked}` is not running, `{running}` is");
            return Err(ErrorBody::new(ErrorCode::NoCompaction, message).with_field("jobId"));
        }
        self.ledger.remember(caller);
        let tokens = self.compaction.context_info(self.planner()).token_count;
        self.compaction.declined(tokens);
        match self.stage() {
            Stage::Compacting => {
                if let Some(trigger) = self.compacting().cancel_running() {
                    self.ledger.then(Step::WithoutCompaction(trigger, cancelled()));
                }
            }
            Stage::Leaving => {
                self.navigation.cancel_move(&mut self.ledger);
                self.ledger.then(Step::Proceed);
            }
            _ => {
                if self.compacting().cancel_running().is_none() {
                    self.compaction.cancel_ordered(&mut self.ledger);
                }
            }
        }
        Ok(())
    }

    /// Extends the deadline of a running call.
    ///
    /// # Errors
    /// `missing_field`, `invalid_field` if the command does not name exactly one call; `unknown_call`; `too_late`.
    fn on_call_progress(
        &mut self,
        caller: &Caller,
        progress: CallProgress,
        lookup: Option<Lookup>,
    ) -> Result<(), ErrorBody> {
        let CallProgress { tool_call_id, hook_call_id, message } = progress;
        let now = self.ledger.now;
        let deadline = match (&tool_call_id, &hook_call_id) {
            (None, Some(call)) => {
                self.hooks.on_hook_progress(now, call).ok_or_else(|| self.ledger.ended.late_for_hook(call))?
            }
            (Some(call), None) => {
                let moved = self.turn.on_tool_progress(&self.ledger, call);
                moved.ok_or_else(|| results::late_progress(&self.ledger, call, lookup))?
            }
            (None, None) => {
                let message = "`call_progress` names the call that is at work: give `toolCallId` or `hookCallId`";
                return Err(ErrorBody::new(ErrorCode::MissingField, message).with_field("toolCallId"));
            }
            (Some(_), Some(_)) => {
                let message = "`call_progress` names one call: give `toolCallId` or `hookCallId`, not both";
                return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("hookCallId"));
            }
        };
        self.ledger.reply(caller, done(None));
        let event = CallProgressed { tool_call_id, hook_call_id, message, deadline };
        self.ledger.emit(EphemeralEvent::CallProgressed(event));
        Ok(())
    }

    /// Checks that no job is running that a client's own compaction must not replace.
    ///
    /// # Errors
    /// `compaction_running`.
    fn may_compact(&self) -> Result<(), ErrorBody> {
        match self.navigation.job_id().or(self.compaction.blocking_job()) {
            None => Ok(()),
            Some(job) => {
                let message = format!("compaction `{job}` is already running");
                let error = ErrorBody::new(ErrorCode::CompactionRunning, message);
                Err(error.with_details(serde_json::json!({ "jobId": job })))
            }
        }
    }

    /// Returns the running or ordered job: a compaction, a preview, or a branch summary.
    pub(in crate::agent_loop) fn running_job(&self) -> Option<&JobId> {
        self.navigation.job_id().or(self.compaction.job_id())
    }

    /// Ends this loop now if it is idle, otherwise at the next request.
    pub(super) fn reseed_soon(&mut self) {
        self.ledger.require_reseed();
        self.proceed_if_idle();
    }

    fn on_set_options(&mut self, caller: &Caller, set: &SetOptions) -> Result<(), ErrorBody> {
        if let Some(temperature) = set.temperature.filter(|temperature| !(0.0..=2.0).contains(temperature)) {
            let message = format!("the temperature must be 0 to 2, not {temperature}");
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("temperature"));
        }
        check_answer_options(set)?;
        if set.max_output_tokens.is_some_and(|tokens| tokens == 0 || tokens > TOKENS_MAX) {
            let message = format!("maxOutputTokens must be 1 to {TOKENS_MAX}");
            return Err(ErrorBody::new(ErrorCode::InvalidField, message).with_field("maxOutputTokens"));
        }
        if let (Some(asked), Some(most)) = (set.max_output_tokens, self.ledger.deployment.output_tokens_max)
            && asked > most
        {
            let message = format!("maxOutputTokens is {asked}; this server allows at most {most} (OUTPUT_TOKENS_MAX)");
            let details = serde_json::json!({ "limit": "output_tokens", "max": most });
            let error = ErrorBody::new(ErrorCode::LimitReached, message).with_field("maxOutputTokens");
            return Err(error.with_details(details));
        }
        let mut settings = self.ledger.state().settings.clone();
        settings.temperature = set.temperature;
        settings.top_p = set.top_p;
        settings.max_output_tokens = set.max_output_tokens;
        settings.answer = set.answer.clone();
        self.ledger.update(caller, Vec::new(), |updated| updated.settings = Some(settings));
        self.prompt.refresh_manager(&self.ledger);
        Ok(())
    }

    fn on_set_strategy(&mut self, caller: &Caller, set: SetContextStrategy) -> Result<(), ErrorBody> {
        let strategies = &self.ledger.deployment.strategies;
        let name = strategies.resolve(&set.strategy, "strategy")?.to_owned();
        strategies.make(&name, set.settings.as_ref(), &self.ledger.strategy_options())?;
        let mut settings = self.ledger.state().settings.clone();
        settings.strategy_settings = set.settings;
        self.ledger.update(caller, Vec::new(), |updated| {
            updated.strategy = Some(name);
            updated.settings = Some(settings);
        });
        self.compaction.reset_breaker();
        self.compacting().void_running("another strategy was chosen");
        self.reseed_soon();
        Ok(())
    }
}

/// Returns the stop reason of a complete final answer. If a turn failed after such an answer, only its last hooks can
/// have failed.
fn whole_answer(message: &Message) -> Option<StopReason> {
    let is_whole = message.role == Role::Assistant && !message.incomplete && message.tool_calls().next().is_none();
    is_whole.then(|| message.stop_reason.unwrap_or(StopReason::Stop))
}
