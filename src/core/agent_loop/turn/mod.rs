//! The turn machine: from a user message until the loop is idle again, one request after another.

mod overflow;
pub(super) mod queue;
pub(super) mod tools;

use tools::SentTools;
pub use tools::{TOOLS_MAX, Tools, check_offers};

use crate::agent_loop::step::{Counted, Step};
use crate::agent_loop::workspace::Workspace;
use crate::agent_loop::{
    AgentLoop, CallModel, Deadline, Effect, Mark, RequestId, commands::Caller, compaction::held::Need, hooks::Whole,
    prompt::session_updated, stage::Stage, turn::queue::Said,
};
use crate::{
    context::{
        Context, Decision, RequestCount,
        causes::Cause,
        count::{answer_report, sent_key},
        counter::Report,
    },
    model::{Answer, ModelRequest, Purpose, ReportedUsage},
    session::{SessionState, input::name_from, state::add_usage},
};
use reseed_protocol::{
    CallId, CommandId, Entry, EntryData, EntryId, ErrorBody, ErrorCode, Message, Part, Role, StopReason, Timestamp,
    TurnId, Usage, UsageSource,
    event::{
        CallOutcome, ContextWarning, EntryAppended, EphemeralEvent, Event, ItemAborted, TurnFinished, TurnStarted,
        TurnStatus,
    },
    hook::HookPoint,
    receipt::{HookRun, Receipt},
    reply::{Accepted, PendingCall, Reply},
};
use std::collections::BTreeMap;

/// The running turn.
#[derive(Debug)]
pub(in crate::agent_loop) struct Turn {
    pub(in crate::agent_loop) carried: Carried,
    /// The request that the model is answering, or that is being stopped.
    pub(in crate::agent_loop) asking: Option<Asking>,
    /// True while the turn waits for the results of its pending tool calls.
    pub(in crate::agent_loop) awaits_tools: bool,
    /// Deadlines of the pending tool calls.
    pub(in crate::agent_loop) deadlines: BTreeMap<CallId, Deadline>,
    /// True once the user was warned that the window is nearly full.
    pub(in crate::agent_loop) warned: bool,
    /// True if entries appended mid-turn have not been counted and reported yet.
    pub(in crate::agent_loop) meter_due: bool,
    /// The last token count reported mid-turn, and when.
    pub(in crate::agent_loop) metered: Option<(u64, Timestamp)>,
}

/// A request that the model is answering.
#[derive(Debug)]
pub(in crate::agent_loop) struct Asking {
    pub(in crate::agent_loop) request: RequestId,
    /// The entry that will hold the answer.
    pub(in crate::agent_loop) item: EntryId,
    pub(in crate::agent_loop) asked: Box<Asked>,
    /// The status that the turn ends with once the answer is stopped.
    stopped_as: Option<TurnStatus>,
}

/// The conditions of a request. Model and settings may change before its answer arrives.
#[derive(Debug)]
pub(in crate::agent_loop) struct Asked {
    pub(in crate::agent_loop) count: RequestCount,
    pub(in crate::agent_loop) model: String,
    envelope_key: String,
    /// True if nothing of the answer is shown until it is complete.
    pub(in crate::agent_loop) withheld: bool,
    /// Names of the required client hooks that must inspect the answer. If one is missing, the answer is discarded.
    guards: Vec<String>,
    receipt: Receipt,
    tools: SentTools,
}

/// The running turn's progress with its hooks. It is carried from loop to loop, so that a compaction in between does
/// not call a hook twice.
#[derive(Debug, Default)]
pub(in crate::agent_loop) struct Carried {
    /// The turn that this describes.
    turn: Option<TurnId>,
    /// True once the turn's start hooks were called.
    pub(in crate::agent_loop) started: bool,
    /// True once the hooks before the next request were called.
    pub(in crate::agent_loop) before_request: bool,
    /// Usage of an answer that hooks are inspecting and that is not stored yet.
    pub(in crate::agent_loop) looked_at_usage: Option<Usage>,
    /// The hooks that were called for the upcoming request.
    pub(in crate::agent_loop) runs: Vec<HookRun>,
}

impl Turn {
    pub(in crate::agent_loop) fn new(carried: Carried) -> Self {
        Self {
            carried,
            asking: None,
            awaits_tools: false,
            deadlines: BTreeMap::new(),
            warned: false,
            meter_due: false,
            metered: None,
        }
    }

    /// Returns the stage that the turn holds, if any.
    pub(in crate::agent_loop) fn stage(&self) -> Option<Stage> {
        match &self.asking {
            Some(Asking { stopped_as: Some(_), .. }) => Some(Stage::Stopping),
            Some(_) => Some(Stage::Asking),
            None => self.awaits_tools.then_some(Stage::AwaitingTools),
        }
    }

    /// Returns true if the model is answering this request.
    pub(in crate::agent_loop) fn asks(&self, request: RequestId) -> bool {
        self.asking.as_ref().is_some_and(|asking| asking.request == request)
    }

    /// Returns the running turn's progress with its hooks; discards that of an earlier turn.
    pub(in crate::agent_loop) fn of(&mut self, state: &SessionState) -> &mut Carried {
        let running = state.turn.as_ref().map(|turn| &turn.turn_id);
        if self.carried.turn.as_ref() != running {
            self.carried = Carried { turn: running.cloned(), ..Carried::default() };
        }
        &mut self.carried
    }
}

impl AgentLoop {
    /// Sends the next request of the running turn, compacts first, or ends the turn if neither helps.
    pub(in crate::agent_loop) fn request(&mut self) {
        let Some(turn) = self.ws.session.state.turn.clone() else { return };
        if self.turn.before_request(&mut self.ws) {
            return;
        }
        let context = self.ws.context();
        let count = self.ws.count(&context);
        let window = self.ws.window_tokens();
        let mut is_due = false;
        match self.ws.manager.before_request(&count, window) {
            Decision::Ready => {}
            Decision::Warn => self.warn(&count, window),
            Decision::Prepare => self.prepare(&count, false),
            Decision::Due => {
                if self.commit_held(Need::Due) {
                    return;
                }
                self.prepare(&count, true);
                is_due = true;
            }
            Decision::Compact => {
                if self.commit_held(Need::Room) {
                    return;
                }
                let may_wait = !turn.compacted && !self.compaction.gave_up();
                if may_wait && self.wait_for_room(&count) {
                    return;
                }
            }
        }
        self.ws.then(Step::Send(Box::new(Counted { context, count, is_due })));
    }

    /// Sends the counted request of the running turn, unless a compaction was started for it.
    pub(in crate::agent_loop) fn send_counted(&mut self, counted: Counted) {
        let Counted { context, count, is_due } = counted;
        // A held compaction that cannot be prepared again is committed as it is.
        if self.is_held_up() || is_due && !self.compaction.is_at_work() && self.commit_held(Need::Due) {
            return;
        }
        let window = self.ws.window_tokens();
        if count.tokens.saturating_sub(count.error_bound_tokens) > window {
            let error = self.compaction.does_not_fit(&self.ws, &count, window);
            self.finish_turn(TurnStatus::Failed, None, Some(error), Vec::new());
            return;
        }
        if !self.ws.before_sending(&context) {
            self.turn.send(&mut self.ws, &context);
        }
    }

    fn warn(&mut self, count: &crate::context::RequestCount, window: u64) {
        if self.turn.warned {
            return;
        }
        self.turn.warned = true;
        let info = self.compaction.context_info_of(&self.ws, count, window);
        let message = info.warning.unwrap_or_default();
        self.ws.out.push(Effect::Emit(EphemeralEvent::ContextWarning(ContextWarning {
            usage_percent: info.usage_percent,
            message,
        })));
    }

    /// Handles the model's answer: appends one entry, then makes its tool calls or ends the turn.
    pub(in crate::agent_loop) fn on_answer(&mut self, answer: Answer) {
        let Some(Asking { item, asked, .. }) = self.turn.asking.take() else { return };
        if self.ws.session.state.turn.is_none() {
            return;
        }
        if asked.model == self.ws.session.state.model
            && let Some(window_tokens) = self.compaction.answered(asked.count.tokens)
        {
            self.ws.remember_window(window_tokens);
        }
        self.ws.warn_of_cut(&answer, &asked.model);
        let message = self.ws.answer_message(&answer, &asked);
        self.ws.prompt.carried.receipts.answered(answer.usage.map(|reported| reported.input_tokens));
        if let Some(reported) = answer.usage {
            self.ws.calibrate(&asked.model, asked.count.basis.report(reported.input_tokens));
            if let Some(report) = answer_report(&message, &self.ws.prompt.counter) {
                self.ws.calibrate(&asked.model, report);
            }
        }
        // The answer is billed even if it is discarded.
        self.turn.of(&self.ws.session.state).looked_at_usage.clone_from(&message.usage);
        if let Some(hook) = self.ws.roster.missing_guard(&self.ws.session.state, &asked.guards) {
            self.guard_left(hook);
            return;
        }
        let whole = Whole { item, message, stop_reason: answer.stop_reason, tools: asked.tools.clone() };
        if self.ws.has_hooks(HookPoint::Message, None) {
            self.look_at_answer(whole, asked.withheld);
        } else {
            self.on_whole_answer(whole);
        }
    }

    /// Handles a stopped answer: the text shown so far becomes an entry marked incomplete.
    pub(in crate::agent_loop) fn on_stopped(&mut self, shown: Vec<Part>) {
        let Some(Asking { item, asked, stopped_as: Some(status), .. }) = self.turn.asking.take() else { return };
        self.ws.prompt.carried.receipts.failed();
        // A withheld answer is not stored: hooks have not inspected it.
        let shown = if asked.withheld { Vec::new() } else { shown };
        let was_shown = !shown.is_empty();
        // An incomplete tool call is no call, so only readable text is kept.
        let shown: Vec<Part> = shown
            .into_iter()
            .filter(|part| matches!(part, Part::Text { text } | Part::Reasoning { text, .. } if !text.is_empty()))
            .collect();
        if shown.iter().any(|part| matches!(part, Part::Text { .. })) {
            let mut message = Message::new(Role::Assistant, shown);
            message.model = Some(asked.model);
            message.stop_reason = Some(StopReason::Cancelled);
            message.incomplete = true;
            let turn_id = self.ws.session.state.turn.as_ref().map(|turn| turn.turn_id.clone());
            let entry = self.ws.entry(item, EntryData::Message(message));
            self.ws.append(vec![appended(entry, turn_id, None)], Vec::new());
        } else if was_shown {
            let reason = ErrorCode::Interrupted.as_str().to_owned();
            self.ws.out.push(Effect::Emit(EphemeralEvent::ItemAborted(ItemAborted { item_id: item, reason })));
        }
        self.end_turn(status);
    }

    /// Ends the running turn early as `cancelled` or `interrupted`; open calls get a result that says so.
    pub(in crate::agent_loop) fn end_turn(&mut self, status: TurnStatus) {
        let error = (status == TurnStatus::Interrupted).then(|| {
            ErrorBody::new(ErrorCode::Interrupted, "the server stopped in the middle of the turn; send retry_turn")
        });
        let finish_reason = (status == TurnStatus::Cancelled).then_some(StopReason::Cancelled);
        self.finish_turn(status, finish_reason, error, Vec::new());
    }

    /// Ends the running turn and continues with what is queued.
    pub(in crate::agent_loop) fn finish_turn(
        &mut self,
        status: TurnStatus,
        finish_reason: Option<StopReason>,
        error: Option<ErrorBody>,
        marks: Vec<Mark>,
    ) {
        let Some(turn) = self.ws.session.state.turn.clone() else { return };
        self.compaction.turn_over();
        let withdrawn: Vec<PendingCall> = self.ws.session.state.pending.clone();
        // A tool whose result hooks are inspecting has answered, so its client is not notified.
        let withdrawn: Vec<PendingCall> =
            withdrawn.into_iter().filter(|call| !self.hooks.is_looked_at(&call.call_id)).collect();
        let late = self.hooks.drop_looked_at(&mut self.ws);
        let dropped = self.turn.drop_calls(&mut self.ws, &turn.turn_id);
        if !dropped.is_empty() {
            self.ws.append(dropped, Vec::new());
        }
        withdrawn.into_iter().for_each(|call| self.ws.withdraw(call, CallOutcome::Dropped));
        late.iter().for_each(|caller| self.ws.remember(caller));
        let withheld_usage = self.turn.of(&self.ws.session.state).looked_at_usage.take();
        let usage = turn_usage(&self.ws.session.state.turn);
        let usage = match &withheld_usage {
            Some(withheld) => Some(add_usage(usage, withheld)),
            None => usage,
        };
        let event = Event::TurnFinished(Box::new(TurnFinished {
            turn_id: turn.turn_id,
            status,
            finish_reason,
            error,
            usage,
            withheld_usage,
            context_info: self.compaction.context_info(&self.ws),
        }));
        let own_prompt = self.ws.prompt.carried.of_turn.take();
        self.ws.append(vec![event], marks);
        if let Some(prompt) = own_prompt {
            self.ws.prompt.carried.receipts.because(Cause::Instructions(Some(prompt.hook)));
            self.ws.refresh_fixed();
        }
        self.ws.then(Step::Proceed);
        self.ws.then(Step::PrepareIdle);
    }

    /// Handles a session that was created or read from the store: appends a new session's initial settings, and
    /// interrupts a turn that was running.
    pub(in crate::agent_loop) fn recover(&mut self) {
        if self.ws.session.state.seq == 0 {
            let state = self.ws.session.state.clone();
            let founding = session_updated(|updated| {
                updated.model = Some(state.model);
                updated.strategy = Some(state.strategy);
                updated.settings = Some(state.settings);
                updated.generation = Some(self.ws.generation);
            });
            self.ws.append(vec![founding], Vec::new());
        }
        self.ws.roster.owe_what_was_kept(&self.ws.session.state);
        if self.ws.session.state.turn.is_some() {
            self.ws.drop_unmade_calls();
            self.end_turn(TurnStatus::Interrupted);
        } else {
            self.ws.then(Step::Proceed);
        }
    }

    /// Stops accepting work. Accepted work may finish; pending inputs are refused at once instead of waiting for their
    /// hooks.
    pub(in crate::agent_loop) fn on_hold(&mut self, error: &ErrorBody) {
        self.ws.holding = true;
        let held_by_input = self.stage() == Stage::Hooking;
        self.hooks.refuse_inputs(&mut self.ws, error);
        if held_by_input && self.stage() == Stage::Idle {
            self.ws.then(Step::Proceed);
        }
    }

    /// Stops everything that the session is doing.
    pub(in crate::agent_loop) fn on_stop(&mut self, error: Box<ErrorBody>) {
        self.ws.holding = true;
        self.hooks.refuse_inputs(&mut self.ws, &error);
        self.ws.ending = Some(error);
        self.compaction.cancel_ordered(&mut self.ws);
        self.compaction.leave_held(&self.ws);
        if self.stage() != Stage::Compacting {
            self.cancel_running();
        }
        self.stop_turn(TurnStatus::Interrupted);
    }

    /// Stops whatever the running turn is doing.
    pub(in crate::agent_loop) fn stop_turn(&mut self, status: TurnStatus) {
        match self.stage() {
            Stage::Asking => {
                let Some(asking) = &mut self.turn.asking else { return };
                asking.stopped_as = Some(status);
                self.ws.out.push(Effect::CancelModel(asking.request));
            }
            Stage::Compacting => {
                self.compaction.release();
                // A background compaction continues; the turn no longer waits for it.
                if self.compaction.is_in_background() && status == TurnStatus::Cancelled {
                    self.compaction.wait_no_more();
                } else {
                    self.cancel_running();
                }
                if self.ws.session.state.turn.is_some() {
                    self.end_turn(status);
                }
            }
            Stage::Hooking => {
                self.hooks.cancel_awaited(&mut self.ws);
                if self.ws.session.state.turn.is_some() {
                    self.end_turn(status);
                } else {
                    self.ws.then(Step::Proceed);
                }
            }
            Stage::AwaitingTools => {
                self.end_turn(status);
            }
            Stage::Leaving => {
                self.navigation.cancel_move(&mut self.ws);
            }
            Stage::Idle | Stage::Stopping | Stage::Done => {}
        }
    }
}

impl Turn {
    /// Sends the next request of the running turn.
    pub(in crate::agent_loop) fn send(&mut self, ws: &mut Workspace, context: &Context) {
        let Some(turn) = &ws.session.state.turn else { return };
        // Reports the meter between rounds only: the end of the previous turn has reported it before the first one.
        self.meter_due |= turn.answers > 0;
        let (shown_as, number) = (turn.turn_id.clone(), turn.answers + 1);
        let count = ws.count(context);
        let request = ws.next_request_id();
        let item: EntryId = ws.ids.next_id();
        let body = ModelRequest {
            model: ws.session.state.model.clone(),
            envelope: ws.envelope(context, count.tokens),
            purpose: Purpose::Turn,
        };
        let shown_as = Some((item.clone(), shown_as));
        let withheld = ws.awaits_hooks(HookPoint::Message);
        ws.out.push(Effect::CallModel(Box::new(CallModel { request, body, shown_as, withheld })));
        ws.prompt.carried.receipts.failed();
        let (envelope_key, receipt, sent, tools) = {
            let compiled = ws.compiled(context);
            let outgoing = ws.outgoing(&compiled, context, count.tokens);
            let receipt = ws.prompt.carried.receipts.of(&outgoing, number, compiled.notes.clone());
            (sent_key(&compiled.key, context), receipt, outgoing.sent(), ws.prompt.carried.tools.sent(&compiled.tools))
        };
        let (model, guards) = (ws.session.state.model.clone(), ws.roster.guards(&ws.session.state));
        let asked = Asked { count, model, envelope_key, receipt, withheld, guards, tools };
        ws.prompt.carried.receipts.sent(sent);
        self.asking = Some(Asking { request, item, asked: Box::new(asked), stopped_as: None });
        self.of(&ws.session.state).before_request = false;
    }
}

impl Workspace {
    /// Appends the user's message and starts a turn on it.
    pub(in crate::agent_loop) fn start_turn(&mut self, caller: Caller, said: Said) {
        let turn_id: TurnId = self.ids.next_id();
        let as_of_seq = self.session.state.seq;
        let Said { entry_id, parts } = said;
        let name = self.session.state.name.is_empty().then(|| name_from(&parts)).filter(|name| !name.is_empty());
        let entry = self.entry(entry_id, EntryData::Message(Message::new(Role::User, parts)));
        let reply = Reply::Accepted(Accepted {
            entry_id: Some(entry.entry_id.clone()),
            turn_id: Some(turn_id.clone()),
            queued: false,
            as_of_seq,
            duplicate: None,
        });
        let mut events = vec![
            appended(entry, Some(turn_id.clone()), Some(caller.id.clone())),
            self.turn_started(turn_id, vec![caller.id.clone()]),
        ];
        events.extend(name.map(|name| session_updated(|updated| updated.name = Some(name))));
        self.append(events, vec![caller.mark(reply)]);
        self.then(Step::Proceed);
    }

    fn answer_message(&mut self, answer: &Answer, asked: &Asked) -> Message {
        let mut content = answer.parts.clone();
        content.retain(|part| !matches!(part, Part::Text { text } if text.is_empty()));
        for part in &mut content {
            // Upstreams reuse call ids across answers; ours are unique.
            if let Part::ToolCall { call_id, .. } = part {
                *call_id = self.ids.next_id();
            }
        }
        let mut message = Message::new(Role::Assistant, content);
        message.model = Some(asked.model.clone());
        message.envelope_key = Some(asked.envelope_key.clone());
        message.stop_reason = Some(answer.stop_reason);
        let estimated = ReportedUsage {
            input_tokens: asked.count.tokens,
            output_tokens: self.prompt.counter.message(&message).total(),
            ..ReportedUsage::default()
        };
        let usage = match answer.usage {
            Some(reported) => reported.usage(UsageSource::Reported),
            None => estimated.usage(UsageSource::Estimated),
        };
        let prefix_tokens = Some(asked.receipt.prefix_tokens);
        message.usage = Some(Usage { prefix_tokens, ..self.deployment.prices.priced(&asked.model, usage) });
        message.receipt = Some(Box::new(asked.receipt.clone()));
        message
    }

    /// Returns the reply to a command that is no longer waited for: why the session is stopping, or this error.
    pub(in crate::agent_loop) fn ending_or(&self, error: ErrorBody) -> Reply {
        Reply::Error(self.ending.as_deref().cloned().unwrap_or(error))
    }
}

impl Workspace {
    pub(in crate::agent_loop) fn turn_started(&self, turn_id: TurnId, command_ids: Vec<CommandId>) -> Event {
        Event::TurnStarted(TurnStarted { turn_id, command_ids, generation: self.generation })
    }

    /// Calibrates token estimates from a report, for this session and later ones.
    pub(in crate::agent_loop) fn calibrate(&mut self, model: &str, report: Report) {
        if self.prompt.counter.trusts_reports() {
            return;
        }
        if model == self.session.state.model {
            self.prompt.calibration.observe(&report);
        }
        self.out.push(Effect::Calibrate { model: model.to_owned(), report: Box::new(report) });
    }
}

impl Deadline {
    /// Upper bound on how far progress may extend a deadline, in multiples of the tool's time limit.
    const STRETCH_MAX: u64 = 10;

    pub(in crate::agent_loop) fn after(now: Timestamp, timeout_ms: u64) -> Self {
        let at_most = now.plus_millis(timeout_ms.saturating_mul(Self::STRETCH_MAX));
        Self { at: now.plus_millis(timeout_ms), at_most, timeout_ms }
    }

    pub(in crate::agent_loop) fn moved(self, now: Timestamp) -> Self {
        Self { at: now.plus_millis(self.timeout_ms).min(self.at_most), ..self }
    }

    /// Returns the deadline postponed by the time for which it was paused.
    pub(in crate::agent_loop) fn later(self, millis: u64) -> Self {
        Self { at: self.at.plus_millis(millis), at_most: self.at_most.plus_millis(millis), ..self }
    }
}

/// Returns the event for an appended entry.
pub(in crate::agent_loop) fn appended(entry: Entry, turn_id: Option<TurnId>, command_id: Option<CommandId>) -> Event {
    Event::EntryAppended(Box::new(EntryAppended { entry, turn_id, command_id }))
}

fn turn_usage(turn: &Option<crate::session::OpenTurn>) -> Option<Usage> {
    turn.as_ref().and_then(|turn| turn.usage.clone())
}
