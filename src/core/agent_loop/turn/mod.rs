//! The turn machine: from a user message until the loop is idle again, one request after another.
//!
//! Inputs: the model's answer to a turn's request, its failure, or the part shown when it was stopped; the commands
//! `tool_result`, `call_progress` and `edit_queue`, and accepted inputs; the steps `Send` and `ToolsTick`. The kernel
//! takes `Request`, `SendPrepared`, `RequestFailed` and `EndTurn`, because they involve several machines.
//!
//! Outputs: the effects that call the model and cancel the call; the entries and events of the turn, of its tool calls
//! and of the queue; the steps `Ask` (the hooks of the turn), `AfterHooks`, `RequestFailed`, `EndTurn` and `Proceed`.
//!
//! - `answer`: the model's answer; `calls`: its tool calls; `overflow`: a failed request
//! - `tools`: the tool calls; `open_calls`: which of them run; `approvals`: those that a person must allow; `results`:
//!   their results; `queue`: waiting inputs
//! - `meter`: how full the window is; `memory`: what the next loop inherits

mod answer;
pub(super) mod approvals;
pub(super) mod calls;
pub(super) mod memory;
mod meter;
mod open_calls;
mod overflow;
pub(super) mod queue;
pub(super) mod results;
pub(super) mod tools;
mod written_calls;

use crate::agent_loop::io::{Caller, Effect, RequestId};
use crate::agent_loop::{
    ledger::Ledger, prompt::Prompt, prompt::Sent, records::appended, records::session_updated, roster::Roster,
    stage::Stage, step::Step, subject::Subject, subject::input::Said, subject::request::Start,
    turn::memory::TurnMemory, turn::memory::WindowEvidence,
};
use crate::usage_row::UsagePurpose;
use crate::{
    context::{Context, RequestCount, node::Node},
    model::{ModelRequest, Purpose},
    session::{SessionState, input::name_from},
};
use open_calls::OpenCalls;
use reseed_protocol::{
    CommandId, Entry, EntryId, Role, StopReason, Timestamp, TurnId, Usage,
    context::{ContextInfo, ContextWarning, ContextWarningCode},
    event::{EphemeralEvent, Event},
    hooks::{ContextReason, HookPoint},
    receipt::HookRun,
    reply::Reply,
    turn::{Accepted, TurnStatus},
};
use std::sync::Arc;

/// Maximum number of hooks named in a receipt: twice the number that can be registered. If a request called more, its
/// receipt is truncated.
const RUNS_MAX: usize = 2 * crate::hook::HOOKS_MAX;

/// The running turn.
#[derive(Debug)]
pub(crate) struct Turn {
    carried: TurnMemory,
    /// The request that the model is answering, or that is being stopped.
    asking: Option<OpenRequest>,
    /// True while the turn waits for the results of its pending tool calls.
    awaits_tools: bool,
    /// The tool calls that run or wait to run.
    calls: OpenCalls,
    /// True once the user was warned that the window is nearly full.
    warned: bool,
    /// True if entries appended mid-turn have not been counted and reported yet.
    meter_due: bool,
    /// The last token count reported mid-turn, and when.
    metered: Option<(u64, Timestamp)>,
}

/// A request that the model is answering.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    request: RequestId,
    /// The entry that will hold the answer.
    item: EntryId,
    asked: Box<Asked>,
    /// The status that the turn ends with once the answer is stopped.
    stopped_as: Option<TurnStatus>,
}

/// The conditions under which a request was sent. Model and settings may change before its answer arrives.
#[derive(Debug)]
pub(crate) struct Asked {
    count: RequestCount,
    /// Our own estimate of the whole request's text, made without reports.
    estimate: u64,
    model: String,
    /// True if nothing of the answer is shown until it is complete.
    withheld: bool,
    /// Names of the required client hooks that must inspect the answer. If one is missing, the answer is discarded.
    guards: Vec<String>,
    sent: Sent,
}

impl Turn {
    pub(crate) fn new(carried: TurnMemory) -> Self {
        Self {
            carried,
            asking: None,
            awaits_tools: false,
            calls: OpenCalls::default(),
            warned: false,
            meter_due: false,
            metered: None,
        }
    }

    /// Returns the turn's stage, if it has one.
    pub(crate) fn stage(&self) -> Option<Stage> {
        match &self.asking {
            Some(OpenRequest { stopped_as: Some(_), .. }) => Some(Stage::Stopping),
            Some(_) => Some(Stage::Asking),
            None => self.awaits_tools.then_some(Stage::AwaitingTools),
        }
    }

    /// Returns true if the model is answering this request.
    pub(crate) fn asks(&self, request: RequestId) -> bool {
        self.asking.as_ref().is_some_and(|asking| asking.request == request)
    }

    /// Returns what the next loop inherits.
    pub(crate) fn into_carried(self) -> TurnMemory {
        self.carried
    }

    /// Discards the evidence about the window after a change of model.
    pub(crate) fn forget_window(&mut self) {
        self.carried.seen = WindowEvidence::anew();
    }

    /// Notes that entries were appended that the meter has not counted.
    pub(crate) fn meter_is_due(&mut self) {
        self.meter_due = true;
    }

    /// Counts the turn's time: see [`Turn::over_at`].
    pub(crate) fn keep_time(&mut self, ledger: &Ledger) {
        if ledger.deployment.turn_timeout_ms.is_some() {
            let is_parked = self.is_parked(ledger);
            self.carried.keep_time(ledger.state(), is_parked, ledger.now);
        }
    }

    /// Returns when the turn will have taken longer than the deployment allows, unless it waits for approvals.
    pub(crate) fn over_at(&self, ledger: &Ledger) -> Option<Timestamp> {
        let limit_ms = ledger.deployment.turn_timeout_ms?;
        self.carried.over_at(ledger.state(), limit_ms).filter(|_| self.stage() != Some(Stage::Stopping))
    }

    /// Calls the hooks that run before the next request is counted. Returns true if the request now waits for them.
    pub(crate) fn before_request(&mut self, ledger: &mut Ledger, prompt: &mut Prompt, roster: &Roster) -> bool {
        let starts = !std::mem::replace(&mut self.carried.progress(ledger.state()).started, true);
        if starts {
            prompt.adopt_tools(ledger);
        }
        if starts && roster.has_hooks(ledger, HookPoint::BeforeAgentStart, None) {
            let start = start_subject(ledger, prompt);
            ledger.then(Step::Ask(Subject::Start(Box::new(start))));
            return true;
        }
        let is_next = !std::mem::replace(&mut self.carried.progress(ledger.state()).before_request, true);
        if is_next && roster.has_hooks(ledger, HookPoint::Context, Some(ContextReason::BeforeRequest)) {
            ledger.then(Step::Ask(Subject::BeforeRequest));
            return true;
        }
        false
    }

    /// Ends the turn if its last answer has calls whose results come with the next input. Returns true if it did.
    pub(crate) fn ends_with_calls(&mut self, ledger: &mut Ledger, roster: &Roster) -> bool {
        let ends = std::mem::take(&mut self.carried.progress(ledger.state()).leaves_calls);
        if ends {
            Self::answered(ledger, roster, StopReason::ToolCalls);
        }
        ends
    }

    /// Notes a hook that was called for the upcoming request.
    pub(crate) fn hook_ran(&mut self, state: &SessionState, run: HookRun) {
        let runs = &mut self.carried.progress(state).runs;
        if runs.len() < RUNS_MAX {
            runs.push(run);
        }
    }

    /// Returns the hooks that were called for the upcoming request.
    #[cfg(test)]
    pub(crate) fn runs(&self) -> &[HookRun] {
        self.carried.runs()
    }

    /// Notes that the answer that hooks inspected is stored with its usage. Returns the hooks that were called for it.
    pub(crate) fn answer_is_stored(&mut self, state: &SessionState) -> Vec<HookRun> {
        let progress = self.carried.progress(state);
        progress.looked_at_usage = None;
        std::mem::take(&mut progress.runs)
    }

    /// Warns the user once that the window is nearly full.
    pub(crate) fn warn(&mut self, ledger: &mut Ledger, info: ContextInfo) {
        if std::mem::replace(&mut self.warned, true) {
            return;
        }
        let message = info.warning.unwrap_or_default();
        ledger.emit(EphemeralEvent::ContextWarning(ContextWarning {
            usage_ratio: info.usage_ratio,
            message,
            code: Some(ContextWarningCode::NearlyFull),
        }));
    }

    /// Stops the answer in progress. The turn ends with this status once the part shown so far is known.
    pub(crate) fn stop_asking(&mut self, ledger: &mut Ledger, status: TurnStatus) {
        let Some(asking) = &mut self.asking else { return };
        asking.stopped_as = Some(status);
        ledger.push(Effect::CancelModel(asking.request));
    }

    /// Takes the usage of an answer that hooks are inspecting.
    pub(crate) fn take_withheld_usage(&mut self, state: &SessionState) -> Option<Usage> {
        self.carried.progress(state).looked_at_usage.take()
    }

    /// Sends this context to the model as the next request of the running turn.
    pub(crate) fn send(&mut self, ledger: &mut Ledger, prompt: &mut Prompt, roster: &Roster, context: &Context) {
        let Some(turn) = &ledger.state().turn else { return };
        // The meter is reported only between rounds: before the first one, the end of the previous turn has reported
        // it.
        self.meter_due |= turn.answers > 0;
        let (shown_as, number) = (turn.turn_id.clone(), turn.answers + 1);
        let count = prompt.count(ledger, context);
        let item: EntryId = ledger.new_id();
        let body = ModelRequest {
            model: ledger.state().model.clone(),
            envelope: prompt.envelope(ledger, context, count.tokens, count.error_bound_tokens),
            purpose: Purpose::Turn,
            compared_with: prompt.compared_with(),
            compacts: None,
        };
        let shown_as = Some((item.clone(), shown_as));
        let withheld = roster.awaits_hooks(ledger, HookPoint::Message);
        let request = ledger.call_model(body, shown_as, withheld, false, UsagePurpose::Turn);
        let sent = prompt.sent(ledger, context, count.tokens, number);
        let (model, guards) = (ledger.state().model.clone(), roster.guards(ledger.state()));
        let estimate = prompt.text_estimate(context);
        let asked = Asked { count, estimate, model, withheld, guards, sent };
        self.asking = Some(OpenRequest { request, item, asked: Box::new(asked), stopped_as: None });
        self.carried.progress(ledger.state()).before_request = false;
    }
}

/// Returns the events of an input's entries. Only the last one, the input itself, belongs to the turn.
pub(crate) fn appended_input(entries: Vec<Entry>, turn_id: &TurnId, command_id: Option<&CommandId>) -> Vec<Event> {
    let last = entries.len().saturating_sub(1);
    let event =
        |(at, entry): (usize, Entry)| appended(entry, (at == last).then(|| turn_id.clone()), command_id.cloned());
    entries.into_iter().enumerate().map(event).collect()
}

/// Appends the user's message and starts a turn on it.
pub(crate) fn start_turn(ledger: &mut Ledger, roster: &mut Roster, caller: Caller, said: Said) {
    let turn_id: TurnId = ledger.new_id();
    let as_of_seq = ledger.state().seq;
    let is_unnamed = ledger.state().name.is_empty();
    let name = is_unnamed.then(|| name_from(said.first_of_user())).filter(|name| !name.is_empty());
    let leaf = ledger.state().leaf.clone();
    let entries = said.into_entries(ledger, leaf);
    let reply = Reply::Accepted(Accepted {
        entry_id: entries.last().map(|entry| entry.entry_id.clone()),
        turn_id: Some(turn_id.clone()),
        queued: false,
        as_of_seq,
        duplicate: None,
    });
    let mut events = appended_input(entries, &turn_id, Some(&caller.id));
    events.push(ledger.turn_started(turn_id, vec![caller.id.clone()]));
    events.extend(name.map(|name| session_updated(|updated| updated.name = Some(name))));
    ledger.append_work(events, roster.hooks_to_keep(ledger.state()), vec![caller.mark(reply)]);
    ledger.then(Step::Proceed);
}

/// Returns the subject for the hooks at the start of a turn: the last user message since the model's last answer.
fn start_subject(ledger: &Ledger, prompt: &Prompt) -> Start {
    let path = ledger.path();
    let is_answer = |node: &Arc<Node>| node.message.as_ref().is_some_and(|said| said.role == Role::Assistant);
    let since = path.iter().rposition(is_answer).map_or(0, |at| at + 1);
    let is_users = |node: &&Arc<Node>| node.entry.message().is_some_and(|said| said.role == Role::User);
    let said = path[since..].iter().rfind(is_users).and_then(|node| node.message.as_ref());
    let input = said.map(|message| message.content.clone()).unwrap_or_default();
    Start { system_prompt: prompt.system_prompt(), input, prompt_by: None, adds: Vec::new() }
}
