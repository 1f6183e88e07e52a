//! Tool calls: how they are executed, and their limits.

use crate::agent_loop::{
    deadline::Deadline,
    io::{CallTool, Effect},
    ledger::Ledger,
    records::appended,
    step::Step,
    subject::answer::Called,
    turn::Turn,
    turn::approvals::{Verdict, dropped_approvals, expire_approvals, verdict},
};
use crate::tool::{Terms, ToolPlace};
use reseed_protocol::{
    CallId, Entry, EntryData, EntryId, Message, Part, Role, Timestamp, TurnId,
    event::{EphemeralEvent, Event},
    tools::{CallOutcome, CallProgressed, CallResolved, PendingCall, ToolCall, ToolCancelled},
};

/// The result of a call that was running, in the server or at its client, when the server stopped.
const INTERRUPTED: &str = "The call was interrupted: the server stopped before the tool answered. The call may have \
                           taken effect, and it is not repeated.";

impl Turn {
    /// Extends the deadline of a call that its client reports as running. Returns the new one.
    pub(crate) fn on_tool_progress(&mut self, ledger: &Ledger, call: &CallId) -> Option<Timestamp> {
        let is_clients = |known: &PendingCall| known.call_id == *call && known.place == ToolPlace::Client;
        let is_clients = ledger.state().pending.iter().any(is_clients);
        is_clients.then(|| self.calls.moved(call, ledger.now)).flatten()
    }

    /// Handles progress reported by a server tool.
    pub(crate) fn on_server_progress(&mut self, ledger: &mut Ledger, call: &CallId, message: Option<String>) {
        let Some(deadline) = self.calls.moved(call, ledger.now) else { return };
        progressed(ledger, call.clone(), message, deadline);
    }

    /// Appends a timeout result for each call whose deadline has passed, and refuses approvals that were not answered.
    pub(crate) fn on_tools_tick(&mut self, ledger: &mut Ledger) {
        if !self.awaits_tools {
            return;
        }
        let expired = expire_approvals(ledger);
        let over = self.calls.take_overdue(ledger.now);
        if over.is_empty() && !expired {
            return;
        }
        let turn_id = ledger.turn_id();
        for (call_id, limit_ms) in over {
            let output = format!("The tool did not answer within {limit_ms} ms.");
            let entry = result_entry(ledger, ledger.state().leaf.clone(), call_id.clone(), output, true);
            let call = ledger.state().pending.iter().find(|call| call.call_id == call_id).cloned();
            let resolved = CallResolved::over(call_id, CallOutcome::TimedOut);
            ledger.append(vec![appended(entry, turn_id.clone(), None), Event::CallResolved(resolved)], Vec::new());
            call.into_iter().for_each(|call| withdraw(ledger, call, CallOutcome::TimedOut));
        }
        self.meter_due = true;
        self.after_results(ledger);
    }

    /// Starts the calls that may start now, and continues the turn once none is open.
    pub(crate) fn after_results(&mut self, ledger: &mut Ledger) {
        self.start_calls(ledger, true);
        let state = ledger.state();
        if self.awaits_tools && state.pending.is_empty() && state.approvals.is_empty() {
            ledger.then(Step::Proceed);
        }
    }

    /// Makes the calls that the approval policy allows, requests approval for others, and tells the model why the rest
    /// are not made.
    pub(crate) fn begin_calls(
        &mut self,
        ledger: &mut Ledger,
        mut events: Vec<Event>,
        leaf: EntryId,
        called: Vec<Called>,
    ) {
        let Some(turn_id) = ledger.turn_id() else { return };
        let mut leaf = leaf;
        self.calls.clear();
        for called in called {
            let verdict = match &called.verdict {
                Ok(terms) => verdict(ledger, &called, terms),
                Err(why) => Verdict::Refuse(why.clone()),
            };
            match (verdict, called.verdict) {
                (Verdict::Run, Ok(terms)) => {
                    let Called { call_id, name, arguments, .. } = called;
                    events.extend(self.made(ledger, turn_id.clone(), call_id, name, arguments, terms));
                }
                (Verdict::Ask(approval), _) => events.push(Event::ApprovalRequest(approval)),
                (Verdict::Refuse(why), _) | (Verdict::Run, Err(why)) => {
                    let result = result_entry(ledger, Some(leaf), called.call_id, why, true);
                    leaf = result.entry_id.clone();
                    events.push(appended(result, Some(turn_id.clone()), None));
                }
            }
        }
        ledger.append(events, Vec::new());
        self.awaits_tools = true;
        self.start_calls(ledger, false);
    }

    /// Notes that the last answer has calls whose results come with the next input.
    pub(crate) fn leave_calls(&mut self, ledger: &Ledger) {
        self.carried.progress(ledger.state()).leaves_calls = true;
    }

    /// Notes that a call is made, and returns its event. It starts when its terms allow. A call that ends the turn is
    /// left to the client and has no event.
    pub(super) fn made(
        &mut self,
        ledger: &Ledger,
        turn_id: TurnId,
        call_id: CallId,
        name: String,
        arguments: String,
        terms: Terms,
    ) -> Option<Event> {
        if terms.ends_turn {
            self.leave_calls(ledger);
            return None;
        }
        self.calls.wait(call_id.clone(), terms);
        let deadline = ledger.now.plus_millis(limit_ms(ledger, &terms));
        Some(Event::ToolCall(ToolCall { call_id, turn_id, name, arguments, deadline, place: terms.place }))
    }

    /// Starts the calls that may start. `is_late` means that their deadlines, which clients know, begin only now.
    pub(super) fn start_calls(&mut self, ledger: &mut Ledger, is_late: bool) {
        while let Some((call_id, terms)) = self.calls.take_startable(ledger.deployment.tool_parallel_max) {
            let deadline = Deadline::after(ledger.now, limit_ms(ledger, &terms));
            self.calls.started(call_id.clone(), terms, deadline);
            if is_late {
                progressed(ledger, call_id.clone(), None, deadline.at);
            }
            if is_late || terms.place == ToolPlace::Server {
                start_call(ledger, &call_id, terms.place);
            }
        }
    }

    /// Returns when the next tool call times out, or the next approval expires.
    pub(crate) fn next_deadline(&self, ledger: &Ledger) -> Option<Timestamp> {
        let approvals = ledger.state().approvals.iter().map(|approval| approval.expires_at).min();
        [self.calls.next_deadline(), approvals].into_iter().flatten().min().filter(|_| self.awaits_tools)
    }

    /// Returns true if this call is running: it is pending and waits for no other.
    pub(crate) fn is_running(&self, call: &CallId) -> bool {
        self.calls.is_running(call)
    }

    /// Notes that a call has its answer, so its time limit ends.
    pub(crate) fn has_answer(&mut self, call_id: &CallId) {
        self.calls.ended(call_id);
    }

    /// Notes that the turn no longer waits for tools.
    pub(crate) fn tools_are_over(&mut self) {
        self.awaits_tools = false;
    }

    /// Ends the calls that are running when the server stops, or were running when it did, and lets the turn wait for
    /// its approvals. Does nothing if it waits for none.
    pub(crate) fn park(&mut self, ledger: &mut Ledger) -> bool {
        if ledger.state().approvals.is_empty() {
            return false;
        }
        let Some(turn_id) = ledger.turn_id() else { return false };
        let withdrawn = ledger.state().pending.clone();
        let events = self.interrupted(ledger, &turn_id);
        if !events.is_empty() {
            ledger.append(events, Vec::new());
        }
        withdrawn.into_iter().for_each(|call| withdraw(ledger, call, CallOutcome::Dropped));
        self.awaits_tools = true;
        true
    }

    /// Returns results for the calls that are still open when their turn ends.
    pub(crate) fn drop_calls(&mut self, ledger: &mut Ledger, turn_id: &TurnId, is_interrupted: bool) -> Vec<Event> {
        self.awaits_tools = false;
        let mut events = match is_interrupted {
            true => self.interrupted(ledger, turn_id),
            false => self.results_for_open(ledger, turn_id, "The turn ended before the tool answered."),
        };
        let leaf = events.iter().rev().find_map(|event| match event {
            Event::EntryAppended(appended) => Some(appended.entry.entry_id.clone()),
            _ => None,
        });
        events.extend(dropped_approvals(ledger, leaf.or_else(|| ledger.state().leaf.clone()), turn_id));
        events
    }

    fn interrupted(&mut self, ledger: &mut Ledger, turn_id: &TurnId) -> Vec<Event> {
        self.results_for_open(ledger, turn_id, INTERRUPTED)
    }

    fn results_for_open(&mut self, ledger: &mut Ledger, turn_id: &TurnId, output: &str) -> Vec<Event> {
        self.calls.clear();
        let mut leaf = ledger.state().leaf.clone();
        let pending = ledger.state().pending.clone();
        let mut events = Vec::with_capacity(2 * pending.len());
        for call in pending {
            let entry = result_entry(ledger, leaf, call.call_id.clone(), output.to_owned(), true);
            leaf = Some(entry.entry_id.clone());
            events.push(appended(entry, Some(turn_id.clone()), None));
            events.push(Event::CallResolved(CallResolved::over(call.call_id, CallOutcome::Dropped)));
        }
        events
    }
}

/// Returns the time limit of a call in milliseconds.
fn limit_ms(ledger: &Ledger, terms: &Terms) -> u64 {
    terms.timeout_ms.unwrap_or(ledger.deployment.tool_timeout_ms)
}

/// Starts a pending call.
fn start_call(ledger: &mut Ledger, call_id: &CallId, place: ToolPlace) {
    let Some(call) = ledger.state().pending.iter().find(|call| call.call_id == *call_id) else { return };
    let call = CallTool {
        place,
        call_id: call.call_id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
        leaf: ledger.state().leaf.clone(),
    };
    ledger.push(Effect::CallTool(Box::new(call)));
}

fn progressed(ledger: &mut Ledger, call: CallId, message: Option<String>, deadline: Timestamp) {
    let progressed = CallProgressed { tool_call_id: Some(call), hook_call_id: None, message, deadline };
    ledger.emit(EphemeralEvent::CallProgressed(progressed));
}

/// Notifies the runner of a tool that its answer is no longer needed.
pub(crate) fn withdraw(ledger: &mut Ledger, call: PendingCall, outcome: CallOutcome) {
    let PendingCall { call_id, name, turn_id, place, .. } = call;
    if place == ToolPlace::Server {
        ledger.push(Effect::CancelTool(call_id.clone()));
    }
    let cancelled = ToolCancelled { call_id, name, turn_id, outcome };
    ledger.emit(EphemeralEvent::ToolCancelled(cancelled));
}

/// Returns a tool's answer as an entry under `parent_id`.
pub(crate) fn result_entry(
    ledger: &mut Ledger,
    parent_id: Option<EntryId>,
    call_id: CallId,
    output: String,
    is_error: bool,
) -> Entry {
    let message = Message::new(Role::Tool, vec![Part::ToolResult { call_id, output, is_error }]);
    Entry {
        entry_id: ledger.new_id(),
        parent_id,
        timestamp: ledger.now,
        imported: None,
        data: EntryData::message(message),
    }
}
